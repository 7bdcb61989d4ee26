"""How far apart the events of a match may be."""

from dataclasses import dataclass, field

from ensue.span import Span


@dataclass(frozen=True, slots=True)
class ByTime:
    """`WITHIN 5 minutes`: last - first <= length, on a timestamp column."""

    nanoseconds: int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ByUnits:
    """`WITHIN 20`: last - first <= amount, in the units of a numeric time column."""

    amount: int | float
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ByEvents:
    """`WITHIN 20 EVENTS`: first and last among 20 successive events of the partition."""

    count: int
    span: Span | None = field(default=None, compare=False, repr=False)


Window = ByTime | ByUnits | ByEvents
