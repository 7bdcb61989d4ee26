"""What searches in one stream share, and what each is about."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ensue.algebra.alternatives import Alternative
from ensue.algebra.event_test import EventTest
from ensue.semantics.events import Event
from ensue.semantics.subscriptions import Stream, Time
from ensue.semantics.why_not.plan import Plan, Stop, plan_of
from ensue.semantics.why_not.pools import Pool
from ensue.semantics.why_not.sieve import Sieve
from ensue.semantics.why_not.steps import Steps
from ensue.semantics.why_not.windows import Window

if TYPE_CHECKING:
    from ensue.semantics.why_not.search import Search

Asked = tuple[str, str, object]  # a field, an operator, and the value of another event's field


@dataclass
class Ground:
    """The events, sieved, and how much may be done with them."""

    stream: Stream
    sieve: Sieve
    pools: Mapping[EventTest, Pool]
    near: Mapping[EventTest, Sequence[tuple[int, Pool]]]  # that fail one test by little
    steps: Steps
    now: Time | None  # how far time has come; None: it is over
    plans: dict[int, Plan] = field(default_factory=dict)
    barring: dict[object, tuple[Event, ...] | None] = field(default_factory=dict)

    def plan(self, way: Alternative) -> Plan:
        """How an alternative is filled."""
        if id(way) not in self.plans:
            self.plans[id(way)] = plan_of(way)
        return self.plans[id(way)]


@dataclass(frozen=True, slots=True)
class Frame:
    """Where something must not happen, for whom, and what it is compared with."""

    since: Time
    until: Time
    base: frozenset[int]
    asked: Mapping[int, list[Asked]]  # by part


class Watch(Protocol):
    """Who is told what stopped combinations."""

    def stopped(self, stop: Stop, count: int) -> None:
        """So many combinations were stopped."""

    def stuck(self, search: "Search", rank: tuple[int, int], stop: Stop) -> None:
        """Nothing fits to what is there. With it is the best event that was tried, if any was."""

    def waits(self, search: "Search", part: int | None, until: Time) -> None:
        """It may go on until then, by an event of a part, or because nothing comes."""


@dataclass(frozen=True, slots=True)
class Try:
    """An event that did not fit: how far it got, and by how little it failed."""

    rank: int  # twice how many conditions hold; less by 1 for one that failed a test of its own
    short: float
    event: Event
    stop: Stop

    def is_better(self, other: "Try | None") -> bool:
        return other is None or (self.rank, -self.short) > (other.rank, -other.short)


@dataclass
class Tries:
    """The events that were tried for a part."""

    pool: Pool
    same: Pool  # of these, those that have the field's value
    window: Window
    rows: tuple[int, int]  # of `same`, those in the window
    best: Try | None = None
    fits: bool = False
