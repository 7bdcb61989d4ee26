"""Stages of a hierarchy: layers with one key run together, and an exchange separates the stages.

A stage is a set of layers whose input is partitioned by the same key. Its complex events come from
the same key group or from an earlier stage, which sends them to the key groups of the new key.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp

from ensue.analyzer.hierarchy_layers import Layer
from ensue.ir.expression import FieldRef
from ensue.ir.hierarchy import get_pattern_types
from ensue.ir.selection import CONTIGUOUS, ByEvents, Strategy
from ensue.ir.traversal import iterate_atoms
from ensue.planner.physical_plan import PhysicalPlan, ReferencePlan
from ensue.planner.statistics import PlanEstimate, Statistics
from ensue.schema import ANY


@dataclass(frozen=True, slots=True)
class StagePlan:
    """Layers that run on the same key groups."""

    number: int
    key: tuple[str, ...]  # the partition key; empty: one key group for all events
    layers: tuple[Layer, ...]  # lower ones first
    takes: tuple[str, ...]  # complex events of earlier stages that it reads
    gives: tuple[str, ...]  # its complex events that later stages read
    raw: frozenset[str] | None  # the input event types it reads; None: all of them

    @property
    def reads_raw(self) -> bool:
        """Whether it reads input events."""
        return self.raw is None or bool(self.raw)


def build_stages(layers: Sequence[Layer]) -> tuple[StagePlan, ...]:
    """Splits a hierarchy into stages, in topological order."""
    by_name = {layer.name: layer for layer in layers}
    keys = {layer.name: _key(layer) for layer in layers}
    split = _coarsest(list(keys.values()))
    groups: list[tuple[frozenset[str], list[Layer]]] = []
    stage_of: dict[str, int] = {}
    for layer in layers:
        key = split[keys[layer.name]]
        least = max((stage_of[name] for name in layer.uses), default=0)
        for number in range(least, len(groups)):
            inside = [name for name in layer.uses if stage_of[name] == number]
            if groups[number][0] == key and all(_keeps_key(by_name[n], key) for n in inside):
                break
        else:
            number = len(groups)
            groups.append((key, []))
        groups[number][1].append(layer)
        stage_of[layer.name] = number
    return tuple(
        StagePlan(
            number,
            tuple(sorted(key)),
            tuple(members),
            takes=_distinct(name for m in members for name in m.uses if stage_of[name] < number),
            gives=_distinct(
                name for layer in layers for name in layer.uses
                if stage_of[name] == number and stage_of[layer.name] > number
            ),
            raw=_raw(members),
        )
        for number, (key, members) in enumerate(groups)
    )  # fmt: skip


def _key(layer: Layer) -> frozenset[str]:
    """The partition key of a layer; empty, if it reads the events of every partition."""
    strict = Strategy.STRICT in layer.query.strategies
    return frozenset() if strict else frozenset(layer.key)


def _coarsest(keys: Sequence[frozenset[str]]) -> dict[frozenset[str], frozenset[str]]:
    """For each key, its smallest subset that is also the key of a layer.

    Events with equal user and device have an equal user.
    """
    minimal = sorted({k for k in keys if k and not any(o and o < k for o in keys)}, key=sorted)
    return {key: next((small for small in minimal if small <= key), key) for key in keys}


def _keeps_key(layer: Layer, key: frozenset[str]) -> bool:
    """Whether a layer's complex events stay in their key group: their key fields are unchanged."""
    query = layer.meaning
    if not key:
        return True
    returned = {r.name: r.expr for r in query.returns}
    for name in key:
        expr = returned.get(name)
        if expr is not None and not (isinstance(expr, FieldRef) and expr.name == name):
            return False
    return key <= {e.field_name for e in query.equivalence}


def _distinct(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _raw(layers: Sequence[Layer]) -> frozenset[str] | None:
    types: set[str] = set()
    for layer in layers:
        if not layer.reads_raw:
            continue
        query = layer.query
        contiguous = bool(query.strategies & CONTIGUOUS)
        anything = any(atom.type == ANY for atom in iterate_atoms(query.pattern))
        if contiguous or anything or isinstance(query.within, ByEvents):
            return None
        types |= set(get_pattern_types(query)) - set(layer.uses)
    return frozenset(types)


# Evaluation order of the complex events of a layer: with it (top-down), or before (bottom-up).
TOP_DOWN, BOTTOM_UP = "top_down", "bottom_up"  # the names to switch them off by

# In comparisons, as measured in compiled kernels and match tables.
WRITE = 400.0  # a complex event written as a row that higher layers read
READ_AGAIN = 25.0  # an input event read by one more layer
ROLE = 4.0  # an event checked for one more role


@dataclass(frozen=True, slots=True)
class InliningChoice:
    """The evaluation order of one complex event, and the reason."""

    layer: str
    variable: str
    type: str
    top_down: bool
    why: str
    costs: tuple[float, float] | None = None  # top-down and bottom-up


@dataclass(frozen=True, slots=True)
class LayerEstimate:
    """Estimates for the layer of a complex event, per input event."""

    apart: float  # cost of its separate plan, including lower layers
    inside: float  # cost of its part in the plan above, including lower layers
    matches: float
    users: int  # complex events of this layer in others, and subscribers
    before: float  # partial matches that wait for it in a window; 0: it is the first part
    roles: int = 0  # its input events

    @property
    def followed(self) -> float:
        """The probability that a partial match waits for it."""
        return 1.0 if self.before == 0 else 1 - exp(-self.before)


def compute_costs(boxes: Iterable[LayerEstimate], read_again: float) -> tuple[float, float]:
    """The cost of complex events evaluated top-down and bottom-up.

    `read_again` is the share of the input events that the layer above reads as well.

    >>> few = LayerEstimate(apart=10, inside=12, matches=0.001, users=1, before=0)
    >>> [round(c, 1) for c in compute_costs([few], 0)]
    [12.0, 10.4]
    >>> many = LayerEstimate(apart=10, inside=12, matches=0.5, users=1, before=0.1)
    >>> [round(c, 1) for c in compute_costs([many], 0.3)]
    [1.1, 217.5]
    """
    boxes = tuple(boxes)
    down = sum(box.inside * box.followed + box.roles * ROLE for box in boxes)
    up = sum((box.apart + box.matches * WRITE + box.roles * ROLE) / box.users for box in boxes)
    return down, up + read_again * READ_AGAIN


def get_estimate(plan: PhysicalPlan, name: str | None = None) -> PlanEstimate | None:
    """The estimate of a plan, or of another structure for it; None: not estimated."""
    if isinstance(plan.structure, ReferencePlan):
        return None
    for decision in plan.decisions:
        if decision.name == "structure":
            structure = name or decision.chosen
            return next((c.estimate for c in decision.candidates if c.name == structure), None)
    return None


def derive_layer_statistics(
    statistics: Statistics, raw: Iterable[str], found: Mapping[str, float]
) -> tuple[Statistics, float]:
    """The statistics of a layer's stream, and the number of its events per input event.

    `raw` are the input types, `found` the number of complex events per input event.
    """
    if statistics.assumed:
        return statistics, 1.0
    shares = {t: s for t in raw if (s := statistics.share(t)) is not None}
    counts = {**shares, **found}
    total = sum(counts.values())
    if total <= 0 or not found:
        return statistics, 1.0
    rate = None if statistics.rate is None else statistics.rate * total
    parts = tuple(sorted((name, share / total) for name, share in counts.items()))
    return replace(statistics, rate=rate, shares=parts), total
