"""Result rows of subscriptions: subscription, times, location and events; JSON values."""

import json
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.projection.match_ids import compute_subscription_ids
from ensue.vector.arrow_numpy import build_texts, to_single_array, wrap_numbers
from ensue.vector.arrow_types import plain_type
from ensue.vector.column_values import Vector, to_arrow
from ensue.vector.event_table import StreamSchema
from ensue.vector.geo_columns import format_match_hulls
from ensue.vector.match_rows import Matches
from ensue.vector.take import take_rows

MEMBERS = "members"
Ints = npt.NDArray[np.int64]


def build_notification_schema(shape: StreamSchema) -> pa.Schema:
    """The columns of matches of subscriptions."""
    time = plain_type(shape.arrow.field(shape.schema.end).type)
    event = pa.struct([pa.field(f.name, plain_type(f.type)) for f in shape.arrow])
    return pa.schema(
        {
            "subscription": pa.string(),
            "match_id": pa.string(),
            "start": time,
            "end": time,
            "location": pa.string(),
            MEMBERS: pa.list_(event),
        }
    )


def build_notifications(
    names: Sequence[str],
    identities: Sequence[bytes],
    which: Ints,
    start: npt.NDArray[Any],
    end: npt.NDArray[Any],
    offsets: Ints,
    members: Ints,
    events: pa.Table,
    shape: StreamSchema,
) -> pa.Table:
    """The result rows of the subscriptions `names[which]`, whose events are rows of `events`."""
    schema = build_notification_schema(shape)
    kind = shape.schema.time_kind
    zone = getattr(schema.field("end").type, "tz", None)

    def times(values: npt.NDArray[Any]) -> pa.Array:
        return to_arrow(Vector(kind, values, np.ones(len(values), np.bool_)), shape.unit, zone)

    matches = Matches({}, {MEMBERS: (offsets, members)}, len(which))
    words = [_words(values, shape.unit) for values in (start, end)]
    fields_of = [(name, name) for name in shape.arrow.names]
    ids = compute_subscription_ids(identities, which, words, matches, events, fields_of, shape.schema.end)
    columns = take_rows(events.select(shape.arrow.names), members).columns
    plain = [to_single_array(column).cast(plain_type(column.type)) for column in columns]
    fields = list(schema.field(MEMBERS).type.value_type)
    values = pa.StructArray.from_arrays(plain, fields=fields)
    lists = pa.ListArray.from_arrays(wrap_numbers(offsets.astype(np.int32)), values)
    locations: pa.Array = pa.nulls(len(which), pa.string())
    if shape.schema.location is not None and len(which):
        locations = format_match_hulls(matches, events, shape.schema)
    subscriptions = build_texts(list(names)).take(wrap_numbers(which))
    arrays = [subscriptions, ids, times(start), times(end), locations, lists]
    casts = [a.cast(t) if a.type != t else a for a, t in zip(arrays, schema.types, strict=True)]
    return pa.table(casts, schema=schema)


def _words(times: npt.NDArray[Any], unit: str) -> Ints:
    """Times as 64-bit words, timestamps in nanoseconds."""
    if times.dtype == np.float64:
        return (times + 0.0).view(np.int64)
    return times * 1_000 if unit == "us" else times


_BILLION = 1_000_000_000


def replace_nanoseconds(kind: pa.DataType) -> pa.DataType:
    """The same type with nanosecond times as integers: Python's datetime cannot hold them."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(replace_nanoseconds(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(replace_nanoseconds(kind.value_type)))
    return kind


def convert_to_json_rows(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table as JSON values.

    >>> convert_to_json_rows(pa.table({"a": [1.5, float("nan")], "at": [datetime(2026, 3, 14), None]}))
    [{'a': 1.5, 'at': '2026-03-14T00:00:00'}, {'a': None, 'at': None}]
    """
    schema = table.schema
    plain = table.cast(pa.schema([f.with_type(replace_nanoseconds(f.type)) for f in schema]))
    return [{field.name: convert_to_json(row[field.name], field.type) for field in schema} for row in plain.to_pylist()]


def convert_to_json(value: Any, kind: pa.DataType) -> Any:
    """A value of an Arrow type as a JSON value; times in ISO 8601, NaN as null."""
    match value:
        case None | bool() | str():
            return value
        case int() if pa.types.is_timestamp(kind):
            return _nanoseconds(value, kind.tz is not None)
        case dict():
            return {f.name: convert_to_json(value[f.name], f.type) for f in kind}
        case list() if pa.types.is_map(kind):
            return {str(key): convert_to_json(item, kind.item_type) for key, item in value}
        case list():
            return [convert_to_json(item, kind.value_type) for item in value]
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


def format_cell(value: Any) -> str:
    """A short text of a JSON value for a table cell, without the UTC offset.

    >>> format_cell({"ts": "2026-03-14T09:06:11.442608+00:00", "tag": "item-7", "n": [1, 2]})
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
            return "{" + ", ".join(f"{k}: {format_cell(v)}" for k, v in value.items()) + "}"
        case list():
            return "[" + ", ".join(format_cell(v) for v in value) + "]"
        case _:
            return json.dumps(value)
