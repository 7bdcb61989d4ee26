"""Tables of events as one ordered stream."""

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.check.applied import read_from, result_columns, with_tick
from ensue.algebra.lapses import with_interval_ends
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms, rewrite_expr
from ensue.columns import evaluate as vectors
from ensue.columns.arrow_kinds import Unit, fields_of, time_unit, zones_of
from ensue.columns.buffers import frozen
from ensue.columns.location import check_location
from ensue.columns.merging import alike
from ensue.columns.rows import rows_taken
from ensue.errors import EventError, QueryError, did_you_mean
from ensue.kernels.ordering import stable_order
from ensue.own_frames import outside
from ensue.schema import EventType, Kind, Schema, Types, one_table

TYPE = "__type"  # the column that tells the types of several tables apart
PLACE = "__place"  # the column that says in which order rows came, where nothing else does
COMPUTED = "__key_"  # how columns begin that are computed when events are read
_RUN = 64  # values in order, on average, from which on merging is quicker than sorting by digits
ORDERED = (Kind.INTEGER, Kind.FLOAT, Kind.DECIMAL, Kind.TIMESTAMP, Kind.DATE)

# What runners and layers call columns of their own, beside those of the events.
_OWN = frozenset(
    f"__{name}"
    for name in (
        "arrival", "at", "batch", "end", "first", "from", "lane", "last", "location", "ordinal",
        "place", "rank", "row", "start", "time", "type",
    )
)  # fmt: skip

Columns = Sequence[tuple[str, str]]  # (field, column)
Times = tuple[vectors.Vector, vectors.Vector]  # of starts and ends
# of a table, and whether it is in order, the rows that are wanted; None: all
Rows = Callable[[pa.Table, bool], "npt.NDArray[np.int64] | None"]


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a stream without its events: enough to check and plan a query."""

    schema: Schema
    arrow: pa.Schema
    unit: Unit
    by_type: Mapping[str, Columns] | None = None  # where several tables were joined
    whole: Mapping[str, Columns] | None = None  # what a whole event of a type shows, if not all
    named_by: Mapping[str, Columns] | None = None  # what tells events of a type apart, if not all
    hidden: tuple[str, ...] = ()  # columns that conditions may read, but that are no fields

    def whole_of(self, query: Query) -> dict[str, Columns]:
        """For each variable the fields that a whole event of it shows."""
        return self._but(self.whole, query)

    def identity_of(self, query: Query) -> dict[str, Columns]:
        """For each variable the fields that tell its events apart."""
        return self._but(self.named_by, query)

    def _but(self, others: Mapping[str, Columns] | None, query: Query) -> dict[str, Columns]:
        found = self.columns_of(query)
        if self.hidden:
            found = {v: [c for c in cs if c[1] not in self.hidden] for v, cs in found.items()}
        for atom in atoms(query.pattern):
            if others is not None and isinstance(atom.type, str) and atom.type in others:
                found[atom.variable] = others[atom.type]
        return found

    def columns_of(self, query: Query) -> dict[str, Columns]:
        """For each variable the fields of its events and the columns they are in."""
        found: dict[str, Columns] = {}
        for atom in atoms(query.pattern):  # results of operators have no columns
            if self.by_type is not None:
                own = self._columns_of_types(atom.type)
                found[atom.variable] = [*own, *((n, n) for n in self.hidden)]
            else:
                found[atom.variable] = [(n, n) for n in self.arrow.names]
        return found

    def _columns_of_types(self, types: Types) -> Columns:
        """The fields of a type; of several types, those that some have.

        Fields of one name that are not alike keep the names of their columns.
        """
        assert self.by_type is not None
        if isinstance(types, str):
            return self.by_type.get(types, ())
        found: dict[str, set[str]] = {}
        for name in types.names or self.by_type:
            for field, column in self.by_type.get(name, ()):
                found.setdefault(field, set()).add(column)
        return [
            (field if len(columns) == 1 else column, column)
            for field, columns in found.items()
            for column in sorted(columns)
        ]

    def physical(self, query: Query) -> tuple[Query, Schema]:
        """The query in terms of columns, where fields of one name had to be told apart."""
        query = replace(query, pattern=with_tick(query.pattern, self._tick))
        if self.by_type is None or all(f == c for cs in self.by_type.values() for f, c in cs):
            return query, self.schema
        places = {v: dict(cs) for v, cs in self.columns_of(query).items()}
        places |= result_columns(query.pattern, places)

        def rename(node: Expr) -> Expr:
            if isinstance(node, Field) and node.name is not None:
                return replace(node, name=places[node.variable].get(node.name, node.name))
            return node

        for equivalence in query.equivalence:
            name = equivalence.field_name
            if any(columns.get(name) != name for columns in self._events(places, query)):
                raise QueryError(
                    f"[{equivalence.field_name}] compares values of different kinds",
                    hint="use the same type for the field in every table",
                    span=equivalence.span,
                    text=query.text,
                )
        renamed = replace(
            query,
            pattern=with_interval_ends(
                read_from(query.pattern, places), lambda end: rewrite_expr(end, rename)
            ),
            where=tuple(rewrite_expr(c, rename) for c in query.where),
            returns=tuple(replace(r, expr=rewrite_expr(r.expr, rename)) for r in query.returns),
            having=None if query.having is None else rewrite_expr(query.having, rename),
        )
        kinds = fields_of(self.arrow)
        types = {
            name: EventType(name, {c: kinds[c] for c in (*(c for _, c in columns), *self.hidden)})
            for name, columns in self.by_type.items()
        }
        return renamed, replace(self.schema, types=MappingProxyType(types))

    @property
    def _tick(self) -> int:
        return 1_000 if self.unit == "us" else 1

    def _events(
        self, places: Mapping[str, Mapping[str, str]], query: Query
    ) -> list[Mapping[str, str]]:
        return [places[atom.variable] for atom in atoms(query.pattern)]


def shape_of(
    schema: pa.Schema, *, time: str | tuple[str, str], type: str | None, order: Sequence[str]
) -> Shape:
    """The shape of one table of events."""
    fields = fields_of(schema)
    _check_columns(fields, time, type, order)
    return Shape(
        one_table(
            fields,
            time=time,
            type_column=type,
            order=tuple(order),
            zones=zones_of(schema),
        ),
        schema,
        time_unit(schema),
    )


def refuse_own_names(names: Sequence[str]) -> None:
    """Raises an EventError if events come with a column that would be taken for one of ours, or
    with two columns of the same name."""
    refuse_twice(names)
    for name in names:
        if name in _OWN or name.startswith(("__member.", "__constant.", COMPUTED)):
            raise EventError(
                f"the events have a column '{name}', a name that Ensue uses internally\n"
                "  hint: rename the column, or leave it out"
            )


def refuse_twice(names: Sequence[str]) -> None:
    """Raises an EventError if two columns have the same name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise EventError(
                f"the events have two columns called '{name}'\n"
                "  hint: rename one of them, or leave it out"
            )
        seen.add(name)


def shape_again(
    schema: pa.Schema,
    by_type: Mapping[str, Columns] | None,
    *,
    time: str | tuple[str, str],
    type: str | None,
    order: Sequence[str],
) -> Shape:
    """The shape of events whose tables were joined before, or that are of one table."""
    if by_type is None:
        return shape_of(schema, time=time, type=type, order=order)
    return shape_of_union(schema, by_type, time=time, order=order)


def located(shape: Shape, location: str | tuple[str, str] | None, space: str = "plane") -> Shape:
    """The shape with the columns that say where events happened."""
    if location is None and space == "plane":
        return shape
    location = check_location(shape.arrow, location, space)
    return replace(shape, schema=replace(shape.schema, location=location, space=space))


def _check_columns(
    fields: Mapping[str, Kind],
    time: str | tuple[str, str],
    type: str | None,
    order: Sequence[str],
) -> None:
    times = (time,) if isinstance(time, str) else tuple(time)
    if len(times) not in (1, 2):
        raise EventError("time must be one column, or a pair (start, end)")
    for what, name in [
        *(("time", t) for t in times),
        *((("type", type),) if type is not None else ()),
        *(("order", o) for o in order),
    ]:
        if name not in fields:
            hint = did_you_mean(name, fields)
            raise EventError(f"no column '{name}' for {what}=\n  hint: {hint or 'no columns'}")
    kinds = {fields[t] for t in times}
    if not kinds <= set(ORDERED):
        shown = ", ".join(f"{t} is {_article(fields[t])}" for t in times)
        raise EventError(
            f"events cannot be ordered by time={time!r}: {shown}\n"
            "  hint: use a timestamp, a date, a number, or text in ISO form"
        )
    if len(kinds) > 1:
        raise EventError(f"start and end time have different kinds: time={time!r}")


def _article(kind: Kind) -> str:
    return f"{'an' if kind.value[0] in 'aeiou' else 'a'} {kind.value}"


def together(
    tables: Mapping[str, pa.Table], *, time: str | tuple[str, str], order: Sequence[str]
) -> tuple[pa.Table, Shape]:
    """Tables of one event type each as one table; columns of one name that agree are shared."""
    for table in tables.values():
        shape_of(table.schema, time=time, type=None, order=order)
    tables = alike(tables)
    clash = type_clashes([t.schema for t in tables.values()])
    by_type: dict[str, Columns] = {}
    pieces = []
    for name, table in tables.items():
        columns = [(f, f"{f}@{name}" if f in clash else f) for f in table.column_names]
        by_type[name] = columns
        marks = pa.DictionaryArray.from_arrays(
            np.zeros(table.num_rows, np.int32), pa.array([name], pa.string())
        )
        renamed = table.rename_columns([c for _, c in columns])
        pieces.append(renamed.append_column(TYPE, marks))
    try:
        whole = pa.concat_tables(pieces, promote_options="permissive").unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise EventError(f"the tables are not compatible: {error}") from error
    return whole, shape_of_union(whole.schema, by_type, time=time, order=order)


def shape_of_union(
    arrow: pa.Schema,
    by_type: Mapping[str, Columns],
    *,
    time: str | tuple[str, str],
    order: Sequence[str],
) -> Shape:
    """The shape of tables that were joined; the column TYPE tells their events apart."""
    kinds = fields_of(arrow)
    start, end = (time, time) if isinstance(time, str) else time
    types = {
        name: EventType(name, {f: kinds[c] for f, c in columns})
        for name, columns in by_type.items()
    }
    schema = Schema(
        types=MappingProxyType(types),
        start=start,
        end=end,
        time_kind=kinds[end],
        order=tuple(order),
        type_column=TYPE,
        zones=MappingProxyType(zones_by_field(zones_of(arrow), by_type)),
    )
    return Shape(schema, arrow, time_unit(arrow), by_type)


def zones_by_field(zones: Mapping[str, str], by_type: Mapping[str, Columns]) -> dict[str, str]:
    """Zones by the names of fields: those of one name that are times share a column."""
    named = {f: zones[c] for columns in by_type.values() for f, c in columns if c in zones}
    return {**zones, **named}


def type_clashes(schemas: Sequence[pa.Schema]) -> set[str]:
    """The columns of one name whose kinds cannot share a column."""
    kinds: dict[str, set[Kind]] = {}
    for schema in schemas:
        for name, kind in fields_of(schema).items():
            kinds.setdefault(name, set()).add(_family(kind))
    return {name for name, found in kinds.items() if len(found - {Kind.NULL}) > 1}


def _family(kind: Kind) -> Kind:
    return Kind.FLOAT if kind.numeric else kind


def in_order(
    table: pa.Table,
    shape: Shape,
    bad_events: str = "raise",
    types: Collection[str] | None = None,
    rows: Rows | None = None,
) -> pa.Table:
    """The events by (end, start, order columns, arrival), without those that have no time.

    `rows` picks those that are wanted, if not all.
    """
    times = _times(table, shape)
    usable, dropped = with_time(table, shape, bad_events, types, times=times)
    if dropped:
        warnings.warn(f"{dropped} events without usable time are left out", stacklevel=outside())
    if usable is not table:
        times = _times(usable, shape)
    places = _places(usable, shape, times, rows)
    return usable if places is None else rows_taken(usable, places)


def with_time(
    table: pa.Table,
    shape: Shape,
    bad_events: str,
    types: Collection[str] | None = None,
    *,
    finite: bool = False,
    times: Times | None = None,
) -> tuple[pa.Table, int]:
    """The events that have a usable time, and how many of the others matter.

    `types` are those that matter; None: all. Events of other types are in no match, with or
    without a time; what has neither time nor type is counted, since nothing is known of it.
    `finite`: time has to pass them, so infinity is no time. `times`: theirs, if they are known.
    """
    if bad_events not in ("raise", "drop"):
        raise EventError(f"bad_events must be 'raise' or 'drop', not {bad_events!r}")
    starts, ends = times or _times(table, shape)
    bad = _unusable(starts, ends, finite=finite)
    _check_span(starts, ends, bad)
    if not bad.any():
        return table, 0
    told = bad if types is None else bad & _of_types(table, shape, types)
    count = int(told.sum())
    if count and bad_events == "raise":
        infinite = "infinite, " if finite and shape.schema.time_kind is Kind.FLOAT else ""
        raise EventError(
            f"{count} of {table.num_rows} events have no usable time "
            f"(the first is row {int(told.argmax())}): it is missing, not a number, {infinite}"
            "or ends before it starts\n"
            '  hint: repair them, or pass bad_events="drop" to leave them out'
        )
    return table.filter(pa.array(~bad)), count


def _of_types(table: pa.Table, shape: Shape, types: Collection[str]) -> npt.NDArray[np.bool_]:
    column = shape.schema.type_column
    if column is None:
        return np.ones(table.num_rows, np.bool_)
    names = table.column(column).cast(pa.string())
    found = pc.is_in(names, value_set=pa.array(sorted(types), pa.string()))
    unknown = pc.is_null(names)  # not even the type could be read
    return np.asarray(pc.or_(found, unknown).to_numpy(), np.bool_)


def _times(table: pa.Table, shape: Shape) -> Times:
    start, end = shape.schema.start, shape.schema.end
    times = vectors.from_arrow(table.column(end), shape.unit, end)
    if start == end:
        return times, times
    return vectors.from_arrow(table.column(start), shape.unit, start), times


def ends(table: pa.Table, shape: Shape) -> npt.NDArray[Any]:
    """When each event ends, in the unit in which a matcher's time passes."""
    name = shape.schema.end
    return np.asarray(vectors.from_arrow(table.column(name), shape.unit, name).values)


def _places(
    table: pa.Table, shape: Shape, times: Times, rows: Rows | None
) -> npt.NDArray[np.int64] | None:
    """The wanted rows in the order of the stream; None: all, as they are."""
    if rows is None:
        return places_in_order(table, shape, times)
    schema = shape.schema
    start, end = (np.asarray(v.values) for v in times)
    in_order = not schema.order and _ascending(start, end, schema.intervals)
    wanted = rows(table, in_order)
    if wanted is None:
        return None if in_order else places_in_order(table, shape, times)
    if in_order:
        return wanted
    ordering = table.select(list(dict.fromkeys([schema.end, schema.start, *schema.order])))
    places = places_in_order(rows_taken(ordering, wanted), shape)
    return wanted if places is None else wanted[places]


def places_in_order(
    table: pa.Table, shape: Shape, times: Times | None = None
) -> npt.NDArray[np.int64] | None:
    """The rows in the order of the stream; None: they are in it."""
    schema = shape.schema
    start, end = (np.asarray(v.values) for v in times or _times(table, shape))
    if not schema.order:
        if _ascending(start, end, schema.intervals):
            return None
        return np.lexsort((start, end)) if schema.intervals else _stable_order(end)
    ties = [vectors.from_arrow(table.column(name), shape.unit, name) for name in schema.order]
    if all(_plain(t) for t in ties):
        # runs that are sorted already, as a shuffle leaves them, merge quickly
        return np.lexsort((*(np.asarray(t.values) for t in reversed(ties)), start, end))
    numbered = table.select(list(dict.fromkeys([schema.end, schema.start, *schema.order])))
    numbered = numbered.append_column("__row", pa.array(np.arange(table.num_rows)))
    places = pc.sort_indices(numbered, sort_keys=[(k, "ascending") for k in numbered.column_names])
    return np.asarray(places.to_numpy(), np.int64)


def _stable_order(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The places of values in ascending order; runs that are sorted already are merged."""
    if values.dtype == np.int64 and len(values) < 2**32:
        falls = np.count_nonzero(values[1:] < values[:-1])
        if falls * _RUN > len(values):
            return np.asarray(stable_order(frozen(values)), np.int64)
    return np.argsort(values, kind="stable")


def _check_span(starts: vectors.Vector, ends: vectors.Vector, bad: npt.NDArray[np.bool_]) -> None:
    """Windows compare differences of times: 64 bits must hold them."""
    usable = [np.asarray(vector.values) for vector in (starts, ends)]
    if bad.any():
        usable = [values[~bad] for values in usable]
    if bad.all() or usable[0].dtype.kind == "f":
        return
    first, last = int(usable[0].min()), int(usable[1].max())
    if last - first >= 2**63:
        raise EventError(
            f"the times of events lie too far apart: from {first} to {last} is more than 64 bits "
            "count\n  hint: use a coarser unit, such as milliseconds or seconds, or leave out "
            "events "
            "whose time stands for 'never' or 'always'"
        )


def _plain(tie: vectors.Vector) -> bool:
    """Whether a column orders events by numbers alone."""
    refused = isinstance(tie, vectors.Refused)  # Arrow has the order of these too
    return not refused and isinstance(tie.values, np.ndarray) and tie.valid is None


def _unusable(
    starts: vectors.Vector, ends: vectors.Vector, *, finite: bool
) -> npt.NDArray[np.bool_]:
    start, end = np.asarray(starts.values), np.asarray(ends.values)
    bad = ~(end >= start)  # also true for NaN
    if finite and ends.kind is Kind.FLOAT:
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


def slices(events: pa.Table, size: int) -> list[pa.Table]:
    """Pieces of bounded size: a kernel cannot be interrupted inside one."""
    return [events.slice(k, size) for k in range(0, events.num_rows, size)]
