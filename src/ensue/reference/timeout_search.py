"""Finds timed-out partial matches: runs that waited for events until their window ended.

A partial match is a prefix of a match: events for the first variables of the pattern that violate
no condition so far, and that the strategy allows. It times out if events are missing, no event
advanced it, and no negation forbids an event in its gap.

With THEN, it times out if one of the next parts was still possible under the strategy of that
part, whatever other parts took.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ensue.analyzer.derivatives import derive_all, derive_steps
from ensue.ir.pattern import Pattern
from ensue.ir.query import Query
from ensue.ir.traits import get_parts, is_negation, is_optional, is_sequence
from ensue.ir.traversal import get_variables, iterate_atoms, iterate_positive_atoms
from ensue.reference.conditions import Binding, Event, members
from ensue.reference.contiguity import RunEvents, bind
from ensue.reference.partition import (
    NegationScope,
    Partition,
    TooManyBindings,
    find_scopes,
    rank_match,
    split_partitions,
)


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
    if is_optional(run) or _starts_after_negation(partition, run, bind(steps)):
        return False
    forbidden = _forbidden(partition, run, bind(steps))
    possible = (step for step in derive_steps(run) if not (forbidden and step.how is None))
    return any(partition.contiguity.can_wait(run, steps, step) for step in possible)


def _forbidden(partition: Partition, rest: Pattern, binding: Binding) -> bool:
    """Whether an event occurred that a negation before the next required part forbids."""
    after = members(binding)
    for part in get_parts(rest) if is_sequence(rest) else (rest,):
        if is_negation(part) and partition.occurs(NegationScope(part, after, []), binding):
            return True
        if not is_optional(part):
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
