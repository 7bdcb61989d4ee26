"""Event selection strategies, AFTER MATCH, CHOOSE and WITHIN."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from ensue.errors import Span


class Strategy(Enum):
    """SASE+'s event selection strategies."""

    ANY = "skip_till_any_match"  # any event may be skipped: all combinations
    NEXT = "skip_till_next_match"  # only events that the run could not use
    PARTITION = "partition_contiguity"  # no event of the partition
    STRICT = "strict_contiguity"  # no event at all


# the strategies that skip no event of the partition
CONTIGUOUS = frozenset({Strategy.PARTITION, Strategy.STRICT})


class SkipTarget(Enum):
    """Where the next match of a partition may start."""

    NEXT_EVENT = "TO NEXT EVENT"  # after the match's first event
    PAST_LAST = "PAST LAST EVENT"  # after its last event
    FIRST = "TO FIRST"  # at a variable's first event
    LAST = "TO LAST"  # at a variable's last event


class MatchChoice(Enum):
    """CHOOSE: which of the matches that share a last event are returned; by default all."""

    LATEST = "LATEST"  # the one with the newest members
    ONCE = "ONCE"  # likewise, and consumes all events of the partition up to it


@dataclass(frozen=True, slots=True)
class Choose:
    """`CHOOSE LATEST`, `CHOOSE ONCE`."""

    choice: MatchChoice
    span: Span | None = field(default=None, compare=False, repr=False)


class MatchOrder(Enum):
    """The order in which matches are considered; an earlier one may consume events of others."""

    END = "END"  # by completion
    START = "START"  # by first event, then by completion


@dataclass(frozen=True, slots=True)
class AfterMatch:
    """`AFTER MATCH SKIP ...`; a query without it returns every match."""

    to: SkipTarget
    variable: str | None = None
    order: MatchOrder = MatchOrder.END
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def by_start(self) -> bool:
        """Whether matches are ordered by their first events."""
        return self.order is MatchOrder.START


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


def convert_length(length: ByTime | ByUnits) -> timedelta | int | float:
    """Converts a length to a value that compares with the difference of two times."""
    match length:
        case ByTime(nanoseconds=nanoseconds):
            return timedelta(microseconds=nanoseconds / 1_000)
        case ByUnits(amount=amount):
            return amount


def get_amount(length: ByTime | ByUnits) -> int | float:
    """Returns a length as a number: of nanoseconds, or of units of a numeric time column."""
    return length.nanoseconds if isinstance(length, ByTime) else length.amount
