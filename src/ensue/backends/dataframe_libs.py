"""Detects the dataframe library of the input and converts results to the same library.

pandas gives pandas, Polars gives Polars, a DuckDB relation gives a relation on the same
connection. Any other Arrow input, and input of several libraries, gives an Arrow table.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from itertools import pairwise
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.errors import RunnerError


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
        parts = [_objects(pc.struct_field(column, [number])) for number in range(len(names))]
        rows = zip(*parts, strict=True) if parts else [()] * len(column)
        return _mask_nulls(column, [dict(zip(names, row, strict=True)) for row in rows])
    if types.is_list(type) or types.is_large_list(type):
        values = _objects(column.values)
        ends = column.offsets.to_pylist()
        return _mask_nulls(column, [values[a:b] for a, b in pairwise(ends)])
    if types.is_timestamp(type) or types.is_duration(type):
        return _mask_nulls(column, column.to_pandas().astype(object).tolist())
    if types.is_integer(type):
        return _mask_nulls(column, column.fill_null(0).to_numpy().tolist())
    return list(column.to_pylist())


def _mask_nulls(column: pa.Array, values: list[Any]) -> list[Any]:
    """Replace the values of NULL entries by None."""
    if not column.null_count:
        return values
    valid = column.is_valid().to_pylist()
    return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]
