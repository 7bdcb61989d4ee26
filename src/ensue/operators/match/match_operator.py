"""The operator of pattern queries: queries with the same partition key share tasks and a scan."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pyarrow as pa

from ensue.analyzer.output_mode import is_summarized
from ensue.cached import cached_property
from ensue.engine.engine import Engine
from ensue.errors import LimitError, QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.query import Query
from ensue.ir.traits import is_interval_negation
from ensue.ir.user_operator import UserOperator
from ensue.options import Limits
from ensue.parser.pattern_parser import parse_statement
from ensue.printing.pattern_printer import format_query
from ensue.projection.match_ids import RowHashes, find_equal_times
from ensue.projection.match_order import RESULT_ORDER
from ensue.runtime.compiled_query import (
    CompiledQuery,
    TimeoutQueries,
    build_result,
    can_match_in_parts,
    compile_with_timeouts,
    concat_deliveries,
    find_unseen_types,
    get_result_schema,
    has_many_events,
    sort_by_time,
)
from ensue.runtime.event_pruning import can_select_events, find_roles, get_relevant_types
from ensue.runtime.pipeline import run_to_end
from ensue.runtime.query_spec import QuerySpec, name_query_in_errors
from ensue.runtime.stage import (
    SLICE_ROWS,
    FinalStage,
    InputFilter,
    OutputTable,
    Progress,
    StageInput,
    StageMatcher,
    TableMatcher,
    UnseenTypes,
    build_output,
)
from ensue.runtime.workload import Workload
from ensue.vector.arrow_numpy import Ints
from ensue.vector.event_table import EventRoles, EventSelection, FindRoles
from ensue.vector.match_rows import Matches
from ensue.vector.take import take_rows

if TYPE_CHECKING:
    from ensue.planner.explain.plan_node import PlanNode


def plan_queries(specs: Sequence[QuerySpec], workload: Workload) -> Iterator["MatchOperator"]:
    """Compiles pattern queries; an error names the query that cannot run."""
    options, limits = workload.options, workload.options.planning.limits
    bundles: dict[QuerySpec, TimeoutQueries] = {}
    for spec in specs:
        with name_query_in_errors(spec.name):
            assert isinstance(spec.query, Query)
            bundles[spec] = compile_with_timeouts(
                spec.query, workload.source.shape, options.planning,
                emit_timeouts=options.output.emit_timeouts, streaming=options.streaming,
            )  # fmt: skip
            main = bundles[spec].main
            in_order = not is_summarized(spec.query)  # others are sorted by their ids, among others
            if not options.output.ids and in_order and bundles[spec].result == get_result_schema(main):
                main = replace(main, ids=False)
                bundles[spec] = TimeoutQueries((main,), get_result_schema(main))
    if workload.source.inferred:
        from ensue.planner.schema_inference import NOTE

        for spec, bundle in bundles.items():
            plan = replace(bundle.main.plan, notes=(*bundle.main.plan.notes, NOTE))
            bundles[spec] = replace(bundle, queries=(replace(bundle.main, plan=plan), *bundle.queries[1:]))
    if (limits.evict is not None or limits.shed_ms is not None) and not options.explain:
        from ensue.runtime.spill.eviction import build_eviction_error, require_sheddable, why_not_evictable

        for spec, bundle in bundles.items():
            with name_query_in_errors(spec.name):
                if limits.evict is not None and (why := why_not_evictable(bundle.queries)) is not None:
                    raise build_eviction_error(why)
                if limits.shed_ms is not None:
                    require_sheddable(bundle.queries)

    outputs = []
    for spec, bundle in bundles.items():
        unsorted = len(bundle.queries) > 1 or is_summarized(bundle.main.query)
        order = RESULT_ORDER if unsorted else ()
        outputs.append(build_output(spec, bundle.result, bundle.main.query, order))
    yield MatchOperator(tuple(bundles.values()), tuple(outputs), workload.is_single)


def describe_query(query: Query | ArchiveJoinQuery) -> dict[str, Any]:
    """Describes a query in the text of a checkpoint."""
    return {"query": format_query(query)}


def parse_query(described: Mapping[str, Any], operators: Iterable[UserOperator]) -> Query | ArchiveJoinQuery:
    """Parses a query that a checkpoint describes."""
    return parse_statement(described["query"], operators)


@dataclass(frozen=True)
class MatchOperator:
    """Matches queries over one stream and assigns their matches to outputs."""

    bundles: tuple[TimeoutQueries, ...]
    outputs: tuple[OutputTable, ...]
    is_single: bool  # the call has a single query, not a list
    of_events: bool = True  # it reads the input events directly

    def with_outputs(self, outputs: Sequence[OutputTable]) -> "MatchOperator":
        return replace(self, outputs=tuple(outputs))

    @property
    def prepared(self) -> tuple[CompiledQuery, ...]:
        """All compiled queries, those for timed-out partial matches included."""
        return tuple(query for bundle in self.bundles for query in bundle.queries)

    @property
    def expected(self) -> tuple[CompiledQuery, ...]:
        return tuple(bundle.main for bundle in self.bundles)

    @cached_property
    def reads(self) -> InputFilter:
        return InputFilter(get_relevant_types(self.prepared))

    @property
    def rows(self) -> FindRoles | None:
        if len(self.prepared) > 1 or not can_select_events(self.prepared[0]):
            return None
        (query,) = self.prepared

        def find(events: pa.Table, in_order: bool) -> EventRoles | None:
            return find_roles(query, events, in_order, sorts=_is_faster_in_parts(query, events))

        return find

    def find_unseen(self, matcher: TableMatcher, events: pa.Table, result: Sequence[pa.Table]) -> UnseenTypes:  # noqa: ARG002
        return UnseenTypes(cast(QueriesTableMatcher, matcher).unseen)

    def chains(self) -> "tuple[tuple[MatchStage, ...], ...]":
        """Groups the queries by partition key; each group is a chain of one stage."""
        for bundle in self.bundles:
            query = bundle.main.query
            if is_interval_negation(query.pattern):
                raise QueryError(
                    "a pattern that is only an absence does not run on Spark yet: a task begins with an event",
                    hint="add an event that must occur: AND(A a, !B b FROM ... TO ...)",
                    span=query.pattern.span,
                    text=query.text,
                )
        numbers: dict[tuple[str, ...], list[int]] = {}
        for number, key in enumerate(self._keys()):
            numbers.setdefault(key, []).append(number)
        return tuple((self._stage(key, same),) for key, same in numbers.items())

    def as_single_stage(self) -> "MatchStage":
        return MatchStage(self.bundles, self.outputs, (), not self.is_single)

    def describe(self, ordered: pa.Table | None = None) -> "PlanNode":
        from ensue.operators.match.match_description import describe_queries

        return describe_queries(self.expected, self.outputs, ordered)

    @property
    def partition_key(self) -> tuple[str, ...]:
        """Returns a key by whose groups a table can be matched; empty if there is none."""
        for query in self.prepared:  # the limit counts partial matches of all keys; an absence may match without a key
            if query.planning.limits.max_partial_matches is not None or is_interval_negation(query.query.pattern):
                return ()
        return tuple(sorted(frozenset.intersection(*map(frozenset, self._keys()))))

    def _stage(self, key: tuple[str, ...], numbers: Sequence[int]) -> "MatchStage":
        bundles = tuple(self.bundles[n] for n in numbers)
        outputs = tuple(self.outputs[n] for n in numbers)
        warning = None if key else self._explain_single_task(len(numbers))
        return MatchStage(bundles, outputs, key, not self.is_single, warning)

    def _keys(self) -> list[tuple[str, ...]]:
        """Returns the key that splits the stream of each query: its own, or a subset of it.

        A query partitioned by (user, device) runs with one by user: events that are equal in both
        are equal in one.
        """
        plans = [bundle.main.plan for bundle in self.bundles]
        own = [() if plan.whole_stream else tuple(e.field_name for e in plan.query.equivalence) for plan in plans]
        if self.is_single:
            return own
        keys = [frozenset(key) for key in own]
        least = sorted({k for k in keys if k and not any(o and o < k for o in keys)}, key=sorted)
        split = [next((small for small in least if small <= key), key) for key in keys]
        return [tuple(sorted(key)) for key in split]

    def _explain_single_task(self, count: int) -> str:
        if not self.is_single:
            return (
                f"{count} of the {len(self.bundles)} queries have no [attr] that would split the "
                "stream: one task, on one core, will match all events for them"
            )
        if self.bundles[0].main.plan.whole_stream:
            return (
                "strict contiguity looks at the events of every partition: one task, on one core, will match all events"
            )
        return "the query has no [attr] to split the stream: one task, on one core, will match all events"


@dataclass(frozen=True)
class MatchStage(FinalStage):
    """Queries that run in the key groups of one key."""

    bundles: tuple[TimeoutQueries, ...]
    outputs: tuple[OutputTable, ...]  # one per bundle
    key: tuple[str, ...]
    shared: bool  # they share one scan of the events
    whole_stream: str | None = None  # why a single task gets all events, if it does

    @property
    def prepared(self) -> tuple[CompiledQuery, ...]:
        return tuple(query for bundle in self.bundles for query in bundle.queries)

    @cached_property
    def reads(self) -> InputFilter:
        return InputFilter(get_relevant_types(self.prepared), self.key)

    @property
    def limits(self) -> Limits:
        return self.bundles[0].main.planning.limits

    def matcher(self, key_group: int = 0, key_groups: int = 1) -> StageMatcher:  # noqa: ARG002
        return create_matcher(self.prepared, self.reads, self.limits, shared=self.shared)

    def table_matcher(self, key_group: int = 0, key_groups: int = 1) -> TableMatcher:  # noqa: ARG002
        return create_table_matcher(self.prepared)

    def iterate_outputs(self, tables: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        remaining = iter(tables)
        for output, bundle in zip(self.outputs, self.bundles, strict=True):
            merged = [next(remaining) for _ in bundle.queries]
            if any(table.num_rows for table in merged):
                yield output.number, bundle.merge(merged)


def create_matcher(
    queries: Sequence[CompiledQuery], reads: InputFilter, limits: Limits, *, shared: bool
) -> StageMatcher:
    """Creates a matcher of queries; it spills keys to disk if the queries and limits allow it."""
    from ensue.operators.match.shared_matcher import SharedMatcher
    from ensue.runtime.live_matcher import CompositeLiveMatcher

    def create(queries: Sequence[CompiledQuery]) -> SharedMatcher | CompositeLiveMatcher:
        return SharedMatcher(queries) if shared else CompositeLiveMatcher(queries)

    if limits.can_evict:
        from ensue.runtime.spill.eviction import build_eviction_error, why_not_evictable

        why = why_not_evictable(queries)
        if why is None:
            from ensue.runtime.spill.spilling_matcher import create_spilling_matcher

            return create_spilling_matcher(queries, reads, limits, create)
        if limits.evict is not None:
            raise build_eviction_error(why)
    return create(queries)


def _is_faster_in_parts(query: CompiledQuery, events: pa.Table) -> bool:
    threads = query.planning.limits.thread_count  # an error of the environment does not depend on the table
    if not has_many_events(events) or not can_match_in_parts(query):
        return False
    from ensue.operators.match.parallel_match import is_faster_in_parts

    return threads > 1 or is_faster_in_parts(query, events)


class QueriesTableMatcher(TableMatcher, Protocol):
    """Matches one or several queries over a table."""

    @property
    def unseen(self) -> frozenset[str]:
        """The types of positive events that did not occur."""

    def find_matches(self, *, in_parts: bool = True) -> list[Matches]:
        """The matches of each query, as rows of the events; those of parts need memory for all events."""


class QueryTableMatcher:
    """Matches a query over a table; the result is gathered from the table at the end."""

    def __init__(self, query: CompiledQuery) -> None:
        self.query = query
        self.unseen: frozenset[str] = frozenset()
        self._batch: StageInput | None = None

    def process(self, batch: StageInput) -> list[pa.Table]:
        self._batch = batch
        return []

    def on_watermark(self, now: float) -> list[pa.Table]:  # noqa: ARG002
        assert self._batch is not None
        query, events, selection = self.query, self._batch.bare, self._batch.selection
        if selection is not None:
            matches, events, hashes = locate_matches(query, self._find_matches(), events, selection)
            return [build_result(query, sort_by_time(query, matches, events), events, hashes)]
        pieces = self._find_in_parts()
        if pieces is not None:
            from ensue.operators.match.parallel_match import build_in_parallel

            return [build_in_parallel(query, pieces, events)]
        return [build_result(query, sort_by_time(query, self._find_matches(), events), events)]

    def find_matches(self, *, in_parts: bool = True) -> list[Matches]:
        """Returns the matches, as rows of the events."""
        pieces = self._find_in_parts() if in_parts else None
        if pieces is None:
            return [self._find_matches()]
        from ensue.operators.match.parallel_match import merge_parts

        return [merge_parts(pieces, self.query.program.source.output)]

    def _find_in_parts(self) -> list[Matches] | None:
        """Returns the matches of parts of the table, if that is faster."""
        assert self._batch is not None
        if not _is_faster_in_parts(self.query, self._batch.bare):
            return None
        from ensue.operators.match.parallel_match import match_in_parallel

        # one thread needs less memory, or names the event at which a limit is exceeded
        with suppress(LimitError):
            pieces, self.unseen = match_in_parallel(self.query, self._batch)
            return pieces
        return None

    def _find_matches(self) -> Matches:
        """Returns the matches of all events, or of those that are selected, as rows of these."""
        assert self._batch is not None
        engine, selection = self.query.engine(), self._batch.selection
        if selection is None:
            pieces = [engine.process(piece.bare) for piece in self._batch.slices()]
        else:
            assert isinstance(engine, Engine)
            pieces = list(self._match_selected(engine, self._batch, selection))
        matches = concat_deliveries(engine, [*pieces, engine.on_watermark(np.inf)])
        self.unseen = find_unseen_types(self.query, engine)
        return matches

    def _match_selected(self, engine: Engine, batch: StageInput, selection: EventSelection) -> Iterator[Matches]:
        """Matches selected events; of their columns, only those of features are read."""
        scan, count, total = engine.scan, len(selection.rows), batch.events.num_rows
        scan.keys, scan.seen = selection.roles.keys, selection.roles.seen
        for begin in range(0, count, SLICE_ROWS):
            yield engine.feed_scanned(
                scan.scan_selection(batch.events, selection, slice(begin, begin + SLICE_ROWS)), len(scan.keys)
            )
            batch.report(min(begin + SLICE_ROWS, count) * total // count)
        if not count:
            batch.report(total)


def locate_matches(
    query: CompiledQuery, matches: Matches, events: pa.Table, selection: EventSelection
) -> tuple[Matches, pa.Table, RowHashes | None]:
    """Matches of selected events as rows of a table in stream order, and the hashes of its rows, if they are known.

    The table has the events of matches, and the columns that the result reads.
    """
    rows = selection.rows
    members = np.zeros(len(rows), np.bool_)
    for variable in matches.variables:
        members[matches.elements(variable)] = True
    members |= find_equal_times(selection.ends, members)  # duplicates are numbered
    chosen = np.flatnonzero(members)
    hashes, columns = None, events.column_names
    if not query.ids or selection.order is not None:  # columns that only ids read are not taken, nor in another order
        hashes = RowHashes(events, query.shape.schema.end, rows[chosen], selection.ends[chosen])
        read = query.result.list_columns(columns)
        columns = [name for name in columns if name in read]
    places = np.empty(len(rows), np.int64)
    places[chosen] = np.arange(len(chosen))

    def locate(own: Ints) -> Ints:
        if not len(own) or own.min() >= 0:
            return places.take(own, mode="clip")  # without a check of bounds
        return np.where(own < 0, np.int64(-1), places[own])

    return matches.map_rows(locate), take_rows(events.select(columns), rows[chosen]), hashes


def create_table_matcher(queries: Sequence[CompiledQuery]) -> QueriesTableMatcher:
    """Creates a matcher of queries over a table; several share one scan of the events."""
    if len(queries) > 1:
        from ensue.operators.match.shared_engine import SharedTableMatcher

        return SharedTableMatcher(queries)
    return QueryTableMatcher(queries[0])


def match_queries(
    queries: Sequence[CompiledQuery], events: pa.Table, progress: Progress | None = None
) -> list[pa.Table]:
    """Matches each query over a table of events in stream order."""
    return run_to_end(create_table_matcher(queries), StageInput.from_events(events, progress))
