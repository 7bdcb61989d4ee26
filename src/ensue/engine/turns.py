"""AFTER MATCH SKIP where a match has to wait for its turn.

Others come before it, and may not have been found yet: matches that wait for time to pass and, in
the order of first events, partial matches that began earlier. Until none is left that could use up
its events, it is held back. What an earlier match has used up is dropped at once, and a partial
match that began before the kept matches allow is in nobody's way.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.algebra.query import Query
from ensue.algebra.walk import kleenes
from ensue.columns.matches import Matches
from ensue.engine.output import joined
from ensue.engine.saved_matches import as_arrays, from_arrays
from ensue.engine.skipping import Rows, Skipping
from ensue.engine.state import Arrays
from ensue.kernels.skipping import take_turns
from ensue.structures.contract import Alive

NONE = np.zeros(0, np.int64)
NEVER = np.iinfo(np.int64).max
KEPT, WAITS = 1, 2  # fates


class InTurn(Skipping):
    """Keeps, beside where the next match may begin, the matches that wait for their turn."""

    def __init__(self, query: Query, output: Sequence[str]) -> None:
        super().__init__(query)
        self._by_start = self.after.by_start
        self._output = output
        self._several = frozenset(kleenes(query.pattern))
        self._held = joined([], output)
        self._key_of = NONE  # of each match that is held
        self._until: float | None = None  # nothing that is in their way is over before
        # the last events of matches that wait for time to pass, ascending, and their keys
        self._last, self._last_key = NONE, NONE

    # ---------------------------------------------------------------------------- taking turns

    def in_turn(
        self, found: Matches, keys: npt.NDArray[Any], base: int, alive: Alive | None
    ) -> Matches:
        """The matches that are kept for good; `found` are further ones.

        `keys` are the partitions of the rows from `base` on, `alive` is what may become a match;
        None: the stream is over.
        """
        if found.count:
            self._add(found, keys, base)
        given = self._decided(alive) if self._held.count else joined([], self._output)
        self.remember(alive)
        return given

    def _add(self, found: Matches, keys: npt.NDArray[Any], base: int) -> None:
        _, last = found.ends()
        key = np.empty(found.count, np.int64)
        here = last >= base
        key[here] = keys[last[here] - base]
        key[~here] = self._last_key[np.searchsorted(self._last, last[~here])]
        self._held = joined([m for m in (self._held, found) if m.count], self._output)
        self._key_of = np.concatenate([self._key_of, key])

    def _decided(self, alive: Alive | None) -> Matches:
        held, key = self._held, self._key_of
        first, last = held.ends()
        turn, later = (first, last) if self._by_start else (last, np.zeros_like(last))
        order = self._sorted(held, first, last)
        order = order[np.lexsort([turn[order], key[order]])]
        self._make_room(key)
        fate = np.zeros(held.count, np.int8)
        target = self._target(held, first, last)
        take_turns(
            order, (key, first, target, turn, later), self._in_the_way(alive), self.earliest, fate
        )
        waits = np.flatnonzero(fate == WAITS)
        self._held, self._key_of = held.pick(waits), key[waits]
        return held.pick(order[fate[order] == KEPT])

    def _in_the_way(self, alive: Alive | None) -> tuple[Rows, Rows, Rows, Rows]:
        """What may become a match, and the least place that it can have among the others."""
        if alive is None:
            return NONE, NONE, NONE, NONE
        if self._by_start:
            turn, later = alive.first, np.where(alive.waits, alive.last, NEVER)
        else:
            alive = alive.where(alive.waits)
            turn, later = alive.last, np.zeros_like(alive.last)
        order = np.lexsort([later, turn, alive.key])
        return alive.key[order], alive.first[order], turn[order], later[order]

    def remember(self, alive: Alive | None) -> None:
        """Takes note of what is in the way, and of the keys of matches that time will show."""
        self._until = None if alive is None or not self._held.count else alive.until
        if alive is None:
            self._last, self._last_key = NONE, NONE
            return
        waiting = alive.where(alive.waits)
        self._last, places = np.unique(waiting.last, return_index=True)
        self._last_key = waiting.key[places]

    # ---------------------------------------------------------------------------- keys

    def live_keys(self, count: int) -> npt.NDArray[np.bool_]:
        """The keys of matches that are held, of so many."""
        alive = np.zeros(count, np.bool_)
        alive[self._key_of] = True
        return alive

    def keep(self, kept: npt.NDArray[np.intp]) -> None:
        super().keep(kept)
        self._key_of = np.searchsorted(kept, self._key_of)
        self._last_key = np.searchsorted(kept, self._last_key)

    # ---------------------------------------------------------------------------- what is held

    @property
    def held(self) -> int:
        return self._held.count

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._held.nbytes + self._key_of.nbytes

    def rows(self) -> Rows:
        found = [self._held.elements(v) for v in self._held.variables]
        return np.unique(np.concatenate(found)) if found else NONE

    def deadline(self) -> float | None:
        return self._until

    # ---------------------------------------------------------------------------- saving

    def save(self) -> Arrays:
        """What is held; where the next match may begin is saved with the engine."""
        return {**as_arrays(self._held, "turn"), "turn keys": self._key_of}

    def restore(self, saved: Arrays) -> None:
        self._key_of = saved["turn keys"]
        count = len(self._key_of)
        self._held = from_arrays(saved, "turn", self._held.variables, self._several, count)
