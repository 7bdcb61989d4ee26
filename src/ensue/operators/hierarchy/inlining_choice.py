"""Chooses which complex events are inlined into the query of a layer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from ensue.analyzer.hierarchy_inlining import InlinedQuery, InlinedVariable, find_inlinable, inline_layer
from ensue.analyzer.hierarchy_layers import Layer, build_order_conditions
from ensue.analyzer.query import check_query
from ensue.errors import QueryError
from ensue.ir.hierarchy import get_pattern_types
from ensue.ir.traversal import iterate_atoms
from ensue.operators.hierarchy.compiled_hierarchy import CompiledLayer, InlinedLayer
from ensue.operators.hierarchy.layer_stream import build_layer_stream
from ensue.planner.hierarchy_modules import HierarchyModule
from ensue.planner.hierarchy_stages import (
    BOTTOM_UP,
    TOP_DOWN,
    InliningChoice,
    LayerEstimate,
    compute_costs,
    get_estimate,
)
from ensue.planner.join_order import MOST, NAMES
from ensue.planner.planner import choose_plan
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.compiled_query import CompiledQuery
from ensue.vector.event_table import StreamSchema

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
