"""A matcher that is fed piece by piece and keeps the events it still needs."""

from collections.abc import Sequence

import pyarrow as pa

from ensue.columns.matches import Matches
from ensue.engine.state import packed, unpacked
from ensue.errors import StateError
from ensue.workload.held_events import Held
from ensue.workload.prepared import Prepared, build_result
from ensue.workload.stage import Fed
from ensue.workload.twins import Twins


class LiveMatcher:
    """Feeds slices of an ordered stream to a query; the slicing does not change the matches.

    Between slices the matcher can be saved as bytes and restored elsewhere.
    """

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.engine = prepared.engine()
        self.held = Held.nothing(prepared.shape)
        self.twins = Twins(prepared.shape.schema.end)

    def feed(self, events: pa.Table) -> pa.Table:
        """The matches that the next events complete. They come in the order of the stream."""
        first = self.engine.rows
        matches = self.engine.feed(events)
        kept = self.engine.held_rows()
        members = [kept, *(matches.elements(v) for v in matches.variables)]
        known = self.held.joined_by(events, first, members, self.twins)
        result = self._built(matches, known)
        self.held = known.only(kept)
        return result

    def advance(self, now: float) -> pa.Table:
        """The matches that only waited for time to pass, once it is `now`."""
        result = self._built(self.engine.advance(now), self.held)
        self.held = self.held.only(self.engine.held_rows())
        self.twins.forget_before(now)
        return result

    def finish(self) -> pa.Table:
        """The matches that only waited for the stream to end."""
        return self._built(self.engine.finish(), self.held)

    def _built(self, matches: Matches, known: Held) -> pa.Table:
        self.engine.hand_over()  # what is in the table is with whoever asked for it
        return build_result(self.prepared, known.placed(matches), known.events)

    def deadline(self) -> float | None:
        return self.engine.deadline()

    @property
    def partial_matches(self) -> int:
        return self.engine.partial_matches

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        return int(self.engine.state_bytes) + self.held.nbytes + self.twins.nbytes

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        blobs = {"engine": self.engine.save(), "events": self.held.save()}
        return packed({}, {"rows": self.held.rows, **self.twins.save()}, blobs)

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        _, arrays, blobs = unpacked(data)
        self.engine.restore(blobs["engine"])
        self.held = self.held.again(blobs["events"], arrays["rows"])
        self.twins.restore(arrays)


def restored(prepared: Prepared, data: bytes) -> LiveMatcher:
    """A matcher that goes on where a saved one stopped."""
    matcher = LiveMatcher(prepared)
    matcher.restore(data)
    return matcher


class LiveMatchers:
    """Queries over one stream, each with its own matcher and its own events."""

    def __init__(self, queries: Sequence[Prepared]) -> None:
        self.matchers = [LiveMatcher(query) for query in queries]

    def feed(self, given: Fed) -> list[pa.Table]:
        """The matches of each query that the next events complete."""
        return [matcher.feed(given.bare) for matcher in self.matchers]

    def advance(self, now: float) -> list[pa.Table]:
        """The matches of each query that only waited for time to pass."""
        return [matcher.advance(now) for matcher in self.matchers]

    def finish(self) -> list[pa.Table]:
        """The matches of each query that only waited for the stream to end."""
        return [matcher.finish() for matcher in self.matchers]

    def deadline(self) -> float | None:
        times = [t for m in self.matchers if (t := m.deadline()) is not None]
        return min(times, default=None)

    @property
    def partial_matches(self) -> int:
        return sum(m.partial_matches for m in self.matchers)

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        return sum(m.state_bytes for m in self.matchers)

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        return packed({}, {}, {str(k): m.save() for k, m in enumerate(self.matchers)})

    def restore(self, data: bytes) -> None:
        """Goes on where the saved ones stopped."""
        _, _, saved = unpacked(data)
        if set(saved) != {str(k) for k in range(len(self.matchers))}:
            raise StateError("the state of a stream was saved for another set of queries")
        for k, matcher in enumerate(self.matchers):
            matcher.restore(saved[str(k)])
