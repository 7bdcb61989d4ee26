"""A compiled matcher at work: feeds events to the kernel and keeps its arenas in shape."""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.compile.arrow_kinds import Unit
from ensue.compile.frame import (
    DONE,
    FREE,
    FREE_COUNT,
    INSTANCE_TOP,
    LIVE,
    META_SIZE,
    NEEDS_INSTANCES,
    NEEDS_NODES,
    NEEDS_OUTPUT,
    NEEDS_RUNS,
    NODE_TOP,
    OUT_TOP,
    POSITION,
    RUN_TOP,
)
from ensue.compile.keys import KeyCodes
from ensue.compile.layout import Columns
from ensue.compile.matches import Matches
from ensue.compile.program import Program
from ensue.compile.runs import RunsSource
from ensue.compile.scan import Scan
from ensue.compile.skipping import Skipping
from ensue.compile.state import packed, unpacked
from ensue.errors import StateError
from ensue.kernels import arena
from ensue.plan.physical import Automaton, Plan
from ensue.schema import Schema

Table = npt.NDArray[Any]

FIRST_ROOM = 1_024
MOST_OUTPUT = 1 << 18  # matches taken out at a time


class Engine:
    """The state of a query over a stream, and the kernel that moves it.

    Rows are numbered through the whole stream; matches are given as row numbers.
    """

    def __init__(self, plan: Plan, schema: Schema, unit: Unit, *, nullable: bool = False) -> None:
        self.program = Program(plan, schema, unit, nullable)
        self.scan = Scan(self.program)
        self.rows = 0  # events fed so far
        self.now: float | None = None  # the time of the last one
        self.skipping = None if plan.query.after is None else Skipping(plan.query)
        self.state: dict[str, Table] = {}
        self._pieces: list[Matches] = []
        self._shape_state()

    # ---------------------------------------------------------------------------- feeding

    def feed(self, events: pa.Table) -> Matches:
        """The matches that these events complete, or that they show to be complete."""
        if events.num_rows == 0:
            return joined([], self.program.source.output)
        scanned = self.scan(events)
        if scanned.has_nulls and not self.program.nullable:
            self._become_nullable()
        self._room_for_keys(max(1, len(self.scan.keys)))
        count = events.num_rows
        position, meta = 0, self.state["meta"]
        arrays = scanned.arrays(self.program.nullable)
        asked = (DONE, 0)
        while True:
            code = self._step(position, count, arrays)
            position = int(meta[POSITION])
            if code == DONE:
                break
            # asked for the same twice: what was made free is too little for this event
            self._make_room(code, scanned.ends[position], again=asked == (code, position))
            asked = (code, position)
        self._drain()
        self.rows += count
        self.now = scanned.ends[-1].item()
        return self._delivered(arrays[1], self.rows - count)

    def advance(self, now: float) -> Matches:
        """Lets time pass: what only waited for it is delivered."""
        return self._swept(now, flush=False)

    def finish(self) -> Matches:
        """The stream is over: no more events come that could forbid anything."""
        return self._swept(0, flush=True)

    def _swept(self, now: float, *, flush: bool) -> Matches:
        if self._has_pending:
            self._sweep(now, flush)
            self._drain()
        return self._delivered(np.zeros(0, np.int32), self.rows)

    @property
    def _has_pending(self) -> bool:
        structure = self.program.plan.structure
        return isinstance(structure, Automaton) and any(s.pending for s in structure.states)

    def _step(self, position: int, count: int, arrays: list[Table]) -> int:
        state = self.state
        names = [*self.program.state_names, "O", "meta"]
        given = self.program.step(
            position, count, self.rows, *arrays, *(state[name] for name in names)
        )
        if isinstance(self.program.source, RunsSource):
            return int(given)
        code, state["O"] = given
        return int(code)

    # ---------------------------------------------------------------------------- room

    def _make_room(self, code: int, now: float, *, again: bool) -> None:
        meta = self.state["meta"]
        match code:
            case _ if code == NEEDS_OUTPUT:
                crowded = meta[OUT_TOP] * 2 < len(self.state["O"])  # one event needs more room
                self._drain()
                if crowded or len(self.state["O"]) < MOST_OUTPUT:
                    self._grow("O")
            case _ if code == NEEDS_RUNS:
                self._sweep(now, flush=False)
                free = meta[FREE_COUNT] + len(self.state["I"]) - meta[RUN_TOP]
                if again or free * 2 < len(self.state["I"]):
                    self._grow("I", "F", "nxt")
            case _ if code == NEEDS_NODES:
                self._drain()
                self._keep_nodes()
                if again or meta[NODE_TOP] * 2 > len(self.state["N"]):
                    self._grow("N", "NF")
            case _ if code == NEEDS_INSTANCES:
                self._expire_instances(now)
                if again or meta[INSTANCE_TOP] * 2 > len(self.state["A"]):
                    self._grow("A", "AF")
            case _:
                raise AssertionError(f"unknown code {code} from a kernel")

    def _grow(self, *names: str) -> None:
        for name in names:
            old = self.state[name]
            new = np.zeros((len(old) * 2, *old.shape[1:]), old.dtype)
            new[: len(old)] = old
            self.state[name] = new

    def _sweep(self, now: float, flush: bool) -> None:
        if self.program.frame.window is None:
            return
        state, meta = self.state, self.state["meta"]
        while len(state["O"]) < meta[OUT_TOP] + meta[LIVE]:
            self._grow("O")
        names = ["head", "live", "nxt", "I", "F", "counts", "O", "meta"]
        time = float(now) if self.program.frame.real_time else int(now)
        self.program.sweep(time, flush, *(state[name] for name in names))

    def _keep_nodes(self) -> None:
        source, state = self.program.source, self.state
        assert isinstance(source, RunsSource)
        top = int(state["meta"][NODE_TOP])
        columns = [c for n, c in source.registers.runs.wholes.items() if n.startswith("node_")]
        state["meta"][NODE_TOP] = arena.keep_nodes(
            state["N"],
            state["NF"],
            top,
            state["head"],
            state["nxt"],
            state["I"],
            np.array(columns, np.int64),
            np.empty(top, np.int64),
        )

    def _expire_instances(self, now: float) -> None:
        frame, state = self.program.frame, self.state
        top = int(state["meta"][INSTANCE_TOP])
        if frame.window is None or top == 0:
            return
        columns = self.program.source.instances.columns
        kept = state["A"][:top]
        if frame.by_events:
            age = state["counts"][kept[:, arena.KEY]] - kept[:, columns.wholes["index"]]
        elif frame.real_time:
            age = now - state["AF"][:top, columns.reals["end"]]
        else:
            age = now - kept[:, columns.wholes["end"]]
        state["meta"][INSTANCE_TOP] = arena.keep_instances(
            state["A"],
            state["AF"],
            top,
            state["tops"],
            age <= frame.window,
            np.empty(top, np.int64),
        )

    def _room_for_keys(self, count: int) -> None:
        size = len(self.state["counts"])
        if count <= size:
            return
        new = max(count, size * 2)
        for name, value in (("head", -1), ("live", 0), ("tops", -1), ("counts", 0)):
            if name in self.state:
                old = self.state[name]
                grown = np.full((new, *old.shape[1:]), value, old.dtype)
                grown[: len(old)] = old
                self.state[name] = grown

    # ---------------------------------------------------------------------------- output

    def _drain(self) -> None:
        """Takes the matches out of the kernel's output table."""
        state, source = self.state, self.program.source
        count = int(state["meta"][OUT_TOP])
        if count == 0:
            return
        output = state["O"][:count]
        rows: dict[str, Table] = {}
        lists: dict[str, tuple[Table, Table]] = {}
        place = {name: number for number, name in enumerate(source.output)}
        for name, number in place.items():
            kind, variable = name.split("_", 1)
            if kind == "row":
                rows[variable] = output[:, number].copy()
            elif kind == "node":
                counts = output[:, place[f"count_{variable}"]].copy()
                offsets = np.zeros(count + 1, np.int64)
                np.cumsum(counts, out=offsets[1:])
                values = np.empty(offsets[-1], np.int64)
                heads = output[:, number].copy()
                arena.lists_of(state["N"], heads, counts, offsets, values)
                lists[variable] = (offsets, values)
        state["meta"][OUT_TOP] = 0
        self._pieces.append(Matches(rows, lists, count))

    def _delivered(self, keys: Table, base: int) -> Matches:
        pieces, self._pieces = self._pieces, []
        found = joined(pieces, self.program.source.output)
        if self.skipping is None or found.count == 0:
            return found
        return self.skipping(found, keys, base)

    # ---------------------------------------------------------------------------- shape

    def _shape_state(self) -> None:
        source = self.program.source
        state = self.state
        state["meta"] = np.zeros(META_SIZE, np.int64)
        state["meta"][FREE] = -1
        state["counts"] = np.zeros(1, np.int64)
        state["tops"] = np.full((1, max(1, len(source.instances.number))), -1, np.int32)
        state["O"] = np.zeros((4 * FIRST_ROOM, max(1, len(source.output))), np.int64)
        self._tables("A", "AF", source.instances.columns)
        if isinstance(source, RunsSource):
            state["head"] = np.full((1, self.program.lists), -1, np.int32)
            state["live"] = np.zeros(1, np.int32)
            state["nxt"] = np.full(FIRST_ROOM, -1, np.int32)
            self._tables("I", "F", source.registers.runs)
            self._tables("N", "NF", source.registers.nodes)

    def _tables(self, whole: str, real: str, columns: Columns) -> None:
        wholes, reals = columns.widths()
        self.state[whole] = np.zeros((FIRST_ROOM, wholes), np.int64)
        self.state[real] = np.zeros((FIRST_ROOM, reals), np.float64)

    def _become_nullable(self) -> None:
        """From here on events may lack values: the same state with marks of what is there."""
        old = self.program
        self.program = Program(old.plan, old.schema, old.unit, nullable=True)
        self.scan.program = self.program
        new_source, old_source = self.program.source, old.source
        self._move("A", "AF", old_source.instances.columns, new_source.instances.columns)
        if isinstance(new_source, RunsSource) and isinstance(old_source, RunsSource):
            self._move("I", "F", old_source.registers.runs, new_source.registers.runs)
            self._move("N", "NF", old_source.registers.nodes, new_source.registers.nodes)

    def _move(self, whole: str, real: str, old: Columns, new: Columns) -> None:
        wholes, reals = new.widths()
        for name, width, before, after in (
            (whole, wholes, old.wholes, new.wholes),
            (real, reals, old.reals, new.reals),
        ):
            table = self.state[name]
            moved = np.zeros((len(table), width), table.dtype)
            for column, number in after.items():
                if column in before:
                    moved[:, number] = table[:, before[column]]
                elif column.endswith("_ok"):
                    moved[:, number] = 1
            self.state[name] = moved

    # ---------------------------------------------------------------------------- saving

    def save(self) -> bytes:
        """The state as bytes: what is alive, and nothing of the room around it."""
        meta = self.state["meta"]
        tops = {
            "I": RUN_TOP, "F": RUN_TOP, "nxt": RUN_TOP, "N": NODE_TOP, "NF": NODE_TOP,
            "A": INSTANCE_TOP, "AF": INSTANCE_TOP,
        }  # fmt: skip
        arrays = {
            name: table[: int(meta[tops[name]])] if name in tops else table
            for name, table in self.state.items()
            if name != "O"
        }
        if self.skipping is not None:
            arrays["earliest"] = self.skipping.earliest
        header = {
            "query": self._fingerprint(),
            "nullable": self.program.nullable,
            "rows": self.rows,
            "now": self.now,
            "seen": self.scan.seen,
            "columns": {n: list(c) for n, c in self._column_names().items()},
        }
        blobs = {"keys": self.scan.keys.save(), "strings": self.scan.strings.save()}
        return packed(header, arrays, blobs)

    def restore(self, data: bytes) -> None:
        """Goes on where the matcher that saved this state stopped."""
        header, arrays, blobs = unpacked(data)
        if header["query"] != self._fingerprint():
            raise StateError(
                "the state belongs to another query, or to events of another shape\n"
                "  hint: restore it with the same query text and columns"
            )
        if header["nullable"] and not self.program.nullable:
            old = self.program
            self.program = Program(old.plan, old.schema, old.unit, nullable=True)
            self.scan = Scan(self.program)
        self._shape_state()
        for name, columns in self._column_names().items():
            saved = list(header["columns"][name])
            if set(saved) != set(columns):
                raise StateError(
                    "the state was saved by a release that keeps other things\n"
                    "  hint: restore it with that release, or start from an empty state"
                )
            table = arrays[name]
            if columns:
                arrays[name] = table[:, [saved.index(c) for c in columns]]
        self.rows, self.now = int(header["rows"]), header["now"]
        self.scan.seen = int(header["seen"])
        self.scan.keys = KeyCodes.restore(blobs["keys"])
        self.scan.strings = KeyCodes.restore(blobs["strings"])
        if self.skipping is not None:
            self.skipping.earliest = arrays.pop("earliest")
        for name, table in arrays.items():
            fresh = self.state[name]
            if name in ("meta", "counts", "head", "live", "tops"):
                self.state[name] = np.ascontiguousarray(table)
                continue
            room = np.zeros((max(len(fresh), len(table) * 2), *fresh.shape[1:]), fresh.dtype)
            room[: len(table)] = table
            self.state[name] = room

    def _fingerprint(self) -> str:
        plan = self.program.plan
        kinds = sorted(
            (name, kind.value) for name, kind in (self.program.schema.common or {}).items()
        )
        shown = f"{plan.query!r} {type(plan.structure).__name__} {kinds} {self.program.unit}"
        return hashlib.sha256(shown.encode()).hexdigest()

    def _column_names(self) -> dict[str, list[str]]:
        source = self.program.source
        tables = [("A", "AF", source.instances.columns)]
        if isinstance(source, RunsSource):
            tables += [
                ("I", "F", source.registers.runs),
                ("N", "NF", source.registers.nodes),
            ]
        found: dict[str, list[str]] = {}
        for whole, real, columns in tables:
            found[whole], found[real] = list(columns.wholes), list(columns.reals)
        return found

    # ---------------------------------------------------------------------------- what is alive

    def held_rows(self) -> npt.NDArray[np.int64]:
        """The rows of the stream that a later match may still contain, ascending."""
        state, source = self.state, self.program.source
        if self.now is not None:
            self._expire_instances(self.now)
        top = int(state["meta"][INSTANCE_TOP])
        if not isinstance(source, RunsSource):
            return np.unique(state["A"][:top, arena.ROW])
        self._keep_nodes()
        runs = np.empty(int(state["meta"][LIVE]), np.int64)
        count = arena.live_runs(state["head"], state["nxt"], runs)
        live = state["I"][runs[:count]]
        columns = source.registers.runs.wholes
        pieces = [live[:, c] for n, c in columns.items() if n.startswith("row_")]
        pieces.append(state["N"][: int(state["meta"][NODE_TOP]), 1])
        rows = np.unique(np.concatenate(pieces))
        return rows[rows >= 0]

    @property
    def partial_matches(self) -> int:
        """Runs that are alive, or instances in stacks."""
        meta = self.state["meta"]
        runs = isinstance(self.program.source, RunsSource)
        return int(meta[LIVE] if runs else meta[INSTANCE_TOP])


def joined(pieces: list[Matches], output: tuple[str, ...]) -> Matches:
    """Several deliveries as one."""
    if len(pieces) == 1:
        return pieces[0]
    rows: dict[str, Table] = {}
    lists: dict[str, tuple[Table, Table]] = {}
    for name in output:
        kind, variable = name.split("_", 1)
        if kind == "row":
            parts = [p.rows[variable] for p in pieces]
            rows[variable] = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        elif kind == "node":
            values = [p.lists[variable][1] for p in pieces]
            offsets = [np.zeros(1, np.int64)]
            shift = 0
            for piece in pieces:
                offsets.append(piece.lists[variable][0][1:] + shift)
                shift += len(piece.lists[variable][1])
            lists[variable] = (
                np.concatenate(offsets),
                np.concatenate(values) if values else np.zeros(0, np.int64),
            )
    return Matches(rows, lists, sum(p.count for p in pieces))
