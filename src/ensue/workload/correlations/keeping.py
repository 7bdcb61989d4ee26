"""A stage that looks nothing up, and whose events an archive gets: it matches as without."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ensue.columns.arrow_kinds import Unit
from ensue.engine.state import packed, unpacked
from ensue.plan.limits import Limits
from ensue.workload.correlations.past import Past, rescaled
from ensue.workload.correlations.prepared import Pasts
from ensue.workload.source import Source
from ensue.workload.stage import (
    Archiving,
    Fed,
    Handover,
    LookedUp,
    Output,
    Reads,
    Stage,
    StageMatcher,
)


@dataclass(frozen=True)
class KeepingStage:
    """A stage, and the archive that its events belong to."""

    inner: Stage
    pasts: Pasts
    source: Source

    @property
    def archiving(self) -> Archiving | None:
        """How events are written to the archive; None: they stay in the lane."""
        return self.pasts.archiving

    @property
    def reads(self) -> Reads:
        return self.inner.reads

    @property
    def outputs(self) -> tuple[Output, ...]:
        return self.inner.outputs

    @property
    def whole_stream(self) -> str | None:
        return self.inner.whole_stream

    @property
    def takes(self) -> Mapping[str, pa.Schema]:
        return self.inner.takes

    @property
    def hold(self) -> int | float:
        return self.inner.hold

    @property
    def arrival(self) -> tuple[str, ...]:
        return self.inner.arrival

    @property
    def limits(self) -> Limits:
        return self.inner.limits

    def matcher(self) -> StageMatcher:
        """A matcher for a lane, with no events yet."""
        assert self.pasts.own is not None
        shape = self.pasts.archives[self.pasts.own].shape
        unit: Unit = "ns" if "ns" in (shape.unit, self.source.shape.unit) else "us"
        return KeepingMatcher(
            self.inner.matcher(), self.pasts.past(self.pasts.own, unit), self.source
        )

    def matched(self, given: Fed) -> list[pa.Table]:
        return self.inner.matched(given)

    def matches(self, found: Sequence[pa.Table]) -> int:
        return self.inner.matches(found)

    def delivered(self, found: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        return self.inner.delivered(found)

    def sent(self, found: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
        return self.inner.sent(found)


class KeepingMatcher:
    """Matches, and keeps the events until they are archived."""

    def __init__(self, inner: StageMatcher, past: Past, source: Source) -> None:
        self.inner, self.past, self.shape = inner, past, source.shape

    def feed(self, given: Fed) -> list[pa.Table]:
        if given.events.num_rows:
            self.past.add(given.bare)
        return self.inner.feed(given)

    def advance(self, now: float) -> list[pa.Table]:
        return self.inner.advance(now)

    def finish(self) -> list[pa.Table]:
        return self.inner.finish()

    def deadline(self) -> float | None:
        return self.inner.deadline()

    def looked_up(self) -> LookedUp:
        """It looks nothing up, and keeps recent events."""
        return self.past.looked_up()

    def hand_over(self, now: float, rows: int, age: float | None) -> Handover | None:
        """The events before `now`, to be archived, if they are enough."""

        def scaled(time: float) -> float:
            return rescaled(time, self.shape, self.shape.unit, self.past.unit)

        return self.past.hand_over(scaled(now), rows, None if age is None else scaled(age))

    @property
    def partial_matches(self) -> int:
        return self.inner.partial_matches

    @property
    def state_bytes(self) -> int:
        return self.inner.state_bytes + self.past.nbytes

    def save(self) -> bytes:
        header, events = self.past.save()
        return packed(header, {}, {"inner": self.inner.save(), "recent": events})

    def restore(self, data: bytes) -> None:
        header, _, blobs = unpacked(data)
        self.past.restore(header, blobs["recent"])
        self.inner.restore(blobs["inner"])
