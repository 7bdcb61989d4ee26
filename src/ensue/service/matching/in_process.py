"""Matches found in the service's own process, by a live matcher."""

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.api import Subscriptions, explain, live
from ensue.errors import StateError
from ensue.runners.live import Live
from ensue.service.budgets import limits_of_each
from ensue.service.columns import Columns
from ensue.service.matching.contract import Found
from ensue.service.matching.set_snapshots import SetSnapshots
from ensue.service.settings import Limits
from ensue.service.store import batches, subscriptions
from ensue.workload.subscriptions.catalogue.change import Change
from ensue.workload.subscriptions.catalogue.memory import MemoryLog
from ensue.workload.subscriptions.fleet import Fleet
from ensue.workload.subscriptions.following import Following
from ensue.workload.subscriptions.usage import Usage

_LOG = logging.getLogger(__name__)
_FEW = 500  # changes of the set that are compiled at every start


class InProcess:
    """A live matcher that is built again from the file whenever it differs from it."""

    def __init__(self, columns: Columns, limits: Limits, folder: Path) -> None:
        self.columns = columns
        self.limits = limits
        self._sets = SetSnapshots(folder, columns)
        self._set_version: int | None = None  # of the newest snapshot of the set
        self._set_total = 0  # changes of the log that it has
        self._live: Live | None = None
        self._blamed: dict[str, float] = {}
        self._log = MemoryLog()
        self._checking = Fleet(columns.shape, streaming=True)
        self._since_snapshot = 0
        self._snapshot_at = time.monotonic()
        self.replayed = 0  # events that were matched again at the start

    # ---------------------------------------------------------------------------- going on

    def load(self, db: Connection) -> None:
        """Restores the newest snapshot, and matches again what came behind it."""
        _, version, saved = batches.snapshot(db)
        if saved is None and not batches.last_position(db):
            version = subscriptions.version_of(db)  # no event has seen an earlier one
        ready = self._sets.newest(db, version)
        try:
            self._load(db, version, ready)
        except (StateError, OSError, ValueError, LookupError):
            if ready is None:
                raise
            _LOG.warning("%s cannot be read: all texts are compiled", ready[1], exc_info=True)
            self._sets.discard()
            self._load(db, version, None)

    def _load(self, db: Connection, version: int, ready: tuple[int, Path] | None) -> None:
        position, _, saved = batches.snapshot(db)
        self._live = self._new(db, version, ready)
        if saved is not None:
            self._live.restore(saved)
        self.replayed = 0
        for batch in batches.batches_behind(db, position):
            self._follow(db, batch.version)
            if batch.advance is not None:
                self._live.advance(self.columns.moment(batch.advance))
            else:
                events = batch.events(self.columns.arrow)
                self._live.feed(events)
                self.replayed += events.num_rows
        self._follow(db, subscriptions.version_of(db))
        self._since_snapshot = self.replayed
        self._bound(db)

    def _new(self, db: Connection, version: int, ready: tuple[int, Path] | None = None) -> Live:
        """A matcher of the set at a version, that has seen nothing.

        `ready` is the version and the folder of a compiled set to begin with.
        """
        self._set_version, folder = ready or (None, None)
        first = version if self._set_version is None else self._set_version
        self._log = MemoryLog(first, subscriptions.alive(db, first), ready=folder)
        self._set_total = 0 if folder is None else self._log.total(first)
        self._follow(db, version)
        return live(
            Subscriptions.over(self._log, **self.columns.subscriptions()),
            schema=self.columns.arrow,
            watermark=self.columns.stream.watermark,
            bad_events="drop",
        )

    def reset(self, db: Connection) -> None:
        self._live = self._new(db, subscriptions.version_of(db))
        self.save(db)

    def _bound(self, db: Connection) -> None:
        """Bounds new events. What was accepted before has fitted, and is not refused again."""
        for matcher in self._matchers:
            matcher.bound_each(limits_of_each(db, self.limits))

    @property
    def _matchers(self) -> list[Following]:
        matchers = [] if self._live is None else self._work.matchers
        assert all(isinstance(matcher, Following) for matcher in matchers)
        return list(matchers)

    def _follow(self, db: Connection, version: int) -> None:
        """Brings the set to a version, as the file has it."""
        changes = subscriptions.changes_behind(db, self._log.latest(), version)
        for number, some in groupby(changes, lambda pair: pair[0]):
            if self._log.append(change for _, change in some) != number:
                raise StateError(f"version {number} of the set of subscriptions has no changes")

    def _ready(self, db: Connection) -> Live:
        if self._live is None:
            self.load(db)
        assert self._live is not None
        return self._live

    def failed(self) -> None:
        """The matcher is ahead of the file: it is built again before it goes on."""
        self._live = None

    @property
    def _work(self) -> Any:
        return None if self._live is None else self._live.work

    @property
    def now(self) -> float | None:
        return None if self._live is None else self.columns.as_seconds(self._work.order.now)

    @property
    def decided(self) -> float | None:
        return self.now

    @property
    def trouble(self) -> str | None:
        return None

    @property
    def newest(self) -> float | None:
        """The time of the newest event, or what the clock has made of it."""
        return None if self._live is None else self.columns.as_seconds(self._work.order.newest)

    # ---------------------------------------------------------------------------- the set

    def check(self, change: Change) -> None:
        now = None if self._live is None else self._work.order.now
        self._checking.check(change, now)

    def change(self, version: int, changes: Sequence[Change]) -> None:
        if self._live is not None and self._log.append(changes) != version:
            self.failed()

    # ---------------------------------------------------------------------------- events

    def feed(self, db: Connection, events: pa.Table) -> Found:
        matcher = self._ready(db)
        late = np.asarray(self._work.order.late(events), np.bool_)
        by_subscription: dict[int, int] = {}
        if late.any():
            by_subscription = self._looking_at(events.filter(pa.array(late)))
            events = events.filter(pa.array(~late))
        try:
            found = matcher.feed(events)
        except BaseException:
            self._give_up()
            raise
        self._since_snapshot += events.num_rows
        return Found(found, late.tolist(), by_subscription)

    def advance(self, db: Connection, to: float) -> Found:
        matcher = self._ready(db)
        try:
            return Found(matcher.advance(self.columns.moment(to)))
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Notes who is to blame. A snapshot is due: the next failure shall replay little."""
        try:
            self._blamed = self._blame()
        finally:
            self._snapshot_at = float("-inf")
            self.failed()

    def _blame(self) -> dict[str, float]:
        return {name: share for m in self._matchers for name, share in m.blamed().items()}

    def blamed(self) -> Mapping[str, float]:
        found, self._blamed = self._blamed, {}
        return found

    @property
    def state_bytes(self) -> int:
        return sum(matcher.state_bytes for matcher in self._matchers)

    @property
    def seconds(self) -> float:
        return sum(matcher.seconds for matcher in self._matchers)

    def forget_seconds(self) -> None:
        for matcher in self._matchers:
            matcher.forget_seconds()

    def usage(self) -> Usage:
        found = [matcher.usage() for matcher in self._matchers]
        return found[0] if found else Usage()

    def _looking_at(self, events: pa.Table) -> dict[int, int]:
        """How many of some events each subscription would have looked at."""
        found: Counter[int] = Counter()
        for matcher in self._matchers:
            for row in range(events.num_rows):
                found.update(map(int, matcher.names_looking_at(events.slice(row, 1))))
        return dict(found)

    # ---------------------------------------------------------------------------- state

    @property
    def save_due(self) -> bool:
        """Whether a crash now would cost long."""
        if not self.save_due_at_end:
            return False
        waited = time.monotonic() - self._snapshot_at
        many = self._since_snapshot >= self.limits.snapshot_events
        return many or waited >= self.limits.snapshot_seconds

    @property
    def save_due_at_end(self) -> bool:
        return self._live is not None and (self._since_snapshot > 0 or self._set_due)

    @property
    def _set_due(self) -> bool:
        """Whether to write the set is less work than to compile what has changed in it."""
        if self._live is None:
            return False
        unsaved = self._log.total(self._matcher.version) - self._set_total
        return unsaved >= max(_FEW, len(self._matcher.fleet) // 8)

    @property
    def _matcher(self) -> Following:
        (matcher,) = self._work.matchers
        assert isinstance(matcher, Following)
        return matcher

    def save(self, db: Connection) -> None:
        matcher = self._ready(db)
        version = self._log.latest()
        batches.keep_snapshot(db, version, time.time(), matcher.save())
        if self._set_due:
            self._save_set(db)
        # The changes behind a snapshot of the set lead from there to later versions.
        subscriptions.forget_changes(db, min(version, self._set_version or version))
        self._since_snapshot, self._snapshot_at = 0, time.monotonic()

    def _save_set(self, db: Connection) -> None:
        """Writes the set as far as it is compiled: changes behind the last events are not yet."""
        version = self._matcher.version
        if self._sets.write(db, version, self._matcher.fleet):
            self._set_version, self._set_total = version, self._log.total(version)

    def explain(self) -> str:
        fleet = Subscriptions.over(self._log, **self.columns.subscriptions())
        return explain(fleet, self.columns.arrow.empty_table())

    def counters(self) -> dict[str, int]:
        if self._live is None:
            return {}
        counts = self._live.progress
        return {
            "partial_matches": counts.partial_matches,
            "events_waiting": counts.waiting,
            "state_bytes": counts.state_bytes,
        }

    def close(self) -> None:
        self._live = None
