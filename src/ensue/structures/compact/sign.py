"""EXISTS: for each state the newest beginning of a partial match that got so far.

A match is there if the newest beginning is inside the window; older ones need not be known.
"""

from ensue.columns.matches import FIRST, TRIGGER
from ensue.plan.physical import Compact
from ensue.source.kernel_inputs import Frame
from ensue.source.table_columns import Columns, Source
from ensue.structures.compact.nodes import CompactText


class Sign(CompactText):
    """The kernel of EXISTS. `K` has the row of a beginning and one, or 0 for none, by state."""

    title = "Signs of matches."
    output = (f"row_{FIRST}", f"row_{TRIGGER}", "tally_")

    def __init__(self, frame: Frame, compact: Compact) -> None:
        super().__init__(frame, compact)
        self.columns = Columns("K", "KF", frame.names)
        for state in self.states[1:]:
            self.row(state)
        for state in self.states[1:]:
            self.when(state)

    @property
    def by_key(self) -> tuple[int, int]:
        return len(self.columns.wholes), len(self.columns.reals)

    @property
    def rows_by_key(self) -> tuple[int, int, int] | None:
        return 0, len(self.states) - 1, -1

    @property
    def _real(self) -> bool:
        return self.frame.real_time and not self.frame.by_events

    def row(self, state: int) -> str:
        return self.columns.at(f"BEGINNING_{state}", "k")

    def when(self, state: int) -> str:
        """The time of the beginning, or how many events the partition had by then."""
        return self.columns.at(f"WHEN_{state}", "k", real=self._real)

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
            with out.when(self.taken(self.final, step)):
                if step.source == 0:
                    out("first = row")
                    continue
                newer = f"{self.row(step.source)} - 1 > first"
                with out.block(f"if {self.inside(step.source)} and {newer}:"):
                    out(f"first = {self.row(step.source)} - 1")
        with out.block("if first >= 0:"):
            self.emit(out, "first", "1")

    def keep(self, out: Source) -> None:
        # from the last state back: a step starts from what was there before the event
        for state in reversed(self.states[1:]):
            out.note(f"into state {state}")
            if ended := self.resets(state):
                with out.block(f"if {self.played(ended)}:"):
                    out(f"{self.row(state)} = 0")
            for step in self.into(state):
                if step.source == state:
                    continue
                if step.source == 0:
                    with out.block(f"if {self.played([self.role(step)])}:"):
                        out(f"{self.row(state)} = row + 1", f"{self.when(state)} = {self.now}")
                    continue
                newer = f"{self.row(step.source)} > {self.row(state)}"
                with out.block(f"if {self.played([self.role(step)])} and {newer}:"):
                    out(
                        f"{self.row(state)} = {self.row(step.source)}",
                        f"{self.when(state)} = {self.when(step.source)}",
                    )

    def settled(self, out: Source) -> None:
        out.note("what is out of the window is forgotten")
        for state in self.states[1:]:
            far = f"{self.now} - {self.when(state)} > {self.frame.window_text}"
            with out.block(f"if {self.row(state)} > 0 and {far}:"):
                out(f"{self.row(state)} = 0")
