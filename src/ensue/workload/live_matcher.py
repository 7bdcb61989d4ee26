"""A matcher that is fed piece by piece and keeps the events it still needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.matches import Matches
from ensue.columns.rows import no_rows
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.errors import StateError
from ensue.results.identity import ORDINAL, ordinals
from ensue.workload.prepared import Prepared, build_result

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Held:
    """Events of the past that later matches may contain, and their rows in the stream."""

    events: pa.Table  # with their ordinals: their twins may be gone
    rows: Rows


class LiveMatcher:
    """Feeds slices of an ordered stream to a query; the slicing does not change the matches.

    Events of the same time come in one slice, else those of the same content are not told apart
    in match ids. Between slices the matcher can be saved as bytes and restored elsewhere.
    """

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.engine = prepared.engine()
        schema = prepared.shape.arrow.append(pa.field(ORDINAL, pa.int64()))
        self.held = Held(no_rows(schema), np.zeros(0, np.int64))

    def feed(self, events: pa.Table) -> pa.Table:
        """The matches that the next events complete. They come in the order of the stream."""
        first = self.engine.rows
        matches = self.engine.feed(events)
        kept = self.engine.held_rows()
        known = self._known(
            events, first, [kept, *(matches.elements(v) for v in matches.variables)]
        )
        result = self._built(matches, known)
        self._hold(known, kept)
        return result

    def advance(self, now: float) -> pa.Table:
        """The matches that only waited for time to pass, once it is `now`.

        No event that ends before `now` comes any more.
        """
        result = self._built(self.engine.advance(now), self.held)
        self._hold(self.held, self.engine.held_rows())
        return result

    def finish(self) -> pa.Table:
        """The matches that only waited for the stream to end."""
        return self._built(self.engine.finish(), self.held)

    def _known(self, events: pa.Table, first: int, members: list[Rows]) -> Held:
        """The events held so far and those of the new ones, from row `first` on, that matter."""
        wanted = np.zeros(events.num_rows, np.bool_)
        for rows in members:
            wanted[rows[rows >= first] - first] = True
        numbers = ordinals(events, wanted, self.prepared.shape.schema.end)
        places = np.flatnonzero(wanted)
        if len(places) < events.num_rows:
            events = events.take(pa.array(places))
        numbered = events.append_column(ORDINAL, pa.array(numbers[places]))
        return Held(
            pa.concat_tables([self.held.events, numbered.cast(self.held.events.schema)]),
            np.concatenate([self.held.rows, first + places]),
        )

    def _hold(self, known: Held, rows: Rows) -> None:
        if len(rows) == len(known.rows):
            self.held = known
            return
        places = np.searchsorted(known.rows, rows)
        events = known.events.take(pa.array(places)).combine_chunks()
        self.held = Held(events, known.rows[places])

    def _built(self, matches: Matches, known: Held) -> pa.Table:
        self.engine.hand_over()  # what is in the table is with whoever asked for it
        return build_result(self.prepared, self._placed(matches, known), known.events)

    def _placed(self, matches: Matches, known: Held) -> Matches:
        """Matches as places in the known events."""

        def place(rows: Rows) -> Rows:
            found = np.searchsorted(known.rows, rows)
            return np.where(rows < 0, np.int64(-1), found)

        return matches.moved(place)

    # ---------------------------------------------------------------------------- state

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        return int(self.engine.state_bytes + self.held.events.nbytes + self.held.rows.nbytes)

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        blobs = {"engine": self.engine.save(), "events": to_bytes(self.held.events)}
        return packed({}, {"rows": self.held.rows}, blobs)

    @classmethod
    def restore(cls, prepared: Prepared, data: bytes) -> "LiveMatcher":
        """A matcher that goes on where the saved one stopped."""
        matcher = cls(prepared)
        matcher.take_up(data)
        return matcher

    def take_up(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        _, arrays, blobs = unpacked(data)
        self.engine.restore(blobs["engine"])
        events = from_bytes(blobs["events"])
        if ORDINAL not in events.column_names:  # saved before events knew their number
            events = events.append_column(ORDINAL, pa.array(np.zeros(len(events), np.int64)))
        self.held = Held(events.cast(self.held.events.schema), arrays["rows"])


class LiveMatchers:
    """Queries over one stream, each with its own matcher and its own events."""

    def __init__(self, queries: Sequence[Prepared]) -> None:
        self.queries = tuple(queries)
        self.matchers = [LiveMatcher(query) for query in queries]

    def feed(self, events: pa.Table) -> list[pa.Table]:
        """The matches of each query that the next events complete."""
        return [matcher.feed(events) for matcher in self.matchers]

    def advance(self, now: float) -> list[pa.Table]:
        """The matches of each query that only waited for time to pass."""
        return [matcher.advance(now) for matcher in self.matchers]

    def finish(self) -> list[pa.Table]:
        """The matches of each query that only waited for the stream to end."""
        return [matcher.finish() for matcher in self.matchers]

    def deadline(self) -> float | None:
        times = [t for m in self.matchers if (t := m.engine.deadline()) is not None]
        return min(times, default=None)

    @property
    def partial_matches(self) -> int:
        return sum(m.engine.partial_matches for m in self.matchers)

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        return sum(m.state_bytes for m in self.matchers)

    def save(self) -> dict[str, bytes]:
        """Everything needed to go on elsewhere, by names."""
        return {str(k): matcher.save() for k, matcher in enumerate(self.matchers)}

    def restore(self, saved: Mapping[str, bytes]) -> None:
        """Goes on where the saved ones stopped."""
        if set(saved) != {str(k) for k in range(len(self.matchers))}:
            raise StateError("the state of a stream was saved for another set of queries")
        self.matchers = [
            LiveMatcher.restore(query, saved[str(k)]) for k, query in enumerate(self.queries)
        ]
