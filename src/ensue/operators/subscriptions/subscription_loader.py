"""Loads a subscription set from its log at a version, and follows its changes."""

import hashlib
import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog, MemoryLog
from ensue.operators.subscriptions.catalog.catalog_snapshots import CatalogSnapshot
from ensue.operators.subscriptions.catalog.change import ChangeFile, ChangeKind
from ensue.operators.subscriptions.catalog.version_pins import find_used_versions
from ensue.operators.subscriptions.subscription_matcher import SubscriptionMatcher
from ensue.operators.subscriptions.subscription_set import SubscriptionSet
from ensue.options import Limits
from ensue.runtime.query_spec import SubscriptionsSpec
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import StageInput

MAX_CACHED_SETS = 4  # cached versions of sets per process
# folder, loader, version; equal loaders load equal sets
_cache: "OrderedDict[tuple[Path, SubscriptionSetLoader, int], SubscriptionSet]" = OrderedDict()
_cache_lock = threading.RLock()


def load_set(folder: Path, loader: "SubscriptionSetLoader", version: int, *, later: bool = False) -> SubscriptionSet:
    """Loads the set at a version. Loading a later version changes the same object.

    With `later`, a later version that is loaded already is returned as it is.
    """
    with _cache_lock:
        key = (folder, loader)
        if later:
            version = max([version, *(cached[2] for cached in _cache if cached[:2] == key)])
        earlier = [cached for cached in _cache if cached[:2] == key and cached[2] <= version]
        since = max((cached[2] for cached in earlier), default=-1)
        log = CatalogLog(folder)
        snapshot = None
        if since < version:
            newest = log.snapshots.newest(version, loader.part)
            if newest is not None and newest.version > since:
                # applying a few changes is faster than opening a snapshot
                is_far = since < 0 or log.snapshots.due(log.total(since), log.total(newest.version))
                snapshot = newest if is_far else None
        if snapshot is not None:
            snapshot = log.snapshots.newest(version, loader.part, checked=True)
        if snapshot is not None and snapshot.version > since:
            loaded, since = loader.load(snapshot), snapshot.version
        elif since >= 0:
            loaded = _cache.pop((*key, since))
        else:
            loaded, since = loader.empty(), 0
        if since < version:
            for changes in log.files(since, version):
                loader.take(loaded, changes.head.version, changes)
            loaded.settle()
        _cache[*key, version] = loaded
        while len(_cache) > MAX_CACHED_SETS:
            _cache.popitem(last=False)
        return loaded


def clear_set_cache() -> None:
    with _cache_lock:
        _cache.clear()


@dataclass(frozen=True)
class SubscriptionSetLoader:
    """Loads sets for events of one shape, for one stream and its tasks.

    Streams with the same log may use different versions, so each has its own sets.
    """

    source: SourceSchema = field(compare=False)
    streaming: bool
    key_groups: int
    stream: str
    # Subscriptions that are cancelled in later versions stay for earlier events; None: none stays.
    floor: int | None = field(default=None, compare=False)
    shape: str = field(init=False)  # the digest of the source's description

    def __post_init__(self) -> None:
        description = json.dumps(self.source.to_dict(), sort_keys=True)
        object.__setattr__(self, "shape", hashlib.sha256(description.encode()).hexdigest()[:16])

    @property
    def part(self) -> str:
        """The name of its part of a snapshot: tables are for events of one shape."""
        return f"{'set' if self.floor is None else 'versions'}-{self.shape}"

    def empty(self) -> SubscriptionSet:
        return SubscriptionSet(self.source.shape, streaming=self.streaming, key_groups=self.key_groups)

    def load(self, snapshot: CatalogSnapshot) -> SubscriptionSet:
        opened = SubscriptionSet.open(
            snapshot.part(self.part), self.source.shape, streaming=self.streaming,
            key_groups=self.key_groups,
        )  # fmt: skip
        opened.version = snapshot.version
        return opened

    def take(self, ready: SubscriptionSet, version: int, changes: ChangeFile) -> None:
        """Applies the changes of a version; subscriptions that do not fit are left out."""
        for change in changes:
            if change.kind is ChangeKind.CANCEL and self.floor is not None and version > self.floor:
                ready.ending[change.name] = version
                continue
            if change.name in ready.ending:  # a sender begins another micro-batch before it is added again
                ready.cancel(change.name)
            ready.follow(change, version)
        ready.version = version

    def at(self, log: CatalogLog, version: int, *, later: bool = False) -> SubscriptionSet:
        """Loads the set at a version; with `later` at that one or a cached later one."""
        loaded = load_set(log.folder, self, version, later=later)
        if self.floor is not None:
            loaded.drop_ended(self.floor)
        return loaded


def write_due_snapshot(log: CatalogLog, loader: SubscriptionSetLoader, loaded: SubscriptionSet) -> None:
    """Writes a snapshot of the set if it pays."""
    if log.snapshot_due(loaded.version, loader.part):
        log.snapshot(loaded.version, {loader.part: loaded})
        log.snapshots.sweep(find_used_versions(log))


class FollowingMatcher(SubscriptionMatcher):
    """Matches a set in this process; changes in the log apply from the next events on."""

    def __init__(self, subscribed: SubscriptionsSpec, source: SourceSchema, limits: Limits, *, streaming: bool) -> None:
        log = self.log = subscribed.log
        if isinstance(log, MemoryLog) and log.ready is not None:
            super().__init__(SubscriptionSet.open(log.ready, source.shape, streaming=streaming), limits)
            self.version = log.first
        else:
            super().__init__(SubscriptionSet(source.shape, streaming=streaming), limits)
        self._follow(subscribed.version)

    def process(self, batch: StageInput) -> list[pa.Table]:
        self._follow(self.log.latest())
        return super().process(batch)

    def on_watermark(self, now: float) -> list[pa.Table]:
        self._follow(self.log.latest())
        return super().on_watermark(now)

    def find_relevant_names(self, events: pa.Table) -> set[str]:
        """Returns the subscriptions for which these events are relevant."""
        self._follow(self.log.latest())
        return self.subscription_set.find_relevant_names(events)

    def _follow(self, version: int) -> None:
        if version <= self.version:
            return
        if not self.version and not self.rows:
            for number, change in self.log.alive(version):
                self.subscription_set.take(change, number)
        else:
            for number, change in self.log.changes(self.version, version):
                self.subscription_set.follow(change, number, self.now)
        self.version = version
        self.subscription_set.settle()

    def restore(self, data: bytes) -> None:
        """Continues from a saved state, with the current set."""
        version = self.version
        super().restore(data)
        self.version = max(version, self.version)
