"""Evaluates CHOOSE: selects among the matches with the same last event."""

from collections.abc import Collection, Iterable
from functools import partial
from itertools import groupby
from math import inf

from ensue.analyzer.derivatives import continues_past_end, derive_all, derive_steps
from ensue.ir.pattern import Pattern
from ensue.ir.query import Query
from ensue.ir.selection import CONTIGUOUS, ByTime, ByUnits, MatchChoice
from ensue.ir.traits import (
    forbids_next_event,
    get_parts,
    is_negation,
    is_optional,
    is_positional_negation,
    is_sequence,
    precedes_then,
)
from ensue.ir.traversal import ends_greedily, iterate_positive_atoms
from ensue.reference.conditions import Binding, compute_certain_time, members

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
    ends = [rest for rest in rests if is_optional(rest)]
    continuing = [s for rest in ends for s in derive_steps(rest) if continues_past_end(s, rest)]
    return all((step.how or query.strategy) in CONTIGUOUS for step in continuing)


def _absent_at_the_end(pattern: Pattern, bound: Collection[str], *, neighbour: bool = True) -> bool:
    """Whether the pattern ends with an absence; `neighbour`: also one of the next event."""
    if is_negation(pattern):
        return False

    def is_bound(part: Pattern) -> bool:
        return any(atom.variable in bound for atom in iterate_positive_atoms(part))

    if is_sequence(pattern) and is_bound(pattern):
        inner = get_parts(pattern)
        for k, part in reversed([*enumerate(inner)]):
            if forbids_next_event(part):
                if neighbour:
                    return True
            elif is_positional_negation(part) and not precedes_then(inner[k + 1 :]):
                return True
            if is_bound(part):
                return _absent_at_the_end(part, bound, neighbour=neighbour)
    return any(_absent_at_the_end(part, bound, neighbour=neighbour) for part in get_parts(pattern))
