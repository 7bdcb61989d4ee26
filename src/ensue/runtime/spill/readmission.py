"""Matchers beside each other, each for its own keys: those that came back at different times."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.runtime.spill.resident_keys import ResidentKeys
from ensue.runtime.stage import StageInput
from ensue.vector.take import take_rows

MAX_COHORTS = 6

Tables = list[pa.Table]
Codes = npt.NDArray[np.int64]


class ReplayableMatcher(Protocol):
    """A matcher of all queries of a stage that takes up its state from events of the past."""

    def feed(self, given: StageInput, /) -> Tables: ...
    def advance(self, now: float, /) -> Tables: ...
    def finish(self) -> Tables: ...
    def deadline(self) -> float | None: ...
    def replay(self, events: pa.Table, now: float | None, /) -> None: ...
    def drop(self, events: pa.Table, /) -> bool: ...
    def save(self) -> bytes: ...
    def restore(self, data: bytes, /) -> None: ...
    @property
    def partial_matches(self) -> int: ...
    @property
    def state_bytes(self) -> int: ...
    @property
    def held_bytes(self) -> int: ...


@dataclass
class _Cohort:
    matcher: ReplayableMatcher
    rows: int  # events of its keys, about


class KeyCohorts:
    """Knows by the code of a key who matches it. A new key goes to the first cohort."""

    def __init__(self, fresh: Callable[[], ReplayableMatcher]) -> None:
        self.fresh = fresh
        self.place = np.zeros(0, np.int32)  # by code: the cohort, below 0: none has it
        self._all = [_Cohort(fresh(), 0)]
        self._base = self._all[0].matcher.held_bytes  # what a matcher without events takes

    def __len__(self) -> int:
        return len(self._all)

    @property
    def first(self) -> ReplayableMatcher:
        return self._all[0].matcher

    # ---------------------------------------------------------------------------- matching

    def feed(self, piece: pa.Table, codes: Codes) -> list[Tables]:
        """What events complete, each in the cohort of its key."""
        if len(self._all) == 1:
            self._all[0].rows += piece.num_rows
            return [self._all[0].matcher.feed(StageInput.of(piece))]
        found, place = [], self.place[codes]
        for number, cohort in enumerate(self._all):
            rows = np.flatnonzero(place == number)
            if len(rows):
                cohort.rows += len(rows)
                found.append(cohort.matcher.feed(StageInput.of(take_rows(piece, rows))))
        return found

    def settle(self, now: float) -> list[Tables]:
        """What is decided at `now`: a state from which events are replayed has delivered it."""
        due = [(cohort.matcher.deadline(), cohort.matcher) for cohort in self._all]
        return [m.advance(now) for time, m in due if time is not None and time <= now]

    def advance(self, now: float) -> list[Tables]:
        return [cohort.matcher.advance(now) for cohort in self._all]

    def finish(self) -> list[Tables]:
        return [cohort.matcher.finish() for cohort in self._all]

    def deadline(self) -> float | None:
        times = [t for c in self._all if (t := c.matcher.deadline()) is not None]
        return min(times, default=None)

    @property
    def partial_matches(self) -> int:
        return sum(cohort.matcher.partial_matches for cohort in self._all)

    @property
    def held_bytes(self) -> int:
        """What they take because of events."""
        return sum(max(0, cohort.matcher.held_bytes - self._base) for cohort in self._all)

    # ---------------------------------------------------------------------------- keys

    def add(
        self, codes: Codes, events: pa.Table, resident: ResidentKeys, now: float | None
    ) -> list[Tables]:
        """Keys that come back with these events, which are resident already.

        Small cohorts go together with them, so that each is more than twice as large as the next.
        Gives what these had not delivered yet.
        """
        first, rows = len(self._all), events.num_rows
        self.place[codes] = first
        while first and (self._all[first - 1].rows <= 2 * rows or first >= MAX_COHORTS):
            first -= 1
            rows += self._all[first].rows
        found: list[Tables] = []
        if first < len(self._all):
            if now is not None:
                found = [cohort.matcher.advance(now) for cohort in self._all[first:]]
            del self._all[first:]  # before the new one takes memory
            self.place[self.place > first] = first
            resident.sort()
            places = np.flatnonzero(self.place[resident.codes] == first)
            events = resident.rows(places)
        self._append(events, now)
        return found

    def drop(self, events: pa.Table, codes: Codes) -> bool:
        """Drops the keys of events; False: they have to be built anew without them."""
        place, dropped = self.place[codes], True
        for number, cohort in enumerate(self._all):
            rows = np.flatnonzero(place == number)
            if len(rows):
                cohort.rows = max(0, cohort.rows - len(rows))
                some = events if len(rows) == len(codes) else take_rows(events, rows)
                dropped &= cohort.matcher.drop(some)
        return dropped

    def one_of(self, events: pa.Table, now: float | None) -> None:
        """One cohort of all keys that are resident, from their events."""
        self._all.clear()  # before the new one takes memory
        self.place[self.place >= 0] = 0
        self._append(events, now)

    def _append(self, events: pa.Table, now: float | None) -> None:
        cohort = _Cohort(self.fresh(), events.num_rows)
        cohort.matcher.replay(events, now)
        self._all.append(cohort)

    def room_for(self, count: int) -> None:
        """There are so many codes now."""
        if count > len(self.place):
            more = max(count, 2 * len(self.place)) - len(self.place)
            self.place = np.concatenate([self.place, np.zeros(more, np.int32)])

    def renumber(self, moved: npt.NDArray[np.int32]) -> None:
        """Keys have other codes from now on."""
        known = np.flatnonzero(moved >= 0)
        place = np.zeros(len(known), np.int32)
        place[moved[known]] = self.place[known]
        self.place = place
