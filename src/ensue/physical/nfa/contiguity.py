"""Contiguity of edges: which edges are open to a run, by the events it has skipped.

Every edge has its strategy. So an edge can be closed to a run that still waits for others: the
register `passed` has a bit for each edge that is closed to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ensue.analyzer.derivatives import GuardScope
from ensue.codegen.state_layout import SourceWriter
from ensue.ir.selection import CONTIGUOUS, Strategy
from ensue.physical.nfa.edge_guards import EdgeGuards, NegatedEventAccess
from ensue.physical.nfa.slots import RunRegisters
from ensue.planner.physical_plan import EdgeStop, Nfa, NfaEdge, NfaState
from ensue.printing.expression_printer import format_condition, format_name
from ensue.printing.pattern_printer import format_window

EMITTED = 1 << 60  # a bit of `passed`: the run is no match, or has been emitted as one


@dataclass(frozen=True, slots=True)
class EventEffect:
    """The effect of the current event on a run, as names and texts of conditions."""

    goes: tuple[str, ...]  # by edge: whether it moves the run
    waits: tuple[str, ...]  # by edge: whether the run still waits for it
    stay: str  # whether it still waits at all
    closed: str | None  # the bits of the edges that are closed to it from now on


class ContiguityWriter:
    """Writes which edges are open to a run."""

    def __init__(self, automaton: Nfa, guards: EdgeGuards) -> None:
        self.automaton = automaton
        self.guards = guards
        self.frame = guards.frame
        self.registers: RunRegisters = guards.registers
        strategies = {edge.how for edge in automaton.edges}
        stops = [stop for edge in automaton.edges for stop in edge.stops]
        runs = self.registers.runs
        if Strategy.STRICT in strategies:
            runs.at("last_row", "")
        if Strategy.PARTITION in strategies or any(s.where is GuardScope.NEXT for s in stops):
            runs.at("last_index", "")
        if any(e.pause is not None for e in automaton.edges) or (stops and self.frame.intervals):
            self.registers.last_end("")
        lasting = any(state.lasting for state in automaton.states)
        if lasting or any(self._needs_bits(state) for state in automaton.states):
            self.registers.get_closed_edges("")

    def _edges(self, state: NfaState) -> tuple[NfaEdge, ...]:
        return self.automaton.list_outgoing(state.number)

    def _needs_bits(self, state: NfaState) -> bool:
        """Whether some edges may be closed to a run that still waits for others."""
        if state.number == 0:
            return False
        waiting = [e for e in self._edges(state) if e.how not in CONTIGUOUS]
        return len({self._closing_rule(e) for e in waiting}) > 1

    def _closing_rule(self, edge: NfaEdge) -> object:
        """The events that close an edge: edges with the same rule are closed together."""
        own = edge.variable if edge.own else None
        next_ = edge.how is Strategy.NEXT and not edge.own
        lasting = [s for s in edge.stops if s.where is not GuardScope.TAKEN]
        return own, next_, edge.longer, edge.sooner, tuple(lasting)

    def write_stale_tests(self, state: NfaState) -> list[str]:
        """When no edge of a state can be open to a run any more."""
        edges = self._edges(state)
        tests = []
        contiguous = self.automaton.contiguous(state.number, Strategy.ANY)
        if contiguous is not None:
            tests.append(f"not ({self.guards.near(contiguous)})")
        if all(edge.pause is not None for edge in edges) and not state.lasting:
            tests.append(" and ".join(f"not ({self._in_time(edge)})" for edge in edges))
        return tests

    def _in_time(self, edge: NfaEdge) -> str:
        assert edge.pause is not None
        name = f"pause_{edge.source}_{self.frame.names.variable(edge.variable)}"
        length = self.frame.length(edge.pause)
        assert length is not None
        text = self.frame.constants.slot(length, name, format_window(edge.pause))
        return f"s - {self.registers.last_end('r')} <= {text}"

    def judge(self, out: SourceWriter, state: NfaState, flags: Sequence[str]) -> EventEffect:
        """Writes the effect of the event on run `r`; `flags` tell by edge whether it matches."""
        edges = self._edges(state)
        bits = self._needs_bits(state)
        stops = self._stops(out, edges)
        names = [self.frame.names.variable(e.variable) for e in edges]
        open_ = []
        for n, edge in enumerate(edges):
            tests = [] if edge.how not in CONTIGUOUS else [self.guards.near(edge.how)]
            tests += self._able(edge, n, bits, stops)
            if not tests:
                open_.append("True")
                continue
            out.note(f"is the edge of {format_name(edge.variable)} open to it?")
            out(f"open{n}_{names[n]} = {' and '.join(tests)}")
            open_.append(f"open{n}_{names[n]}")
        goes = []
        for n, edge in enumerate(edges):
            rivals = self._rivals(edge, edges, flags, open_)
            out(f"go{n}_{names[n]} = {_all([flags[n], open_[n], *(f'not ({r})' for r in rivals)])}")
            goes.append(f"go{n}_{names[n]}")
        used = self._write_use_test(edges, flags, open_)
        waits, closing = [], []
        for n, edge in enumerate(edges):
            ends = self._ends(edge, n, edges, flags, open_, stops, used)
            closing.append(_any(ends))
            if edge.how in CONTIGUOUS:
                waits.append("False")
                continue
            before = [f"{self.registers.get_closed_edges('r')} & {1 << n} == 0"] if bits else []
            waits.append(_all([*before, *([f"not ({_any(ends)})"] if ends else [])]))
        closed = None
        if bits:
            waiting = [n for n, e in enumerate(edges) if e.how not in CONTIGUOUS]
            masks = [f"({1 << n} if {closing[n]} else 0)" for n in waiting if closing[n] != "False"]
            closed = " | ".join(masks) or None
        return EventEffect(tuple(goes), tuple(waits), _any([w for w in waits if w != "False"]), closed)

    def _stops(self, out: SourceWriter, edges: Sequence[NfaEdge]) -> dict[EdgeStop, str]:
        """Writes whether the event closes edges, and returns the names of the flags."""
        flags: dict[EdgeStop, str] = {}
        for stop in (stop for edge in edges for stop in edge.stops):
            if stop in flags:
                continue
            name = f"stop{len(flags)}_{self.frame.names.variable(stop.variable)}"
            tests = [self.frame.test(stop.variable)]
            if self.frame.intervals and stop.where in (GuardScope.BETWEEN, GuardScope.UP_TO):
                tests.append(f"s >= {self.registers.last_end('r')}")
            if stop.where is GuardScope.NEXT:
                tests.append(self.guards.near(Strategy.PARTITION))
            access = NegatedEventAccess(self.registers, stop.variable)
            tests += [self.guards.write_test(c, access) for c in stop.conditions]
            conditions = (f"  with {format_condition(c)}" for c in stop.conditions)
            out.note(f"is it {format_name(stop.variable)}, which closes edges?", *conditions)
            out(f"{name} = {_all(tests)}")
            flags[stop] = name
        return flags

    def _able(self, edge: NfaEdge, n: int, bits: bool, stops: dict[EdgeStop, str]) -> list[str]:
        """Whether an edge is open, regardless of skipped events."""
        tests = [] if edge.pause is None else [self._in_time(edge)]
        if bits and edge.how not in CONTIGUOUS:
            tests.append(f"{self.registers.get_closed_edges('r')} & {1 << n} == 0")
        return tests + [f"not {stops[s]}" for s in edge.stops if s.where is not GuardScope.BETWEEN]

    def _rivals(self, edge: NfaEdge, edges: Sequence[NfaEdge], flags: Sequence[str], open_: Sequence[str]) -> list[str]:
        """When the event takes the run along a preferred edge instead."""
        return [
            _all([flags[n], open_[n]])
            for n, other in enumerate(edges)
            if other.variable in (*edge.longer, *edge.sooner)
        ]

    def _ends(
        self,
        edge: NfaEdge,
        n: int,
        edges: Sequence[NfaEdge],
        flags: Sequence[str],
        open_: Sequence[str],
        stops: dict[EdgeStop, str],
        used: str,
    ) -> list[str]:
        """When the event closes an edge to the run."""
        ends = self._rivals(edge, edges, flags, open_)
        if edge.own:
            ends.append(flags[n])
        elif edge.how is Strategy.NEXT and used != "False":
            ends.append(used)
        return ends + [stops[s] for s in edge.stops if s.where is not GuardScope.TAKEN]

    def _write_use_test(self, edges: Sequence[NfaEdge], flags: Sequence[str], open_: Sequence[str]) -> str:
        """Whether a run under skip-till-next-match could use the event, so it is not skipped."""
        continuing = [open_[n] for n, edge in enumerate(edges) if edge.closes]
        alive = _any(continuing) if continuing else "True"
        used = []
        for n, edge in enumerate(edges):
            able = _all([flags[n], open_[n]])
            if edge.demanded and (edge.required_late or edge.closes or alive == "True"):
                used.append(able)
            elif edge.demanded:
                used.append(f"({able} and ({alive}))")
            elif edge.required_late and alive != "True":
                used.append(f"({able} and not ({alive}))")
        return _any(used)

    def write_greedy_tests(self, state: NfaState, judged: EventEffect) -> tuple[str, str]:
        """Whether the run has continued a greedy loop at the end, and whether it still may."""
        numbers = [n for n, e in enumerate(self._edges(state)) if e.variable in state.lasting]
        return _any([judged.goes[n] for n in numbers]), _any([judged.waits[n] for n in numbers])

    @property
    def by_time(self) -> bool:
        """Whether time affects runs without a window."""
        lasting = any(state.lasting for state in self.automaton.states)
        return lasting or any(edge.pause is not None for edge in self.automaton.edges)

    def out_of_time(self, state: NfaState) -> list[str]:
        """When time alone decides that a run `r` can take no more events."""
        edges = self._edges(state)
        if any(edge.pause is None for edge in edges):
            return []
        late = [f"not ({self._in_time(edge).replace('s - ', 'now - ', 1)})" for edge in edges]
        return [" and ".join(dict.fromkeys(late))]

    def has_loop_ended(self, state: NfaState) -> list[str]:
        """When time alone decides that a greedy loop at the end of a run `r` has ended."""
        over = []
        for edge in self._edges(state):
            if edge.variable not in state.lasting:
                continue
            tests = []
            if edge.how is Strategy.PARTITION:
                tests.append(f"counts[k] != {self.registers.runs.at('last_index', 'r')}")
            if edge.pause is not None:
                tests.append(f"not ({self._in_time(edge).replace('s - ', 'now - ', 1)})")
            over.append(_any(tests))
        return [] if "False" in over else [_all(over)]


def _all(tests: Sequence[str]) -> str:
    needed = [t for t in tests if t != "True"]
    return " and ".join(needed) if needed else "True"


def _any(tests: Sequence[str]) -> str:
    needed = [f"({t})" if " and " in t else t for t in dict.fromkeys(tests) if t != "False"]
    return "True" if "True" in needed else " or ".join(needed) or "False"
