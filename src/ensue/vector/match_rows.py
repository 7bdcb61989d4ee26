"""Matches as row numbers of the events bound to each variable."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ensue.kernels import match_selection
from ensue.vector.arrow_numpy import Bools, Ints, as_read_only

FIRST, TRIGGER = " first", " trigger"  # variables of counted matches


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """For each match the row of each plain variable, and the rows of each Kleene variable.

    A row of -1 means that the variable is unbound; match k binds a Kleene variable to
    `rows[offsets[k] : offsets[k + 1]]`. With `tally` an entry stands for that many matches.
    """

    rows: Mapping[str, Ints]
    lists: Mapping[str, tuple[Ints, Ints]]
    count: int
    tally: Ints | None = None

    @property
    def number(self) -> int:
        """The number of matches, including those only counted."""
        return self.count if self.tally is None else int(self.tally.sum(dtype=np.float64))

    @property
    def nbytes(self) -> int:
        arrays = [*self.rows.values(), *(array for pair in self.lists.values() for array in pair)]
        return sum(int(array.nbytes) for array in arrays)

    @property
    def variables(self) -> tuple[str, ...]:
        return (*self.rows, *self.lists)

    def elements(self, variable: str) -> Ints:
        """The rows bound to a variable, in match order."""
        if variable in self.lists:
            return self.lists[variable][1]
        rows = self.rows[variable]
        return rows[rows >= 0]

    def segments(self, variable: str) -> tuple[Ints, Ints]:
        """The rows of any variable as offsets and values; a plain variable has one row or none.

        >>> Matches({"a": np.array([4, -1])}, {}, 2).segments("a")
        (array([0, 1, 1]), array([4]))
        """
        if variable in self.lists:
            return self.lists[variable]
        offsets = np.zeros(self.count + 1, np.int64)
        if variable not in self.rows:
            return offsets, np.zeros(0, np.int64)
        np.cumsum(self.rows[variable] >= 0, out=offsets[1:])
        return offsets, self.elements(variable)

    def nth(self, variable: str, number: int) -> Ints:
        """The row of the n-th event of a variable, counted from 1; -1 selects the last one.

        >>> Matches({}, {"a": (np.array([0, 2, 2]), np.array([5, 7]))}, 2).nth("a", -1)
        array([ 7, -1])
        """
        if variable not in self.lists:
            rows = self.rows.get(variable)
            if rows is None or number not in (1, -1):
                return np.full(self.count, -1, np.int64)
            return rows
        offsets, rows = self.lists[variable]
        begin, end = offsets[:-1], offsets[1:]
        place = begin + (number - 1) if number > 0 else end - 1
        bound = (place >= begin) & (place < end)
        if not len(rows):
            return np.full(self.count, -1, np.int64)
        return np.where(bound, rows[np.where(bound, place, 0)], np.int64(-1))

    def ends(self) -> tuple[Ints, Ints]:
        """The first and the last row of each match; the maximum and -1 for a match without events.

        >>> Matches({"b": np.array([9])}, {"a": (np.array([0, 2]), np.array([5, 7]))}, 1).ends()
        (array([5]), array([9]))
        """
        first = np.full(self.count, np.iinfo(np.int64).max)
        last = np.full(self.count, -1, np.int64)
        for rows in self.rows.values():
            match_selection.widen_by_rows(as_read_only(rows), first, last)
        for offsets, rows in self.lists.values():
            match_selection.widen_by_lists(as_read_only(offsets), as_read_only(rows), first, last)
        return first, last

    def map_rows(self, change: Callable[[Ints], Ints]) -> "Matches":
        """Map the row numbers."""
        return Matches(
            {variable: change(rows) for variable, rows in self.rows.items()},
            {v: (offsets, change(rows)) for v, (offsets, rows) in self.lists.items()},
            self.count,
            self.tally,
        )

    def where(self, mask: Bools) -> "Matches":
        """Select matches by a mask."""
        return self.pick(np.flatnonzero(mask))

    def pick(self, numbers: Ints) -> "Matches":
        """Select matches by number, in this order.

        >>> picked = Matches({}, {"a": (np.array([0, 2, 3]), np.array([5, 7, 8]))}, 2).pick([1, 0])
        >>> picked.lists["a"]
        (array([0, 1, 3]), array([8, 5, 7]))
        """
        lists = {}
        for variable, (offsets, rows) in self.lists.items():
            lengths = np.diff(offsets)[numbers]
            places = np.zeros(len(lengths) + 1, np.int64)
            np.cumsum(lengths, out=places[1:])
            shift = np.repeat(offsets[:-1][numbers] - places[:-1], lengths)
            lists[variable] = places, rows[shift + np.arange(places[-1])]
        singles = {variable: rows[numbers] for variable, rows in self.rows.items()}
        tally = None if self.tally is None else self.tally[numbers]
        return Matches(singles, lists, len(numbers), tally)
