"""The events that a new plan is fed again: those that matches to come may reach back to.

A window of time reaches back as far from each event, whatever its key: they are the last events
of the stream. A window of n events reaches back over the last n of each partition, and these may
lie far apart.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.policy import Strategy
from ensue.algebra.window import ByEvents
from ensue.columns import evaluate as vectors
from ensue.columns.arrow_kinds import Unit, length_of
from ensue.columns.keys import KeyCodes
from ensue.engine.reference import columns_used
from ensue.plan.physical import Plan
from ensue.schema import Schema

MOST = 1 << 20  # events of many partitions that are kept; with more of them, the plan stays
FEW = 1_000  # events that are not worth a look

Rows = npt.NDArray[np.int64]


class RecentEvents:
    """The last events of a stream, with their rows in it."""

    def __init__(self, plan: Plan, schema: Schema, unit: Unit) -> None:
        self.schema, self.unit = schema, unit
        self.events: pa.Table | None = None
        self.end = 0  # the row behind the last of them
        self.too_many = False
        self._apart: Rows = np.zeros(0, np.int64)  # their rows, where they may lie apart
        self._columns = columns_used(plan.query, schema)
        within = plan.query.within
        self._count = within.count if isinstance(within, ByEvents) else None
        self._length = None if self._count is not None else length_of(within, unit)
        strict = Strategy.STRICT in plan.query.strategies  # events of other partitions matter too
        self._keys = [] if strict else [e.field_name for e in plan.query.equivalence]
        self._kept = 0  # when it was last looked through

    def add(self, events: pa.Table, first: int) -> None:
        """Further events, from row `first` of the stream on."""
        events = events.select([n for n in events.column_names if n in self._columns])
        self.events = events if self.events is None else pa.concat_tables([self.events, events])
        self.end = first + events.num_rows
        if self.counts:
            self._apart = np.concatenate([self._apart, np.arange(first, self.end)])

    def forget(self, now: float | None) -> None:
        """Drops what no match to come can contain, once most of what is kept is of that kind."""
        events = self.events
        if events is None or not events.num_rows:
            return
        if self._length is not None:
            if now is None:
                return
            ends = _ends(events, self.schema, self.unit)
            outside = int(np.searchsorted(ends, now - self._length))
            if 2 * outside >= events.num_rows:
                self._keep(slice(outside, None))
        elif self._count is not None and events.num_rows >= 2 * self._kept + FEW:
            self._keep(self._in_window())
            self._kept = len(self._apart)
            if self._kept > MOST:
                self.too_many, self.events, self._apart = True, None, self._apart[:0]

    def _in_window(self) -> Rows | slice:
        """The last events of each partition, as many as a window has."""
        assert self._count is not None
        assert self.events is not None
        if not self._keys:
            return slice(max(0, self.events.num_rows - self._count), None)
        codes = KeyCodes().encode([self.events.column(name) for name in self._keys])
        order = np.argsort(codes, kind="stable")
        behind = np.searchsorted(codes[order], codes[order], side="right")
        last = behind - np.arange(len(order)) <= self._count
        kept = order[last & (codes[order] >= 0)]  # NULL equals nothing
        return np.sort(kept).astype(np.int64)

    def _keep(self, places: Rows | slice) -> None:
        assert self.events is not None
        if isinstance(places, slice):
            self.events = self.events.slice(places.start).combine_chunks()
        else:
            self.events = self.events.take(pa.array(places)).combine_chunks()
        self._apart = self._apart[places] if self.counts else self._apart

    @property
    def rows(self) -> Rows:
        """Where they are in the stream."""
        if self.counts:
            return self._apart
        count = 0 if self.events is None else self.events.num_rows
        return np.arange(self.end - count, self.end)

    def restore(self, events: pa.Table, rows: Rows | None, end: int) -> None:
        """Goes on with the events, and their rows, of one that was saved up to a row."""
        self.events, self.end = events, end
        if self.counts:
            assert rows is not None
            self._apart = rows

    @property
    def counts(self) -> bool:
        """Whether its events may lie apart."""
        return self._count is not None

    @property
    def nbytes(self) -> int:
        return 0 if self.events is None else int(self.events.nbytes + self._apart.nbytes)


def _ends(events: pa.Table, schema: Schema, unit: Unit) -> npt.NDArray[Any]:
    return np.asarray(vectors.from_arrow(events.column(schema.end), unit).values)
