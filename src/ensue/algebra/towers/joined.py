"""Several towers as one: what they define alike is one layer, and each has its query on top."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from ensue.algebra.tower import Definition, Top, Tower, types_of
from ensue.algebra.towers.layers import layers


def joined(towers: Mapping[str, Tower]) -> list[tuple[Tower, tuple[str, ...]]]:
    """Towers by their labels as few towers with many queries on top, and the labels of each.

    Those go together in which every name means the same. A tower that goes with no other stays as
    it is.
    """
    facts = {label: _facts(tower) for label, tower in towers.items()}
    groups: list[list[str]] = []
    for label in towers:
        for group in groups:
            if _order(facts[one] for one in (*group, label)) is not None:
                group.append(label)
                break
        else:
            groups.append([label])
    return [(_one({n: towers[n] for n in g}, [facts[n] for n in g]), tuple(g)) for g in groups]


def _one(group: Mapping[str, Tower], facts: Iterable["_Facts"]) -> Tower:
    if len(group) == 1:
        return next(iter(group.values()))
    order = _order(facts)
    assert order is not None
    names = {definition.name for definition in order}
    tops = tuple(
        Top(label, tower.query, tuple(n for n in tower.emit if tower.defined(n)))
        for label, tower in group.items()
    )
    emit = dict.fromkeys(name for top in tops for name in top.emit)
    unused = dict.fromkeys(n for t in group.values() for n in t.unused if n not in names)
    return Tower(tuple(order), tops[0].query, tuple(emit), tuple(unused), tops)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What towers must agree on."""

    definitions: tuple[Definition, ...]
    raw: frozenset[str]  # the types of events that come in
    opened: Mapping[str, bool]  # whether somebody asks for the members of an event
    beside: tuple[tuple[str, str], ...]  # definitions that some layer has beside each other


def _facts(tower: Tower) -> _Facts:
    made = layers(tower)
    own = {definition.name for definition in tower.definitions}
    return _Facts(
        tower.definitions,
        frozenset(name for query in tower.queries for name in types_of(query)) - own,
        {layer.name: layer.members for layer in made if not layer.on_top},
        tuple(
            pair
            for layer in made
            for pair in pairwise(d.name for d in tower.definitions if d.name in layer.uses)
        ),
    )


def _order(towers: Iterable[_Facts]) -> Sequence[Definition] | None:
    """The definitions of towers in an order that is right for each; None: they do not agree.

    Complex events behind one event stand in the order of their definitions, so those that a
    layer has beside each other must stay in it. An event with its members looks different to all
    who take it as a whole.
    """
    towers = tuple(towers)
    known: dict[str, Definition] = {}
    opened: dict[str, bool] = {}
    before: dict[str, dict[str, None]] = {}  # in order: every process finds the same
    for tower in towers:
        for definition in tower.definitions:
            if known.setdefault(definition.name, definition).query != definition.query:
                return None
            below = before.setdefault(definition.name, {})
            below |= dict.fromkeys(types_of(definition.query))
        if any(opened.setdefault(name, own) != own for name, own in tower.opened.items()):
            return None
        for one, other in tower.beside:
            before[other][one] = None
    if any(tower.raw & known.keys() for tower in towers):
        return None
    try:
        found = TopologicalSorter(before).static_order()
        return [known[name] for name in found if name in known]
    except CycleError:
        return None
