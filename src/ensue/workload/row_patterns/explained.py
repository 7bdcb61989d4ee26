"""How a clause is run: its plan in words, with its kernel."""

from datetime import timedelta

import pyarrow as pa

from ensue.algebra.durations import show_duration
from ensue.algebra.predicate import Expr
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.row_patterns.values import RowValue
from ensue.engine.row_patterns.judging import Judges
from ensue.languages.row_patterns.scalar_text import show_name, show_scalar
from ensue.languages.row_patterns.text import show_pattern, show_value
from ensue.plan.limits import Limits
from ensue.plan.row_patterns.plan import RowPlan
from ensue.plan.show.explain_row_patterns import ClauseWords, explained_clause
from ensue.plan.show.picture_row_patterns import picture_clause
from ensue.source.row_pattern_conditions import kernel_of
from ensue.source.row_patterns import search_text
from ensue.workload.row_patterns.clause import prepared
from ensue.workload.source import Source


class ExplainedClause:
    """A clause that is looked at, with the columns of its table if they are known."""

    types = None  # rows of every type matter

    def __init__(self, asked: Recognition, source: Source | None) -> None:
        self._source = source
        self._asked = asked
        if source is None:
            self._plan = RowPlan(asked, {})
        else:
            clause = prepared(asked, source.arrow, Limits(), ids=False, session=source.zone)
            self._plan, self._clause = clause.plan, clause

    def told(self) -> str:
        """The plan in words."""
        return explained_clause(self._plan, self._words(), compiled=self._compiled())

    def analysed(self, ordered: pa.Table) -> str:
        """The same, with what was counted in rows that are all there."""
        found = self._clause.whole(ordered)
        return f"{self.told()}\n\nof {ordered.num_rows:,} rows it makes {found.num_rows:,}"

    def kernels(self) -> str:
        """The source of its kernel."""
        if self._plan.decided_by_rows:
            return search_text()
        judged = None
        if self._source is not None:
            judged = kernel_of(self._plan, self._source.shape.unit, nullable=True)
        return "no kernel takes its conditions" if judged is None else judged.text

    def picture(self) -> str:
        """Its pattern as a tree, and the conditions of its variables."""
        return picture_clause(self._plan, self._words())

    def _compiled(self) -> bool | None:
        if self._source is None or self._plan.decided_by_rows:
            return None
        return any(True for _ in Judges(self._plan).of(self._source.shape.unit))

    def _words(self) -> ClauseWords:
        plan, subsets = self._plan, self._asked.subsets

        def shown(values: tuple[RowValue, ...]) -> tuple[str, ...]:
            return tuple(show_value(value, subsets) for value in values)

        def named(expr: Expr) -> str:
            return show_scalar(expr, lambda field: show_name(str(field.name)))

        within = self._asked.within
        return ClauseWords(
            show_pattern(self._asked.pattern),
            tuple(named(key.expr) for key in self._asked.partition),
            tuple(named(by.expr) + (" DESC" if by.descending else "") for by in self._asked.order),
            None if within is None else _length(within),
            tuple(shown(conditions.alone) for conditions in plan.conditions),
            tuple(shown(conditions.matched) for conditions in plan.conditions),
        )


def _length(within: timedelta | float) -> str:
    if isinstance(within, timedelta):
        return show_duration(within // timedelta(microseconds=1) * 1_000)
    return repr(within)
