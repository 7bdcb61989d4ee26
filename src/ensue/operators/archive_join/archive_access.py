"""The access methods that find the archived matches for live ones; all find the same matches."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import LimitError
from ensue.operators.archive_join.archived_events import ArchivedEvents, ArchiveRanges
from ensue.operators.archive_join.join_sides import CompiledSide
from ensue.options import format_size
from ensue.projection.join_output import get_match_times
from ensue.vector.take import create_empty_table

CACHE_BYTES = 64 << 20  # cached archived matches


@dataclass(frozen=True)
class ArchiveLookup:
    """A pattern over an archive, and the events to read for its matches in a range."""

    archive: str
    prepared: CompiledSide
    field: str | None  # the key field by which it is read; None: all keys
    types: frozenset[str] | None
    before: float  # how far before a range it is read; infinity: from the beginning
    behind: float  # how far after
    window: float | None  # the longest duration of its matches, if known

    @property
    def schema(self) -> pa.Schema:
        return self.prepared.side.schema

    def matches(self, events: pa.Table) -> pa.Table:
        return self.prepared.matches(events)


class GroupedAccess:
    """Reads the archive for all requested ranges at once and stores nothing (SLLAA)."""

    def __init__(self, lookup: ArchiveLookup, past: ArchivedEvents) -> None:
        self.lookup, self.past = lookup, past
        self.total = 0  # archived matches found so far

    def begin(self, first: float) -> None:
        """Sets the time of the stream's first event: no live match starts earlier."""

    def process(self, events: pa.Table) -> None:
        """Adds the next archived events."""

    def on_watermark(self, now: float) -> None:
        """Sets the time: no further event ends before `now`."""

    def forget(self, now: float) -> None:
        """Drops matches that no later live match can need."""

    @property
    def kept(self) -> int:
        """The number of stored archived matches."""
        return 0

    @property
    def nbytes(self) -> int:
        return 0

    def instances(self, ranges: ArchiveRanges) -> pa.Table:
        """Returns archived matches, among them all in the requested ranges."""
        widened = ranges.wider(self.lookup.before, self.lookup.behind)
        events = self.past.read(widened, self.lookup.field, self.lookup.types)
        matches = self.lookup.matches(events)
        self.total += matches.num_rows
        return matches

    def snapshot(self) -> bytes:
        return b""

    def restore(self, data: bytes) -> None: ...


class _CachedMatches(NamedTuple):
    """The archived matches of one key in a time range."""

    since: float
    until: float
    matches: pa.Table


class LazyAccess(GroupedAccess):
    """Reads the archive for each live match and caches the result (LLAA)."""

    def __init__(self, lookup: ArchiveLookup, past: ArchivedEvents) -> None:
        super().__init__(lookup, past)
        self._kept: OrderedDict[object, _CachedMatches] = OrderedDict()
        self._bytes = 0
        memory = lookup.prepared.limits.memory_size
        self._most = CACHE_BYTES if memory is None else min(CACHE_BYTES, memory / 4)

    @property
    def kept(self) -> int:
        return sum(cached.matches.num_rows for cached in self._kept.values())

    @property
    def nbytes(self) -> int:
        return self._bytes

    def instances(self, ranges: ArchiveRanges) -> pa.Table:
        tables = [self._find_for_key(ranges.at(np.array([k]))) for k in range(len(ranges))]
        return pa.concat_tables([create_empty_table(self.lookup.schema), *tables])

    def _find_for_key(self, range_: ArchiveRanges) -> pa.Table:
        if not len(range_.merge()):
            return create_empty_table(self.lookup.schema)
        since, until = range_.since[0].item(), range_.until[0].item()
        key = None if range_.keys is None else range_.keys[0].as_py()
        cached = self._kept.pop(key, None)
        if cached is not None:
            self._bytes -= _size(cached.matches)
            cached = self._extend(cached, range_, since, until)
        if cached is None:
            matches = self._filter_range(super().instances(range_), since, until)
            cached = _CachedMatches(since, until, matches)
        self._kept[key] = cached
        self._bytes += _size(cached.matches)
        while self._bytes > self._most and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= _size(dropped.matches)
        return cached.matches

    def _extend(
        self, cached: _CachedMatches, range_: ArchiveRanges, since: float, until: float
    ) -> _CachedMatches | None:
        """Extends the cached range of a key; None if it must be read again."""
        if since < cached.since:
            return None
        if until <= cached.until:
            return cached
        if self.lookup.window is None or since > cached.until:
            return None
        # matches that end after the cached range start at most a window before its end
        read_from = np.array([cached.until - self.lookup.window])
        later = super().instances(ArchiveRanges(range_.keys, read_from, range_.until))
        is_new = get_match_times(later, "end", self.past.unit) > cached.until
        matches = pa.concat_tables([cached.matches, later.filter(pa.array(is_new))])
        return _CachedMatches(since, until, self._filter_range(matches, since, until))

    def _filter_range(self, matches: pa.Table, since: float, until: float) -> pa.Table:
        """Keeps the matches within a time range; events read beyond it only decide these."""
        is_inside = get_match_times(matches, "start", self.past.unit) >= since
        is_inside &= get_match_times(matches, "end", self.past.unit) <= until
        return matches.filter(pa.array(is_inside)).combine_chunks()


class EagerAccess(GroupedAccess):
    """Finds all archived matches as soon as they are complete, and stores them (ALAA)."""

    def __init__(self, lookup: ArchiveLookup, past: ArchivedEvents, far: float, keeps: float | None) -> None:
        super().__init__(lookup, past)
        self.far = far  # how far back ranges reach
        self.keeps = keeps  # how long a live match may need an archived one; None: forever
        self.matcher = lookup.prepared.ranked_matcher()
        self.stored: list[pa.Table] = []
        self.begun = False
        self._dropped: float | None = None

    def begin(self, first: float) -> None:
        """Reads the archive from the earliest possible range on."""
        if self.begun:
            return
        self.begun = True
        since, until = first - self.far - self.lookup.before, math.inf
        if np.dtype(type(first)).kind != "f":
            bounds = np.iinfo(np.int64)
            since = bounds.min if since == -math.inf else max(int(since), bounds.min)
            until = bounds.max
        range_ = ArchiveRanges(None, np.array([since]), np.array([until]))
        events = self.past.read(range_, None, self.lookup.types)
        if events.num_rows:
            self._add(self.matcher.process(events))
        if not self.past.own:
            self._add(self.matcher.on_watermark(math.inf))

    def restart(self, *, floats: bool) -> None:
        """Takes over from another access, which stored nothing, by reading the whole archive."""
        far, self.far = self.far, math.inf
        self.begin(0.0 if floats else 0)
        self.far = far

    def process(self, events: pa.Table) -> None:
        self._add(self.matcher.process(events))

    def on_watermark(self, now: float) -> None:
        if not self.past.own:
            return
        if now != math.inf:
            self._add(self.matcher.on_watermark(self.past.convert_to_archive_unit(now)))
        elif self.begun:
            self._add(self.matcher.on_watermark(now))

    def _add(self, matches: pa.Table) -> None:
        if not matches.num_rows:
            return
        self.stored.append(matches)
        self.total += matches.num_rows
        limits = self.lookup.prepared.limits
        if limits.memory_size is not None and self.nbytes > limits.memory_size:
            raise LimitError(
                f"the {self.kept:,} archived matches that access='eager' keeps take "
                f"{format_size(self.nbytes)}, more than memory={format_size(limits.memory_size)}\n"
                "  hint: ensue.Archives(..., access='grouped') reads the archive instead; a shorter RANGE keeps fewer"
            )

    def share(self, far: float, keeps: float | None) -> None:
        """Widens the access for another join with the same lookup."""
        self.far = max(self.far, far)
        self.keeps = None if self.keeps is None or keeps is None else max(self.keeps, keeps)

    def forget(self, now: float) -> None:
        if self.keeps is None or not self.stored:
            return
        oldest = now - self.keeps
        if self._dropped is not None and oldest - self._dropped < self.far / 16:
            return
        self._dropped = oldest
        matches = self._concat()
        needed = get_match_times(matches, "start", self.past.unit) >= oldest
        if not needed.all():
            self.stored = [matches.filter(pa.array(needed)).combine_chunks()]

    def _concat(self) -> pa.Table:
        if len(self.stored) > 1:
            self.stored = [pa.concat_tables(self.stored).combine_chunks()]
        return self.stored[0] if self.stored else create_empty_table(self.lookup.prepared.ranked)

    def instances(self, ranges: ArchiveRanges) -> pa.Table:  # noqa: ARG002
        return self._concat()

    @property
    def kept(self) -> int:
        return sum(table.num_rows for table in self.stored)

    @property
    def nbytes(self) -> int:
        return sum(_size(table) for table in self.stored) + self.matcher.usage.state_bytes

    def snapshot(self) -> bytes:
        blobs = {"found": serialize_table(self._concat()), "matcher": self.matcher.snapshot()}
        return pack_state({"begun": self.begun}, {}, blobs)

    def restore(self, data: bytes) -> None:
        if not data:
            return  # saved by an access that stores nothing: the archive is read again
        header, _, blobs = unpack_state(data)
        self.begun = bool(header["begun"])
        matches = deserialize_table(blobs["found"]).cast(self.lookup.prepared.ranked)
        self.stored = [matches] if matches.num_rows else []
        self.matcher.restore(blobs["matcher"])


def _size(table: pa.Table) -> int:
    return int(table.nbytes)
