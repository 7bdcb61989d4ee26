"""What a tower means: each layer's matches are the events of the layers above it.

A complex event lasts from the start of its earliest member to the end of its latest one and stands
directly behind its last member; several behind one event stand in the order of their definitions,
then of their matches. It begins where its first member does, so that what happened inside it, its
own members too, neither comes before nor after it.

A partial match of a layer may time out in the events that the layer sees, as that of any query in
its stream. It is no event: no layer sees it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ensue.algebra.answers import summarised
from ensue.algebra.check.applied import resolved, result_types
from ensue.algebra.equivalence import equal_through_negation
from ensue.algebra.lapses import with_interval_ends
from ensue.algebra.pattern import Pattern
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.query import Query
from ensue.algebra.towers.layers import Layer
from ensue.algebra.walk import atoms, positives, results, rewrite_expr
from ensue.schema import EventType, Kind, Schema
from ensue.semantics.conditions import value_of
from ensue.semantics.events import Binding, Event
from ensue.semantics.matches import matches
from ensue.semantics.timeouts import timeouts

Nested = tuple[tuple[str, tuple["int | Nested", ...]], ...]


def tower_matches(
    layers: Sequence[Layer], events: Sequence[Event], schema: Schema
) -> dict[str, list[Binding]]:
    """The matches of every layer by its name, in their order.

    Events are those that came in, as they were given, or complex ones with a `match` of their own.
    """
    found = complex_events(layers, events, schema)
    return {name: [dict(event.match) for event in made] for name, made in found.items()}


def complex_events(
    layers: Sequence[Layer], events: Sequence[Event], schema: Schema
) -> dict[str, list[Event]]:
    """The matches of every layer as events, lower layers first.

    `position` and `first` are those of the last and the first member among `events`, which are in
    order. The values are what the layer returns, by name, with `start`, `end` and `match_id`.
    """
    found: dict[str, list[Event]] = {}
    for layer in layers:
        found[layer.name] = events_of_layer(layer, events, found, schema)
    return found


def events_of_layer(
    layer: Layer, events: Sequence[Event], found: Mapping[str, Sequence[Event]], schema: Schema
) -> list[Event]:
    """The matches of one layer as events; `found` holds those of the layers below."""
    stream, query = layer_stream(layer, events, found), meant(layer, schema)
    return [
        _complex(layer, query, binding, stream, schema)
        for binding in matches(query, stream.events)
    ]


def layer_timeouts(
    layer: Layer, events: Sequence[Event], found: Mapping[str, Sequence[Event]], schema: Schema
) -> list[Binding]:
    """The timed-out partial matches of one layer; `found` holds the events of those below."""
    stream, query = layer_stream(layer, events, found), meant(layer, schema)
    return [
        {variable: tuple(stream.origins[e.position] for e in es) for variable, es in bound.items()}
        for bound in timeouts(query, stream.events)
    ]


@dataclass(frozen=True, slots=True)
class LayerStream:
    """What a layer sees: `events` with positions of their own; `origins` are the same events with
    the positions of the stream that came in."""

    events: tuple[Event, ...]
    origins: tuple[Event, ...]


def layer_stream(
    layer: Layer, events: Iterable[Event], found: Mapping[str, Sequence[Event]]
) -> LayerStream:
    """The events that came in, if the layer names any, and the complex ones it names.

    `found` holds those of the layers below, in the order of the definitions.
    """
    placed = [((e.position, 0, 0), e) for e in events] if layer.reads_raw else []
    for number, (name, made) in enumerate(found.items(), 1):
        if name in layer.uses:
            placed += [((e.position, number, rank), e) for rank, e in enumerate(made)]
    origins = tuple(event for _, event in sorted(placed, key=lambda pair: pair[0]))
    lasts = [event.position for event in origins]
    seen = (
        replace(e, position=k, first=bisect_left(lasts, e.begin) if e.match else -1)
        for k, e in enumerate(origins)
    )
    return LayerStream(tuple(seen), origins)


def meant(layer: Layer, schema: Schema) -> Query:
    """A layer's query as `matches` takes it: `a.start` of an event that came in is a column."""
    raw = {a.variable: a.type for a in atoms(layer.query.pattern) if a.type not in layer.uses}

    def timed(node: Expr) -> Expr:
        match node:
            case Field(variable=variable, name="start" | "end" as name) if variable in raw:
                if name in schema.event_type(raw[variable], None).fields:
                    return node
                return replace(node, name=schema.start if name == "start" else schema.end)
            case _:
                return node

    query = layer.query
    if any(results(query.pattern)):
        query = replace(query, pattern=_resolved(layer, schema))
    return equal_through_negation(
        replace(
            query,
            pattern=with_interval_ends(query.pattern, lambda end: rewrite_expr(end, timed)),
            where=tuple(rewrite_expr(c, timed) for c in query.where),
            returns=tuple(replace(r, expr=rewrite_expr(r.expr, timed)) for r in query.returns),
            having=None if query.having is None else rewrite_expr(query.having, timed),
        )
    )


def _resolved(layer: Layer, schema: Schema) -> Pattern:
    """A layer's pattern with what its operators read of events that came in and complex ones."""
    pattern = layer.query.pattern
    types = {
        a.variable: EventType(str(a.type), dict.fromkeys(layer.below[str(a.type)], Kind.NULL))
        if a.type in layer.below
        else schema.event_type(a.type, None)
        for a in atoms(pattern)
    }
    return resolved(pattern, types | result_types(pattern, types, schema), schema)


def _complex(
    layer: Layer, query: Query, binding: Binding, stream: LayerStream, schema: Schema
) -> Event:
    match = {
        atom.variable: tuple(stream.origins[e.position] for e in binding[atom.variable])
        for atom in positives(query.pattern)
        if atom.variable in binding
    }
    inside = list(leaves(match))
    first, last = min(inside, key=lambda e: e.start), max(inside, key=lambda e: e.end)
    values: dict[str, object] = {
        "start": first.values[schema.start],
        "end": last.values[schema.end],
        "match_id": f"{layer.name}{nested(match)}",
    }
    if not summarised(query):
        own = ((r.name.removesuffix("@own"), r.expr) for r in query.returns)
        values |= {name: value_of(expr, binding) for name, expr in own}
    positions = [e.position for e in inside]
    return Event(
        max(positions), layer.name, first.start, last.end, values,
        first=min(positions), match=match,
    )  # fmt: skip


# ------------------------------------------------------------------------------------ members


def leaves(match: Mapping[str, tuple[Event, ...]]) -> Iterator[Event]:
    """The events that came in below a match; one may be there several times."""
    for events in match.values():
        for event in events:
            if event.match:
                yield from leaves(event.match)
            else:
                yield event


def nested(match: Mapping[str, tuple[Event, ...]]) -> Nested:
    """A match by the positions of its members: complex ones are written like it, inside it."""
    return tuple(
        (variable, tuple(nested(e.match) if e.match else e.position for e in match[variable]))
        for variable in sorted(match)
    )
