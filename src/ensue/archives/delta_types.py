"""Columns of events as a Delta table keeps them."""

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import types

from ensue.archives.own import HIDDEN
from ensue.columns.arrow_kinds import plain_type
from ensue.columns.stream import refuse_own_names
from ensue.errors import EventError, did_you_mean

_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(),
          pa.uint64(): pa.int64(), pa.float16(): pa.float32()}  # fmt: skip


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The types in which a table keeps these columns.

    >>> stored_schema(pa.schema({"t": pa.timestamp("ns"), "n": pa.uint8()}))
    t: timestamp[us]
    n: int16
    """
    refuse_own_names(schema.names)
    for name in schema.names:
        if name in HIDDEN:
            raise EventError(
                f"the events have a column '{name}', a name that archives use internally\n"
                "  hint: rename the column, or leave it out"
            )
    return pa.schema([pa.field(field.name, _stored(field)) for field in schema])


def _stored(field: pa.Field) -> pa.DataType:
    type = plain_type(field.type)
    if types.is_timestamp(type):
        return pa.timestamp("us", None if type.tz is None else "UTC")
    if types.is_large_string(type) or types.is_string_view(type):
        return pa.string()
    if types.is_large_binary(type) or types.is_fixed_size_binary(type):
        return pa.binary()
    if types.is_date(type):
        return pa.date32()
    if types.is_duration(type) or types.is_time(type) or types.is_null(type):
        raise EventError(
            f"column '{field.name}' is {type}, which a Delta table cannot store\n"
            "  hint: cast it to a number or a text, or leave it out"
        )
    return _WIDER.get(type, type)


def as_stored(events: pa.Table, schema: pa.Schema, what: str) -> pa.Table:
    """Events with the columns of a table, in its types. Nothing is cut off silently."""
    missing = [name for name in schema.names if name not in events.column_names]
    extra = [name for name in events.column_names if name not in schema.names]
    if missing or extra:
        raise EventError(_other_columns(missing, extra, schema.names, what))
    columns = []
    for field in schema:
        column = events.column(field.name)
        if column.type != field.type:
            column = _cast(column, field, what)
        columns.append(column)
    return pa.table(columns, schema=schema)


def _cast(column: pa.ChunkedArray, field: pa.Field, what: str) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        fine = types.is_timestamp(field.type) and types.is_timestamp(column.type)
        hint = (
            "Delta tables store microseconds: round the times first"
            if fine
            else f"cast the column to {field.type} first"
        )
        raise EventError(
            f"column '{field.name}' ({column.type}) cannot be put into {what} as {field.type}: "
            f"{str(error).splitlines()[0]}\n  hint: {hint}"
        ) from error


def _other_columns(
    missing: Sequence[str], extra: Sequence[str], known: Sequence[str], what: str
) -> str:
    if missing:
        return (
            f"the events have no column '{missing[0]}', and {what} has\n"
            f"  hint: {did_you_mean(missing[0], extra) or 'add it, with NULL where it is unknown'}"
        )
    return (
        f"the events have a column '{extra[0]}', and {what} has not\n"
        f"  hint: {did_you_mean(extra[0], known) or 'leave it out'}"
    )
