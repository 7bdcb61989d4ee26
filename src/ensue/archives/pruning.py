"""Prunes files and row groups by bucket, time, type and key; detects clustered archives."""

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
from ensue.vector import evaluation
from ensue.vector.arrow_types import kind_of_arrow, plain_type
from ensue.vector.key_groups import assign_key_groups

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
BoundsOf = Callable[[str], ColumnBounds | None]

_MAX_PAIRS = 20_000_000  # of a file and a piece that are compared one by one
_ORDERED = (
    ValueKind.INTEGER,
    ValueKind.FLOAT,
    ValueKind.STRING,
    ValueKind.TIMESTAMP,
    ValueKind.DATE,
    ValueKind.BOOLEAN,
)


def cast_keys(keys: pa.Array, type: pa.DataType) -> pa.Array:
    """Casts keys to the type of the archive's column; values that do not fit become NULL.

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
        return pa.array([_cast_value(value, own) for value in keys], own)


def _cast_value(value: pa.Scalar, own: pa.DataType) -> object:
    try:
        return value.cast(own).as_py()
    except (pa.ArrowInvalid, OverflowError, ValueError):
        return None


def convert_time_bounds(bounds: ColumnBounds, pieces: RowSelector) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Time bounds in the unit of the pieces; unknown bounds are open."""
    slack = bounds.slack if pieces.unit == "ns" else -(-bounds.slack // 1_000)
    converted = []
    for column, open_end, sign in ((bounds.least, pieces.lowest, -1), (bounds.greatest, pieces.highest, 1)):
        vector = evaluation.from_arrow(column, pieces.unit)
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
        converted.append(values)
    return converted[0], converted[1]


class FilePruner:
    """Prunes the files and row groups of a read."""

    def __init__(self, pieces: RowSelector, key: tuple[str, ...], buckets: int | None) -> None:
        field, keys = pieces.request.field, None
        self._parts: dict[int, _PiecesPruner] = {}  # by bucket, where the read has its key
        if field is not None:
            type = plain_type(pieces.shape.arrow.field(field).type)
            typed = cast_keys(pieces.keys, type)
            keys = typed if kind_of_arrow(type) in _ORDERED else None
        self._whole = _PiecesPruner(pieces, np.arange(len(pieces)), keys)
        self._by_bucket = False
        if buckets is not None and field is not None and key == (field,):
            self._by_bucket = True
            hashed = assign_key_groups(pa.table({field: typed}), key, buckets, pieces.shape.unit)
            for bucket in np.unique(hashed).tolist():
                own = np.flatnonzero(hashed == bucket)
                self._parts[bucket] = _PiecesPruner(pieces, own, keys)

    def files(self, files: FileList) -> Ints:
        """The numbers of the files that can contain an event of any piece."""
        numbers = np.arange(len(files))
        if not self._by_bucket or files.buckets is None:
            return self._whole.prune(numbers, files.bounds)
        pruned = [part.prune(numbers[files.buckets == bucket], files.bounds) for bucket, part in self._parts.items()]
        return np.sort(np.concatenate([np.empty(0, np.int64), *pruned]))

    def groups(self, files: FileList, number: int, count: int, bounds_of: BoundsOf) -> Ints:
        """The row groups of a file that can contain an event of any piece."""
        part = self._whole
        if self._by_bucket and files.buckets is not None:
            part = self._parts[int(files.buckets[number])]
        return part.prune(np.arange(count), bounds_of)


class _PiecesPruner:
    """Some of the pieces, sorted by the value of their key: those within bounds are a slice."""

    def __init__(self, pieces: RowSelector, own: Ints, keys: pa.Array | None) -> None:
        self.pieces, self._values = pieces, None
        if keys is not None:
            keys = keys if len(own) == len(pieces) else keys.take(pa.array(own))
            order = pc.sort_indices(keys).slice(0, len(keys) - keys.null_count)
            own = own[order.to_numpy()]
            self._values = _to_comparable(keys.take(order))
        self.since, self.until = pieces.since[own], pieces.until[own]

    def prune(self, numbers: Ints, bounds_of: BoundsOf) -> Ints:
        """The files or row groups among `numbers` that can contain an event of any piece."""
        if not len(self.since) or not len(numbers):
            return np.empty(0, np.int64)
        pieces, schema = self.pieces, self.pieces.shape.schema
        starts, ends = bounds_of(schema.start), bounds_of(schema.end)
        first = np.full(len(numbers), pieces.lowest)  # the first end of an event
        last = np.full(len(numbers), pieces.highest)  # the last start
        if ends is not None:
            first = convert_time_bounds(ends, pieces)[0][numbers]
        if starts is not None:
            last = convert_time_bounds(starts, pieces)[1][numbers]
        kept = (last >= self.since.min()) & (first <= self.until.max())
        if schema.type_column is not None:
            kept &= self._match_types(numbers, bounds_of(schema.type_column))
        numbers, first, last = numbers[kept], first[kept], last[kept]
        low, high = self._find_slices(numbers, bounds_of)
        kept = low < high
        numbers, first, last, low, high = (a[kept] for a in (numbers, first, last, low, high))
        if not len(numbers) or int((high - low).sum()) > _MAX_PAIRS:
            return numbers
        return numbers[self._overlap(first, last, low, high)]

    def _match_types(self, numbers: Ints, bounds: ColumnBounds | None) -> Bools:
        types = self.pieces.request.types
        if types is None or bounds is None or kind_of_arrow(bounds.least.type) is not ValueKind.STRING:
            return np.ones(len(numbers), np.bool_)
        low, high = _find_between(sorted(types), bounds, numbers, bounds.least.type)
        return low < high

    def _find_slices(self, numbers: Ints, bounds_of: BoundsOf) -> tuple[Ints, Ints]:
        """For each file the slice of the pieces whose keys are within its bounds."""
        low, high = np.zeros(len(numbers), np.int64), np.full(len(numbers), len(self.since))
        field = self.pieces.request.field
        if field is None or self._values is None:
            return low, high
        bounds = bounds_of(field)
        if bounds is None or kind_of_arrow(bounds.least.type) not in _ORDERED:
            return low, high
        own = plain_type(self.pieces.shape.arrow.field(field).type)
        if pa.types.is_timestamp(own) and bounds.slack:
            return low, high
        return _find_between(self._values, bounds, numbers, own)

    def _overlap(self, first: Any, last: Any, low: Ints, high: Ints) -> Bools:
        """Whether any piece of a file's slice overlaps it in time."""
        since, until = self.since, self.until
        if bool((since == since[0]).all()) and bool((until == until[0]).all()):
            return np.asarray((last >= since[0]) & (first <= until[0]))
        overlaps = np.zeros(len(first), np.bool_)
        for k in range(len(first)):
            part = slice(low[k], high[k])
            overlaps[k] = bool(((since[part] <= last[k]) & (until[part] >= first[k])).any())
        return overlaps


def _to_comparable(array: pa.Array) -> Any:
    """Values that can be compared: NumPy's for numbers and times, Python's for texts."""
    if pa.types.is_timestamp(array.type) or pa.types.is_date64(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    if array.null_count or kind_of_arrow(array.type) is ValueKind.STRING:
        return array.to_pylist()
    return array.to_numpy(zero_copy_only=False)


def _find_between(values: Any, bounds: ColumnBounds, numbers: Ints, type: pa.DataType) -> tuple[Ints, Ints]:
    """For each file the slice of the sorted values within its bounds, in a common type."""
    least, greatest = (
        _to_comparable(array.take(pa.array(numbers)).cast(type)) for array in (bounds.least, bounds.greatest)
    )
    arrays = (values, least, greatest)
    if all(isinstance(array, np.ndarray) and array.dtype.kind != "f" for array in arrays):
        low = np.searchsorted(values, least, "left")
        high = np.searchsorted(values, greatest, "right")
        return low.astype(np.int64), high.astype(np.int64)
    known = values.tolist() if isinstance(values, np.ndarray) else values
    lows = [0 if v is None or v != v else bisect_left(known, v) for v in least]
    highs = [len(known) if v is None or v != v else bisect_right(known, v) for v in greatest]
    return np.array(lows, np.int64), np.array(highs, np.int64)


_SAMPLE = 64  # keys that are looked up in the bounds
_SAMPLE_FILES = 4  # files whose row groups are examined
_MAX_SHARE = 0.25  # of the row groups that may contain a key
_MIN_GROUPS = 4  # with fewer, pruning gains nothing


def is_clustered(files: FileList, key: Sequence[str]) -> bool:
    """Whether statistics prune most files, or most row groups of a file, for one key."""
    if not key or not len(files):
        return False
    name = key[0]
    if name in files.partitions or _compute_share(files.bounds(name)) <= _MAX_SHARE:
        return True
    largest = np.argsort(files.sizes)[::-1][:_SAMPLE_FILES]
    footers = (read_footer(files.paths[k]) for k in largest.tolist())
    return any(_compute_share(footer.bounds(name)) <= _MAX_SHARE for footer in footers)


def _compute_share(bounds: ColumnBounds | None) -> float:
    """The average share of files or row groups that can contain a key; 1 if it is unknown."""
    if bounds is None or len(bounds.least) < _MIN_GROUPS or bounds.least.null_count:
        return 1.0
    step = max(1, len(bounds.least) // _SAMPLE)
    keys = bounds.least.take(pa.array(np.arange(0, len(bounds.least), step)))
    counts = [
        pc.sum(pc.and_(pc.less_equal(bounds.least, key), pc.greater_equal(bounds.greatest, key))).as_py()
        for key in keys
    ]
    return float(np.mean(counts)) / len(bounds.least)


def describe_scan_cost(layout: ArchiveLayout) -> str | None:
    """The extra cost of reads where an archive is not clustered; None if it is.

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
