"""Clauses that are joined with archives, as SQL that is read as the same."""

from ensue.algebra.correlation import AnySide, ClauseSide, Correlation, JoinKind
from ensue.algebra.predicate import Expr, Field
from ensue.languages.row_patterns.scalar_text import show_name, show_scalar
from ensue.languages.row_patterns.text import show_clause

_WORDS = {JoinKind.INNER: "JOIN", JoinKind.LEFT: "LEFT JOIN", JoinKind.ANTI: "ANTI JOIN"}


def show_joined(correlation: Correlation) -> str:
    """The query in its one spelling."""
    named = {returned.name: returned.expr for returned in correlation.returns}
    columns = correlation.columns if correlation.columns is not None else tuple(named)
    shown = [
        f"{_expr(named[name])} AS {show_name(name)}" if name in named else name for name in columns
    ]
    lines = ["SELECT " + ", ".join(shown), f"FROM {_side(correlation.live, 'live')}"]
    for join in correlation.joins:
        on = " AND ".join(f"({_expr(part)})" for part in join.on)
        lines.append(f"{_WORDS[join.kind]} {_side(join.query, join.archive)} ON {on}")
    if correlation.having is not None:
        lines.append(f"WHERE {_expr(correlation.having)}")
    return "\n".join(lines)


def _side(side: AnySide, table: str) -> str:
    assert isinstance(side, ClauseSide), "both sides are clauses"
    return f"{show_name(table)} {show_clause(side.recognition)} AS {show_name(side.alias)}"


def _expr(expr: Expr) -> str:
    return str(show_scalar(expr, _leaf))


def _leaf(field: Field) -> str:
    return f"{show_name(field.variable)}.{show_name(str(field.name))}"
