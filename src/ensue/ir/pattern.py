"""Patterns: the events of a match and their arrangement."""

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from ensue.errors import Span
from ensue.ir.expression import Expr, Literal
from ensue.ir.selection import ByTime, ByUnits, Strategy
from ensue.schema import Types, ValueKind

if TYPE_CHECKING:
    from ensue.ir.user_operator import UserOperator

# Marks fields that are set when a query is checked against the columns of events.
RESOLVED = {"resolved": True}


class PatternNode:
    """A node of a pattern. Derived facts are cached in its `__dict__` (`traits.cache_fact`)."""


@dataclass(frozen=True, slots=True)
class Atom(PatternNode):
    """One event, bound to a variable: `Shelf x`, `(Shelf|Exit) x`, `ANY x`."""

    type: Types
    variable: str
    span: Span | None = field(default=None, compare=False, repr=False)


class LoopExit(Enum):
    """When a loop ends, if an event can both continue it and start the next part."""

    FORK = ""  # both are tried, as in the strategies of SASE+
    GREEDY = "+"  # as late as possible: `Stock++ a[]`
    RELUCTANT = "?"  # as early as possible: `Stock+? a[]`


@dataclass(frozen=True, slots=True)
class Kleene(PatternNode):
    """From `least` to `most` events of one type, in order: `Stock+ a[]`, `Stock{2,5} a[]`."""

    atom: Atom
    least: int
    most: int | None  # None: any number
    span: Span | None = field(default=None, compare=False, repr=False)
    leave: LoopExit = LoopExit.FORK
    begun: bool = field(default=False, repr=False)  # in a derivative: some events are bound
    inner: Strategy | None = None  # between its events; None: the query's
    pause: "MaxGap | None" = None  # maximum gap between successive events; None: unlimited
    until: "Not | None" = None  # an event that ends it


@dataclass(frozen=True, slots=True)
class Repeat(PatternNode):
    """From `least` to `most` iterations of a part, one after the other: `(A a, B b)+`.

    Its variables stand for the events of all iterations, in order.
    """

    part: "Pattern"
    least: int
    most: int | None  # None: any number
    leave: LoopExit = LoopExit.FORK
    span: Span | None = field(default=None, compare=False, repr=False)
    begun: "Pattern | None" = field(default=None, repr=False)  # the rest of the current iteration
    inner: Strategy | None = None  # between its iterations; None: the query's
    pause: "MaxGap | None" = None  # maximum gap between iterations; None: unlimited
    until: "Not | None" = None  # an event that ends it


@dataclass(frozen=True, slots=True)
class Maybe(PatternNode):
    """A part that may be missing: `Coupon? c`."""

    part: "Pattern"
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Seq(PatternNode):
    """The parts one after the other; a part ends before the next begins."""

    parts: tuple["Pattern", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Then(PatternNode):
    """A part of a sequence with its own contiguity to the part before it: `THEN ANY B b`.

    `how` and `pause` apply to the gap before its first event; elsewhere the query's strategy
    holds. Around a negation, `THEN !B b`, it forbids the very next event only.
    """

    part: "Pattern"
    how: Strategy
    pause: "MaxGap | None" = None  # maximum gap: `THEN NEXT WITHIN 5 minutes B b`
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class And(PatternNode):
    """All of the parts, in any order."""

    parts: tuple["Pattern", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Or(PatternNode):
    """Exactly one of the parts."""

    parts: tuple["Pattern", ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Interval:
    """The interval of a negation, (after, until]; both ends are points in time."""

    after: Expr
    until: Expr
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Not(PatternNode):
    """No such event where it stands: `!Counter y`, `!SEQ(B b, C c)`.

    With an interval it does not matter where it stands: `!Counter y FROM x.end TO x.end + 5`.
    """

    part: "Pattern"
    span: Span | None = field(default=None, compare=False, repr=False)
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class OperatorField:
    """A field that an operator's functions read, and its column."""

    field: str
    column: str
    kind: ValueKind


@dataclass(frozen=True, slots=True)
class OperatorCall(PatternNode):
    """A call of a user-defined operator: `dedup(Alarm a, 10 minutes) d`.

    Its variable stands for the result: an event with a start, an end and attributes.
    """

    operator: "UserOperator"
    inputs: tuple["Pattern", ...]  # each an Atom or an Apply
    parameters: tuple[Literal, ...]
    variable: str
    # set by the analyzer: the fields it reads, by input; the kind of its start and end; the
    # resolution of its times and durations in nanoseconds
    reads: tuple[tuple[OperatorField, ...], ...] = field(default=(), metadata=RESOLVED)
    time: ValueKind | None = field(default=None, metadata=RESOLVED)
    tick: int = field(default=1, metadata=RESOLVED)
    span: Span | None = field(default=None, compare=False, repr=False)


MaxGap = ByTime | ByUnits
Pattern = Atom | Kleene | Repeat | Maybe | Seq | Then | And | Or | Not | OperatorCall
UNTIL = "_until"  # suffix of a loop's variable: names the event that would be its next one
GROUPS = ("SEQ", "AND", "OR")  # keywords that are written like operators: SEQ(A a, B b)
