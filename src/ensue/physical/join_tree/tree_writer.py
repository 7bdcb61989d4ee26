"""Join-tree kernels: results of nodes are joined from the leaves upwards.

Events arrive in order, so a sequence stores only the left part's results: a result of the right
part is joined with them at once. An AND stores both parts. A match leaves the root when its last
event arrives.

An event for which the room is too small is rolled back (`entries`). A kernel that counts or
remembers, which must not happen twice, grows its tables itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from ensue.codegen.absence import write_search
from ensue.codegen.counters import make_absence_label, make_check_label
from ensue.codegen.expressions import split_functions
from ensue.codegen.kernel_inputs import GROW, KernelContext
from ensue.codegen.kernel_text import STOP_REQUESTED, write_event_loop, write_kernel, write_stop_if
from ensue.codegen.state_layout import SourceWriter, StateColumns, get_output_column, list_output_columns
from ensue.ir.traversal import iterate_positive_atoms
from ensue.kernels import arena
from ensue.physical.join_tree.nodes import PlacedNode, TreeModules, place_nodes
from ensue.physical.join_tree.operator_results import (
    CurrentEvent,
    PartialResult,
    TreeEntries,
    TreeResults,
    write_before,
    write_limits,
    write_rollback,
)
from ensue.physical.join_tree.records import GROWING, TreeRecords
from ensue.physical.structure import (
    InstanceKernel,
    InstanceState,
    KeyedRows,
    Structure,
    Table,
    TableShape,
    get_instance_shapes,
    make_named_shapes,
)
from ensue.planner.join_operators import OperatorFunction, PartOrder
from ensue.planner.join_tree import format_tree
from ensue.planner.physical_plan import ApplyNode, JoinNode, JoinTree, LeafNode, NegationCheck
from ensue.planner.statistics import CounterLabel
from ensue.printing.expression_printer import format_condition, format_name

FAR = str(2**62)  # after every row and time

# the rows of a chain descend from its newest event to its first
CHAINS = split_functions("""
@njit
def chain_has(A, chain, row):
    while chain >= 0:
        if A[chain, ROW] <= row:
            return A[chain, ROW] == row
        chain = A[chain, BACK]
    return False


@njit
def chains_meet(A, left, right):
    while left >= 0 and right >= 0:
        if A[left, ROW] == A[right, ROW]:
            return True
        if A[left, ROW] > A[right, ROW]:
            left = A[left, BACK]
        else:
            right = A[right, BACK]
    return False
""")


class TreeGuards:
    """Writes the tests that a result must pass."""

    def __init__(self, frame: KernelContext, records: TreeRecords, modules: TreeModules) -> None:
        self.frame = frame
        self.records = records
        self.modules = modules

    def out_of_reach(self, node: str, place: PlacedNode) -> str | None:
        """When this entry and all older ones ended too long ago to be joined at a place."""
        if not self.frame.plan.prune:
            return None
        tests = []
        if self.frame.by_events:
            last = self.records.get("last_index", node)
            tests.append(f"idx - {last} > {self.frame.window_text}")
        if limit := self.modules.limit_text(place):
            tests.append(f"t - {self.records.get('end', node)} > {limit}")
        return " or ".join(tests) or None

    def in_window(self, node: str, place: PlacedNode) -> list[str]:
        tests = []
        if self.frame.by_events:
            first = self.records.get("index", node)
            tests.append(f"idx - {first} <= {self.frame.window_text}")
        if limit := self.modules.limit_text(place):
            tests.append(f"t - {self.records.get('start', node)} <= {limit}")
        return tests

    def precursors(self, leaf: PlacedNode) -> list[str]:
        """When every enclosing level waits for the complex event that the leaf begins (HCED)."""
        tests = []
        for place in self.modules.openings(leaf):
            waiting = place.parts[0]
            newest = self.records.top(waiting.list)
            tests.append(f"{newest} >= 0")
            if (far := self.out_of_reach(newest, place)) is not None:
                tests.append(f"not ({far})")
        return tests

    def write_window_tests(self, part: PartialResult) -> list[str]:
        window = self.frame.window_text
        if not window:
            return []
        if self.frame.by_events:
            return [f"idx - {part.index} <= {window}"]
        return [f"t - {part.start} <= {window}"]

    def write_disjointness(self, left: PartialResult, right: PartialResult) -> list[str]:
        """The tests that no event is on both sides."""
        tests = []
        role = self.frame.plan.role
        for first in (*left.events, *left.chains):
            for second in (*right.events, *right.chains):
                if role(first).type != role(second).type:
                    continue
                match first in left.events, second in right.events:
                    case True, True:
                        tests.append(f"{left.events[first].row} != {right.events[second].row}")
                    case True, False:
                        row, chain = left.events[first].row, right.chains[second]
                        tests.append(f"not chain_has(A, {chain}, {row})")
                    case False, True:
                        row, chain = right.events[second].row, left.chains[first]
                        tests.append(f"not chain_has(A, {chain}, {row})")
                    case _:
                        chains = f"{left.chains[first]}, {right.chains[second]}"
                        tests.append(f"not chains_meet(A, {chains})")
        return tests

    def absent(self, out: SourceWriter, absence: NegationCheck, part: PartialResult, flag: str) -> None:
        early, late = ("-np.inf", "np.inf") if self.frame.real_time else (f"-{FAR}", FAR)
        times = self.frame.intervals
        with out.block(f"if {flag}:"):
            write_search(
                out,
                self.records,
                absence,
                part,
                after_row=[self._end(part, v, "row", "-1") for v in absence.after],
                after_end=[self._end(part, v, "end", early) for v in absence.after if times],
                before_row=[self._end(part, v, "first", FAR) for v in absence.before],
                before_start=[self._end(part, v, "start", late) for v in absence.before if times],
                first="",
                last="idx" if self.frame.by_events else "t",
                found=f"{flag} = False",
            )

    def _end(self, part: PartialResult, variable: str, which: str, none: str) -> str:
        """The first or last row or time of a variable's events; `none` if it has no events."""
        if variable in part.events:
            event = part.events[variable]
            return event.time(which) if which in ("start", "end") else event.row
        return self.write_chain_read(part.chains[variable], which, none)

    def write_chain_read(self, chain: str, which: str, none: str) -> str:
        if chain == "-1":
            return none
        return f"({self.records.get(which, chain)} if {chain} >= 0 else {none})"

    def can_begin_early(self, spot: PlacedNode) -> bool:
        """Whether an entry that ends inside the window may start before it."""
        return self.frame.intervals or spot.kleene or not isinstance(spot.node, LeafNode)


MEMORY = ("L", "LF")  # tables of repeats


@dataclass(frozen=True, slots=True)
class TreeKernel(InstanceKernel):
    """The kernel of a join tree."""

    instances: TreeRecords
    memory: StateColumns
    grows: bool  # the kernel grows its tables

    @property
    def shapes(self) -> tuple[TableShape, ...]:
        memory = make_named_shapes(self.memory, KeyedRows()) if self.memory.wholes else ()
        return *get_instance_shapes(self.instances), *memory

    @property
    def returned(self) -> tuple[str, ...]:
        return GROWING if self.grows else ()


STATE = ["A", "AF", "tops", "counts"]


class _TreeWriter:
    def __init__(self, frame: KernelContext) -> None:
        structure = frame.plan.structure
        assert isinstance(structure, JoinTree)
        self.frame = frame
        self.root = place_nodes(structure.root, frame.plan, frame.names)
        self.spots = list(self.root.walk())
        order = [a.variable for a in iterate_positive_atoms(frame.plan.query.pattern)]
        self.leaves = sorted(
            (spot for spot in self.spots if isinstance(spot.node, LeafNode)),
            key=lambda spot: order.index(spot.variable),
        )
        stored = tuple(spot.list for spot in self.spots if spot.kept)
        negated = tuple(r.variable for r in frame.negatives)
        modules = TreeModules(frame, structure, self.root)
        self.grows = frame.tally.on or any(spot.remembers for spot in self.spots)
        self.records = TreeRecords(
            frame,
            (*stored, *negated),
            chains=any(spot.kleene for spot in self.spots),
            limits=modules.limits(),
            grows=self.grows,
            labels={spot.list: spot.called for spot in self.spots},
            meanings={spot.list: format_tree(spot.node) for spot in self.spots},
        )
        self.guards = TreeGuards(frame, self.records, modules)
        self.results = TreeResults(frame, self.records)
        self.entries = TreeEntries(frame, self.records, self.results)
        self.output = list_output_columns((leaf.variable, leaf.kleene) for leaf in self.leaves)

    def write(self) -> TreeKernel:
        size = -1
        # repeated until entries store all values that conditions read
        while size != (size := self.records.size):
            self._event(self.frame.restart(depth=2))
        self.records.settle()
        body = self.frame.restart(depth=2)
        self._event(body)
        memory = MEMORY if self.results.memory.wholes else ()
        pushes = len(self.leaves) + len(self.frame.negatives)
        returned = GROWING if self.grows else ()
        step = write_event_loop(
            body,
            self.frame,
            [*STATE, *memory, *self.frame.tally.tables],
            registers={"atop": "INSTANCE_TOP", "otop": "OUT_TOP"},
            # an event may need more room than this
            needs=lambda _: (
                (f"4 * (atop + {pushes}) > 3 * A.shape[0]", "NEEDS_INSTANCES"),
                ("otop + SPARE_OUTPUT > O.shape[0]", "NEEDS_OUTPUT"),
            ),
            begin=lambda out: None if self.grows else write_limits(out),
            returned=returned,
        )
        functions = [function.text for function in self._functions()]
        text = write_kernel(self.frame, "A join tree.", [step], own=GROW | CHAINS, texts=functions)
        return TreeKernel(text, self.output, self.records, self.results.memory, self.grows)

    def _functions(self) -> list[OperatorFunction]:
        functions: dict[str, OperatorFunction] = {}
        for spot in self.spots:
            if not isinstance(spot.node, LeafNode):
                for function in (spot.node.operator.fits, spot.node.operator.builds):
                    if function is not None:
                        functions[function.name] = function
        return list(functions.values())

    def _event(self, out: SourceWriter) -> None:
        if self.grows:
            self._roles(out)
        else:
            write_rollback(out, self.frame, self.records, self._roles)

    def _roles(self, out: SourceWriter) -> None:
        # from the last variable to the first: an event is not joined with itself
        for leaf in reversed(self.leaves):
            if leaf.kleene:
                self._chain(out, leaf)
                continue
            tests = [self.frame.test(leaf.variable), *self.guards.precursors(leaf)]
            out.note("", f"an event {format_name(leaf.variable)}")
            fits = f"t - s <= {self.frame.window_text}" if self._lasts_too_long else "True"
            with out.when(*tests), out.when(fits):
                self._arrive(out, leaf, self._write_leaf(leaf))
        for role in self.frame.negatives:
            name = format_name(role.variable)
            out.note("", f"!{name}: stored, for lookups between events of results")
            with out.block(f"if {self.frame.test(role.variable)}:"):
                self.records.push(out, role.variable)

    @property
    def _lasts_too_long(self) -> bool:
        """Whether a single event can be longer than the window."""
        frame = self.frame
        return frame.intervals and frame.window is not None and not frame.by_events

    def _write_leaf(self, leaf: PlacedNode) -> PartialResult:
        events = {leaf.variable: CurrentEvent(self.frame)}
        return PartialResult(events, {}, "row", "row", "s", "t", "idx", self._newest_left(leaf))

    def _newest_left(self, leaf: PlacedNode) -> str:
        """For a part's first event: the newest result that may precede the part."""
        before = leaf.rip_of
        return "-1" if before is None else self.records.top(before.list)

    def _chain(self, out: SourceWriter, leaf: PlacedNode) -> None:
        """Every chain of a Kleene variable that ends with the current event."""
        kleene, records = self.frame.plan.role(leaf.variable).kleene, self.records
        assert kleene is not None
        old, new = f"p{leaf.called}", f"n{leaf.called}"
        matches = self.frame.test(leaf.variable)
        begins = self.frame.test(leaf.variable, first=True)
        tests = [matches, *self.guards.precursors(leaf)]
        initial = {"first": "row", "start": "s"} | ({"index": "idx"} if self.frame.counts else {})
        initial |= {"rip": self._newest_left(leaf), "count": "0"}
        name = format_name(leaf.variable)
        out.note("", f"an event {name}: appended to every chain of events {name}, and alone")
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
                    for name in initial:
                        out(f"{name}{leaf.called} = {records.get(name, old)}")
                with out.block("else:"):
                    fresh = [begins]
                    if self._lasts_too_long:
                        fresh.append(f"t - s <= {self.frame.window_text}")
                    out(f"go = {' and '.join(f'({t}) != 0' for t in fresh)}")
                    for name, value in initial.items():
                        out(f"{name}{leaf.called} = {value}")
                with out.block("if go:"):
                    out(f"count{leaf.called} += 1")
                    values = {name: f"{name}{leaf.called}" for name in initial}
                    out(*self.frame.tally.count_pass(format_tree(leaf.node)))
                    records.add(out, leaf.list, new, {**values, "back": old})
                    part = PartialResult(
                        {},
                        {leaf.variable: new},
                        values["first"],
                        "row",
                        values["start"],
                        "t",
                        values.get("index", ""),
                        values["rip"],
                    )
                    enough = f"count{leaf.called} >= {kleene.least}" if kleene.least > 1 else "True"
                    with out.when(enough):
                        self._rise(out, leaf, part)
                with out.block(f"if {old} < 0:"):
                    out("break")
                out(f"{old} = {records.get('previous', old)}")

    def _arrive(self, out: SourceWriter, spot: PlacedNode, part: PartialResult) -> None:
        """Stores a new result of a node if it must wait for others, and passes it on."""
        out(*self.frame.tally.count_pass(format_tree(spot.node)))
        if spot.kept:
            out.note(f"{format_tree(spot.node)}: stored")
            self.entries.keep(out, spot, part)
        self._rise(out, spot, part)

    def _rise(self, out: SourceWriter, spot: PlacedNode, part: PartialResult) -> None:
        """Joins a new result with the results of the other side of its parent."""
        if spot.parent is None:
            self._emit(out, part)
            return
        if isinstance(spot.parent.node, ApplyNode):
            self._make(out, spot.parent, (part,), part, [])
            return
        other = spot.sibling
        assert other is not None
        if other.waits:
            self._join(out, spot, other, part)
        if other.optional:
            self._arrive_tested(out, spot.parent, self._without_side(part, other))

    def _without_side(self, part: PartialResult, other: PlacedNode) -> PartialResult:
        """A result without any event of the other side."""
        missing = {leaf.variable: "-1" for leaf in other.leaves()}
        return replace(part, chains={**part.chains, **missing})

    def _join(self, out: SourceWriter, spot: PlacedNode, other: PlacedNode, part: PartialResult) -> None:
        parent = spot.parent
        assert parent is not None
        assert isinstance(parent.node, JoinNode)
        old = f"p{other.called}"
        operator = parent.node.operator
        before = operator.order is PartOrder.BEFORE
        jump = parent.in_order and spot.first_leaf is not None
        out.note(f"{format_tree(parent.node)}: with each {format_tree(other.node)}, from the newest")
        out(f"{old} = {part.rip if jump else self.records.top(other.list)}")
        entry = self.entries.part(other, old)
        left, right = (entry, part) if other.is_left else (part, entry)
        with out.block(f"while {old} >= 0:"):
            self._leave(out, innermost=parent.parent is None)
            if (far := self.guards.out_of_reach(old, parent)) is not None:
                with out.block(f"if {far}:"):
                    out("break")
            out(*self.frame.tally.count_try(format_tree(parent.node)))
            tests = []
            if self.frame.plan.prune and self.guards.can_begin_early(other):
                tests += self.guards.in_window(old, parent)
            if parent.in_order and not jump:
                tests.append(f"{left.last} < {right.first}")
            if before and not parent.in_order:
                tests.append(write_before(left, right))
            elif before and self.frame.intervals:
                tests.append(f"{left.closes} <= {right.opens}")
            if not parent.in_order:
                tests += self.guards.write_disjointness(left, right)
            if other.kleene and other.least > 1:
                tests.append(f"{self.records.get('count', old)} >= {other.least}")
            result = self.entries.join(out, parent, left, right)
            self._make(out, parent, (left, right), result, tests)
            out(f"{old} = {self.records.get('previous', old)}")

    def _leave(self, out: SourceWriter, *, innermost: bool = False) -> None:
        """Leaves a loop if the event is to be rolled back, or the kernel to stop."""
        if self.grows:
            write_stop_if(out, STOP_REQUESTED, GROWING)
            return
        with out.block("if short != 0:" if innermost else f"if short != 0 or {STOP_REQUESTED}:"):
            out("break")

    def _make(
        self,
        out: SourceWriter,
        spot: PlacedNode,
        parts: tuple[PartialResult, ...],
        whole: PartialResult,
        tests: list[str],
    ) -> None:
        """Writes a node's result from parts that pass the tests, by the operator's Q and F."""
        lines, result = self.results.build(spot, parts, whole)
        if not spot.remembers:
            tests = [*tests, *self.results.fits(spot, parts)]
            self._arrive_tested(out, spot, result, tests, lines)
            return
        recording, fires = self.results.fires(spot, parts[0])
        with out.when(*tests, *self.results.has_arguments(spot, parts)):
            out(*recording)
            self._arrive_tested(out, spot, result, [fires], lines)

    def _arrive_tested(
        self,
        out: SourceWriter,
        spot: PlacedNode,
        part: PartialResult,
        tests: list[str] | None = None,
        lines: Sequence[str] = (),
    ) -> None:
        """Passes on a result that passes the tests of its node; `lines` are executed before."""
        node, tally = spot.node, self.frame.tally
        assert not isinstance(node, LeafNode)
        here = format_tree(node)
        late = [c.condition for c in node.checks if self.results.is_late(c.condition, spot)]
        labelled: list[tuple[str, CounterLabel | None]] = [(text, None) for text in tests or ()]
        labelled += [
            (self.frame.writer.condition(c.condition, part), make_check_label(here, c.condition))
            for c in node.checks
            if c.condition not in late
        ]
        if spot.parent is None and not self.frame.plan.prune:
            labelled += [(text, None) for text in self.guards.write_window_tests(part)]
        flag = f"go{spot.called}"
        tested = [(text, label[1] if label else "") for text, label in labelled]
        if node.absences or tally.on:
            tested = [(flag, "")]
            tally.all_hold(out, flag, labelled)
        for absence in node.absences:
            search = partial(self.guards.absent, out, absence, part, flag)
            tally.count_test(out, flag, make_absence_label(here, absence), search)
        with out.when(*tested):
            out(*lines)
            if not late:
                self._arrive(out, spot, part)
                return
            conditions = [(self.frame.writer.condition(c, part), format_condition(c)) for c in late]
            with out.when(*conditions):
                self._arrive(out, spot, part)

    def _emit(self, out: SourceWriter, part: PartialResult) -> None:
        out.note("a match")
        if self.grows:
            with out.block("if otop == O.shape[0]:"):
                write_stop_if(out, "otop >= meta[MOST_OUT]", GROWING)
                out("O = grown(O)")
        for column in self.output:
            kind, variable = column.split("_", 1)
            if kind == "row":
                text = part.events[variable].row
            elif kind == "node":
                text = part.chains[variable]
            else:
                text = self.guards.write_chain_read(part.chains[variable], "count", "0")
            out(f"O[otop, {get_output_column(self.frame.names, self.output, column)}] = {text}")
        if self.grows:
            out("otop += 1")
            return
        with out.block("if otop < last_match:"):
            out("otop += 1")
        with out.block("else:"):
            out("short = SHORT_OF_OUTPUT")


class TreeState(InstanceState[TreeKernel]):
    """The entries of a tree's lists."""

    @property
    def population(self) -> int:
        repeats = len(self.tables[MEMORY[0]]) if self.source.memory.wholes else 0
        return super().population + repeats

    def live_keys(self) -> npt.NDArray[np.bool_]:
        alive = super().live_keys()
        if self.source.memory.wholes:
            # a repeat stores its last event without a time limit
            alive |= np.any(self.tables[MEMORY[0]] != 0, axis=1)
        return alive

    def expire_instances(self, now: float | None) -> None:
        if not len(self.entries):
            return
        alive = self.inside_window(now, "start")  # a joined result is as old as its first event
        if now is not None and self.source.instances.limits:
            alive &= self._inside_modules(now)
        self.keep_only(alive)

    def keep_only(self, alive: npt.NDArray[np.bool_]) -> None:
        self.keep_instances(alive, self.source.instances.links)

    def _inside_modules(self, now: float) -> npt.NDArray[np.bool_]:
        """The entries that can still be joined inside their modules (H4)."""
        records, starts = self.source.instances, self.times("start")
        lists = self.entries[:, records.columns.wholes["list"]]
        alive = np.ones(len(lists), np.bool_)
        for number, limit in records.limits.items():
            alive &= (lists != number) | (now - starts <= limit)
        return alive

    @property
    def row_columns(self) -> list[int]:
        return self.source.instances.rows

    @property
    def kleene_events(self) -> tuple[Table, int, int]:
        return self.tables["A"], self.source.instances.columns.wholes["back"], arena.ROW


TREE = Structure(lambda frame: _TreeWriter(frame).write(), TreeState)
