"""Random subscriptions that are legal, over events with the fields `id`, `kind` and `v`.

Every choice is taken from the generator that is passed in. A seeded one repeats a subscription;
one that Hypothesis supplies also shrinks it. Times are integers from 0 to about 12, places lie in
the square from (0, 0) to (10, 10), so that much happens in short streams.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from hypothesis import strategies as st

from ensue.analyzer.subscription import check_subscription, get_used_variables
from ensue.errors import QueryError
from ensue.ir.selection import ByTime, ByUnits
from ensue.ir.subscription import (
    Concurrent,
    Conjunction,
    Disjunction,
    EventAtom,
    Expression,
    IntervalBetween,
    IntervalSince,
    Predicate,
    PredicateType,
    Region,
    Select,
    SpatialCondition,
    SpatialRelation,
    Subscription,
    TemporalCondition,
    TemporalRelation,
    TimePoint,
    VariableField,
    VariableUse,
)

KINDS = ("a", "b", "c")
REGIONS = {
    "Square": "POLYGON ((0 0, 5 0, 5 5, 0 5, 0 0))",
    "Bar": "POLYGON ((2 0, 8 0, 8 3, 2 3, 2 0))",
    "Ring": "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0), (3 3, 7 3, 7 7, 3 7, 3 3))",
    "Round": "CIRCLE (5 5, 3)",
    "Pair": "MULTIPOLYGON (((0 6, 3 6, 3 9, 0 6)), ((7 0, 10 0, 10 3, 7 0)))",
}


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a random subscription may have, and how much of it."""

    atoms: int = 5
    depth: int = 3  # levels of operators
    variables: int = 2
    negations: int = 1  # below each other
    absences: bool = True
    moments: bool = True
    places: bool = True
    alternatives: bool = True
    fields: bool = True  # `$x;.id`
    units: bool = True  # lengths are numbers; else `5 seconds`
    selects: tuple[Select, ...] = tuple(Select)


SMALL = Bounds(atoms=3, depth=2, variables=1)
USUAL = Bounds()
LARGE = Bounds(atoms=12, depth=5, variables=4, negations=2)


def random_subscription(random: Random, bounds: Bounds = USUAL) -> Subscription:
    """A subscription that `check_subscription` takes, in the form that a parser gives.

    >>> random_subscription(Random(7)) == random_subscription(Random(7))
    True
    """
    return _Writer(random, bounds).subscription()


def subscriptions(bounds: Bounds = USUAL) -> st.SearchStrategy[Subscription]:
    """The same for Hypothesis."""
    return st.randoms(use_true_random=False).map(lambda r: random_subscription(r, bounds))


class _Writer:
    def __init__(self, random: Random, bounds: Bounds) -> None:
        self.random = random
        self.bounds = bounds
        self.atoms = bounds.atoms
        self.free = [f"x{n}" for n in range(bounds.variables)]
        self.variables: dict[str, Expression] = {}
        self.here: list[str] = []  # variables that may be used where we are
        self.negations = 0

    def subscription(self) -> Subscription:
        root = self.expression(self.bounds.depth)
        made = self._with_options(Subscription(root, dict(self.variables)))
        used = get_used_variables(made)
        kept = {name: part for name, part in self.variables.items() if name in used}
        made = replace(made, variables=kept)
        if self.bounds.fields:
            for _ in range(self.random.randrange(3)):
                made = self._reading(made)
        return check_subscription(made)

    def _with_options(self, made: Subscription) -> Subscription:
        if self.chance(0.3):
            made = replace(made, concurrent=self.length(3))
        if self.bounds.places and self.chance(0.3):
            made = replace(made, same_place=float(self.random.choice((0.5, 2, 3))))
        if self.bounds.places and self.chance(0.3):
            made = replace(made, equal=float(self.random.choice((0, 1, 1.5))))
        if self.chance(0.4):
            made = replace(made, within=self.length(10))
        return replace(made, select=self.random.choice(self.bounds.selects))

    # ------------------------------------------------------------------------- expressions

    def expression(self, depth: int) -> Expression:
        if depth <= 0 or self.atoms <= 1:
            return self.leaf()
        kinds: list[Callable[[int], Expression]] = [self.timed, self.timed, self.concurrent]
        kinds += [self.both, self.leaf_or_variable]
        if self.bounds.places:
            kinds += [self.placed, self.placed]
        if self.bounds.alternatives:
            kinds.append(self.either)
        return self.random.choice(kinds)(depth)

    def leaf(self) -> Expression:
        if self.here and (self.atoms <= 0 or self.chance(0.4)):
            return VariableUse(self.random.choice(self.here))
        return self.atom()

    def leaf_or_variable(self, depth: int) -> Expression:
        """A variable that is new; others may use it from now on."""
        if not self.free:
            return self.leaf()
        name = self.free.pop(0)
        here = list(self.here)
        simple = self.chance(0.6)
        self.variables[name] = self.atom() if simple else self.expression(depth - 1)
        # What its definition has used stays; what it has made below negations does not.
        self.here = [*dict.fromkeys([*here, *self.here, name])]
        return VariableUse(name)

    def atom(self) -> EventAtom:
        self.atoms -= 1
        makers = (self.number, self.kind, self.value)
        count = self.random.choice((1, 1, 2))
        return EventAtom(tuple(make() for make in self.random.sample(makers, count)))

    def number(self) -> Predicate:
        if self.chance(0.2):
            return Predicate(PredicateType.ARITH, "id", "IN", (1, self.random.choice((2, 3))))
        operator = self.random.choice(("=", "=", "!="))
        return Predicate(PredicateType.ARITH, "id", operator, self.random.randint(1, 3))

    def kind(self) -> Predicate:
        type, name = PredicateType.STRING, "kind"
        match self.random.randrange(5):
            case 0:
                return Predicate(type, name, "LIKE", self.random.choice(("a%", "_", "%b")))
            case 1:
                return Predicate(type, name, "IN", tuple(self.random.sample(KINDS, 2)))
            case _:
                return Predicate(type, name, "=", self.random.choice(KINDS))

    def value(self) -> Predicate:
        operator = self.random.choice(("<", "<=", ">", ">=", "!="))
        return Predicate(PredicateType.ARITH, "v", operator, self.random.randint(0, 9))

    def both(self, depth: int) -> Expression:
        parts = [self.expression(depth - 1) for _ in range(self.random.choice((2, 2, 3)))]
        flat = [p for part in parts for p in (part.parts if isinstance(part, Conjunction) else (part,))]
        return Conjunction(tuple(flat))

    def either(self, depth: int) -> Expression:
        parts = [self.expression(depth - 1) for _ in range(2)]
        flat = [p for part in parts for p in (part.parts if isinstance(part, Disjunction) else (part,))]
        return Disjunction(tuple(flat))

    # -------------------------------------------------------------------------------- time

    def timed(self, depth: int) -> Expression:
        whens = [TemporalRelation.BETWEEN, TemporalRelation.BETWEEN, TemporalRelation.AFTER]
        if self.bounds.absences and self.negations < self.bounds.negations:
            whens.append(TemporalRelation.ABSENT)
        when = self.random.choice(whens)
        interval = self.interval(depth)
        part = self.absent(depth) if when is TemporalRelation.ABSENT else self.expression(depth - 1)
        return TemporalCondition(when, interval, part)

    def absent(self, depth: int) -> Expression:
        """Below a negation variables are its own."""
        outside, self.here = self.here, []
        self.negations += 1
        part = self.expression(depth - 1)
        self.negations -= 1
        self.here = outside
        return part

    def interval(self, depth: int) -> IntervalSince | IntervalBetween:
        match self.random.randrange(4 if self.bounds.moments else 3):
            case 0 if self.atoms > 2:
                return IntervalBetween(self.expression(depth - 2), self.expression(depth - 2))
            case 3:
                return IntervalSince(TimePoint(self.random.randint(0, 8)), self.length(6))
            case _:
                return IntervalSince(self.expression(depth - 1), self.length(6))

    def length(self, most: int) -> ByUnits | ByTime:
        amount = self.random.randint(0, most)
        return ByUnits(amount) if self.bounds.units else ByTime(amount * 1_000_000_000)

    def concurrent(self, depth: int) -> Expression:
        first, second = self.expression(depth - 1), self.expression(depth - 1)
        return Concurrent(first, second, self.length(3) if self.chance(0.4) else None)

    # ------------------------------------------------------------------------------- space

    def placed(self, depth: int) -> Expression:
        where = self.random.choice(list(SpatialRelation))
        place = self.region() if self.chance(0.5) else self.expression(depth - 1)
        part = self.expression(depth - 1)
        match where:
            case SpatialRelation.DISTANCE:
                comparison = self.random.choice(("<", "=", ">"))
                return SpatialCondition(where, place, part, comparison, float(self.random.randint(0, 6)))
            case SpatialRelation.SAME if self.chance(0.5):
                return SpatialCondition(where, place, part, None, float(self.random.choice((1, 2, 4.5))))
            case _:
                return SpatialCondition(where, place, part)

    def region(self) -> Region:
        name = self.random.choice(list(REGIONS))
        return Region(REGIONS[name], name if self.chance(0.7) else None)

    # ------------------------------------------------------------------------------ fields

    def _reading(self, made: Subscription) -> Subscription:
        """With one predicate more that reads a field of a variable, if one may."""
        if not made.variables:
            return made
        variable = self.random.choice(list(made.variables))
        read = VariableField(variable, self.random.choice(("id", "v")))
        operator = self.random.choice(("=", "=", "!=", "<"))
        asked = Predicate(PredicateType.ARITH, "id", operator, read)
        wanted = self.random.randrange(self.bounds.atoms)
        atoms = iter(range(1_000))

        def asking(atom: EventAtom) -> EventAtom:
            if next(atoms) != wanted:
                return atom
            return EventAtom((*atom.predicates, asked))

        read_by = with_atoms(made, asking)
        try:
            return check_subscription(read_by)
        except QueryError:
            return made

    def chance(self, share: float) -> bool:
        return self.random.random() < share


def with_atoms(made: Subscription, change: Callable[[EventAtom], EventAtom]) -> Subscription:
    """The same subscription with other atoms."""

    def changed(part: Expression) -> Expression:
        match part:
            case EventAtom():
                return change(part)
            case VariableUse():
                return part
            case TemporalCondition(_, IntervalBetween(first, second), inside):
                interval: IntervalSince | IntervalBetween = IntervalBetween(changed(first), changed(second))
                return replace(part, interval=interval, part=changed(inside))
            case TemporalCondition(_, IntervalSince(base, length), inside):
                since = base if isinstance(base, TimePoint) else changed(base)
                return replace(part, interval=IntervalSince(since, length), part=changed(inside))
            case Concurrent(first, second):
                return replace(part, first=changed(first), second=changed(second))
            case SpatialCondition(_, place, inside):
                where = place if isinstance(place, Region) else changed(place)
                return replace(part, place=where, part=changed(inside))
            case Conjunction(parts) | Disjunction(parts):
                return replace(part, parts=tuple(changed(one) for one in parts))

    variables = {name: changed(part) for name, part in made.variables.items()}
    return replace(made, root=changed(made.root), variables=variables)
