"""Lists of runs in their arena, by partition and state; and AFTER MATCH SKIP in the kernel."""

from collections.abc import Callable

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.codegen.names import HEADS
from ensue.codegen.state_layout import SourceWriter
from ensue.ir.query import Query
from ensue.ir.selection import MatchOrder, SkipTarget
from ensue.physical.nfa.slots import RunRegisters
from ensue.physical.structure import BEGAN, USED
from ensue.planner.physical_plan import Nfa, NfaState


class RunLists:
    """Writes how runs are visited, added and removed."""

    def __init__(self, registers: RunRegisters) -> None:
        self.registers = registers

    def list(self, state: NfaState, *, pending: bool = False) -> str:
        """The column of a state's list of runs; pending ones have a separate list."""
        return self.place(state, pending=pending)

    def place(self, state: NfaState, *, pending: bool = False) -> str:
        """The name of that column."""
        names, kind = self.registers.frame.names, "PENDING" if pending else "STATE"
        return names.number(f"{kind}_{state.number}", state.number * 2 + pending, HEADS)

    def walk(self, out: SourceWriter, place: str, visit: Callable[[], None], *, loops: bool) -> None:
        """Visits every run `r` of a list; `p` is the previous one, `nx` the next one.

        With `loops`, runs that return to the list meanwhile are added at the end.
        """
        out.note("every run r; p is the previous one in the list, nx the next one")
        out("p = -1", f"r = head[k, {place}]")
        if loops:
            out("added = -1", "added_last = -1")
        with out.block("while r >= 0:"):
            out("nx = nxt[r]")
            visit()
            out("r = nx")
        if loops:
            out.note("runs that return to the list")
            with out.block("if added >= 0:"):
                out(f"nxt[added_last] = head[k, {place}]", f"head[k, {place}] = added")

    def unlink(self, out: SourceWriter, place: str) -> None:
        """Removes the current run from its list."""
        out.note("remove it from its list")
        with out.block("if p < 0:"):
            out(f"head[k, {place}] = nx")
        with out.block("else:"):
            out("nxt[p] = nx")

    def remove(self, out: SourceWriter, place: str) -> None:
        """Removes the current run from its list, and frees its row."""
        self.unlink(out, place)
        self.release(out, "r")

    def release(self, out: SourceWriter, run: str) -> None:
        """Frees the row of a live run."""
        self.give_back(out, run)
        out("live[k] -= 1", "alive -= 1")

    def clear(self, out: SourceWriter, place: str) -> None:
        """Drops every run of a list."""
        out(f"r = head[k, {place}]")
        with out.block("while r >= 0:"):
            out("nx = nxt[r]")
            self.release(out, "r")
            out("r = nx")
        out(f"head[k, {place}] = -1")

    def give_back(self, out: SourceWriter, run: str) -> None:
        """Frees a row that was never counted as live."""
        out.note("its row is free")
        out(f"nxt[{run}] = free", f"free = {run}", "frees += 1")

    def push(self, out: SourceWriter, run: str, place: str) -> None:
        """Adds a run to the front of a list."""
        out(f"nxt[{run}] = head[k, {place}]", f"head[k, {place}] = {run}")
        out("live[k] += 1", "alive += 1")

    def allocate(self, out: SourceWriter, run: str) -> None:
        """Allocates a row for a run; the caller has made room."""
        out.note(f"a row for a new run {run}")
        with out.block("if free >= 0:"):
            out(f"{run} = free", f"free = nxt[{run}]", "frees -= 1")
        with out.block("else:"):
            out(f"{run} = rtop", "rtop += 1")

    def copy(self, out: SourceWriter, source: str, target: str) -> None:
        """Copies a run to a new row."""
        self.allocate(out, target)
        runs = self.registers.runs
        for (_, old), (_, new) in zip(runs.list_values(source), runs.list_values(target), strict=True):
            out(f"{new} = {old}")


class SkipWriter:
    """Writes AFTER MATCH SKIP: runs that began among used events are dropped."""

    def __init__(self, automaton: Nfa, registers: RunRegisters, *, weighs: bool) -> None:
        self.registers = registers
        self.to = _skip_in_kernel(registers.frame.plan.query, automaton) if weighs else None
        self.tables: tuple[str, ...] = () if self.to is None else (USED,)
        if self.to is not None:
            self.read_first_row("")

    def read_first_row(self, run: str) -> str:
        """The row of a run's first event."""
        return self.registers.runs.at(BEGAN, run)

    def too_late(self, run: str) -> list[str]:
        """When a run began among events that a match has used."""
        return [] if self.to is None else [f"{self.read_first_row(run)} < {USED}[k]"]

    def begin_event(self, out: SourceWriter) -> None:
        """Writes the code before runs process an event."""
        if self.to is not None:
            out(f"next_begin = {USED}[k]")
        if self.to is SkipTarget.PAST_LAST:
            out.note("matches of this event: their first output row, and the row they begin with")
            out("opened = otop", "oldest = row")

    def begin_run(self, out: SourceWriter, run: str) -> None:
        """A run begins with the current event."""
        if self.to is not None:
            out(f"{self.read_first_row(run)} = row")

    def may_end(self, run: str) -> list[str]:
        """When a match that ends with the current event may be emitted."""
        return [f"{self.read_first_row(run)} <= oldest"] if self.to is SkipTarget.PAST_LAST else []

    def write_skip(self, out: SourceWriter, run: str) -> None:
        """Writes the skip before a match that ends with the current event is emitted."""
        if self.to is SkipTarget.PAST_LAST:
            out.note("of all matches that end here, one of those that began first is emitted")
            with out.block(f"if {self.read_first_row(run)} < oldest:"):
                out(f"oldest = {self.read_first_row(run)}", "otop = opened")
            out("next_begin = row + 1")
        elif self.to is SkipTarget.NEXT_EVENT:
            out(f"next_begin = max(next_begin, {self.read_first_row(run)} + 1)")

    def end_event(self, out: SourceWriter) -> None:
        """Writes the code after all runs have processed an event."""
        if self.to is not None:
            out(f"{USED}[k] = next_begin")

    def may_begin(self) -> list[str]:
        """When a run may begin with an event that other runs have taken."""
        return ["next_begin <= row"] if self.to is SkipTarget.PAST_LAST else []


def _skip_in_kernel(query: Query, automaton: Nfa) -> SkipTarget | None:
    """The target of AFTER MATCH SKIP, if the kernel can evaluate it."""
    supported = (
        query.after is not None
        and query.after.order is MatchOrder.END
        and query.after.to in (SkipTarget.PAST_LAST, SkipTarget.NEXT_EVENT)
        and query.choose is None
        and not any(state.pending or state.lasting for state in automaton.states)
        and not any(iterate_interval_negations(query.pattern))
    )
    return query.after.to if supported and query.after is not None else None
