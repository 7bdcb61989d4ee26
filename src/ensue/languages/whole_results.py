"""What RETURN, GROUP BY, ORDER BY and the first n rows say of a whole result."""

from collections.abc import Sequence
from typing import Any

from lark import Token

from ensue.algebra.predicate import Expr
from ensue.algebra.query import Returned, SortKey, WholeResult
from ensue.errors import QueryError
from ensue.languages.clauses import limit_of
from ensue.languages.expressions import Node, expr_of, pieces, span_of


def columns_of(returning: Node | None) -> tuple[list[Node], Token | None, Token | None]:
    """The columns behind RETURN, and its words TOTAL and ALL EVENTS, where they stand."""
    if returning is None:
        return [], None, None
    if returning.data == "returning_events":
        return [], None, pieces(returning)[0]
    total, *columns, labelled = pieces(returning)
    return columns, total, labelled


def whole_of(
    returns: Sequence[Returned],
    total: Token | None,
    grouping: Node | None,
    ordering: Node | None,
    limit: Node | None,
) -> WholeResult | None:
    """What is done with all rows of a result; None: nothing."""
    if total is not None and grouping is not None:
        raise QueryError(
            "TOTAL takes all matches together, and GROUP BY makes groups of them",
            hint="leave one of them out",
            span=span_of(grouping),
        )
    keys: tuple[Expr, ...] | None = () if total is not None else None
    if grouping is not None:
        keys = _keys(grouping, returns)
    order = tuple(sort_key_of(node) for node in pieces(ordering)) if ordering else ()
    first = None
    if limit is not None and (limit.data == "fetch" or order or keys is not None):
        first = limit_of(limit).count
        if first < 1:
            raise QueryError("at least 1 row is to be returned", span=span_of(limit))
    if keys is None and not order and first is None:
        return None
    places: list[Any] = [part for part in (total, grouping, ordering, limit) if part is not None]
    return WholeResult(keys, order, first, span_of(places[0]))


def _keys(grouping: Node, returns: Sequence[Returned]) -> tuple[Expr, ...]:
    match grouping.data:
        case "one_group":
            return ()
        case "all_groups":  # as DuckDB and Spark have it: by all columns that are no aggregates
            return tuple(column.expr for column in returns if column.over is None)
        case _:
            return tuple(expr_of(key) for key in pieces(grouping))


def sort_key_of(node: Node) -> SortKey:
    """What rows are ordered by, and how."""
    expression, direction, nulls = pieces(node)
    return SortKey(
        expr_of(expression),
        direction is not None and direction.upper() == "DESC",
        nulls is not None and nulls.upper().endswith("FIRST"),
        span_of(node),
    )
