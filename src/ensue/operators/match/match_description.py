"""Describes the plans of pattern queries, what they share, and the figures of their runs."""

import math
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

import pyarrow as pa

from ensue.engine.engine import Engine
from ensue.engine.program import warn_about_compile_time
from ensue.operators.match.shared_engine import count_uses, create_shared_engines
from ensue.planner.explain.plan_description import describe_memory
from ensue.planner.explain.plan_node import PlanNode, combine_plans
from ensue.planner.explain.run_metrics import RunCounts, describe_run
from ensue.runtime.compiled_query import CompiledQuery, build_result
from ensue.runtime.grouping import describe_result_modifiers
from ensue.runtime.stage import OutputTable
from ensue.vector.event_table import split_table

PIECE = 1 << 16  # events between two counts of the partial matches
FIRST = 100  # events after which all kernels are compiled


def describe_queries(
    queries: Sequence[CompiledQuery], outputs: Sequence[OutputTable], ordered: pa.Table | None
) -> PlanNode:
    """Describes queries over one scan; over events in stream order, each runs alone to be measured."""
    pairs = list(zip(queries, outputs, strict=True))
    plans = {output.name: _describe_query(query, output, ordered) for query, output in pairs}
    if len(plans) == 1:
        return combine_plans(plans)
    engines = create_shared_engines(queries)
    alike = [", ".join(str(outputs[n].name) for n in engine.members) for engine in engines if len(engine.members) > 1]
    roles = count_uses(engines).roles
    facts = (
        ("engines", "; ".join([str(len(engines)), *(f"one for {names}, which find the same" for names in alike)])),
        ("tests", f"{len(roles)} of single events, used {roles.total()} times"),
    )
    return combine_plans(plans, PlanNode(f"{len(plans)} queries, one scan of the events", facts))


def _describe_query(prepared: CompiledQuery, output: OutputTable, ordered: pa.Table | None) -> PlanNode:
    plan, limits = prepared.plan, prepared.planning.limits
    sections = [PlanNode(text) for text in warn_about_compile_time(plan, prepared.physical[1], prepared.shape.unit)]
    sections += [] if output.finishing is None else [describe_result_modifiers(output.finishing)]
    sections += [describe_memory(plan, limits)] if limits.can_evict else []
    sections += [] if ordered is None else [describe_run(plan, _run_counted(prepared, ordered))]
    described = prepared.describe()
    return replace(described, children=(*described.children, *sections))


def _run_counted(prepared: CompiledQuery, ordered: pa.Table) -> RunCounts:
    """Runs a query and counts; the events are in stream order."""
    began = perf_counter()
    warm_up = prepared.engine(counted=True)
    if isinstance(warm_up, Engine):  # compile time is reported apart
        warm_up.process(ordered.slice(0, FIRST))
        warm_up.on_watermark(warm_up.now or 0)
    compiled = perf_counter()
    engine = prepared.engine(counted=True)
    found, most = [], 0
    for piece in split_table(ordered, PIECE):
        found.append(engine.process(piece))
        if isinstance(engine, Engine) and engine.now is not None:
            found.append(engine.on_watermark(engine.now))  # drops expired partial matches
            most = max(most, engine.partial_matches)
    counters = engine.counters() if isinstance(engine, Engine) else None
    found.append(engine.on_watermark(math.inf))
    matched = perf_counter()
    count = sum(build_result(prepared, matches, ordered).num_rows for matches in found)
    done = perf_counter()
    seconds = (("compiling", compiled - began), ("matching", matched - compiled), ("results", done - matched))
    return RunCounts(ordered.num_rows, count, counters, most, seconds)
