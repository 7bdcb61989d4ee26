"""Which matches an event spoils that lies in an interval where there must be none."""

from typing import Any

from ensue.kernels.jit import kernel


@kernel(nogil=True)
def spoil(
    first: Any,
    behind: Any,
    starts: Any,
    ends: Any,
    rows: Any,
    after: Any,
    until: Any,
    own: Any,
    spoilt: Any,
) -> None:
    """Marks the matches k for which an event is in (after[k], until[k]] as a whole.

    Events of its key are at first[k] : behind[k], in the order of their ends; `own` are the rows
    of its own events, which do not count. What is marked already is passed over.
    """
    for k in range(after.shape[0]):
        if spoilt[k]:
            continue
        low, high = first[k], behind[k]
        while low < high:
            middle = (low + high) // 2
            if ends[middle] > after[k]:
                high = middle
            else:
                low = middle + 1
        place = low
        while place < behind[k] and ends[place] <= until[k]:
            if starts[place] > after[k]:
                counts = True
                for j in range(own.shape[1]):
                    if own[k, j] == rows[place]:
                        counts = False
                        break
                if counts:
                    spoilt[k] = True
                    break
            place += 1
