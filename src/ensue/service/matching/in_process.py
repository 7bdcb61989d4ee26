"""Matching in the service's own process, by a live matcher."""

import hashlib
import json
import logging
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version as package_version
from itertools import chain, groupby
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.api import Subscriptions, explain, live
from ensue.backends.live_backend import LiveSession
from ensue.cache_files import find_trust_problem
from ensue.engine.memory_budget import Usage, sum_usage
from ensue.errors import StateError
from ensue.operators.subscriptions.catalog.catalog_log import MemoryLog
from ensue.operators.subscriptions.catalog.catalog_snapshots import CatalogSnapshots
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.member_registry import SubscriptionUsage
from ensue.operators.subscriptions.subscription_loader import FollowingMatcher
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.options import StreamOptions
from ensue.runtime.event_buffer import StreamOrder
from ensue.service.budgets import compute_matcher_limits
from ensue.service.event_columns import EventColumns
from ensue.service.matching.match_backend import MatchBackend, MatchResult
from ensue.service.settings import ServiceLimits
from ensue.service.store import event_batches, subscription_store

_LOG = logging.getLogger(__name__)
_FEW = 500  # changes of the set that are compiled again at every start


class CompiledSnapshots:
    """Snapshots of the compiled set, in a private folder: a restart then compiles no texts."""

    def __init__(self, folder: Path, columns: EventColumns) -> None:
        self.folder = folder
        self._snapshots = CatalogSnapshots(folder)
        described = json.dumps(columns.source.to_dict(), sort_keys=True)
        self._release = f"{package_version('ensue')} {described}"

    def newest(self, db: Connection, version: int) -> tuple[int, Path] | None:
        """Returns version and folder of a snapshot that is not newer than `version`."""
        if not self.folder.exists() or self._distrusts(self.folder):
            return None
        newest = self._snapshots.newest(version, checked=True)
        if newest is None or self._distrusts(newest.folder):
            return None
        part = self._part(db, newest.version)
        return (newest.version, newest.part(part)) if part in newest.parts else None

    def write(self, db: Connection, version: int, subscription_set: SubscriptionSet) -> bool:
        """Writes the set of a version, replacing earlier ones; returns whether it succeeded."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
            if self._distrusts(self.folder):
                return False
            self.folder.chmod(0o700)
            if self.newest(db, version) is None:
                self.discard()
                self.folder.mkdir(mode=0o700)
            self._snapshots.write(version, {self._part(db, version): subscription_set})
            self._snapshots.sweep()
        except OSError as error:
            _LOG.warning("%s cannot be written, so the next start takes longer: %s", self.folder, error)
            return False
        return True

    def discard(self) -> None:
        """Deletes unusable snapshots."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _part(self, db: Connection, version: int) -> str:
        """A name that identifies the set and the stream."""
        digest = hashlib.sha256(self._release.encode())
        for row in subscription_store.read_set_rows(db, version):
            digest.update(repr(tuple(row)).encode())
        return f"set-{digest.hexdigest()}"

    def _distrusts(self, path: Path) -> bool:
        try:
            problem = "is a link" if path.is_symlink() else find_trust_problem(path.stat())
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
        if problem is not None:
            _LOG.warning("%s %s: it is not used, and all texts are compiled", path, problem)
        return problem is not None


class InProcessBackend(MatchBackend):
    """A live matcher that is rebuilt from the database after a failure."""

    def __init__(self, columns: EventColumns, limits: ServiceLimits, folder: Path) -> None:
        super().__init__(columns, limits)
        self._sets = CompiledSnapshots(folder, columns)
        self._set_version: int | None = None  # of the newest compiled snapshot
        self._set_total = 0  # changes of the log that it contains
        self._live: LiveSession | None = None
        self._blamed: dict[str, float] = {}
        self._log = MemoryLog()
        self._since_snapshot = 0
        self._snapshot_at = time.monotonic()
        self.replayed = 0  # events matched again at the start

    def load(self, db: Connection) -> None:
        """Restores the newest snapshot and replays the later batches."""
        _, version, saved = event_batches.read_snapshot(db)
        if saved is None and not event_batches.get_last_position(db):
            version = subscription_store.get_version(db)  # there are no events of earlier versions
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
        position, _, saved = event_batches.read_snapshot(db)
        self._live = self._new(db, version, ready)
        if saved is not None:
            self._live.restore(saved)
        self.replayed = 0
        for batch in event_batches.read_batches_after(db, position):
            self._follow(db, batch.version)
            if batch.advance is not None:
                self._live.advance(self.columns.moment(batch.advance))
            else:
                events = batch.events(self.columns.arrow)
                self._live.feed(events)
                self.replayed += events.num_rows
        self._follow(db, subscription_store.get_version(db))
        self._since_snapshot = self.replayed
        self._limit_events(db)

    def _new(self, db: Connection, version: int, ready: tuple[int, Path] | None = None) -> LiveSession:
        """Creates a matcher of the set at a version, without any events.

        `ready` is the version and the folder of a compiled set to start with.
        """
        self._set_version, folder = ready or (None, None)
        first = version if self._set_version is None else self._set_version
        self._log = MemoryLog(first, subscription_store.read_set(db, first), ready=folder)
        self._set_total = 0 if folder is None else self._log.total(first)
        self._follow(db, version)
        return live(
            Subscriptions.over(self._log, **self.columns.subscriptions()),
            schema=self.columns.arrow,
            watermark=self.columns.stream.watermark,
            options=StreamOptions(bad_events="drop"),
        )

    def reset(self, db: Connection) -> None:
        self._live = self._new(db, subscription_store.get_version(db))
        self.save(db)

    def _limit_events(self, db: Connection) -> None:
        """Limits new events; replayed ones were within the limits."""
        self._matcher.limit_each(compute_matcher_limits(db, self.limits))

    @property
    def _matchers(self) -> list[FollowingMatcher]:
        return [] if self._live is None else [self._matcher]

    def _follow(self, db: Connection, version: int) -> None:
        """Applies the changes of the set up to a version."""
        changes = subscription_store.read_changes_after(db, self._log.latest(), version)
        for number, pairs in groupby(changes, lambda pair: pair[0]):
            if self._log.append(change for _, change in pairs) != number:
                raise StateError(f"version {number} of the set of subscriptions has no changes")

    def _ready(self, db: Connection) -> LiveSession:
        if self._live is None:
            self.load(db)
        assert self._live is not None
        return self._live

    def discard_state(self) -> None:
        self._live = None

    @property
    def _work(self) -> Any:
        return None if self._live is None else self._live.work

    @property
    def order(self) -> StreamOrder | None:
        return None if self._live is None else self._work.order

    def change(self, version: int, changes: Sequence[SubscriptionChange]) -> None:
        if self._live is not None and self._log.append(changes) != version:
            self.discard_state()

    def feed(self, db: Connection, events: pa.Table) -> MatchResult:
        matcher = self._ready(db)
        late = np.asarray(self._work.order.find_late(events), np.bool_)
        by_subscription: dict[int, int] = {}
        if late.any():
            by_subscription = count_late_readers(self._matchers, events.filter(pa.array(late)))
            events = events.filter(pa.array(~late))
        try:
            matches = matcher.feed(events)
        except BaseException:
            self._give_up()
            raise
        self._since_snapshot += events.num_rows
        return MatchResult(matches, late.tolist(), by_subscription)

    def advance(self, db: Connection, to: float) -> MatchResult:
        matcher = self._ready(db)
        try:
            return MatchResult(matcher.advance(self.columns.moment(to)))
        except BaseException:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Records the cause; a snapshot is due, so that the next failure replays little."""
        try:
            shares = (matcher.get_failure_causes().items() for matcher in self._matchers)
            self._blamed = dict(chain.from_iterable(shares))
        finally:
            self._snapshot_at = float("-inf")
            self.discard_state()

    def get_failure_causes(self) -> Mapping[str, float]:
        blamed, self._blamed = self._blamed, {}
        return blamed

    @property
    def usage(self) -> Usage:
        return sum_usage(matcher.usage for matcher in self._matchers)

    @property
    def seconds(self) -> float:
        return sum(matcher.seconds for matcher in self._matchers)

    def forget_seconds(self) -> None:
        for matcher in self._matchers:
            matcher.forget_seconds()

    def measure_subscriptions(self) -> SubscriptionUsage:
        measured = [matcher.measure_subscriptions() for matcher in self._matchers]
        return measured[0] if measured else SubscriptionUsage()

    @property
    def save_due(self) -> bool:
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
        """Whether writing the set costs less than compiling its changes again."""
        if self._live is None:
            return False
        unsaved = self._log.total(self._matcher.version) - self._set_total
        return unsaved >= max(_FEW, len(self._matcher.subscription_set) // 8)

    @property
    def _matcher(self) -> FollowingMatcher:
        (matcher,) = self._work.pipeline.matchers
        assert isinstance(matcher, FollowingMatcher)
        return matcher

    def save(self, db: Connection) -> None:
        matcher = self._ready(db)
        version = self._log.latest()
        event_batches.store_snapshot(db, event_batches.get_last_position(db), version, matcher.save())
        if self._set_due:  # changes after the last events are not compiled yet
            compiled = self._matcher.version
            if self._sets.write(db, compiled, self._matcher.subscription_set):
                self._set_version, self._set_total = compiled, self._log.total(compiled)
        # The changes after a snapshot of the set are needed to get from there to later versions.
        subscription_store.compact_changes(db, min(version, self._set_version or version))
        self._since_snapshot, self._snapshot_at = 0, time.monotonic()

    def explain(self) -> str:
        subscription_set = Subscriptions.over(self._log, **self.columns.subscriptions())
        return explain(subscription_set, self.columns.arrow.empty_table())

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


def count_late_readers(matchers: Iterable[FollowingMatcher], events: pa.Table) -> dict[int, int]:
    """Counts how many of the events each subscription would process."""
    counts: Counter[int] = Counter()
    for matcher in matchers:
        for row in range(events.num_rows):
            counts.update(map(int, matcher.find_relevant_names(events.slice(row, 1))))
    return dict(counts)
