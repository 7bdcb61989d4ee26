"""The interface of the matcher of a service; all methods are called in the core thread."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sqlite3 import Connection

import pyarrow as pa

from ensue.engine.memory_budget import Usage
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.member_registry import SubscriptionUsage
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.runtime.event_buffer import StreamOrder
from ensue.service.event_columns import EventColumns
from ensue.service.settings import ServiceLimits


@dataclass(frozen=True, slots=True)
class MatchResult:
    """The matches completed by events or by the passing of time."""

    matches: pa.Table | None = None  # None: they are delivered later
    late: Sequence[bool] = ()  # marks late events
    late_by_subscription: Mapping[int, int] = field(default_factory=dict)


class MatchBackend(ABC):
    """Finds the matches of the subscriptions of a service."""

    def __init__(self, columns: EventColumns, limits: ServiceLimits) -> None:
        self.columns = columns
        self.limits = limits
        self._checking = SubscriptionSet(columns.shape, streaming=True)

    @property
    @abstractmethod
    def order(self) -> StreamOrder | None:
        """The stream order, or None until it is restored."""

    @property
    def now(self) -> float | None:
        """The watermark in seconds, or None before the first event."""
        return None if self.order is None else self.columns.as_seconds(self.order.now)

    @property
    def newest(self) -> float | None:
        """The time of the newest event, or of the clock in an idle stream."""
        return None if self.order is None else self.columns.as_seconds(self.order.newest)

    @property
    def decided(self) -> float | None:
        """The time in seconds up to which all matches are known."""
        return self.now

    @property
    def trouble(self) -> str | None:
        """Why matching is stopped, or None."""
        return None

    @abstractmethod
    def load(self, db: Connection) -> None:
        """Resumes from the state in the file."""

    @abstractmethod
    def reset(self, db: Connection) -> None:
        """Discards partial matches and the watermark."""

    def check(self, change: SubscriptionChange) -> None:
        """Raises QueryError if a subscription cannot be matched."""
        self._checking.check(change, None if self.order is None else self.order.now)

    @abstractmethod
    def change(self, version: int, changes: Sequence[SubscriptionChange]) -> None:
        """Changes the set to a version."""

    @abstractmethod
    def feed(self, db: Connection, events: pa.Table) -> MatchResult:
        """Processes events, all of which have a usable time."""

    @abstractmethod
    def advance(self, db: Connection, to: float) -> MatchResult:
        """Advances the time, in seconds, without events."""

    @property
    @abstractmethod
    def save_due(self) -> bool:
        """Whether recovery after a crash would take long."""

    @property
    def save_due_at_end(self) -> bool:
        """Whether a snapshot is needed when the service stops."""
        return self.save_due

    @abstractmethod
    def save(self, db: Connection) -> None:
        """Writes a snapshot."""

    @abstractmethod
    def discard_state(self) -> None:
        """Discards the state, which is ahead of the database, until the next use."""

    def get_failure_causes(self) -> Mapping[str, float]:
        """The subscriptions that made `feed` or `advance` fail last, if any, with their shares."""
        return {}

    @property
    @abstractmethod
    def usage(self) -> Usage:
        """What all subscriptions hold."""

    @property
    def seconds(self) -> float:
        """CPU time of matching since the last `measure_subscriptions`; 0 if other processes spend it."""
        return 0.0

    def forget_seconds(self) -> None:  # noqa: B027 - nothing to reset by default
        """Resets the CPU time."""

    @abstractmethod
    def measure_subscriptions(self) -> SubscriptionUsage:
        """The state size of each subscription, and the CPU time since the last call."""

    @abstractmethod
    def explain(self) -> str:
        """Explains how the set is executed."""

    @abstractmethod
    def counters(self) -> dict[str, int]:
        """Counters for the health report."""

    @abstractmethod
    def close(self) -> None: ...
