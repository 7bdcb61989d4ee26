"""The tables of a matcher at work: the room in them, and what is alive."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.algebra.policy import Strategy
from ensue.columns.distinct import distinct
from ensue.engine.program import Program
from ensue.kernels import arena
from ensue.plan.physical import Automaton, Stacks
from ensue.source.kernel_inputs import (
    FREE,
    FREE_COUNT,
    INSTANCE_TOP,
    LIVE,
    META_SIZE,
    NODE_TOP,
    OUT_TOP,
    RUN_TOP,
)
from ensue.source.table_columns import Columns
from ensue.structures.compact import state as compact_state
from ensue.structures.compact.writer import CompactSource
from ensue.structures.runs.writer import RunsSource
from ensue.structures.tree.writer import TreeSource

Table = npt.NDArray[Any]

FIRST_ROOM = 1_024
YOUNG = 8  # first rooms up to which instances get more room before dead ones are looked for
SPARSE = 1 << 16  # rows from which on a table that is nearly empty is made smaller

# The tables of a kind, and where `meta` keeps how far they are used.
RUNS, NODES, INSTANCES = ("I", "F", "nxt"), ("N", "NF"), ("A", "AF")
TOPS = dict.fromkeys(RUNS, RUN_TOP) | dict.fromkeys(NODES, NODE_TOP)
TOPS |= dict.fromkeys(INSTANCES, INSTANCE_TOP)
BY_KEY = {
    "head": -1,
    "live": 0,
    "tops": -1,
    "counts": 0,
    "K": 0,
    "KF": 0,
    "L": 0,  # what repeats remember
    "LF": 0,
}  # with the value of a new key


class Arenas:
    """What a kernel reads and writes between events, as arrays by name."""

    def __init__(self, program: Program) -> None:
        self.tables: dict[str, Table] = {}
        self._adopt(program)
        self._shape()

    def _adopt(self, program: Program) -> None:
        self.program = program
        structure = program.plan.structure
        states = structure.states if isinstance(structure, Automaton) else ()
        self.has_pending = any(state.pending for state in states)
        absences = [a for s in states for a in (*s.absences, *s.pending)]
        if isinstance(structure, Automaton):
            absences += [a for edge in structure.edges for a in edge.absences]
        # every negation looks only behind an event of the run: what is older is of no use
        self.looks_behind_runs = bool(states) and all(a.after for a in absences)
        # pushed negations leave instances that only older RIPs lead to, or nothing at all
        self.empties_stacks = isinstance(structure, Stacks) and bool(structure.pushed)

    @property
    def meta(self) -> Table:
        return self.tables["meta"]

    @property
    def columns(self) -> list[tuple[str, str, Columns]]:
        """The tables with named columns: of whole numbers, of floats, and the names."""
        source = self.program.source
        found = [("A", "AF", source.instances.columns)]
        if isinstance(source, RunsSource):
            found.append(("I", "F", source.registers.runs))
            found.append(("N", "NF", source.registers.nodes))
        return found

    # ---------------------------------------------------------------------------- shape

    def _shape(self) -> None:
        source, tables = self.program.source, self.tables
        tables["meta"] = np.zeros(META_SIZE, np.int64)
        tables["meta"][FREE] = -1
        tables["counts"] = np.zeros(1, np.int64)
        for name in self.program.frame.tally.tables:
            tables[name] = np.zeros((max(1, len(self.program.frame.tally.labels)), 2), np.int64)
        tables["tops"] = np.full((1, max(1, len(source.instances.number))), -1, np.int32)
        tables["O"] = np.zeros((4 * FIRST_ROOM, max(1, len(source.output))), np.int64)
        for whole, real, columns in self.columns:
            wholes, reals = columns.widths()
            tables[whole] = np.zeros((FIRST_ROOM, wholes), np.int64)
            tables[real] = np.zeros((FIRST_ROOM, reals), np.float64)
        if isinstance(source, CompactSource):
            tables |= compact_state.tables(source, FIRST_ROOM)
        if isinstance(source, TreeSource) and source.memory.width:
            wholes, reals = source.memory.columns.widths()
            tables["L"], tables["LF"] = np.zeros((1, wholes), np.int64), np.zeros((1, reals))
        if isinstance(source, RunsSource):
            tables["head"] = np.full((1, self.program.lists), -1, np.int32)
            tables["live"] = np.zeros(1, np.int32)
            tables["nxt"] = np.full(FIRST_ROOM, -1, np.int32)

    def become(self, program: Program) -> None:
        """The same state for the same plan with marks of which values are there."""
        old = self.columns
        self._adopt(program)
        for (whole, real, before), (_, _, after) in zip(old, self.columns, strict=True):
            wholes, reals = after.widths()
            self._move(whole, wholes, before.wholes, after.wholes)
            self._move(real, reals, before.reals, after.reals)

    def _move(self, name: str, width: int, before: dict[str, int], after: dict[str, int]) -> None:
        table = self.tables[name]
        moved = np.zeros((len(table), width), table.dtype)
        for column, number in after.items():
            if column in before:
                moved[:, number] = table[:, before[column]]
            elif column.endswith("_ok"):
                moved[:, number] = 1
        self.tables[name] = moved

    # ---------------------------------------------------------------------------- room

    def grow(self, *names: str) -> None:
        for name in names:
            old = self.tables[name]
            self.resize(name, len(old), len(old) * 2)

    def resize(self, name: str, used: int, size: int) -> None:
        """Another size for a table that is used up to some row."""
        old = self.tables[name]
        new = np.zeros((size, *old.shape[1:]), old.dtype)
        new[:used] = old[:used]
        self.tables[name] = new

    def room_for_keys(self, count: int) -> None:
        size = len(self.tables["counts"])
        if count <= size:
            return
        new = max(count, size * 2)
        for name, value in BY_KEY.items():
            if name in self.tables:
                old = self.tables[name]
                grown = np.full((new, *old.shape[1:]), value, old.dtype)
                grown[: len(old)] = old
                self.tables[name] = grown

    @property
    def population(self) -> int:
        """How many runs, Kleene events and instances there are: each holds one key at most."""
        meta = self.meta
        remembered = len(self.tables["L"]) if "L" in self.tables else 0
        return int(meta[LIVE] + meta[NODE_TOP] + meta[INSTANCE_TOP]) + remembered

    @property
    def is_young(self) -> bool:
        """Whether there are so few instances that looking for dead ones costs more than room."""
        return len(self.tables["A"]) < YOUNG * FIRST_ROOM

    @property
    def is_sparse(self) -> bool:
        """Whether a table has become much too large for what it holds."""
        meta, tables = self.meta, self.tables
        kinds = [("A", meta[INSTANCE_TOP])]
        if "I" in tables:
            kinds += [("I", meta[LIVE]), ("N", meta[NODE_TOP])]
        return any(len(tables[name]) > max(SPARSE, 8 * used) for name, used in kinds)

    def pack(self) -> None:
        """Moves all that is alive together and lets the room go that a burst has left."""
        if isinstance(self.program.source, RunsSource):
            self._pack_runs()
            self.keep_nodes()
        for name in (*NODES, *INSTANCES):
            if name in self.tables:
                used = int(self.meta[TOPS[name]])
                size = max(FIRST_ROOM, 2 * used)
                if len(self.tables[name]) > size:
                    self.resize(name, used, size)

    def _pack_runs(self) -> None:
        tables, meta = self.tables, self.meta
        count = int(meta[LIVE])
        size = max(FIRST_ROOM, 2 * count)
        origin, following = np.empty(count, np.int64), np.full(size, -1, np.int32)
        arena.pack_runs(tables["head"], tables["nxt"], origin, following)
        tables["nxt"] = following
        for name in ("I", "F"):
            old = tables[name]
            tables[name] = np.zeros((size, old.shape[1]), old.dtype)
            tables[name][:count] = old[origin]
        meta[RUN_TOP], meta[FREE], meta[FREE_COUNT] = count, -1, 0

    # ---------------------------------------------------------------------------- time

    def sweep(self, now: float, *, flush: bool) -> None:
        """Drops runs that are out of time; those that only waited for it go to the output."""
        if self.program.frame.window is None or "head" not in self.tables:
            return
        tables, meta = self.tables, self.meta
        while self.has_pending and len(tables["O"]) < meta[OUT_TOP] + meta[LIVE]:
            self.grow("O")
        names = ["head", "live", "nxt", "I", "F", "counts", "O", "meta"]
        time = float(now) if self.program.frame.real_time else int(now)
        self.program.sweep(time, flush, *(tables[name] for name in names))

    def drop_broken(self, rows: int) -> None:
        """Drops the runs whose events are not adjacent any more, after so many events."""
        strategy, source = self.program.plan.query.strategy, self.program.source
        if not isinstance(source, RunsSource):
            return
        tables, meta = self.tables, self.meta
        match strategy:
            case Strategy.STRICT:
                name, newest = "last_row", np.full(len(tables["counts"]), rows - 1)
            case Strategy.PARTITION:
                name, newest = "last_index", tables["counts"]
            case _:
                return
        last = tables["I"][:, source.registers.runs.wholes[name]]
        meta[FREE], dropped = arena.drop_runs(
            tables["head"], tables["live"], tables["nxt"], last, newest, meta[FREE]
        )
        meta[FREE_COUNT] += dropped
        meta[LIVE] -= dropped

    def expire_instances(self, now: float | None) -> None:
        """Drops the instances that no event to come can reach."""
        if isinstance(self.program.source, CompactSource):
            compact_state.expire(self, now)
            return
        frame, tables, meta = self.program.frame, self.tables, self.meta
        top = int(meta[INSTANCE_TOP])
        if top == 0:
            return
        columns = self.program.source.instances.columns
        kept = tables["A"][:top]
        alive = np.ones(top, np.bool_)
        if frame.window is not None and frame.by_events:
            index = kept[:, columns.wholes["index"]]
            alive &= tables["counts"][kept[:, arena.KEY]] - index <= frame.window
        elif frame.window is not None and now is not None:
            # a joined result is as old as its first event
            name = "start" if isinstance(self.program.source, TreeSource) else "end"
            times = (
                tables["AF"][:top, columns.reals[name]]
                if frame.real_time
                else kept[:, columns.wholes[name]]
            )
            alive &= now - times <= frame.window
        if isinstance(self.program.source, TreeSource) and now is not None:
            alive &= self._inside_modules(kept, now)
        if self.looks_behind_runs:
            alive &= kept[:, arena.ROW] > self._oldest_rows()[kept[:, arena.KEY]]
        if self.empties_stacks:
            arena.drop_unreached(tables["A"], tables["tops"], alive)
        moved = np.empty(top, np.int64)
        meta[INSTANCE_TOP] = arena.keep_instances(
            tables["A"], tables["AF"], top, tables["tops"], self._links, alive, moved
        )

    def _inside_modules(self, kept: Table, now: float) -> Table:
        """Which entries of a tree may still be joined inside the modules they belong to (H4)."""
        source = self.program.source
        assert isinstance(source, TreeSource)
        records, alive = source.instances, np.ones(len(kept), np.bool_)
        if records.limits:
            columns = records.columns
            starts = (
                self.tables["AF"][: len(kept), columns.reals["start"]]
                if self.program.frame.real_time
                else kept[:, columns.wholes["start"]]
            )
            lists = kept[:, columns.wholes["list"]]
            for number, limit in records.limits.items():
                alive &= (lists != number) | (now - starts <= limit)
        return alive

    @property
    def _links(self) -> Table:
        """The places in an instance, beside the first, that lead to other instances."""
        source = self.program.source
        links = source.instances.links if isinstance(source, TreeSource) else [arena.RIP]
        return np.array(links, np.int64)

    @property
    def kleene_events(self) -> tuple[Table, int, int]:
        """Where the events of Kleene variables are: the table, its places of links and of rows."""
        source = self.program.source
        if isinstance(source, TreeSource):
            return self.tables["A"], source.instances.columns.wholes["back"], arena.ROW
        return self.tables["N"], 0, 1

    def _oldest_rows(self) -> Table:
        """The oldest row that the runs of each key hold; no row is as high without a run."""
        tables = self.tables
        oldest = np.full(len(tables["counts"]), np.iinfo(np.int64).max)
        arena.oldest_rows(
            tables["head"],
            tables["nxt"],
            tables["I"],
            self._run_columns("row_"),
            self._run_columns("node_"),
            tables["N"],
            int(self.meta[NODE_TOP]),
            oldest,
        )
        return oldest

    def _run_columns(self, prefix: str) -> Table:
        source = self.program.source
        assert isinstance(source, RunsSource)
        wholes = source.registers.runs.wholes
        return np.array([c for n, c in wholes.items() if n.startswith(prefix)], np.int64)

    # ---------------------------------------------------------------------------- what is alive

    def keep_nodes(self) -> None:
        """Drops the Kleene events that no run holds."""
        tables, top = self.tables, int(self.meta[NODE_TOP])
        self.meta[NODE_TOP] = arena.keep_nodes(
            tables["N"],
            tables["NF"],
            top,
            tables["head"],
            tables["nxt"],
            tables["I"],
            self._run_columns("node_"),
            np.empty(top, np.int64),
        )

    def live_runs(self, *, waiting: bool = False) -> Table:
        """The numbers of the live runs, or of those that wait for time to pass."""
        tables = self.tables
        runs = np.empty(int(self.meta[LIVE]), np.int64)
        first, step = (1, 2) if waiting else (0, 1)
        return runs[: arena.live_runs(tables["head"], tables["nxt"], first, step, runs)]

    def held_rows(self) -> npt.NDArray[np.int64]:
        """The rows of the stream that a later match may still contain, ascending."""
        tables, meta = self.tables, self.meta
        source = self.program.source
        if isinstance(source, CompactSource):
            return compact_state.held_rows(self)
        if not isinstance(source, RunsSource):
            places = source.instances.rows if isinstance(source, TreeSource) else [arena.ROW]
            rows = distinct(tables["A"][: int(meta[INSTANCE_TOP]), places])
            return rows[rows >= 0]
        self.keep_nodes()
        live = tables["I"][self.live_runs()]
        pieces = [live[:, column] for column in self._run_columns("row_")]
        pieces.append(tables["N"][: int(meta[NODE_TOP]), 1])
        rows = distinct(np.concatenate(pieces))
        return rows[rows >= 0]

    def saved_size(self, keys: int) -> int:
        """About how many bytes are saved, with so many keys."""
        meta, size = self.meta, self.meta.nbytes
        for name, table in self.tables.items():
            if name in RUNS:
                size += int(meta[LIVE]) * _row_bytes(table)
            elif name in TOPS:
                size += int(meta[TOPS[name]]) * _row_bytes(table)
            elif name in BY_KEY:
                size += max(1, keys) * _row_bytes(table)
        return size


def _row_bytes(table: Table) -> int:
    return table.itemsize * int(np.prod(table.shape[1:], dtype=np.int64))
