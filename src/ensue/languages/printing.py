"""Algebra to text: the canonical spelling of a query, which parses back to the same query."""

from ensue.algebra.policy import Strategy
from ensue.algebra.query import Query
from ensue.algebra.text import (
    show_after,
    show_columns,
    show_condition,
    show_expr,
    show_name,
    show_pattern,
    show_window,
)
from ensue.algebra.walk import kleenes, positives


def show(query: Query) -> str:
    """The whole query, a clause a line."""
    lines = [f"PATTERN {show_pattern(query.pattern)}"]
    if query.name is not None:
        lines.insert(0, f"EVENT {show_name(query.name)} AS")
    lines += _where(query)
    if query.within is not None:
        lines.append(f"WITHIN {show_window(query.within)}")
    if query.after is not None:
        lines.append(f"AFTER MATCH SKIP {show_after(query.after)}")
    if query.returns or query.exists:
        lines.append("RETURN " + ", ".join(show_columns(query)))
    if query.having is not None:
        lines.append(f"HAVING {show_expr(query.having)}")
    if query.limit is not None:
        lines.append(f"LIMIT {query.limit.count}")
    return "\n".join(lines)


def _where(query: Query) -> list[str]:
    conditions = [show_condition(conjunct) for conjunct in query.where]
    if query.equivalence:
        fields = ", ".join(show_name(e.field_name) for e in query.equivalence)
        conditions.insert(0, f"[{fields}]")
    joined = "\n    and ".join(conditions)
    if query.strategy is Strategy.ANY:
        return [f"WHERE {joined}"] if joined else []
    lists = kleenes(query.pattern)
    members = ", ".join(
        show_name(atom.variable) + ("[]" if atom.variable in lists else "")
        for atom in positives(query.pattern)
    )
    head = f"WHERE {query.strategy.value}({members}) {{"
    return [head, f"    {joined}", "}"] if joined else [head + " }"]
