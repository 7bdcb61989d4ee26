"""Checks what a query says of its whole result: GROUP BY, ORDER BY, TOTAL, ALL EVENTS."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from ensue.algebra.answers import is_tally, summarised
from ensue.algebra.correlation import Correlation
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.query import Query, Returned, SortKey, WholeResult
from ensue.algebra.text import asked_text, show_expr
from ensue.errors import QueryError, did_you_mean

STANDARD = ("match_id", "start", "end", "location")
LABELS = ("variable", "position", "index")  # of a row of ALL EVENTS
Asked = TypeVar("Asked", bound=Query | Correlation)
Normal = Callable[[Expr], Expr]


def check_labels(query: Query) -> None:
    """Raises a QueryError where ALL EVENTS cannot be combined with the rest of a query."""
    if not query.all_events:
        return
    if summarised(query):
        shown = "EXISTS" if query.exists else "COUNT(*)"
        raise QueryError(
            f"ALL EVENTS gives a row for each event of a match, and {shown} none for a match",
            hint="leave one of them out",
            span=query.returns[0].span if query.returns else None,
        )
    if query.whole is not None:
        raise QueryError(
            "ALL EVENTS cannot be combined with GROUP BY, ORDER BY or FETCH FIRST",
            hint="leave one of them out; rows of ALL EVENTS come in the order of time",
            span=query.whole.span,
        )
    for column in query.returns:
        if column.name in LABELS:
            raise QueryError(
                f"a column cannot be called '{column.name}' here: ALL EVENTS has one of that name",
                hint="rename it with AS",
                span=column.span,
            )


def checked_whole(query: Asked, normal: Normal) -> Asked:
    """The query with its keys as names of columns, where they are columns.

    `normal` gives an expression of ORDER BY that is no column in its normal form.
    """
    whole = query.whole
    if whole is None:
        return query
    if isinstance(query, Query) and query.exists:
        raise QueryError(
            "EXISTS cannot be combined with clauses about the whole result",
            hint="RETURN TOTAL COUNT(*) tells how many matches there are",
            span=whole.span,
        )
    if query.limit is not None:
        raise QueryError(
            "LIMIT keeps the first matches of each last event, and cannot be combined with "
            "ORDER BY and GROUP BY",
            hint="FETCH FIRST n ROWS ONLY keeps the first rows of the whole result",
            span=query.limit.span,
        )
    if whole.grouped:
        _check_groups(query.returns, whole)
    keys = None
    if whole.keys is not None:
        keys = tuple(_column(key, query.returns) or key for key in whole.keys)
    order = tuple(_sorted(key, query.returns, whole, normal) for key in whole.order)
    return replace(query, whole=replace(whole, keys=keys, order=order))


def _check_groups(returns: Sequence[Returned], whole: WholeResult) -> None:
    assert whole.keys is not None
    if not returns:
        raise QueryError(
            "GROUP BY needs RETURN: what do you want to know about each group?",
            hint="as in RETURN a.symbol AS symbol, COUNT(*) AS n GROUP BY symbol",
            span=whole.span,
        )
    names = set()
    for key in whole.keys:
        column = _column(key, returns)
        if column is None:
            raise QueryError(
                "GROUP BY takes columns of RETURN, and this is not one",
                hint=_hint(key, returns) or f"add it: RETURN {show_expr(key)} AS name, ...",
                span=key.span,
            )
        names.add(column.variable)
    for returned in returns:
        if returned.every:
            raise QueryError(
                "a group has no events of its own",
                hint="name the columns: keys of GROUP BY, and aggregates over matches",
                span=returned.span,
            )
        if (returned.over is None) == (returned.name in names):
            continue
        if returned.over is not None:
            raise QueryError(
                f"'{returned.name}' is computed over the matches of a group, and cannot define "
                "groups",
                hint="leave it out of GROUP BY",
                span=whole.span,
            )
        raise QueryError(
            f"'{returned.name}' differs between the matches of a group",
            hint="add it to GROUP BY, or take an aggregate over matches, as in "
            f"max({show_expr(returned.expr)})",
            span=returned.span,
        )


def _sorted(
    key: SortKey, returns: Sequence[Returned], whole: WholeResult, normal: Normal
) -> SortKey:
    found = _column(key.expr, returns, () if whole.grouped else STANDARD)
    if found is not None:
        return replace(key, expr=found)
    bare = isinstance(key.expr, Field) and key.expr.name is None
    if not whole.grouped and not is_tally(key.expr) and not bare:
        return replace(key, expr=normal(key.expr))
    raise QueryError(
        f"ORDER BY takes columns of the result, and '{show_expr(key.expr)}' is none",
        hint=_hint(key.expr, returns) or "name the column with AS in RETURN",
        span=key.span,
    )


def _column(expr: Expr, returns: Sequence[Returned], others: Sequence[str] = ()) -> Field | None:
    """The column that a key is: by its name, or by what it says."""
    names = [column.name for column in returns]
    known = (*names, *others)
    if isinstance(expr, Field) and expr == Field(expr.variable, None) and expr.variable in known:
        return Field(expr.variable, None, span=expr.span)
    shown = "COUNT(*)" if is_tally(expr) else show_expr(expr)
    for column in returns:
        if not column.every and shown == asked_text(column):
            return Field(column.name, None, span=expr.span)
    return None


def _hint(expr: Expr, returns: Sequence[Returned]) -> str | None:
    return did_you_mean(show_expr(expr), [column.name for column in returns])
