"""Selects the rows of a table that belong to the pieces of an `ArchiveRead`."""

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
from ensue.vector import evaluation
from ensue.vector.arrow_types import Unit, kind_of_arrow, time_unit
from ensue.vector.event_table import StreamSchema
from ensue.vector.key_codes import ColumnCodes

Bools = npt.NDArray[np.bool_]
Times = npt.NDArray[Any]  # int64 in the unit of the comparison, or float64

_INSTANTS = (ValueKind.TIMESTAMP, ValueKind.DATE)


class RowSelector:
    """The pieces of an `ArchiveRead`, sorted by key and time.

    Pruning by partitions, statistics or another engine's filter may keep too many rows; every
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
        self._reach = _compute_running_maximum(self.codes, self.until)

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

    def _within(self, codes: npt.NDArray[np.int64], start: Times, end: Times) -> Bools:
        """Whether the last piece of the key that begins no later than the event contains it."""
        begins, ranks = np.unique(self.since, return_inverse=True)
        width = len(begins) + 1
        pieces = self.codes * width + ranks + 1
        events = codes * width + np.searchsorted(begins, start, "right")
        last = np.searchsorted(pieces, events, "right") - 1
        same = (codes >= 0) & (last >= 0) & (self.codes[last] == codes)
        return np.asarray(same & (self._reach[last] >= end))


def _compute_running_maximum(codes: npt.NDArray[np.int64], until: Times) -> Times:
    """The latest end of the pieces of a key up to each piece."""
    reach = until.copy()
    same = codes[1:] == codes[:-1]
    if not bool((same & (until[1:] < until[:-1])).any()):
        return reach  # the usual case: pieces of a key do not overlap
    for k in range(1, len(reach)):
        if same[k - 1]:
            reach[k] = max(reach[k], reach[k - 1])
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


@dataclass(frozen=True, slots=True)
class ReadColumns:
    """The columns that a read returns, and those that it decodes to select rows."""

    returned: tuple[str, ...]
    decoded: tuple[str, ...]


def get_read_columns(request: ArchiveRead, shape: StreamSchema, hidden: tuple[str, ...] = ()) -> ReadColumns:
    """The columns of a read."""
    schema = shape.schema
    returned = tuple(shape.arrow.names if request.columns is None else request.columns)
    filtered = [schema.start, schema.end, *schema.order, *hidden]
    if request.field is not None:
        filtered.append(request.field)
    if request.types is not None and schema.type_column is not None:
        filtered.append(schema.type_column)
    return ReadColumns(returned, tuple(dict.fromkeys((*returned, *filtered))))
