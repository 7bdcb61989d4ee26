"""AFTER MATCH SKIP inside the kernel: runs that began among used events are dropped.

Matches that end with one event are all found at that event, and where the next one may begin does
not depend on the order in which they are weighed: behind the event itself (PAST LAST EVENT), or
behind the newest of their first events (TO NEXT EVENT). Which of several matches that began with
the same event is kept is decided outside (`engine/skipping.py`). Matches that wait for time to
pass do not come in the order of their last events, so the kernel does not weigh them.
"""

from ensue.algebra.lapses import lapses
from ensue.algebra.policy import InOrderOf, SkipTo
from ensue.algebra.query import Query
from ensue.plan.physical import Automaton
from ensue.source.table_columns import Source
from ensue.structures.contract import BEGAN, USED
from ensue.structures.runs.registers import Registers


class Skipped:
    """Writes what is dropped once a match is found."""

    def __init__(self, automaton: Automaton, registers: Registers, *, weighs: bool) -> None:
        self.registers = registers
        self.to = _weighed(registers.frame.plan.query, automaton) if weighs else None
        self.tables: tuple[str, ...] = () if self.to is None else (USED,)
        if self.to is not None:
            self.began("")

    def began(self, run: str) -> str:
        """The row of a run's first event."""
        return self.registers.runs.at(BEGAN, run)

    def too_late(self, run: str) -> list[str]:
        """When a run began among events that a match has used."""
        return [] if self.to is None else [f"{self.began(run)} < {USED}[k]"]

    def begin_event(self, out: Source) -> None:
        """Before an event is shown to runs."""
        if self.to is not None:
            out(f"next_begin = {USED}[k]")
        if self.to is SkipTo.PAST_LAST:
            out.note("matches of this event: where they are written, and the row they begin with")
            out("opened = otop", "oldest = row")

    def begin_run(self, out: Source, run: str) -> None:
        """A run begins with the event at hand."""
        if self.to is not None:
            out(f"{self.began(run)} = row")

    def may_end(self, run: str) -> list[str]:
        """When a match that ends with the event at hand may be kept."""
        return [f"{self.began(run)} <= oldest"] if self.to is SkipTo.PAST_LAST else []

    def found(self, out: Source, run: str) -> None:
        """A match ends with the event at hand, and is written next."""
        if self.to is SkipTo.PAST_LAST:
            out.note("of all matches that end here, one of those that began first is kept")
            with out.block(f"if {self.began(run)} < oldest:"):
                out(f"oldest = {self.began(run)}", "otop = opened")
            out("next_begin = row + 1")
        elif self.to is SkipTo.NEXT_EVENT:
            out(f"next_begin = max(next_begin, {self.began(run)} + 1)")

    def end_event(self, out: Source) -> None:
        """After an event was shown to all runs."""
        if self.to is not None:
            out(f"{USED}[k] = next_begin")

    def may_begin(self) -> list[str]:
        """When a run may begin with the event that others have just taken."""
        return ["next_begin <= row"] if self.to is SkipTo.PAST_LAST else []


def _weighed(query: Query, automaton: Automaton) -> SkipTo | None:
    """Where to a match skips, if the kernel can tell it."""
    waits = any(state.pending or state.lasting for state in automaton.states)
    if query.after is None or query.choose is not None or waits or any(lapses(query.pattern)):
        return None
    if query.after.order is not InOrderOf.END:
        return None
    simple = query.after.to in (SkipTo.PAST_LAST, SkipTo.NEXT_EVENT)
    return query.after.to if simple else None
