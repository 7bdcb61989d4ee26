"""How far apart the events of a match may be."""

from dataclasses import dataclass, field
from datetime import timedelta

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


def constant_of(length: ByTime | ByUnits) -> timedelta | int | float:
    """A length as a value that the difference of two times is compared with."""
    match length:
        case ByTime(nanoseconds=nanoseconds):
            return timedelta(microseconds=nanoseconds / 1_000)
        case ByUnits(amount=amount):
            return amount
