"""Whether the keys of some queries can be stored and brought back, and by what.

A key is stored as its events of the last window, and brought back by matching these again. That
is possible where the window says how far back matches reach, and where nothing else is remembered.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ensue.algebra.form import is_absence, is_sequence, optional, parts
from ensue.algebra.operator import Over
from ensue.algebra.pattern import Pattern
from ensue.algebra.walk import negations, results
from ensue.algebra.window import ByEvents
from ensue.columns.arrow_kinds import length_of
from ensue.errors import QueryError
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
        why = _why_not(prepared)
        if why is not None:
            return why
    if not _common_key(queries):
        return "its queries have no [attr] in common that would split their events into keys"
    return None


def _why_not(prepared: Prepared) -> str | None:
    query = prepared.plan.query
    if query.within is None:
        return "without WITHIN every event of a key would have to be stored"
    if isinstance(query.within, ByEvents):
        return "a window that counts events reaches back any length of time"
    if prepared.plan.whole_stream:
        return "strict contiguity looks at the events of every key"
    if not query.equivalence:
        return "it has no [attr] that would split its events into keys"
    if query.after is not None:
        return "AFTER MATCH remembers more of a key than its events of the last window"
    for applied in results(query.pattern):
        if applied.operator.over is Over.REPEAT:
            return f"the latest result of {applied.operator.name} may be older than the window"
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


def may_wait(pattern: Pattern) -> bool:
    """Whether a match may only be decided when its window is over.

    >>> from ensue.algebra.pattern import Atom, Not, Seq
    >>> inner = Seq((Atom("A", "a"), Not(Atom("B", "b")), Atom("C", "c")))
    >>> may_wait(inner), may_wait(Seq((inner, Not(Atom("D", "d")))))
    (False, True)
    """
    if is_absence(pattern):
        return False
    if is_sequence(pattern):
        for part in reversed(parts(pattern)):
            if is_absence(part):
                return True
            if not optional(part):
                break
    return any(may_wait(part) for part in parts(pattern))
