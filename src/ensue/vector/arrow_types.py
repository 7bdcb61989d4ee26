"""Kinds, time zones and time units of Arrow types."""

from functools import lru_cache
from typing import Literal as OneOf

import pyarrow as pa
from pyarrow import types

from ensue.ir.selection import ByTime, ByUnits, Window
from ensue.schema import ValueKind

Unit = OneOf["us", "ns"]


@lru_cache(maxsize=1_024)
def kind_of_arrow(type: pa.DataType) -> ValueKind:
    """The kind of an Arrow type, regardless of width and encoding.

    >>> kind_of_arrow(pa.int8()), kind_of_arrow(pa.dictionary(pa.int32(), pa.string()))
    (<ValueKind.INTEGER: 'integer'>, <ValueKind.STRING: 'string'>)
    """
    type = plain_type(type)
    if types.is_boolean(type):
        return ValueKind.BOOLEAN
    if types.is_integer(type):
        return ValueKind.INTEGER
    if types.is_floating(type):
        return ValueKind.FLOAT
    if types.is_decimal(type):
        return ValueKind.DECIMAL
    if is_text(type):
        return ValueKind.STRING
    if types.is_timestamp(type):
        return ValueKind.TIMESTAMP
    if types.is_date(type):
        return ValueKind.DATE
    if types.is_duration(type):
        return ValueKind.DURATION
    return ValueKind.NULL if types.is_null(type) else ValueKind.OTHER


def plain_type(type: pa.DataType) -> pa.DataType:
    """The value type without dictionary, run-end and extension encodings."""
    if isinstance(type, pa.BaseExtensionType):
        return plain_type(type.storage_type)
    if types.is_dictionary(type) or types.is_run_end_encoded(type):
        return plain_type(type.value_type)
    return type


def is_text(type: pa.DataType) -> bool:
    """Whether a type is a string with 32-bit or 64-bit offsets, or a view."""
    return bool(types.is_string(type) or types.is_large_string(type) or types.is_string_view(type))


def get_field_kinds(schema: pa.Schema) -> dict[str, ValueKind]:
    """The kinds of a schema's columns.

    >>> get_field_kinds(pa.schema({"id": pa.int32(), "at": pa.timestamp("ms")}))
    {'id': <ValueKind.INTEGER: 'integer'>, 'at': <ValueKind.TIMESTAMP: 'timestamp'>}
    """
    return {field.name: kind_of_arrow(field.type) for field in schema}


def get_time_zones(schema: pa.Schema, session: str | None = None) -> dict[str, str]:
    """The time zones of the zoned columns; `session` overrides them.

    >>> get_time_zones(pa.schema({"at": pa.timestamp("ms", "Asia/Tokyo"), "day": pa.date32()}))
    {'at': 'Asia/Tokyo'}
    """
    plain = {field.name: plain_type(field.type) for field in schema}
    zoned = {n: t.tz for n, t in plain.items() if types.is_timestamp(t) and t.tz is not None}
    return {name: session or str(zone) for name, zone in zoned.items()}


def time_unit(schema: pa.Schema) -> Unit:
    """The unit for all times of a table: microseconds, unless a column has nanoseconds.

    >>> time_unit(pa.schema({"at": pa.timestamp("ms")}))
    'us'
    >>> time_unit(pa.schema({"at": pa.timestamp("ms"), "took": pa.duration("ns")}))
    'ns'
    """
    for field in schema:
        type = plain_type(field.type)
        if (types.is_timestamp(type) or types.is_duration(type)) and type.unit == "ns":
            return "ns"
    return "us"


def window_to_ticks(window: Window | None, unit: Unit) -> int | float | None:
    """The length of a window in `unit`; None if it counts events or is unbounded.

    >>> window_to_ticks(ByTime(5_000), "us"), window_to_ticks(ByUnits(20), "ns")
    (5, 20)
    """
    match window:
        case ByTime(nanoseconds=length):
            return length if unit == "ns" else length // 1_000
        case ByUnits(amount=amount):
            return amount
        case _:
            return None
