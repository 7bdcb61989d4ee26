"""Matchers of several queries over one stream, fed and saved as one."""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from ensue.engine.state_format import pack_state, unpack_state
from ensue.errors import StateError
from ensue.runtime.stage import StageInput


class CompositeMember(Protocol):
    """What a matcher has to know for that."""

    def feed(self, events: pa.Table) -> pa.Table: ...
    def advance(self, now: float) -> pa.Table: ...
    def finish(self) -> pa.Table: ...
    def deadline(self) -> float | None: ...
    @property
    def partial_matches(self) -> int: ...
    @property
    def state_bytes(self) -> int: ...
    def save(self) -> bytes: ...
    def restore(self, data: bytes) -> None: ...


M = TypeVar("M", bound=CompositeMember)


class CompositeMatcher(Generic[M]):
    """Each query has its own matcher and its own events."""

    def __init__(self, matchers: Sequence[M]) -> None:
        self.matchers = matchers

    def feed(self, given: StageInput) -> list[pa.Table]:
        """The matches of each query that the next events complete."""
        return [matcher.feed(given.bare) for matcher in self.matchers]

    def advance(self, now: float) -> list[pa.Table]:
        """The matches of each query that only waited for time to pass."""
        return [matcher.advance(now) for matcher in self.matchers]

    def finish(self) -> list[pa.Table]:
        """The matches of each query that only waited for the stream to end."""
        return [matcher.finish() for matcher in self.matchers]

    def deadline(self) -> float | None:
        """The time after which `advance` has something to deliver."""
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
        return pack_state({}, {}, {str(k): m.save() for k, m in enumerate(self.matchers)})

    def restore(self, data: bytes) -> None:
        """Goes on where the saved ones stopped."""
        _, _, saved = unpack_state(data)
        if set(saved) != {str(k) for k in range(len(self.matchers))}:
            raise StateError("the state of a stream was saved for another set of queries")
        for k, matcher in enumerate(self.matchers):
            matcher.restore(saved[str(k)])
