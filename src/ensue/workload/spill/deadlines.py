"""When a key has to be looked at though no event comes: a window of its may be over then."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.stream import Shape
from ensue.columns.values import from_arrow
from ensue.schema import Kind

Times = npt.NDArray[Any]


class Deadlines:
    """The times at which windows of some lengths are over."""

    def __init__(self, shape: Shape, windows: tuple[float, ...]) -> None:
        self._real = shape.schema.time_kind in (Kind.FLOAT, Kind.DECIMAL)
        self._start, self._unit = shape.schema.start, shape.unit
        self._windows = windows if self._real else tuple(map(math.floor, windows))
        self.never: float = np.inf if self._real else np.iinfo(np.int64).max

    def of(self, events: pa.Table, first: npt.NDArray[np.int64], now: float | None) -> Times:
        """For keys whose events begin at the rows `first`: what comes next, from `now` on.

        Any event may be the first of a match that waits for its window's end.
        """
        begun = np.asarray(from_arrow(events.column(self._start), self._unit).values)
        begun = begun.astype(np.float64 if self._real else np.int64, copy=False)
        due = np.full(len(begun), self.never, begun.dtype)
        for length in self._windows:
            over = self._over(begun, length)
            if now is not None:  # compared as matchers do: differences are not rounded up
                over = np.where(now - begun <= length, over, self.never)
            due = np.minimum(due, over)
        return np.asarray(np.minimum.reduceat(due, first)) if len(first) else due

    def _over(self, begun: Times, length: float) -> Times:
        if self._real:  # sums are rounded: rather too early
            return np.nextafter(np.nextafter(begun + length, -np.inf), -np.inf)
        return np.where(begun > self.never - length, self.never, begun + length)
