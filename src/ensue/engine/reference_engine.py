"""An engine that runs the reference semantics, for queries that no kernel supports."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.analyzer.interval_negation import get_interval_ends
from ensue.analyzer.user_operators import get_read_columns
from ensue.engine.interval_negation import matches_to_arrays
from ensue.engine.memory_budget import WAY_BYTES, MemoryBudget, MemoryRequest, Usage
from ensue.engine.reference_events import (
    AbsenceIntervals,
    Key,
    RepeatTracker,
    RetentionWindow,
    create_retention_window,
    find_computed_columns,
    get_partition_key,
    is_relevant,
    nanoseconds_per_tick,
    read_events,
)
from ensue.engine.state_format import (
    Arrays,
    check_signature,
    deserialize_table,
    make_signature,
    pack_state,
    serialize_table,
    unpack_state,
)
from ensue.ir.expression import FieldRef
from ensue.ir.hierarchy import get_pattern_types
from ensue.ir.query import Query
from ensue.ir.selection import ByTime, ByUnits
from ensue.ir.traversal import get_kleene_variables, iterate_nodes, iterate_positive_atoms
from ensue.options import UNLIMITED, Limits
from ensue.planner.physical_plan import PhysicalPlan
from ensue.reference import (
    Binding,
    Event,
    RepeatResults,
    TooManyBindings,
    add_operator_results,
    choose_matches,
    compute_certainty,
    compute_next_start,
    compute_value,
    find_matches,
    is_decided_by_neighbour,
    members,
    must_wait,
)
from ensue.schema import Schema, ValueKind
from ensue.vector import evaluation
from ensue.vector.arrow_types import Unit
from ensue.vector.match_rows import Matches
from ensue.vector.take import take_values

PIECE = 64  # events judged at a time, unless more are held: the reference is slow on more

Rows = npt.NDArray[np.int64]
Rank = tuple[int, list[tuple[int, int]]]  # the last event, and all with their variables


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """A position in the stream: `rows` events have arrived, and all events before `time`."""

    rows: int = 0
    time: float | None = None


@dataclass(frozen=True, slots=True)
class HeldEvents:
    """Judged events that later matches may need, as a table with row numbers and as objects."""

    table: pa.Table | None = None
    rows: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    events: tuple[Event, ...] = ()


class ReferenceEngine:
    """Runs the reference semantics on the events of the window, each time events arrive.

    It has the interface of `Engine`. A match is returned once: with its last event or, if it waits
    for the end of its window, when that has passed. With a window only its events are held.
    """

    def __init__(self, plan: PhysicalPlan, schema: Schema, unit: Unit, limits: Limits = UNLIMITED) -> None:
        self.allowance = MemoryBudget(limits, plan.query, schema, unit)
        self._kept = 0  # matches returned and still counted
        self._elsewhere = 0.0
        self.plan = plan
        self.schema = schema
        self.unit = unit
        self.rows = 0  # events fed so far
        self.now: float | None = None  # the watermark
        several = get_kleene_variables(plan.query.pattern)
        variables = [atom.variable for atom in iterate_positive_atoms(plan.query.pattern)]
        self.output = [f"{'node' if v in several else 'row'}_{v}" for v in variables]
        # AFTER MATCH SKIP is applied here, since earlier matches may be older than the held events
        self._query = replace(plan.query, after=None, having=None, limit=None, choose=None)
        self._columns = find_used_columns(plan.query, schema)
        self._computed = find_computed_columns(plan.query)
        self._untyped = next(iter(get_pattern_types(plan.query)), "")
        self._scale = nanoseconds_per_tick(schema, unit)
        self._held = HeldEvents()
        self._mark = StreamPosition()  # the position up to which events are judged
        self._waiting: list[Binding] = []  # matches that an event may still violate
        self._repeats = RepeatTracker(self._query)
        self._absences = AbsenceIntervals(self._query, schema)
        self._earliest: dict[Key, int] = {}  # by partition, where the next match may begin
        self._turns: list[Binding] = []  # matches that wait for earlier ones to be decided
        self._aside = HeldEvents()  # their events, which may be older than the window

    def unseen_types(self) -> Sequence[str]:
        """The reference does not track types."""
        return ()

    def process(self, events: pa.Table) -> Matches:
        if not events.num_rows:
            return bindings_to_matches(self.plan, [])
        self._count(events)
        return bindings_to_matches(self.plan, self._judge(events, over=False))

    def _count(self, events: pa.Table) -> None:
        self.rows += events.num_rows
        last = events.column(self.schema.end).slice(events.num_rows - 1)
        self._advance_clock(np.asarray(evaluation.from_arrow(last, self.unit).values).tolist()[0])

    def on_watermark(self, now: float) -> Matches:
        self._advance_clock(now)
        return bindings_to_matches(self.plan, self._judge(None, over=now == math.inf))

    def _select_used(self, events: pa.Table) -> pa.Table:
        return events.select([n for n in events.column_names if n in self._columns])

    def _advance_clock(self, now: float) -> None:
        if now == math.inf:
            return  # the end of the stream
        real = self.schema.time_kind in (ValueKind.FLOAT, ValueKind.DECIMAL)
        now = now if real else int(now)
        self.now = now if self.now is None else max(self.now, now)

    def _judge(self, fed: pa.Table | None, *, over: bool) -> list[Binding]:
        """The matches decided now, in the order of the reference; `fed` are the next events."""
        table, rows, new = self._held.table, self._held.rows, list[Event]()
        if fed is not None:
            fed = self._select_used(fed)
            fed_rows = np.arange(self._mark.rows, self.rows)
            new = self._events(fed, fed_rows)
            table = fed if table is None else pa.concat_tables([table, fed])
            rows = np.concatenate([rows, fed_rows])
        self._repeats.take(new)
        held = self._held.events
        decided: list[Binding] = []
        begin, end = 0, -1
        while end < len(new):
            # without a window smaller pieces would only be judged repeatedly
            size = len(new) if self._query.within is None else max(PIECE, len(held))
            end = min(begin + size, len(new))
            mark = self._get_position()
            if end < len(new):
                mark = StreamPosition(new[end].position, new[end - 1].end)
            inside = (*held, *new[begin:end])
            fresh = {self._key(event) for event in new[begin:end]}
            decided += self._decide(inside, mark, fresh, over=over and end == len(new))
            needed = self._window(inside, mark).list_needed()
            held = self._absences.select_held(inside, needed, mark.time, self._waiting)
            begin = end
        self._hold(() if over else held, table, rows)
        return sorted(decided, key=self._rank)

    def _decide(self, events: Sequence[Event], mark: StreamPosition, fresh: set[Key], *, over: bool) -> list[Binding]:
        """The matches decided between the last mark and `mark`, which becomes the last one.

        Only the partitions of new events, `fresh`, are searched again.
        """
        pattern, window = self._query.pattern, self._window(events, mark)
        waited = {_rows_bound(binding) for binding in self._waiting}
        decided: list[Binding] = []
        waiting: list[Binding] = []
        newest = {self._key(event): event.position for event in events}
        # a partition without new events keeps its waiting matches
        candidates = [b for b in self._waiting if self._key(members(b)[0]) not in fresh]
        if fresh:
            searched = [event for event in events if self._key(event) in fresh]
            candidates += self._matches(searched, self._repeats.fired)
        for binding in candidates:
            # a past match counts only if it waited: the events that violated others may be dropped
            past = members(binding)[-1].position < self._mark.rows
            if past and _rows_bound(binding) not in waited:
                continue
            late = self._query.unfinished or must_wait(pattern, binding)
            undecided = late and not window.is_over(binding) and not self._has_later_event(binding, newest)
            undecided = undecided or self._may_still_be_negated(binding, mark)
            (waiting if undecided and not over else decided).append(binding)
        self._mark, self._waiting = mark, waiting
        selected = decided
        if self.plan.query.after is not None:
            selected = list(self._apply_skip(decided, None if over else (events, window)))
        if self.plan.query.choose is not None:
            selected = list(self._choose(decided))
        having = self.plan.query.having
        returned = [b for b in selected if having is None or compute_value(having, b) is True]
        self._kept += len(returned)
        size = self._kept * WAY_BYTES + self._elsewhere
        self.allowance.ask(MemoryRequest(len(events), self._kept, size, mark.rows - 1, self.now))
        return returned

    def _window(self, events: Sequence[Event], mark: StreamPosition) -> RetentionWindow:
        return create_retention_window(self._query, events, mark.time)

    def _has_later_event(self, binding: Binding, newest: Mapping[Key, int]) -> bool:
        """Whether a later event of the partition decides a match.

        CHOOSE compares the matches that become decided together, so there only time decides.
        """
        if self._query.unfinished or self.plan.query.choose is not None:
            return False
        last = members(binding)[-1]
        later = newest.get(self._key(last), last.position) > last.position
        return later and is_decided_by_neighbour(self._query, binding)

    def _may_still_be_negated(self, binding: Binding, mark: StreamPosition) -> bool:
        """Whether an event may still arrive in a negated interval of a match."""
        until = self._absences.compute_end(binding)
        return until is not None and (mark.time is None or mark.time <= until)

    def _matches(self, events: Sequence[Event], fired: RepeatResults) -> list[Binding]:
        """Enumerate the matches in some events, within the limits."""
        most = self.allowance.most_ways()
        try:
            return find_matches(self._query, events, fired, most)
        except TooManyBindings as error:
            ways = most or 0
            held = MemoryRequest(ways, self._kept, ways * WAY_BYTES, error.position, self.now)
            raise self.allowance.too_many(held) from None

    def set_foreign_memory(self, size: float) -> None:
        self._elsewhere = size

    def hand_over(self) -> None:
        self._kept = 0

    def _apply_skip(
        self, decided: Iterable[Binding], alive: tuple[Sequence[Event], RetentionWindow] | None
    ) -> Iterator[Binding]:
        """AFTER MATCH SKIP: return the matches that begin where earlier ones allow.

        `alive` are the events of later matches, and their window. A match waits while an earlier
        match of its partition is undecided or may still begin.
        """
        after = self.plan.query.after
        assert after is not None
        turns, self._turns = sorted([*self._turns, *decided], key=self._turn), []
        wait: set[Key] = set()
        for binding in turns:
            bound_events = members(binding)
            key = self._key(bound_events[0])
            if bound_events[0].position < self._earliest.get(key, 0):
                continue
            if key in wait or (alive is not None and self._has_others_before(binding, *alive)):
                wait.add(key)
                self._turns.append(binding)
                continue
            yield binding
            begin = compute_next_start(after, binding)
            if begin is not None:
                self._earliest[key] = begin

    def _turn(self, binding: Binding) -> tuple[int, Rank]:
        after = self.plan.query.after
        assert after is not None
        return members(binding)[0].position if after.by_start else 0, self._rank(binding)

    def _has_others_before(self, binding: Binding, events: Sequence[Event], window: RetentionWindow) -> bool:
        """Whether an earlier match than this one may still be found."""
        after, first = self.plan.query.after, members(binding)[0]
        assert after is not None
        key = self._key(first)
        begin = self._earliest.get(key, 0)  # earlier starts are excluded already
        if after.by_start and any(
            begin <= event.position < first.position and self._key(event) == key and not window.is_past(event)
            for event in events
        ):
            return True
        return any(
            self._key(members(other)[0]) == key
            and members(other)[0].position >= begin
            and self._turn(other) < self._turn(binding)
            for other in self._waiting
        )

    def _choose(self, decided: Iterable[Binding]) -> Iterator[Binding]:
        """CHOOSE among the matches that became decided together."""
        by_key: dict[Key, list[Binding]] = {}
        for binding in decided:
            by_key.setdefault(self._key(members(binding)[0]), []).append(binding)
        for key, bindings in by_key.items():
            selected = choose_matches(self.plan.query, bindings, self._earliest.get(key, 0) - 1)
            if selected:
                self._earliest[key] = max(members(b)[-1].position for b in selected) + 1
            yield from selected

    def _get_position(self) -> StreamPosition:
        return StreamPosition(self.rows, None if self.now is None else self.now * self._scale)

    def _rank(self, binding: Binding) -> Rank:
        order = [atom.variable for atom in iterate_positive_atoms(self._query.pattern)]
        bound = ((v, e) for v, es in binding.items() if v in order for e in es)
        steps = sorted((e.position, order.index(v)) for v, e in bound)
        return steps[-1][0], steps

    def _events(self, table: pa.Table, rows: Rows) -> list[Event]:
        events = read_events(
            table, self.schema, self.unit,
            untyped=self._untyped, rows=rows, computed=self._computed,
        )  # fmt: skip
        return [event for event in events if is_relevant(self._query, event)]

    def _hold(self, events: tuple[Event, ...], known: pa.Table | None, rows: Rows) -> None:
        """Hold only some of the known events."""
        self._hold_turns(known, rows)
        self._repeats.keep(events)
        if self._earliest:
            # a partition without held events needs no position: its next match begins later
            keys = {self._key(event) for event in (*events, *self._aside.events)}
            self._earliest = {k: row for k, row in self._earliest.items() if k in keys}
        if len(events) == len(rows):
            self._held = HeldEvents(known, rows, events)
            return
        if not events or known is None:
            self._held = HeldEvents()
            return
        places = np.searchsorted(rows, np.array([e.position for e in events], np.int64))
        columns = {name: take_values(known.column(name), places) for name in known.column_names}
        self._held = HeldEvents(pa.table(columns, schema=known.schema), rows[places], events)

    def _hold_turns(self, known: pa.Table | None, rows: Rows) -> None:
        """Hold the events of matches that wait for their turn."""
        events = {e.position: e for binding in self._turns for e in members(binding)}
        if not events:
            self._aside = HeldEvents()
            return
        tables = [t for t in (self._aside.table, known) if t is not None]
        table, rows = pa.concat_tables(tables), np.concatenate([self._aside.rows, rows])
        wanted = np.array(sorted(events), np.int64)
        _, firsts = np.unique(rows, return_index=True)  # some rows are in both tables
        places = firsts[np.searchsorted(rows[firsts], wanted)]
        columns = {name: take_values(table.column(name), places) for name in table.column_names}
        held = tuple(events[row] for row in wanted.tolist())
        self._aside = HeldEvents(pa.table(columns, schema=table.schema), wanted, held)

    def get_held_rows(self) -> Rows:
        return np.union1d(self._aside.rows, self._held.rows)

    @property
    def usage(self) -> Usage:
        """The held events: the reference has no partial matches."""
        tables = (self._held.table, self._aside.table)
        size = sum(int(table.nbytes) for table in tables if table is not None)
        return Usage(len(self.get_held_rows()), size, size)

    def next_timer(self) -> float | None:
        match self._query.within:
            case ByTime(nanoseconds=length) | ByUnits(amount=length):
                over = [compute_certainty(self._query, binding)[0] for binding in self._waiting]
                # after that no earlier partial match is alive
                over += [members(binding)[0].end + length for binding in self._turns]
            case _:
                return None
        if not over:
            return None
        return min(over) if self._scale == 1 else min(over) // self._scale

    def snapshot(self) -> bytes:
        """Serialize the held events and the waiting matches."""
        blobs = {} if self._held.table is None else {"events": serialize_table(self._held.table)}
        header = {**make_signature(self.plan, self.schema, self.unit), "rows": self.rows, "now": self.now}
        # for each held event, where the next match of its partition may begin
        earliest = [self._earliest.get(self._key(event), 0) for event in self._held.events]
        arrays = {"rows": self._held.rows, "earliest": np.array(earliest, np.int64)}
        arrays |= matches_to_arrays(bindings_to_matches(self.plan, self._waiting), "waiting")
        if self._aside.table is not None:
            blobs["aside"] = serialize_table(self._aside.table)
            arrays["aside"] = self._aside.rows
            arrays |= matches_to_arrays(bindings_to_matches(self.plan, self._turns), "turn")
        if self._repeats:
            header["repeats"] = self._repeats.snapshot()
        return pack_state(header, arrays, blobs)

    def restore(self, data: bytes) -> None:
        header, arrays, blobs = unpack_state(data)
        check_signature(header, self.plan, self.schema, self.unit)
        self.rows, self.now = int(header["rows"]), header["now"]
        self._mark = self._get_position()
        self._held = self._restore_events(blobs.get("events"), arrays["rows"])
        pairs = zip(self._held.events, arrays["earliest"].tolist(), strict=True)
        self._earliest = {self._key(event): row for event, row in pairs if row}
        self._repeats.restore(header.get("repeats"), self._held.events)
        self._waiting = self._restore_matches(arrays, "waiting", self._held)
        self._aside, self._turns = HeldEvents(), []
        if "aside" in blobs:
            self._aside = self._restore_events(blobs["aside"], arrays["aside"])
            self._turns = self._restore_matches(arrays, "turn", self._aside)

    def _restore_events(self, data: bytes | None, rows: Rows) -> HeldEvents:
        if data is None:
            return HeldEvents()
        table = deserialize_table(data)
        return HeldEvents(table, rows, tuple(self._events(table, rows)))

    def _restore_matches(self, arrays: Arrays, prefix: str, held: HeldEvents) -> list[Binding]:
        """Restore the matches that `matches_to_arrays` converted."""
        events = {event.position: event for event in held.events}
        matches: list[Binding] = []
        for atom in iterate_positive_atoms(self._query.pattern):
            offsets, rows = (arrays[f"{prefix} {w} {atom.variable}"] for w in ("offsets", "rows"))
            matches = matches or [{} for _ in offsets[1:]]
            for k, binding in enumerate(matches):
                bound = rows[offsets[k] : offsets[k + 1]].tolist()
                if bound:
                    binding[atom.variable] = tuple(events[row] for row in bound)
        return [add_operator_results(self._query.pattern, binding) for binding in matches]

    def _key(self, event: Event) -> Key:
        key = get_partition_key(self._query, event)
        assert key is not None  # other events are not held
        return key


def _rows_bound(binding: Binding) -> frozenset[tuple[str, int]]:
    """The identity of a match."""
    return frozenset((v, event.position) for v, events in binding.items() for event in events)


def find_used_columns(query: Query, schema: Schema) -> frozenset[str]:
    """The columns on which the result of a query depends."""
    conditions = [*query.where, *(() if query.having is None else (query.having,))]
    conditions += get_interval_ends(query.pattern)
    fields = {n.name for c in conditions for n in iterate_nodes(c) if isinstance(n, FieldRef)}
    keys = {equivalence.field_name for equivalence in query.equivalence}
    used = {schema.start, schema.end, schema.type_column, *keys, *fields}
    used |= set(get_read_columns(query.pattern))
    return frozenset(name for name in used if name is not None)


def bindings_to_matches(plan: PhysicalPlan, bindings: list[Binding]) -> Matches:
    """Convert bindings to row numbers of the stream."""
    kleene = get_kleene_variables(plan.query.pattern)
    rows: dict[str, Any] = {}
    lists: dict[str, Any] = {}
    for atom in iterate_positive_atoms(plan.query.pattern):
        variable = atom.variable
        members = [[e.position for e in b.get(variable, ())] for b in bindings]
        if variable in kleene:
            offsets = np.zeros(len(bindings) + 1, np.int64)
            np.cumsum([len(m) for m in members], out=offsets[1:])
            flat = [row for m in members for row in m]
            lists[variable] = (offsets, np.array(flat, np.int64))
        else:
            rows[variable] = np.array([m[0] if m else -1 for m in members], np.int64)
    return Matches(rows, lists, len(bindings))
