"""Engines that several queries share, and that share one scan of the events."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.cached import cached_property
from ensue.engine.engine import Engine
from ensue.engine.interrupts import run_in_threads
from ensue.engine.match_output import concat_matches
from ensue.engine.memory_budget import SharedUsage
from ensue.engine.reference_engine import find_used_columns
from ensue.engine.scan import ScannedBatch
from ensue.errors import LimitError
from ensue.ir.canonical_form import canonical_form
from ensue.ir.expression import Expr
from ensue.ir.selection import Strategy
from ensue.kernels.sorting import merge_rows
from ensue.operators.match.shared_scan import Codes, EventBlock, ScanUses, feature_name, find_first_rows
from ensue.planner.predicate_order import get_state_layout
from ensue.projection.match_ids import ORDINAL, RowHashes, get_event_times, number_duplicates
from ensue.runtime.compiled_query import (
    CompiledQuery,
    build_result,
    can_match_in_parts,
    concat_deliveries,
    get_matching_query,
    has_many_events,
    sort_by_time,
)
from ensue.runtime.stage import ARRIVAL, StageInput
from ensue.schema import ANY, ValueKind, get_type_names, types_overlap
from ensue.vector.arrow_numpy import Bools, Ints, wrap_numbers
from ensue.vector.column_values import Vector
from ensue.vector.match_rows import Matches
from ensue.vector.take import combine_column, take_rows, take_values

DENSE = 12  # skipping this many rows costs a kernel as much as copying one
SLICE = 1 << 20  # events per kernel call, between which it can be interrupted


def get_stored_part(prepared: CompiledQuery) -> str:
    """Returns the matching part in the form that saved states contain."""
    plan = prepared.plan
    structure = get_state_layout(plan.structure, plan.query.where)
    return canonical_form((get_matching_query(plan), structure, plan.prune))


class SharedEngine:
    """An engine for the queries with one matching part.

    It gets only the relevant events, under numbers that count these alone; the numbers of the
    stream are put back into the matches.
    """

    def __init__(self, prepared: CompiledQuery, members: Sequence[int] = ()) -> None:
        self.prepared = prepared
        self.members = list(members)  # the numbers of its queries
        self.engine = prepared.engine()
        self.names = tuple(e.field_name for e in prepared.plan.query.equivalence)
        self.tests = prepared.role_tests if self._scanning is not None else ()
        types = [test.key.type for test in self.tests]
        self.types = tuple(dict.fromkeys(types))
        # of each test, whether an event of its type may have the role of an earlier one
        self._overlaps = [any(types_overlap(own, t) for t in types[:number]) for number, own in enumerate(types)]
        self._own_codes = _OwnCodes()

    def copy(self) -> "SharedEngine":
        """Returns it with an engine for another part of a table."""
        other = copy(self)
        other.engine = self.prepared.engine()
        other._own_codes = _OwnCodes()
        return other

    @property
    def _scanning(self) -> Engine | None:
        """The engine, if it takes part in the shared scan.

        The reference scans by itself, and so do engines with negated complex events.
        """
        engine = self.engine
        return engine if isinstance(engine, Engine) and not engine.inner else None

    @cached_property
    def needs_every_event(self) -> bool:
        """Whether events without a role count, for contiguity or for a window of events."""
        if self._scanning is None:
            return True
        strict = Strategy.STRICT in self.prepared.plan.query.strategies
        return strict or self._scanning.program.frame.counts

    def count(self, uses: ScanUses) -> None:
        """Registers the values that it will read from a block."""
        for role in self.prepared.plan.roles:
            uses.types.update(dict.fromkeys(get_type_names(role.type)))
        for test in self.tests:
            uses.add_role(test)
        if self._scanning is not None:
            uses.features.update(map(feature_name, self._scanning.program.features))

    def rows_in(self, block: EventBlock) -> tuple[Ints | None, Ints]:
        """Returns the relevant rows (None: all) and the roles that each can play."""
        rows_by_test = [block.role_rows(test) for test in self.tests]
        total = sum(map(len, rows_by_test))
        if self.needs_every_event or DENSE * total > block.count:
            mask = block.mask
            mask.fill(0)
            for test, overlaps, rows in zip(self.tests, self._overlaps, rows_by_test, strict=True):
                if overlaps:
                    mask[rows] |= test.bit
                else:  # no row of this type has a role yet
                    mask[rows] = test.bit
            return None, mask
        if not total:
            return _NO_ROWS, _NO_ROWS
        offsets = np.zeros(len(rows_by_test) + 1, np.int64)
        np.cumsum([len(rows) for rows in rows_by_test], out=offsets[1:])
        merged, mask = np.empty(total, np.int64), np.empty(total, np.int64)
        together = np.concatenate(rows_by_test) if rows_by_test else np.empty(0, np.int64)
        bits = np.array([test.bit for test in self.tests], np.int64)
        count = merge_rows(together, offsets, bits, merged, mask)
        return merged[:count], mask[:count]

    def process(
        self, block: EventBlock, *, lasting: bool, lock: AbstractContextManager[Any] | None = None
    ) -> tuple[Matches, Ints | None]:
        """Returns the matches that a block completes, and the rows that the engine got (None: all).

        The matches have the engine's row numbers. With `lasting` other blocks follow, so keys and
        strings need codes of the engine. Threads that share a block have a lock for it.
        """
        engine = self._scanning
        if engine is None:
            return self.engine.process(block.events), None
        if not self.needs_every_event and not any(map(block.has_type, self.types)):
            return empty_matches(self), _NO_ROWS
        with lock or nullcontext():
            rows, scanned, codes = self._scan(block, engine, lasting=lasting, copied=lock is not None)
        if not len(scanned.mask):
            return empty_matches(self), rows
        parts = (scanned.part(begin, begin + SLICE) for begin in range(0, len(scanned.mask), SLICE))
        pieces = [engine.feed_scanned(part, codes) for part in parts]
        return concat_deliveries(engine, pieces), rows

    def _scan(
        self, block: EventBlock, engine: Engine, *, lasting: bool, copied: bool
    ) -> tuple[Ints | None, ScannedBatch, int]:
        """Returns the relevant rows of a block (None: all), what the kernel reads of them, and the number of codes."""
        rows, mask = self.rows_in(block)
        if rows is None and copied:  # a block has one array for the masks of all queries
            mask = mask.copy()
        key, codes = block.keys(self.names)
        key = key if rows is None else key.take(rows)
        if lasting and self.names:
            columns = [block.events.column(name) for name in self.names]

            def encode(at: Ints) -> Codes:
                return engine.scan.keys.encode([take_values(c, at) for c in columns])

            key = self._own_codes.translate(key, rows, encode, (block.known_keys[self.names], engine.renumberings))
            codes = len(engine.scan.keys)
        starts = block.starts if rows is None else block.starts.take(rows)
        ends = starts
        if block.schema.intervals:
            ends = block.ends if rows is None else block.ends.take(rows)
        features = tuple(self._features(engine, block, rows, lasting=lasting))
        return rows, ScannedBatch(mask, key, starts, ends, features), codes

    def _features(self, engine: Engine, block: EventBlock, rows: Ints | None, *, lasting: bool) -> Iterator[Vector]:
        for feature in engine.program.features:
            vector, expr = block.feature(feature, rows), feature.expr
            if lasting and feature.kind is ValueKind.STRING:

                def encode(at: Ints, expr: Expr = expr) -> Codes:
                    return engine.scan.strings.encode([block.values(expr, at).values])

                codes = _recode(np.asarray(vector.values), rows, encode)
                vector = Vector(vector.kind, codes.astype(np.int64), vector.valid)
            yield vector


_FIRST = np.zeros(1, np.int64)
_NO_ROWS = np.zeros(0, np.int64)


def _recode(block_codes: npt.NDArray[np.integer], rows: Ints | None, encode: Callable[[Ints], Codes]) -> Codes:
    """Translates a block's codes into codes of an engine by encoding one row of each."""
    if len(block_codes) == 1 and block_codes[0] >= 0:
        return encode(_FIRST if rows is None else rows)
    firsts = find_first_rows(block_codes)
    used = np.flatnonzero(firsts >= 0)
    table = np.full(len(firsts) + 1, -1, np.int32)
    table[used] = encode(firsts[used] if rows is None else rows[firsts[used]])
    codes: Codes = table[block_codes]
    return codes


class _OwnCodes:
    """Translates the codes of keys in blocks into those of an engine; remembers the codes of earlier blocks."""

    def __init__(self) -> None:
        self._table = np.zeros(0, np.int32)  # -1: not known yet; the last place is that of code -1
        self._valid_for: tuple[object, int] | None = None

    def translate(
        self, codes: Codes, rows: Ints | None, encode: Callable[[Ints], Codes], valid_for: tuple[object, int]
    ) -> Codes:
        """Translates the codes of some rows; `valid_for` identifies both sets of codes."""
        if valid_for != self._valid_for:
            self._table, self._valid_for = np.zeros(0, np.int32), valid_for
        most = int(codes.max(initial=-1))
        if most + 1 >= len(self._table):
            known, self._table = self._table[:-1], np.full(2 * most + 64, -1, np.int32)
            self._table[: len(known)] = known
        own: Codes = self._table[codes]
        unknown = np.flatnonzero((own < 0) & (codes >= 0))
        if len(unknown):
            new = codes[unknown]
            firsts = unknown if len(new) == 1 else unknown[(found := find_first_rows(new))[found >= 0]]
            self._table[codes[firsts]] = encode(firsts if rows is None else rows[firsts])
            own = self._table[codes]
        return own


def empty_matches(watcher: SharedEngine) -> Matches:
    if isinstance(watcher.engine, Engine):
        return concat_matches([], watcher.engine.program.source.output)
    from ensue.engine.reference_engine import bindings_to_matches

    return bindings_to_matches(watcher.prepared.plan, [])


def renumber_rows(matches: Matches, numbers: Ints) -> Matches:
    """Replaces row k of the matches by `numbers[k]`."""

    def moved(rows: Ints) -> Ints:
        if not len(numbers):
            return rows
        return np.where(rows < 0, np.int64(-1), numbers[rows])

    return matches.map_rows(moved)


def create_shared_engines(queries: Sequence[CompiledQuery]) -> list[SharedEngine]:
    """Creates one engine for all queries with the same matching part."""
    watchers: dict[str, SharedEngine] = {}
    for number, prepared in enumerate(queries):
        key = prepared.matching_part
        if key not in watchers:
            watchers[key] = SharedEngine(prepared)
        watchers[key].members.append(number)
    return list(watchers.values())


def count_uses(watchers: Sequence[SharedEngine]) -> ScanUses:
    uses = ScanUses()
    for watcher in watchers:
        watcher.count(uses)
    return uses


# ---------------------------------------------------------------------------- complete tables

BLOCK = 1 << 22  # events that are scanned at a time
MANY_MATCHES = 50_000  # whose result tables are built in several threads


class SharedBytes(SharedUsage):
    """What engines of different queries hold, whose matches are limited for each."""

    def report(self, part: int, size: float, matches: int) -> tuple[float, int]:  # noqa: ARG002
        return super().report(part, size, 0)


class SharedTableMatcher:
    """Matches several queries over a table in one scan; the results are gathered from the table at the end."""

    def __init__(self, queries: Sequence[CompiledQuery], *, block: int | None = None) -> None:
        self.queries = list(queries)
        self.block = block or BLOCK
        self.unseen: frozenset[str] = frozenset()  # types that no event had
        self._batch: StageInput | None = None

    def process(self, batch: StageInput) -> list[pa.Table]:
        events = batch.bare
        columns = [combine_column(events, name) for name in events.column_names]
        self._batch = replace(batch, events=pa.table(columns, schema=events.schema), arrival=())
        return []

    def on_watermark(self, now: float) -> list[pa.Table]:  # noqa: ARG002
        assert self._batch is not None
        found = self.find_matches()
        end, threads = self.queries[0].shape.schema.end, self.queries[0].planning.limits.thread_count
        threads = threads if sum(matches.count for matches in found) >= MANY_MATCHES else 1
        known, located = select_matched_events(self._batch.events, found, end, threads=threads)
        return build_results(self.queries, known, located, threads)

    def find_matches(self, *, in_parts: bool = True) -> list[Matches]:
        """Returns the matches of each query, as rows of the events."""
        assert self._batch is not None
        matches_of: dict[int, Matches] = {}
        events = self._batch.events
        threads = self.queries[0].planning.limits.thread_count
        if in_parts and threads > 1 and has_many_events(events) and all(map(can_match_in_parts, self.queries)):
            try:
                if self._in_threads(self._batch, matches_of, threads):
                    return [matches_of[number] for number in range(len(self.queries))]
            except LimitError:  # one thread needs less memory, or names the first query and event that exceed a limit
                matches_of.clear()
        watchers = create_shared_engines(self.queries)
        if events.num_rows <= self.block:
            self.unseen = self._in_one_block(watchers, self._batch, matches_of)
        else:
            self._in_blocks(watchers, self._batch, matches_of)
        return [matches_of[number] for number in range(len(self.queries))]

    def _in_threads(self, batch: StageInput, matches_of: dict[int, Matches], threads: int) -> bool:
        """Runs the engines in several threads, each for a query or for some keys; returns whether that is possible."""
        watchers = create_shared_engines(self.queries)
        if len(watchers) >= threads and batch.events.num_rows <= self.block:
            self._in_one_block_together(watchers, batch, matches_of, threads)
            return True
        keys = set.intersection(*({e.field_name for e in query.plan.query.equivalence} for query in self.queries))
        if keys:
            self._in_parts(sorted(keys), batch, matches_of)
        return bool(keys)

    def _in_one_block_together(
        self, watchers: list[SharedEngine], batch: StageInput, matches_of: dict[int, Matches], threads: int
    ) -> None:
        """Runs each engine in a thread; they take turns to read the values that they share."""
        block, count = self._block(watchers, batch.events), len(watchers)
        run_in_threads([partial(block.keys, key) for key in {watcher.names: 0 for watcher in watchers}], threads)
        self.unseen = self._missing_types(watchers, block)
        lock, usage, left, done = Lock(), SharedBytes(), deque(enumerate(watchers)), 0
        watchers.clear()

        def match_next() -> tuple[list[int], Matches]:
            number, watcher = left.popleft()  # frees its memory for the next one
            assert isinstance(watcher.engine, Engine)
            watcher.engine.room.shared = usage, number
            fed, rows = watcher.process(block, lasting=False, lock=lock)
            matches = concat_deliveries(watcher.engine, [fed, watcher.engine.on_watermark(math.inf)])
            if rows is not None:
                matches = renumber_rows(matches, rows)
            usage.report(number, matches.nbytes, 0)
            return watcher.members, matches

        def report(_: int) -> None:
            nonlocal done
            done += 1
            batch.report(batch.events.num_rows * done // count)

        for members, matches in run_in_threads([match_next] * count, threads, report):
            matches_of.update(dict.fromkeys(members, matches))

    def _in_one_block(
        self,
        watchers: list[SharedEngine],
        batch: StageInput,
        matches_of: dict[int, Matches],
        note: Callable[[SharedEngine, Matches], float] = lambda _, matches: matches.nbytes,
    ) -> frozenset[str]:
        """Runs one engine after the other, since none has to wait for more events; returns the missing types.

        `note` takes the matches of an engine, and returns the bytes by which those in memory have grown.
        """
        block = self._block(watchers, batch.events)
        unseen = self._missing_types(watchers, block)
        total, held = len(watchers), 0.0
        while watchers:
            watcher = watchers.pop(0)  # frees its memory for the next one
            watcher.engine.set_foreign_memory(held)
            fed, rows = watcher.process(block, lasting=False)
            matches = concat_deliveries(watcher.engine, [fed, watcher.engine.on_watermark(math.inf)])
            if rows is not None:
                matches = renumber_rows(matches, rows)
            matches_of.update(dict.fromkeys(watcher.members, matches))
            held += note(watcher, matches)
            batch.report((total - len(watchers)) * batch.events.num_rows // total)
        return unseen

    def _in_parts(self, keys: Sequence[str], batch: StageInput, matches_of: dict[int, Matches]) -> None:
        """Runs the engines on groups of keys, in several threads."""
        from ensue.operators.match.parallel_match import merge_parts
        from ensue.runtime.table_parts import count_large_parts, encode_texts, find_types, group_rows_by_key

        _, schema = self.queries[0].physical
        read = set.union(*(set(find_used_columns(query.physical[0], schema)) for query in self.queries))
        columns = [name for name in batch.events.column_names if name in read]
        threads = self.queries[0].planning.limits.thread_count
        count = count_large_parts(batch.events.num_rows, threads)
        known = create_shared_engines(self.queries)
        texts = encode_texts(batch.events.select(columns), keys, threads)
        roles = [role for watcher in known for role in watcher.prepared.plan.roles]
        every = any(watcher.needs_every_event for watcher in known) or any(role.type == ANY for role in roles)
        names = {name for role in roles for name in get_type_names(role.type)}
        relevant = None if every or schema.type_column is None else find_types(schema.type_column, names)
        groups = group_rows_by_key(texts, keys, count, threads, relevant)
        usages = {watcher.members[0]: SharedUsage() for watcher in known}
        finished = SharedUsage()  # of the matches of all queries

        def match_part(part: int) -> tuple[dict[int, Matches], frozenset[str]]:
            rows = groups[part]
            events = take_rows(texts, rows)
            watchers = [watcher.copy() for watcher in known]
            for watcher in watchers:
                assert isinstance(watcher.engine, Engine)
                watcher.engine.room.shared = usages[watcher.members[0]], part
            found: dict[int, Matches] = {}
            held = [0.0, 0.0]  # by this part, and by all

            def note(watcher: SharedEngine, matches: Matches) -> float:
                usages[watcher.members[0]].report(part, 0.0, matches.number)
                before, held[0] = held[1], held[0] + matches.nbytes
                held[1] = held[0] + finished.report(part, held[0], 0)[0]
                return held[1] - before

            unseen = self._in_one_block(watchers, StageInput.from_events(events), found, note)
            return {number: renumber_rows(matches, rows) for number, matches in found.items()}, unseen

        done = 0

        def report(_: int) -> None:
            nonlocal done
            done += 1
            batch.report(batch.events.num_rows * done // len(groups))

        parts = run_in_threads([partial(match_part, part) for part in range(len(groups))], threads, report)
        self.unseen = frozenset.intersection(*(unseen for _, unseen in parts))
        for number, query in enumerate(self.queries):
            matches_of[number] = merge_parts([found[number] for found, _ in parts], query.program.source.output)

    def _in_blocks(self, watchers: list[SharedEngine], batch: StageInput, matches_of: dict[int, Matches]) -> None:
        pieces: list[list[Matches]] = [[] for _ in watchers]
        numbers: list[list[Ints]] = [[] for _ in watchers]
        held = [0] * len(watchers)
        unseen: list[frozenset[str]] = []
        done = 0
        for part in batch.slices(self.block):
            block = self._block(watchers, part.events)
            unseen.append(self._missing_types(watchers, block))
            for k, watcher in enumerate(watchers):
                watcher.engine.set_foreign_memory(sum(held) - held[k])
                fed, rows = watcher.process(block, lasting=True)
                pieces[k].append(fed)
                held[k] += fed.nbytes
                numbers[k].append(done + (np.arange(block.count) if rows is None else rows))
            done += block.count
        self.unseen = frozenset.intersection(*unseen)
        for k, watcher in enumerate(watchers):
            matches = concat_deliveries(watcher.engine, [*pieces[k], watcher.engine.on_watermark(math.inf)])
            matches = renumber_rows(matches, np.concatenate(numbers[k]))
            matches_of.update(dict.fromkeys(watcher.members, matches))

    def _block(self, watchers: list[SharedEngine], events: pa.Table) -> EventBlock:
        shape = self.queries[0].shape
        _, schema = shape.physical(self.queries[0].query)
        return EventBlock(events, schema, shape.unit, count_uses(watchers), {})

    def _missing_types(self, watchers: list[SharedEngine], block: EventBlock) -> frozenset[str]:
        """Returns the types of positive events that a block lacks."""
        roles = [r for w in watchers for r in w.prepared.plan.roles if not r.negative]
        names = {name for role in roles for name in get_type_names(role.type)}
        return frozenset(name for name in names if not block.has_type(name))


def mark_rows(found: Sequence[Matches], count: int) -> Bools:
    """Returns a mask of the rows in matches."""
    selected = np.zeros(count, np.bool_)
    for matches in found:
        for variable in matches.variables:
            selected[matches.elements(variable)] = True
    return selected


def select_matched_events(
    events: pa.Table, found: Sequence[Matches], end: str, arrival: pa.ChunkedArray | None = None, threads: int = 1
) -> tuple[pa.Table, list[Matches]]:
    """Returns the events in matches with their ordinals, which depend on the others, and the matches as rows of these.

    `arrival` is a column of the events by which they are not compared.
    """
    selected = mark_rows(found, events.num_rows)
    rows = numbers = np.flatnonzero(selected)
    if len(rows):
        numbers = number_duplicates(events, selected, get_event_times(events, end))[rows]

    def gather(name: str) -> pa.Array:
        return take_values(combine_column(events, name), rows)

    columns = run_in_threads([partial(gather, name) for name in events.column_names], threads)
    known = pa.table(columns, schema=events.schema).append_column(ORDINAL, wrap_numbers(numbers))
    if arrival is not None:
        known = known.append_column(ARRIVAL, take_values(arrival, rows))
    places = np.zeros(events.num_rows, np.int64)
    places[rows] = np.arange(len(rows))
    return known, [renumber_rows(matches, places) for matches in found]


def build_results(
    queries: Sequence[CompiledQuery], known: pa.Table, found: Sequence[Matches], threads: int
) -> list[pa.Table]:
    """Builds the result tables from events with ordinals, whose hashes are computed once for all."""
    hashes = RowHashes(known, queries[0].shape.schema.end)

    def build(prepared: CompiledQuery, matches: Matches) -> pa.Table:
        return build_result(prepared, sort_by_time(prepared, matches, known), known, hashes)

    return run_in_threads([partial(build, *pair) for pair in zip(queries, found, strict=True)], threads)
