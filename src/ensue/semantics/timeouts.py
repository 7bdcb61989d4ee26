"""Timed-out partial matches: runs that got somewhere, and then waited until their window was over.

A partial match is a beginning of a match: events for the first variables of the pattern that break
no condition, as far as they can tell, and that the strategy allows. It is timed out if events are
missing, none came that takes it further, and none that a negation in its way forbids.

Where parts say how they follow, it is timed out if one of the parts that it waits for could still
have come: by what THEN says of the gap before that part, whatever other parts took.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ensue.algebra.form import is_absence, is_sequence, optional, parts
from ensue.algebra.pattern import Pattern
from ensue.algebra.query import Query
from ensue.algebra.residual import readings
from ensue.algebra.residual import steps as steps_of
from ensue.algebra.walk import atoms, positives, variables
from ensue.semantics.events import Binding, Event, members
from ensue.semantics.partition import Partition, Scope, TooManyWays, partitions, rank, scopes

Steps = list[tuple[str, Event]]


def timeouts(query: Query, events: Sequence[Event], most: int | None = None) -> list[Binding]:
    """All timed-out partial matches, in the order of their last event, then of their members.

    AFTER MATCH and HAVING speak of matches only. With `most` it gives up where there are more
    partial matches than that in one partition.
    """
    found: list[Binding] = []
    plain = replace(query, after=None, having=None, choose=None, unfinished=False)
    for partition in partitions(plain, events):
        for number, steps in enumerate(_partial(partition, [])):
            if most is not None and number >= most:
                raise TooManyWays(steps[-1][1].position)
            if _over(partition, steps):
                found.append(_bound(steps))
    return sorted(found, key=lambda binding: rank(query.pattern, binding))


def _bound(steps: Steps) -> Binding:
    binding: Binding = {}
    for variable, event in steps:
        binding[variable] = (*binding.get(variable, ()), event)
    return binding


def _partial(partition: Partition, steps: Steps) -> Iterator[Steps]:
    """All ways to go on from here; what breaks a condition now will not mend it later."""
    for longer in _further(partition, steps):
        if partition.following.chosen(_bound(longer)):
            yield longer
            yield from _partial(partition, longer)


def _further(partition: Partition, steps: Steps) -> Iterator[Steps]:
    """The partial matches with one event more."""
    runs = readings(partition.query.pattern, tuple(v for v, _ in steps))
    for variable in dict.fromkeys(step.variable for run in runs for step in steps_of(run)):
        for event in partition.events:
            longer = [*steps, (variable, event)]
            later = not steps or event.position > steps[-1][1].position
            if later and partition.following.goes_on(longer):
                yield longer


def _over(partition: Partition, steps: Steps) -> bool:
    """Whether events are missing, and one of them could still have come."""
    return any(
        _waits(partition, run, steps) for run in partition.following.runs(steps, ended=True)
    )


def _waits(partition: Partition, run: Pattern, steps: Steps) -> bool:
    """Whether events are missing that could still have come."""
    if optional(run) or _begun_wrongly(partition, run, _bound(steps)):
        return False
    forbidden = _forbidden(partition, run, _bound(steps))
    return any(
        partition.following.waits(run, steps, step) and not (forbidden and step.how is None)
        for step in steps_of(run)
    )


def _forbidden(partition: Partition, rest: Pattern, binding: Binding) -> bool:
    """Whether an event came that a negation before the next required part forbids."""
    after = members(binding)
    for part in parts(rest) if is_sequence(rest) else (rest,):
        if is_absence(part) and partition.occurs(Scope(part, after, []), binding):
            return True
        if not optional(part):
            return False
    return False


def _begun_wrongly(partition: Partition, rest: Pattern, binding: Binding) -> bool:
    """Whether a negation at the start of the pattern forbids what came before its first event.

    It looks back over the window that ends at the last event so far.
    """
    missing = {a.variable for a in positives(rest)} - binding.keys()
    return any(
        partition.occurs(scope, binding)
        for scope in scopes(partition.query.pattern, binding)
        if not scope.after and scope.before and _known(partition, scope, missing)
    )


def _known(partition: Partition, scope: Scope, missing: set[str]) -> bool:
    """Whether it is clear by now which events a negation forbids."""
    negated = {a.variable for a in atoms(scope.negation)}
    return not any(
        variables(c) & negated and variables(c) & missing for c in partition.query.where
    )
