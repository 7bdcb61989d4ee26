"""What a query over a stream and its past means, as a table."""

from typing import Any

import numpy as np
import pyarrow as pa

import ensue
from ensue.algebra.check.correlation import check_correlation
from ensue.archives.contract import Wanted
from ensue.columns.stream import in_order
from ensue.engine.reference_events import events_of
from ensue.runners.tables import stream_of
from ensue.semantics import correlated
from ensue.workload.correlations.pieces import as_times


def judged(
    events: Any,
    query: str,
    *,
    time: Any,
    type: str,
    archives: Any,
    archive: str | None = None,
    **_: Any,
) -> pa.Table:
    """The rows by the reference semantics: a struct for each event, a list for Kleene."""
    table, shape = stream_of(events, time=time, type=type)
    live = in_order(table, shape)
    shapes = {name: one.shape for name, one in archives.items()}
    schemas = {name: one.schema for name, one in shapes.items()}
    checked = check_correlation(ensue.parse(query), shape.schema, schemas)
    past = {name: whole(one) for name, one in archives.items()}
    if archive is not None:
        both = [past[archive], live.cast(past[archive].schema)]
        past[archive] = in_order(pa.concat_tables(both), shapes[archive])

    rows = correlated(
        checked,
        events_of(live, shape.schema, shape.unit),
        {n: events_of(t, shapes[n].schema, shapes[n].unit) for n, t in past.items()},
    )
    wanted = ensue.match(live.slice(0, 0), query, time=time, type=type, archives=archives).schema
    columns = {}
    for field in wanted:
        if field.name not in ("match_id", "start", "end"):
            columns[field.name] = pa.array(
                [_bound(row.binding.get(field.name), field.type) for row in rows], field.type
            )
    return pa.table(columns, schema=pa.schema([wanted.field(name) for name in columns]))


def whole(archive: Any) -> pa.Table:
    """All events of an archive."""
    kind = archive.shape.arrow.field(archive.shape.schema.end).type
    open_ = pa.nulls(1, as_times(np.array([0]), kind, "us", up=True).type)
    return archive.read(Wanted(pa.table({"since": open_, "until": open_}))).events


def _bound(events: Any, type: pa.DataType) -> Any:
    if pa.types.is_list(type):
        return [dict(event.values) for event in events or ()]
    return None if not events else dict(events[0].values)
