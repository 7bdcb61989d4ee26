"""The event stream of a layer: input events merged with the complex events of lower layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.analyzer.hierarchy_layers import END_TIME, MEMBERS, STANDARD_FIELDS, START_TIME, Layer, get_layer_column
from ensue.analyzer.key_inference import add_equivalence
from ensue.analyzer.output_mode import returns_matches
from ensue.analyzer.timeouts import build_timeout_queries
from ensue.ir.hierarchy import FIRST_POSITION, LAST_POSITION, get_pattern_types
from ensue.ir.query import TIMED_OUT, Query
from ensue.ir.selection import CONTIGUOUS, ByEvents
from ensue.projection.match_order import RANK
from ensue.runtime.compiled_query import CompiledQuery
from ensue.schema import EventType, Schema, ValueKind
from ensue.vector import evaluation
from ensue.vector.arrow_numpy import build_texts, fixed_array, get_indices, integers, to_single_array, wrap_numbers
from ensue.vector.arrow_types import get_field_kinds, get_time_zones
from ensue.vector.event_table import TYPE, Columns, StreamSchema, find_type_conflicts, zones_by_field
from ensue.vector.geo_columns import format_locations, location_type
from ensue.vector.key_codes import TypeNames

PLACE = "__location"  # WKT texts, where input events have two numeric columns
HIDDEN = (LAST_POSITION, FIRST_POSITION)
MEMBER = "__member."  # prefix of the columns that become the struct of members

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LayerEventStream:
    """The shape of a layer's events, and how they are merged into one stream."""

    shape: StreamSchema
    raw: StreamSchema  # of the input events
    types: tuple[str, ...]  # by their codes; complex types follow the input types
    complex_: Mapping[str, Mapping[str, str]]  # per complex type: column here by column below
    reads_raw: bool
    every: bool  # events of any type count, as with strict contiguity

    @property
    def alone(self) -> bool:
        """Whether the layer reads input events only."""
        return not self.complex_

    def convert_input(self, events: pa.Table, at: Ints, begun: Ints) -> pa.Table | None:
        """Converts input events to the layer's columns; None if none is relevant."""
        if self.alone:
            schema = pa.schema([*events.schema, *(pa.field(name, pa.int64()) for name in HIDDEN)])
            return pa.Table.from_arrays([*events.columns, wrap_numbers(at), wrap_numbers(begun)], schema=schema)
        schema = self.raw.schema
        codes = self._type_codes(events)
        if not self.every:
            relevant = np.flatnonzero(codes >= 0)
            if not len(relevant):
                return None
            if len(relevant) < len(codes):
                events = events.take(wrap_numbers(relevant))
                at, begun, codes = at[relevant], begun[relevant], codes[relevant]
        columns = {name: events.column(name) for name in events.column_names}
        columns |= {START_TIME: events.column(schema.start), END_TIME: events.column(schema.end)}
        if isinstance(schema.location, tuple):
            columns[PLACE] = format_locations(events, schema)
        return self._table(columns, codes, at, begun)

    def convert_complex(self, name: str, events: pa.Table) -> pa.Table:
        """Converts complex events of a lower layer to the layer's columns."""
        columns = {here: events.column(below) for below, here in self.complex_[name].items()}
        columns |= {START_TIME: events.column("start"), END_TIME: events.column("end")}
        location = _location_column(self.shape.schema)
        if location is not None:
            columns[location] = events.column("location")
        if RANK in events.column_names:
            columns[RANK] = events.column(RANK)
        codes = np.full(events.num_rows, self.types.index(name), np.int32)
        at, begun = (integers(to_single_array(events.column(c))) for c in HIDDEN)
        return self._table(columns, codes, at, begun)

    def _table(
        self, columns: Mapping[str, pa.ChunkedArray], codes: npt.NDArray[np.int32], at: Ints, begun: Ints
    ) -> pa.Table:
        indices = fixed_array(pa.int32(), codes, codes >= 0 if (codes < 0).any() else None)
        types = pa.DictionaryArray.from_arrays(indices, _texts(self.types))
        positions = {LAST_POSITION: wrap_numbers(at), FIRST_POSITION: wrap_numbers(begun)}
        columns = {**columns, **positions, TYPE: types}
        arrays = []
        for field in self.shape.arrow:
            column = columns.get(field.name)
            if column is None:
                column = pa.nulls(len(codes), field.type)
            arrays.append(column if column.type == field.type else column.cast(field.type))
        return pa.table(arrays, schema=self.shape.arrow)

    def _type_codes(self, events: pa.Table) -> npt.NDArray[np.int32]:
        """Returns the type code of each input event, -1 for irrelevant ones."""
        column = self.raw.schema.type_column
        if column is None:
            return np.zeros(events.num_rows, np.int32)
        return _find_names(self.types[: len(self.types) - len(self.complex_)]).find(events.column(column))

    def restore_columns(self, name: str, events: pa.Table) -> pa.Table:
        """Converts complex events of this stream back to the columns of their layer."""
        columns = {below: events.column(here) for below, here in self.complex_[name].items()}
        columns |= {"start": events.column(START_TIME), "end": events.column(END_TIME)}
        location = _location_column(self.shape.schema)
        if location is not None:
            columns["location"] = events.column(location)
        if RANK in events.column_names:
            columns[RANK] = events.column(RANK)
        return pa.table(columns | {c: events.column(c) for c in HIDDEN})

    def merge(self, pieces: Sequence[pa.Table]) -> pa.Table:
        """Merges pieces into one table in stream order."""
        if len(pieces) == 1 and _is_ascending(integers(to_single_array(pieces[0].column(LAST_POSITION)))):
            return pieces[0]
        table = pa.concat_tables(pieces).take(wrap_numbers(self.order(pieces)))
        return table.unify_dictionaries()

    def order(self, pieces: Sequence[pa.Table]) -> Ints:
        """Computes the stream order: a complex event directly follows its last member."""
        at = np.concatenate([integers(to_single_array(piece.column(LAST_POSITION))) for piece in pieces])
        rank = np.concatenate([self._rank(piece) for piece in pieces])
        if RANK not in self.shape.arrow.names:
            return np.lexsort((rank, at))
        inside = pa.chunked_array([c for piece in pieces for c in piece.column(RANK).chunks])
        ranks = pc.rank(inside.combine_chunks(), tiebreaker="dense", null_placement="at_start")
        return np.lexsort((ranks.to_numpy(), rank, at))

    def _rank(self, piece: pa.Table) -> Ints:
        """Ranks input events before complex ones, and these in the order of their definitions."""
        if self.alone or not piece.num_rows:
            return np.zeros(piece.num_rows, np.int64)
        marks = piece.column(TYPE).combine_chunks()
        codes = get_indices(marks).astype(np.int64)
        rank: Ints = np.maximum(codes - (len(self.types) - len(self.complex_)) + 1, 0)
        return rank

    def ends(self, table: pa.Table) -> npt.NDArray[Any]:
        """Returns the end times of events in the matcher's unit."""
        vector = evaluation.from_arrow(table.column(self.shape.schema.end), self.shape.unit)
        return np.asarray(vector.values)


_find_names = lru_cache(maxsize=256)(TypeNames)


@lru_cache(maxsize=256)
def _texts(names: tuple[str, ...]) -> pa.Array:
    return build_texts(names)


def _is_ascending(places: Ints) -> bool:
    return bool((places[1:] > places[:-1]).all())


def fold_members(matches: pa.Table) -> pa.Table:
    """Folds the member columns of a layer's result, if any, into one struct column."""
    names = [n for n in matches.column_names if n.startswith(MEMBER)]
    if not names:
        return matches
    arrays = [matches.column(n).combine_chunks() for n in names]
    fields = [pa.field(n.removeprefix(MEMBER), a.type) for n, a in zip(names, arrays, strict=True)]
    inside = pa.StructArray.from_arrays(arrays, fields=fields)
    return matches.drop_columns(names).append_column(MEMBERS, inside)


def build_layer_stream(
    layer: Layer, raw: StreamSchema, below: Mapping[str, pa.Schema], shown: Mapping[str, Sequence[str]]
) -> LayerEventStream:
    """Builds the stream of a layer.

    `below` has the results of the layers it uses, `shown` the fields that their events expose.
    """
    named = tuple(t for t in get_pattern_types(layer.query) if t not in below)
    if not layer.uses:
        return LayerEventStream(_add_positions(raw), raw, named, {}, reads_raw=True, every=True)
    used = [name for name in below if name in layer.uses]
    input_schema = raw.arrow if named else pa.schema([])
    columns = _Columns(input_schema, [below[name] for name in used])
    by_type: dict[str, Columns] = {}
    for name in named:
        by_type[name] = (raw.by_type or {}).get(name, [(n, n) for n in input_schema.names])
    visible_columns, id_columns = {}, {}
    complex_: dict[str, dict[str, str]] = {}
    for name in used:
        places = columns.convert_complex(name, below[name])
        own_fields = {below_.removesuffix("@own"): here for below_, here in places.items()}
        if isinstance(raw.schema.location, str):
            own_fields = {raw.schema.location: raw.schema.location} | own_fields
        by_type[name] = list(own_fields.items())
        fields = {"start": START_TIME, "end": END_TIME} | own_fields
        visible = [*shown[name], "start", "end", "match_id", MEMBERS]
        visible_columns[name] = [(f, fields[f]) for f in dict.fromkeys(visible) if f in fields]
        id_columns[name] = [("match_id", places["match_id"])]
        complex_[name] = places
    arrow = columns.schema(raw)
    if any(RANK in below[name].names for name in used):
        arrow = arrow.append(pa.field(RANK, pa.binary()))
    hidden = (*HIDDEN, START_TIME, END_TIME, *([PLACE] if PLACE in arrow.names else []))
    shape = StreamSchema(_schema(arrow, by_type, raw), arrow, raw.unit, by_type, visible_columns, id_columns, hidden)
    query = layer.query
    counts_all = bool(query.strategies & CONTIGUOUS) or isinstance(query.within, ByEvents)
    every = bool(named) and counts_all
    return LayerEventStream(shape, raw, (*named, *used), complex_, bool(named), every)


class _Columns:
    """Assigns the columns of a layer's table: columns with the same name and type are shared."""

    def __init__(self, own: pa.Schema, below: Sequence[pa.Schema]) -> None:
        self.types = {field.name: field.type for field in own}
        fields = [
            pa.schema([pa.field(f.name.removesuffix("@own"), f.type) for f in _fields(result)]) for result in below
        ]
        self.clash = find_type_conflicts([own, *fields]) | _without_common_type([own, *fields])

    def convert_complex(self, name: str, result: pa.Schema) -> dict[str, str]:
        """Returns the column of each field of a complex event."""
        columns = {}
        for field in _fields(result):
            here = field.name.removesuffix("@own")
            if here in self.clash or here in (START_TIME, END_TIME, TYPE, RANK, *HIDDEN):
                here = f"{here}@{name}"
            known = self.types.get(here)
            self.types[here] = field.type if known is None else _wider(known, field.type)
            columns[field.name] = here
        return columns

    def schema(self, raw: StreamSchema) -> pa.Schema:
        types = dict(self.types)
        location = _location_column(raw.schema)
        if location is not None:
            types.setdefault(location, location_type(raw.arrow, raw.schema))
        types[START_TIME] = raw.arrow.field(raw.schema.start).type
        types[END_TIME] = raw.arrow.field(raw.schema.end).type
        types[TYPE] = pa.dictionary(pa.int32(), pa.string())
        types |= {LAST_POSITION: pa.int64(), FIRST_POSITION: pa.int64()}
        return pa.schema(list(types.items()))


def _schema(arrow: pa.Schema, by_type: Mapping[str, Columns], raw: StreamSchema) -> Schema:
    kinds = get_field_kinds(arrow)
    places = dict.fromkeys(HIDDEN, ValueKind.INTEGER)
    places |= {name: kinds[name] for name in (START_TIME, END_TIME)}
    if PLACE in arrow.names:
        places[PLACE] = ValueKind.STRING
    types = {name: EventType(name, {f: kinds[c] for f, c in pairs} | places) for name, pairs in by_type.items()}
    return Schema(
        types=MappingProxyType(types),
        start=START_TIME,
        end=END_TIME,
        time_kind=kinds[END_TIME],
        type_column=TYPE,
        location=_location_column(raw.schema),
        space=raw.schema.space,
        zones=MappingProxyType(zones_by_field(get_time_zones(arrow), by_type)),
        session=raw.schema.session,
    )


def _location_column(schema: Schema) -> str | None:
    """Returns the column of locations: two numbers cannot hold the hull of a complex event."""
    return PLACE if isinstance(schema.location, tuple) else schema.location


def _add_positions(raw: StreamSchema) -> StreamSchema:
    """Adds the position columns to the shape of input events."""
    arrow = pa.schema([*raw.arrow, *(pa.field(name, pa.int64()) for name in HIDDEN)])
    hidden = dict.fromkeys(HIDDEN, ValueKind.INTEGER)
    schema = raw.schema
    common = None if schema.common is None else MappingProxyType({**schema.common, **hidden})
    types = {n: EventType(n, {**type_.fields, **hidden}) for n, type_ in schema.types.items()}
    schema = replace(schema, common=common, types=MappingProxyType(types))
    return replace(raw, schema=schema, arrow=arrow, hidden=HIDDEN)


def _fields(result: pa.Schema) -> list[pa.Field]:
    """Returns the fields of a complex event among the columns of its layer's result."""
    return [f for f in result if f.name not in (*HIDDEN, RANK, "start", "end", "location")]


def _without_common_type(schemas: Sequence[pa.Schema]) -> set[str]:
    """Returns the columns without a common type, such as members of different events."""
    types: dict[str, pa.DataType] = {}
    clashes = set()
    for field in (field for schema in schemas for field in schema):
        try:
            types[field.name] = _wider(types.get(field.name, field.type), field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            clashes.add(field.name)
    return clashes


def _wider(first: pa.DataType, second: pa.DataType) -> pa.DataType:
    if first == second:
        return first
    both = [pa.schema({"x": first}), pa.schema({"x": second})]
    return pa.unify_schemas(both, promote_options="permissive").field("x").type


# ---------------------------------------------------------------------------- timeouts


def plan_layer_timeouts(layer: Layer, checked: Query, compiled: CompiledQuery) -> tuple[Query, ...]:
    """Builds the queries that find the timed-out partial matches of a layer."""
    if returns_matches(checked):
        shown = {get_layer_column(name) for name in layer.fields}
        checked = replace(checked, returns=tuple(r for r in checked.returns if r.name in shown))
    keyed = add_plan_keys(checked, compiled)
    return build_timeout_queries(keyed, LAST_POSITION)


def add_plan_keys(checked: Query, compiled: CompiledQuery) -> Query:
    """Adds the keys that the plan inferred from equalities between all variables.

    Then an event without a key is no partial match, and all queries split the stream alike.
    """
    for key in compiled.plan.query.equivalence:
        field = _field(key.field_name, get_pattern_types(checked), compiled.shape)
        if field is not None:
            checked = add_equivalence(checked, field)
    return checked


def _field(column: str, types: Sequence[str], shape: StreamSchema) -> str | None:
    """Returns the field name of a column if all types agree on it."""
    if shape.by_type is None:
        return column
    names = {next((f for f, c in shape.by_type[t] if c == column), None) for t in types}
    return names.pop() if len(names) == 1 else None


def add_timeout_flag(result: pa.Schema, layer: Layer) -> pa.Schema:
    """Inserts the column `timed_out` into the delivered columns."""
    place = sum(f.name in STANDARD_FIELDS and f.name not in layer.fields for f in result)
    return result.insert(place, pa.field(TIMED_OUT, pa.bool_()))


def project_timeouts(matches: pa.Table, layer: Layer, result: pa.Schema) -> pa.Table:
    """Converts timed-out partial matches to the delivered columns; missing values are NULL."""
    matches = fold_members(matches)
    columns, own = [], layer.fields if returns_matches(layer.query) else ()
    for field in result:
        name = get_layer_column(field.name) if field.name in own else field.name
        if field.name == TIMED_OUT and field.name not in layer.fields:
            columns.append(wrap_numbers(np.ones(matches.num_rows, np.bool_)))
        elif name not in matches.column_names:
            columns.append(pa.nulls(matches.num_rows, field.type))
        elif field.name == MEMBERS and MEMBERS not in layer.fields:
            columns.append(_complete_members(matches.column(name).combine_chunks(), field.type))
        else:
            columns.append(matches.column(name).cast(field.type))
    return pa.table(columns, schema=result)


def _complete_members(members: pa.StructArray, type_: pa.StructType) -> pa.StructArray:
    known = dict(zip((f.name for f in members.type), members.flatten(), strict=True))
    arrays = [known.get(f.name, pa.nulls(len(members), f.type)).cast(f.type) for f in type_]
    return pa.StructArray.from_arrays(arrays, fields=list(type_))
