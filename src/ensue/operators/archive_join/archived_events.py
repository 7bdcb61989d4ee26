"""Past events of a stream: archived events, and recent ones that are not written yet.

One moment, the cut, separates them: the archive has the events that end before it, the recent
events all others. So every event is seen once, even if a failed writer has written a file with
recent events: these are after the cut that is known here.
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.archives.archive import Archive, ArchiveRead, ArchiveRows
from ensue.engine.state_format import deserialize_table, serialize_table
from ensue.operators.archive_join.archive_ranges import ArchiveRanges, Times
from ensue.runtime.stage import ArchiveBatch, LookupCounters
from ensue.runtime.tasks.watermark import is_calendar_time
from ensue.vector.arrow_types import Unit
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import StreamSchema
from ensue.vector.key_codes import ColumnCodes
from ensue.vector.take import create_empty_table


@dataclass
class ReadCounters:
    """Counts the reads of an archive, with their files, rows and events."""

    reads: int = 0
    files: int = 0
    rows: int = 0
    events: int = 0
    seconds: float = 0.0

    def add(self, read: ArchiveRows) -> None:
        self.reads += 1
        self.files += read.files
        self.rows += read.rows
        self.events += read.events.num_rows
        self.seconds += read.seconds


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
        if len(ranges) and not (self.own and self.cut is None):
            before = self._end_at_cut(ranges) if self.own else ranges
            if len(before):
                time = self.arrow.field(self.archive.shape.schema.end).type
                read = self.archive.read(ArchiveRead(before.table(time, self.unit), field, types))
                self.reading.add(read)
                tables.append(read.events.select(self.arrow.names).cast(self.arrow))
        if len(ranges):
            tables += [t for e in self.recent if (t := self._within(e, ranges, field)).num_rows]
        return pa.concat_tables(tables)

    def _end_at_cut(self, ranges: ArchiveRanges) -> ArchiveRanges:
        assert self.cut is not None
        last = np.nextafter(self.cut, -np.inf) if ranges.until.dtype.kind == "f" else self.cut - 1
        return ArchiveRanges(ranges.keys, ranges.since, np.minimum(ranges.until, last)).merge()

    def _within(self, events: pa.Table, ranges: ArchiveRanges, field: str | None) -> pa.Table:
        starts, ends = self._times(events, self.archive.shape.schema.start), self._ends(events)
        near = (ends >= ranges.since.min()) & (starts <= ranges.until.max())
        if field is None or ranges.keys is None:
            return events.filter(pa.array(_lie_in_ranges(near, starts, ends, ranges)))
        codes = ColumnCodes()
        range_codes = codes.encode(ranges.keys).astype(np.int64)
        event_codes = codes.encode(events.column(field)).astype(np.int64)
        near &= (event_codes >= 0) & (event_codes <= range_codes.max(initial=-1))
        rows = np.flatnonzero(near)
        if not len(rows):
            return events.slice(0, 0)
        order = np.lexsort((ranges.since, range_codes))
        codes_, since = range_codes[order], ranges.since[order]
        places = _find_last_at(codes_, since, event_codes[rows], starts[rows])
        inside = places >= 0
        chosen = order[np.maximum(places, 0)]
        inside &= (range_codes[chosen] == event_codes[rows]) & (ends[rows] <= ranges.until[chosen])
        return events.take(pa.array(rows[inside]))

    def _times(self, events: pa.Table, name: str) -> Times:
        return np.asarray(from_arrow(events.column(name), self.unit, name).values)

    def _ends(self, events: pa.Table) -> Times:
        return self._times(events, self.archive.shape.schema.end)

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


def _lie_in_ranges(
    near: npt.NDArray[np.bool_], starts: Times, ends: Times, ranges: ArchiveRanges
) -> npt.NDArray[np.bool_]:
    """Returns which events lie in one of the ranges, which do not overlap."""
    order = np.argsort(ranges.since, kind="stable")
    at = np.searchsorted(ranges.since[order], starts, side="right") - 1
    inside = near & (at >= 0)
    inside &= ends <= ranges.until[order[np.maximum(at, 0)]]
    return inside


def _find_last_at(
    codes: npt.NDArray[np.int64], times: Times, code: npt.NDArray[np.int64], time: Times
) -> npt.NDArray[np.int64]:
    """Finds the last position in sorted arrays at or before each (code, time), -1 for none."""
    all_codes = np.concatenate([codes, code])
    all_times = np.concatenate([times, time])
    is_query = np.concatenate([np.zeros(len(codes), np.int8), np.ones(len(code), np.int8)])
    order = np.lexsort((is_query, all_times, all_codes))
    positions = np.cumsum(is_query[order] == 0) - 1
    result = np.empty(len(all_codes), np.int64)
    result[order] = positions
    return result[len(codes) :]
