"""The past of a stream: what an archive holds, and what has come since it was written last.

One moment, the cut, is between them: the archive answers for events that end before it, the recent
ones for all others. So an event is seen once, wherever it is, and also where a file with recent
events was written by somebody who then died: it lies behind the cut that is known here.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.archives.contract import Archive, Read, Wanted
from ensue.columns.arrow_kinds import Unit
from ensue.columns.keys import ColumnCodes
from ensue.columns.rows import no_rows
from ensue.columns.stream import Shape
from ensue.columns.values import from_arrow
from ensue.engine.state import from_bytes, to_bytes
from ensue.workload.correlations.pieces import Asked, Times
from ensue.workload.lanes.clock import calendar
from ensue.workload.stage import Handover, LookedUp


@dataclass
class Reading:
    """What was read of an archive so far."""

    reads: int = 0
    files: int = 0
    rows: int = 0
    events: int = 0
    seconds: float = 0.0

    def add(self, read: Read) -> None:
        self.reads += 1
        self.files += read.files
        self.rows += read.rows
        self.events += read.events.num_rows
        self.seconds += read.seconds


@dataclass
class Past:
    """The events of an archive, and those that came since, if they belong to it."""

    archive: Archive
    unit: Unit  # of times
    own: bool = False  # the events that come belong to it
    first_cut: float | None = None  # those before are in the archive already; None: there are none
    cut: float | None = None  # None: the archive has nothing
    waits_for_archive: bool = False  # recent events are going to be written into it
    recent: list[pa.Table] = field(default_factory=list)  # one behind the other
    archived: int = 0  # events that were handed over
    before_cut: int = 0  # events that the archive had already
    reading: Reading = field(default_factory=Reading)

    @property
    def arrow(self) -> pa.Schema:
        return self.archive.shape.arrow

    def archives_time(self, now: float) -> float:
        """A time as the archive's own matchers count it."""
        return rescaled(now, self.archive.shape, self.unit, self.archive.shape.unit)

    def add(self, events: pa.Table) -> pa.Table:
        """The next events of the stream. Gives those that are new to it, with its columns."""
        events = events.select(self.arrow.names).cast(self.arrow)
        if self.first_cut is not None and events.num_rows:
            fresh = self._ends(events) >= self.first_cut
            self.before_cut += int((~fresh).sum())
            events = events if fresh.all() else events.filter(pa.array(fresh))
        if events.num_rows:
            self.recent.append(events)
        return events

    def read(self, asked: Asked, field: str | None, types: frozenset[str] | None) -> pa.Table:
        """The events of objects in stretches of time, in the order of the stream."""
        asked = asked.merged()
        found = [no_rows(self.arrow)]
        if len(asked) and not (self.own and self.cut is None):
            before = self._before_cut(asked)
            if len(before):
                time = self.arrow.field(self.archive.shape.schema.end).type
                read = self.archive.read(Wanted(before.table(time, self.unit), field, types))
                self.reading.add(read)
                found.append(read.events.select(self.arrow.names).cast(self.arrow))
        if len(asked):
            found += [t for e in self.recent if (t := self._within(e, asked, field)).num_rows]
        return pa.concat_tables(found)

    def _before_cut(self, asked: Asked) -> Asked:
        if not self.own:
            return asked
        assert self.cut is not None
        last = np.nextafter(self.cut, -np.inf) if asked.until.dtype.kind == "f" else self.cut - 1
        return Asked(asked.keys, asked.since, np.minimum(asked.until, last)).merged()

    def _within(self, events: pa.Table, asked: Asked, field: str | None) -> pa.Table:
        """Of some recent events those that are asked for."""
        starts, ends = self._starts(events), self._ends(events)
        near = (ends >= asked.since.min()) & (starts <= asked.until.max())
        if field is None or asked.keys is None:
            return events.filter(pa.array(_in_stretches(near, starts, ends, asked)))
        codes = ColumnCodes()
        wanted = codes.encode(asked.keys).astype(np.int64)
        mine = codes.encode(events.column(field)).astype(np.int64)
        near &= (mine >= 0) & (mine < wanted.max(initial=-1) + 1)
        rows = np.flatnonzero(near)
        if not len(rows):
            return events.slice(0, 0)
        order = np.lexsort((asked.since, wanted))
        places = _last_at(wanted[order], asked.since[order], mine[rows], starts[rows])
        inside = places >= 0
        chosen = order[np.maximum(places, 0)]
        inside &= (wanted[chosen] == mine[rows]) & (ends[rows] <= asked.until[chosen])
        return events.take(pa.array(rows[inside]))

    def _starts(self, events: pa.Table) -> Times:
        name = self.archive.shape.schema.start
        return np.asarray(from_arrow(events.column(name), self.unit, name).values)

    def _ends(self, events: pa.Table) -> Times:
        name = self.archive.shape.schema.end
        return np.asarray(from_arrow(events.column(name), self.unit, name).values)

    def forget(self, before: float) -> None:
        """Drops recent events that nobody asks for any more, where no archive waits for them."""
        if not self.own or self.waits_for_archive or not self.recent:
            return
        if self._ends(self.recent[0]).max() < before:
            self.recent = [t for t in self.recent if self._ends(t).max() >= before]

    # ---------------------------------------------------------------------------- buffer

    @property
    def rows(self) -> int:
        """How many recent events it has."""
        return sum(table.num_rows for table in self.recent)

    @property
    def nbytes(self) -> int:
        return sum(int(table.nbytes) for table in self.recent)

    def looked_up(self) -> LookedUp:
        """What was read so far, and what it keeps."""
        read = self.reading
        return LookedUp(read.reads, read.files, read.rows, self.rows, self.before_cut)

    def hand_over(self, cut: float, rows: int, age: float | None) -> Handover | None:
        """The recent events, which the archive has from now on: all that end before the cut.

        None: they are too few, and none has waited for so long.
        """
        count = self.rows
        if not count:
            return None
        old = age is not None and min(self._ends(t).min() for t in self.recent) <= cut - age
        if count < rows and not old:
            return None
        given = Handover(pa.concat_tables(self.recent), self.archived)
        self.recent, self.cut = [], cut
        self.archived += count
        return given

    def save(self) -> tuple[dict[str, float | None], bytes]:
        events = pa.concat_tables([no_rows(self.arrow), *self.recent])
        header = {"cut": self.cut, "first_cut": self.first_cut, "archived": self.archived}
        return header, to_bytes(events)

    def restore(self, header: dict[str, float | None], events: bytes) -> None:
        self.cut, self.first_cut = header["cut"], header["first_cut"]
        self.archived = int(header["archived"] or 0)
        table = from_bytes(events).cast(self.arrow)
        self.recent = [table] if table.num_rows else []


def all_looked_up(pasts: Iterable[Past]) -> LookedUp:
    """What was read of several archives."""
    found = LookedUp()
    for one in (past.looked_up() for past in pasts):
        found = LookedUp(
            found.probes + one.probes, found.files + one.files, found.rows + one.rows,
            found.recent + one.recent, found.before_cut + one.before_cut,
        )  # fmt: skip
    return found


def rescaled(time: float, shape: Shape, of: Unit, to: Unit) -> float:
    """A time of events of a shape in another unit, rounded down; numbers have none."""
    if of == to or not calendar(shape):
        return time
    return int(time) * 1_000 if to == "ns" else int(time) // 1_000


def _in_stretches(
    near: npt.NDArray[np.bool_], starts: Times, ends: Times, asked: Asked
) -> npt.NDArray[np.bool_]:
    """Which events lie in one of some stretches, which do not overlap."""
    order = np.argsort(asked.since, kind="stable")
    at = np.searchsorted(asked.since[order], starts, side="right") - 1
    inside = near & (at >= 0)
    inside &= ends <= asked.until[order[np.maximum(at, 0)]]
    return inside


def _last_at(
    codes: npt.NDArray[np.int64], times: Times, code: npt.NDArray[np.int64], time: Times
) -> npt.NDArray[np.int64]:
    """The last place whose (code, time) is at or before another's, in sorted arrays; -1: none."""
    every = np.concatenate([codes, code])
    moments = np.concatenate([times, time])
    fresh = np.concatenate([np.zeros(len(codes), np.int8), np.ones(len(code), np.int8)])
    order = np.lexsort((fresh, moments, every))
    counted = np.cumsum(fresh[order] == 0) - 1
    found = np.empty(len(every), np.int64)
    found[order] = counted
    return found[len(codes) :]
