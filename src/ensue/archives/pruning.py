"""Selects the files and the rows that belong to the pieces of an `ArchiveRead`."""

from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives.archive import KEY, SINCE, UNTIL, ArchiveRead, ColumnBounds, FileList
from ensue.errors import EventError, did_you_mean
from ensue.schema import ValueKind
from ensue.vector import evaluation
from ensue.vector.arrow_types import Unit, kind_of_arrow, plain_type, time_unit
from ensue.vector.event_table import StreamSchema
from ensue.vector.key_codes import ColumnCodes
from ensue.vector.key_groups import assign_key_groups

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Times = npt.NDArray[Any]  # int64 in the unit of the comparison, or float64

_INSTANTS = (ValueKind.TIMESTAMP, ValueKind.DATE)
_ORDERED = (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.STRING, ValueKind.BOOLEAN, *_INSTANTS)


class RowSelector:
    """The pieces of an `ArchiveRead`, sorted by key and time.

    Pruning by partitions and statistics, and the filter of a scan, may keep too many rows; every
    reader applies `holds` at the end, so all readers agree.
    """

    def __init__(self, request: ArchiveRead, shape: StreamSchema) -> None:
        self.request, self.shape = request, shape
        table = request.pieces
        self.unit: Unit = "ns" if "ns" in (shape.unit, time_unit(table.schema)) else "us"
        self.floats = shape.schema.time_kind in (ValueKind.FLOAT, ValueKind.DECIMAL)
        limits = np.iinfo(np.int64)
        self.lowest: float = -np.inf if self.floats else limits.min
        self.highest: float = np.inf if self.floats else limits.max
        _check(request, shape)
        since, until = self._bounds(table, SINCE, low=True), self._bounds(table, UNTIL, low=False)
        self._codes = ColumnCodes()
        if request.field is None:
            codes = np.zeros(table.num_rows, np.int64)
        else:
            codes = self._codes.encode(table.column(KEY)).astype(np.int64)
        usable = (codes >= 0) & (since <= until)
        places = np.lexsort((since, codes))
        self.places = places[usable[places]]  # the rows of the table of pieces, in order
        self.codes, self.since, self.until = (a[self.places] for a in (codes, since, until))
        self._reach = compute_running_maximum(self.codes, self.until)

    def _bounds(self, table: pa.Table, name: str, *, low: bool) -> Times:
        column, schema = table.column(name), self.shape.schema
        if schema.time_kind in _INSTANTS and pa.types.is_null(column.type):
            column = column.cast(self.shape.arrow.field(schema.end).type)
        vector = evaluation.from_arrow(column, self.unit, name)
        values = np.asarray(vector.values).astype(np.float64 if self.floats else np.int64)
        if vector.valid is not None:
            values[~vector.valid] = self.lowest if low else self.highest
        return values

    def __len__(self) -> int:
        return len(self.places)

    def get_columns(self) -> list[str]:
        """The columns of the result."""
        return list(self.shape.arrow.names if self.request.columns is None else self.request.columns)

    @cached_property
    def keys(self) -> pa.Array:
        """The key of each piece, in order."""
        column = self.request.pieces.column(KEY).take(pa.array(self.places))
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def times(self, table: pa.Table) -> tuple[Times, Times, Bools]:
        """The start and end of each event, and whether both are known and in order."""
        schema = self.shape.schema
        times, valid = [], np.ones(table.num_rows, np.bool_)
        for name in dict.fromkeys((schema.start, schema.end)):
            vector = evaluation.from_arrow(table.column(name), self.unit, name)
            times.append(np.asarray(vector.values))
            if vector.valid is not None:
                valid &= vector.valid
        start, end = times[0], times[-1]
        return start, end, valid & (end >= start)  # false for NaN

    def holds(self, table: pa.Table) -> Bools:
        """Whether each row is a selected event."""
        start, end, holds = self.times(table)
        if not len(self):
            return np.zeros(table.num_rows, np.bool_)
        types, column = self.request.types, self.shape.schema.type_column
        if types is not None and column is not None:
            names = pa.array(sorted(types), pa.string())
            holds &= pc.is_in(table.column(column).cast(pa.string()), value_set=names).to_numpy()
        if self.request.field is None:
            last = np.searchsorted(self.since, start, "right") - 1
            return np.asarray(holds & (last >= 0) & (self._reach[last] >= end))
        codes = self._codes.encode(table.column(self.request.field)).astype(np.int64)
        codes = np.where(codes <= self.codes[-1], codes, -1)
        return np.asarray(holds & self._within(codes, start, end))

    def _within(self, codes: Ints, start: Times, end: Times) -> Bools:
        """Whether the last piece of the key that begins no later than the event contains it."""
        begins, ranks = np.unique(self.since, return_inverse=True)
        width = len(begins) + 1
        pieces = self.codes * width + ranks + 1
        events = codes * width + np.searchsorted(begins, start, "right")
        last = np.searchsorted(pieces, events, "right") - 1
        same = (codes >= 0) & (last >= 0) & (self.codes[last] == codes)
        return np.asarray(same & (self._reach[last] >= end))


def compute_running_maximum(codes: Ints, until: Times) -> Times:
    """The latest end of the pieces of a key up to each piece."""
    reach, step = until.copy(), 1
    if not bool(((codes[1:] == codes[:-1]) & (until[1:] < until[:-1])).any()):
        return reach  # the usual case: pieces of a key do not overlap
    while step < len(reach):  # doubling: each sees twice as far back as before
        same = codes[step:] == codes[:-step]
        reach[step:] = np.where(same, np.maximum(reach[step:], reach[:-step]), reach[step:])
        step *= 2
    return reach


def _check(request: ArchiveRead, shape: StreamSchema) -> None:
    names = shape.arrow.names
    for name in (*(request.columns or ()), *((request.field,) if request.field else ())):
        if name not in names:
            hint = did_you_mean(name, names)
            raise EventError(f"the archive has no column '{name}'\n  hint: {hint or 'no columns'}")
    if request.field is not None:
        own = kind_of_arrow(shape.arrow.field(request.field).type)
        other = kind_of_arrow(request.pieces.schema.field(KEY).type)
        comparable = own is other or ValueKind.NULL in (own, other)
        comparable |= own.numeric and other.numeric
        comparable |= own in _INSTANTS and other in _INSTANTS
        if not comparable:
            raise EventError(
                f"the archive's column '{request.field}' is {own.value}, and is compared with "
                f"{other.value}\n  hint: give both sides values of the same kind"
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


def find_files(pieces: RowSelector, key: tuple[str, ...], buckets: int | None, files: FileList) -> Ints:
    """The numbers of the files that can contain an event of any piece, by bucket, time, type and key."""
    numbers, field, keys = np.arange(len(files)), pieces.request.field, None
    if field is not None and len(pieces):
        type = plain_type(pieces.shape.arrow.field(field).type)
        typed = cast_keys(pieces.keys, type)
        keys = typed if kind_of_arrow(type) in _ORDERED else None
        if buckets is not None and key == (field,):
            hashed, found = assign_key_groups(pa.table({field: typed}), key, buckets, pieces.shape.unit), []
            for bucket in np.unique(hashed).tolist():
                own = numbers if files.buckets is None else numbers[files.buckets == bucket]
                found.append(_prune(pieces, np.flatnonzero(hashed == bucket), keys, own, files))
            return np.unique(np.concatenate(found))
    return _prune(pieces, np.arange(len(pieces)), keys, numbers, files)


def _prune(pieces: RowSelector, own: Ints, keys: pa.Array | None, numbers: Ints, files: FileList) -> Ints:
    """The files among `numbers` that can contain an event of the pieces `own`."""
    schema, types = pieces.shape.schema, pieces.request.types
    if keys is not None:
        keys = keys.take(pa.array(own))
        own, keys = own[keys.is_valid().to_numpy(zero_copy_only=False)], keys.drop_null()
    if not len(own) or not len(numbers):
        return np.empty(0, np.int64)
    starts, ends = files.bounds(schema.start), files.bounds(schema.end)
    kept = np.ones(len(numbers), np.bool_)
    if ends is not None:
        kept &= convert_time_bounds(ends, pieces)[0][numbers] <= pieces.until[own].max()
    if starts is not None:
        kept &= convert_time_bounds(starts, pieces)[1][numbers] >= pieces.since[own].min()
    numbers = numbers[kept]
    if types is not None and schema.type_column is not None:
        bounds = files.bounds(schema.type_column)
        if bounds is not None and kind_of_arrow(bounds.least.type) is ValueKind.STRING:
            numbers = numbers[_reach_bounds(sorted(types), bounds, numbers, bounds.least.type)]
    if keys is not None:
        bounds, type = files.bounds(pieces.request.field or ""), keys.type
        coarse = bounds is not None and bounds.slack and pa.types.is_timestamp(type)
        if bounds is not None and not coarse and kind_of_arrow(bounds.least.type) in _ORDERED:
            values = _to_comparable(keys.take(pc.sort_indices(keys)))
            numbers = numbers[_reach_bounds(values, bounds, numbers, type)]
    return numbers


def _to_comparable(array: pa.Array) -> Any:
    """Values that can be compared: NumPy's for numbers and times, Python's for texts."""
    if pa.types.is_timestamp(array.type) or pa.types.is_date64(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_date32(array.type):
        array = array.cast(pa.int32())
    if array.null_count or kind_of_arrow(array.type) is ValueKind.STRING:
        return array.to_pylist()
    return array.to_numpy(zero_copy_only=False)


def _reach_bounds(values: Any, bounds: ColumnBounds, numbers: Ints, type: pa.DataType) -> Bools:
    """Whether one of the sorted values is within the bounds of each file, in a common type."""
    least, greatest = (
        _to_comparable(array.take(pa.array(numbers)).cast(type)) for array in (bounds.least, bounds.greatest)
    )
    if all(isinstance(array, np.ndarray) and array.dtype.kind != "f" for array in (values, least, greatest)):
        reached = np.searchsorted(values, least, "left") < np.searchsorted(values, greatest, "right")
        return np.asarray(reached, np.bool_)
    known = values.tolist() if isinstance(values, np.ndarray) else values
    lows = [0 if v is None or v != v else bisect_left(known, v) for v in least]
    highs = [len(known) if v is None or v != v else bisect_right(known, v) for v in greatest]
    return np.array(lows, np.int64) < np.array(highs, np.int64)
