"""Clauses that find all they need in the lanes of one key."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ensue.engine.state import packed, unpacked
from ensue.plan.limits import Limits
from ensue.workload.row_patterns.clause import Clause
from ensue.workload.row_patterns.matcher import ClauseMatcher
from ensue.workload.source import Source
from ensue.workload.stage import ARRIVAL, Fed, Output, Reads


@dataclass(frozen=True)
class RowPatternStage:
    """Clauses with one key, and the outputs that their results go to."""

    clauses: tuple[Clause, ...]
    outputs: tuple[Output, ...]  # one a clause
    source: Source
    key: tuple[str, ...]
    whole_stream: str | None = None
    takes: Mapping[str, pa.Schema] = field(default_factory=dict)
    hold: int = 0
    arrival: tuple[str, ...] = (ARRIVAL,)
    orders: bool = True  # rows of a table

    @property
    def reads(self) -> Reads:
        return Reads(None, self.key, nulls=True)

    @property
    def limits(self) -> Limits:
        return self.clauses[0].limits

    def matcher(self) -> "ClauseMatchers":
        """A matcher for a lane, with no rows yet."""
        return ClauseMatchers([ClauseMatcher(clause, self.source) for clause in self.clauses])

    def matched(self, given: Fed) -> list[pa.Table]:
        """What a lane finds where all rows are there."""
        return [clause.whole(given.events, given.arrival) for clause in self.clauses]

    def matches(self, found: Sequence[pa.Table]) -> int:
        """How many rows were found."""
        return sum(table.num_rows for table in found)

    def delivered(self, found: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """The results of each clause, with the number of its output."""
        for output, table in zip(self.outputs, found, strict=True):
            if table.num_rows:
                yield output.number, table

    def sent(self, found: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:  # noqa: ARG002
        """No other stage is made of what clauses find."""
        return iter(())


class ClauseMatchers:
    """The matchers of some clauses over one stream."""

    def __init__(self, matchers: Sequence[ClauseMatcher]) -> None:
        self.matchers = matchers

    def feed(self, given: Fed) -> list[pa.Table]:
        """What the next rows decide."""
        events = given.bare
        return [matcher.feed(events) for matcher in self.matchers]

    def advance(self, now: float) -> list[pa.Table]:
        """What time alone decides."""
        return [matcher.advance(now) for matcher in self.matchers]

    def finish(self) -> list[pa.Table]:
        """What only waited for further rows."""
        return [matcher.finish() for matcher in self.matchers]

    def deadline(self) -> float | None:
        """The time behind which `advance` decides something."""
        found = [matcher.deadline() for matcher in self.matchers]
        return min((time for time in found if time is not None), default=None)

    @property
    def partial_matches(self) -> int:
        return sum(matcher.partial_matches for matcher in self.matchers)

    @property
    def state_bytes(self) -> int:
        return sum(matcher.state_bytes for matcher in self.matchers)

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        return packed({}, {}, {str(k): m.save() for k, m in enumerate(self.matchers)})

    def restore(self, data: bytes) -> None:
        """Goes on where the saved ones stopped."""
        _, _, saved = unpacked(data)
        for k, matcher in enumerate(self.matchers):
            matcher.restore(saved[str(k)])
