"""EXISTS: for each state the newest beginning of a partial match that got so far.

A match is there if the newest beginning is inside the window; older ones need not be known.
"""

from ensue.columns.matches import FIRST, TRIGGER
from ensue.plan.physical import Compact
from ensue.source.kernel_inputs import Frame
from ensue.source.table_columns import Source
from ensue.structures.compact.nodes import CompactText


class Sign(CompactText):
    """The kernel of EXISTS. `K[k, s]` is the row of a beginning and one, or 0 for none."""

    title = "Signs of matches."
    output = (f"row_{FIRST}", f"row_{TRIGGER}", "tally_")

    def __init__(self, frame: Frame, compact: Compact) -> None:
        super().__init__(frame, compact)
        self.place = {state: n for n, state in enumerate(self.states[1:])}

    @property
    def by_key(self) -> tuple[int, int]:
        size = len(self.place)
        return (size, size) if self._real else (2 * size, 0)

    @property
    def rows_by_key(self) -> tuple[int, int, int] | None:
        return 0, len(self.place), -1

    @property
    def _real(self) -> bool:
        return self.frame.real_time and not self.frame.by_events

    def row(self, state: int) -> str:
        return f"K[k, {self.place[state]}]"

    def when(self, state: int) -> str:
        """The time of the beginning, or how many events the partition had by then."""
        if self._real:
            return f"KF[k, {self.place[state]}]"
        return f"K[k, {len(self.place) + self.place[state]}]"

    @property
    def now(self) -> str:
        return "idx" if self.frame.by_events else "t"

    def inside(self, state: int) -> str:
        there = f"{self.row(state)} > 0"
        if not self.windowed:
            return there
        return f"{there} and {self.now} - {self.when(state)} <= {self.frame.window_text}"

    def complete(self, out: Source) -> None:
        out("first = -1")
        for step in self.final:
            with out.block(f"if m & {self.bit(step)}:"):
                if step.source == 0:
                    out("first = row")
                    continue
                newer = f"{self.row(step.source)} - 1 > first"
                with out.block(f"if {self.inside(step.source)} and {newer}:"):
                    out(f"first = {self.row(step.source)} - 1")
        with out.block("if first >= 0:"):
            out("O[otop, 0] = first", "O[otop, 1] = row", "O[otop, 2] = 1", "otop += 1")

    def keep(self, out: Source) -> None:
        # from the last state back: a step starts from what was there before the event
        for state in reversed(self.states[1:]):
            ended = self.resets(state)
            if ended:
                with out.block(f"if m & {ended}:"):
                    out(f"{self.row(state)} = 0")
            for step in self.into(state):
                if step.source == state:
                    continue
                if step.source == 0:
                    with out.block(f"if m & {self.bit(step)}:"):
                        out(f"{self.row(state)} = row + 1", f"{self.when(state)} = {self.now}")
                    continue
                newer = f"{self.row(step.source)} > {self.row(state)}"
                with out.block(f"if m & {self.bit(step)} and {newer}:"):
                    out(
                        f"{self.row(state)} = {self.row(step.source)}",
                        f"{self.when(state)} = {self.when(step.source)}",
                    )

    def settled(self, out: Source) -> None:
        for state in self.states[1:]:
            far = f"{self.now} - {self.when(state)} > {self.frame.window_text}"
            with out.block(f"if {self.row(state)} > 0 and {far}:"):
                out(f"{self.row(state)} = 0")
        out("pass")
