"""What a query over a stream and its past means, as a table."""

from pkgutil import resolve_name
from typing import Any

import numpy as np
import pyarrow as pa

import ensue
from ensue.archives.archive import ArchiveRead
from ensue.backends.dataframe_libs import read_event_table
from ensue.engine.reference_events import read_events
from ensue.operators.archive_join.archived_events import convert_bounds
from ensue.runtime.query_kinds import QueryKind
from ensue.vector.event_table import sort_events


def judged(events: Any, query: Any, kind: QueryKind, *, time: Any, type: str, archives: Any, **_: Any) -> pa.Table:
    """The rows by the reference semantics: a struct for each event, a list for Kleene."""
    archived = ensue.Archives.wrap(archives)
    archives, archive = archived.archives, archived.own
    table, shape = read_event_table(events, time=time, type=type)
    live = sort_events(table, shape)
    shapes = {name: one.shape for name, one in archives.items()}
    schemas = {name: one.schema for name, one in shapes.items()}
    checked = resolve_name(kind.analyze)(query, shape.schema, schemas)
    past = {name: whole(one) for name, one in archives.items()}
    if archive is not None:
        both = [past[archive], live.cast(past[archive].schema)]
        past[archive] = sort_events(pa.concat_tables(both), shapes[archive])

    rows = resolve_name(kind.reference)(
        checked,
        read_events(live, shape.schema, shape.unit),
        {n: read_events(t, shapes[n].schema, shapes[n].unit) for n, t in past.items()},
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
    open_ = pa.nulls(1, convert_bounds(np.array([0]), kind, "us", up=True).type)
    return archive.read(ArchiveRead(pa.table({"since": open_, "until": open_}))).events


def _bound(events: Any, type: pa.DataType) -> Any:
    if pa.types.is_list(type):
        return [dict(event.values) for event in events or ()]
    return None if not events else dict(events[0].values)
