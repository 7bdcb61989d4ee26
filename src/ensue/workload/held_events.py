"""The store of events that matchers still need: those that later matches may contain."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.distinct import distinct
from ensue.columns.matches import Matches
from ensue.columns.rows import no_rows, rows_taken
from ensue.columns.stream import Shape
from ensue.engine.state import from_bytes, to_bytes
from ensue.results.identity import ORDINAL
from ensue.workload.twins import Twins

Rows = npt.NDArray[np.int64]
FEW = 1_000  # events that are kept without asking which of them matter: to ask takes longer
WORTH = 4_096  # events from which on it is worth to look for those that do not matter any more

MANY = 64  # fresh pieces that are not yet put together


@dataclass(frozen=True, slots=True)
class Held:
    """Events of the past and their rows in the stream, which ascend."""

    events: pa.Table  # with their ordinals: their twins may be gone
    rows: Rows

    def only(self, rows: Rows) -> "Held":
        """Those of some rows, which are all here."""
        if len(rows) == len(self.rows):
            return self
        places = np.searchsorted(self.rows, rows)
        return Held(rows_taken(self.events, places).combine_chunks(), self.rows[places])

    def placed(self, matches: Matches) -> Matches:
        """Matches as places in these events."""
        return matches.moved(lambda rows: places_of(self.rows, rows))


class _Fresh(NamedTuple):
    """Events as they came."""

    events: pa.Table
    rows: Rows
    numbers: Rows  # their ordinals


class EventStore:
    """Keeps the events of a matcher.

    A few events at a time are kept as they come, in pieces, and looked through when there are
    twice as many as were needed the last time: what one event costs does not depend on how many
    are kept.
    """

    def __init__(self, shape: Shape) -> None:
        self._schema = shape.arrow.append(pa.field(ORDINAL, pa.int64()))
        self._pieces: list[Held] = []  # one behind the other
        self._fresh: list[_Fresh] = []  # behind them
        self._count = 0
        self._needed = 0  # when they were looked through
        self._twins = Twins(shape.schema.end, shape.unit)

    # ---------------------------------------------------------------------------- events

    def add(self, events: pa.Table, first: int, members: Iterable[Rows] | None) -> None:
        """The next events, from row `first` on: those among `members`. None: all of them."""
        count = events.num_rows
        if members is None:
            numbers = self._twins.ordinals(events, np.ones(count, np.bool_))
            self._append(events, np.arange(first, first + count), numbers)
            return
        wanted = np.zeros(count, np.bool_)
        for rows in members:
            wanted[rows[rows >= first] - first] = True
        numbers = self._twins.ordinals(events, wanted)
        places = np.flatnonzero(wanted)
        if not len(places):
            return
        if len(places) < count:
            events, numbers = rows_taken(events, places), numbers[places]
        self._append(events, first + places, numbers)

    def _append(self, events: pa.Table, rows: Rows, numbers: Rows) -> None:
        if len(rows):
            self._fresh.append(_Fresh(events, rows, numbers))
            self._count += len(rows)
        if len(self._fresh) > MANY:
            self._tidy()

    def _tidy(self) -> None:
        """Makes a piece of the fresh events, and one of pieces at the end, so that each is twice
        as large as the one behind it."""
        if not self._fresh:
            return
        self._pieces.append(self._numbered(self._fresh))
        self._fresh = []
        kept = len(self._pieces) - 1
        size = len(self._pieces[kept].rows)
        while kept and len(self._pieces[kept - 1].rows) <= 2 * size:
            kept -= 1
            size += len(self._pieces[kept].rows)
        if len(self._pieces) - kept > 1:
            self._pieces[kept:] = [self._joined(self._pieces[kept:])]

    def _numbered(self, fresh: Sequence[_Fresh]) -> Held:
        """Fresh events as one table that knows their ordinals."""
        events = pa.concat_tables([part.events for part in fresh])
        numbers = np.concatenate([part.numbers for part in fresh])
        numbered = events.append_column(ORDINAL, pa.array(numbers))
        if numbered.schema != self._schema:
            numbered = numbered.cast(self._schema)
        return Held(numbered.combine_chunks(), np.concatenate([part.rows for part in fresh]))

    @property
    def is_full(self) -> bool:
        """Whether it is worth to look for events that do not matter any more."""
        return self._count > max(WORTH, 2 * self._needed)

    def keep(self, rows: Rows) -> None:
        """Only the events of some rows, which are all here."""
        if len(rows) < self._count:
            self._pieces = [self.whole().only(rows)] if len(rows) else []
            self._fresh, self._count = [], len(rows)
        self._needed = len(rows)

    def whole(self) -> Held:
        """All of them."""
        self._tidy()
        if not self._pieces:
            return self._joined([])
        if len(self._pieces) > 1:
            self._pieces = [self._joined(self._pieces)]
        return self._pieces[0]

    def of(self, found: Iterable[Matches]) -> Held:
        """Those that matches are made of, and maybe others."""
        rows = [m.elements(v) for m in found if m.count for v in m.variables]
        members = distinct(np.concatenate(rows)) if rows else np.zeros(0, np.int64)
        members = members[members >= 0]
        if 2 * len(members) > self._count:
            return self.whole()
        picked = []
        for piece in self._pieces:
            low, high = np.searchsorted(members, (piece.rows[0], piece.rows[-1] + 1))
            if low < high:
                picked.append(piece.only(members[low:high]))
        fresh = [part for row in members.tolist() if (part := self._fresh_one(row)) is not None]
        if fresh:
            picked.append(self._numbered(fresh))
        return picked[0] if len(picked) == 1 else self._joined(picked)

    def _fresh_one(self, row: int) -> _Fresh | None:
        """The event of a row, if it is a fresh one."""
        place = bisect_right(self._fresh, row, key=lambda part: part.rows[0]) - 1
        if place < 0:
            return None
        part = self._fresh[place]
        at = int(np.searchsorted(part.rows, row))
        one = slice(at, at + 1)
        return _Fresh(part.events.slice(at, 1), part.rows[one], part.numbers[one])

    def _joined(self, pieces: list[Held]) -> Held:
        if not pieces:
            return Held(no_rows(self._schema), np.zeros(0, np.int64))
        tables = pa.concat_tables([piece.events for piece in pieces])
        return Held(tables.combine_chunks(), np.concatenate([piece.rows for piece in pieces]))

    def forget_before(self, now: float) -> None:
        """No event that ends before `now` comes any more."""
        self._twins.forget_before(now)

    # ---------------------------------------------------------------------------- state

    @property
    def nbytes(self) -> int:
        self._tidy()
        size = sum(int(p.events.nbytes + p.rows.nbytes) for p in self._pieces)
        return size + self._twins.nbytes

    def save(self) -> tuple[bytes, dict[str, npt.NDArray[np.generic]]]:
        """The events, and arrays that are saved beside them."""
        whole = self.whole()
        return to_bytes(whole.events), {"rows": whole.rows, **self._twins.save()}

    def restore(self, events: bytes, arrays: dict[str, npt.NDArray[np.generic]]) -> None:
        """Goes on with what was saved."""
        table = from_bytes(events)
        if ORDINAL not in table.column_names:  # saved before events knew their number
            table = table.append_column(ORDINAL, pa.array(np.zeros(len(table), np.int64)))
        rows = arrays["rows"].astype(np.int64, copy=False)
        self._pieces = [Held(table.cast(self._schema), rows)] if len(rows) else []
        self._fresh, self._count, self._needed = [], len(rows), len(rows)
        self._twins.restore(arrays)


def places_of(known: Rows, rows: Rows) -> Rows:
    """Where rows stand among known ones, which ascend; -1 stays."""
    if not len(rows):
        return rows
    return np.where(rows < 0, np.int64(-1), np.searchsorted(known, rows))
