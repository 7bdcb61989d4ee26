"""Explains the plan of a MATCH_RECOGNIZE clause, with its kernel."""

from datetime import timedelta

import pyarrow as pa

from ensue.codegen.row_pattern_conditions import build_kernel
from ensue.codegen.row_pattern_search import write_row_search
from ensue.engine.row_match.predicates import ConditionKernels
from ensue.ir.expression import Expr
from ensue.ir.row_pattern import RowExpression, RowPatternQuery
from ensue.ir.values import format_duration
from ensue.operators.row_match.compiled_clause import compile_clause
from ensue.options import Limits
from ensue.planner.explain.row_pattern_text import ClauseTexts, draw_row_pattern, explain_row_pattern
from ensue.planner.row_pattern_plan import RowPatternPlan
from ensue.printing.expression_printer import format_scalar, format_sql_name
from ensue.printing.sql_printer import format_row_expression, format_row_pattern
from ensue.runtime.query_spec import ArchiveSet, RunOptions
from ensue.runtime.source_schema import SourceSchema


class RowPatternExplainer:
    """Explains a clause, with the columns of its table if they are known."""

    types = None  # rows of every type matter

    def __init__(
        self, query: RowPatternQuery, source: SourceSchema | None, _options: RunOptions, _archive_set: ArchiveSet
    ) -> None:
        self._source = source
        self._query = query
        if source is None:
            self._plan = RowPatternPlan(query, {})
        else:
            self._clause = compile_clause(query, source.arrow, Limits(), ids=False, session=source.zone)
            self._plan = self._clause.plan

    def explain(self) -> str:
        """Returns the plan as text."""
        return explain_row_pattern(self._plan, self._texts(), compiled=self._has_kernel())

    def analyze(self, ordered: pa.Table) -> str:
        """Returns the plan with the figures of a run over complete rows."""
        result = self._clause.match_complete(ordered)
        return f"{self.explain()}\n\n{result.num_rows:,} result rows from {ordered.num_rows:,} rows"

    def kernels(self) -> str:
        """Returns the source of the kernel."""
        if self._plan.is_decided_by_rows:
            return write_row_search()
        kernel = None
        if self._source is not None:
            kernel = build_kernel(self._plan, self._source.shape.unit, nullable=True)
        return "no kernel supports its conditions" if kernel is None else kernel.text

    def picture(self) -> str:
        """Draws the pattern as a tree, with the conditions of its variables."""
        return draw_row_pattern(self._plan, self._texts())

    def _has_kernel(self) -> bool | None:
        if self._source is None or self._plan.is_decided_by_rows:
            return None
        return any(True for _ in ConditionKernels(self._plan).iterate_kernels(self._source.shape.unit))

    def _texts(self) -> ClauseTexts:
        plan, subsets = self._plan, self._query.subsets

        def shown(values: tuple[RowExpression, ...]) -> tuple[str, ...]:
            return tuple(format_row_expression(value, subsets) for value in values)

        def named(expr: Expr) -> str:
            return format_scalar(expr, lambda field: format_sql_name(str(field.name)))

        within = self._query.within
        return ClauseTexts(
            format_row_pattern(self._query.pattern),
            tuple(named(key.expr) for key in self._query.partition),
            tuple(named(by.expr) + (" DESC" if by.descending else "") for by in self._query.order),
            None if within is None else _length(within),
            tuple(shown(conditions.alone) for conditions in plan.conditions),
            tuple(shown(conditions.matched) for conditions in plan.conditions),
        )


def _length(within: timedelta | float) -> str:
    if isinstance(within, timedelta):
        return format_duration(within // timedelta(microseconds=1) * 1_000)
    return repr(within)
