"""What a service asks of whoever finds its matches. All of it is called in the core thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sqlite3 import Connection
from typing import Protocol

import pyarrow as pa

from ensue.workload.subscriptions.catalogue.change import Change
from ensue.workload.subscriptions.usage import Usage


@dataclass(frozen=True, slots=True)
class Found:
    """What events, or the passing of time, have completed."""

    matches: pa.Table | None = None  # None: they come later
    late: Sequence[bool] = ()  # which of the events came too late
    late_by_subscription: Mapping[int, int] = field(default_factory=dict)


class Matching(Protocol):
    """Finds the matches of the subscriptions of a service."""

    @property
    def save_due(self) -> bool:
        """Whether to go on after a crash now would take long."""
        ...

    @property
    def now(self) -> float | None:
        """How far the time of the stream has come, in seconds; None: it has not begun."""
        ...

    @property
    def decided(self) -> float | None:
        """Up to which time of the stream all matches are known, in seconds."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why nothing is matched at present; None: it is."""
        ...

    @property
    def newest(self) -> float | None:
        """The time of the newest event, or what the clock has made of it."""
        ...

    @property
    def save_due_at_end(self) -> bool:
        """Whether it is worth to save when the service stops."""
        ...

    def load(self, db: Connection) -> None:
        """Goes on where the file says that it stopped."""
        ...

    def reset(self, db: Connection) -> None:
        """Forgets partial matches and the watermark: the next event begins the stream's time."""
        ...

    def check(self, change: Change) -> None:
        """QueryError if a subscription cannot be matched."""
        ...

    def change(self, version: int, changes: Sequence[Change]) -> None:
        """The set of subscriptions has this version now."""
        ...

    def feed(self, db: Connection, events: pa.Table) -> Found:
        """The next events, all with a usable time."""
        ...

    def advance(self, db: Connection, to: float) -> Found:
        """Time has come so far, in seconds, though no event came."""
        ...

    def save(self, db: Connection) -> None:
        """Writes down where it is, so that going on from there is quick."""
        ...

    def failed(self) -> None:
        """What was given last is not in the file: forget it."""
        ...

    def blamed(self) -> Mapping[str, float]:
        """The subscriptions because of which `feed` or `advance` failed last, with their shares.

        Empty: the error is not that of a subscription.
        """
        ...

    @property
    def state_bytes(self) -> int:
        """About how much all subscriptions hold."""
        ...

    @property
    def seconds(self) -> float:
        """Processor time that matching took since `usage` was asked last."""
        ...

    def forget_seconds(self) -> None:
        """Counts processor time from 0 on."""
        ...

    def usage(self) -> Usage:
        """What each subscription holds, and the processor time since it was asked last."""
        ...

    def explain(self) -> str:
        """How the set is run, in words."""
        ...

    def counters(self) -> dict[str, int]:
        """What it holds."""
        ...

    def close(self) -> None: ...
