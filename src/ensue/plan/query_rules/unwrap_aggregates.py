"""Replaces aggregates over one event by the event's value."""

from dataclasses import replace

from ensue.algebra.predicate import Aggregate, At, Expr, Field, Literal
from ensue.algebra.query import Query
from ensue.algebra.walk import rewrite_expr
from ensue.plan.physical_rules.bound import always_bound

SAME = ("avg", "sum", "min", "max", "first", "last", "percentile")


def unwrap_aggregates(query: Query) -> Query:
    """`avg(b.rate) < 128` of a plain variable `b` is `b.rate < 128`, and `count(b)` is 1."""
    singles = always_bound(query.pattern, kleene=False)

    def unwrap(node: Expr) -> Expr:
        if not isinstance(node, Aggregate) or node.variable not in singles:
            return node
        if node.argument is not None and node.function in SAME:
            return rewrite_expr(node.argument, _only)
        if node.argument is None and node.function == "count":
            return Literal(1, node.span)
        return node

    return replace(query, where=tuple(rewrite_expr(c, unwrap) for c in query.where))


def _only(node: Expr) -> Expr:
    return replace(node, at=At.ONLY) if isinstance(node, Field) else node
