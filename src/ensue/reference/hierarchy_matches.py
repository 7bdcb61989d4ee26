"""Evaluates a hierarchy: the matches of each layer are the events of the layers above it.

A complex event lasts from the start of its earliest member to the end of its latest one, and
follows its last member directly; several after one event are in the order of their definitions,
then of their matches. It begins with its first member, so that events inside it, including its
members, are neither before nor after it.

Timed-out partial matches of a layer are no events: no layer receives them.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ensue.analyzer.hierarchy_layers import Layer
from ensue.analyzer.interval_negation import rewrite_interval_ends
from ensue.analyzer.key_inference import define_partitions
from ensue.analyzer.output_mode import is_summarized
from ensue.analyzer.user_operators import get_result_types, resolve_operators
from ensue.ir.expression import Expr, FieldRef
from ensue.ir.pattern import Pattern
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_atoms, iterate_operator_calls, iterate_positive_atoms, rewrite_expr
from ensue.reference.conditions import Binding, Event, compute_value
from ensue.reference.match_search import find_matches, find_timeouts
from ensue.schema import EventType, Schema, ValueKind

NestedPositions = tuple[tuple[str, tuple["int | NestedPositions", ...]], ...]


def match_hierarchy(layers: Sequence[Layer], events: Sequence[Event], schema: Schema) -> dict[str, list[Binding]]:
    """Returns the sorted matches of every layer by name, over raw and complex events."""
    by_layer = build_complex_events(layers, events, schema)
    return {name: [dict(event.match) for event in es] for name, es in by_layer.items()}


def build_complex_events(layers: Sequence[Layer], events: Sequence[Event], schema: Schema) -> dict[str, list[Event]]:
    """Returns the matches of every layer as events, lower layers first.

    `position` and `first` are those of the last and the first member in the sorted `events`. The
    values are the columns that the layer returns, with `start`, `end` and `match_id`.
    """
    by_layer: dict[str, list[Event]] = {}
    for layer in layers:
        by_layer[layer.name] = match_layer(layer, events, by_layer, schema)
    return by_layer


def match_layer(
    layer: Layer, events: Sequence[Event], below: Mapping[str, Sequence[Event]], schema: Schema
) -> list[Event]:
    """Returns the matches of one layer as events; `below` holds those of the layers below."""
    stream, query = build_layer_stream(layer, events, below), resolve_layer_query(layer, schema)
    return [
        _build_complex_event(layer, query, binding, stream, schema) for binding in find_matches(query, stream.events)
    ]


def find_layer_timeouts(
    layer: Layer, events: Sequence[Event], below: Mapping[str, Sequence[Event]], schema: Schema
) -> list[Binding]:
    """Returns the timed-out partial matches of one layer over the events of those below."""
    stream, query = build_layer_stream(layer, events, below), resolve_layer_query(layer, schema)
    return [
        {variable: tuple(stream.origins[e.position] for e in es) for variable, es in bound.items()}
        for bound in find_timeouts(query, stream.events)
    ]


@dataclass(frozen=True, slots=True)
class ReferenceLayerStream:
    """The input of a layer: `events` have positions in this stream, and `origins` are the same
    events with positions in the raw stream."""

    events: tuple[Event, ...]
    origins: tuple[Event, ...]


def build_layer_stream(
    layer: Layer, events: Iterable[Event], below: Mapping[str, Sequence[Event]]
) -> ReferenceLayerStream:
    """Merges the raw events, if the layer uses any, with the complex events it uses.

    `below` holds those of the layers below, in the order of the definitions.
    """
    placed = [((e.position, 0, 0), e) for e in events] if layer.reads_raw else []
    for number, (name, layer_events) in enumerate(below.items(), 1):
        if name in layer.uses:
            placed += [((e.position, number, rank), e) for rank, e in enumerate(layer_events)]
    origins = tuple(event for _, event in sorted(placed, key=lambda pair: pair[0]))
    lasts = [event.position for event in origins]
    renumbered = (
        replace(e, position=k, first=bisect_left(lasts, e.begin) if e.match else -1) for k, e in enumerate(origins)
    )
    return ReferenceLayerStream(tuple(renumbered), origins)


def resolve_layer_query(layer: Layer, schema: Schema) -> Query:
    """Resolves a layer's query: `a.start` of a raw event is a column."""
    atoms = iterate_atoms(layer.query.pattern)
    raw = {a.variable: a.type for a in atoms if a.type not in layer.uses}

    def resolve_time(node: Expr) -> Expr:
        match node:
            case FieldRef(variable=variable, name="start" | "end" as name) if variable in raw:
                if name in schema.event_type(raw[variable], None).fields:
                    return node
                return replace(node, name=schema.start if name == "start" else schema.end)
            case _:
                return node

    def resolve(expr: Expr) -> Expr:
        return rewrite_expr(expr, resolve_time)

    query, pattern = layer.query, layer.query.pattern
    if any(iterate_operator_calls(pattern)):
        pattern = _resolve_operators(layer, schema)
    resolved = replace(
        query,
        pattern=rewrite_interval_ends(pattern, resolve),
        where=tuple(map(resolve, query.where)),
        returns=tuple(replace(r, expr=resolve(r.expr)) for r in query.returns),
        having=None if query.having is None else resolve(query.having),
    )
    return define_partitions(resolved)


def _resolve_operators(layer: Layer, schema: Schema) -> Pattern:
    """Resolves the operators of a layer's pattern to the fields they read."""
    pattern = layer.query.pattern
    types = {
        a.variable: EventType(str(a.type), dict.fromkeys(layer.below[str(a.type)], ValueKind.NULL))
        if a.type in layer.below
        else schema.event_type(a.type, None)
        for a in iterate_atoms(pattern)
    }
    return resolve_operators(pattern, types | get_result_types(pattern, types, schema), schema)


def _build_complex_event(
    layer: Layer, query: Query, binding: Binding, stream: ReferenceLayerStream, schema: Schema
) -> Event:
    match = {
        atom.variable: tuple(stream.origins[e.position] for e in binding[atom.variable])
        for atom in iterate_positive_atoms(query.pattern)
        if atom.variable in binding
    }
    raw_events = list(iterate_raw_events(match))
    first, last = min(raw_events, key=lambda e: e.start), max(raw_events, key=lambda e: e.end)
    values: dict[str, object] = {
        "start": first.values[schema.start],
        "end": last.values[schema.end],
        "match_id": f"{layer.name}{nest_positions(match)}",
    }
    if not is_summarized(query):
        columns = ((r.name.removesuffix("@own"), r.expr) for r in query.returns)
        values |= {name: compute_value(expr, binding) for name, expr in columns}
    positions = [e.position for e in raw_events]
    return Event(
        max(positions), layer.name, first.start, last.end, values,
        first=min(positions), match=match,
    )  # fmt: skip


def iterate_raw_events(match: Mapping[str, tuple[Event, ...]]) -> Iterator[Event]:
    """Yields the raw events of a match, with repetitions."""
    for events in match.values():
        for event in events:
            if event.match:
                yield from iterate_raw_events(event.match)
            else:
                yield event


def nest_positions(match: Mapping[str, tuple[Event, ...]]) -> NestedPositions:
    """Returns the positions of a match's members, nested for complex events."""

    def nest(event: Event) -> "int | NestedPositions":
        return nest_positions(event.match) if event.match else event.position

    return tuple((variable, tuple(map(nest, match[variable]))) for variable in sorted(match))
