"""Writes the source of a join-tree kernel: results of nodes are joined from the leaves upwards.

Events come in order, so of a sequence only the left part's results are kept: a result of the
right part is joined with them at once. Both parts of an AND are kept. A match leaves the root when
its last event comes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ensue.algebra.walk import positives
from ensue.compile.absence import search
from ensue.compile.frame import (
    DONE,
    INSTANCE_TOP,
    NEEDS_INSTANCES,
    NEEDS_OUTPUT,
    OUT_TOP,
    POSITION,
    PRELUDE,
    Frame,
)
from ensue.compile.layout import Source
from ensue.compile.stacks import GROW, SPARE_OUTPUT
from ensue.compile.tree_nodes import Spot, spots_of
from ensue.compile.tree_parts import AtHand, Kept, Part
from ensue.compile.tree_records import Records
from ensue.compile.tree_results import Memory, TreeResults
from ensue.compile.tree_results import before as before_by_time
from ensue.plan.operators import Function, Order
from ensue.plan.physical import Absence, Join, Leaf, Tree

STATE = ["A", "AF", "tops", "counts"]
RETURNED = ("O", "A", "AF")  # tables that the kernel may have replaced by larger ones
FAR = str(2**62)  # behind every row

CHAINS = """
@njit
def chain_has(A, chain, row):
    while chain >= 0:
        if A[chain, {row}] <= row:  # older ones are smaller still
            return A[chain, {row}] == row
        chain = A[chain, {back}]
    return False


@njit
def chains_meet(A, one, other):
    while one >= 0 and other >= 0:
        if A[one, {row}] == A[other, {row}]:
            return True
        if A[one, {row}] > A[other, {row}]:
            one = A[one, {back}]
        else:
            other = A[other, {back}]
    return False

"""


@dataclass(frozen=True, slots=True)
class TreeSource:
    """The text of a kernel and what the caller must know of it."""

    text: str
    instances: Records
    output: tuple[str, ...]
    memory: Memory


def tree_source(frame: Frame) -> TreeSource:
    """The kernel of a join tree."""
    return _Trees(frame).written()


class _Trees:
    def __init__(self, frame: Frame) -> None:
        structure = frame.plan.structure
        assert isinstance(structure, Tree)
        self.frame = frame
        self.root = spots_of(structure.root, frame.plan)
        self.spots = list(self.root.walk())
        order = [a.variable for a in positives(frame.plan.query.pattern)]
        self.leaves = sorted(
            (spot for spot in self.spots if isinstance(spot.node, Leaf)),
            key=lambda spot: order.index(spot.variable),
        )
        kept = tuple(spot.list for spot in self.spots if spot.kept)
        negated = tuple(r.variable for r in frame.negatives)
        self.records = Records(
            frame, (*kept, *negated), chains=any(spot.kleene for spot in self.spots)
        )
        self.results = TreeResults(frame, self.records)
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
        body = Source(depth=2)
        size = -1
        # again, until no condition asks for more than entries keep
        while size != (size := self.records.size):
            body = Source(depth=2)
            self._event(body)
        body = Source(depth=2)
        self._event(body)
        head = Source()
        text = PRELUDE.format(title="A join tree.") + GROW
        if self.records.chains:
            wholes = self.records.columns.wholes
            text += CHAINS.format(row=wholes["row"], back=wholes["back"])
        head(*text.splitlines())
        for function in self._functions():
            head(*function.text.splitlines(), "")
        memory = ("L", "LF") if self.results.memory.width else ()
        names = [*self.frame.event_parameters(), *STATE, *memory, "O", "meta"]
        head("", f"def step(begin, stop, base, {', '.join(names)}):")
        pushes = len(self.leaves) + len(self.frame.negatives)
        with head:
            head(f"atop = meta[{INSTANCE_TOP}]", f"otop = meta[{OUT_TOP}]", f"code = {DONE}")
            head("i = begin")
            with head.block("while i < stop:"):
                head("k = key[i]")
                with head.block("if k < 0:"):
                    head("i += 1", "continue")
                head("m = mask[i]")
                if not self.frame.counts:
                    with head.block("if m == 0:"):
                        head("i += 1", "continue")
                # an event may need more room than this: it then makes the tables larger itself
                with head.block(f"if 4 * (atop + {pushes}) > 3 * A.shape[0]:"):
                    head(f"code = {NEEDS_INSTANCES}", "break")
                with head.block(f"if otop + {SPARE_OUTPUT} > O.shape[0]:"):
                    head(f"code = {NEEDS_OUTPUT}", "break")
                if self.frame.counts:
                    head("idx = counts[k] + 1", "counts[k] = idx")
                    with head.block("if m == 0:"):
                        head("i += 1", "continue")
                head("row = base + i", "t = ends[i]", "s = starts[i]")
        tail = Source(depth=2)
        tail("i += 1")
        tail.depth = 1
        tail(
            f"meta[{POSITION}] = i",
            f"meta[{INSTANCE_TOP}] = atop",
            f"meta[{OUT_TOP}] = otop",
            f"return code, {', '.join(RETURNED)}",
        )
        text = head.text() + body.text() + tail.text()
        return TreeSource(text, self.records, self.output, self.results.memory)

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
        # from the last variable to the first: what an event begins does not see what it ends
        for leaf in reversed(self.leaves):
            if leaf.kleene:
                self._chain(out, leaf)
                continue
            with out.block(f"if {self.frame.test(leaf.variable)}:"):
                if self._lasts_too_long:
                    with out.block(f"if t - s <= {self.frame.window}:"):
                        self._arrive(out, leaf, self._single(leaf))
                else:
                    self._arrive(out, leaf, self._single(leaf))
        for role in self.frame.negatives:
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
        old, new = f"p{leaf.number}", f"n{leaf.number}"
        tested = self.frame.test(leaf.variable)
        begins = self.frame.test(leaf.variable, first=True)
        with out.block(f"if {tested}:"):
            out(f"{old} = {records.top(leaf.list) if kleene.most != 1 else -1}")
            with out.block("while True:"):
                out("go = True")
                with out.block(f"if {old} >= 0:"):
                    if (far := self._out_of_reach(old)) is not None:
                        with out.block(f"if {far}:"):
                            out(f"{old} = -1", "continue")
                    tests = self._in_window(old) if self.frame.plan.prune else []
                    if self.frame.intervals:
                        tests.append(f"{records.get('end', old)} <= s")
                    if kleene.most is not None:
                        tests.append(f"{records.get('count', old)} < {kleene.most}")
                    if tests:
                        out(f"go = {' and '.join(tests)}")
                    names = ("first", "start", "index", "rip", "count")
                    for name in self._known(names):
                        out(f"{name}{leaf.number} = {records.get(name, old)}")
                with out.block("else:"):
                    fresh = [begins]
                    if self._lasts_too_long:
                        fresh.append(f"t - s <= {self.frame.window}")
                    out(f"go = {' and '.join(f'({t}) != 0' for t in fresh)}")
                    started = {
                        "first": "row",
                        "start": "s",
                        "index": "idx",
                        "rip": self._newest_left(leaf),
                        "count": "0",
                    }
                    for name in self._known(tuple(started)):
                        out(f"{name}{leaf.number} = {started[name]}")
                with out.block("if go:"):
                    out(f"count{leaf.number} += 1")
                    values = {
                        name: f"{name}{leaf.number}"
                        for name in self._known(("first", "start", "index", "rip", "count"))
                    }
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
                        with out.block(f"if count{leaf.number} >= {kleene.least}:"):
                            out("pass")
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
        if spot.kept:
            self._keep(out, spot, part)
        self._rise(out, spot, part)

    def _keep(self, out: Source, spot: Spot, part: Part) -> None:
        node, records = f"n{spot.number}", self.records
        values = {"first": part.first, "start": part.start, "index": part.index, "rip": part.rip}
        records.add(out, spot.list, node, values)
        if not isinstance(spot.node, Leaf):
            for variable, event in part.events.items():
                out(f"{records.kept_row(spot.list, variable, node)} = {event.row}")
            for variable, chain in part.chains.items():
                out(f"{records.kept_chain(spot.list, variable, node)} = {chain}")
        wanted = set(records.slots[spot.list])
        for variable, event in part.events.items():
            for which in ("start", "end"):
                if (variable, which) in wanted:
                    kept = records.kept_time(spot.list, variable, which, node)
                    out(f"{kept} = {event.time(which)}")
        if not spot.natural:
            for which, text in (("start", part.opens), ("end", part.closes)):
                out(f"{records.kept_time(spot.list, '', which, node)} = {text}")
        self.results.keep(out, spot, part, node)
        for feature in self.frame.features.all():
            for variable in part.events:
                if (variable, f"f{feature.number}") in wanted:
                    place = records.kept_feature(spot.list, variable, feature, node)
                    records.put(out, place, part.events[variable].feature(feature))

    def _rise(self, out: Source, spot: Spot, part: Part) -> None:
        """Joins a new result with what its parent has on the other side."""
        if spot.parent is None:
            self._emit(out, part)
            return
        other = spot.sibling
        if other is None:
            self._apply(out, spot.parent, part)
            return
        if other.waits:
            self._join(out, spot, other, part)
        if other.optional:
            self._arrive_tested(out, spot.parent, self._alone(part, other))

    def _apply(self, out: Source, spot: Spot, part: Part) -> None:
        """The result of an operator over one part."""
        tests = self.results.fits(spot, (part,))
        making, made = self.results.made(spot, (part,), part)
        self._arrive_tested(out, spot, made, tests, making)

    def _alone(self, part: Part, other: Spot) -> Part:
        """A result without any event of the other side."""
        missing = {leaf.variable: "-1" for leaf in other.leaves()}
        return replace(part, chains={**part.chains, **missing})

    def _join(self, out: Source, spot: Spot, other: Spot, part: Part) -> None:
        parent = spot.parent
        assert parent is not None
        assert isinstance(parent.node, Join)
        old = f"p{other.number}"
        operator = parent.node.operator
        before = operator.order is Order.BEFORE
        jump = parent.in_order and spot.first_leaf is not None
        out(f"{old} = {part.rip if jump else self.records.top(other.list)}")
        kept = self._kept_part(other, old)
        left, right = (kept, part) if other.is_left else (part, kept)
        with out.block(f"while {old} >= 0:"):
            if (far := self._out_of_reach(old)) is not None:
                with out.block(f"if {far}:"):
                    out("break")
            tests = []
            if self.frame.plan.prune and self._may_begin_early(other):
                tests += self._in_window(old)
            if parent.in_order and not jump:
                tests.append(f"{left.last} < {right.first}")
            if before and not parent.in_order:
                tests.append(before_by_time(left, right))
            elif before and self.frame.intervals:
                tests.append(f"{left.closes} <= {right.opens}")
            if not parent.in_order:
                tests += self._apart(left, right)
            if other.kleene and other.least > 1:
                tests.append(f"{self.records.get('count', old)} >= {other.least}")
            tests += self.results.fits(parent, (left, right))
            whole = self._hull(out, parent, left, right)
            whole = self.results.joined(out, parent, left, right, whole)
            making, made = self.results.made(parent, (left, right), whole)
            self._arrive_tested(out, parent, made, tests, making)
            out(f"{old} = {self.records.get('previous', old)}")

    def _kept_part(self, spot: Spot, node: str) -> Part:
        records = self.records
        alone = isinstance(spot.node, Leaf)
        events = {
            leaf.variable: Kept(records, spot.list, leaf.variable, node, alone)
            for leaf in spot.leaves()
            if not leaf.kleene
        }
        chains = {
            leaf.variable: (node if alone else records.kept_chain(spot.list, leaf.variable, node))
            for leaf in spot.leaves()
            if leaf.kleene
        }
        part = Part(
            events,
            chains,
            records.get("first", node),
            records.get("row", node),
            records.get("start", node),
            records.get("end", node),
            records.get("index", node) if self.frame.counts else "",
            records.get("rip", node),
        )
        part = self.results.kept(spot, part, node)
        if spot.natural:
            return part
        begins, ends = (records.kept_time(spot.list, "", w, node) for w in ("start", "end"))
        return replace(part, begins=begins, ends=ends)

    def _hull(self, out: Source, parent: Spot, left: Part, right: Part) -> Part:
        """The result of two parts that fit; the event at hand is its last."""
        number = parent.number

        def least(name: str, one: str, other: str) -> str:
            out(f"{name}{number} = {one}")
            with out.block(f"if {other} < {name}{number}:"):
                out(f"{name}{number} = {other}")
            return f"{name}{number}"

        first, start, index = left.first, left.start, left.index
        if not parent.in_order:
            first = least("first", left.first, right.first)
            start = least("start", left.start, right.start)
            if self.frame.counts:
                index = least("index", left.index, right.index)
        return Part(
            {**left.events, **right.events},
            {**left.chains, **right.chains},
            first,
            "row",
            start,
            "t",
            index,
            left.rip,
        )

    def _may_begin_early(self, spot: Spot) -> bool:
        """Whether an entry that is in reach by its end may be out of the window by its start."""
        return self.frame.intervals or spot.kleene or not isinstance(spot.node, Leaf)

    def _arrive_tested(
        self,
        out: Source,
        spot: Spot,
        part: Part,
        tests: list[str] | None = None,
        making: Sequence[str] = (),
    ) -> None:
        """A result of a node, if it passes the tests of its node; `making` is run then."""
        node = spot.node
        assert not isinstance(node, Leaf)
        tests = [] if tests is None else tests
        late = [c for c in node.checks if self.results.is_late(c.condition, spot)]
        tests += [self.frame.writer.condition(c.condition, part) for c in node.checks
                  if c not in late]  # fmt: skip
        if spot.parent is None and not self.frame.plan.prune:
            tests += self._whole_in_window(part)
        flag = " and ".join(tests) or "True"
        if node.absences:
            out(f"go{spot.number} = {flag}")
            flag = f"go{spot.number}"
            for absence in node.absences:
                with out.block(f"if {flag}:"):
                    self._absent(out, absence, part, flag)
        with out.block(f"if {flag}:"):
            out(*making)
            if not late:
                self._arrive(out, spot, part)
                return
            conditions = [self.frame.writer.condition(c.condition, part) for c in late]
            with out.block(f"if {' and '.join(conditions)}:"):
                self._arrive(out, spot, part)

    # ------------------------------------------------------------------------ tests

    def _out_of_reach(self, node: str) -> str | None:
        """When this entry and all older ones ended too long ago."""
        window = self.frame.window
        if window is None or not self.frame.plan.prune:
            return None
        if self.frame.by_events:
            return f"idx - {self.records.get('last_index', node)} > {window}"
        return f"t - {self.records.get('end', node)} > {window}"

    def _in_window(self, node: str) -> list[str]:
        window = self.frame.window
        if window is None:
            return []
        if self.frame.by_events:
            return [f"idx - {self.records.get('index', node)} <= {window}"]
        return [f"t - {self.records.get('start', node)} <= {window}"]

    def _whole_in_window(self, part: Part) -> list[str]:
        window = self.frame.window
        if window is None:
            return []
        if self.frame.by_events:
            return [f"idx - {part.index} <= {window}"]
        return [f"t - {part.start} <= {window}"]

    def _apart(self, left: Part, right: Part) -> list[str]:
        """No event is on both sides."""
        tests = []
        for one in (*left.events, *left.chains):
            for other in (*right.events, *right.chains):
                role = self.frame.plan.role
                if role(one).type != role(other).type:
                    continue
                match one in left.events, other in right.events:
                    case True, True:
                        tests.append(f"{left.events[one].row} != {right.events[other].row}")
                    case True, False:
                        row, chain = left.events[one].row, right.chains[other]
                        tests.append(f"not chain_has(A, {chain}, {row})")
                    case False, True:
                        row, chain = right.events[other].row, left.chains[one]
                        tests.append(f"not chain_has(A, {chain}, {row})")
                    case _:
                        chains = f"{left.chains[one]}, {right.chains[other]}"
                        tests.append(f"not chains_meet(A, {chains})")
        return tests

    def _absent(self, out: Source, absence: Absence, part: Part, flag: str) -> None:
        def found() -> None:
            out(f"{flag} = False")

        early, late = ("-np.inf", "np.inf") if self.frame.real_time else (f"-{FAR}", FAR)
        times = self.frame.intervals
        search(
            out,
            self.records,
            absence,
            part,
            after_row=[self._row(part, v, "row", "-1") for v in absence.after],
            after_end=[self._time(part, v, "end", early) for v in absence.after if times],
            before_row=[self._row(part, v, "first", FAR) for v in absence.before],
            before_start=[self._time(part, v, "start", late) for v in absence.before if times],
            first="",
            last="idx" if self.frame.by_events else "t",
            found=found,
        )

    def _row(self, part: Part, variable: str, which: str, none: str) -> str:
        """The row of a variable's first or last event; `none` where it has no events."""
        if variable in part.events:
            return part.events[variable].row
        return self._of_chain(part.chains[variable], which, none)

    def _time(self, part: Part, variable: str, which: str, none: str) -> str:
        if variable in part.events:
            return part.events[variable].time(which)
        return self._of_chain(part.chains[variable], which, none)

    def _of_chain(self, chain: str, which: str, none: str) -> str:
        if chain == "-1":
            return none
        return f"({self.records.get(which, chain)} if {chain} >= 0 else {none})"

    # ------------------------------------------------------------------------ matches

    def _emit(self, out: Source, part: Part) -> None:
        with out.block("if otop == O.shape[0]:"):
            out("O = grown(O)")
        for number, column in enumerate(self.output):
            kind, variable = column.split("_", 1)
            if kind == "row":
                text = part.events[variable].row
            elif kind == "node":
                text = part.chains[variable]
            else:
                text = self._of_chain(part.chains[variable], "count", "0")
            out(f"O[otop, {number}] = {text}")
        out("otop += 1")
