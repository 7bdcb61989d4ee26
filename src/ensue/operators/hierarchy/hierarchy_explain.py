"""Explains the plan of a hierarchy, for events with known or inferred columns."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType

import pyarrow as pa

from ensue.analyzer.hierarchy_layers import build_layers
from ensue.engine.engine import Engine
from ensue.engine.program import format_kernel
from ensue.ir.hierarchy import Hierarchy
from ensue.operators.hierarchy.compiled_hierarchy import CompiledHierarchy, compile_stages
from ensue.operators.hierarchy.hierarchy_matcher import BufferedLayer, HierarchyMatcher, Step
from ensue.operators.hierarchy.hierarchy_operator import HierarchyOperator
from ensue.operators.hierarchy.hierarchy_planner import compile_hierarchy
from ensue.planner.explain.hierarchy_text import LayerPlan, draw_hierarchy, explain_hierarchy, name_layer
from ensue.planner.explain.plan_text import explain_memory
from ensue.planner.explain_analyze import RunCounts, format_analysis
from ensue.planner.schema_inference import infer_schema
from ensue.runtime.grouping import describe_result_modifiers, strip_result_modifiers
from ensue.runtime.query_spec import ArchiveSet, RunOptions
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import StageInput
from ensue.schema import ValueKind
from ensue.vector.column_values import arrow_type
from ensue.vector.event_table import StreamSchema, create_union_schema, get_end_times, split_table


def explain_compiled_hierarchy(compiled: CompiledHierarchy, more: Mapping[str, str] = MappingProxyType({})) -> str:
    """Explains a compiled hierarchy; `more` has further text by layer name."""
    plans, stages = _list_layer_plans(compiled), list(_describe_stages(compiled))
    return explain_hierarchy(compiled.hierarchy, compiled.boxes, plans, stages, more)


def draw_compiled_hierarchy(compiled: CompiledHierarchy) -> str:
    return draw_hierarchy(compiled.hierarchy, compiled.boxes, _list_layer_plans(compiled))


def _list_layer_plans(compiled: CompiledHierarchy) -> list[LayerPlan]:
    """Returns the plans of the layers that run as separate matchers."""
    plans = []
    for layer in compiled.layers:
        query = layer.prepared if layer.opened is None else layer.opened.flat
        name, delivered = layer.layer.name, layer.layer.delivered
        plans.append(LayerPlan(name, query.plan, delivered, layer.waits > 0))
    return plans


def _describe_stages(compiled: CompiledHierarchy) -> Iterator[str]:
    """Describes the stages between which Spark shuffles events by another key."""
    stages = compile_stages(compiled)
    if len(stages) == 1:
        return
    yield f"{len(stages)} stages on Spark, a shuffle between them:"
    hierarchy = compiled.hierarchy
    for stage in stages:
        key = ", ".join(f"[{name}]" for name in stage.stage.key) or "one task, no key"
        names = [layer.layer.name for layer in stage.layers]
        shown = (n if n and not hierarchy.tops else name_layer(n, hierarchy) for n in names)
        takes = f", takes {', '.join(stage.takes)}" if stage.takes else ""
        yield f"  {stage.stage.number + 1}. {key}: {', '.join(shown)}{takes}"


class HierarchyExplainer:
    """Explains a hierarchy, with the schema of its events if it is known."""

    def __init__(
        self, query: Hierarchy, source: SourceSchema | None, options: RunOptions, _archive_set: ArchiveSet
    ) -> None:
        query, self.finishing = strip_result_modifiers(query)
        self.limits = options.planning.limits
        self.compiled = compile_hierarchy(
            query, infer_shape(query) if source is None else source.shape, options.planning
        )

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that matter. None: all of them."""
        return HierarchyOperator(self.compiled, ()).reads.types

    def explain(self) -> str:
        """The plan as text."""
        sections = [explain_compiled_hierarchy(self.compiled)]
        if self.finishing is not None:
            sections.append(describe_result_modifiers(self.finishing))
        if self.limits.can_evict:
            sections.append(explain_memory(None, self.limits))
        return "\n\n".join(sections)

    def analyze(self, ordered: pa.Table) -> str:
        """The plan as text with actual counts; the events are in stream order."""
        return analyze_hierarchy(self.compiled, ordered)

    def kernels(self) -> str:
        """The source of the kernel of each layer."""
        flat = [p.prepared if p.opened is None else p.opened.flat for p in self.compiled.layers]
        return "\n\n\n".join(format_kernel(q.plan, q.physical[1], q.shape.unit) for q in flat)

    def picture(self) -> str:
        """The plan as a picture."""
        return draw_compiled_hierarchy(self.compiled)


def infer_shape(hierarchy: Hierarchy) -> StreamSchema:
    """Infers the fields of events, and their types, from their use in the layers."""
    types: dict[str, dict[str, ValueKind]] = {}
    time, kind = "time", ValueKind.INTEGER
    for layer in build_layers(hierarchy):
        schema = infer_schema(layer.query)
        if layer.query.within is not None:
            kind = schema.time_kind
        for name, event_type in schema.types.items():
            if name not in layer.uses:
                fields_of_type = types.setdefault(name, {})
                for field, inferred in event_type.fields.items():
                    if field not in (schema.end, schema.type_column):
                        fields_of_type.setdefault(field, inferred)
    fields: dict[str, pa.DataType] = {}
    by_type = {}
    for name, fields_of_type in types.items():
        columns = [(time, time)]
        for field, inferred in fields_of_type.items():
            type_ = arrow_type(inferred, "us", None)
            column = field if fields.get(field, type_) == type_ else f"{field}@{name}"
            fields[column] = type_
            columns.append((field, column))
        by_type[name] = columns
    fields[time] = arrow_type(kind, "us", None)
    arrow = pa.schema([*fields.items(), ("__type", pa.string())])
    return create_union_schema(arrow, by_type, time=time, order=())


# ---------------------------------------------------------------------------- EXPLAIN ANALYZE

PIECE = 1 << 16  # events between two counts of the partial matches
FIRST = 100  # events of the first run, which compiles all kernels


def analyze_hierarchy(hierarchy: CompiledHierarchy, events: pa.Table) -> str:
    """Explains a hierarchy with the estimates and actual figures of each layer.

    `events` are in the order of the stream.
    """
    began = perf_counter()
    _run(hierarchy, events.slice(0, FIRST))  # to measure compilation apart
    compiled = perf_counter()
    live = _run(hierarchy, events)
    done = perf_counter()
    seconds = f"compiling {compiled - began:.3f} s, all layers {done - compiled:.3f} s"
    summary = f"the hierarchy in {events.num_rows:,} events: {seconds}"
    return f"{explain_compiled_hierarchy(hierarchy, live.describe_layers())}\n\n{summary}"


def _run(hierarchy: CompiledHierarchy, events: pa.Table) -> "_CountingMatcher":
    live = _CountingMatcher(hierarchy)
    for piece in split_table(events, PIECE):
        live.process(StageInput.from_events(piece))
        now = get_end_times(piece, hierarchy.shape)[-1].item()
        live.on_watermark(now)  # so that expired matches are not counted
    live.on_watermark(math.inf)
    return live


@dataclass
class _LayerCounts:
    """Counts the matches, partial matches and seconds of a layer."""

    matches: int = 0
    most_partial: int = 0
    seconds: float = 0.0


class _CountingMatcher(HierarchyMatcher):
    """A hierarchy matcher whose layers count their attempts and their time."""

    def __init__(self, hierarchy: CompiledHierarchy) -> None:
        super().__init__(hierarchy)
        self.counted: dict[str, _LayerCounts] = {}
        for layer in self.layers:
            layer.matcher.engine = layer.matcher.prepared.engine(counted=True)
            self.counted[layer.name] = _LayerCounts()

    def describe_layers(self) -> dict[str, str]:
        """Returns the estimates and actual figures of each layer."""
        texts = {}
        for layer in self.layers:
            engine, counts = layer.matcher.engine, self.counted[layer.name]
            counters = engine.counters() if isinstance(engine, Engine) else None
            seconds = (("this layer", counts.seconds),)
            run = RunCounts(engine.rows, counts.matches, counters, counts.most_partial, seconds)
            texts[layer.name] = format_analysis(layer.matcher.prepared.plan, run)
        return texts

    def _apply_step(self, step: Step, inputs: Mapping[str, pa.Table]) -> list[pa.Table]:
        def counted(layer: BufferedLayer, lower: Mapping[str, pa.Table]) -> pa.Table:
            began = perf_counter()
            events = step(layer, lower)
            counts, partial = self.counted[layer.name], layer.matcher.engine.partial_matches
            counts.seconds += perf_counter() - began
            counts.matches += events.num_rows
            counts.most_partial = max(counts.most_partial, partial)
            return events

        return super()._apply_step(counted, inputs)
