"""Guards of edges: conditions, negations, order and window."""

from collections.abc import Iterable
from functools import partial

from ensue.codegen.absence import InstanceStore, write_search
from ensue.codegen.counters import make_absence_label, make_check_label
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.state_layout import SourceWriter
from ensue.ir.expression import EventPosition, Expr, FieldRef
from ensue.ir.selection import Strategy
from ensue.ir.traversal import iterate_references
from ensue.physical.nfa.slots import RunAccess, RunRegisters
from ensue.planner.join_tree import find_predecessors
from ensue.planner.physical_plan import ConditionCheck, NegationCheck, Nfa, NfaEdge
from ensue.planner.predicate_order import format_edge_place
from ensue.planner.predicate_pushdown import needs_previous_element
from ensue.planner.statistics import CounterLabel
from ensue.printing.expression_printer import format_condition, format_name


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
