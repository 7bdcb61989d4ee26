"""CHOOSE: which of the matches with one last event are kept."""

from collections.abc import Collection, Iterable
from itertools import groupby
from math import inf

from ensue.algebra.form import (
    bars_next,
    guards_entry,
    is_absence,
    is_sequence,
    optional,
    parts,
    stands,
)
from ensue.algebra.leaving import goes_on_at_the_end
from ensue.algebra.pattern import Pattern
from ensue.algebra.policy import CONTIGUOUS, Choice
from ensue.algebra.query import Query
from ensue.algebra.residual import readings, steps
from ensue.algebra.walk import ends_greedily, positives
from ensue.algebra.window import ByTime, ByUnits
from ensue.semantics.events import Binding, members
from ensue.semantics.lapses import over_after

# A moment, whether it has to be over, and the position of the last event.
Known = tuple[int | float, bool, int]


def chosen(query: Query, found: Iterable[Binding], used: int = -1) -> list[Binding]:
    """The matches of one partition that CHOOSE leaves, in the order they are known.

    Those known at the same moment with the same last event are a group, of which the one with the
    newest members is kept: compared from the newest to the oldest, and what has more of them wins.
    With ONCE, a match counts only if it begins behind `used`, the last event of the match kept
    before it.
    """
    assert query.choose is not None
    once = query.choose.choice is Choice.ONCE
    kept: list[Binding] = []
    ordered = sorted(found, key=lambda binding: known(query, binding))
    for (_, _, last), group in groupby(ordered, key=lambda binding: known(query, binding)):
        left = [b for b in group if not once or members(b)[0].position > used]
        if left:
            kept.append(max(left, key=newest))
            used = last
    return kept


def newest(binding: Binding) -> list[int]:
    """Positions from the newest to the oldest: the greater, the newer."""
    return [event.position for event in reversed(members(binding))]


def known(query: Query, binding: Binding) -> Known:
    """When a match is certain: with its last event, or when a window or an interval is over."""
    inside = members(binding)
    last = inside[-1]
    moments = [(last.end, False)]
    until = over_after(query.pattern, binding)
    if until is not None and until >= last.end:  # an event of that time may still come
        moments.append((until, True))
    if query.unfinished or waits(query.pattern, binding):
        match query.within:
            case ByTime(nanoseconds=length) | ByUnits(amount=length):
                moments.append((min(e.start for e in inside) + length, True))
            case None:
                moments.append((inf, True))  # when there are no more events
            case _:
                raise ValueError("the end of a window of events is not a moment")
    return *max(moments), last.position


def waits(pattern: Pattern, bound: Collection[str]) -> bool:
    """Whether a match of these variables is only decided when its window is over.

    >>> from ensue.algebra.pattern import Atom, Not, Or, Seq
    >>> absence = Seq((Atom("A", "a"), Not(Atom("B", "b"))))
    >>> pattern = Or((absence, Atom("C", "c")))
    >>> waits(pattern, {"a"}), waits(pattern, {"c"})
    (True, False)
    """
    return _absent_at_the_end(pattern, bound) or ends_greedily(pattern, bound)


def is_decided_by_neighbour(query: Query, binding: Binding) -> bool:
    """Whether the next event of its partition decides a match that waits.

    This holds where only `THEN` speaks of later events: `A a THEN !B b`, `A a THEN (B b THEN)++`.
    """
    if _absent_at_the_end(query.pattern, binding, neighbour=False):
        return False
    bound = sorted((e.position, v) for v, events in binding.items() for e in events)
    rests = readings(query.pattern, tuple(variable for _, variable in bound))
    ends = [rest for rest in rests if optional(rest)]
    going = [s for rest in ends for s in steps(rest) if goes_on_at_the_end(s, rest)]
    return all((step.how or query.strategy) in CONTIGUOUS for step in going)


def _absent_at_the_end(
    pattern: Pattern, bound: Collection[str], *, neighbour: bool = True
) -> bool:
    """`neighbour`: what the very next event must not be counts too."""
    if is_absence(pattern):
        return False

    def is_bound(part: Pattern) -> bool:
        return any(atom.variable in bound for atom in positives(part))

    if is_sequence(pattern) and is_bound(pattern):
        inner = parts(pattern)
        for k, part in reversed([*enumerate(inner)]):
            if bars_next(part):
                if neighbour:
                    return True
            elif stands(part) and not guards_entry(inner[k + 1 :]):
                return True
            if is_bound(part):
                return _absent_at_the_end(part, bound, neighbour=neighbour)
    return any(_absent_at_the_end(part, bound, neighbour=neighbour) for part in parts(pattern))
