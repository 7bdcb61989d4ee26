"""Table-driven NFA kernels: states and edges are rows of tables, for large automata.

The code of equal edges is written once: AND of n events has 2^n states and n kinds of edges. The
kernel does the same as the one with code per state, in the same order, on the same state. The
table lookups make it somewhat slower, and its text stays short.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import TypeVar

from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.kernel_text import SharedCases
from ensue.codegen.state_layout import SourceWriter, get_output_column
from ensue.physical.nfa.nfa_state import RunsKernel, RunsState
from ensue.physical.nfa.nfa_writer import RunsWriter
from ensue.physical.nfa.slots import RunLists, RunRegisters
from ensue.physical.structure import Structure
from ensue.planner.nfa import should_share_code
from ensue.planner.physical_plan import Nfa, NfaEdge, NfaState
from ensue.planner.predicate_order import format_state_place

T = TypeVar("T", NfaState, NfaEdge)
_EITHER = re.compile(r"\(takes & (\d+) != 0\) or \(takes & (\d+) != 0\)")

MEANINGS = {
    "ROLES": "of each state: the roles of events that its runs may take",
    "WAITED": "of each state: the roles that discard the matches which wait there",
    "BARRED": "of each state: the roles that discard its runs",
    "EDGES": "of each state: its first edge",
    "TARGETS": "of each edge: its target state",
    "ENDS": "of each state: whether it has no edges",
    "COMPLETES": "of each state: whether a run is a match there, and nothing else",
    "BACK": "the states that edges lead back to",
    "STATE_ROWS": "of each state: its row of T",
    "LATE": "of each state: when its runs have expired",
    "GUARDS": "of each edge: its guard",
    "OVERS": "of each state: the treatment of an expired run",
    "WAYS": "of each state: along which edges a run moves, and whether it also keeps waiting",
    "TAKES": "of each edge: the register updates of the run",
    "LAST": "of each edge: the columns of the match",
    "ACCEPTS": "of each state: the treatment of a run that ends there",
    "PUSHES": "of each state: how a run enters it",
    "WAITS": "of each state: the effect of an event on the matches that wait there",
}


class TableDrivenWriter(RunsWriter):
    """Writes the kernel of an automaton; equal edges share their code."""

    weighs = False  # a match is written before its last event is added to it

    def __init__(self, frame: KernelContext) -> None:
        super().__init__(frame)
        self.lists: _Lists = _Lists(self.registers)
        self.guards.one_window = True
        self.tables: dict[str, Sequence[int | str]] = {}

    def _write_tables(self, used: set[str]) -> Iterator[str]:
        """The used tables."""
        for name, numbers in self.tables.items():
            if name in used:
                comment = f"# {MEANINGS.get(name, 'their rows of T')}\n"
                text = f"{name} = np.array([{', '.join(map(str, numbers))}])"
                yield (comment if self.frame.names.readable else "") + text

    def _begin(self, out: SourceWriter) -> None:
        if self._list_return_states():
            out.note("runs that return to a state which processes the event later")
            out(f"back = np.full({len(self.automaton.states)}, -1)")

    def _event(self, out: SourceWriter) -> None:
        self.instances.push_nested(out)
        self._tabulate()
        out.note("", "the states, from the last to the first; 0: the event begins a run")
        out(f"state = {len(self.automaton.states) - 1}")
        with out.block("while state >= 0:"):
            if self._pending():
                with out.block("if roles & WAITED[state]:"):
                    self._cases("WAITS", "state", self.automaton.states, self._wait).write(out)
            if self._list_return_states():
                with out.block("if state == 0:"):
                    self._push_back(out)
            with out.block("if roles & ROLES[state]:"):
                with out.block("if state == 0:"):
                    self._nothing_yet(out)
                place = self.lists.list(self.automaton.states[0])
                self.lists.walk(out, place, lambda: self._move(out), loops=True)
            if any(state.barred for state in self.automaton.states):
                with out.block("if roles & BARRED[state]:"):
                    self.lists.clear(out, self.lists.list(self.automaton.states[0]))
            out("state -= 1")
        self._keep_negatives(out)

    def _tabulate(self) -> None:
        """Fills the tables of states and edges."""
        role, masks = self.frame.role, self.frame.any_role
        states = [(state, self.automaton.list_outgoing(state.number)) for state in self.automaton.states]
        edges = [edge for _, out_of in states for edge in out_of]
        firsts = accumulate((len(out_of) for _, out_of in states), initial=0)
        self.tables = {
            "ROLES": [self._relevant_roles(s) or "0" for s, _ in states],
            "WAITED": [masks(role(a.variable) for a in s.pending) or "0" for s, _ in states],
            "BARRED": [masks(map(role, s.barred)) or "0" for s, _ in states],
            "EDGES": [*firsts],
            "TARGETS": [edge.target for edge in edges],
            "ENDS": [int(not out) for _, out in states],
            "COMPLETES": [int(self._completes(s)) for s, _ in states],
            "BACK": [state.number for state in self._list_return_states()],
        }
        if self.tally.on:
            labels = [(format_state_place(s.number), "") for s, _ in states]
            for label in labels:
                self.tally.count_try(*label)
            self.tables["STATE_ROWS"] = [self.tally.labels[label] for label in labels]

    def _push_back(self, out: SourceWriter) -> None:
        """Writes how runs enter the states that they returned to."""
        out.note("runs that returned to their states")
        with out.block("for target in BACK:"), out.block("while back[target] >= 0:"):
            out("q = back[target]", "back[target] = nxt[q]")
            with self.lists.use_state("target"):
                self._pushes().write(out)

    def _nothing_yet(self, out: SourceWriter) -> None:
        """Adds a run without events to the list of state 0, for this event only."""
        out.note("a run without events")
        self.lists.allocate(out, "q")
        self.registers.begin(out, "q")
        # there is no gap between it and the event
        for name, now in (("last_row", "row"), ("last_index", "idx")):
            if self.registers.runs.has(name):
                out(f"{self.registers.runs.at(name, 'q')} = {now} - 1")
        self.lists.push(out, "q", self.lists.list(self.automaton.states[0]))

    def _cases(
        self, table: str, place: str, all_: Sequence[T], write: Callable[[SourceWriter, T], None]
    ) -> SharedCases:
        """Writes the code for each state or edge, equal pieces once."""
        cases = SharedCases(self.frame, table, place)
        for item in all_:
            cases.add(write, item)
        self.tables |= cases.tables()
        return cases

    def _move(self, out: SourceWriter) -> None:
        """Processes the event for the run `r`."""
        place, states = self.lists.list(self.automaton.states[0]), self.automaton.states
        if any(map(self._late_when, states)):
            self._cases("LATE", "state", states, self._write_late).write(out)
            with out.block("if late:"):
                over = lambda into, state: self._over(into, state, "r")
                self._cases("OVERS", "state", states, over).write(out)
                self.lists.remove(out, place)
                out("r = nx", "continue")
        if self.tally.on:
            with out.block("if state > 0:"):
                out("T[STATE_ROWS[state], TRIED] += 1")
        out.note("takes: a bit for each edge of the state that the event can take")
        out("takes = 0", "edge = EDGES[state]", "stop_edge = EDGES[state + 1]")
        with out.block("while edge < stop_edge:"):
            self._cases("GUARDS", "edge", self._edges(), self._guard).write(out)
            with out.block("if taken:"):
                out("takes |= 1 << (edge - EDGES[state])")
            out("edge += 1")
        out.note("follows: the edges that the run takes; does it also keep waiting?")
        closing = self._closing()
        self._cases("WAYS", "state", states, self._choose).write(out)
        with out.block("if stay:"):
            out("p = r")
        with out.block("else:"):
            self.lists.unlink(out, place)
        out("spare = not stay", "edge = EDGES[state]")
        with out.block("while follows != 0:"):
            with out.block("if follows & 1 != 0:"):
                self._follow_edge(out)
            out("follows >>= 1", "edge += 1")
        if closing:
            out.note("edges that are closed to it from now on")
            with out.block("if stay:"):
                out(f"{self.registers.get_closed_edges('r')} |= closed")
        with out.block("if spare:"):
            self.lists.release(out, "r")

    def _edges(self) -> tuple[NfaEdge, ...]:
        return tuple(e for s in self.automaton.states for e in self.automaton.list_outgoing(s.number))

    def _write_late(self, out: SourceWriter, state: NfaState) -> None:
        out(f"late = {' or '.join(self._late_when(state)) or 'False'}")

    def _late_when(self, state: NfaState) -> list[str]:
        """When a run has expired; there is no gap before a first event."""
        if state.number == 0 and self.automaton.loops:
            return []
        return self._write_stale_tests(state) if self.automaton.list_outgoing(state.number) else []

    def _guard(self, out: SourceWriter, edge: NfaEdge) -> None:
        if edge.source:
            self.guards.guard(out, edge, "taken")
            return
        checks = tuple(check for check in edge.checks if not check.each)
        self.guards.guard(out, replace(edge, absences=(), checks=checks), "taken")
        if tests := [*self._begins(edge)[1:], *self._write_preference_tests(edge)]:
            with out.block("if taken:"):
                out(f"taken = {' and '.join(tests)}")

    def _choose(self, out: SourceWriter, state: NfaState) -> None:
        """Writes which edges the run takes, whether it stays, and which edges are closed then."""
        edges, closed = self.automaton.list_outgoing(state.number), None
        if state.number and edges and self.automaton.loops:
            body = self.frame.source()
            judged = self.gaps.judge(body, state, self._flags(edges))
            stay, closed = judged.stay, judged.closed
            pairs = zip(judged.goes, self._flags(edges), strict=True)
            plain = {f"{goes} = {flag}" for goes, flag in pairs}
            if not state.lasting and plain.issuperset(body.lines):
                follows = "takes"
            else:
                out(*map(_merge_tests, body.lines))
                self._ends_here(out, state, judged)
                moves = [f"({1 << n} if {goes} else 0)" for n, goes in enumerate(judged.goes)]
                follows = " | ".join(moves)
        else:
            follows = "takes"
            stay = self._write_stay_test(state, edges) if state.number and edges else "False"
        out(f"follows = {follows}", f"stay = {_merge_tests(stay)}")
        if self._closing():
            out(f"closed = {_merge_tests(closed or '0')}")

    def _closing(self) -> bool:
        """Whether edges may be closed to runs that keep waiting."""
        return self.automaton.loops and self.registers.runs.has("passed")

    def _flags(self, edges: tuple[NfaEdge, ...]) -> list[str]:
        return [f"(takes & {1 << number} != 0)" for number in range(len(edges))]

    def _follow_edge(self, out: SourceWriter) -> None:
        """Takes the event into a match, or into a run."""
        out("target = TARGETS[edge]")
        if any(self.tables["COMPLETES"]):
            with out.block("if COMPLETES[target] != 0:"):
                self.emit(out, "r", None)
                self._cases("LAST", "edge", self._edges(), self._emit_last).write(out)
            with out.block("else:"):
                self._move_along(out)
        else:
            self._move_along(out)

    def _emit_last(self, out: SourceWriter, edge: NfaEdge) -> None:
        """Adds the current event, which is not in the run, to the match just written."""
        variable, names = edge.variable, self.frame.names
        if not self._completes(self.automaton.states[edge.target]):
            return
        if variable in self.registers.kleene:
            self._new_node(out, variable, "r")
            node, count = (get_output_column(names, self.output, f"{kind}_{variable}") for kind in ("node", "count"))
            out(f"O[otop - 1, {node}] = ntop - 1", f"O[otop - 1, {count}] += 1")
        else:
            out(f"O[otop - 1, {get_output_column(names, self.output, f'row_{variable}')}] = row")

    def _move_along(self, out: SourceWriter) -> None:
        """Takes the event into a copy of the run, or into the run itself if it is not needed."""
        with out.block("if spare and follows == 1:"):
            out("q = r", "spare = False", "live[k] -= 1", "alive -= 1")
        with out.block("else:"):
            self.lists.copy(out, "r", "q")
        take = lambda into, edge: self.registers.take(into, edge.variable, "q")
        self._cases("TAKES", "edge", self._edges(), take).write(out)
        states = self.automaton.states
        with self.lists.use_state("target"):
            self._cases("ACCEPTS", "target", states, self._accept_if_final).write(out)
            pushes = self._pushes()
        with out.block("if ENDS[target] != 0:"):
            self.lists.give_back(out, "q")
        with out.block("else:"):
            if self.tally.on:
                out("T[STATE_ROWS[target], PASSED] += 1")
            with out.block("if target == state:"):
                self._add_to_loop(out)
            if self._list_return_states():
                with out.block("elif target < state:"):
                    out("nxt[q] = back[target]", "back[target] = q")
            with out.block("else:"):
                pushes.write(out)

    def _accept_if_final(self, out: SourceWriter, state: NfaState) -> None:
        if state.accepting and not state.lasting:
            self._accept(out, state)

    def _pushes(self) -> SharedCases:
        return self._cases("PUSHES", "target", self.automaton.states, lambda out, s: self._push(out, "q", s))

    def _wait(self, out: SourceWriter, state: NfaState) -> None:
        if state.pending:
            self.waiting.visit(out, state)


class _Lists(RunLists):
    """The lists of a state whose number is known at run time."""

    def __init__(self, registers: RunRegisters) -> None:
        super().__init__(registers)
        self._state = "state"

    def list(self, state: NfaState, *, pending: bool = False) -> str:  # noqa: ARG002
        return f"2 * {self._state} + 1" if pending else f"2 * {self._state}"

    @contextmanager
    def use_state(self, name: str) -> Iterator[None]:
        """In this context, the lists are those of another state."""
        self._state = name
        yield
        self._state = "state"


def _merge_tests(text: str) -> str:
    """Merges the tests of several edges into one.

    >>> _merge_tests("not ((takes & 1 != 0) or (takes & 2 != 0) or late)")
    'not ((takes & 3 != 0) or late)'
    """
    while (either := _EITHER.search(text)) is not None:
        bits = int(either[1]) | int(either[2])
        text = f"{text[: either.start()]}(takes & {bits} != 0){text[either.end() :]}"
    return text


def write_runs_kernel(frame: KernelContext) -> RunsKernel:
    """Writes the kernel of an automaton, with code per edge or with tables."""
    structure = frame.plan.structure
    assert isinstance(structure, Nfa)
    shared = should_share_code(structure, frame.plan.query.strategy)
    return (TableDrivenWriter if shared else RunsWriter)(frame).write()


RUNS = Structure(write_runs_kernel, RunsState)
