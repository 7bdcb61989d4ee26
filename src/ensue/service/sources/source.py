"""The interface between a service and its sources."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

_log = logging.getLogger("ensue.service.sources")


class EventReceiver(Protocol):
    """The interface of a service to its sources."""

    async def publish(
        self,
        events: bytes,
        *,
        media: str | None = None,
        producer: str | None = None,
        sequences: Sequence[int] | None = None,
    ) -> object:
        """Accepts events with their sequence numbers; returns once they are committed."""
        ...

    async def put_aside(self, payload: bytes, reason: str, *, producer: str | None = None) -> None:
        """Stores an unreadable payload as a bad event."""
        ...

    async def position(self, producer: str) -> int | None:
        """The next expected sequence number, or None for a new producer."""
        ...


class SourceProgress:
    """Counters of a source, and its current problem.

    `counts` has `messages` (or rows of files), `publishes`, `bad` (messages and files that were
    rejected), `left_out` (files of other kinds), `missed` (deleted before they were read),
    `repeated` (duplicates within one batch) and `interruptions`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.counts: Counter[str] = Counter()
        self.trouble: str | None = None

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] += by

    def clear_problem(self) -> None:
        """Clears the problem."""
        if self.trouble is not None:
            _log.info("%s: continues", self._name)
        self.trouble = None

    def report_problem(self, why: str) -> None:
        """Records a temporary problem."""
        if why != self.trouble:
            _log.warning("%s: %s", self._name, why)
        self.trouble = why

    def count_dropped(
        self, what: str, why: str, by: int = 1, level: int = logging.WARNING
    ) -> None:
        """Records messages or files that were not read, as `bad`, `left_out` or `missed`."""
        _log.log(level, "%s: %s", self._name, why)
        self.counts[what] += by


class EventSource(Protocol):
    """A source of events."""

    @property
    def name(self) -> str:
        """As in 'kafka:trucks'; the names of its producers begin with it."""
        ...

    @property
    def progress(self) -> SourceProgress: ...

    async def run(self, service: EventReceiver) -> None:
        """Reads until it is cancelled, and reconnects after interruptions."""
        ...
