"""Converts events of any dataframe library to Arrow tables, and results to the library of the events.

pandas gives pandas, Polars gives Polars, a DuckDB relation gives a relation on the same
connection. Any other Arrow input, and input of several libraries, gives an Arrow table.
"""

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.errors import EventError, RunnerError
from ensue.runtime.source_schema import InputOrder, InputOrderFactory
from ensue.traceback_filter import find_stacklevel
from ensue.vector.arrow_numpy import wrap_numbers
from ensue.vector.arrow_types import get_time_zones, is_text, plain_type
from ensue.vector.event_table import (
    PLACE,
    StreamSchema,
    check_duplicate_names,
    check_reserved_names,
    create_schema,
    unite_tables,
)


class DataFrameLibrary(Enum):
    """A dataframe library."""

    ARROW = auto()  # also any other library with an Arrow export
    PANDAS = auto()
    POLARS = auto()
    POLARS_LAZY = auto()
    DUCKDB = auto()
    SPARK = auto()


_CLASSES = {
    ("pandas", "DataFrame"): DataFrameLibrary.PANDAS,
    ("polars", "DataFrame"): DataFrameLibrary.POLARS,
    ("polars", "LazyFrame"): DataFrameLibrary.POLARS_LAZY,
    ("duckdb", "DuckDBPyRelation"): DataFrameLibrary.DUCKDB,
    ("_duckdb", "DuckDBPyRelation"): DataFrameLibrary.DUCKDB,  # the module name in some releases
}


def get_package_name(value: object) -> str:
    """Return the top-level package of a value's class."""
    return type(value).__module__.partition(".")[0]


def detect_library(table: object) -> DataFrameLibrary:
    """Detect the library of a table, or of its base class, without importing the library."""
    for base in type(table).__mro__:
        if base.__module__.startswith("pyspark.sql"):
            return DataFrameLibrary.SPARK
        library = _CLASSES.get((base.__module__.partition(".")[0], base.__name__))
        if library is not None:
            return library
    return DataFrameLibrary.ARROW


def is_table(value: object) -> bool:
    """Whether a value is a table of pandas, Polars, DuckDB, Arrow or Spark, not a column."""
    match detect_library(value), get_package_name(value):
        case (DataFrameLibrary.ARROW, "pandas" | "polars"):
            return False
        case (DataFrameLibrary.ARROW, "pyarrow"):
            return type(value).__name__ in ("Table", "RecordBatch", "RecordBatchReader")
        case (DataFrameLibrary.ARROW, _):
            return hasattr(value, "__arrow_c_stream__") and hasattr(value, "columns")
        case (DataFrameLibrary.SPARK, _):
            return type(value).__name__ == "DataFrame"
        case _:
            return True


def is_read_in_batches(events: object) -> bool:
    """Whether events may be larger than memory: a path, a reader, or a dataset of Arrow or its scanner."""
    return isinstance(events, str | Path | pa.RecordBatchReader) or type(events).__module__ == "pyarrow._dataset"


# ------------------------------------------------------------------------- events


def as_table(events: Any) -> pa.Table:
    """Convert events of any library that supports Arrow to an Arrow table."""
    match events:
        case pa.Table():
            return events
        case str() | Path():
            from ensue.backends.event_files import read_path

            return read_path(str(events), warn_note)
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
        case _ if is_read_in_batches(events):
            return events.to_table()
        case _:
            raise EventError(
                f"events of type {type(events).__name__} are not supported\n"
                "  hint: pass an Arrow, pandas or Polars table, an Arrow dataset, a DuckDB relation, a Spark "
                "DataFrame, the path of a file, or a dict of one of these per event type"
            )


def warn_note(note: str) -> None:
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
        table = table.append_column(PLACE, wrap_numbers(np.arange(table.num_rows)))
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


# ------------------------------------------------------------------------- results


def convert_result(events: Any, result: Any) -> Any:
    """Convert Arrow results to the library of the events.

    `events` is one table or a dict of tables, and so is `result`. Spark results are DataFrames
    already and stay unchanged.
    """
    tables = list(events.values()) if isinstance(events, Mapping) else [events]
    if any(detect_library(table) is DataFrameLibrary.SPARK for table in tables):
        return result  # also several: SeveralMatches computes them in one job
    if isinstance(result, Mapping):
        return {name: _convert(table, tables) for name, table in result.items()}
    return _convert(result, tables)


def _convert(result: Any, tables: Iterable[Any]) -> Any:
    libraries = {detect_library(table): table for table in tables}
    if len(libraries) != 1:
        return result
    ((library, example),) = libraries.items()
    match library:
        case DataFrameLibrary.PANDAS:
            return to_pandas(result)
        case DataFrameLibrary.POLARS | DataFrameLibrary.POLARS_LAZY:
            import polars

            frame: Any = polars.from_arrow(result)
            return frame if library is DataFrameLibrary.POLARS else frame.lazy()
        case DataFrameLibrary.DUCKDB:
            return _make_relation(example, result)
        case DataFrameLibrary.ARROW | DataFrameLibrary.SPARK:
            return result


def _make_relation(events: Any, result: Any) -> Any:  # noqa: ARG001  DuckDB reads `result` by name
    """Convert an Arrow table to a relation on the connection of the events.

    A relation hides its connection, but its queries run there, and DuckDB finds the table among
    the local variables. Some releases keep the view that such a query names.
    """
    import duckdb

    view = f"ensue_{uuid4().hex}"
    try:
        relation = events.query(view, "SELECT * FROM result")
    except duckdb.CatalogException:
        raise RunnerError(
            "this DuckDB connection does not read Python variables "
            "(python_enable_replacements), so the result cannot become a relation\n"
            "  hint: pass relation.to_arrow_table(); the result is an Arrow table then"
        ) from None
    events.query(view, f'DROP VIEW IF EXISTS "{view}"')
    return relation.set_alias("matches")


_EXACT = 2**53  # beyond it a float does not hold every integer


def to_pandas(table: pa.Table) -> Any:
    """Convert a table to pandas without losing large integers or nanoseconds in nested events.

    >>> times = pa.array([1_500_000_000_000_000_001, None], pa.timestamp("ns"))
    >>> event = pa.StructArray.from_arrays([times, pa.array([7, None])], ["t", "n"])
    >>> to_pandas(pa.table({"a": event}))["a"].tolist()[0]
    {'t': Timestamp('2017-07-14 02:40:00.000000001'), 'n': 7}
    """
    import pandas as pd

    nullable = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    columns = {}
    for number, field in enumerate(table.schema):
        column = table.column(number)
        if types.is_nested(field.type):
            columns[number] = pd.Series(_objects(column), dtype=object)
        elif field.type in nullable and column.null_count and _exceeds_floats(column):
            columns[number] = column.to_pandas(types_mapper=nullable.get)
        elif types.is_timestamp(field.type) or types.is_duration(field.type):
            columns[number] = pd.Series(_build_time_index(column))
        else:
            columns[number] = column.to_pandas()
    frame = pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows))
    frame.columns = pd.Index(table.column_names)
    return frame


def _exceeds_floats(column: pa.ChunkedArray) -> bool:
    """Whether integers would lose digits as floats, which pandas uses for nullable integers."""
    ends = pc.min_max(column).as_py()
    return ends["min"] is not None and max(-ends["min"], ends["max"]) > _EXACT


def _objects(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Convert a column to Python objects, with None for NULL."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in _objects(chunk)]
    type = column.type
    if isinstance(column, pa.ExtensionArray):
        return list(column.to_pylist())
    if types.is_struct(type):
        names = [field.name for field in type]
        parts = [_objects(part) for part in column.flatten()]
        rows = zip(*parts, strict=True) if parts else [()] * len(column)
        return _mask_nulls(column, [dict(zip(names, row, strict=True)) for row in rows])
    if types.is_list(type) or types.is_large_list(type):
        values = _objects(column.values)
        ends = column.offsets.to_pylist()
        return _mask_nulls(column, [values[a:b] for a, b in pairwise(ends)])
    if types.is_timestamp(type) or types.is_duration(type):
        return _mask_nulls(column, _build_time_index(column).tolist())
    if types.is_integer(type):
        known = column.fill_null(0) if column.null_count else column
        return _mask_nulls(column, known.to_numpy().tolist())
    return list(column.to_pylist())


def _build_time_index(column: pa.Array | pa.ChunkedArray) -> Any:
    """The times of a column as pandas has them; Arrow's own conversion has a high fixed cost."""
    import pandas as pd

    values = column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)
    if types.is_duration(column.type):
        return pd.TimedeltaIndex(values)
    times, zone = pd.DatetimeIndex(values), column.type.tz
    return times if zone is None else times.tz_localize("UTC").tz_convert(_find_zone(zone))


@lru_cache(maxsize=256)
def _find_zone(name: str) -> Any:
    """A time zone as Arrow's own conversion gives it."""
    return pa.array([], pa.timestamp("us", name)).to_pandas().dt.tz


def _mask_nulls(column: pa.Array, values: list[Any]) -> list[Any]:
    """Replace the values of NULL entries by None."""
    if not column.null_count:
        return values
    valid = column.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]
