"""Guards of edges: conditions, negations, order, window and contiguity."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ensue.analyzer.derivatives import GuardScope
from ensue.codegen.absence import InstanceStore, write_search
from ensue.codegen.counters import make_absence_label, make_check_label
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.state_layout import SourceWriter
from ensue.ir.expression import EventPosition, Expr, FieldRef
from ensue.ir.selection import CONTIGUOUS, Strategy
from ensue.ir.traversal import iterate_references
from ensue.physical.nfa.slots import RunAccess, RunRegisters
from ensue.planner.join_tree import find_predecessors
from ensue.planner.physical_plan import ConditionCheck, EdgeStop, NegationCheck, Nfa, NfaEdge, NfaState
from ensue.planner.predicate_order import format_edge_place
from ensue.planner.predicate_pushdown import needs_previous_element
from ensue.planner.statistics import CounterLabel
from ensue.printing.expression_printer import format_condition, format_name
from ensue.printing.pattern_printer import format_window


class EdgeGuards:
    """Writes the tests of edges and of matches at their end."""

    def __init__(self, frame: KernelContext, automaton: Nfa, registers: RunRegisters, instances: InstanceStore) -> None:
        self.frame = frame
        self.automaton = automaton
        self.registers = registers
        self.instances = instances
        self.tally = frame.tally
        self.one_window = False  # one loop visits all states
        # for events with a duration: the variables that must have ended before an event starts
        self.order = find_predecessors(frame.plan.query.pattern) if frame.intervals else {}

    def write_expiry(self, state: int) -> str | None:
        """When a run in a state is outside its window."""
        if self.frame.window is None:
            return None
        # one constant for each state: with a common one, LLVM merges their loops, which is slower
        window = self.frame.get_window_text("window" if self.one_window else f"window_{state}")
        if self.frame.by_events:
            return f"idx - {self.registers.first_index('r')} > {window}"
        return f"t - {self.registers.first_time('r')} > {window}"

    def guard(self, out: SourceWriter, edge: NfaEdge, flag: str) -> None:
        """Whether the event may move a run along an edge."""
        tests = [self.frame.test(edge.variable, first=edge.first)]
        role = self.frame.plan.role(edge.variable)
        if role.kleene is not None and role.kleene.most is not None and not edge.first:
            tests.append(f"{self.registers.count(edge.variable, 'r')} < {role.kleene.most}")
        for variable in edge.leaves:
            kleene = self.frame.plan.role(variable).kleene
            assert kleene is not None
            tests.append(f"{self.registers.count(variable, 'r')} >= {kleene.least}")
        bound = self.automaton.states[edge.source].bound
        tests += [
            f"s >= {self.registers.time(other, 'end', 'r')}"
            for other in self.order.get(edge.variable, ())
            if other in bound
        ]
        if self.frame.intervals and self.frame.window is not None and not self.frame.by_events:
            tests.append(f"t - s <= {self.frame.window_text}")
        if not self.frame.plan.prune and (expired := self.write_expiry(edge.source)):
            tests.append(f"not ({expired})")
        access = RunAccess(self.registers, "r", edge)
        at = format_edge_place(edge.source, edge.target, edge.variable)
        self.tally.all_hold(out, flag, [*((t, None) for t in tests), *self.write_labelled(edge.checks, access, at)])
        self.judge(out, edge.checks, edge.absences, flag, "r", edge, at)

    def near(self, how: Strategy) -> str:
        """Whether the event directly follows the run."""
        if how is Strategy.STRICT:
            return f"row - {self.registers.runs.at('last_row', 'r')} == 1"
        return f"idx - {self.registers.runs.at('last_index', 'r')} == 1"

    def write_labelled(
        self, checks: Iterable[ConditionCheck], access: RunAccess, at: str
    ) -> list[tuple[str, CounterLabel | None]]:
        """The tests of conditions on the current event, with the labels of their counters."""
        return [(self.write_test(c.condition, access), make_check_label(at, c.condition)) for c in checks if not c.each]

    def judge(
        self,
        out: SourceWriter,
        checks: Iterable[ConditionCheck],
        absences: Iterable[NegationCheck],
        flag: str,
        run: str,
        edge: NfaEdge | None,
        at: str,
    ) -> None:
        """Writes conditions on all events of a variable, and negations."""
        for check in checks:
            if check.each:
                label = make_check_label(at, check.condition)
                each = partial(self.write_each, out, check, flag, run, edge)
                self.tally.count_test(out, flag, label, each)
        for absence in absences:
            if absence.variable in self.frame.dropped:
                continue  # it has discarded the run already
            absent = partial(self.absent, out, absence, flag, run, edge)
            self.tally.count_test(out, flag, make_absence_label(at, absence), absent)

    def write_test(self, condition: Expr, access: RunAccess) -> str:
        """A condition, if the elements it reads exist."""
        text = self.frame.writer.condition(condition, access)
        missing = self._write_missing_tests(condition, access.run)
        return f"({' or '.join([*missing, text])})" if missing else text

    def _write_missing_tests(self, condition: Expr, run: str) -> list[str]:
        """When an element that a condition reads does not exist."""
        return [
            f"{self.registers.count(r.variable, run)} < {r.nth}"
            for r in iterate_references(condition)
            if isinstance(r, FieldRef) and r.at is EventPosition.NTH and r.nth > 1
        ]

    def write_each(self, out: SourceWriter, check: ConditionCheck, flag: str, run: str, edge: NfaEdge | None) -> None:
        """A condition on all events of a Kleene variable, from the newest to the first."""
        assert check.moving is not None
        access = RunAccess(self.registers, run, edge, node="y")
        text = self.write_test(check.condition, access)
        out.note(f"for every {format_name(check.moving)} so far: {format_condition(check.condition)}")
        with out.block(f"if {flag}:"):
            out(f"y = {self.registers.node(check.moving, run)}")
            end = "y >= 0"
            if needs_previous_element(check.condition):
                end = f"y >= 0 and {self.registers.nodes.at('previous', 'y')} >= 0"
            with out.block(f"while {end}:"):
                with out.block(f"if not {text}:"):
                    out(f"{flag} = False", "break")
                out(f"y = {self.registers.nodes.at('previous', 'y')}")

    def absent(self, out: SourceWriter, absence: NegationCheck, flag: str, run: str, edge: NfaEdge | None) -> None:
        """A negation inside a match; `edge` is being evaluated, None once the event is taken."""
        with out.block(f"if {flag}:"):
            self.look(out, absence, run, edge, f"{flag} = False")

    def look(
        self,
        out: SourceWriter,
        absence: NegationCheck,
        run: str,
        edge: NfaEdge | None,
        found: str,
        *,
        newest: str | None = None,
    ) -> None:
        """Searches for an event that a negation forbids to a run; `found` is executed then."""
        registers = self.registers
        taking = None if edge is None else edge.variable
        before = [v for v in absence.before if v != taking]
        if edge is not None and not edge.first and taking in absence.before:
            before.append(taking or "")
        first = registers.first_index(run) if self.frame.by_events else registers.first_time(run)
        after_row = [registers.last_row(v, run) for v in absence.after]
        before_row = [registers.first_row(v, run) for v in before] or (["row"] if absence.before else [])
        if absence.whole:
            known = [v for v in absence.after if not (edge and edge.first and v == taking)]
            after_row = [_call("min", [registers.first_row(v, run) for v in known])]
            last_row = _call("max", [registers.last_row(v, run) for v in known])
            before_row = ["row"] if taking in absence.before else [last_row]
        after_end, before_start = list[str](), list[str]()
        if self.frame.intervals:
            after_end = [registers.time(v, "end", run) for v in absence.after]
            before_start = [registers.time(v, "start", run) for v in before]
            before_start += ["s"] if taking in absence.before else []
        write_search(
            out,
            self.instances,
            absence,
            RunAccess(registers, run, edge),
            after_row=after_row,
            after_end=after_end,
            before_row=before_row,
            before_start=before_start,
            first=first,
            last="idx" if self.frame.by_events else "t",
            found=found,
            missing=lambda condition: self._write_missing_tests(condition, run),
            newest=newest,
            own=lambda row: self._not_own(out, absence, run, row),
        )

    def _not_own(self, out: SourceWriter, absence: NegationCheck, run: str, row: str) -> list[str]:
        """When a row is not an event of the run; the lists of Kleene variables are searched."""
        tests = []
        for number, variable in enumerate(absence.own):
            if variable not in self.registers.kleene:
                tests.append(f"{row} != {self.registers.row(variable, run)}")
                continue
            node, nodes = f"own{number}", self.registers.nodes
            out(f"{node} = {self.registers.node(variable, run)}")
            with out.block(f"while {node} >= 0 and {nodes.at('row', node)} != {row}:"):
                out(f"{node} = {nodes.at('previous', node)}")
            tests.append(f"{node} < 0")
        return tests


class NegatedEventAccess(RunAccess):
    """Access for conditions on the current negated event and a waiting run."""

    def __init__(self, registers: RunRegisters, variable: str) -> None:
        super().__init__(registers, "r")
        self.taking = variable


def _call(function: str, rows: list[str]) -> str:
    return rows[0] if len(rows) == 1 else f"{function}({', '.join(rows)})"


# Contiguity: which edges are open to a run, by the events it has skipped. Every edge has its strategy, so an edge
# can be closed to a run that still waits for others: the register `passed` has a bit for each edge closed to it.

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
