"""The operator of pattern queries: queries with the same partition key share tasks and a scan."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

import pyarrow as pa

from ensue.analyzer.output_mode import is_summarized
from ensue.cached import cached_property
from ensue.errors import QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.query import Query
from ensue.ir.traits import is_interval_negation
from ensue.ir.user_operator import UserOperator
from ensue.options import Limits
from ensue.parser.pattern_parser import parse_statement
from ensue.printing.pattern_printer import format_query
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
from ensue.runtime.event_pruning import can_prune_events, find_relevant_rows, get_relevant_types
from ensue.runtime.pipeline import run_to_end
from ensue.runtime.query_spec import QuerySpec, name_query_in_errors
from ensue.runtime.stage import (
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
from ensue.vector.event_table import Rows

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
    def rows(self) -> Rows | None:
        if len(self.prepared) > 1 or not can_prune_events(self.prepared[0]):
            return None
        (query,) = self.prepared
        # parts leave out irrelevant events themselves
        sorted_too = query.planning.limits.thread_count < 2 or not can_match_in_parts(query)
        return partial(find_relevant_rows, query, sorted_too=sorted_too)

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


class QueriesTableMatcher(TableMatcher, Protocol):
    """Matches one or several queries over a table."""

    @property
    def unseen(self) -> frozenset[str]:
        """The types of positive events that did not occur."""


class QueryTableMatcher:
    """Matches a query over a table; the result is gathered from the table at the end."""

    def __init__(self, query: CompiledQuery) -> None:
        self.query = query
        self.unseen: frozenset[str] = frozenset()
        self._batch: StageInput | None = None

    def process(self, batch: StageInput) -> list[pa.Table]:
        self._batch = batch
        return []

    def on_watermark(self, now: float) -> list[pa.Table]:
        assert self._batch is not None
        query, events = self.query, self._batch.bare
        if has_many_events(events) and can_match_in_parts(query):
            from ensue.operators.match.parallel_match import build_in_parallel, is_faster_in_parts, match_in_parallel

            if is_faster_in_parts(query, events):
                matches, self.unseen = match_in_parallel(query, self._batch)
                return [build_in_parallel(query, sort_by_time(query, matches, events), events)]
        engine = query.engine()
        pieces = [engine.process(piece.bare) for piece in self._batch.slices()]
        matches = concat_deliveries(engine, [*pieces, engine.on_watermark(now)])
        self.unseen = find_unseen_types(query, engine)
        return [build_result(query, sort_by_time(query, matches, events), events)]


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
