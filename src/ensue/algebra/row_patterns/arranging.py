"""The rows of an aggregate as it asks for them: in an order of its own, each value once."""

from collections.abc import Sequence
from functools import cmp_to_key

from ensue.algebra.row_patterns.values import RowAggregate
from ensue.algebra.values import compare

Values = tuple[object, ...]


def arranged(
    aggregate: RowAggregate, values: Sequence[Values], keys: Sequence[Values]
) -> list[Values]:
    """The arguments of the rows; `keys` are the values of ORDER BY inside the aggregate.

    >>> arranged(RowAggregate("sum", distinct=True), [(1,), (2,), (1,)], [(), (), ()])
    [(1,), (2,)]
    """
    found = list(values)
    if aggregate.order:

        def order(a: tuple[Values, Values], b: tuple[Values, Values]) -> int:
            return _order(aggregate, a[0], b[0])

        pairs = sorted(zip(keys, values, strict=True), key=cmp_to_key(order))
        found = [value for _, value in pairs]
    if not aggregate.distinct:
        return found
    kept: list[Values] = []
    for value in found:
        if not any(_same(value, other) for other in kept):
            kept.append(value)
    return kept


def _order(aggregate: RowAggregate, left: Values, right: Values) -> int:
    for by, a, b in zip(aggregate.order, left, right, strict=True):
        if a is None or b is None:
            if a is b:
                continue
            return -1 if (a is None) == by.nulls_first else 1
        if compare("=", a, b):
            continue
        less = bool(compare("<", a, b))
        return -1 if less != by.descending else 1
    return 0


def _same(left: Values, right: Values) -> bool:
    return all(
        a is b if a is None or b is None else bool(compare("=", a, b)) or (a != a and b != b)
        for a, b in zip(left, right, strict=True)
    )
