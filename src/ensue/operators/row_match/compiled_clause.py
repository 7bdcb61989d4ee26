"""Compiles MATCH_RECOGNIZE clauses for the columns of their table, and checks them for streams."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ensue.analyzer.row_pattern_checks import check_row_pattern
from ensue.cached import cached_property
from ensue.engine.interrupts import run_in_threads
from ensue.engine.row_match.row_partitions import Partitions, partition_rows
from ensue.engine.row_match.search import RowMatches, RowMatchFinder, SearchState, compute_row_masks
from ensue.errors import EventError, LimitError, QueryError, SkipError
from ensue.ir.canonical_form import canonical_form, compute_fingerprint
from ensue.ir.expression import FieldRef
from ensue.ir.row_pattern import ROW, PartitionAnchor, PartitionKey, RowPatternQuery, RowSortKey, iterate_terms
from ensue.options import Limits
from ensue.planner.row_pattern_plan import RowPatternPlan
from ensue.projection.row_pattern_output import MATCH_ID, RowMatchIds, RowPatternProjection
from ensue.runtime.query_spec import Name, name_query_in_errors
from ensue.runtime.source_schema import ComputedColumn, InputOrder, is_internal_column
from ensue.runtime.table_parts import encode_texts
from ensue.vector.arrow_types import get_field_kinds, get_time_zones
from ensue.vector.event_table import COMPUTED, PLACE
from ensue.vector.take import create_empty_table

PART_ROWS = 1 << 16  # of the partitions that a thread matches at a time, at least


@dataclass(frozen=True)
class CompiledClause:
    """A clause compiled for known columns. It can be sent; engines are created where it runs."""

    written: RowPatternQuery
    plan: RowPatternPlan  # whose keys are columns
    arrow: pa.Schema  # of the events, with computed keys
    meaning: str  # the canonical form of the clause, a part of match ids
    ids: bool  # whether results begin with a column match_id
    limits: Limits

    @property
    def row_pattern(self) -> RowPatternQuery:
        return self.plan.row_pattern

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of PARTITION BY, computed keys included."""
        return tuple(dict.fromkeys(map(get_key_column, self.row_pattern.partition)))

    @cached_property
    def results(self) -> RowPatternProjection:
        return RowPatternProjection(self.plan, self.arrow)

    @cached_property
    def schema(self) -> pa.Schema:
        schema = self.results.schema
        return pa.schema([pa.field(MATCH_ID, pa.string()), *schema]) if self.ids else schema

    def match_complete(self, events: pa.Table, ties: Sequence[str] = ()) -> pa.Table:
        """Matches complete rows; `ties`, then arrival, order the rows that ORDER BY leaves equal."""
        order = (*self.row_pattern.order, *(RowSortKey(FieldRef(ROW, name)) for name in ties))
        threads = self.limits.thread_count
        split = threads > 1 and events.num_rows >= 2 * PART_ROWS
        keys = encode_texts(events.select(self.key), self.key, threads) if split else None
        partitions = partition_rows(events, self.key, order, keys)
        parts = min(max(4 * threads, 16), partitions.rows // PART_ROWS, len(partitions))
        if parts < 2 or not split or self.limits.max_matches is not None:  # that limit is for all rows together
            return self._match(partitions)
        partitions = replace(partitions, row_masks=compute_row_masks(self.plan, partitions))

        def match_part(begin: int, end: int) -> pa.Table:
            return self._match(partitions.select(begin, end))

        near = np.linspace(0, partitions.rows, parts + 1)
        cuts = np.unique(np.searchsorted(partitions.bounds, near)).tolist()
        tasks = [partial(match_part, begin, end) for begin, end in pairwise(cuts)]
        try:
            return pa.concat_tables(run_in_threads(tasks, threads))
        except SkipError:
            return self._match(partitions)  # whose error names the first such match of all

    def _match(self, partitions: Partitions) -> pa.Table:
        search = SearchState.from_complete(partitions.bounds)
        return self.build_result(partitions, RowMatchFinder(self.plan).find(partitions, search))

    def build_result(self, partitions: Partitions, matches: Iterable[RowMatches]) -> pa.Table:
        tables = list(self._result_tables(partitions, matches))
        return pa.concat_tables(tables) if tables else create_empty_table(self.schema)

    def _result_tables(self, partitions: Partitions, matches: Iterable[RowMatches]) -> Iterator[pa.Table]:
        ids = RowMatchIds(self.plan, self.meaning, partitions) if self.ids else None
        most, count = self.limits.max_matches, 0
        for batch in matches:
            count += len(batch)
            if most is not None and count > most:
                raise LimitError(
                    f"the clause finds more matches than max_matches={most:,} allows\n"
                    "  hint: AFTER MATCH SKIP PAST LAST ROW, or a stricter pattern, "
                    "finds fewer; ensue.Limits(max_matches=...) allows more"
                )
            for table in self.results.iterate_tables(partitions, (batch,)):
                if ids is not None:
                    table = table.add_column(0, self.schema.field(0), ids.compute_ids(batch))
                yield table


def compile_clause(
    row_pattern: RowPatternQuery, arrow: pa.Schema, limits: Limits, *, ids: bool, session: str | None = None
) -> CompiledClause:
    """Compiles a clause for these columns; a QueryError names what does not fit.

    `session` is the time zone of timestamps with a zone, where their types do not define it.
    """
    kinds = {n: kind for n, kind in get_field_kinds(arrow).items() if not is_internal_column(n)}
    resolved = check_row_pattern(row_pattern, kinds, get_time_zones(arrow, session))
    bound = replace(resolved, partition=tuple(map(_replace_computed_key, resolved.partition)))
    plan = RowPatternPlan(bound, kinds)
    clause = CompiledClause(row_pattern, plan, arrow, canonical_form(resolved), ids, limits)
    if ids:
        for name in clause.results.schema.names:
            if name.lower() == MATCH_ID:
                raise QueryError(
                    f"a column of the result would be called '{name}', and that is the id of a match",
                    hint="give the measure another name by AS, or rename the table's column",
                    text=row_pattern.text,
                )
    return clause


def get_key_column(key: PartitionKey) -> str:
    """Returns the column of a key: its own, or a computed one.

    >>> from ensue.parser.sql.clause_parser import parse_clause
    >>> text = "(PARTITION BY a, upper(b) AS c PATTERN (X) DEFINE X AS TRUE)"
    >>> [get_key_column(key) for key in parse_clause(text).partition]
    ['a', '__key_...']
    """
    if key.column is not None:
        return key.column
    # a digest: Spark takes dots and backticks in names for more than that
    return COMPUTED + compute_fingerprint(key.expr).hex()[:16]


def _replace_computed_key(key: PartitionKey) -> PartitionKey:
    """Replaces a computed key by the column that holds it."""
    return key if key.column is not None else replace(key, expr=FieldRef(ROW, get_key_column(key)))


# ---------------------------------------------------------------------------- stream checks


def get_time_column(row_pattern: RowPatternQuery) -> str:
    """Returns the column of event time, the first of ORDER BY, of a checked clause."""
    if not row_pattern.order:
        raise _no_time(row_pattern, "there is no ORDER BY")
    first = row_pattern.order[0]
    if not isinstance(first.expr, FieldRef) or first.expr.name is None:
        raise _no_time(row_pattern, "ORDER BY begins with a computed value")
    if first.descending:
        raise _no_time(row_pattern, "ORDER BY begins with a column in descending order")
    return first.expr.name


def _no_time(row_pattern: RowPatternQuery, why: str) -> QueryError:
    span = row_pattern.order[0].span if row_pattern.order else row_pattern.pattern.span
    return QueryError(
        f"rows of a stream are in the order of time, and {why}",
        hint="start ORDER BY with the column of event time, ascending",
        span=span,
        text=row_pattern.text,
    )


def get_tie_columns(row_pattern: RowPatternQuery) -> tuple[str, ...] | None:
    """Returns the further columns of ORDER BY; None unless all are ascending with NULL last."""
    columns = []
    for by in row_pattern.order[1:]:
        if by.descending or by.nulls_first or not isinstance(by.expr, FieldRef):
            return None
        assert by.expr.name is not None
        columns.append(by.expr.name)
    return tuple(columns)


def require_open_end(row_pattern: RowPatternQuery) -> None:
    """Raises a QueryError if a pattern requires the last row of a partition."""
    for term in iterate_terms(row_pattern.pattern):
        if isinstance(term, PartitionAnchor) and term.at == "end":
            raise QueryError(
                "$ is the end of a partition, and a stream has no last row",
                hint="leave it out, or run the clause on a table",
                span=term.span,
                text=row_pattern.text,
            )


def require_bounded(plan: RowPatternPlan) -> None:
    """Raises a QueryError if a match may wait for rows forever."""
    row_pattern = plan.row_pattern
    if row_pattern.within is None and plan.automaton.longest is None:
        raise QueryError(
            "a match of this pattern may be of any length, and a stream would keep its rows forever",
            hint="add WITHIN INTERVAL '1' HOUR after PATTERN (...), or bound the quantifiers: {1,100} instead of +",
            span=row_pattern.pattern.span,
            text=row_pattern.text,
        )


# ---------------------------------------------------------------------------- order of events

Time = str | tuple[str, str]


@dataclass(frozen=True)
class Arrangement:
    """Derives the order and the computed keys of events from the clauses of a call."""

    clauses: tuple[tuple[Name | None, RowPatternQuery], ...]  # with the names of the queries
    only: bool  # the call has no other queries
    time: Time | None  # the argument of the call
    order: tuple[str, ...]
    streaming: bool

    def __call__(self, arrow: pa.Schema, session: str | None = None) -> InputOrder:
        kinds, clauses = get_field_kinds(arrow), []
        for name, clause in self.clauses:
            with name_query_in_errors(name):
                clauses.append(check_row_pattern(clause, kinds, get_time_zones(arrow, session)))
        computed = {
            get_key_column(key): ComputedColumn(get_key_column(key), key.expr)
            for clause in clauses
            for key in clause.partition
            if key.column is None
        }
        time, order = self._order(clauses)
        return InputOrder(time, order, tuple(computed.values()))

    def _order(self, clauses: Sequence[RowPatternQuery]) -> tuple[Time, tuple[str, ...]]:
        if not self.streaming:
            if self.only:
                return PLACE, ()
            if self.time is None:
                raise EventError("the time column of the events is missing: pass time=")
            return self.time, self.order
        times = {}
        for (name, _), clause in zip(self.clauses, clauses, strict=True):
            with name_query_in_errors(name):
                require_open_end(clause)
                times[get_time_column(clause)] = clause
                self._require_same(times, clause)
        if self.order or not self.only:
            return next(iter(times)), self.order
        ties = {get_tie_columns(clause) for clause in clauses}
        (order,) = ties if len(ties) == 1 else (None,)
        return next(iter(times)), order or ()

    def _require_same(self, times: dict[str, RowPatternQuery], clause: RowPatternQuery) -> None:
        """Raises a QueryError if queries of a stream use different time columns."""
        column = get_time_column(clause)
        others = [time for time in times if time != column]
        other = others[0] if others else self.time
        if other is None or other == column:
            return
        source = f"time={other!r}" if not others else f"another clause by '{other}'"
        raise QueryError(
            f"ORDER BY begins with '{column}', and events are ordered by {source}",
            hint="all queries of a stream use one column of event time",
            span=clause.order[0].span,
            text=clause.text,
        )


def plan_arrangement(
    queries: Iterable[tuple[Name | None, object]], time: Time | None, order: tuple[str, ...], *, streaming: bool
) -> Arrangement | None:
    """Derives how events are read for queries with their names; None without a clause."""
    pairs = tuple(queries)
    clauses = tuple((name, query) for name, query in pairs if isinstance(query, RowPatternQuery))
    if not clauses:
        return None
    return Arrangement(clauses, len(clauses) == len(pairs), time, order, streaming)
