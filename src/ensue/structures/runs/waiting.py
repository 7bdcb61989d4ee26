"""Runs and time: those that are out of it go, those that only waited for it are delivered."""

from collections.abc import Callable
from functools import partial

from ensue.algebra.policy import Strategy
from ensue.algebra.text import show_condition, show_name
from ensue.plan.physical import Absence, Automaton, State
from ensue.source.cases import Cases
from ensue.source.table_columns import Source
from ensue.structures.runs.gaps import TOLD, Gaps
from ensue.structures.runs.guards import Guards, NewNegative
from ensue.structures.runs.lists import RunLists

KEPT = {"free": "FREE", "frees": "FREE_COUNT", "otop": "OUT_TOP", "alive": "LIVE"}
SWEPT = ("now", "flush", "head", "live", "nxt", "I", "F", "N", "NF", "counts", "O", "meta")


class Waiting:
    """Writes what time does to runs.

    `deliver` writes the match of the run `r`, `complete` the same if it is one in a state.
    """

    def __init__(
        self,
        automaton: Automaton,
        guards: Guards,
        gaps: Gaps,
        lists: RunLists,
        deliver: Callable[[Source], None],
        complete: Callable[[Source, State], None],
    ) -> None:
        self.automaton = automaton
        self.guards = guards
        self.frame = guards.frame
        self.registers = guards.registers
        self.gaps = gaps
        self.lists = lists
        self.deliver = deliver
        self.complete = complete

    def visit(self, out: Source, state: State) -> None:
        """A negated event ends the waiting; time passing delivers."""
        place = self.lists.list(state, pending=True)
        roles = self.frame.any_role(self.frame.role(a.variable) for a in state.pending)

        def visit() -> None:
            expired = self.guards.expired(state.number)
            assert expired is not None
            with out.block(f"if {expired}:"):
                self.deliver(out)
                self.lists.unlink(out, place)
                self.lists.release(out, "r")
                out("r = nx", "continue")
            out("gone = False")
            for absence in state.pending:
                if absence.variable in self.guards.instances.complexes:
                    self._complex_comes(out, absence)
                    continue
                tests = [self.frame.test(absence.variable)]
                if self.frame.intervals:
                    tests += [f"s >= {self.registers.time(v, 'end', 'r')}" for v in absence.after]
                access = NewNegative(self.registers, absence.variable)
                tests += [self.guards.tested(c, access) for c in absence.conditions]
                told = (f"  with {show_condition(c)}" for c in absence.conditions)
                out.note(f"!{show_name(absence.variable)}: the run is in vain", *told)
                with out.when(*tests):
                    out("gone = True")
            with out.block("if gone:"):
                self.lists.unlink(out, place)
                self.lists.release(out, "r")
            with out.block("else:"):
                out("p = r")

        names = ", ".join(show_name(a.variable) for a in state.pending)
        out.note("", f"state {state.number}, matches that wait for a window without {names}")
        with out.block(f"if roles & {roles}:"):
            self.lists.walk(out, place, visit, loops=False)

    def _complex_comes(self, out: Source, absence: Absence) -> None:
        """Whether the event at hand completes what a waiting run must not meet."""

        def found() -> None:
            out("gone = True")

        with out.block(f"if {self.frame.test(absence.variable)}:"):
            self.guards.look(out, absence, "r", None, found, newest="row")

    # ------------------------------------------------------------------------ without an event

    def sweep(self) -> Source:
        """What `sweep` does: it lets time pass."""
        out = self.frame.source(depth=1)
        out.note("drops runs that are out of time; delivers those that only waited for it")
        out(*(f"{name} = meta[{place}]" for name, place in KEPT.items()))
        if self.frame.window is not None or self.gaps.by_time:
            with out.block("for k in range(head.shape[0]):"):
                with out.block("if live[k] == 0:"):
                    out("continue")
                self._sweep_states(out)
        out(*(f"meta[{place}] = {name}" for name, place in KEPT.items()))
        return out

    def _sweep_states(self, out: Source) -> None:
        window = self.frame.window_text
        if self.frame.window is None:
            over = None
        elif self.frame.by_events:
            over = f"counts[k] + 1 - {self.registers.first_index('r')} > {window}"
        else:
            over = f"now - {self.registers.first_time('r')} > {window}"
        pending = any(state.pending for state in self.automaton.states)
        lasting = Cases(self.frame, "", "")
        states = [state for state in self.automaton.states if state.lasting]
        for state in states:
            lasting.add(partial(self._tell_lasting, state, over))
        paused: dict[str, list[State]] = {}  # when time alone ends the runs of states
        for state in self.automaton.states[1:]:
            if not state.lasting and self.automaton.out_of(state.number):
                for late in self.gaps.out_of_time(state):
                    paused.setdefault(late, []).append(state)
        out.note("of each state the runs, and the matches that wait for the end of their window")

        def visit() -> None:
            for number, text in enumerate(lasting.texts):
                alike = [s for s, n in zip(states, lasting.numbers, strict=True) if n == number]
                with out.block(f"if {self._is_of(alike)}:"):
                    out(*text)
            gone = [*([over] if over else []), *(["(flush and waits)"] if pending else [])]
            contiguous = [state for state in states if self._is_contiguous(state)]
            if contiguous:
                last = self.registers.runs.at("last_index", "r")
                gone.append(f"(({self._is_of(contiguous)}) and counts[k] != {last})")
            gone += [f"(({self._is_of(alike)}) and ({late}))" for late, alike in paused.items()]
            if not gone:
                out("p = r")
                return
            with out.block(f"if {' or '.join(gone)}:"):
                if pending:
                    with out.block("if waits:"):
                        self.deliver(out)
                self.lists.unlink(out, "place")
                self.lists.release(out, "r")
            with out.block("else:"):
                out("p = r")

        with out.block("for place in range(head.shape[1]):"):
            if pending:
                out("waits = place % 2 == 1")
            self.lists.walk(out, "place", visit, loops=False)

    def _tell_lasting(self, state: State, over: str | None, out: Source) -> None:
        """A run is a match if its last loop does not go on."""
        out.note("matches if they do not go on")
        ended = ["flush", *([over] if over else []), *self.gaps.lasts_no_more(state)]
        if self._is_contiguous(state):
            ended.append(f"counts[k] != {self.registers.runs.at('last_index', 'r')}")
        ended = list(dict.fromkeys(ended))
        with out.block(
            f"if {self.registers.passed('r')} & {TOLD} == 0 and ({' or '.join(ended)}):"
        ):
            counting, self.frame.tally.on = self.frame.tally.on, False  # `sweep` has no counters
            self.complete(out, state)
            self.frame.tally.on = counting
            out(f"{self.registers.passed('r')} |= {TOLD}")

    def _is_of(self, states: list[State]) -> str:
        """Whether the list at hand is that of one of some states."""
        return " or ".join(f"place == {self.lists.place(state)}" for state in states)

    def _is_contiguous(self, state: State) -> bool:
        """Whether its runs wait for the very next event of their partition only."""
        return self.automaton.contiguous(state.number, Strategy.ANY) is Strategy.PARTITION
