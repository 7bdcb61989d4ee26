"""What is learned of keys as their events come: how long they are quiet, and whether for ever."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.keys import ColumnCodes
from ensue.columns.stream import Shape, ends
from ensue.workload.spill.scores import Gaps

SAMPLED = 8  # of so many keys one is watched, where there are many
FEW = 4_096  # keys that are all watched
STATES = 16  # where events have one type: how many a key has had, up to so many
MOST_TYPES = 1_024

Codes = npt.NDArray[np.int64]


class Observed:
    """Counts gaps between events of a key by the state that the first of them left the key in.

    The state is the type of the last event; where there is only one type, it is the number of
    events that the key has inside the window.
    """

    def __init__(self, shape: Shape, window: float) -> None:
        self.gaps = Gaps(max(float(window), 1e-9), STATES)
        self._shape = shape
        self._typed = shape.schema.type_column
        self._types = ColumnCodes()
        self._columns = list(dict.fromkeys((shape.schema.end, self._typed or shape.schema.end)))
        self._last = np.zeros(0)  # by code: when its last event came
        self._state = np.full(0, -1, np.int32)  # and its state; -1: nothing is known of it
        self._watched = np.zeros(0, np.bool_)  # whether it is one of the sample

    def state_of(self, table: pa.Table, rows: Codes, count: Codes) -> Codes:
        """The state in which keys are: of each its last row, and how many events it has."""
        if self._typed is None:
            return np.minimum(count, STATES).astype(np.int64) - 1
        types = self._types.encode(table.column(self._typed).take(pa.array(rows)))
        return np.clip(types.astype(np.int64), 0, MOST_TYPES)

    def watch(self, table: pa.Table, codes: Codes) -> None:
        """Events that have come, in the order of the stream."""
        if not len(codes):
            return
        self._room(int(codes.max()) + 1)
        sample = np.flatnonzero(self._watched[codes])
        if len(sample) < len(codes):
            table, codes = table.select(self._columns).take(pa.array(sample)), codes[sample]
        if not len(codes):
            return
        times = ends(table, self._shape).astype(np.float64)
        states = self._states(table, codes)
        order = np.argsort(codes, kind="stable")
        codes, times, states = codes[order], times[order], states[order]
        first = np.r_[True, codes[1:] != codes[:-1]]
        before = np.where(first, self._last[codes], np.r_[0.0, times[:-1]])
        state = np.where(first, self._state[codes], np.r_[-1, states[:-1]])
        known = state >= 0
        gap = times - before
        inside = known & (gap <= self.gaps.window)
        self.gaps.follow(state[inside].astype(np.int64), gap[inside])
        self.gaps.lapse(state[known & ~inside].astype(np.int64))
        last = np.r_[first[1:], True]
        self._last[codes[last]], self._state[codes[last]] = times[last], states[last]

    def _states(self, table: pa.Table, codes: Codes) -> npt.NDArray[np.int32]:
        if self._typed is not None:
            found = self._types.encode(table.column(self._typed))
            return np.clip(found, 0, MOST_TYPES).astype(np.int32)
        # how many events a key has had, as far as is known here
        order = np.argsort(codes, kind="stable")
        same = codes[order]
        first = np.flatnonzero(np.r_[True, same[1:] != same[:-1]])
        counts = np.diff(np.r_[first, len(same)])
        place = np.arange(len(same)) - np.repeat(first, counts)
        states = np.empty(len(codes), np.int32)
        states[order] = np.minimum(self._state[same] + 1 + place, STATES - 1)
        return states

    def look(self, now: float) -> None:
        """It is `now`, and of some keys it is not known whether more of them comes."""
        known = np.flatnonzero(self._state >= 0)
        self.gaps.wait(self._state[known].astype(np.int64), now - self._last[known])

    def lapse_before(self, time: float) -> None:
        """Of keys that have been quiet since, nothing follows any more."""
        gone = np.flatnonzero((self._state >= 0) & (self._last < time))
        if len(gone):
            self.gaps.lapse(self._state[gone].astype(np.int64))
            self._state[gone] = -1

    def renumber(self, moved: npt.NDArray[np.int32]) -> None:
        """Keys have other codes from now on."""
        known = np.flatnonzero(moved[: len(self._last)] >= 0)
        count = int(moved.max(initial=-1)) + 1
        last, state = np.zeros(count), np.full(count, -1, np.int32)
        watched = np.zeros(count, np.bool_)
        new = moved[known]
        last[new], state[new] = self._last[known], self._state[known]
        watched[new] = self._watched[known]
        self._last, self._state, self._watched = last, state, watched

    @property
    def nbytes(self) -> int:
        return int(self._last.nbytes + self._state.nbytes)

    def save(self) -> dict[str, npt.NDArray[Any]]:
        """What was counted. Types go by the order in which they came, so they are saved too."""
        names = "\n".join(str(name) for name in self._types.values()).encode()
        return self.gaps.save() | {"types": np.frombuffer(names, np.uint8)}

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Goes on with what was counted."""
        if "types" in arrays:
            names = arrays["types"].tobytes().decode()
            if names:
                self._types.encode(pa.array(names.split("\n")))
            self.gaps.restore(arrays)

    def _room(self, count: int) -> None:
        if count > len(self._last):
            more = max(count, 2 * len(self._last)) - len(self._last)
            new = np.arange(len(self._last), len(self._last) + more)
            watched = (new < FEW) | (new % SAMPLED == 0)
            self._watched = np.concatenate([self._watched, watched])
            self._last = np.concatenate([self._last, np.zeros(more)])
            self._state = np.concatenate([self._state, np.full(more, -1, np.int32)])
