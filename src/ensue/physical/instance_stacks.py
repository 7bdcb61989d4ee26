"""Instance stacks: SASE's AIS, partitioned (PAIS), with RIPs.

Each variable has a stack of its events in each partition. An event of the last variable starts
sequence construction: backwards from it, along the RIP of every instance. A pushed negation
(PNCEP) empties the stack before it, so that later RIPs do not reach its instances.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from ensue.codegen.absence import InstanceStore, NestedMatches, write_search
from ensue.codegen.counters import make_absence_label, make_check_label
from ensue.codegen.expressions import Feature, ValueText
from ensue.codegen.kernel_inputs import GROW, KernelContext
from ensue.codegen.kernel_text import STOP_REQUESTED, write_event_loop, write_kernel, write_stop_if
from ensue.codegen.state_layout import SourceWriter, get_output_column
from ensue.ir.expression import Aggregate, EventPosition
from ensue.kernels import arena
from ensue.physical.structure import InstanceKernel, InstanceState, Structure
from ensue.planner.features import EventRef
from ensue.planner.physical_plan import InstanceStacks, NegationCheck
from ensue.planner.predicate_order import format_stack_place
from ensue.planner.statistics import CounterLabel
from ensue.printing.expression_printer import format_name


@dataclass(frozen=True, slots=True)
class StackKernel(InstanceKernel):
    instances: InstanceStore
    stacks: InstanceStacks

    @property
    def returned(self) -> tuple[str, ...]:
        return ("O",)

    @property
    def complexes(self) -> Mapping[str, NestedMatches]:
        return self.instances.complexes


STATE = ["A", "AF", "tops", "counts"]


class _InstanceAccess:
    """Access for conditions during construction: `p_b` is the instance of b."""

    def __init__(self, instances: InstanceStore, order: tuple[str, ...]) -> None:
        self.instances = instances
        self.order = order

    def feature(self, place: EventRef, feature: Feature) -> ValueText:
        variable, at, _ = place
        assert at is EventPosition.ONLY
        if variable == self.order[-1]:
            return self.instances.frame.read(feature)
        return self.instances.feature(variable, feature, self.instance(variable))

    def instance(self, variable: str) -> str:
        return f"p_{self.instances.frame.names.variable(variable)}"

    def aggregate(self, aggregate: Aggregate, feature: Feature | None) -> ValueText:
        if aggregate.function == "count" and feature is None:
            return "1", None  # every match has all of its events
        raise AssertionError(f"stacks hold no Kleene variables: {aggregate} {feature}")


class _StackWriter:
    def __init__(self, frame: KernelContext) -> None:
        structure = frame.plan.structure
        assert isinstance(structure, InstanceStacks)
        self.frame = frame
        self.stacks = structure
        self.order = structure.variables
        negated = tuple(r.variable for r in frame.negatives)
        self.instances = InstanceStore(frame, (*self.order[:-1], *negated))
        self.access = _InstanceAccess(self.instances, self.order)
        self.tally = frame.tally
        self.output = tuple(f"row_{variable}" for variable in self.order)

    def write(self) -> StackKernel:
        for _ in range(2):  # the first pass collects the features that the conditions read
            body = self.frame.restart(depth=2)
            self._event(body)
        arrays = [name for name, _ in self.instances.parameters()]
        pushes = len(self.order) - 1 + len(self.frame.negatives)
        registers = {"atop": "INSTANCE_TOP", "otop": "OUT_TOP"}
        if self.stacks.counted:
            registers["sequences"] = "SEQUENCES"
        step = write_event_loop(
            body,
            self.frame,
            [*arrays, *STATE, *self.tally.tables],
            registers=registers,
            needs=lambda _: (
                (f"atop + {self.instances.count_pushed(pushes)} > A.shape[0]", "NEEDS_INSTANCES"),
                ("otop > MOST_WAITING", "NEEDS_DRAIN"),
                ("otop + SPARE_OUTPUT > O.shape[0]", "NEEDS_OUTPUT"),
            ),
            returned=("O",),
        )
        text = write_kernel(self.frame, "Instance stacks.", [step], own=GROW)
        return StackKernel(text, self.output, self.instances, self.stacks)

    def _event(self, out: SourceWriter) -> None:
        self.instances.push_nested(out)
        for place in reversed(range(len(self.order))):
            variable = self.order[place]
            out.note("", self._describe(place))
            with out.block(f"if {self.frame.test(variable)}:"):
                if place == len(self.order) - 1:
                    self._construct(out, place - 1, self._top(place - 1))
                elif place == 0:
                    self._push(out, variable)
                else:
                    out(f"rip = {self._top(place - 1)}")
                    far = self._write_window_test("rip") if self.frame.plan.prune else None
                    with out.block("if rip >= 0" + (f" and not ({far}):" if far else ":")):
                        self._push(out, variable, "rip")
                        for absence in self._absences_before(place):
                            out(f"{self._newest(absence, 'n')} = {self._newest_now(absence)}")
            if place and self.stacks.pushed:
                for absence in self.stacks.pushed[place - 1]:
                    # after the event's role as a later variable, before its role as an earlier one
                    before = format_name(self.order[place - 1])
                    negated = format_name(absence.variable)
                    out.note("", f"!{negated}: no match continues from an earlier {before}")
                    with out.block(f"if {self.frame.test(absence.variable)}:"):
                        out(f"{self._top(place - 1)} = -1")
        for role in self.frame.negatives:
            name = format_name(role.variable)
            out.note("", f"!{name}: stored, for lookups between events of matches")
            with out.block(f"if {self.frame.test(role.variable)}:"):
                self._push(out, role.variable)

    def _describe(self, place: int) -> str:
        """A comment on the effect of an event."""
        name = format_name(self.order[place])
        if place == len(self.order) - 1:
            return f"{name}, the last: every match that ends here, backwards along the stacks"
        if place == 0:
            return f"{name}, the first: on its stack"
        return f"{name}: on its stack, with the current newest {format_name(self.order[place - 1])}"

    def _top(self, place: int) -> str:
        return self.instances.top(self.order[place])

    def _push(self, out: SourceWriter, variable: str, rip: str = "-1") -> None:
        self.instances.push(out, variable, rip)
        out(*self.tally.count_pass(format_stack_place(variable)))

    def _write_window_test(self, node: str) -> str | None:
        if self.frame.window is None:
            return None
        window = self.frame.window_text
        if self.frame.by_events:
            return f"idx - {self.instances.get('index', node)} > {window}"
        return f"t - {self.instances.get('end', node)} > {window}"

    def _construct(self, out: SourceWriter, place: int, start: str) -> None:
        """Binds the variables from the last to the first."""
        variable = self.order[place]
        node = self.access.instance(variable)
        out.note(f"every {format_name(variable)} before it, from the newest to the oldest")
        out(f"{node} = {start}")
        with out.block(f"while {node} >= 0:"):
            far = self._write_window_test(node)
            if far is not None and self.frame.plan.prune:
                with out.block(f"if {far}:"):
                    out("break")
            if place:  # a nested loop may take long
                write_stop_if(out, STOP_REQUESTED, ("O",))
            at = format_stack_place(self.order[place])
            out(*self.tally.count_try(at))
            tests: list[tuple[str, CounterLabel | None]] = [
                (self.frame.writer.condition(c.condition, self.access), make_check_label(at, c.condition))
                for c in self.stacks.checks[place]
            ]
            if far is not None and not self.frame.plan.prune and place == 0:
                tests.append((f"not ({far})", None))
            if self.frame.intervals:
                after = "s" if place == len(self.order) - 2 else self._get("start", place + 1)
                tests.insert(0, (f"{self._get('end', place)} <= {after}", None))
                if self.frame.window is not None and not self.frame.by_events:
                    near = f"t - {self._get('start', place)} <= {self.frame.window_text}"
                    tests.insert(0, (near, None))
            absences = self.stacks.absences[place]
            flag = "go" if tests or absences or self.tally.on else "True"
            if flag == "go":
                self.tally.all_hold(out, "go", tests)
            if place == 0 and self.stacks.counted:
                with out.when(flag):
                    out("sequences += 1")
            for absence in absences:
                self.tally.count_test(out, "go", make_absence_label(at, absence), partial(self._absent, out, absence))
            with out.when(flag):
                if place:
                    self._construct(out, place - 1, self.instances.get("rip", node))
                else:
                    self._emit(out)
            out(f"{node} = {self.instances.get('previous', node)}")

    def _get(self, name: str, place: int) -> str:
        return self.instances.get(name, self.access.instance(self.order[place]))

    def _absent(self, out: SourceWriter, absence: NegationCheck) -> None:
        last = len(self.order) - 1
        after = [self.order.index(v) for v in absence.after]
        before = [self.order.index(v) for v in absence.before]
        if absence.newest:
            newest = (
                self._newest_now(absence)
                if before == [last]
                else self._newest(absence, self.access.instance(absence.before[0]))
            )
            out.note(f"search for an event {format_name(absence.variable)} between")
            out(f"go = go and {newest} <= {self._get('row', after[0])}")
            return
        with out.block("if go:"):
            write_search(
                out,
                self.instances,
                absence,
                self.access,
                after_row=[self._get("row", p) for p in after],
                after_end=[self._get("end", p) for p in after],
                before_row=["row" if p == last else self._get("row", p) for p in before],
                before_start=["s" if p == last else self._get("start", p) for p in before],
                first="",
                last="idx" if self.frame.by_events else "t",
                found="go = False",
            )

    def _absences_before(self, place: int) -> list[NegationCheck]:
        """The negations directly before a variable that need no search."""
        variable = (self.order[place],)
        return [
            absence
            for group in self.stacks.absences
            for absence in group
            if absence.newest and absence.before == variable
        ]

    def _newest(self, absence: NegationCheck, node: str) -> str:
        """The row of the newest negated event before an instance."""
        number, names = self.instances.number[absence.variable], self.frame.names
        name = f"NEWEST_{names.variable(absence.variable)}"
        return self.instances.columns.at(f"newest{number}", node, name=name)

    def _newest_now(self, absence: NegationCheck) -> str:
        top = self.instances.top(absence.variable)
        return f"({self.instances.get('row', top)} if {top} >= 0 else -1)"

    def _emit(self, out: SourceWriter) -> None:
        with out.block("if otop == O.shape[0]:"):
            write_stop_if(out, "otop >= meta[MOST_OUT]", ("O",))
            out("O = grown(O)")
        for place, column in enumerate(self.output):
            row = "row" if place == len(self.order) - 1 else self._get("row", place)
            out(f"O[otop, {get_output_column(self.frame.names, self.output, column)}] = {row}")
        out("otop += 1")


class StacksState(InstanceState[StackKernel]):
    """Instances from which later events may build sequences, and negated events."""

    @property
    def is_blank(self) -> bool:
        return self.population == 0

    def expire_instances(self, now: float | None) -> None:
        if not len(self.entries):
            return
        alive = self.inside_window(now)
        if self.source.stacks.pushed:
            # pushed negations leave instances that no RIP or only older RIPs reach
            arena.drop_unreached(self.tables["A"], self.tables["tops"], alive)
        self.keep_only(alive)


STACKS = Structure(lambda frame: _StackWriter(frame).write(), StacksState)
