"""How events are read for clauses: they say themselves what orders and splits them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ensue.algebra.check.row_patterns import checked
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.columns.arrow_kinds import fields_of, zones_of
from ensue.columns.stream import PLACE
from ensue.errors import EventError, QueryError
from ensue.workload.arranged import Arranged, Computed
from ensue.workload.query_names import Name, speaking_of
from ensue.workload.row_patterns.clause import column_of
from ensue.workload.row_patterns.streamable import plain_ties, require_open_end, time_of

Time = str | tuple[str, str]


@dataclass(frozen=True)
class Arrangement:
    """What a call with clauses says of its events, before their columns are known."""

    clauses: tuple[tuple[Name | None, Recognition], ...]  # with the names of queries
    only: bool  # nothing else is asked
    time: Time | None  # as the call says
    order: tuple[str, ...]
    streaming: bool  # events keep coming

    def __call__(self, arrow: pa.Schema, session: str | None = None) -> Arranged:
        kinds, clauses = fields_of(arrow), []
        for name, clause in self.clauses:
            with speaking_of(name):
                clauses.append(checked(clause, kinds, zones_of(arrow, session)))
        computed = {
            column_of(key): Computed(column_of(key), key.expr)
            for clause in clauses
            for key in clause.partition
            if key.column is None
        }
        time, order = self._order(clauses)
        return Arranged(time, order, tuple(computed.values()))

    def _order(self, clauses: Sequence[Recognition]) -> tuple[Time, tuple[str, ...]]:
        if not self.streaming:
            if self.only:
                return PLACE, ()
            if self.time is None:
                raise EventError("the time column of the events is missing: pass time=")
            return self.time, self.order
        times = {}
        for (name, _), clause in zip(self.clauses, clauses, strict=True):
            with speaking_of(name):
                require_open_end(clause)
                times[time_of(clause)] = clause
                self._require_same(times, clause)
        if self.order or not self.only:
            return next(iter(times)), self.order
        ties = {plain_ties(clause) for clause in clauses}
        (found,) = ties if len(ties) == 1 else (None,)
        return next(iter(times)), found or ()

    def _require_same(self, times: dict[str, Recognition], clause: Recognition) -> None:
        """All that is asked of a stream goes by one time."""
        mine = time_of(clause)
        others = [time for time in times if time != mine]
        given = others[0] if others else self.time
        if given is None or given == mine:
            return
        what = f"time={given!r}" if not others else f"another clause by '{given}'"
        raise QueryError(
            f"ORDER BY begins with '{mine}', and events are ordered by {what}",
            hint="all that is asked of a stream goes by one column of event time",
            span=clause.order[0].span,
            text=clause.text,
        )


def arranging(
    asked: Iterable[tuple[Name | None, object]],
    time: Time | None,
    order: tuple[str, ...],
    *,
    streaming: bool,
) -> Arrangement | None:
    """How events are read for queries with their names; None: no clause is among them."""
    queries = tuple(asked)
    clauses = tuple((name, one) for name, one in queries if isinstance(one, Recognition))
    if not clauses:
        return None
    return Arrangement(clauses, len(clauses) == len(queries), time, order, streaming)
