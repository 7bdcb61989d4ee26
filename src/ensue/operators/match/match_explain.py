"""EXPLAIN of a pattern query: plan text, kernels, EXPLAIN ANALYZE, and picture.

Without events, the columns are inferred from the expressions.
"""

import math
from dataclasses import replace
from time import perf_counter

import pyarrow as pa

from ensue.engine.engine import Engine
from ensue.engine.program import format_kernel, warn_about_compile_time
from ensue.ir.query import Query
from ensue.planner.explain.plan_description import describe_memory, describe_plan
from ensue.planner.explain.plan_node import PlanNode
from ensue.planner.explain.run_metrics import RunCounts, describe_run
from ensue.planner.schema_inference import infer_schema, plan_without_events
from ensue.runtime.compiled_query import CompiledQuery, build_result, compile_query
from ensue.runtime.event_pruning import get_relevant_types
from ensue.runtime.grouping import describe_result_modifiers, strip_result_modifiers
from ensue.runtime.query_spec import ArchiveSet, RunOptions
from ensue.runtime.source_schema import SourceSchema
from ensue.vector.arrow_types import Unit
from ensue.vector.event_table import split_table

PIECE = 1 << 16  # events between two counts of the partial matches
FIRST = 100  # events after which all kernels are compiled


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


class PatternExplainer:
    """Explains a pattern query, with the schema of its events if it is known."""

    def __init__(
        self, query: Query, source: SourceSchema | None, options: RunOptions, _archive_set: ArchiveSet
    ) -> None:
        query, self.finishing = strip_result_modifiers(query)
        self.limits = options.planning.limits
        self.prepared: CompiledQuery | None = None
        self.unit: Unit = "us"
        if source is None:
            self.plan, self.schema = plan_without_events(query, options.planning), infer_schema(query)
        else:
            self.prepared = compile_query(query, source.shape, options.planning)
            self.plan, self.schema = self.prepared.plan, self.prepared.physical[1]
            self.unit = source.shape.unit

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that matter. None: all of them."""
        return None if self.prepared is None else get_relevant_types((self.prepared,))

    def describe(self) -> PlanNode:
        """Describes the plan."""
        warnings = [PlanNode(text) for text in warn_about_compile_time(self.plan, self.schema, self.unit)]
        modifiers = [] if self.finishing is None else [describe_result_modifiers(self.finishing)]
        memory = [describe_memory(self.plan, self.limits)] if self.limits.can_evict else []
        plan = describe_plan(self.plan)
        return replace(plan, children=(*plan.children, *warnings, *modifiers, *memory))

    def analyze(self, ordered: pa.Table) -> PlanNode:
        """Describes the plan with the figures of a run; the events are in stream order."""
        assert self.prepared is not None
        plan, figures = describe_plan(self.plan), describe_run(self.plan, _run_counted(self.prepared, ordered))
        return replace(plan, children=(*plan.children, figures))

    def kernels(self) -> str:
        """The source of its kernel."""
        return format_kernel(self.plan, self.schema, self.unit)
