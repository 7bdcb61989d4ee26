"""Random query texts for join trees: sequences and ANDs of events, Kleene parts and negations.

Every choice is taken from the generator that is passed in, as in `support.queries`.
"""

from dataclasses import dataclass, field
from random import Random

from support.streams import PLAIN, TYPES, Nature

QUANTIFIERS = ("+", "*", "{2}", "{1,2}", "{0,2}", "{2,}")


def random_join(random: Random, nature: Nature = PLAIN) -> str:
    """The text of a query that a join tree can run, for most choices.

    >>> print(random_join(Random(4)))
    SEQ(A a1, !X n2, B b3) WHERE a1.x > 2 WITHIN 4
    """
    return _Writer(random).query(nature)


@dataclass(slots=True)
class _Writer:
    random: Random
    plain: list[str] = field(default_factory=list)
    kleene: list[str] = field(default_factory=list)
    negated: list[str] = field(default_factory=list)

    def query(self, nature: Nature) -> str:
        inside = self.random.random() < 0.15
        pattern = self.conjunction(2) if inside else self.sequence(2, self.random.choice((2, 2, 3, 3, 4)))
        unit = " seconds" if nature.time.startswith("timestamp") else ""
        lengths = (f"4{unit}", f"6{unit}", f"9{unit}", "5 EVENTS", "8 EVENTS", "")
        length = self.random.choice(lengths)
        within = f" WITHIN {length}" if length else ""
        after = " AFTER MATCH SKIP PAST LAST EVENT" if self.random.random() < 0.1 else ""
        return f"{pattern}{self.where()}{within}{after}"

    def part(self, depth: int) -> str:
        chance = self.random.random()
        if depth > 0 and chance < 0.15:
            return self.conjunction(depth - 1)
        if depth > 0 and chance < 0.2:
            return self.sequence(depth - 1, 2)
        type = self.random.choice(TYPES)
        name = f"{type.lower()}{len(self.plain) + len(self.kleene) + len(self.negated) + 1}"
        if chance > 0.82:
            self.kleene.append(name)
            return f"{type}{self.random.choice(QUANTIFIERS)} {name}[]"
        self.plain.append(name)
        return f"{type} {name}"

    def conjunction(self, depth: int) -> str:
        count = self.random.choice((2, 2, 3))
        return f"AND({', '.join(self.part(depth - 1) for _ in range(count))})"

    def sequence(self, depth: int, length: int) -> str:
        parts = []
        for place in range(length):
            if depth == 2 and self.random.random() < (0.1 if place == 0 else 0.2):
                type = self.random.choice(TYPES + "X")
                name = f"n{len(self.plain) + len(self.kleene) + len(self.negated) + 1}"
                self.negated.append(name)
                parts.append(f"!{type} {name}")
            parts.append(self.part(depth - 1))
        return f"SEQ({', '.join(parts)})"

    def where(self) -> str:
        conditions = ["[k]"] if self.random.random() < 0.3 else []
        for _ in range(self.random.choice((0, 0, 1, 1, 2))):
            conditions += self.condition()
        return f" WHERE {' and '.join(conditions)}" if conditions else ""

    def condition(self) -> list[str]:
        if self.kleene and self.random.random() < 0.3:
            name = self.random.choice(self.kleene)
            return [f"{name}[{self.random.choice(('i', '1'))}].x {self.compare()} 2"]
        if not self.plain:
            return []
        one = self.random.choice(self.plain + self.negated)
        other = self.random.choice(self.plain)
        if one == other:
            return [f"{one}.x {self.compare()} 2"]
        if self.random.random() < 0.15:
            return [f"{one}.s {self.random.choice(('=', '!='))} {other}.s"]
        fields = self.random.choice("xy"), self.random.choice("xy")
        return [f"{one}.{fields[0]} {self.compare()} {other}.{fields[1]}"]

    def compare(self) -> str:
        return self.random.choice(("<", "<=", ">", ">=", "=", "!="))
