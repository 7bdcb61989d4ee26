"""Which files, or groups of rows in a file, can hold events that were asked for."""

from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives.files import Bounds, Files
from ensue.archives.pieces import Pieces
from ensue.columns import evaluate as vectors
from ensue.columns.arrow_kinds import kind_of_arrow, plain_type
from ensue.columns.lane_hash import lanes_of
from ensue.errors import EventError
from ensue.schema import Kind

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_MOST_PAIRS = 20_000_000  # of a file and a piece that are compared one by one
_ORDERED = (Kind.INTEGER, Kind.FLOAT, Kind.STRING, Kind.TIMESTAMP, Kind.DATE, Kind.BOOLEAN)


def buckets_of(pieces: Pieces, key: tuple[str, ...], count: int) -> Ints | None:
    """The bucket of each piece; None if the archive is not hashed by what is asked for."""
    field = pieces.wanted.field
    if field is None or key != (field,):
        return None
    typed = cast_keys(pieces.keys, pieces.shape.arrow.field(field).type)
    return lanes_of(pa.table({field: typed}), key, count, pieces.shape.unit)


def cast_keys(keys: pa.Array, type: pa.DataType) -> pa.Array:
    """Keys as values of the archive's own type; NULL for those that it cannot hold.

    >>> cast_keys(pa.array([1.0, 1.5]), pa.int32()).to_pylist()
    [1, None]
    """
    own = plain_type(type)
    if keys.type == own:
        return keys
    if isinstance(keys, pa.DictionaryArray):
        keys = keys.dictionary_decode()
    try:
        return keys.cast(own)
    except pa.ArrowInvalid:  # some value does not fit
        found = [_cast(value, own) for value in keys]
        return pa.array(found, own)


def _cast(value: pa.Scalar, own: pa.DataType) -> object:
    try:
        return value.cast(own).as_py()
    except (pa.ArrowInvalid, OverflowError, ValueError):
        return None


def times_of(bounds: Bounds, pieces: Pieces) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Bounds of times in the unit of the pieces; where they are not known, everything."""
    slack = bounds.slack if pieces.unit == "ns" else -(-bounds.slack // 1_000)
    found = []
    for column, open_end, sign in (
        (bounds.least, pieces.lowest, -1),
        (bounds.greatest, pieces.highest, 1),
    ):
        vector = vectors.from_arrow(column, pieces.unit)
        try:
            values = np.asarray(vector.values).astype(np.float64 if pieces.floats else np.int64)
        except EventError:  # too far away for 64 bits
            values = np.full(len(column), open_end)
        if slack:
            values = values + sign * slack
        unknown = np.isnan(values) if pieces.floats else np.zeros(len(values), np.bool_)
        if vector.valid is not None:
            unknown = unknown | ~vector.valid
        values[unknown] = open_end
        found.append(values)
    return found[0], found[1]


class Picker:
    """What pieces say of files and of groups: computed once for a read."""

    def __init__(self, pieces: Pieces, key: tuple[str, ...], buckets: int | None) -> None:
        self.pieces = pieces
        self.buckets = None if buckets is None else buckets_of(pieces, key, buckets)
        self._sorted_keys()

    def _sorted_keys(self) -> None:
        """The pieces by the value of their key, so that those within bounds are a slice."""
        pieces, field = self.pieces, self.pieces.wanted.field
        self._values: Any = None
        if field is None:
            return
        type = plain_type(pieces.shape.arrow.field(field).type)
        if kind_of_arrow(type) not in _ORDERED:
            return
        typed = cast_keys(pieces.keys, type)
        places = pc.sort_indices(typed)
        places = places.slice(0, len(typed) - typed.null_count)
        self._by_value = np.asarray(places.to_numpy(), np.int64)
        self._values = _plain(typed.take(places))

    def files(self, files: Files) -> Ints:
        """The numbers of the files that can hold an event of any piece."""
        picked = self.picked(len(files), files.bounds)
        if self.buckets is not None and files.buckets is not None and len(picked):
            wanted = np.unique(self.buckets)
            own = files.buckets[picked]
            picked = picked[(own < 0) | np.isin(own, wanted)]
        return picked

    def picked(self, count: int, bounds_of: Any) -> Ints:
        """The numbers of those of `count` files or groups that can hold an event of any piece."""
        pieces = self.pieces
        if not len(pieces) or not count:
            return np.empty(0, np.int64)
        schema = pieces.shape.schema
        first, last = self._time_range(count, bounds_of(schema.start), bounds_of(schema.end))
        found = (last >= pieces.since.min()) & (first <= pieces.until.max())
        found &= self._types(bounds_of(schema.type_column) if schema.type_column else None, count)
        numbers = np.flatnonzero(found).astype(np.int64)
        low, high = self._slices(numbers, bounds_of)
        some = low < high
        numbers, low, high = numbers[some], low[some], high[some]
        if not len(numbers) or int((high - low).sum()) > _MOST_PAIRS:
            return numbers
        return numbers[self._meet(first[numbers], last[numbers], low, high)]

    def _time_range(
        self, count: int, starts: Bounds | None, ends: Bounds | None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The first end and the last start of events, as far as is known."""
        pieces = self.pieces
        if ends is None:
            first = np.full(count, pieces.lowest)
        else:
            first = times_of(ends, pieces)[0]
        if starts is None:
            return first, np.full(count, pieces.highest)
        return first, times_of(starts, pieces)[1]

    def _types(self, bounds: Bounds | None, count: int) -> Bools:
        types = self.pieces.wanted.types
        if types is None or bounds is None or kind_of_arrow(bounds.least.type) is not Kind.STRING:
            return np.ones(count, np.bool_)
        names = sorted(types)
        low, high = _between(names, _plain(bounds.least), _plain(bounds.greatest))
        return low < high

    def _slices(self, numbers: Ints, bounds_of: Any) -> tuple[Ints, Ints]:
        """For each file the slice of the pieces, by value, whose keys are within its bounds."""
        count, field = len(self.pieces), self.pieces.wanted.field
        low, high = np.zeros(len(numbers), np.int64), np.full(len(numbers), count)
        if field is None or self._values is None:
            return low, high
        bounds = bounds_of(field)
        high[:] = len(self._values)
        if bounds is None or kind_of_arrow(bounds.least.type) not in _ORDERED:
            return low, high
        places = pa.array(numbers)
        own = plain_type(self.pieces.shape.arrow.field(field).type)
        least, greatest = (
            b.take(places).cast(own) if b.type != own else b.take(places)
            for b in (bounds.least, bounds.greatest)
        )
        if pa.types.is_timestamp(own) and bounds.slack:
            return low, high  # an object is seldom known by a time
        return _between(self._values, _plain(least), _plain(greatest))

    def _meet(self, first: Any, last: Any, low: Ints, high: Ints) -> Bools:
        """Whether any piece of a file's slice meets it in time."""
        pieces = self.pieces
        since, until = pieces.since, pieces.until
        if self._values is not None:
            since, until = since[self._by_value], until[self._by_value]
        if bool((since == since[0]).all()) and bool((until == until[0]).all()):
            return np.asarray((last >= since[0]) & (first <= until[0]))
        found = np.zeros(len(first), np.bool_)
        for k in range(len(first)):
            part = slice(low[k], high[k])
            found[k] = bool(((since[part] <= last[k]) & (until[part] >= first[k])).any())
        return found


def _plain(array: pa.Array) -> Any:
    """Values that can be compared: NumPy's for numbers and times, Python's for texts."""
    kind = kind_of_arrow(array.type)
    if kind is Kind.STRING:
        return array.to_pylist()
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    elif pa.types.is_date64(array.type):
        array = array.cast(pa.int64())
    if array.null_count:
        return array.to_pylist()
    return array.to_numpy(zero_copy_only=False)


def _between(values: Any, least: Any, greatest: Any) -> tuple[Ints, Ints]:
    """For each pair of bounds the slice of the sorted values that lie between them."""
    arrays = (values, least, greatest)
    if all(isinstance(one, np.ndarray) and one.dtype.kind != "f" for one in arrays):
        low = np.searchsorted(values, least, "left")
        high = np.searchsorted(values, greatest, "right")
        return low.astype(np.int64), high.astype(np.int64)
    known = values.tolist() if isinstance(values, np.ndarray) else values
    lows = [0 if v is None or v != v else bisect_left(known, v) for v in least]
    highs = [len(known) if v is None or v != v else bisect_right(known, v) for v in greatest]
    return np.array(lows, np.int64), np.array(highs, np.int64)
