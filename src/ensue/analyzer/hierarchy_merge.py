"""Merges hierarchies that share definitions, and expands `a.*` in the layers of a hierarchy."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from ensue.analyzer.hierarchy_layers import build_layers, get_returned_columns
from ensue.analyzer.query import build_field_lookup, expand_field_stars
from ensue.errors import QueryError
from ensue.ir.hierarchy import Definition, Hierarchy, TopQuery, get_pattern_types
from ensue.ir.query import Query
from ensue.ir.traversal import get_kleene_variables, iterate_atoms
from ensue.schema import EventType, Schema, ValueKind


def merge_hierarchies(hierarchies: Mapping[str, Hierarchy]) -> list[tuple[Hierarchy, tuple[str, ...]]]:
    """Merges labelled hierarchies in which every name means the same.

    Returns the merged hierarchies, each with one top query per label, and their labels.
    """
    facts = {label: _facts(hierarchy) for label, hierarchy in hierarchies.items()}
    groups: list[list[str]] = []
    for label in hierarchies:
        for group in groups:
            if _order(facts[member] for member in (*group, label)) is not None:
                group.append(label)
                break
        else:
            groups.append([label])
    return [(_merge({n: hierarchies[n] for n in g}, [facts[n] for n in g]), tuple(g)) for g in groups]


def _merge(group: Mapping[str, Hierarchy], facts: Iterable["_Facts"]) -> Hierarchy:
    if len(group) == 1:
        return next(iter(group.values()))
    order = _order(facts)
    assert order is not None
    names = {definition.name for definition in order}
    tops = tuple(
        TopQuery(label, hierarchy.query, tuple(n for n in hierarchy.emit if hierarchy.defined(n)))
        for label, hierarchy in group.items()
    )
    emit = dict.fromkeys(name for top in tops for name in top.emit)
    unused = dict.fromkeys(n for t in group.values() for n in t.unused if n not in names)
    return Hierarchy(tuple(order), tops[0].query, tuple(emit), tuple(unused), tops)


@dataclass(frozen=True, slots=True)
class _Facts:
    """The properties in which merged hierarchies must agree."""

    definitions: tuple[Definition, ...]
    raw: frozenset[str]  # the types of raw events
    opened: Mapping[str, bool]  # whether the members of an event type are needed
    beside: tuple[tuple[str, str], ...]  # successive definitions that one layer uses together


def _facts(hierarchy: Hierarchy) -> _Facts:
    all_layers = build_layers(hierarchy)
    defined = {definition.name for definition in hierarchy.definitions}
    return _Facts(
        hierarchy.definitions,
        frozenset(name for query in hierarchy.queries for name in get_pattern_types(query)) - defined,
        {layer.name: layer.members for layer in all_layers if not layer.top_queries},
        tuple(
            pair
            for layer in all_layers
            for pair in pairwise(d.name for d in hierarchy.definitions if d.name in layer.uses)
        ),
    )


def _order(hierarchies: Iterable[_Facts]) -> Sequence[Definition] | None:
    """Orders the definitions of all hierarchies; None if they cannot be merged.

    Complex events that one event completes are ordered by their definitions, so definitions that
    a layer uses together keep their order. An event with its members has another layout, so all
    hierarchies must agree on it.
    """
    hierarchies = tuple(hierarchies)
    known: dict[str, Definition] = {}
    opened: dict[str, bool] = {}
    before: dict[str, dict[str, None]] = {}  # ordered: the result is deterministic
    for hierarchy in hierarchies:
        for definition in hierarchy.definitions:
            if known.setdefault(definition.name, definition).query != definition.query:
                return None
            below = before.setdefault(definition.name, {})
            below |= dict.fromkeys(get_pattern_types(definition.query))
        if any(opened.setdefault(name, own) != own for name, own in hierarchy.opened.items()):
            return None
        for earlier, later in hierarchy.beside:
            before[later][earlier] = None
    if any(hierarchy.raw & known.keys() for hierarchy in hierarchies):
        return None
    try:
        names = TopologicalSorter(before).static_order()
        return [known[name] for name in names if name in known]
    except CycleError:
        return None


# --- expansion of `a.*`

_OF_DEFINED = ("start", "end", "match_id")  # columns of a complex event after its own fields


def expand_stars(hierarchy: Hierarchy, schema: Schema) -> Hierarchy:
    """Expands `RETURN a.*` in the layers of a hierarchy."""
    if not any(column.every for query in hierarchy.queries for column in query.returns):
        return hierarchy
    known: dict[str, Query] = {}

    def expand(query: Query) -> Query:
        types = _types(query, schema, known)
        try:
            columns = expand_field_stars(
                query.returns, build_field_lookup(types, [query.pattern]), get_kleene_variables(query.pattern)
            )
        except QueryError as error:
            raise error.at(None, query.text) from None
        return replace(query, returns=columns)

    definitions: list[Definition] = []
    for definition in hierarchy.definitions:
        known[definition.name] = expand(definition.query)
        definitions.append(replace(definition, query=known[definition.name]))
    tops = tuple(replace(top, query=expand(top.query)) for top in hierarchy.tops)
    top = expand(hierarchy.query)
    return replace(hierarchy, definitions=tuple(definitions), query=top, tops=tops)


def _types(query: Query, schema: Schema, known: Mapping[str, Query]) -> dict[str, EventType]:
    """Returns the event types of a layer's variables; defined ones have their returned fields."""
    types: dict[str, EventType] = {}
    for atom in iterate_atoms(query.pattern):
        below = known.get(atom.type) if isinstance(atom.type, str) else None
        if below is None:
            types[atom.variable] = schema.event_type(atom.type, atom.span)
        else:
            names = dict.fromkeys([*(r.name for r in get_returned_columns(below)), *_OF_DEFINED])
            types[atom.variable] = EventType(str(atom.type), dict.fromkeys(names, ValueKind.OTHER))
    return types
