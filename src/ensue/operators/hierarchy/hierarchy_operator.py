"""The operator of hierarchies, and the stages into which keys split their layers."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ensue.analyzer.hierarchy_merge import merge_hierarchies
from ensue.cached import cached_property
from ensue.errors import QueryError, did_you_mean
from ensue.ir.hierarchy import Definition, Hierarchy
from ensue.ir.traversal import iterate_positive_atoms
from ensue.ir.user_operator import UserOperator
from ensue.operators.hierarchy.compiled_hierarchy import CompiledHierarchy, CompiledStage, compile_stages
from ensue.operators.hierarchy.hierarchy_matcher import HierarchyMatcher
from ensue.operators.hierarchy.hierarchy_planner import (
    add_levels,
    compile_hierarchy,
    compile_layers,
    find_columns_by_query,
    select_visible_columns,
)
from ensue.operators.hierarchy.layer_stream import build_layer_stream
from ensue.operators.hierarchy.parallel_hierarchy import HierarchyTableMatcher, can_split_table
from ensue.options import Limits
from ensue.parser.pattern_parser import parse
from ensue.planner.capabilities import HIERARCHY_REASON
from ensue.planner.planner_options import DEFAULT_OPTIONS, PlannerOptions
from ensue.printing.pattern_printer import format_query
from ensue.projection.match_order import RESULT_ORDER, has_result_order
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.query_spec import Name, QuerySpec, RunOptions, name_query_in_errors
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.spill.eviction import build_eviction_error, build_shedding_error
from ensue.runtime.stage import (
    ARRIVAL,
    BATCH,
    ROW,
    InputFilter,
    OutputTable,
    StageMatcher,
    TableMatcher,
    UnseenTypes,
    union_types,
)
from ensue.runtime.workload import Workload
from ensue.schema import get_type_names
from ensue.vector.event_table import StreamSchema

if TYPE_CHECKING:
    from ensue.planner.explain.plan_node import PlanNode


@dataclass(frozen=True, slots=True)
class LevelOutput:
    """A layer of a hierarchy whose table goes to an output; one layer may have several."""

    name: str  # of the layer
    output: OutputTable


@dataclass(frozen=True)
class HierarchyOperator:
    """Runs a hierarchy and assigns its levels to outputs."""

    hierarchy: CompiledHierarchy
    levels: tuple[LevelOutput, ...]
    of_events: bool = False  # its layers read derived streams
    rows: None = None  # all events are needed

    @property
    def outputs(self) -> tuple[OutputTable, ...]:
        return tuple(level.output for level in self.levels)

    def with_outputs(self, outputs: Sequence[OutputTable]) -> "HierarchyOperator":
        levels = zip(self.levels, outputs, strict=True)
        return replace(self, levels=tuple(LevelOutput(level.name, output) for level, output in levels))

    @property
    def expected(self) -> tuple[CompiledQuery, ...]:
        """The queries whose cost is estimated: one per layer."""
        return tuple(layer.prepared for layer in self.hierarchy.layers)

    @cached_property
    def stages(self) -> tuple[CompiledStage, ...]:
        return compile_stages(self.hierarchy)

    @cached_property
    def reads(self) -> InputFilter:
        return InputFilter(union_types(stage.reads for stage in self.stages))

    def find_unseen(self, matcher: TableMatcher, events: pa.Table, result: Sequence[pa.Table]) -> UnseenTypes:  # noqa: ARG002
        """Returns all event types if a top query has no match: one of them may be misspelt."""
        hierarchy = self.hierarchy.hierarchy
        matched = {name for name, table in zip(self.hierarchy.delivered, result, strict=True) if table.num_rows}
        if matched.issuperset(hierarchy.top_queries):
            return UnseenTypes()
        atoms = (a for query in hierarchy.queries for a in iterate_positive_atoms(query.pattern))
        named = {name for atom in atoms for name in get_type_names(atom.type)}
        return UnseenTypes(frozenset(named - set(hierarchy.names)), hierarchy.names)

    def chains(self) -> "tuple[tuple[HierarchyStage, ...], ...]":
        return (tuple(HierarchyStage(stage, self.levels) for stage in self.stages),)

    def as_single_stage(self) -> "HierarchyStage":
        whole = CompiledStage.from_hierarchy(self.hierarchy, self.reads.types)
        in_order = all(has_result_order(output.schema.names, output.meaning) for output in self.outputs)
        parts = self.stages if in_order and can_split_table(self.stages) else ()
        return HierarchyStage(whole, self.levels, parts=parts)

    def describe(self, ordered: pa.Table | None = None) -> "PlanNode":
        from ensue.operators.hierarchy.hierarchy_description import describe_outputs

        return describe_outputs(self.hierarchy, self.outputs, ordered)


@dataclass(frozen=True)
class HierarchyStage:
    """Layers of a hierarchy that run in the key groups of one key."""

    prepared: CompiledStage
    levels: tuple[LevelOutput, ...]
    arrival: tuple[str, ...] = (BATCH, ROW)
    parts: tuple[CompiledStage, ...] = ()  # the stages in whose key groups threads match a table

    @cached_property
    def reads(self) -> InputFilter:
        return self.prepared.reads

    @property
    def outputs(self) -> tuple[OutputTable, ...]:
        own = self.prepared.delivered
        return tuple(level.output for level in self.levels if level.name in own)

    @property
    def takes(self) -> Mapping[str, pa.Schema]:
        return self.prepared.takes

    @property
    def hold(self) -> int | float:
        return self.prepared.hold

    @property
    def limits(self) -> Limits:
        return self.prepared.layers[0].prepared.planning.limits

    @property
    def whole_stream(self) -> str | None:
        """Why a single task gets all events, if it does."""
        stage = self.prepared.stage
        if stage.key:
            return None
        names = ", ".join(layer.name or "the query on top" for layer in stage.layers)
        who = "one task, on one core, will match its events"
        return f"nothing splits the stream of {names}: {who}"

    def matcher(self, key_group: int = 0, key_groups: int = 1) -> StageMatcher:  # noqa: ARG002
        return HierarchyMatcher(self.prepared.hierarchy, self.prepared, self.arrival)

    def table_matcher(self, key_group: int = 0, key_groups: int = 1) -> TableMatcher:  # noqa: ARG002
        if self.parts:
            return HierarchyTableMatcher(self.prepared.hierarchy, self.parts)
        return HierarchyMatcher(self.prepared.hierarchy, self.prepared, (ARRIVAL,))

    def matches(self, tables: Sequence[pa.Table]) -> int:
        return sum(table.num_rows for table in tables[: len(self.prepared.delivered)])

    def iterate_outputs(self, tables: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        for name, table in zip(self.prepared.delivered, tables, strict=False):
            if table.num_rows:
                for level in self.levels:
                    if level.name == name:
                        yield level.output.number, table

    def iterate_forwarded(self, tables: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
        remaining = tables[len(self.prepared.delivered) :]
        return zip(self.prepared.stage.gives, remaining, strict=True)


# ---------------------------------------------------------------------------- merging


def plan_merged_hierarchies(
    hierarchies: Mapping[str, Hierarchy],
    shape: StreamSchema,
    planning: PlannerOptions = DEFAULT_OPTIONS,
    *,
    trace: bool = False,
) -> list[tuple[Hierarchy, tuple[str, ...]]]:
    """Merges hierarchies that share layers; returns each merged one with its labels.

    Hierarchies in which a layer's stream would have different types are not merged.
    """

    def merge(labels: Iterable[str]) -> list[tuple[Hierarchy, tuple[str, ...]]]:
        return merge_hierarchies({label: hierarchies[label] for label in labels})

    def agree(labels: Iterable[str]) -> bool:
        (hierarchy, _), *others = merge(labels)
        return not others and _has_same_types(hierarchy, shape, planning, trace=trace)

    merged: list[tuple[str, ...]] = []
    for _, labels in merge_hierarchies(hierarchies):
        if len(labels) == 1 or agree(labels):
            merged.append(labels)
            continue
        groups: list[tuple[str, ...]] = []
        for label in labels:
            number = next((k for k, g in enumerate(groups) if agree((*g, label))), None)
            if number is None:
                groups.append((label,))
            else:
                groups[number] = (*groups[number], label)
        merged += groups
    return [merge(labels)[0] for labels in merged]


def _has_same_types(hierarchy: Hierarchy, shape: StreamSchema, planning: PlannerOptions, *, trace: bool) -> bool:
    """Whether merging leaves the types of all fields as in each single hierarchy."""
    compiled = compile_layers(hierarchy, shape, planning, trace=trace)
    for visible_fields in find_columns_by_query(hierarchy, trace=trace):
        for name, fields in visible_fields.items():
            layer = compiled[name].layer
            below = {n: p.event_schema for n, p in compiled.items() if n in layer.uses}
            shown = {n: compiled[n].layer.shown for n in layer.uses}
            visible = select_visible_columns(below, fields)
            single = _types(build_layer_stream(layer, shape, visible, shown).shape)
            merged = _types(compiled[name].stream.shape)
            if any(merged[field] != type_ for field, type_ in single.items()):
                return False
    return True


def _types(shape: StreamSchema) -> dict[tuple[str, str], pa.DataType]:
    """Returns the types of fields by event type and field."""
    return {
        (name, field): shape.arrow.field(column).type
        for name, columns in (shape.by_type or {}).items()
        for field, column in columns
    }


Levels = Sequence[str] | str | None  # requested levels


def plan_hierarchies(specs: Sequence[QuerySpec], workload: Workload) -> Iterator["HierarchyOperator"]:
    limits = workload.options.planning.limits
    with name_query_in_errors(specs[0].name):
        if limits.evict is not None and not workload.options.explain:
            raise build_eviction_error(HIERARCHY_REASON)
        if limits.shed_ms is not None and not workload.options.explain:
            raise build_shedding_error("complex events would lack some of their members")
    return _compile_hierarchies(specs, workload.source, workload.options)


def describe_hierarchy(hierarchy: Hierarchy) -> dict[str, Any]:
    """Describes a query and its definitions in the text of a checkpoint."""
    definitions = {definition.name: format_query(definition.query) for definition in hierarchy.definitions}
    return {"query": format_query(hierarchy.query), "definitions": definitions, "emit": list(hierarchy.emit)}


def parse_hierarchy(described: Mapping[str, Any], operators: Iterable[UserOperator]) -> Hierarchy:
    """Parses a query and its definitions that a checkpoint describes."""
    definitions = (Definition(name, parse(text, operators)) for name, text in described["definitions"].items())
    return Hierarchy(tuple(definitions), parse(described["query"], operators), tuple(described["emit"]))


def _compile_hierarchies(
    specs: Sequence[QuerySpec], source: SourceSchema, options: RunOptions
) -> Iterator[HierarchyOperator]:
    """Compiles queries on definitions; queries that share layers run on one hierarchy."""
    by_label = {str(spec.number if spec.name is None else spec.name): spec for spec in specs}
    hierarchies = {}
    for label, spec in by_label.items():
        assert isinstance(spec.query, Hierarchy)
        hierarchies[label] = add_levels(spec.query, options.output.levels)
    _require_levels(hierarchies.values(), options.output.levels, single=specs[0].name is None)
    context = source.shape, options.planning
    for label, hierarchy in hierarchies.items():
        if by_label[label].name is not None:
            with name_query_in_errors(by_label[label].name):  # errors name the query
                streaming = options.streaming
                compile_layers(hierarchy, *context, trace=options.output.trace, streaming=streaming)
    for merged, labels in plan_merged_hierarchies(hierarchies, *context, trace=options.output.trace):
        with name_query_in_errors(by_label[labels[0]].name if len(labels) == 1 else None):
            compiled = compile_hierarchy(
                merged, *context, trace=options.output.trace,
                streaming=options.streaming, emit_timeouts=options.output.emit_timeouts,
            )  # fmt: skip
        levels = [
            level for label in labels for level in _list_levels(label, by_label[label], hierarchies[label], compiled)
        ]
        yield HierarchyOperator(compiled, tuple(levels))


def _require_levels(hierarchies: Collection[Hierarchy], levels: Levels, *, single: bool) -> None:
    """Raises a QueryError for a level that no query defines, or that a single query does not use."""
    defined = {name for h in hierarchies for name in (*h.names, h.query.name)}
    for name in (levels,) if isinstance(levels, str) else levels or ():
        if name != "all" and name not in defined:
            raise QueryError(
                f"levels={name!r}: no such event is defined", hint=did_you_mean(name, sorted(n for n in defined if n))
            )
        if single and any(name in hierarchy.unused for hierarchy in hierarchies):
            raise QueryError(
                f"levels={name!r}: it is defined, but the query does not use it",
                hint=f"EMIT {name}; in the text delivers it nevertheless",
            )


def _list_levels(
    label: str, spec: QuerySpec, hierarchy: Hierarchy, compiled: CompiledHierarchy
) -> Iterator[LevelOutput]:
    """Yields the requested levels of a query, then the query itself.

    With several queries, the name of a level starts with that of its query.
    """
    names: list[tuple[str, Name]] = [
        (name, name if spec.name is None else f"{spec.name}.{name}")
        for name in compiled.delivered
        if hierarchy.defined(name) is not None and name in hierarchy.emit
    ]
    tops = {top.label: top.layer for top in compiled.hierarchy.tops}
    query_name = hierarchy.query.name or ""
    names.append((tops.get(label, query_name), query_name if spec.name is None else spec.name))
    meaning = {layer.layer.name: layer.layer.meaning for layer in compiled.layers}
    for layer, output in names:
        schema = compiled.delivered[layer]
        yield LevelOutput(layer, OutputTable(0, output, schema, spec.number, meaning[layer], sorted_by=RESULT_ORDER))
