"""Writes the source of an instance-stack kernel: SASE's AIS, partitioned (PAIS), with RIPs.

Each variable has a stack of its events in each partition. An event for the last variable starts
sequence construction: backwards from it, along the RIP of every instance. A pushed negation
(PNCEP) empties the stack in front of it: later RIPs no longer reach what stood there.
"""

from functools import partial

from ensue.algebra.predicate import Aggregate, At
from ensue.algebra.text import show_name
from ensue.plan.estimates.counters import Label
from ensue.plan.physical import Absence, Stacks
from ensue.plan.physical_rules.features import Place
from ensue.plan.physical_rules.ordering import stack_place
from ensue.source.absence import Instances, search
from ensue.source.counting import absence_label, check_label, place_label
from ensue.source.event_loop import STOP_ASKED, event_loop, stop_if
from ensue.source.expressions import Feature, Text
from ensue.source.growing_output import GROW
from ensue.source.kernel_inputs import Frame
from ensue.source.kernel_text import kernel_text
from ensue.source.table_columns import Source, output_column
from ensue.structures.stacks.source import StacksSource

STATE = ["A", "AF", "tops", "counts"]


def stacks_source(frame: Frame) -> StacksSource:
    """The kernel of instance stacks."""
    return _Stacks(frame).written()


class _Bound:
    """Conditions during construction: `p_b` is the instance of b."""

    def __init__(self, instances: Instances, order: tuple[str, ...]) -> None:
        self.instances = instances
        self.order = order

    def feature(self, place: Place, feature: Feature) -> Text:
        variable, at, _ = place
        assert at is At.ONLY
        if variable == self.order[-1]:
            frame = self.instances.frame
            return frame.value(feature), frame.ok(feature)
        return self.instances.feature(variable, feature, self.instance(variable))

    def instance(self, variable: str) -> str:
        return f"p_{self.instances.frame.names.variable(variable)}"

    def aggregate(self, aggregate: Aggregate, feature: Feature | None) -> Text:
        if aggregate.function == "count" and feature is None:
            return "1", None  # no match goes without one of its events
        raise AssertionError(f"stacks hold no Kleene variables: {aggregate} {feature}")


class _Stacks:
    def __init__(self, frame: Frame) -> None:
        structure = frame.plan.structure
        assert isinstance(structure, Stacks)
        self.frame = frame
        self.stacks = structure
        self.order = structure.variables
        negated = tuple(r.variable for r in frame.negatives)
        self.instances = Instances(frame, (*self.order[:-1], *negated))
        self.access = _Bound(self.instances, self.order)
        self.tally = frame.tally
        self.output = tuple(f"row_{variable}" for variable in self.order)

    def written(self) -> StacksSource:
        body = self.frame.again(depth=2)
        # twice: the first pass finds out which features the conditions need
        self._event(body)
        body = self.frame.again(depth=2)
        self._event(body)
        given = [name for name, _ in self.instances.parameters()]
        pushes = len(self.order) - 1 + len(self.frame.negatives)
        registers = {"atop": "INSTANCE_TOP", "otop": "OUT_TOP"}
        if self.stacks.counted:
            registers["sequences"] = "SEQUENCES"
        step = event_loop(
            body,
            self.frame,
            [*given, *STATE, *self.tally.tables],
            registers=registers,
            needs=lambda _: (
                (f"atop + {self.instances.most_pushed(pushes)} > A.shape[0]", "NEEDS_INSTANCES"),
                ("otop > MOST_WAITING", "NEEDS_DRAIN"),
                ("otop + SPARE_OUTPUT > O.shape[0]", "NEEDS_OUTPUT"),
            ),
            returned=("O",),
        )
        text = kernel_text(self.frame, "Instance stacks.", [step], own=GROW)
        return StacksSource(text, self.output, self.instances, self.stacks)

    def _event(self, out: Source) -> None:
        self.instances.push_complexes(out)
        for place in reversed(range(len(self.order))):
            variable = self.order[place]
            out.note("", self._told(place))
            with out.block(f"if {self.frame.test(variable)}:"):
                if place == len(self.order) - 1:
                    self._construct(out, place - 1, self._top(place - 1))
                elif place == 0:
                    self._push(out, variable)
                else:
                    out(f"rip = {self._top(place - 1)}")
                    with out.block(f"if {self._reachable('rip')}:"):
                        self._push(out, variable, "rip")
                        for absence in self._judged_by_the_newest(place):
                            out(f"{self._newest(absence, 'n')} = {self._newest_now(absence)}")
            if place and self.stacks.pushed:
                for absence in self.stacks.pushed[place - 1]:
                    # behind the event's part as a later variable, before that as an earlier one
                    before = show_name(self.order[place - 1])
                    negated = show_name(absence.variable)
                    out.note("", f"!{negated}: no match goes on from an earlier {before}")
                    with out.block(f"if {self.frame.test(absence.variable)}:"):
                        out(f"{self._top(place - 1)} = -1")
        for role in self.frame.negatives:
            name = show_name(role.variable)
            out.note("", f"!{name}: kept, to be looked for between events of matches")
            with out.block(f"if {self.frame.test(role.variable)}:"):
                self._push(out, role.variable)

    def _told(self, place: int) -> str:
        """What an event of a variable does, in words."""
        name = show_name(self.order[place])
        if place == len(self.order) - 1:
            return f"{name}, the last: every match that ends here, back along the stacks"
        if place == 0:
            return f"{name}, the first: on its stack"
        return f"{name}: on its stack, with the newest {show_name(self.order[place - 1])} of now"

    def _top(self, place: int) -> str:
        return self.instances.top(self.order[place])

    def _push(self, out: Source, variable: str, rip: str = "-1") -> None:
        self.instances.push(out, variable, rip)
        out(*self.tally.passed(place_label(stack_place(variable))))

    def _reachable(self, node: str) -> str:
        """Whether an instance and so perhaps older ones are inside the window."""
        far = self._too_far(node)
        if far is None or not self.frame.plan.prune:
            return f"{node} >= 0"
        return f"{node} >= 0 and not ({far})"

    def _too_far(self, node: str) -> str | None:
        if self.frame.window is None:
            return None
        window = self.frame.window_text
        if self.frame.by_events:
            return f"idx - {self.instances.get('index', node)} > {window}"
        return f"t - {self.instances.get('end', node)} > {window}"

    def _construct(self, out: Source, place: int, start: str) -> None:
        """Binds one variable after the other, from the last back to the first."""
        variable = self.order[place]
        node = self.access.instance(variable)
        out.note(f"every {show_name(variable)} before it, from the newest to the oldest")
        out(f"{node} = {start}")
        with out.block(f"while {node} >= 0:"):
            far = self._too_far(node)
            if far is not None and self.frame.plan.prune:
                with out.block(f"if {far}:"):
                    out("break")
            if place:  # a loop inside this one may take long
                stop_if(out, STOP_ASKED, ("O",))
            at = stack_place(self.order[place])
            out(*self.tally.tried(place_label(at)))
            tests: list[tuple[str, Label | None]] = [
                (
                    self.frame.writer.condition(c.condition, self.access),
                    check_label(at, c.condition),
                )
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
                self.tally.around(
                    out, "go", absence_label(at, absence), partial(self._absent, out, absence)
                )
            with out.when(flag):
                if place:
                    self._construct(out, place - 1, self.instances.get("rip", node))
                else:
                    self._emit(out)
            out(f"{node} = {self.instances.get('previous', node)}")

    def _get(self, name: str, place: int) -> str:
        return self.instances.get(name, self.access.instance(self.order[place]))

    def _absent(self, out: Source, absence: Absence) -> None:
        last = len(self.order) - 1
        after = [self.order.index(v) for v in absence.after]
        before = [self.order.index(v) for v in absence.before]

        def found() -> None:
            out("go = False")

        if absence.newest:
            newest = (
                self._newest_now(absence)
                if before == [last]
                else self._newest(absence, self.access.instance(absence.before[0]))
            )
            out.note(f"is there an event {show_name(absence.variable)} between?")
            out(f"go = go and {newest} <= {self._get('row', after[0])}")
            return
        with out.block("if go:"):
            search(
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
                found=found,
            )

    def _judged_by_the_newest(self, place: int) -> list[Absence]:
        """The negations right in front of a variable that need no search."""
        variable = (self.order[place],)
        return [
            absence
            for group in self.stacks.absences
            for absence in group
            if absence.newest and absence.before == variable
        ]

    def _newest(self, absence: Absence, node: str) -> str:
        """The row of the newest negated event before an instance."""
        number, names = self.instances.number[absence.variable], self.frame.names
        name = f"NEWEST_{names.variable(absence.variable)}"
        return self.instances.columns.at(f"newest{number}", node, name=name)

    def _newest_now(self, absence: Absence) -> str:
        top = self.instances.top(absence.variable)
        return f"({self.instances.get('row', top)} if {top} >= 0 else -1)"

    def _emit(self, out: Source) -> None:
        with out.block("if otop == O.shape[0]:"):
            stop_if(out, "otop >= meta[MOST_OUT]", ("O",))
            out("O = grown(O)")
        for place, column in enumerate(self.output):
            row = "row" if place == len(self.order) - 1 else self._get("row", place)
            out(f"O[otop, {output_column(self.frame.names, self.output, column)}] = {row}")
        out("otop += 1")
