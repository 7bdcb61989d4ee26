"""The table of matches that a query returns."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial

import numpy as np
import pyarrow as pa
from pyarrow import types

from ensue.analyzer.interval_negation import get_interval_ends
from ensue.analyzer.output_mode import ALL_EVENTS_COLUMNS, is_count_all, is_summarized
from ensue.analyzer.types import get_time_zone, infer_kind
from ensue.errors import QueryError
from ensue.ir.canonical_form import compute_fingerprint
from ensue.ir.expression import Aggregate, EventPosition, Expr, FieldRef, Literal
from ensue.ir.query import Query, ReturnItem
from ensue.ir.traits import is_interval_negation
from ensue.ir.traversal import get_kleene_variables, iterate_bound_variables, iterate_nodes, iterate_positive_atoms
from ensue.ir.values import to_instant
from ensue.kernels import segment_aggregates
from ensue.projection.match_ids import RowHashes, compute_match_ids
from ensue.projection.match_order import TriggerSummary, limit_matches, summarize_by_trigger
from ensue.projection.operator_results import OperatorProjection
from ensue.projection.values import ColumnsOf, MatchValues, index_columns
from ensue.schema import Schema, ValueKind
from ensue.vector.arrow_numpy import Ints, as_read_only, build_texts, to_kernel_validity, wrap_numbers
from ensue.vector.arrow_types import kind_of_arrow, plain_type, time_unit
from ensue.vector.column_values import arrow_type, from_arrow, to_arrow, truth
from ensue.vector.match_rows import FIRST, TRIGGER, Matches
from ensue.vector.take import take_values

_CHOOSING = ("first", "last", "min", "max", "any_value", "mode")


class MatchTableBuilder:
    """Builds the result table of a query from its matches.

    `columns_of` lists for each positive variable its fields, and their columns in the events
    table; `whole_of` the columns of a whole event, and `named_by` those that identify it, if not
    all. Drops matches that fail HAVING or a conjunct in `residual`. A residual conjunct that
    mentions an unbound variable does not apply.
    """

    def __init__(
        self,
        query: Query,
        schema: Schema,
        arrow_schema: pa.Schema,
        residual: tuple[Expr, ...] = (),
        *,
        columns_of: ColumnsOf,
        whole_of: ColumnsOf | None = None,
        named_by: ColumnsOf | None = None,
        query_fingerprint: bytes | None = None,
        ids: bool = True,
    ) -> None:
        self.query, self.schema, self.residual = query, schema, residual
        self.identity = compute_fingerprint(query) if query_fingerprint is None else query_fingerprint
        self.unit = time_unit(arrow_schema)
        # conditions on all matches of an event are evaluated before the result is split
        self.reduces = query.limit is not None or is_summarized(query)
        left = replace(query, having=None) if self.reduces else query
        self.shape = ResultShape(left, schema, arrow_schema, columns_of, whole_of, named_by)
        returned = self.shape.list_returned()
        standard = ({"match_id": pa.string()} if ids else {}) | {
            "start": arrow_schema.field(schema.start).type,
            "end": arrow_schema.field(schema.end).type,
        }
        if schema.location is not None:
            from ensue.vector.geo_columns import location_type

            standard["location"] = location_type(arrow_schema, schema)
        names = {r.name for r in returned}
        fields = [pa.field(name, type) for name, type in standard.items() if name not in names]
        columns = [pa.field(r.name, self.shape.get_type(r.expr)) for r in returned]
        self.labels: EventRowProjection | None = None
        if query.all_events:
            names = {field.name for field in (*fields, *columns)}
            whole = self.shape.whole_of
            self.labels = EventRowProjection.from_query(query, arrow_schema, whole, names)
            own, count = list(self.labels.schema), len(ALL_EVENTS_COLUMNS)
            columns = [*own[:count], *columns, *own[count:]]
        self.output_schema = pa.schema([*fields, *columns])

    def list_columns(self, names: Collection[str]) -> Collection[str]:
        """The columns of events that a result reads, given the hashes of their rows; `names` has them all."""
        query, shape = self.query, self.shape
        conditions = [*self.residual, *(() if query.having is None else (query.having,))]
        exprs = [*conditions, *(returned.expr for returned in shape.list_returned())]
        refs = [node for expr in exprs for node in iterate_nodes(expr) if isinstance(node, FieldRef)]
        whole = self.reduces or query.all_events or bool(shape.results.applied) or self.schema.location is not None
        if whole or any(ref.name is None for ref in refs):
            return names
        read = {shape.columns[ref.variable][ref.name] for ref in refs if ref.name is not None}
        return read | {self.schema.start, self.schema.end}

    def build(self, matches: Matches, events: pa.Table, hashes: RowHashes | None = None) -> pa.Table:
        """The table of some matches, which are rows of the events."""
        query, residual, shape = self.query, self.residual, self.shape
        gathered = MatchValues(matches, events, {}, shape.results, self.unit)
        gathered.columns = shape.columns
        if self.reduces:
            gathered = _reduce(_filter(gathered, query.having, residual), query, self.schema)
            residual = ()

        def assemble(part: Matches) -> pa.Table:
            try:
                values = gathered.with_matches(part)
                if is_summarized(query):
                    return self._build_summaries(values, hashes)
                values = _filter(values, shape.query.having, residual)
                if self.labels is not None:
                    return self._build_event_rows(values, self.labels, hashes)
                return self._build_rows(values, self.output_schema, hashes)
            except (pa.ArrowInvalid, pa.ArrowCapacityError):
                # strings or lists beyond the capacity of an array: the table gets several chunks
                if part.count < 2:
                    raise
                middle = part.count // 2
                halves = np.arange(middle), np.arange(middle, part.count)
                return pa.concat_tables([assemble(part.pick(half)) for half in halves])

        return assemble(gathered.matches)

    def _build_rows(self, gathered: MatchValues, output_schema: pa.Schema, hashes: RowHashes | None) -> pa.Table:
        """One row per match."""
        matches, events, schema = gathered.matches, gathered.events, self.schema
        shape, pattern = self.shape, self.query.pattern
        columns = shape.named_by
        standard: dict[str, Callable[[], pa.Array]] = {
            "match_id": lambda: compute_match_ids(self.identity, matches, events, columns, schema.end, hashes),
            "start": lambda: gathered.take(schema.start, _find_first_rows(gathered, schema)),
            "end": lambda: gathered.take(schema.end, gathered.ends[1]),
            "location": lambda: _compute_hulls(matches, events, schema),
        }
        if is_interval_negation(pattern):
            for name, end in zip(("start", "end"), get_interval_ends(pattern), strict=True):
                standard[name] = partial(_repeat_moment, end, matches.count)
        return shape.build_table(output_schema, gathered, standard)

    def _build_event_rows(
        self, gathered: MatchValues, labels: "EventRowProjection", hashes: RowHashes | None
    ) -> pa.Table:
        """One row per event of a match; the columns of the match are repeated."""
        names = set(labels.schema.names)
        of_match = pa.schema([field for field in self.output_schema if field.name not in names])
        matches = self._build_rows(gathered, of_match, hashes)
        owner, arrays = labels.table(gathered)
        own = dict(zip(labels.schema.names, arrays, strict=True))
        columns = [
            own[name] if name in own else matches.column(name).take(wrap_numbers(owner))
            for name in self.output_schema.names
        ]
        return pa.table(columns, schema=self.output_schema)

    def _build_summaries(self, gathered: MatchValues, hashes: RowHashes | None) -> pa.Table:
        """One row per trigger."""
        rows, events, schema = gathered.matches, gathered.events, self.schema
        summaries = TriggerSummary(self.shape.query, self.shape.named_by, schema.type_column)
        members = gathered.with_matches(summaries.members(rows))
        triggers = Matches({TRIGGER: rows.rows[TRIGGER]}, {}, rows.count)
        standard: dict[str, Callable[[], pa.Array]] = {
            "match_id": lambda: summaries.ids(self.identity, rows, events, schema.end, hashes),
            "start": lambda: take_values(gathered.get_column(schema.start), rows.rows[FIRST]),
            "end": lambda: take_values(gathered.get_column(schema.end), rows.rows[TRIGGER]),
            "location": lambda: _compute_hulls(triggers, events, schema),
        }
        returned = {r.name: r.expr for r in self.query.returns}
        arrays = []
        for name in self.output_schema.names:
            expr = returned.get(name)
            if expr is None:
                arrays.append(standard[name]())
            elif is_count_all(expr):
                arrays.append(pa.array(rows.tally, pa.int64()))
            else:
                arrays.append(self.shape.build_array(expr, members))
        return _build_table(arrays, self.output_schema)


def _build_table(arrays: list[pa.Array], schema: pa.Schema) -> pa.Table:
    pairs = zip(arrays, schema.types, strict=True)
    return pa.table([a if a.type == type else a.cast(type) for a, type in pairs], schema=schema)


def filter_matches(
    matches: Matches, events: pa.Table, query: Query, schema: Schema, residual: tuple[Expr, ...], columns_of: ColumnsOf
) -> Matches:
    """The matches that satisfy HAVING and the residual conjuncts."""
    gathered = MatchValues(matches, events, columns_of, OperatorProjection(query, schema, events.schema))
    return _filter(gathered, query.having, residual).matches


def _reduce(gathered: MatchValues, query: Query, schema: Schema) -> MatchValues:
    """Applies LIMIT, and summarizes the matches of each trigger."""
    if query.limit is not None:
        gathered = gathered.with_matches(limit_matches(gathered.matches, query))
    matches = gathered.matches
    if matches.tally is not None or not is_summarized(query):
        return gathered
    firsts, starts = _find_first_rows(gathered, schema), None
    if schema.intervals:
        times = np.asarray(from_arrow(gathered.get_column(schema.start), gathered.unit).values)
        starts = times[firsts]
    return gathered.with_matches(summarize_by_trigger(matches, firsts, starts, latest=query.exists))


def _repeat_moment(end: Expr, count: int) -> pa.Array:
    """A constant time for each match without events."""
    assert isinstance(end, Literal)
    value = to_instant(end.value) if isinstance(end.value, date) else end.value
    return pa.array([value] * count)


def _filter(gathered: MatchValues, having: Expr | None, residual: tuple[Expr, ...]) -> MatchValues:
    conditions = [gathered.holds(conjunct) for conjunct in residual]
    if having is not None:
        conditions.append(truth(gathered.evaluate(having)))
    kept = np.logical_and.reduce(conditions) if conditions else None
    if kept is None or bool(kept.all()):
        return gathered
    return gathered.with_matches(gathered.matches.where(kept))


def _find_first_rows(gathered: MatchValues, schema: Schema) -> Ints:
    """The event of each match with the earliest start."""
    matches = gathered.matches
    if not schema.intervals:
        first, last = gathered.ends
        return np.where(last < 0, np.int64(-1), first)
    starts = np.asarray(from_arrow(gathered.get_column(schema.start), gathered.unit).values)
    first = np.full(matches.count, -1, np.int64)
    for variable in matches.variables:
        offsets, elements = matches.segments(variable)
        place = segment_aggregates.find_extremes(
            as_read_only(offsets), as_read_only(starts[elements]), to_kernel_validity(None), True
        )
        found = place >= 0
        rows = np.full(matches.count, -1, np.int64)
        rows[found] = elements[place[found]]
        earlier = found & ((first < 0) | (starts[rows] < starts[first]))
        first = np.where(earlier, rows, first)
    return first


class ResultShape:
    """The columns that a query returns, and their types."""

    def __init__(
        self,
        query: Query,
        schema: Schema,
        arrow_schema: pa.Schema,
        columns_of: ColumnsOf,
        whole_of: ColumnsOf | None = None,
        named_by: ColumnsOf | None = None,
    ) -> None:
        self.query = query
        self.whole_of = columns_of if whole_of is None else whole_of
        self.named_by = columns_of if named_by is None else named_by
        self.results = OperatorProjection(query, schema, arrow_schema)
        self.columns_of = columns_of
        self._schema = arrow_schema
        self._unit = time_unit(arrow_schema)
        self._kleenes = frozenset(get_kleene_variables(query.pattern))
        self.columns = index_columns(columns_of)
        self._event_types: dict[str, pa.DataType] = {}
        self._returned: Sequence[ReturnItem] = query.returns
        if not (query.returns or query.exists or query.all_events):
            at = dict.fromkeys(self._kleenes, EventPosition.ALL)
            self._returned = [
                ReturnItem(FieldRef(variable, None, at.get(variable, EventPosition.ONLY)), variable)
                for variable in iterate_bound_variables(query.pattern)
            ]

    def list_returned(self) -> Sequence[ReturnItem]:
        """The columns of RETURN; without it, every positive variable and operator result."""
        return self._returned

    def get_type(self, expr: Expr) -> pa.DataType:
        match expr:
            case FieldRef(name=None):
                event = self._event_type(expr.variable)
                return pa.list_(event) if self._is_list(expr) else event
            case FieldRef():
                column = self._column_type(expr)
                return pa.list_(column) if self._is_list(expr) else column
            case Aggregate(function=function, argument=FieldRef(name=str()) as field):
                if function in _CHOOSING:
                    return self._column_type(field)
            case _:
                pass
        return arrow_type(infer_kind(expr, self._kind), self._unit, self._zone(expr))

    def build_array(self, expr: Expr, gathered: MatchValues) -> pa.Array:
        match expr:
            case FieldRef() if self._is_list(expr):
                offsets, rows = gathered.matches.segments(expr.variable)
                if len(rows) >= 2**31:
                    raise pa.ArrowCapacityError("a list has offsets of 32 bits")
                inside = self._at_rows(expr, rows, gathered)
                return pa.ListArray.from_arrays(wrap_numbers(offsets.astype(np.int32)), inside)
            case FieldRef():
                return self._at_rows(expr, gathered.rows(expr), gathered)
            case Aggregate(function=function, argument=FieldRef(name=str())):
                if function in _CHOOSING:
                    return gathered.pick_value(expr)
            case _:
                pass
        return to_arrow(gathered.evaluate(expr), gathered.unit, self._zone(expr))

    def build_table(
        self, schema: pa.Schema, gathered: MatchValues, standard: Mapping[str, Callable[[], pa.Array]]
    ) -> pa.Table:
        """A table of the returned columns, and of `standard` ones that they do not replace."""
        returned = {r.name: r.expr for r in self.list_returned()}
        arrays = [
            self.build_array(returned[name], gathered) if name in returned else standard[name]()
            for name in schema.names
        ]
        return _build_table(arrays, schema)

    def _at_rows(self, field: FieldRef, rows: Ints, gathered: MatchValues) -> pa.Array:
        """A field, or whole events, at some rows of the events."""
        if field.name is not None:
            if gathered.is_result(field.variable):
                return take_values(gathered.column(field.variable, field.name), rows)
            return gathered.take(gathered.columns[field.variable][field.name], rows)
        if field.variable in self.results.applied:
            names = self.results.list_attributes(field.variable)
            parts = [take_values(gathered.column(field.variable, name), rows) for name in names]
        else:
            columns = self.whole_of[field.variable]
            whole = gathered.slice_events(columns, self._event_type(field.variable), rows)
            if whole is not None:
                return whole
            parts = [take_values(gathered.get_column(column), rows) for _, column in columns]
        unbound = rows < 0
        mask = wrap_numbers(unbound) if bool(unbound.any()) else None
        fields = list(self._event_type(field.variable))
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)

    def _is_list(self, field: FieldRef) -> bool:
        return field.variable in self._kleenes and field.at in (EventPosition.ALL, EventPosition.ONLY)

    def _event_type(self, variable: str) -> pa.DataType:
        if variable not in self._event_types:
            if variable in self.results.applied:
                names = self.results.list_attributes(variable)
                fields = [(name, self.results.get_type(variable, name)) for name in names]
            else:
                columns = self.whole_of[variable]
                fields = [(name, self._schema.field(column).type) for name, column in columns]
            self._event_types[variable] = pa.struct(fields)
        return self._event_types[variable]

    def _column_type(self, field: FieldRef) -> pa.DataType:
        assert field.name is not None
        if field.variable in self.results.applied:
            if field.name in self.results.list_attributes(field.variable):
                return self.results.get_type(field.variable, field.name)
            source = self.results.origins[field.variable]
            return self._schema.field(self.columns[source][field.name]).type
        return self._schema.field(self.columns[field.variable][field.name]).type

    def _kind(self, field: FieldRef) -> ValueKind:
        return kind_of_arrow(self._column_type(field))

    def _zone(self, expr: Expr) -> str | None:
        """The zone of a computed timestamp."""

        def get_zone(field: FieldRef) -> str | None:
            type = plain_type(self._column_type(field))
            return str(type.tz) if types.is_timestamp(type) and type.tz is not None else None

        return get_time_zone(expr, get_zone)


def _compute_hulls(matches: Matches, events: pa.Table, schema: Schema) -> pa.Array:
    from ensue.vector.geo_columns import compute_match_hulls

    return compute_match_hulls(matches, events, schema)


MATCH_BYTES = 128  # its id and times, and the memory to compute them
VALUE_BYTES = 16


def estimate_result_bytes(matches: Matches, events: pa.Table, query: Query, whole_of: ColumnsOf) -> float:
    """The approximate size of a result; events are copied into each of their matches."""
    if is_summarized(query) or not events.num_rows:
        return 0.0
    refs = [r.expr for r in query.returns if isinstance(r.expr, FieldRef)]
    whole = [ref.variable for ref in refs if ref.name is None]
    values = len(query.returns) - len(whole)
    if query.all_events or not query.returns:
        whole = list(iterate_bound_variables(query.pattern))
    size = matches.count * float(MATCH_BYTES + values * VALUE_BYTES)
    wide = {name: events.column(name).nbytes / events.num_rows for name in events.column_names}
    for variable in whole:
        if variable in matches.variables:
            members = matches.segments(variable)[0][-1]
            size += float(members) * sum(wide[column] for _, column in whole_of.get(variable, ()))
    return size


def flatten_schema(schema: pa.Schema, *, lists: bool = True) -> pa.Schema:
    """The columns of `flatten_table`.

    >>> event = pa.struct({"t": pa.int64(), "x": pa.string()})
    >>> flatten_schema(pa.schema({"id": pa.string(), "a": event, "b": pa.list_(event)})).names
    ['id', 'a.t', 'a.x', 'b.t', 'b.x']
    """
    fields = [leaf for field in schema for leaf in _leaves(field.name, field.type, lists)]
    names = [field.name for field in fields]
    for name in names:
        if names.count(name) > 1:
            raise QueryError(
                f"two columns would be called '{name}' where events are plain columns",
                hint="name one of them otherwise, with AS",
            )
    return pa.schema(fields)


def flatten_table(table: pa.Table, *, lists: bool = True) -> pa.Table:
    """Structs as a column for each field, and lists of structs as a list for each field.

    >>> nested = pa.table({"a": [{"x": 1}], "b": [[{"x": 2}, {"x": 3}]]})
    >>> flatten_table(nested).to_pylist()
    [{'a.x': 1, 'b.x': [2, 3]}]
    """
    output_schema = flatten_schema(table.schema, lists=lists)
    if output_schema.names == table.schema.names:
        return table
    columns: list[pa.ChunkedArray] = []
    for field, column in zip(table.schema, table.columns, strict=True):
        chunks = [_parts(pa.concat_arrays([chunk]), lists) for chunk in column.chunks]
        leaves = _leaves(field.name, field.type, lists)
        for number, leaf in enumerate(leaves):
            columns.append(pa.chunked_array([parts[number] for parts in chunks], leaf.type))
    return pa.Table.from_arrays(columns, schema=output_schema)


def _leaves(name: str, type: pa.DataType, lists: bool) -> list[pa.Field]:
    if types.is_struct(type):
        return [leaf for f in type for leaf in _leaves(f"{name}.{f.name}", f.type, lists)]
    if lists and _has_structs(type):
        wrap = pa.large_list if types.is_large_list(type) else pa.list_
        inside = _leaves(name, type.value_type, lists)
        return [pa.field(leaf.name, wrap(leaf.type)) for leaf in inside]
    return [pa.field(name, type)]


def _parts(array: pa.Array, lists: bool) -> list[pa.Array]:
    """The flat columns of an array that is no slice."""
    if types.is_struct(array.type):
        return [part for field in array.flatten() for part in _parts(field, lists)]
    if lists and _has_structs(array.type):
        make = pa.LargeListArray if types.is_large_list(array.type) else pa.ListArray
        mask = array.is_null() if array.null_count else None
        return [make.from_arrays(array.offsets, part, mask=mask) for part in _parts(array.values, lists)]
    return [array]


def _has_structs(type: pa.DataType) -> bool:
    listed = types.is_list(type) or types.is_large_list(type)
    return bool(listed and types.is_struct(type.value_type))


_TYPES = {"variable": pa.string(), "position": pa.int64(), "index": pa.int64()}
_OF_EVENT = "event_"  # prefix of an event column whose name a match column has


@dataclass(frozen=True)
class EventRowProjection:
    """The columns of a result with one row per event."""

    schema: pa.Schema  # variable, position and index, then the fields of events
    columns: tuple[dict[str, str], ...]  # for each field its column by variable
    variables: tuple[str, ...]

    @classmethod
    def from_query(
        cls, query: Query, arrow: pa.Schema, whole_of: ColumnsOf, others: Collection[str]
    ) -> "EventRowProjection":
        """The event columns of a query whose match columns have the names `others`."""
        names = tuple(atom.variable for atom in iterate_positive_atoms(query.pattern))
        fields: dict[str, dict[str, str]] = {}
        for variable in names:
            for field, column in whole_of[variable]:
                fields.setdefault(field, {})[variable] = column
        taken_names = {*others, *ALL_EVENTS_COLUMNS}
        shown = [pa.field(name, _TYPES[name]) for name in ALL_EVENTS_COLUMNS]
        for field, columns in fields.items():
            name = field
            while name in taken_names:
                name = _OF_EVENT + name
            taken_names.add(name)
            types = {arrow.field(column).type for column in columns.values()}
            shown.append(pa.field(name, _unify_types(field, types, query)))
        return cls(pa.schema(shown), tuple(fields.values()), names)

    def table(self, gathered: MatchValues) -> tuple[Ints, list[pa.Array]]:
        """The match of each row, and the columns."""
        owner, row, number, index = self._rows(gathered.matches)
        position = np.arange(len(owner)) - np.searchsorted(owner, owner) + 1
        variable = build_texts(self.variables).take(wrap_numbers(number))
        arrays = [variable, pa.array(position), pa.array(index)]
        for columns, field in zip(self.columns, list(self.schema)[len(ALL_EVENTS_COLUMNS) :], strict=True):
            arrays.append(self._column(columns, field.type, row, number, gathered))
        return owner, arrays

    def _rows(self, matches: Matches) -> tuple[Ints, Ints, Ints, Ints]:
        """The events of all matches, by match and time: match, row, variable, and index (from 1)
        among the variable's events."""
        owners, rows, numbers, indices = [], [], [], []
        for number, variable in enumerate(self.variables):
            offsets, members = matches.segments(variable)
            sizes = np.diff(offsets)
            owners.append(np.repeat(np.arange(matches.count), sizes))
            rows.append(members)
            numbers.append(np.full(len(members), number))
            indices.append(np.arange(len(members)) - np.repeat(offsets[:-1], sizes) + 1)
        owner, row = np.concatenate(owners), np.concatenate(rows)
        bound, index = np.concatenate(numbers), np.concatenate(indices)
        order = np.lexsort((bound, row, owner))
        return owner[order], row[order], bound[order], index[order]

    def _column(
        self, columns: dict[str, str], type_: pa.DataType, row: Ints, number: Ints, gathered: MatchValues
    ) -> pa.Array:
        """A field of the events, which is in different columns for different variables."""

        def take(source: str | None, rows: Ints) -> pa.Array:
            if source is None:
                return pa.nulls(len(rows), type_)
            array = take_values(gathered.get_column(source), rows)
            if isinstance(array, pa.ChunkedArray):
                array = array.combine_chunks()
            return array if array.type == type_ else array.cast(type_)

        sources = [columns.get(variable) for variable in self.variables]
        if len(set(sources)) == 1:
            return take(sources[0], row)
        places = [np.flatnonzero(number == k) for k in range(len(sources))]
        pieces = [take(source, row[own]) for source, own in zip(sources, places, strict=True)]
        order = np.argsort(np.concatenate(places), kind="stable")
        return pa.concat_arrays(pieces).take(wrap_numbers(order))


def _unify_types(field: str, types: set[pa.DataType], query: Query) -> pa.DataType:
    """The common type of a field that several types of events have."""
    if len(types) == 1:
        return next(iter(types))
    schemas = [pa.schema({field: type_}) for type_ in sorted(types, key=str)]
    try:
        return pa.unify_schemas(schemas, promote_options="permissive").field(field).type
    except pa.ArrowException:
        shown = " and ".join(sorted(str(type_) for type_ in types))
        raise QueryError(
            f"ALL EVENTS has one column for the field '{field}', which is {shown} in different tables of events",
            hint="bring it to one type first, or give it two names",
            text=query.text,
        ) from None
