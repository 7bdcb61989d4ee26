"""Several queries over a stream that comes piece by piece: one scan, one store of events."""

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ensue.columns.buffers import Ints
from ensue.columns.distinct import distinct
from ensue.columns.matches import Matches
from ensue.columns.stream import slices
from ensue.engine.engine import FEW_CODES, Engine
from ensue.engine.meaning import VERSION, version_of
from ensue.engine.state import packed, unpacked
from ensue.errors import StateError
from ensue.results.identity import RowHashes
from ensue.workload.held_events import FEW, WORTH, EventStore, places_of
from ensue.workload.prepared import Prepared, build_result
from ensue.workload.queries.shared_engine import (
    Watcher,
    nothing,
    renumbered,
    stored_part,
    uses_of,
    watchers_of,
)
from ensue.workload.queries.shared_scan import Block
from ensue.workload.spill.saved import SPILLED, go_on
from ensue.workload.stage import Fed

NONE = np.zeros(0, np.int64)
REPLAYED = 1 << 16  # events of the past between which found matches are thrown away


class Numbers:
    """The rows of the stream behind a watcher's own numbers, of the events that it holds."""

    def __init__(self) -> None:
        self.own, self.rows = NONE, NONE
        self._needed = 0  # when they were looked through

    def add(self, own: Ints, rows: Ints) -> None:
        self.own, self.rows = np.concatenate([self.own, own]), np.concatenate([self.rows, rows])

    @property
    def is_full(self) -> bool:
        """Whether it is worth to look for those that are not held any more."""
        return len(self.own) > max(WORTH, 2 * self._needed)

    def keep(self, own: Ints) -> None:
        if len(own) < len(self.own):
            places = np.searchsorted(self.own, own)
            self.own, self.rows = self.own[places], self.rows[places]
        self._needed = len(own)

    def matches(self, found: Matches) -> Matches:
        """Matches in rows of the stream."""
        places = found.moved(lambda rows: places_of(self.own, rows))
        return renumbered(places, self.rows)


class SharedMatcher:
    """Feeds slices of an ordered stream to several queries; each table is the result of one.

    An event that matters to many is held once.
    """

    def __init__(self, queries: Sequence[Prepared]) -> None:
        self.queries = list(queries)
        self.watchers = watchers_of(queries)
        self.numbers = [Numbers() for _ in self.watchers]
        self.rows = 0  # events fed so far
        self.store = EventStore(queries[0].shape)
        self._uses = uses_of(self.watchers)
        self._empty: dict[int, pa.Table] = {}  # what a query gives without matches

    # ---------------------------------------------------------------------------- feeding

    def feed(self, given: Fed) -> list[pa.Table]:
        """The matches that the next events complete. They come in the order of the stream."""
        events = given.bare
        found = [nothing(w) for w in self.watchers]
        if events.num_rows:
            _, schema = self.queries[0].physical
            block = Block(events, schema, self.queries[0].shape.unit, self._uses.copy())
            for k, watcher in enumerate(self.watchers):
                found[k] = self._fed(watcher, self.numbers[k], block)
            self._add(events, found)
        self.rows += events.num_rows
        result = self._built(found)
        if events.num_rows > FEW or self.store.is_full:
            self._hold()
        return result

    def _fed(self, watcher: Watcher, numbers: Numbers, block: Block) -> Matches:
        first = watcher.engine.rows
        fed, rows = watcher.feed(block, lasting=True)
        if rows is not None and not len(rows):
            return fed
        count = watcher.engine.rows - first
        given = np.arange(block.count) if rows is None else rows
        numbers.add(np.arange(first, first + count), self.rows + given)
        found = numbers.matches(fed) if fed.count else fed
        if block.count > FEW or numbers.is_full:
            numbers.keep(watcher.engine.held_rows())
        return found

    def advance(self, now: float) -> list[pa.Table]:
        """The matches that only waited for time to pass, once it is `now`.

        No event that ends before `now` comes any more.
        """
        found = []
        for watcher, numbers in zip(self.watchers, self.numbers, strict=True):
            if is_idle(watcher):
                found.append(nothing(watcher))
                continue
            found.append(numbers.matches(watcher.engine.advance(now)))
            numbers.keep(watcher.engine.held_rows())
        self.store.forget_before(now)
        result = self._built(found)
        self._hold()
        return result

    def replay(self, events: pa.Table, now: float | None) -> None:
        """Takes up the state that events of the past leave behind, at the time `now`.

        They are all that matches to come need, and their matches have been delivered.
        """
        engines = [w.engine for w in self.watchers if isinstance(w.engine, Engine)]
        for engine in engines:
            engine.room.counts = False
        _, schema = self.queries[0].physical
        for piece in slices(events, REPLAYED):
            block = Block(piece, schema, self.queries[0].shape.unit, self._uses.copy())
            for watcher, numbers in zip(self.watchers, self.numbers, strict=True):
                self._fed(watcher, numbers, block)
            self.store.add(piece, self.rows, [numbers.rows for numbers in self.numbers])
            self.rows += piece.num_rows
        for watcher in self.watchers:
            if now is not None:
                watcher.engine.advance(now)
            watcher.engine.hand_over()
        for engine in engines:
            engine.room.counts = True
        if now is not None:
            self.store.forget_before(now)
        self._hold_least()

    def drop(self, events: pa.Table) -> bool:
        """Drops all that is known of the keys of some events; else it has to be made anew."""
        for watcher, numbers in zip(self.watchers, self.numbers, strict=True):
            engine = watcher.engine
            if not isinstance(engine, Engine) or not engine.can_drop_keys:
                return False
            engine.drop_keys([events.column(name) for name in watcher.names])
            numbers.keep(engine.held_rows())
        self._hold()
        return True

    def finish(self) -> list[pa.Table]:
        """The matches that only waited for the stream to end."""
        pairs = zip(self.watchers, self.numbers, strict=True)
        found = [numbers.matches(watcher.finish()) for watcher, numbers in pairs]
        return self._built(found)

    # ---------------------------------------------------------------------------- events

    def _add(self, events: pa.Table, found: Sequence[Matches]) -> None:
        """Keeps the new events, as far as they matter."""
        if events.num_rows <= FEW:
            self.store.add(events, self.rows, None)
            return
        members = [numbers.rows for numbers in self.numbers]
        members += [m.elements(v) for m in found if m.count for v in m.variables]
        self.store.add(events, self.rows, members)

    def _built(self, found: Sequence[Matches]) -> list[pa.Table]:
        if len(self._empty) == len(self.queries) and not any(m.count for m in found):
            return [self._empty[number] for number in range(len(self.queries))]
        tables: dict[int, pa.Table] = {}
        known = self.store.of(found)
        hashes = RowHashes(known.events, self.queries[0].shape.schema.end)
        for watcher, matches in zip(self.watchers, found, strict=True):
            watcher.engine.hand_over()  # what is in the table is with whoever asked for it
            moved = known.placed(matches)
            for number in watcher.members:
                if matches.count == 0 and number in self._empty:
                    tables[number] = self._empty[number]
                    continue
                tables[number] = build_result(self.queries[number], moved, known.events, hashes)
                self._empty[number] = tables[number].slice(0, 0)
        return [tables[number] for number in range(len(self.queries))]

    def _hold(self) -> None:
        """Lets go of the events that no query holds."""
        held = [numbers.rows for numbers in self.numbers if len(numbers.rows)]
        self.store.keep(distinct(np.concatenate(held)) if held else NONE)

    def _hold_least(self) -> None:
        for watcher, numbers in zip(self.watchers, self.numbers, strict=True):
            numbers.keep(watcher.engine.held_rows())
        self._hold()

    # ---------------------------------------------------------------------------- what is alive

    def deadline(self) -> float | None:
        times = [t for w in self.watchers if (t := w.engine.deadline()) is not None]
        return min(times, default=None)

    @property
    def partial_matches(self) -> int:
        return sum(w.engine.partial_matches for w in self.watchers)

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        size = self.store.nbytes
        for watcher, numbers in zip(self.watchers, self.numbers, strict=True):
            if not is_empty(watcher):
                size += int(watcher.engine.state_bytes + 2 * numbers.own.nbytes)
        return size

    @property
    def held_bytes(self) -> int:
        """How much memory it takes."""
        size = sum(w.engine.held_bytes for w in self.watchers)
        return size + self.store.nbytes + sum(2 * n.own.nbytes for n in self.numbers)

    # ---------------------------------------------------------------------------- state

    def save(self) -> bytes:
        """Everything needed to go on elsewhere. Matchers that hold nothing are left out."""
        self._hold_least()
        events, arrays = self.store.save()
        blobs = {"events": events}
        for k, (watcher, numbers) in enumerate(zip(self.watchers, self.numbers, strict=True)):
            if not is_empty(watcher):
                blobs[str(k)] = watcher.engine.save()
                arrays[f"own {k}"], arrays[f"rows {k}"] = numbers.own, numbers.rows
        header = {"fed": self.rows, "queries": self._fingerprint(), "text": VERSION}
        return packed({}, {}, {"several": packed(header, arrays, blobs)})

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        _, _, saved = unpacked(data)
        if SPILLED in saved:
            go_on(self, data, self.queries[0].shape)
            return
        if "several" not in saved:
            raise StateError("the state of a stream was saved for another set of queries")
        header, arrays, blobs = unpacked(saved["several"])
        if version_of(header) == VERSION:
            same = header["queries"] == self._fingerprint()
        else:  # its text was not the same in every process; each engine knows its own state
            same = all(k == "events" or int(k) < len(self.watchers) for k in blobs)
        if not same:
            raise StateError("the state of a stream was saved for another set of queries")
        self.rows = int(header["fed"])
        self.store.restore(blobs["events"], arrays)
        for k, (watcher, numbers) in enumerate(zip(self.watchers, self.numbers, strict=True)):
            if str(k) in blobs:
                watcher.engine.restore(blobs[str(k)])
                numbers.own, numbers.rows = arrays[f"own {k}"], arrays[f"rows {k}"]

    def _fingerprint(self) -> str:
        parts = [stored_part(watcher.prepared) for watcher in self.watchers]
        shown = "\n".join((f"ensue queries {VERSION}", *parts))
        return hashlib.sha256(shown.encode()).hexdigest()


def is_empty(watcher: Watcher) -> bool:
    """Whether a matcher is as good as a new one: all it knew has no bearing on what comes."""
    engine = watcher.engine
    return isinstance(engine, Engine) and engine.is_blank


def is_idle(watcher: Watcher) -> bool:
    """Whether time can pass without a matcher's having to know."""
    engine = watcher.engine
    return isinstance(engine, Engine) and is_empty(watcher) and engine.scan.known <= FEW_CODES
