"""Plans queries on definitions: queries that share layers run on one hierarchy."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ensue.errors import QueryError, did_you_mean
from ensue.ir.hierarchy import Definition, Hierarchy
from ensue.ir.user_operator import UserOperator
from ensue.operators.hierarchy.compiled_hierarchy import CompiledHierarchy
from ensue.operators.hierarchy.hierarchy_operator import HierarchyOperator, LevelOutput, plan_merged_hierarchies
from ensue.operators.hierarchy.hierarchy_planner import compile_hierarchy, compile_layers
from ensue.parser.pattern_parser import parse
from ensue.planner.evictability import HIERARCHY_REASON
from ensue.printing.pattern_printer import format_query
from ensue.projection.time_order import RESULT_ORDER
from ensue.runtime.query_spec import Name, QuerySpec, RunOptions, name_query_in_errors
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.spill.key_store import build_eviction_error, build_shedding_error
from ensue.runtime.stage import OutputTable, PlannedQueries, PlanRequest

Levels = Sequence[str] | str | None  # requested levels


@dataclass(frozen=True, slots=True)
class _MergedHierarchy:
    """A compiled hierarchy, and the layers of each query by output name."""

    prepared: CompiledHierarchy
    levels: Mapping[QuerySpec, Sequence[tuple[str, Name]]]


def plan_hierarchies(specs: Sequence[QuerySpec], call: PlanRequest) -> PlannedQueries:
    limits = call.options.planning.limits
    with name_query_in_errors(specs[0].name):
        if limits.evict is not None:
            raise build_eviction_error(HIERARCHY_REASON)
        if limits.shed_ms is not None:
            raise build_shedding_error("complex events would lack some of their members")
    merged = list(_compile_hierarchies(specs, call.source, call.options))

    def build_operators(outputs: Mapping[QuerySpec, Sequence[OutputTable]]) -> Iterator[HierarchyOperator]:
        for hierarchy in merged:
            levels = [
                LevelOutput(layer, output)
                for spec, layers in hierarchy.levels.items()
                for (layer, _), output in zip(layers, outputs[spec], strict=True)
            ]
            yield HierarchyOperator(hierarchy.prepared, tuple(levels))

    delivered = {spec: tuple(_list_outputs(h, spec)) for h in merged for spec in h.levels}
    return PlannedQueries(delivered, build_operators)


def describe_hierarchy(hierarchy: Hierarchy) -> dict[str, Any]:
    """Describes a query and its definitions in the text of a checkpoint."""
    definitions = {definition.name: format_query(definition.query) for definition in hierarchy.definitions}
    return {"query": format_query(hierarchy.query), "definitions": definitions, "emit": list(hierarchy.emit)}


def parse_hierarchy(described: Mapping[str, Any], operators: Iterable[UserOperator]) -> Hierarchy:
    """Parses a query and its definitions that a checkpoint describes."""
    definitions = (Definition(name, parse(text, operators)) for name, text in described["definitions"].items())
    return Hierarchy(tuple(definitions), parse(described["query"], operators), tuple(described["emit"]))


def _list_outputs(hierarchy: _MergedHierarchy, spec: QuerySpec) -> Iterator[OutputTable]:
    compiled = hierarchy.prepared
    meaning = {layer.layer.name: layer.layer.meaning for layer in compiled.layers}
    for layer, name in hierarchy.levels[spec]:
        yield OutputTable(0, name, compiled.delivered[layer], spec.number, meaning[layer], sorted_by=RESULT_ORDER)


def _compile_hierarchies(
    specs: Sequence[QuerySpec], source: SourceSchema, options: RunOptions
) -> Iterator[_MergedHierarchy]:
    """Compiles queries on definitions; queries that share layers run on one hierarchy."""
    by_label = {str(spec.number): spec for spec in specs}
    hierarchies = {}
    for label, spec in by_label.items():
        assert isinstance(spec.query, Hierarchy)
        add = spec.name is not None
        hierarchies[label] = add_levels(spec.query, options.output.levels) if add else spec.query
    _require_levels(hierarchies.values(), options.output.levels)
    context = source.shape, options.planning
    for label, hierarchy in hierarchies.items():
        if by_label[label].name is not None:
            with name_query_in_errors(by_label[label].name):  # errors name the query
                streaming = options.streaming
                compile_layers(hierarchy, *context, trace=options.output.trace, streaming=streaming)
    for merged, labels in plan_merged_hierarchies(hierarchies, *context, trace=options.output.trace):
        with name_query_in_errors(by_label[labels[0]].name if len(labels) == 1 else None):
            levels = options.output.levels if by_label[labels[0]].name is None else None
            compiled = compile_hierarchy(
                merged, *context, levels=levels, trace=options.output.trace,
                streaming=options.streaming, emit_timeouts=options.output.emit_timeouts,
            )  # fmt: skip
        levels_of = {}
        for spec in map(by_label.__getitem__, labels):
            hierarchy = hierarchies[str(spec.number)]
            levels_of[spec] = tuple(_list_levels(spec, hierarchy, compiled, options.output.levels))
        yield _MergedHierarchy(compiled, levels_of)


def add_levels(hierarchy: Hierarchy, levels: Levels) -> Hierarchy:
    """Adds the requested levels to the delivered levels of a hierarchy."""
    defined = [definition.name for definition in hierarchy.definitions]
    extra = [n for n in defined if _is_requested(n, levels) and n not in hierarchy.emit]
    return replace(hierarchy, emit=(*hierarchy.emit, *extra)) if extra else hierarchy


def _is_requested(name: str, levels: Levels) -> bool:
    return levels == "all" or name in ((levels,) if isinstance(levels, str) else levels or ())


def _require_levels(hierarchies: Iterable[Hierarchy], levels: Levels) -> None:
    """Raises a QueryError for a level that no query defines."""
    defined = {name for h in hierarchies for name in (*h.names, h.query.name)}
    for name in (levels,) if isinstance(levels, str) else levels or ():
        if name != "all" and name not in defined:
            raise QueryError(
                f"levels={name!r}: no such event is defined", hint=did_you_mean(name, sorted(n for n in defined if n))
            )


def _list_levels(
    spec: QuerySpec, hierarchy: Hierarchy, compiled: CompiledHierarchy, levels: Levels
) -> Iterator[tuple[str, Name]]:
    """Yields the requested levels of a query, then the query itself, with their output names.

    With several queries, the name of a level starts with that of its query.
    """
    for name in compiled.delivered:
        requested = name in hierarchy.emit or _is_requested(name, levels)
        if hierarchy.defined(name) is not None and requested:
            yield name, name if spec.name is None else f"{spec.name}.{name}"
    tops = {top.label: top.layer for top in compiled.hierarchy.tops}
    query_name = hierarchy.query.name or ""
    yield tops.get(str(spec.number), query_name), query_name if spec.name is None else spec.name
