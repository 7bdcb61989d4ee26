"""What a live matcher is fed with, as tables of the columns that it was made for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.columns.arrow_kinds import kind_of_arrow
from ensue.columns.rows import no_rows
from ensue.columns.stream import TYPE, Columns, Shape, refuse_twice, shape_of
from ensue.errors import EventError, did_you_mean
from ensue.runners.tables import arranged_of, names_of, stream_of, without_index
from ensue.runners.text_times import say_so, text_times, with_times
from ensue.schema import Kind
from ensue.workload.arranged import Arranged, Arranging

_UNFIT: tuple[type[Exception], ...] = (pa.ArrowException, TypeError, ValueError, OverflowError)
_BAD: tuple[type[Exception], ...] = (EventError, *_UNFIT)


@dataclass(frozen=True, slots=True)
class Read:
    """Events that fit the schema."""

    events: pa.Table
    dropped: int = 0  # rows that do not
    ordered: bool = True  # in the order they came


class Reader:
    """Reads tables and rows of events. What does not fit is an error that names it."""

    def __init__(
        self,
        schemas: Any,
        time: Any,
        type: str | None,
        order: Sequence[str],
        arranging: Arranging | None = None,
    ) -> None:
        empty = schemas_of(schemas, names_of(time, type, order))
        self.arranged: Arranged | None = None
        self.shape: Shape
        self.by_type: dict[str, _Columns] = {}
        if arranging is not None:
            widened, self.arranged = arranged_of(empty, arranging)
            time, order = self.arranged.time, self.arranged.order
            self.shape = shape_of(widened.schema, time=time, type=type, order=order)
            self.one = _Columns(empty.schema)
            return
        if isinstance(empty, Mapping):
            self.by_type = {name: _Columns(table.schema, time) for name, table in empty.items()}
            empty = {name: self.by_type[name].timed(table)[0] for name, table in empty.items()}
            self.one = _Columns(pa.schema([]))
        else:
            self.one = _Columns(empty.schema, time)
            empty = self.one.timed(empty)[0]
        texts = {name for one in (self.one, *self.by_type.values()) for name in one.texts}
        if texts:
            say_so(sorted(texts))
        _, self.shape = stream_of(empty, time=time, type=type, order=order)

    def read(self, given: Any, *, drop: bool) -> Read:
        """Events as one table; `drop`: rows that do not fit are left out and counted."""
        if not self.by_type:
            table, dropped = self.one.read(given, drop=drop)
            if self.arranged is not None:
                table = self.arranged.with_computed(table)
            return Read(table, dropped)
        if not isinstance(given, Mapping):
            raise EventError(
                "events with several schemas must be passed by type\n"
                '  hint: pass {"Type": an event, a list of events or a table}'
            )
        pieces, dropped = [no_rows(self.shape.arrow)], 0
        for name, events in given.items():
            if name not in self.by_type:
                hint = did_you_mean(str(name), self.by_type)
                raise EventError(
                    f"no schema was given for events of type '{name}'\n  hint: {hint}"
                )
            table, bad = self.by_type[name].read(events, drop=drop)
            pieces.append(self._widened(str(name), table))
            dropped += bad
        return Read(pa.concat_tables(pieces).unify_dictionaries(), dropped, len(pieces) < 3)

    def _widened(self, name: str, table: pa.Table) -> pa.Table:
        """Events of one type in the columns of all."""
        assert self.shape.by_type is not None
        own: Columns = self.shape.by_type[name]
        fields = {column: field for field, column in own}
        columns = []
        for field in self.shape.arrow:
            if field.name == TYPE:
                marks = np.zeros(table.num_rows, np.int32)
                column = pa.DictionaryArray.from_arrays(marks, pa.array([name], pa.string()))
            elif field.name in fields:
                column = table.column(fields[field.name])
            else:
                column = pa.nulls(table.num_rows, field.type)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.table(columns, schema=self.shape.arrow)


def _in_microseconds(name: str, times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times that were text: what comes later may be no finer than what came first."""
    try:
        return times.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        raise EventError(
            f"a text in '{name}' is finer than microseconds, and live reads no finer texts\n"
            "  hint: give the column the type timestamp[ns] in schema=, and feed timestamps"
        ) from None


class _Columns:
    """The columns of events, and how to fill them."""

    def __init__(self, schema: pa.Schema, time: Any = ()) -> None:
        self.schema = schema
        self.texts = text_times(schema, time)  # columns of time that are to be read
        self.types = {field.name: field.type for field in schema}
        self.names = frozenset(self.types)

    def read(self, given: Any, *, drop: bool) -> tuple[pa.Table, int]:
        """The events of a table or of rows, and how many rows do not fit."""
        table, dropped = self._read(given, drop=drop)
        table, bad = self.timed(table, drop=drop)
        return table, dropped + bad

    def timed(self, table: pa.Table, *, drop: bool = False) -> tuple[pa.Table, int]:
        """Events whose times are no longer text but instants, and how many were none."""
        if not self.texts:
            return table, 0
        found = with_times(table, self.texts, drop=drop, zoned=True)
        for name in self.texts:
            times = _in_microseconds(name, found.column(name))
            found = found.set_column(found.column_names.index(name), name, times)
        lost = np.zeros(table.num_rows, np.bool_)
        for name in self.texts:
            lost |= np.asarray(found.column(name).is_null()) & np.asarray(
                table.column(name).is_valid()
            )
        return (found.filter(pa.array(~lost)), int(lost.sum())) if lost.any() else (found, 0)

    def _read(self, given: Any, *, drop: bool) -> tuple[pa.Table, int]:
        if isinstance(given, dict):
            return self._rows([given], drop=drop)
        if isinstance(given, pa.Table):
            return self._fitting(given), 0
        if isinstance(given, Mapping):
            return self._rows([given], drop=drop)
        if isinstance(given, Sequence) and all(isinstance(row, Mapping) for row in given):
            return self._rows(given, drop=drop)
        return self._fitting(without_index(given, self.names)), 0

    # ---------------------------------------------------------------------------- rows

    def _rows(self, rows: Sequence[Mapping[str, Any]], *, drop: bool) -> tuple[pa.Table, int]:
        """Rows as a table: what a row does not say is NULL."""
        try:
            for row in rows:
                if not row.keys() <= self.names:
                    raise self._unknown(row)
            return self._table(rows), 0
        except _BAD:
            if drop:
                kept = [row for row in rows if self._why_not(row) is None]
                return self._table(kept), len(rows) - len(kept)
            for number, row in enumerate(rows):
                if (why := self._why_not(row)) is not None:
                    where = f"event {number} of these: " if len(rows) > 1 else ""
                    raise EventError(f"{where}{why}") from None
            raise

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        arrays = [pa.array([row.get(n) for row in rows], t) for n, t in self.types.items()]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _why_not(self, row: Mapping[str, Any]) -> str | None:
        """Why a row does not fit the schema, if it does not."""
        if not row.keys() <= self.names:
            return str(self._unknown(row))
        for name, type in self.types.items():
            try:
                pa.array([row.get(name)], type)
            except _UNFIT:
                return f"{name}={row.get(name)!r} is not of the schema's type {type}"
        return None

    def _unknown(self, names: Mapping[str, Any] | Sequence[str]) -> EventError:
        name = next(str(n) for n in names if n not in self.names)
        hint = did_you_mean(name, self.types) or "leave it out, or add it to schema="
        return EventError(f"the schema has no column '{name}'\n  hint: {hint}")

    # ---------------------------------------------------------------------------- tables

    def _fitting(self, table: pa.Table) -> pa.Table:
        """A table with the columns of the schema, or an error that says what does not fit."""
        if table.schema.equals(self.schema):
            return table
        if not self.names.issuperset(table.column_names):
            raise self._unknown(table.column_names)
        refuse_twice(table.column_names)
        missing = [name for name in self.types if name not in table.column_names]
        if missing:
            raise EventError(
                f"the events have no column '{missing[0]}', and the schema has\n"
                "  hint: a table needs all columns; dicts may leave some out"
            )
        columns = [self._column(table.column(name), name) for name in self.types]
        return pa.table(columns, schema=self.schema)

    def _column(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        wanted = self.types[name]
        if column.type == wanted:
            return column
        if not _alike(column.type, wanted):
            raise EventError(f"column '{name}' is of type {column.type}, in the schema {wanted}")
        try:
            return column.cast(wanted)
        except _UNFIT as error:
            raise EventError(
                f"column '{name}' is of type {column.type}, and not all of it fits into the "
                f"schema's {wanted}: {error}"
            ) from None


def _alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether values of one type mean the same in the other."""
    kinds = {kind_of_arrow(one), kind_of_arrow(other)}
    if pa.types.is_timestamp(one) and pa.types.is_timestamp(other):
        return (one.tz is None) == (other.tz is None)
    numbers = {Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL}
    return len(kinds - {Kind.NULL}) <= 1 or kinds <= numbers


def schemas_of(given: Any, named: Collection[str] = ()) -> Any:
    """An empty table with the columns that are described, or one by event type.

    `named`: the columns that the call names, which may be the index of a pandas table.
    """
    if isinstance(given, pa.Schema):
        refuse_twice(given.names)
        return no_rows(pa.schema([field.with_nullable(True) for field in given]))
    if isinstance(given, Mapping):
        if given and all(isinstance(t, pa.DataType | str) for t in given.values()):
            return no_rows(pa.schema([(str(n), _type(t)) for n, t in given.items()]))
        return {str(name): schemas_of(one, named) for name, one in given.items()}
    return schemas_of(without_index(given, named).schema.remove_metadata())


def _type(given: pa.DataType | str) -> pa.DataType:
    """A type, or its name: "int64", "string", "timestamp[us]"."""
    if isinstance(given, pa.DataType):
        return given
    try:
        return pa.type_for_alias(given)
    except ValueError:
        raise EventError(
            f"schema= has a type '{given}' that Arrow does not know\n"
            '  hint: "int64", "double", "string", "bool", "timestamp[us]", or an Arrow type'
        ) from None
