"""AFTER MATCH SKIP: which matches the ones before them use up."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.algebra.policy import SkipTo
from ensue.algebra.query import Query
from ensue.algebra.walk import positives
from ensue.columns.matches import Matches
from ensue.engine.state import Arrays
from ensue.kernels.arena import skip_matches

Rows = npt.NDArray[np.int64]
NEVER = np.iinfo(np.int64).max


class Skipping:
    """Keeps, by partition, where the next match may begin."""

    def __init__(self, query: Query) -> None:
        assert query.after is not None
        self.after = query.after
        self.order = [a.variable for a in positives(query.pattern)]
        self.earliest = np.zeros(1, np.int64)

    def __call__(self, found: Matches, keys: npt.NDArray[Any], base: int) -> Matches:
        """The matches that are kept; `keys` are the partitions of the rows from `base` on."""
        first, last = self._ends(found)
        key = keys[last - base].astype(np.int64)
        self._make_room(key)
        kept = np.zeros(found.count, np.bool_)
        target = self._target(found, first, last)
        skip_matches(self._sorted(found, last), key, first, target, self.earliest, kept)
        return found.where(kept)

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

    def save(self) -> Arrays:
        return {"earliest": self.earliest}

    def restore(self, saved: Arrays) -> None:
        """Goes on with what was saved."""
        self.earliest = saved["earliest"]

    def _ends(self, found: Matches) -> tuple[Rows, Rows]:
        first, last = np.full(found.count, NEVER), np.full(found.count, -1, np.int64)
        for rows in found.rows.values():
            first = np.minimum(first, np.where(rows < 0, NEVER, rows))
            last = np.maximum(last, rows)
        for variable in found.lists:
            front, back = _list_ends(found, variable)
            first = np.minimum(first, np.where(front < 0, NEVER, front))
            last = np.maximum(last, back)
        return first, last

    def _target(self, found: Matches, first: Rows, last: Rows) -> Rows:
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

    def _sorted(self, found: Matches, last: Rows) -> Rows:
        """By last event, then by the members in their order: what the reference does."""
        if found.lists:
            steps = [self._steps(found, k) for k in range(found.count)]
            return np.array(
                sorted(range(found.count), key=lambda k: (last[k], steps[k])), np.int64
            )
        rows = np.stack([found.rows[v] for v in self.order], axis=1)
        rows = np.where(rows < 0, NEVER, rows)
        numbers = np.argsort(rows, axis=1, kind="stable")
        rows = np.take_along_axis(rows, numbers, axis=1)
        keys = [c for k in range(rows.shape[1]) for c in (rows[:, k], numbers[:, k])]
        return np.lexsort([*reversed(keys), last])

    def _steps(self, found: Matches, k: int) -> list[tuple[int, int]]:
        steps = []
        for number, variable in enumerate(self.order):
            if variable in found.rows:
                rows = found.rows[variable][k : k + 1]
            else:
                offsets, values = found.lists[variable]
                rows = values[offsets[k] : offsets[k + 1]]
            steps += [(int(row), number) for row in rows if row >= 0]
        return sorted(steps)


def _list_ends(found: Matches, variable: str) -> tuple[Rows, Rows]:
    """The first and the last row of each list, -1 for an empty one."""
    offsets, values = found.lists[variable]
    empty = offsets[1:] == offsets[:-1]
    if not len(values):
        return np.full(found.count, -1, np.int64), np.full(found.count, -1, np.int64)
    front = values[np.minimum(offsets[:-1], len(values) - 1)]
    back = values[np.maximum(offsets[1:] - 1, 0)]
    return np.where(empty, -1, front), np.where(empty, -1, back)
