"""Plans queries on definitions: queries that share layers run on one hierarchy."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ensue.errors import QueryError, did_you_mean
from ensue.ir.hierarchy import Hierarchy
from ensue.operators.hierarchy.compiled_hierarchy import CompiledHierarchy
from ensue.operators.hierarchy.hierarchy_operator import (
    HierarchyOperator,
    LevelOutput,
    plan_merged_hierarchies,
)
from ensue.operators.hierarchy.hierarchy_planner import compile_hierarchy, compile_layers
from ensue.planner.evictability import HIERARCHY_REASON
from ensue.runtime.options import RunOptions
from ensue.runtime.query_kinds import PlannedQueries, PlanRequest
from ensue.runtime.query_spec import Name, QuerySpec, name_query_in_errors
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.spill.key_store import build_eviction_error, build_shedding_error
from ensue.runtime.stage import OutputTable


@dataclass(frozen=True, slots=True)
class _MergedHierarchy:
    """A compiled hierarchy, and the layers of each query by output name."""

    prepared: CompiledHierarchy
    levels: Mapping[QuerySpec, Sequence[tuple[str, Name]]]


def plan_hierarchies(specs: Sequence[QuerySpec], call: PlanRequest) -> PlannedQueries:
    """Compiles queries on definitions."""
    limits = call.wishes.planning.limits
    with name_query_in_errors(specs[0].name):
        if limits.evict is not None:
            raise build_eviction_error(HIERARCHY_REASON)
        if limits.shed_ms is not None:
            raise build_shedding_error("complex events would lack some of their members")
    merged = list(_compile_hierarchies(specs, call.source, call.wishes))

    def build_operators(
        outputs: Mapping[QuerySpec, Sequence[OutputTable]],
    ) -> Iterator[HierarchyOperator]:
        for hierarchy in merged:
            levels = [
                LevelOutput(layer, output)
                for spec, layers in hierarchy.levels.items()
                for (layer, _), output in zip(layers, outputs[spec], strict=True)
            ]
            yield HierarchyOperator(hierarchy.prepared, tuple(levels))

    delivered = {
        spec: tuple(_outputs(hierarchy, spec)) for hierarchy in merged for spec in hierarchy.levels
    }
    return PlannedQueries(delivered, build_operators)


def _outputs(hierarchy: _MergedHierarchy, spec: QuerySpec) -> Iterator[OutputTable]:
    meaning = {layer.layer.name: layer.layer.meaning for layer in hierarchy.prepared.layers}
    for layer, name in hierarchy.levels[spec]:
        yield OutputTable(
            0, name, hierarchy.prepared.delivered[layer], spec.number, meaning[layer]
        )


def _compile_hierarchies(
    specs: Sequence[QuerySpec], source: SourceSchema, options: RunOptions
) -> Iterator[_MergedHierarchy]:
    """Compiles queries on definitions; those that share layers run on one hierarchy."""
    hierarchies = {
        str(spec.number): spec.query
        if spec.name is None
        else add_levels(spec.query, options.levels)
        for spec in specs
        if isinstance(spec.query, Hierarchy)
    }
    _require_levels(hierarchies.values(), options.levels)
    by_label = {str(spec.number): spec for spec in specs}
    context = source.shape, options.planning
    for label, hierarchy in hierarchies.items():
        if by_label[label].name is not None:
            with name_query_in_errors(by_label[label].name):  # errors name the query
                compile_layers(
                    hierarchy, *context, trace=options.trace, streaming=options.streaming
                )
    for merged, labels in plan_merged_hierarchies(hierarchies, *context, trace=options.trace):
        with name_query_in_errors(by_label[labels[0]].name if len(labels) == 1 else None):
            levels = options.levels if by_label[labels[0]].name is None else None
            compiled = compile_hierarchy(
                merged, *context, levels=levels, trace=options.trace,
                streaming=options.streaming, emit_timeouts=options.emit_timeouts,
            )  # fmt: skip
        yield _MergedHierarchy(
            compiled,
            {
                by_label[label]: tuple(
                    _list_levels(by_label[label], hierarchies[label], compiled, options)
                )
                for label in labels
            },
        )


def add_levels(hierarchy: Hierarchy, levels: tuple[str, ...] | str | None) -> Hierarchy:
    """Adds the requested levels that the hierarchy has to those that it delivers."""
    defined = [definition.name for definition in hierarchy.definitions]
    requested = {levels} if isinstance(levels, str) else set(levels or ())
    extra = [n for n in defined if (levels == "all" or n in requested) and n not in hierarchy.emit]
    return replace(hierarchy, emit=(*hierarchy.emit, *extra)) if extra else hierarchy


def _require_levels(
    hierarchies: Iterable[Hierarchy], levels: tuple[str, ...] | str | None
) -> None:
    """Raises a QueryError for a level that no query defines."""
    defined = {
        name for hierarchy in hierarchies for name in (*hierarchy.names, hierarchy.query.name)
    }
    for name in (levels,) if isinstance(levels, str) else levels or ():
        if name != "all" and name not in defined:
            raise QueryError(
                f"levels={name!r}: no such event is defined",
                hint=did_you_mean(name, sorted(n for n in defined if n)),
            )


def _list_levels(
    spec: QuerySpec, hierarchy: Hierarchy, compiled: CompiledHierarchy, options: RunOptions
) -> Iterator[tuple[str, Name]]:
    """Yields the requested levels of a query, then the query itself, with their output names.

    With several queries, the name of a level starts with that of its query.
    """
    requested = {options.levels} if isinstance(options.levels, str) else set(options.levels or ())
    requested |= set(hierarchy.emit)
    for name in compiled.delivered:
        if hierarchy.defined(name) is not None and (options.levels == "all" or name in requested):
            yield name, name if spec.name is None else f"{spec.name}.{name}"
    tops = {top.label: top.layer for top in compiled.hierarchy.tops}
    query_name = hierarchy.query.name or ""
    yield tops.get(str(spec.number), query_name), query_name if spec.name is None else spec.name
