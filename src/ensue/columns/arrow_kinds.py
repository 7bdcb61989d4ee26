"""What Arrow types mean to predicates."""

from functools import lru_cache
from typing import Literal as OneOf

import pyarrow as pa
from pyarrow import types

from ensue.algebra.window import ByTime, ByUnits, Window
from ensue.schema import Kind

Unit = OneOf["us", "ns"]


@lru_cache(maxsize=1_024)
def kind_of_arrow(type: pa.DataType) -> Kind:
    """The kind of an Arrow type, whatever its width or encoding.

    >>> kind_of_arrow(pa.int8()), kind_of_arrow(pa.dictionary(pa.int32(), pa.string()))
    (<Kind.INTEGER: 'integer'>, <Kind.STRING: 'string'>)
    """
    type = plain_type(type)
    if types.is_boolean(type):
        return Kind.BOOLEAN
    if types.is_integer(type):
        return Kind.INTEGER
    if types.is_floating(type):
        return Kind.FLOAT
    if types.is_decimal(type):
        return Kind.DECIMAL
    if is_text(type):
        return Kind.STRING
    if types.is_timestamp(type):
        return Kind.TIMESTAMP
    if types.is_date(type):
        return Kind.DATE
    if types.is_duration(type):
        return Kind.DURATION
    return Kind.NULL if types.is_null(type) else Kind.OTHER


def plain_type(type: pa.DataType) -> pa.DataType:
    """The type of the values, below dictionaries, run ends and extensions."""
    if isinstance(type, pa.BaseExtensionType):
        return plain_type(type.storage_type)
    if types.is_dictionary(type) or types.is_run_end_encoded(type):
        return plain_type(type.value_type)
    return type


def is_text(type: pa.DataType) -> bool:
    """Strings with 32-bit or 64-bit offsets, or as views."""
    return bool(types.is_string(type) or types.is_large_string(type) or types.is_string_view(type))


def fields_of(schema: pa.Schema) -> dict[str, Kind]:
    """The kinds of a table's columns.

    >>> fields_of(pa.schema({"id": pa.int32(), "at": pa.timestamp("ms")}))
    {'id': <Kind.INTEGER: 'integer'>, 'at': <Kind.TIMESTAMP: 'timestamp'>}
    """
    return {field.name: kind_of_arrow(field.type) for field in schema}


def zones_of(schema: pa.Schema, session: str | None = None) -> dict[str, str]:
    """The zones of the columns that hold times with one: that of a session, where it has one.

    >>> zones_of(pa.schema({"at": pa.timestamp("ms", "Asia/Tokyo"), "day": pa.date32()}))
    {'at': 'Asia/Tokyo'}
    """
    plain = {field.name: plain_type(field.type) for field in schema}
    zoned = {n: t.tz for n, t in plain.items() if types.is_timestamp(t) and t.tz is not None}
    return {name: session or str(zone) for name, zone in zoned.items()}


def time_unit(schema: pa.Schema) -> Unit:
    """The unit in which all times of a table are computed: microseconds, unless one is finer.

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


def length_of(window: Window | None, unit: Unit) -> int | float | None:
    """How long a window is in the unit of the time arrays; None if it counts events, or no end.

    >>> length_of(ByTime(5_000), "us"), length_of(ByUnits(20), "ns")
    (5, 20)
    """
    match window:
        case ByTime(nanoseconds=length):
            return length if unit == "ns" else length // 1_000
        case ByUnits(amount=amount):
            return amount
        case _:
            return None
