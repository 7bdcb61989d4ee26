"""All shapes of join trees of a query's pattern."""

from collections.abc import Iterator
from itertools import combinations, product

from ensue.ir.pattern import Pattern
from ensue.ir.query import Query
from ensue.ir.traits import NodeForm, get_form, get_positive_parts
from ensue.planner.capabilities import get_leaf_variable, is_leaf
from ensue.planner.planner_options import Shape


def shapes(query: Query) -> Iterator[Shape]:
    """Every shape of a join tree: neighbours of a sequence, any parts of an AND."""
    return _shapes(query.pattern)


def _shapes(pattern: Pattern) -> Iterator[Shape]:
    if is_leaf(pattern):
        yield get_leaf_variable(pattern)
    else:
        # the inputs of an operator stay in their order
        in_order = get_form(pattern) is not NodeForm.TOGETHER
        yield from _join(get_positive_parts(pattern), in_order=in_order)


def _join(parts: list[Pattern], *, in_order: bool) -> Iterator[Shape]:
    if len(parts) == 1:
        yield from _shapes(parts[0])
        return
    for left, right in _split(parts, in_order):
        lefts, rights = (list(_join(side, in_order=in_order)) for side in (left, right))
        yield from product(lefts, rights)


def _split(parts: list[Pattern], in_order: bool) -> Iterator[tuple[list[Pattern], list[Pattern]]]:
    places = range(len(parts))
    if in_order:
        yield from ((parts[:k], parts[k:]) for k in places[1:])
        return
    for size in range(len(parts) - 1):
        for others in combinations(places[1:], size):  # the first part stays on the left
            left = [parts[0], *(parts[k] for k in others)]
            yield left, [parts[k] for k in places[1:] if k not in others]
