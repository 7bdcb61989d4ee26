"""Runs a query with counters, and tells the plan's estimates beside what happened."""

from time import perf_counter

import pyarrow as pa

from ensue.columns.stream import slices
from ensue.engine.engine import Engine
from ensue.plan.estimates.analysis import Met, analysed
from ensue.plan.show.explain import explain
from ensue.workload.prepared import Prepared, build_result

PIECE = 1 << 16  # events between two looks at the partial matches
FIRST = 100  # events that let all kernels be compiled


def analysed_query(prepared: Prepared, ordered: pa.Table) -> str:
    """The plan as text, with a section of estimates and actual figures.

    The events are in the order of the stream.
    """
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
