"""Matches: the arrangements of events that a pattern allows and that break no condition."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice

from ensue.algebra.form import is_lapse
from ensue.algebra.lapses import lapses
from ensue.algebra.pattern import Pattern
from ensue.algebra.policy import AfterMatch, SkipTo
from ensue.algebra.query import Limit, Query
from ensue.algebra.walk import positives
from ensue.semantics.arrangements import ways
from ensue.semantics.choosing import chosen as chosen_by
from ensue.semantics.conditions import is_true
from ensue.semantics.events import Binding, Event, members
from ensue.semantics.partition import Partition
from ensue.semantics.results import Fired


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


def rank(pattern: Pattern, binding: Binding) -> tuple[object, ...]:
    """The place of a match among others: by its last event, then by its members."""
    number = {atom.variable: k for k, atom in enumerate(positives(pattern))}
    bound = ((v, e) for v, es in binding.items() if v in number for e in es)
    steps = sorted((e.position, number[v]) for v, e in bound)
    return (steps[-1][0], steps)


def partitions(query: Query, events: Sequence[Event]) -> Iterator["Partition"]:
    """The events of each key; without `[attr]` all of them."""
    by_key: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        key = tuple(event.values.get(e.field_name) for e in query.equivalence)
        # NULL equals nothing, and NaN not even itself
        if all(value is not None and value == value for value in key):
            by_key.setdefault(key, []).append(event)
    for inside in by_key.values():
        yield Partition(query, inside)


def _skipping(after: AfterMatch, found: Iterable[Binding]) -> Iterator[Binding]:
    """Keeps a match only if it begins where the matches kept before it allow.

    `found` are in the order of their last event.
    """
    if after.by_start:
        found = sorted(found, key=lambda binding: members(binding)[0].position)
    earliest = -1
    for binding in found:
        inside = members(binding)
        if inside[0].position < earliest:
            continue
        yield binding
        target = binding.get(after.variable or "", ())
        match after.to:
            case SkipTo.PAST_LAST:
                earliest = inside[-1].position + 1
            case SkipTo.FIRST if target:
                earliest = max(target[0].position, inside[0].position + 1)
            case SkipTo.LAST if target:
                earliest = max(target[-1].position, inside[0].position + 1)
            case _:
                earliest = inside[0].position + 1
