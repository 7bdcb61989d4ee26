"""The stream of a layer: events that came in beside the complex events of layers below."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.policy import CONTIGUOUS
from ensue.algebra.tower import types_of
from ensue.algebra.towers.behind import AT, END, FROM, START
from ensue.algebra.towers.layers import MEMBERS, Layer
from ensue.algebra.window import ByEvents
from ensue.columns import evaluate as vectors
from ensue.columns.arrow_kinds import fields_of, zones_of
from ensue.columns.buffers import single
from ensue.columns.location import location_texts, location_type
from ensue.columns.stream import TYPE, Columns, Shape, type_clashes, zones_by_field
from ensue.results.triggers import RANK
from ensue.schema import EventType, Kind, Schema

PLACE = "__location"  # as texts, where events that come in have two numbers
HIDDEN = (AT, FROM)
MEMBER = "__member."  # the columns of a result that become the struct of members

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LayerStream:
    """What the events of a layer look like, and how they come together."""

    shape: Shape
    raw: Shape  # of the events that come in
    types: tuple[str, ...]  # by their codes; complex events behind those that come in
    complex_: Mapping[str, Mapping[str, str]]  # a complex event's columns here, by those below
    reads_raw: bool
    every: bool  # events of any type have a say, such as in `next to each other`

    @property
    def alone(self) -> bool:
        """Only events that come in are in it: they are as they were."""
        return not self.complex_

    def of_raw(self, events: pa.Table, at: Ints, begun: Ints) -> pa.Table | None:
        """Events that came in as those of the layer; None: none of them matters."""
        if self.alone:
            return events.append_column(AT, pa.array(at)).append_column(FROM, pa.array(begun))
        schema = self.raw.schema
        codes = self._codes(events)
        if not self.every:
            kept = np.flatnonzero(codes >= 0)
            if not len(kept):
                return None
            if len(kept) < len(codes):
                events = events.take(pa.array(kept))
                at, begun, codes = at[kept], begun[kept], codes[kept]
        given = {name: events.column(name) for name in events.column_names}
        given |= {START: events.column(schema.start), END: events.column(schema.end)}
        if isinstance(schema.location, tuple):
            given[PLACE] = location_texts(events, schema)
        return self._table(given, codes, at, begun)

    def of_complex(self, name: str, found: pa.Table) -> pa.Table:
        """The events of a layer below."""
        given = {here: found.column(below) for below, here in self.complex_[name].items()}
        given |= {START: found.column("start"), END: found.column("end")}
        location = _place_column(self.shape.schema)
        if location is not None:
            given[location] = found.column("location")
        if RANK in found.column_names:
            given[RANK] = found.column(RANK)
        codes = np.full(found.num_rows, self.types.index(name), np.int32)
        at, begun = (found.column(c).to_numpy() for c in HIDDEN)
        return self._table(given, codes, at, begun)

    def _table(
        self,
        given: Mapping[str, pa.ChunkedArray],
        codes: npt.NDArray[np.int32],
        at: Ints,
        begun: Ints,
    ) -> pa.Table:
        own = {AT: pa.array(at), FROM: pa.array(begun), TYPE: self._marks(codes)}
        columns = []
        for field in self.shape.arrow:
            column = own.get(field.name)
            if column is None:
                column = given.get(field.name)
            if column is None:
                column = pa.nulls(len(codes), field.type)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.table(columns, schema=self.shape.arrow)

    def _marks(self, codes: npt.NDArray[np.int32]) -> pa.Array:
        places = pa.array(codes, mask=codes < 0) if (codes < 0).any() else pa.array(codes)
        return pa.DictionaryArray.from_arrays(places, _texts(self.types))

    def _codes(self, events: pa.Table) -> npt.NDArray[np.int32]:
        """The type of each event that came in; -1 where it does not matter."""
        column = self.raw.schema.type_column
        if column is None:
            return np.zeros(events.num_rows, np.int32)
        names = single(events.column(column))
        known = _texts(self.types[: len(self.types) - len(self.complex_)])
        if not pa.types.is_dictionary(names.type):
            names = names if names.type == pa.string() else names.cast(pa.string())
            found = pc.index_in(names, value_set=known)
            return np.asarray((found.fill_null(-1) if found.null_count else found), np.int32)
        texts = names.dictionary.cast(pa.string())
        places = np.append(pc.index_in(texts, value_set=known).fill_null(-1).to_numpy(), -1)
        codes = names.indices.fill_null(len(texts)) if names.null_count else names.indices
        return np.asarray(places.astype(np.int32)[codes.to_numpy()])

    def back(self, name: str, events: pa.Table) -> pa.Table:
        """The other way round: complex events of this stream as their layer gave them."""
        columns = {below: events.column(here) for below, here in self.complex_[name].items()}
        columns |= {"start": events.column(START), "end": events.column(END)}
        location = _place_column(self.shape.schema)
        if location is not None:
            columns["location"] = events.column(location)
        if RANK in events.column_names:
            columns[RANK] = events.column(RANK)
        return pa.table(columns | {c: events.column(c) for c in HIDDEN})

    def merged(self, pieces: Sequence[pa.Table]) -> pa.Table:
        """Pieces as one, in order."""
        if len(pieces) == 1 and _ascending(pieces[0].column(AT).to_numpy()):
            return pieces[0]
        table = pa.concat_tables(pieces).take(pa.array(self.order(pieces)))
        return table.unify_dictionaries()

    def order(self, pieces: Sequence[pa.Table]) -> Ints:
        """The order of the stream: a complex event stands directly behind its last member."""
        at = np.concatenate([piece.column(AT).to_numpy() for piece in pieces])
        rank = np.concatenate([self._rank(piece) for piece in pieces])
        if RANK not in self.shape.arrow.names:
            return np.lexsort((rank, at))
        inside = pa.chunked_array([c for piece in pieces for c in piece.column(RANK).chunks])
        known = pc.rank(inside.combine_chunks(), tiebreaker="dense", null_placement="at_start")
        return np.lexsort((known.to_numpy(), rank, at))

    def _rank(self, piece: pa.Table) -> Ints:
        """Events that came in before complex ones, these in the order of their definitions."""
        if self.alone or not piece.num_rows:
            return np.zeros(piece.num_rows, np.int64)
        marks = piece.column(TYPE).combine_chunks()
        codes = marks.indices.fill_null(0).to_numpy().astype(np.int64)
        rank: Ints = np.maximum(codes - (len(self.types) - len(self.complex_)) + 1, 0)
        return rank

    def ends(self, table: pa.Table) -> npt.NDArray[Any]:
        """When the events end, as the matcher's time passes."""
        vector = vectors.from_arrow(table.column(self.shape.schema.end), self.shape.unit)
        return np.asarray(vector.values)


@lru_cache(maxsize=256)
def _texts(names: tuple[str, ...]) -> pa.Array:
    return pa.array(names, pa.string())


def _ascending(places: Ints) -> bool:
    return bool((places[1:] > places[:-1]).all())


def folded(matches: pa.Table) -> pa.Table:
    """A layer's result with its members, if they are asked for, in one column."""
    names = [n for n in matches.column_names if n.startswith(MEMBER)]
    if not names:
        return matches
    arrays = [matches.column(n).combine_chunks() for n in names]
    fields = [pa.field(n.removeprefix(MEMBER), a.type) for n, a in zip(names, arrays, strict=True)]
    inside = pa.StructArray.from_arrays(arrays, fields=fields)
    return matches.drop_columns(names).append_column(MEMBERS, inside)


def layer_stream(
    layer: Layer, raw: Shape, below: Mapping[str, pa.Schema], shown: Mapping[str, Sequence[str]]
) -> LayerStream:
    """The stream of a layer.

    `below` are the results of the layers it uses, `shown` the fields that their events show.
    """
    named = tuple(t for t in types_of(layer.query) if t not in below)
    if not layer.uses:
        return LayerStream(_alone(raw), raw, named, {}, reads_raw=True, every=True)
    used = [name for name in below if name in layer.uses]
    own = raw.arrow if named else pa.schema([])
    columns = _Columns(own, [below[name] for name in used])
    by_type: dict[str, Columns] = {}
    for name in named:
        by_type[name] = (raw.by_type or {}).get(name, [(n, n) for n in own.names])
    whole, named_by = {}, {}
    complex_: dict[str, dict[str, str]] = {}
    for name in used:
        places = columns.of_complex(name, below[name])
        own_fields = {below_.removesuffix("@own"): here for below_, here in places.items()}
        if isinstance(raw.schema.location, str):
            own_fields = {raw.schema.location: raw.schema.location} | own_fields
        by_type[name] = list(own_fields.items())
        fields = {"start": START, "end": END} | own_fields
        visible = [
            *shown[name],
            "start",
            "end",
            "match_id",
            *([MEMBERS] if MEMBERS in fields else []),
        ]
        whole[name] = [(f, fields[f]) for f in dict.fromkeys(visible) if f in fields]
        named_by[name] = [("match_id", places["match_id"])]
        complex_[name] = places
    arrow = columns.schema(raw)
    if any(RANK in below[name].names for name in used):
        arrow = arrow.append(pa.field(RANK, pa.binary()))
    hidden = (*HIDDEN, START, END, *([PLACE] if PLACE in arrow.names else []))
    shape = Shape(_schema(arrow, by_type, raw), arrow, raw.unit, by_type, whole, named_by, hidden)
    every = bool(named) and (
        bool(layer.query.strategies & CONTIGUOUS) or isinstance(layer.query.within, ByEvents)
    )
    return LayerStream(shape, raw, (*named, *used), complex_, bool(named), every)


class _Columns:
    """The columns of a layer's table: those of one name that agree are one."""

    def __init__(self, own: pa.Schema, below: Sequence[pa.Schema]) -> None:
        self.types = {field.name: field.type for field in own}
        fields = [
            pa.schema([pa.field(f.name.removesuffix("@own"), f.type) for f in _fields(result)])
            for result in below
        ]
        self.clash = type_clashes([own, *fields]) | _without_common_type([own, *fields])

    def of_complex(self, name: str, result: pa.Schema) -> dict[str, str]:
        """Where the columns of a complex event go."""
        found = {}
        for field in _fields(result):
            here = field.name.removesuffix("@own")
            if here in self.clash or here in (START, END, TYPE, RANK, *HIDDEN):
                here = f"{here}@{name}"
            known = self.types.get(here)
            self.types[here] = field.type if known is None else _wider(known, field.type)
            found[field.name] = here
        return found

    def schema(self, raw: Shape) -> pa.Schema:
        types = dict(self.types)
        location = _place_column(raw.schema)
        if location is not None:
            types.setdefault(location, location_type(raw.arrow, raw.schema))
        types[START] = raw.arrow.field(raw.schema.start).type
        types[END] = raw.arrow.field(raw.schema.end).type
        types[TYPE] = pa.dictionary(pa.int32(), pa.string())
        types |= {AT: pa.int64(), FROM: pa.int64()}
        return pa.schema(list(types.items()))


def _schema(arrow: pa.Schema, by_type: Mapping[str, Columns], raw: Shape) -> Schema:
    kinds = fields_of(arrow)
    places = {AT: Kind.INTEGER, FROM: Kind.INTEGER, START: kinds[START], END: kinds[END]}
    if PLACE in arrow.names:
        places[PLACE] = Kind.STRING
    types = {
        name: EventType(name, {f: kinds[c] for f, c in pairs} | places)
        for name, pairs in by_type.items()
    }
    return Schema(
        types=MappingProxyType(types),
        start=START,
        end=END,
        time_kind=kinds[END],
        type_column=TYPE,
        location=_place_column(raw.schema),
        space=raw.schema.space,
        zones=MappingProxyType(zones_by_field(zones_of(arrow), by_type)),
        session=raw.schema.session,
    )


def _place_column(schema: Schema) -> str | None:
    """Where a layer keeps places: complex events have hulls, for which two numbers do not do."""
    return PLACE if isinstance(schema.location, tuple) else schema.location


def _alone(raw: Shape) -> Shape:
    """The shape of events that came in, with their places."""
    arrow = raw.arrow.append(pa.field(AT, pa.int64())).append(pa.field(FROM, pa.int64()))
    hidden = {AT: Kind.INTEGER, FROM: Kind.INTEGER}
    schema = raw.schema
    common = None if schema.common is None else MappingProxyType({**schema.common, **hidden})
    types = {
        name: EventType(name, {**event_type.fields, **hidden})
        for name, event_type in schema.types.items()
    }
    schema = replace(schema, common=common, types=MappingProxyType(types))
    return replace(raw, schema=schema, arrow=arrow, hidden=HIDDEN)


def _fields(result: pa.Schema) -> list[pa.Field]:
    """The fields of a complex event among the columns of its layer's result."""
    return [f for f in result if f.name not in (AT, FROM, RANK, "start", "end", "location")]


def _without_common_type(schemas: Sequence[pa.Schema]) -> set[str]:
    """The columns of one name that no type holds, such as the members of different events."""
    known: dict[str, pa.DataType] = {}
    found = set()
    for field in (field for schema in schemas for field in schema):
        try:
            known[field.name] = _wider(known.get(field.name, field.type), field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            found.add(field.name)
    return found


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type for the values of both."""
    if one == other:
        return one
    both = [pa.schema({"x": one}), pa.schema({"x": other})]
    return pa.unify_schemas(both, promote_options="permissive").field("x").type
