"""Predicate pushdown: the earliest point of a run at which a condition can be evaluated."""

from dataclasses import dataclass

from ensue.ir.expression import Aggregate, EventPosition, Expr, FieldRef
from ensue.ir.traversal import get_variables, iterate_references
from ensue.planner.physical_plan import ConditionCheck

MOVING = (EventPosition.CURRENT, EventPosition.PREVIOUS, EventPosition.BEFORE, EventPosition.THROUGH)


@dataclass(frozen=True, slots=True)
class BindingState:
    """A point of a run: its bound variables, and those that may get more events."""

    bound: frozenset[str]
    waiting: frozenset[str]


def get_moving_variable(condition: Expr) -> str | None:
    """The Kleene variable whose `[i]` the condition reads."""
    return next((r.variable for r in iterate_references(condition) if r.at in MOVING), None)


def needs_previous_element(condition: Expr) -> bool:
    """Whether the condition reads an element before the current one."""
    return any(r.at in (EventPosition.PREVIOUS, EventPosition.BEFORE) for r in iterate_references(condition))


def is_decided(condition: Expr, moment: BindingState, kleene: frozenset[str]) -> bool:
    """Whether no later event can change the result of the condition."""
    return all(_is_decided(ref, moment, kleene) for ref in iterate_references(condition))


def _is_decided(ref: FieldRef | Aggregate, moment: BindingState, kleene: frozenset[str]) -> bool:
    if ref.at in MOVING or ref.variable not in moment.waiting:
        return True
    early = ref.variable not in kleene or (isinstance(ref, FieldRef) and ref.at is EventPosition.NTH and ref.nth == 1)
    return early and ref.variable in moment.bound


def is_applicable(condition: Expr, moment: BindingState) -> bool:
    """Whether every variable it reads outside aggregates is bound."""
    return all(ref.variable in moment.bound for ref in iterate_references(condition) if isinstance(ref, FieldRef))


def find_edge_checks(
    conditions: tuple[Expr, ...], before: BindingState, after: BindingState, variable: str, kleene: frozenset[str]
) -> tuple[ConditionCheck, ...]:
    """The conditions to evaluate when an event of `variable` moves a run to its next point."""
    checks: list[ConditionCheck] = []
    for condition in conditions:
        if not is_decided(condition, after, kleene) or not is_applicable(condition, after):
            continue
        moving = get_moving_variable(condition)
        if moving is None:
            if not is_decided(condition, before, kleene):
                checks.append(ConditionCheck(condition))
        elif moving == variable:
            if variable in before.bound or not needs_previous_element(condition):
                checks.append(ConditionCheck(condition, moving))
        elif not is_decided(condition, before, kleene) or not is_applicable(condition, before):
            checks.append(ConditionCheck(condition, moving, each=True))
    return tuple(checks)


def find_end_checks(
    conditions: tuple[Expr, ...], moment: BindingState, kleene: frozenset[str]
) -> tuple[ConditionCheck, ...]:
    """The conditions that only the end of the match decides."""
    undecided = tuple(c for c in conditions if not is_decided(c, moment, kleene))
    return find_late_checks(undecided, moment)


def find_late_checks(conditions: tuple[Expr, ...], moment: BindingState) -> tuple[ConditionCheck, ...]:
    """Evaluates conditions at the end of the match that could be evaluated earlier."""
    applicable = [c for c in conditions if is_applicable(c, moment)]
    moving = map(get_moving_variable, applicable)
    return tuple(ConditionCheck(c, v, v is not None) for c, v in zip(applicable, moving, strict=True))


def can_defer(condition: Expr) -> bool:
    """Whether the end of the match can evaluate a condition: runs do not store all values."""
    return not any(r.at in (EventPosition.BEFORE, EventPosition.THROUGH) for r in iterate_references(condition))


def get_unary_variable(condition: Expr, kleene: frozenset[str]) -> tuple[str, bool] | None:
    """(variable, first only) of a condition that reads a single event."""
    names = get_variables(condition)
    if len(names) != 1:
        return None
    (variable,) = names
    refs = list(iterate_references(condition))
    if not all(isinstance(r, FieldRef) for r in refs):
        return None  # an aggregate also has a value for a match without the variable
    if variable not in kleene or all(r.at is EventPosition.CURRENT for r in refs):
        return (variable, False)
    if all(isinstance(r, FieldRef) and r.at is EventPosition.NTH and r.nth == 1 for r in refs):
        return (variable, True)
    return None
