"""The live matcher: matches events in this process as they arrive, and reads them into tables of its schema."""

import math
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
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
from ensue.brief_tracebacks import shorten_class_tracebacks
from ensue.errors import EventError, did_you_mean
from ensue.ir.values import parse_duration
from ensue.runtime.live import LiveCounters, LiveWorkload
from ensue.runtime.query_spec import Name
from ensue.runtime.source_schema import InputOrder, InputOrderFactory, SourceOptions, SourceSchema
from ensue.runtime.tasks.watermark import is_calendar_time
from ensue.runtime.workload import Workload
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import build_texts
from ensue.vector.arrow_types import kind_of_arrow
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import TYPE, StreamSchema, check_duplicate_names, create_schema
from ensue.vector.take import create_empty_table

LiveResult = Any  # a pa.Table, or a dict of them by output
TimeValue = int | float | date | datetime | np.datetime64


@shorten_class_tracebacks
class LiveSession:
    """A live matcher, created by `ensue.live`.

    Its results have the form of `ensue.match`: an Arrow table, or a dict of tables for several
    queries or levels. It is not thread-safe.
    """

    def __init__(self, reader: "LiveEventReader", workload: Workload, options: SourceOptions) -> None:
        delay = parse_watermark_delay(options.watermark, workload.source.shape)
        self._reader = reader
        self._drops = options.stream.drops_bad_events
        self.work = LiveWorkload(workload, delay, options.stream.bad_events)
        self._one = workload.is_single and len(workload.outputs) == 1

    def feed(self, events: Any) -> LiveResult:
        """Process the next events and return the matches that they complete.

        `events` is a table of Arrow, pandas, Polars or another library with an Arrow export, one
        event as a dict, or a list of dicts; with a schema for each event type, a dict of these by
        type. A column that a row lacks is NULL.
        """
        read = self._reader.read(events, drop=self._drops)
        matches = self.work.process(read.events, ordered=read.ordered)
        self.work.dropped += read.dropped
        return self._unwrap(matches)

    def advance(self, time: TimeValue) -> LiveResult:
        """Advance event time to `time` without an event, and return the matches this completes."""
        return self._unwrap(self.work.on_watermark(to_engine_time(time, self.work.workload.source.shape)))

    def finish(self) -> LiveResult:
        """End the stream and return the matches that waited for its end."""
        return self._unwrap(self.work.on_watermark(math.inf))

    def _unwrap(self, matches: Mapping[Name, pa.Table]) -> LiveResult:
        return next(iter(matches.values())) if self._one else matches

    async def over(self, source: AsyncIterable[Any] | Iterable[Any]) -> AsyncIterator[LiveResult]:
        """Feed the items of a source and yield the non-empty results, the last when it ends."""
        async for events in source if isinstance(source, AsyncIterable) else _iterate(source):
            if _has_rows(matches := self.feed(events)):
                yield matches
        if _has_rows(matches := self.finish()):
            yield matches

    # ---------------------------------------------------------------------------- counters

    @property
    def progress(self) -> LiveCounters:
        """Counters of events, matches and state."""
        return self.work.counts

    @property
    def late(self) -> int:
        """The number of events that arrived too late to be matched."""
        return self.work.late

    @property
    def dropped(self) -> int:
        """The number of dropped events: without a usable time, or not conforming to the schema."""
        return self.work.dropped

    def late_events(self) -> pa.Table:
        """Return the late events since the last call, with `StreamOptions(late_events="deliver")`."""
        if not self.work.workload.deliver_late:
            raise EventError(
                "late events are only counted\n"
                '  hint: ensue.live(..., options=ensue.StreamOptions(late_events="deliver"))'
            )
        return self.work.take_late_events()

    # ---------------------------------------------------------------------------- state

    def save(self) -> bytes:
        """Serialize the state."""
        return self.work.snapshot()

    def restore(self, state: bytes) -> "LiveSession":
        """Continue from a saved state, which must come from the same `ensue.live` call."""
        self.work.restore(state)
        return self

    def __repr__(self) -> str:
        counts = self.progress
        return (
            f"<ensue.Live: {counts.events} events, {counts.matches} matches, {counts.partial_matches} partial matches>"
        )


async def _iterate(source: Iterable[Any]) -> AsyncIterator[Any]:
    import asyncio

    for item in source:
        yield item
        await asyncio.sleep(0)


def build_source(reader: "LiveEventReader", options: SourceOptions) -> SourceSchema:
    if reader.arranged is not None:
        options = replace(options, time=reader.arranged.time, order=reader.arranged.order)
    return SourceSchema.from_options(reader.shape, options)


def _has_rows(matches: LiveResult) -> bool:
    tables = matches.values() if isinstance(matches, Mapping) else (matches,)
    return any(table.num_rows for table in tables)


def parse_watermark_delay(watermark: Any, shape: StreamSchema) -> int | float | None:
    if watermark is None:
        return None
    calendar = is_calendar_time(shape)
    delay = parse_delay(watermark, on_calendar=calendar)
    if calendar and shape.unit == "us":
        delay = -(-delay // 1_000)
    return math.floor(delay) if shape.schema.time_kind is ValueKind.INTEGER else delay


def parse_delay(watermark: Any, *, on_calendar: bool) -> int | float:
    """Convert `watermark=` to nanoseconds, or to a number where the time column holds numbers."""
    delay: int | float
    match watermark:
        case timedelta() if on_calendar:
            delay = watermark // timedelta(microseconds=1) * 1_000
        case str() if on_calendar:
            delay = parse_duration(watermark)
        case bool():
            delay = math.nan
        case int() | float() if not on_calendar:
            delay = watermark
        case _:
            hint = 'a length of time such as "10 seconds"' if on_calendar else "a number"
            kind = "timestamps" if on_calendar else "numbers"
            raise EventError(f"watermark={watermark!r}: the time column holds {kind}, so the watermark must be {hint}")
    if not (math.isfinite(delay) and delay >= 0):
        raise EventError(f"watermark={watermark!r} is not a length of time")
    return delay


def to_engine_time(time: Any, shape: StreamSchema) -> int | float:
    numeric = isinstance(time, int | float | np.number) and not isinstance(time, bool)
    if not is_calendar_time(shape):
        if not numeric or not math.isfinite(time):
            raise EventError(f"time={time!r}: the time column holds numbers, so pass a number")
        return math.ceil(time) if shape.schema.time_kind is ValueKind.INTEGER else float(time)
    if numeric or isinstance(time, str | bool) or time is None:
        raise EventError(f"time={time!r}: the time column holds timestamps, so pass a datetime")
    kind = shape.arrow.field(shape.schema.end).type
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    try:
        if isinstance(time, np.datetime64):  # Arrow accepts only its own unit
            time = time.astype(f"datetime64[{shape.unit}]").astype(np.int64).item()
        array = pa.array([time], pa.timestamp(shape.unit, zone))
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise EventError(f"time={time!r} is not a point in time: {error}") from None
    if array.null_count:
        raise EventError(f"time={time!r} is not a point in time")
    ticks: int = np.asarray(from_arrow(array, shape.unit).values)[0].item()
    return ticks


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
                column = pa.DictionaryArray.from_arrays(marks, build_texts([name]))
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
        # one conversion of all columns is faster; Arrow does not convert all types inside of structs
        flat = (pa.types.is_primitive(t) or pa.types.is_string(t) or pa.types.is_decimal(t) for t in schema.types)
        self._rows_type = pa.struct(list(schema)) if all(flat) else None

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
        if self._rows_type is not None:
            whole = [row if isinstance(row, dict) else dict(row) for row in rows]
            return pa.Table.from_struct_array(pa.array(whole, self._rows_type))
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
