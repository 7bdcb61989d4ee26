"""The keys that are not in memory: an index of where their events are, and when they are due."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.runtime.spill.spill_files import SpillFile, SpillFolder
from ensue.vector.arrow_numpy import Bools, Ints
from ensue.vector.take import create_empty_table

Times = npt.NDArray[Any]
Codes = npt.NDArray[np.int64]
DueTimes = Callable[[pa.Table, npt.NDArray[np.int64]], Times]


@dataclass
class _Part:
    """The keys of a segment: their events lie one behind the other."""

    segment: SpillFile
    codes: Codes
    first: Ints  # row of each key's first event
    count: Ints  # of its events
    last: Times  # when its last one ended
    due: Times  # when it has to be looked at
    alive: Bools
    rows: int  # of those that are alive
    next_due: Any  # the earliest

    def forget(self, places: Ints) -> None:
        self.alive[places] = False
        self.rows -= int(self.count[places].sum())
        self.next_due = self.due[self.alive].min() if self.alive.any() else None


class SpilledKeys:
    """Whole keys in segments. What is half dead is written anew, without the dead."""

    def __init__(self, arrow: pa.Schema, never: Any, folder: SpillFolder) -> None:
        self.arrow = arrow
        self.never = never  # a time that no stream comes to
        self.folder = folder
        self._parts: dict[int, _Part] = {}
        self._next = 0
        self._where = np.full(0, -1, np.int32)  # by code: the part
        self._slot = np.full(0, 0, np.int32)  # and the place in it

    # ---------------------------------------------------------------------------- what is there

    def __len__(self) -> int:
        return sum(int(p.alive.sum()) for p in self._parts.values())

    @property
    def rows(self) -> int:
        """How many events are stored."""
        return sum(p.rows for p in self._parts.values())

    @property
    def bytes(self) -> int:
        """Of the events that are stored; dead ones are not counted."""
        sizes = (p.segment.bytes * p.rows // max(1, p.segment.rows) for p in self._parts.values())
        return sum(sizes)

    def holds(self, codes: Codes) -> Bools:
        """Which keys are stored."""
        self._room(int(codes.max()) + 1 if len(codes) else 0)
        return np.asarray(self._where[codes] >= 0, np.bool_)

    def next_due(self) -> Any | None:
        """The earliest time at which a stored key has to be looked at; None: there is none."""
        times = [p.next_due for p in self._parts.values() if p.next_due is not None]
        due = min(times, default=None)
        return None if due is None or due >= self.never else due.item()

    def due_before(self, now: float) -> Codes:
        """The keys that have to be looked at before it is `now`."""
        found = [
            p.codes[p.alive & (p.due < now)]
            for p in self._parts.values()
            if p.next_due is not None and p.next_due < now
        ]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    @property
    def codes(self) -> Codes:
        """All of them."""
        found = [p.codes[p.alive] for p in self._parts.values()]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    # ---------------------------------------------------------------------------- in and out

    def put(self, table: pa.Table, codes: Codes, ends: Times, due: DueTimes) -> None:
        """Stores keys: the table has their rows, key by key, with the code and end of each.

        `due` gives for each key, by the row of its first event, when it has to be looked at.
        """
        if not table.num_rows:
            return
        first = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
        count = np.diff(np.r_[first, len(codes)])
        keys, last = codes[first], ends[first + count - 1]
        times = due(table, first)
        segment = self.folder.write(table)
        alive = np.ones(len(keys), np.bool_)
        self._add(_Part(segment, keys, first, count, last, times, alive, len(codes), times.min()))

    def adopt(
        self, segment: SpillFile, codes: Codes, ends: Times, due: DueTimes, alive: Bools
    ) -> None:
        """Goes on with a segment that was saved; of each row whether its key was stored."""
        first = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
        count = np.diff(np.r_[first, len(codes)])
        keys, last, living = codes[first], ends[first + count - 1], alive[first]
        times = due(self.folder.table(segment), first)
        rows, soonest = int(count[living].sum()), times[living].min() if living.any() else None
        self._add(_Part(segment, keys, first, count, last, times, living, rows, soonest))
        self._drop_if_dead(self._next - 1)

    def _add(self, part: _Part) -> None:
        places = np.flatnonzero(part.alive)
        keys = part.codes[places]
        self._parts[self._next] = part
        self._room(int(keys.max(initial=-1)) + 1)
        self._where[keys], self._slot[keys] = self._next, places
        self._next += 1

    def segments(self) -> list[tuple[SpillFile, Bools]]:
        """All segments, with a mark for each row whether it is of a key that is stored."""
        return [(p.segment, np.repeat(p.alive, p.count)) for p in self._parts.values()]

    def take(self, codes: Codes) -> tuple[pa.Table, Codes]:
        """The events of some keys, key by key, with the code of each. They are stored no more."""
        tables, found = [create_empty_table(self.arrow)], [np.zeros(0, np.int64)]
        where = self._where[codes]
        for number in np.unique(where).tolist():
            part = self._parts[number]
            places = np.sort(self._slot[codes[where == number]].astype(np.int64))
            rows = _spread(part.first[places], part.count[places])
            tables.append(self.folder.read(part.segment, rows))
            found.append(np.repeat(part.codes[places], part.count[places]))
            self._where[part.codes[places]] = -1
            part.forget(places)
            self._drop_if_dead(number)
        return pa.concat_tables(tables).combine_chunks(), np.concatenate(found)

    def all_events(self) -> pa.Table:
        """The events of all keys, key by key. They stay stored."""
        tables = [create_empty_table(self.arrow)]
        for part in self._parts.values():
            places = np.flatnonzero(part.alive)
            rows = _spread(part.first[places], part.count[places])
            tables.append(self.folder.read(part.segment, rows))
        return pa.concat_tables(tables)

    def forget_before(self, time: float) -> Codes:
        """Forgets the keys whose last event ended before; gives them."""
        gone = [np.zeros(0, np.int64)]
        for number, part in list(self._parts.items()):
            places = np.flatnonzero(part.alive & (part.last < time))
            if len(places):
                gone.append(part.codes[places])
                self._where[part.codes[places]] = -1
                part.forget(places)
                self._drop_if_dead(number)
        return np.concatenate(gone)

    def _drop_if_dead(self, number: int) -> None:
        part = self._parts[number]
        if not part.rows:
            self.folder.remove(part.segment)
            del self._parts[number]

    def half_dead(self) -> Codes:
        """The keys of segments most of whose rows nobody needs: they are worth writing anew."""
        found = [p.codes[p.alive] for p in self._parts.values() if 2 * p.rows < p.segment.rows]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    # ---------------------------------------------------------------------------- codes

    def renumber(self, moved: npt.NDArray[np.int32]) -> None:
        """Keys have other codes from now on; those that are stored have one."""
        self._where = np.full(0, -1, np.int32)
        self._slot = np.full(0, 0, np.int32)
        self._room(int(moved.max(initial=-1)) + 1)
        for number, part in self._parts.items():
            part.codes = np.where(part.alive, moved[part.codes], -1).astype(np.int64)
            places = np.flatnonzero(part.alive)
            self._where[part.codes[places]] = number
            self._slot[part.codes[places]] = places

    def _room(self, count: int) -> None:
        if count > len(self._where):
            more = max(count, 2 * len(self._where)) - len(self._where)
            self._where = np.concatenate([self._where, np.full(more, -1, np.int32)])
            self._slot = np.concatenate([self._slot, np.zeros(more, np.int32)])


def _spread(first: Ints, count: Ints) -> Ints:
    """The rows of runs that begin at `first` and have `count` rows.

    >>> _spread(np.array([0, 7]), np.array([2, 3])).tolist()
    [0, 1, 7, 8, 9]
    """
    total = int(count.sum())
    begin = np.repeat(first - np.r_[0, np.cumsum(count)[:-1]], count)
    return np.asarray(begin + np.arange(total), np.int64)
