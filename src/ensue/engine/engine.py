"""A compiled matcher at work: feeds events to the kernel and lets time pass."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.arrow_kinds import Unit
from ensue.columns.matches import Matches
from ensue.engine.allowance import Allowance
from ensue.engine.choosing import skipping_of
from ensue.engine.counters import counters_of
from ensue.engine.forgetting import forget_keys, forget_strings
from ensue.engine.interrupts import interruptible
from ensue.engine.lapsing import lapsing_of
from ensue.engine.negated_matches import Inner
from ensue.engine.output import joined, listed_bytes, taken
from ensue.engine.program import Program
from ensue.engine.room import Room
from ensue.engine.saving import Saved, column_names, fitting, pushed_by, take_up
from ensue.engine.scan import Scan, Scanned
from ensue.engine.turns import InTurn
from ensue.plan.estimates.counters import Counters
from ensue.plan.limits import UNLIMITED, Limits
from ensue.plan.physical import Plan
from ensue.schema import Schema
from ensue.source.counting import TABLE, ScanCounts
from ensue.source.kernel_inputs import DONE, OUT_TOP, POSITION, STOP
from ensue.source.operator_functions import failing_functions
from ensue.structures.contract import USED
from ensue.structures.tables import Table

FEW_CODES = 4_096  # up to so many, codes of keys and strings are never forgotten


class Engine:
    """The state of a query over a stream, and the kernel that moves it.

    Rows are numbered through the whole stream; matches are given as row numbers. Times are in
    the unit of the engine. What it keeps depends on what is alive, not on how long it runs.
    """

    def __init__(
        self,
        plan: Plan,
        schema: Schema,
        unit: Unit,
        *,
        nullable: bool = False,
        counted: bool = False,
        limits: Limits = UNLIMITED,
        program: Program | None = None,
    ) -> None:
        """`program`: that of the plan, where it is known already."""
        self.room = Room(self, Allowance(limits, plan.query, schema, unit))
        self.program = program or Program(plan, schema, unit, nullable, counted)
        self.scan = Scan(self.program)
        self.state = self.program.fresh_state()
        self.rows = 0  # events fed so far
        self.now: float | None = None  # no event that ends before can still come
        self.inner = self._inners()
        self.skipping = skipping_of(plan.query, self.program.source.output, waits=self.state.waits)
        self.lapsing = lapsing_of(self.program)
        self.found = 0  # matches so far
        self._pieces: list[Matches] = []
        self._swept: tuple[float, int] | None = None  # now and rows at the last sweep
        self._compacted = (0, 0)  # rows and population when codes were last forgotten

    def _inners(self) -> list[Inner]:
        """The engines of negated complex events."""
        program, source = self.program, self.program.source
        limits = self.room.allowance.limits
        return [
            Inner(
                Engine(role.inner, program.schema, program.unit, limits=limits),
                source.complexes[role.variable],
            )
            for role in program.frame.complexes
            if role.inner is not None
        ]

    # ---------------------------------------------------------------------------- feeding

    def feed(self, events: pa.Table) -> Matches:
        """The matches that these events complete, or that they show to be complete."""
        if events.num_rows == 0:
            return joined([], self.program.source.output)
        scanned = self.scan(events)
        return self.feed_scanned(scanned, len(self.scan.keys), events)

    def feed_scanned(self, scanned: Scanned, keys: int, events: pa.Table | None = None) -> Matches:
        """The same for events that are scanned already; they have so many keys up to now.

        Negated complex events are looked for in the events themselves.
        """
        try:
            self._take(scanned, keys, events)
            found = self._delivered(scanned.key, self.rows - len(scanned.mask))
            self._compact_if_it_pays()
        except MemoryError:
            raise self.room.allowance.refused(self.room.holding()) from None
        return found

    def _take(self, scanned: Scanned, keys: int, events: pa.Table | None) -> None:
        """Moves the state along events."""
        if scanned.has_nulls and not self.program.nullable:
            self._become_nullable()
        self.state.room_for_keys(max(1, keys))
        count = len(scanned.mask)
        position, meta = 0, self.state.meta
        arrays = scanned.arrays(self.program.nullable)
        for role, inner in zip(self.program.frame.complexes, self.inner, strict=True):
            assert events is not None
            given = inner.feed(events, self.scan, nullable=self.program.nullable)
            scanned.mask[given.ends] |= 1 << self.program.frame.bit(role.variable)
            arrays += given.arrays
        asked = (DONE, 0)
        while True:
            code = self._step(position, count, arrays)
            position = int(meta[POSITION])
            if code == DONE:
                break
            # asked for the same twice: what was made free is too little for this event
            now = scanned.ends[position].item()
            self.room.make(code, now, again=asked == (code, position))
            asked = (code, position)
        self.drain()
        if self.lapsing is not None:
            self.lapsing.see(scanned, self.rows)
        self.rows += count
        self.now = scanned.ends[-1].item()
        self.room.ask()

    def replay(self, pieces: Sequence[pa.Table], rows: int, now: float | None) -> None:
        """Takes up the state that the last events of a stream leave behind.

        The pieces are its last events, so many that no match to come needs an older one, up to
        row `rows` and time `now`. Their matches have been delivered.
        """
        self.room.counts = False
        self.rows = rows - sum(piece.num_rows for piece in pieces)
        for inner in self.inner:
            inner.engine.rows = self.rows
        for piece in pieces:
            self._take(self.scan(piece), len(self.scan.keys), piece)
            self._let_wait()
        if now is not None:
            self._pass_time(now)
            self._let_wait()
        self.room.counts = True

    def _let_wait(self) -> None:
        """Throws away what has been found, but for matches whose intervals are not over."""
        pieces, self._pieces = self._pieces, []
        if self.lapsing is not None:
            self.lapsing(joined(pieces, self.program.source.output), self.now, over=False)

    def advance(self, now: float) -> Matches:
        """Lets time pass until `now`: what only waited for it is delivered.

        All events that end before `now` have been fed and none can still come; one that ends
        at `now` can.
        """
        self._pass_time(now)
        found = self._delivered(np.zeros(0, np.int32), self.rows)
        self._compact_if_it_pays()
        return found

    def _pass_time(self, now: float) -> None:
        now = float(now) if self.program.frame.real_time else math.ceil(now)
        self.now = now if self.now is None else max(self.now, now)
        if self._swept != (self.now, self.rows):
            self._swept = (self.now, self.rows)
            self.state.sweep(self.now, self.room, flush=False)
            self.drain()
            self.state.expire(self.now, self.rows)
            for inner in self.inner:
                inner.advance(self.now)

    def finish(self) -> Matches:
        """The stream is over: no more events come that could forbid anything."""
        if self.state.waits:
            self.state.sweep(self.now or 0, self.room, flush=True)
            self.drain()
        return self._delivered(np.zeros(0, np.int32), self.rows, over=True)

    def _step(self, position: int, count: int, arrays: list[Table]) -> int:
        tables, meta = self.state.tables, self.state.meta
        given = [tables[name] for name in self.program.tables]
        self.room.allow()
        step = self.program.step
        with failing_functions(self.program.plan.query):
            found = interruptible(
                lambda: step(position, count, self.rows, *arrays, *given),
                lambda: meta.__setitem__(STOP, 1),
            )
        returned = self.program.source.returned
        if not returned:
            return int(found)
        code, *larger = found
        tables.update(zip(returned, larger, strict=True))
        return int(code)

    def _become_nullable(self) -> None:
        """From here on events may lack values."""
        self.program = replace(self.program, nullable=True)
        self.scan.program = self.program
        self.state.become(self.program.frame, self.program.source, self.program.kernel)

    # ---------------------------------------------------------------------------- forgetting

    def compact(self) -> None:
        """Forgets the keys and strings that nothing alive needs, and gives up unused room."""
        for inner in self.inner:
            inner.engine.compact()
        self.state.expire(self.now, self.rows)
        self.state.pack()
        forget_keys(self.state, self.scan.keys, self.skipping, self.lapsing)
        forget_strings(self.state, self.scan.strings)
        self._compacted = (self.rows, self.state.population)

    @property
    def can_drop_keys(self) -> bool:
        """Whether `drop_keys` leaves nothing of them: negated complex events have their own."""
        return not self.inner and self.skipping is None and self.lapsing is None

    def drop_keys(self, columns: Sequence[pa.ChunkedArray]) -> None:
        """Drops all that is known of the partitions that these values of the key name."""
        known = len(self.scan.keys)
        codes = self.scan.keys.encode(columns)
        self.state.room_for_keys(max(1, len(self.scan.keys)))
        gone = np.zeros(self.state.key_room, np.bool_)
        gone[codes[(codes >= 0) & (codes < known)]] = True
        self.state.drop_keys(gone)
        self._swept = None
        self.compact()

    def _compact_if_it_pays(self) -> None:
        """The codes are looked through when most of them must be dead, and only as often as new
        events or the end of old runs have paid for it."""
        known = self.scan.known
        if known > FEW_CODES and known > 2 * self._most_codes():
            rows, population = self._compacted
            if 2 * (self.rows - rows) >= known or 2 * self.state.population < population:
                self.compact()
        elif self.state.is_sparse:
            self.state.pack()

    def _most_codes(self) -> int:
        """No more codes than these are alive."""
        codes = len(self.program.plan.query.equivalence) * 2
        codes += sum(len(columns.texts) for columns in self.program.source.columns)
        return self.state.population * codes

    # ---------------------------------------------------------------------------- output

    def drain(self) -> None:
        """Takes the matches out of the kernel's output table."""
        if self.state.meta[OUT_TOP] == 0:
            return
        self.room.ask(listed_bytes(self.state))
        self._pieces.append(taken(self.state))
        self.room.drained(self._pieces[-1])
        self.state.drained()

    def others_hold(self, size: float) -> None:
        """Other matchers of the same call hold so many bytes of matches."""
        self.room.elsewhere = size

    def hand_over(self) -> None:
        """What was found so far is with others now, and no longer held."""
        self.room.hand_over()

    def _delivered(self, keys: Table, base: int, *, over: bool = False) -> Matches:
        turns = self.turns
        if turns is not None and not over and self.now is not None:
            self._pass_time(self.now)  # what is out of time is in nobody's way
        pieces, self._pieces = self._pieces, []
        found = joined(pieces, self.program.source.output)
        if self.lapsing is not None:
            found = self.lapsing(found, self.now, over=over)
        if turns is not None:
            found = turns.in_turn(found, keys, base, None if over else self.state.alive())
        elif self.skipping is not None and found.count:
            if self.state.knows_used:
                found = self.skipping.among_weighed(found)
            else:
                found = self.skipping(found, keys, base)
        self.found += found.number
        self.room.keep(found)
        return found

    @property
    def turns(self) -> InTurn | None:
        """What holds back matches until those before them are known, if they have to wait."""
        return self.skipping if isinstance(self.skipping, InTurn) else None

    def skip_up_to(self, earliest: npt.NDArray[np.int64]) -> None:
        """Goes on with the rows that AFTER MATCH SKIP lets matches begin with."""
        assert self.skipping is not None
        if self.state.knows_used:
            self.state.know_used(earliest)
        else:
            self.skipping.earliest = earliest

    @property
    def skipped_up_to(self) -> npt.NDArray[np.int64]:
        """By partition, the first row that AFTER MATCH SKIP lets a match begin with."""
        assert self.skipping is not None
        return self.state.tables[USED] if self.state.knows_used else self.skipping.earliest

    # ---------------------------------------------------------------------------- saving

    def save(self) -> bytes:
        """The state as bytes: what is alive, and nothing of the room around it."""
        if self.state.is_scattered or self.scan.known > 2 * self._most_codes():
            self.compact()
        else:
            self.state.tidy()
        arrays = self.state.used_parts(len(self.scan.keys))
        if self.skipping is not None:
            arrays["earliest"] = arrays.pop(USED, self.skipping.earliest)
        if self.turns is not None:
            arrays |= self.turns.save()
        if self.lapsing is not None:
            arrays |= self.lapsing.save()
        saved = Saved(
            self.program.nullable,
            self.rows,
            self.now,
            self.scan.seen,
            self.scan.keys,
            self.scan.strings,
            column_names(self.state),
            arrays,
            None if not self.program.counted else self._counted(),
            pushed_by(self.program),
            tuple(inner.save() for inner in self.inner),
        )
        return saved.packed(self.program)

    def restore(self, data: bytes) -> None:
        """Goes on where the matcher that saved this state stopped."""
        saved = Saved.unpacked(data, self.program)
        self.program = fitting(self.program, saved)
        self.scan = Scan(self.program)
        self.scan.seen = saved.seen
        self.scan.keys, self.scan.strings = saved.keys, saved.strings
        self.state = self.program.fresh_state()
        take_up(self.state, saved)
        self.rows, self.now = saved.rows, saved.now
        self.inner = self._inners()
        for inner, data in zip(self.inner, saved.inner, strict=True):
            inner.restore(data)
        if self.skipping is not None:
            self.skip_up_to(saved.arrays["earliest"])
        if self.turns is not None:
            self.turns.restore(saved.arrays)
            self.turns.remember(self.state.alive())
        if self.lapsing is not None:
            self.lapsing = lapsing_of(self.program)
            assert self.lapsing is not None
            self.lapsing.restore(saved.arrays)
        if self.program.counted and saved.counted is not None:
            self.scan.counts = ScanCounts.of(saved.counted["scan"])
            self.found = int(saved.counted["found"])
        self._swept, self._compacted = None, (self.rows, self.state.population)

    def _counted(self) -> dict[str, Any]:
        labels = [list(label) for label in self.program.frame.tally.labels]
        return {"labels": labels, "scan": self.scan.counts.described(), "found": self.found}

    @property
    def state_bytes(self) -> int:
        """About how many bytes `save` gives, without doing it."""
        scan = self.scan
        size = self.state.saved_size(len(scan.keys)) + scan.keys.nbytes + scan.strings.nbytes
        size += sum(inner.state_bytes for inner in self.inner)
        return size + self.waiting_bytes

    @property
    def held_bytes(self) -> int:
        """How much memory it takes: its tables with the room in them, and codes."""
        scan = self.scan
        size = sum(table.nbytes for table in self.state.tables.values())
        size += scan.keys.nbytes + scan.strings.nbytes
        return size + self.waiting_bytes + sum(inner.engine.held_bytes for inner in self.inner)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of matches that wait, and of what has a say in them."""
        sizes = (0 if kept is None else kept.nbytes for kept in (self.lapsing, self.skipping))
        return sum(sizes)

    # ---------------------------------------------------------------------------- what is alive

    def held_rows(self) -> npt.NDArray[np.int64]:
        """The rows of the stream that a later match may still contain, ascending."""
        held = self.state.held_rows(self.now)
        for waiting in (self.lapsing, self.turns):
            held = held if waiting is None else np.union1d(held, waiting.rows())
        return held

    @property
    def partial_matches(self) -> int:
        """Runs that are alive, or instances in stacks."""
        waiting = 0 if self.lapsing is None else self.lapsing.waiting
        held = 0 if self.turns is None else self.turns.held
        return self.state.partial_matches + waiting + held

    @property
    def is_blank(self) -> bool:
        """Whether it is known to be as good as a new one: nothing bears on what comes."""
        waits = self.turns is not None and self.turns.held > 0
        return (
            self.state.is_blank and not waits and (self.lapsing is None or self.lapsing.is_blank)
        )

    def count_anew(self) -> None:
        """Forgets what was counted so far."""
        self.scan.counts = ScanCounts()
        self.state.tables[TABLE][:] = 0
        self.found = 0

    def counters(self) -> Counters:
        """What was counted so far, by an engine that was made to count."""
        program, scan = self.program, self.scan.counts
        if not program.counted:
            raise ValueError("the engine was not made to count: counted=True")
        return counters_of(
            program.frame, scan, self.state.tables[TABLE], self.found, self.partial_matches
        )

    def deadline(self) -> float | None:
        """The time after which something that waits for it can be delivered.

        `advance` delivers once it is told a later time. None: nothing waits for time to pass.
        """
        if self.now is not None and self.state.is_over:
            return self.now - 1  # it is over already
        times = [self.state.deadline()]
        times += [w.deadline() for w in (self.lapsing, self.turns) if w is not None]
        return min((time for time in times if time is not None), default=None)
