"""Matches as rows of the events: which event each variable is bound to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ensue.columns.buffers import Bools, Ints, frozen
from ensue.kernels import match_ends

FIRST, TRIGGER = " first", " trigger"  # variables of matches that were only counted


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """For each match the row of each plain variable, and the rows of each Kleene variable.

    A row of -1 means that the variable is unbound; the rows of a Kleene variable's events in
    match k are `rows[offsets[k] : offsets[k + 1]]`. With `tally` a row stands for so many matches.
    """

    rows: Mapping[str, Ints]
    lists: Mapping[str, tuple[Ints, Ints]]
    count: int
    tally: Ints | None = None

    @property
    def number(self) -> int:
        """How many matches these are, those that were only counted included."""
        return self.count if self.tally is None else int(self.tally.sum(dtype=np.float64))

    @property
    def nbytes(self) -> int:
        arrays = [*self.rows.values(), *(array for pair in self.lists.values() for array in pair)]
        return sum(int(array.nbytes) for array in arrays)

    @property
    def variables(self) -> tuple[str, ...]:
        return (*self.rows, *self.lists)

    def elements(self, variable: str) -> Ints:
        """The rows a variable is bound to in any match, in the order of the matches."""
        if variable in self.lists:
            return self.lists[variable][1]
        rows = self.rows[variable]
        return rows[rows >= 0]

    def segments(self, variable: str) -> tuple[Ints, Ints]:
        """Any variable's rows as offsets and rows; a plain variable has one row or none.

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
        """The row of the n-th event of a variable, from 1; of its last one for -1.

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
        found = (place >= begin) & (place < end)
        if not len(rows):
            return np.full(self.count, -1, np.int64)
        return np.where(found, rows[np.where(found, place, 0)], np.int64(-1))

    def ends(self) -> tuple[Ints, Ints]:
        """The first and the last row of each match; where it has no event, the highest and -1.

        >>> Matches({"b": np.array([9])}, {"a": (np.array([0, 2]), np.array([5, 7]))}, 1).ends()
        (array([5]), array([9]))
        """
        first = np.full(self.count, np.iinfo(np.int64).max)
        last = np.full(self.count, -1, np.int64)
        for rows in self.rows.values():
            match_ends.widen_by_rows(frozen(rows), first, last)
        for offsets, rows in self.lists.values():
            match_ends.widen_by_lists(frozen(offsets), frozen(rows), first, last)
        return first, last

    def moved(self, change: Callable[[Ints], Ints]) -> "Matches":
        """The same matches with other numbers for their rows."""
        return Matches(
            {variable: change(rows) for variable, rows in self.rows.items()},
            {v: (offsets, change(rows)) for v, (offsets, rows) in self.lists.items()},
            self.count,
            self.tally,
        )

    def where(self, kept: Bools) -> "Matches":
        """Only the matches that a mask keeps."""
        return self.pick(np.flatnonzero(kept))

    def pick(self, chosen: Ints) -> "Matches":
        """These matches, in this order.

        >>> picked = Matches({}, {"a": (np.array([0, 2, 3]), np.array([5, 7, 8]))}, 2).pick([1, 0])
        >>> picked.lists["a"]
        (array([0, 1, 3]), array([8, 5, 7]))
        """
        lists = {}
        for variable, (offsets, rows) in self.lists.items():
            lengths = np.diff(offsets)[chosen]
            places = np.zeros(len(lengths) + 1, np.int64)
            np.cumsum(lengths, out=places[1:])
            shift = np.repeat(offsets[:-1][chosen] - places[:-1], lengths)
            lists[variable] = places, rows[shift + np.arange(places[-1])]
        singles = {variable: rows[chosen] for variable, rows in self.rows.items()}
        tally = None if self.tally is None else self.tally[chosen]
        return Matches(singles, lists, len(chosen), tally)
