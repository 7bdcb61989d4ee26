"""Describes the plans of pattern queries, what they share, and the figures of their runs."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from ensue.engine.program import warn_about_compile_time
from ensue.operators.match.shared_engine import count_uses, create_shared_engines
from ensue.planner.explain.plan_description import describe_memory
from ensue.planner.explain.plan_node import PlanNode, combine_plans
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.grouping import describe_result_modifiers
from ensue.runtime.live_matcher import CompositeLiveMatcher, measure_run
from ensue.runtime.stage import OutputTable


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
    sections += [] if ordered is None else [_describe_run(prepared, ordered)]
    described = prepared.describe()
    return replace(described, children=(*described.children, *sections))


def _describe_run(prepared: CompiledQuery, ordered: pa.Table) -> PlanNode:
    (meter,), compiling, _ = measure_run(
        lambda: CompositeLiveMatcher([prepared]), lambda live: live.matchers, ordered, prepared.shape
    )
    matching = meter.seconds - meter.result_seconds
    return meter.describe(("compiling", compiling), ("matching", matching), ("results", meter.result_seconds))
