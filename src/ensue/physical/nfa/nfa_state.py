"""State of the NFA: runs in lists by partition and state, with their Kleene events."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ensue.cached import cached_property
from ensue.codegen.absence import InstanceStore, NestedMatches
from ensue.codegen.kernel_inputs import (
    FREE,
    FREE_COUNT,
    LIVE,
    NEEDS_NODES,
    NEEDS_RUNS,
    NODE_TOP,
    OUT_TOP,
    RUN_TOP,
    KernelContext,
)
from ensue.codegen.state_layout import StateColumns
from ensue.ir.selection import CONTIGUOUS, Strategy
from ensue.kernels import arena
from ensue.physical.nfa.edge_guards import EMITTED
from ensue.physical.nfa.slots import RunRegisters
from ensue.physical.structure import (
    SPARSE,
    FilledRows,
    InstanceKernel,
    InstanceState,
    Kernels,
    KernelSignature,
    KeyedRows,
    LivePartialMatches,
    RoomProvider,
    RoomRequest,
    Table,
    TableShape,
    get_instance_shapes,
    make_named_shapes,
)
from ensue.planner.physical_plan import Nfa
from ensue.vector.arrow_numpy import sorted_unique

SWEEP = "sweep"  # the function that expires runs, and its tables
SWEEP_TABLES = ("head", "live", "nxt", "I", "F", "N", "NF", "counts", "O", "meta")


@dataclass(frozen=True, slots=True)
class RunsKernel(InstanceKernel):
    """The kernel of an automaton."""

    instances: InstanceStore
    registers: RunRegisters
    automaton: Nfa
    used: tuple[str, ...] = ()  # the table of AFTER MATCH SKIP, if the kernel evaluates it

    @property
    def shapes(self) -> tuple[TableShape, ...]:
        runs = FilledRows(RUN_TOP, alive=LIVE)
        return (
            TableShape("head", KeyedRows(-1), 2 * len(self.automaton.states), np.int32),
            TableShape("live", KeyedRows(), dtype=np.int32),
            TableShape("nxt", runs, dtype=np.int32),
            *make_named_shapes(self.registers.runs, runs),
            *make_named_shapes(self.registers.nodes, FilledRows(NODE_TOP)),
            *get_instance_shapes(self.instances),
            *(TableShape(name, KeyedRows()) for name in self.used),
        )

    @property
    def columns(self) -> tuple[StateColumns, ...]:
        return self.instances.columns, self.registers.runs, self.registers.nodes

    @property
    def kernels(self) -> Mapping[str, KernelSignature]:
        return {SWEEP: KernelSignature(("time", "truth"), SWEEP_TABLES)}

    @property
    def complexes(self) -> Mapping[str, NestedMatches]:
        return self.instances.complexes


class RunsState(InstanceState[RunsKernel]):
    """Runs that may take events, runs that wait for time to pass, and negated events."""

    def __init__(self, frame: KernelContext, source: RunsKernel, kernel: Kernels) -> None:
        super().__init__(frame, source, kernel)
        self.meta[FREE] = -1
        states = source.automaton.states
        self.waits = any(state.pending or state.lasting for state in states)
        absences = [a for s in states for a in (*s.absences, *s.pending)]
        absences += [a for edge in source.automaton.edges for a in edge.absences]
        # every negation is after an event of the run: older negated events are not needed
        self._looks_behind = all(a.after for a in absences)

    @property
    def tracks_used_rows(self) -> bool:
        return bool(self.source.used)

    def set_used_rows(self, earliest: Table) -> None:
        for name in self.source.used:
            self.tables[name] = self.shapes[name].allocate(self.key_room)
            self.room_for_keys(len(earliest))
            self.tables[name][: len(earliest)] = earliest

    def make_room(self, request: RoomRequest, room: RoomProvider) -> None:
        tables, meta = self.tables, self.meta
        if request.code == NEEDS_RUNS:
            self._drop_runs(request, room)
            free = meta[FREE_COUNT] + len(tables["I"]) - meta[RUN_TOP]
            # expiry takes time proportional to the number of lists, so it must be rare
            small = len(tables["I"]) < min(tables["head"].size, SPARSE)
            if request.again or small or free * 2 < len(tables["I"]):
                room.grow("I", "F", "nxt")
        elif request.code == NEEDS_NODES:
            self._drop_runs(request, room)
            room.drain()
            self._keep_nodes()
            small = len(tables["N"]) < min(16 * tables["head"].size, SPARSE)
            if request.again or small or meta[NODE_TOP] * 2 > len(tables["N"]):
                room.grow("N", "NF")
        else:
            super().make_room(request, room)

    def _drop_runs(self, request: RoomRequest, room: RoomProvider) -> None:
        """Drops the runs that can take no more events, before an event."""
        self.sweep(request.now, room, flush=False)
        self._drop_broken(request.rows)

    def pack(self) -> None:
        tables, meta = self.tables, self.meta
        count = int(meta[LIVE])
        size = self.fitting_room(count)
        origin, following = np.empty(count, np.int64), np.full(size, -1, np.int32)
        arena.pack_runs(tables["head"], tables["nxt"], origin, following)
        tables["nxt"] = following
        for name in ("I", "F"):
            old = tables[name]
            tables[name] = np.zeros((size, old.shape[1]), old.dtype)
            tables[name][:count] = old[origin]
        meta[RUN_TOP], meta[FREE], meta[FREE_COUNT] = count, -1, 0
        self._keep_nodes()
        super().pack()

    def sweep(self, now: float, room: RoomProvider, *, flush: bool) -> None:
        """Drops expired runs, and moves matches that waited for the time to the output."""
        tables, meta = self.tables, self.meta
        if self.waits:
            output = tables["O"]
            room.ask(2.0 * int(meta[LIVE]) * output.itemsize * output.shape[1])
        paused = any(edge.pause is not None for edge in self.source.automaton.edges)
        if self.frame.window is None and not self.waits and not paused:
            return
        while self.waits and len(tables["O"]) < meta[OUT_TOP] + meta[LIVE]:
            self.grow("O")
        time = float(now) if self.frame.real_time else int(now)
        self.kernel(SWEEP)(time, flush, *(tables[name] for name in SWEEP_TABLES))

    def expire(self, now: float | None, rows: int) -> None:
        self._drop_broken(rows)
        self.expire_instances(now)

    def _drop_broken(self, rows: int) -> None:
        """Drops the runs whose events are no longer adjacent, after `rows` events."""
        automaton, strategy = self.source.automaton, self.frame.plan.query.strategy
        for how in sorted(CONTIGUOUS, key=lambda how: how.name):
            numbers = [s.number for s in automaton.states]
            # the sweep drops the runs that only wait to be emitted
            waiting = [
                n for n in numbers if automaton.contiguous(n, strategy) is how and not automaton.states[n].lasting
            ]
            if len(waiting) == len(numbers):
                self._drop_apart(how, self.tables["head"], rows)
            elif waiting:
                places = [place for n in waiting for place in (2 * n, 2 * n + 1)]
                lists = np.ascontiguousarray(self.tables["head"][:, places])
                self._drop_apart(how, lists, rows)
                self.tables["head"][:, places] = lists

    def _drop_apart(self, how: Strategy, lists: Table, rows: int) -> None:
        tables, meta = self.tables, self.meta
        if how is Strategy.STRICT:
            name, newest = "last_row", np.full(len(tables["counts"]), rows - 1)
        else:
            name, newest = "last_index", tables["counts"]
        last = tables["I"][:, self.source.registers.runs.wholes[name]]
        meta[FREE], dropped = arena.drop_runs(lists, tables["live"], tables["nxt"], last, newest, meta[FREE])
        meta[FREE_COUNT] += dropped
        meta[LIVE] -= dropped

    def expire_instances(self, now: float | None) -> None:
        entries = self.entries
        if not len(entries):
            return
        alive = self.inside_window(now)
        if self._looks_behind:
            alive &= entries[:, arena.ROW] > self._oldest_rows()[entries[:, arena.KEY]]
        self.keep_only(alive)

    def drop_keys(self, gone: npt.NDArray[np.bool_]) -> None:
        self.meta[LIVE] -= int(self.tables["live"][gone].sum())
        super().drop_keys(gone)
        self.pack()  # rows without a list are free

    def _oldest_rows(self) -> Table:
        """The oldest row of the runs of each key; the maximum integer without runs."""
        oldest = np.full(len(self.tables["counts"]), np.iinfo(np.int64).max)
        _, key, first, _, place = self._run_ends()
        takes = place % 2 == 0  # the others only wait for time to pass
        np.minimum.at(oldest, key[takes], first[takes])
        return oldest

    def _run_ends(self) -> Table:
        """The number, key, first row, last row and list of each run."""
        tables, columns = self.tables, map(self._run_columns, ("row_", "node_"))
        ends = np.empty((int(self.meta[LIVE]), 5), np.int64)
        count = arena.find_run_ends(tables["head"], tables["nxt"], tables["I"], *columns, self.get_used_rows("N"), ends)
        return ends[:count].T

    @cached_property
    def _deadlines(self) -> list[tuple[str, int | float]]:
        """How long after a time of theirs runs wait at most."""
        ends = []
        if self.waits and self.frame.window is not None and not self.frame.by_events:
            ends.append(("first", self.frame.window))
        pauses = [
            length
            for edge in self.source.automaton.edges
            if edge.variable in self.source.automaton.states[edge.source].lasting
            if edge.pause is not None and (length := self.frame.length(edge.pause)) is not None
        ]
        if pauses:
            ends.append(("last_end", min(pauses)))
        return ends

    def next_timer(self) -> float | None:
        waiting = self._live_runs(waiting=True) if self._deadlines else np.zeros(0, np.int64)
        if not len(waiting):
            return None
        over: list[float] = [self._times(n)[waiting].min().item() + length for n, length in self._deadlines]
        return min(over)

    @cached_property
    def _greedy_states(self) -> list[int]:
        automaton = self.source.automaton
        return [s.number for s in automaton.states if automaton.is_ended_by_next_event(s)]

    @property
    def is_over(self) -> bool:
        """Whether a greedy loop at the end is over, as its partition has a later event."""
        states = self._greedy_states
        if not states or not self.meta[LIVE]:
            return False
        tables, wholes = self.tables, self.source.registers.runs.wholes
        lists = np.ascontiguousarray(tables["head"][:, [2 * n for n in states]])
        last, passed = (tables["I"][:, wholes[name]] for name in ("last_index", "passed"))
        return bool(arena.has_missed_events(lists, tables["nxt"], last, tables["counts"], passed, EMITTED))

    def _times(self, name: str) -> Table:
        """A column of times of all runs."""
        return self.read_times(self.source.registers.runs, name)

    @property
    def partial_matches(self) -> int:
        return int(self.meta[LIVE])

    @property
    def population(self) -> int:
        return super().population + int(self.meta[LIVE] + self.meta[NODE_TOP])

    @property
    def is_blank(self) -> bool:
        return self.population == 0

    def live_keys(self) -> npt.NDArray[np.bool_]:
        return super().live_keys() | (self.tables["live"] > 0)

    def get_held_rows(self, now: float | None) -> npt.NDArray[np.int64]:  # noqa: ARG002
        self._keep_nodes()
        live = self.tables["I"][self._live_runs()]
        pieces = [live[:, column] for column in self._run_columns("row_")]
        pieces.append(self.get_used_rows("N")[:, 1])
        rows = sorted_unique(np.concatenate(pieces))
        return rows[rows >= 0]

    def alive(self) -> LivePartialMatches:
        tables, source = self.tables, self.source
        runs, key, first, last, place = self._run_ends()
        waits = place % 2 == 1
        lasting = np.array([bool(state.lasting) for state in source.automaton.states])
        if lasting.any():
            passed = tables["I"][runs, source.registers.runs.wholes["passed"]]
            waits |= lasting[place // 2] & (passed & EMITTED == 0)
        ends = [self._times(name)[runs].min().item() + far for name, far in self._limits if len(runs)]
        return LivePartialMatches(key, first, last, waits, min(ends, default=None))

    @property
    def _limits(self) -> list[tuple[str, float]]:
        """The time columns after which a run expires, with the distance."""
        frame, edges = self.frame, self.source.automaton.edges
        limits: list[tuple[str, float]] = []
        if frame.window is not None and not frame.by_events:
            limits.append(("first", frame.window))
        pauses = [edge.pause for edge in edges if edge.source]
        lengths = [None if pause is None else frame.length(pause) for pause in pauses]
        known = [length for length in lengths if length is not None]
        if known and len(known) == len(lengths):
            limits.append(("last_end", max(known)))
        return limits

    def _live_runs(self, *, waiting: bool = False) -> Table:
        """The rows of the live runs, or only of waiting matches."""
        runs = np.empty(int(self.meta[LIVE]), np.int64)
        lists, states = self.tables["head"], self.source.automaton.states
        if waiting:
            pending = [2 * s.number + 1 for s in states if s.pending]
            lasting = [2 * s.number for s in states if s.lasting]
            lists = np.ascontiguousarray(lists[:, pending + lasting])
        runs = runs[: arena.list_live_runs(lists, self.tables["nxt"], runs)]
        if waiting and "passed" in self.source.registers.runs.wholes:
            passed = self.tables["I"][runs, self.source.registers.runs.wholes["passed"]]
            runs = runs[passed & EMITTED == 0]
        return runs

    def _run_columns(self, prefix: str) -> Table:
        wholes = self.source.registers.runs.wholes
        return np.array([c for n, c in wholes.items() if n.startswith(prefix)], np.int64)

    @property
    def kleene_events(self) -> tuple[Table, int, int]:
        return self.tables["N"], 0, 1

    def _keep_nodes(self) -> None:
        """Drops the Kleene events that no run has."""
        nodes, runs = (self.get_used_rows("N"), self.get_used_rows("NF")), ("head", "nxt", "I")
        self.meta[NODE_TOP] = arena.keep_nodes(
            *nodes, *(self.tables[name] for name in runs), self._run_columns("node_")
        )

    @property
    def is_scattered(self) -> bool:
        return bool(2 * self.meta[FREE_COUNT] > self.meta[RUN_TOP])

    def tidy(self) -> None:
        self._keep_nodes()
