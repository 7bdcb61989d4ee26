"""The engine feeds events to a compiled kernel and advances its time."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.analyzer.output_mode import collects_matches
from ensue.codegen.counters import TABLE, ScanCounts, read_counters
from ensue.codegen.kernel_inputs import DONE, OUT_TOP, POSITION, STOP
from ensue.codegen.user_functions import raise_naming_operator
from ensue.engine.interrupts import run_interruptibly
from ensue.engine.match_output import compute_list_bytes, concat_matches, read_output
from ensue.engine.match_selection import OrderedSkipStrategy, TriggerBuffer, create_skip_strategy
from ensue.engine.memory_budget import MemoryBudget, TableAllocator, Usage, evict_keys, evict_strings, sum_usage
from ensue.engine.program import Program
from ensue.engine.scan import Scan, ScannedBatch
from ensue.options import UNLIMITED, Limits
from ensue.physical.structure import USED, LivePartialMatches, Table
from ensue.planner.physical_plan import PhysicalPlan
from ensue.planner.statistics import MatcherCounters, PassCount
from ensue.schema import Schema
from ensue.vector.arrow_types import Unit
from ensue.vector.match_rows import Matches

if TYPE_CHECKING:
    from ensue.engine.interval_negation import IntervalNegationFilter
    from ensue.engine.negated_patterns import InnerPatternMatcher


FEW_CODES = 4_096  # below this number, codes of keys and strings are never evicted


class Engine:
    """The state of a query over a stream, and the kernel that updates it.

    Rows are numbered through the whole stream; matches are row numbers. Times are in the unit of
    the engine. Memory depends on the partial matches, not on how long the stream runs.
    """

    def __init__(
        self,
        plan: PhysicalPlan,
        schema: Schema,
        unit: Unit,
        *,
        nullable: bool = False,
        counted: bool = False,
        limits: Limits = UNLIMITED,
        program: Program | None = None,
    ) -> None:
        """`program`: the compiled plan, if it is cached."""
        self.room = TableAllocator(self, MemoryBudget(limits, plan.query, schema, unit))
        self.program = program or Program(plan, schema, unit, nullable, counted)
        self.scan = Scan(self.program)
        self.state = self.program.fresh_state()
        self.rows = 0  # events fed so far
        self.now: float | None = None  # event time; every event that ends before has been fed
        self.inner = self._create_inner_matchers()
        self.lapsing = self._create_interval_filter()
        waits, output = self.state.waits or self.lapsing is not None, self.program.source.output
        self.skipping = create_skip_strategy(plan.query, output, waits=waits)
        self.triggers = TriggerBuffer(plan.query, output) if collects_matches(plan.query) else None
        self.found = 0  # number of matches delivered
        self._pieces: list[Matches] = []
        self._swept: tuple[float, int] | None = None  # now and rows at the last sweep
        self._compacted = (0, 0)  # rows and population at the last eviction of codes
        self.renumberings = 0  # how often codes of keys and strings may have changed

    def unseen_types(self) -> Sequence[str]:
        """The event types of the pattern that have not occurred so far."""
        return self.scan.unseen_types()

    def _create_interval_filter(self) -> "IntervalNegationFilter | None":
        """Create the filter for negations with an interval, if the query has any."""
        if not any(iterate_interval_negations(self.program.plan.query.pattern)):
            return None
        from ensue.engine.interval_negation import IntervalNegationFilter

        return IntervalNegationFilter(self.program, lambda: self.state.get_held_rows(self.now))

    @property
    def output(self) -> Sequence[str]:
        """The columns of the matches, as the kernel names them."""
        return self.program.source.output

    def _create_inner_matchers(self) -> "list[InnerPatternMatcher]":
        """The engines of negated complex events."""
        program, source = self.program, self.program.source
        if not program.frame.complexes:
            return []
        from ensue.engine.negated_patterns import InnerPatternMatcher

        limits = self.room.allowance.limits
        return [
            InnerPatternMatcher(
                Engine(role.inner, program.schema, program.unit, limits=limits), source.complexes[role.variable]
            )
            for role in program.frame.complexes
            if role.inner is not None
        ]

    def process(self, events: pa.Table) -> Matches:
        """Process events and return the matches that they complete."""
        if events.num_rows == 0:
            return concat_matches([], self.program.source.output)
        scanned = self.scan(events)
        return self.feed_scanned(scanned, len(self.scan.keys), events)

    def feed_scanned(self, scanned: ScannedBatch, keys: int, events: pa.Table | None = None) -> Matches:
        """Process events that are scanned already; `keys` is the number of key codes so far.

        Negated complex events are matched on `events` themselves.
        """
        try:
            self._take(scanned, keys, events)
            matches = self._deliver(scanned.key, self.rows - len(scanned.mask))
            self._compact_if_it_pays()
        except MemoryError:
            raise self.room.allowance.build_allocation_error(self.room.build_request()) from None
        return matches

    def _take(self, scanned: ScannedBatch, keys: int, events: pa.Table | None) -> None:
        """Run the kernel over a batch of events."""
        if scanned.has_nulls and not self.program.nullable:
            self._become_nullable()
        self.state.room_for_keys(max(1, keys))
        count = len(scanned.mask)
        position, meta = 0, self.state.meta
        arrays = scanned.arrays(self.program.nullable)
        for role, inner in zip(self.program.frame.complexes, self.inner, strict=True):
            assert events is not None
            inner_matches = inner.process(events, self.scan, nullable=self.program.nullable)
            scanned.mask[inner_matches.ends] |= 1 << self.program.frame.bit(role.variable)
            arrays += inner_matches.arrays
        last_request = (DONE, 0)
        while True:
            code = self._step(position, count, arrays)
            position = int(meta[POSITION])
            if code == DONE:
                break
            # a second request at the same event: the space made free was too small
            now = scanned.ends[position].item()
            self.room.make(code, now, again=last_request == (code, position))
            last_request = (code, position)
        self.drain()
        if self.lapsing is not None:
            self.lapsing.add_batch(scanned, self.rows)
        self.rows += count
        self.now = scanned.ends[-1].item()
        self.room.ask()

    def replay(self, pieces: Sequence[pa.Table], rows: int, now: float | None) -> None:
        """Rebuild the state from the last events of a stream.

        The tables hold at least the events of the last window, up to row `rows` and time `now`.
        Their matches have been delivered and are dropped.
        """
        self.room.counts = False
        self.rows = rows - sum(piece.num_rows for piece in pieces)
        for inner in self.inner:
            inner.engine.rows = self.rows
        for piece in pieces:
            self._take(self.scan(piece), len(self.scan.keys), piece)
            self._drop_matches()
        if now is not None:
            self._pass_time(now)
            self._drop_matches()
        self.room.counts = True

    def _drop_matches(self) -> None:
        """Drop the matches, except for the ones that wait for the end of an interval."""
        pieces, self._pieces = self._pieces, []
        if self.lapsing is not None:
            self.lapsing(concat_matches(pieces, self.program.source.output), self.now, over=False)

    def on_watermark(self, now: float) -> Matches:
        """Advance event time to `now` and return the matches that it completes.

        All events that end before `now` have been processed; an event that ends at `now` may still
        arrive. A watermark at infinity ends the stream.
        """
        if now == math.inf:
            if self.state.waits:
                self.state.sweep(self.now or 0, self.room, flush=True)
                self.drain()
            return self._deliver(np.zeros(0, np.int32), self.rows, over=True)
        self._pass_time(now)
        matches = self._deliver(np.zeros(0, np.int32), self.rows)
        self._compact_if_it_pays()
        return matches

    def _pass_time(self, now: float) -> None:
        now = float(now) if self.program.frame.real_time else math.ceil(now)
        self.now = now if self.now is None else max(self.now, now)
        if self._swept != (self.now, self.rows):
            self._swept = (self.now, self.rows)
            self.state.sweep(self.now, self.room, flush=False)
            self.drain()
            self.state.expire(self.now, self.rows)
            for inner in self.inner:
                inner.on_watermark(self.now)

    def _step(self, position: int, count: int, arrays: list[Table]) -> int:
        tables, meta = self.state.tables, self.state.meta
        arguments = [tables[name] for name in self.program.tables]
        self.room.allow()
        step = self.program.step
        try:
            result = run_interruptibly(
                lambda: step(position, count, self.rows, *arrays, *arguments), lambda: meta.__setitem__(STOP, 1)
            )
        except Exception as error:  # noqa: BLE001  raised again
            raise_naming_operator(error, self.program.plan.query)
        returned = self.program.source.returned
        if not returned:
            return int(result)
        code, *larger = result
        tables.update(zip(returned, larger, strict=True))
        return int(code)

    def _become_nullable(self) -> None:
        """Switch to a kernel that handles NULL values."""
        self.program = replace(self.program, nullable=True)
        self.scan.program = self.program
        self.state.adopt_kernel(self.program.frame, self.program.source, self.program.kernel)

    def compact(self) -> None:
        """Evict keys and strings of no partial match, and shrink the tables."""
        for inner in self.inner:
            inner.engine.compact()
        self.state.expire(self.now, self.rows)
        self.state.pack()
        evict_keys(self.state, self.scan.keys, self.skipping, self.lapsing)
        evict_strings(self.state, self.scan.strings)
        self.renumberings += 1
        self._compacted = (self.rows, self.state.population)

    @property
    def can_drop_keys(self) -> bool:
        """Whether `drop_keys` removes all state of the dropped keys."""
        return not self.inner and self.skipping is None and self.lapsing is None and self.triggers is None

    def drop_keys(self, columns: Sequence[pa.ChunkedArray]) -> None:
        """Drop all state of the partitions with these key values."""
        known = len(self.scan.keys)
        codes = self.scan.keys.encode(columns)
        self.state.room_for_keys(max(1, len(self.scan.keys)))
        dropped = np.zeros(self.state.key_room, np.bool_)
        dropped[codes[(codes >= 0) & (codes < known)]] = True
        self.state.drop_keys(dropped)
        self._swept = None
        self.compact()

    def _compact_if_it_pays(self) -> None:
        """Compact when most codes must be dead, at a cost amortized over the events since then."""
        known = self.scan.known
        if known > FEW_CODES and known > 2 * self._most_codes():
            rows, population = self._compacted
            if 2 * (self.rows - rows) >= known or 2 * self.state.population < population:
                self.compact()
        elif self.state.is_sparse:
            self.state.pack()

    def _most_codes(self) -> int:
        """An upper bound of the codes in use."""
        codes = len(self.program.plan.query.equivalence) * 2
        codes += sum(len(columns.texts) for columns in self.program.source.columns)
        return self.state.population * codes

    def drain(self) -> None:
        """Move the matches out of the kernel's output table."""
        if self.state.meta[OUT_TOP] == 0:
            return
        self.room.ask(compute_list_bytes(self.state))
        self._pieces.append(read_output(self.state))
        self.room.count_drained(self._pieces[-1])
        self.state.reset_output()

    def set_foreign_memory(self, size: float) -> None:
        """Set the bytes of the shared memory budget used by other matchers."""
        self.room.elsewhere = size

    def hand_over(self) -> None:
        """Stop counting the matches returned so far against the memory budget."""
        self.room.hand_over()

    def _deliver(self, keys: Table, base: int, *, over: bool = False) -> Matches:
        turns = self.turns
        if turns is not None and not over and self.now is not None:
            self._pass_time(self.now)  # expire runs that would only delay others
        pieces, self._pieces = self._pieces, []
        matches = concat_matches(pieces, self.program.source.output)
        if self.lapsing is not None:
            matches = self.lapsing(matches, self.now, over=over)
        if turns is not None:
            matches = turns.in_turn(matches, keys, base, None if over else self._find_alive())
        elif self.skipping is not None and matches.count:
            if self.state.tracks_used_rows:
                matches = self.skipping.select_weighed(matches)
            else:
                matches = self.skipping(matches, keys, base)
        if self.triggers is not None:
            matches = self.triggers(matches, lambda: np.zeros(0, np.int64) if over else self._find_undecided())
        if matches.count or self.lapsing is not None or self.skipping is not None or self.triggers is not None:
            self.found += matches.number
            self.room.keep(matches)
        return matches

    def _find_alive(self) -> LivePartialMatches:
        """The partial matches, and the matches that wait for the end of an interval."""
        by_start = self.turns is not None and self.turns.after.by_start
        alive = self.state.alive() if by_start or self.state.waits else LivePartialMatches.nothing()
        return alive if self.lapsing is None else alive + self.lapsing.alive()

    def _find_undecided(self) -> npt.NDArray[np.int64]:
        """The last rows of the matches that are not decided yet."""
        alive = self._find_alive()
        held = np.zeros(0, np.int64) if self.turns is None else self.turns.held_ends
        return np.concatenate([alive.last[alive.waits], held])

    @property
    def turns(self) -> OrderedSkipStrategy | None:
        """The skip strategy, if it holds matches back until earlier ones are decided."""
        return self.skipping if isinstance(self.skipping, OrderedSkipStrategy) else None

    def skip_up_to(self, earliest: npt.NDArray[np.int64]) -> None:
        """Restore, by partition, the first row at which AFTER MATCH SKIP lets a match begin."""
        assert self.skipping is not None
        if self.state.tracks_used_rows:
            self.state.set_used_rows(earliest)
        else:
            self.skipping.earliest = earliest

    @property
    def skipped_up_to(self) -> npt.NDArray[np.int64]:
        """By partition, the first row at which AFTER MATCH SKIP lets a match begin."""
        assert self.skipping is not None
        return self.state.tables[USED] if self.state.tracks_used_rows else self.skipping.earliest

    def snapshot(self) -> bytes:
        """Serialize the live part of the state."""
        from ensue.engine.snapshot import EngineSnapshot, get_column_names

        if self.state.is_scattered or self.scan.known > 2 * self._most_codes():
            self.compact()
        else:
            self.state.tidy()
        arrays = self.state.used_parts(len(self.scan.keys))
        if self.skipping is not None:
            arrays["earliest"] = arrays.pop(USED, self.skipping.earliest)
        if self.turns is not None:
            arrays |= self.turns.snapshot()
        if self.lapsing is not None:
            arrays |= self.lapsing.snapshot()
        if self.triggers is not None:
            arrays |= self.triggers.snapshot()
        saved = EngineSnapshot(
            self.program.nullable,
            self.rows,
            self.now,
            self.scan.seen,
            self.scan.keys,
            self.scan.strings,
            get_column_names(self.state),
            arrays,
            None if not self.program.counted else self._describe_counts(),
            sorted(self.program.frame.dropped),
            [inner.snapshot() for inner in self.inner],
        )
        return saved.pack(self.program)

    def restore(self, data: bytes) -> None:
        """Restore a state that `save` returned."""
        from ensue.engine.snapshot import EngineSnapshot, adapt_program, restore_tables

        saved = EngineSnapshot.unpack(data, self.program)
        self.program = adapt_program(self.program, saved)
        self.scan = Scan(self.program)
        self.scan.seen = saved.seen
        self.scan.keys, self.scan.strings = saved.keys, saved.strings
        self.state = self.program.fresh_state()
        restore_tables(self.state, saved)
        self.rows, self.now = saved.rows, saved.now
        self.inner = self._create_inner_matchers()
        for inner, data in zip(self.inner, saved.inner, strict=True):
            inner.restore(data)
        if self.skipping is not None:
            self.skip_up_to(saved.arrays["earliest"])
        if self.lapsing is not None:
            self.lapsing = self._create_interval_filter()
            assert self.lapsing is not None
            self.lapsing.restore(saved.arrays)
        if self.turns is not None:
            self.turns.restore(saved.arrays)
            self.turns.remember(self._find_alive())
        if self.triggers is not None:
            self.triggers.restore(saved.arrays)
        if self.program.counted and saved.counted is not None:
            self.scan.counts = ScanCounts.from_json(saved.counted["scan"])
            self.found = int(saved.counted["found"])
        self._swept, self._compacted = None, (self.rows, self.state.population)
        self.renumberings += 1

    def _describe_counts(self) -> dict[str, Any]:
        labels = [list(label) for label in self.program.frame.tally.labels]
        return {"labels": labels, "scan": self.scan.counts.to_json(), "found": self.found}

    @property
    def usage(self) -> Usage:
        """What the engine holds; of inner patterns only the bytes."""
        scan, inner = self.scan, sum_usage(matcher.usage for matcher in self.inner)
        saved = self.state.saved_size(len(scan.keys)) + inner.state_bytes
        codes = scan.keys.nbytes + scan.strings.nbytes + self.waiting_bytes
        return Usage(self.partial_matches, saved, self.state.nbytes + inner.held_bytes).add_bytes(codes)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of matches that are held back."""
        triggers = None if self.triggers is None else self.triggers.held
        return sum(held.nbytes for held in (self.lapsing, self.skipping, triggers) if held is not None)

    def get_held_rows(self) -> npt.NDArray[np.int64]:
        """The rows of the stream that a later match may still contain, ascending."""
        held = self.state.get_held_rows(self.now)
        for waiting in (self.lapsing, self.turns, self.triggers):
            held = held if waiting is None else np.union1d(held, waiting.rows())
        return held

    @property
    def partial_matches(self) -> int:
        """The number of runs or stack instances, and of matches held back."""
        waiting = 0 if self.lapsing is None else self.lapsing.waiting
        held = 0 if self.turns is None else self.turns.held
        held += 0 if self.triggers is None else self.triggers.held.count
        return self.state.partial_matches + waiting + held

    @property
    def is_blank(self) -> bool:
        """Whether the state equals that of a new engine."""
        waits = self.turns is not None and self.turns.held > 0
        lapsed = self.lapsing is None or self.lapsing.is_blank
        holds = self.triggers is not None and self.triggers.held.count > 0
        inner = all(inner.engine.is_blank for inner in self.inner)
        return self.state.is_blank and not waits and lapsed and not holds and inner

    def reset_counters(self) -> None:
        """Reset the counters."""
        self.scan.counts = ScanCounts()
        self.state.tables[TABLE][:] = 0
        self.found = 0

    def counters(self) -> MatcherCounters:
        """The counters of an engine created with counted=True."""
        frame, scan = self.program.frame, self.scan.counts
        if not self.program.counted:
            raise ValueError("the engine was not created with counted=True")
        passed = 0.0 if scan.first is None or scan.last is None else scan.last - scan.first
        return MatcherCounters(
            scan.events,
            passed / frame.ticks_per_second,
            {r.variable: r.type for r in frame.plan.roles if isinstance(r.type, str)},
            {variable: PassCount(*count) for variable, count in scan.roles.items()},
            {label: PassCount(*count) for label, count in scan.conditions.items()},
            *read_counters(frame.tally.labels, self.state.tables[TABLE]),
            self.found,
            self.partial_matches,
            max(1, scan.partitions),
            scan.crowding,
        )

    def next_timer(self) -> float | None:
        """The event time after which `advance` returns a match; None: no match waits for time."""
        if self.now is not None and self.state.is_over:
            return self.now - 1  # it has passed already
        first = self.state.next_timer()
        if self.lapsing is None and self.skipping is None:
            return first
        times = [first]
        times += [w.next_timer() for w in (self.lapsing, self.turns) if w is not None]
        return min((time for time in times if time is not None), default=None)
