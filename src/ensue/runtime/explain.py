"""How a query or a hierarchy is run: its plan in words, with its kernels, analysed, as a picture.

Without events, the columns are assumed that its expressions ask for.
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
from ensue.planner.physical_plan import PhysicalPlan
from ensue.planner.planner_options import PlannerOptions
from ensue.planner.schema_inference import infer_schema, plan_without_events
from ensue.runtime.compiled_query import CompiledQuery, build_result, compile_query
from ensue.runtime.event_pruning import get_relevant_types
from ensue.runtime.grouping import describe_result_modifiers, strip_result_modifiers
from ensue.vector.event_table import StreamSchema, split_table

PIECE = 1 << 16  # events between two looks at the partial matches
FIRST = 100  # events that let all kernels be compiled


def analyze_query(prepared: CompiledQuery, ordered: pa.Table) -> str:
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
    for piece in split_table(ordered, PIECE):
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
    met = RunCounts(ordered.num_rows, count, counters, most, seconds)
    return f"{explain_plan(prepared.plan)}\n\n{format_analysis(prepared.plan, met)}"


class QueryExplainer:
    """A query that is looked at, with the shape of its events if it is known."""

    def __init__(
        self, asked: Query | Hierarchy, shape: StreamSchema | None, planning: PlannerOptions
    ) -> None:
        asked, self.finishing = strip_result_modifiers(asked)
        self.asked = asked
        self.planning = planning
        self.prepared: CompiledQuery | CompiledHierarchy | None = None
        if isinstance(asked, Hierarchy):
            known = infer_shape(asked) if shape is None else shape
            self.prepared = compile_hierarchy(asked, known, planning)
        elif shape is not None:
            self.prepared = compile_query(asked, shape, planning)

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

    def told(self) -> str:
        """The plan in words."""
        limits = self.planning.limits
        if not limits.can_evict:
            return self._plan_told()
        match self.prepared:
            case CompiledHierarchy():
                memory = explain_memory(None, limits)
            case CompiledQuery(plan=plan):
                memory = explain_memory(plan, limits)
            case None:
                memory = explain_memory(self._assumed(), limits)
        return f"{self._plan_told()}\n\n{memory}"

    def _plan_told(self) -> str:
        last = () if self.finishing is None else (describe_result_modifiers(self.finishing),)
        return "\n\n".join([self._matches_told(), *last])

    def _matches_told(self) -> str:
        match self.prepared:
            case CompiledHierarchy():
                return explain_compiled_hierarchy(self.prepared)
            case CompiledQuery(plan=plan, shape=shape):
                schema = self.prepared.physical[1]
                return "\n\n".join(
                    [explain_plan(plan), *warn_about_compile_time(plan, schema, shape.unit)]
                )
            case None:
                assert isinstance(self.asked, Query)
                plan, schema = self._assumed(), infer_schema(self.asked)
                return "\n\n".join(
                    [explain_plan(plan), *warn_about_compile_time(plan, schema, "us")]
                )

    def analysed(self, ordered: pa.Table) -> str:
        """The same, with what was counted in events that are in the order of the stream."""
        assert self.prepared is not None
        match self.prepared:
            case CompiledHierarchy():
                return analyze_hierarchy(self.prepared, ordered)
            case CompiledQuery():
                return analyze_query(self.prepared, ordered)

    def kernels(self) -> str:
        """The source of its kernel, or of the kernel of each layer."""
        match self.prepared:
            case CompiledHierarchy(layers=layers):
                flat = [p.prepared if p.opened is None else p.opened.flat for p in layers]
                return "\n\n\n".join(map(_kernel, flat))
            case CompiledQuery():
                return _kernel(self.prepared)
            case None:
                assert isinstance(self.asked, Query)
                return format_kernel(self._assumed(), infer_schema(self.asked))

    def picture(self) -> str:
        """The plan as a drawing."""
        match self.prepared:
            case CompiledHierarchy():
                return draw_compiled_hierarchy(self.prepared)
            case CompiledQuery(plan=plan):
                return draw_plan(plan)
            case None:
                return draw_plan(self._assumed())

    def _assumed(self) -> PhysicalPlan:
        assert isinstance(self.asked, Query)
        return plan_without_events(self.asked, self.planning)


def _kernel(prepared: CompiledQuery) -> str:
    _, schema = prepared.shape.physical(prepared.query)
    return format_kernel(prepared.plan, schema, prepared.shape.unit)
