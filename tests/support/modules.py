"""Random flat queries with the modules of a hierarchy: nested parts, each with a window of its own.

Every choice is taken from the generator that is passed in, as in `support.queries`.
"""

from dataclasses import dataclass, field
from random import Random

from ensue.ir.selection import ByEvents, ByTime, ByUnits, Window
from ensue.planner.hierarchy_modules import HierarchyModule
from support.streams import PLAIN, TYPES, Nature

DEEPEST = 4  # levels, the query on top among them
MOST_EVENTS = 7  # variables of a query
SECOND = 1_000_000_000


def random_hierarchy(random: Random, nature: Nature = PLAIN) -> tuple[str, tuple[HierarchyModule, ...]]:
    """The text of a flat query, and the modules that its parts come from.

    >>> text, modules = random_hierarchy(Random(86))
    >>> print(text)
    SEQ(B b1, SEQ(B b2, SEQ(C c3, A a4))) WHERE a4.x != b2.x and b1.x <= 2 WITHIN 12
    >>> [(m.box, m.variables, m.level) for m in modules]
    [('x1', ('b2', 'c3', 'a4'), 2), ('x2', ('c3', 'a4'), 3)]
    """
    while True:
        writer = _Writer(random, nature)
        text = writer.query()
        if writer.modules:
            return text, tuple(writer.modules)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a pattern: the variables that can be its first and last, and all of them."""

    text: str
    first: tuple[str, ...]
    last: tuple[str, ...]
    variables: tuple[str, ...]


@dataclass(slots=True)
class _Writer:
    random: Random
    nature: Nature
    modules: list[HierarchyModule] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    negated: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    count: int = 0
    boxes: int = 0

    def query(self) -> str:
        random = self.random
        whole = self.parts(1, None)
        for _ in range(random.choice((0, 0, 1, 2))):
            self.conditions += self.condition()
        keyed = ["[k]"] if random.random() < 0.3 else []
        length = random.choice((self.length(7), self.length(12), self.length(12), "12 EVENTS", ""))
        where = " and ".join(keyed + self.conditions)
        text = whole.text + (f" WHERE {where}" if where else "")
        return f"{text} WITHIN {length}" if length else text

    def length(self, amount: int) -> str:
        return f"{amount} seconds" if self.nature.time.startswith("timestamp") else str(amount)

    # -------------------------------------------------------------------------- parts

    def parts(self, level: int, precursor: str | None) -> _Part:
        """The inside of a module."""
        random = self.random
        if random.random() < 0.12:
            inside = [self.part(level, precursor, end=True) for _ in range(2)]
            first = tuple(v for p in inside for v in p.first)
            last = tuple(v for p in inside for v in p.last)
            names = tuple(v for p in inside for v in p.variables)
            return _Part(f"AND({', '.join(p.text for p in inside)})", first, last, names)
        size = random.choice((2, 2, 3) if level > 1 else (2, 3, 3, 4))
        texts: list[str] = []
        inside = []
        for place in range(size):
            if place and random.random() < 0.12:
                name = self.name("n")
                self.negated.append(name)
                texts.append(f"!{random.choice(TYPES + 'X')} {name}")
            end = level > 1 and place in (0, size - 1)  # a window is told by its events
            inside.append(self.part(level, precursor, end=end))
            texts.append(inside[-1].text)
        names = tuple(v for p in inside for v in p.variables)
        return _Part(f"SEQ({', '.join(texts)})", inside[0].first, inside[-1].last, names)

    def part(self, level: int, precursor: str | None, *, end: bool) -> _Part:
        random = self.random
        if level < DEEPEST and self.count < MOST_EVENTS and random.random() < 0.4:
            return self.box(level + 1, precursor)
        type = random.choice(TYPES)
        name = self.name(type.lower())
        if not end and random.random() < 0.2:
            kind = random.choice(("+", "*", "{1,2}"))
            return _Part(f"{type}{kind} {name}[]", (), (), (name,))
        self.plain.append(name)
        return _Part(f"{type} {name}", (name,), (name,), (name,))

    def box(self, level: int, precursor: str | None) -> _Part:
        random = self.random
        self.boxes += 1
        box = f"x{self.boxes}"
        place = len(self.modules)
        inside = self.parts(level, box)
        within: Window | None = None
        if random.random() < 0.8:
            within = self.within(inside, random.choice((1, 2, 3, 4, 6, 8)))
        elif random.random() < 0.2:
            within = ByEvents(5)  # says nothing here: it is no condition of the query
        module = HierarchyModule(f"M{self.boxes}", box, inside.variables, within, level, precursor)
        self.modules.insert(place, module)
        return inside

    def within(self, part: _Part, amount: int) -> Window:
        """A window, written as conditions too: no end is too long after any start."""
        start = "b" if self.nature.intervals else "t"
        self.conditions += [
            f"{last}.t - {first}.{start} <= {self.length(amount)}"
            for first in part.first
            for last in part.last
            if first != last
        ]
        if self.nature.time.startswith("timestamp"):
            return ByTime(amount * SECOND)
        return ByUnits(amount)

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # -------------------------------------------------------------------------- conditions

    def condition(self) -> list[str]:
        if not self.plain:
            return []
        one = self.random.choice(self.plain + self.negated)
        other = self.random.choice(self.plain)
        compare = self.random.choice(("<=", ">=", "!="))
        return [f"{one}.x {compare} {'2' if one == other else f'{other}.x'}"]
