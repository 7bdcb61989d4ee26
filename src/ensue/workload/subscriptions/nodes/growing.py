"""Arrays that rows are added to."""

from typing import Any

import numpy as np
import numpy.typing as npt


class Growing:
    """Rows of one array with room for more: it doubles when it is full.

    >>> rows = Growing((2,), np.int32, fill=-1)
    >>> rows.add(), rows.add()
    (0, 1)
    >>> rows.array[1] = (3, 4)
    >>> rows.used.tolist()
    [[-1, -1], [3, 4]]
    """

    def __init__(self, width: tuple[int, ...], dtype: Any, fill: Any = 0, room: int = 16) -> None:
        self.array: npt.NDArray[Any] = np.full((room, *width), fill, dtype)
        self.fill = fill
        self.count = 0

    def add(self, rows: int = 1) -> int:
        """The place of the first of so many new rows."""
        first = self.count
        self.count += rows
        if self.count > len(self.array):
            room = max(self.count, 2 * len(self.array))
            more = np.full((room, *self.array.shape[1:]), self.fill, self.array.dtype)
            more[:first] = self.array[:first]
            self.array = more
        return first

    @property
    def used(self) -> npt.NDArray[Any]:
        """The rows that there are."""
        return self.array[: self.count]
