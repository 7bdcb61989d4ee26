"""Towers over tables in memory."""

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.algebra.tower import Tower
from ensue.algebra.walk import positives
from ensue.columns.stream import Shape, ends, in_order, located
from ensue.engine.interrupts import listening
from ensue.errors import did_you_mean
from ensue.runners.local import SLICE, Progress, stream_of
from ensue.workload.arguments import Arguments
from ensue.workload.foresight import warn_of_explosion
from ensue.workload.live_tower import LiveTower, concatenated
from ensue.workload.prepare_tower import prepare_tower
from ensue.workload.prepared_tower import PreparedTower
from ensue.workload.stages import prepare_stages, types_that_matter


def match(
    events: Any,
    tower: Tower,
    given: Arguments,
    progress: Progress | None = None,
    *,
    levels: Sequence[str] | str | None = None,
    trace: bool = False,
) -> dict[str, pa.Table]:
    """The complex events of each level that is delivered, the query on top last."""
    table, shape = stream_of(events, time=given.time, type=given.type, order=given.order)
    whole = located(shape, given.location)
    prepared = prepare_tower(tower, whole, given.planning, levels=levels, trace=trace)
    ordered = in_order(table, shape, given.bad_events, types_that_matter(prepare_stages(prepared)))
    for layer in prepared.layers:
        warn_of_explosion(layer.prepared, stacklevel=5)
    with listening():
        found = match_in_order(prepared, ordered, progress)
    if table.num_rows and not found[prepared.layers[-1].layer.name].num_rows:
        _warn_of_unseen(tower, table, shape)
    return found


def _warn_of_unseen(tower: Tower, events: pa.Table, shape: Shape) -> None:
    """There is no match: maybe a type is misspelt."""
    column = shape.schema.type_column
    if column is None:
        return
    seen = {str(v) for v in events.column(column).unique().to_pylist() if v is not None}
    queries = (*(definition.query for definition in tower.definitions), tower.query)
    named = dict.fromkeys(atom.type for query in queries for atom in positives(query.pattern))
    for name in named:
        if name not in seen and name not in tower.names:
            hint = did_you_mean(name, [*tower.names, *sorted(seen)])
            warnings.warn(f"no event is of type '{name}': {hint}", stacklevel=5)


def match_in_order(
    prepared: PreparedTower, events: pa.Table, progress: Progress | None = None
) -> dict[str, pa.Table]:
    """The same for events that are in the order of the stream."""
    live = LiveTower(prepared)
    rounds = []
    held = 0
    for piece in _pieces(events, prepared):
        rounds.append(live.feed(piece))
        held += sum(table.nbytes for table in rounds[-1])
        live.others_hold(held)
        if progress is not None:
            progress(live.rows, events.num_rows)
    rounds.append(live.finish())
    return {
        name: concatenated(schema, [tables[k] for tables in rounds])
        for k, (name, schema) in enumerate(prepared.delivered.items())
    }


def _pieces(events: pa.Table, prepared: PreparedTower) -> list[pa.Table]:
    """Pieces of bounded size; events of the same time stay together."""
    if events.num_rows <= SLICE:
        return [events] if events.num_rows else []
    times = ends(events, prepared.shape)
    cuts = [0]
    while cuts[-1] < events.num_rows:
        wanted = min(cuts[-1] + SLICE, events.num_rows)
        cuts.append(int(np.searchsorted(times, times[wanted - 1], side="right")))
    return [events.slice(a, b - a) for a, b in pairwise(cuts)]
