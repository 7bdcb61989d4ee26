"""The values of matches as JSON has them and as a person reads them."""

import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

_BILLION = 1_000_000_000


def countable(kind: pa.DataType) -> pa.DataType:
    """The same type with nanosecond times as integers: Python's datetime cannot hold them."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(countable(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(countable(kind.value_type)))
    return kind


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, every value as JSON can hold it.

    >>> rows(pa.table({"a": [1.5, float("nan")], "at": [datetime(2026, 3, 14), None]}))
    [{'a': 1.5, 'at': '2026-03-14T00:00:00'}, {'a': None, 'at': None}]
    """
    schema = table.schema
    plain = table.cast(pa.schema([f.with_type(countable(f.type)) for f in schema]))
    return [
        {field.name: jsonable(row[field.name], field.type) for field in schema}
        for row in plain.to_pylist()
    ]


def jsonable(value: Any, kind: pa.DataType) -> Any:
    """A value of an Arrow type as JSON can hold it; times in ISO 8601, NaN as null."""
    match value:
        case None | bool() | str():
            return value
        case int() if pa.types.is_timestamp(kind):
            return _nanoseconds(value, kind.tz is not None)
        case dict():
            return {f.name: jsonable(value[f.name], f.type) for f in kind}
        case list() if pa.types.is_map(kind):
            return {str(key): jsonable(item, kind.item_type) for key, item in value}
        case list():
            return [jsonable(item, kind.value_type) for item in value]
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return value.hex()
        case _:
            return value


def _nanoseconds(since_epoch: int, zoned: bool) -> str:
    seconds, rest = divmod(since_epoch, _BILLION)
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{moment}{fraction}{'+00:00' if zoned else ''}"


def readable(value: Any) -> str:
    """A JSON value for a cell of a table, short; UTC is left unsaid.

    >>> readable({"ts": "2026-03-14T09:06:11.442608+00:00", "tag": "item-7", "n": [1, 2]})
    '{ts: 2026-03-14 09:06:11.442608, tag: item-7, n: [1, 2]}'
    """
    match value:
        case None:
            return "null"
        case str() if value[10:11] == "T" and value[:4].isdigit() and value[13:14] == ":":
            return value.replace("T", " ", 1).removesuffix("+00:00")
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.10g}"
        case dict():
            return "{" + ", ".join(f"{k}: {readable(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(readable(v) for v in value) + "]"
        case _:
            return json.dumps(value)
