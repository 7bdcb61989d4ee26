"""The variables that each row may be mapped to, as far as the row and its neighbours say."""

import numpy as np

from ensue.algebra.predicate import Aggregate, Expr, Field
from ensue.algebra.row_patterns.values import Navigation, RowValue
from ensue.columns.buffers import Bools, Ints
from ensue.columns.evaluate import evaluate
from ensue.columns.values import Vector, truth
from ensue.engine.row_patterns.partitions import Partitions
from ensue.kernels.row_patterns import mark
from ensue.plan.row_patterns.plan import RowPlan


def masks(plan: RowPlan, partitions: Partitions) -> Ints:
    """One bit for each variable of the pattern."""
    found = np.zeros(partitions.rows, np.int64)
    neighbours: dict[tuple[Expr, int], Vector] = {}
    for number, conditions in enumerate(plan.conditions):
        bit = np.int64(1 << number)
        held: Bools | None = None
        for condition in conditions.alone:
            here = truth(_values(condition, partitions, neighbours))
            held = here if held is None else held & here
        if held is None:
            found |= bit
        else:
            mark(held, found, bit)
    if plan.recognition.within is not None:
        time = partitions.vector(plan.recognition.order[0].expr)
        if time.valid is not None:
            found[~time.valid] = 0  # a row without a time is in no window
    return found


def _values(
    condition: RowValue, partitions: Partitions, neighbours: dict[tuple[Expr, int], Vector]
) -> Vector:
    def lookup(leaf: Field | Aggregate) -> Vector:
        assert isinstance(leaf, Field)
        reach = condition.reach(leaf)
        assert isinstance(reach, Navigation)
        what = reach.expr, reach.shift
        if what not in neighbours:
            neighbours[what] = partitions.shifted(partitions.vector(reach.expr), reach.shift)
        return neighbours[what]

    return evaluate(condition.expr, lookup, partitions.rows, partitions.unit)
