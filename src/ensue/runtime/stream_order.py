"""Sorts arriving events by the watermark, and numbers duplicate events."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.projection.match_ids import get_event_times, hash_content, number_duplicates
from ensue.vector.arrow_numpy import Bools, Ints
from ensue.vector.arrow_types import Unit
from ensue.vector.event_table import StreamSchema, find_stream_order, get_end_times, sort_events
from ensue.vector.take import create_empty_table, take_rows


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
        late = events.slice(0, 0)
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
