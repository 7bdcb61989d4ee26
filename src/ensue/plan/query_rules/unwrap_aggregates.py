"""Replaces aggregates over one event by the event's value."""

from dataclasses import replace

from ensue.algebra.predicate import Aggregate, At, Expr, Field
from ensue.algebra.query import Query
from ensue.algebra.walk import rewrite_expr
from ensue.plan.physical_rules.bound import always_bound

SAME = ("avg", "sum", "min", "max", "first", "last", "percentile")


def unwrap_aggregates(query: Query) -> Query:
    """`WHERE avg(b.rate) < 128` of a plain variable `b` is `WHERE b.rate < 128`."""
    singles = always_bound(query.pattern, kleene=False)

    def unwrap(node: Expr) -> Expr:
        if (
            isinstance(node, Aggregate)
            and node.variable in singles
            and node.function in SAME
            and node.argument is not None
        ):
            return rewrite_expr(node.argument, _only)
        return node

    return replace(query, where=tuple(rewrite_expr(c, unwrap) for c in query.where))


def _only(node: Expr) -> Expr:
    return replace(node, at=At.ONLY) if isinstance(node, Field) else node
