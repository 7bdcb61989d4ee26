"""Random query texts about repeated groups, over the streams of `support.streams`."""

from random import Random

from support.queries import NUMBERS, STRATEGIES, Variable, Writer
from support.streams import PLAIN, TYPES, Nature

TIMES = ("+", "+", "+", "*", "{2}", "{1,2}", "{2,}", "{,2}")
LEAVES = ("", "", "", "?", "+")


def random_groups(random: Random, nature: Nature = PLAIN, types: str = TYPES) -> str:
    """The text of a query with a repeated group; some of them are no valid queries.

    >>> print(random_groups(Random(3)))
    SEQ(...
    """
    return _Groups(random, types).query(nature)


class _Groups(Writer):
    """Writes a query about a repeated group, with conditions between the times."""

    single: list[Variable]  # of a group, and no Kleene variables themselves

    def whole_pattern(self) -> str:
        self.single = []
        parts = [self.group(self.random.choice((0, 0, 0, 1)))]
        chance = self.random.random()
        if chance < 0.25:
            parts.insert(0, self.part())
        if chance < 0.8:
            parts.append(self.part())
        if self.random.random() < 0.1:
            parts.insert(self.random.randint(0, len(parts)), self.negation())
        if self.random.random() < 0.07 and len(parts) == 2:
            return f"AND({', '.join(parts)})"
        return f"SEQ({', '.join(parts)})"

    def group(self, depth: int) -> str:
        times = self.random.choice(TIMES) + self.random.choice(LEAVES)
        inside = [self.one(depth) for _ in range(self.random.choice((1, 2, 2, 2, 3)))]
        comma = " | " if self.random.random() < 0.25 else ", "
        return f"({comma.join(inside)}){times}"

    def one(self, depth: int) -> str:
        chance = self.random.random()
        if depth and chance < 0.35:
            return self.group(depth - 1)
        type, variable = self.named(kleene=True)
        if chance < 0.7:
            self.single.append(self.variables[-1])
            return f"{type} {variable}"
        if chance < 0.85:
            return f"{type}? {variable}"
        return f"{type}{self.random.choice(('+', '+', '*', '{2}', '+?', '++'))} {variable}[]"

    def strategy(self) -> str:
        return self.random.choice((*STRATEGIES, "skip_till_next_match"))

    def condition(self) -> list[str]:
        if self.random.random() < 0.5 and len(self.single) > 1:
            return [self.in_step(*self.random.sample(self.single, 2))]
        return Writer.condition(self)

    def key(self) -> list[str]:
        return ["[k]"] if self.random.random() < 0.25 else []

    def in_step(self, one: Variable, other: Variable) -> str:
        number, at = self.random.choice(NUMBERS), self.random.choice(("i", "i", "i-1"))
        operator = self.random.choice(("<=", ">=", "!="))
        return f"{one.name}[i].{number} {operator} {other.name}[{at}].{number}"
