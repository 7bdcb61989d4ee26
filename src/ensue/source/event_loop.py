"""The loop over events that every kernel has: registers are read, events passed over or done.

An event is looked at only when there is room for all it may need: a kernel that returns a code
instead has done nothing of that event, and is called again where it stopped.
"""

from collections.abc import Callable, Mapping, Sequence

from ensue.source.kernel_inputs import DONE, OUT_TOP, POSITION, STOP, STOPPED, Frame
from ensue.source.table_columns import Source

STOP_ASKED = f"meta[{STOP}] != 0"
AT_HAND = ("row = base + i", "t = ends[i]", "s = starts[i]")

Needs = Sequence[tuple[str, int]]  # when there is too little room, and what to ask for then


def event_loop(
    head: Source,
    body: Source,
    frame: Frame,
    tables: Sequence[str],
    *,
    registers: Mapping[str, int],
    needs: Callable[[Source], Needs],
    begin: Callable[[Source], None] = lambda _: None,
    at_hand: Sequence[str] = AT_HAND,
    returned: Sequence[str] = (),
) -> Source:
    """Writes `step` around what is done with an event, behind what stands in `head` already.

    `registers` are numbers that live in `meta` between calls, by their names in the source;
    `needs` may write what it takes to know how much room there is, and `begin` what comes before
    the loop. `returned` are the tables that the kernel may have made larger.
    """
    names = [*frame.event_parameters(), *tables, "O", "meta"]
    head("", f"def step(begin, stop, base, {', '.join(names)}):")
    with head:
        head(*(f"{name} = meta[{place}]" for name, place in registers.items()), f"code = {DONE}")
        begin(head)
        head("i = begin")
        with head.block("while i < stop:"):
            head("k = key[i]")
            _skip_if(head, "k < 0")
            head("m = mask[i]")
            if not frame.counts:
                _skip_if(head, "m == 0")
            for lacking, code in [(STOP_ASKED, STOPPED), *needs(head)]:
                with head.block(f"if {lacking}:"):
                    head(f"code = {code}", "break")
            if frame.counts:
                head("idx = counts[k] + 1", "counts[k] = idx")
                _skip_if(head, "m == 0")
            head(*at_hand)
            head.lines += body.lines
            head("i += 1")
        head(f"meta[{POSITION}] = i")
        head(*(f"meta[{place}] = {name}" for name, place in registers.items()))
        head(f"return {', '.join(('code', *returned))}")
    return head


def stop_if(out: Source, condition: str, returned: Sequence[str] = ()) -> None:
    """Leaves the kernel in the middle of an event: the state is of no use any more."""
    with out.block(f"if {condition}:"):
        out(f"meta[{POSITION}] = i", f"meta[{OUT_TOP}] = otop", f"code = {STOPPED}")
        out(f"return {', '.join(('code', *returned))}")


def _skip_if(head: Source, condition: str) -> None:
    with head.block(f"if {condition}:"):
        head("i += 1", "continue")
