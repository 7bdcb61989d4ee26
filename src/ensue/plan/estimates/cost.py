"""What it costs to try a combination of events: C = C_Q + P_Q * C_F + C_Z, in comparisons.

The names are those of the operator model (Q decides, F builds, Z gives the result its type; Z is
settled when the plan is made and costs nothing). A comparison costs 1; the other figures are
ratios to it, as compiled kernels show them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ensue.algebra.predicate import (
    Aggregate,
    Between,
    Binary,
    Call,
    Expr,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.algebra.walk import operands
from ensue.plan.estimates.statistics import Statistics

COMPARE = 1.0  # n: one comparison
FETCH = 0.5  # u: one field of an event
NEW = 10.0  # j: a partial match made from another
PUSH = 5.0  # an event kept on a stack
VISIT = 3.0  # going from one run to the next
STEP = 8.0  # going from one instance on a stack to the next: they lie further apart
EMIT = 20.0  # a finished match
CALL = 5.0  # a function

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Trial:
    """A conjunct: what trying it costs, and the chance that it holds."""

    cost: float
    chance: float

    @property
    def rank(self) -> float:
        """Tests are tried in ascending order of this: many refused for little cost come first."""
        return (self.chance - 1) / self.cost if self.cost > 0 else float("-inf")


def condition_cost(expr: Expr) -> float:
    """What it costs to try a condition once, in comparisons.

    >>> condition_cost(Binary("<", Field("a", "x"), Field("b", "x")))
    2.0
    """
    inside = sum(map(condition_cost, operands(expr)))
    match expr:
        case Literal():
            return 0.0
        case Field():
            return FETCH
        case Aggregate():
            return FETCH  # a register that is kept up to date
        case Call() | Like():
            return CALL + inside
        case In(options=options):
            return COMPARE * len(options) + inside
        case Between():
            return 2 * COMPARE + inside
        case IsNull() | Unary() | Binary():
            return COMPARE + inside


def trial_of(condition: Expr, statistics: Statistics) -> Trial:
    """A condition as a test."""
    return Trial(max(condition_cost(condition), COMPARE), statistics.pass_of(condition))


def trying(tests: Iterable[Trial]) -> Trial:
    """Several tests in their order as one: the first that fails ends the trying (6, 7).

    >>> trying([Trial(1, 0.5), Trial(2, 0.1)])
    Trial(cost=2.0, chance=0.05)
    """
    cost, chance = 0.0, 1.0
    for test in tests:
        cost += chance * test.cost
        chance *= test.chance
    return Trial(cost, chance)


def cheapest_first(items: Sequence[Item], test: Callable[[Item], Trial]) -> tuple[Item, ...]:
    """The order that costs least (rule 1): by ascending (P - 1) / C; ties stay as written."""
    return tuple(sorted(items, key=lambda item: test(item).rank))


def node_cost(time: Trial, attributes: Trial, build: float = NEW) -> float:
    """One combination at an operator (5, 9): the time part, the conditions, and what passes."""
    tried = trying((time, attributes))
    return tried.cost + tried.chance * build
