"""Where the search stands in each partition of a stream, between two batches of rows."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.buffers import Bools, Ints
from ensue.columns.keys import KeyCodes
from ensue.engine.row_patterns.found import Search
from ensue.results.identity import hash_rows

Arrays = dict[str, npt.NDArray[Any]]


@dataclass
class Searches:
    """By the code of a partition; places are counted from the first row that is kept."""

    position: Ints  # the first row that no match was looked for from
    number: Ints  # matches so far
    covered: Ints  # rows before this one are in a match
    begun: Bools  # rows came before those that are kept
    due: npt.NDArray[Any]  # the time behind which something is decided though no row comes

    @classmethod
    def none(cls, due: npt.NDArray[Any]) -> "Searches":
        """Of no partition; `due` says of which type times are."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty, np.zeros(0, np.bool_), due[:0])

    def reserve(self, codes: int, never: Any) -> None:
        """Makes room for so many partitions."""
        missing = codes - len(self.position)
        if missing <= 0:
            return
        more = max(missing, len(self.position))
        for field in fields(self):
            array = getattr(self, field.name)
            fresh = np.zeros(more, array.dtype)
            if field.name == "due":
                fresh[:] = never
            setattr(self, field.name, np.concatenate([array, fresh]))

    def of(self, codes: Ints, bounds: Ints, now: float | None, *, opened: bool) -> Search:
        """The search over some partitions, whose rows have these bounds."""
        begins = bounds[:-1]
        return Search(
            begins + self.position[codes],
            self.number[codes],
            begins + self.covered[codes],
            np.full(len(codes), opened),
            self.begun[codes],
            now,
        )

    def keep(self, alive: Bools) -> None:
        """Forgets partitions."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[alive])

    def saved(self, count: int) -> Arrays:
        """The arrays of the first partitions."""
        return {field.name: getattr(self, field.name)[:count] for field in fields(self)}


class Keys:
    """The codes of partitions. NULL is a key like others, and so is NaN."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = [(name, name) for name in columns]
        self._codes = KeyCodes()

    def __len__(self) -> int:
        return len(self._codes) if self._columns else 1

    def of(self, events: pa.Table) -> Ints:
        """The code of each event's partition."""
        if not self._columns:
            return np.zeros(events.num_rows, np.int64)
        pair = hash_rows(events, self._columns, np.arange(events.num_rows))
        halves = [pa.array(half.view(np.int64)) for half in pair]
        return self._codes.encode(halves).astype(np.int64)

    def keep(self, alive: Bools) -> None:
        """Forgets partitions; the others have codes from 0 on, in their order."""
        if self._columns:
            self._codes.keep(alive)

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes

    def save(self) -> bytes:
        return self._codes.save() if self._columns else b""

    def restore(self, data: bytes) -> None:
        self._codes = KeyCodes.restore(data) if self._columns else KeyCodes()
