"""Reads Parquet files with DuckDB, which skips row groups by their statistics."""

import os
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from ensue.archives.archive import FileList, get_local_path
from ensue.archives.parquet_reader import FILE, ROW, DecodedRows, fit_columns
from ensue.archives.pruning import cast_keys
from ensue.archives.row_selection import ReadColumns, RowSelector
from ensue.schema import ValueKind
from ensue.vector.arrow_types import kind_of_arrow, plain_type

Ints = npt.NDArray[np.int64]

_VIRTUAL = {"filename", "file_index", "file_row_number", FILE, ROW}
_FEW = 16  # keys that are written into a query; more are joined
_COMPARABLE = (
    ValueKind.INTEGER,
    ValueKind.STRING,
    ValueKind.BOOLEAN,
    ValueKind.DATE,
    ValueKind.FLOAT,
)  # kinds of keys for which DuckDB's equality is ours


def can_read_with_duckdb(files: FileList, numbers: Ints, needed: ReadColumns, schema: pa.Schema) -> bool:
    """Whether DuckDB is installed, and reads these files and columns as Arrow does."""
    return (
        is_duckdb_installed()
        and files.even
        and _has_distinct_names(schema)
        and all(_is_plain_path(get_local_path(files.paths[k])) for k in numbers.tolist())
        and all(_keeps_type(plain_type(schema.field(name).type)) for name in needed.decoded)
    )


def _is_plain_path(path: str | None) -> bool:
    """Whether DuckDB reads a path as the name of one local file, not as a pattern."""
    return path is not None and not any(letter in path for letter in "*?[{")


def _has_distinct_names(schema: pa.Schema) -> bool:
    """Whether names differ in more than case, and none is that of a virtual column of DuckDB."""
    names = {name.lower() for name in schema.names}
    return len(names) == len(schema.names) and not names & _VIRTUAL


@cache
def is_duckdb_installed() -> bool:
    return find_spec("duckdb") is not None


def _keeps_type(type: pa.DataType) -> bool:
    """Whether DuckDB returns a type unchanged, or as one that a cast restores."""
    if types.is_timestamp(type):
        return bool(type.unit != "ns")
    return bool(
        (types.is_integer(type) and not types.is_uint64(type))
        or types.is_float32(type)
        or types.is_float64(type)
        or types.is_boolean(type)
        or types.is_string(type)
        or types.is_large_string(type)
        or types.is_date32(type)
    )


# one thread: key groups are processes already; the limit is for cached decoded blocks
_SETTINGS = (
    "threads = 1",
    "memory_limit = '512MB'",
    "TimeZone = 'UTC'",
    "parquet_metadata_cache = true",
    "preserve_insertion_order = false",
)
_lock = Lock()
_connections: dict[int, Any] = {}  # by process id: a forked process opens its own


def _cursor() -> Any:
    import duckdb

    process = os.getpid()
    with _lock:
        if process not in _connections:
            _connections.clear()
            connection = duckdb.connect(":memory:")
            for setting in _SETTINGS:
                connection.execute(f"SET {setting}")
            _connections[process] = connection
        return _connections[process].cursor()


def read_with_duckdb(
    files: FileList, numbers: Ints, pieces: RowSelector, needed: ReadColumns, schema: pa.Schema
) -> DecodedRows | None:
    """Reads the selected rows of some files in one query; None if DuckDB fails."""
    import duckdb

    paths = [str(get_local_path(files.paths[k])) for k in numbers.tolist()]
    inside = [n for n in needed.decoded if n not in files.partitions]
    condition, values, pieces_table = _build_condition(files, pieces, schema)
    cursor = _cursor()
    if pieces_table is not None:
        cursor.register("wanted_pieces", pieces_table)
    columns = ", ".join(f"e.{_quote(n)}" for n in inside)
    query = (
        f"SELECT {columns}{', ' if inside else ''}e.file_index AS {FILE}, "
        f"e.file_row_number AS {ROW} FROM read_parquet(?, hive_partitioning = false) e{condition}"
    )
    try:
        table = cursor.sql(query, params=[paths, *values]).to_arrow_table()
    except duckdb.Error:
        return None  # a missing or different file: pyarrow names it, or reads it
    finally:
        cursor.close()
    own = np.asarray(table.column(FILE).to_numpy()).astype(np.int64)
    places = np.asarray(table.column(ROW).to_numpy()).astype(np.int64)
    originals = numbers[own]
    rows = fit_columns(table, files, originals, needed, schema, paths[0])
    holds = pieces.holds(rows)
    for k in np.unique(own[holds]).tolist() if files.left else ():
        mask = files.left.get(files.paths[int(numbers[k])])
        if mask is not None:
            of_file = own == k
            holds[of_file] &= mask[places[of_file]]
    rows = rows.append_column(FILE, pa.array(originals)).append_column(ROW, pa.array(places))
    selected = rows if bool(holds.all()) else rows.filter(pa.array(holds))
    return DecodedRows(selected, scanned=table.num_rows)


def _build_condition(
    files: FileList, pieces: RowSelector, schema: pa.Schema
) -> tuple[str, list[object], pa.Table | None]:
    """A condition that holds for all selected rows, and perhaps for more."""
    parts: list[str] = []
    values: list[object] = []
    names = pieces.shape.schema
    bounds = ((names.start, ">=", pieces.since.min(keepdims=True)), (names.end, "<=", pieces.until.max(keepdims=True)))
    for name, sign, bound in bounds:
        value = _format_bound(bound, pieces, schema.field(name).type, low=sign == ">=")
        if value is not None and name not in files.partitions:
            parts.append(f"e.{_quote(name)} {sign} {value}")

    def has_kind(name: str | None, kinds: Sequence[ValueKind]) -> bool:
        if name is None or name in files.partitions:
            return False
        return kind_of_arrow(schema.field(name).type) in kinds

    types, column = pieces.request.types, names.type_column
    if types and column is not None and has_kind(column, (ValueKind.STRING,)):
        parts.append(f"e.{_quote(column)} IN ({', '.join('?' * len(types))})")
        values += sorted(types)
    join, table, field = "", None, pieces.request.field
    if field is not None and has_kind(field, _COMPARABLE):
        keys = cast_keys(pieces.keys, schema.field(field).type)
        distinct = keys.unique().drop_null()
        if len(distinct) <= _FEW:
            marks = ", ".join("?" * len(distinct))
            parts.append(f"e.{_quote(field)} IN ({marks})" if marks else "false")
            values += distinct.to_pylist()
        else:
            join, table = _build_join(pieces, keys, field, schema)
    where = f" WHERE {' AND '.join(parts)}" if parts else ""
    return join + where, values, table


def _build_join(pieces: RowSelector, keys: pa.Array, field: str, schema: pa.Schema) -> tuple[str, pa.Table]:
    names = pieces.shape.schema
    columns, on = {"key": keys}, [f"e.{_quote(field)} = w.key"]
    for name, sign, bound, values in (
        (names.start, ">=", "since", pieces.since),
        (names.end, "<=", "until", pieces.until),
    ):
        columns[bound] = _convert_times(values, pieces, schema.field(name).type, low=bound == "since")
        on.append(f"e.{_quote(name)} {sign} w.{bound}")
    return f" SEMI JOIN wanted_pieces w ON {' AND '.join(on)}", pa.table(columns)


_FAR = 2**61  # microseconds from 1970: as good as no bound


def _convert_times(values: Any, pieces: RowSelector, type: pa.DataType, *, low: bool) -> pa.Array:
    """Bounds in a type that DuckDB compares with a column, rounded outwards."""
    type = plain_type(type)
    per_us = 1_000 if pieces.unit == "ns" else 1

    def divide(by: int) -> Any:
        return values // by if low else -(-np.maximum(values, -(2**63) + 1) // by)

    if types.is_timestamp(type):
        zone = None if type.tz is None else "UTC"
        ticks = np.clip(divide(per_us), -_FAR, _FAR)
        return pa.array(ticks, pa.int64()).cast(pa.timestamp("us", zone))
    if types.is_date(type):
        days = np.clip(divide(86_400_000_000 * per_us), -1_000_000, 1_000_000)
        return pa.array(days.astype(np.int32), pa.int32()).cast(pa.date32())
    return pa.array(values)


def _format_bound(value: Any, pieces: RowSelector, type: pa.DataType, *, low: bool) -> str | None:
    """A time as SQL; None: an open bound."""
    if value[0] == (pieces.lowest if low else pieces.highest):
        return None
    bound = _convert_times(value, pieces, type, low=low)
    if types.is_timestamp(bound.type):
        name = "make_timestamp" if bound.type.tz is None else "make_timestamptz"
        return f"{name}({bound.cast(pa.int64())[0].as_py()})"
    if types.is_date(bound.type):
        return f"(DATE '1970-01-01' + {bound.cast(pa.int32())[0].as_py()})"
    number = bound[0].as_py()
    return f"CAST('{number!r}' AS DOUBLE)" if isinstance(number, float) else f"({number})"


def _quote(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
