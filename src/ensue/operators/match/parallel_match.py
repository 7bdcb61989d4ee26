"""Matches a table in several threads: events in parts by the hash of their key, results by ranges of matches.

Each step works on data that fits into a processor's cache, which also helps one thread that has many keys. Without a
key, a query with WITHIN is matched in slices of time: each finds the matches that begin in it, and reads on to the
end of the window of its last event.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

import numpy as np
import pyarrow as pa

from ensue.analyzer.output_mode import is_summarized
from ensue.engine.engine import Engine
from ensue.engine.interrupts import run_in_threads
from ensue.engine.match_output import concat_matches
from ensue.engine.memory_budget import SharedUsage
from ensue.engine.scan import Scan
from ensue.ir.selection import CONTIGUOUS
from ensue.ir.traits import get_parts, is_event, is_list, is_sequence
from ensue.ir.traversal import iterate_operator_calls
from ensue.kernels import sorting
from ensue.projection.match_ids import get_event_times
from ensue.runtime import table_parts
from ensue.runtime.compiled_query import (
    CompiledQuery,
    build_result,
    can_match_in_parts,
    check_result_size,
    find_unseen_types,
)
from ensue.runtime.stage import StageInput
from ensue.vector import evaluation
from ensue.vector.arrow_numpy import Ints, as_read_only
from ensue.vector.arrow_types import window_to_ticks
from ensue.vector.key_codes import Codes, DenseCodes, KeyCodes
from ensue.vector.match_rows import Matches
from ensue.vector.take import take_rows

MIN_MATCHES = 5_000  # of a thread that builds a result
SAMPLE = 4_096  # keys of a block that show whether there are few different ones
MANY_KEYS = 200_000  # from which on parts are faster for one thread, too
MOST_OVERLAP = 1 / 8  # of the events of all slices that are read twice
ROUNDING = 1e-12  # by which a sum of times may differ from the difference that the engine computes
NO_CODES = np.zeros(0, np.int32)


def is_faster_in_parts(query: CompiledQuery, events: pa.Table) -> bool:
    """Whether a call has several threads, or so many keys that their state does not fit into the cache."""
    if query.planning.limits.thread_count > 1:
        return True
    names = [e.field_name for e in query.plan.query.equivalence]
    if not names:
        return False
    keys = events.select(names)
    if DenseCodes.find(keys, MANY_KEYS) is not None:
        return False
    sample = take_rows(keys, np.linspace(0, events.num_rows - 1, SAMPLE).astype(np.int64))
    # n keys drawn out of k are about n * n / 2k fewer different ones
    return SAMPLE - len(_encode(sample)[1]) < SAMPLE * SAMPLE / (2 * MANY_KEYS)


def match_in_parallel(query: CompiledQuery, batch: StageInput) -> tuple[Matches, frozenset[str]]:
    """The matches in a table, in the order of their last events, and the event types that it lacks."""
    return _ParallelMatch(query, batch).run()


def find_common_key(queries: Sequence[CompiledQuery]) -> tuple[str, ...]:
    """The columns in which the events of each match of each query are equal, if all queries can be matched in parts."""
    limits = queries[0].planning.limits
    if limits.thread_count < 2 or not all(map(can_match_in_parts, queries)):
        return ()
    keys = [{e.field_name for e in query.plan.query.equivalence} for query in queries]
    return tuple(sorted(set.intersection(*keys)))


def can_match_in_slices(query: CompiledQuery) -> bool:
    """Whether the matches that begin with an event depend only on it and on the later events of its window."""
    plan, pattern, limits = query.plan.query, query.plan.query.pattern, query.planning.limits
    _, schema = query.physical
    first = get_parts(pattern)[0] if is_sequence(pattern) else pattern
    begins = is_event(first) or (is_list(first) and first.least > 0)  # nothing is negated before a match begins
    return (
        window_to_ticks(plan.within, query.shape.unit) is not None
        and not schema.intervals
        and (plan.after, plan.choose, plan.limit, limits.max_matches) == (None, None, None, None)
        and not (plan.unfinished or is_summarized(plan))
        and (begins or not any(role.negative for role in query.plan.roles))
        and not any(iterate_operator_calls(pattern))
    )


@dataclass(frozen=True, slots=True)
class _Selection:
    """The events of a block that have a role."""

    begin: int  # of the block
    rows: Ints  # of the block
    mask: Ints
    seen: int  # bits of roles whose types occur
    codes: Codes | None  # of their keys, dense or those of this block; None: there are too many different keys
    keys: pa.Table  # of each code


@dataclass(frozen=True, slots=True)
class _GroupedEvents:
    """The same events, grouped by their key."""

    rows: Ints  # of the table, ascending in each group
    mask: Ints
    codes: Codes | None  # of their keys, in the table
    events: pa.Table  # the columns that are scanned later
    bounds: Ints  # of the groups


@dataclass(frozen=True, slots=True)
class _Range:
    """Events of a group or of a slice of time."""

    events: _GroupedEvents
    begin: int
    end: int
    own: int | None = None  # matches that begin with event number `own` or later belong to other slices


class _ParallelMatch:
    def __init__(self, query: CompiledQuery, batch: StageInput) -> None:
        self.query = query
        self.batch = batch
        self.events = batch.bare
        self.threads = query.planning.limits.thread_count
        self.keys = [e.field_name for e in query.plan.query.equivalence]
        self.needs_every_event = bool(query.plan.query.strategies & CONTIGUOUS) or query.program.frame.counts
        self.scans: SimpleQueue[Scan] = SimpleQueue()  # one for each thread
        for _ in range(self.threads):
            self.scans.put(Scan(query.program))
        self.dense = DenseCodes.find(self.events.select(self.keys), 2 * self.events.num_rows)
        self.read = sorted(Scan(query.program).columns)
        self.usage = SharedUsage()

    def run(self) -> tuple[Matches, frozenset[str]]:
        count = self.events.num_rows
        selections = run_in_threads(
            [partial(self._select, at) for at in range(0, count, table_parts.BLOCK)], self.threads
        )
        scan = Scan(self.query.program)
        scan.seen = int(np.bitwise_or.reduce([selection.seen for selection in selections]))
        unseen = find_unseen_types(self.query, scan)
        parts = 1
        if self.keys:
            rows = sum(len(selection.rows) for selection in selections)
            parts = table_parts.count_parts(rows, self.threads)
        codes = self._merge_codes(selections)
        grouping = [partial(self._group, *pair, parts) for pair in zip(selections, codes, strict=True)]
        grouped = run_in_threads(grouping, self.threads)
        if not self.keys and can_match_in_slices(self.query):
            tasks = self._cut_slices(grouped)
        else:
            tasks = [[_Range(b, int(b.bounds[k]), int(b.bounds[k + 1])) for b in grouped] for k in range(parts)]
        done = 0

        def report(_: int) -> None:
            nonlocal done
            done += 1
            self.batch.report(count * done // len(tasks))

        matching = [partial(self._match, ranges, part) for part, ranges in enumerate(tasks)]
        return merge_parts(run_in_threads(matching, self.threads, report), self.query.program.source.output), unseen

    def _cut_slices(self, blocks: Sequence[_GroupedEvents]) -> list[list[_Range]]:
        """Slices of time, with the events that the windows of their last events reach."""
        rows = np.concatenate([block.rows for block in blocks])
        mask = np.concatenate([block.mask for block in blocks])
        events = pa.concat_tables([block.events for block in blocks])
        every = _GroupedEvents(rows, mask, None, events, np.array([0, len(rows)]))
        column = events.column(self.query.physical[1].end)
        times = np.asarray(evaluation.from_arrow(column, self.query.shape.unit).values)
        length = window_to_ticks(self.query.plan.query.within, self.query.shape.unit)
        assert length is not None
        count = min(4 * self.threads, max(1, len(rows) // table_parts.LEAST))
        while count > 1:
            bounds = np.linspace(0, len(rows), count + 1).astype(np.int64)
            last = times[bounds[1:] - 1]
            rounding = ROUNDING * (np.abs(last) + length) if times.dtype == np.float64 else 0
            ends = np.searchsorted(times, last + length + rounding, "right").tolist()
            if sum(ends) - int(bounds[1:].sum()) <= MOST_OVERLAP * len(rows):
                pairs = zip(bounds[:-1].tolist(), bounds[1:].tolist(), ends, strict=True)
                return [[_Range(every, begin, end, own)] for begin, own, end in pairs]
            count = min(count - 1, max(self.threads, count // 2))
        return [[_Range(every, 0, len(rows))]]

    def _select(self, begin: int) -> _Selection:
        """Select the events of a block, and encode their keys if few are different."""
        block, scan = self.events.slice(begin, table_parts.BLOCK), self.scans.get()
        scan.seen = 0
        mask = scan.get_roles(block)
        seen = scan.seen
        self.scans.put(scan)
        rows = np.arange(len(mask))
        if not self.needs_every_event:
            selected = np.empty(len(mask), np.int64)
            count = sorting.select_rows(mask, rows, selected)
            rows, mask = rows[:count], selected[:count]
        keys = block.select(self.keys)
        if not self.keys:
            return _Selection(begin, rows, mask, seen, None, keys)
        every = len(rows) * 2 > block.num_rows  # encoding some more is cheaper than taking the others
        if self.dense is not None:
            return _Selection(begin, rows, mask, seen, self.dense.encode(keys)[rows], keys)
        few = keys.slice(0, SAMPLE) if every else take_rows(keys, rows[:SAMPLE])
        if 4 * len(_encode(few)[1]) > SAMPLE:
            return _Selection(begin, rows, mask, seen, None, keys)
        codes, firsts = _encode(keys if every else take_rows(keys, rows))
        keys = take_rows(keys, firsts if every else rows[firsts])
        return _Selection(begin, rows, mask, seen, codes[rows] if every else codes, keys)

    def _merge_codes(self, selections: Sequence[_Selection]) -> list[Codes | None]:
        """The common code of each code of a block, if the keys of all blocks have codes."""
        if self.dense is not None:
            return [NO_CODES] * len(selections)
        if any(selection.codes is None for selection in selections):
            return [None] * len(selections)
        codes = KeyCodes()
        return [codes.encode([selection.keys.column(name) for name in self.keys]) for selection in selections]

    def _group(self, selection: _Selection, common: Codes | None, parts: int) -> _GroupedEvents:
        """Group the selected events by their key."""
        rows, mask, codes = selection.rows, selection.mask, NO_CODES
        block, bounds = self.events.slice(selection.begin, table_parts.BLOCK), np.array([0, len(rows)])
        if common is not None and selection.codes is not None:
            codes = selection.codes if self.dense is not None else np.append(common, np.int32(-1))[selection.codes]
        if parts > 1:
            if common is not None:
                group = (codes & np.int32(parts - 1)).astype(np.uint8)
            else:
                group = table_parts.hash_keys(block, self.keys, parts)[rows]
            bounds = np.zeros(parts + 1, np.int64)
            sorted_, masks, dense = np.empty_like(rows), np.empty_like(mask), np.empty_like(codes)
            sorting.group_rows(group, rows, mask, codes, bounds, sorted_, masks, dense)
            rows, mask, codes = sorted_, masks, dense // np.int32(parts)  # -1 stays -1
        read = self.read if common is not None else sorted({*self.read, *self.keys})
        events = take_rows(block.select(read), rows)
        return _GroupedEvents(rows + selection.begin, mask, None if common is None else codes, events, bounds)

    def _match(self, ranges: Sequence[_Range], part: int) -> Matches:
        """Match the events of one group or slice."""
        rows = np.concatenate([r.events.rows[r.begin : r.end] for r in ranges])
        if not len(rows):
            return concat_matches([], self.query.program.source.output)
        mask = np.concatenate([r.events.mask[r.begin : r.end] for r in ranges])
        events = pa.concat_tables([r.events.events.slice(r.begin, r.end - r.begin) for r in ranges])
        codes = [r.events.codes[r.begin : r.end] for r in ranges if r.events.codes is not None]
        key = np.concatenate(codes) if codes else None
        engine = self.query.engine()
        assert isinstance(engine, Engine)
        engine.room.shared = self.usage, part
        scanned = engine.scan.scan_known(events, mask, key)
        known = 1 + int(key.max(initial=0)) if key is not None else max(1, len(engine.scan.keys))
        pieces = [engine.feed_scanned(scanned, known), engine.on_watermark(np.inf)]
        matches = concat_matches([piece for piece in pieces if piece.count], engine.output)
        (first, *_), own = ranges, ranges[0].own
        if own is not None and matches.count:
            begins, _ = matches.ends()
            matches = matches.where(begins < own - first.begin)
        self.usage.report(part, matches.nbytes, matches.number)
        return matches.map_rows(lambda own: np.where(own < 0, np.int64(-1), rows[own]))


def _encode(keys: pa.Table) -> tuple[Codes, Ints]:
    """The codes of keys, -1 for NULL, and the first row of each code."""
    known = KeyCodes()
    codes = known.encode(keys.columns)
    firsts = np.full(len(known), -1, np.int64)
    sorting.find_firsts(as_read_only(codes), firsts)
    return codes, firsts


def merge_parts(pieces: list[Matches], names: Sequence[str]) -> Matches:
    """Merge the matches of all parts by their last events."""
    matches = concat_matches([piece for piece in pieces if piece.count], names)
    if len(pieces) == 1 or not matches.count:
        return matches
    _, last = matches.ends()
    return matches.pick(np.argsort(last, kind="stable"))


def build_in_parallel(query: CompiledQuery, matches: Matches, events: pa.Table) -> pa.Table:
    """The result table of matches that are sorted by time; each thread builds a range of them."""
    threads = min(query.planning.limits.thread_count, matches.count // MIN_MATCHES)
    if threads < 2 or query.result.reduces or not matches.variables:
        return build_result(query, matches, events)
    check_result_size(query, matches, events)
    times = get_event_times(events, query.physical[1].end)
    bounds = np.linspace(0, matches.count, threads + 1).astype(np.int64)

    def build(begin: int, end: int) -> pa.Table:
        part = matches.pick(np.arange(begin, end))
        first, last = part.ends()
        # with all events of the same time, since duplicates are numbered
        low = int(np.searchsorted(times, times[first.min()], "left"))
        high = int(np.searchsorted(times, times[last.max()], "right"))
        moved = part.map_rows(lambda rows: np.where(rows < 0, rows, rows - low))
        return query.result.build(moved, events.slice(low, high - low))

    ranges = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
    return pa.concat_tables(run_in_threads([partial(build, *pair) for pair in ranges], threads))
