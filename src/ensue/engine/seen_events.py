"""Events that have come, as columns that grow: rows, keys, roles and times."""

from typing import Any

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[Any]
NAMES = ("rows", "key", "mask", "starts", "ends")


class SeenEvents:
    """Columns of one length, in the order of the stream; room for more is doubled."""

    def __init__(self, time: type[np.float64] | type[np.int64]) -> None:
        self._room = {n: np.zeros(0, time if n in ("starts", "ends") else np.int64) for n in NAMES}
        self.count = 0

    def add(self, **columns: Column) -> None:
        """Further events, a value of each column."""
        more = len(columns["rows"])
        if self.count + more > len(self._room["rows"]):
            size = max(2 * self.count, self.count + more)
            for name, old in self._room.items():
                self._room[name] = np.zeros(size, old.dtype)
                self._room[name][: self.count] = old[: self.count]
        for name, values in columns.items():
            self._room[name][self.count : self.count + more] = values
        self.count += more

    def keep(self, alive: npt.NDArray[np.bool_]) -> None:
        """Only these events."""
        self._room = {name: getattr(self, name)[alive] for name in NAMES}
        self.count = len(self._room["rows"])

    def set(self, name: str, values: Column) -> None:
        """Other values for a column."""
        self._room[name][: self.count] = values

    @property
    def rows(self) -> Column:
        return self._room["rows"][: self.count]

    @property
    def key(self) -> Column:
        return self._room["key"][: self.count]

    @property
    def mask(self) -> Column:
        return self._room["mask"][: self.count]

    @property
    def starts(self) -> Column:
        return self._room["starts"][: self.count]

    @property
    def ends(self) -> Column:
        return self._room["ends"][: self.count]

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._room.values())
