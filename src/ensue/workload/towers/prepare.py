"""Towers made ready for a stream: a plan for each layer, and what the layers give each other."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from hashlib import blake2b

import pyarrow as pa

from ensue.algebra.answers import makes_events
from ensue.algebra.check.arrangement import open_ended
from ensue.algebra.check.query import check
from ensue.algebra.lapses import lapses
from ensue.algebra.lives import looks_as_far
from ensue.algebra.operator import Over
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Aggregate, At, Call, Expr, Field
from ensue.algebra.query import Query, Returned
from ensue.algebra.tower import Tower, types_of
from ensue.algebra.towers.behind import AT, FROM, members_in_order
from ensue.algebra.towers.layers import Layer, layers
from ensue.algebra.towers.stars import spread_out
from ensue.algebra.walk import atoms, bound_variables, ends_greedily, kleenes, results
from ensue.algebra.window import ByEvents
from ensue.columns.arrow_kinds import length_of
from ensue.columns.checking import check_with_regions
from ensue.columns.stream import Shape
from ensue.errors import QueryError, did_you_mean
from ensue.plan.choose import choose
from ensue.plan.planning import DEFAULT, Planning
from ensue.plan.towers.boxes import expected, in_layer
from ensue.results.identity import fingerprint
from ensue.results.triggers import RANK
from ensue.schema import names_of
from ensue.source.operator_functions import run_as_python
from ensue.workload.prepared import Prepared, result_of
from ensue.workload.towers.layer_stream import MEMBER, LayerStream, layer_stream
from ensue.workload.towers.layer_timeouts import identity_of, timeouts_of, with_flag
from ensue.workload.towers.open_boxes import open_boxes
from ensue.workload.towers.prepared import (
    PreparedLayer,
    PreparedTower,
    delivered_schema,
    found_schema,
)
from ensue.workload.towers.seen_columns import columns_seen, only_seen


def levels_of(tower: Tower, levels: Sequence[str] | str | None) -> tuple[Tower, bool]:
    """The tower with the levels that are asked for beside those of EMIT, and whether all are."""
    if levels is None:
        return tower, False
    if levels == "all":
        return tower, True
    wanted = (levels,) if isinstance(levels, str) else tuple(levels)
    names = [d.name for d in tower.definitions]
    top = tower.query.name or ""
    for name in wanted:
        if name in tower.unused:
            raise QueryError(
                f"levels={name!r}: it is defined, but the query does not use it",
                hint=f"EMIT {name}; in the text asks for it all the same",
            )
        if name not in (*names, top):
            raise QueryError(
                f"levels={name!r}: no such event is defined", hint=did_you_mean(name, names)
            )
    extra = tuple(n for n in wanted if n in names and n not in tower.emit)
    return replace(tower, emit=(*tower.emit, *extra)), False


def prepare_tower(
    tower: Tower,
    shape: Shape,
    planning: Planning = DEFAULT,
    *,
    levels: Sequence[str] | str | None = None,
    trace: bool = False,
    streaming: bool = False,
    emit_timeouts: bool = False,
) -> PreparedTower:
    """Checks the layers of a tower against a stream's shape and plans each.

    `emit_timeouts`: the levels that are delivered also give their timed-out partial matches.
    """
    tower, all_levels = levels_of(spread_out(tower, shape.schema), levels)
    found = prepare_layers(
        tower, shape, planning, all_levels=all_levels, trace=trace, streaming=streaming
    )
    if emit_timeouts:
        found = {n: with_timeouts(p) if p.layer.delivered else p for n, p in found.items()}
    made = [one.layer for one in found.values()]
    opened, boxes = open_boxes(made, found, shape, planning)
    return PreparedTower(tower, opened, shape, boxes, trace)


def prepare_layers(
    tower: Tower,
    shape: Shape,
    planning: Planning = DEFAULT,
    *,
    all_levels: bool = False,
    trace: bool = False,
    streaming: bool = False,
) -> dict[str, PreparedLayer]:
    """The layers of a tower by their names, each found on its own."""
    check_names(tower, shape)
    tower = spread_out(tower, shape.schema)
    found: dict[str, PreparedLayer] = {}
    identities: dict[str, bytes] = {}
    rates: dict[str, float] = {}  # complex events for each event that comes in
    made = layers(tower, trace=trace, all_levels=all_levels)
    ranked = _ranked(made)
    seen = columns_seen(tower, trace=trace)
    for layer in made:
        below = {name: one.found for name, one in found.items() if name in layer.uses}
        if layer.name in seen:
            below = only_seen(below, seen[layer.name])
        shown = {name: found[name].layer.shown for name in layer.uses}
        stream = layer_stream(layer, shape, below, shown)
        waits = max((found[name].settles for name in layer.uses), default=0)
        raw = [t for t in types_of(layer.query) if t not in below]
        many = {name: rates[name] for name in layer.uses}
        statistics, events = in_layer(planning.statistics, raw, many)
        identities[layer.name] = (
            _identity(layer, identities) if tower.definitions else fingerprint(layer.meaning)
        )
        found[layer.name] = _prepared(
            layer,
            stream,
            replace(planning, statistics=statistics),
            identities[layer.name],
            waits,
            ranked=layer.name in ranked,
            streaming=streaming,
        )
        found[layer.name] = replace(found[layer.name], crowd=events)
        weighed = expected(found[layer.name].prepared.plan)
        rates[layer.name] = 0.0 if weighed is None else weighed.matches * events
    return found


def check_names(tower: Tower, shape: Shape) -> None:
    """Each type is a defined event or a table of events, and not both."""
    for definition in tower.definitions:
        if definition.name in (shape.by_type or {}):
            raise QueryError(
                f"'{definition.name}' is defined, and is also the name of a table of events",
                hint="give one of them another name",
                span=definition.span,
                text=definition.query.text,
            )
    if shape.by_type is None:
        return
    for query in tower.queries:
        for atom in atoms(query.pattern):
            for name in names_of(atom.type):
                if name in shape.by_type or name in tower.names:
                    continue
                where = f"in the definition of {query.name}: " if query.name else ""
                raise QueryError(
                    f"{where}unknown event type '{name}'",
                    hint=did_you_mean(name, [*tower.names, *shape.by_type]),
                    span=atom.span,
                    text=query.text,
                )


def _prepared(
    layer: Layer,
    stream: LayerStream,
    planning: Planning,
    identity: bytes,
    waits: int | float,
    *,
    ranked: bool,
    streaming: bool,
) -> PreparedLayer:
    try:
        checked = check_with_regions(
            layer.query, stream.shape.schema, streaming=streaming, derived=False
        )
    except QueryError as error:
        raise _named(error, layer) from None
    query = _with_places(checked, layer, stream)
    physical, schema = stream.shape.physical(query)
    plan = choose(physical, schema, planning, python=run_as_python(physical))
    prepared = Prepared(query, plan, stream.shape, identity, planning)
    found = found_schema(result_of(prepared), layer)
    later = _decided_after(checked, stream.shape, streaming=streaming)
    if streaming and later == math.inf and not layer.on_top:
        raise _named(_never_settles(checked), layer)
    settles = waits + later
    if ranked and settles > waits:
        found = found.append(pa.field(RANK, pa.binary()))
    return PreparedLayer(
        layer, stream, prepared, found, delivered_schema(found, layer), waits, settles, ranked
    )


def _never_settles(query: Query) -> QueryError:
    return QueryError(
        "an absence until a fixed moment may take any time to decide, and layers above cannot "
        "wait for it",
        hint="let its interval end a length of time after an event, as in TO a.end + 5",
        span=next(negation for negation, _ in lapses(query.pattern)).span,
        text=query.text,
    )


def with_timeouts(found: PreparedLayer) -> PreparedLayer:
    """A layer that also gives its timed-out partial matches."""
    layer, stream, main = found.layer, found.stream, found.prepared
    planning = replace(main.planning, structure=None, shape=None)
    assert main.identity is not None
    identity = identity_of(main.identity)
    queries = []
    try:
        checked = check(layer.query, stream.shape.schema)
        for query in timeouts_of(layer, checked, main):
            placed = _in_order(query, stream)
            placed = _with_members(placed) if layer.members else placed
            # not checked again: a chain of equalities must not become a key that it has not
            physical, schema = stream.shape.physical(placed)
            plan = choose(physical, schema, planning)
            queries.append(Prepared(placed, plan, stream.shape, identity, planning))
    except QueryError as error:
        raise _named(error, layer) from None
    return replace(found, timeouts=tuple(queries), result=with_flag(found.result, layer))


def _named(error: QueryError, layer: Layer) -> QueryError:
    if layer.called and not error.problem.startswith("in the definition"):
        error.problem = f"in the definition of {layer.called}: {error.problem}"
    return error


def _identity(layer: Layer, below: Mapping[str, bytes]) -> bytes:
    """What tells the matches of a layer from others: its meaning and that of what it uses."""
    parts = [fingerprint(layer.meaning), *(below[name] for name in layer.uses)]
    return blake2b(b"".join(parts), digest_size=16).digest()


def _ranked(made: Sequence[Layer]) -> set[str]:
    """The layers whose events are gone by in their order, or decide the order of such ones."""
    found: set[str] = set()
    for layer in reversed(made):
        if layer.name in found or _goes_by_order(layer.query):
            found |= set(layer.uses)
    return found


def _goes_by_order(query: Query) -> bool:
    return (
        query.strategies != {Strategy.ANY}
        or query.after is not None
        or query.limit is not None
        or isinstance(query.within, ByEvents)
        or any(applied.operator.over is Over.REPEAT for applied in results(query.pattern))
    )


def _decided_after(query: Query, shape: Shape, *, streaming: bool) -> int | float:
    """How long after a match ends it may take to be certain."""
    negation = next(open_ended(query.pattern), None)
    by_start = query.after is not None and query.after.by_start
    ahead = _intervals_end_after(query, shape)
    if negation is None and not by_start and not ends_greedily(query.pattern):
        return ahead
    length = length_of(query.within, shape.unit)
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


def _intervals_end_after(query: Query, shape: Shape) -> int | float:
    """How long after a match ends the intervals of its absences may last."""
    ahead: int | float = 0
    for _, interval in lapses(query.pattern):
        looks = looks_as_far(interval, query, shape.schema)
        if looks is None or looks.ahead is None:
            return math.inf
        ahead = max(ahead, _in_unit(looks.ahead, shape))
    return ahead


def _in_unit(length: Fraction, shape: Shape) -> int | float:
    """A length, in nanoseconds where times are timestamps, in the unit of the time arrays."""
    if shape.schema.time_kind.numeric:
        return int(length) if length.denominator == 1 else float(length)
    return math.ceil(length if shape.unit == "ns" else length / 1_000)


# -------------------------------------------------------------------------------------- columns


def _with_places(query: Query, layer: Layer, stream: LayerStream) -> Query:
    """The query with conditions on where members stand, and where its own matches do."""
    query = _in_order(query, stream)
    if not makes_events(query):
        return query
    if layer.called:
        own = (
            Returned(_over(query, FROM, "min", "least"), FROM),
            Returned(_over(query, AT, "max", "greatest"), AT),
        )
        query = replace(query, returns=(*query.returns, *own))
    return _with_members(query) if layer.members else query


def _in_order(query: Query, stream: LayerStream) -> Query:
    where = (*query.where, *members_in_order(query.pattern, stream.complex_))
    return replace(query, where=where)


def _with_members(query: Query) -> Query:
    lists = kleenes(query.pattern)
    members = (
        Returned(Field(v, None, At.ALL if v in lists else At.ONLY), f"{MEMBER}{v}")
        for v in bound_variables(query.pattern)
    )
    return replace(query, returns=(*query.returns, *members))


def _over(query: Query, name: str, aggregate: str, function: str) -> Expr:
    """The first or last place of all events of a match."""
    lists = kleenes(query.pattern)
    operators = {applied.variable for applied in results(query.pattern)}
    places: list[Expr] = [
        Aggregate(aggregate, v, Field(v, name, At.ALL)) if v in lists else Field(v, name)
        for v in bound_variables(query.pattern)
        if v not in operators
    ]
    return reduce(lambda a, b: Call(function, (a, b)), places)
