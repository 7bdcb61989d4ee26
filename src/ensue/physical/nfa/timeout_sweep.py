"""Expiry of runs: drops expired runs, and emits matches that waited for the time."""

from typing import TYPE_CHECKING

from ensue.codegen.kernel_text import SharedCases
from ensue.codegen.state_layout import SourceWriter
from ensue.ir.selection import Strategy
from ensue.physical.nfa.contiguity import EMITTED
from ensue.physical.nfa.edge_guards import NegatedEventAccess
from ensue.planner.physical_plan import NfaState
from ensue.printing.expression_printer import format_condition, format_name

if TYPE_CHECKING:
    from ensue.physical.nfa.nfa_writer import RunsWriter

SWEEP_REGISTERS = {"free": "FREE", "frees": "FREE_COUNT", "otop": "OUT_TOP", "alive": "LIVE"}


class TimeoutWriter:
    """Writes the effect of time on runs."""

    def __init__(self, writer: "RunsWriter") -> None:
        self.writer = writer
        self.automaton, self.gaps, self.guards = writer.automaton, writer.gaps, writer.guards
        self.frame, self.registers = writer.frame, writer.registers

    def visit(self, out: SourceWriter, state: NfaState) -> None:
        """Writes how a negated event discards a waiting match, and time emits it."""
        lists = self.writer.lists
        place = lists.list(state, pending=True)
        roles = self.frame.any_role(self.frame.role(a.variable) for a in state.pending)

        def visit() -> None:
            expired = self.guards.write_expiry(state.number)
            assert expired is not None
            with out.block(f"if {expired}:"):
                self.writer.emit(out, "r", None)
                lists.remove(out, place)
                out("r = nx", "continue")
            out("gone = False")
            for absence in state.pending:
                if absence.variable in self.guards.instances.complexes:
                    # the current event may complete a nested match that a waiting run forbids
                    with out.block(f"if {self.frame.test(absence.variable)}:"):
                        self.guards.look(out, absence, "r", None, "gone = True", newest="row")
                    continue
                tests = [self.frame.test(absence.variable)]
                if self.frame.intervals:
                    tests += [f"s >= {self.registers.time(v, 'end', 'r')}" for v in absence.after]
                access = NegatedEventAccess(self.registers, absence.variable)
                tests += [self.guards.write_test(c, access) for c in absence.conditions]
                conditions = (f"  with {format_condition(c)}" for c in absence.conditions)
                out.note(f"!{format_name(absence.variable)}: the match is discarded", *conditions)
                with out.when(*tests):
                    out("gone = True")
            with out.block("if gone:"):
                lists.remove(out, place)
            with out.block("else:"):
                out("p = r")

        names = ", ".join(format_name(a.variable) for a in state.pending)
        out.note("", f"state {state.number}, matches that wait for a window without {names}")
        with out.block(f"if roles & {roles}:"):
            lists.walk(out, place, visit, loops=False)

    def sweep(self) -> SourceWriter:
        """Writes the body of `sweep`, which expires runs."""
        out = self.frame.source(depth=1)
        out.note("drops expired runs; emits those that waited for the time")
        out(*(f"{name} = meta[{place}]" for name, place in SWEEP_REGISTERS.items()))
        if self.frame.window is not None or self.gaps.by_time:
            with out.block("for k in range(head.shape[0]):"):
                with out.block("if live[k] == 0:"):
                    out("continue")
                self._sweep_states(out)
        out(*(f"meta[{place}] = {name}" for name, place in SWEEP_REGISTERS.items()))
        return out

    def _sweep_states(self, out: SourceWriter) -> None:
        window = self.frame.window_text
        if self.frame.window is None:
            over = None
        elif self.frame.by_events:
            over = f"counts[k] + 1 - {self.registers.first_index('r')} > {window}"
        else:
            over = f"now - {self.registers.first_time('r')} > {window}"
        pending = any(state.pending for state in self.automaton.states)
        lasting = SharedCases(self.frame)
        states = [state for state in self.automaton.states if state.lasting]
        for state in states:
            lasting.add(self._emit_lasting, state, over)
        paused: dict[str, list[NfaState]] = {}  # tests of time alone, with the states they expire
        for state in self.automaton.states[1:]:
            if not state.lasting and self.automaton.list_outgoing(state.number):
                for late in self.gaps.out_of_time(state):
                    paused.setdefault(late, []).append(state)
        out.note("of each state the runs, and the matches that wait for the end of their window")

        def visit() -> None:
            for number, text in enumerate(lasting.texts):
                same = [s for s, n in zip(states, lasting.numbers, strict=True) if n == number]
                with out.block(f"if {self._write_state_test(same)}:"):
                    out(*text)
            expired = [*([over] if over else []), *(["(flush and waits)"] if pending else [])]
            contiguous = [state for state in states if self._is_contiguous(state)]
            if contiguous:
                last = self.registers.runs.at("last_index", "r")
                expired.append(f"(({self._write_state_test(contiguous)}) and counts[k] != {last})")
            expired += [f"(({self._write_state_test(same)}) and ({late}))" for late, same in paused.items()]
            if not expired:
                out("p = r")
                return
            with out.block(f"if {' or '.join(expired)}:"):
                if pending:
                    with out.block("if waits:"):
                        self.writer.emit(out, "r", None)
                self.writer.lists.remove(out, "place")
            with out.block("else:"):
                out("p = r")

        with out.block("for place in range(head.shape[1]):"):
            if pending:
                out("waits = place % 2 == 1")
            self.writer.lists.walk(out, "place", visit, loops=False)

    def _emit_lasting(self, out: SourceWriter, state: NfaState, over: str | None) -> None:
        """Emits a run whose last loop does not continue."""
        out.note("matches whose last loop does not continue")
        ended = ["flush", *([over] if over else []), *self.gaps.has_loop_ended(state)]
        if self._is_contiguous(state):
            ended.append(f"counts[k] != {self.registers.runs.at('last_index', 'r')}")
        ended = list(dict.fromkeys(ended))
        with out.block(f"if {self.registers.get_closed_edges('r')} & {EMITTED} == 0 and ({' or '.join(ended)}):"):
            counting, self.frame.tally.on = self.frame.tally.on, False  # `sweep` has no counters
            self.writer.complete(out, state, "r")
            self.frame.tally.on = counting
            out(f"{self.registers.get_closed_edges('r')} |= {EMITTED}")

    def _write_state_test(self, states: list[NfaState]) -> str:
        """Whether the current list is that of one of some states."""
        return " or ".join(f"place == {self.writer.lists.place(state)}" for state in states)

    def _is_contiguous(self, state: NfaState) -> bool:
        """Whether its runs wait for the next event of their partition only."""
        return self.automaton.contiguous(state.number, Strategy.ANY) is Strategy.PARTITION
