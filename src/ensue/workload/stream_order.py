"""Events as they come, put into the order of the stream as far as that is known."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.rows import no_rows, rows_taken
from ensue.columns.stream import Shape, ends, in_order, places_in_order
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Passed:
    """What can be matched now."""

    events: pa.Table  # in the order of the stream, and none comes before them any more
    late: pa.Table  # came too late to be matched


class StreamOrder:
    """Lets events pass when none can come before them any more.

    Without a delay they have to come in the order of the stream and pass at once; with one they
    wait until one has come that is so much newer. What comes too late is decided event by event,
    by those before it: how the stream is cut into pieces does not matter.
    """

    def __init__(self, shape: Shape, delay: int | float | None) -> None:
        self.shape = shape
        self.delay = delay  # in the matcher's time; None: events come in order
        self.newest: Any = None  # how far time has come
        self.waiting = no_rows(shape.arrow)
        self._last: pa.Table | None = None  # that passed, where more than time orders events
        self._by_time_alone = not shape.schema.order and not shape.schema.intervals

    @property
    def now(self) -> Any:
        """No event that ends before comes any more, or it is late. None: nothing is known."""
        if self.newest is None or self.delay is None:
            return self.newest
        return self.newest - self.delay

    def take(self, events: pa.Table) -> Passed:
        """The next events. All of them have a time."""
        if not events.num_rows:
            return Passed(events, events)
        times = ends(events, self.shape)
        behind = self._behind(events, times)
        late = events.slice(0, 0)
        if behind.any():
            late, events = (rows_taken(events, np.flatnonzero(b)) for b in (behind, ~behind))
            times = times[~behind]
        if not events.num_rows:
            return Passed(events, late)
        if self.delay is None:
            self.newest = times[-1].item()
            if not self._by_time_alone:
                self._last = events.slice(events.num_rows - 1)
            return Passed(events, late)
        newest = times.max().item()
        self.newest = newest if self.newest is None else max(self.newest, newest)
        self.waiting = pa.concat_tables([self.waiting, events])
        return Passed(self._released(), late)

    def late(self, events: pa.Table) -> Bools:
        """Which of the next events would come too late. All of them have a time."""
        return self._behind(events, ends(events, self.shape))

    def advance(self, time: float) -> pa.Table:
        """Time has come so far: what passes."""
        self.newest = time if self.newest is None else max(self.newest, time)
        return self._released()

    def finish(self) -> pa.Table:
        """The stream is over: all that is left passes."""
        left, self.waiting = self.waiting, self.waiting.slice(0, 0)
        return in_order(left, self.shape)

    def _behind(self, events: pa.Table, times: npt.NDArray[Any]) -> Bools:
        """Which events come too late, each by what came before it."""
        first = times[:1] if self.newest is None else np.array([self.newest], times.dtype)
        if self.delay is not None or self._by_time_alone:
            if len(times) == 1:
                return np.asarray(first - times > (self.delay or 0))
            before = np.maximum.accumulate(np.concatenate([first, times[:-1]]))
            return np.asarray(before - times > (self.delay or 0))
        known = [] if self._last is None else [self._last]
        places = places_in_order(pa.concat_tables([*known, events]), self.shape)
        late = times < first
        if places is None:
            return np.asarray(late)
        ranks = np.empty(len(places), np.int64)
        ranks[places] = np.arange(len(places))
        return np.asarray(late | (ranks < np.maximum.accumulate(ranks))[len(known) :])

    def _released(self) -> pa.Table:
        if not self.waiting.num_rows:
            return self.waiting
        done = ends(self.waiting, self.shape) < self.now
        if not done.any():
            return self.waiting.slice(0, 0)
        released = rows_taken(self.waiting, np.flatnonzero(done))
        self.waiting = rows_taken(self.waiting, np.flatnonzero(~done)).combine_chunks()
        return in_order(released, self.shape)

    # ---------------------------------------------------------------------------- state

    @property
    def nbytes(self) -> int:
        return int(self.waiting.nbytes)

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        blobs = {"waiting": to_bytes(self.waiting)}
        blobs |= {} if self._last is None else {"last": to_bytes(self._last)}
        return packed({"newest": self.newest}, {}, blobs)

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        header, _, blobs = unpacked(data)
        schema = self.shape.arrow
        self.newest = header["newest"]
        self.waiting = from_bytes(blobs["waiting"]).cast(schema)
        self._last = from_bytes(blobs["last"]).cast(schema) if "last" in blobs else None
