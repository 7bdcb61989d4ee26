"""Reads the events that are fed to a live matcher into tables of its schema."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.backends.dataframe_libs import (
    arrange_rows,
    collect_column_names,
    find_text_times,
    read_event_table,
    to_arrow_table,
)
from ensue.backends.text_files import parse_time_columns, warn_text_times
from ensue.errors import EventError, did_you_mean
from ensue.runtime.source_schema import InputOrder, InputOrderFactory
from ensue.schema import ValueKind
from ensue.vector.arrow_types import kind_of_arrow
from ensue.vector.event_table import TYPE, check_duplicate_names, create_schema
from ensue.vector.take import create_empty_table

_CAST_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, slots=True)
class LiveBatch:
    """A batch of events that conform to the schema."""

    events: pa.Table
    dropped: int = 0  # rows that do not conform
    ordered: bool = True  # in arrival order


class LiveEventReader:
    """Reads tables and rows of events; the error for a mismatch names the column."""

    def __init__(
        self,
        schemas: Any,
        time: Any,
        type: str | None,
        order: Sequence[str],
        arranging: InputOrderFactory | None = None,
    ) -> None:
        empty = build_empty_tables(schemas, collect_column_names(time, type, order))
        self.arranged: InputOrder | None = None
        self.by_type: dict[str, _Columns] = {}
        if arranging is not None:
            widened, self.arranged = arrange_rows(empty, arranging)
            time, order = self.arranged.time, self.arranged.order
            self.shape = create_schema(widened.schema, time=time, type=type, order=order)
            self.columns = _Columns(empty.schema)
            return
        if isinstance(empty, Mapping):
            self.by_type = {name: _Columns(table.schema, time) for name, table in empty.items()}
            empty = {name: self.by_type[name].parse_times(table)[0] for name, table in empty.items()}
            self.columns = _Columns(pa.schema([]))
        else:
            self.columns = _Columns(empty.schema, time)
            empty = self.columns.parse_times(empty)[0]
        texts = {n for columns in (self.columns, *self.by_type.values()) for n in columns.texts}
        if texts:
            warn_text_times(sorted(texts))
        _, self.shape = read_event_table(empty, time=time, type=type, order=order)

    def read(self, events: Any, *, drop: bool) -> LiveBatch:
        """Read events into one table; with `drop`, invalid rows are skipped and counted."""
        if not self.by_type:
            table, dropped = self.columns.read(events, drop=drop)
            if self.arranged is not None:
                table = self.arranged.with_computed(table)
            return LiveBatch(table, dropped)
        if not isinstance(events, Mapping):
            raise EventError(
                "events with several schemas must be passed by type\n"
                '  hint: pass {"Type": an event, a list of events or a table}'
            )
        pieces, dropped = [create_empty_table(self.shape.arrow)], 0
        for name, batch in events.items():
            if name not in self.by_type:
                hint = did_you_mean(str(name), self.by_type)
                raise EventError(f"no schema was given for events of type '{name}'\n  hint: {hint}")
            table, bad = self.by_type[name].read(batch, drop=drop)
            pieces.append(self._widen(str(name), table))
            dropped += bad
        return LiveBatch(pa.concat_tables(pieces).unify_dictionaries(), dropped, len(pieces) < 3)

    def _widen(self, name: str, table: pa.Table) -> pa.Table:
        """Extend the events of one type to the columns of all types."""
        assert self.shape.by_type is not None
        fields = {column: field for field, column in self.shape.by_type[name]}
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
    """Cast parsed times to microseconds, the resolution that the schema was inferred with."""
    try:
        return times.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        raise EventError(
            f"a text in '{name}' is finer than microseconds, and live reads no finer texts\n"
            "  hint: give the column the type timestamp[ns] in schema=, and feed timestamps"
        ) from None


class _Columns:
    """The columns of a schema, and the conversion of events to them."""

    def __init__(self, schema: pa.Schema, time: Any = ()) -> None:
        self.schema = schema
        self.texts = find_text_times(schema, time)  # time columns to parse
        self.types = {field.name: field.type for field in schema}
        self.names = frozenset(self.types)

    def read(self, events: Any, *, drop: bool) -> tuple[pa.Table, int]:
        """Read a table or rows; return the events and the number of invalid rows."""
        table, dropped = self._read(events, drop=drop)
        table, bad = self.parse_times(table, drop=drop)
        return table, dropped + bad

    def parse_times(self, table: pa.Table, *, drop: bool = False) -> tuple[pa.Table, int]:
        """Parse text times as UTC timestamps, and count the unreadable ones."""
        if not self.texts:
            return table, 0
        parsed = parse_time_columns(table, self.texts, drop=drop, zoned=True)
        unreadable = np.zeros(table.num_rows, np.bool_)
        for name in self.texts:
            times = _in_microseconds(name, parsed.column(name))
            parsed = parsed.set_column(parsed.column_names.index(name), name, times)
            unreadable |= np.asarray(times.is_null()) & np.asarray(table.column(name).is_valid())
        if not unreadable.any():
            return parsed, 0
        return parsed.filter(pa.array(~unreadable)), int(unreadable.sum())

    def _read(self, events: Any, *, drop: bool) -> tuple[pa.Table, int]:
        if isinstance(events, dict | Mapping):  # dict first: Mapping is slow to check
            return self._rows([events], drop=drop)
        if isinstance(events, pa.Table):
            return self._conform(events), 0
        if isinstance(events, Sequence) and all(isinstance(row, Mapping) for row in events):
            return self._rows(events, drop=drop)
        return self._conform(to_arrow_table(events, self.names)), 0

    # ---------------------------------------------------------------------------- rows

    def _rows(self, rows: Sequence[Mapping[str, Any]], *, drop: bool) -> tuple[pa.Table, int]:
        """Convert rows to a table; a missing column is NULL."""
        try:
            for row in rows:
                if not row.keys() <= self.names:
                    raise self._unknown_column_error(row)
            return self._table(rows), 0
        except (EventError, *_CAST_ERRORS):
            if drop:
                valid = [row for row in rows if self._find_mismatch(row) is None]
                return self._table(valid), len(rows) - len(valid)
            for number, row in enumerate(rows):
                if (reason := self._find_mismatch(row)) is not None:
                    where = f"event {number} of the list: " if len(rows) > 1 else ""
                    raise EventError(f"{where}{reason}") from None
            raise

    def _table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        arrays = [pa.array([row.get(n) for row in rows], t) for n, t in self.types.items()]
        return pa.Table.from_arrays(arrays, schema=self.schema)

    def _find_mismatch(self, row: Mapping[str, Any]) -> str | None:
        """Describe why a row does not conform to the schema; None if it does."""
        if not row.keys() <= self.names:
            return str(self._unknown_column_error(row))
        for name, type in self.types.items():
            try:
                pa.array([row.get(name)], type)
            except _CAST_ERRORS:
                return f"{name}={row.get(name)!r} is not of the schema's type {type}"
        return None

    def _unknown_column_error(self, names: Mapping[str, Any] | Sequence[str]) -> EventError:
        name = next(str(n) for n in names if n not in self.names)
        hint = did_you_mean(name, self.types) or "remove it, or add it to schema="
        return EventError(f"the schema has no column '{name}'\n  hint: {hint}")

    # ---------------------------------------------------------------------------- tables

    def _conform(self, table: pa.Table) -> pa.Table:
        """Cast a table to the schema; a mismatch raises EventError."""
        if table.schema.equals(self.schema):
            return table
        if not self.names.issuperset(table.column_names):
            raise self._unknown_column_error(table.column_names)
        check_duplicate_names(table.column_names)
        missing = [name for name in self.types if name not in table.column_names]
        if missing:
            raise EventError(
                f"the events have no column '{missing[0]}', which the schema has\n"
                "  hint: a table needs all columns; dicts may leave some out"
            )
        columns = [self._cast_column(table.column(name), name) for name in self.types]
        return pa.table(columns, schema=self.schema)

    def _cast_column(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        expected = self.types[name]
        if column.type == expected:
            return column
        if not _is_compatible(column.type, expected):
            raise EventError(f"column '{name}' has type {column.type}, but {expected} in the schema")
        try:
            return column.cast(expected)
        except _CAST_ERRORS as error:
            raise EventError(
                f"column '{name}' has type {column.type}, and some values do not fit into the "
                f"schema's {expected}: {error}"
            ) from None


def _is_compatible(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether values of one type keep their meaning in the other."""
    kinds = {kind_of_arrow(left), kind_of_arrow(right)}
    if pa.types.is_timestamp(left) and pa.types.is_timestamp(right):
        return (left.tz is None) == (right.tz is None)
    numbers = {ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL}
    return len(kinds - {ValueKind.NULL}) <= 1 or kinds <= numbers


def build_empty_tables(schema: Any, named: Collection[str] = ()) -> Any:
    """Build an empty table for a schema, or one for each event type.

    `named` are the columns that the call names, which may be index levels of a pandas table.
    """
    if isinstance(schema, pa.Schema):
        check_duplicate_names(schema.names)
        return create_empty_table(pa.schema([field.with_nullable(True) for field in schema]))
    if isinstance(schema, Mapping):
        if schema and all(isinstance(t, pa.DataType | str) for t in schema.values()):
            return create_empty_table(pa.schema([(str(n), _type(t)) for n, t in schema.items()]))
        return {str(name): build_empty_tables(nested, named) for name, nested in schema.items()}
    return build_empty_tables(to_arrow_table(schema, named).schema.remove_metadata())


def _type(name: pa.DataType | str) -> pa.DataType:
    """Resolve a type or its name: "int64", "string", "timestamp[us]"."""
    if isinstance(name, pa.DataType):
        return name
    try:
        return pa.type_for_alias(name)
    except ValueError:
        raise EventError(
            f"schema= has a type '{name}' that Arrow does not know\n"
            '  hint: "int64", "double", "string", "bool", "timestamp[us]", or an Arrow type'
        ) from None
