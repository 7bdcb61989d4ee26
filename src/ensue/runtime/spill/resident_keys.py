"""The events of the last window of the keys that are in memory."""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.memory_budget import get_machine_memory
from ensue.planner.limits import MatcherLimits
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import Bools
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import StreamSchema, get_end_times
from ensue.vector.take import create_empty_table, take_rows

Codes = npt.NDArray[np.int64]
Times = npt.NDArray[Any]
MANY = 64  # parts that are not put together yet


class ResidentKeys:
    """Events with the codes of their keys. Those of one key are in the order of the stream."""

    def __init__(self, shape: StreamSchema) -> None:
        self._shape = shape
        self._tables: list[pa.Table] = [create_empty_table(shape.arrow)]
        self._codes: list[Codes] = [np.zeros(0, np.int64)]
        self._bytes = 0

    def add(self, table: pa.Table, codes: Codes) -> None:
        """Further events: of keys that are new here, or behind the others of their keys."""
        if not table.num_rows:
            return
        self._tables.append(table.cast(self._shape.arrow))
        self._codes.append(codes)
        self._bytes += int(table.nbytes + codes.nbytes)
        if len(self._tables) > MANY:
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

    def by_key(self) -> npt.NDArray[np.int64]:
        """The rows key by key."""
        return np.argsort(self.codes, kind="stable").astype(np.int64, copy=False)

    def times_and_types(self, places: npt.NDArray[np.int64]) -> pa.Table:
        """Of some events when they were, and of which type."""
        schema = self._shape.schema
        names = dict.fromkeys((schema.start, schema.end, schema.type_column or schema.end))
        return take_rows(self.table.select(list(names)), places)

    def rows(self, places: npt.NDArray[np.int64]) -> pa.Table:
        """Some of the events, as a table of its own memory."""
        return take_rows(self.table, places).combine_chunks()

    def keep(self, kept: Bools) -> None:
        """Only some of the events."""
        if not kept.all():
            places = np.flatnonzero(kept)
            self._set(self.rows(places), self.codes[places])

    def sort(self) -> None:
        """By time: those of one key stay in their order."""
        times = self.ends
        if not bool((times[1:] >= times[:-1]).all()):
            places = np.argsort(times, kind="stable")
            self._set(self.rows(places), self.codes[places])

    def renumber(self, moved: npt.NDArray[np.int32]) -> None:
        """Keys have other codes from now on."""
        self._set(self.table, moved[self.codes].astype(np.int64))


# ----------------------------------------------------------------------
# When a key has to be looked at though no event comes: a window of its may be over then.

DeadlineTimes = npt.NDArray[Any]


class WindowDeadlines:
    """The times at which windows of some lengths are over."""

    def __init__(self, shape: StreamSchema, windows: tuple[float, ...]) -> None:
        self._real = shape.schema.time_kind in (ValueKind.FLOAT, ValueKind.DECIMAL)
        self._start, self._unit = shape.schema.start, shape.unit
        self._windows = windows if self._real else tuple(map(math.floor, windows))
        self.never: float = np.inf if self._real else np.iinfo(np.int64).max

    def of(
        self, events: pa.Table, first: npt.NDArray[np.int64], now: float | None
    ) -> DeadlineTimes:
        """For keys whose events begin at the rows `first`: what comes next, from `now` on.

        Any event may be the first of a match that waits for its window's end.
        """
        begun = np.asarray(from_arrow(events.column(self._start), self._unit).values)
        begun = begun.astype(np.float64 if self._real else np.int64, copy=False)
        due = np.full(len(begun), self.never, begun.dtype)
        for length in self._windows:
            over = self._over(begun, length)
            if now is not None:  # compared as matchers do: differences are not rounded up
                over = np.where(now - begun <= length, over, self.never)
            due = np.minimum(due, over)
        return np.asarray(np.minimum.reduceat(due, first)) if len(first) else due

    def _over(self, begun: DeadlineTimes, length: float) -> DeadlineTimes:
        if self._real:  # sums are rounded: rather too early
            return np.nextafter(np.nextafter(begun + length, -np.inf), -np.inf)
        return np.where(begun > self.never - length, self.never, begun + length)


# ----------------------------------------------------------------------
# How much of a stream's keys may be in memory, and what is not.


@dataclass(frozen=True, slots=True)
class MemoryBound:
    """How much may be in memory."""

    bytes: float
    keys: int | None = None  # None: as many as there is room for


@dataclass(frozen=True, slots=True)
class SpillCounters:
    """What was stored so far."""

    misses: int = 0  # keys that an event came for while they were stored
    keys: int = 0  # stored now
    bytes: int = 0  # of these


@runtime_checkable
class SpillingState(Protocol):
    """A matcher that stores keys."""

    @property
    def spilled(self) -> SpillCounters: ...
    @property
    def segments(self) -> Mapping[str, Path]:
        """Files that never change, by name: part of its state."""

    def save_apart(self) -> bytes:
        """Its state without them."""

    def restore(self, data: bytes, find: Callable[[str], Path | bytes] | None = None, /) -> None:
        """Goes on; `find` finds what was in these files."""


NOTHING_SPILLED = SpillCounters()


def get_spill_counters(matcher: object) -> SpillCounters:
    """What a matcher has stored, if it is one that does."""
    return matcher.spilled if isinstance(matcher, SpillingState) else NOTHING_SPILLED


def get_memory_bound(limits: MatcherLimits) -> MemoryBound:
    """What limits allow."""
    return MemoryBound(limits.compute_memory_bound(get_machine_memory(), os.cpu_count() or 1))
