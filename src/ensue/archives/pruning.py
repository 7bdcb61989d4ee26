"""Which files, or groups of rows in a file, can hold events that were asked for."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives.archive import ArchiveLayout, ColumnBounds, FileList
from ensue.archives.parquet_metadata import read_footer
from ensue.archives.row_selection import RowSelector
from ensue.errors import EventError
from ensue.schema import ValueKind
from ensue.vector import evaluation as vectors
from ensue.vector.arrow_types import kind_of_arrow, plain_type
from ensue.vector.key_groups import assign_key_groups

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
BoundsOf = Callable[[str], ColumnBounds | None]

_MOST_PAIRS = 20_000_000  # of a file and a piece that are compared one by one
_ORDERED = (
    ValueKind.INTEGER,
    ValueKind.FLOAT,
    ValueKind.STRING,
    ValueKind.TIMESTAMP,
    ValueKind.DATE,
    ValueKind.BOOLEAN,
)


def compute_buckets(pieces: RowSelector, key: tuple[str, ...], count: int) -> Ints | None:
    """The bucket of each piece; None if the archive is not hashed by what is asked for."""
    field = pieces.wanted.field
    if field is None or key != (field,):
        return None
    typed = cast_keys(pieces.keys, pieces.shape.arrow.field(field).type)
    return assign_key_groups(pa.table({field: typed}), key, count, pieces.shape.unit)


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


def convert_time_bounds(
    bounds: ColumnBounds, pieces: RowSelector
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
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


class FilePruner:
    """Picks files and groups of rows for the pieces of a read."""

    def __init__(self, pieces: RowSelector, key: tuple[str, ...], buckets: int | None) -> None:
        self.pieces = pieces
        self._keys = _typed_keys(pieces)
        self._buckets = None if buckets is None else compute_buckets(pieces, key, buckets)
        every = np.arange(len(pieces))
        self._whole = _Part(pieces, every, self._keys)
        self._parts: dict[int, _Part] = {}
        for bucket in () if self._buckets is None else np.unique(self._buckets).tolist():
            own = np.flatnonzero(self._buckets == bucket)
            self._parts[bucket] = _Part(pieces, own, self._keys)

    def files(self, files: FileList) -> Ints:
        """The numbers of the files that can hold an event of any piece."""
        every = np.arange(len(files))
        if self._buckets is None or files.buckets is None:
            return self._whole.picked(every, files.bounds)
        found = [
            part.picked(every[files.buckets == bucket], files.bounds)
            for bucket, part in self._parts.items()
        ]
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)

    def groups(self, files: FileList, number: int, count: int, bounds_of: BoundsOf) -> Ints:
        """The groups of rows of a file that can hold an event of any piece."""
        part = self._whole
        if self._buckets is not None and files.buckets is not None:
            part = self._parts[int(files.buckets[number])]
        return part.picked(np.arange(count), bounds_of)


def _typed_keys(pieces: RowSelector) -> pa.Array | None:
    """The keys as values of the archive's column; None if they have no order."""
    field = pieces.wanted.field
    if field is None:
        return None
    type = plain_type(pieces.shape.arrow.field(field).type)
    return cast_keys(pieces.keys, type) if kind_of_arrow(type) in _ORDERED else None


class _Part:
    """Some of the pieces, sorted by the value of their key: those within bounds are a slice."""

    def __init__(self, pieces: RowSelector, own: Ints, keys: pa.Array | None) -> None:
        self.pieces, self._values = pieces, None
        if keys is not None:
            mine = keys if len(own) == len(pieces) else keys.take(pa.array(own))
            places = pc.sort_indices(mine)
            places = places.slice(0, len(mine) - mine.null_count)
            own = own[places.to_numpy()]
            self._values = _plain(mine.take(places))
        self.since, self.until = pieces.since[own], pieces.until[own]

    def picked(self, numbers: Ints, bounds_of: BoundsOf) -> Ints:
        """Those of the numbered files or groups that can hold an event of any piece."""
        if not len(self.since) or not len(numbers):
            return np.empty(0, np.int64)
        schema = self.pieces.shape.schema
        first, last = self._time_range(numbers, bounds_of(schema.start), bounds_of(schema.end))
        found = (last >= self.since.min()) & (first <= self.until.max())
        if schema.type_column is not None:
            found &= self._types(numbers, bounds_of(schema.type_column))
        numbers, first, last = numbers[found], first[found], last[found]
        low, high = self._slices(numbers, bounds_of)
        some = low < high
        numbers, first, last, low, high = (a[some] for a in (numbers, first, last, low, high))
        if not len(numbers) or int((high - low).sum()) > _MOST_PAIRS:
            return numbers
        return numbers[self._meet(first, last, low, high)]

    def _time_range(
        self, numbers: Ints, starts: ColumnBounds | None, ends: ColumnBounds | None
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The first end and the last start of events, as far as is known."""
        pieces = self.pieces
        if ends is None:
            first = np.full(len(numbers), pieces.lowest)
        else:
            first = convert_time_bounds(ends, pieces)[0][numbers]
        if starts is None:
            return first, np.full(len(numbers), pieces.highest)
        return first, convert_time_bounds(starts, pieces)[1][numbers]

    def _types(self, numbers: Ints, bounds: ColumnBounds | None) -> Bools:
        types = self.pieces.wanted.types
        if (
            types is None
            or bounds is None
            or kind_of_arrow(bounds.least.type) is not ValueKind.STRING
        ):
            return np.ones(len(numbers), np.bool_)
        places = pa.array(numbers)
        least, greatest = bounds.least.take(places), bounds.greatest.take(places)
        low, high = _between(sorted(types), _plain(least), _plain(greatest))
        return low < high

    def _slices(self, numbers: Ints, bounds_of: BoundsOf) -> tuple[Ints, Ints]:
        """For each file the slice of the pieces whose keys are within its bounds."""
        low, high = np.zeros(len(numbers), np.int64), np.full(len(numbers), len(self.since))
        field = self.pieces.wanted.field
        if field is None or self._values is None:
            return low, high
        bounds = bounds_of(field)
        if bounds is None or kind_of_arrow(bounds.least.type) not in _ORDERED:
            return low, high
        own = plain_type(self.pieces.shape.arrow.field(field).type)
        if pa.types.is_timestamp(own) and bounds.slack:
            return low, high  # an object is seldom known by a time
        places = pa.array(numbers)
        least, greatest = (b.take(places).cast(own) for b in (bounds.least, bounds.greatest))
        return _between(self._values, _plain(least), _plain(greatest))

    def _meet(self, first: Any, last: Any, low: Ints, high: Ints) -> Bools:
        """Whether any piece of a file's slice meets it in time."""
        since, until = self.since, self.until
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
    if kind is ValueKind.STRING:
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


# ----------------------------------------------------------------------
# Whether the events of one object lie together, so that a read need not decode all the others.

_SAMPLE = 64  # keys that are looked up in the bounds
_LOOKED_INTO = 4  # files whose groups are looked at
_SHARE = 0.25  # of the groups may hold a key at most
_FEWEST = 4  # groups; where there are fewer, nothing is gained by picking


def is_clustered(files: FileList, key: Sequence[str]) -> bool:
    """Whether statistics leave out most files, or most groups in a file, for an object."""
    if not key or not len(files):
        return False
    name = key[0]
    if name in files.partitions:
        return True
    if _share(files.bounds(name)) <= _SHARE:
        return True
    largest = np.argsort(files.sizes)[::-1][:_LOOKED_INTO]
    return any(
        _share(read_footer(files.paths[k]).bounds(name)) <= _SHARE for k in largest.tolist()
    )


def _share(bounds: ColumnBounds | None) -> float:
    """The part of the files or groups that can hold a key, on average; 1 if nothing is known."""
    if bounds is None or len(bounds.least) < _FEWEST or bounds.least.null_count:
        return 1.0
    step = max(1, len(bounds.least) // _SAMPLE)
    keys = bounds.least.take(pa.array(np.arange(0, len(bounds.least), step)))
    held = [
        pc.sum(
            pc.and_(pc.less_equal(bounds.least, key), pc.greater_equal(bounds.greatest, key))
        ).as_py()
        for key in keys
    ]
    return float(np.mean(held)) / len(bounds.least)


def describe_scan_cost(layout: ArchiveLayout) -> str | None:
    """What a read costs more where an archive is not clustered; None if it is.

    >>> from dataclasses import replace
    >>> plain = ArchiveLayout("parquet", "trades/", None, 20_000_000, 30, None, None, None)
    >>> print(describe_scan_cost(plain))
    trades/: the events of an object are not stored together, so a read by object decodes all
    20,000,000 events of 30 files whose time fits: about 10 to 30 times the cost over a month
      hint: ensue archive create and append write a table that is clustered by object
    >>> describe_scan_cost(replace(plain, clustered=True)) is None
    True
    """
    if layout.clustered:
        return None
    rows = "all" if layout.rows is None else f"all {layout.rows:,}"
    files = f"{layout.files:,} {'file' if layout.files == 1 else 'files'}"
    return (
        f"{layout.place}: the events of an object are not stored together, so a read by object "
        f"decodes {rows} events of {files} whose time fits: about 10 to 30 times the cost over a "
        "month\n  hint: ensue archive create and append write a table that is clustered by object"
    )
