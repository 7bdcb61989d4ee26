"""Cohorts: a matcher for each group of keys that were restored at the same time."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.runtime.spill.resident_keys import ResidentKeys, grow_array
from ensue.runtime.stage import StageInput, StageMatcher
from ensue.vector.take import take_rows

MAX_COHORTS = 6

Tables = list[pa.Table]
Codes = npt.NDArray[np.int64]


class ReplayableMatcher(StageMatcher, Protocol):
    """A matcher of all queries of a stage that can rebuild its state from past events."""

    def replay(self, events: pa.Table, now: float | None, /) -> None: ...
    def drop(self, events: pa.Table, /) -> bool: ...
    @property
    def held_bytes(self) -> int: ...


@dataclass
class _Cohort:
    matcher: ReplayableMatcher
    rows: int  # approximate number of events of its keys


class KeyCohorts:
    """Assigns keys to cohorts by their codes. New keys belong to the first cohort."""

    def __init__(self, fresh: Callable[[], ReplayableMatcher]) -> None:
        self.fresh = fresh
        self.place = np.zeros(0, np.int32)  # by code: the cohort; negative: none
        self._all = [_Cohort(fresh(), 0)]
        self._base = self._all[0].matcher.held_bytes  # of a matcher without events

    @property
    def first(self) -> ReplayableMatcher:
        return self._all[0].matcher

    def process(self, piece: pa.Table, codes: Codes) -> list[Tables]:
        """Feeds each event to the cohort of its key."""
        if len(self._all) == 1:
            self._all[0].rows += piece.num_rows
            return [self._all[0].matcher.process(StageInput.from_events(piece))]
        found, place = [], self.place[codes]
        for number, cohort in enumerate(self._all):
            rows = np.flatnonzero(place == number)
            if len(rows):
                cohort.rows += len(rows)
                found.append(cohort.matcher.process(StageInput.from_events(take_rows(piece, rows))))
        return found

    def settle(self, now: float) -> list[Tables]:
        """The matches that are decided at `now`: replays do not deliver them again."""
        due = [(cohort.matcher.next_timer(), cohort.matcher) for cohort in self._all]
        return [m.on_watermark(now) for time, m in due if time is not None and time <= now]

    def on_watermark(self, now: float) -> list[Tables]:
        return [cohort.matcher.on_watermark(now) for cohort in self._all]

    def next_timer(self) -> float | None:
        times = [t for c in self._all if (t := c.matcher.next_timer()) is not None]
        return min(times, default=None)

    @property
    def partial_matches(self) -> int:
        return sum(cohort.matcher.partial_matches for cohort in self._all)

    @property
    def held_bytes(self) -> int:
        """The memory that depends on events."""
        return sum(max(0, cohort.matcher.held_bytes - self._base) for cohort in self._all)

    def add(self, codes: Codes, events: pa.Table, resident: ResidentKeys, now: float | None) -> list[Tables]:
        """Restores keys from their events, which are resident already.

        Merges small cohorts with them, so that each is more than twice as large as the next, and
        returns the matches that these had not delivered yet.
        """
        first, rows = len(self._all), events.num_rows
        self.place[codes] = first
        while first and (self._all[first - 1].rows <= 2 * rows or first >= MAX_COHORTS):
            first -= 1
            rows += self._all[first].rows
        found: list[Tables] = []
        if first < len(self._all):
            if now is not None:
                found = [cohort.matcher.on_watermark(now) for cohort in self._all[first:]]
            del self._all[first:]  # before the new one takes memory
            self.place[self.place > first] = first
            resident.sort()
            places = np.flatnonzero(self.place[resident.codes] == first)
            events = resident.take(places)
        self._append(events, now)
        return found

    def drop(self, events: pa.Table, codes: Codes) -> bool:
        """Drops the keys of events; False: the cohorts have to be rebuilt without them."""
        place, dropped = self.place[codes], True
        for number, cohort in enumerate(self._all):
            rows = np.flatnonzero(place == number)
            if len(rows):
                cohort.rows = max(0, cohort.rows - len(rows))
                some = events if len(rows) == len(codes) else take_rows(events, rows)
                dropped &= cohort.matcher.drop(some)
        return dropped

    def rebuild(self, events: pa.Table, now: float | None) -> None:
        """Replaces all cohorts by one of all resident keys."""
        self._all.clear()  # before the new one takes memory
        self.place[self.place >= 0] = 0
        self._append(events, now)

    def _append(self, events: pa.Table, now: float | None) -> None:
        cohort = _Cohort(self.fresh(), events.num_rows)
        cohort.matcher.replay(events, now)
        self._all.append(cohort)

    def grow(self, count: int) -> None:
        self.place = grow_array(self.place, count)

    def renumber(self, moved: npt.NDArray[np.int32]) -> None:
        """Replaces the codes of keys; `moved` is the new code by old code."""
        known = np.flatnonzero(moved >= 0)
        place = np.zeros(len(known), np.int32)
        place[moved[known]] = self.place[known]
        self.place = place
