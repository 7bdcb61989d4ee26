"""The resident keys: their events of the last window, their deadlines, their bound, and their matchers.

Keys that were restored at the same time have a matcher of their own: they are a cohort.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.memory_budget import Usage, sum_usage
from ensue.runtime.stage import StageInput, StageMatcher
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import Bools
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.take import create_empty_table, take_rows

Codes = npt.NDArray[np.int64]
Times = npt.NDArray[Any]
MAX_CHUNKS = 64  # tables before they are concatenated


def find_runs(codes: npt.NDArray[Any]) -> tuple[Codes, Codes]:
    """The first row and the length of each run of equal codes.

    >>> find_runs(np.array([7, 7, 3]))
    (array([0, 2]), array([2, 1]))
    """
    first = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]][: len(codes)])
    return first, np.diff(np.r_[first, len(codes)])


def grow_array(array: npt.NDArray[Any], count: int, fill: Any = 0) -> npt.NDArray[Any]:
    """An array of at least `count` values; its size doubles when it is too small."""
    if count <= len(array):
        return array
    more = max(count, 2 * len(array)) - len(array)
    return np.concatenate([array, np.full(more, fill, array.dtype)])


class ResidentKeys:
    """Events with the codes of their keys, in stream order within each key."""

    def __init__(self, shape: StreamSchema) -> None:
        self._shape = shape
        self._tables: list[pa.Table] = [create_empty_table(shape.arrow)]
        self._codes: list[Codes] = [np.zeros(0, np.int64)]
        self._bytes = 0

    def add(self, table: pa.Table, codes: Codes) -> None:
        """Adds events of new keys, or later events of resident keys."""
        if not table.num_rows:
            return
        self._tables.append(table.cast(self._shape.arrow))
        self._codes.append(codes)
        self._bytes += int(table.nbytes + codes.nbytes)
        if len(self._tables) > MAX_CHUNKS:
            self._join()

    def _join(self) -> None:
        if len(self._tables) > 1:
            table = pa.concat_tables(self._tables).unify_dictionaries().combine_chunks()
            self._set(table, np.concatenate(self._codes))

    def _set(self, table: pa.Table, codes: Codes) -> None:
        self._tables, self._codes = [table], [codes]
        self._bytes = int(table.nbytes + codes.nbytes)

    @property
    def table(self) -> pa.Table:
        self._join()
        return self._tables[0]

    @property
    def codes(self) -> Codes:
        self._join()
        return self._codes[0]

    @property
    def ends(self) -> Times:
        return get_end_times(self.table, self._shape)

    def __len__(self) -> int:
        return sum(map(len, self._codes))

    @property
    def nbytes(self) -> int:
        return self._bytes

    def take_times_and_types(self, places: npt.NDArray[np.int64]) -> pa.Table:
        schema = self._shape.schema
        names = dict.fromkeys((schema.start, schema.end, schema.type_column or schema.end))
        return take_rows(self.table.select(list(names)), places)

    def take(self, places: npt.NDArray[np.int64]) -> pa.Table:
        """A copy of some events."""
        return take_rows(self.table, places).combine_chunks()

    def keep(self, kept: Bools) -> None:
        """Drops the other events."""
        if not kept.all():
            places = np.flatnonzero(kept)
            self._set(self.take(places), self.codes[places])

    def sort(self) -> None:
        """Sorts by time, stable."""
        times = self.ends
        if not bool((times[1:] >= times[:-1]).all()):
            places = np.argsort(times, kind="stable")
            self._set(self.take(places), self.codes[places])

    def renumber(self, moved: npt.NDArray[np.int32]) -> None:
        """Replaces the codes of keys; `moved` is the new code by old code."""
        self._set(self.table, moved[self.codes].astype(np.int64))


class WindowDeadlines:
    """When the windows of a key end: its deadlines without further events."""

    def __init__(self, shape: StreamSchema, windows: tuple[float, ...]) -> None:
        self._real = shape.schema.time_kind in (ValueKind.FLOAT, ValueKind.DECIMAL)
        self._start, self._unit = shape.schema.start, shape.unit
        self._windows = windows if self._real else tuple(map(math.floor, windows))
        self.never: float = np.inf if self._real else np.iinfo(np.int64).max

    def compute_deadlines(self, events: pa.Table, first: Codes, now: float | None) -> Times:
        """The next deadline after `now` of keys whose events begin at the rows `first`.

        Any event may be the first of a match that waits for the end of its window.
        """
        begun = np.asarray(from_arrow(events.column(self._start), self._unit).values)
        begun = begun.astype(np.float64 if self._real else np.int64, copy=False)
        due = np.full(len(begun), self.never, begun.dtype)
        for length in self._windows:
            if self._real:  # sums are rounded: rather too early
                end = np.nextafter(np.nextafter(begun + length, -np.inf), -np.inf)
            else:
                end = np.where(begun > self.never - length, self.never, begun + length)
            if now is not None:  # compared like matchers do: differences are not rounded up
                end = np.where(now - begun <= length, end, self.never)
            due = np.minimum(due, end)
        return np.asarray(np.minimum.reduceat(due, first)) if len(first) else due


@dataclass(frozen=True, slots=True)
class SpillCounters:
    """The spilled keys of a matcher."""

    misses: int = 0  # spilled keys that an event arrived for
    keys: int = 0
    bytes: int = 0


@runtime_checkable
class SpillingState(Protocol):
    """A matcher that spills keys."""

    @property
    def spilled(self) -> SpillCounters: ...
    @property
    def segments(self) -> Mapping[str, Path]:
        """Immutable files by name, part of its state."""

    def save_apart(self) -> bytes:
        """Serialized state without the segments."""

    def restore(self, data: bytes, find: Callable[[str], Path | bytes] | None = None, /) -> None:
        """Restores a saved state; `find` reads omitted segments."""


def get_spill_counters(matcher: object) -> SpillCounters:
    return matcher.spilled if isinstance(matcher, SpillingState) else SpillCounters()


MAX_COHORTS = 6

Tables = list[pa.Table]


class ReplayableMatcher(StageMatcher, Protocol):
    """A matcher of all queries of a stage that can rebuild its state from past events."""

    def replay(self, events: pa.Table, now: float | None, /) -> None: ...
    def drop(self, events: pa.Table, /) -> bool: ...


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
        self._base = self._all[0].matcher.usage.held_bytes  # of a matcher without events

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
    def usage(self) -> Usage:
        """The usage that depends on events."""
        usages = [cohort.matcher.usage for cohort in self._all]
        return sum_usage(replace(usage, held_bytes=max(0, usage.held_bytes - self._base)) for usage in usages)

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
