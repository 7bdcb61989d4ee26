"""Columns of one name in several tables, as one type that all of them fit into."""

from collections.abc import Mapping

import pyarrow as pa
from pyarrow import types

from ensue.columns.arrow_kinds import is_text, plain_type
from ensue.columns.buffers import plain_text
from ensue.errors import EventError


def alike(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """The tables with what Arrow does not bring together itself.

    Text of one library is stored otherwise than that of another, and times of different zones are
    instants all the same: their column is in UTC then.

    >>> zurich = pa.table({"t": pa.array([0], pa.timestamp("us", "Europe/Zurich"))})
    >>> tokyo = pa.table({"t": pa.array([0], pa.timestamp("ns", "Asia/Tokyo"))})
    >>> alike({"Z": zurich, "T": tokyo})["Z"].schema.field("t").type
    TimestampType(timestamp[us, tz=UTC])
    """
    found = dict(tables)
    every = {name for table in tables.values() for name in table.column_names}
    for column in sorted(every):
        given = {
            name: table.schema.field(column).type
            for name, table in tables.items()
            if column in table.column_names
        }
        if len(set(given.values())) < 2:
            continue
        plain = [plain_type(type) for type in given.values()]
        if all(map(is_text, plain)):
            found |= {name: _as_text(found[name], column) for name in given}
        elif all(map(types.is_timestamp, plain)):
            _refuse_zoneless(column, given)
            if len({type.tz for type in plain}) > 1:
                found |= {name: _in_utc(found[name], column) for name in given}
    return found


def _as_text(table: pa.Table, column: str) -> pa.Table:
    chunks = [plain_text(chunk) for chunk in table.column(column).chunks]
    return _with(table, column, pa.chunked_array(chunks, None if chunks else pa.string()))


def _in_utc(table: pa.Table, column: str) -> pa.Table:
    times = table.column(column)
    return _with(table, column, times.cast(pa.timestamp(plain_type(times.type).unit, "UTC")))


def _with(table: pa.Table, column: str, values: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(column), column, values)


def _refuse_zoneless(column: str, given: Mapping[str, pa.DataType]) -> None:
    zoned = [name for name, type in given.items() if plain_type(type).tz is not None]
    others = [name for name in given if name not in zoned]
    if zoned and others:
        raise EventError(
            f"the times in '{column}' have a zone in {', '.join(zoned)} "
            f"({plain_type(given[zoned[0]]).tz}) and none in {', '.join(others)}, so they "
            "cannot be ordered\n"
            "  hint: give all of them a zone, as tz_localize does in pandas, "
            "replace_time_zone in Polars and timezone(...) in DuckDB"
        )
