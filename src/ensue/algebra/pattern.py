"""What events must occur, and in which arrangement."""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Expr, Literal
from ensue.algebra.window import ByTime, ByUnits
from ensue.schema import Kind, Types
from ensue.span import Span

if TYPE_CHECKING:
    from ensue.algebra.operator import Operator


@dataclass(frozen=True, slots=True)
class Atom:
    """One event, bound to a variable: `Shelf x`, `(Shelf|Exit) x`, `ANY x`."""

    type: Types
    variable: str
    span: Span | None = field(default=None, compare=False, repr=False)


class Leave(Enum):
    """When a loop ends, if an event can both go on with it and begin what is behind it."""

    FORK = ""  # both are tried, as the strategies of SASE+ say
    GREEDY = "+"  # it goes on as long as it can: `Stock++ a[]`
    RELUCTANT = "?"  # it ends as soon as it can: `Stock+? a[]`


@dataclass(frozen=True, slots=True)
class Kleene:
    """From `least` to `most` events of one type, in order: `Stock+ a[]`, `Stock{2,5} a[]`."""

    atom: Atom
    least: int
    most: int | None  # None: any number
    span: Span | None = field(default=None, compare=False, repr=False)
    leave: Leave = Leave.FORK
    begun: bool = field(default=False, repr=False)  # of what remains after some of its events
    inner: Strategy | None = None  # how one event follows another; None: as the query says
    pause: "Pause | None" = None  # from one event to the next at most; None: any time
    until: "Not | None" = None  # an event that ends it


@dataclass(frozen=True, slots=True)
class Repeat:
    """From `least` to `most` times a part, each time behind the one before: `(A a, B b)+`.

    Its variables stand for several events, those of all times in order.
    """

    part: "Pattern"
    least: int
    most: int | None  # None: any number
    leave: Leave = Leave.FORK
    span: Span | None = field(default=None, compare=False, repr=False)
    begun: "Pattern | None" = field(default=None, repr=False)  # what remains of the present time
    inner: Strategy | None = None  # how one time follows another; None: as the query says
    pause: "Pause | None" = None  # from one time to the next at most; None: as long as one likes
    until: "Not | None" = None  # an event that ends it


@dataclass(frozen=True, slots=True)
class Maybe:
    """A part that may be missing: `Coupon? c`."""

    part: "Pattern"
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Seq:
    """The parts one after the other; a part ends before the next begins."""

    parts: tuple["Pattern", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Then:
    """A part of a sequence that says itself how it follows what is before it: `THEN ANY B b`.

    `how` and `pause` are about the gap before its first event; all else goes by the query's
    strategy. Of a negation: it forbids the very next event only, `THEN !B b`.
    """

    part: "Pattern"
    how: Strategy
    pause: "Pause | None" = None  # from the event before at most: `THEN NEXT WITHIN 5 minutes B b`
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class And:
    """All of the parts, in any order."""

    parts: tuple["Pattern", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Or:
    """Exactly one of the parts."""

    parts: tuple["Pattern", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Interval:
    """The time of an absence: behind `after`, up to and with `until`; both are points in time."""

    after: Expr
    until: Expr
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Not:
    """No such event where it stands: `!Counter y`, `!SEQ(B b, C c)`.

    With an interval it does not matter where it stands: `!Counter y FROM x.end TO x.end + 5`.
    """

    part: "Pattern"
    span: Span | None = field(default=None, compare=False, repr=False)
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """A field that an operator's functions name, and the column it is in."""

    field: str
    column: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Apply:
    """A user's operator over events or other results: `dedup(Alarm a, 10 minutes) d`.

    Its variable stands for the result: an event with a start, an end and attributes.
    """

    operator: "Operator"
    inputs: tuple["Pattern", ...]  # each an Atom or an Apply
    parameters: tuple[Literal, ...]
    variable: str
    reads: tuple[tuple[Reading, ...], ...] = ()  # by input; set when the query is checked
    time: Kind | None = None  # the kind of its start and end; likewise
    tick: int = 1  # nanoseconds: times and durations of results are multiples of it
    span: Span | None = field(default=None, compare=False, repr=False)


Pause = ByTime | ByUnits
Pattern = Atom | Kleene | Repeat | Maybe | Seq | Then | And | Or | Not | Apply
UNTIL = "_until"  # behind the name of a loop's variable: the event that would be its next one
GROUPS = ("SEQ", "AND", "OR")  # the words of those that are written like operators: SEQ(A a, B b)
