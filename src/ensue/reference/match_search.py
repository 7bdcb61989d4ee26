"""Finds matches: the bindings that a pattern allows and that satisfy all conditions."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.ir.query import Limit, Query
from ensue.ir.selection import AfterMatch, SkipTarget
from ensue.ir.traits import is_interval_negation
from ensue.reference.arrangements import list_bindings
from ensue.reference.conditions import Binding, Event, is_true, members
from ensue.reference.partition import Partition, rank_match, split_partitions
from ensue.reference.selection import choose_matches
from ensue.reference.timeout_search import find_timeouts
from ensue.reference.user_operators import RepeatResults


def find_matches(
    query: Query, events: Sequence[Event], fired: RepeatResults | None = None, most: int | None = None
) -> list[Binding]:
    """Returns all matches, in the order of their last event, then of their members.

    `fired` are the results of repeats, if earlier events influence them. More than `most` bindings
    in one partition raise TooManyBindings.
    """
    if query.unfinished:
        return find_timeouts(query, events, most)
    if is_interval_negation(query.pattern):
        return [] if is_absence_violated(query, events) else [{}]
    result: list[Binding] = []
    for partition in split_partitions(query, events):
        partition.fired, partition.most = fired, most
        bindings = [b for b in list_bindings(query.pattern, partition) if partition.accepts(b)]
        bindings.sort(key=lambda binding: rank_match(query.pattern, binding))
        if query.after is not None:
            bindings = list(_skip(query.after, bindings))
            bindings.sort(key=lambda binding: rank_match(query.pattern, binding))
        remaining = [b for b in bindings if query.having is None or is_true(query.having, b)]
        if query.choose is not None:
            remaining = choose_matches(query, remaining)
        result += remaining if query.limit is None else _limit(query.limit, remaining)
    return sorted(result, key=lambda binding: rank_match(query.pattern, binding))


def is_absence_violated(query: Query, events: Sequence[Event]) -> bool:
    """Whether an event occurred that a pattern of only an absence forbids."""
    partition, absences = Partition(query, events), iterate_interval_negations(query.pattern)
    return any(partition.within(negation, interval, {}) for negation, interval in absences)


def _limit(limit: Limit, matches_: Iterable[Binding]) -> Iterator[Binding]:
    """Yields the first matches of each last event, from matches in that order."""
    for _, same in groupby(matches_, key=lambda binding: members(binding)[-1].position):
        yield from islice(same, limit.count)


def _skip(after: AfterMatch, candidates: Iterable[Binding]) -> Iterator[Binding]:
    """Yields the matches that AFTER MATCH SKIP allows after the previous ones.

    The candidates are in the order of their last event.
    """
    if after.by_start:
        candidates = sorted(candidates, key=lambda binding: members(binding)[0].position)
    earliest = -1
    for binding in candidates:
        if members(binding)[0].position < earliest:
            continue
        yield binding
        begin = compute_next_start(after, binding)
        earliest = earliest if begin is None else begin


def compute_next_start(after: AfterMatch, binding: Binding) -> int | None:
    """Returns the position at which the next match may begin; None if this match skips nothing.

    `SKIP TO FIRST b` skips nothing after a match without `b`.
    """
    events = members(binding)
    second = events[0].position + 1
    match after.to:
        case SkipTarget.PAST_LAST:
            return events[-1].position + 1
        case SkipTarget.NEXT_EVENT:
            return second
        case SkipTarget.FIRST | SkipTarget.LAST:
            target = binding.get(after.variable or "", ())
            if not target:
                return None
            return max(second, target[0 if after.to is SkipTarget.FIRST else -1].position)


# ------------------------------------------------------------------ COUNT(*) and EXISTS

MAX_COUNT = 2**63 - 1  # counts saturate here


@dataclass(frozen=True, slots=True)
class MatchSummary:
    """The row of all matches that one event, their trigger, completes."""

    trigger: Event
    count: int
    start: int | float


def summarize_matches(query: Query, events: Sequence[Event]) -> list[MatchSummary]:
    """Returns one row for each trigger, in the order of the stream.

    `start` is the earliest start of its matches; for EXISTS the latest one, of the shortest match.
    """
    rows = []
    for _, same in groupby(find_matches(query, events), key=lambda b: members(b)[-1].position):
        bindings = list(same)
        trigger = members(bindings[0])[-1]
        starts = [min(e.start for e in members(binding)) for binding in bindings]
        start = max(starts) if query.exists else min(starts)
        rows.append(MatchSummary(trigger, min(len(bindings), MAX_COUNT), start))
    return rows
