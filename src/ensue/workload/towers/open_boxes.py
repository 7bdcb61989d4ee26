"""Decides for each box of a tower how it is found, and opens those found from the top down."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from ensue.algebra.check.query import check
from ensue.algebra.tower import types_of
from ensue.algebra.towers.behind import members_in_order
from ensue.algebra.towers.boxes import Choice, boxes_of
from ensue.algebra.towers.inlining import Inlined, inlined
from ensue.algebra.towers.layers import Layer
from ensue.algebra.walk import atoms
from ensue.columns.stream import Shape
from ensue.errors import QueryError
from ensue.plan.choose import choose
from ensue.plan.estimates.candidates import NAMES
from ensue.plan.estimates.load import MOST
from ensue.plan.planning import Planning
from ensue.plan.towers.boxes import BOTTOM_UP, TOP_DOWN, Below, BoxChoice, costs, expected
from ensue.workload.prepared import Prepared
from ensue.workload.towers.layer_stream import LayerStream, layer_stream
from ensue.workload.towers.opened_layer import Opened, modules_of
from ensue.workload.towers.prepared import PreparedLayer

ON_TOP = "the query"
FEW = 3  # boxes of a layer, of which every choice is weighed


def open_boxes(
    layers: Sequence[Layer],
    prepared: Mapping[str, PreparedLayer],
    shape: Shape,
    planning: Planning,
) -> tuple[tuple[PreparedLayer, ...], tuple[BoxChoice, ...]]:
    """The layers that have a matcher of their own, and how every box is found."""
    opening = _Opening(layers, prepared, shape, planning)
    for layer in layers:
        opening.decide(layer)
    return opening.kept(), tuple(opening.choices)


class _Opening:
    def __init__(
        self,
        layers: Sequence[Layer],
        prepared: Mapping[str, PreparedLayer],
        shape: Shape,
        planning: Planning,
    ) -> None:
        self.layers = layers
        self.prepared = dict(prepared)
        self.shape = shape
        self.planning = planning
        self.reasons = boxes_of(layers)
        self.gone: set[Choice] = set()
        self.choices: list[BoxChoice] = []
        self.inner: dict[str, float] = {}  # what the boxes of a layer cost as they are found

    def decide(self, layer: Layer) -> None:
        """How the boxes of a layer are found, those of the layers below being decided."""
        boxes = [a for a in atoms(layer.query.pattern) if a.type in self.prepared]
        reasons = {a.variable: self._why_not(layer, a.variable) for a in boxes}
        free = [a.variable for a in boxes if reasons[a.variable] is None]
        types = {a.variable: str(a.type) for a in boxes}  # which are no alternatives
        known = not self.planning.statistics.assumed
        why, best, figures = "", frozenset[str](), None
        opened: Opened | None = None
        if BOTTOM_UP in self.planning.off or not known:
            alone = [
                v for v in free if BOTTOM_UP in self.planning.off or self._users(types[v]) == 1
            ]
            why = f"{BOTTOM_UP}: off" if BOTTOM_UP in self.planning.off else "nothing else uses it"
            if alone:
                opened = self._tried(layer, frozenset(alone), reasons)
                best = frozenset(alone) if opened is not None else best
        else:
            why = "cheaper"
            ways = [(self._costs(layer, frozenset(w), types), frozenset(w)) for w in _ways(free)]
            for total, way in sorted(ways, key=lambda pair: pair[0]):
                opened = self._tried(layer, way, reasons) if way else None
                if opened is not None or not way:
                    best = way
                    figures = (total, next(t for t, w in ways if not w))
                    self.inner[layer.name] = total
                    break
        if opened is not None:
            # it waits as before: an open box has no negation at its end, and is known at once
            self.gone |= {(layer.name, v) for v in best}
            self.prepared[layer.name] = replace(self.prepared[layer.name], opened=opened)
        for atom in boxes:
            down = atom.variable in best
            apart = reasons[atom.variable] or self._why_apart(types[atom.variable], known)
            reason = why if down else apart
            self.choices.append(
                BoxChoice(layer.name, atom.variable, types[atom.variable], down, reason, figures)
            )

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

    def _why_apart(self, name: str, known: bool) -> str:
        users = self._users(name)
        return f"{users} use it" if users > 1 else ("cheaper" if known else "")

    def _users(self, name: str) -> int:
        """The boxes that stand for a layer, and its subscribers."""
        own = [a for other in self.layers for a in atoms(other.query.pattern) if a.type == name]
        return len(own) + any(o.name == name and o.delivered for o in self.layers)

    # -------------------------------------------------------------------------------- costs

    def _costs(self, layer: Layer, way: frozenset[str], types: Mapping[str, str]) -> float:
        """What the boxes of a layer cost, some of them from the top down."""
        inside = [self._below(layer, v, types[v]) for v in types if v in way]
        apart = [self._below(layer, v, types[v]) for v in types if v not in way]
        down, _ = costs(inside, 0)
        read_again = self._read_again(layer) if apart else 0.0
        return down + (costs(apart, read_again)[1] if apart else 0.0)

    def _below(self, layer: Layer, variable: str, name: str) -> Below:
        one, above = self.prepared[name], self.prepared[layer.name]
        own, tree = expected(one.prepared.plan), expected(one.prepared.plan, NAMES["tree"])
        if own is None:
            return Below(MOST, MOST, 0.0, 1, 0.0)
        whole, inner = expected(above.prepared.plan), self.inner.get(name, 0.0)
        first = next(atoms(layer.query.pattern)).variable == variable
        waiting = 0.0 if first or whole is None else max(whole.partial, 1e-9)
        return Below(
            own.cost * one.crowd + inner,
            (tree or own).cost * one.crowd + inner,
            own.matches * one.crowd,
            self._users(name),
            waiting,
            sum(1 for a in atoms(one.layer.query.pattern) if a.type not in self.prepared),
        )

    def _read_again(self, layer: Layer) -> float:
        raw = [t for t in types_of(layer.query) if t not in self.prepared]
        return min(1.0, sum(self.planning.statistics.share(t) or 0.0 for t in raw))

    # -------------------------------------------------------------------------------- opening

    def _tried(
        self, layer: Layer, way: frozenset[str], reasons: dict[str, str | None]
    ) -> Opened | None:
        """The layer with some boxes open; None, and the reason, where no join tree takes it."""
        gone = self.gone | {(layer.name, variable) for variable in way}
        raw = self.shape.schema
        flat = inlined(self.layers, gone, name=layer.name, times=(raw.start, raw.end))
        try:
            return self._opened(layer, flat)
        except _CannotError as error:
            for variable in way:
                reasons[variable] = str(error)
            return None

    def _opened(self, layer: Layer, flat: Inlined) -> Opened:
        query = replace(flat.query, returns=(), having=None)
        uses = tuple(n for n in self.prepared if n in types_of(query))
        pseudo = replace(layer, query=query, uses=uses)
        below = {name: self.prepared[name].found for name in uses}
        stream = layer_stream(pseudo, self.shape, below, dict.fromkeys(uses, ()))
        if uses and stream.reads_raw and not _same_columns(stream, self.shape):
            raise _CannotError("columns of one name have different types")
        checked = check(query, stream.shape.schema)
        whole = replace(
            checked, where=(*checked.where, *members_in_order(checked.pattern, stream.complex_))
        )
        physical, schema = stream.shape.physical(whole)
        planning = replace(self.planning, structure="tree", shape=None, modules=modules_of(flat))
        try:
            plan = choose(physical, schema, planning)
        except QueryError as error:
            raise _CannotError(error.problem.rpartition(": ")[2]) from None
        boxes = {b.name: self.prepared[b.name] for b in flat.boxes}
        made = {name: (one.prepared, one.stream) for name, one in boxes.items()}
        prepared = Prepared(whole, plan, stream.shape, planning=planning)
        return Opened(prepared, stream, flat, made)

    def kept(self) -> tuple[PreparedLayer, ...]:
        """The layers that are delivered or that others need as they are."""
        wanted: set[str] = set()
        for layer in reversed(self.layers):
            one = self.prepared[layer.name]
            if layer.delivered or layer.name in wanted:
                wanted |= {layer.name, *one.source.complex_}
        return tuple(self.prepared[x.name] for x in self.layers if x.name in wanted)


class _CannotError(Exception):
    """Why boxes cannot be open."""


def _ways(free: Sequence[str]) -> list[tuple[str, ...]]:
    """Which boxes may be open together: every choice of few, else all or none."""
    if len(free) > FEW:
        return [(), tuple(free)]
    return [way for size in range(len(free) + 1) for way in combinations(free, size)]


def _same_columns(stream: LayerStream, raw: Shape) -> bool:
    return all(stream.shape.arrow.field(f.name).type == f.type for f in raw.arrow)
