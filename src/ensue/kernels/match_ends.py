"""The first and the last event of matches, one variable after the other."""

from typing import Any

import numpy.typing as npt

from ensue.kernels.jit import kernel

Table = npt.NDArray[Any]


@kernel(nogil=True)
def widen_by_rows(rows: Table, first: Table, last: Table) -> None:
    """Takes a variable's event into the first and last rows of matches; -1 is none."""
    for k in range(rows.shape[0]):
        row = rows[k]
        if row >= 0:
            first[k] = min(first[k], row)
            last[k] = max(last[k], row)


@kernel(nogil=True)
def widen_by_lists(offsets: Table, rows: Table, first: Table, last: Table) -> None:
    """The same for the events of a Kleene variable, which ascend."""
    for k in range(offsets.shape[0] - 1):
        if offsets[k] < offsets[k + 1]:
            first[k] = min(first[k], rows[offsets[k]])
            last[k] = max(last[k], rows[offsets[k + 1] - 1])
