"""Subscriptions of OPSL: a tree of temporal, spatial and logical operators over event atoms.

A *value* of an expression is an event or a complex event: it has members, a start, an end, and a
location, the convex hull of its members' locations.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from ensue.errors import Span
from ensue.ir.expression import Constant
from ensue.ir.selection import ByTime, ByUnits
from ensue.notebook_repr import TextRepr

Length = ByTime | ByUnits


class PredicateType(Enum):
    """The type that a predicate declares for a field."""

    ARITH = "ARITH"
    STRING = "STRING"
    BOOL = "BOOL"
    TIME = "TIME"


@dataclass(frozen=True, slots=True)
class VariableField:
    """`$x;.id`: a field of the event that a variable stands for."""

    variable: str
    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Predicate:
    """`ARITH:id = 17`. NULL satisfies no predicate."""

    type: PredicateType
    name: str
    operator: str  # "=", "!=", "<", "<=", ">", ">=", "LIKE", "IN"
    value: Constant | VariableField | tuple[Constant, ...]  # a tuple for IN
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EventAtom:
    """One event that satisfies all predicates."""

    predicates: tuple[Predicate, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class VariableUse:
    """`$x;`: a variable, which has the same value throughout a match."""

    variable: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TimePoint:
    """A point in time: a number in the units of the time column, or a timestamp."""

    at: Constant
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class IntervalSince:
    """`(A;t)` or `(T;t)`: the interval (from, to] of a length after the end of a or a time."""

    base: "Expression | TimePoint"
    length: Length


@dataclass(frozen=True, slots=True)
class IntervalBetween:
    """`(A;B)`: from the end of a to the start of b, for each a and b with a.end < b.start."""

    first: "Expression"
    second: "Expression"


SubscriptionInterval = IntervalSince | IntervalBetween


class TemporalRelation(Enum):
    """How the part of a temporal operator lies relative to its interval."""

    ABSENT = "!"  # not in the interval
    BETWEEN = "=|"  # completely in it
    AFTER = "|="  # after `to`, or after b's end for an interval between a and b


@dataclass(frozen=True, slots=True)
class TemporalCondition:
    """`!(i)C`, `=|(i)C`, `|=(i)C`."""

    when: TemporalRelation
    interval: SubscriptionInterval
    part: "Expression"
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Concurrent:
    """`|(A)B`: a and b touch or overlap in time, within the tolerance."""

    first: "Expression"
    second: "Expression"
    tolerance: Length | None = None  # None: the subscription's
    span: Span | None = field(default=None, compare=False, repr=False)


class SpatialRelation(Enum):
    """The spatial relation of two locations."""

    INSIDE = "IN"
    OVERLAP = "OVLP"
    SAME = "SPL"
    DISTANCE = "DIST"


@dataclass(frozen=True, slots=True)
class Region:
    """A constant region: normalized WKT, or `CIRCLE (x y, r)`."""

    text: str
    name: str | None = field(default=None, compare=False, repr=False)  # in the subscription
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SpatialCondition:
    """`@(P)B`, `OVLP(P)B`, `SPL(P)B`, `DIST(P;<;l)B`."""

    where: SpatialRelation
    place: "Region | Expression"
    part: "Expression"
    comparison: str | None = None  # of a distance: "<", "=", ">"
    number: float | None = None  # the distance, or the threshold of SAME. None: the subscription's
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Conjunction:
    """`A && B && C`: all of them, at any time."""

    parts: tuple["Expression", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Disjunction:
    """`A || B`: one of them."""

    parts: tuple["Expression", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Expression = EventAtom | VariableUse | TemporalCondition | Concurrent | SpatialCondition | Conjunction | Disjunction


class Select(Enum):
    """Which of the matches that share a last event are delivered."""

    LATEST = "latest"  # the one with the newest members
    ONCE = "once"  # likewise, and consumes all events up to its last one
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Subscription(TextRepr):
    """A subscription. Names are resolved; variables are defined beside the root.

    >>> import ensue
    >>> ensue.parse("(ARITH:id = 17) && (ARITH:id = 18)").select.value
    'latest'
    """

    root: Expression
    variables: Mapping[str, Expression] = field(default_factory=lambda: MappingProxyType({}))
    select: Select = Select.LATEST
    concurrent: Length | None = None  # tolerance of `|`; None: 0
    same_place: float = 1.0  # threshold of SPL: the distance of the centroids is less
    equal: float = 0.5  # tolerance of DIST(..;=;l)
    within: Length | None = None  # latest end - earliest start of the members
    text: str | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.root, tuple(sorted(self.variables.items(), key=lambda item: item[0]))))


def get_subexpressions(expression: Expression) -> tuple[Expression, ...]:
    """Returns the direct parts of an expression in the order of the text."""
    match expression:
        case EventAtom() | VariableUse():
            return ()
        case TemporalCondition(_, interval, part):
            return (*_bases(interval), part)
        case Concurrent(first, second):
            return (first, second)
        case SpatialCondition(_, place, part):
            return (part,) if isinstance(place, Region) else (place, part)
        case Conjunction(parts) | Disjunction(parts):
            return parts


def iterate_parts(*expressions: Expression) -> Iterator[Expression]:
    """Yields expressions and all their parts; a variable stands for itself."""
    remaining = list(expressions)
    while remaining:
        expression = remaining.pop()
        yield expression
        remaining += get_subexpressions(expression)


def _bases(interval: SubscriptionInterval) -> tuple[Expression, ...]:
    if isinstance(interval, IntervalBetween):
        return (interval.first, interval.second)
    return () if isinstance(interval.base, TimePoint) else (interval.base,)


def flatten_parts(parts: Iterable[Expression], kind: type[Conjunction] | type[Disjunction]) -> Iterator[Expression]:
    """Yields the operands of `A && (B && C)`, with those of inner groups of the same kind."""
    for part in parts:
        if isinstance(part, Conjunction | Disjunction) and type(part) is kind:
            yield from part.parts
        else:
            yield part


# --- tests of single events, by which events are routed to subscriptions


@dataclass(frozen=True, slots=True)
class RegionTest:
    """A spatial predicate between an event and a constant region."""

    where: SpatialRelation
    region: Region
    comparison: str | None = None  # of a distance: "<", "=", ">"
    number: float = 0.0  # the distance, or the threshold of SAME
    tolerance: float = 0.0  # of a distance compared with "="
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class EventTest:
    """A conjunction of predicates with constants and region tests."""

    predicates: tuple[Predicate, ...]
    places: tuple[RegionTest, ...] = ()


def is_selective(test: EventTest, type_field: str | None) -> bool:
    """Whether a test restricts more than the event's type or by `!=`.

    >>> is_selective(EventTest((Predicate(PredicateType.ARITH, "id", "=", 7),)), None)
    True
    >>> is_selective(EventTest((Predicate(PredicateType.ARITH, "id", "!=", 7),)), None)
    False
    """
    types = {"type", type_field}
    by_field = any(p.operator != "!=" and p.name not in types for p in test.predicates)
    by_region = any(place.where is not SpatialRelation.DISTANCE or place.comparison != ">" for place in test.places)
    return by_field or by_region
