"""An event of a join tree that needs more room than there was when it came.

What it wrote is taken back, and the kernel asks for room and looks at the event again: arrays that
may be replaced in the middle of the loop would make all of it several times slower. The last row
of each table takes what there is no room for.
"""

from collections.abc import Callable

from ensue.source.kernel_inputs import Frame
from ensue.source.table_columns import Source
from ensue.structures.tree.records import Records


def limits(out: Source) -> None:
    """Before the loop: where the rows end."""
    out("last_entry = A.shape[0] - 1", "last_match = O.shape[0] - 1", "short = 0")


def taken_back(
    out: Source, frame: Frame, records: Records, event: Callable[[Source], None]
) -> None:
    """Writes what is done with an event, and how that is undone if it was short of room."""
    out("old_entries = atop", "old_matches = otop")
    event(out)
    out.note("", "no room for all that the event made: taken back, and asked for")
    with out.block("if short != 0:"):
        out("code = NEEDS_INSTANCES if short == SHORT_OF_ENTRIES else NEEDS_OUTPUT")
        with out.block("while atop > old_entries:"):
            out("atop -= 1")
            previous = records.get("previous", "atop")
            with out.block("for list in range(tops.shape[1]):"):
                out(f"tops[k, list] = {previous} if tops[k, list] == atop else tops[k, list]")
        out("otop = old_matches")
        if frame.counts:
            out("counts[k] = idx - 1")
        out("break")
