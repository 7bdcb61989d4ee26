"""Tables of events as one ordered stream: schema checks, union of types, sorting."""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.analyzer.interval_negation import rewrite_interval_ends
from ensue.analyzer.user_operators import bind_operator_columns, get_result_columns, set_resolution
from ensue.errors import EventError, QueryError, did_you_mean
from ensue.ir.expression import Expr, FieldRef
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_atoms, rewrite_expr
from ensue.kernels.sorting import measure_order, stable_order
from ensue.schema import EventType, Schema, Types, ValueKind, build_table_schema
from ensue.traceback_filter import find_stacklevel
from ensue.vector import evaluation
from ensue.vector.arrow_numpy import Ints, as_read_only, build_texts, decode_text
from ensue.vector.arrow_types import Unit, get_field_kinds, get_time_zones, is_text, plain_type, time_unit
from ensue.vector.key_codes import KeyCodes
from ensue.vector.take import take_rows


def unify_columns(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Unify column types that Arrow does not promote itself.

    Strings get one encoding, and timestamps of different zones become UTC.

    >>> zurich = pa.table({"t": pa.array([0], pa.timestamp("us", "Europe/Zurich"))})
    >>> tokyo = pa.table({"t": pa.array([0], pa.timestamp("ns", "Asia/Tokyo"))})
    >>> unify_columns({"Z": zurich, "T": tokyo})["Z"].schema.field("t").type
    TimestampType(timestamp[us, tz=UTC])
    """
    unified = dict(tables)
    names = {name for table in tables.values() for name in table.column_names}
    for column in sorted(names):
        types_by_table = {
            name: table.schema.field(column).type for name, table in tables.items() if column in table.column_names
        }
        if len(set(types_by_table.values())) < 2:
            continue
        plain = [plain_type(type) for type in types_by_table.values()]
        if all(map(is_text, plain)):
            unified |= {name: _as_text(unified[name], column) for name in types_by_table}
        elif all(map(types.is_timestamp, plain)):
            _refuse_zoneless(column, types_by_table)
            if len({type.tz for type in plain}) > 1:
                unified |= {name: _in_utc(unified[name], column) for name in types_by_table}
    return unified


def _as_text(table: pa.Table, column: str) -> pa.Table:
    chunks = [decode_text(chunk) for chunk in table.column(column).chunks]
    return _with(table, column, pa.chunked_array(chunks, None if chunks else pa.string()))


def _in_utc(table: pa.Table, column: str) -> pa.Table:
    times = table.column(column)
    return _with(table, column, times.cast(pa.timestamp(plain_type(times.type).unit, "UTC")))


def _with(table: pa.Table, column: str, values: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(column), column, values)


def _refuse_zoneless(column: str, types: Mapping[str, pa.DataType]) -> None:
    zoned = [name for name, type in types.items() if plain_type(type).tz is not None]
    others = [name for name in types if name not in zoned]
    if zoned and others:
        raise EventError(
            f"the times in '{column}' have a zone in {', '.join(zoned)} "
            f"({plain_type(types[zoned[0]]).tz}) and none in {', '.join(others)}, so they "
            "cannot be ordered\n"
            "  hint: give all of them a zone, as tz_localize does in pandas, "
            "replace_time_zone in Polars and timezone(...) in DuckDB"
        )


# ---------------------------------------------------------------------------- schema

TYPE = "__type"  # the column with the event type of several tables
PLACE = "__place"  # the column with the arrival order, if nothing else defines it
COMPUTED = "__key_"  # prefix of columns that are computed on reading
_RUN = 64  # average length of sorted runs from which merging beats radix sort
_MANY = 1 << 16  # times that are checked in one pass
_NUMBERS = (ValueKind.INTEGER, ValueKind.FLOAT, ValueKind.DECIMAL)
ORDERED = (*_NUMBERS, ValueKind.TIMESTAMP, ValueKind.DATE)

# column names that backends and operators reserve
_OWN = frozenset(
    f"__{name}"
    for name in (
        "arrival", "at", "batch", "end", "first", "from", "key_group", "last", "location", "ordinal",
        "place", "rank", "row", "start", "time", "type",
    )
)  # fmt: skip

Columns = Sequence[tuple[str, str]]  # (field, column)
Times = tuple[evaluation.Vector, evaluation.Vector]  # of starts and ends
# maps a table, and whether it is sorted, to the rows to match; None: all
FindRoles = Callable[[pa.Table, bool], "EventRoles | None"]


@dataclass(frozen=True, slots=True, eq=False)
class EventRoles:
    """Some rows of a table, ascending: the roles that their events can play, as bits, and their partitions."""

    rows: Ints
    mask: Ints
    key: npt.NDArray[np.int32] | None  # None: only their rows are asked for
    keys: KeyCodes  # of the table
    seen: int  # the roles whose types occur in the table


@dataclass(frozen=True, slots=True, eq=False)
class EventSelection:
    """Events of a table to match: `order` has their numbers in stream order, None: their rows ascend."""

    roles: EventRoles
    order: Ints | None
    rows: Ints  # in stream order, like all that follow
    mask: Ints
    key: npt.NDArray[np.int32]
    starts: npt.NDArray[Any]
    ends: npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class StreamSchema:
    """The schema of a stream: enough to check and plan a query."""

    schema: Schema
    arrow: pa.Schema
    unit: Unit
    by_type: Mapping[str, Columns] | None = None  # where several tables were united
    whole: Mapping[str, Columns] | None = None  # columns of a whole event, by type
    named_by: Mapping[str, Columns] | None = None  # columns that identify events, by type
    hidden: tuple[str, ...] = ()  # columns that conditions may read, but that are not fields

    def get_event_columns(self, query: Query) -> dict[str, Columns]:
        """For each variable, the fields of a whole event."""
        return self._exclude(self.whole, query)

    def get_identity_columns(self, query: Query) -> dict[str, Columns]:
        """For each variable, the fields that identify its events."""
        return self._exclude(self.named_by, query)

    def _exclude(self, others: Mapping[str, Columns] | None, query: Query) -> dict[str, Columns]:
        columns = self.get_columns(query)
        if self.hidden:
            columns = {v: [c for c in cs if c[1] not in self.hidden] for v, cs in columns.items()}
        for atom in iterate_atoms(query.pattern):
            if others is not None and isinstance(atom.type, str) and atom.type in others:
                columns[atom.variable] = others[atom.type]
        return columns

    def get_columns(self, query: Query) -> dict[str, Columns]:
        """For each variable, the fields of its events and their columns."""
        columns_by_variable: dict[str, Columns] = {}
        for atom in iterate_atoms(query.pattern):  # operator results have no columns
            if self.by_type is not None:
                type_columns = self._columns_of_types(atom.type)
                hidden = ((n, n) for n in self.hidden)
                columns_by_variable[atom.variable] = [*type_columns, *hidden]
            else:
                columns_by_variable[atom.variable] = [(n, n) for n in self.arrow.names]
        return columns_by_variable

    def _columns_of_types(self, types: Types) -> Columns:
        """The fields of a type, or of any of several types.

        Fields of one name with different types keep the names of their columns.
        """
        assert self.by_type is not None
        if isinstance(types, str):
            return self.by_type.get(types, ())
        columns_by_field: dict[str, set[str]] = {}
        for name in types.names or self.by_type:
            for field, column in self.by_type.get(name, ()):
                columns_by_field.setdefault(field, set()).add(column)
        return [
            (field if len(columns) == 1 else column, column)
            for field, columns in columns_by_field.items()
            for column in sorted(columns)
        ]

    def physical(self, query: Query) -> tuple[Query, Schema]:
        """Rewrite a query from fields to columns, where conflicting fields were renamed."""
        query = replace(query, pattern=set_resolution(query.pattern, 1_000 if self.unit == "us" else 1))
        if self.by_type is None or all(f == c for cs in self.by_type.values() for f, c in cs):
            return query, self.schema
        places = {v: dict(cs) for v, cs in self.get_columns(query).items()}
        places |= get_result_columns(query.pattern, places)

        def rename(node: Expr) -> Expr:
            if isinstance(node, FieldRef) and node.name is not None:
                return replace(node, name=places[node.variable].get(node.name, node.name))
            return node

        for equivalence in query.equivalence:
            name = equivalence.field_name
            atoms = iterate_atoms(query.pattern)
            if any(places[atom.variable].get(name) != name for atom in atoms):
                raise QueryError(
                    f"[{name}] compares values of different kinds",
                    hint="use the same type for the field in every table",
                    span=equivalence.span,
                    text=query.text,
                )
        renamed = replace(
            query,
            pattern=rewrite_interval_ends(
                bind_operator_columns(query.pattern, places), lambda end: rewrite_expr(end, rename)
            ),
            where=tuple(rewrite_expr(c, rename) for c in query.where),
            returns=tuple(replace(r, expr=rewrite_expr(r.expr, rename)) for r in query.returns),
            having=None if query.having is None else rewrite_expr(query.having, rename),
        )
        kinds = get_field_kinds(self.arrow)
        types = {
            name: EventType(name, {c: kinds[c] for c in (*(c for _, c in columns), *self.hidden)})
            for name, columns in self.by_type.items()
        }
        return renamed, replace(self.schema, types=MappingProxyType(types))


def create_schema(
    schema: pa.Schema, *, time: str | tuple[str, str], type: str | None, order: Sequence[str]
) -> StreamSchema:
    """The schema of one table of events."""
    fields = get_field_kinds(schema)
    _check_columns(fields, time, type, order)
    return StreamSchema(
        build_table_schema(fields, time=time, type_column=type, order=tuple(order), zones=get_time_zones(schema)),
        schema,
        time_unit(schema),
    )


def check_reserved_names(names: Sequence[str]) -> None:
    """Raise EventError if a column name is reserved or occurs twice."""
    check_duplicate_names(names)
    for name in names:
        if name in _OWN or name.startswith(("__member.", "__constant.", COMPUTED)):
            raise EventError(
                f"the events have a column '{name}', a name that Ensue uses internally\n"
                "  hint: rename the column, or leave it out"
            )


def check_duplicate_names(names: Sequence[str]) -> None:
    """Raise EventError if two columns have the same name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise EventError(
                f"the events have two columns called '{name}'\n  hint: rename one of them, or leave it out"
            )
        seen.add(name)


def restore_schema(
    schema: pa.Schema,
    by_type: Mapping[str, Columns] | None,
    *,
    time: str | tuple[str, str],
    type: str | None,
    order: Sequence[str],
) -> StreamSchema:
    """The schema of one table, or of tables that were united before."""
    if by_type is None:
        return create_schema(schema, time=time, type=type, order=order)
    return create_union_schema(schema, by_type, time=time, order=order)


def add_location(shape: StreamSchema, location: str | tuple[str, str] | None, space: str = "plane") -> StreamSchema:
    """Add the columns with the places of events."""
    if location is None and space == "plane":
        return shape
    from ensue.vector.geo_columns import check_location

    location = check_location(shape.arrow, location, space)
    return replace(shape, schema=replace(shape.schema, location=location, space=space))


def _check_columns(
    fields: Mapping[str, ValueKind], time: str | tuple[str, str], type: str | None, order: Sequence[str]
) -> None:
    times = (time,) if isinstance(time, str) else tuple(time)
    if len(times) not in (1, 2):
        raise EventError("time must be one column, or a pair (start, end)")
    for option, name in [
        *(("time", t) for t in times),
        *((("type", type),) if type is not None else ()),
        *(("order", o) for o in order),
    ]:
        if name not in fields:
            hint = did_you_mean(name, fields)
            raise EventError(f"no column '{name}' for {option}=\n  hint: {hint or 'no columns'}")
    kinds = {fields[t] for t in times}
    if not kinds <= set(ORDERED):
        named = [(t, fields[t].value) for t in times]
        shown = ", ".join(f"{t} is {'an' if k[0] in 'aeiou' else 'a'} {k}" for t, k in named)
        raise EventError(
            f"events cannot be ordered by time={time!r}: {shown}\n"
            "  hint: use a timestamp, a date, a number, or text in ISO form"
        )
    if len(kinds) > 1:
        raise EventError(f"start and end time have different kinds: time={time!r}")


def unite_tables(
    tables: Mapping[str, pa.Table], *, time: str | tuple[str, str], order: Sequence[str]
) -> tuple[pa.Table, StreamSchema]:
    """Unite tables of one event type each; compatible columns of one name are shared."""
    for table in tables.values():
        create_schema(table.schema, time=time, type=None, order=order)
    tables = unify_columns(tables)
    clash = find_type_conflicts([t.schema for t in tables.values()])
    by_type: dict[str, Columns] = {}
    pieces = []
    for name, table in tables.items():
        columns = [(f, f"{f}@{name}" if f in clash else f) for f in table.column_names]
        by_type[name] = columns
        type_values = pa.DictionaryArray.from_arrays(np.zeros(table.num_rows, np.int32), build_texts([name]))
        renamed = table.rename_columns([c for _, c in columns])
        pieces.append(renamed.append_column(TYPE, type_values))
    try:
        united = pa.concat_tables(pieces, promote_options="permissive").unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise EventError(f"the tables are not compatible: {error}") from error
    return united, create_union_schema(united.schema, by_type, time=time, order=order)


def create_union_schema(
    arrow: pa.Schema, by_type: Mapping[str, Columns], *, time: str | tuple[str, str], order: Sequence[str]
) -> StreamSchema:
    """The schema of united tables; the column TYPE holds the event type."""
    kinds = get_field_kinds(arrow)
    start, end = (time, time) if isinstance(time, str) else time
    types = {name: EventType(name, {f: kinds[c] for f, c in columns}) for name, columns in by_type.items()}
    schema = Schema(
        types=MappingProxyType(types),
        start=start,
        end=end,
        time_kind=kinds[end],
        order=tuple(order),
        type_column=TYPE,
        zones=MappingProxyType(zones_by_field(get_time_zones(arrow), by_type)),
    )
    return StreamSchema(schema, arrow, time_unit(arrow), by_type)


def zones_by_field(zones: Mapping[str, str], by_type: Mapping[str, Columns]) -> dict[str, str]:
    """Time zones by field name; fields of one name with a time type share a column."""
    named = {f: zones[c] for columns in by_type.values() for f, c in columns if c in zones}
    return {**zones, **named}


def find_type_conflicts(schemas: Sequence[pa.Schema]) -> set[str]:
    """The columns of one name whose kinds cannot share a column."""
    kinds: dict[str, set[ValueKind]] = {}
    for schema in schemas:
        for name, kind in get_field_kinds(schema).items():
            kinds.setdefault(name, set()).add(_family(kind))
    return {name for name, column_kinds in kinds.items() if len(column_kinds - {ValueKind.NULL}) > 1}


def _family(kind: ValueKind) -> ValueKind:
    return ValueKind.FLOAT if kind.numeric else kind


def sort_events(
    table: pa.Table, shape: StreamSchema, bad_events: str = "raise", types: Collection[str] | None = None
) -> pa.Table:
    """Sort the events by (end, start, order columns, arrival), and drop those without a time."""
    usable, times, ascends = _drop_unusable(table, shape, bad_events, types)
    places = None if ascends and not shape.schema.order else find_stream_order(usable, shape, times)
    return usable if places is None else take_rows(usable, places)


def select_events(
    table: pa.Table, shape: StreamSchema, bad_events: str, types: Collection[str] | None, find_roles: FindRoles
) -> tuple[pa.Table, EventSelection | None]:
    """The events that have a time, as they are given, and the rows to match; None: all, which are in order."""
    usable, times, ascends = _drop_unusable(table, shape, bad_events, types)
    schema = shape.schema
    in_order = not schema.order and (
        ascends or _ascending(np.asarray(times[0].values), np.asarray(times[1].values), schema.intervals)
    )
    found = find_roles(usable, in_order)
    if found is None:
        places = None if in_order else find_stream_order(usable, shape, times)
        return (usable if places is None else take_rows(usable, places)), None
    end = times[1].at(found.rows)
    some = (times[0].at(found.rows) if schema.intervals else end), end
    order = None
    if not in_order:
        ordering = usable.select(list(dict.fromkeys([schema.end, schema.start, *schema.order])))
        order = find_stream_order(take_rows(ordering, found.rows) if schema.order else ordering, shape, some)

    def arrange(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values if order is None else values.take(order, mode="clip")  # without a check of bounds

    rows = arrange(found.rows)
    if found.key is None:
        return take_rows(usable, rows), None
    ends = arrange(np.asarray(end.values))
    starts = arrange(np.asarray(some[0].values)) if schema.intervals else ends
    return usable, EventSelection(found, order, rows, arrange(found.mask), arrange(found.key), starts, ends)


def _drop_unusable(
    table: pa.Table, shape: StreamSchema, bad_events: str, types: Collection[str] | None
) -> tuple[pa.Table, Times, bool]:
    """The events that have a time, their times, and whether these are known to ascend."""
    times = _times(table, shape)
    start, end = times
    if start is end and len(end) >= _MANY and end.valid is None and not isinstance(end, evaluation.Refused):
        values = np.asarray(end.values)
        if values.dtype == np.int64 and bad_events in ("raise", "drop"):
            least, greatest, falls = measure_order(as_read_only(values))
            if int(greatest) - int(least) < 2**63:
                return table, times, falls == 0
    usable, dropped = drop_bad_times(table, shape, bad_events, types, times=times)
    warn_of_dropped(dropped)
    return usable, (times if usable is table else _times(usable, shape)), False


def warn_of_dropped(count: int) -> None:
    if count:
        warnings.warn(f"{count} events without usable time are left out", stacklevel=find_stacklevel())


def drop_bad_times(
    table: pa.Table,
    shape: StreamSchema,
    bad_events: str,
    types: Collection[str] | None = None,
    *,
    finite: bool = False,
    times: Times | None = None,
    before: int = 0,
) -> tuple[pa.Table, int]:
    """The events that have a usable time, and how many of the others are relevant.

    `types` are the relevant ones; None: all. Events with neither time nor type are counted, too.
    `finite`: infinity is not usable, because a watermark must pass it. `times`: the times, if
    known. `before`: the number of events before the first one.
    """
    if bad_events not in ("raise", "drop"):
        raise EventError(f"bad_events must be 'raise' or 'drop', not {bad_events!r}")
    starts, ends = times or _times(table, shape)
    bad = _unusable(starts, ends, finite=finite)
    some = bool(bad.any())
    _check_span(starts, ends, bad if some else None)
    if not some:
        return table, 0
    relevant = bad if types is None else bad & _select_types(table, shape, types)
    count = int(relevant.sum())
    if count and bad_events == "raise":
        infinite = "infinite, " if finite and shape.schema.time_kind is ValueKind.FLOAT else ""
        raise EventError(
            f"{count} of {before + table.num_rows} events have no usable time "
            f"(the first is row {before + int(relevant.argmax())}): it is missing, not a number, {infinite}"
            "or ends before it starts\n"
            '  hint: repair them, or pass ensue.StreamOptions(bad_events="drop") to leave them out'
        )
    return table.filter(pa.array(~bad)), count


def _select_types(table: pa.Table, shape: StreamSchema, types: Collection[str]) -> npt.NDArray[np.bool_]:
    column = shape.schema.type_column
    if column is None:
        return np.ones(table.num_rows, np.bool_)
    names = table.column(column).cast(pa.string())
    matching = pc.is_in(names, value_set=build_texts(sorted(types)))
    unknown = pc.is_null(names)  # even the type is missing
    return np.asarray(pc.or_(matching, unknown).to_numpy(), np.bool_)


def _times(table: pa.Table, shape: StreamSchema) -> Times:
    start, end = shape.schema.start, shape.schema.end
    times = evaluation.from_arrow(table.column(end), shape.unit, end)
    if start == end:
        return times, times
    return evaluation.from_arrow(table.column(start), shape.unit, start), times


def get_end_times(table: pa.Table, shape: StreamSchema) -> npt.NDArray[Any]:
    """The end of each event, in the unit of event time."""
    name = shape.schema.end
    return np.asarray(evaluation.from_arrow(table.column(name), shape.unit, name).values)


def find_stream_order(table: pa.Table, shape: StreamSchema, times: Times | None = None) -> npt.NDArray[np.int64] | None:
    """The rows in stream order; None: they are sorted."""
    schema = shape.schema
    start, end = (np.asarray(v.values) for v in times or _times(table, shape))
    if not schema.order:
        if _ascending(start, end, schema.intervals):
            return None
        return np.lexsort((start, end)) if schema.intervals else _stable_order(end)
    ties = [evaluation.from_arrow(table.column(name), shape.unit, name) for name in schema.order]
    if all(_plain(t) for t in ties):
        # sorted runs, as a shuffle leaves them, merge quickly
        return np.lexsort((*(np.asarray(t.values) for t in reversed(ties)), start, end))
    numbered = table.select(list(dict.fromkeys([schema.end, schema.start, *schema.order])))
    numbered = numbered.append_column("__row", pa.array(np.arange(table.num_rows)))
    places = pc.sort_indices(numbered, sort_keys=[(k, "ascending") for k in numbered.column_names])
    return np.asarray(places.to_numpy(), np.int64)


def _stable_order(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Stable sort order; mostly sorted input is merged, other input radix-sorted."""
    if values.dtype == np.int64 and len(values) < 2**32:
        falls = np.count_nonzero(values[1:] < values[:-1])
        if falls * _RUN > len(values):
            return np.asarray(stable_order(as_read_only(values)), np.int64)
    return np.argsort(values, kind="stable")


def _check_span(starts: evaluation.Vector, ends: evaluation.Vector, bad: npt.NDArray[np.bool_] | None) -> None:
    """Raise EventError unless differences of times, which windows compare, fit into 64 bits."""
    usable = [np.asarray(vector.values) for vector in (starts, ends)]
    if bad is not None:
        usable = [values[~bad] for values in usable]
    count = len(usable[0])
    if not count or (count == 1 and starts is ends) or usable[0].dtype.kind == "f":
        return
    first, last = int(usable[0].min()), int(usable[1].max())
    if last - first >= 2**63:
        raise EventError(
            f"the times of events lie too far apart: from {first} to {last} is more than 64 bits "
            "count\n  hint: use a coarser unit, such as milliseconds or seconds, or leave out "
            "events whose time stands for 'never' or 'always'"
        )


def _plain(tie: evaluation.Vector) -> bool:
    """Whether a column sorts as numbers without NULL."""
    refused = isinstance(tie, evaluation.Refused)  # Arrow can sort these, too
    return not refused and isinstance(tie.values, np.ndarray) and tie.valid is None


def _unusable(starts: evaluation.Vector, ends: evaluation.Vector, *, finite: bool) -> npt.NDArray[np.bool_]:
    start, end = np.asarray(starts.values), np.asarray(ends.values)
    bad = ~(end >= start)  # also true for NaN
    if finite and ends.kind is ValueKind.FLOAT:
        bad |= ~(np.isfinite(start) & np.isfinite(end))
    for vector in (starts, ends):
        if vector.valid is not None:
            bad |= ~vector.valid
    return np.asarray(bad, np.bool_)


def _ascending(start: npt.NDArray[Any], end: npt.NDArray[Any], intervals: bool) -> bool:
    later, earlier = end[1:], end[:-1]
    if not bool((later >= earlier).all()):
        return False
    return not intervals or bool(((later > earlier) | (start[1:] >= start[:-1])).all())


def split_table(events: pa.Table, size: int) -> list[pa.Table]:
    """Batches of bounded size, since a kernel cannot be interrupted."""
    return [events.slice(k, size) for k in range(0, events.num_rows, size)]
