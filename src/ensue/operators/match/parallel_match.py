"""Matches a table in several threads: events in parts by the hash of their key, results by ranges of matches.

Each step works on data that fits into a processor's cache, which also helps one thread that has many keys. Without a
key, a query with WITHIN is matched in slices of time: each finds the matches that begin in it, and reads on to the
end of the window of its last event.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.analyzer.output_mode import is_summarized
from ensue.engine.engine import Engine
from ensue.engine.interrupts import run_in_threads
from ensue.engine.match_output import concat_matches
from ensue.engine.memory_budget import SharedUsage
from ensue.engine.scan import Scan, ScannedBatch
from ensue.ir.selection import CONTIGUOUS
from ensue.ir.traits import get_parts, is_event, is_list, is_sequence
from ensue.ir.traversal import iterate_operator_calls
from ensue.kernels import sorting
from ensue.projection.match_ids import get_event_times
from ensue.runtime import table_parts
from ensue.runtime.compiled_query import CompiledQuery, build_result, check_result_size, find_unseen_types, sort_by_time
from ensue.runtime.stage import StageInput
from ensue.schema import ValueKind
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
MOST_SHARING = 16  # threads; each reads the roles of all events, which is cheaper than copying those of its keys
MOST_SHARED_KEYS = 1 << 15  # whose state fits into the cache
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


def match_in_parallel(query: CompiledQuery, batch: StageInput) -> tuple[list[Matches], frozenset[str]]:
    """The matches in the parts of a table, and the event types that it lacks."""
    return _ParallelMatch(query, batch).run()


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
    """The events of a block that have a role, or all of them."""

    begin: int  # of the block
    rows: Ints | None  # of the block; None: all
    mask: Ints
    seen: int  # bits of roles whose types occur
    codes: Codes | None  # of their keys, dense or those of this block; None: there are too many different keys
    keys: pa.Table  # of each code

    @property
    def table_rows(self) -> Ints:
        return self.begin + (np.arange(len(self.mask)) if self.rows is None else self.rows)


@dataclass(frozen=True, slots=True)
class _GroupedEvents:
    """The same events, grouped by their key."""

    rows: Ints  # of the table, ascending in each group
    mask: Ints
    codes: Codes | None  # of their keys, in the table
    events: pa.Table  # the columns that are scanned later
    bounds: Ints  # of the groups


class _ParallelMatch:
    def __init__(self, query: CompiledQuery, batch: StageInput) -> None:
        self.query = query
        self.batch = batch
        self.events = batch.bare
        self.threads = query.planning.limits.thread_count
        self.keys = [e.field_name for e in query.plan.query.equivalence]
        self.needs_every_event = bool(query.plan.query.strategies & CONTIGUOUS) or query.program.frame.counts
        self.size = table_parts.get_block_size(self.events.num_rows, self.threads)
        self.scans = table_parts.ScanPool(query.program, self.threads)
        self.dense = DenseCodes.find(self.events.select(self.keys), 2 * self.events.num_rows)
        self.read = sorted(Scan(query.program).columns)
        self.usage = SharedUsage()
        texts = any(feature.kind is ValueKind.STRING for feature in query.program.features)  # coded by each engine
        self.can_share = 1 < self.threads <= MOST_SHARING and not texts

    def run(self) -> tuple[list[Matches], frozenset[str]]:
        starts = range(0, self.events.num_rows, self.size)
        selections = run_in_threads([partial(self._select, at) for at in starts], self.threads)
        scan = Scan(self.query.program)
        scan.seen = int(np.bitwise_or.reduce([selection.seen for selection in selections]))
        unseen = find_unseen_types(self.query, scan)
        tables, known = self._merge_codes(selections)
        if self.can_share and known <= MOST_SHARED_KEYS:
            tasks = self._share(selections, tables, int(known))
        else:
            rows = sum(len(selection.mask) for selection in selections)
            parts = table_parts.count_parts(rows, self.threads) if self.keys else 1
            grouping = [partial(self._group, *pair, parts) for pair in zip(selections, tables, strict=True)]
            grouped = run_in_threads(grouping, self.threads)
            tasks = [partial(self._match_group, grouped, part) for part in range(parts)]
        done = 0

        def report(_: int) -> None:
            nonlocal done
            done += 1
            self.batch.report(self.events.num_rows * done // len(tasks))

        return run_in_threads(tasks, self.threads, report), unseen

    def _select(self, begin: int) -> _Selection:
        """Select the events of a block, and encode their keys if few are different."""
        block = self.events.slice(begin, self.size)
        with self.scans.lend() as scan:
            scan.seen = 0
            mask = scan.get_roles(block)
            seen = scan.seen
        keys, rows, every = block.select(self.keys), None, True
        if not self.needs_every_event:
            many = 2 * int(np.count_nonzero(mask)) > len(mask)  # reading some more is cheaper than taking the others
            if not (many and self.can_share):
                mask, rows = _drop_irrelevant(mask)
            every = many
        if not self.keys:
            return _Selection(begin, rows, mask, seen, NO_CODES, keys)
        codes: Codes | None
        if self.dense is not None:
            codes = self.dense.encode(keys)
            return _Selection(begin, rows, mask, seen, codes if rows is None else codes[rows], keys)
        own = keys if every or rows is None else take_rows(keys, rows)
        if 4 * len(_encode(own.slice(0, SAMPLE))[1]) > SAMPLE:
            if rows is None and not self.needs_every_event:
                mask, rows = _drop_irrelevant(mask)
            return _Selection(begin, rows, mask, seen, None, keys)
        codes, firsts = _encode(own)
        own_codes = codes[rows] if every and rows is not None else codes
        return _Selection(begin, rows, mask, seen, own_codes, take_rows(own, firsts))

    def _merge_codes(self, selections: Sequence[_Selection]) -> tuple[Sequence[Codes | None], float]:
        """The common code of each code of a block, and their number, if the keys of all blocks have codes."""
        if not self.keys:
            return [None] * len(selections), 1
        own = [selection.codes for selection in selections if selection.codes is not None]
        if len(own) < len(selections):
            return [None] * len(selections), np.inf
        if self.dense is not None:
            return [NO_CODES] * len(selections), 1 + max(int(codes.max(initial=0)) for codes in own)
        codes = KeyCodes()
        tables = [codes.encode([selection.keys.column(name) for name in self.keys]) for selection in selections]
        return tables, max(1, len(codes))

    def _find_codes(self, selection: _Selection, table: Codes | None) -> Codes:
        """The codes of a block's keys, in the table; none if there are too many."""
        if table is None or selection.codes is None:
            return NO_CODES
        if self.dense is not None:
            return selection.codes
        codes: Codes = np.append(table, np.int32(-1))[selection.codes]
        return codes

    def _share(
        self, selections: Sequence[_Selection], tables: Sequence[Codes | None], known: int
    ) -> Sequence[Callable[[], Matches]]:
        """The tasks of engines that read the same events: each takes some of the keys, or a slice of time."""

        def scan(selection: _Selection, table: Codes | None) -> ScannedBatch:
            events = self.events.slice(selection.begin, self.size).select(self.read)
            events = events if selection.rows is None else take_rows(events, selection.rows)
            key = self._find_codes(selection, table) if self.keys else np.zeros(len(selection.mask), np.int32)
            with self.scans.lend() as lent:
                return lent.scan_known(events, selection.mask, key)

        pairs = [pair for pair in zip(selections, tables, strict=True) if len(pair[0].mask)]
        scanned = run_in_threads([partial(scan, *pair) for pair in pairs], self.threads)
        rows = None
        if sum(len(batch.mask) for batch in scanned) < self.events.num_rows:
            rows = np.concatenate([selection.table_rows for selection, _ in pairs])
        if scanned and not self.keys and can_match_in_slices(self.query):
            cuts = self._cut_slices(np.concatenate([batch.ends for batch in scanned]))
            return [partial(self._match_slice, scanned, rows, part, cut) for part, cut in enumerate(cuts)]
        count = sum(len(batch.mask) for batch in scanned)
        parts = max(1, min(self.threads, known if self.keys else 1, count // table_parts.LEAST))
        part_of = np.arange(known, dtype=np.int32) % np.int32(parts)
        return [partial(self._match_keys, scanned, rows, part_of, part, parts) for part in range(parts)]

    def _cut_slices(self, times: npt.NDArray[Any]) -> Sequence[tuple[int, int, int]]:
        """Slices of time with the events that the windows of their last events reach: begin, own end and end."""
        length = window_to_ticks(self.query.plan.query.within, self.query.shape.unit)
        assert length is not None
        count = min(4 * self.threads, max(1, len(times) // table_parts.LEAST))
        while count > 1:
            bounds = np.linspace(0, len(times), count + 1).astype(np.int64)
            last = times[bounds[1:] - 1]
            rounding = ROUNDING * (np.abs(last) + length) if times.dtype == np.float64 else 0
            ends = np.searchsorted(times, last + length + rounding, "right").tolist()
            if sum(ends) - int(bounds[1:].sum()) <= MOST_OVERLAP * len(times):
                return list(zip(bounds[:-1].tolist(), bounds[1:].tolist(), ends, strict=True))
            count = min(count - 1, max(self.threads, count // 2))
        return [(0, len(times), len(times))]

    def _match_keys(
        self, scanned: Sequence[ScannedBatch], rows: Ints | None, part_of: Codes, part: int, parts: int
    ) -> Matches:
        """Match the events of some keys."""
        engine, own = self._create_engine(part), []
        pieces, begin = [], 0
        for batch in scanned:
            some = batch
            if parts > 1:
                chosen = np.empty(len(batch.mask), np.int64)
                every = self.needs_every_event
                count = sorting.select_part(batch.mask, batch.key, part_of, part, every, chosen)
                some = batch.take(chosen[:count])
                own.append(chosen[:count] + begin)
            if len(some.mask):
                pieces.append(engine.feed_scanned(some, len(part_of)))
            begin += len(batch.mask)
        matches = self._finish(engine, pieces, part, np.concatenate(own) if own else None)
        return matches if rows is None else _move(matches, rows)

    def _match_slice(
        self, scanned: Sequence[ScannedBatch], rows: Ints | None, part: int, cut: tuple[int, int, int]
    ) -> Matches:
        """Match a slice of time; matches that begin after its own end belong to other slices."""
        (begin, own, end), engine, pieces, at = cut, self._create_engine(part), [], 0
        for batch in scanned:
            some = batch.part(max(0, begin - at), max(0, end - at))
            at += len(batch.mask)
            if len(some.mask):
                pieces.append(engine.feed_scanned(some, 1))
        matches = self._finish(engine, pieces, part, None)
        if matches.count:
            matches = matches.where(matches.ends()[0] < own - begin)
        return _move(matches, np.arange(begin, end) if rows is None else rows[begin:end])

    def _create_engine(self, part: int) -> Engine:
        engine = self.query.engine()
        assert isinstance(engine, Engine)
        engine.room.shared = self.usage, part
        return engine

    def _finish(self, engine: Engine, pieces: list[Matches], part: int, rows: Ints | None) -> Matches:
        """The matches of an engine, which are rows of the table."""
        pieces.append(engine.on_watermark(np.inf))
        matches = concat_matches([piece for piece in pieces if piece.count], engine.output)
        self.usage.report(part, matches.nbytes, matches.number)
        return matches if rows is None else _move(matches, rows)

    def _group(self, selection: _Selection, table: Codes | None, parts: int) -> _GroupedEvents:
        """Group the selected events by their key."""
        block, bounds = self.events.slice(selection.begin, self.size), np.array([0, len(selection.mask)])
        mask, codes, rows = selection.mask, self._find_codes(selection, table), selection.rows
        rows = np.arange(len(mask)) if rows is None else rows
        if parts > 1:
            if table is not None:
                group = (codes & np.int32(parts - 1)).astype(np.uint8)
            else:
                group = table_parts.hash_keys(block, self.keys, parts)[rows]
            bounds = np.zeros(parts + 1, np.int64)
            sorted_, masks, dense = np.empty_like(rows), np.empty_like(mask), np.empty_like(codes)
            sorting.group_rows(group, rows, mask, codes, bounds, sorted_, masks, dense)
            rows, mask, codes = sorted_, masks, dense // np.int32(parts)  # -1 stays -1
        read = self.read if table is not None else sorted({*self.read, *self.keys})
        events = take_rows(block.select(read), rows)
        return _GroupedEvents(rows + selection.begin, mask, None if table is None else codes, events, bounds)

    def _match_group(self, blocks: Sequence[_GroupedEvents], part: int) -> Matches:
        """Match the events of one group."""
        ranges = [(block, slice(*block.bounds[part : part + 2].tolist())) for block in blocks]
        rows = np.concatenate([block.rows[where] for block, where in ranges])
        if not len(rows):
            return concat_matches([], self.query.program.source.output)
        mask = np.concatenate([block.mask[where] for block, where in ranges])
        events = pa.concat_tables([b.events.slice(where.start, where.stop - where.start) for b, where in ranges])
        codes = [block.codes[where] for block, where in ranges if block.codes is not None]
        key = np.concatenate(codes) if codes else None
        engine = self._create_engine(part)
        scanned = engine.scan.scan_known(events, mask, key)
        known = 1 + int(key.max(initial=0)) if key is not None else max(1, len(engine.scan.keys))
        return self._finish(engine, [engine.feed_scanned(scanned, known)], part, rows)


def _drop_irrelevant(mask: Ints) -> tuple[Ints, Ints]:
    """The roles of the events that have any, and their rows."""
    rows, selected = np.empty(len(mask), np.int64), np.empty(len(mask), np.int64)
    count = sorting.select_rows(mask, rows, selected)
    return selected[:count], rows[:count]


def _move(matches: Matches, rows: Ints) -> Matches:
    """Matches of numbered events as those of rows."""
    return matches.map_rows(lambda own: np.where(own < 0, np.int64(-1), rows[own]) if len(own) else own)


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


def build_in_parallel(query: CompiledQuery, pieces: list[Matches], events: pa.Table) -> pa.Table:
    """The result table of the matches of all parts; each thread sorts and builds those of a range of time."""
    names = query.program.source.output
    threads = min(query.planning.limits.thread_count, sum(piece.count for piece in pieces) // MIN_MATCHES)
    matches = concat_matches([piece for piece in pieces if piece.count], names)
    first, last = matches.ends()
    if threads < 2 or query.result.reduces or not matches.variables or not (last >= 0).all():
        return build_result(query, sort_by_time(query, merge_parts(pieces, names), events), events)
    check_result_size(query, matches, events)
    times = get_event_times(events, query.physical[1].end)
    some = np.sort(last[:: max(1, matches.count // (SAMPLE * threads))])
    near = times[some[np.linspace(0, len(some) - 1, threads + 1).astype(np.int64)[1:-1]]]
    # all matches and events of the same time together, since they are sorted and duplicates are numbered
    cuts = np.unique([0, *np.searchsorted(times, near, "left").tolist(), len(times)])

    def build(begin: int, end: int) -> pa.Table:
        chosen = np.flatnonzero((last >= begin) & (last < end))
        low = 0
        if len(chosen):
            low = int(np.searchsorted(times, times[first[chosen].min()], "left"))
        some = matches.pick(chosen).map_rows(lambda rows: np.where(rows < 0, rows, rows - low))
        part = events.slice(low, end - low)
        return query.result.build(sort_by_time(query, some, part), part)

    return pa.concat_tables(run_in_threads([partial(build, *pair) for pair in pairwise(cuts.tolist())], threads))
