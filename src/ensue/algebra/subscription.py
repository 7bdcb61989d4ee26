"""What a subscription asks for: where, when and what, as a tree of operators over atoms.

This is the algebra of OPSL. A *value* of an expression is an event, or a complex event made of
several: it has members, a start, an end, and a place, the convex hull of its members' places.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from ensue.algebra.predicate import Constant
from ensue.algebra.window import ByTime, ByUnits
from ensue.rendering import ShownAsText
from ensue.span import Span

Length = ByTime | ByUnits


class PredicateType(Enum):
    """What a predicate says that a field holds."""

    ARITH = "ARITH"
    STRING = "STRING"
    BOOL = "BOOL"
    TIME = "TIME"


@dataclass(frozen=True, slots=True)
class FieldOf:
    """`$x;.id`: a field of the event that a variable stands for."""

    variable: str
    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Predicate:
    """`ARITH:id = 17`. NULL satisfies none."""

    type: PredicateType
    name: str
    operator: str  # "=", "!=", "<", "<=", ">", ">=", "LIKE", "IN"
    value: Constant | FieldOf | tuple[Constant, ...]  # a tuple for IN
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Atomic:
    """One event that satisfies all predicates."""

    predicates: tuple[Predicate, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Use:
    """`$x;`: wherever it stands in one match, it is the same value."""

    variable: str
    span: Span | None = field(default=None, compare=False, repr=False)


# ------------------------------------------------------------------------------ time


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment: a number in the units of the time column, or a timestamp."""

    at: Constant
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Since:
    """`(A;t)` or `(T;t)`: from the end of a, or from the moment, for a length: (from, to]."""

    base: "Expression | Moment"
    length: Length


@dataclass(frozen=True, slots=True)
class Amid:
    """`(A;B)`: from the end of a to the start of b, for each a and b with a.end < b.start."""

    first: "Expression"
    second: "Expression"


Interval = Since | Amid


class When(Enum):
    """Where the part of a temporal operator lies."""

    ABSENT = "!"  # nowhere in the interval
    BETWEEN = "=|"  # wholly in it
    AFTER = "|="  # behind it: behind `to`, or behind b's end where there is a b


@dataclass(frozen=True, slots=True)
class Timed:
    """`!(i)C`, `=|(i)C`, `|=(i)C`."""

    when: When
    interval: Interval
    part: "Expression"
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Concurrent:
    """`|(A)B`: they touch or overlap in time, plus or minus the tolerance."""

    first: "Expression"
    second: "Expression"
    tolerance: Length | None = None  # None: that of the subscription
    span: Span | None = field(default=None, compare=False, repr=False)


# ------------------------------------------------------------------------------ space


class Where(Enum):
    """How two places lie."""

    INSIDE = "IN"
    OVERLAP = "OVLP"
    SAME = "SPL"
    DISTANCE = "DIST"


@dataclass(frozen=True, slots=True)
class Region:
    """A region of its own: WKT, or `CIRCLE (x y, r)`, in one spelling."""

    text: str
    # how the subscription calls it
    name: str | None = field(default=None, compare=False, repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Placed:
    """`@(P)B`, `OVLP(P)B`, `SPL(P)B`, `DIST(P;<;l)B`."""

    where: Where
    place: "Region | Expression"
    part: "Expression"
    comparison: str | None = None  # of a distance: "<", "=", ">"
    number: float | None = None  # of a distance; of SAME the threshold. None: the subscription's
    span: Span | None = field(default=None, compare=False, repr=False)


# ------------------------------------------------------------------------------ logic


@dataclass(frozen=True, slots=True)
class Both:
    """`A && B && C`: all of them, whenever."""

    parts: tuple["Expression", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Either:
    """`A || B`: one of them."""

    parts: tuple["Expression", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Expression = Atomic | Use | Timed | Concurrent | Placed | Both | Either


class Select(Enum):
    """Which of the matches that one event completes are delivered."""

    LATEST = "latest"  # the one with the newest members
    ONCE = "once"  # likewise, and nothing up to its last event is used again
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Subscription(ShownAsText):
    """A whole subscription. Names are written out; variables are defined beside the root.

    >>> import ensue
    >>> ensue.parse("(ARITH:id = 17) && (ARITH:id = 18)").select.value
    'latest'
    """

    root: Expression
    variables: Mapping[str, Expression] = field(default_factory=lambda: MappingProxyType({}))
    select: Select = Select.LATEST
    concurrent: Length | None = None  # tolerance of `|`; None: 0
    same_place: float = 1.0  # threshold of SPL: the distance of the centres is less
    equal: float = 0.5  # how far a distance may be from l in DIST(..;=;l)
    within: Length | None = None  # greatest end - least start of the members
    text: str | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        return hash((self.root, tuple(sorted(self.variables.items(), key=lambda item: item[0]))))


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """The expressions that one is made of, in the order of the text."""
    match expression:
        case Atomic() | Use():
            return ()
        case Timed(_, interval, part):
            return (*_bases(interval), part)
        case Concurrent(first, second):
            return (first, second)
        case Placed(_, place, part):
            return (part,) if isinstance(place, Region) else (place, part)
        case Both(parts) | Either(parts):
            return parts


def _bases(interval: Interval) -> tuple[Expression, ...]:
    if isinstance(interval, Amid):
        return (interval.first, interval.second)
    return () if isinstance(interval.base, Moment) else (interval.base,)
