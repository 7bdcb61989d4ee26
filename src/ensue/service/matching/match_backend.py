"""The interface of the matcher of a service; all methods are called in the core thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sqlite3 import Connection
from typing import Protocol

import pyarrow as pa

from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.member_registry import Usage


@dataclass(frozen=True, slots=True)
class MatchResult:
    """The matches completed by events or by the passing of time."""

    matches: pa.Table | None = None  # None: they are delivered later
    late: Sequence[bool] = ()  # marks late events
    late_by_subscription: Mapping[int, int] = field(default_factory=dict)


class MatchBackend(Protocol):
    """Finds the matches of the subscriptions of a service."""

    @property
    def save_due(self) -> bool:
        """Whether recovery after a crash would take long."""
        ...

    @property
    def now(self) -> float | None:
        """The watermark in seconds, or None before the first event."""
        ...

    @property
    def decided(self) -> float | None:
        """The time in seconds up to which all matches are known."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why matching is stopped, or None."""
        ...

    @property
    def newest(self) -> float | None:
        """The time of the newest event, or of the clock in an idle stream."""
        ...

    @property
    def save_due_at_end(self) -> bool:
        """Whether a snapshot is needed when the service stops."""
        ...

    def load(self, db: Connection) -> None:
        """Resumes from the state in the file."""
        ...

    def reset(self, db: Connection) -> None:
        """Discards partial matches and the watermark."""
        ...

    def check(self, change: SubscriptionChange) -> None:
        """Raises QueryError if a subscription cannot be matched."""
        ...

    def change(self, version: int, changes: Sequence[SubscriptionChange]) -> None:
        """Changes the set to a version."""
        ...

    def feed(self, db: Connection, events: pa.Table) -> MatchResult:
        """Processes events, all of which have a usable time."""
        ...

    def advance(self, db: Connection, to: float) -> MatchResult:
        """Advances the time, in seconds, without events."""
        ...

    def save(self, db: Connection) -> None:
        """Writes a snapshot."""
        ...

    def failed(self) -> None:
        """Discards the last input, which was not committed."""
        ...

    def blamed(self) -> Mapping[str, float]:
        """The subscriptions that made `feed` or `advance` fail last, with their shares.

        Empty if the error does not concern a subscription.
        """
        ...

    @property
    def state_bytes(self) -> int:
        """Approximate size of the state of all subscriptions."""
        ...

    @property
    def seconds(self) -> float:
        """CPU time of matching since the last call of `usage`."""
        ...

    def forget_seconds(self) -> None:
        """Resets the CPU time."""
        ...

    def usage(self) -> Usage:
        """The state size of each subscription, and the CPU time since the last call."""
        ...

    def explain(self) -> str:
        """Explains how the set is executed."""
        ...

    def counters(self) -> dict[str, int]:
        """Counters for the health report."""
        ...

    def close(self) -> None: ...
