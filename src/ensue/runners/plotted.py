"""What a plot of matches over their stream shows of tables that may be large."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.query import Query
from ensue.algebra.tower import Tower
from ensue.archives.opening import table_of
from ensue.columns.rows import rows_taken
from ensue.columns.stream import Shape
from ensue.errors import EnsueError, EventError, did_you_mean
from ensue.runners.tables import stream_of
from ensue.tracing.members import OWN, Node
from ensue.tracing.plot import Plotted, PlottedEvent, says, spread
from ensue.tracing.trace import trace_of


def plotted(
    matches: Any,
    events: Any,
    query: Query | Tower | None,
    *,
    time: str | tuple[str, str],
    type: str | None,
    by: str | None,
    most_matches: int,
    most_events: int,
) -> Plotted:
    """The first matches, and the events from the first of them to the last."""
    table, shape = stream_of(events, time=time, type=type)
    found = _matches(matches)
    shown = [_node(row, query, time) for row in _plain(found.slice(0, most_matches)).to_pylist()]
    lane = by or shape.schema.type_column
    if lane is not None and lane not in table.column_names:
        hint = did_you_mean(lane, table.column_names)
        raise EventError(f"by={lane!r} is no column of the events\n  hint: {hint}")
    near = _near(table, shape, found.slice(0, most_matches))
    drawn = rows_taken(near, np.array(list(spread(near.num_rows, most_events)), np.int64))
    return Plotted(
        [_event(row, shape, lane) for row in _plain(drawn).to_pylist()],
        shown,
        table.num_rows,
        found.num_rows,
        lane,
    )


def _matches(matches: Any) -> pa.Table:
    if isinstance(matches, list):
        matches = pa.Table.from_pylist(matches)
    if any(c.__module__.startswith("pyspark.") for c in matches.__class__.__mro__):
        raise EventError(
            "a plot is of matches that are here\n  hint: matches.limit(100).toArrow() gets some"
        )
    found = table_of(matches)
    for name in ("start", "end"):
        if name not in found.column_names:
            raise EventError(
                f"these are no matches: they have no column '{name}'\n"
                "  hint: plot what ensue.match gives, and the events that it was given"
            )
    return found


def _node(row: dict[str, Any], query: Query | Tower | None, time: Any) -> Node:
    """A match with its members; without them where it does not tell any."""
    try:
        return trace_of(row, query, None, time).root
    except EnsueError:
        fields = {name: value for name, value in row.items() if name not in OWN}
        return Node("", fields, row["start"], row["end"])


def _near(events: pa.Table, shape: Shape, matches: pa.Table) -> pa.Table:
    """The events while the matches last, and those with a time where there are no matches."""
    start, end = (events.column(name) for name in (shape.schema.start, shape.schema.end))
    wanted = pc.and_(pc.is_valid(start), pc.is_valid(end))
    if matches.num_rows:
        first = pc.min(matches.column("start")).cast(start.type)
        last = pc.max(matches.column("end")).cast(end.type)
        inside = pc.and_(pc.greater_equal(end, first), pc.less_equal(start, last))
        wanted = pc.and_(wanted, inside)
    places = pc.indices_nonzero(wanted)
    return rows_taken(events, places.take(pc.sort_indices(start.take(places))).to_numpy())


def _event(row: dict[str, Any], shape: Shape, lane: str | None) -> PlottedEvent:
    start, end = row[shape.schema.start], row[shape.schema.end]
    name = "other events" if lane is None else str(row.get(lane))
    return PlottedEvent(start, end, name, says(row))


def _plain(table: pa.Table) -> pa.Table:
    """The same with times that Python can hold: to the microsecond."""
    kinds = [field.with_type(_microseconds(field.type)) for field in table.schema]
    return table.cast(pa.schema(kinds), safe=False)


def _microseconds(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_microseconds(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_microseconds(kind.value_type)))
    return kind
