"""Operators as data: how parts of a pattern become one result.

The operator paper's S = (Q, F, Z): Q says which parts fit together, F when the result starts and
ends, Z what it holds. Conditions of the query are no operators: they join the Q of the node they
are tried at. A node of a join tree knows its operator by this description alone, so that a user's
operator is planned and compiled like a built-in one.
"""

from dataclasses import dataclass
from enum import Enum

from ensue.plan.estimates.cost import COMPARE, FETCH, NEW
from ensue.schema import Kind


class Order(Enum):
    """The time part of Q: how the parts stand to each other."""

    BEFORE = "before"  # every event of the left part is before every event of the right one
    APART = "apart"  # in any order, as long as no event is in both
    ONE = "one"  # there is one part only, or one of several


@dataclass(frozen=True, slots=True)
class Argument:
    """What a function is told: a value of one of the parts."""

    side: int  # 0: the left or only part, 1: the right one
    name: str  # "start", "end", or a field of the part's event


@dataclass(frozen=True, slots=True)
class Function:
    """A function that kernels call.

    `text` defines `name`: it becomes part of the kernel's source, so it must stand alone. A value
    that is missing is no value to call it with: Q is then false.
    """

    name: str
    text: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A value of the result, which conditions higher up may name."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Operator:
    """S = (Q, F, Z), with what each costs for one combination of parts, in comparisons.

    A node costs C_Q + P_Q * C_F + C_Z for each of them (`plan/estimates/cost.py`).
    """

    name: str
    order: Order  # Q: the time part
    fits: Function | None = None  # Q: what else must hold; the query's conditions come on top
    # F gives (start, end, *attributes); None: from the first start to the last end
    builds: Function | None = None
    attributes: tuple[Attribute, ...] = ()  # Z: beside the events of the parts
    # whether F gives these very times anyway: the first start, the last end
    keeps: tuple[bool, bool] = (False, False)
    remembers: bool = False  # unary: the left side of its Q is the event before, and its result
    q_cost: float = 0.0  # C_Q without the conditions
    f_cost: float = 2 * COMPARE + NEW  # C_F
    z_cost: float = 0.0  # C_Z: the types are known before the first event comes
    passes: float = 1.0  # how likely the time part holds

    @property
    def natural(self) -> bool:
        """Whether a result lasts from its first event's start to its last event's end."""
        return self.starts_naturally and self.ends_naturally

    @property
    def starts_naturally(self) -> bool:
        return self.builds is None or self.keeps[0]

    @property
    def ends_naturally(self) -> bool:
        return self.builds is None or self.keeps[1]


SEQUENCE = Operator("sequence", Order.BEFORE, q_cost=COMPARE + 2 * FETCH, passes=0.5)
CONJUNCTION = Operator("conjunction", Order.APART)
DISJUNCTION = Operator("disjunction", Order.ONE, f_cost=0.0)
NEGATION = Operator("negation", Order.BEFORE, q_cost=COMPARE + 2 * FETCH, f_cost=0.0, passes=0.5)
KLEENE = Operator("Kleene", Order.BEFORE, q_cost=COMPARE + 2 * FETCH, passes=0.5)
WINDOW = Operator("window", Order.ONE, q_cost=COMPARE + 2 * FETCH, f_cost=0.0)
FILTER = Operator("filter", Order.ONE, f_cost=0.0)

BUILT_IN = (SEQUENCE, CONJUNCTION, DISJUNCTION, NEGATION, KLEENE, WINDOW, FILTER)

CONDITION = COMPARE + 2 * FETCH  # what a comparison of two fields costs
