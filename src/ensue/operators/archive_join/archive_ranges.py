"""The time ranges of an archive that live matches request, by key."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.archives.archive import KEY, SINCE, UNTIL
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import Ints
from ensue.vector.arrow_types import Unit, kind_of_arrow, plain_type
from ensue.vector.key_codes import ColumnCodes

Times = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class ArchiveRanges:
    """The requested ranges of live matches: a key and a time range each."""

    keys: pa.Array | None  # None: the events of all keys
    since: Times
    until: Times

    def __len__(self) -> int:
        return len(self.since)

    def at(self, places: Ints) -> "ArchiveRanges":
        keys = None if self.keys is None else self.keys.take(pa.array(places))
        return ArchiveRanges(keys, self.since[places], self.until[places])

    def and_(self, other: "ArchiveRanges") -> "ArchiveRanges":
        keys = None
        if self.keys is not None and other.keys is not None:
            keys = pa.concat_arrays([self.keys, other.keys.cast(self.keys.type)])
        since = np.concatenate([self.since, other.since])
        return ArchiveRanges(keys, since, np.concatenate([self.until, other.until]))

    def wider(self, before: float, behind: float) -> "ArchiveRanges":
        """Widens the ranges on both sides; `math.inf` leaves a side open."""
        if self.since.dtype.kind == "f":
            return ArchiveRanges(self.keys, self.since - before, self.until + behind)
        bounds = np.iinfo(np.int64)
        since = np.full_like(self.since, bounds.min)
        if before != math.inf:
            since = np.maximum(self.since, bounds.min + int(before)) - int(before)
        until = np.full_like(self.until, bounds.max)
        if behind != math.inf:
            until = np.minimum(self.until, bounds.max - int(behind)) + int(behind)
        return ArchiveRanges(self.keys, since, until)

    def merge(self) -> "ArchiveRanges":
        """Merges overlapping ranges of each key; NULL keys and empty ranges are dropped.

        >>> ranges = ArchiveRanges(pa.array(["x", "y", "x"]), np.array([5, 1, 1]), np.array([9, 2, 6]))
        >>> merged = ranges.merge()
        >>> merged.keys.to_pylist(), merged.since, merged.until
        (['x', 'y'], array([1, 1]), array([9, 2]))
        """
        codes = np.zeros(len(self), np.int64)
        if self.keys is not None:
            codes = ColumnCodes().encode(self.keys).astype(np.int64)
        valid = np.flatnonzero((codes >= 0) & (self.since <= self.until))
        order = valid[np.lexsort((self.since[valid], codes[valid]))]
        if not len(order):
            return self.at(order)
        codes, since, until = codes[order], self.since[order], self.until[order]
        first = np.ones(len(order), np.bool_)  # of its key
        first[1:] = codes[1:] != codes[:-1]
        reached = _running_max(until, first)
        begins = first.copy()
        begins[1:] |= since[1:] > reached[:-1]
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(order)) - 1
        keys = None if self.keys is None else self.keys.take(pa.array(order[starts]))
        return ArchiveRanges(keys, since[starts], reached[ends])

    def table(self, time: pa.DataType, unit: Unit) -> pa.Table:
        """Converts the ranges to a table for an archive with this type of time column."""
        columns = {} if self.keys is None else {KEY: self.keys}
        columns |= {SINCE: convert_bounds(self.since, time, unit, up=True)}
        columns |= {UNTIL: convert_bounds(self.until, time, unit, up=False)}
        return pa.table(columns)


def _running_max(values: Times, first: npt.NDArray[np.bool_]) -> Times:
    """Returns the running maximum, restarting at each `first`."""
    result = values.copy()
    step = 1
    group = np.cumsum(first)
    while step < len(values):  # doubling: each sees twice as far back as before
        same = group[step:] == group[:-step]
        result[step:] = np.where(same, np.maximum(result[step:], result[:-step]), result[step:])
        step *= 2
    return result


_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def convert_bounds(values: Times, type_: pa.DataType, unit: Unit, *, up: bool) -> pa.Array:
    """Converts bounds to values of a time column, rounded so that no event is lost.

    Values outside the type's range become NULL, an open bound.

    >>> convert_bounds(np.array([1_500]), pa.timestamp("ms"), "us", up=True).cast(pa.int64()).to_pylist()
    [2]
    """
    type_ = plain_type(type_)
    match kind_of_arrow(type_):
        case ValueKind.TIMESTAMP:
            return _ticks(values, type_, _PER_SECOND[unit], _PER_SECOND[type_.unit], up=up)
        case ValueKind.DATE:
            per_day = 86_400 * _PER_SECOND[unit]
            days = -(-values // per_day) if up else values // per_day
            clipped = np.clip(days, -(2**31) + 1, 2**31 - 1).astype(np.int32)
            return pa.array(clipped, pa.date32()).cast(type_)
        case ValueKind.INTEGER:
            rounded = np.ceil(values) if up else np.floor(values)
            if values.dtype.kind != "f":
                rounded = values
            limits = np.iinfo(type_.to_pandas_dtype())
            outside = (rounded < limits.min) | (rounded > limits.max)
            low, high = int(limits.min), int(limits.max)
            return pa.array(np.clip(rounded, low, high).astype(type_.to_pandas_dtype()), type_,
                            mask=outside)  # fmt: skip
        case _:
            return pa.array(values.astype(np.float64)).cast(type_)


def _ticks(values: Times, type_: pa.DataType, per_second: int, target_per_second: int, *, up: bool) -> pa.Array:
    if target_per_second <= per_second:
        size = per_second // target_per_second
        return pa.array(-(-values // size) if up else values // size, pa.int64()).cast(type_)
    size = target_per_second // per_second
    bounds = np.iinfo(np.int64)
    outside = (values > bounds.max // size) | (values < -(bounds.max // size))
    return pa.array(np.where(outside, 0, values) * size, pa.int64(), mask=outside).cast(type_)
