"""A clause over rows that come piece by piece: what rows to come cannot change is found at once.

Between two pieces it keeps, of each partition, the rows from the first undecided one on and those
before it that conditions and measures look back to. Everything else follows from these.
"""

import math
import os
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.buffers import Ints
from ensue.columns.rows import no_rows, rows_taken
from ensue.columns.stream import ends
from ensue.engine.allowance import machine_memory
from ensue.engine.row_patterns.finding import Finder, length_of
from ensue.engine.row_patterns.partitions import Partitions, places_by
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.errors import LimitError
from ensue.kernels.row_patterns import grouped
from ensue.plan.limits import size_text
from ensue.results.identity import ORDINAL
from ensue.workload.row_patterns.clause import Clause
from ensue.workload.row_patterns.kept import KeptRows, spans
from ensue.workload.row_patterns.searches import Keys, Searches
from ensue.workload.row_patterns.streamable import plain_ties
from ensue.workload.source import Source
from ensue.workload.twins import Twins

FORGOTTEN = 1_024  # partitions of which nothing is kept that may be remembered all the same


class ClauseMatcher:
    """One clause over one stream, in the order of its time."""

    def __init__(self, clause: Clause, source: Source) -> None:
        self.clause = clause
        plan, shape = clause.plan, source.shape
        self._shape = shape
        self._finder = Finder(plan)
        self._back, self._awaited = plan.back, plan.awaited
        within = clause.recognition.within
        self._horizon = None if within is None else length_of(within, shape.unit)
        self._remembers = plan.counts_matches or plan.automaton.looks_at_the_start
        # what events are not ordered by already, rows of one time are ordered by here
        self._sorts = plain_ties(clause.recognition) not in (source.order, ())
        self._arrow = clause.arrow
        kept = self._arrow
        if clause.ids:
            kept = kept.append(pa.field(ORDINAL, pa.int64()))
        self._schema = kept
        self._most = clause.limits.bytes_of(machine_memory(), os.cpu_count() or 1)
        self._reset()

    def _reset(self) -> None:
        times = ends(no_rows(self._arrow), self._shape)
        self._never = np.inf if times.dtype.kind == "f" else np.iinfo(np.int64).max
        self._keys = Keys(self.clause.key)
        self._rows = KeptRows(self._schema)
        self._searches = Searches.none(times)
        self._twins = Twins(self._shape.schema.end, self._shape.unit)
        self._tied = no_rows(self._arrow)  # rows of the newest time, which others may come before
        self._now: Any = None

    # ---------------------------------------------------------------------------- matching

    def feed(self, events: pa.Table) -> pa.Table:
        """What the next rows decide; they are in the order of time."""
        if not events.num_rows:
            return no_rows(self.clause.schema)
        events = events.select(self._arrow.names).cast(self._arrow)
        self._now = _later(self._now, ends(events, self._shape)[-1].item())
        return self._searched(self._untied(events))

    def advance(self, now: float) -> pa.Table:
        """What time alone decides: no row comes any more that is before `now`."""
        self._now = _later(self._now, now)
        released = self._released(now)
        self._twins.forget_before(now)
        return self._searched(released)

    def finish(self) -> pa.Table:
        """What only waited for further rows."""
        return self._searched(self._released(None), over=True)

    def _untied(self, events: pa.Table) -> pa.Table:
        """The rows before which no others can come, in the clause's own order."""
        if not self._sorts:
            return events
        whole = pa.concat_tables([self._tied, events]).unify_dictionaries()
        times = ends(whole, self._shape)
        before = int(np.searchsorted(times, times[-1]))
        self._tied = whole.slice(before).combine_chunks()
        return self._sorted(whole.slice(0, before))

    def _released(self, now: float | None) -> pa.Table:
        """The rows that waited for others of their time, once none comes any more."""
        tied = self._tied
        if not tied.num_rows or (now is not None and ends(tied, self._shape)[-1] >= now):
            return tied.slice(0, 0)
        self._tied = tied.slice(0, 0)
        return self._sorted(tied)

    def _sorted(self, events: pa.Table) -> pa.Table:
        places = places_by(events, self.clause.recognition.order)
        return events if places is None else rows_taken(events, places)

    def _searched(self, events: pa.Table, *, over: bool = False) -> pa.Table:
        """What is found in the partitions of these rows, and of others that time has come for."""
        codes = self._codes(events)
        concerned = np.union1d(codes, self._due(over=over))
        if not len(concerned):
            return no_rows(self.clause.schema)
        kept = self._rows.of(concerned)
        table = pa.concat_tables([kept, self._numbered(events)]).unify_dictionaries()
        places = np.concatenate(
            [
                np.repeat(np.arange(len(concerned)), self._rows.counts[concerned]),
                np.searchsorted(concerned, codes),
            ]
        )
        order, bounds = grouped(places, len(concerned))
        partitions = Partitions(table, order, bounds)
        search = self._searches.of(concerned, bounds, self._now, opened=not over)
        found = self._finder.find(partitions, search)
        result = self.clause.given(partitions, found)
        self._note(concerned, partitions, search.position, search.covered)
        self._searches.number[concerned] = search.number
        self._forget()
        self._require_room()
        return result

    def _codes(self, events: pa.Table) -> Ints:
        codes = self._keys.of(events)
        self._rows.reserve(len(self._keys))
        self._searches.reserve(len(self._keys), self._never)
        return codes

    def _due(self, *, over: bool) -> Ints:
        """The partitions that something is decided of, though no row of theirs came."""
        count = len(self._keys)
        if over:
            return np.flatnonzero(self._rows.counts[:count] > self._searches.position[:count])
        if self._horizon is None or self._now is None:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self._searches.due[:count] < self._now)

    def _numbered(self, events: pa.Table) -> pa.Table:
        """Rows with their number among those of the same content."""
        if not self.clause.ids:
            return events
        numbers = self._twins.ordinals(events, np.ones(events.num_rows, np.bool_))
        return events.append_column(ORDINAL, pa.array(numbers, pa.int64()))

    def _note(self, codes: Ints, partitions: Partitions, position: Ints, covered: Ints) -> None:
        """Keeps what the search goes on with."""
        bounds, searches = partitions.bounds, self._searches
        begins = np.maximum(bounds[:-1], position - self._back)
        counts = bounds[1:] - begins
        rows = partitions.places(spans(begins, counts))
        self._rows.put(codes, counts, rows_taken(partitions.table, rows).combine_chunks())
        searches.position[codes] = position - begins
        searches.covered[codes] = np.maximum(covered - begins, 0)
        searches.begun[codes] |= begins > bounds[:-1]
        searches.due[codes] = self._deadlines(partitions, position)

    def _deadlines(self, partitions: Partitions, position: Ints) -> npt.NDArray[Any]:
        """When the first undecided row of each partition is decided by time alone."""
        found = np.full(len(position), self._never, self._searches.due.dtype)
        if self._horizon is None or self._awaited:  # rows are waited for, not time
            return found
        waiting = position < partitions.bounds[1:]
        places = partitions.places(position[waiting])
        over = ends(partitions.table, self._shape)[places] + self._horizon
        if found.dtype.kind == "f":
            found[waiting] = np.nextafter(over, -np.inf)
        else:  # the last moment before: at `over` itself it is decided
            whole = over if over.dtype.kind == "i" else np.ceil(over).astype(np.int64)
            found[waiting] = whole - 1
        return found

    def _forget(self) -> None:
        """Drops partitions of which nothing is kept, unless they have to be known again."""
        if self._remembers or not self.clause.key or len(self._keys) < FORGOTTEN:
            return
        alive = self._rows.counts > 0
        if 2 * int(alive.sum()) < len(self._keys):
            self._keys.keep(alive[: len(self._keys)])
            self._searches.keep(alive)
            self._rows.keep(alive)

    def _require_room(self) -> None:
        size = self.state_bytes
        if size > self._most:
            raise LimitError(
                f"the clause keeps {size_text(size)} of rows, and {size_text(self._most)} are "
                "allowed\n"
                "  hint: WITHIN INTERVAL '1' HOUR behind PATTERN (...) or bounded quantifiers "
                'such as {1,100} keep less; memory="8 GB" allows more'
            )

    # ---------------------------------------------------------------------------- state

    def deadline(self) -> float | None:
        """The time behind which `advance` decides something."""
        times = []
        if self._tied.num_rows:
            times.append(ends(self._tied, self._shape)[-1].item())
        count = len(self._keys)
        if self._horizon is not None and len(self._searches.due):
            times.append(self._searches.due[:count].min().item())
        earliest: float = min(times, default=self._never)
        return None if earliest == self._never or math.isinf(earliest) else earliest

    @property
    def partial_matches(self) -> int:
        """In how many partitions rows may still become a match."""
        count = len(self._searches.position)
        waiting = self._rows.counts[:count] > self._searches.position
        return int(waiting.sum()) + int(self._tied.num_rows)

    @property
    def state_bytes(self) -> int:
        searches = self._searches.saved(len(self._keys)).values()
        held: int = self._rows.nbytes + self._keys.nbytes + int(self._tied.nbytes)
        return held + sum(int(array.nbytes) for array in searches) + self._twins.nbytes

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        count = len(self._keys)
        self._rows.reserve(count)
        self._searches.reserve(count, self._never)
        counts = self._rows.counts[:count]
        arrays = {"counts": counts, **self._searches.saved(count), **self._twins.save()}
        blobs = {
            "rows": to_bytes(self._rows.of(np.arange(count))),
            "tied": to_bytes(self._tied),
            "keys": self._keys.save(),
        }
        return packed({"now": self._now}, arrays, blobs)

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        header, arrays, blobs = unpacked(data)
        self._reset()
        self._now = header["now"]
        self._keys.restore(blobs["keys"])
        counts = arrays.pop("counts")
        rows = from_bytes(blobs["rows"]).cast(self._schema)
        self._rows.put(np.arange(len(counts)), counts, rows)
        self._tied = from_bytes(blobs["tied"]).cast(self._arrow)
        self._twins.restore(arrays)
        named = ("position", "number", "covered", "begun", "due")
        self._searches = Searches(*(arrays[name] for name in named))


def _later(one: Any, other: Any) -> Any:
    return other if one is None else max(one, other)
