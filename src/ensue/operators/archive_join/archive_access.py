"""The access methods that find the archived matches for live ones; all find the same matches."""

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import LimitError
from ensue.operators.archive_join.archive_ranges import ArchiveRanges
from ensue.operators.archive_join.archived_events import ArchivedEvents
from ensue.operators.archive_join.join_sides import CompiledSide
from ensue.planner.limits import format_size
from ensue.projection.join_output import get_match_times
from ensue.vector.take import create_empty_table

CACHE_BYTES = 64 << 20  # cached archived matches


@dataclass(frozen=True)
class ArchiveLookup:
    """A pattern over an archive, and what must be read to find its matches in a range."""

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
        """Returns the matches in ordered events."""
        return self.prepared.matches(events)


class ArchiveAccess(Protocol):
    """Finds archived matches."""

    lookup: ArchiveLookup
    total: int  # archived matches found so far

    def begin(self, first: float) -> None:
        """Sets the time of the stream's first event, in the archive's unit: no live match starts
        earlier."""

    def feed(self, events: pa.Table) -> None:
        """Adds the next archived events."""

    def advance(self, now: float) -> None:
        """Sets the time: no further event ends before `now`."""

    def forget(self, now: float) -> None:
        """Drops matches that no later live match can need."""

    def instances(self, asked: ArchiveRanges) -> pa.Table:
        """Returns archived matches, among them all in the requested ranges."""

    @property
    def kept(self) -> int:
        """The number of stored archived matches."""

    @property
    def nbytes(self) -> int: ...
    def save(self) -> bytes: ...
    def restore(self, data: bytes) -> None: ...


class GroupedAccess:
    """Reads the archive for all requested ranges at once and stores nothing (SLLAA)."""

    kept = 0
    nbytes = 0

    def __init__(self, lookup: ArchiveLookup, past: ArchivedEvents) -> None:
        self.lookup, self.past = lookup, past
        self.total = 0

    def begin(self, first: float) -> None: ...
    def feed(self, events: pa.Table) -> None: ...
    def advance(self, now: float) -> None: ...
    def forget(self, now: float) -> None: ...

    def instances(self, ranges: ArchiveRanges) -> pa.Table:
        widened = ranges.wider(self.lookup.before, self.lookup.behind)
        events = self.past.read(widened, self.lookup.field, self.lookup.types)
        matches = self.lookup.matches(events)
        self.total += matches.num_rows
        return matches

    def save(self) -> bytes:
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
        memory = lookup.prepared.limits.memory
        self._most = CACHE_BYTES if memory is None else min(CACHE_BYTES, memory / 4)

    @property
    def kept(self) -> int:  # type: ignore[override]
        return sum(cached.matches.num_rows for cached in self._kept.values())

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        return self._bytes

    def instances(self, ranges: ArchiveRanges) -> pa.Table:
        tables = [self._find_for_key(ranges.at(np.array([k]))) for k in range(len(ranges))]
        return pa.concat_tables([create_empty_table(self.lookup.schema), *tables])

    def _find_for_key(self, range_: ArchiveRanges) -> pa.Table:
        if not len(range_.merged()):
            return create_empty_table(self.lookup.schema)
        since, until = range_.since[0].item(), range_.until[0].item()
        key = None if range_.keys is None else range_.keys[0].as_py()
        cached = self._kept.pop(key, None)
        if cached is not None:
            self._bytes -= _size(cached.matches)
            cached = self._extend(cached, range_, since, until)
        if cached is None:
            cached = _CachedMatches(
                since, until, self._filter_range(super().instances(range_), since, until)
            )
        self._kept[key] = cached
        self._bytes += _size(cached.matches)
        while self._bytes > self._most and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= _size(dropped.matches)
        return cached.matches

    def _extend(
        self, cached: _CachedMatches, range_: ArchiveRanges, since: float, until: float
    ) -> _CachedMatches | None:
        """Extends the cached range of a key to the requested one; None if it must be
        read again."""
        if since < cached.since:
            return None
        if until <= cached.until:
            return cached
        if self.lookup.window is None or since > cached.until:
            return None
        # matches that end after the cached range start at most a window before its end
        read_from = cached.until - self.lookup.window
        later_matches = super().instances(
            ArchiveRanges(range_.keys, np.array([read_from]), range_.until)
        )
        is_new = get_match_times(later_matches, "end", self.past.unit) > cached.until
        matches = pa.concat_tables([cached.matches, later_matches.filter(pa.array(is_new))])
        return _CachedMatches(since, until, self._filter_range(matches, since, until))

    def _filter_range(self, matches: pa.Table, since: float, until: float) -> pa.Table:
        """Keeps the matches within a time range; events read beyond it only decide these."""
        is_inside = get_match_times(matches, "start", self.past.unit) >= since
        is_inside &= get_match_times(matches, "end", self.past.unit) <= until
        return matches.filter(pa.array(is_inside)).combine_chunks()


class EagerAccess:
    """Finds all archived matches as soon as they are complete, and stores them (ALAA)."""

    def __init__(
        self, lookup: ArchiveLookup, past: ArchivedEvents, far: float, keeps: float | None
    ) -> None:
        self.lookup, self.past = lookup, past
        self.far = far  # how far back ranges reach
        self.keeps = keeps  # how long a live match may need an archived one; None: forever
        self.matcher = lookup.prepared.ranked_matcher()
        self.found: list[pa.Table] = []
        self.total = 0
        self.begun = False
        self._dropped: float | None = None

    def begin(self, first: float) -> None:
        """Reads the archive from the earliest possible range on."""
        if self.begun:
            return
        self.begun = True
        since = first - self.far - self.lookup.before
        kind = np.dtype(type(first)).kind
        if kind != "f":
            bounds = np.iinfo(np.int64)
            since = bounds.min if since == -math.inf else max(int(since), bounds.min)
        range_ = ArchiveRanges(None, np.array([since]), _open_end(since))
        events = self.past.read(range_, None, self.lookup.types)
        if events.num_rows:
            self._add(self.matcher.feed(events))
        if not self.past.own:
            self._add(self.matcher.finish())

    def restart(self, *, floats: bool) -> None:
        """Takes over from another access, which stored nothing, by reading the whole archive."""
        far, self.far = self.far, math.inf
        self.begin(0.0 if floats else 0)
        self.far = far

    def feed(self, events: pa.Table) -> None:
        self._add(self.matcher.feed(events))

    def advance(self, now: float) -> None:
        if self.past.own:
            self._add(self.matcher.advance(self.past.convert_to_archive_unit(now)))

    def finish(self) -> None:
        """Ends the stream."""
        if self.past.own and self.begun:
            self._add(self.matcher.finish())

    def _add(self, matches: pa.Table) -> None:
        if not matches.num_rows:
            return
        self.found.append(matches)
        self.total += matches.num_rows
        limits = self.lookup.prepared.limits
        if limits.memory is not None and self.nbytes > limits.memory:
            raise LimitError(
                f"the {self.kept:,} archived matches that access='eager' keeps take "
                f"{format_size(self.nbytes)}, more than memory={format_size(limits.memory)}\n"
                "  hint: access='grouped' reads the archive instead; a shorter RANGE keeps fewer"
            )

    def share(self, far: float, keeps: float | None) -> None:
        """Widens the access for another join with the same lookup."""
        self.far = max(self.far, far)
        self.keeps = None if self.keeps is None or keeps is None else max(self.keeps, keeps)

    def forget(self, now: float) -> None:
        if self.keeps is None or not self.found:
            return
        oldest = now - self.keeps
        if self._dropped is not None and oldest - self._dropped < self.far / 16:
            return
        self._dropped = oldest
        matches = self._concat()
        needed = get_match_times(matches, "start", self.past.unit) >= oldest
        if not needed.all():
            self.found = [matches.filter(pa.array(needed)).combine_chunks()]

    def _concat(self) -> pa.Table:
        if len(self.found) > 1:
            self.found = [pa.concat_tables(self.found).combine_chunks()]
        return self.found[0] if self.found else create_empty_table(self.lookup.prepared.ranked)

    def instances(self, ranges: ArchiveRanges) -> pa.Table:  # noqa: ARG002
        return self._concat()

    @property
    def kept(self) -> int:
        return sum(table.num_rows for table in self.found)

    @property
    def nbytes(self) -> int:
        return sum(_size(table) for table in self.found) + self.matcher.state_bytes

    def save(self) -> bytes:
        blobs = {"found": serialize_table(self._concat()), "matcher": self.matcher.save()}
        return pack_state({"begun": self.begun}, {}, blobs)

    def restore(self, data: bytes) -> None:
        if not data:
            return  # saved by an access that stores nothing: the archive is read again
        header, _, blobs = unpack_state(data)
        self.begun = bool(header["begun"])
        matches = deserialize_table(blobs["found"]).cast(self.lookup.prepared.ranked)
        self.found = [matches] if matches.num_rows else []
        self.matcher.restore(blobs["matcher"])


def _open_end(since: Any) -> Any:
    if isinstance(since, float):
        return np.array([np.inf])
    return np.array([np.iinfo(np.int64).max])


def _size(table: pa.Table) -> int:
    return int(table.nbytes)
