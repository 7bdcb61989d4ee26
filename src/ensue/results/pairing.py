"""Which matches of two sides belong together: equal keys, and one in a range before the other."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.correlation import Anchor, Range
from ensue.algebra.window import ByTime, ByUnits
from ensue.columns.arrow_kinds import Unit
from ensue.columns.buffers import Ints
from ensue.columns.keys import ColumnCodes
from ensue.columns.values import from_arrow
from ensue.schema import Kind

MOST_PAIRS = 1 << 20  # that are looked at together
Times = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Reaches:
    """A range in the unit of a matcher's time.

    >>> from ensue.algebra.window import ByTime
    >>> Reaches.of(Range(ByTime(5_000), Anchor.START, ByTime(1_001)), "us")
    Reaches(far=5, near=2, anchor=<Anchor.START: 'START'>)
    """

    far: int | float
    near: int | float | None  # None: anything before the anchor
    anchor: Anchor

    @classmethod
    def of(cls, range_: Range, unit: Unit) -> "Reaches":
        near = None if range_.near is None else _length(range_.near, unit, up=True)
        return cls(_length(range_.far, unit, up=False), near, range_.anchor)

    def since(self, anchors: Times) -> Times:
        """When an archived match starts at the earliest."""
        return back(anchors, self.far)

    def until(self, anchors: Times) -> Times:
        """When it ends at the latest, this moment included."""
        if self.near is not None:
            return back(anchors, self.near)
        if anchors.dtype.kind == "f":
            return np.nextafter(anchors, -np.inf)
        return back(anchors, 1)


def back(times: Times, by: int | float) -> Times:
    """Times earlier by a length; no earlier than 64 bits reach."""
    if times.dtype.kind == "f" or isinstance(by, float):
        return times - by
    return np.maximum(times, np.iinfo(np.int64).min + by) - by


def _length(length: ByTime | ByUnits, unit: Unit, *, up: bool) -> int | float:
    match length:
        case ByTime(nanoseconds=nanoseconds):
            per = 1_000 if unit == "us" else 1
            return -(-nanoseconds // per) if up else nanoseconds // per
        case ByUnits(amount=amount):
            return amount


def times_of(matches: pa.Table, name: str, unit: Unit) -> Times:
    """The starts or ends of matches as numbers."""
    vector = from_arrow(matches.column(name), unit, name)
    values = np.asarray(vector.values)
    return values.astype(np.float64) if vector.kind is Kind.DECIMAL else values


def key_codes(
    live: Sequence[pa.Array], archived: Sequence[pa.Array], count: int, others: int
) -> tuple[Ints, Ints]:
    """One number for each combination of key values; -1 where one of them equals nothing.

    >>> key_codes([pa.array(["x", None, "y"])], [pa.array(["y", "x"])], 3, 2)
    (array([ 0, -1,  1]), array([1, 0]))
    """
    left, right = np.zeros(count, np.int64), np.zeros(others, np.int64)
    for ours, theirs in zip(live, archived, strict=True):
        codes = ColumnCodes()
        a, b = codes.encode(ours).astype(np.int64), codes.encode(theirs).astype(np.int64)
        size = len(codes) + 1
        left = np.where((left < 0) | (a < 0), -1, left * size + a)
        right = np.where((right < 0) | (b < 0), -1, right * size + b)
        dense, at = np.unique(np.concatenate([left, right]), return_inverse=True)
        if len(dense) and dense[0] < 0:
            at = at - 1  # those without a key stay at -1
        left, right = at[:count], at[count:]
    return left, right


def pairs(
    codes: tuple[Ints, Ints],
    since: Times,
    until: Times,
    starts: Times,
    ends: Times,
) -> Iterator[tuple[Ints, Ints]]:
    """Rows of both sides that have one key and of which the second lies in the range of the first,
    in the order of the first, then by start; not too many at a time, and never a part of a row."""
    ours, theirs = codes
    order = np.lexsort((starts, theirs))
    order = order[np.searchsorted(theirs[order], 0) :]
    codes_in_order, starts_in_order = theirs[order], starts[order]
    low = _places(codes_in_order, starts_in_order, ours, since, "left")
    high = _places(codes_in_order, starts_in_order, ours, until, "right")
    counts = np.where(ours < 0, 0, np.maximum(high - low, 0))
    sums = np.cumsum(counts)
    begin = 0
    while begin < len(counts):
        done = 0 if begin == 0 else int(sums[begin - 1])
        end = max(begin + 1, int(np.searchsorted(sums, done + MOST_PAIRS, side="right")))
        mine = counts[begin:end]
        left = np.repeat(np.arange(begin, end), mine)
        places = np.arange(len(left)) - np.repeat(np.cumsum(mine) - mine, mine)
        right = order[np.repeat(low[begin:end], mine) + places]
        inside = ends[right] <= until[left]
        yield left[inside], right[inside]
        begin = end


def _places(codes: Ints, times: Times, wanted: Ints, at: Times, side: str) -> Ints:
    """Where times would stand among those of one code, in arrays that are sorted by both."""
    begins = np.searchsorted(codes, wanted, side="left")
    ends = np.searchsorted(codes, wanted, side="right")
    low, high = begins.astype(np.int64), ends.astype(np.int64)
    # a bisection for all at once: 64 steps at most
    while True:
        open_ = low < high
        if not open_.any():
            return low
        middle = (low + high) // 2
        seen = times[np.minimum(middle, max(len(times) - 1, 0))] if len(times) else at
        before = (seen < at) if side == "left" else (seen <= at)
        low = np.where(open_ & before, middle + 1, low)
        high = np.where(open_ & ~before, middle, high)


def latest(
    ours: Ints, theirs: Ints, starts: Times, ends: Times, ranks: Ints, count: int
) -> npt.NDArray[np.bool_]:
    """Which pairs are among the `count` latest of their first row: by end, start, then rank.

    >>> nothing = np.zeros(3, np.int64)
    >>> latest(
    ...     nothing,
    ...     np.array([0, 1, 2]),
    ...     np.array([1, 5, 3]),
    ...     np.array([2, 6, 6]),
    ...     np.array([0, 1, 2]),
    ...     2,
    ... )
    array([False,  True,  True])
    """
    order = np.lexsort((ranks[theirs], starts[theirs], ends[theirs], ours))
    groups = ours[order]
    last = np.searchsorted(groups, groups, side="right")
    kept = np.zeros(len(ours), np.bool_)
    kept[order[np.arange(len(order)) >= last - count]] = True
    return kept
