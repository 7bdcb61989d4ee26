"""Runs a query with counters, and tells the plan's estimates beside what happened."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from ensue.algebra.query import Query
from ensue.columns.stream import in_order, slices
from ensue.engine.engine import Engine
from ensue.plan.estimates.analysis import Met, analysed
from ensue.plan.planning import Planning
from ensue.plan.show.explain import explain
from ensue.runners.tables import stream_of
from ensue.workload.prepared import build_result, prepare
from ensue.workload.relevance import types_that_matter

PIECE = 1 << 16  # events between two looks at the partial matches
FIRST = 100  # events that let all kernels be compiled


def analysis(
    events: Any,
    query: Query,
    planning: Planning,
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
) -> str:
    """The plan as text, with a section of estimates and actual figures."""
    table, shape = stream_of(events, time=time, type=type, order=order)
    prepared = prepare(query, shape, planning)
    ordered = in_order(table, shape, types=types_that_matter((prepared,)))
    began = perf_counter()
    tried = prepared.engine(counted=True)
    if isinstance(tried, Engine):
        tried.feed(ordered.slice(0, FIRST))  # what is compiled now is told apart
        tried.advance(tried.now or 0)
    compiled = perf_counter()
    engine = prepared.engine(counted=True)
    found, most = [], 0
    for piece in slices(ordered, PIECE):
        found.append(engine.feed(piece))
        if isinstance(engine, Engine) and engine.now is not None:
            found.append(engine.advance(engine.now))  # what is out of its window is gone
            most = max(most, engine.partial_matches)
    counters = engine.counters() if isinstance(engine, Engine) else None
    found.append(engine.finish())
    matched = perf_counter()
    count = sum(build_result(prepared, matches, ordered).num_rows for matches in found)
    done = perf_counter()
    seconds = (
        ("compiling", compiled - began),
        ("matching", matched - compiled),
        ("results", done - matched),
    )
    met = Met(ordered.num_rows, count, counters, most, seconds)
    return f"{explain(prepared.plan)}\n\n{analysed(prepared.plan, met)}"
