"""The operator and the stage of MATCH_RECOGNIZE clauses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ensue.errors import QueryError
from ensue.ir.row_pattern import RowPatternQuery
from ensue.operators.row_match.compiled_clause import (
    CompiledClause,
    compile_clause,
    get_time_column,
    require_bounded,
    require_open_end,
)
from ensue.operators.row_match.row_matcher import RowPatternMatcher
from ensue.options import Limits
from ensue.planner.planner_options import DEFAULT_OPTIONS
from ensue.planner.row_pattern_plan import RowPatternPlan
from ensue.printing.sql_printer import format_clause
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.live_matcher import CompositeMatcher
from ensue.runtime.query_spec import QuerySpec, name_query_in_errors
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import (
    FinalStage,
    InputFilter,
    OutputTable,
    StageInput,
    TableMatcher,
    UnseenTypes,
    build_output,
)
from ensue.runtime.workload import Workload

if TYPE_CHECKING:
    from ensue.planner.explain.plan_node import PlanNode

_ALL_ROWS = InputFilter(None)


@dataclass(frozen=True)
class RowPatternStage(FinalStage):
    """Clauses with one partition key, and the outputs of their results."""

    clauses: tuple[CompiledClause, ...]
    outputs: tuple[OutputTable, ...]  # one per clause
    source: SourceSchema
    key: tuple[str, ...]
    whole_stream: str | None = None
    orders: bool = True  # each clause sorts its rows itself

    @property
    def reads(self) -> InputFilter:
        return InputFilter(None, self.key, nulls=True)

    @property
    def limits(self) -> Limits:
        return self.clauses[0].limits

    def matcher(self, key_group: int = 0, key_groups: int = 1) -> CompositeMatcher[RowPatternMatcher]:  # noqa: ARG002
        for clause in self.clauses:
            require_streamable(clause, self.source)
        return CompositeMatcher([RowPatternMatcher(c, self.source) for c in self.clauses])

    def table_matcher(self, key_group: int = 0, key_groups: int = 1) -> TableMatcher:  # noqa: ARG002
        return ClauseTableMatcher(self.clauses)


class ClauseTableMatcher:
    """Matches clauses over a table, whose rows each clause sorts itself."""

    def __init__(self, clauses: Sequence[CompiledClause]) -> None:
        self.clauses = clauses
        self._batch: StageInput | None = None

    def process(self, batch: StageInput) -> list[pa.Table]:
        self._batch = batch
        return []

    def on_watermark(self, now: float) -> list[pa.Table]:  # noqa: ARG002
        batch, result = self._batch, []
        assert batch is not None
        for number, clause in enumerate(self.clauses, 1):
            result.append(clause.match_complete(batch.events, batch.arrival))
            batch.report(batch.events.num_rows * number // len(self.clauses))
        return result


def plan_row_patterns(specs: Sequence[QuerySpec], workload: Workload) -> Iterator["RowPatternOperator"]:
    """Compiles MATCH_RECOGNIZE clauses; an error names the clause that cannot run."""
    source, options = workload.source, workload.options
    clauses: dict[QuerySpec, CompiledClause] = {}
    for spec in specs:
        with name_query_in_errors(spec.name):
            if source.by_type is not None and not source.inferred:
                raise QueryError(
                    "MATCH_RECOGNIZE reads one table, and these are several",
                    hint="pass one table, with a column for the type of events",
                )
            _require_clause_options(workload)
            assert isinstance(spec.query, RowPatternQuery)
            if source.inferred:
                plan = RowPatternPlan(spec.query, {})
                clauses[spec] = CompiledClause(spec.query, plan, source.arrow, "", False, options.planning.limits)
                continue
            clauses[spec] = compile_clause(
                spec.query, source.arrow, options.planning.limits, ids=options.ids,
                session=source.zone,
            )  # fmt: skip
    schemas = {spec: pa.schema([]) if source.inferred else clause.schema for spec, clause in clauses.items()}
    outputs = tuple(build_output(spec, schema, None) for spec, schema in schemas.items())
    yield RowPatternOperator(tuple(clauses.values()), outputs, source, options.streaming)


def _require_clause_options(workload: Workload) -> None:
    """Raises an error for an option of the call that clauses do not support.

    Options that concern only other queries of the call are allowed.
    """
    options, source = workload.options, workload.source
    planning = options.planning
    refused = {
        "ensue.OutputOptions(emit_timeouts=...)": options.output.emit_timeouts,
        "ensue.Limits(evict=...)": planning.limits.evict is not None,
        "ensue.Limits(shed=...)": planning.limits.shed_ms is not None,
    }
    if all(isinstance(spec.query, RowPatternQuery) for spec in workload.specs):
        refused |= {
            "ensue.OutputOptions(levels=...)": options.output.levels is not None,
            "ensue.OutputOptions(trace=...)": options.output.trace,
            "ensue.PlannerOptions(statistics=...)": planning.statistics != DEFAULT_OPTIONS.statistics,
            "ensue.PlannerOptions(structure=...)": planning.structure is not None,
            "ensue.PlannerOptions(adaptive=...)": planning.adaptive,
            "location=": source.location is not None,
            "archives=": bool(workload.archive_set.archives),
        }
    for argument, is_set in refused.items():
        if is_set:
            raise QueryError(f"{argument} cannot be combined with MATCH_RECOGNIZE", hint="leave it out")


def describe_clause(query: RowPatternQuery) -> dict[str, Any]:
    """Describes a clause in the text of a checkpoint."""
    return {"query": format_clause(query)}


def parse_clause(described: Mapping[str, Any], _operators: object) -> RowPatternQuery:
    """Parses a clause that a checkpoint describes."""
    from ensue.parser.sql import clause_parser

    return clause_parser.parse_clause(described["query"])


@dataclass(frozen=True)
class RowPatternOperator:
    """Runs clauses over one table or stream and assigns their results to outputs."""

    clauses: tuple[CompiledClause, ...]
    outputs: tuple[OutputTable, ...]
    source: SourceSchema
    streaming: bool = False
    of_events: bool = True
    rows: None = None  # all events are needed
    expected: tuple[CompiledQuery, ...] = ()  # results of clauses are not estimated
    reads: InputFilter = _ALL_ROWS

    def with_outputs(self, outputs: Sequence[OutputTable]) -> "RowPatternOperator":
        return replace(self, outputs=tuple(outputs))

    def find_unseen(self, matcher: TableMatcher, events: pa.Table, result: Sequence[pa.Table]) -> UnseenTypes:  # noqa: ARG002
        return UnseenTypes()

    def chains(self) -> tuple[tuple[RowPatternStage, ...], ...]:
        """Groups the clauses by partition key; each group is a chain of one stage."""
        for clause in self.clauses if self.streaming else ():
            require_streamable(clause, self.source)
            require_bounded(clause.plan)
        keys = dict.fromkeys(clause.key for clause in self.clauses)
        return tuple((self._stage(key),) for key in keys)

    def as_single_stage(self) -> RowPatternStage:
        """Creates one stage with all clauses, where one task gets all rows."""
        return RowPatternStage(self.clauses, self.outputs, self.source, ())

    def describe(self, ordered: pa.Table | None = None) -> "PlanNode":
        from ensue.operators.row_match.row_description import ClauseDescription
        from ensue.planner.explain.plan_node import PlanNode, combine_plans

        plans = {}
        for clause, output in zip(self.clauses, self.outputs, strict=True):
            figures = []
            if ordered is not None:
                rows = clause.match_complete(ordered).num_rows
                figures.append(PlanNode(f"{rows:,} result rows from {ordered.num_rows:,} rows"))
            plans[output.name] = ClauseDescription(clause, self.source).describe(*figures)
        return combine_plans(plans)

    def _stage(self, key: tuple[str, ...]) -> RowPatternStage:
        clauses = tuple(clause for clause in self.clauses if clause.key == key)
        pairs = zip(self.clauses, self.outputs, strict=True)
        outputs = tuple(output for clause, output in pairs if clause.key == key)
        warning = None if key else (
            "the clause has no PARTITION BY that would split the rows: one task, on one core, "
            "will match all of them"
        )  # fmt: skip
        return RowPatternStage(clauses, outputs, self.source, key, warning)


def require_streamable(clause: CompiledClause, source: SourceSchema) -> None:
    """Raises a QueryError if a clause cannot run on a stream."""
    row_pattern = clause.row_pattern
    require_open_end(row_pattern)
    time = get_time_column(row_pattern)
    if source.time != time:
        raise QueryError(
            f"ORDER BY begins with '{time}', and events are ordered by time={source.time!r}",
            hint="all queries of a stream use one column of event time",
            span=row_pattern.order[0].span,
            text=row_pattern.text,
        )
