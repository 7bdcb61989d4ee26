"""Finding a few known names in a column of strings."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.kernels.jit import kernel

Bytes = npt.NDArray[np.uint8]


@kernel(nogil=True)
def find_names(
    offsets: npt.NDArray[Any],
    data: Bytes,
    name_offsets: npt.NDArray[Any],
    name_data: Bytes,
    codes: npt.NDArray[np.int32],
) -> None:
    """For each string the number of the name it equals, or -1."""
    names = name_offsets.shape[0] - 1
    for row in range(codes.shape[0]):
        begin = offsets[row]
        length = offsets[row + 1] - begin
        found = -1
        for name in range(names):
            first = name_offsets[name]
            if name_offsets[name + 1] - first != length:
                continue
            same = True
            for k in range(length):
                if data[begin + k] != name_data[first + k]:
                    same = False
                    break
            if same:
                found = name
                break
        codes[row] = found
