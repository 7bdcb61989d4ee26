"""The loop over events that every kernel has: registers are read, events passed over or done.

An event is looked at only when there is room for all it may need: a kernel that returns a code
instead has done nothing of that event, and is called again where it stopped.
"""

from collections.abc import Callable, Mapping, Sequence

from ensue.source.kernel_inputs import Frame
from ensue.source.kernel_text import Function, function
from ensue.source.table_columns import Source

STOP_ASKED = "meta[STOP] != 0"
AT_HAND = ("row = base + i", "t = ends[i]", "s = starts[i]")

Needs = Sequence[tuple[str, str]]  # when there is too little room, and what to ask for then


def event_loop(
    body: Source,
    frame: Frame,
    tables: Sequence[str],
    *,
    registers: Mapping[str, str],
    needs: Callable[[Source], Needs],
    begin: Callable[[Source], None] = lambda _: None,
    at_hand: Sequence[str] = AT_HAND,
    returned: Sequence[str] = (),
) -> Function:
    """Writes `step` around what is done with an event, which is two deep.

    `registers` are numbers that live in `meta` between calls, by their names in the source;
    `needs` may write what it takes to know how much room there is, and `begin` what comes before
    the loop. `returned` are the tables that the kernel may have made larger.
    """
    out = frame.source(depth=1)
    out.note("how far the tables are filled")
    out(*(f"{name} = meta[{place}]" for name, place in registers.items()), "code = DONE")
    begin(out)
    out("i = begin")
    with out.block("while i < stop:"):
        out.note("the partition, and the roles that the event can play in a match")
        out("k = key[i]")
        _skip_if(out, "k < 0")
        out("roles = mask[i]")
        if not frame.counts:
            _skip_if(out, "roles == 0")
        out.note("room for all that the event may need")
        for lacking, code in [(STOP_ASKED, "STOPPED"), *needs(out)]:
            with out.block(f"if {lacking}:"):
                out(f"code = {code}", "break")
        if frame.counts:
            out("idx = counts[k] + 1", "counts[k] = idx")
            _skip_if(out, "roles == 0")
        out.note("the event: its row in the stream, and its time")
        out(*at_hand)
        out.lines += body.lines
        out("i += 1")
    out("meta[POSITION] = i")
    out(*(f"meta[{place}] = {name}" for name, place in registers.items()))
    out(f"return {', '.join(('code', *returned))}")
    names = [*frame.event_parameters(), *tables, "O", "meta"]
    return function(frame, "step", ["begin", "stop", "base", *names], out)


def stop_if(out: Source, condition: str, returned: Sequence[str] = ()) -> None:
    """Leaves the kernel in the middle of an event: the state is of no use any more."""
    with out.block(f"if {condition}:"):
        out("meta[POSITION] = i", "meta[OUT_TOP] = otop", "code = STOPPED")
        out(f"return {', '.join(('code', *returned))}")


def _skip_if(out: Source, condition: str) -> None:
    with out.block(f"if {condition}:"):
        out("i += 1", "continue")
