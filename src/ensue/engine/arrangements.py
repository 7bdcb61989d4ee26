"""How many arrangements of events a kernel may have to go through, at the most."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def arrangements(
    mask: npt.NDArray[np.int64],
    key: npt.NDArray[np.int32],
    ends: npt.NDArray[Any],
    bits: Sequence[int],
    window: float | None,
) -> float:
    """One event for each bit, of one partition and within a window, whatever their order.

    Events are counted by partition and stretches of time as long as the window; what lies in one
    window lies in two such stretches.

    >>> mask, key = np.array([1, 1, 2, 2, 2]), np.array([0, 0, 0, 0, 1], np.int32)
    >>> arrangements(mask, key, np.arange(5), [0, 1], None)
    4.0
    """
    known = (key >= 0) & (mask != 0)
    if not known.any():
        return 0.0
    stretch = np.zeros(int(known.sum()), np.int64)
    if window is not None and window > 0:
        times = ends[known]
        stretch = ((times - times.min()) // window).astype(np.int64) + 1
    place = key[known].astype(np.int64) * (int(stretch.max()) + 2) + stretch
    places, group = np.unique(place, return_inverse=True)
    before = np.searchsorted(places, places - 1)
    joined = places[before] == places - 1
    found = np.ones(len(places))
    for bit in bits:
        count = np.bincount(group, (mask[known] >> bit) & 1, len(places))
        found *= count + np.where(joined, count[before], 0.0)
    return float(found.sum())
