"""Cost of evaluating a combination of events: C = C_Q + P_Q * C_F + C_Z, in comparisons.

The names are those of the operator model (Q decides, F builds, Z is the result type, which the
planner resolves, so it costs nothing). A comparison costs 1; the other constants are ratios to it,
as measured in compiled kernels.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ensue.ir.expression import (
    Aggregate,
    Between,
    Binary,
    Expr,
    FieldRef,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.ir.traversal import get_operands
from ensue.planner.statistics import Statistics

COMPARE = 1.0  # n: one comparison
FETCH = 0.5  # u: one field of an event
NEW = 10.0  # j: a partial match derived from another
PUSH = 5.0  # an event pushed on a stack
VISIT = 3.0  # the step from one run to the next
STEP = 8.0  # the step from one instance on a stack to the next: they lie further apart
EMIT = 20.0  # an emitted match
CALL = 5.0  # a function

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class PredicateCost:
    """Cost of evaluating a conjunct, and the probability that it holds."""

    cost: float
    chance: float

    @property
    def rank(self) -> float:
        """Predicates are evaluated in ascending order of rank: cheap selective ones first."""
        return (self.chance - 1) / self.cost if self.cost > 0 else float("-inf")


def compute_condition_cost(expr: Expr) -> float:
    """Cost of evaluating a condition once, in comparisons."""
    inside = sum(map(compute_condition_cost, get_operands(expr)))
    match expr:
        case Literal():
            return 0.0
        case FieldRef():
            return FETCH
        case Aggregate():
            return FETCH  # a register that the kernel updates
        case FunctionCall() | Like():
            return CALL + inside
        case In(options=options):
            return COMPARE * len(options) + inside
        case Between():
            return 2 * COMPARE + inside
        case IsNull() | Unary() | Binary():
            return COMPARE + inside


def estimate_predicate(condition: Expr, statistics: Statistics) -> PredicateCost:
    """Cost and selectivity of a condition."""
    return PredicateCost(max(compute_condition_cost(condition), COMPARE), statistics.get_selectivity(condition))


def combine_costs(tests: Iterable[PredicateCost]) -> PredicateCost:
    """Combines predicates in their order: the first that fails ends the evaluation (6, 7)."""
    cost, chance = 0.0, 1.0
    for predicate in tests:
        cost += chance * predicate.cost
        chance *= predicate.chance
    return PredicateCost(cost, chance)


def order_by_rank(items: Sequence[Item], test: Callable[[Item], PredicateCost]) -> tuple[Item, ...]:
    """The cheapest order (rule 1): by ascending (P - 1) / C; ties keep the order as written."""
    return tuple(sorted(items, key=lambda item: test(item).rank))


def compute_node_cost(time: PredicateCost, attributes: PredicateCost, build: float = NEW) -> float:
    """Cost of one combination at an operator (5, 9): the time, the conditions, the result."""
    combined = combine_costs((time, attributes))
    return combined.cost + combined.chance * build
