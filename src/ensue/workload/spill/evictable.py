"""What is stored of a key, where the keys of some queries can be stored."""

from collections.abc import Sequence
from dataclasses import dataclass

from ensue.algebra.walk import negations
from ensue.columns.arrow_kinds import length_of
from ensue.errors import QueryError
from ensue.plan.evictable import may_wait, why_not_evicted, why_not_shed
from ensue.schema import Kind
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


def require_sheddable(queries: Sequence[Prepared]) -> None:
    """An error that says why no key of these queries can be given up."""
    found = [why for prepared in queries if (why := why_not_shed(prepared.plan)) is not None]
    why = found[0] if found else why_not_evictable(queries)
    if why is not None:
        raise not_sheddable(why)
    kind = queries[0].shape.schema.time_kind
    if kind is not Kind.TIMESTAMP:
        raise not_sheddable(
            f"its time column holds {kind.value}s, which no clock can be compared with"
        )


def not_sheddable(why: str) -> QueryError:
    """The error where keys are to be given up that cannot be."""
    return QueryError(
        f"the query cannot shed load: {why}",
        hint="leave out shed=: a slow stream falls behind, and nothing is lost",
    )


def unit_of(queries: Sequence[Prepared]) -> Unit:
    """What is stored of a key."""
    lengths, waiting = [], []
    for prepared in queries:
        query = prepared.plan.query
        length = length_of(query.within, prepared.shape.unit)
        assert length is not None
        late = query.unfinished or may_wait(query.pattern)
        # what a match that still waits was judged by may be a window older than the match
        twice = late and sum(1 for _ in negations(query.pattern)) > 1
        lengths.append(2 * length if twice else length)
        waiting += [length] if late else []
    return Unit(_common_key(queries), max(lengths), tuple(sorted(set(waiting))))


def _common_key(queries: Sequence[Prepared]) -> tuple[str, ...]:
    """The fields that split the events of all queries: what is equal in more is equal in fewer."""
    keys = [{e.field_name for e in p.plan.query.equivalence} for p in queries]
    return tuple(sorted(set.intersection(*keys))) if keys else ()
