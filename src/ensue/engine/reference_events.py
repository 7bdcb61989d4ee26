"""Rows of tables as events of the reference semantics, and its state beyond the window."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.analyzer.interval_negation import get_interval_ends, iterate_interval_negations
from ensue.analyzer.time_bounds import compute_interval_distance
from ensue.analyzer.user_operators import get_read_columns
from ensue.errors import EventError
from ensue.ir.expression import Aggregate, Expr, FieldRef, IsNull
from ensue.ir.pattern import OperatorCall
from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, ByTime, ByUnits, Strategy
from ensue.ir.traits import is_event
from ensue.ir.traversal import get_operands, iterate_atoms, iterate_operator_calls
from ensue.ir.user_operator import OperatorInputs
from ensue.reference import Binding, Event, compute_certain_time, members
from ensue.reference.partition import Partition
from ensue.reference.user_operators import RepeatResults, create_record_class, list_last_fields, step_repeat
from ensue.schema import Schema, Types, ValueKind, accepts_type
from ensue.vector import evaluation
from ensue.vector.arrow_numpy import get_time_counts, to_single_array
from ensue.vector.arrow_types import Unit, kind_of_arrow
from ensue.vector.column_values import decode_dictionary

Rows = npt.NDArray[np.int64]

_TEMPORAL = (ValueKind.TIMESTAMP, ValueKind.DATE, ValueKind.DURATION)


def find_computed_columns(query: Query) -> frozenset[str]:
    """The columns that conditions compute with, except those only counted or tested for NULL."""
    conditions = [*query.where, *(() if query.having is None else (query.having,))]
    conditions += get_interval_ends(query.pattern)
    return frozenset(n for c in conditions for n in _iterate_computed(c)) | frozenset(get_read_columns(query.pattern))


def _iterate_computed(expr: Expr) -> Iterator[str]:
    match expr:
        case IsNull(operand=FieldRef()) | Aggregate(function="count", argument=FieldRef()):
            return
        case FieldRef(name=str(name)):
            yield name
        case _:
            for operand in get_operands(expr):
                yield from _iterate_computed(operand)


def nanoseconds_per_tick(schema: Schema, unit: Unit) -> int:
    """Nanoseconds in one unit of the engine's time; 1 for plain numbers."""
    return 1_000 if unit == "us" and schema.time_kind in (ValueKind.TIMESTAMP, ValueKind.DATE) else 1


def read_events(
    table: pa.Table,
    schema: Schema,
    unit: Unit,
    *,
    untyped: str = "",
    rows: Rows | None = None,
    computed: Collection[str] = (),
) -> list[Event]:
    """Read the rows of a table, which is in stream order, as events.

    `untyped` is their type if there is no type column; `rows` are their positions in the stream;
    `computed` are the columns whose values must be exactly those of the kernels.

    >>> from ensue.schema import ValueKind, build_table_schema
    >>> table = pa.table({"t": [1, 2], "kind": ["A", "B"]})
    >>> schema = build_table_schema({"t": ValueKind.INTEGER, "kind": ValueKind.STRING}, time="t", type_column="kind")
    >>> [(e.position, e.type, e.end) for e in read_events(table, schema, "us")]
    [(0, 'A', 1), (1, 'B', 2)]
    """
    scale = nanoseconds_per_tick(schema, unit)
    positions = range(table.num_rows) if rows is None else rows.tolist()
    starts, ends = (
        np.asarray(evaluation.from_arrow(table.column(name), unit, name).values).tolist()
        for name in (schema.start, schema.end)
    )
    for name in computed:
        if name in table.column_names:
            _ = evaluation.from_arrow(table.column(name), unit, name).values  # may raise
    columns = {name: _values(table.column(name), name, exact=name in computed) for name in table.column_names}
    events = []
    for row in range(table.num_rows):
        values = {name: column[row] for name, column in columns.items()}
        kind = untyped
        if schema.type_column is not None:
            name = values[schema.type_column]
            kind = "" if name is None else str(name)
        events.append(Event(positions[row], kind, starts[row] * scale, ends[row] * scale, values))
    return events


def _values(column: pa.ChunkedArray, name: str, *, exact: bool) -> list[Any]:
    """The values of a column; times outside Python's range become counts, usable as keys."""
    if kind_of_arrow(column.type) not in _TEMPORAL:
        return list(column.to_pylist())
    array = decode_dictionary(to_single_array(column))
    try:
        return list(_in_microseconds(array).to_pylist())
    except (pa.ArrowInvalid, OverflowError, ValueError):
        if exact:
            raise EventError(
                f"column '{name}' has times that only compiled queries compare: nanoseconds "
                "between two microseconds, or years outside 1 to 9999\n"
                "  hint: cast the column to microseconds, or see in ensue.explain why this query "
                "is not compiled"
            ) from None
    counts, known = get_time_counts(array, "us")[0].tolist(), array.is_valid().to_pylist()
    return [count if valid else None for count, valid in zip(counts, known, strict=True)]


def _in_microseconds(array: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        return array.cast(pa.timestamp("us", array.type.tz))
    if pa.types.is_duration(array.type) and array.type.unit == "ns":
        return array.cast(pa.duration("us"))
    return array


class RepeatTracker:
    """Evaluates REPEAT operators on every event once, with the last event of each partition."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._applied = [a for a in iterate_operator_calls(query.pattern) if a.operator.over is OperatorInputs.REPEAT]
        self._last: dict[tuple[str, str], Any] = {}  # by variable and partition
        self._fired: dict[str, dict[int, Event]] = {a.variable: {} for a in self._applied}

    def __bool__(self) -> bool:
        return bool(self._applied)

    @property
    def fired(self) -> RepeatResults:
        """The results at the held events."""
        return self._fired

    def take(self, events: Sequence[Event]) -> None:
        """Process the next events of the stream."""
        for applied in self._applied:
            source = applied.inputs[0]
            assert is_event(source)
            for event in Partition(self._query, events).candidates(source):
                place = (applied.variable, _partition(get_partition_key(self._query, event)))
                result, self._last[place] = step_repeat(applied, event, self._last.get(place))
                if result is not None:
                    self._fired[applied.variable][event.position] = result

    def keep(self, events: Iterable[Event]) -> None:
        """Drop the results at all other events."""
        if self._applied:
            held = {event.position for event in events}
            for variable, results in self._fired.items():
                self._fired[variable] = {p: e for p, e in results.items() if p in held}

    def snapshot(self) -> dict[str, Any]:
        """The state as JSON values."""
        return {
            "last": [[v, key, seen and list(seen)] for (v, key), seen in self._last.items()],
            "fired": {variable: sorted(results) for variable, results in self._fired.items()},
        }

    def restore(self, saved: dict[str, Any] | None, held: Iterable[Event]) -> None:
        if saved is None:
            return
        names = {a.variable: create_record_class("Last", list_last_fields(a)) for a in self._applied}
        self._last = {(v, key): seen and names[v](*seen) for v, key, seen in saved["last"]}
        events = {event.position: event for event in held}
        for applied in self._applied:
            fired = [events[p] for p in saved["fired"][applied.variable] if p in events]
            self._fired[applied.variable] = {e.position: _fire_first(applied, e) for e in fired}


def _fire_first(applied: OperatorCall, event: Event) -> Event:
    result, _ = step_repeat(applied, event, None)
    assert result is not None
    return result


def _partition(key: tuple[object, ...] | None) -> str:
    """A key as text; 0.0 and -0.0 are equal."""
    return repr(tuple(k + 0.0 if isinstance(k, float) else k for k in key or ()))


class AbsenceIntervals:
    """The events that negations with an interval need beyond the window."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self._query = query
        # by types, how long they matter before the first event of a match; None: without limit
        self._types: dict[Types, int | float | None] = {}
        for negation, interval in iterate_interval_negations(query.pattern):
            looks = compute_interval_distance(interval, query, schema)
            back = None if looks is None or looks.back is None else float(looks.back)
            for atom in iterate_atoms(negation):
                known = self._types.get(atom.type, 0.0)
                longest = None if back is None or known is None else max(back, known)
                self._types[atom.type] = longest

    def compute_end(self, binding: Binding) -> int | float | None:
        """The end of a match's negated intervals; None if its last event decides it."""
        if not self._types:
            return None
        until = compute_certain_time(self._query.pattern, binding)
        return None if until is None or until < members(binding)[-1].end else until

    def select_held(
        self, events: Sequence[Event], needed: Sequence[Event], time: float | None, waiting: Iterable[Binding]
    ) -> tuple[Event, ...]:
        """The events that the window or an interval needs, in order."""
        if not self._types or len(needed) == len(events):
            return tuple(needed)
        positions = {event.position for event in needed}
        positions |= {event.position for binding in waiting for event in members(binding)}
        positions |= {event.position for event in events if self._matters(event, time)}
        return tuple(event for event in events if event.position in positions)

    def _matters(self, event: Event, time: float | None) -> bool:
        """Whether an event may lie in an interval of a later match."""
        looks = [back for types, back in self._types.items() if accepts_type(types, event.type)]
        if not looks:
            return False
        known = [back for back in looks if back is not None]
        back = max(known) if len(known) == len(looks) else None
        match self._query.within:
            case ByTime(nanoseconds=length) | ByUnits(amount=length):
                return back is None or time is None or time - event.start <= length + back
            case _:
                return True


Key = tuple[object, ...]


def create_retention_window(query: Query, events: Sequence[Event], time: float | None) -> "RetentionWindow":
    """Create the window of a query over events; all events that end before `time` have arrived."""
    match query.within:
        case None:
            return _Lasting(events, inf, time)
        case ByTime(nanoseconds=length) | ByUnits(amount=length):
            return _Lasting(events, length, time)
        case ByEvents(count=count):
            return _Counted(events, count, query)


def get_partition_key(query: Query, event: Event) -> Key | None:
    """The partition key of an event; None if a key is NULL or NaN."""
    key = tuple(event.values.get(e.field_name) for e in query.equivalence)
    # NULL equals nothing, and NaN not even itself
    return key if all(value is not None and value == value for value in key) else None


def is_relevant(query: Query, event: Event) -> bool:
    """Whether an event can be bound, violate a negation, or be counted by a window."""
    if get_partition_key(query, event) is None:
        return False
    if Strategy.PARTITION in query.strategies or isinstance(query.within, ByEvents):
        return True
    return any(accepts_type(atom.type, event.type) for atom in iterate_atoms(query.pattern))


@dataclass(frozen=True, slots=True)
class _Lasting:
    """A window by time; it compares differences, not sums, so rounding cannot drop an event."""

    events: Sequence[Event]
    length: int | float
    time: float | None

    def is_over(self, binding: Binding) -> bool:
        """Whether no later event can be inside the window of a match."""
        # an event at exactly this time may still arrive
        begin = min(e.start for e in members(binding))
        return self.time is not None and self.time - begin > self.length

    def is_past(self, event: Event) -> bool:
        """Whether no later event can be inside a window that began at this event or earlier."""
        # earlier events ended before this one, so they began before its end
        return self.time is not None and self.time - event.end > self.length

    def list_needed(self) -> list[Event]:
        """The events of matches whose window is open, and all events between them."""
        if self.time is None:
            return list(self.events)
        for place, event in enumerate(self.events):
            if self.time - event.start <= self.length:
                return list(self.events[place:])
        return []


class _Counted:
    """A window by number of events of the partition."""

    def __init__(self, events: Sequence[Event], count: int, query: Query) -> None:
        self.count = count
        self.query = query
        self.partitions: dict[Key, list[Event]] = {}
        for event in events:
            key = get_partition_key(query, event)
            if key is not None:
                self.partitions.setdefault(key, []).append(event)

    def is_over(self, binding: Binding) -> bool:
        first = members(binding)[0]
        key = get_partition_key(self.query, first)
        assert key is not None
        events = self.partitions[key]
        return len(events) - events.index(first) >= self.count

    def is_past(self, event: Event) -> bool:
        key = get_partition_key(self.query, event)
        assert key is not None
        rows = [other.position for other in self.partitions.get(key, ())]
        return event.position not in rows or len(rows) - rows.index(event.position) >= self.count

    def list_needed(self) -> list[Event]:
        # the next event of the partition is the last one of the window
        needed = [
            event for events in self.partitions.values() for event in events[max(0, len(events) - self.count + 1) :]
        ]
        return sorted(needed, key=lambda event: event.position)


RetentionWindow = _Lasting | _Counted  # over the last events of the stream, in stream order
