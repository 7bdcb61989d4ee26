"""When a condition can first be tried: predicates go to the earliest place."""

from dataclasses import dataclass

from ensue.algebra.predicate import Aggregate, At, Expr, Field
from ensue.algebra.walk import references, variables
from ensue.plan.physical import Check

MOVING = (At.CURRENT, At.PREVIOUS, At.BEFORE, At.THROUGH)


@dataclass(frozen=True, slots=True)
class Moment:
    """What a run knows at some point: the variables with events, and those that may get more."""

    bound: frozenset[str]
    waiting: frozenset[str]

    def settled(self, variable: str) -> bool:
        return variable not in self.waiting


def moving_variable(condition: Expr) -> str | None:
    """The Kleene variable whose `[i]` the condition speaks of."""
    return next((r.variable for r in references(condition) if r.at in MOVING), None)


def from_the_second(condition: Expr) -> bool:
    """Whether the condition needs an element before the current one."""
    return any(r.at in (At.PREVIOUS, At.BEFORE) for r in references(condition))


def ready(condition: Expr, moment: Moment, kleene: frozenset[str]) -> bool:
    """Whether nothing that comes later can change what the condition says."""
    return all(_decided(ref, moment, kleene) for ref in references(condition))


def _decided(ref: Field | Aggregate, moment: Moment, kleene: frozenset[str]) -> bool:
    if ref.at in MOVING or moment.settled(ref.variable):
        return True
    early = ref.variable not in kleene or (
        isinstance(ref, Field) and ref.at is At.NTH and ref.nth == 1
    )
    return early and ref.variable in moment.bound


def applies(condition: Expr, moment: Moment) -> bool:
    """Whether every variable it mentions outside aggregates is bound."""
    return all(
        ref.variable in moment.bound for ref in references(condition) if isinstance(ref, Field)
    )


def checks_on_the_way(
    conditions: tuple[Expr, ...],
    before: Moment,
    after: Moment,
    variable: str,
    kleene: frozenset[str],
) -> tuple[Check, ...]:
    """The conditions to try when an event for `variable` takes a run to its next moment."""
    found: list[Check] = []
    for condition in conditions:
        if not ready(condition, after, kleene) or not applies(condition, after):
            continue
        moving = moving_variable(condition)
        if moving is None:
            if not ready(condition, before, kleene):
                found.append(Check(condition))
        elif moving == variable:
            if variable in before.bound or not from_the_second(condition):
                found.append(Check(condition, moving))
        elif not ready(condition, before, kleene) or not applies(condition, before):
            found.append(Check(condition, moving, each=True))
    return tuple(found)


def checks_at_the_end(
    conditions: tuple[Expr, ...], moment: Moment, kleene: frozenset[str]
) -> tuple[Check, ...]:
    """The conditions that only the end of the match decides."""
    return tuple(
        Check(condition, moving_variable(condition), moving_variable(condition) is not None)
        for condition in conditions
        if not ready(condition, moment, kleene) and applies(condition, moment)
    )


def checks_late(conditions: tuple[Expr, ...], moment: Moment) -> tuple[Check, ...]:
    """Conditions that could have been tried before, all at the end of the match."""
    return tuple(
        Check(condition, moving, moving is not None)
        for condition in conditions
        if applies(condition, moment)
        for moving in [moving_variable(condition)]
    )


def can_be_late(condition: Expr) -> bool:
    """Whether the end of the match can still judge a condition: not what runs hold only once."""
    return not any(r.at in (At.BEFORE, At.THROUGH) for r in references(condition))


def unary(condition: Expr, kleene: frozenset[str]) -> tuple[str, bool] | None:
    """(variable, first only) of a condition that one event alone decides."""
    names = variables(condition)
    if len(names) != 1:
        return None
    (variable,) = names
    refs = list(references(condition))
    if not all(isinstance(r, Field) for r in refs):
        return None  # an aggregate also says something of a match without the variable
    if variable not in kleene or all(r.at is At.CURRENT for r in refs):
        return (variable, False)
    if all(isinstance(r, Field) and r.at is At.NTH and r.nth == 1 for r in refs):
        return (variable, True)
    return None
