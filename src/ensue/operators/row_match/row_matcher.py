"""Matches a MATCH_RECOGNIZE clause incrementally over batches of rows.

Between two batches it keeps, for each partition, the rows from the first undecided one on and the
earlier rows that conditions and measures refer to.
"""

import math
import os
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.memory_budget import Usage, get_machine_memory
from ensue.engine.row_match.row_partitions import Partitions, find_sort_order
from ensue.engine.row_match.search import RowMatchFinder, SearchState, within_to_ticks
from ensue.engine.state_format import deserialize_table, pack_state, serialize_table, unpack_state
from ensue.errors import LimitError
from ensue.kernels.row_search import group_rows
from ensue.operators.row_match.compiled_clause import CompiledClause, get_tie_columns
from ensue.options import format_size
from ensue.projection.match_ids import ORDINAL, hash_rows
from ensue.runtime.event_buffer import DuplicateEvents
from ensue.runtime.source_schema import SourceSchema
from ensue.vector.arrow_numpy import Bools, Ints, wrap_numbers
from ensue.vector.event_table import get_end_times
from ensue.vector.key_codes import KeyCodes
from ensue.vector.take import create_empty_table, take_rows

_PIECES = 32  # tables before they are concatenated


class PartitionRows:
    """Stores the rows of partitions, which are identified by their codes.

    The rows of a partition are contiguous. New rows of a partition are appended after
    all others; unreferenced rows are dropped once they make up half of the store.

    >>> store = PartitionRows(pa.schema({"x": pa.int64()}))
    >>> store.put(np.array([0, 1]), np.array([2, 1]), pa.table({"x": [1, 2, 3]}))
    >>> store.put(np.array([0]), np.array([1]), pa.table({"x": [4]}))
    >>> store.get_rows(np.array([0, 1]))["x"].to_pylist(), store.counts.tolist()
    ([4, 3], [1, 1])
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._pieces: list[pa.Table] = []
        self._rows = 0  # of all pieces
        self._first: Ints = np.zeros(0, np.int64)
        self.counts: Ints = np.zeros(0, np.int64)  # by code

    def reserve(self, codes: int) -> None:
        """Grows the arrays to hold this number of partitions."""
        missing = codes - len(self.counts)
        if missing > 0:
            more = np.zeros(max(missing, len(self.counts)), np.int64)
            self._first = np.concatenate([self._first, more])
            self.counts = np.concatenate([self.counts, more])

    def get_rows(self, codes: Ints) -> pa.Table:
        """Returns the rows of some partitions, one partition after the other."""
        rows = expand_ranges(self._first[codes], self.counts[codes])
        return take_rows(self._concat(), rows) if len(rows) else create_empty_table(self._schema)

    def put(self, codes: Ints, counts: Ints, rows: pa.Table) -> None:
        """Replaces the rows of some partitions; `rows` has one partition after the other."""
        if len(codes):
            self.reserve(int(codes.max()) + 1)
        self._first[codes] = self._rows + np.cumsum(counts) - counts
        self.counts[codes] = counts
        if rows.num_rows:
            self._pieces.append(rows)
            self._rows += rows.num_rows
        held = int(self.counts.sum())
        if not held:
            self._pieces, self._rows = [], 0
        elif len(self._pieces) > _PIECES or self._rows > 2 * held + 1_024:
            self._pack()

    def keep(self, alive: Bools) -> None:
        """Drops partitions and renumbers the others from 0, in their order."""
        codes = np.flatnonzero(alive)
        self._first, self.counts = self._first[codes], self.counts[codes]
        self._pack()

    def _pack(self) -> None:
        held = np.flatnonzero(self.counts)
        table = self.get_rows(held).combine_chunks()
        self._pieces, self._rows = [table], table.num_rows
        self._first[held] = np.cumsum(self.counts[held]) - self.counts[held]

    def _concat(self) -> pa.Table:
        if not self._pieces:
            return create_empty_table(self._schema)
        if len(self._pieces) == 1:
            return self._pieces[0]
        return pa.concat_tables(self._pieces).unify_dictionaries()

    @property
    def nbytes(self) -> int:
        held = int(self.counts.sum())
        size = sum(int(piece.nbytes) for piece in self._pieces)
        return 16 * len(self.counts) + (size * held // self._rows if self._rows else 0)


def expand_ranges(first: Ints, counts: Ints) -> Ints:
    """Returns the numbers of the ranges that start at `first` and have `counts` elements.

    >>> expand_ranges(np.array([5, 9]), np.array([2, 3])).tolist()
    [5, 6, 9, 10, 11]
    """
    before = np.cumsum(counts) - counts
    numbers: Ints = np.repeat(first - before, counts) + np.arange(int(counts.sum()))
    return numbers


Arrays = dict[str, npt.NDArray[Any]]


@dataclass
class PartitionSearches:
    """The position of the search in each partition, by partition code, between two batches.

    Row numbers count from the partition's first stored row.
    """

    position: Ints  # the first row that no search has started from
    number: Ints  # matches so far
    covered: Ints  # rows before this one are in a match
    begun: Bools  # whether earlier rows have been dropped
    due: npt.NDArray[Any]  # the time after which a match is decided without further rows

    @classmethod
    def none(cls, due: npt.NDArray[Any]) -> "PartitionSearches":
        """Returns the searches of no partition; `due` has the type of times."""
        empty = np.zeros(0, np.int64)
        return cls(empty, empty, empty, np.zeros(0, np.bool_), due[:0])

    def reserve(self, codes: int, never: Any) -> None:
        """Grows the arrays to hold this number of partitions."""
        missing = codes - len(self.position)
        if missing <= 0:
            return
        more = max(missing, len(self.position))
        for field in fields(self):
            array = getattr(self, field.name)
            fresh = np.zeros(more, array.dtype)
            if field.name == "due":
                fresh[:] = never
            setattr(self, field.name, np.concatenate([array, fresh]))

    def build_search(self, codes: Ints, bounds: Ints, now: float | None, *, opened: bool) -> SearchState:
        """Creates the search over some partitions, whose rows have these bounds."""
        position, covered = bounds[:-1] + self.position[codes], bounds[:-1] + self.covered[codes]
        opened_ = np.full(len(codes), opened)
        return SearchState(position, self.number[codes], covered, opened_, self.begun[codes], now)

    def keep(self, alive: Bools) -> None:
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name)[alive])

    def save_searches(self, count: int) -> Arrays:
        return {field.name: getattr(self, field.name)[:count] for field in fields(self)}


class PartitionKeys:
    """Assigns codes to partitions. NULL is a key like others, and so is NaN."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = [(name, name) for name in columns]
        self._codes = KeyCodes()

    def __len__(self) -> int:
        return len(self._codes) if self._columns else 1

    def get_codes(self, events: pa.Table) -> Ints:
        if not self._columns:
            return np.zeros(events.num_rows, np.int64)
        pair = hash_rows(events, self._columns, np.arange(events.num_rows))
        halves = [wrap_numbers(half.view(np.int64)) for half in pair]
        return self._codes.encode(halves).astype(np.int64)

    def keep(self, alive: Bools) -> None:
        """Drops partitions and renumbers the others from 0, in their order."""
        if self._columns:
            self._codes.keep(alive)

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes

    def snapshot(self) -> bytes:
        return self._codes.snapshot() if self._columns else b""

    def restore(self, data: bytes) -> None:
        self._codes = KeyCodes.restore(data) if self._columns else KeyCodes()


MIN_DROPPED_PARTITIONS = 1_024  # with fewer partitions, those without rows are not dropped


class RowPatternMatcher:
    """Matches one clause over one stream in event-time order."""

    def __init__(self, clause: CompiledClause, source: SourceSchema) -> None:
        self.clause = clause
        plan, shape = clause.plan, source.shape
        self._shape = shape
        self._finder = RowMatchFinder(plan)
        self._back, self._awaited = plan.back, plan.awaited
        within = clause.row_pattern.within
        self._horizon = None if within is None else within_to_ticks(within, shape.unit)
        self._remembers = plan.reads_match_number or plan.automaton.reads_start
        # rows of one time are sorted here unless the source already orders them
        self._sorts = get_tie_columns(clause.row_pattern) not in (source.order, ())
        self._arrow = self._schema = clause.arrow
        if clause.ids:
            self._schema = self._schema.append(pa.field(ORDINAL, pa.int64()))
        self._most = clause.limits.compute_memory_bound(get_machine_memory(), os.cpu_count() or 1)
        self._reset()

    def _reset(self) -> None:
        times = get_end_times(create_empty_table(self._arrow), self._shape)
        self._never = np.inf if times.dtype.kind == "f" else np.iinfo(np.int64).max
        self._keys = PartitionKeys(self.clause.key)
        self._rows = PartitionRows(self._schema)
        self._searches = PartitionSearches.none(times)
        self._twins = DuplicateEvents(self._shape.schema.end, self._shape.unit)
        self._tied = create_empty_table(self._arrow)  # rows that later ones may precede
        self._now: Any = None

    def process(self, events: pa.Table) -> pa.Table:
        """Returns the results that the next rows decide; rows arrive in time order."""
        if not events.num_rows:
            return create_empty_table(self.clause.schema)
        events = events.select(self._arrow.names).cast(self._arrow)
        self._now = _later(self._now, get_end_times(events, self._shape)[-1].item())
        return self._search(self._sort_before_ties(events))

    def on_watermark(self, now: float) -> pa.Table:
        """Returns the results that time alone decides: no further row is before `now`."""
        released, over = self._release_ties(now), now == math.inf
        if not over:
            self._now = _later(self._now, now)
            self._twins.forget_before(now)
        return self._search(released, over=over)

    def _sort_before_ties(self, events: pa.Table) -> pa.Table:
        """Returns the rows that no later row can precede, in the clause's order."""
        if not self._sorts:
            return events
        rows = pa.concat_tables([self._tied, events]).unify_dictionaries()
        times = get_end_times(rows, self._shape)
        before = int(np.searchsorted(times, times[-1]))
        self._tied = rows.slice(before).combine_chunks()
        return self._sort(rows.slice(0, before))

    def _release_ties(self, now: float) -> pa.Table:
        """Returns the rows that waited for others of their time, once time has passed."""
        tied = self._tied
        if not tied.num_rows or get_end_times(tied, self._shape)[-1] >= now:
            return tied.slice(0, 0)
        self._tied = tied.slice(0, 0)
        return self._sort(tied)

    def _sort(self, events: pa.Table) -> pa.Table:
        places = find_sort_order(events, self.clause.row_pattern.order)
        return events if places is None else take_rows(events, places)

    def _search(self, events: pa.Table, *, over: bool = False) -> pa.Table:
        """Searches the partitions of these rows, and those whose deadline has passed."""
        codes = self._codes(events)
        selected = np.union1d(codes, self._due(over=over))
        if not len(selected):
            return create_empty_table(self.clause.schema)
        stored = self._rows.get_rows(selected)
        table = pa.concat_tables([stored, self._add_ordinals(events)]).unify_dictionaries()
        old = np.repeat(np.arange(len(selected)), self._rows.counts[selected])
        places = np.concatenate([old, np.searchsorted(selected, codes)])
        order, bounds = group_rows(places, len(selected))
        partitions = Partitions(table, order, bounds)
        search = self._searches.build_search(selected, bounds, self._now, opened=not over)
        matches = self._finder.find(partitions, search)
        result = self.clause.build_result(partitions, matches)
        self._store_progress(selected, partitions, search.position, search.covered)
        self._searches.number[selected] = search.number
        self._drop_empty_partitions()
        self._check_memory()
        return result

    def _codes(self, events: pa.Table) -> Ints:
        codes = self._keys.get_codes(events)
        self._rows.reserve(len(self._keys))
        self._searches.reserve(len(self._keys), self._never)
        return codes

    def _due(self, *, over: bool) -> Ints:
        """Returns the partitions with decisions to make though no new row arrived."""
        count = len(self._keys)
        if over:
            return np.flatnonzero(self._rows.counts[:count] > self._searches.position[:count])
        if self._horizon is None or self._now is None:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self._searches.due[:count] < self._now)

    def _add_ordinals(self, events: pa.Table) -> pa.Table:
        """Adds the number of each row among rows of the same content."""
        if not self.clause.ids:
            return events
        numbers = self._twins.ordinals(events, np.ones(events.num_rows, np.bool_))
        return events.append_column(ORDINAL, pa.array(numbers, pa.int64()))

    def _store_progress(self, codes: Ints, partitions: Partitions, position: Ints, covered: Ints) -> None:
        """Stores the rows and positions that the next search needs."""
        bounds, searches = partitions.bounds, self._searches
        begins = np.maximum(bounds[:-1], position - self._back)
        counts = bounds[1:] - begins
        rows = partitions.places(expand_ranges(begins, counts))
        self._rows.put(codes, counts, take_rows(partitions.table, rows).combine_chunks())
        searches.position[codes] = position - begins
        searches.covered[codes] = np.maximum(covered - begins, 0)
        searches.begun[codes] |= begins > bounds[:-1]
        searches.due[codes] = self._deadlines(partitions, position)

    def _deadlines(self, partitions: Partitions, position: Ints) -> npt.NDArray[Any]:
        """Computes when time alone decides the first undecided row of each partition."""
        deadlines = np.full(len(position), self._never, self._searches.due.dtype)
        if self._horizon is None or self._awaited:  # rows are waited for, not time
            return deadlines
        waiting = position < partitions.bounds[1:]
        places = partitions.places(position[waiting])
        expiry = get_end_times(partitions.table, self._shape)[places] + self._horizon
        if deadlines.dtype.kind == "f":
            deadlines[waiting] = np.nextafter(expiry, -np.inf)
        else:  # one tick earlier: at `expiry` itself the row is decided
            rounded = expiry if expiry.dtype.kind == "i" else np.ceil(expiry).astype(np.int64)
            deadlines[waiting] = rounded - 1
        return deadlines

    def _drop_empty_partitions(self) -> None:
        """Drops partitions without rows, unless their match numbers or starts matter later."""
        if self._remembers or not self.clause.key or len(self._keys) < MIN_DROPPED_PARTITIONS:
            return
        alive = self._rows.counts > 0
        if 2 * int(alive.sum()) < len(self._keys):
            self._keys.keep(alive[: len(self._keys)])
            self._searches.keep(alive)
            self._rows.keep(alive)

    def _check_memory(self) -> None:
        size = self._count_bytes()
        if size > self._most:
            raise LimitError(
                f"the clause keeps {format_size(size)} of rows, and {format_size(self._most)} are "
                "allowed\n"
                "  hint: WITHIN INTERVAL '1' HOUR after PATTERN (...) or bounded quantifiers "
                'such as {1,100} keep less; ensue.Limits(memory="8 GB") allows more'
            )

    def next_timer(self) -> float | None:
        """Returns the time after which `advance` decides something."""
        times = []
        if self._tied.num_rows:
            times.append(get_end_times(self._tied, self._shape)[-1].item())
        count = len(self._keys)
        if self._horizon is not None and len(self._searches.due):
            times.append(self._searches.due[:count].min().item())
        earliest: float = min(times, default=self._never)
        return None if earliest == self._never or math.isinf(earliest) else earliest

    @property
    def usage(self) -> Usage:
        """Partitions whose rows may still become a match are its partial matches."""
        count, size = len(self._searches.position), self._count_bytes()
        waiting = self._rows.counts[:count] > self._searches.position
        return Usage(int(waiting.sum()) + int(self._tied.num_rows), size, size)

    def _count_bytes(self) -> int:
        searches = self._searches.save_searches(len(self._keys)).values()
        held: int = self._rows.nbytes + self._keys.nbytes + int(self._tied.nbytes)
        return held + sum(int(array.nbytes) for array in searches) + self._twins.nbytes

    def snapshot(self) -> bytes:
        count = len(self._keys)
        self._rows.reserve(count)
        self._searches.reserve(count, self._never)
        counts = self._rows.counts[:count]
        arrays = {"counts": counts, **self._searches.save_searches(count), **self._twins.snapshot()}
        blobs = {
            "rows": serialize_table(self._rows.get_rows(np.arange(count))),
            "tied": serialize_table(self._tied),
            "keys": self._keys.snapshot(),
        }
        return pack_state({"now": self._now}, arrays, blobs)

    def restore(self, data: bytes) -> None:
        header, arrays, blobs = unpack_state(data)
        self._reset()
        self._now = header["now"]
        self._keys.restore(blobs["keys"])
        counts = arrays.pop("counts")
        rows = deserialize_table(blobs["rows"]).cast(self._schema)
        self._rows.put(np.arange(len(counts)), counts, rows)
        self._tied = deserialize_table(blobs["tied"]).cast(self._arrow)
        self._twins.restore(arrays)
        names = (field.name for field in fields(PartitionSearches))
        self._searches = PartitionSearches(*(arrays[name] for name in names))


def _later(first: Any, second: Any) -> Any:
    return second if first is None else max(first, second)
