"""AFTER MATCH SKIP and CHOOSE: selecting matches, so that they do not share events."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.engine.interval_negation import matches_from_arrays, matches_to_arrays
from ensue.engine.match_output import concat_matches, list_members, list_rows_newest_first
from ensue.engine.state_format import Arrays
from ensue.ir.query import Query
from ensue.ir.selection import AfterMatch, SkipTarget
from ensue.ir.traversal import get_kleene_variables, iterate_positive_atoms
from ensue.kernels.match_selection import (
    are_distinct,
    order_by_ends,
    order_by_members,
    skip_matches,
    skip_ordered_matches,
)
from ensue.physical.structure import LivePartialMatches
from ensue.vector.match_rows import Matches

Rows = npt.NDArray[np.int64]


class SkipStrategy:
    """Applies AFTER MATCH SKIP: stores, by partition, where the next match may begin."""

    single = False  # whether at most one match of each last event is selected

    def __init__(self, query: Query) -> None:
        assert query.after is not None
        self.after = query.after
        self.order = [a.variable for a in iterate_positive_atoms(query.pattern)]
        self.earliest = np.zeros(1, np.int64)

    def __call__(self, matches: Matches, keys: npt.NDArray[Any], base: int) -> Matches:
        """Select matches; `keys` are the partitions of the rows from `base` on."""
        first, last = matches.ends()
        key = keys[last - base].astype(np.int64)
        self._make_room(key)
        selected = np.zeros(matches.count, np.bool_)
        target = self._target(matches, first, last)
        order = self._sort(matches, first, last)
        skip_matches(order, key, first, last, target, self.earliest, selected, self.single)
        return matches if selected.all() else matches.where(selected)

    def select_weighed(self, matches: Matches) -> Matches:
        """Select among matches of a kernel that already drops matches that begin too early.

        The kernel does not choose between matches with the same first and last event.
        """
        first, last = matches.ends()
        if are_distinct(last, first):
            return matches
        order = self._sort(matches, first, last)
        selected = np.ones(matches.count, np.bool_)
        same = (np.diff(last[order]) == 0) & (np.diff(first[order]) == 0)
        selected[order[1:][same]] = False
        return matches if selected.all() else matches.where(selected)

    def _make_room(self, key: Rows) -> None:
        """Grow the table for these keys."""
        if len(self.earliest) <= int(key.max()):
            grown = np.zeros(int(key.max()) * 2 + 1, np.int64)
            grown[: len(self.earliest)] = self.earliest
            self.earliest = grown

    def keep(self, kept: npt.NDArray[np.intp]) -> None:
        """Renumber the partitions after an eviction that keeps `kept`.

        Evicted partitions have no partial matches, so their next match begins after all earlier
        ones.
        """
        inside = kept[kept < len(self.earliest)]
        earliest = np.zeros(max(1, len(kept)), np.int64)
        earliest[: len(inside)] = self.earliest[inside]
        self.earliest = earliest

    @property
    def nbytes(self) -> int:
        return int(self.earliest.nbytes)

    def _target(self, matches: Matches, first: Rows, last: Rows) -> Rows:
        """The row that each match skips to; -1 if the variable is unbound."""
        match self.after.to:
            case SkipTarget.PAST_LAST:
                return last + 1
            case SkipTarget.NEXT_EVENT:
                return first + 1
            case SkipTarget.FIRST | SkipTarget.LAST:
                nth = 1 if self.after.to is SkipTarget.FIRST else -1
                return matches.nth(self.after.variable or "", nth)

    def _sort(self, matches: Matches, first: Rows, last: Rows) -> Rows:
        """Order by last event, then by members, as the reference does."""
        order: Rows = order_by_ends(last, first)
        same = (np.diff(last[order]) == 0) & (np.diff(first[order]) == 0)
        if not same.any():
            return order
        places = np.flatnonzero(np.append(same, False) | np.insert(same, 0, False))
        tied = order[places]
        group = np.cumsum(np.insert(~same, 0, True))[places]
        order[places] = tied[order_by_members(group, *list_members(matches.pick(tied), self.order))]
        return order


NONE = np.zeros(0, np.int64)
NEVER = np.iinfo(np.int64).max
KEPT, WAITS = 1, 2  # fates


class OrderedSkipStrategy(SkipStrategy):
    """AFTER MATCH SKIP that holds a match back until all earlier ones are decided."""

    def __init__(self, query: Query, output: Sequence[str]) -> None:
        super().__init__(query)
        self._by_start = self.after.by_start
        self._output = output
        self._several = frozenset(get_kleene_variables(query.pattern))
        self._held = concat_matches([], output)
        self._key_of = NONE  # of each held match
        self._until: float | None = None  # the earliest time at which a held match may be decided
        # last rows of partial matches that wait for time to pass, ascending, and their keys
        self._last, self._last_key = NONE, NONE

    def in_turn(self, matches: Matches, keys: npt.NDArray[Any], base: int, alive: LivePartialMatches | None) -> Matches:
        """Add matches and return the decided ones.

        `keys` are the partitions of the rows from `base` on; `alive` are the partial matches, None
        at the end of the stream.
        """
        if matches.count:
            self._add(matches, keys, base)
        decided = self._decide(alive) if self._held.count else concat_matches([], self._output)
        self.remember(alive)
        return decided

    def _add(self, matches: Matches, keys: npt.NDArray[Any], base: int) -> None:
        _, last = matches.ends()
        key = np.empty(matches.count, np.int64)
        here = last >= base
        key[here] = keys[last[here] - base]
        key[~here] = self._last_key[np.searchsorted(self._last, last[~here])]
        self._held = concat_matches([m for m in (self._held, matches) if m.count], self._output)
        self._key_of = np.concatenate([self._key_of, key])

    def _decide(self, alive: LivePartialMatches | None) -> Matches:
        held, key = self._held, self._key_of
        first, last = held.ends()
        turn, later = (first, last) if self._by_start else (last, np.zeros_like(last))
        order = self._sort(held, first, last)
        order = order[np.lexsort([turn[order], key[order]])]
        self._make_room(key)
        fate = np.zeros(held.count, np.int8)
        target = self._target(held, first, last)
        skip_ordered_matches(order, (key, first, target, turn, later), self._find_preceding(alive), self.earliest, fate)
        waits = np.flatnonzero(fate == WAITS)
        self._held, self._key_of = held.pick(waits), key[waits]
        return held.pick(order[fate[order] == KEPT])

    def _find_preceding(self, alive: LivePartialMatches | None) -> tuple[Rows, Rows, Rows, Rows]:
        """The partial matches that may still precede a held match, by their earliest turn."""
        if alive is None:
            return NONE, NONE, NONE, NONE
        if self._by_start:
            turn, later = alive.first, np.where(alive.waits, alive.last, NEVER)
        else:
            alive = alive.where(alive.waits)
            turn, later = alive.last, np.zeros_like(alive.last)
        order = np.lexsort([later, turn, alive.key])
        return alive.key[order], alive.first[order], turn[order], later[order]

    def remember(self, alive: LivePartialMatches | None) -> None:
        """Store the deadline, and the keys of partial matches that wait for time to pass."""
        self._until = None if alive is None or not self._held.count else alive.until
        if alive is None:
            self._last, self._last_key = NONE, NONE
            return
        waiting = alive.where(alive.waits)
        self._last, places = np.unique(waiting.last, return_index=True)
        self._last_key = waiting.key[places]

    def live_keys(self, count: int) -> npt.NDArray[np.bool_]:
        """Which of `count` keys have held matches."""
        alive = np.zeros(count, np.bool_)
        alive[self._key_of] = True
        return alive

    def keep(self, kept: npt.NDArray[np.intp]) -> None:
        super().keep(kept)
        self._key_of = np.searchsorted(kept, self._key_of)
        self._last_key = np.searchsorted(kept, self._last_key)

    @property
    def held(self) -> int:
        return self._held.count

    @property
    def held_ends(self) -> Rows:
        """The last rows of the held matches."""
        return self._held.ends()[1]

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._held.nbytes + self._key_of.nbytes

    def rows(self) -> Rows:
        rows = [self._held.elements(v) for v in self._held.variables]
        return np.unique(np.concatenate(rows)) if rows else NONE

    def next_timer(self) -> float | None:
        return self._until

    def snapshot(self) -> Arrays:
        """Serialize the held matches; the engine saves `earliest`."""
        return {**matches_to_arrays(self._held, "turn"), "turn keys": self._key_of}

    def restore(self, saved: Arrays) -> None:
        self._key_of = saved["turn keys"]
        count = len(self._key_of)
        self._held = matches_from_arrays(saved, "turn", self._held.variables, self._several, count)


class TriggerBuffer:
    """Holds the matches of a last event back until all of them are known, for COUNT(*), EXISTS and LIMIT."""

    def __init__(self, query: Query, output: Sequence[str]) -> None:
        self._output = output
        self._several = frozenset(get_kleene_variables(query.pattern))
        self.held = concat_matches([], output)

    def __call__(self, matches: Matches, find_undecided: Callable[[], Rows]) -> Matches:
        """Add matches and return those of complete last events; the others are the ends of undecided matches."""
        together = concat_matches([m for m in (self.held, matches) if m.count], self._output)
        if not together.count:
            return together
        waits = np.isin(together.ends()[1], find_undecided())
        self.held = together.where(waits)
        return together.where(~waits)

    def rows(self) -> Rows:
        rows = [self.held.elements(v) for v in self.held.variables]
        return np.unique(np.concatenate(rows)) if rows else NONE

    def snapshot(self) -> Arrays:
        return {**matches_to_arrays(self.held, "trigger"), "trigger count": np.array([self.held.count])}

    def restore(self, saved: Arrays) -> None:
        count = int(saved["trigger count"][0])
        self.held = matches_from_arrays(saved, "trigger", self.held.variables, self._several, count)


def create_skip_strategy(query: Query, output: Sequence[str], *, waits: bool) -> SkipStrategy | None:
    """Create the strategy for AFTER MATCH SKIP or CHOOSE; None if every match is returned.

    `waits`: some matches are only decided by the passage of time; `output`: the kernel's columns.
    """
    if query.choose is not None:
        return ChooseLatest(query) if query.skip is None else ChooseOnce(query)
    if query.after is None:
        return None
    in_turn = waits or query.after.by_start
    return OrderedSkipStrategy(query, output) if in_turn else SkipStrategy(query)


class ChooseOnce(SkipStrategy):
    """CHOOSE ONCE, and CHOOSE LATEST with AFTER MATCH: the newest match of each last event that may begin there."""

    single = True

    def __init__(self, query: Query) -> None:
        super().__init__(replace(query, after=query.skip or AfterMatch(SkipTarget.PAST_LAST)))

    def _sort(self, matches: Matches, first: Rows, last: Rows) -> Rows:
        """Order by last event, then from newest to oldest member, then as the reference does."""
        oldest_first = super()._sort(matches, first, last)
        members = list_rows_newest_first(matches)[oldest_first]
        keys = [-members[:, k] for k in range(members.shape[1])]
        return np.asarray(oldest_first[np.lexsort([*reversed(keys), last[oldest_first]])])


class ChooseLatest(ChooseOnce):
    """CHOOSE LATEST: the newest match of each last event; it is stateless."""

    def __call__(self, matches: Matches, keys: npt.NDArray[Any], base: int) -> Matches:  # noqa: ARG002
        first, last = matches.ends()
        order = self._sort(matches, first, last)
        selected = np.zeros(matches.count, np.bool_)
        selected[order[np.diff(last[order], prepend=-1) != 0]] = True
        return matches.where(selected)
