"""Describes how a MATCH_RECOGNIZE clause runs: its conditions, its automaton, and the length of its matches."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from ensue.cached import cached_property
from ensue.codegen.row_pattern_conditions import build_kernel
from ensue.codegen.row_pattern_search import write_row_search
from ensue.engine.row_match.predicates import ConditionKernels
from ensue.ir.row_pattern import (
    Alternation,
    Concatenation,
    EmptyRowPattern,
    Exclusion,
    Permutation,
    Repetition,
    RowExpression,
    RowSkipTarget,
    RowTerm,
    RowVariable,
    get_term_parts,
)
from ensue.ir.values import format_duration
from ensue.operators.row_match.compiled_clause import CompiledClause
from ensue.options import format_count
from ensue.planner.explain.plan_node import PlanNode, Shape
from ensue.planner.row_pattern_plan import END, RowPatternPlan, RowTransition
from ensue.printing.sql_printer import (
    format_over_row,
    format_row_expression,
    format_row_pattern,
    format_row_quantifier,
    format_row_sort_key,
)
from ensue.runtime.source_schema import SourceSchema

_SKIPS = {
    RowSkipTarget.PAST_LAST: "after its last row",
    RowSkipTarget.NEXT: "at the row after its first",
    RowSkipTarget.FIRST: "at its first row of {}",
    RowSkipTarget.LAST: "at its last row of {}",
}
_TERMS = {
    EmptyRowPattern: "no row",
    Concatenation: "one after the other",
    Alternation: "one of",
    Permutation: "in any order",
    Exclusion: "left out of the rows",
}
_MAX_ENTRIES = 60  # of the automaton that are listed
_COMPILED = {
    True: "evaluated by a compiled kernel",
    False: "evaluated by their plain meaning, row by row: slower",
    None: "evaluated by a compiled kernel if it supports all of them",
}


@dataclass(frozen=True)
class ClauseDescription:
    """Describes the plan of a clause, whose conditions may need columns that are not known."""

    clause: CompiledClause
    source: SourceSchema

    @property
    def plan(self) -> RowPatternPlan:
        return self.clause.plan

    def describe(self, *figures: PlanNode) -> PlanNode:
        """Describes the plan, with the pattern as a tree for pictures."""
        sections = (
            self._describe_clause(),
            PlanNode(shape=Shape.OUTLINE, children=(_describe_term(self.clause.written.pattern),)),
            *self._describe_conditions(),
            _describe_automaton(self.plan),
            _describe_length(self.plan),
        )
        return PlanNode(children=(*sections, *figures), shape=Shape.PLAN, kernel=self.format_kernel)

    def format_kernel(self) -> str:
        """Returns the source of the kernel."""
        if self.plan.is_decided_by_rows:
            return write_row_search()
        kernel = None
        if not self.source.inferred:
            kernel = build_kernel(self.plan, self.source.shape.unit, nullable=True)
        return "no kernel supports its conditions" if kernel is None else kernel.text

    def _describe_clause(self) -> PlanNode:
        query, within = self.clause.written, self._within
        partition = ", ".join(format_over_row(key.expr) for key in query.partition)
        order = ", ".join(map(format_row_sort_key, query.order))
        pattern = format_row_pattern(query.pattern)
        properties = (
            ("pattern", pattern),
            ("rows", query.rows.value),
            ("after", f"a match the search continues {_SKIPS[query.skip.to].format(query.skip.name)}"),
            ("partition", partition or "none: all rows are one partition"),
            ("order", order or "none: order of arrival"),
            ("window", f"less than {within}" if within else "none"),
        )
        clauses = (
            partition and f"partition by {partition}", order and f"order by {order}",
            query.rows.value.lower(), within and f"within less than {within}",
        )  # fmt: skip
        label = f"PATTERN ({pattern})"
        return PlanNode(properties=properties, shape=Shape.HEADER, label=label, details=tuple(filter(None, clauses)))

    def _describe_conditions(self) -> Iterator[PlanNode]:
        plan = self.plan
        names = plan.automaton.variables
        alone = [(name, self._format_all(by.alone)) for name, by in zip(names, plan.conditions, strict=True)]
        matched = [(name, self._format_all(by.matched)) for name, by in zip(names, plan.conditions, strict=True)]
        scan = tuple((name, text or "every row") for name, text in alone)
        yield PlanNode("scan: one bit per row and variable, computed for whole columns", scan, shape=Shape.TABLE)
        if plan.is_decided_by_rows:
            yield PlanNode("single rows decide: one pass backward and one forward, without backtracking")
            return
        rows = tuple((name, text) for name, text in matched if text)
        window = (f"every row is less than {self._within} after the first",) if self._within else ()
        yield PlanNode(f"conditions on the match, {_COMPILED[self._has_kernel]}", rows, window, shape=Shape.TABLE)

    def _format_all(self, values: tuple[RowExpression, ...]) -> str:
        return " AND ".join(format_row_expression(value, self.clause.written.subsets) for value in values)

    @property
    def _within(self) -> str:
        match self.clause.written.within:
            case None:
                return ""
            case timedelta() as length:
                return format_duration(length // timedelta(microseconds=1) * 1_000)
            case number:
                return repr(number)

    @cached_property
    def _has_kernel(self) -> bool | None:
        """Whether a kernel evaluates the conditions on matches; None if that depends on the columns."""
        if self.source.inferred or self.plan.is_decided_by_rows:
            return None
        return any(True for _ in ConditionKernels(self.plan).iterate_kernels(self.source.shape.unit))


def _describe_term(term: RowTerm) -> PlanNode:
    """Describes a pattern as a tree of boxes."""
    shape = Shape.DARK_BOX if isinstance(term, Exclusion) else Shape.BOX
    if isinstance(term, Repetition) and not isinstance(term.part, RowVariable):
        title = f"repeated {format_row_quantifier(term)}"
    else:
        title = _TERMS.get(type(term)) or format_row_pattern(term)
    single = isinstance(term, Repetition) and isinstance(term.part, RowVariable)
    children = () if single else tuple(map(_describe_term, get_term_parts(term)))
    return PlanNode(title, children=children, shape=shape)


def _describe_automaton(plan: RowPatternPlan) -> PlanNode:
    entries = plan.automaton.entries
    lines = []
    for number, choices in enumerate(entries[:_MAX_ENTRIES]):
        shown = "; ".join(_describe_choice(choice, plan.automaton.variables) for choice in choices)
        lines.append(f"{number}: {shown or 'no transition'}")
    if len(entries) > _MAX_ENTRIES:
        lines.append(f"and {len(entries) - _MAX_ENTRIES:,} more")
    count = format_count(len(entries), "entry")
    return PlanNode(f"automaton of {count}, the preferred choice first", lines=tuple(lines))


def _describe_choice(choice: RowTransition, variables: tuple[str, ...]) -> str:
    at = " at the first row" if choice.at_start else ""
    at += " after the last row" if choice.at_end else ""
    if choice.variable == END:
        return f"match{at}"
    excluded = ", left out of the result" if choice.excluded else ""
    return f"{variables[choice.variable]} to {choice.entry}{at}{excluded}"


def _describe_length(plan: RowPatternPlan) -> PlanNode:
    longest = plan.automaton.longest
    length = "of any length" if longest is None else f"of at most {format_count(longest, 'row')}"
    back, awaited = format_count(plan.back, "row"), format_count(plan.awaited, "row")
    return PlanNode(
        lines=(
            f"a match is {length}",
            f"it reads {back} before its own rows, and {awaited} after them",
            f"streams: {_describe_streaming(plan, longest)}",
        )
    )


def _describe_streaming(plan: RowPatternPlan, longest: int | None) -> str:
    if plan.automaton.reads_end:
        return "refused, since $ needs the last row of a partition"
    if not plan.row_pattern.order:
        return "refused without an ORDER BY that starts with the event time column"
    if plan.row_pattern.within is not None:
        return "a row is decided by later rows, or when time has passed its window"
    if longest is None:
        return (
            "live, rows are kept while they may become part of a match; refused on Spark "
            "without WITHIN or bounded quantifiers"
        )
    rows = format_count(max(0, longest - 1) + plan.awaited, "further row")
    return f"a row is decided by {rows} of its partition at the latest"
