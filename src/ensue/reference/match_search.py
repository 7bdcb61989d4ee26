"""Finds matches, the bindings that a pattern allows and that satisfy all conditions, and timed-out partial matches."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, islice
from math import inf

from ensue.analyzer.derivatives import continues_past_end, derive_all, derive_steps
from ensue.analyzer.interval_negation import iterate_interval_negations
from ensue.ir import traits
from ensue.ir.pattern import Pattern
from ensue.ir.query import Limit, Query
from ensue.ir.selection import CONTIGUOUS, AfterMatch, ByTime, ByUnits, MatchChoice, SkipTarget
from ensue.ir.traversal import ends_greedily, get_variables, iterate_atoms, iterate_positive_atoms
from ensue.reference.arrangements import list_bindings
from ensue.reference.conditions import Binding, Event, compute_certain_time, is_true, members
from ensue.reference.contiguity import RunEvents, bind
from ensue.reference.partition import (
    NegationScope,
    Partition,
    TooManyBindings,
    find_scopes,
    rank_match,
    split_partitions,
)
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
    if traits.is_interval_negation(query.pattern):
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


# --- COUNT(*) and EXISTS

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


# --- CHOOSE: the selection among the matches with the same last event

# A time, whether it must be over, and the position of the last event.
CertaintyKey = tuple[int | float, bool, int]


def choose_matches(query: Query, candidates: Iterable[Binding], used: int = -1) -> list[Binding]:
    """Returns the matches of one partition that CHOOSE selects, in the order of their certainty.

    Of the matches that become certain at the same time with the same last event, the one with the
    newest members is selected: compared from the newest to the oldest, and longer ones win. With
    ONCE, a match must begin after `used`, the last event of the previously selected match.
    """
    assert query.choose is not None
    once = query.choose.choice is MatchChoice.ONCE
    selected: list[Binding] = []
    certainty = partial(compute_certainty, query)
    for (_, _, last), group in groupby(sorted(candidates, key=certainty), key=certainty):
        remaining = [b for b in group if not once or members(b)[0].position > used]
        if remaining:
            selected.append(max(remaining, key=compute_newness))
            used = last
    return selected


def compute_newness(binding: Binding) -> list[int]:
    """Returns positions from the newest to the oldest; greater means newer."""
    return [event.position for event in reversed(members(binding))]


def compute_certainty(query: Query, binding: Binding) -> CertaintyKey:
    """Returns when a match is certain: at its last event or the end of a window or interval."""
    events = members(binding)
    last = events[-1]
    moments = [(last.end, False)]
    interval_end = compute_certain_time(query.pattern, binding)
    if interval_end is not None and interval_end >= last.end:
        moments.append((interval_end, True))  # an event of that time may still arrive
    if query.unfinished or must_wait(query.pattern, binding):
        match query.within:
            case ByTime(nanoseconds=length) | ByUnits(amount=length):
                moments.append((min(e.start for e in events) + length, True))
            case None:
                moments.append((inf, True))  # at the end of the stream
            case _:
                raise ValueError("the end of a window of events is not a time")
    return *max(moments), last.position


def must_wait(pattern: Pattern, bound: Collection[str]) -> bool:
    """Whether a match of these variables is decided only at the end of its window."""
    return _absent_at_the_end(pattern, bound) or ends_greedily(pattern, bound)


def is_decided_by_neighbour(query: Query, binding: Binding) -> bool:
    """Whether the next event of its partition decides a pending match.

    This holds if only `THEN` restricts later events: `A a THEN !B b`, `A a THEN (B b THEN)++`.
    """
    if _absent_at_the_end(query.pattern, binding, neighbour=False):
        return False
    bound = sorted((e.position, v) for v, events in binding.items() for e in events)
    rests = derive_all(query.pattern, tuple(variable for _, variable in bound))
    ends = [rest for rest in rests if traits.is_optional(rest)]
    continuing = [s for rest in ends for s in derive_steps(rest) if continues_past_end(s, rest)]
    return all((step.how or query.strategy) in CONTIGUOUS for step in continuing)


def _absent_at_the_end(pattern: Pattern, bound: Collection[str], *, neighbour: bool = True) -> bool:
    """Whether the pattern ends with an absence; `neighbour`: also one of the next event."""
    if traits.is_negation(pattern):
        return False

    def is_bound(part: Pattern) -> bool:
        return any(atom.variable in bound for atom in iterate_positive_atoms(part))

    if traits.is_sequence(pattern) and is_bound(pattern):
        inner = traits.get_parts(pattern)
        for k, part in reversed([*enumerate(inner)]):
            if traits.forbids_next_event(part):
                if neighbour:
                    return True
            elif traits.is_positional_negation(part) and not traits.precedes_then(inner[k + 1 :]):
                return True
            if is_bound(part):
                return _absent_at_the_end(part, bound, neighbour=neighbour)
    return any(_absent_at_the_end(part, bound, neighbour=neighbour) for part in traits.get_parts(pattern))


# --- timed-out partial matches: runs that waited for events until their window ended
#
# A partial match is a prefix of a match: events for the first variables of the pattern that violate no condition so
# far, and that the strategy allows. It times out if events are missing, no event advanced it, and no negation forbids
# an event in its gap. With THEN, it times out if one of the next parts was still possible under the strategy of that
# part, whatever other parts took.


def find_timeouts(query: Query, events: Sequence[Event], most: int | None = None) -> list[Binding]:
    """Returns all timed-out partial matches, in the order of their last event, then members.

    AFTER MATCH and HAVING apply to matches only. More than `most` partial matches in one partition
    raise TooManyBindings.
    """
    result: list[Binding] = []
    plain = replace(query, after=None, having=None, choose=None, unfinished=False)
    for partition in split_partitions(plain, events):
        for number, steps in enumerate(_partial(partition, [])):
            if most is not None and number >= most:
                raise TooManyBindings(steps[-1][1].position)
            runs = partition.contiguity.runs(steps, ended=True)
            if any(_can_wait(partition, run, steps) for run in runs):
                result.append(bind(steps))
    return sorted(result, key=lambda binding: rank_match(query.pattern, binding))


def _partial(partition: Partition, steps: RunEvents) -> Iterator[RunEvents]:
    """Yields all extensions of a partial match; a violated condition stays violated."""
    for longer in _extend(partition, steps):
        if partition.contiguity.allows(bind(longer)):
            yield longer
            yield from _partial(partition, longer)


def _extend(partition: Partition, steps: RunEvents) -> Iterator[RunEvents]:
    """Yields the partial matches with one more event."""
    runs = derive_all(partition.query.pattern, tuple(v for v, _ in steps))
    for variable in dict.fromkeys(step.variable for run in runs for step in derive_steps(run)):
        for event in partition.events:
            longer = [*steps, (variable, event)]
            is_later = not steps or event.position > steps[-1][1].position
            if is_later and partition.contiguity.can_begin(longer):
                yield longer


def _can_wait(partition: Partition, run: Pattern, steps: RunEvents) -> bool:
    """Whether missing events were still possible."""
    if traits.is_optional(run) or _starts_after_negation(partition, run, bind(steps)):
        return False
    forbidden = _forbidden(partition, run, bind(steps))
    possible = (step for step in derive_steps(run) if not (forbidden and step.how is None))
    return any(partition.contiguity.can_wait(run, steps, step) for step in possible)


def _forbidden(partition: Partition, rest: Pattern, binding: Binding) -> bool:
    """Whether an event occurred that a negation before the next required part forbids."""
    after = members(binding)
    for part in traits.get_parts(rest) if traits.is_sequence(rest) else (rest,):
        if traits.is_negation(part) and partition.occurs(NegationScope(part, after, []), binding):
            return True
        if not traits.is_optional(part):
            return False
    return False


def _starts_after_negation(partition: Partition, rest: Pattern, binding: Binding) -> bool:
    """Whether a negation at the start of the pattern forbids an event before the first one.

    It looks back over the window that ends at the last event so far.
    """
    missing = {a.variable for a in iterate_positive_atoms(rest)} - binding.keys()
    return any(
        partition.occurs(scope, binding)
        for scope in find_scopes(partition.query.pattern, binding)
        if not scope.after and scope.before and _is_known(partition, scope, missing)
    )


def _is_known(partition: Partition, scope: NegationScope, missing: set[str]) -> bool:
    """Whether no missing variable affects which events a negation forbids."""
    negated = {a.variable for a in iterate_atoms(scope.negation)}
    used = map(get_variables, partition.query.where)
    return not any(variables & negated and variables & missing for variables in used)
