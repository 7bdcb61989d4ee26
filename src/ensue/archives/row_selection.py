"""Which rows of a table belong to the pieces that were asked for."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives.archive import KEY, SINCE, UNTIL, ArchiveRead
from ensue.errors import EventError, did_you_mean
from ensue.schema import ValueKind
from ensue.vector import evaluation as vectors
from ensue.vector.arrow_types import Unit, kind_of_arrow, time_unit
from ensue.vector.event_table import StreamSchema
from ensue.vector.key_codes import ColumnCodes

Bools = npt.NDArray[np.bool_]
Times = npt.NDArray[Any]  # int64 in the unit of the comparison, or float64

_INSTANTS = (ValueKind.TIMESTAMP, ValueKind.DATE)


class RowSelector:
    """The pieces of a `Wanted`, sorted by key and time, as the judge of rows.

    Whatever narrows a read beforehand (partitions, statistics, another engine's filter) may give
    too much; what is given to a caller has passed `holds`. So all ways of reading agree.
    """

    def __init__(self, wanted: ArchiveRead, shape: StreamSchema) -> None:
        self.wanted, self.shape = wanted, shape
        self.unit = self._unit(wanted, shape)
        table = wanted.pieces
        _check(wanted, shape)
        since, until = self._bounds(table, SINCE, low=True), self._bounds(table, UNTIL, low=False)
        self._codes = ColumnCodes()
        if wanted.field is None:
            codes = np.zeros(table.num_rows, np.int64)
        else:
            codes = self._codes.encode(table.column(KEY)).astype(np.int64)
        usable = (codes >= 0) & (since <= until)
        places = np.lexsort((since, codes))
        self.places = places[usable[places]]  # the rows of the table of pieces, in order
        self.codes, self.since, self.until = (a[self.places] for a in (codes, since, until))
        self._reach = _running_maximum(self.codes, self.until)

    @staticmethod
    def _unit(wanted: ArchiveRead, shape: StreamSchema) -> Unit:
        return "ns" if "ns" in (shape.unit, time_unit(wanted.pieces.schema)) else "us"

    def _bounds(self, table: pa.Table, name: str, *, low: bool) -> Times:
        column = table.column(name)
        if self.shape.schema.time_kind in _INSTANTS and pa.types.is_null(column.type):
            column = column.cast(self.time_type)
        vector = vectors.from_arrow(column, self.unit, name)
        values = np.asarray(vector.values).copy()
        values = values.astype(np.float64 if self.floats else np.int64)
        if vector.valid is not None:
            values[~vector.valid] = self.lowest if low else self.highest
        return values

    @property
    def time_type(self) -> pa.DataType:
        return self.shape.arrow.field(self.shape.schema.end).type

    @property
    def floats(self) -> bool:
        return self.shape.schema.time_kind in (ValueKind.FLOAT, ValueKind.DECIMAL)

    @property
    def lowest(self) -> Any:
        return -np.inf if self.floats else np.iinfo(np.int64).min

    @property
    def highest(self) -> Any:
        return np.inf if self.floats else np.iinfo(np.int64).max

    def __len__(self) -> int:
        return len(self.places)

    @cached_property
    def keys(self) -> pa.Array:
        """The key of each piece, in order."""
        column = self.wanted.pieces.column(KEY).take(pa.array(self.places))
        return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column

    def times(self, table: pa.Table) -> tuple[Times, Times, Bools]:
        """When each event starts and ends, and whether both are known and in order."""
        schema = self.shape.schema
        found, valid = [], np.ones(table.num_rows, np.bool_)
        for name in dict.fromkeys((schema.start, schema.end)):
            vector = vectors.from_arrow(table.column(name), self.unit, name)
            found.append(np.asarray(vector.values))
            if vector.valid is not None:
                valid &= vector.valid
        start, end = found[0], found[-1]
        return start, end, valid & (end >= start)  # NaN is in no order

    def holds(self, table: pa.Table) -> Bools:
        """Whether each row is an event that was asked for."""
        start, end, found = self.times(table)
        if not len(self):
            return np.zeros(table.num_rows, np.bool_)
        types, column = self.wanted.types, self.shape.schema.type_column
        if types is not None and column is not None:
            found &= _is_in(table.column(column), sorted(types))
        if self.wanted.field is None:
            last = np.searchsorted(self.since, start, "right") - 1
            return np.asarray(found & (last >= 0) & (self._reach[last] >= end))
        codes = self._codes_of(table.column(self.wanted.field))
        return np.asarray(found & self._within(codes, start, end))

    def _codes_of(self, column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        known = int(self.codes[-1]) + 1
        codes = self._codes.encode(column).astype(np.int64)
        return np.where(codes < known, codes, -1)

    def _within(self, codes: npt.NDArray[np.int64], start: Times, end: Times) -> Bools:
        """By key and time: the last piece of the key that begins no later than the event."""
        begins, ranks = np.unique(self.since, return_inverse=True)
        width = len(begins) + 1
        pieces = self.codes * width + ranks + 1
        asked = codes * width + np.searchsorted(begins, start, "right")
        last = np.searchsorted(pieces, asked, "right") - 1
        same = (codes >= 0) & (last >= 0) & (self.codes[last] == codes)
        return np.asarray(same & (self._reach[last] >= end))


def _is_in(column: pa.ChunkedArray, names: list[str]) -> Bools:
    texts = column.cast(pa.string())
    found = pc.is_in(texts, value_set=pa.array(names, pa.string()))
    return np.asarray(found.to_numpy(), np.bool_)


def _running_maximum(codes: npt.NDArray[np.int64], until: Times) -> Times:
    """How far the pieces of a key reach that begin no later than this one."""
    reach = until.copy()
    same = codes[1:] == codes[:-1]
    if not bool((same & (until[1:] < until[:-1])).any()):
        return reach  # the rule: pieces of a key lie one behind the other
    for k in range(1, len(reach)):
        if same[k - 1]:
            reach[k] = max(reach[k], reach[k - 1])
    return reach


def _check(wanted: ArchiveRead, shape: StreamSchema) -> None:
    names = shape.arrow.names
    for name in (*(wanted.columns or ()), *((wanted.field,) if wanted.field else ())):
        if name not in names:
            hint = did_you_mean(name, names)
            raise EventError(f"the archive has no column '{name}'\n  hint: {hint or 'no columns'}")
    if wanted.field is not None:
        own = kind_of_arrow(shape.arrow.field(wanted.field).type)
        theirs = kind_of_arrow(wanted.pieces.schema.field(KEY).type)
        if not _alike(own, theirs):
            raise EventError(
                f"the archive's column '{wanted.field}' is {own.value}, and is compared with "
                f"{theirs.value}\n  hint: give both sides values of the same kind"
            )


def _alike(one: ValueKind, other: ValueKind) -> bool:
    if ValueKind.NULL in (one, other) or (one.numeric and other.numeric):
        return True
    return one is other or (one in _INSTANTS and other in _INSTANTS)


@dataclass(frozen=True, slots=True)
class ReadColumns:
    """The columns that a read decodes: those that were asked for, and those that judge rows."""

    given: tuple[str, ...]
    decoded: tuple[str, ...]


def get_read_columns(
    wanted: ArchiveRead, shape: StreamSchema, hidden: tuple[str, ...] = ()
) -> ReadColumns:
    """What has to be decoded for a read."""
    schema = shape.schema
    given = tuple(shape.arrow.names if wanted.columns is None else wanted.columns)
    judged = [schema.start, schema.end, *schema.order, *hidden]
    if wanted.field is not None:
        judged.append(wanted.field)
    if wanted.types is not None and schema.type_column is not None:
        judged.append(schema.type_column)
    return ReadColumns(given, tuple(dict.fromkeys((*given, *judged))))
