"""Reads the events and matches of a plot from tables that may be large."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.archives.factory import convert_to_table
from ensue.backends.dataframe_libs import read_event_table
from ensue.errors import EnsueError, EventError, did_you_mean
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.lineage.pictures import OTHER_EVENTS, PlotData, PlottedEvent
from ensue.lineage.text import format_fields
from ensue.lineage.trace import OWN_COLUMNS, MemberNode, trace_match
from ensue.vector.event_table import StreamSchema
from ensue.vector.take import take_rows

_MAX_HINT = 400  # characters that an event shows under the pointer


def read_plot_data(
    matches: Any,
    events: Any,
    query: Query | Hierarchy | None,
    *,
    time: str | tuple[str, str],
    type: str | None,
    by: str | None,
    most_matches: int,
    most_events: int,
) -> PlotData:
    """Reads the first matches, and the events from the first of them to the last."""
    table, shape = read_event_table(events, time=time, type=type)
    all_matches = _read_matches(matches)
    first_matches = all_matches.slice(0, most_matches)
    group_by = by or shape.schema.type_column
    if group_by is not None and group_by not in table.column_names:
        hint = did_you_mean(group_by, table.column_names)
        raise EventError(f"by={group_by!r} is not a column of the events\n  hint: {hint}")
    near = _select_events(table, shape, first_matches)
    sample = np.arange(near.num_rows)
    if near.num_rows > most_events:
        sample = np.arange(most_events) * near.num_rows // most_events
    rows = _to_microseconds(take_rows(near, sample.astype(np.int64))).to_pylist()
    return PlotData(
        [
            PlottedEvent(
                row[shape.schema.start],
                row[shape.schema.end],
                OTHER_EVENTS if group_by is None else str(row.get(group_by)),
                format_fields(row, _MAX_HINT),
            )
            for row in rows
        ],
        [_build_node(row, query, time) for row in _to_microseconds(first_matches).to_pylist()],
        table.num_rows,
        all_matches.num_rows,
        group_by,
    )


def _read_matches(matches: Any) -> pa.Table:
    if isinstance(matches, list):
        matches = pa.Table.from_pylist(matches)
    if any(c.__module__.startswith("pyspark.") for c in matches.__class__.__mro__):
        raise EventError("plots need matches in memory\n  hint: matches.limit(100).toArrow() collects some")
    table = convert_to_table(matches)
    for name in ("start", "end"):
        if name not in table.column_names:
            raise EventError(
                f"the matches have no column '{name}'\n"
                "  hint: pass the result of ensue.match, and the events it was called with"
            )
    return table


def _build_node(row: dict[str, Any], query: Query | Hierarchy | None, time: Any) -> MemberNode:
    """Builds a match with its members, or without them if the row has none."""
    try:
        return trace_match(row, query, None, time).root
    except EnsueError:
        fields = {name: value for name, value in row.items() if name not in OWN_COLUMNS}
        return MemberNode("", fields, row["start"], row["end"])


def _select_events(events: pa.Table, shape: StreamSchema, matches: pa.Table) -> pa.Table:
    """Selects the events with a time, in the time of the matches if there are any."""
    start, end = (events.column(name) for name in (shape.schema.start, shape.schema.end))
    selected = pc.and_(pc.is_valid(start), pc.is_valid(end))
    if matches.num_rows:
        first = pc.min(matches.column("start")).cast(start.type)
        last = pc.max(matches.column("end")).cast(end.type)
        inside = pc.and_(pc.greater_equal(end, first), pc.less_equal(start, last))
        selected = pc.and_(selected, inside)
    rows = pc.indices_nonzero(selected)
    return take_rows(events, rows.take(pc.sort_indices(start.take(rows))).to_numpy())


def _to_microseconds(table: pa.Table) -> pa.Table:
    """Casts times to microseconds, which Python can hold."""
    kinds = [field.with_type(_cast_type(field.type)) for field in table.schema]
    return table.cast(pa.schema(kinds), safe=False)


def _cast_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_cast_type(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_cast_type(kind.value_type)))
    return kind
