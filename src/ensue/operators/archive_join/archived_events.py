"""Past events of a stream: archived events, and recent ones that are not written yet.

One moment, the cut, separates them: the archive has the events that end before it, the recent
events all others. So every event is seen once, even if a failed writer has written a file with
recent events: these are after the cut that is known here.
"""

import math
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.archives.archive import KEY, SINCE, UNTIL, Archive, ArchiveRead, ArchiveRows
from ensue.archives.pruning import RowSelector, compute_running_maximum
from ensue.engine.state_format import deserialize_table, serialize_table
from ensue.runtime.stage import ArchiveBatch, LookupCounters
from ensue.runtime.tasks.watermark import is_calendar_time
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import Ints
from ensue.vector.arrow_types import Unit, kind_of_arrow, plain_type
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import StreamSchema
from ensue.vector.key_codes import ColumnCodes
from ensue.vector.take import create_empty_table

Times = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ArchiveRanges:
    """The requested ranges of live matches: a key and a time range each."""

    keys: pa.Array | None  # None: the events of all keys
    since: Times
    until: Times

    def __len__(self) -> int:
        return len(self.since)

    def at(self, places: Ints) -> "ArchiveRanges":
        keys = None if self.keys is None else self.keys.take(pa.array(places))
        return ArchiveRanges(keys, self.since[places], self.until[places])

    def and_(self, other: "ArchiveRanges") -> "ArchiveRanges":
        keys = None
        if self.keys is not None and other.keys is not None:
            keys = pa.concat_arrays([self.keys, other.keys.cast(self.keys.type)])
        since = np.concatenate([self.since, other.since])
        return ArchiveRanges(keys, since, np.concatenate([self.until, other.until]))

    def wider(self, before: float, behind: float) -> "ArchiveRanges":
        """Widens the ranges on both sides; `math.inf` leaves a side open."""
        if self.since.dtype.kind == "f":
            return ArchiveRanges(self.keys, self.since - before, self.until + behind)
        bounds = np.iinfo(np.int64)
        since = np.full_like(self.since, bounds.min)
        if before != math.inf:
            since = np.maximum(self.since, bounds.min + int(before)) - int(before)
        until = np.full_like(self.until, bounds.max)
        if behind != math.inf:
            until = np.minimum(self.until, bounds.max - int(behind)) + int(behind)
        return ArchiveRanges(self.keys, since, until)

    def merge(self) -> "ArchiveRanges":
        """Merges overlapping ranges of each key; NULL keys and empty ranges are dropped.

        >>> ranges = ArchiveRanges(pa.array(["x", "y", "x"]), np.array([5, 1, 1]), np.array([9, 2, 6]))
        >>> merged = ranges.merge()
        >>> merged.keys.to_pylist(), merged.since, merged.until
        (['x', 'y'], array([1, 1]), array([9, 2]))
        """
        codes = np.zeros(len(self), np.int64)
        if self.keys is not None:
            codes = ColumnCodes().encode(self.keys).astype(np.int64)
        valid = np.flatnonzero((codes >= 0) & (self.since <= self.until))
        order = valid[np.lexsort((self.since[valid], codes[valid]))]
        if not len(order):
            return self.at(order)
        codes, since, until = codes[order], self.since[order], self.until[order]
        reached = compute_running_maximum(codes, until)
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (codes[1:] != codes[:-1]) | (since[1:] > reached[:-1])
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(order)) - 1
        keys = None if self.keys is None else self.keys.take(pa.array(order[starts]))
        return ArchiveRanges(keys, since[starts], reached[ends])

    def table(self, time: pa.DataType, unit: Unit) -> pa.Table:
        """Converts the ranges to a table for an archive with this type of time column."""
        columns = {} if self.keys is None else {KEY: self.keys}
        columns |= {SINCE: convert_bounds(self.since, time, unit, up=True)}
        columns |= {UNTIL: convert_bounds(self.until, time, unit, up=False)}
        return pa.table(columns)


_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def convert_bounds(values: Times, type_: pa.DataType, unit: Unit, *, up: bool) -> pa.Array:
    """Converts bounds to values of a time column, rounded so that no event is lost.

    Values outside the type's range become NULL, an open bound.

    >>> convert_bounds(np.array([1_500]), pa.timestamp("ms"), "us", up=True).cast(pa.int64()).to_pylist()
    [2]
    """
    type_ = plain_type(type_)
    match kind_of_arrow(type_):
        case ValueKind.TIMESTAMP:
            return _ticks(values, type_, _PER_SECOND[unit], _PER_SECOND[type_.unit], up=up)
        case ValueKind.DATE:
            per_day = 86_400 * _PER_SECOND[unit]
            days = -(-values // per_day) if up else values // per_day
            clipped = np.clip(days, -(2**31) + 1, 2**31 - 1).astype(np.int32)
            return pa.array(clipped, pa.date32()).cast(type_)
        case ValueKind.INTEGER:
            rounded = np.ceil(values) if up else np.floor(values)
            if values.dtype.kind != "f":
                rounded = values
            limits = np.iinfo(type_.to_pandas_dtype())
            outside = (rounded < limits.min) | (rounded > limits.max)
            low, high = int(limits.min), int(limits.max)
            return pa.array(np.clip(rounded, low, high).astype(type_.to_pandas_dtype()), type_,
                            mask=outside)  # fmt: skip
        case _:
            return pa.array(values.astype(np.float64)).cast(type_)


def _ticks(values: Times, type_: pa.DataType, per_second: int, target_per_second: int, *, up: bool) -> pa.Array:
    if target_per_second <= per_second:
        size = per_second // target_per_second
        return pa.array(-(-values // size) if up else values // size, pa.int64()).cast(type_)
    size = target_per_second // per_second
    bounds = np.iinfo(np.int64)
    outside = (values > bounds.max // size) | (values < -(bounds.max // size))
    return pa.array(np.where(outside, 0, values) * size, pa.int64(), mask=outside).cast(type_)


@dataclass
class ReadCounters:
    """Counts the reads of an archive, with their files, rows and events."""

    reads: int = 0
    files: int = 0
    rows: int = 0
    events: int = 0
    seconds: float = 0.0

    def add(self, read: ArchiveRows, seconds: float) -> None:
        self.reads += 1
        self.files += read.files
        self.rows += read.rows
        self.events += read.events.num_rows
        self.seconds += seconds


@dataclass
class ArchivedEvents:
    """The events of an archive, and the recent ones that belong to it."""

    archive: Archive
    unit: Unit  # of times
    own: bool = False  # the events of the stream belong to it
    first_cut: float | None = None  # events before it are in the archive; None: no events are
    cut: float | None = None  # None: the archive is empty
    waits_for_archive: bool = False  # recent events will be written to it
    recent: list[pa.Table] = field(default_factory=list)  # in order
    archived: int = 0  # events that were handed over
    before_cut: int = 0  # events that the archive had already
    reading: ReadCounters = field(default_factory=ReadCounters)

    @property
    def arrow(self) -> pa.Schema:
        return self.archive.shape.arrow

    def convert_to_archive_unit(self, now: float) -> float:
        """Converts a time to the unit of the archive's matchers."""
        return convert_time_unit(now, self.archive.shape, self.unit, self.archive.shape.unit)

    def add(self, events: pa.Table) -> pa.Table:
        """Adds the next events of the stream; returns the ones that the archive lacks."""
        events = events.select(self.arrow.names).cast(self.arrow)
        if self.first_cut is not None and events.num_rows:
            fresh = self._ends(events) >= self.first_cut
            self.before_cut += int((~fresh).sum())
            events = events if fresh.all() else events.filter(pa.array(fresh))
        if events.num_rows:
            self.recent.append(events)
        return events

    def read(self, ranges: ArchiveRanges, field: str | None, types: frozenset[str] | None) -> pa.Table:
        """Reads the events in the ranges, in stream order."""
        ranges = ranges.merge()
        tables = [create_empty_table(self.arrow)]
        time = self.arrow.field(self.archive.shape.schema.end).type
        if len(ranges) and not (self.own and self.cut is None):
            before = self._end_at_cut(ranges) if self.own else ranges
            if len(before):
                began = perf_counter()
                read = self.archive.read(ArchiveRead(before.table(time, self.unit), field, types))
                self.reading.add(read, perf_counter() - began)
                tables.append(read.events.select(self.arrow.names).cast(self.arrow))
        if len(ranges) and self.recent:
            pieces = RowSelector(ArchiveRead(ranges.table(time, self.unit), field), self.archive.shape)
            first = ranges.since.min()
            recent = (t for t in self.recent if self._ends(t.slice(t.num_rows - 1))[0] >= first)  # they are in order
            tables += [events.filter(pa.array(pieces.holds(events))) for events in recent]
        return pa.concat_tables(tables)

    def _end_at_cut(self, ranges: ArchiveRanges) -> ArchiveRanges:
        assert self.cut is not None
        last = np.nextafter(self.cut, -np.inf) if ranges.until.dtype.kind == "f" else self.cut - 1
        return ArchiveRanges(ranges.keys, ranges.since, np.minimum(ranges.until, last)).merge()

    def _ends(self, events: pa.Table) -> Times:
        name = self.archive.shape.schema.end
        return np.asarray(from_arrow(events.column(name), self.unit, name).values)

    def forget(self, before: float) -> None:
        """Drops recent events that no match needs, unless they will be written to the archive."""
        if not self.own or self.waits_for_archive or not self.recent:
            return
        if self._ends(self.recent[0]).max() < before:
            self.recent = [t for t in self.recent if self._ends(t).max() >= before]

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.recent)

    @property
    def nbytes(self) -> int:
        return sum(int(table.nbytes) for table in self.recent)

    def get_lookup_counters(self) -> LookupCounters:
        read = self.reading
        return LookupCounters(read.reads, read.files, read.rows, self.rows, self.before_cut)

    def hand_over(self, cut: float, rows: int, age: float | None) -> ArchiveBatch | None:
        """Removes the recent events, which all end before the cut, to write them to the archive.

        Returns None if they are fewer than `rows` and younger than `age`.
        """
        count = self.rows
        if not count:
            return None
        old = age is not None and min(self._ends(t).min() for t in self.recent) <= cut - age
        if count < rows and not old:
            return None
        handover = ArchiveBatch(pa.concat_tables(self.recent), self.archived)
        self.recent, self.cut = [], cut
        self.archived += count
        return handover

    def snapshot(self) -> tuple[dict[str, float | None], bytes]:
        events = pa.concat_tables([create_empty_table(self.arrow), *self.recent])
        header = {"cut": self.cut, "first_cut": self.first_cut, "archived": self.archived}
        return header, serialize_table(events)

    def restore(self, header: dict[str, float | None], events: bytes) -> None:
        self.cut, self.first_cut = header["cut"], header["first_cut"]
        self.archived = int(header["archived"] or 0)
        table = deserialize_table(events).cast(self.arrow)
        self.recent = [table] if table.num_rows else []


def convert_time_unit(time: float, shape: StreamSchema, unit: Unit, to: Unit) -> float:
    """Converts a time to another unit, rounded down; numeric times have no unit."""
    if unit == to or not is_calendar_time(shape):
        return time
    return int(time) * 1_000 if to == "ns" else int(time) // 1_000
