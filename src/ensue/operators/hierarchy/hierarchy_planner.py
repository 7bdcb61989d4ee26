"""Compiles hierarchies for a stream: a plan for each layer, and the schemas between layers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from hashlib import blake2b
from itertools import combinations

import pyarrow as pa

from ensue.analyzer.hierarchy_inlining import InlinedQuery, InlinedVariable, find_inlinable, inline_layer
from ensue.analyzer.hierarchy_layers import MEMBERS, STANDARD_FIELDS, Layer, build_layers, build_order_conditions
from ensue.analyzer.hierarchy_merge import expand_stars
from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.analyzer.output_mode import returns_matches
from ensue.analyzer.pattern_rules import iterate_trailing_negations
from ensue.analyzer.query import check_query
from ensue.analyzer.time_bounds import compute_interval_distance
from ensue.codegen.user_functions import find_uncompilable
from ensue.errors import QueryError, did_you_mean
from ensue.ir.canonical_form import compute_fingerprint
from ensue.ir.expression import Aggregate, EventPosition, Expr, FieldRef, FunctionCall
from ensue.ir.hierarchy import FIRST_POSITION, LAST_POSITION, Hierarchy, get_pattern_types
from ensue.ir.query import Query, ReturnItem
from ensue.ir.selection import ByEvents, Strategy
from ensue.ir.traversal import (
    ends_greedily,
    get_kleene_variables,
    iterate_atoms,
    iterate_bound_variables,
    iterate_operator_calls,
)
from ensue.ir.user_operator import OperatorInputs
from ensue.operators.hierarchy.compiled_hierarchy import (
    CompiledHierarchy,
    CompiledLayer,
    InlinedLayer,
    build_delivered_schema,
    build_event_schema,
)
from ensue.operators.hierarchy.layer_stream import (
    MEMBER,
    LayerEventStream,
    add_timeout_flag,
    build_layer_stream,
    plan_layer_timeouts,
)
from ensue.planner.cost_model import MOST
from ensue.planner.hierarchy_modules import HierarchyModule
from ensue.planner.hierarchy_stages import (
    BOTTOM_UP,
    TOP_DOWN,
    InliningChoice,
    LayerEstimate,
    compute_costs,
    derive_layer_statistics,
    get_estimate,
)
from ensue.planner.join_order import NAMES
from ensue.planner.planner import choose_plan
from ensue.planner.planner_options import DEFAULT_OPTIONS, PlannerOptions
from ensue.projection.match_order import RANK
from ensue.runtime.compiled_query import CompiledQuery, get_result_schema
from ensue.schema import get_type_names
from ensue.vector.arrow_types import window_to_ticks
from ensue.vector.event_table import StreamSchema
from ensue.vector.query_check import check_with_regions

VisibleColumns = Mapping[str, frozenset[str]]  # the visible columns of each lower layer
_ALWAYS = frozenset({*STANDARD_FIELDS, MEMBERS, LAST_POSITION, FIRST_POSITION, RANK})


def find_visible_columns(hierarchy: Hierarchy, *, trace: bool) -> dict[str, VisibleColumns]:
    """Returns the columns that each layer of a hierarchy with several top queries reads."""
    visible: dict[str, dict[str, frozenset[str]]] = {}
    for layers_of_query in find_columns_by_query(hierarchy, trace=trace):
        for layer, seen in layers_of_query.items():
            columns_of = visible.setdefault(layer, {})
            for name, columns in seen.items():
                columns_of[name] = columns_of.get(name, frozenset()) | columns
    return dict(visible)


def select_visible_columns(below: Mapping[str, pa.Schema], seen: VisibleColumns) -> dict[str, pa.Schema]:
    """Drops the columns of lower layers that only other queries read."""
    return {
        name: pa.schema([f for f in schema if f.name in _ALWAYS or f.name in seen[name]])
        for name, schema in below.items()
    }


def find_columns_by_query(hierarchy: Hierarchy, *, trace: bool) -> list[dict[str, VisibleColumns]]:
    """Returns for each top query its layers, with the columns they read for it alone."""
    result: list[dict[str, VisibleColumns]] = []
    for top in hierarchy.tops:
        layers = build_layers(hierarchy.alone(top.label), trace=trace)
        returned = {x.name: frozenset(r.name for r in x.query.returns) for x in layers}
        columns = [{name: returned[name] for name in layer.uses} for layer in layers]
        names = [top.layer if layer.top_queries else layer.name for layer in layers]
        result.append(dict(zip(names, columns, strict=True)))
    return result


# ---------------------------------------------------------------------------- compilation


def add_levels(hierarchy: Hierarchy, levels: Sequence[str] | str | None) -> Hierarchy:
    """Adds the requested levels that a hierarchy defines to those of EMIT; "all" are all of them."""
    requested = (levels,) if isinstance(levels, str) else levels or ()
    names = (definition.name for definition in hierarchy.definitions)
    extra = tuple(n for n in names if ("all" in requested or n in requested) and n not in hierarchy.emit)
    return replace(hierarchy, emit=(*hierarchy.emit, *extra)) if extra else hierarchy


def compile_hierarchy(
    hierarchy: Hierarchy,
    shape: StreamSchema,
    planning: PlannerOptions = DEFAULT_OPTIONS,
    *,
    levels: Sequence[str] | str | None = None,
    trace: bool = False,
    streaming: bool = False,
    emit_timeouts: bool = False,
) -> CompiledHierarchy:
    """Checks and plans the layers of a hierarchy for a stream's shape.

    With `emit_timeouts` delivered levels also return their timed-out partial matches.
    """
    hierarchy = add_levels(expand_stars(hierarchy, shape.schema), levels)
    compiled = compile_layers(hierarchy, shape, planning, trace=trace, streaming=streaming)
    if emit_timeouts:
        for name, layer in compiled.items():
            compiled[name] = add_timeout_queries(layer) if layer.layer.delivered else layer
    definitions = [layer.layer for layer in compiled.values()]
    separate, choices = choose_inlining(definitions, compiled, shape, planning)
    return CompiledHierarchy(hierarchy, separate, shape, choices, trace)


def compile_layers(
    hierarchy: Hierarchy,
    shape: StreamSchema,
    planning: PlannerOptions = DEFAULT_OPTIONS,
    *,
    trace: bool = False,
    streaming: bool = False,
) -> dict[str, CompiledLayer]:
    """Compiles each layer of a hierarchy as a separate matcher."""
    check_names(hierarchy, shape)
    hierarchy = expand_stars(hierarchy, shape.schema)
    compiled: dict[str, CompiledLayer] = {}
    identities: dict[str, bytes] = {}
    rates: dict[str, float] = {}  # complex events per input event
    definitions = build_layers(hierarchy, trace=trace)
    ranked = _find_ordered_layers(definitions)
    seen = find_visible_columns(hierarchy, trace=trace)
    for layer in definitions:
        below = {name: lower.event_schema for name, lower in compiled.items() if name in layer.uses}
        if layer.name in seen:
            below = select_visible_columns(below, seen[layer.name])
        shown = {name: compiled[name].layer.shown for name in layer.uses}
        stream = build_layer_stream(layer, shape, below, shown)
        waits = max((compiled[name].settles for name in layer.uses), default=0)
        raw = [t for t in get_pattern_types(layer.query) if t not in below]
        lower_rates = {name: rates[name] for name in layer.uses}
        statistics, events = derive_layer_statistics(planning.statistics, raw, lower_rates)
        identities[layer.name] = compute_fingerprint(layer.meaning)
        if layer.uses:  # the identity covers the layers below
            parts = [identities[name] for name in (layer.name, *layer.uses)]
            identities[layer.name] = blake2b(b"".join(parts), digest_size=16).digest()
        options = replace(planning, statistics=statistics)
        compiled[layer.name] = _compile_layer(
            layer, stream, options, identities[layer.name], waits, events,
            ranked=layer.name in ranked, streaming=streaming,
        )  # fmt: skip
        estimate = get_estimate(compiled[layer.name].prepared.plan)
        rates[layer.name] = 0.0 if estimate is None else estimate.matches * events
    return compiled


def check_names(hierarchy: Hierarchy, shape: StreamSchema) -> None:
    """Raises a QueryError if a type is both defined and a table of events, or neither."""
    for definition in hierarchy.definitions:
        if definition.name in (shape.by_type or {}):
            raise QueryError(
                f"'{definition.name}' is defined, and is also the name of a table of events",
                hint="give one of them another name",
                span=definition.span,
                text=definition.query.text,
            )
    if shape.by_type is None:
        return
    for query in hierarchy.queries:
        for atom in iterate_atoms(query.pattern):
            for name in get_type_names(atom.type):
                if name in shape.by_type or name in hierarchy.names:
                    continue
                where = f"in the definition of {query.name}: " if query.name else ""
                raise QueryError(
                    f"{where}unknown event type '{name}'",
                    hint=did_you_mean(name, [*hierarchy.names, *shape.by_type]),
                    span=atom.span,
                    text=query.text,
                )


def _compile_layer(
    layer: Layer,
    stream: LayerEventStream,
    planning: PlannerOptions,
    identity: bytes,
    waits: int | float,
    events_per_input: float,
    *,
    ranked: bool,
    streaming: bool,
) -> CompiledLayer:
    schema = stream.shape.schema
    try:
        checked = check_with_regions(layer.query, schema, streaming=streaming, derived=False)
    except QueryError as error:
        raise _name_definition(error, layer) from None
    query = _add_positions(checked, layer, stream)
    physical, schema = stream.shape.physical(query)
    plan = choose_plan(physical, schema, planning, python=find_uncompilable(physical))
    prepared = CompiledQuery(query, plan, stream.shape, identity, planning)
    event_schema = build_event_schema(get_result_schema(prepared), layer)
    delay = _compute_delay(checked, stream.shape, streaming=streaming)
    if streaming and delay == math.inf and not layer.top_queries:
        raise _name_definition(_never_settles(checked), layer)
    settles = waits + delay
    if ranked and settles > waits:
        event_schema = event_schema.append(pa.field(RANK, pa.binary()))
    result = build_delivered_schema(event_schema, layer)
    return CompiledLayer(layer, stream, prepared, event_schema, result, waits, settles, ranked, events_per_input)


def _never_settles(query: Query) -> QueryError:
    return QueryError(
        "an absence until a fixed moment may take any time to decide, and layers above cannot wait for it",
        hint="let its interval end a length of time after an event, as in TO a.end + 5",
        span=next(negation for negation, _ in iterate_interval_negations(query.pattern)).span,
        text=query.text,
    )


def add_timeout_queries(compiled: CompiledLayer) -> CompiledLayer:
    """Adds the queries for timed-out partial matches to a layer."""
    layer, stream, query_compiled = compiled.layer, compiled.stream, compiled.prepared
    planning = replace(query_compiled.planning, structure=None, shape=None)
    assert query_compiled.identity is not None
    identity = blake2b(query_compiled.identity, digest_size=16, person=b"timed out").digest()
    queries = []
    try:
        checked = check_query(layer.query, stream.shape.schema)
        for query in plan_layer_timeouts(layer, checked, query_compiled):
            ordered = _order_members(query, stream)
            ordered = _add_members(ordered) if layer.members else ordered
            # not checked again: a chain of equalities must not become another key
            physical, schema = stream.shape.physical(ordered)
            plan = choose_plan(physical, schema, planning)
            queries.append(CompiledQuery(ordered, plan, stream.shape, identity, planning))
    except QueryError as error:
        raise _name_definition(error, layer) from None
    result = add_timeout_flag(compiled.result, layer)
    return replace(compiled, timeouts=tuple(queries), result=result)


def _name_definition(error: QueryError, layer: Layer) -> QueryError:
    if layer.called and not error.problem.startswith("in the definition"):
        error.problem = f"in the definition of {layer.called}: {error.problem}"
    return error


def _find_ordered_layers(definitions: Sequence[Layer]) -> set[str]:
    """Returns the layers whose order of events affects matches of layers above."""
    ordered: set[str] = set()
    for layer in reversed(definitions):
        if layer.name in ordered or _depends_on_order(layer.query):
            ordered |= set(layer.uses)
    return ordered


def _depends_on_order(query: Query) -> bool:
    return (
        query.strategies != {Strategy.ANY}
        or query.selects_matches
        or query.limit is not None
        or isinstance(query.within, ByEvents)
        or any(call.operator.over is OperatorInputs.REPEAT for call in iterate_operator_calls(query.pattern))
    )


def _compute_delay(query: Query, shape: StreamSchema, *, streaming: bool) -> int | float:
    """Computes how long after its end a match may stay undecided."""
    negation = next(iterate_trailing_negations(query.pattern), None)
    by_start = query.after is not None and query.after.by_start
    ahead = _compute_interval_delay(query, shape)
    if negation is None and not by_start and not ends_greedily(query.pattern):
        return ahead
    length = window_to_ticks(query.within, shape.unit)
    if length is None and streaming:
        what = "AFTER MATCH IN ORDER OF START" if by_start else "a greedy loop at the end"
        what = what if negation is None else "a negation at the end"
        raise QueryError(
            f"{what} without a length of time in WITHIN may take any time to decide, "
            "and layers above cannot wait for it",
            hint="give the window as a length of time",
            span=query.pattern.span if negation is None else negation.span,
            text=query.text,
        )
    return math.inf if length is None else length + ahead


def _compute_interval_delay(query: Query, shape: StreamSchema) -> int | float:
    """Computes how long after a match the intervals of its absences may last."""
    ahead: int | float = 0
    for _, interval in iterate_interval_negations(query.pattern):
        bounds = compute_interval_distance(interval, query, shape.schema)
        if bounds is None or bounds.ahead is None:
            return math.inf
        # if it ends before the match, the match is decided once no event of its end time can arrive
        ahead = max(ahead, _in_unit(bounds.ahead, shape) if bounds.ahead > 0 else 1)
    return ahead


def _in_unit(length: Fraction, shape: StreamSchema) -> int | float:
    """Converts a length, in nanoseconds for timestamps, to the unit of the time arrays."""
    if shape.schema.time_kind.numeric:
        return int(length) if length.denominator == 1 else float(length)
    return math.ceil(length if shape.unit == "ns" else length / 1_000)


# -------------------------------------------------------------------------------------- columns


def _add_positions(query: Query, layer: Layer, stream: LayerEventStream) -> Query:
    """Adds conditions on the positions of members, and the positions of the matches."""
    query = _order_members(query, stream)
    if not returns_matches(query):
        return query
    if layer.called:
        first = _aggregate_position(query, FIRST_POSITION, "min", "least")
        last = _aggregate_position(query, LAST_POSITION, "max", "greatest")
        positions = (ReturnItem(first, FIRST_POSITION), ReturnItem(last, LAST_POSITION))
        query = replace(query, returns=(*query.returns, *positions))
    return _add_members(query) if layer.members else query


def _order_members(query: Query, stream: LayerEventStream) -> Query:
    where = (*query.where, *build_order_conditions(query.pattern, stream.complex_))
    return replace(query, where=where)


def _add_members(query: Query) -> Query:
    lists = get_kleene_variables(query.pattern)
    refs = [
        FieldRef(v, None, EventPosition.ALL if v in lists else EventPosition.ONLY)
        for v in iterate_bound_variables(query.pattern)
    ]
    members = (ReturnItem(ref, f"{MEMBER}{ref.variable}") for ref in refs)
    return replace(query, returns=(*query.returns, *members))


def _aggregate_position(query: Query, name: str, aggregate: str, function: str) -> Expr:
    """Builds the first or last position of all events of a match."""
    lists = get_kleene_variables(query.pattern)
    operators = {applied.variable for applied in iterate_operator_calls(query.pattern)}
    places: list[Expr] = [
        Aggregate(aggregate, v, FieldRef(v, name, EventPosition.ALL)) if v in lists else FieldRef(v, name)
        for v in iterate_bound_variables(query.pattern)
        if v not in operators
    ]
    return reduce(lambda a, b: FunctionCall(function, (a, b)), places)


ON_TOP = "the query"
FEW = 3  # nested complex events of which every combination is compared


def choose_inlining(
    layers: Sequence[Layer], compiled: Mapping[str, CompiledLayer], shape: StreamSchema, planning: PlannerOptions
) -> tuple[tuple[CompiledLayer, ...], tuple[InliningChoice, ...]]:
    """Returns the layers with a matcher, and the inlining choice of each nested complex event."""
    inlining = _Inlining(layers, compiled, shape, planning)
    for layer in layers:
        inlining.decide(layer)
    return inlining.select_layers(), tuple(inlining.choices)


class _Inlining:
    """Decides layer by layer, lower ones first, which nested complex events are inlined."""

    def __init__(
        self,
        layers: Sequence[Layer],
        prepared: Mapping[str, CompiledLayer],
        shape: StreamSchema,
        planning: PlannerOptions,
    ) -> None:
        self.layers = layers
        self.prepared = dict(prepared)
        self.shape = shape
        self.planning = planning
        self.reasons = find_inlinable(layers)
        self.inlined: set[InlinedVariable] = set()
        self.choices: list[InliningChoice] = []
        self.inner: dict[str, float] = {}  # chosen cost of a layer's nested complex events

    def decide(self, layer: Layer) -> None:
        """Decides for the complex events of a layer, after those of the layers below."""
        nested = [a for a in iterate_atoms(layer.query.pattern) if a.type in self.prepared]
        obstacles = {a.variable: self._why_not(layer, a.variable) for a in nested}
        candidates = [a.variable for a in nested if obstacles[a.variable] is None]
        types = {a.variable: str(a.type) for a in nested}  # which are no alternatives
        measured = not self.planning.statistics.assumed
        always = BOTTOM_UP in self.planning.off
        selected, figures = frozenset[str](), None
        inlined: InlinedLayer | None = None
        if always or not measured:
            why_inlined = f"{BOTTOM_UP}: off" if always else "nothing else uses it"
            single = frozenset(v for v in candidates if always or self._count_users(types[v]) == 1)
            if single:
                inlined = self._try_inlining(layer, single, obstacles)
                selected = single if inlined is not None else selected
        else:
            why_inlined = "cheaper"
            choices = [frozenset(c) for c in _combinations(candidates)]
            costs = {choice: self._costs(layer, choice, types) for choice in choices}
            for choice in sorted(choices, key=costs.__getitem__):
                inlined = self._try_inlining(layer, choice, obstacles) if choice else None
                if inlined is not None or not choice:
                    selected = choice
                    figures = (costs[choice], costs[frozenset()])
                    self.inner[layer.name] = costs[choice]
                    break
        if inlined is not None:
            # the delay stays: an inlined event has no trailing negation, so it is known at once
            self.inlined |= {(layer.name, v) for v in selected}
            self.prepared[layer.name] = replace(self.prepared[layer.name], opened=inlined)
        for variable, name in types.items():
            users = self._count_users(name)
            why_separate = f"{users} use it" if users > 1 else ("cheaper" if measured else "")
            is_inlined = variable in selected
            why = why_inlined if is_inlined else obstacles[variable] or why_separate
            choice_ = InliningChoice(layer.name, variable, name, is_inlined, why, figures)
            self.choices.append(choice_)

    def _why_not(self, layer: Layer, variable: str) -> str | None:
        if TOP_DOWN in self.planning.off:
            return f"{TOP_DOWN}: off"
        if self.prepared[layer.name].timeouts is not None:
            return f"timed-out partial matches of {layer.called or ON_TOP} are made of it"
        if self.prepared[layer.name].ranked:
            return f"layers above go by the order of {layer.name}"
        if self.planning.structure not in (None, "tree"):
            return f"structure='{self.planning.structure}'"
        if self.planning.adaptive:
            return "the plans of layers change while they run"
        return self.reasons[(layer.name, variable)]

    def _count_users(self, name: str) -> int:
        """Counts the patterns that use a layer, and its delivery."""
        atoms = (a for other in self.layers for a in iterate_atoms(other.query.pattern))
        delivered = any(o.name == name and o.delivered for o in self.layers)
        return sum(a.type == name for a in atoms) + delivered

    # -------------------------------------------------------------------------------- costs

    def _costs(self, layer: Layer, choice: frozenset[str], types: Mapping[str, str]) -> float:
        """Estimates the cost of a layer's complex events when those in `choice` are inlined."""
        inlined = [self._input_costs(layer, v, types[v]) for v in types if v in choice]
        separate = [self._input_costs(layer, v, types[v]) for v in types if v not in choice]
        cost, _ = compute_costs(inlined, 0)
        if not separate:
            return cost
        raw = [t for t in get_pattern_types(layer.query) if t not in self.prepared]
        read_again = min(1.0, sum(self.planning.statistics.share(t) or 0.0 for t in raw))
        return cost + compute_costs(separate, read_again)[1]

    def _input_costs(self, layer: Layer, variable: str, name: str) -> LayerEstimate:
        lower, upper = self.prepared[name], self.prepared[layer.name]
        own = get_estimate(lower.prepared.plan)
        tree = get_estimate(lower.prepared.plan, NAMES["tree"])
        if own is None:
            return LayerEstimate(MOST, MOST, 0.0, 1, 0.0)
        upper_estimate, inner = get_estimate(upper.prepared.plan), self.inner.get(name, 0.0)
        first = next(iterate_atoms(layer.query.pattern)).variable == variable
        waiting = 0.0 if first or upper_estimate is None else max(upper_estimate.partial, 1e-9)
        return LayerEstimate(
            own.cost * lower.events_per_input + inner,
            (tree or own).cost * lower.events_per_input + inner,
            own.matches * lower.events_per_input,
            self._count_users(name),
            waiting,
            sum(a.type not in self.prepared for a in iterate_atoms(lower.layer.query.pattern)),
        )

    def _try_inlining(
        self, layer: Layer, choice: frozenset[str], reasons: dict[str, str | None]
    ) -> InlinedLayer | None:
        """Inlines some complex events of a layer; sets the reason where no join tree can."""
        names = self.inlined | {(layer.name, variable) for variable in choice}
        raw = self.shape.schema
        flat = inline_layer(self.layers, names, name=layer.name, times=(raw.start, raw.end))
        try:
            return self._inline(layer, flat)
        except _NotInlinableError as error:
            for variable in choice:
                reasons[variable] = str(error)
            return None

    def _inline(self, layer: Layer, flat: InlinedQuery) -> InlinedLayer:
        query = replace(flat.query, returns=(), having=None)
        uses = tuple(n for n in self.prepared if n in get_pattern_types(query))
        pseudo = replace(layer, query=query, uses=uses)
        below = {name: self.prepared[name].event_schema for name in uses}
        stream = build_layer_stream(pseudo, self.shape, below, dict.fromkeys(uses, ()))
        arrow, raw = stream.shape.arrow, self.shape.arrow if uses and stream.reads_raw else ()
        if any(arrow.field(f.name).type != f.type for f in raw):
            raise _NotInlinableError("columns of one name have different types")
        checked = check_query(query, stream.shape.schema)
        order = build_order_conditions(checked.pattern, stream.complex_)
        ordered = replace(checked, where=(*checked.where, *order))
        physical, schema = stream.shape.physical(ordered)
        modules = tuple(HierarchyModule(b.name, b.box, b.variables, b.within, b.level, b.precursor) for b in flat.boxes)
        planning = replace(self.planning, structure="tree", shape=None, modules=modules)
        try:
            plan = choose_plan(physical, schema, planning)
        except QueryError as error:
            raise _NotInlinableError(error.problem.rpartition(": ")[2]) from None
        nested = {b.name: self.prepared[b.name] for b in flat.boxes}
        sources = {name: (compiled.prepared, compiled.stream) for name, compiled in nested.items()}
        prepared = CompiledQuery(ordered, plan, stream.shape, planning=planning)
        return InlinedLayer(prepared, stream, flat, sources)

    def select_layers(self) -> tuple[CompiledLayer, ...]:
        """Returns the layers that are delivered or that other layers read."""
        needed: set[str] = set()
        for layer in reversed(self.layers):
            compiled = self.prepared[layer.name]
            if layer.delivered or layer.name in needed:
                needed |= {layer.name, *compiled.source.complex_}
        return tuple(self.prepared[x.name] for x in self.layers if x.name in needed)


class _NotInlinableError(Exception):
    """Says why complex events cannot be inlined."""


def _combinations(candidates: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the choices to compare: every combination of few, else all or none."""
    if len(candidates) > FEW:
        return [(), tuple(candidates)]
    sizes = range(len(candidates) + 1)
    return [choice for size in sizes for choice in combinations(candidates, size)]
