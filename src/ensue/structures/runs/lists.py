"""Runs in their arena: lists by partition and state, free places, copies."""

from collections.abc import Callable

from ensue.plan.physical import State
from ensue.source.names import HEADS
from ensue.source.table_columns import Source
from ensue.structures.runs.registers import Registers


class RunLists:
    """Writes how runs are found, added and removed."""

    def __init__(self, registers: Registers) -> None:
        self.registers = registers

    def list(self, state: State, *, pending: bool = False) -> str:
        """Where a state's list of runs is; pending ones are kept apart."""
        return self.place(state, pending=pending)

    def place(self, state: State, *, pending: bool = False) -> str:
        """The name of that place."""
        names, kind = self.registers.frame.names, "PENDING" if pending else "STATE"
        return names.number(f"{kind}_{state.number}", state.number * 2 + pending, HEADS)

    def walk(self, out: Source, place: str, visit: Callable[[], None], *, loops: bool) -> None:
        """Visits every run `r` of a list; `p` is the one before it, `nx` the one behind it.

        With `loops`, runs that come back to the list meanwhile are added when it is through.
        """
        out.note("every run r; p is the one before it in the list, nx the one behind it")
        out("p = -1", f"r = head[k, {place}]")
        if loops:
            out("added = -1", "added_last = -1")
        with out.block("while r >= 0:"):
            out("nx = nxt[r]")
            visit()
            out("r = nx")
        if loops:
            out.note("those that come back to the list")
            with out.block("if added >= 0:"):
                out(f"nxt[added_last] = head[k, {place}]", f"head[k, {place}] = added")

    def unlink(self, out: Source, place: str) -> None:
        """Takes the run at hand out of its list."""
        out.note("out of its list")
        with out.block("if p < 0:"):
            out(f"head[k, {place}] = nx")
        with out.block("else:"):
            out("nxt[p] = nx")

    def release(self, out: Source, run: str) -> None:
        """Gives a live run's place free."""
        self.give_back(out, run)
        out("live[k] -= 1", "alive -= 1")

    def clear(self, out: Source, place: str) -> None:
        """Drops every run of a list."""
        out(f"r = head[k, {place}]")
        with out.block("while r >= 0:"):
            out("nx = nxt[r]")
            self.release(out, "r")
            out("r = nx")
        out(f"head[k, {place}] = -1")

    def give_back(self, out: Source, run: str) -> None:
        """Gives a place free that was never counted as live."""
        out.note("its place is free")
        out(f"nxt[{run}] = free", f"free = {run}", "frees += 1")

    def push(self, out: Source, run: str, place: str) -> None:
        """Puts a run in front of a list."""
        out(f"nxt[{run}] = head[k, {place}]", f"head[k, {place}] = {run}")
        out("live[k] += 1", "alive += 1")

    def allocate(self, out: Source, run: str) -> None:
        """Finds a place for a run. Room has been made."""
        out.note(f"a place for a new run {run}")
        with out.block("if free >= 0:"):
            out(f"{run} = free", f"free = nxt[{run}]", "frees -= 1")
        with out.block("else:"):
            out(f"{run} = rtop", "rtop += 1")

    def copy(self, out: Source, source: str, target: str) -> None:
        """All that a run remembers."""
        runs = self.registers.runs
        for (_, old), (_, new) in zip(runs.each(source), runs.each(target), strict=True):
            out(f"{new} = {old}")
