"""Matches of subscriptions as rows: who is told, from when to when, where, and which events."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.arrow_kinds import plain_type
from ensue.columns.location import hull_texts
from ensue.columns.matches import Matches
from ensue.columns.rows import rows_taken
from ensue.columns.stream import Shape
from ensue.columns.values import Vector, to_arrow
from ensue.results.identity import subscription_ids

MEMBERS = "members"
Ints = npt.NDArray[np.int64]


def notified_schema(shape: Shape) -> pa.Schema:
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


def notified(
    names: Sequence[str],
    identities: Sequence[bytes],
    which: Ints,
    start: npt.NDArray[Any],
    end: npt.NDArray[Any],
    offsets: Ints,
    members: Ints,
    events: pa.Table,
    shape: Shape,
) -> pa.Table:
    """The rows of matches: of the subscriptions `names[which]`, made of rows of `events`."""
    schema = notified_schema(shape)
    kind = shape.schema.time_kind
    zone = getattr(schema.field("end").type, "tz", None)

    def times(values: npt.NDArray[Any]) -> pa.Array:
        return to_arrow(Vector(kind, values, np.ones(len(values), np.bool_)), shape.unit, zone)

    matches = Matches({}, {MEMBERS: (offsets, members)}, len(which))
    words = [_words(values, shape.unit) for values in (start, end)]
    fields_of = [(name, name) for name in shape.arrow.names]
    ids = subscription_ids(identities, which, words, matches, events, fields_of, shape.schema.end)
    bare = events.select(shape.arrow.names)
    arrays = [rows_taken(bare, members).column(name) for name in bare.column_names]
    plain = [_plain(array).cast(plain_type(array.type)) for array in arrays]
    fields = list(schema.field(MEMBERS).type.value_type)
    values = pa.StructArray.from_arrays(plain, fields=fields)
    lists = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
    where: pa.Array = pa.nulls(len(which), pa.string())
    if shape.schema.location is not None and len(which):
        where = hull_texts(matches, events, shape.schema)
    told = pa.array(list(names), pa.string()).take(pa.array(which))
    columns = [told, ids, times(start), times(end), where, lists]
    fitting = [c.cast(t) if c.type != t else c for c, t in zip(columns, schema.types, strict=True)]
    return pa.table(fitting, schema=schema)


def _plain(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _words(times: npt.NDArray[Any], unit: str) -> Ints:
    """Times as words: in nanoseconds where they are moments."""
    if times.dtype == np.float64:
        return (times + 0.0).view(np.int64)
    return times * 1_000 if unit == "us" else times
