"""Rows of files by DuckDB, which passes over what it need not decode."""

import os
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from ensue.archives import parquet_reader as decoding
from ensue.archives.archive import FileList, get_local_path
from ensue.archives.parquet_reader import FILE, ROW, DecodedRows, fit_columns
from ensue.archives.pruning import FilePruner, cast_keys
from ensue.archives.row_selection import ReadColumns, RowSelector
from ensue.schema import ValueKind
from ensue.vector.arrow_types import kind_of_arrow, plain_type

Ints = npt.NDArray[np.int64]

_VIRTUAL = {"filename", "file_index", "file_row_number", FILE, ROW}
_FEW = 16  # keys that are written into a query; more are joined


def can_read_with_duckdb(
    files: FileList, numbers: Ints, needed: ReadColumns, schema: pa.Schema
) -> bool:
    """Whether DuckDB is installed, and reads these files and columns as Arrow does."""
    return (
        is_duckdb_installed()
        and files.even
        and _told_apart(schema)
        and all(_named(get_local_path(files.paths[k])) for k in numbers.tolist())
        and all(_alike(plain_type(schema.field(name).type)) for name in needed.decoded)
    )


def _named(path: str | None) -> bool:
    """Whether DuckDB takes a path for the name of one local file, and for no pattern."""
    return path is not None and not any(letter in path for letter in "*?[{")


def _told_apart(schema: pa.Schema) -> bool:
    """Whether names differ in more than case, and none is that of a column of DuckDB's own."""
    names = {name.lower() for name in schema.names}
    return len(names) == len(schema.names) and not names & _VIRTUAL


@lru_cache(maxsize=1)
def is_duckdb_installed() -> bool:
    from importlib.util import find_spec

    return find_spec("duckdb") is not None


def _alike(type: pa.DataType) -> bool:
    """Types that come out of DuckDB as they went in, or that a cast brings back."""
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


# One thread: key groups are processes already. The limit is what decoded blocks may take that are kept.
_SETTINGS = (
    "threads = 1",
    "memory_limit = '512MB'",
    "TimeZone = 'UTC'",
    "parquet_metadata_cache = true",
    "preserve_insertion_order = false",
)
_lock = Lock()
_connections: dict[int, Any] = {}  # by process: one that was forked makes its own


def _cursor() -> Any:
    import duckdb

    process = os.getpid()
    with _lock:
        if process not in _connections:
            _connections.clear()
            made = duckdb.connect(":memory:")
            for setting in _SETTINGS:
                made.execute(f"SET {setting}")
            _connections[process] = made
        return _connections[process].cursor()


def read_with_duckdb(
    files: FileList,
    numbers: Ints,
    pieces: RowSelector,
    picker: FilePruner,
    needed: ReadColumns,
    schema: pa.Schema,
) -> DecodedRows:
    """The rows of some files that were asked for, in one query."""
    found = _queried(files, numbers, pieces, needed, schema)
    if found is None:
        return decoding.read_with_pyarrow(files, numbers, pieces, picker, needed, schema)
    return found


def _queried(
    files: FileList, numbers: Ints, pieces: RowSelector, needed: ReadColumns, schema: pa.Schema
) -> DecodedRows | None:
    import duckdb

    paths = [str(get_local_path(files.paths[k])) for k in numbers.tolist()]
    inside = [n for n in needed.decoded if n not in files.partitions]
    condition, values, pieces_table = _condition(files, pieces, schema)
    cursor = _cursor()
    if pieces_table is not None:
        cursor.register("wanted_pieces", pieces_table)
    columns = ", ".join(f"e.{_quoted(n)}" for n in inside)
    query = (
        f"SELECT {columns}{', ' if inside else ''}e.file_index AS {FILE}, "
        f"e.file_row_number AS {ROW} FROM read_parquet(?, hive_partitioning = false) e{condition}"
    )
    try:
        table = cursor.sql(query, params=[paths, *values]).to_arrow_table()
    except duckdb.Error:
        return None  # a file that is not there, or not as others: pyarrow says which, or reads it
    finally:
        cursor.close()
    own = np.asarray(table.column(FILE).to_numpy()).astype(np.int64)
    places = np.asarray(table.column(ROW).to_numpy()).astype(np.int64)
    originals = numbers[own]
    rows = fit_columns(table, files, originals, needed, schema, paths[0])
    holds = pieces.holds(rows)
    for k in np.unique(own[holds]).tolist() if files.left else ():
        kept = files.left.get(files.paths[int(numbers[k])])
        if kept is not None:
            mine = own == k
            holds[mine] &= kept[places[mine]]
    rows = rows.append_column(FILE, pa.array(originals)).append_column(ROW, pa.array(places))
    held = rows if bool(holds.all()) else rows.filter(pa.array(holds))
    return DecodedRows(held, looked_at=table.num_rows)


def _condition(
    files: FileList, pieces: RowSelector, schema: pa.Schema
) -> tuple[str, list[object], pa.Table | None]:
    """What DuckDB may pass over by: all that is wanted holds it, and perhaps more."""
    parts: list[str] = []
    values: list[object] = []
    names, field = pieces.shape.schema, pieces.wanted.field
    bounds = _time_bounds(pieces, schema)
    for name, sign, value in (
        (names.start, ">=", bounds[0]),
        (names.end, "<=", bounds[1]),
    ):
        if value is not None and name not in files.partitions:
            parts.append(f"e.{_quoted(name)} {sign} {value}")
    named, column = pieces.wanted.types, names.type_column
    if named and column is not None and column not in files.partitions and _text(schema, column):
        parts.append(f"e.{_quoted(column)} IN ({', '.join('?' * len(named))})")
        values += sorted(named)
    joined, table = "", None
    if field is not None and field not in files.partitions and _comparable(schema, field):
        keys = cast_keys(pieces.keys, schema.field(field).type)
        distinct = keys.unique().drop_null()
        if len(distinct) <= _FEW:
            marks = ", ".join("?" * len(distinct))
            parts.append(f"e.{_quoted(field)} IN ({marks})" if marks else "false")
            values += distinct.to_pylist()
        else:
            joined, table = _join(pieces, keys, field, schema)
    where = f" WHERE {' AND '.join(parts)}" if parts else ""
    return joined + where, values, table


def _join(
    pieces: RowSelector, keys: pa.Array, field: str, schema: pa.Schema
) -> tuple[str, pa.Table]:
    names = pieces.shape.schema
    columns, on = {"key": keys}, [f"e.{_quoted(field)} = w.key"]
    for name, sign, bound, values in (
        (names.start, ">=", "since", pieces.since),
        (names.end, "<=", "until", pieces.until),
    ):
        columns[bound] = _times(values, pieces, schema.field(name).type, low=bound == "since")
        on.append(f"e.{_quoted(name)} {sign} w.{bound}")
    return f" SEMI JOIN wanted_pieces w ON {' AND '.join(on)}", pa.table(columns)


_FAR = 2**61  # microseconds from 1970 that are as good as no bound


def _times(values: Any, pieces: RowSelector, type: pa.DataType, *, low: bool) -> pa.Array:
    """Bounds as DuckDB compares them with a column: never narrower than they are."""
    type = plain_type(type)
    if types.is_timestamp(type):
        zone = None if type.tz is None else "UTC"
        whole = np.clip(_divided(values, 1_000 if pieces.unit == "ns" else 1, low), -_FAR, _FAR)
        return pa.array(whole, pa.int64()).cast(pa.timestamp("us", zone))
    if types.is_date(type):
        day = 86_400_000_000 * (1_000 if pieces.unit == "ns" else 1)
        days = np.clip(_divided(values, day, low), -1_000_000, 1_000_000)
        return pa.array(days.astype(np.int32), pa.int32()).cast(pa.date32())
    return pa.array(values)


def _divided(values: Any, by: int, low: bool) -> Any:
    return values // by if low else -(-np.maximum(values, -(2**63) + 1) // by)


def _time_bounds(pieces: RowSelector, schema: pa.Schema) -> tuple[str | None, str | None]:
    """The first and the last time of all pieces, as SQL; None: open."""
    names = pieces.shape.schema
    first, last = pieces.since.min(keepdims=True), pieces.until.max(keepdims=True)
    return (
        _written(first, pieces, schema.field(names.start).type, low=True),
        _written(last, pieces, schema.field(names.end).type, low=False),
    )


def _written(value: Any, pieces: RowSelector, type: pa.DataType, *, low: bool) -> str | None:
    if value[0] == (pieces.lowest if low else pieces.highest):
        return None
    found = _times(value, pieces, type, low=low)
    if types.is_timestamp(found.type):
        name = "make_timestamp" if found.type.tz is None else "make_timestamptz"
        return f"{name}({found.cast(pa.int64())[0].as_py()})"
    if types.is_date(found.type):
        return f"(DATE '1970-01-01' + {found.cast(pa.int32())[0].as_py()})"
    number = found[0].as_py()
    return f"CAST('{number!r}' AS DOUBLE)" if isinstance(number, float) else f"({number})"


def _comparable(schema: pa.Schema, name: str) -> bool:
    """Whether equal keys are equal to DuckDB too, when they are of the column's type."""
    kind = kind_of_arrow(schema.field(name).type)
    return kind in (
        ValueKind.INTEGER,
        ValueKind.STRING,
        ValueKind.BOOLEAN,
        ValueKind.DATE,
        ValueKind.FLOAT,
    )


def _text(schema: pa.Schema, name: str) -> bool:
    return kind_of_arrow(schema.field(name).type) is ValueKind.STRING


def _quoted(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'
