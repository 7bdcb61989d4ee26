"""Random query texts over the streams of `support.streams`.

Every choice is taken from the generator that is passed in. A seeded one repeats a query; one that
Hypothesis supplies also shrinks it. Some of the texts are no valid queries: `ensue` says so.
"""

from dataclasses import dataclass, field
from random import Random

from support.repeats import random_of_each
from support.streams import PLAIN, TYPES, Nature

STRATEGIES = ("skip_till_any_match", "skip_till_next_match", "strict_contiguity", "partition_contiguity")
COMPARISONS = ("<", "<=", ">", ">=", "=", "!=")
QUANTIFIERS = ("+", "+", "*", "{2}", "{2,3}", "{1,2}", "{0,2}", "{2,}")
NUMBERS = ("x", "y")
KEYS = ("[k]", "[k]", "[k]", "[k]", "[k, s]", "[s]", "[y]")


def random_query(random: Random, nature: Nature = PLAIN, types: str = TYPES) -> str:
    """The text of a query about events of some types, each one letter.

    >>> print(random_query(Random(7)))
    SEQ(B b1, A{0,2} a2[]) WHERE partition_contiguity(b1, a2[]) { [k, s] } WITHIN 3 AFTER MATCH ...
    """
    return Writer(random, types).query(nature)


def random_repeats(random: Random, nature: Nature = PLAIN, types: str = TYPES) -> str:
    """The text of a query about several Kleene variables, with conditions between them.

    >>> print(random_repeats(Random(0)))
    SEQ(B* b1[], !C nc3, A+ a2[]) WHERE sum(b1.x) != a2[i].x - a2[i-1].x AFTER MATCH SKIP TO ...
    """
    return _Repeats(random, types).query(nature)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a pattern."""

    name: str
    kleene: bool = False
    negated: bool = False


@dataclass(slots=True)
class Writer:
    """Writes one query, and keeps the variables it has named."""

    random: Random
    types: str
    variables: list[Variable] = field(default_factory=list)
    side: str = ""  # what the names of its variables begin with, beside other patterns

    def query(self, nature: Nature) -> str:
        pattern = self.whole_pattern()
        text = f"{pattern}{self.where()}{self.within(nature)}{self.after()}"
        return text + (f" HAVING {self.having()}" if self.random.random() < 0.1 else "")

    @property
    def positive(self) -> list[Variable]:
        return [v for v in self.variables if not v.negated]

    # ------------------------------------------------------------------------ pattern

    def whole_pattern(self) -> str:
        chance = self.random.random()
        if chance < 0.8:
            return self.sequence(self.random.choice((0, 1, 2)), self.random.randint(1, 3))
        if chance < 0.9:
            return f"AND({self.pattern(1)}, {self.pattern(0)})"
        return f"OR({self.pattern(0)}, {self.sequence(1, 2)})"

    def pattern(self, depth: int) -> str:
        chance = self.random.random()
        if depth <= 0 or chance < 0.7:
            return self.part()
        if chance < 0.78:
            return f"AND({self.pattern(0)}, {self.pattern(depth - 1)})"
        if chance < 0.9:
            return f"OR({self.pattern(0)}, {self.pattern(depth - 1)})"
        inner = self.sequence(depth - 1, 2)
        return f"({inner})?" if chance < 0.95 else inner

    def sequence(self, depth: int, length: int) -> str:
        parts = []
        for _ in range(length):
            if self.random.random() < 0.2:
                parts.append(self.negation())
            parts.append(self.pattern(depth - 1))
        if self.random.random() < 0.15:
            parts.append(self.negation())
        return f"SEQ({', '.join(parts)})"

    def part(self) -> str:
        chance = self.random.random()
        if chance < 0.3:
            type, variable = self.named(kleene=True)
            return f"{type}{self.random.choice(QUANTIFIERS)} {variable}[]"
        type, variable = self.named()
        return f"{type}{'?' if chance < 0.38 else ''} {variable}"

    def negation(self) -> str:
        if self.random.random() < 0.1:
            left, right = self.named(negated=True), self.named(negated=True)
            return f"!OR({' '.join(left)}, {' '.join(right)})"
        return f"!{' '.join(self.named(negated=True))}"

    def named(self, *, kleene: bool = False, negated: bool = False) -> tuple[str, str]:
        type = self.random.choice(self.types + "X" if negated else self.types)
        prefix = self.side + ("n" if negated else "")
        name = f"{prefix}{type.lower()}{len(self.variables) + 1}"
        self.variables.append(Variable(name, kleene, negated))
        return type, name

    # ------------------------------------------------------------------------ conditions

    def where(self) -> str:
        conditions = self.key()
        for _ in range(self.random.choice((0, 1, 1, 2, 3))):
            conditions += self.condition()
        joined = " and ".join(conditions)
        if self.random.random() < 0.3:
            return f" WHERE {joined}" if joined else ""
        names = ", ".join(v.name + ("[]" if v.kleene else "") for v in self.positive)
        return f" WHERE {self.strategy()}({names}) {{ {joined or '1 = 1'} }}"

    def key(self) -> list[str]:
        return [self.random.choice(KEYS)] if self.random.random() < 0.5 else []

    def strategy(self) -> str:
        return self.random.choice(STRATEGIES)

    def condition(self) -> list[str]:
        variable = self.random.choice(self.variables)
        chance = self.random.random()
        if variable.kleene and chance < 0.45:
            return [self.moving(variable)]
        if chance < 0.25:
            constant = self.random.choice(("1", "2", "1.5"))
            return [f"{self.value(variable)} {self.compare()} {constant}"]
        if chance < 0.35:
            return [self.text_test(variable)]
        other = self.random.choice(self.positive)
        if variable == other and not variable.kleene:
            return []
        if other.kleene and self.random.random() < 0.4:
            return [self.of_each(other, variable)]
        return [self.between(variable, other)]

    def of_each(self, variable: Variable, other: Variable) -> str:
        """A condition between each element of a Kleene variable and another one, or itself."""
        return random_of_each(self.random, variable.name, lambda: self.value(other), self.compare)

    def between(self, one: Variable, other: Variable) -> str:
        plain = not one.kleene and not other.kleene
        chance = self.random.random()
        operator = self.compare()
        if chance < 0.12 and plain:
            return f"{one.name}.s {self.random.choice(('=', '!=', '<'))} {other.name}.s"
        if chance < 0.18 and plain:
            return f"{one.name}.k = {other.name}.k"
        if chance < 0.22 and plain:
            return f"{one.name}.s || {other.name}.s {operator} 'pq'"
        if chance < 0.32 and other.kleene and not one.kleene:
            return f"{one.name}.x {operator} {other.name}[i].x"
        left, right = self.value(one), self.value(other)
        shapes = (
            f"({left} {operator} {right} or {right} > 2)",
            f"not ({left} {operator} {right} + 1)",
            f"{left} / {right} {operator} 1",
            f"{left} % {right} {operator} 1",
            f"coalesce({left}, 1) {operator} {right}",
            f"{left} between {right} and 3",
            f"({left} {operator} {right}) is null",
            f"abs({left} - {right}) {operator} 1",
            f"{left} in ({right}, 2)",
        )
        if self.random.random() < 0.5:
            return f"{left} {operator} {right}"
        return self.random.choice(shapes)

    def text_test(self, variable: Variable) -> str:
        text = f"{variable.name}{'[1]' if variable.kleene else ''}.s"
        tests = (
            f"{text} = 'p'",
            f"{text} != 'p'",
            f"{text} in ('p', 'q')",
            f"{text} like 'p%'",
            f"upper({text}) = 'Q'",
            f"{text} is null",
        )
        return self.random.choice(tests)

    def moving(self, variable: Variable) -> str:
        name, number = variable.name, self.random.choice(NUMBERS)
        rights = (
            f"{name}[i-1].{number}",
            f"avg({name}[..i-1].{number})",
            f"max({name}[..i].{number})",
            f"{name}[1].{number}",
            f"{name}[{name}.LEN].{number}",
            str(self.random.randint(0, 3)),
            f"sum({name}[..i-1].x)",
            f"count({name}[..i-1])",
            f"min({name}[..i-1].{number})",
        )
        operator = self.random.choice(("<=", ">=", "!=", "<"))
        return f"{name}[i].{number} {operator} {self.random.choice(rights)}"

    def value(self, variable: Variable) -> str:
        name, number = variable.name, self.random.choice(NUMBERS)
        if not variable.kleene:
            over_one = self.random.random() < 0.05 and not variable.negated
            return f"max({name}.{number})" if over_one else f"{name}.{number}"
        single = (f"{name}[1].{number}", f"{name}[2].{number}", f"{name}[{name}.LEN].{number}")
        functions = ("avg", "sum", "min", "max", "count", "first", "last", "stddev")
        over_all = (*(f"{f}({name}.{number})" for f in functions), f"count({name})")
        return self.random.choice(self.random.choice((single, over_all)))

    def compare(self) -> str:
        return self.random.choice(COMPARISONS)

    # ------------------------------------------------------------------------ the rest

    def within(self, nature: Nature) -> str:
        unit = " seconds" if nature.time.startswith("timestamp") else ""
        lengths = (f"3{unit}", f"4{unit}", f"5{unit}", f"6{unit}", "4 EVENTS", "")
        length = self.random.choice(lengths)
        return f" WITHIN {length}" if length else ""

    def after(self) -> str:
        if self.random.random() < 0.6:
            return ""
        name = self.random.choice(self.positive).name
        places = ("PAST LAST EVENT", "TO NEXT EVENT", f"TO LAST {name}", f"TO FIRST {name}")
        order = self.random.choice(("", "", " IN ORDER OF START", " IN ORDER OF END"))
        return f" AFTER MATCH SKIP {self.random.choice(places)}{order}"

    def having(self) -> str:
        variable = self.random.choice(self.positive)
        return f"{self.value(variable)} {self.compare()} {self.random.choice(('1', '2'))}"


class _Repeats(Writer):
    """Writes a query about several Kleene variables; little else forbids matches."""

    def whole_pattern(self) -> str:
        parts = [self.repeat(), self.repeat()]
        if self.random.random() < 0.35:
            parts.insert(self.random.randint(0, 2), self.part())
        chance = self.random.random()
        if chance < 0.2:
            return f"AND({', '.join(parts)})"
        if chance < 0.27:
            return f"SEQ({parts[0]}, AND({', '.join([*parts[1:], self.part()])}))"
        if chance < 0.34:
            return f"SEQ({parts[0]}, OR({parts[1]}, {self.part()}))"
        if chance < 0.5:
            parts.insert(self.random.randint(0, len(parts)), self.negation())
        return f"SEQ({', '.join(parts)})"

    def repeat(self) -> str:
        type, variable = self.named(kleene=True)
        quantifier = self.random.choice(("+", "+", "+", "{1,2}", *QUANTIFIERS))
        return f"{type}{quantifier} {variable}[]"

    def key(self) -> list[str]:
        return ["[k]"] if self.random.random() < 0.2 else []

    def strategy(self) -> str:
        return self.random.choice((*STRATEGIES, "skip_till_any_match", "skip_till_next_match"))

    def condition(self) -> list[str]:
        if self.random.random() < 0.2:
            return Writer.condition(self)
        each = self.random.choice([v for v in self.positive if v.kleene])
        return [self.of_each(each, self.random.choice([v for v in self.variables if v != each]))]

    def value(self, variable: Variable) -> str:
        # what is known with a variable's first event, not with its last
        early = variable.kleene and self.random.random() < 0.4
        if early:
            return f"{variable.name}[1].{self.random.choice(NUMBERS)}"
        return Writer.value(self, variable)

    def compare(self) -> str:
        return self.random.choice((*COMPARISONS, "<=", ">=", "!="))

    def within(self, nature: Nature) -> str:
        unit = " seconds" if nature.time.startswith("timestamp") else ""
        return self.random.choice((f" WITHIN 4{unit}", f" WITHIN 8{unit}", " WITHIN 8 EVENTS", ""))

    def after(self) -> str:
        return Writer.after(self) if self.random.random() < 0.4 else ""
