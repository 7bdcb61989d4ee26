"""Describes the plan of a hierarchy, layer by layer, and infers the columns of events where there are none."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import pyarrow as pa

from ensue.analyzer.hierarchy_layers import build_layers
from ensue.analyzer.query import check_structure
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_atoms
from ensue.operators.hierarchy.compiled_hierarchy import CompiledHierarchy, CompiledLayer, compile_stages
from ensue.operators.hierarchy.hierarchy_matcher import HierarchyMatcher
from ensue.planner.explain.plan_description import describe_memory
from ensue.planner.explain.plan_node import PlanNode, Shape
from ensue.planner.hierarchy_stages import InliningChoice
from ensue.planner.physical_plan import PhysicalPlan
from ensue.planner.schema_inference import infer_schema
from ensue.planner.statistics import format_number
from ensue.printing.expression_printer import format_name
from ensue.printing.pattern_printer import format_pattern, format_types, format_window
from ensue.runtime.grouping import describe_result_modifiers, strip_result_modifiers
from ensue.runtime.live_matcher import measure_run
from ensue.runtime.query_spec import QuerySpec, name_query_in_errors
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import OutputTable
from ensue.svg import cut_text
from ensue.vector.column_values import arrow_type
from ensue.vector.event_table import TYPE

_WAITS = "waits for what is below it"


def describe_outputs(compiled: CompiledHierarchy, outputs: Sequence[OutputTable], ordered: pa.Table | None) -> PlanNode:
    """Describes a hierarchy and what becomes of its results, with the figures of a run if there are events."""
    limits = compiled.layers[0].prepared.planning.limits
    sections = [describe_result_modifiers(output.finishing) for output in outputs if output.finishing is not None]
    sections += [describe_memory(None, limits)] if limits.can_evict else []
    plan = describe_hierarchy_plan(compiled) if ordered is None else analyze_hierarchy(compiled, ordered)
    return replace(plan, children=(*plan.children, *sections))


def describe_hierarchy_plan(
    compiled: CompiledHierarchy, runs: Mapping[str, PlanNode] = MappingProxyType({})
) -> PlanNode:
    """Describes how a hierarchy runs, from the query at the top down; `runs` has figures by layer."""
    hierarchy = compiled.hierarchy
    layers = len(hierarchy.definitions) + len(hierarchy.top_queries)
    count = "one matcher" if len(compiled.layers) == 1 else f"{len(compiled.layers)} matchers"
    seen: set[str] = set()
    tops = [_describe_layer(compiled, name, seen) for name in hierarchy.top_queries]
    overview = PlanNode(f"hierarchy of {layers} layers, {count}", children=tuple(tops))
    matchers = [_describe_matcher(compiled, layer, runs) for layer in reversed(compiled.layers)]
    head = PlanNode(children=(overview, *_describe_stages(compiled)))
    return PlanNode(children=(head, *matchers), shape=Shape.PLAN, label=f"a hierarchy of {count}")


def _name_layer(name: str, hierarchy: Hierarchy) -> str:
    """Returns the name of a layer for readers."""
    label = next((top.label for top in hierarchy.tops if top.layer == name), name)
    if name in hierarchy.top_queries:
        return f"the query {label if label.isdigit() else format_name(label)}" if label else "the query"
    return format_name(name)


def _describe_layer(compiled: CompiledHierarchy, name: str, seen: set[str]) -> PlanNode:
    hierarchy = compiled.hierarchy
    title = _name_layer(name, hierarchy)
    if name in seen:
        return PlanNode(f"{title}: as above")
    seen.add(name)
    definition = hierarchy.defined(name) if name not in hierarchy.top_queries else None
    query = hierarchy.top_queries[name] if definition is None else definition.query
    facts = [format_pattern(query.pattern), *(f"[{e.field_name}]" for e in query.equivalence)]
    facts += [] if query.within is None else [f"within {format_window(query.within)}"]
    matcher = next((layer for layer in compiled.layers if layer.layer.name == name), None)
    if matcher is not None:
        facts += ["delivered"] * (matcher.layer.delivered and definition is not None)
        facts += [_WAITS] * (matcher.waits > 0)
    boxes = [
        PlanNode(_format_box(box), children=(_describe_layer(compiled, box.type, seen),))
        for box in compiled.boxes
        if box.layer == name
    ]
    return PlanNode(f"{title}: {', '.join(facts)}", children=tuple(boxes))


def _format_box(box: InliningChoice) -> str:
    why = f", {box.why}" if box.why else ""
    if box.costs is not None and box.costs[0] < box.costs[1]:
        why += f" (costs {format_number(box.costs[0])} against {format_number(box.costs[1])} all bottom-up)"
    return f"box {format_name(box.variable)}: {'top-down' if box.top_down else 'bottom-up'}{why}"


def _describe_stages(compiled: CompiledHierarchy) -> Iterator[PlanNode]:
    """Describes the stages between which Spark shuffles events by another key."""
    stages = compile_stages(compiled)
    if len(stages) == 1:
        return
    hierarchy, lines = compiled.hierarchy, []
    for stage in stages:
        key = ", ".join(f"[{name}]" for name in stage.stage.key) or "one task, no key"
        names = [layer.layer.name for layer in stage.layers]
        shown = (n if n and not hierarchy.tops else _name_layer(n, hierarchy) for n in names)
        takes = f", takes {', '.join(stage.takes)}" if stage.takes else ""
        lines.append(f"{stage.stage.number + 1}. {key}: {', '.join(shown)}{takes}")
    yield PlanNode(f"{len(stages)} stages on Spark, a shuffle between them:", lines=tuple(lines))


def _describe_matcher(compiled: CompiledHierarchy, layer: CompiledLayer, runs: Mapping[str, PlanNode]) -> PlanNode:
    """Describes a layer that is matched separately, alone or with the layers in its boxes."""
    plan, name = layer.matched.plan, layer.layer.name
    inlined = _list_inlined(compiled, name)
    opened = [b for b in compiled.boxes if b.top_down and b.layer in inlined]
    names = ", ".join(f"{format_name(b.type)} {format_name(b.variable)}" for b in opened)
    lines = [f"finds with it, from the top down: {names}"] if opened else []
    lines += [_WAITS] if layer.waits > 0 else []
    described = layer.matched.describe()
    figures = (runs[name],) if name in runs else ()
    return replace(
        described,
        title=_name_matcher(compiled, layer),
        lines=tuple(lines),
        children=(*_describe_inputs(compiled, plan), *described.children, *figures),
    )


def _describe_inputs(compiled: CompiledHierarchy, plan: PhysicalPlan) -> Iterator[PlanNode]:
    """Describes which events a matcher takes from the input, and from the matchers below it."""
    sources = {layer.layer.name: _name_matcher(compiled, layer) for layer in compiled.layers}
    variables: dict[str, list[str]] = {}
    for atom in iterate_atoms(plan.query.pattern):
        variables.setdefault(format_types(atom.type), []).append(format_name(atom.variable))
    labels: dict[str, list[str]] = {}
    for name, names in sorted(variables.items(), key=lambda one: one[0] in sources):
        labels.setdefault(sources.get(name, ""), []).append(f"{format_name(name)} {', '.join(names)}")
    for source, texts in labels.items():
        taken = "; ".join(texts)
        yield PlanNode(
            f"takes {taken} from {source or 'the input'}", shape=Shape.EDGE, label=cut_text(taken, 44), target=source
        )


def _name_matcher(compiled: CompiledHierarchy, layer: CompiledLayer) -> str:
    below = layer.layer.name not in compiled.hierarchy.top_queries
    title = _name_layer(layer.layer.name, compiled.hierarchy)
    return f"{title}, delivered" if below and layer.layer.delivered else title


def _list_inlined(compiled: CompiledHierarchy, name: str) -> set[str]:
    """Returns a layer and the layers that are matched inside of it."""
    boxes = [b for b in compiled.boxes if b.top_down and b.layer == name]
    return {name}.union(*(_list_inlined(compiled, box.type) for box in boxes))


def analyze_hierarchy(hierarchy: CompiledHierarchy, ordered: pa.Table) -> PlanNode:
    """Describes a hierarchy with the estimates and actual figures of each layer; the events are in stream order."""
    meters, compiling, running = measure_run(
        lambda: HierarchyMatcher(hierarchy),
        lambda live: [layer.matcher for layer in live.layers],
        ordered,
        hierarchy.shape,
    )
    layers = zip(hierarchy.layers, meters, strict=True)
    runs = {layer.layer.name: meter.describe(("this layer", meter.seconds)) for layer, meter in layers}
    seconds = f"compiling {compiling:.3f} s, all layers {running:.3f} s"
    summary = PlanNode(f"the hierarchy in {ordered.num_rows:,} events: {seconds}")
    plan = describe_hierarchy_plan(hierarchy, runs)
    return replace(plan, children=(*plan.children, summary))


# ---------------------------------------------------------------------------- without events


def infer_source(specs: Iterable[QuerySpec]) -> SourceSchema:
    """Infers the source of patterns and hierarchies; what other queries read is not known without events."""
    patterns: list[Query] = []
    defined: set[str] = set()
    for spec in specs:
        with name_query_in_errors(spec.name):
            query = strip_result_modifiers(spec.query)[0]
            if isinstance(query, Query):
                patterns.append(check_structure(query))
            elif isinstance(query, Hierarchy):
                layers = build_layers(query)
                patterns += [layer.query for layer in layers]
                defined.update(name for layer in layers for name in layer.uses)
    schema = infer_schema(*patterns)
    time = schema.start
    columns = {time: arrow_type(schema.time_kind, "us")}
    by_type = {}
    for name, event_type in schema.types.items():
        if name in defined:
            continue
        by_type[name] = [(time, time)]
        for field, kind in event_type.fields.items():
            if field != time:
                type_ = arrow_type(kind, "us")
                column = field if columns.setdefault(field, type_) == type_ else f"{field}@{name}"
                columns[column] = type_
                by_type[name].append((field, column))
    arrow = pa.schema([*columns.items(), (TYPE, pa.string())])
    return SourceSchema(arrow, time, location=schema.location, by_type=by_type, inferred=True)
