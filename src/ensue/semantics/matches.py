"""Matches: the arrangements of events that a pattern allows and that break no condition."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

from ensue.algebra.form import is_lapse
from ensue.algebra.lapses import lapses
from ensue.algebra.policy import AfterMatch, SkipTo
from ensue.algebra.query import Limit, Query
from ensue.semantics.arrangements import ways
from ensue.semantics.choosing import chosen as chosen_by
from ensue.semantics.conditions import is_true
from ensue.semantics.events import Binding, Event, members
from ensue.semantics.partition import Partition, partitions, rank
from ensue.semantics.results import Fired
from ensue.semantics.timeouts import timeouts


def matches(
    query: Query,
    events: Sequence[Event],
    fired: Fired | None = None,
    most: int | None = None,
) -> list[Binding]:
    """All matches, in the order of their last event, then of their members.

    `fired` are the results of repeats, where events before these have a say in them. With `most`
    it gives up where there are more ways than that to arrange the events of one partition.
    """
    if query.unfinished:
        return timeouts(query, events, most)
    if is_lapse(query.pattern):
        return [] if spoilt(query, events) else [{}]
    found: list[Binding] = []
    for partition in partitions(query, events):
        partition.fired, partition.most = fired, most
        here = [b for b in ways(query.pattern, partition) if partition.accepts(b)]
        here.sort(key=lambda binding: rank(query.pattern, binding))
        if query.after is not None:
            here = list(_skipping(query.after, here))
            here.sort(key=lambda binding: rank(query.pattern, binding))
        kept = [b for b in here if query.having is None or is_true(query.having, b)]
        if query.choose is not None:
            kept = chosen_by(query, kept)
        found += kept if query.limit is None else _limited(query.limit, kept)
    return sorted(found, key=lambda binding: rank(query.pattern, binding))


def spoilt(query: Query, events: Sequence[Event]) -> bool:
    """Whether an event came that a pattern which is only an absence forbids."""
    partition = Partition(query, events)
    return any(
        partition.within(negation, interval, {}) for negation, interval in lapses(query.pattern)
    )


def _limited(limit: Limit, found: Iterable[Binding]) -> Iterator[Binding]:
    """The first few matches of each last event; `found` is in their order."""
    for _, same in groupby(found, key=lambda binding: members(binding)[-1].position):
        yield from islice(same, limit.count)


def _skipping(after: AfterMatch, found: Iterable[Binding]) -> Iterator[Binding]:
    """Keeps a match only if it begins where the matches kept before it allow.

    `found` are in the order of their last event.
    """
    if after.by_start:
        found = sorted(found, key=lambda binding: members(binding)[0].position)
    earliest = -1
    for binding in found:
        if members(binding)[0].position < earliest:
            continue
        yield binding
        begin = next_begin(after, binding)
        earliest = earliest if begin is None else begin


def next_begin(after: AfterMatch, binding: Binding) -> int | None:
    """The position at which the next match may begin; None: this one skips nothing.

    So it is with `SKIP TO FIRST b` where the match has no `b`.
    """
    inside = members(binding)
    second = inside[0].position + 1
    match after.to:
        case SkipTo.PAST_LAST:
            return inside[-1].position + 1
        case SkipTo.NEXT_EVENT:
            return second
        case SkipTo.FIRST | SkipTo.LAST:
            target = binding.get(after.variable or "", ())
            if not target:
                return None
            return max(second, target[0 if after.to is SkipTo.FIRST else -1].position)
