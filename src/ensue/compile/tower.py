"""Towers made ready for a stream: a plan for each layer, and what the layers give each other."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from hashlib import blake2b

import pyarrow as pa

from ensue.algebra.answers import summarised
from ensue.algebra.arrangement import open_ended
from ensue.algebra.behind import AT, FROM, members_in_order
from ensue.algebra.check import check
from ensue.algebra.layers import MEMBERS, STANDARD, Layer, column_of, layers
from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import Aggregate, At, Call, Expr, Field
from ensue.algebra.query import Query, Returned
from ensue.algebra.tower import Tower
from ensue.algebra.walk import bound_variables, kleenes, results
from ensue.algebra.window import ByEvents
from ensue.compile.arrow_kinds import length_of
from ensue.compile.identity import fingerprint
from ensue.compile.layer_stream import LayerStream, layer_stream
from ensue.compile.matcher import Prepared, result_of
from ensue.compile.operator_functions import run_as_python
from ensue.compile.stream import Shape
from ensue.errors import QueryError, did_you_mean
from ensue.plan.choose import choose
from ensue.plan.planning import DEFAULT, Planning

_MEMBER = "__member."  # the columns that become the struct of members


@dataclass(frozen=True, slots=True)
class PreparedLayer:
    """A layer made ready."""

    layer: Layer
    stream: LayerStream
    prepared: Prepared
    found: pa.Schema  # its complex events, as the layers above get them
    result: pa.Schema  # its matches, as they are delivered
    waits: int | float  # how far its time is behind that of the events that come in
    settles: int | float  # how much later than they end its matches are known
    ranked: bool  # somebody above goes by the order of its events

    def events(self, matches: pa.Table) -> pa.Table:
        """Matches as the layers above get them."""
        if not self.layer.members or summarised(self.layer.query):
            return matches
        names = [n for n in matches.column_names if n.startswith(_MEMBER)]
        arrays = [matches.column(n).combine_chunks() for n in names]
        fields = [
            pa.field(n.removeprefix(_MEMBER), a.type) for n, a in zip(names, arrays, strict=True)
        ]
        inside = pa.StructArray.from_arrays(arrays, fields=fields)
        return matches.drop_columns(names).append_column(MEMBERS, inside)

    def delivered(self, events: pa.Table) -> pa.Table:
        """The layer's complex events as its subscribers get them."""
        if summarised(self.layer.query):
            return events
        own = self.layer.fields
        names = [column_of(n) if n in own else n for n in self.result.names]
        return pa.table([events.column(name) for name in names], schema=self.result)


@dataclass(frozen=True, slots=True)
class PreparedTower:
    """A tower made ready for a stream of a known shape."""

    tower: Tower
    layers: tuple[PreparedLayer, ...]  # lower ones first
    shape: Shape  # of the events that come in
    trace: bool = False

    @property
    def delivered(self) -> dict[str, pa.Schema]:
        """The results, by level; the query on top is the last."""
        return {p.layer.name: p.result for p in self.layers if p.layer.delivered}


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
) -> PreparedTower:
    """Checks the layers of a tower against a stream's shape and plans each."""
    tower, all_levels = levels_of(tower, levels)
    found: dict[str, PreparedLayer] = {}
    identities: dict[str, bytes] = {}
    made = layers(tower, trace=trace, all_levels=all_levels)
    for layer in made:
        below = {name: found[name].found for name in layer.uses}
        shown = {name: found[name].layer.shown for name in layer.uses}
        stream = layer_stream(layer, shape, below, shown)
        waits = max((found[name].settles for name in layer.uses), default=0)
        identities[layer.name] = _identity(layer, identities)
        above = [other.query for other in made if layer.name in other.uses]
        found[layer.name] = _prepared(
            layer,
            stream,
            planning,
            identities[layer.name],
            waits,
            ranked=any(map(_goes_by_order, above)),
            streaming=streaming,
        )
    return PreparedTower(tower, tuple(found.values()), shape, trace)


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
        checked = check(layer.query, stream.shape.schema, streaming=streaming)
        if layer.name and any(results(checked.pattern)) and not stream.alone:
            raise QueryError("operators of your own take events that come in, not complex ones")
    except QueryError as error:
        if layer.name and not error.problem.startswith("in the definition"):
            error.problem = f"in the definition of {layer.name}: {error.problem}"
        raise
    query = _with_places(checked, layer, stream)
    physical, schema = stream.shape.physical(query)
    plan = choose(physical, schema, planning, python=run_as_python(physical))
    prepared = Prepared(query, plan, stream.shape, identity, planning)
    found = _found(result_of(prepared), layer)
    settles = waits + _decided_after(checked, stream.shape, streaming=streaming)
    return PreparedLayer(
        layer, stream, prepared, found, _delivered(found, layer), waits, settles, ranked
    )


def _identity(layer: Layer, below: Mapping[str, bytes]) -> bytes:
    """What tells the matches of a layer from others: its meaning and that of what it uses."""
    parts = [fingerprint(layer.meaning), *(below[name] for name in layer.uses)]
    return blake2b(b"".join(parts), digest_size=16).digest()


def _goes_by_order(query: Query) -> bool:
    return (
        query.strategy is not Strategy.ANY
        or query.after is not None
        or query.limit is not None
        or isinstance(query.within, ByEvents)
    )


def _decided_after(query: Query, shape: Shape, *, streaming: bool) -> int | float:
    """How long after a match ends it may take to be certain."""
    negation = next(open_ended(query.pattern), None)
    if negation is None:
        return 0
    length = length_of(query.within, shape.unit)
    if length is None and streaming:
        raise QueryError(
            "a negation at the end with WITHIN n EVENTS may take any time to decide, "
            "and layers above cannot wait for it",
            hint="give the window as a length of time",
            span=negation.span,
            text=query.text,
        )
    return math.inf if length is None else length


# -------------------------------------------------------------------------------------- columns


def _with_places(query: Query, layer: Layer, stream: LayerStream) -> Query:
    """The query with conditions on where members stand, and where its own matches do."""
    where = (*query.where, *members_in_order(query.pattern, stream.complex_))
    if summarised(query):
        return replace(query, where=where)
    returns = list(query.returns)
    if layer.name:
        returns += [
            Returned(_over(query, FROM, "min", "least"), FROM),
            Returned(_over(query, AT, "max", "greatest"), AT),
        ]
    if layer.members:
        lists = kleenes(query.pattern)
        for v in bound_variables(query.pattern):
            at = At.ALL if v in lists else At.ONLY
            returns.append(Returned(Field(v, None, at), f"{_MEMBER}{v}"))
    return replace(query, where=where, returns=tuple(returns))


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


def _found(result: pa.Schema, layer: Layer) -> pa.Schema:
    members = [f for f in result if f.name.startswith(_MEMBER)]
    if not layer.members or summarised(layer.query):
        return result
    inside = pa.struct([pa.field(f.name.removeprefix(_MEMBER), f.type) for f in members])
    kept = [f for f in result if not f.name.startswith(_MEMBER)]
    return pa.schema([*kept, pa.field(MEMBERS, inside)])


def _delivered(found: pa.Schema, layer: Layer) -> pa.Schema:
    """The columns that subscribers get: no others than the query of the level alone would give."""
    if summarised(layer.query) or not layer.delivered:
        return found
    own = {name: found.field(column_of(name)).type for name in layer.fields}
    standard = [f for f in found if f.name in STANDARD and f.name not in own]
    fields = [*standard, *(pa.field(name, type_) for name, type_ in own.items())]
    if layer.members and MEMBERS not in own:
        fields.append(found.field(MEMBERS))
    return pa.schema(fields)
