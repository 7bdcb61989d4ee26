"""CHOOSE: of the matches with one last event the one with the newest members.

All matches of an event are found together, so that none of them comes later.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.algebra.policy import AfterMatch, Choice, SkipTo
from ensue.algebra.query import Query
from ensue.columns.matches import Matches
from ensue.engine.member_rows import newest_first
from ensue.engine.skipping import Rows, Skipping
from ensue.engine.turns import InTurn


def skipping_of(query: Query, output: Sequence[str], *, waits: bool) -> Skipping | None:
    """Which matches have to give way to others, if any have.

    `waits`: some matches are only known when time has passed. `output` are the columns of matches.
    """
    if query.choose is not None:
        match query.choose.choice:
            case Choice.LATEST:
                return Latest(query)
            case Choice.ONCE:
                return Once(query)
    if query.after is None:
        return None
    in_turn = waits or query.after.by_start
    return InTurn(query, output) if in_turn else Skipping(query)


class Once(Skipping):
    """The newest match of each last event that begins behind the last one of its partition."""

    def __init__(self, query: Query) -> None:
        super().__init__(replace(query, after=AfterMatch(SkipTo.PAST_LAST)))

    def _sorted(self, found: Matches, first: Rows, last: Rows) -> Rows:
        """By last event, then from the newest to the oldest; the same events as the text goes."""
        oldest_first = super()._sorted(found, first, last)
        members = newest_first(found)[oldest_first]
        keys = [-members[:, k] for k in range(members.shape[1])]
        return np.asarray(oldest_first[np.lexsort([*reversed(keys), last[oldest_first]])])


class Latest(Once):
    """The newest match of each last event; nothing has to be remembered."""

    def __call__(self, found: Matches, keys: npt.NDArray[Any], base: int) -> Matches:  # noqa: ARG002
        first, last = found.ends()
        order = self._sorted(found, first, last)
        kept = np.zeros(found.count, np.bool_)
        kept[order[np.diff(last[order], prepend=-1) != 0]] = True
        return found.where(kept)
