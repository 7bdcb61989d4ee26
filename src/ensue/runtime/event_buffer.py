"""The buffer of events that later matches may contain."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.state_format import deserialize_table, serialize_table
from ensue.projection.match_ids import ORDINAL
from ensue.runtime.stream_order import DuplicateEvents
from ensue.vector.arrow_numpy import sorted_unique
from ensue.vector.event_table import StreamSchema
from ensue.vector.match_rows import Matches
from ensue.vector.take import create_empty_table, take_rows

Rows = npt.NDArray[np.int64]
FEW = 1_000  # events that are buffered without filtering
MIN_COMPACT_ROWS = 4_096  # buffered events from which on compaction pays
MAX_CHUNKS = 64  # new parts before they are concatenated
FEW_MEMBERS = 32  # events that are looked up one by one


@dataclass(frozen=True, slots=True)
class BufferedEvents:
    """Past events and their rows in the stream, ascending."""

    events: pa.Table  # with ordinals, since duplicates may have been dropped
    rows: Rows

    def renumber(self, matches: Matches) -> Matches:
        """Matches with row numbers of these events."""
        return matches.map_rows(lambda rows: find_positions(self.rows, rows))


class _Part(NamedTuple):
    """A chunk of consecutive events."""

    events: pa.Table
    rows: Rows
    numbers: Rows  # ordinals

    def take(self, rows: Rows) -> "_Part":
        places = np.searchsorted(self.rows, rows)
        return _Part(take_rows(self.events, places), self.rows[places], self.numbers[places])


class EventBuffer:
    """Buffers the events of a matcher.

    Small batches are appended as chunks, and compacted when there are twice as many events as
    were needed the last time: the cost per event does not depend on the size of the buffer.
    """

    def __init__(self, shape: StreamSchema) -> None:
        self._arrow = shape.arrow
        self._schema = shape.arrow.append(pa.field(ORDINAL, pa.int64()))
        self._parts: list[_Part] = []
        self._fresh = 0  # number of the new parts at the end
        self._count = 0
        self._needed = 0  # events at the last compaction
        self._twins = DuplicateEvents(shape.schema.end, shape.unit)

    def add(self, events: pa.Table, first: int, members: Iterable[Rows] | None) -> None:
        """Adds the events from row `first` on that are among `members`. None: all of them."""
        count = events.num_rows
        if members is None:
            numbers = self._twins.ordinals(events, np.ones(count, np.bool_))
            self._append(_Part(events, np.arange(first, first + count), numbers))
            return
        selected = np.zeros(count, np.bool_)
        for rows in members:
            selected[rows[rows >= first] - first] = True
        numbers = self._twins.ordinals(events, selected)
        places = np.flatnonzero(selected)
        if len(places) < count:
            events, numbers = take_rows(events, places), numbers[places]
        self._append(_Part(events, first + places, numbers))

    def _append(self, part: _Part) -> None:
        if not len(part.rows):
            return
        self._parts.append(part)
        self._count += len(part.rows)
        self._fresh += 1
        if self._fresh > MAX_CHUNKS:
            self._merge()

    def _merge(self) -> None:
        """Concatenates parts at the end, so that each is twice as large as the next."""
        kept = len(self._parts) - max(1, self._fresh)
        self._fresh = 0
        size = sum(len(part.rows) for part in self._parts[kept:])
        while kept > 0 and len(self._parts[kept - 1].rows) <= 2 * size:
            kept -= 1
            size += len(self._parts[kept].rows)
        if len(self._parts) - kept > 1:
            self._parts[kept:] = [self._join_parts(self._parts[kept:])]

    def _join_parts(self, parts: Sequence[_Part]) -> _Part:
        if not parts:
            return _Part(create_empty_table(self._arrow), np.zeros(0, np.int64), np.zeros(0, np.int64))
        tables, rows, numbers = zip(*parts, strict=True)
        events = pa.concat_tables([self._fit_schema(table) for table in tables]).combine_chunks()
        return _Part(events, np.concatenate(rows), np.concatenate(numbers))

    def _fit_schema(self, events: pa.Table) -> pa.Table:
        return events if events.schema.equals(self._arrow) else events.cast(self._arrow)

    def _get_buffered(self, part: _Part) -> BufferedEvents:
        events = self._fit_schema(part.events).append_column(ORDINAL, pa.array(part.numbers))
        return BufferedEvents(events, part.rows)

    @property
    def is_full(self) -> bool:
        """Whether compaction pays."""
        return self._count > max(MIN_COMPACT_ROWS, 2 * self._needed)

    def keep(self, rows: Rows) -> None:
        """Drops the events of other rows."""
        if len(rows) < self._count:
            self._parts = [self._join_parts([self._merge_parts().take(rows)])] if len(rows) else []
            self._fresh, self._count = 0, len(rows)
        self._needed = len(rows)

    def _merge_parts(self) -> _Part:
        """All events as one part."""
        if len(self._parts) != 1:
            joined = self._join_parts(self._parts)
            self._parts, self._fresh = [joined] if len(joined.rows) else [], 0
            return joined
        return self._parts[0]

    def get_events(self, found: Iterable[Matches]) -> BufferedEvents:
        """The events of matches, and maybe others."""
        rows = [m.elements(v) for m in found if m.count for v in m.variables]
        members = sorted_unique(np.concatenate(rows)) if rows else np.zeros(0, np.int64)
        members = members[members >= 0]
        if len(members) > FEW_MEMBERS:
            one = self._merge_parts()
            return self._get_buffered(one if 2 * len(members) > self._count else one.take(members))
        return self._get_buffered(self._join_parts([self._event(row) for row in members.tolist()]))

    def _event(self, row: int) -> _Part:
        """The event of a row."""
        parts = self._parts
        part = parts[bisect_right(parts, row, key=lambda part: int(part.rows[0])) - 1]
        at = int(part.rows.searchsorted(row))
        one = slice(at, at + 1)
        return _Part(part.events.slice(at, 1), part.rows[one], part.numbers[one])

    def forget_before(self, now: float) -> None:
        self._twins.forget_before(now)

    def __len__(self) -> int:
        """The number of buffered events, including those that compaction will drop."""
        return self._count

    @property
    def nbytes(self) -> int:
        size = sum(int(p.events.nbytes + 2 * p.rows.nbytes) for p in self._parts)
        return size + self._twins.nbytes

    def snapshot(self) -> tuple[bytes, dict[str, npt.NDArray[np.generic]]]:
        """The events, and arrays to be saved with them."""
        whole = self._get_buffered(self._merge_parts())
        return serialize_table(whole.events), {"rows": whole.rows, **self._twins.snapshot()}

    def restore(self, events: bytes, arrays: dict[str, npt.NDArray[np.generic]]) -> None:
        table = deserialize_table(events)
        rows = arrays["rows"].astype(np.int64, copy=False)
        table = table.cast(self._schema).combine_chunks()
        numbers = np.array(table.column(ORDINAL).to_numpy(), np.int64)
        part = _Part(table.drop_columns([ORDINAL]), rows, numbers)
        self._parts = [part] if len(rows) else []
        self._fresh, self._count, self._needed = 0, len(rows), len(rows)
        self._twins.restore(arrays)


def find_positions(known: Rows, rows: Rows) -> Rows:
    """The positions of rows in `known`, which ascends; -1 stays -1."""
    if not len(rows):
        return rows
    return np.where(rows < 0, np.int64(-1), np.searchsorted(known, rows))
