"""A matcher of several queries over one stream."""

from collections.abc import Sequence
from typing import Generic, TypeVar

import pyarrow as pa

from ensue.engine.state_format import pack_state, unpack_state
from ensue.errors import StateError
from ensue.runtime.stage import Matcher, StageInput

CompositeMember = Matcher[pa.Table, pa.Table]
M = TypeVar("M", bound=CompositeMember)


class CompositeMatcher(Generic[M]):
    """A matcher with its own events for each query; returns a table for each."""

    def __init__(self, matchers: Sequence[M]) -> None:
        self.matchers = matchers

    def process(self, batch: StageInput) -> list[pa.Table]:
        return [matcher.process(batch.bare) for matcher in self.matchers]

    def on_watermark(self, now: float) -> list[pa.Table]:
        return [matcher.on_watermark(now) for matcher in self.matchers]

    def next_timer(self) -> float | None:
        times = [t for m in self.matchers if (t := m.next_timer()) is not None]
        return min(times, default=None)

    @property
    def partial_matches(self) -> int:
        return sum(m.partial_matches for m in self.matchers)

    @property
    def state_bytes(self) -> int:
        return sum(m.state_bytes for m in self.matchers)

    def snapshot(self) -> bytes:
        return pack_state({}, {}, {str(k): m.snapshot() for k, m in enumerate(self.matchers)})

    def restore(self, data: bytes) -> None:
        _, _, saved = unpack_state(data)
        if set(saved) != {str(k) for k in range(len(self.matchers))}:
            raise StateError("the state of a stream was saved for another set of queries")
        for k, matcher in enumerate(self.matchers):
            matcher.restore(saved[str(k)])
