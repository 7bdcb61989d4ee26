"""Kinds, time zones and time units of Arrow types."""

from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import pyarrow as pa
from pyarrow import types

from ensue.ir.selection import ByTime, ByUnits, Window
from ensue.schema import ValueKind

Unit = Literal["us", "ns"]


@lru_cache(maxsize=1_024)
def kind_of_arrow(type: pa.DataType) -> ValueKind:
    """The kind of an Arrow type, regardless of width and encoding.

    >>> kind_of_arrow(pa.int8()), kind_of_arrow(pa.dictionary(pa.int32(), pa.string()))
    (<ValueKind.INTEGER: 'integer'>, <ValueKind.STRING: 'string'>)
    """
    plain = plain_type(type)
    return next((kind for is_kind, kind in _KINDS if is_kind(plain)), ValueKind.OTHER)


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


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], ValueKind], ...] = (
    (types.is_boolean, ValueKind.BOOLEAN),
    (types.is_integer, ValueKind.INTEGER),
    (types.is_floating, ValueKind.FLOAT),
    (types.is_decimal, ValueKind.DECIMAL),
    (is_text, ValueKind.STRING),
    (types.is_timestamp, ValueKind.TIMESTAMP),
    (types.is_date, ValueKind.DATE),
    (types.is_duration, ValueKind.DURATION),
    (types.is_null, ValueKind.NULL),
)


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
