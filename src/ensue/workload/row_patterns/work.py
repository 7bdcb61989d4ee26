"""MATCH_RECOGNIZE clauses as a kind of work."""

from dataclasses import dataclass

import pyarrow as pa

from ensue.errors import QueryError
from ensue.workload.prepared import Prepared
from ensue.workload.row_patterns.clause import Clause
from ensue.workload.row_patterns.stage import RowPatternStage
from ensue.workload.row_patterns.streamable import require_bounded, require_open_end, time_of
from ensue.workload.source import Source
from ensue.workload.stage import Output, Reads
from ensue.workload.work import Progress, Whole


@dataclass(frozen=True)
class RowPatternWork:
    """Clauses over one table or stream, and the outputs that their results go to."""

    clauses: tuple[Clause, ...]
    outputs: tuple[Output, ...]
    source: Source
    streaming: bool = False
    of_events: bool = True
    rows: None = None  # all events are needed

    @property
    def expected(self) -> tuple[Prepared, ...]:
        """What they find cannot be foreseen."""
        return ()

    @property
    def reads(self) -> Reads:
        return Reads(None)

    def matched(self, events: pa.Table, progress: Progress | None = None) -> Whole:
        """What is found in rows that are all there, in the order in which they came."""
        found = []
        for number, clause in enumerate(self.clauses, 1):
            found.append(clause.whole(events))
            if progress is not None:
                progress(events.num_rows * number // len(self.clauses), events.num_rows)
        return Whole(found)

    def chains(self) -> tuple[tuple[RowPatternStage, ...], ...]:
        """The clauses by the key they are split by: each is a chain of one stage."""
        found = []
        for clause in self.clauses if self.streaming else ():
            require_streamable(clause, self.source)
            require_bounded(clause.plan)
        for key in dict.fromkeys(clause.key for clause in self.clauses):
            numbers = [n for n, clause in enumerate(self.clauses) if clause.key == key]
            found.append((self._stage(key, numbers),))
        return tuple(found)

    def whole(self) -> RowPatternStage:
        """All clauses as one stage, where one lane has all rows as they come."""
        for clause in self.clauses:
            require_streamable(clause, self.source)
        return RowPatternStage(self.clauses, self.outputs, self.source, ())

    def _stage(self, key: tuple[str, ...], numbers: list[int]) -> RowPatternStage:
        clauses = tuple(self.clauses[n] for n in numbers)
        outputs = tuple(self.outputs[n] for n in numbers)
        whole = None if key else (
            "the clause has no PARTITION BY that would split the rows: one task, on one core, "
            "will match all of them"
        )  # fmt: skip
        return RowPatternStage(clauses, outputs, self.source, key, whole)


def require_streamable(clause: Clause, source: Source) -> None:
    """A QueryError if rows that keep coming cannot be matched by a clause."""
    recognition = clause.recognition
    require_open_end(recognition)
    time = time_of(recognition)
    if source.time != time:
        raise QueryError(
            f"ORDER BY begins with '{time}', and events are ordered by time={source.time!r}",
            hint="all that is asked of a stream goes by one column of event time",
            span=recognition.order[0].span,
            text=recognition.text,
        )
