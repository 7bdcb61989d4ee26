"""What the service asks of a place that events come from, and what such a place asks of it."""

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

_log = logging.getLogger("ensue.service.sources")


class Taker(Protocol):
    """A service, as far as sources know it."""

    async def publish(
        self,
        events: bytes,
        *,
        media: str | None = None,
        producer: str | None = None,
        sequences: Sequence[int] | None = None,
    ) -> object:
        """Takes events, with their positions; returns once they are safely kept."""
        ...

    async def put_aside(self, payload: bytes, reason: str, *, producer: str | None = None) -> None:
        """Sets aside what it will never read as events, for the operators."""
        ...

    async def position(self, producer: str) -> int | None:
        """The number that is expected next; None: nothing has come from this producer."""
        ...


class Progress:
    """How a source is doing: what it has counted, and what is wrong at the moment.

    `counts` has `messages` (or rows of files), `publishes`, `bad` (messages and files that were
    put aside), `left_out` (files of other kinds), `missed` (gone before they could be read),
    `repeated` (came again together with the first) and `interruptions`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.counts: Counter[str] = Counter()
        self.trouble: str | None = None

    def count(self, what: str, by: int = 1) -> None:
        """Adds to a counter."""
        self.counts[what] += by

    def well(self) -> None:
        """Nothing is wrong any more."""
        if self.trouble is not None:
            _log.info("%s: goes on", self._name)
        self.trouble = None

    def hindered(self, why: str) -> None:
        """It cannot go on at the moment, and tries again."""
        if why != self.trouble:
            _log.warning("%s: %s", self._name, why)
        self.trouble = why

    def put_aside(self, why: str, by: int = 1) -> None:
        """Something that cannot be read is left out."""
        _log.warning("%s: put aside: %s", self._name, why)
        self.counts["bad"] += by

    def left_out(self, why: str) -> None:
        """Something that was never meant for us."""
        _log.info("%s: left out: %s", self._name, why)
        self.counts["left_out"] += 1

    def missed(self, why: str, by: int) -> None:
        """Events were gone before they could be read."""
        _log.warning("%s: %s", self._name, why)
        self.counts["missed"] += by


class Source(Protocol):
    """A place that events come from."""

    @property
    def name(self) -> str:
        """As in 'kafka:trucks'; producers of positions begin with it."""
        ...

    @property
    def progress(self) -> Progress:
        """How it is doing, for people."""
        ...

    async def run(self, service: Taker) -> None:
        """Reads until it is cancelled, and goes on by itself after interruptions."""
        ...
