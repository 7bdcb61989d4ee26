"""Ascending lists of rows as one."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Rows = npt.NDArray[np.int64]


@kernel(nogil=True)
def merge_rows(rows: Any, offsets: Any, bits: Any, out_rows: Rows, out_mask: Rows) -> int:
    """Every row that is in one of the lists, ascending, with the bits of the lists it is in.

    List k is `rows[offsets[k] : offsets[k + 1]]`. Returns how many rows there are.
    """
    lists = bits.shape[0]
    at = offsets[:lists].copy()
    count = 0
    while True:
        least = np.int64(-1)
        for k in range(lists):
            if at[k] < offsets[k + 1]:
                row = rows[at[k]]
                if least < 0 or row < least:
                    least = row
        if least < 0:
            return count
        mask = np.int64(0)
        for k in range(lists):
            if at[k] < offsets[k + 1] and rows[at[k]] == least:
                mask |= bits[k]
                at[k] += 1
        out_rows[count] = least
        out_mask[count] = mask
        count += 1
