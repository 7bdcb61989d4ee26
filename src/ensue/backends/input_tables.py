"""Converts in-memory events of any dataframe library to Arrow tables."""

import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.backends.dataframe_libs import DataFrameLibrary, detect_library
from ensue.errors import EventError
from ensue.runtime.source_schema import InputOrder, InputOrderFactory
from ensue.traceback_filter import find_stacklevel
from ensue.vector.arrow_types import get_time_zones, is_text, plain_type
from ensue.vector.event_table import (
    PLACE,
    StreamSchema,
    check_duplicate_names,
    check_reserved_names,
    create_schema,
    unite_tables,
)


def as_table(events: Any) -> pa.Table:
    """Convert events of any library that supports Arrow to an Arrow table."""
    match events:
        case pa.Table():
            return events
        case str() | Path():
            from ensue.backends.event_files import read_path

            return read_path(str(events), _warn)
        case list() if events and all(isinstance(e, pa.RecordBatch) for e in events):
            return pa.Table.from_batches(events)
        case list() if events and all(isinstance(e, Mapping) for e in events):
            return pa.Table.from_pylist(events)
        case list():
            raise EventError(
                "a list of events must hold record batches or dicts"
                + ("" if events else "; this one is empty, and an empty list has no columns")
            )
        case _ if hasattr(events, "__arrow_c_stream__") or hasattr(events, "__arrow_c_array__"):
            return pa.table(events)
        case _ if hasattr(events, "to_arrow_table"):
            return events.to_arrow_table()
        case _:
            raise EventError(
                f"events of type {type(events).__name__} are not supported\n"
                "  hint: pass an Arrow, pandas or Polars table, a DuckDB relation, a Spark "
                "DataFrame, the path of a file, or a dict of one of these per event type"
            )


def _warn(note: str) -> None:
    """Warn of a note on files, without its hint, which names options of the command line."""
    warnings.warn(note.partition("\n")[0].removeprefix("note: "), stacklevel=find_stacklevel())


def read_event_table(
    events: Any, *, time: str | tuple[str, str], type: str | None = None, order: Sequence[str] = (), drop: bool = False
) -> tuple[pa.Table, StreamSchema]:
    """Read the events into one unsorted table, with its shape.

    Times that are text are parsed; with `drop` an unreadable one becomes NULL instead of an error.
    """
    named = collect_column_names(time, type, order)
    by_type = isinstance(events, Mapping)
    if by_type and type is not None:
        raise EventError("type= is for a single table; in a dict the keys are the types")
    if by_type and not events:
        raise EventError("an empty dict of events has no event types")
    inputs = events.items() if by_type else [("", events)]
    tables = {str(name): _read_table(table, named) for name, table in inputs}
    texts = {name: find_text_times(table.schema, time) for name, table in tables.items()}
    if any(texts.values()):
        from ensue.backends.text_files import parse_time_columns, warn_text_times

        zoned = by_type and any(get_time_zones(table.schema) for table in tables.values())
        for name, columns in texts.items():
            if columns:
                tables[name] = parse_time_columns(tables[name], columns, drop=drop, zoned=zoned)
        warn_text_times(sorted({name for columns in texts.values() for name in columns}))
    if by_type:
        return unite_tables(tables, time=time, order=order)
    (table,) = tables.values()
    return table, create_schema(table.schema, time=time, type=type, order=order)


def find_text_times(schema: pa.Schema, time: str | tuple[str, str]) -> list[str]:
    """Return the time columns that hold text."""
    names = (time,) if isinstance(time, str) else tuple(time)
    return [
        name for name in dict.fromkeys(names) if name in schema.names and is_text(plain_type(schema.field(name).type))
    ]


def arrange_rows(events: Any, arranging: InputOrderFactory) -> tuple[pa.Table, InputOrder]:
    """Add the columns that queries with their own ORDER BY and PARTITION BY need."""
    if isinstance(events, Mapping):
        raise EventError(
            "MATCH_RECOGNIZE reads one table, and these are several\n"
            "  hint: pass one table, with a column for the event type"
        )
    table = _read_table(events)
    arranged = arranging(table.schema)
    table = arranged.with_computed(table)
    if arranged.numbered:
        table = table.append_column(PLACE, pa.array(np.arange(table.num_rows)))
    return table, arranged


def collect_column_names(time: str | tuple[str, str], type: str | None, order: Sequence[str]) -> frozenset[str]:
    """Return the columns that the arguments of a call name."""
    times = (time,) if isinstance(time, str) else time
    return frozenset((*times, *order, *(() if type is None else (type,))))


def to_arrow_table(events: Any, named: Collection[str] = ()) -> pa.Table:
    """Convert events to an Arrow table; of a pandas index only the `named` levels are kept."""
    match detect_library(events):
        case DataFrameLibrary.PANDAS:
            return _convert_pandas(events, named)
        case DataFrameLibrary.POLARS_LAZY:
            return as_table(events.collect())
        case _:
            return as_table(events)


def _convert_pandas(frame: Any, named: Collection[str]) -> pa.Table:
    """Convert a DataFrame with those `named` index levels that are not also columns.

    Unnamed levels get the names of `reset_index`: `index`, or `level_0`, `level_1`.
    """
    columns = [str(name) for name in frame.columns]
    check_duplicate_names(columns)
    names = [
        str(name) if name is not None else "index" if frame.index.nlevels == 1 else f"level_{k}"
        for k, name in enumerate(frame.index.names)
    ]
    table = pa.Table.from_pandas(frame, preserve_index=False)
    levels = [k for k, name in enumerate(names) if name in named and name not in columns]
    for position, number in enumerate(levels):
        level = frame.index.get_level_values(number).to_frame(index=False, name=names[number])
        values = pa.Table.from_pandas(level, preserve_index=False).column(0)
        table = table.add_column(position, names[number], values)
    return table


def _read_table(events: Any, named: Collection[str] = ()) -> pa.Table:
    table = to_arrow_table(events, named)
    check_reserved_names(table.column_names)
    return table
