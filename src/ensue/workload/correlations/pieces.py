"""The stretches of an archive that live matches ask for, by object."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.archives.contract import KEY, SINCE, UNTIL
from ensue.columns.arrow_kinds import Unit, kind_of_arrow, plain_type
from ensue.columns.buffers import Ints, single
from ensue.columns.keys import ColumnCodes
from ensue.schema import Kind

Times = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What some live matches ask for: a stretch of time each, of the object with a key."""

    keys: pa.Array | None  # None: they ask for the events of all objects
    since: Times
    until: Times

    def __len__(self) -> int:
        return len(self.since)

    def at(self, places: Ints) -> "Asked":
        keys = None if self.keys is None else self.keys.take(pa.array(places))
        return Asked(keys, self.since[places], self.until[places])

    def and_(self, other: "Asked") -> "Asked":
        """What both ask for."""
        keys = None
        if self.keys is not None and other.keys is not None:
            keys = pa.concat_arrays([self.keys, other.keys.cast(self.keys.type)])
        return Asked(
            keys,
            np.concatenate([self.since, other.since]),
            np.concatenate([self.until, other.until]),
        )

    def wider(self, before: float, behind: float) -> "Asked":
        """The same with more on both sides; `math.inf` is as far as there are events."""
        if self.since.dtype.kind == "f":
            return Asked(self.keys, self.since - before, self.until + behind)
        bounds = np.iinfo(np.int64)
        since = np.full_like(self.since, bounds.min)
        if before != math.inf:
            since = np.maximum(self.since, bounds.min + int(before)) - int(before)
        until = np.full_like(self.until, bounds.max)
        if behind != math.inf:
            until = np.minimum(self.until, bounds.max - int(behind)) + int(behind)
        return Asked(self.keys, since, until)

    def merged(self) -> "Asked":
        """Each moment of each object once; who equals nothing, or asks for no time, is left out.

        >>> one = Asked(pa.array(["x", "y", "x"]), np.array([5, 1, 1]), np.array([9, 2, 6]))
        >>> merged = one.merged()
        >>> merged.keys.to_pylist(), merged.since, merged.until
        (['x', 'y'], array([1, 1]), array([9, 2]))
        """
        codes = np.zeros(len(self), np.int64)
        if self.keys is not None:
            codes = ColumnCodes().encode(self.keys).astype(np.int64)
        kept = np.flatnonzero((codes >= 0) & (self.since <= self.until))
        order = kept[np.lexsort((self.since[kept], codes[kept]))]
        if not len(order):
            return self.at(order)
        codes, since, until = codes[order], self.since[order], self.until[order]
        first = np.ones(len(order), np.bool_)  # of its object
        first[1:] = codes[1:] != codes[:-1]
        reached = _running_max(until, first)
        begins = first.copy()
        begins[1:] |= since[1:] > reached[:-1]
        starts = np.flatnonzero(begins)
        ends = np.append(starts[1:], len(order)) - 1
        keys = None if self.keys is None else self.keys.take(pa.array(order[starts]))
        return Asked(keys, since[starts], reached[ends])

    def table(self, time: pa.DataType, unit: Unit) -> pa.Table:
        """As an archive takes it, whose time column is of a type."""
        columns = {} if self.keys is None else {KEY: self.keys}
        columns |= {SINCE: as_times(self.since, time, unit, up=True)}
        columns |= {UNTIL: as_times(self.until, time, unit, up=False)}
        return pa.table(columns)


def _running_max(values: Times, first: npt.NDArray[np.bool_]) -> Times:
    """The largest so far, from each `first` on."""
    found = values.copy()
    step = 1
    group = np.cumsum(first)
    while step < len(values):  # doubling: each sees twice as far back as before
        same = group[step:] == group[:-step]
        found[step:] = np.where(same, np.maximum(found[step:], found[:-step]), found[step:])
        step *= 2
    return found


_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def as_times(values: Times, type_: pa.DataType, unit: Unit, *, up: bool) -> pa.Array:
    """Bounds as values of a time column, rounded to the side on which nothing is lost.

    What is out of its reach is open (NULL).

    >>> as_times(np.array([1_500]), pa.timestamp("ms"), "us", up=True).cast(pa.int64()).to_pylist()
    [2]
    """
    type_ = plain_type(type_)
    match kind_of_arrow(type_):
        case Kind.TIMESTAMP:
            return _ticks(values, type_, _PER_SECOND[unit], _PER_SECOND[type_.unit], up=up)
        case Kind.DATE:
            per_day = 86_400 * _PER_SECOND[unit]
            days = -(-values // per_day) if up else values // per_day
            kept = np.clip(days, -(2**31) + 1, 2**31 - 1).astype(np.int32)
            return pa.array(kept, pa.date32()).cast(type_)
        case Kind.INTEGER:
            whole = np.ceil(values) if up else np.floor(values)
            if values.dtype.kind != "f":
                whole = values
            limits = np.iinfo(type_.to_pandas_dtype())
            outside = (whole < limits.min) | (whole > limits.max)
            low, high = int(limits.min), int(limits.max)
            return pa.array(np.clip(whole, low, high).astype(type_.to_pandas_dtype()), type_,
                            mask=outside)  # fmt: skip
        case _:
            return pa.array(values.astype(np.float64)).cast(type_)


def _ticks(values: Times, type_: pa.DataType, per: int, wanted: int, *, up: bool) -> pa.Array:
    if wanted <= per:
        size = per // wanted
        return pa.array(-(-values // size) if up else values // size, pa.int64()).cast(type_)
    size = wanted // per
    bounds = np.iinfo(np.int64)
    outside = (values > bounds.max // size) | (values < -(bounds.max // size))
    return pa.array(np.where(outside, 0, values) * size, pa.int64(), mask=outside).cast(type_)


def single_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece, of plain values."""
    array = single(column)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
