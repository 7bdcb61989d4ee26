"""The reference semantics as a matcher: for what no kernel takes yet."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.check.applied import read
from ensue.algebra.lapses import interval_ends
from ensue.algebra.predicate import Field
from ensue.algebra.query import Query
from ensue.algebra.tower import types_of
from ensue.algebra.walk import kleenes, nodes, positives
from ensue.algebra.window import ByTime, ByUnits
from ensue.columns import evaluate as vectors
from ensue.columns.arrow_kinds import Unit
from ensue.columns.matches import Matches
from ensue.columns.rows import taken
from ensue.engine.absence_intervals import AbsenceIntervals
from ensue.engine.allowance import WAY_BYTES, Allowance, Holding
from ensue.engine.meaning import require_same, stamp
from ensue.engine.reference_events import computed_columns, events_of, nanoseconds
from ensue.engine.repeats import Repeats
from ensue.engine.retention import Key, Reach, key_of, matters, reach
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.plan.limits import UNLIMITED, Limits
from ensue.plan.physical import Plan
from ensue.schema import Kind, Schema
from ensue.semantics import (
    Binding,
    Event,
    Fired,
    TooManyWays,
    chosen,
    derived,
    is_decided_by_neighbour,
    known,
    matches,
    members,
    next_begin,
    value_of,
    waits,
)

PIECE = 64  # events judged at a time, if not as many are held: the semantics is slow on more

Rows = npt.NDArray[np.int64]
Rank = tuple[int, list[tuple[int, int]]]  # the last event, and all with their variables


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment of the stream: so many rows have come, and no event before `time` will come."""

    rows: int = 0
    time: float | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """Judged events that later matches may need: as a table, its rows, and as events."""

    table: pa.Table | None = None
    rows: Rows = field(default_factory=lambda: np.zeros(0, np.int64))
    events: tuple[Event, ...] = ()


class ReferenceEngine:
    """Runs the reference semantics on the events of the window, each time events arrive.

    Rows are numbered through the whole stream; matches are given as row numbers. A match is
    delivered once: with its last event or, if it waits for its window's end, when that has
    passed. Of a query with a window only the events inside it are held.
    """

    def __init__(self, plan: Plan, schema: Schema, unit: Unit, limits: Limits = UNLIMITED) -> None:
        self.allowance = Allowance(limits, plan.query, schema, unit)
        self._kept = 0  # matches found, and not handed over by whoever feeds it
        self._elsewhere = 0.0
        self.plan = plan
        self.schema = schema
        self.unit = unit
        self.rows = 0  # events fed so far
        self.now: float | None = None  # the time of the last one, or what was told since
        several = kleenes(plan.query.pattern)
        variables = [atom.variable for atom in positives(plan.query.pattern)]
        self.output = [f"{'node' if v in several else 'row'}_{v}" for v in variables]
        # what earlier matches use up is remembered here, beyond the events that are held
        self._query = replace(plan.query, after=None, having=None, limit=None, choose=None)
        self._columns = columns_used(plan.query, schema)
        self._computed = computed_columns(plan.query)
        self._untyped = next(iter(types_of(plan.query)), "")
        self._scale = nanoseconds(schema, unit)
        self._held = Held()
        self._mark = Mark()  # how far the stream is judged
        self._waiting: list[Binding] = []  # matches, unless an event still forbids them
        self._repeats = Repeats(self._query)
        self._absences = AbsenceIntervals(self._query, schema)
        self._earliest: dict[Key, int] = {}  # by partition, where the next match may begin
        self._turns: list[Binding] = []  # matches that wait for others that come before them
        self._aside = Held()  # their events, which may be older than the window

    def why_not_streamed(self) -> str | None:
        """Why this query cannot run on a stream without end, if it cannot.

        A window by events holds that many events of every partition there ever was.
        """
        if self.plan.query.within is None:
            return "without WITHIN it would have to remember every event"
        return None

    # ---------------------------------------------------------------------------- feeding

    def feed(self, events: pa.Table) -> Matches:
        """The matches that these events complete, or that they show to be complete."""
        if not events.num_rows:
            return rows_of(self.plan, [])
        self._count(events)
        return rows_of(self.plan, self._judged(events, over=False))

    def _count(self, events: pa.Table) -> None:
        self.rows += events.num_rows
        last = events.column(self.schema.end).slice(events.num_rows - 1)
        self._tell(np.asarray(vectors.from_arrow(last, self.unit).values).tolist()[0])

    def advance(self, now: float) -> Matches:
        """The matches that are decided: all events before `now` have been fed."""
        self._tell(now)
        return rows_of(self.plan, self._judged(None, over=False))

    def finish(self) -> Matches:
        """The matches that are left: no more events come that could forbid anything."""
        return rows_of(self.plan, self._judged(None, over=True))

    def _used(self, events: pa.Table) -> pa.Table:
        return events.select([n for n in events.column_names if n in self._columns])

    def _tell(self, now: float) -> None:
        real = self.schema.time_kind in (Kind.FLOAT, Kind.DECIMAL)
        now = now if real else int(now)
        self.now = now if self.now is None else max(self.now, now)

    # ---------------------------------------------------------------------------- judging

    def _judged(self, fed: pa.Table | None, *, over: bool) -> list[Binding]:
        """What is decided now, in the order of the semantics; `fed` are the next events."""
        told, rows, new = self._held.table, self._held.rows, list[Event]()
        if fed is not None:
            fed = self._used(fed)
            fed_rows = np.arange(self._mark.rows, self.rows)
            new = self._events(fed, fed_rows)
            told = fed if told is None else pa.concat_tables([told, fed])
            rows = np.concatenate([rows, fed_rows])
        self._repeats.take(new)
        held = self._held.events
        found: list[Binding] = []
        begin, end = 0, -1
        while end < len(new):
            # without a window all is held: smaller pieces would only be judged again and again
            size = len(new) if self._query.within is None else max(PIECE, len(held))
            end = min(begin + size, len(new))
            mark = self._here() if end == len(new) else Mark(new[end].position, new[end - 1].end)
            inside = (*held, *new[begin:end])
            fresh = {self._key(event) for event in new[begin:end]}
            found += self._decided(inside, mark, fresh, over=over and end == len(new))
            needed = reach(self._query, inside, mark.time).needed()
            held = self._absences.held(inside, needed, mark.time, self._waiting)
            begin = end
        self._hold(() if over else held, told, rows)
        return sorted(found, key=self._rank)

    def _decided(
        self, events: Sequence[Event], mark: Mark, fresh: set[Key], *, over: bool
    ) -> list[Binding]:
        """What is decided between the mark so far and the next one, which it sets.

        Only the partitions of new events, `fresh`, are searched again.
        """
        pattern, window = self._query.pattern, reach(self._query, events, mark.time)
        waited = {_rows_bound(binding) for binding in self._waiting}
        found: list[Binding] = []
        waiting: list[Binding] = []
        newest = {self._key(event): event.position for event in events}
        # without new events of a partition, what waits is still what waited
        candidates = [b for b in self._waiting if self._key(members(b)[0]) not in fresh]
        if fresh:
            searched = [event for event in events if self._key(event) in fresh]
            candidates += self._matches(searched, self._repeats.fired)
        for binding in candidates:
            # of the past only what waited counts: what forbade the rest may be forgotten
            past = members(binding)[-1].position < self._mark.rows
            if past and _rows_bound(binding) not in waited:
                continue
            late = self._query.unfinished or waits(pattern, binding)
            undecided = (
                late and not window.is_over(binding) and not self._has_gone_on(binding, newest)
            )
            undecided = undecided or self._lapsing(binding, mark)
            (waiting if undecided and not over else found).append(binding)
        self._mark, self._waiting = mark, waiting
        kept = found
        if self.plan.query.after is not None:
            kept = list(self._not_used_up(found, None if over else (events, window)))
        if self.plan.query.choose is not None:
            kept = list(self._chosen(found))
        having = self.plan.query.having
        left = [b for b in kept if having is None or value_of(having, b) is True]
        self._kept += len(left)
        size = self._kept * WAY_BYTES + self._elsewhere
        self.allowance.ask(Holding(len(events), self._kept, size, mark.rows - 1, self.now))
        return left

    def _has_gone_on(self, binding: Binding, newest: Mapping[Key, int]) -> bool:
        """Whether an event has come that decides a match by being the next of its partition.

        CHOOSE compares the matches that a moment decides, so there only time does.
        """
        if self._query.unfinished or self.plan.query.choose is not None:
            return False
        last = members(binding)[-1]
        later = newest.get(self._key(last), last.position) > last.position
        return later and is_decided_by_neighbour(self._query, binding)

    def _lapsing(self, binding: Binding, mark: Mark) -> bool:
        """Whether an event may still come in an interval in which there must be none."""
        until = self._absences.until(binding)
        return until is not None and (mark.time is None or mark.time <= until)

    def _matches(self, events: Sequence[Event], fired: Fired) -> list[Binding]:
        """The matches in some events, if there are not too many ways to arrange them."""
        most = self.allowance.most_ways()
        try:
            return matches(self._query, events, fired, most)
        except TooManyWays as error:
            ways = most or 0
            held = Holding(ways, self._kept, ways * WAY_BYTES, error.position, self.now)
            raise self.allowance.too_many(held) from None

    def others_hold(self, size: float) -> None:
        """Other matchers of the same call hold so many bytes of matches."""
        self._elsewhere = size

    def hand_over(self) -> None:
        """What was found so far is with others now, and no longer held."""
        self._kept = 0

    def _not_used_up(
        self, found: Iterable[Binding], alive: tuple[Sequence[Event], Reach] | None
    ) -> Iterator[Binding]:
        """AFTER MATCH SKIP: what begins where the matches before it allow, in its turn.

        `alive` are the events that a match to come may contain, and their window. As long as one
        of them could begin a match that comes before, or a match that comes before is not certain,
        the others of its partition wait.
        """
        after = self.plan.query.after
        assert after is not None
        turns, self._turns = sorted([*self._turns, *found], key=self._turn), []
        wait: set[Key] = set()
        for binding in turns:
            inside = members(binding)
            key = self._key(inside[0])
            if inside[0].position < self._earliest.get(key, 0):
                continue
            if key in wait or (alive is not None and self._has_others_before(binding, *alive)):
                wait.add(key)
                self._turns.append(binding)
                continue
            yield binding
            begin = next_begin(after, binding)
            if begin is not None:
                self._earliest[key] = begin

    def _turn(self, binding: Binding) -> tuple[int, Rank]:
        after = self.plan.query.after
        assert after is not None
        return members(binding)[0].position if after.by_start else 0, self._rank(binding)

    def _has_others_before(self, binding: Binding, events: Sequence[Event], window: Reach) -> bool:
        """Whether a match that comes before this one may still be found."""
        after, first = self.plan.query.after, members(binding)[0]
        assert after is not None
        key = self._key(first)
        begin = self._earliest.get(key, 0)  # what starts before is in nobody's way
        if after.by_start and any(
            begin <= event.position < first.position
            and self._key(event) == key
            and not window.is_past(event)
            for event in events
        ):
            return True
        return any(
            self._key(members(other)[0]) == key
            and members(other)[0].position >= begin
            and self._turn(other) < self._turn(binding)
            for other in self._waiting
        )

    def _chosen(self, found: Iterable[Binding]) -> Iterator[Binding]:
        """CHOOSE: what is known by now is known before all that comes later."""
        by_key: dict[Key, list[Binding]] = {}
        for binding in found:
            key = key_of(self._query, members(binding)[0])
            assert key is not None
            by_key.setdefault(key, []).append(binding)
        for key, inside in by_key.items():
            kept = chosen(self.plan.query, inside, self._earliest.get(key, 0) - 1)
            if kept:
                self._earliest[key] = max(members(b)[-1].position for b in kept) + 1
            yield from kept

    def _here(self) -> Mark:
        return Mark(self.rows, None if self.now is None else self.now * self._scale)

    def _rank(self, binding: Binding) -> Rank:
        order = [atom.variable for atom in positives(self._query.pattern)]
        bound = ((v, e) for v, es in binding.items() if v in order for e in es)
        steps = sorted((e.position, order.index(v)) for v, e in bound)
        return steps[-1][0], steps

    def _events(self, table: pa.Table, rows: Rows) -> list[Event]:
        events = events_of(
            table, self.schema, self.unit,
            untyped=self._untyped, rows=rows, computed=self._computed,
        )  # fmt: skip
        return [event for event in events if matters(self._query, event)]

    # ---------------------------------------------------------------------------- holding

    def _hold(self, events: tuple[Event, ...], known: pa.Table | None, rows: Rows) -> None:
        """Forgets all but some of the known events."""
        self._set_aside(known, rows)
        self._repeats.keep(events)
        if self._earliest:
            # a partition without events that are held begins anew behind its last match anyway
            keys = {key_of(self._query, event) for event in (*events, *self._aside.events)}
            self._earliest = {k: row for k, row in self._earliest.items() if k in keys}
        if len(events) == len(rows):
            self._held = Held(known, rows, events)
            return
        if not events or known is None:
            self._held = Held()
            return
        places = np.searchsorted(rows, np.array([e.position for e in events], np.int64))
        columns = {name: taken(known.column(name), places) for name in known.column_names}
        self._held = Held(pa.table(columns, schema=known.schema), rows[places], events)

    def _set_aside(self, known: pa.Table | None, rows: Rows) -> None:
        """Keeps the events of matches that wait for their turn."""
        events = {e.position: e for binding in self._turns for e in members(binding)}
        if not events:
            self._aside = Held()
            return
        tables = [t for t in (self._aside.table, known) if t is not None]
        table, rows = pa.concat_tables(tables), np.concatenate([self._aside.rows, rows])
        wanted = np.array(sorted(events), np.int64)
        _, firsts = np.unique(rows, return_index=True)  # some are in both
        places = firsts[np.searchsorted(rows[firsts], wanted)]
        columns = {name: taken(table.column(name), places) for name in table.column_names}
        held = tuple(events[row] for row in wanted.tolist())
        self._aside = Held(pa.table(columns, schema=table.schema), wanted, held)

    def held_rows(self) -> Rows:
        """The rows of the stream that a later match may still contain, ascending."""
        return np.union1d(self._aside.rows, self._held.rows)

    @property
    def partial_matches(self) -> int:
        """Events that are held: the semantics keeps no partial matches of its own."""
        return len(self.held_rows())

    @property
    def state_bytes(self) -> int:
        """How much memory the events take."""
        tables = (self._held.table, self._aside.table)
        return sum(int(table.nbytes) for table in tables if table is not None)

    @property
    def held_bytes(self) -> int:
        """The same: the semantics keeps nothing beside events."""
        return self.state_bytes

    def deadline(self) -> float | None:
        """The time after which `advance` delivers something, if no more events come."""
        match self._query.within:
            case ByTime(nanoseconds=length) | ByUnits(amount=length):
                over = [known(self._query, binding)[0] for binding in self._waiting]
                # then nothing that began before them is alive
                over += [members(binding)[0].end + length for binding in self._turns]
            case _:
                return None
        if not over:
            return None
        return min(over) if self._scale == 1 else min(over) // self._scale

    # ---------------------------------------------------------------------------- saving

    def save(self) -> bytes:
        """The state as bytes: the events that are held, and the matches that wait."""
        blobs = {} if self._held.table is None else {"events": to_bytes(self._held.table)}
        header = {
            **stamp(self.plan, self.schema, self.unit),
            "rows": self.rows,
            "now": self.now,
        }
        # of each event held, where the next match of its partition may begin
        earliest = [self._earliest.get(self._key(event), 0) for event in self._held.events]
        arrays = {"rows": self._held.rows, "earliest": np.array(earliest, np.int64)}
        arrays |= self._unbound(self._waiting, "")
        if self._aside.table is not None:
            blobs["aside"] = to_bytes(self._aside.table)
            arrays |= {"aside": self._aside.rows, **self._unbound(self._turns, "turn ")}
        if self._repeats:
            header["repeats"] = self._repeats.save()
        return packed(header, arrays, blobs)

    def restore(self, data: bytes) -> None:
        """Goes on where the matcher that saved this state stopped."""
        header, arrays, blobs = unpacked(data)
        require_same(header, self.plan, self.schema, self.unit)
        self.rows, self.now = int(header["rows"]), header["now"]
        self._mark, self._held = self._here(), Held()
        if "events" in blobs:
            table, rows = from_bytes(blobs["events"]), arrays["rows"]
            self._held = Held(table, rows, tuple(self._events(table, rows)))
        pairs = zip(self._held.events, arrays["earliest"].tolist(), strict=True)
        self._earliest = {self._key(event): row for event, row in pairs if row}
        self._repeats.restore(header.get("repeats"), self._held.events)
        self._waiting = self._bound(arrays, "", self._held)
        self._aside, self._turns = Held(), []
        if "aside" in blobs:
            table, rows = from_bytes(blobs["aside"]), arrays["aside"]
            self._aside = Held(table, rows, tuple(self._events(table, rows)))
            self._turns = self._bound(arrays, "turn ", self._aside)

    def _unbound(self, waiting: list[Binding], of: str) -> dict[str, npt.NDArray[Any]]:
        """Matches as arrays; `of` stands before their names."""
        found = rows_of(self.plan, waiting)
        arrays: dict[str, npt.NDArray[Any]] = {f"{of}waiting": np.array([found.count])}
        for v in found.variables:
            arrays[f"{of}at_{v}"], arrays[f"{of}rows_{v}"] = found.segments(v)
        return arrays

    def _bound(self, arrays: Mapping[str, npt.NDArray[Any]], of: str, held: Held) -> list[Binding]:
        """The matches that waited when the state was saved."""
        events = {event.position: event for event in held.events}
        found: list[Binding] = [{} for _ in range(int(arrays[f"{of}waiting"][0]))]
        for atom in positives(self._query.pattern):
            offsets, rows = (arrays[f"{of}{what}_{atom.variable}"] for what in ("at", "rows"))
            for k, binding in enumerate(found):
                bound = rows[offsets[k] : offsets[k + 1]].tolist()
                if bound:
                    binding[atom.variable] = tuple(events[row] for row in bound)
        return [derived(self._query.pattern, binding) for binding in found]

    def _key(self, event: Event) -> Key:
        key = key_of(self._query, event)
        assert key is not None  # other events are not held
        return key


def _rows_bound(binding: Binding) -> frozenset[tuple[str, int]]:
    """What tells one match from another."""
    return frozenset((v, event.position) for v, events in binding.items() for event in events)


def columns_used(query: Query, schema: Schema) -> frozenset[str]:
    """The columns that decide what a match is."""
    conditions = [*query.where, *(() if query.having is None else (query.having,))]
    conditions += interval_ends(query.pattern)
    fields = {n.name for c in conditions for n in nodes(c) if isinstance(n, Field)}
    keys = {equivalence.field_name for equivalence in query.equivalence}
    used = {schema.start, schema.end, schema.type_column, *keys, *fields, *read(query.pattern)}
    return frozenset(name for name in used if name is not None)


def rows_of(plan: Plan, found: list[Binding]) -> Matches:
    """Bindings as rows of the stream."""
    several = kleenes(plan.query.pattern)
    rows: dict[str, Any] = {}
    lists: dict[str, Any] = {}
    for atom in positives(plan.query.pattern):
        variable = atom.variable
        members = [[e.position for e in b.get(variable, ())] for b in found]
        if variable in several:
            offsets = np.zeros(len(found) + 1, np.int64)
            np.cumsum([len(m) for m in members], out=offsets[1:])
            flat = [row for m in members for row in m]
            lists[variable] = (offsets, np.array(flat, np.int64))
        else:
            rows[variable] = np.array([m[0] if m else -1 for m in members], np.int64)
    return Matches(rows, lists, len(found))
