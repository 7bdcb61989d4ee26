"""Events of the same time and content told apart by their number, whatever pieces they come in."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.arrow_kinds import Unit
from ensue.columns.buffers import Bools, Ints
from ensue.results.identity import content_hashes, ordinals, times_of

Arrays = dict[str, npt.NDArray[Any]]


class Twins:
    """Knows the events of the newest time, since further ones of that time may come.

    As long as none has come they are kept as they are: to count them costs more.

    >>> twins = Twins("t", "us")
    >>> one = pa.table({"t": [1], "x": ["a"]})
    >>> [twins.ordinals(one, np.array([True])).item() for _ in range(3)]
    [0, 1, 2]
    >>> twins.ordinals(pa.table({"t": [2], "x": ["a"]}), np.array([True])).item()
    0
    """

    def __init__(self, end: str, unit: Unit) -> None:
        self.end = end  # the column by which events are ordered
        self.unit: Unit = unit
        self.time: Any = None
        self._newest: pa.Table | None = None  # events of that time that are not counted yet
        self._counts: dict[tuple[int, int], int] = {}  # the others, by the hash of their content

    def ordinals(self, events: pa.Table, wanted: Bools) -> Ints:
        """For the wanted ones of the next events their number among those of the same content."""
        if not events.num_rows:
            return np.zeros(0, np.int64)
        times = times_of(events, self.end, self.unit)
        known = self.time is not None and times[0] == self.time
        if not known and len(times) == 1:  # as most pieces of a live stream
            self.time, self._counts, self._newest = times[0], {}, events
            return np.zeros(1, np.int64)
        same = int(np.searchsorted(times, self.time, side="right")) if known else 0
        later = ordinals(events.slice(same), wanted[same:], times[same:])
        found = np.concatenate([self._counted(events.slice(0, same)), later]) if same else later
        if same < len(times):
            self.time, self._counts = times[-1], {}
            self._newest = events.slice(int(np.searchsorted(times, self.time, side="left")))
        return found

    def _counted(self, events: pa.Table) -> Ints:
        """The numbers of events of the newest time."""
        if self._newest is not None:
            given, self._newest = self._newest, None
            self._counted(given)
        found = np.zeros(events.num_rows, np.int64)
        for row, pair in enumerate(
            zip(*(h.tolist() for h in content_hashes(events)), strict=True)
        ):
            found[row] = self._counts.get(pair, 0)
            self._counts[pair] = int(found[row]) + 1
        return found

    def forget_before(self, now: float) -> None:
        """No event that ends before `now` comes any more."""
        if self.time is not None and self.time < now:
            self.time, self._newest, self._counts = None, None, {}

    @property
    def nbytes(self) -> int:
        kept = 0 if self._newest is None else int(self._newest.nbytes)
        return kept + 24 * len(self._counts)

    def save(self) -> Arrays:
        """What is known of the events of the newest time; nothing if there are none."""
        if self.time is None:
            return {}
        if self._newest is not None:
            self._counted(self._newest.slice(0, 0))
        return {
            "twins time": np.asarray([self.time]),
            "twins": np.array(list(self._counts), np.uint64).reshape(-1, 2),
            "twins counted": np.array(list(self._counts.values()), np.int64),
        }

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Goes on with what was saved, among other things."""
        self.time, self._newest, self._counts = None, None, {}
        if "twins time" in arrays:
            self.time = arrays["twins time"][0]
            pairs = map(tuple, arrays["twins"].tolist())
            self._counts = dict(zip(pairs, arrays["twins counted"].tolist(), strict=True))
