"""Towers over tables in memory."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.algebra.tower import Tower
from ensue.compile.live_tower import LiveTower, concatenated
from ensue.compile.stream import ends, in_order, located
from ensue.compile.tower import PreparedTower, prepare_tower
from ensue.plan.planning import DEFAULT, Planning
from ensue.runners.local import SLICE, Progress, stream_of


def match(
    events: Any,
    tower: Tower,
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
    location: str | None = None,
    bad_events: str = "raise",
    levels: Sequence[str] | str | None = None,
    trace: bool = False,
    planning: Planning = DEFAULT,
    progress: Progress | None = None,
) -> dict[str, pa.Table]:
    """The complex events of each level that is delivered, the query on top last."""
    table, shape = stream_of(events, time=time, type=type, order=order)
    prepared = prepare_tower(tower, located(shape, location), planning, levels=levels, trace=trace)
    return match_in_order(prepared, in_order(table, shape, bad_events), progress)


def match_in_order(
    prepared: PreparedTower, events: pa.Table, progress: Progress | None = None
) -> dict[str, pa.Table]:
    """The same for events that are in the order of the stream."""
    live = LiveTower(prepared)
    rounds = []
    for piece in _pieces(events, prepared):
        rounds.append(live.feed(piece))
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
