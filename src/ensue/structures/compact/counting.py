"""COUNT(*): numbers of ways from state to state, in a queue that forgets from its old end.

Each event is a matrix: how many ways it opens from one state to another. The ways through a
window are the product of its events' matrices, kept as a queue of two stacks: `back` is one
product, of the events that came since the last turn; of the older ones, `front`, each node has the
ways from its own place to the turn, so that the oldest can be dropped. When the front is used up,
the back is turned into the new front. Numbers are added and multiplied, never taken off: exact up
to MOST, and MOST beyond.
"""

from ensue.columns.matches import FIRST, TRIGGER
from ensue.plan.physical import Compact
from ensue.source.kernel_inputs import Frame
from ensue.source.prelude import by_name
from ensue.source.table_columns import Source
from ensue.structures.compact.nodes import CompactText

NONE = 2**62  # no row

FUNCTIONS = by_name("""
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


class Counting(CompactText):
    """The kernel of COUNT(*)."""

    title = "Numbers of matches."
    functions = FUNCTIONS
    output = (f"row_{FIRST}", f"row_{TRIGGER}", "tally_")

    def __init__(self, frame: Frame, compact: Compact) -> None:
        # front: its oldest node; back, tail: the newest and the oldest node behind the front
        self.tops = ("front", "back", "tail") if frame.window is not None else ()
        super().__init__(frame, compact)
        self.pairs = self._pairs()
        moving = [pair for pair in self.pairs if not self._fixed(*pair)]
        self.place = {pair: n for n, pair in enumerate(moving)}

    @property
    def none(self) -> str:
        return self.frame.names.number("NO_ROW", NONE, "beyond every row")

    def _pairs(self) -> list[tuple[int, int]]:
        """From which state which other can be reached, states themselves included."""
        found = {(s, s) for s in self.states}
        changed = True
        while changed:
            more = {(a, step.target) for a, b in found for step in self.out_of(b)} - found
            found |= more
            changed = bool(more)
        rows = self.states if self.windowed else self.states[:1]
        return sorted((a, b) for a, b in found if a in rows)

    def _fixed(self, source: int, target: int) -> bool:
        """Whether there is always one way: by doing nothing."""
        if source != target:
            return False
        return not self.resets(target) and not any(s.source == target for s in self.into(target))

    @property
    def by_key(self) -> tuple[int, int]:
        return len(self.place) + len(self.states) - 1, 0

    @property
    def rows_by_key(self) -> tuple[int, int, int] | None:
        return None if self.windowed else (len(self.place), self.by_key[0], NONE)

    def ways(self, source: int, target: int) -> str | None:
        """The number of ways through the back; None: there are none."""
        if (source, target) not in self.pairs:
            return None
        if (source, target) not in self.place:
            return "1"
        name, number = f"WAYS_{source}_{target}", self.place[source, target]
        meaning = f"ways from state {source} to {target} through the newer events"
        return f"K[k, {self.frame.names.number(name, number, 'columns of K', meaning)}]"

    def earliest(self, state: int) -> str:
        """The row where the first partial match begins that the back brought to a state.

        NO_ROW is taken off it, so that 0 in a new table means none.
        """
        number = len(self.place) + self.states.index(state) - 1
        name, meaning = f"EARLIEST_{state}", f"the first beginning that came to state {state}"
        return f"K[k, {self.frame.names.number(name, number, 'columns of K', meaning)}]"

    # ------------------------------------------------------------------------ completing

    def complete(self, out: Source) -> None:
        out("total = np.int64(0)", f"first = np.int64({self.none})")
        if self.windowed:
            self.settled(out)
            out(f"front = {self.nodes.top('front')}", f"filled = {self.nodes.top('back')} >= 0")
        for step in self.final:
            with out.when(self.taken(self.final, step)):
                if step.source == 0:
                    out("total = plus(total, 1)", "first = min(first, row)")
                else:
                    self._arrived(out, step.source)
        with out.block("if total > 0:"):
            self.emit(out, "first", "total")

    def _arrived(self, out: Source, state: int) -> None:
        """Adds the partial matches that wait in a state."""
        direct = self.ways(0, state)
        if not self.windowed:
            out(f"total = plus(total, {direct})")
            with out.block(f"if {direct} > 0:"):
                out(f"first = min(first, {self.earliest(state)} + {self.none})")
            return
        with out.block("if filled:"):
            with out.block(f"if {direct} > 0:"):
                out(
                    f"total = plus(total, {direct})",
                    f"first = min(first, {self.earliest(state)} + {self.none})",
                )
            out.note("the older events of the window, then the newer ones")
            with out.block("if front >= 0:"):
                for source in self.states[1:]:
                    ways = self.ways(source, state)
                    if ways is None:
                        continue
                    there = self.nodes.get(f"ways{source}", "front")
                    some = [there] if ways == "1" else [there, ways]
                    with out.when(*(f"{number} > 0" for number in some)):
                        both = there if ways == "1" else f"times({there}, {ways})"
                        out(
                            f"total = plus(total, {both})",
                            f"first = min(first, {self.nodes.get(f'first{source}', 'front')})",
                        )
        with out.block("elif front >= 0:"):
            there = self.nodes.get(f"ways{state}", "front")
            with out.block(f"if {there} > 0:"):
                out(
                    f"total = plus(total, {there})",
                    f"first = min(first, {self.nodes.get(f'first{state}', 'front')})",
                )

    # ------------------------------------------------------------------------ keeping

    def keep(self, out: Source) -> None:
        if self.windowed:
            back, tail = self.nodes.top("back"), self.nodes.top("tail")
            self.nodes.push(out)
            out(f"{self.nodes.get('previous', 'n')} = {back}")
            out(f"{self.nodes.get('next', 'n')} = -1")
            with out.block(f"if {back} < 0:"):
                out(f"{tail} = n")
                self._emptied(out)
            out(f"{back} = n")
        for state in reversed(self.states[1:]):
            out.note(f"ways into state {state}, and the earliest beginning among them")
            self._moved(out, state)

    def _emptied(self, out: Source) -> None:
        """An empty back: one way from each state to itself."""
        for source, target in self.place:
            out(f"{self.ways(source, target)} = {int(source == target)}")
        for state in self.states[1:]:
            out(f"{self.earliest(state)} = 0")

    def _moved(self, out: Source, state: int) -> None:
        """The ways into a state after the event; sources of steps are as they were before it."""
        ended, steps = self.resets(state), self.into(state)
        for source in self.states:
            ways = self.ways(source, state)
            if ways is None or (source, state) not in self.place:
                continue
            if any(step.source == state for step in steps):
                out(f"old = {ways}", "new = old")
            else:
                out(f"new = {ways}")
            if ended:
                with out.block(f"if {self.played(ended)}:"):
                    out("new = 0")
            for step in steps:
                opened = "old" if step.source == state else self.ways(source, step.source)
                if opened is not None:
                    with out.block(f"if {self.played([self.role(step)])}:"):
                        out(f"new = plus(new, {opened})")
            out(f"{ways} = new")
        begun = self.earliest(state)
        if ended:
            with out.block(f"if {self.played(ended)}:"):
                out(f"{begun} = 0")
        for step in steps:
            if step.source == state:
                continue
            other = f"row - {self.none}" if step.source == 0 else self.earliest(step.source)
            with out.block(f"if {self.played([self.role(step)])} and {other} < {begun}:"):
                out(f"{begun} = {other}")

    # ------------------------------------------------------------------------ forgetting

    def settled(self, out: Source) -> None:
        out.note("what is out of the window is forgotten")
        front, back, tail = (self.nodes.top(name) for name in ("front", "back", "tail"))
        with out.block("while True:"):
            with out.block(f"while {front} >= 0 and {self.nodes.too_far(front)}:"):
                out(f"{front} = {self.nodes.get('next', front)}")
            with out.block(f"if {front} >= 0 or {tail} < 0 or not ({self.nodes.too_far(tail)}):"):
                out("break")
            with out.block(f"if {self.nodes.too_far(back)}:"):
                out(f"{back} = -1", f"{tail} = -1", "break")
            out.note("the older part is used up: the newer one takes its place")
            self._turned(out)

    def _turned(self, out: Source) -> None:
        """Makes the back the front: the ways from each of its nodes on, the newest first."""
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
                self._opened(out, state)
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

    def _opened(self, out: Source, source: int) -> None:
        """The ways from a state on, now that an older event comes before the others."""
        ended = self.resets(source)
        steps = self.out_of(source)
        for target in self.states[1:]:
            if (source, target) not in self.place:
                continue
            name = f"ways{source}_{target}"
            if any(step.target == source for step in steps):
                out(f"old = {name}")
            if ended:
                with out.block(f"if {self.played(ended, 'played')}:"):
                    out(f"{name} = np.int64(0)")
            for step in steps:
                ways = "old" if step.target == source else self._ahead(step.target, target)
                if ways is None:
                    continue
                with out.block(f"if {self.played([self.role(step)], 'played')}:"):
                    out(f"{name} = plus({name}, {ways})")
                    if source == 0:
                        row = self.nodes.get("row", "x")
                        if ways == "1":
                            out(f"first{target} = {row}")
                        else:
                            with out.block(f"if {ways} > 0:"):
                                out(f"first{target} = {row}")
