"""Writes a runs kernel whose states and edges are rows of tables, for automata with many of them.

What edges test and do is written once for all that are alike: AND of n events has 2^n states and
n sorts of edges. It does what the kernel with code for each state does, in the same order, on the
same state. A look into a table for each step makes it somewhat slower, and its text stays short.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import TypeVar

from ensue.plan.physical import Edge, State
from ensue.plan.physical_rules.ordering import state_place
from ensue.source.cases import Cases
from ensue.source.counting import place_label
from ensue.source.kernel_inputs import Frame
from ensue.source.table_columns import Source, output_column
from ensue.structures.runs.lists import RunLists
from ensue.structures.runs.registers import Registers
from ensue.structures.runs.writer import RunsWriter

T = TypeVar("T", State, Edge)
_EITHER = re.compile(r"\(takes & (\d+) != 0\) or \(takes & (\d+) != 0\)")

MEANINGS = {
    "ROLES": "of each state: the roles of events that its runs may take",
    "WAITED": "of each state: the roles that matches which wait there must not meet",
    "BARRED": "of each state: the roles that end its runs",
    "EDGES": "of each state: its first edge",
    "TARGETS": "of each edge: the state that it leads to",
    "ENDS": "of each state: whether nothing follows it",
    "COMPLETES": "of each state: whether a run is a match there, and nothing else",
    "BACK": "the states that edges lead back to",
    "STATE_ROWS": "of each state: its row of T",
    "LATE": "of each state: when it is too late for its runs",
    "GUARDS": "of each edge: what it asks for",
    "OVERS": "of each state: what is to be done with a run that is too late",
    "WAYS": "of each state: along which edges a run goes, and whether it also waits on",
    "TAKES": "of each edge: what its event is to the run",
    "LAST": "of each edge: what its event is to a match",
    "ACCEPTS": "of each state: what is to be done with a run that ends there",
    "PUSHES": "of each state: how a run gets there",
    "WAITS": "of each state: what an event does to the matches that wait there",
}


class SharedWriter(RunsWriter):
    """Writes the kernel of an automaton: alike edges have their code in common."""

    weighs = False  # a match is written before its last event is put into it

    def __init__(self, frame: Frame) -> None:
        super().__init__(frame)
        self.lists: _Lists = _Lists(self.registers)
        self.waiting.lists = self.lists
        self.guards.one_window = True
        self.tables: dict[str, Sequence[int | str]] = {}

    # ------------------------------------------------------------------------ the whole

    def _given(self, used: set[str]) -> Iterator[str]:
        """The tables in use."""
        for name, numbers in self.tables.items():
            if name in used:
                told = f"# {MEANINGS.get(name, 'where they count')}\n"
                text = f"{name} = np.array([{', '.join(map(str, numbers))}])"
                yield (told if self.frame.names.readable else "") + text

    def _begin(self, out: Source) -> None:
        if self._returning():
            out.note("runs that go back to a state which the event is still to be shown to")
            out(f"back = np.full({len(self.automaton.states)}, -1)")

    # ------------------------------------------------------------------------ one event

    def _event(self, out: Source) -> None:
        self.instances.push_complexes(out)
        self._tabulate()
        out.note("", "the states, from the last to the first; 0: the event begins a run")
        out(f"state = {len(self.automaton.states) - 1}")
        with out.block("while state >= 0:"):
            if self._pending():
                with out.block("if roles & WAITED[state]:"):
                    self._cases("WAITS", "state", self.automaton.states, self._wait).write(out)
            if self._returning():
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
        """The tables of states and edges."""
        role, masks = self.frame.role, self._any_role
        states = [(state, self.automaton.out_of(state.number)) for state in self.automaton.states]
        edges = [edge for _, out_of in states for edge in out_of]
        firsts = accumulate((len(out_of) for _, out_of in states), initial=0)
        self.tables = {
            "ROLES": [self._looked_at(s) or "0" for s, _ in states],
            "WAITED": [masks(role(a.variable) for a in s.pending) for s, _ in states],
            "BARRED": [masks(map(role, s.barred)) for s, _ in states],
            "EDGES": [*firsts],
            "TARGETS": [edge.target for edge in edges],
            "ENDS": [int(not out) for _, out in states],
            "COMPLETES": [int(self._completes(s)) for s, _ in states],
            "BACK": [state.number for state in self._returning()],
        }
        if self.tally.on:
            for state in self.automaton.states:
                self.tally.tried(place_label(state_place(state.number)))
            places = (place_label(state_place(s.number)) for s in self.automaton.states)
            self.tables["STATE_ROWS"] = [self.tally.labels[place] for place in places]

    def _any_role(self, roles: Iterator[str]) -> str:
        return self.frame.any_role(roles) or "0"

    def _push_back(self, out: Source) -> None:
        """Runs that are back in a state."""
        out.note("runs that are back in their states")
        with out.block("for target in BACK:"), out.block("while back[target] >= 0:"):
            out("q = back[target]", "back[target] = nxt[q]")
            with self.lists.of("target"):
                self._pushes().write(out)

    def _nothing_yet(self, out: Source) -> None:
        """A run without an event stands in the list of state 0, for this event only."""
        out.note("a run that has nothing yet")
        self.lists.allocate(out, "q")
        self.registers.begin(out, "q")
        if self.registers.runs.has("first"):
            out(f"{self.registers.first_time('q')} = s")
        if self.registers.runs.has("first_index"):
            out(f"{self.registers.first_index('q')} = idx")
        # nothing lies between it and the event
        for name, now in (("last_row", "row"), ("last_index", "idx")):
            if self.registers.runs.has(name):
                out(f"{self.registers.runs.at(name, 'q')} = {now} - 1")
        self.lists.push(out, "q", self.lists.list(self.automaton.states[0]))

    def _cases(
        self, table: str, place: str, all_: Sequence[T], write: Callable[[Source, T], None]
    ) -> Cases:
        """What is written for each state or edge, alike pieces once."""
        cases = Cases(self.frame, table, place)
        for one in all_:
            cases.add(partial(_in_turn, write, one))
        self.tables |= cases.tables()
        return cases

    # ------------------------------------------------------------------------ one run

    def _move(self, out: Source) -> None:
        """Shows the event to the run `r`."""
        place, states = self.lists.list(self.automaton.states[0]), self.automaton.states
        if any(map(self._late_when, states)):
            self._cases("LATE", "state", states, self._late).write(out)
            with out.block("if late:"):
                over = lambda into, state: self._over(into, state, "r")
                self._cases("OVERS", "state", states, over).write(out)
                self.lists.unlink(out, place)
                self.lists.release(out, "r")
                out("r = nx", "continue")
        if self.tally.on:
            with out.block("if state > 0:"):
                out("T[STATE_ROWS[state], TRIED] += 1")
        out.note("takes: a bit for each edge of the state that the event can take it along")
        out("takes = 0", "edge = EDGES[state]", "stop_edge = EDGES[state + 1]")
        with out.block("while edge < stop_edge:"):
            self._cases("GUARDS", "edge", self._edges(), self._guard).write(out)
            with out.block("if taken:"):
                out("takes |= 1 << (edge - EDGES[state])")
            out("edge += 1")
        out.note("follows: those that it goes along; does it also wait on?")
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
            out.note("ways that are closed to it from now on")
            with out.block("if stay:"):
                out(f"{self.registers.passed('r')} |= closed")
        with out.block("if spare:"):
            self.lists.release(out, "r")

    def _edges(self) -> tuple[Edge, ...]:
        return tuple(e for s in self.automaton.states for e in self.automaton.out_of(s.number))

    def _late(self, out: Source, state: State) -> None:
        out(f"late = {' or '.join(self._late_when(state)) or 'False'}")

    def _late_when(self, state: State) -> list[str]:
        """When it is too late for a run; there is no gap before a first event."""
        if state.number == 0 and self.automaton.loops:
            return []
        return self._stale(state) if self.automaton.out_of(state.number) else []

    def _guard(self, out: Source, edge: Edge) -> None:
        if edge.source:
            self.guards.guard(out, edge, "taken")
            return
        checks = tuple(check for check in edge.checks if not check.each)
        self.guards.guard(out, replace(edge, absences=(), checks=checks), "taken")
        if tests := [*self._begins(edge)[1:], *self._not_rather(edge)]:
            with out.block("if taken:"):
                out(f"taken = {' and '.join(tests)}")

    def _choose(self, out: Source, state: State) -> None:
        """Along which edges the run goes, whether it stays, and what is closed to it then."""
        edges, closed = self.automaton.out_of(state.number), None
        if state.number and edges and self.automaton.loops:
            judging = self.frame.source()
            judged = self.gaps.judge(judging, state, self._flags(edges))
            stay, closed = judged.stay, judged.closed
            plain = dict(zip(judged.goes, self._flags(edges), strict=True))
            if not state.lasting and all(line in _set(plain) for line in judging.lines):
                follows = "takes"
            else:
                out(*map(_together, judging.lines))
                self._ends_here(out, state, judged)
                ways = [f"({1 << n} if {goes} else 0)" for n, goes in enumerate(judged.goes)]
                follows = " | ".join(ways)
        else:
            follows = "takes"
            stay = self._stays(state, edges) if state.number and edges else "False"
        out(f"follows = {follows}", f"stay = {_together(stay)}")
        if self._closing():
            out(f"closed = {_together(closed or '0')}")

    def _closing(self) -> bool:
        """Whether edges may be closed to runs that wait on."""
        return self.automaton.loops and self.registers.runs.has("passed")

    def _flags(self, edges: tuple[Edge, ...]) -> list[str]:
        return [f"(takes & {1 << number} != 0)" for number in range(len(edges))]

    # ------------------------------------------------------------------------ edges

    def _follow_edge(self, out: Source) -> None:
        """Takes the event: at once into a match, or into a run."""
        out("target = TARGETS[edge]")
        if any(self.tables["COMPLETES"]):
            with out.block("if COMPLETES[target] != 0:"):
                self._emit(out, "r", None)
                self._cases("LAST", "edge", self._edges(), self._emit_last).write(out)
            with out.block("else:"):
                self._move_along(out)
        else:
            self._move_along(out)

    def _emit_last(self, out: Source, edge: Edge) -> None:
        """Puts the event at hand, which is not in the run, into the match just written."""
        variable, names = edge.variable, self.frame.names
        if not self._completes(self.automaton.states[edge.target]):
            return
        if variable in self.registers.kleene:
            self._new_node(out, variable, "r")
            node, count = (
                output_column(names, self.output, f"{kind}_{variable}")
                for kind in ("node", "count")
            )
            out(f"O[otop - 1, {node}] = ntop - 1", f"O[otop - 1, {count}] += 1")
        else:
            out(f"O[otop - 1, {output_column(names, self.output, f'row_{variable}')}] = row")

    def _move_along(self, out: Source) -> None:
        """A copy of the run takes the event, or the run itself where nothing else needs it."""
        with out.block("if spare and follows == 1:"):
            out("q = r", "spare = False", "live[k] -= 1", "alive -= 1")
        with out.block("else:"):
            self.lists.allocate(out, "q")
            self.lists.copy(out, "r", "q")
        take = lambda into, edge: self.registers.take(into, edge.variable, "q")
        self._cases("TAKES", "edge", self._edges(), take).write(out)
        states = self.automaton.states
        with self.lists.of("target"):
            self._cases("ACCEPTS", "target", states, self._accept_if_it_may).write(out)
            pushes = self._pushes()
        with out.block("if ENDS[target] != 0:"):
            self.lists.give_back(out, "q")
        with out.block("else:"):
            if self.tally.on:
                out("T[STATE_ROWS[target], PASSED] += 1")
            with out.block("if target == state:"):
                self._add_to_loop(out)
            if self._returning():
                with out.block("elif target < state:"):
                    out("nxt[q] = back[target]", "back[target] = q")
            with out.block("else:"):
                pushes.write(out)

    def _accept_if_it_may(self, out: Source, state: State) -> None:
        if state.accepting and not state.lasting:
            self._accept(out, state)

    def _pushes(self) -> Cases:
        return self._cases(
            "PUSHES", "target", self.automaton.states, lambda out, s: self._push(out, "q", s)
        )

    def _wait(self, out: Source, state: State) -> None:
        if state.pending:
            self.waiting.visit(out, state)


class _Lists(RunLists):
    """The lists of a state that is known by number when the kernel runs."""

    def __init__(self, registers: Registers) -> None:
        super().__init__(registers)
        self._state = "state"

    def list(self, state: State, *, pending: bool = False) -> str:  # noqa: ARG002
        return f"2 * {self._state} + 1" if pending else f"2 * {self._state}"

    def of(self, name: str) -> "_Lists":
        """Inside of a `with`, the lists are those of another state."""
        self._state = name
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._state = "state"


def _set(names: Mapping[str, str]) -> set[str]:
    return {f"{name} = {text}" for name, text in names.items()}


def _together(text: str) -> str:
    """The same with one test for several edges.

    >>> _together("not ((takes & 1 != 0) or (takes & 2 != 0) or late)")
    'not ((takes & 3 != 0) or late)'
    """
    while (found := _EITHER.search(text)) is not None:
        bits = int(found[1]) | int(found[2])
        text = f"{text[: found.start()]}(takes & {bits} != 0){text[found.end() :]}"
    return text


def _in_turn(write: Callable[[Source, T], None], one: T, out: Source) -> None:
    write(out, one)
