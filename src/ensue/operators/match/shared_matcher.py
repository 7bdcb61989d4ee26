"""A matcher of several queries over the slices of a stream, which stores each event once."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ensue.engine.engine import FEW_CODES, Engine
from ensue.engine.memory_budget import Usage
from ensue.engine.state_format import VERSION_MEANING, check_signature_version, pack_state, unpack_state
from ensue.errors import StateError
from ensue.operators.match.shared_engine import (
    SharedEngine,
    count_uses,
    create_shared_engines,
    empty_matches,
    get_stored_part,
)
from ensue.operators.match.shared_scan import EventBlock, KnownKeys
from ensue.projection.match_ids import RowHashes
from ensue.runtime.compiled_query import CompiledQuery, build_result
from ensue.runtime.event_buffer import FEW, MIN_COMPACT_ROWS, EventBuffer
from ensue.runtime.spill.spilled_keys import SPILLED, restore_unlimited
from ensue.runtime.stage import StageInput
from ensue.vector.arrow_numpy import Ints, sorted_unique
from ensue.vector.event_table import split_table
from ensue.vector.match_rows import Matches

NONE = np.zeros(0, np.int64)
REPLAY_SLICE = 1 << 16  # replayed events per slice, whose matches are discarded


class EngineRows:
    """Maps an engine's own row numbers to rows of the stream, for the events that it holds."""

    def __init__(self) -> None:
        self.own, self.rows = NONE, NONE
        self._needed = 0  # how many were needed at the last cleanup

    def add(self, own: Ints, rows: Ints) -> None:
        self.own, self.rows = np.concatenate([self.own, own]), np.concatenate([self.rows, rows])

    @property
    def is_full(self) -> bool:
        """Whether a cleanup of the rows that are no longer held is worthwhile."""
        return len(self.own) > max(MIN_COMPACT_ROWS, 2 * self._needed)

    def keep(self, own: Ints) -> None:
        if len(own) < len(self.own):
            places = np.searchsorted(self.own, own)
            self.own, self.rows = self.own[places], self.rows[places]
        self._needed = len(own)

    def matches(self, matches: Matches) -> Matches:
        """Translates matches into rows of the stream."""
        return matches.map_rows(lambda own: np.where(own < 0, own, self.rows[np.searchsorted(self.own, own)]))


class SharedMatcher:
    """Matches several queries and stores each event once; the result has a table per query."""

    def __init__(self, queries: Sequence[CompiledQuery]) -> None:
        self.queries = list(queries)
        self.shared_engines = create_shared_engines(queries)
        self.numbers = [EngineRows() for _ in self.shared_engines]
        self.rows = 0  # events fed so far
        self.store = EventBuffer(queries[0].shape)
        self._uses = count_uses(self.shared_engines)
        self._keys: KnownKeys = {}  # which engines translate into their own codes
        self._empty: dict[int, pa.Table] = {}  # the empty result of a query

    def process(self, batch: StageInput) -> list[pa.Table]:
        events = batch.bare
        matches = self._feed_engines(events) if events.num_rows else [empty_matches(w) for w in self.shared_engines]
        if events.num_rows:
            members = None
            if events.num_rows > FEW:
                members = [numbers.rows for numbers in self.numbers]
                members += [m.elements(v) for m in matches if m.count for v in m.variables]
            self.store.add(events, self.rows, members)
        self.rows += events.num_rows
        result = self._build_results(matches)
        if events.num_rows > FEW or self.store.is_full:
            self._release_events()
        return result

    def _feed_engines(self, events: pa.Table) -> list[Matches]:
        _, schema = self.queries[0].physical
        block = EventBlock(events, schema, self.queries[0].shape.unit, self._uses.copy(), self._keys)
        pairs = zip(self.shared_engines, self.numbers, strict=True)
        return [self._feed_engine(watcher, numbers, block) for watcher, numbers in pairs]

    def _feed_engine(self, watcher: SharedEngine, numbers: EngineRows, block: EventBlock) -> Matches:
        first = watcher.engine.rows
        fed, rows = watcher.process(block, lasting=True)
        if rows is not None and not len(rows):
            return fed
        count = watcher.engine.rows - first
        block_rows = np.arange(block.count) if rows is None else rows
        numbers.add(np.arange(first, first + count), self.rows + block_rows)
        matches = numbers.matches(fed) if fed.count else fed
        if block.count > FEW or numbers.is_full:
            numbers.keep(watcher.engine.get_held_rows())
        return matches

    def on_watermark(self, now: float) -> list[pa.Table]:
        matches = []
        for watcher, numbers in zip(self.shared_engines, self.numbers, strict=True):
            if is_idle(watcher):
                matches.append(empty_matches(watcher))
                continue
            matches.append(numbers.matches(watcher.engine.on_watermark(now)))
            numbers.keep(watcher.engine.get_held_rows())
        self.store.forget_before(now)
        result = self._build_results(matches)
        self._release_events()
        return result

    def replay(self, events: pa.Table, now: float | None) -> None:
        """Rebuilds the state that past events leave at the time `now`.

        Later matches need no other events, and the matches of these have been delivered.
        """
        engines = [w.engine for w in self.shared_engines if isinstance(w.engine, Engine)]
        for engine in engines:
            engine.room.counts = False
        for piece in split_table(events, REPLAY_SLICE):
            self._feed_engines(piece)
            self.store.add(piece, self.rows, [numbers.rows for numbers in self.numbers])
            self.rows += piece.num_rows
        for watcher in self.shared_engines:
            if now is not None:
                watcher.engine.on_watermark(now)
            watcher.engine.hand_over()
        for engine in engines:
            engine.room.counts = True
        if now is not None:
            self.store.forget_before(now)
        self._release_all()

    def drop(self, events: pa.Table) -> bool:
        """Drops the state of the keys of some events; returns False if an engine cannot."""
        for watcher, numbers in zip(self.shared_engines, self.numbers, strict=True):
            engine = watcher.engine
            if not isinstance(engine, Engine) or not engine.can_drop_keys:
                return False
            engine.drop_keys([events.column(name) for name in watcher.names])
            numbers.keep(engine.get_held_rows())
        self._release_events()
        return True

    def _build_results(self, results: Sequence[Matches]) -> list[pa.Table]:
        if len(self._empty) == len(self.queries) and not any(m.count for m in results):
            return [self._empty[number] for number in range(len(self.queries))]
        tables: dict[int, pa.Table] = {}
        stored = self.store.get_events(results)
        hashes = RowHashes(stored.events, self.queries[0].shape.schema.end)
        for watcher, matches in zip(self.shared_engines, results, strict=True):
            watcher.engine.hand_over()  # the caller owns the memory of the table
            moved = stored.renumber(matches)
            for number in watcher.members:
                if matches.count == 0 and number in self._empty:
                    tables[number] = self._empty[number]
                    continue
                tables[number] = build_result(self.queries[number], moved, stored.events, hashes)
                self._empty[number] = tables[number].slice(0, 0)
        return [tables[number] for number in range(len(self.queries))]

    def _release_events(self) -> None:
        """Drops the events that no query holds."""
        held = [numbers.rows for numbers in self.numbers if len(numbers.rows)]
        self.store.keep(sorted_unique(np.concatenate(held)) if held else NONE)

    def _release_all(self) -> None:
        for watcher, numbers in zip(self.shared_engines, self.numbers, strict=True):
            numbers.keep(watcher.engine.get_held_rows())
        self._release_events()

    def next_timer(self) -> float | None:
        times = [t for w in self.shared_engines if (t := w.engine.next_timer()) is not None]
        return min(times, default=None)

    @property
    def usage(self) -> Usage:
        total = Usage().add_bytes(self.store.nbytes)
        for watcher, numbers in zip(self.shared_engines, self.numbers, strict=True):
            usage = watcher.engine.usage.add_bytes(2 * numbers.own.nbytes)
            total += replace(usage, state_bytes=0) if is_empty(watcher) else usage
        return total

    def snapshot(self) -> bytes:
        """Returns the state as bytes for `restore`, without engines that hold nothing."""
        self._release_all()
        events, arrays = self.store.snapshot()
        blobs = {"events": events}
        for k, watcher in enumerate(self.shared_engines):
            if not is_empty(watcher):
                blobs[str(k)] = watcher.engine.snapshot()
                arrays[f"own {k}"], arrays[f"rows {k}"] = self.numbers[k].own, self.numbers[k].rows
        header = {"fed": self.rows, "queries": self._fingerprint(), "text": VERSION_MEANING}
        return pack_state({}, {}, {"several": pack_state(header, arrays, blobs)})

    def restore(self, data: bytes) -> None:
        _, _, saved = unpack_state(data)
        if SPILLED in saved:
            restore_unlimited(self, data, self.queries[0].shape)
            return
        other = StateError("the state of a stream was saved for another set of queries")
        if "several" not in saved:
            raise other
        header, arrays, blobs = unpack_state(saved["several"])
        check_signature_version(header)
        if header["queries"] != self._fingerprint():
            raise other
        self.rows = int(header["fed"])
        self.store.restore(blobs["events"], arrays)
        for k, (watcher, rows) in enumerate(zip(self.shared_engines, self.numbers, strict=True)):
            if str(k) in blobs:
                watcher.engine.restore(blobs[str(k)])
                rows.own, rows.rows = arrays[f"own {k}"], arrays[f"rows {k}"]

    def _fingerprint(self) -> str:
        parts = [get_stored_part(watcher.prepared) for watcher in self.shared_engines]
        shown = "\n".join((f"ensue queries {VERSION_MEANING}", *parts))
        return hashlib.sha256(shown.encode()).hexdigest()


def is_empty(watcher: SharedEngine) -> bool:
    """Whether an engine equals a new one: its state cannot affect later matches."""
    engine = watcher.engine
    return isinstance(engine, Engine) and engine.is_blank


def is_idle(watcher: SharedEngine) -> bool:
    """Whether an engine ignores the progress of time."""
    engine = watcher.engine
    return isinstance(engine, Engine) and is_empty(watcher) and engine.scan.known <= FEW_CODES
