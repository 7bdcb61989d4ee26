"""EXPLAIN of a query or a hierarchy: plan text, kernels, EXPLAIN ANALYZE, and picture.

Without events, the columns are inferred from the expressions.
"""

from time import perf_counter

import pyarrow as pa

from ensue.engine.engine import Engine
from ensue.engine.program import format_kernel, warn_about_compile_time
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.operators.hierarchy.compiled_hierarchy import CompiledHierarchy
from ensue.operators.hierarchy.hierarchy_explain import (
    analyze_hierarchy,
    draw_compiled_hierarchy,
    explain_compiled_hierarchy,
    infer_shape,
)
from ensue.operators.hierarchy.hierarchy_operator import HierarchyOperator
from ensue.operators.hierarchy.hierarchy_planner import compile_hierarchy
from ensue.planner.explain.plan_picture import draw_plan
from ensue.planner.explain.plan_text import explain_memory, explain_plan
from ensue.planner.explain_analyze import RunCounts, format_analysis
from ensue.planner.planner_options import PlannerOptions
from ensue.planner.schema_inference import infer_schema, plan_without_events
from ensue.runtime.compiled_query import CompiledQuery, build_result, compile_query
from ensue.runtime.event_pruning import get_relevant_types
from ensue.runtime.grouping import describe_result_modifiers, strip_result_modifiers
from ensue.vector.arrow_types import Unit
from ensue.vector.event_table import StreamSchema, split_table

PIECE = 1 << 16  # events between two counts of the partial matches
FIRST = 100  # events after which all kernels are compiled


def analyze_query(prepared: CompiledQuery, ordered: pa.Table) -> str:
    """The plan text with estimated and actual counts; the events are in stream order."""
    began = perf_counter()
    warm_up = prepared.engine(counted=True)
    if isinstance(warm_up, Engine):  # compile time is reported apart
        warm_up.feed(ordered.slice(0, FIRST))
        warm_up.advance(warm_up.now or 0)
    compiled = perf_counter()
    engine = prepared.engine(counted=True)
    found, most = [], 0
    for piece in split_table(ordered, PIECE):
        found.append(engine.feed(piece))
        if isinstance(engine, Engine) and engine.now is not None:
            found.append(engine.advance(engine.now))  # drops expired partial matches
            most = max(most, engine.partial_matches)
    counters = engine.counters() if isinstance(engine, Engine) else None
    found.append(engine.finish())
    matched = perf_counter()
    count = sum(build_result(prepared, matches, ordered).num_rows for matches in found)
    done = perf_counter()
    seconds = (("compiling", compiled - began), ("matching", matched - compiled), ("results", done - matched))
    counts = RunCounts(ordered.num_rows, count, counters, most, seconds)
    return f"{explain_plan(prepared.plan)}\n\n{format_analysis(prepared.plan, counts)}"


class QueryExplainer:
    """Explains a query, with the schema of its events if it is known."""

    def __init__(self, query: Query | Hierarchy, shape: StreamSchema | None, planning: PlannerOptions) -> None:
        query, self.finishing = strip_result_modifiers(query)
        self.limits = planning.limits
        self.prepared: CompiledQuery | CompiledHierarchy | None = None
        self.unit: Unit = "us"
        if isinstance(query, Hierarchy):
            known = infer_shape(query) if shape is None else shape
            self.prepared = compile_hierarchy(query, known, planning)
        elif shape is None:
            self.plan, self.schema = plan_without_events(query, planning), infer_schema(query)
        else:
            self.prepared = compile_query(query, shape, planning)
            self.plan, self.schema = self.prepared.plan, self.prepared.physical[1]
            self.unit = shape.unit

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that matter. None: all of them."""
        match self.prepared:
            case CompiledHierarchy():
                return HierarchyOperator(self.prepared, ()).reads.types
            case CompiledQuery():
                return get_relevant_types((self.prepared,))
            case None:
                return None

    def explain(self) -> str:
        """The plan as text."""
        if isinstance(self.prepared, CompiledHierarchy):
            sections, plan = [explain_compiled_hierarchy(self.prepared)], None
        else:
            plan = self.plan
            warnings = warn_about_compile_time(plan, self.schema, self.unit)
            sections = [explain_plan(plan), *warnings]
        if self.finishing is not None:
            sections.append(describe_result_modifiers(self.finishing))
        if self.limits.can_evict:
            sections.append(explain_memory(plan, self.limits))
        return "\n\n".join(sections)

    def analyze(self, ordered: pa.Table) -> str:
        """The plan as text with actual counts; the events are in stream order."""
        assert self.prepared is not None
        if isinstance(self.prepared, CompiledHierarchy):
            return analyze_hierarchy(self.prepared, ordered)
        return analyze_query(self.prepared, ordered)

    def kernels(self) -> str:
        """The source of its kernel, or of the kernel of each layer."""
        if not isinstance(self.prepared, CompiledHierarchy):
            return format_kernel(self.plan, self.schema, self.unit)
        layers = self.prepared.layers
        flat = [p.prepared if p.opened is None else p.opened.flat for p in layers]
        kernels = (format_kernel(q.plan, q.physical[1], q.shape.unit) for q in flat)
        return "\n\n\n".join(kernels)

    def picture(self) -> str:
        """The plan as a picture."""
        if isinstance(self.prepared, CompiledHierarchy):
            return draw_compiled_hierarchy(self.prepared)
        return draw_plan(self.plan)
