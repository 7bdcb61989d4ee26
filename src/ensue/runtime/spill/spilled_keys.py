"""The spilled keys: an index of their segments and rows, and their deadlines."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.runtime.spill.resident_keys import find_runs, grow_array
from ensue.runtime.spill.spill_files import SpillFile, SpillFolder
from ensue.vector.arrow_numpy import Bools, Ints
from ensue.vector.take import create_empty_table

Times = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
DueTimes = Callable[[pa.Table, npt.NDArray[np.int64]], Times]


@dataclass
class _Part:
    """The keys of a segment, whose rows are sorted by key."""

    segment: SpillFile
    codes: Codes
    first: Ints  # row of each key's first event
    count: Ints  # number of its events
    last: Times  # end of its last event
    due: Times  # its deadline
    alive: Bools
    rows: int  # of live keys
    next_due: Any  # the earliest deadline

    def count_live(self) -> None:
        self.rows = int(self.count[self.alive].sum())
        self.next_due = self.due[self.alive].min() if self.alive.any() else None


class SpilledKeys:
    """Whole keys in segments. Sparse segments are rewritten without dead rows."""

    def __init__(self, arrow: pa.Schema, never: Any, folder: SpillFolder) -> None:
        self.arrow = arrow
        self.never = never  # later than any time of a stream
        self.folder = folder
        self._parts: dict[int, _Part] = {}
        self._next = 0
        self._where = np.full(0, -1, np.int32)  # by code: the part
        self._slot = np.full(0, 0, np.int32)  # and the index in it

    def __len__(self) -> int:
        return sum(int(p.alive.sum()) for p in self._parts.values())

    @property
    def rows(self) -> int:
        """The number of spilled events."""
        return sum(p.rows for p in self._parts.values())

    @property
    def bytes(self) -> int:
        """The size of the live events."""
        sizes = (p.segment.bytes * p.rows // max(1, p.segment.rows) for p in self._parts.values())
        return sum(sizes)

    def holds(self, codes: Codes) -> Bools:
        """Which keys are spilled."""
        self._grow(int(codes.max(initial=-1)) + 1)
        return np.asarray(self._where[codes] >= 0, np.bool_)

    def next_due(self) -> Any | None:
        """The earliest deadline of a key; None: no key has one."""
        times = [p.next_due for p in self._parts.values() if p.next_due is not None]
        due = min(times, default=None)
        return None if due is None or due >= self.never else due.item()

    def find_due(self, now: float) -> Codes:
        """The keys whose deadline is before `now`."""
        return _concat_codes(
            p.codes[p.alive & (p.due < now)]
            for p in self._parts.values()
            if p.next_due is not None and p.next_due < now
        )

    @property
    def codes(self) -> Codes:
        return _concat_codes(p.codes[p.alive] for p in self._parts.values())

    def put(self, table: pa.Table, codes: Codes, ends: Times, due: DueTimes) -> None:
        """Spills keys: the rows of `table` are sorted by key; `codes` and `ends` are by row.

        `due` computes the deadline of each key from the row of its first event.
        """
        if table.num_rows:
            alive = np.ones(len(codes), np.bool_)
            self.adopt(self.folder.write(table), table, codes, ends, due, alive)

    def adopt(
        self, segment: SpillFile, table: pa.Table, codes: Codes, ends: Times, due: DueTimes, alive: Bools
    ) -> None:
        """Adds a segment; `alive` marks the rows of keys that were not restored from it."""
        first, count = find_runs(codes)
        keys, last, alive = codes[first], ends[first + count - 1], alive[first]
        part = _Part(segment, keys, first, count, last, due(table, first), alive, 0, None)
        part.count_live()
        slots = np.flatnonzero(alive)
        self._parts[self._next] = part
        self._grow(int(keys[slots].max(initial=-1)) + 1)
        self._where[keys[slots]], self._slot[keys[slots]] = self._next, slots
        self._drop_if_dead(self._next)
        self._next += 1

    def segments(self) -> list[tuple[SpillFile, Bools]]:
        """All segments, with a mask of the rows of live keys."""
        return [(p.segment, np.repeat(p.alive, p.count)) for p in self._parts.values()]

    def take(self, codes: Codes) -> tuple[pa.Table, Codes]:
        """Removes keys; returns their events, sorted by key, with the code of each."""
        tables, row_codes = [create_empty_table(self.arrow)], [np.zeros(0, np.int64)]
        where = self._where[codes]
        for number in np.unique(where).tolist():
            part = self._parts[number]
            slots = np.sort(self._slot[codes[where == number]].astype(np.int64))
            tables.append(self._read(part, slots))
            row_codes.append(np.repeat(part.codes[slots], part.count[slots]))
            self._forget(number, slots)
        return pa.concat_tables(tables).combine_chunks(), np.concatenate(row_codes)

    def all_events(self) -> pa.Table:
        """The events of all keys, sorted by key. They stay spilled."""
        tables = [self._read(part, np.flatnonzero(part.alive)) for part in self._parts.values()]
        return pa.concat_tables([create_empty_table(self.arrow), *tables])

    def _read(self, part: _Part, slots: Ints) -> pa.Table:
        """The events of some keys of a part."""
        count = part.count[slots]
        begin = np.repeat(part.first[slots] - (np.cumsum(count) - count), count)
        return self.folder.read(part.segment, begin + np.arange(len(begin)))

    def forget_before(self, time: float) -> Codes:
        """Drops the keys whose last event ended before `time`, and returns them."""
        dropped = []
        for number, part in list(self._parts.items()):
            slots = np.flatnonzero(part.alive & (part.last < time))
            if len(slots):
                dropped.append(part.codes[slots])
                self._forget(number, slots)
        return _concat_codes(dropped)

    def _forget(self, number: int, slots: Ints) -> None:
        part = self._parts[number]
        self._where[part.codes[slots]] = -1
        part.alive[slots] = False
        part.count_live()
        self._drop_if_dead(number)

    def _drop_if_dead(self, number: int) -> None:
        if not self._parts[number].rows:
            self.folder.remove(self._parts.pop(number).segment)

    def find_sparse(self) -> Codes:
        """The keys of segments most of whose rows are dead: they are worth rewriting."""
        sparse = (p for p in self._parts.values() if 2 * p.rows < p.segment.rows)
        return _concat_codes(p.codes[p.alive] for p in sparse)

    def renumber(self, moved: npt.NDArray[np.int32]) -> None:
        """Replaces the codes of keys; `moved` is the new code by old code."""
        self._where = np.full(0, -1, np.int32)
        self._slot = np.full(0, 0, np.int32)
        self._grow(int(moved.max(initial=-1)) + 1)
        for number, part in self._parts.items():
            part.codes = np.where(part.alive, moved[part.codes], -1).astype(np.int64)
            slots = np.flatnonzero(part.alive)
            self._where[part.codes[slots]] = number
            self._slot[part.codes[slots]] = slots

    def _grow(self, count: int) -> None:
        self._where = grow_array(self._where, count, -1)
        self._slot = grow_array(self._slot, count)


def _concat_codes(codes: Iterable[Codes]) -> Codes:
    return np.concatenate([np.zeros(0, np.int64), *codes])
