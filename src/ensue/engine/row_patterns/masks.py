"""The variables that each row may be mapped to, as far as the row and its neighbours say."""

import numpy as np

from ensue.algebra.predicate import Aggregate, Expr, Field
from ensue.algebra.row_patterns.values import Navigation, RowValue
from ensue.columns.evaluate import evaluate
from ensue.columns.values import Vector, truth
from ensue.engine.row_patterns.partitions import Partitions
from ensue.kernels.row_patterns import Masks, forbid
from ensue.plan.row_patterns.plan import RowPlan

_IN_A_BYTE = 8  # variables


def masks(plan: RowPlan, partitions: Partitions) -> Masks:
    """One bit for each variable of the pattern."""
    variables = len(plan.conditions)
    every = (1 << variables) - 1
    found: Masks
    if variables <= _IN_A_BYTE:
        found = np.full(partitions.rows, every, np.uint8)
    else:
        found = np.full(partitions.rows, every, np.int64)
    conditions = [(n, value) for n, c in enumerate(plan.conditions) for value in c.alone]
    # what looks at one row is judged as rows stand in the table: then only bits change places
    of_one_row = [(n, value) for n, value in conditions if not _looks_around(value)]
    if of_one_row:
        _forbid(of_one_row, partitions.as_they_stand, found)
        if partitions.order is not None:
            found = found[partitions.order]
    _forbid([(n, value) for n, value in conditions if _looks_around(value)], partitions, found)
    if plan.recognition.within is not None:
        time = partitions.vector(plan.recognition.order[0].expr)
        if time.valid is not None:
            found[~time.valid] = 0  # a row without a time is in no window
    return found


def _looks_around(condition: RowValue) -> bool:
    return any(isinstance(reach, Navigation) and reach.shift for reach in condition.reaches)


def _forbid(conditions: list[tuple[int, RowValue]], partitions: Partitions, found: Masks) -> None:
    """Takes variables from the rows for which their conditions do not hold."""
    neighbours: dict[tuple[Expr, int], Vector] = {}
    for number, condition in conditions:
        held = truth(_values(condition, partitions, neighbours))
        forbid(held, found, found.dtype.type(1 << number))


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
