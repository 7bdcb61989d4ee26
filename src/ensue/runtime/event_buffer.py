"""Buffers of events: those that wait for the watermark, and those that later matches may contain."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.projection.match_ids import ORDINAL, get_event_times, hash_content, number_duplicates
from ensue.vector.arrow_numpy import Bools, Ints, integers, sorted_unique, to_single_array, wrap_numbers
from ensue.vector.arrow_types import Unit
from ensue.vector.event_table import StreamSchema, find_stream_order, get_end_times, sort_events
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

    def add(self, events: pa.Table, first: int, members: Iterable[Rows] | None, numbers: Rows | None = None) -> None:
        """Adds the events from row `first` on, with the ordinals of a sender, that are among `members`; None: all."""
        count = events.num_rows
        selected = np.ones(count, np.bool_) if members is None else np.zeros(count, np.bool_)
        for rows in members or ():
            selected[rows[rows >= first] - first] = True
        if numbers is None:
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
        events = self._fit_schema(part.events).append_column(ORDINAL, wrap_numbers(part.numbers))
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
        numbers = integers(to_single_array(table.column(ORDINAL))).copy()
        part = _Part(table.drop_columns([ORDINAL]), rows, numbers)
        self._parts = [part] if len(rows) else []
        self._fresh, self._count, self._needed = 0, len(rows), len(rows)
        self._twins.restore(arrays)


def find_positions(known: Rows, rows: Rows) -> Rows:
    """The positions of rows in `known`, which ascends; -1 stays -1."""
    if not len(rows):
        return rows
    return np.where(rows < 0, np.int64(-1), np.searchsorted(known, rows))


@dataclass(frozen=True, slots=True)
class ReleasedEvents:
    """The events before the watermark, and late events."""

    events: pa.Table  # in stream order
    late: pa.Table


class StreamOrder:
    """Releases events in stream order when the watermark has passed them.

    Without a delay, events must arrive in stream order and are released at once; with one they
    wait for an event that is newer by the delay. Whether an event is late depends on the events
    before it, not on batches.
    """

    def __init__(self, shape: StreamSchema, delay: int | float | None) -> None:
        self.shape = shape
        self.delay = delay  # in ticks; None: events arrive in order
        self._nothing = create_empty_table(shape.arrow)
        self.newest: Any = None  # event time
        self.waiting = create_empty_table(shape.arrow)
        self._last: pa.Table | None = None  # released event, where not only time orders events
        self._by_time_alone = not shape.schema.order and not shape.schema.intervals

    @property
    def now(self) -> Any:
        """The watermark; None before the first event."""
        if self.newest is None or self.delay is None:
            return self.newest
        return self.newest - self.delay

    def take(self, events: pa.Table) -> ReleasedEvents:
        """Adds the next events, which all have a time, and releases those before the watermark."""
        if not events.num_rows:
            return ReleasedEvents(events, events)
        times = get_end_times(events, self.shape)
        behind = self._find_late(events, times)
        late = self._nothing
        if behind.any():
            late, events = (take_rows(events, np.flatnonzero(b)) for b in (behind, ~behind))
            times = times[~behind]
        if not events.num_rows:
            return ReleasedEvents(events, late)
        if self.delay is None:
            self.newest = times[-1].item()
            if not self._by_time_alone:
                self._last = events.slice(events.num_rows - 1)
            return ReleasedEvents(events, late)
        newest = times.max().item()
        self.newest = newest if self.newest is None else max(self.newest, newest)
        self.waiting = pa.concat_tables([self.waiting, events])
        return ReleasedEvents(self._release(), late)

    def find_late(self, events: pa.Table) -> Bools:
        """Which of the next events would be late. All of them have a time."""
        return self._find_late(events, get_end_times(events, self.shape))

    def on_watermark(self, time: float) -> pa.Table:
        """Advances event time, and releases events; infinity releases all."""
        self.newest = time if self.newest is None else max(self.newest, time)
        return self._release()

    def _find_late(self, events: pa.Table, times: npt.NDArray[Any]) -> Bools:
        """Which events are late, each compared with the events before it."""
        first = times[:1] if self.newest is None else np.array([self.newest], times.dtype)
        if self.delay is not None or self._by_time_alone:
            if len(times) == 1:
                return np.asarray(first - times > (self.delay or 0))
            before = np.maximum.accumulate(np.concatenate([first, times[:-1]]))
            return np.asarray(before - times > (self.delay or 0))
        known = [] if self._last is None else [self._last]
        places = find_stream_order(pa.concat_tables([*known, events]), self.shape)
        late = times < first
        if places is None:
            return np.asarray(late)
        ranks = np.empty(len(places), np.int64)
        ranks[places] = np.arange(len(places))
        return np.asarray(late | (ranks < np.maximum.accumulate(ranks))[len(known) :])

    def _release(self) -> pa.Table:
        if not self.waiting.num_rows:
            return self.waiting
        done = get_end_times(self.waiting, self.shape) < self.now
        if not done.any():
            return self.waiting.slice(0, 0)
        released = take_rows(self.waiting, np.flatnonzero(done))
        self.waiting = take_rows(self.waiting, np.flatnonzero(~done)).combine_chunks()
        return sort_events(released, self.shape)

    @property
    def nbytes(self) -> int:
        return int(self.waiting.nbytes)

    def snapshot(self) -> bytes:
        blobs = {"waiting": serialize_table(self.waiting)}
        blobs |= {} if self._last is None else {"last": serialize_table(self._last)}
        return pack_state({"newest": self.newest}, {}, blobs)

    def restore(self, data: bytes) -> None:
        header, _, blobs = unpack_state(data)
        schema = self.shape.arrow
        self.newest = header["newest"]
        self.waiting = deserialize_table(blobs["waiting"]).cast(schema)
        self._last = deserialize_table(blobs["last"]).cast(schema) if "last" in blobs else None


Arrays = dict[str, npt.NDArray[Any]]


class DuplicateEvents:
    """Numbers events of the same time and content, across batches.

    It keeps the events of the newest time, and counts them only if more of that time arrive.

    >>> twins = DuplicateEvents("t", "us")
    >>> one = pa.table({"t": [1], "x": ["a"]})
    >>> [twins.ordinals(one, np.array([True])).item() for _ in range(3)]
    [0, 1, 2]
    >>> twins.ordinals(pa.table({"t": [2], "x": ["a"]}), np.array([True])).item()
    0
    """

    def __init__(self, end: str, unit: Unit) -> None:
        self.end = end  # the column by which events are sorted
        self.unit: Unit = unit
        self.time: Any = None
        self._newest: pa.Table | None = None  # events of that time that are not counted yet
        self._counts: dict[tuple[int, int], int] = {}  # by content hash

    def ordinals(self, events: pa.Table, selected: Bools) -> Ints:
        """The numbers of the selected events among those of the same content."""
        if not events.num_rows:
            return np.zeros(0, np.int64)
        times = get_event_times(events, self.end, self.unit)
        known = self.time is not None and times[0] == self.time
        if not known and len(times) == 1:  # as most pieces of a live stream
            self.time, self._counts, self._newest = times[0], {}, events
            return np.zeros(1, np.int64)
        same = int(np.searchsorted(times, self.time, side="right")) if known else 0
        later = number_duplicates(events.slice(same), selected[same:], times[same:])
        numbers = np.concatenate([self._count(events.slice(0, same)), later]) if same else later
        if same < len(times):
            self.time, self._counts = times[-1], {}
            self._newest = events.slice(int(np.searchsorted(times, self.time, side="left")))
        return numbers

    def _count(self, events: pa.Table) -> Ints:
        """The numbers of events of the newest time."""
        if self._newest is not None:
            uncounted, self._newest = self._newest, None
            self._count(uncounted)
        numbers = np.zeros(events.num_rows, np.int64)
        for row, pair in enumerate(zip(*(h.tolist() for h in hash_content(events)), strict=True)):
            numbers[row] = self._counts.get(pair, 0)
            self._counts[pair] = int(numbers[row]) + 1
        return numbers

    def forget_before(self, now: float) -> None:
        """Drops the state of times before the watermark `now`."""
        if self.time is not None and self.time < now:
            self.time, self._newest, self._counts = None, None, {}

    @property
    def nbytes(self) -> int:
        kept = 0 if self._newest is None else int(self._newest.nbytes)
        return kept + 24 * len(self._counts)

    def snapshot(self) -> Arrays:
        """The counts as arrays; empty if there are none."""
        if self.time is None:
            return {}
        if self._newest is not None:
            self._count(self._newest.slice(0, 0))
        return {
            "twins time": np.asarray([self.time]),
            "twins": np.array(list(self._counts), np.uint64).reshape(-1, 2),
            "twins counted": np.array(list(self._counts.values()), np.int64),
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        self.time, self._newest, self._counts = None, None, {}
        if "twins time" in arrays:
            self.time = arrays["twins time"][0]
            pairs = map(tuple, arrays["twins"].tolist())
            self._counts = dict(zip(pairs, arrays["twins counted"].tolist(), strict=True))
