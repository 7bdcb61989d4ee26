"""Separates GROUP BY, ORDER BY, TOTAL and FETCH FIRST from queries."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ensue.errors import QueryError
from ensue.ir.hierarchy import Hierarchy
from ensue.printing.expression_printer import format_name
from ensue.printing.pattern_printer import format_result_modifiers
from ensue.runtime.query_spec import QuerySpec, name_query_in_errors

if TYPE_CHECKING:
    from ensue.analyzer.output_mode import ResultAggregation, ResultColumn
    from ensue.planner.explain.plan_node import PlanNode


def split_result_modifiers(
    specs: Sequence[QuerySpec], *, emit_timeouts: bool = False
) -> "tuple[tuple[QuerySpec, ...], dict[int, ResultAggregation]]":
    """Queries without result modifiers, and the modifiers by query number."""
    stripped, finishing = [], {}
    for spec in specs:
        query, last = strip_result_modifiers(spec.query)
        if last is not None:
            finishing[spec.number] = last
            if emit_timeouts and last.whole.grouped:
                raise QueryError(
                    "ensue.OutputOptions(emit_timeouts=True) cannot be combined with GROUP BY and TOTAL: "
                    "partial matches would be counted as matches",
                    hint="leave one of them out",
                )
        stripped.append(replace(spec, query=query))
    return tuple(stripped), finishing


def strip_result_modifiers(query: Any) -> "tuple[Any, ResultAggregation | None]":
    """A query without result modifiers, and the modifiers."""
    if query.whole is None:
        return query, None
    from ensue.analyzer.output_mode import split_result_modifiers

    if isinstance(query, Hierarchy):
        inside, last = split_result_modifiers(query.query)
        return replace(query, query=inside), last
    return split_result_modifiers(query)


def describe_result_modifiers(finishing: "ResultAggregation") -> "PlanNode":
    """Describes the result modifiers, for EXPLAIN."""
    from ensue.planner.explain.plan_node import PlanNode, Shape

    lines = []
    if finishing.whole.grouped:
        shown = ", ".join(_describe_column(column) for column in finishing.columns)
        lines.append(f"RETURN {shown}")
    if finishing.whole.keys == ():
        lines.append("TOTAL: all matches are one group")
    lines += format_result_modifiers(finishing.whole)
    if finishing.counts is not None:
        lines.append("the matches of each last event are counted, not listed, and added up")
    return PlanNode("whole result", lines=tuple(lines), shape=Shape.REMARKS)


def _describe_column(column: "ResultColumn") -> str:
    if column.over is None:
        return format_name(column.name)
    inside = "*" if column.over.function == "count" else column.source.strip()
    return f"{column.over.function}({inside}) AS {format_name(column.name)}"


def require_finite_result(specs: Iterable[QuerySpec]) -> None:
    """Raises a QueryError for result modifiers in a stream."""
    for spec in specs:
        if spec.query.whole is not None:
            with name_query_in_errors(spec.name):
                raise QueryError(
                    "GROUP BY, ORDER BY, TOTAL and FETCH FIRST are about a whole result, and that "
                    "of a stream never ends",
                    hint="write the matches to a table (ensue.start), and ask that table: "
                    "spark.read, DuckDB, or ensue.sql",
                    span=spec.query.whole.span,
                    text=spec.query.text,
                )
