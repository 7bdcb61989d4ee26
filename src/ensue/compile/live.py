"""A matcher that is fed piece by piece and keeps the events it still needs."""

import io
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.compile.matcher import Prepared, build_result
from ensue.compile.matches import Matches
from ensue.compile.reference import ReferenceEngine
from ensue.compile.state import packed, unpacked
from ensue.errors import StateError


@dataclass(frozen=True, slots=True)
class Held:
    """Events of the past that later matches may contain, and their rows in the stream."""

    events: pa.Table
    rows: npt.NDArray[np.int64]


class LiveMatcher:
    """Feeds slices of an ordered stream to a query; the slicing does not change the matches.

    Between slices it can be saved as bytes and restored elsewhere.
    """

    def __init__(self, prepared: Prepared) -> None:
        engine = prepared.engine()
        if isinstance(engine, ReferenceEngine):
            raise StateError(
                f"this query cannot be fed piece by piece yet: {prepared.plan.structure}"
            )
        self.prepared = prepared
        self.engine = engine
        self.held = Held(prepared.shape.arrow.empty_table(), np.zeros(0, np.int64))

    def feed(self, events: pa.Table) -> pa.Table:
        """The matches that the next events complete. They come in the order of the stream."""
        first = self.engine.rows
        matches = self.engine.feed(events)
        rows = np.concatenate([self.held.rows, np.arange(first, first + events.num_rows)])
        known = Held(pa.concat_tables([self.held.events, events]), rows)
        result = self._built(matches, known)
        kept = np.searchsorted(known.rows, self.engine.held_rows())
        self.held = Held(known.events.take(pa.array(kept)).combine_chunks(), known.rows[kept])
        return result

    def advance(self, now: float) -> pa.Table:
        """The matches that only waited for time to pass, once it is `now`."""
        return self._built(self.engine.advance(now), self.held)

    def finish(self) -> pa.Table:
        """The matches that only waited for the stream to end."""
        return self._built(self.engine.finish(), self.held)

    def _built(self, matches: Matches, known: Held) -> pa.Table:
        def place(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
            found = np.searchsorted(known.rows, rows)
            return np.where(rows < 0, np.int64(-1), found)

        moved = Matches(
            {v: place(rows) for v, rows in matches.rows.items()},
            {v: (offsets, place(rows)) for v, (offsets, rows) in matches.lists.items()},
            matches.count,
        )
        return build_result(self.prepared, moved, known.events)

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        out = io.BytesIO()
        with pa.ipc.new_stream(out, self.held.events.schema) as writer:
            writer.write_table(self.held.events)
        blobs = {"engine": self.engine.save(), "events": out.getvalue()}
        return packed({}, {"rows": self.held.rows}, blobs)

    @classmethod
    def restore(cls, prepared: Prepared, data: bytes) -> "LiveMatcher":
        """A matcher that goes on where the saved one stopped."""
        _, arrays, blobs = unpacked(data)
        matcher = cls(prepared)
        matcher.engine.restore(blobs["engine"])
        events = pa.ipc.open_stream(blobs["events"]).read_all()
        matcher.held = Held(events, arrays["rows"])
        return matcher
