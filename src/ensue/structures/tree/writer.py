"""Writes the source of a join-tree kernel: results of nodes are joined from the leaves upwards.

Events come in order, so of a sequence only the left part's results are kept: a result of the
right part is joined with them at once. Both parts of an AND are kept. A match leaves the root when
its last event comes.

An event that needs more room than there is is taken back (`tree_room`). Only where something is
counted or remembered, which must not happen twice, does the kernel make its tables larger itself.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ensue.algebra.text import show_condition, show_name
from ensue.algebra.walk import positives
from ensue.plan.estimates.counters import Label
from ensue.plan.physical import Apply, Join, Leaf, Tree
from ensue.plan.physical_rules.operators import Function, Order
from ensue.plan.physical_rules.tree import tree_text
from ensue.source.counting import absence_label, check_label, place_label
from ensue.source.event_loop import STOP_ASKED, event_loop, stop_if
from ensue.source.growing_output import GROW
from ensue.source.kernel_inputs import Frame
from ensue.source.kernel_text import kernel_text
from ensue.source.table_columns import Source, output_column
from ensue.structures.tree.entries import TreeEntries
from ensue.structures.tree.guards import CHAINS, TreeGuards
from ensue.structures.tree.modules import TreeModules
from ensue.structures.tree.nodes import Spot, spots_of
from ensue.structures.tree.operator_results import TreeResults
from ensue.structures.tree.operator_results import before as before_by_time
from ensue.structures.tree.parts import AtHand, Part
from ensue.structures.tree.records import GROWING, Records
from ensue.structures.tree.room import limits, taken_back
from ensue.structures.tree.source import MEMORY, TreeSource

STATE = ["A", "AF", "tops", "counts"]


def tree_source(frame: Frame) -> TreeSource:
    """The kernel of a join tree."""
    return _Trees(frame).written()


class _Trees:
    def __init__(self, frame: Frame) -> None:
        structure = frame.plan.structure
        assert isinstance(structure, Tree)
        self.frame = frame
        self.root = spots_of(structure.root, frame.plan, frame.names)
        self.spots = list(self.root.walk())
        order = [a.variable for a in positives(frame.plan.query.pattern)]
        self.leaves = sorted(
            (spot for spot in self.spots if isinstance(spot.node, Leaf)),
            key=lambda spot: order.index(spot.variable),
        )
        kept = tuple(spot.list for spot in self.spots if spot.kept)
        negated = tuple(r.variable for r in frame.negatives)
        modules = TreeModules(frame, structure, self.root)
        self.grows = frame.tally.on or any(spot.remembers for spot in self.spots)
        self.records = Records(
            frame,
            (*kept, *negated),
            chains=any(spot.kleene for spot in self.spots),
            limits=modules.limits(),
            grows=self.grows,
            labels={spot.list: spot.called for spot in self.spots},
            meanings={spot.list: tree_text(spot.node) for spot in self.spots},
        )
        self.guards = TreeGuards(frame, self.records, modules)
        self.results = TreeResults(frame, self.records)
        self.entries = TreeEntries(frame, self.records, self.results)
        self.output = tuple(
            column
            for leaf in self.leaves
            for column in (
                (f"node_{leaf.variable}", f"count_{leaf.variable}")
                if leaf.kleene
                else (f"row_{leaf.variable}",)
            )
        )

    # ------------------------------------------------------------------------ the whole

    def written(self) -> TreeSource:
        size = -1
        # again, until no condition asks for more than entries keep
        while size != (size := self.records.size):
            self._event(self.frame.again(depth=2))
        self.records.settle()
        body = self.frame.again(depth=2)
        self._event(body)
        memory = MEMORY if self.results.memory.width else ()
        pushes = len(self.leaves) + len(self.frame.negatives)
        returned = GROWING if self.grows else ()
        step = event_loop(
            body,
            self.frame,
            [*STATE, *memory, *self.frame.tally.tables],
            registers={"atop": "INSTANCE_TOP", "otop": "OUT_TOP"},
            # an event may need more room than this
            needs=lambda _: (
                (f"4 * (atop + {pushes}) > 3 * A.shape[0]", "NEEDS_INSTANCES"),
                ("otop + SPARE_OUTPUT > O.shape[0]", "NEEDS_OUTPUT"),
            ),
            begin=lambda out: None if self.grows else limits(out),
            returned=returned,
        )
        functions = [function.text for function in self._functions()]
        text = kernel_text(self.frame, "A join tree.", [step], own=GROW | CHAINS, given=functions)
        given = (self.output, self.records, self.results.memory, self.grows)
        return TreeSource(text, *given)

    def _functions(self) -> list[Function]:
        found: dict[str, Function] = {}
        for spot in self.spots:
            if not isinstance(spot.node, Leaf):
                for function in (spot.node.operator.fits, spot.node.operator.builds):
                    if function is not None:
                        found[function.name] = function
        return list(found.values())

    # ------------------------------------------------------------------------ one event

    def _event(self, out: Source) -> None:
        if self.grows:
            self._roles(out)
        else:
            taken_back(out, self.frame, self.records, self._roles)

    def _roles(self, out: Source) -> None:
        # from the last variable to the first: what an event begins does not see what it ends
        for leaf in reversed(self.leaves):
            if leaf.kleene:
                self._chain(out, leaf)
                continue
            tests = [self.frame.test(leaf.variable), *self.guards.precursors(leaf)]
            out.note("", f"an event {show_name(leaf.variable)}")
            with out.when(*tests):
                if self._lasts_too_long:
                    with out.block(f"if t - s <= {self.frame.window_text}:"):
                        self._arrive(out, leaf, self._single(leaf))
                else:
                    self._arrive(out, leaf, self._single(leaf))
        for role in self.frame.negatives:
            name = show_name(role.variable)
            out.note("", f"!{name}: kept, to be looked for between events of results")
            with out.block(f"if {self.frame.test(role.variable)}:"):
                self.records.push(out, role.variable)

    @property
    def _lasts_too_long(self) -> bool:
        """Whether an event alone can be longer than the window."""
        frame = self.frame
        return frame.intervals and frame.window is not None and not frame.by_events

    def _single(self, leaf: Spot) -> Part:
        events = {leaf.variable: AtHand(self.frame)}
        return Part(events, {}, "row", "row", "s", "t", "idx", self._newest_left(leaf))

    def _newest_left(self, leaf: Spot) -> str:
        """Of a part's first event: the newest result that may stand before the part."""
        before = leaf.rip_of
        return "-1" if before is None else self.records.top(before.list)

    def _chain(self, out: Source, leaf: Spot) -> None:
        """Every chain of a Kleene variable that ends with the event at hand."""
        kleene, records = self.frame.plan.role(leaf.variable).kleene, self.records
        assert kleene is not None
        old, new = f"p{leaf.called}", f"n{leaf.called}"
        tested = self.frame.test(leaf.variable)
        begins = self.frame.test(leaf.variable, first=True)
        tests = [tested, *self.guards.precursors(leaf)]
        shown = show_name(leaf.variable)
        out.note("", f"an event {shown}: behind every chain of events {shown}, and alone")
        with out.when(*tests):
            out(f"{old} = {records.top(leaf.list) if kleene.most != 1 else -1}")
            with out.block("while True:"):
                self._leave(out)
                out("go = True")
                with out.block(f"if {old} >= 0:"):
                    if (far := self.guards.out_of_reach(old, leaf)) is not None:
                        with out.block(f"if {far}:"):
                            out(f"{old} = -1", "continue")
                    tests = self.guards.in_window(old, leaf) if self.frame.plan.prune else []
                    if self.frame.intervals:
                        tests.append(f"{records.get('end', old)} <= s")
                    if kleene.most is not None:
                        tests.append(f"{records.get('count', old)} < {kleene.most}")
                    if tests:
                        out(f"go = {' and '.join(tests)}")
                    names = ("first", "start", "index", "rip", "count")
                    for name in self._known(names):
                        out(f"{name}{leaf.called} = {records.get(name, old)}")
                with out.block("else:"):
                    fresh = [begins]
                    if self._lasts_too_long:
                        fresh.append(f"t - s <= {self.frame.window_text}")
                    out(f"go = {' and '.join(f'({t}) != 0' for t in fresh)}")
                    started = {
                        "first": "row",
                        "start": "s",
                        "index": "idx",
                        "rip": self._newest_left(leaf),
                        "count": "0",
                    }
                    for name in self._known(tuple(started)):
                        out(f"{name}{leaf.called} = {started[name]}")
                with out.block("if go:"):
                    out(f"count{leaf.called} += 1")
                    values = {
                        name: f"{name}{leaf.called}"
                        for name in self._known(("first", "start", "index", "rip", "count"))
                    }
                    out(*self.frame.tally.passed(place_label(tree_text(leaf.node))))
                    records.add(out, leaf.list, new, {**values, "back": old})
                    part = Part(
                        {},
                        {leaf.variable: new},
                        values["first"],
                        "row",
                        values["start"],
                        "t",
                        values.get("index", ""),
                        values["rip"],
                    )
                    if kleene.least > 1:
                        with out.block(f"if count{leaf.called} >= {kleene.least}:"):
                            self._rise(out, leaf, part)
                    else:
                        self._rise(out, leaf, part)
                with out.block(f"if {old} < 0:"):
                    out("break")
                out(f"{old} = {records.get('previous', old)}")

    def _known(self, names: tuple[str, ...]) -> list[str]:
        return [n for n in names if n != "index" or self.frame.counts]

    # ------------------------------------------------------------------------ upwards

    def _arrive(self, out: Source, spot: Spot, part: Part) -> None:
        """A node has a new result: keep it if it must wait for others, and pass it on."""
        out(*self.frame.tally.passed(place_label(tree_text(spot.node))))
        if spot.kept:
            out.note(f"{tree_text(spot.node)}: kept")
            self.entries.keep(out, spot, part)
        self._rise(out, spot, part)

    def _rise(self, out: Source, spot: Spot, part: Part) -> None:
        """Joins a new result with what its parent has on the other side."""
        if spot.parent is None:
            self._emit(out, part)
            return
        if isinstance(spot.parent.node, Apply):
            self._make(out, spot.parent, (part,), part, [])
            return
        other = spot.sibling
        assert other is not None
        if other.waits:
            self._join(out, spot, other, part)
        if other.optional:
            self._arrive_tested(out, spot.parent, self._alone(part, other))

    def _alone(self, part: Part, other: Spot) -> Part:
        """A result without any event of the other side."""
        missing = {leaf.variable: "-1" for leaf in other.leaves()}
        return replace(part, chains={**part.chains, **missing})

    def _join(self, out: Source, spot: Spot, other: Spot, part: Part) -> None:
        parent = spot.parent
        assert parent is not None
        assert isinstance(parent.node, Join)
        old = f"p{other.called}"
        operator = parent.node.operator
        before = operator.order is Order.BEFORE
        jump = parent.in_order and spot.first_leaf is not None
        out.note(f"{tree_text(parent.node)}: with each {tree_text(other.node)}, from the newest")
        out(f"{old} = {part.rip if jump else self.records.top(other.list)}")
        kept = self.entries.part(other, old)
        left, right = (kept, part) if other.is_left else (part, kept)
        with out.block(f"while {old} >= 0:"):
            self._leave(out, innermost=parent.parent is None)
            if (far := self.guards.out_of_reach(old, parent)) is not None:
                with out.block(f"if {far}:"):
                    out("break")
            out(*self.frame.tally.tried(place_label(tree_text(parent.node))))
            tests = []
            if self.frame.plan.prune and self.guards.may_begin_early(other):
                tests += self.guards.in_window(old, parent)
            if parent.in_order and not jump:
                tests.append(f"{left.last} < {right.first}")
            if before and not parent.in_order:
                tests.append(before_by_time(left, right))
            elif before and self.frame.intervals:
                tests.append(f"{left.closes} <= {right.opens}")
            if not parent.in_order:
                tests += self.guards.apart(left, right)
            if other.kleene and other.least > 1:
                tests.append(f"{self.records.get('count', old)} >= {other.least}")
            joined = self.entries.joined(out, parent, left, right)
            self._make(out, parent, (left, right), joined, tests)
            out(f"{old} = {self.records.get('previous', old)}")

    def _leave(self, out: Source, *, innermost: bool = False) -> None:
        """Out of a loop if the event is to be taken back, or the kernel to stop."""
        if self.grows:
            stop_if(out, STOP_ASKED, GROWING)
            return
        with out.block("if short != 0:" if innermost else f"if short != 0 or {STOP_ASKED}:"):
            out("break")

    def _make(
        self, out: Source, spot: Spot, parts: tuple[Part, ...], whole: Part, tests: list[str]
    ) -> None:
        """A node's result, made of parts that pass the tests, as the operator's Q and F say."""
        making, made = self.results.made(spot, parts, whole)
        if not spot.remembers:
            tests = [*tests, *self.results.fits(spot, parts)]
            self._arrive_tested(out, spot, made, tests, making)
            return
        noting, fires = self.results.fires(spot, parts[0])
        with out.when(*tests, *self.results.can_be_asked(spot, parts)):
            out(*noting)
            self._arrive_tested(out, spot, made, [fires], making)

    def _arrive_tested(
        self,
        out: Source,
        spot: Spot,
        part: Part,
        tests: list[str] | None = None,
        making: Sequence[str] = (),
    ) -> None:
        """A result of a node, if it passes the tests of its node; `making` is run then."""
        node, tally = spot.node, self.frame.tally
        assert not isinstance(node, Leaf)
        here = tree_text(node)
        late = [c.condition for c in node.checks if self.results.is_late(c.condition, spot)]
        labelled: list[tuple[str, Label | None]] = [(text, None) for text in tests or ()]
        labelled += [
            (self.frame.writer.condition(c.condition, part), check_label(here, c.condition))
            for c in node.checks
            if c.condition not in late
        ]
        if spot.parent is None and not self.frame.plan.prune:
            labelled += [(text, None) for text in self.guards.whole_in_window(part)]
        flag = f"go{spot.called}"
        tested = [(text, label[1] if label else "") for text, label in labelled]
        if node.absences or tally.on:
            tested = [(flag, "")]
            tally.all_hold(out, flag, labelled)
        for absence in node.absences:
            search = partial(self.guards.absent, out, absence, part, flag)
            tally.around(out, flag, absence_label(here, absence), search)
        with out.when(*tested):
            out(*making)
            if not late:
                self._arrive(out, spot, part)
                return
            told = [(self.frame.writer.condition(c, part), show_condition(c)) for c in late]
            with out.when(*told):
                self._arrive(out, spot, part)

    # ------------------------------------------------------------------------ matches

    def _emit(self, out: Source, part: Part) -> None:
        out.note("a match")
        if self.grows:
            with out.block("if otop == O.shape[0]:"):
                stop_if(out, "otop >= meta[MOST_OUT]", GROWING)
                out("O = grown(O)")
        for column in self.output:
            kind, variable = column.split("_", 1)
            if kind == "row":
                text = part.events[variable].row
            elif kind == "node":
                text = part.chains[variable]
            else:
                text = self.guards.of_chain(part.chains[variable], "count", "0")
            out(f"O[otop, {output_column(self.frame.names, self.output, column)}] = {text}")
        if self.grows:
            out("otop += 1")
            return
        with out.block("if otop < last_match:"):
            out("otop += 1")
        with out.block("else:"):
            out("short = SHORT_OF_OUTPUT")
