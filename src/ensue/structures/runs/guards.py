"""When an event may take a run along an edge: conditions, negations, order and window."""

from collections.abc import Callable, Iterable
from functools import partial

from ensue.algebra.policy import Strategy
from ensue.algebra.predicate import At, Expr, Field
from ensue.algebra.text import show_condition, show_name
from ensue.algebra.walk import references
from ensue.plan.estimates.counters import Label
from ensue.plan.physical import Absence, Automaton, Check, Edge
from ensue.plan.physical_rules.ordering import edge_place
from ensue.plan.physical_rules.placement import from_the_second
from ensue.plan.physical_rules.sequence import predecessors
from ensue.source.absence import Instances, search
from ensue.source.counting import absence_label, check_label
from ensue.source.kernel_inputs import Frame
from ensue.source.table_columns import Source
from ensue.structures.runs.registers import Registers, RunAccess


class Guards:
    """Writes the tests of edges and of matches that end."""

    def __init__(
        self, frame: Frame, automaton: Automaton, registers: Registers, instances: Instances
    ) -> None:
        self.frame = frame
        self.automaton = automaton
        self.registers = registers
        self.instances = instances
        self.tally = frame.tally
        self.one_window = False  # all states are walked by the same loop
        # for events with a duration: what must have ended before a variable's event starts
        self.order = predecessors(frame.plan.query.pattern) if frame.intervals else {}

    def expired(self, state: int) -> str | None:
        """When a run in a state is out of its window."""
        if self.frame.window is None:
            return None
        # one for each state: with one for all, LLVM mixes their loops, which costs a few percent
        window = self.frame.window_called("window" if self.one_window else f"window_{state}")
        if self.frame.by_events:
            return f"idx - {self.registers.first_index('r')} > {window}"
        return f"t - {self.registers.first_time('r')} > {window}"

    def guard(self, out: Source, edge: Edge, flag: str) -> None:
        """Whether the event may take a run along an edge."""
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
        if not self.frame.plan.prune and (expired := self.expired(edge.source)):
            tests.append(f"not ({expired})")
        access = RunAccess(self.registers, "r", edge)
        at = edge_place(edge.source, edge.target, edge.variable)
        self.tally.all_hold(
            out, flag, [*((t, None) for t in tests), *self.labelled(edge.checks, access, at)]
        )
        self.judge(out, edge.checks, edge.absences, flag, "r", edge, at)

    def near(self, how: Strategy) -> str:
        """Whether nothing lies between a run and the event."""
        if how is Strategy.STRICT:
            return f"row - {self.registers.runs.at('last_row', 'r')} == 1"
        return f"idx - {self.registers.runs.at('last_index', 'r')} == 1"

    def labelled(
        self, checks: Iterable[Check], access: RunAccess, at: str
    ) -> list[tuple[str, Label | None]]:
        """The tests of conditions on the event at hand, with what they are counted under."""
        return [
            (self.tested(c.condition, access), check_label(at, c.condition))
            for c in checks
            if not c.each
        ]

    def judge(
        self,
        out: Source,
        checks: Iterable[Check],
        absences: Iterable[Absence],
        flag: str,
        run: str,
        edge: Edge | None,
        at: str,
    ) -> None:
        """What is tried event by event: conditions on all events of a variable, negations."""
        for check in checks:
            if check.each:
                label = check_label(at, check.condition)
                each = partial(self.each, out, check, flag, run, edge)
                self.tally.around(out, flag, label, each)
        for absence in absences:
            if absence.variable in self.frame.dropped:
                continue  # it would have ended the run
            absent = partial(self.absent, out, absence, flag, run, edge)
            self.tally.around(out, flag, absence_label(at, absence), absent)

    def tested(self, condition: Expr, access: RunAccess) -> str:
        """A condition, where the elements it names exist."""
        text = self.frame.writer.condition(condition, access)
        missing = self._missing(condition, access.run)
        return f"({' or '.join([*missing, text])})" if missing else text

    def _missing(self, condition: Expr, run: str) -> list[str]:
        """When an element that a condition names does not exist."""
        return [
            f"{self.registers.count(r.variable, run)} < {r.nth}"
            for r in references(condition)
            if isinstance(r, Field) and r.at is At.NTH and r.nth > 1
        ]

    def each(self, out: Source, check: Check, flag: str, run: str, edge: Edge | None) -> None:
        """A condition on all events of a Kleene variable, from the newest to the first."""
        assert check.moving is not None
        access = RunAccess(self.registers, run, edge, node="y")
        text = self.tested(check.condition, access)
        out.note(f"for every {show_name(check.moving)} so far: {show_condition(check.condition)}")
        with out.block(f"if {flag}:"):
            out(f"y = {self.registers.node(check.moving, run)}")
            end = "y >= 0"
            if from_the_second(check.condition):
                end = f"y >= 0 and {self.registers.nodes.at('previous', 'y')} >= 0"
            with out.block(f"while {end}:"):
                with out.block(f"if not {text}:"):
                    out(f"{flag} = False", "break")
                out(f"y = {self.registers.nodes.at('previous', 'y')}")

    def absent(
        self, out: Source, absence: Absence, flag: str, run: str, edge: Edge | None
    ) -> None:
        """A negation on the way: `edge` is the one being tried, None once the event is taken."""

        def found() -> None:
            out(f"{flag} = False")

        with out.block(f"if {flag}:"):
            self.look(out, absence, run, edge, found)

    def look(
        self,
        out: Source,
        absence: Absence,
        run: str,
        edge: Edge | None,
        found: Callable[[], None],
        *,
        newest: str | None = None,
    ) -> None:
        """Looks for what a negation forbids to a run."""
        registers = self.registers
        taking = None if edge is None else edge.variable
        before = [v for v in absence.before if v != taking]
        if edge is not None and not edge.first and taking in absence.before:
            before.append(taking or "")
        first = registers.first_index(run) if self.frame.by_events else registers.first_time(run)
        after_row = [registers.last_row(v, run) for v in absence.after]
        before_row = [registers.first_row(v, run) for v in before] or (
            ["row"] if absence.before else []
        )
        if absence.whole:
            known = [v for v in absence.after if not (edge and edge.first and v == taking)]
            after_row = [_least([registers.first_row(v, run) for v in known])]
            before_row = (
                ["row"]
                if taking in absence.before
                else [_most([registers.last_row(v, run) for v in known])]
            )
        search(
            out,
            self.instances,
            absence,
            RunAccess(registers, run, edge),
            after_row=after_row,
            after_end=(
                [registers.time(v, "end", run) for v in absence.after]
                if self.frame.intervals
                else []
            ),
            before_row=before_row,
            before_start=(
                [registers.time(v, "start", run) for v in before]
                + (["s"] if taking in absence.before else [])
                if self.frame.intervals
                else []
            ),
            first=first,
            last="idx" if self.frame.by_events else "t",
            found=found,
            missing=lambda condition: self._missing(condition, run),
            newest=newest,
            own=lambda row: self._not_own(out, absence, run, row),
        )

    def _not_own(self, out: Source, absence: Absence, run: str, row: str) -> list[str]:
        """When a row is none of the run's own events; of Kleene variables each is looked at."""
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


class NewNegative(RunAccess):
    """Conditions on a negated event at hand and the run that waits."""

    def __init__(self, registers: Registers, variable: str) -> None:
        super().__init__(registers, "r")
        self.taking = variable


def _least(rows: list[str]) -> str:
    return rows[0] if len(rows) == 1 else f"min({', '.join(rows)})"


def _most(rows: list[str]) -> str:
    return rows[0] if len(rows) == 1 else f"max({', '.join(rows)})"
