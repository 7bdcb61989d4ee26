"""AFTER MATCH SKIP: which matches the ones before them use up."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.algebra.policy import SkipTo
from ensue.algebra.query import Query
from ensue.algebra.walk import positives
from ensue.columns.matches import Matches
from ensue.kernels.skipping import (
    are_apart,
    order_by_ends,
    order_by_members,
    skip_matches,
)

Rows = npt.NDArray[np.int64]


class Skipping:
    """Keeps, by partition, where the next match may begin."""

    def __init__(self, query: Query) -> None:
        assert query.after is not None
        self.after = query.after
        self.order = [a.variable for a in positives(query.pattern)]
        self.earliest = np.zeros(1, np.int64)

    def __call__(self, found: Matches, keys: npt.NDArray[Any], base: int) -> Matches:
        """The matches that are kept; `keys` are the partitions of the rows from `base` on."""
        first, last = found.ends()
        key = keys[last - base].astype(np.int64)
        self._make_room(key)
        kept = np.zeros(found.count, np.bool_)
        target = self._target(found, first, last)
        skip_matches(self._sorted(found, first, last), key, first, target, self.earliest, kept)
        return found if kept.all() else found.where(kept)

    def among_weighed(self, found: Matches) -> Matches:
        """The same for matches of a kernel that drops what began among used events.

        It leaves open which of the matches with the same first and last event is kept.
        """
        first, last = found.ends()
        if are_apart(last, first):
            return found
        order = self._sorted(found, first, last)
        kept = np.ones(found.count, np.bool_)
        same = (np.diff(last[order]) == 0) & (np.diff(first[order]) == 0)
        kept[order[1:][same]] = False
        return found if kept.all() else found.where(kept)

    def _make_room(self, key: Rows) -> None:
        """Room for these keys, of which there are some."""
        if len(self.earliest) <= int(key.max()):
            grown = np.zeros(int(key.max()) * 2 + 1, np.int64)
            grown[: len(self.earliest)] = self.earliest
            self.earliest = grown

    def keep(self, kept: npt.NDArray[np.intp]) -> None:
        """Goes on with these partitions, numbered from 0.

        Nothing is lost with the others: all that is alive of them are events to come, and every
        match of those begins behind the matches there have been.
        """
        inside = kept[kept < len(self.earliest)]
        earliest = np.zeros(max(1, len(kept)), np.int64)
        earliest[: len(inside)] = self.earliest[inside]
        self.earliest = earliest

    @property
    def nbytes(self) -> int:
        return int(self.earliest.nbytes)

    def _target(self, found: Matches, first: Rows, last: Rows) -> Rows:
        """The row that each match skips to, -1 if it has no event of the variable."""
        match self.after.to:
            case SkipTo.PAST_LAST:
                return last + 1
            case SkipTo.NEXT_EVENT:
                return first + 1
            case SkipTo.FIRST | SkipTo.LAST:
                variable = self.after.variable or ""
                if variable in found.rows:
                    return found.rows[variable]
                front, back = _list_ends(found, variable)
                return front if self.after.to is SkipTo.FIRST else back

    def _sorted(self, found: Matches, first: Rows, last: Rows) -> Rows:
        """By last event, then by the members in their order: what the reference does."""
        order: Rows = order_by_ends(last, first)
        same = (np.diff(last[order]) == 0) & (np.diff(first[order]) == 0)
        if not same.any():
            return order
        places = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        tied = order[places]
        group = np.cumsum(np.insert(~same, 0, True))[places]
        offsets, steps = self._steps(found.pick(tied))
        order[places] = tied[order_by_members(group, offsets, steps)]
        return order

    def _steps(self, found: Matches) -> tuple[Rows, Rows]:
        """The members of each match in their order, as offsets and numbers.

        A number has the row first; a row that plays two roles has them as the text goes.
        """
        match, steps = [], []
        for number, variable in enumerate(self.order):
            offsets, rows = found.segments(variable)
            match.append(np.repeat(np.arange(found.count), np.diff(offsets)))
            steps.append(rows[offsets[0] : offsets[-1]] * len(self.order) + number)
        of, step = np.concatenate(match), np.concatenate(steps)
        places = np.zeros(found.count + 1, np.int64)
        np.cumsum(np.bincount(of, minlength=found.count), out=places[1:])
        return places, step[np.lexsort([step, of])]


def _list_ends(found: Matches, variable: str) -> tuple[Rows, Rows]:
    """The first and the last row of each list, -1 for an empty one."""
    offsets, values = found.lists[variable]
    empty = offsets[1:] == offsets[:-1]
    if not len(values):
        return np.full(found.count, -1, np.int64), np.full(found.count, -1, np.int64)
    front = values[np.minimum(offsets[:-1], len(values) - 1)]
    back = values[np.maximum(offsets[1:] - 1, 0)]
    return np.where(empty, -1, front), np.where(empty, -1, back)
