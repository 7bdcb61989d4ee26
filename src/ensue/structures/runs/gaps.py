"""The gap between a run and the event at hand, where the edges of a state have their own rules.

Every edge says what a run may have passed over. So an edge can be closed to a run that waits on
for others: the register `passed` has a bit for each edge that is closed to it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ensue.algebra.policy import CONTIGUOUS, Strategy
from ensue.algebra.residual import Where
from ensue.algebra.text import show_condition, show_name, show_window
from ensue.plan.physical import Automaton, Edge, State, Stop
from ensue.source.table_columns import Source
from ensue.structures.runs.guards import Guards, NewNegative
from ensue.structures.runs.registers import Registers

TOLD = 1 << 60  # a bit of `passed`: what the run has is no match, or has been delivered as one


@dataclass(frozen=True, slots=True)
class Judged:
    """What the event at hand does to a run, as names and texts of conditions."""

    goes: tuple[str, ...]  # by edge: whether it takes the run along
    waits: tuple[str, ...]  # by edge: whether the run waits on for it
    stay: str  # whether it waits on at all
    closed: str | None  # the bits of the edges that are closed to it from now on


class Gaps:
    """Writes which edges are open to a run."""

    def __init__(self, automaton: Automaton, guards: Guards) -> None:
        self.automaton = automaton
        self.guards = guards
        self.frame = guards.frame
        self.registers: Registers = guards.registers
        strategies = {edge.how for edge in automaton.edges}
        stops = [stop for edge in automaton.edges for stop in edge.stops]
        runs = self.registers.runs
        if Strategy.STRICT in strategies:
            runs.at("last_row", "")
        if Strategy.PARTITION in strategies or any(s.where is Where.NEXT for s in stops):
            runs.at("last_index", "")
        if any(e.pause is not None for e in automaton.edges) or (stops and self.frame.intervals):
            self.registers.last_end("")
        lasting = any(state.lasting for state in automaton.states)
        if lasting or any(self._needs_bits(state) for state in automaton.states):
            self.registers.passed("")

    def _edges(self, state: State) -> tuple[Edge, ...]:
        return self.automaton.out_of(state.number)

    def _needs_bits(self, state: State) -> bool:
        """Whether some edges may be closed to a run that waits on for others."""
        if state.number == 0:
            return False
        waiting = [e for e in self._edges(state) if e.how not in CONTIGUOUS]
        return len({self._fate(e) for e in waiting}) > 1

    def _fate(self, edge: Edge) -> object:
        """What closes an edge: those with the same fate are closed together."""
        own = edge.variable if edge.own else None
        next_ = edge.how is Strategy.NEXT and not edge.own
        lasting = [s for s in edge.stops if s.where is not Where.TAKEN]
        return own, next_, edge.longer, edge.sooner, tuple(lasting)

    def stale(self, state: State) -> list[str]:
        """When no edge of a state can be open to a run any more."""
        edges = self._edges(state)
        tests = []
        contiguous = self.automaton.contiguous(state.number, Strategy.ANY)
        if contiguous is not None:
            tests.append(f"not ({self.guards.near(contiguous)})")
        if all(edge.pause is not None for edge in edges) and not state.lasting:
            tests.append(" and ".join(f"not ({self._in_time(edge)})" for edge in edges))
        return tests

    def _in_time(self, edge: Edge) -> str:
        assert edge.pause is not None
        name = f"pause_{edge.source}_{self.frame.names.variable(edge.variable)}"
        length = self.frame.length(edge.pause)
        assert length is not None
        text = self.frame.constants.slot(length, name, show_window(edge.pause))
        return f"s - {self.registers.last_end('r')} <= {text}"

    # ---------------------------------------------------------------------------- one event

    def judge(self, out: Source, state: State, flags: Sequence[str]) -> Judged:
        """What the event does to the run `r`; `flags` say by edge whether it would fit."""
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
            out.note(f"is the way to {show_name(edge.variable)} open to it?")
            out(f"open{n}_{names[n]} = {' and '.join(tests)}")
            open_.append(f"open{n}_{names[n]}")
        goes = []
        for n, edge in enumerate(edges):
            rivals = self._rivals(edge, edges, flags, open_)
            out(
                f"go{n}_{names[n]} = {_all([flags[n], open_[n], *(f'not ({r})' for r in rivals)])}"
            )
            goes.append(f"go{n}_{names[n]}")
        used = self._used(edges, flags, open_)
        waits, dying = [], []
        for n, edge in enumerate(edges):
            ends = self._ends(edge, n, edges, flags, open_, stops, used)
            dying.append(_any(ends))
            if edge.how in CONTIGUOUS:
                waits.append("False")
                continue
            before = [f"{self.registers.passed('r')} & {1 << n} == 0"] if bits else []
            waits.append(_all([*before, *([f"not ({_any(ends)})"] if ends else [])]))
        closed = None
        if bits:
            waiting = [n for n, e in enumerate(edges) if e.how not in CONTIGUOUS]
            told = [f"({1 << n} if {dying[n]} else 0)" for n in waiting if dying[n] != "False"]
            closed = " | ".join(told) or None
        return Judged(tuple(goes), tuple(waits), _any([w for w in waits if w != "False"]), closed)

    def _stops(self, out: Source, edges: Sequence[Edge]) -> dict[Stop, str]:
        """Names for whether the event is one that closes edges."""
        found: dict[Stop, str] = {}
        for edge in edges:
            for stop in edge.stops:
                if stop in found:
                    continue
                name = f"stop{len(found)}_{self.frame.names.variable(stop.variable)}"
                tests = [self.frame.test(stop.variable)]
                if self.frame.intervals and stop.where in (Where.BETWEEN, Where.UP_TO):
                    tests.append(f"s >= {self.registers.last_end('r')}")
                if stop.where is Where.NEXT:
                    tests.append(self.guards.near(Strategy.PARTITION))
                access = NewNegative(self.registers, stop.variable)
                tests += [self.guards.tested(c, access) for c in stop.conditions]
                told = (f"  with {show_condition(c)}" for c in stop.conditions)
                out.note(f"is it {show_name(stop.variable)}, which closes ways?", *told)
                out(f"{name} = {_all(tests)}")
                found[stop] = name
        return found

    def _able(self, edge: Edge, n: int, bits: bool, stops: dict[Stop, str]) -> list[str]:
        """Whether an edge is open, whatever the run has passed over."""
        tests = [] if edge.pause is None else [self._in_time(edge)]
        if bits and edge.how not in CONTIGUOUS:
            tests.append(f"{self.registers.passed('r')} & {1 << n} == 0")
        return tests + [f"not {stops[s]}" for s in edge.stops if s.where is not Where.BETWEEN]

    def _rivals(
        self,
        edge: Edge,
        edges: Sequence[Edge],
        flags: Sequence[str],
        open_: Sequence[str],
    ) -> list[str]:
        """When the event would rather take the run along another edge."""
        return [
            _all([flags[n], open_[n]])
            for n, other in enumerate(edges)
            if other.variable in (*edge.longer, *edge.sooner)
        ]

    def _ends(
        self,
        edge: Edge,
        n: int,
        edges: Sequence[Edge],
        flags: Sequence[str],
        open_: Sequence[str],
        stops: dict[Stop, str],
        used: str,
    ) -> list[str]:
        """When the event closes an edge to the run."""
        ends = self._rivals(edge, edges, flags, open_)
        if edge.own:
            ends.append(flags[n])
        elif edge.how is Strategy.NEXT and used != "False":
            ends.append(used)
        return ends + [stops[s] for s in edge.stops if s.where is not Where.TAKEN]

    def _used(self, edges: Sequence[Edge], flags: Sequence[str], open_: Sequence[str]) -> str:
        """Whether a run under skip-till-next-match could use the event: it is not passed over."""
        going = [open_[n] for n, edge in enumerate(edges) if edge.closes]
        alive = _any(going) if going else "True"
        used = []
        for n, edge in enumerate(edges):
            able = _all([flags[n], open_[n]])
            if edge.demanded and (edge.demanded_late or edge.closes or alive == "True"):
                used.append(able)
            elif edge.demanded:
                used.append(f"({able} and ({alive}))")
            elif edge.demanded_late and alive != "True":
                used.append(f"({able} and not ({alive}))")
        return _any(used)

    # ------------------------------------------------------------------ greedy at the end

    def lasting(self, state: State, judged: Judged) -> tuple[str, str]:
        """Whether the run has gone on with a greedy loop at the end, and whether it still may."""
        mine = [n for n, e in enumerate(self._edges(state)) if e.variable in state.lasting]
        return _any([judged.goes[n] for n in mine]), _any([judged.waits[n] for n in mine])

    @property
    def by_time(self) -> bool:
        """Whether time says something to runs that no window holds together."""
        lasting = any(state.lasting for state in self.automaton.states)
        return lasting or any(edge.pause is not None for edge in self.automaton.edges)

    def out_of_time(self, state: State) -> list[str]:
        """When time alone says that a run `r` can take nothing more."""
        edges = self._edges(state)
        if any(edge.pause is None for edge in edges):
            return []
        late = [f"not ({self._in_time(edge).replace('s - ', 'now - ', 1)})" for edge in edges]
        return [" and ".join(dict.fromkeys(late))]

    def lasts_no_more(self, state: State) -> list[str]:
        """When time alone says that a greedy loop at the end of a run `r` is over."""
        mine = [e for e in self._edges(state) if e.variable in state.lasting]
        over = []
        for edge in mine:
            tests = []
            if edge.how is Strategy.PARTITION:
                tests.append(f"counts[k] != {self.registers.runs.at('last_index', 'r')}")
            if edge.pause is not None:
                tests.append(f"not ({self._in_time(edge).replace('s - ', 'now - ', 1)})")
            over.append(_any(tests))
        return [] if "False" in over else [_all(over)]


def _all(tests: Sequence[str]) -> str:
    told = [t for t in tests if t != "True"]
    return " and ".join(told) if told else "True"


def _any(tests: Sequence[str]) -> str:
    told = [f"({t})" if " and " in t else t for t in dict.fromkeys(tests) if t != "False"]
    return "True" if "True" in told else " or ".join(told) or "False"
