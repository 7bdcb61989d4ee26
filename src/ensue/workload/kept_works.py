"""Queries that are asked again: what was planned for them is kept between calls.

A plan follows from the queries, the columns of the events and what a call wishes, and from
nothing else, so all of these are its key. Queries with operators of users are planned anew each
time, since their functions may change behind their names, and so are those that look into an
archive. Nothing of events or results is kept, and there is no lock that a forked child could find
taken.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

from ensue.algebra.query import Query
from ensue.algebra.tower import Tower
from ensue.workload.asked import Asked
from ensue.workload.correlations.expected import STREAM
from ensue.workload.correlations.prepared import NO_PAST, Pasts
from ensue.workload.planned import Wishes, works_of
from ensue.workload.source import Source
from ensue.workload.work import Work

MOST = 64  # calls of which works are kept
_NO_PART = ("access", "coming")  # of the key


@dataclass(frozen=True, slots=True)
class _Call:
    """All that works depend on. Two are equal where their keys are."""

    key: Hashable
    asked: tuple[Asked, ...] = field(compare=False)
    source: Source = field(compare=False)
    wishes: Wishes = field(compare=False)


def kept_works(
    asked: Sequence[Asked], source: Source, wishes: Wishes, pasts: Pasts = NO_PAST
) -> tuple[Work, ...]:
    """The works of some queries: those of an equal call before, or new ones."""
    if wishes.streaming or pasts.archives or not all(map(_depends_on_nothing_else, asked)):
        return works_of(asked, source, wishes, pasts)
    key = (*map(_query_key, asked), source.key, _wishes_key(wishes))
    try:
        hash(key)
    except TypeError:  # something is of a type that planning refuses, in words
        return works_of(asked, source, wishes, pasts)
    # the events are no part of it: without an archive nobody looks at them before they are matched
    return _works(_Call(key, tuple(asked), source, replace(wishes, coming=STREAM)))


@lru_cache(maxsize=MOST)
def _works(call: _Call) -> tuple[Work, ...]:
    return works_of(call.asked, call.source, call.wishes)


def _depends_on_nothing_else(one: Asked) -> bool:
    return isinstance(one.query, Query | Tower) and not any(True for _ in one.operators)


def _query_key(one: Asked) -> Hashable:
    """A query and how it is written: 1 and 1.0 are equal, but not what is computed with them, and
    errors point into the text."""
    texts = tuple(query.text for query in one.queries)
    return one, repr(one.query), texts


def _wishes_key(wishes: Wishes) -> Hashable:
    # whatever they come to hold is a part of the key, unless it is named here
    others = (getattr(wishes, f.name) for f in fields(wishes) if f.name not in _NO_PART)
    # plans are equal whatever the limits are; works are not
    return wishes.planning.limits, *others
