"""Aggregates over the rows of a match, one record each."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cmp_to_key, partial, reduce

from ensue.functions.interpreter import compute_aggregate
from ensue.ir.row_pattern import RowAggregate
from ensue.ir.values import compare, is_preferred, to_number
from ensue.schema import ValueKind

Rows = Sequence[tuple[object, ...]]  # the argument values of each row

_WITHOUT_ORDER = (ValueKind.OTHER, ValueKind.PLACE)


@dataclass(frozen=True, slots=True)
class RowAggregateFunction:
    """An aggregate over rows.

    `kind` derives the kind of the result from the kinds of the arguments; None if it does not
    accept them. `meaning` computes it over the ordered rows; None stands for NULL.
    """

    name: str
    takes: int
    kind: Callable[[Sequence[ValueKind]], ValueKind | None]
    meaning: Callable[[Rows], object]
    aliases: tuple[str, ...] = ()
    optional: int = 0
    constants: tuple[int, ...] = ()  # positions of constant arguments: separator, percentage


# --- kinds


def _number(kinds: Sequence[ValueKind]) -> ValueKind | None:
    return ValueKind.FLOAT if kinds[0].numeric or kinds[0] is ValueKind.NULL else None


def _sum(kinds: Sequence[ValueKind]) -> ValueKind | None:
    if kinds[0] in (ValueKind.INTEGER, ValueKind.DURATION, ValueKind.NULL):
        return kinds[0]
    return _number(kinds)


def _check_ordered(kinds: Sequence[ValueKind]) -> ValueKind | None:
    """Returns the kind of the first argument, if the last one has an order."""
    return None if kinds[-1] in _WITHOUT_ORDER else kinds[0]


def _truth(kinds: Sequence[ValueKind]) -> ValueKind | None:
    return ValueKind.BOOLEAN if kinds[0] in (ValueKind.BOOLEAN, ValueKind.NULL) else None


def _text(kinds: Sequence[ValueKind]) -> ValueKind | None:
    return ValueKind.STRING if all(k in (ValueKind.STRING, ValueKind.NULL) for k in kinds) else None


# --- implementations


def _count(rows: Rows) -> int:
    return sum(not row or row[0] is not None for row in rows)


def _plain(name: str, parameter: float | None = None) -> Callable[[Rows], object]:
    """Implements an aggregate over rows by the one of the same name over events."""
    return lambda rows: compute_aggregate(name, [row[0] for row in rows], parameter)


def _percent(rows: Rows) -> object:
    values = [row[0] for row in rows]
    return compute_aggregate("percentile", values, float(to_number(rows[0][1]))) if rows else None


def _concat_texts(rows: Rows) -> object:
    separator = str(rows[0][1]) if rows and len(rows[0]) > 1 and rows[0][1] is not None else ""
    return compute_aggregate("string_agg", [row[0] for row in rows], separator)


def _best_by(side: str) -> Callable[[Rows], object]:
    def best_by(rows: Rows) -> object:
        known = [row for row in rows if row[1] is not None]
        better = reduce(lambda a, b: b if is_preferred(side, b[1], a[1]) else a, known or [()])
        return better[0] if better else None

    return best_by


def _collect_list(rows: Rows) -> list[object] | None:
    return [row[0] for row in rows] if rows else None


ROW_AGGREGATES = (
    RowAggregateFunction("count", 0, lambda _: ValueKind.INTEGER, _count, optional=1),
    RowAggregateFunction("sum", 1, _sum, _plain("sum")),
    RowAggregateFunction(
        "avg", 1, lambda kinds: kinds[0] if kinds[0] is ValueKind.DURATION else _number(kinds), _plain("avg"), ("mean",)
    ),
    RowAggregateFunction("min", 1, _check_ordered, _plain("min")),
    RowAggregateFunction("max", 1, _check_ordered, _plain("max")),
    RowAggregateFunction("any_value", 1, lambda kinds: kinds[0], _plain("any_value"), ("arbitrary",)),
    RowAggregateFunction("array_agg", 1, lambda _: ValueKind.OTHER, _collect_list, ("collect_list", "list")),
    RowAggregateFunction(
        "string_agg", 1, _text, _concat_texts, ("listagg", "group_concat"), optional=1, constants=(1,)
    ),
    RowAggregateFunction("max_by", 2, _check_ordered, _best_by("max"), ("arg_max", "argmax")),
    RowAggregateFunction("min_by", 2, _check_ordered, _best_by("min"), ("arg_min", "argmin")),
    RowAggregateFunction("stddev", 1, _number, _plain("stddev"), ("stddev_samp",)),
    RowAggregateFunction("stddev_pop", 1, _number, _plain("stddev_pop")),
    RowAggregateFunction("variance", 1, _number, _plain("variance"), ("var_samp",)),
    RowAggregateFunction("var_pop", 1, _number, _plain("var_pop")),
    RowAggregateFunction("median", 1, _number, _plain("percentile", 50.0)),
    RowAggregateFunction(
        "percentile", 2, lambda kinds: _number(kinds) if kinds[1].numeric else None, _percent, constants=(1,)
    ),
    RowAggregateFunction("mode", 1, _check_ordered, _plain("mode")),
    RowAggregateFunction("product", 1, _number, _plain("product")),
    RowAggregateFunction("bool_and", 1, _truth, _plain("bool_and"), ("every", "logical_and")),
    RowAggregateFunction("bool_or", 1, _truth, _plain("bool_or"), ("some", "logical_or")),
)


_BY_NAME = {name: f for f in ROW_AGGREGATES for name in (f.name, *f.aliases)}


def find_row_aggregate(written: str) -> RowAggregateFunction | None:
    """Finds an aggregate by its lower-case name or alias; None if there is none.

    >>> find_row_aggregate("listagg").name, find_row_aggregate("upper") is None
    ('string_agg', True)
    """
    return _BY_NAME.get(written)


def compute_row_aggregate(function: str, rows: Rows) -> object:
    """Computes an aggregate over the argument values of ordered rows.

    NULLs are skipped, except by array_agg. Over no rows, count is 0 and the others are NULL.

    >>> compute_row_aggregate("max_by", [("a", 1), ("b", 3), ("c", None)])
    'b'
    """
    return _BY_NAME[function].meaning(rows)


# --- ORDER BY and DISTINCT inside an aggregate

Values = tuple[object, ...]


def order_and_deduplicate(aggregate: RowAggregate, values: Sequence[Values], keys: Sequence[Values]) -> list[Values]:
    """Sorts the arguments of rows by `keys`, the values of ORDER BY, and applies DISTINCT.

    >>> order_and_deduplicate(RowAggregate("sum", distinct=True), [(1,), (2,), (1,)], [(), (), ()])
    [(1,), (2,)]
    """
    ordered = list(values)
    if aggregate.order:
        order = cmp_to_key(partial(_order, aggregate))
        pairs = sorted(zip(keys, values, strict=True), key=lambda pair: order(pair[0]))
        ordered = [value for _, value in pairs]
    if not aggregate.distinct:
        return ordered
    distinct: list[Values] = []
    for value in ordered:
        if not any(_is_same(value, other) for other in distinct):
            distinct.append(value)
    return distinct


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


def _is_same(left: Values, right: Values) -> bool:
    return all(
        a is b if a is None or b is None else bool(compare("=", a, b)) or (a != a and b != b)
        for a, b in zip(left, right, strict=True)
    )
