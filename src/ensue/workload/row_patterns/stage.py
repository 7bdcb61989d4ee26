"""Clauses that find all they need in the lanes of one key."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from ensue.plan.limits import Limits
from ensue.workload.row_patterns.clause import Clause
from ensue.workload.row_patterns.matcher import ClauseMatcher
from ensue.workload.source import Source
from ensue.workload.stage import ARRIVAL, Fed, Output, Reads
from ensue.workload.together import Together


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

    def matcher(self) -> Together[ClauseMatcher]:
        """A matcher for a lane, with no rows yet."""
        return Together([ClauseMatcher(clause, self.source) for clause in self.clauses])

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
