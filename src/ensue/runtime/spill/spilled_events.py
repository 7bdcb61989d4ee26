"""Matches events that do not fit into memory: they are pruned as they are read, and spilled to disk.

With a key, each group by its hash is matched by itself; without one, events are sorted on disk, and matched in order.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.memory_budget import MemoryBudget, MemoryRequest, get_machine_memory
from ensue.engine.scan import Scan
from ensue.errors import LimitError
from ensue.kernels.row_search import group_rows
from ensue.operators.hierarchy.hierarchy_operator import HierarchyOperator
from ensue.operators.match.match_operator import MatchOperator, create_table_matcher
from ensue.operators.match.parallel_match import merge_parts
from ensue.operators.match.shared_engine import build_results, mark_rows, renumber_rows, select_matched_events
from ensue.options import format_size
from ensue.projection.match_ids import get_event_times
from ensue.runtime.event_pruning import can_prune_events
from ensue.runtime.pipeline import run_to_end
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.spill.spilled_keys import SpillFile, SpillFolder
from ensue.runtime.stage import ARRIVAL, Progress, QueryOperator, StageInput, UnseenTypes
from ensue.runtime.table_parts import hash_rows_by_key
from ensue.runtime.workload import Workload
from ensue.vector.arrow_numpy import Bools
from ensue.vector.event_table import StreamSchema, drop_bad_times, find_stream_order, sort_events, warn_of_dropped
from ensue.vector.match_rows import Matches
from ensue.vector.take import combine_column, create_empty_table, take_rows

SHARE = 8  # the part of the memory that events may take: they are copied, and matched
DISK_SHARE = 0.9  # of the free space of the disk, that files of events may take
GROUPS = 256  # by the hash of their key
SAMPLE = 256  # times of each sorted run, from which the slices of the whole are chosen


@contextmanager
def collect_events(workload: Workload, reader: pa.RecordBatchReader, bad: str) -> "Iterator[pa.Table | SpilledEvents]":
    """Reads events: a table of all of them, or those that matches need, in files that exist until the end."""
    limits = workload.options.planning.limits
    bound = limits.compute_memory_bound(get_machine_memory(), os.cpu_count() or 1)
    held: list[pa.RecordBatch] = []
    size, others, key = 0, iter(reader), find_key(workload.works)
    for batch in others:
        held.append(batch)
        size += batch.nbytes
        if size > bound and key is None:
            raise build_memory_error(bound, "the query needs all of them at once")
        if size > bound / SHARE and key is not None:
            break
    else:
        yield pa.Table.from_batches(held, reader.schema)
        return
    folder = SpillFolder()
    try:
        spilled = SpilledEvents(workload, key or (), bound, folder)
        held.reverse()
        spilled.read(chain((held.pop() for _ in range(len(held))), others), bad)  # frees them one by one
        yield spilled
    finally:
        folder.close()


def find_key(works: Sequence[QueryOperator]) -> tuple[str, ...] | None:
    """The columns by whose hash events are grouped; (): they are matched in slices of time, None: as one table."""
    keys = [frozenset(work.partition_key) for work in works if isinstance(work, MatchOperator | HierarchyOperator)]
    key = frozenset.intersection(*keys) if len(keys) == len(works) else frozenset()
    return tuple(sorted(key)) if key or all(isinstance(work, MatchOperator) for work in works) else None


def build_memory_error(bound: float, why: str) -> LimitError:
    return LimitError(
        f"the events need more than the {format_size(bound)} of memory that they may take: {why}\n"
        "  hint: a key that all parts of the query have in common, as in WHERE [column]; fewer columns; "
        "ensue.Limits(memory=...) with more; or a Spark DataFrame"
    )


class SpilledEvents:
    """The events that matches need, pruned as they were read: in memory if they fit, else in files."""

    def __init__(self, workload: Workload, key: tuple[str, ...], bound: float, folder: SpillFolder) -> None:
        self.workload, self.key, self.bound, self.folder = workload, key, bound, folder
        self.room = bound / SHARE
        self.source: SourceSchema = workload.source
        self.schema, self.sortable = self.source.get_arrival_schema([ARRIVAL]), self.source.sortable([ARRIVAL])
        self.num_rows = 0  # events that were kept
        self.types: set[str] = set()  # of all events
        self._selects = [self._select(work) for work in workload.works]
        self._groups: list[list[SpillFile]] = []  # or sorted runs
        self._table: pa.Table | None = None  # all events, if they fit into memory
        self._free = int(DISK_SHARE * shutil.disk_usage(folder.path).free)  # bytes that may still be written

    def read(self, batches: Iterable[pa.RecordBatch], bad_events: str) -> None:
        """Prunes events, and spills them each time that they fill their part of the memory."""
        held: list[pa.Table] = []
        read = dropped = size = 0
        for batch in batches:
            kept, bad = self._prune(pa.Table.from_batches([batch]), read, bad_events)
            read, dropped = read + batch.num_rows, dropped + bad
            if kept.num_rows:
                held.append(kept)
                self.num_rows, size = self.num_rows + kept.num_rows, size + kept.nbytes
            if size > self.room:
                self._spill(held)
                size = 0
        warn_of_dropped(dropped)
        if not self._groups:
            self._table = _concat(self.schema, held)
            return
        if held:
            self._spill(held)
        if not self.key:
            self._merge_runs()

    def _prune(self, events: pa.Table, before: int, bad_events: str) -> tuple[pa.Table, int]:
        """The events that some query may use, with their arrival numbers, and how many have no usable time."""
        shape = self.source.shape
        if (column := shape.schema.type_column) is not None:
            self.types |= {str(name) for name in pc.unique(events.column(column)).to_pylist() if name is not None}
        events = events.append_column(ARRIVAL, pa.array(np.arange(before, before + events.num_rows)))
        events, dropped = drop_bad_times(events, shape, bad_events, self.workload.types, before=before)
        kept = reduce(np.logical_or, [select(events) for select in self._selects])
        for name in self.key:
            kept &= events.column(name).is_valid().to_numpy()
        return (events if kept.all() else take_rows(events, np.flatnonzero(kept))), dropped

    def _select(self, work: QueryOperator) -> Callable[[pa.Table], Bools]:
        """The test of events that an operator may use."""
        if isinstance(work, MatchOperator) and all(map(can_prune_events, work.prepared)):
            scans = [Scan(query.program) for query in work.prepared]
            return lambda events: reduce(np.logical_or, [scan.get_roles(events) != 0 for scan in scans])
        return lambda events: work.reads.compute_mask(events, self.source.shape)

    def _spill(self, held: list[pa.Table]) -> None:
        """Writes events, as a file for each group of keys, or as a sorted run."""
        table = _concat(self.schema, held)
        held.clear()
        if not self.key:
            self._groups.append([self._write(sort_events(table, self.sortable))])
            return
        self._groups = self._groups or [[] for _ in range(GROUPS)]
        numbers = (hash_rows_by_key(table, self.key) >> np.uint64(32)) % np.uint64(GROUPS)  # parts take the lowest bits
        order, bounds = group_rows(numbers.astype(np.int32), GROUPS)
        table = take_rows(table, order)
        for group, (begin, end) in zip(self._groups, pairwise(bounds.tolist()), strict=True):
            if end > begin:
                group.append(self._write(table.slice(begin, end - begin)))

    def _write(self, table: pa.Table) -> SpillFile:
        self._free -= table.nbytes
        if self._free < 0:
            raise LimitError(
                f"the events need more than {DISK_SHARE:.0%} of the free disk space in {self.folder.path.parent}\n"
                "  hint: ENSUE_SPILL names a folder on another disk; conditions on single events, fewer columns, "
                "and ensue.Limits(memory=...) with more need less"
            )
        return self.folder.write(table)

    def _merge_runs(self) -> None:
        """Merges sorted runs into files that follow each other: slices of time, each sorted by itself."""
        runs = [file for run in self._groups for file in run]
        tables = [self.folder.table(run) for run in runs]
        seams = [_concat(self.schema, [a.slice(a.num_rows - 1), b.slice(0, 1)]) for a, b in pairwise(tables)]
        orders = [find_stream_order(seam, self.sortable) for seam in seams]
        if all(order is None or order[0] == 0 for order in orders):
            return
        times = [get_event_times(t, self.source.shape.schema.end, self.source.shape.unit) for t in tables]
        sample = np.sort(np.concatenate([t[np.linspace(0, len(t) - 1, SAMPLE).astype(np.int64)] for t in times]))
        cuts = sample[np.linspace(0, len(sample) - 1, len(runs) + 1).astype(np.int64)[1:-1]]
        bounds = [[0, *np.searchsorted(t, cuts, "left").tolist(), len(t)] for t in times]
        self._groups = []
        for ends in zip(*map(pairwise, bounds), strict=True):
            pieces = [table.slice(begin, end - begin) for table, (begin, end) in zip(tables, ends, strict=True)]
            if any(piece.num_rows for piece in pieces):
                self._spill(pieces)
        for run in runs:
            self.folder.remove(run)

    def match(self, work: QueryOperator, progress: Progress | None) -> tuple[list[pa.Table], UnseenTypes]:
        """The tables of an operator's stage, and the event types that it lacks."""
        done, stage = 0, work.as_single_stage()
        found = _FoundMatches(work, self.source) if isinstance(work, MatchOperator) else None
        pieces: list[list[pa.Table]] = []
        for events in self._tables():
            if found is not None:
                found.add(events, in_slices=bool(self._groups) and not self.key)
            else:
                batch = StageInput.from_events(events.drop_columns([ARRIVAL]))
                pieces.append(run_to_end(stage.table_matcher(), batch))
            done += events.num_rows
            if progress is not None:
                progress(done, self.num_rows)
        if found is not None:
            return found.build(self.sortable), UnseenTypes(found.unseen or frozenset())
        tables = [pa.concat_tables(same) for same in zip(*pieces, strict=True)]
        return tables, work.find_unseen(stage.table_matcher(), create_empty_table(self.source.arrow), tables)

    def _tables(self) -> Iterator[pa.Table]:
        """Groups of events in stream order; small ones are matched together."""
        if self._table is not None:
            yield sort_events(self._table, self.source.shape)
            return
        if not self.key:
            yield pa.concat_tables([self.folder.table(file) for run in self._groups for file in run])
            return
        waiting, size = list[SpillFile](), 0
        for group in self._groups:
            if (own := sum(file.bytes for file in group)) > self.bound:
                raise build_memory_error(self.bound, f"those of one group of keys take {format_size(own)}")
            if waiting and size + own > self.room:
                yield self._load(waiting)
                waiting, size = [], 0
            waiting, size = waiting + group, size + own
        yield self._load(waiting)

    def _load(self, files: Sequence[SpillFile]) -> pa.Table:
        events = _concat(self.schema, [self.folder.table(file, keep=False) for file in files])
        return sort_events(events, self.source.shape)


class _FoundMatches:
    """The matches of pattern queries in groups of events, and the events in them."""

    def __init__(self, work: MatchOperator, source: SourceSchema) -> None:
        self.queries, self.source = work.prepared, source
        self.end = source.shape.schema.end
        self.unseen: frozenset[str] | None = None
        self._events: list[pa.Table] = []  # with ordinals and arrival numbers
        self._matches: list[list[Matches]] = [[] for _ in self.queries]
        self._rows = 0  # of these events

    def add(self, events: pa.Table, *, in_slices: bool) -> None:
        """Matches a group of events in stream order; `in_slices` if only some of them fit into memory."""
        found: list[Matches] = []
        for some in [[query] for query in self.queries] if in_slices else [self.queries]:
            matcher = create_table_matcher(some)
            matcher.process(StageInput(events, {}, (ARRIVAL,)))
            found += matcher.find_matches(in_parts=not in_slices)
            self.unseen = matcher.unseen if self.unseen is None else self.unseen & matcher.unseen
        if in_slices:
            events, found = self._keep_times_of_matches(events, found)
        bare, arrival = events.drop_columns([ARRIVAL]), events.column(ARRIVAL)
        known, found = select_matched_events(bare, found, self.end, arrival)
        numbers = np.arange(self._rows, self._rows + known.num_rows)
        for pieces, matches in zip(self._matches, found, strict=True):
            pieces.append(renumber_rows(matches, numbers))
        self._events.append(known)
        self._rows += known.num_rows
        size = sum(table.nbytes for table in self._events)
        for query, pieces in zip(self.queries, self._matches, strict=True):
            count, held = sum(piece.number for piece in pieces), size + sum(piece.nbytes for piece in pieces)
            budget = MemoryBudget(query.planning.limits, query.query, query.physical[1], query.shape.unit)
            budget.ask(MemoryRequest(0, count, held, int(arrival[-1].as_py()) if len(arrival) else 0, None))

    def _keep_times_of_matches(self, events: pa.Table, found: Sequence[Matches]) -> tuple[pa.Table, list[Matches]]:
        """The events in matches and those of the same times, which may be their duplicates, and the same matches."""
        selected = mark_rows(found, events.num_rows)
        pieces = [pa.Table.from_batches([batch]) for batch in events.to_batches()]
        begins = np.cumsum([0, *(piece.num_rows for piece in pieces)])[:-1]
        times = [get_event_times(piece, self.end, self.source.shape.unit) for piece in pieces]
        tied = np.unique(np.concatenate([t[selected[b : b + len(t)]] for t, b in zip(times, begins, strict=True)]))
        kept = [np.flatnonzero(np.isin(t, tied)) for t in times]
        numbers = np.concatenate([rows + begin for rows, begin in zip(kept, begins, strict=True)])
        events = _concat(events.schema, [take_rows(p, rows) for p, rows in zip(pieces, kept, strict=True)])
        return events, [m.map_rows(lambda r: np.where(r < 0, -1, np.searchsorted(numbers, r))) for m in found]

    def build(self, sortable: StreamSchema) -> list[pa.Table]:
        """The result tables, as those of one table of all events."""
        events = _concat(self._events[0].schema, self._events)
        numbers = np.arange(events.num_rows)
        if (order := find_stream_order(events, sortable)) is not None:
            events = take_rows(events, order)
            numbers[order] = np.arange(len(order))
        found = []
        for query, pieces in zip(self.queries, self._matches, strict=True):
            moved = [renumber_rows(piece, numbers) for piece in pieces]
            found.append(merge_parts(moved, query.engine().output))
        threads = self.queries[0].planning.limits.thread_count
        return build_results(self.queries, events.drop_columns([ARRIVAL]), found, threads)


def _concat(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    """One table of one array for each column, with a single dictionary where there are several."""
    table = pa.concat_tables(tables or [create_empty_table(schema)])
    return pa.table([combine_column(table, name) for name in table.column_names], schema=schema)
