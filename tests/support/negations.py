"""Random query texts with negations in every place, over the streams of `support.streams`.

Every choice is taken from the generator that is passed in. Some of the texts are no valid queries.
"""

from dataclasses import dataclass, field
from random import Random

from support.streams import PLAIN, TYPES, Nature

COMPARISONS = ("<", "<=", ">", ">=", "=", "!=")


def random_negations(random: Random, nature: Nature = PLAIN, *, simple: bool = False) -> str:
    """The text of a query with negations; `simple`: of single events between single events.

    >>> print(random_negations(Random(3), simple=True))
    SEQ(A a1, !X n2, A a3) WHERE n2.x != count(a3)
    """
    return _Writer(random, simple).query(nature)


@dataclass(slots=True)
class _Writer:
    random: Random
    simple: bool
    bound: list[str] = field(default_factory=list)
    several: list[str] = field(default_factory=list)  # Kleene variables
    negated: list[list[str]] = field(default_factory=list)  # the variables of each negation
    count: int = 0

    def query(self, nature: Nature) -> str:
        pattern = self.sequence(3) if self.simple else self.pattern()
        if not self.negated:
            return random_negations(self.random, nature, simple=self.simple)
        return f"{pattern}{self.where()}{self.within(nature)}"

    # ------------------------------------------------------------------------ pattern

    def pattern(self) -> str:
        chance = self.random.random()
        if chance < 0.45:
            return self.sequence(3)
        if chance < 0.7:
            return self.conjunction()
        if chance < 0.8:
            return f"OR({self.part()}, {self.sequence(2)})"
        if chance < 0.9:
            return f"SEQ({self.part()}, ({self.sequence(1)})?)"
        return f"SEQ({self.part()}, {self.conjunction()})"

    def sequence(self, length: int) -> str:
        parts: list[str] = []
        ends = 0.0 if self.simple else 0.25
        for number in range(self.random.randint(min(2, length), length)):
            while self.random.random() < (0.45 if number else ends):
                parts.append(self.negation())
            parts.append(self.part())
        while self.random.random() < ends:
            parts.append(self.negation())
        return f"SEQ({', '.join(parts)})"

    def conjunction(self) -> str:
        parts = [self.part(), self.random.choice((self.part, lambda: self.sequence(2)))()]
        if self.random.random() < 0.3:
            parts.append(self.part())
        while self.random.random() < 0.6:
            parts.append(self.negation())
        self.random.shuffle(parts)
        return f"AND({', '.join(parts)})"

    def part(self) -> str:
        type, name = self.named()
        if not self.simple and self.random.random() < 0.2:
            self.several.append(name)
            return f"{type}{self.random.choice(('+', '{1,2}', '*'))} {name}[]"
        self.bound.append(name)
        return f"{type}{'?' if not self.simple and self.random.random() < 0.1 else ''} {name}"

    def negation(self) -> str:
        shape = "" if self.simple else self.random.choice(("", "", "", "SEQ", "SEQ", "AND", "OR"))
        names = [self.named("n", TYPES + "X") for _ in range(self.random.randint(2, 3) if shape else 1)]
        self.negated.append([name for _, name in names])
        shown = [f"{type} {name}" for type, name in names]
        if shape and len(shown) == 3 and self.random.random() < 0.5:
            shown = [shown[0], f"{self.random.choice(('SEQ', 'AND', 'OR'))}({shown[1]}, {shown[2]})"]
        return f"!{shape}({', '.join(shown)})" if shape else f"!{shown[0]}"

    def named(self, prefix: str = "", types: str = TYPES) -> tuple[str, str]:
        type = self.random.choice(types)
        self.count += 1
        return type, f"{prefix or type.lower()}{self.count}"

    # ------------------------------------------------------------------------ conditions

    def where(self) -> str:
        conditions = ["[k]"] if self.random.random() < 0.5 else []
        for group in self.negated:
            chance = self.random.random()
            name = self.random.choice(group)
            if chance < 0.2:
                conditions.append(f"{name}.x > {self.random.randint(0, 2)}")
            elif chance < 0.5:
                conditions.append(self.tied(name))
            elif chance < 0.6 and len(group) > 1:
                conditions.append(f"{group[0]}.x {self.compare()} {group[1]}.x")
        if len(self.bound) > 1 and self.random.random() < 0.3:
            conditions.append(f"{self.bound[0]}.y {self.compare()} {self.bound[-1]}.y")
        joined = " and ".join(conditions)
        if self.simple or self.random.random() < 0.6:
            return f" WHERE {joined}" if joined else ""
        positive = [*self.bound, *(f"{v}[]" for v in self.several)]
        strategy = self.random.choice(("skip_till_next_match", "partition_contiguity"))
        return f" WHERE {strategy}({', '.join(positive)}) {{ {joined or '1 = 1'} }}"

    def tied(self, name: str) -> str:
        if self.several and self.random.random() < 0.3:
            kleene = self.random.choice(self.several)
            other = self.random.choice((f"{kleene}[1].x", f"max({kleene}.x)", f"{kleene}[i].x"))
            return f"{name}.x {self.compare()} {other}"
        if not self.bound:
            return f"{name}.x > 1"
        if self.random.random() < 0.2:
            return f"{name}.x {self.compare()} count({self.random.choice(self.bound)})"
        column = self.random.choice("xxs")
        return f"{name}.{column} {self.compare()} {self.random.choice(self.bound)}.{column}"

    def compare(self) -> str:
        return self.random.choice(COMPARISONS)

    def within(self, nature: Nature) -> str:
        unit = " seconds" if nature.time.startswith("timestamp") else ""
        lengths = [f"4{unit}", f"6{unit}", f"8{unit}", "6 EVENTS"]
        if self.simple or self.random.random() < 0.1:
            lengths.append("")
        length = self.random.choice(lengths)
        return f" WITHIN {length}" if length else ""
