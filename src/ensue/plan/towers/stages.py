"""Where a tower's stream has to be split anew: layers of one key run together, a cut lies between.

A stage is a set of layers that find all they need in the lanes of one key. What they are made of
comes from the same lane or from an earlier stage, and then it is sent to the lanes of the new key.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ensue.algebra.policy import CONTIGUOUS, Strategy
from ensue.algebra.predicate import Field
from ensue.algebra.tower import types_of
from ensue.algebra.towers.layers import Layer
from ensue.algebra.walk import atoms
from ensue.algebra.window import ByEvents
from ensue.schema import ANY


@dataclass(frozen=True, slots=True)
class Stage:
    """Layers that run in the same lanes."""

    number: int
    key: tuple[str, ...]  # what the stream is split by; empty: one lane for all events
    layers: tuple[Layer, ...]  # lower ones first
    takes: tuple[str, ...]  # the events of earlier stages that it is made of
    gives: tuple[str, ...]  # its events that later stages are made of
    raw: frozenset[str] | None  # the types of events that come in; None: all of them

    @property
    def reads_raw(self) -> bool:
        """Whether events that come in go to its lanes."""
        return self.raw is None or bool(self.raw)


def stages_of(layers: Sequence[Layer]) -> tuple[Stage, ...]:
    """The stages of a tower, in an order in which each needs earlier ones only."""
    by_name = {layer.name: layer for layer in layers}
    keys = {layer.name: _key(layer) for layer in layers}
    split = _coarsest(list(keys.values()))
    groups: list[tuple[frozenset[str], list[Layer]]] = []
    home: dict[str, int] = {}
    for layer in layers:
        key = split[keys[layer.name]]
        least = max((home[name] for name in layer.uses), default=0)
        for number in range(least, len(groups)):
            inside = [name for name in layer.uses if home[name] == number]
            if groups[number][0] == key and all(_keeps(by_name[n], key) for n in inside):
                break
        else:
            number = len(groups)
            groups.append((key, []))
        groups[number][1].append(layer)
        home[layer.name] = number
    return tuple(
        Stage(
            number,
            tuple(sorted(key)),
            tuple(members),
            takes=_named(name for m in members for name in m.uses if home[name] < number),
            gives=_named(
                name for layer in layers for name in layer.uses
                if home[name] == number and home[layer.name] > number
            ),
            raw=_raw(members),
        )
        for number, (key, members) in enumerate(groups)
    )  # fmt: skip


def _key(layer: Layer) -> frozenset[str]:
    """What splits a layer's stream; nothing, where it looks at the events of every partition."""
    strict = Strategy.STRICT in layer.query.strategies
    return frozenset() if strict else frozenset(layer.key)


def _coarsest(keys: Sequence[frozenset[str]]) -> dict[frozenset[str], frozenset[str]]:
    """For each key the smallest part of it that is the key of a layer too.

    Events that are equal in user and device are equal in user.
    """
    least = sorted({k for k in keys if k and not any(o and o < k for o in keys)}, key=sorted)
    return {key: next((small for small in least if small <= key), key) for key in keys}


def _keeps(layer: Layer, key: frozenset[str]) -> bool:
    """Whether a layer's events are in the lane of their own key: its fields mean the same."""
    query = layer.meaning
    if not key:
        return True
    returned = {r.name: r.expr for r in query.returns}
    for name in key:
        expr = returned.get(name)
        if expr is not None and not (isinstance(expr, Field) and expr.name == name):
            return False
    return key <= {e.field_name for e in query.equivalence}


def _named(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _raw(layers: Sequence[Layer]) -> frozenset[str] | None:
    found: set[str] = set()
    for layer in layers:
        if not layer.reads_raw:
            continue
        query = layer.query
        contiguous = bool(query.strategies & CONTIGUOUS)
        anything = any(atom.type == ANY for atom in atoms(query.pattern))
        if contiguous or anything or isinstance(query.within, ByEvents):
            return None
        found |= set(types_of(query)) - set(layer.uses)
    return frozenset(found)
