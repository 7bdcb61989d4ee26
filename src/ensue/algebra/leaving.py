"""When the loops of a pattern go on and when they end, event by event."""

from collections.abc import Iterable, Sequence

from ensue.algebra.pattern import Leave, Pattern
from ensue.algebra.residual import Loop, Step, end_of


def demanded(found: Sequence[Step], open_: Iterable[Loop]) -> list[Step]:
    """The steps that a run under skip-till-next-match may not pass over.

    As long as a loop is open, what ends it may be passed over, and what goes on with it may not.
    A reluctant loop holds nothing back. Without open loops every usable event is used.
    """
    holding = {loop for loop in open_ if loop.leave is not Leave.RELUCTANT}
    if not holding:
        return list(found)
    return [s for s in found if holding & {*s.inside} and not holding & {*s.left}]


def goes_on_longer(one: Step, other: Step) -> bool:
    """Whether a step goes on with a greedy loop that another one would end.

    Of the loops that go on with one and end with the other, the innermost with a will decides.
    """
    return _decides(one, other.left) is Leave.GREEDY or _begins(one, other) is Leave.GREEDY


def ends_sooner(one: Step, other: Step) -> bool:
    """Whether a step ends a reluctant loop that another one would go on with."""
    return _decides(other, one.left) is Leave.RELUCTANT or _begins(other, one) is Leave.RELUCTANT


def preferred(one: Step, other: Step) -> bool:
    """Whether a step bars another one with the same event."""
    return goes_on_longer(one, other) or ends_sooner(one, other)


def goes_on_at_the_end(step: Step, rest: Pattern) -> bool:
    """Whether a greedy loop takes this step although the match could end before it."""
    return goes_on_longer(step, end_of(rest))


def barred_by_the_end(step: Step, rest: Pattern) -> bool:
    """Whether a reluctant loop ends the match before this step."""
    return ends_sooner(end_of(rest), step)


def _begins(one: Step, other: Step) -> Leave:
    """The will of a loop that begins with one step and is left out with the other."""
    return next((loop.leave for loop in one.begins if loop in other.skips), Leave.FORK)


def _decides(step: Step, ended: Iterable[Loop]) -> Leave:
    """What says whether a step goes on with loops, or they rather end."""
    for loop in reversed(step.inside):
        if loop not in ended:
            continue
        # inside a time of its group a reluctant loop has nothing to say
        if loop.leave is Leave.GREEDY or (loop.leave is Leave.RELUCTANT and loop in step.again):
            return loop.leave
    return Leave.FORK
