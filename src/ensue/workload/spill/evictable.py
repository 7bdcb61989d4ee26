"""What is stored of a key, where the keys of some queries can be stored."""

from collections.abc import Sequence
from dataclasses import dataclass

from ensue.algebra.walk import negations
from ensue.columns.arrow_kinds import length_of
from ensue.errors import QueryError
from ensue.plan.evictable import may_wait, why_not_evicted
from ensue.workload.prepared import Prepared


@dataclass(frozen=True, slots=True)
class Unit:
    """What is evicted: the events of one key, as far back as matches reach."""

    key: tuple[str, ...]  # columns
    reach: float  # how long before now an event still matters
    windows: tuple[float, ...]  # of the queries that wait for time to pass: when each is over


def why_not_evictable(queries: Sequence[Prepared]) -> str | None:
    """Why no key of these queries can be stored, if none can."""
    for prepared in queries:
        why = why_not_evicted(prepared.plan)
        if why is not None:
            return why
    if not _common_key(queries):
        return "its queries have no [attr] in common that would split their events into keys"
    return None


def not_evictable(why: str) -> QueryError:
    """The error where keys are to be evicted that cannot be."""
    return QueryError(
        f"the query cannot be evicted: {why}",
        hint="leave out evict=: memory= is then a bound at which the query is stopped",
    )


def unit_of(queries: Sequence[Prepared]) -> Unit:
    """What is stored of a key."""
    lengths, waiting = [], []
    for prepared in queries:
        query = prepared.plan.query
        length = length_of(query.within, prepared.shape.unit)
        assert length is not None
        late = may_wait(query.pattern)
        # what a match that still waits was judged by may be a window older than the match
        twice = late and sum(1 for _ in negations(query.pattern)) > 1
        lengths.append(2 * length if twice else length)
        waiting += [length] if late else []
    return Unit(_common_key(queries), max(lengths), tuple(sorted(set(waiting))))


def _common_key(queries: Sequence[Prepared]) -> tuple[str, ...]:
    """The fields that split the events of all queries: what is equal in more is equal in fewer."""
    keys = [{e.field_name for e in p.plan.query.equivalence} for p in queries]
    return tuple(sorted(set.intersection(*keys))) if keys else ()
