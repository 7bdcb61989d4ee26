"""COUNT(*) and EXISTS on compact state: aggregates instead of partial matches.

For COUNT, each event is a matrix: the number of paths that it opens from one state to another. The
paths through a window are the product of its events' matrices, in a queue of two stacks: `back` is
one product, of the newest events; in `front`, the older ones, each node has the paths from its
position to the end of the front, so that the oldest can be dropped. When the front is empty, the
back is turned into the new front. Numbers are only added and multiplied: exact up to MOST, and
MOST beyond.
"""

from ensue.codegen.expressions import split_functions
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.state_layout import SourceWriter, StateColumns
from ensue.physical.compact.compact_nodes import CompactWriter
from ensue.planner.physical_plan import CompactPlan
from ensue.vector.match_rows import FIRST, TRIGGER

NONE = 2**62  # no row

FUNCTIONS = split_functions("""
@njit(inline="always")
def plus(a, b):
    return a + b if a <= MOST - b else MOST


@njit(inline="always")
def times(a, b):
    if a == 0 or b == 0:
        return 0
    if float(a) * float(b) < 9e18:
        return a * b
    return a * b if a <= MOST // b else MOST
""")


class CountWriter(CompactWriter):
    """The kernel of COUNT(*)."""

    title = "Numbers of matches."
    functions = FUNCTIONS
    output = (f"row_{FIRST}", f"row_{TRIGGER}", "tally_")

    def __init__(self, frame: KernelContext, compact: CompactPlan) -> None:
        # front: its oldest node; back, tail: the newest and the oldest node after the front
        self.tops = ("front", "back", "tail") if frame.window is not None else ()
        super().__init__(frame, compact)
        self.pairs = self._pairs()
        moving = [pair for pair in self.pairs if not self._has_single_path(*pair)]
        self.place = {pair: n for n, pair in enumerate(moving)}

    @property
    def none(self) -> str:
        return self.frame.names.number("NO_ROW", NONE, "after every row")

    def _pairs(self) -> list[tuple[int, int]]:
        """All pairs of a state and a state reachable from it, itself included."""
        pairs = {(s, s) for s in self.states}
        while more := {(a, step.target) for a, b in pairs for step in self.list_outgoing(b)} - pairs:
            pairs |= more
        rows = self.states if self.windowed else self.states[:1]
        return sorted((a, b) for a, b in pairs if a in rows)

    def _has_single_path(self, source: int, target: int) -> bool:
        """Whether the number of paths is always one."""
        if source != target:
            return False
        return not self.resets(target) and not any(s.source == target for s in self.list_incoming(target))

    @property
    def by_key(self) -> tuple[int, int]:
        return len(self.place) + len(self.states) - 1, 0

    @property
    def row_columns_by_key(self) -> tuple[int, int, int] | None:
        return None if self.windowed else (len(self.place), self.by_key[0], NONE)

    def ways(self, source: int, target: int) -> str | None:
        """The number of paths through the back; None: zero."""
        if (source, target) not in self.pairs:
            return None
        if (source, target) not in self.place:
            return "1"
        name, number = f"WAYS_{source}_{target}", self.place[source, target]
        meaning = f"paths from state {source} to {target} through the newer events"
        return f"K[k, {self.frame.names.number(name, number, 'columns of K', meaning)}]"

    def earliest(self, state: int) -> str:
        """The first row of the earliest partial match that the back moved to a state.

        It is stored relative to NO_ROW, so that 0 in a new table means none.
        """
        number = len(self.place) + self.states.index(state) - 1
        name, meaning = f"EARLIEST_{state}", f"the earliest beginning in state {state}"
        return f"K[k, {self.frame.names.number(name, number, 'columns of K', meaning)}]"

    def complete(self, out: SourceWriter) -> None:
        out("total = np.int64(0)", f"first = np.int64({self.none})")
        if self.windowed:
            self.write_expiry(out)
            out(f"front = {self.nodes.top('front')}", f"filled = {self.nodes.top('back')} >= 0")
        for step in self.final:
            with out.when(self.write_step_test(self.final, step)):
                if step.source == 0:
                    out("total = plus(total, 1)", "first = min(first, row)")
                else:
                    self._add_waiting(out, step.source)
        with out.block("if total > 0:"):
            self.emit(out, "first", "total")

    def _add_waiting(self, out: SourceWriter, state: int) -> None:
        """Adds the partial matches that wait in a state."""
        direct = self.ways(0, state)
        if not self.windowed:
            out(f"total = plus(total, {direct})")
            with out.block(f"if {direct} > 0:"):
                out(f"first = min(first, {self.earliest(state)} + {self.none})")
            return
        with out.block("if filled:"):
            first = f"{self.earliest(state)} + {self.none}"
            self._add_paths(out, [direct or ""], direct or "", first)
            out.note("the older events of the window, then the newer ones")
            with out.block("if front >= 0:"):
                for source in self.states[1:]:
                    ways = self.ways(source, state)
                    if ways is None:
                        continue
                    count = self.nodes.get(f"ways{source}", "front")
                    some = [count] if ways == "1" else [count, ways]
                    both = count if ways == "1" else f"times({count}, {ways})"
                    self._add_paths(out, some, both, self.nodes.get(f"first{source}", "front"))
        with out.block("elif front >= 0:"):
            count = self.nodes.get(f"ways{state}", "front")
            self._add_paths(out, [count], count, self.nodes.get(f"first{state}", "front"))

    def _add_paths(self, out: SourceWriter, factors: list[str], count: str, first: str) -> None:
        """Adds a number of paths, the product of factors, and their first row."""
        with out.when(*(f"{factor} > 0" for factor in factors)):
            out(f"total = plus(total, {count})", f"first = min(first, {first})")

    def keep(self, out: SourceWriter) -> None:
        if self.windowed:
            back, tail = self.nodes.top("back"), self.nodes.top("tail")
            self.nodes.push(out)
            out(f"{self.nodes.get('previous', 'n')} = {back}")
            out(f"{self.nodes.get('next', 'n')} = -1")
            with out.block(f"if {back} < 0:"):
                out(f"{tail} = n")
                self._reset_back(out)
            out(f"{back} = n")
        for state in reversed(self.states[1:]):
            out.note(f"paths into state {state}, and the earliest beginning among them")
            self._update(out, state)

    def _reset_back(self, out: SourceWriter) -> None:
        """Resets the back: one path from each state to itself."""
        for source, target in self.place:
            out(f"{self.ways(source, target)} = {int(source == target)}")
        for state in self.states[1:]:
            out(f"{self.earliest(state)} = 0")

    def _update(self, out: SourceWriter, state: int) -> None:
        """The paths into a state after the event; sources of steps still have old values."""
        ended, steps = self.resets(state), self.list_incoming(state)
        for source in self.states:
            ways = self.ways(source, state)
            if ways is None or (source, state) not in self.place:
                continue
            if any(step.source == state for step in steps):
                out(f"old = {ways}", "new = old")
            else:
                out(f"new = {ways}")
            if ended:
                with out.block(f"if {self.write_role_test(ended)}:"):
                    out("new = 0")
            for step in steps:
                opened = "old" if step.source == state else self.ways(source, step.source)
                if opened is not None:
                    with out.block(f"if {self.write_role_test([self.role(step)])}:"):
                        out(f"new = plus(new, {opened})")
            out(f"{ways} = new")
        beginning = self.earliest(state)
        if ended:
            with out.block(f"if {self.write_role_test(ended)}:"):
                out(f"{beginning} = 0")
        for step in steps:
            if step.source == state:
                continue
            other = f"row - {self.none}" if step.source == 0 else self.earliest(step.source)
            with out.block(f"if {self.write_role_test([self.role(step)])} and {other} < {beginning}:"):
                out(f"{beginning} = {other}")

    def write_expiry(self, out: SourceWriter) -> None:
        out.note("events outside the window are dropped")
        front, back, tail = (self.nodes.top(name) for name in ("front", "back", "tail"))
        with out.block("while True:"):
            with out.block(f"while {front} >= 0 and {self.nodes.write_window_test(front)}:"):
                out(f"{front} = {self.nodes.get('next', front)}")
            with out.block(f"if {front} >= 0 or {tail} < 0 or not ({self.nodes.write_window_test(tail)}):"):
                out("break")
            with out.block(f"if {self.nodes.write_window_test(back)}:"):
                out(f"{back} = -1", f"{tail} = -1", "break")
            out.note("the older part is empty: the newer one takes its place")
            self._turn(out)

    def _turn(self, out: SourceWriter) -> None:
        """Turns the back into the front: the paths from each of its nodes on, newest first."""
        for source, target in self.pairs:
            if (source, target) in self.place:
                out(f"ways{source}_{target} = np.int64({int(source == target)})")
        for state in self.states[1:]:
            out(f"first{state} = np.int64({self.none})")
        front, back, tail = (self.nodes.top(name) for name in ("front", "back", "tail"))
        out(f"x = {back}", "newer = -1")
        with out.block("while x >= 0:"):
            out(f"played = {self.nodes.get('mask', 'x')}")
            for state in self.states:
                self._prepend(out, state)
            out(f"{self.nodes.get('next', 'x')} = newer")
            for state in self.states[1:]:
                out(f"{self.nodes.get(f'ways{state}', 'x')} = ways0_{state}")
                out(f"{self.nodes.get(f'first{state}', 'x')} = first{state}")
            out("newer = x", f"x = {self.nodes.get('previous', 'x')}")
        out(f"{front} = {tail}", f"{back} = -1", f"{tail} = -1")

    def _ahead(self, source: int, target: int) -> str | None:
        if (source, target) not in self.pairs:
            return None
        return f"ways{source}_{target}" if (source, target) in self.place else "1"

    def _prepend(self, out: SourceWriter, source: int) -> None:
        """The paths from a state on, with an older event before the others."""
        ended = self.resets(source)
        steps = self.list_outgoing(source)
        for target in self.states[1:]:
            if (source, target) not in self.place:
                continue
            name = f"ways{source}_{target}"
            if any(step.target == source for step in steps):
                out(f"old = {name}")
            if ended:
                with out.block(f"if {self.write_role_test(ended, 'played')}:"):
                    out(f"{name} = np.int64(0)")
            for step in steps:
                ways = "old" if step.target == source else self._ahead(step.target, target)
                if ways is None:
                    continue
                with out.block(f"if {self.write_role_test([self.role(step)], 'played')}:"):
                    out(f"{name} = plus({name}, {ways})")
                    if source == 0:
                        row = self.nodes.get("row", "x")
                        if ways == "1":
                            out(f"first{target} = {row}")
                        else:
                            with out.block(f"if {ways} > 0:"):
                                out(f"first{target} = {row}")


# EXISTS: for each state the newest beginning of a partial match.


class ExistsWriter(CompactWriter):
    """The kernel of EXISTS. `K` has by state the row of a beginning plus one, or 0 for none."""

    title = "Signs of matches."
    output = (f"row_{FIRST}", f"row_{TRIGGER}", "tally_")

    def __init__(self, frame: KernelContext, compact: CompactPlan) -> None:
        super().__init__(frame, compact)
        self.columns = StateColumns("K", "KF", frame.names)
        for state in self.states[1:]:
            self.row(state)
        for state in self.states[1:]:
            self.when(state)

    @property
    def by_key(self) -> tuple[int, int]:
        return len(self.columns.wholes), len(self.columns.reals)

    @property
    def row_columns_by_key(self) -> tuple[int, int, int] | None:
        return 0, len(self.states) - 1, -1

    @property
    def _real(self) -> bool:
        return self.frame.real_time and not self.frame.by_events

    def row(self, state: int) -> str:
        return self.columns.at(f"BEGINNING_{state}", "k")

    def when(self, state: int) -> str:
        """The time of the beginning, or the number of the partition's events then."""
        return self.columns.at(f"WHEN_{state}", "k", real=self._real)

    @property
    def now(self) -> str:
        return "idx" if self.frame.by_events else "t"

    def inside(self, state: int) -> str:
        present = f"{self.row(state)} > 0"
        if not self.windowed:
            return present
        return f"{present} and {self.now} - {self.when(state)} <= {self.frame.window_text}"

    def complete(self, out: SourceWriter) -> None:
        out("first = -1")
        for step in self.final:
            with out.when(self.write_step_test(self.final, step)):
                if step.source == 0:
                    out("first = row")
                    continue
                newer = f"{self.row(step.source)} - 1 > first"
                with out.block(f"if {self.inside(step.source)} and {newer}:"):
                    out(f"first = {self.row(step.source)} - 1")
        with out.block("if first >= 0:"):
            self.emit(out, "first", "1")

    def keep(self, out: SourceWriter) -> None:
        # from the last state to the first: a step starts from the state before the event
        for state in reversed(self.states[1:]):
            out.note(f"into state {state}")
            if ended := self.resets(state):
                with out.block(f"if {self.write_role_test(ended)}:"):
                    out(f"{self.row(state)} = 0")
            for step in self.list_incoming(state):
                if step.source == state:
                    continue
                if step.source == 0:
                    with out.block(f"if {self.write_role_test([self.role(step)])}:"):
                        out(f"{self.row(state)} = row + 1", f"{self.when(state)} = {self.now}")
                    continue
                newer = f"{self.row(step.source)} > {self.row(state)}"
                with out.block(f"if {self.write_role_test([self.role(step)])} and {newer}:"):
                    out(
                        f"{self.row(state)} = {self.row(step.source)}", f"{self.when(state)} = {self.when(step.source)}"
                    )

    def write_expiry(self, out: SourceWriter) -> None:
        out.note("events outside the window are dropped")
        for state in self.states[1:]:
            far = f"{self.now} - {self.when(state)} > {self.frame.window_text}"
            with out.block(f"if {self.row(state)} > 0 and {far}:"):
                out(f"{self.row(state)} = 0")
