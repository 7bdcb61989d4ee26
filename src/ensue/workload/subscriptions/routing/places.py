"""The places of events, and their boxes."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Corners(Protocol):
    """The places of events: event k has the corners from `first[k]` up to `first[k + 1]`."""

    @property
    def x(self) -> Floats: ...
    @property
    def y(self) -> Floats: ...
    @property
    def first(self) -> npt.NDArray[np.int64]: ...


def boxes_of(x: Floats, y: Floats, first: npt.NDArray[np.int64], space: int) -> Floats:
    """x0, y0, x1, y1 of each place, of NaN where there is none or a corner is not a number.

    On the earth a box begins between -180 and 180.

    >>> boxes_of(np.array([1.0, 0.0, 2.0]), np.array([5.0, 1.0, 3.0]), np.array([0, 1, 1, 3]), 0)
    array([[ 1.,  5.,  1.,  5.],
           [nan, nan, nan, nan],
           [ 0.,  1.,  2.,  3.]])
    """
    rows = len(first) - 1
    boxes = np.full((rows, 4), np.nan)
    sizes = np.diff(first)
    there = np.flatnonzero(sizes)
    if len(there):
        x, y = x[first[0] : first[-1]], y[first[0] : first[-1]]
        if len(x) == len(there):  # points
            boxes[there, 0] = boxes[there, 2] = x
            boxes[there, 1] = boxes[there, 3] = y
        else:
            begins = first[there] - first[0]
            boxes[there, 0] = np.minimum.reduceat(x, begins)
            boxes[there, 1] = np.minimum.reduceat(y, begins)
            boxes[there, 2] = np.maximum.reduceat(x, begins)
            boxes[there, 3] = np.maximum.reduceat(y, begins)
    boxes[np.isnan(boxes).any(axis=1)] = np.nan
    if space == 1:
        turns = 360 * np.floor((boxes[:, 0] + 180) / 360)
        boxes[:, 0] -= turns
        boxes[:, 2] -= turns
    return boxes
