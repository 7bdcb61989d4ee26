"""Several queries over a stream that comes piece by piece: one scan, one store of events."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ensue.columns.buffers import Ints
from ensue.columns.matches import Matches
from ensue.columns.rows import no_rows
from ensue.engine.engine import FEW_CODES, Engine
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.errors import StateError
from ensue.results.identity import ORDINAL, RowHashes, ordinals
from ensue.workload.live_matcher import Held
from ensue.workload.prepared import Prepared, build_result
from ensue.workload.shared_engine import (
    Watcher,
    matching_part,
    nothing,
    renumbered,
    uses_of,
    watchers_of,
)
from ensue.workload.shared_scan import Block

NONE = np.zeros(0, np.int64)


class Numbers:
    """The rows of the stream behind a watcher's own numbers, of the events that it holds."""

    def __init__(self) -> None:
        self.own, self.rows = NONE, NONE

    def add(self, own: Ints, rows: Ints) -> None:
        self.own, self.rows = np.concatenate([self.own, own]), np.concatenate([self.rows, rows])

    def keep(self, own: Ints) -> None:
        if len(own) < len(self.own):
            places = np.searchsorted(self.own, own)
            self.own, self.rows = self.own[places], self.rows[places]

    def matches(self, found: Matches) -> Matches:
        """Matches in rows of the stream."""
        places = found.moved(lambda rows: _places(self.own, rows))
        return renumbered(places, self.rows)


class SeveralLive:
    """Feeds slices of an ordered stream to several queries; each table is the result of one.

    Events of the same time come in one slice. An event that matters to many is held once.
    """

    def __init__(self, queries: Sequence[Prepared]) -> None:
        self.queries = list(queries)
        self.watchers = watchers_of(queries)
        self.numbers = [Numbers() for _ in self.watchers]
        self.rows = 0  # events fed so far
        arrow = queries[0].shape.arrow.append(pa.field(ORDINAL, pa.int64()))
        self.held = Held(no_rows(arrow), NONE)
        self._uses = uses_of(self.watchers)
        self._empty: dict[int, pa.Table] = {}  # what a query gives without matches

    # ---------------------------------------------------------------------------- feeding

    def feed(self, events: pa.Table) -> list[pa.Table]:
        """The matches that the next events complete. They come in the order of the stream."""
        found = [nothing(w) for w in self.watchers]
        if events.num_rows:
            shape = self.queries[0].shape
            _, schema = shape.physical(self.queries[0].query)
            block = Block(events, schema, shape.unit, self._uses.copy())
            for k, watcher in enumerate(self.watchers):
                found[k] = self._fed(watcher, self.numbers[k], block)
        known = self._known(events, found)
        self.rows += events.num_rows
        return self._delivered(found, known)

    def _fed(self, watcher: Watcher, numbers: Numbers, block: Block) -> Matches:
        first = watcher.engine.rows
        fed, rows = watcher.feed(block, lasting=True)
        if rows is not None and not len(rows):
            return fed
        count = watcher.engine.rows - first
        given = np.arange(block.count) if rows is None else rows
        numbers.add(np.arange(first, first + count), self.rows + given)
        found = numbers.matches(fed)
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
        return self._delivered(found, self.held)

    def finish(self) -> list[pa.Table]:
        """The matches that only waited for the stream to end."""
        pairs = zip(self.watchers, self.numbers, strict=True)
        found = [numbers.matches(watcher.finish()) for watcher, numbers in pairs]
        return self._built(found, self.held)

    # ---------------------------------------------------------------------------- events

    def _known(self, events: pa.Table, found: Sequence[Matches]) -> Held:
        """The events held so far and the new ones."""
        if not events.num_rows:
            return self.held
        wanted = np.zeros(events.num_rows, np.bool_)
        pieces = [numbers.rows for numbers in self.numbers]
        pieces += [m.elements(v) for m in found if m.count for v in m.variables]
        for rows in pieces:
            wanted[rows[rows >= self.rows] - self.rows] = True
        numbers = ordinals(events, wanted, self.queries[0].shape.schema.end)
        numbered = events.append_column(ORDINAL, pa.array(numbers))
        places = np.flatnonzero(wanted)
        fresh = numbered.take(pa.array(places)).cast(self.held.events.schema)
        return Held(
            pa.concat_tables([self.held.events, fresh]).combine_chunks(),
            np.concatenate([self.held.rows, self.rows + places]),
        )

    def _delivered(self, found: Sequence[Matches], known: Held) -> list[pa.Table]:
        result = self._built(found, known)
        self._hold(known)
        return result

    def _built(self, found: Sequence[Matches], known: Held) -> list[pa.Table]:
        tables: dict[int, pa.Table] = {}
        hashes = RowHashes(known.events, self.queries[0].shape.schema.end)
        for watcher, matches in zip(self.watchers, found, strict=True):
            moved = matches.moved(lambda rows: _places(known.rows, rows))
            for number in watcher.members:
                if matches.count == 0 and number in self._empty:
                    tables[number] = self._empty[number]
                    continue
                tables[number] = build_result(self.queries[number], moved, known.events, hashes)
                self._empty[number] = tables[number].slice(0, 0)
        return [tables[number] for number in range(len(self.queries))]

    def _hold(self, known: Held) -> None:
        wanted = np.zeros(len(known.rows), np.bool_)
        for numbers in self.numbers:
            wanted[np.searchsorted(known.rows, numbers.rows)] = True
        if wanted.all():
            self.held = known
            return
        events = known.events.filter(pa.array(wanted)).combine_chunks()
        self.held = Held(events, known.rows[wanted])

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
        size = int(self.held.events.nbytes + self.held.rows.nbytes)
        for watcher, numbers in zip(self.watchers, self.numbers, strict=True):
            if not is_empty(watcher):
                size += int(watcher.engine.state_bytes + 2 * numbers.own.nbytes)
        return size

    # ---------------------------------------------------------------------------- state

    def save(self) -> dict[str, bytes]:
        """Everything needed to go on elsewhere. Matchers that hold nothing are left out."""
        arrays, blobs = {"rows": self.held.rows}, {"events": to_bytes(self.held.events)}
        for k, (watcher, numbers) in enumerate(zip(self.watchers, self.numbers, strict=True)):
            if not is_empty(watcher):
                blobs[str(k)] = watcher.engine.save()
                arrays[f"own {k}"], arrays[f"rows {k}"] = numbers.own, numbers.rows
        header = {"fed": self.rows, "queries": self._fingerprint()}
        return {"several": packed(header, arrays, blobs)}

    def restore(self, saved: Mapping[str, bytes]) -> None:
        """Goes on where the saved one stopped."""
        if "several" not in saved:
            raise StateError("the state of a stream was saved for another set of queries")
        header, arrays, blobs = unpacked(saved["several"])
        if header["queries"] != self._fingerprint():
            raise StateError("the state of a stream was saved for another set of queries")
        self.rows = int(header["fed"])
        self.held = Held(from_bytes(blobs["events"]).cast(self.held.events.schema), arrays["rows"])
        for k, (watcher, numbers) in enumerate(zip(self.watchers, self.numbers, strict=True)):
            if str(k) in blobs:
                watcher.engine.restore(blobs[str(k)])
                numbers.own, numbers.rows = arrays[f"own {k}"], arrays[f"rows {k}"]

    def _fingerprint(self) -> str:
        shown = "\n".join(matching_part(watcher.prepared) for watcher in self.watchers)
        return hashlib.sha256(shown.encode()).hexdigest()


def is_empty(watcher: Watcher) -> bool:
    """Whether a matcher is as good as a new one: all it knew has no bearing on what comes."""
    engine = watcher.engine
    return isinstance(engine, Engine) and engine.is_blank


def is_idle(watcher: Watcher) -> bool:
    """Whether time can pass without a matcher's having to know."""
    engine = watcher.engine
    return isinstance(engine, Engine) and is_empty(watcher) and engine.scan.known <= FEW_CODES


def _places(known: Ints, rows: Ints) -> Ints:
    """Where rows stand among known ones, which are ascending; -1 stays."""
    if not len(rows):
        return rows
    return np.where(rows < 0, np.int64(-1), np.searchsorted(known, rows))
