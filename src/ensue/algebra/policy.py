"""Which events a match may pass over, and what a match uses up."""

from dataclasses import dataclass, field
from enum import Enum

from ensue.span import Span


class Strategy(Enum):
    """SASE+'s event selection strategies."""

    ANY = "skip_till_any_match"  # any event may be skipped: all combinations
    NEXT = "skip_till_next_match"  # only events that the run could not use
    PARTITION = "partition_contiguity"  # no event of the partition
    STRICT = "strict_contiguity"  # no event at all


# what neither passes over any event of the stream nor of the partition
CONTIGUOUS = frozenset({Strategy.PARTITION, Strategy.STRICT})


class SkipTo(Enum):
    """Where the next match of a partition may begin, once a match is found."""

    NEXT_EVENT = "TO NEXT EVENT"  # behind the match's first event
    PAST_LAST = "PAST LAST EVENT"  # behind its last event
    FIRST = "TO FIRST"  # at a variable's first event
    LAST = "TO LAST"  # at a variable's last event


class Choice(Enum):
    """Which matches with one last event are kept: CHOOSE. A query without it keeps them all."""

    LATEST = "LATEST"  # the one with the newest members
    ONCE = "ONCE"  # likewise, and nothing up to it is used again in the partition


@dataclass(frozen=True, slots=True)
class Choose:
    """`CHOOSE LATEST`, `CHOOSE ONCE`."""

    choice: Choice
    span: Span | None = field(default=None, compare=False, repr=False)


class InOrderOf(Enum):
    """Which of two matches comes first, so that it may use up what the other one needs."""

    END = "END"  # the one that is complete first
    START = "START"  # the one that begins first, then the one that is complete first


@dataclass(frozen=True, slots=True)
class AfterMatch:
    """`AFTER MATCH SKIP ...`; a query without it keeps every match."""

    to: SkipTo
    variable: str | None = None
    order: InOrderOf = InOrderOf.END
    span: Span | None = field(default=None, compare=False, repr=False)

    @property
    def by_start(self) -> bool:
        """Whether matches come in the order of their first events."""
        return self.order is InOrderOf.START
