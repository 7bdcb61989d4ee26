"""The operator of queries with JOIN ARCHIVE, and stages that write their events to an archive."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ensue.archives.archive import Archive
from ensue.cached import cached_property
from ensue.engine.memory_budget import Usage
from ensue.engine.state_format import pack_state, unpack_state
from ensue.errors import QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import get_pattern_types
from ensue.ir.query import Query
from ensue.ir.user_operator import UserOperator
from ensue.operators.archive_join.archived_events import ArchivedEvents, convert_time_unit
from ensue.operators.archive_join.join_matcher import ArchiveJoinMatcher
from ensue.operators.archive_join.join_planner import compile_archive_join
from ensue.operators.archive_join.join_sides import select_patterns
from ensue.operators.archive_join.joining import CompiledArchiveJoin, CompiledJoin
from ensue.operators.match.match_operator import create_matcher, parse_query
from ensue.options import Limits
from ensue.projection.match_order import RESULT_ORDER
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.live_matcher import CompositeMatcher
from ensue.runtime.query_spec import ArchiveSet, QuerySpec, name_query_in_errors
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.spill.eviction import build_eviction_error, build_shedding_error, why_not_evictable
from ensue.runtime.stage import (
    ARRIVAL,
    ArchiveBatch,
    ArchiveSink,
    ArchiveWritingStage,
    FinalStage,
    InputFilter,
    LookupCounters,
    OutputTable,
    PipelineStage,
    StageInput,
    StageMatcher,
    TableMatcher,
    UnseenTypes,
    build_output,
    union_types,
)
from ensue.runtime.workload import Workload
from ensue.vector.arrow_types import Unit

if TYPE_CHECKING:
    from ensue.planner.explain.plan_node import PlanNode

BY_TIME = RESULT_ORDER[:2]
OF_CLAUSES = "MATCH_RECOGNIZE keeps rows, which stay in memory"


def plan_archive_joins(specs: Sequence[QuerySpec], workload: Workload) -> Iterator["ArchiveJoinOperator"]:
    options, limits = workload.options, workload.options.planning.limits
    compiled: dict[QuerySpec, CompiledArchiveJoin] = {}
    for spec in specs:
        with name_query_in_errors(spec.name):
            if options.output.emit_timeouts:
                raise QueryError(
                    "ensue.OutputOptions(emit_timeouts=True) cannot be combined with JOIN ARCHIVE: a partial "
                    "match has no range for its archived matches",
                    hint="run the live pattern as a separate query with emit_timeouts",
                )
            assert isinstance(spec.query, ArchiveJoinQuery)
            if options.explain:
                _require_archives(spec.query, workload)
            compiled[spec] = compile_archive_join(
                spec.query, workload.source.shape, workload.archive_set, options.planning,
                streaming=options.streaming, coming=options.coming, explain=options.explain,
            )  # fmt: skip
    for spec, query in compiled.items() if not options.explain else ():
        with name_query_in_errors(spec.name):
            if limits.evict is not None:
                live = select_patterns([query.live])
                why = why_not_evictable(live) if live else OF_CLAUSES
                if why is not None:
                    raise build_eviction_error(why)
            if limits.shed_ms is not None:
                raise build_shedding_error("dropped events would be missing from archived matches")

    outputs = [build_output(spec, query.joining.result, query.meaning, BY_TIME) for spec, query in compiled.items()]
    yield ArchiveJoinOperator(tuple(compiled.values()), tuple(outputs), workload.archive_set, workload.source)


def _require_archives(query: ArchiveJoinQuery, workload: Workload) -> None:
    """Raises a QueryError if a query is explained without events or archives."""
    if workload.source.inferred or not workload.archive_set.archives:
        name = query.joins[0].archive
        raise QueryError(
            "the plan for JOIN ARCHIVE depends on the archive: pass events, time= and archives=",
            hint=f'archives={{"{name}": ensue.archive(place, time=..., key=...)}}',
            span=query.joins[0].span,
            text=query.text,
        )


def parse_archive_join(described: Mapping[str, Any], operators: Iterable[UserOperator]) -> Query | ArchiveJoinQuery:
    """Parses a query that a checkpoint describes; joined clauses are written in SQL."""
    if not described["query"].startswith("SELECT"):
        return parse_query(described, operators)
    from ensue.parser.sql.clause_join import parse_archive_join_text

    return parse_archive_join_text(described["query"])


@dataclass(frozen=True)
class ArchiveJoinOperator:
    """Runs queries with JOIN ARCHIVE over one stream and assigns their rows to outputs."""

    queries: tuple[CompiledArchiveJoin, ...]
    outputs: tuple[OutputTable, ...]
    archive_set: ArchiveSet
    source: SourceSchema
    of_events: bool = True  # live queries read the input events directly
    rows: None = None  # all events are needed

    def with_outputs(self, outputs: Sequence[OutputTable]) -> "ArchiveJoinOperator":
        return replace(self, outputs=tuple(outputs))

    @property
    def expected(self) -> tuple[CompiledQuery, ...]:
        """The queries whose cost is estimated: the live patterns."""
        return select_patterns([query.live for query in self.queries])

    @cached_property
    def reads(self) -> InputFilter:
        return InputFilter(union_types(stage.reads for (stage,) in self.chains()))

    def find_unseen(self, matcher: TableMatcher, events: pa.Table, result: Sequence[pa.Table]) -> UnseenTypes:  # noqa: ARG002
        """Returns the types that live queries name and no event has."""
        column = self.source.shape.schema.type_column
        if column is None or not events.num_rows:
            return UnseenTypes()
        seen = {str(value) for value in events.column(column).unique().to_pylist()}
        named = {name for live in self.expected for name in get_pattern_types(live.query)}
        return UnseenTypes(frozenset(named - seen))

    def chains(self) -> "tuple[tuple[ArchiveJoinStage, ...], ...]":
        """Groups the queries by partition key; each group is a chain of one stage."""
        chains = []
        for key in dict.fromkeys(query.partition_key for query in self.queries):
            numbers = [n for n, q in enumerate(self.queries) if q.partition_key == key]
            chains.append((self._stage(key, numbers),))
        return tuple(chains)

    def as_single_stage(self) -> "ArchiveJoinStage":
        return self._stage((), range(len(self.queries)))

    def describe(self, ordered: pa.Table | None = None) -> "PlanNode":
        from ensue.operators.archive_join.join_description import ArchiveJoinDescription, run_join
        from ensue.planner.explain.plan_node import combine_plans

        plans = {}
        for number, (query, output) in enumerate(zip(self.queries, self.outputs, strict=True)):
            figures = () if ordered is None else (run_join(query, self._stage((), (number,)), ordered),)
            described = ArchiveJoinDescription(query, output.finishing, self.archive_set, self.source)
            plans[output.name] = described.describe(*figures)
        return combine_plans(plans)

    def _stage(self, key: tuple[str, ...], numbers: Sequence[int]) -> "ArchiveJoinStage":
        queries = tuple(self.queries[n] for n in numbers)
        used = {join.lookup.archive for query in queries for join in query.joins}
        used |= set() if self.archive_set.own is None else {self.archive_set.own}
        archives = {name: self.archive_set.archives[name] for name in sorted(used)}
        archive_set = replace(self.archive_set.travelling, archives=archives)
        outputs = tuple(self.outputs[n] for n in numbers)
        return ArchiveJoinStage(queries, outputs, archive_set, self.source, key)


@dataclass(frozen=True)
class ArchiveJoinStage(FinalStage):
    """Live queries that run in the key groups of one key, and their archives."""

    queries: tuple[CompiledArchiveJoin, ...]
    outputs: tuple[OutputTable, ...]  # one per query
    archive_set: ArchiveSet
    source: SourceSchema
    key: tuple[str, ...]

    @cached_property
    def reads(self) -> InputFilter:
        """The event types of the live queries and of the stream's archive."""
        joins = () if self.archive_set.own is None else self._joins(self.archive_set.own)
        types = [*(q.live.types for q in self.queries), *(join.lookup.types for join in joins)]
        unkeyed = any(query.has_null_partition_keys for query in self.queries)
        return InputFilter(union_types(map(InputFilter, types)), self.key, nulls=unkeyed)

    @property
    def whole_stream(self) -> str | None:
        """Why a single task gets all events, if it does."""
        if self.key:
            return None
        reasons = (query.why_unpartitioned for query in self.queries)
        return next(
            filter(None, reasons),
            "the query has no [attr] to split the stream: one task, on one core, will match all events",
        )

    @property
    def limits(self) -> Limits:
        return self.queries[0].live.limits

    @property
    def archives(self) -> Mapping[str, Archive]:
        return self.archive_set.archives

    @property
    def archiving(self) -> ArchiveSink | None:
        return self.archive_set.archiving

    def archived_types(self, name: str) -> frozenset[str] | None:
        return union_types(InputFilter(join.lookup.types) for join in self._joins(name))

    def _joins(self, name: str) -> Iterator[CompiledJoin]:
        for query in self.queries:
            yield from (join for join in query.joins if join.lookup.archive == name)

    def split_like(self, name: str) -> frozenset[str]:
        fields = set(self.key)
        for query in self.queries:
            for join, equal in zip(query.joins, query.joining.equal, strict=True):
                if join.lookup.archive == name:
                    fields &= {e.field for e in equal if e.same_field}
        return frozenset(fields)

    def with_archives(self, archives: Mapping[str, Archive]) -> "ArchiveJoinStage":
        archive_set = replace(self.archive_set, archives={**self.archive_set.archives, **archives})
        return replace(self, archive_set=archive_set)

    def matcher(self, key_group: int = 0, key_groups: int = 1) -> StageMatcher:  # noqa: ARG002
        live = [query.live for query in self.queries]
        patterns = select_patterns(live)
        matcher: StageMatcher
        if len(patterns) == len(live):
            matcher = create_matcher(patterns, self.reads, self.limits, shared=len(live) > 1)
        else:
            matcher = CompositeMatcher([side.matcher() for side in live])
        archived = {name: self.archive_set.open_archived_events(name, self.queries[0].unit) for name in self.archives}
        return ArchiveJoinMatcher(matcher, self.queries, archived, self.source.shape)


# ---------------------------------------------------------------------------- archive writers


@dataclass(frozen=True)
class ArchiveWriterStage(FinalStage):
    """A stage without lookups whose events are written to an archive."""

    inner: PipelineStage
    archive_set: ArchiveSet
    source: SourceSchema
    outputs: tuple[OutputTable, ...]

    @property
    def archiving(self) -> ArchiveSink | None:
        return self.archive_set.archiving

    @property
    def reads(self) -> InputFilter:
        return self.inner.reads

    @property
    def whole_stream(self) -> str | None:
        return self.inner.whole_stream

    @property
    def limits(self) -> Limits:
        return self.inner.limits

    def matcher(self, key_group: int = 0, key_groups: int = 1) -> StageMatcher:
        assert self.archive_set.own is not None
        shape = self.archive_set.archives[self.archive_set.own].shape
        unit: Unit = "ns" if "ns" in (shape.unit, self.source.shape.unit) else "us"
        past = self.archive_set.open_archived_events(self.archive_set.own, unit)
        return ArchiveWriterMatcher(self.inner.matcher(key_group, key_groups), past, self.source)

    def iterate_outputs(self, tables: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        return self.inner.iterate_outputs(tables)


class ArchiveWriterMatcher:
    """Buffers the events of a matcher until they are archived."""

    def __init__(self, inner: StageMatcher, past: ArchivedEvents, source: SourceSchema) -> None:
        self.inner, self.past, self.shape = inner, past, source.shape

    def process(self, batch: StageInput) -> list[pa.Table]:
        if batch.events.num_rows:
            self.past.add(batch.bare)
        return self.inner.process(batch)

    def on_watermark(self, now: float) -> list[pa.Table]:
        return self.inner.on_watermark(now)

    def next_timer(self) -> float | None:
        return self.inner.next_timer()

    def get_lookup_counters(self) -> LookupCounters:
        return self.past.get_lookup_counters()

    def hand_over(self, now: float, rows: int, age: float | None) -> ArchiveBatch | None:
        def rescale(time: float) -> float:
            return convert_time_unit(time, self.shape, self.shape.unit, self.past.unit)

        return self.past.hand_over(rescale(now), rows, None if age is None else rescale(age))

    @property
    def usage(self) -> Usage:
        return self.inner.usage.add_bytes(self.past.nbytes)

    def snapshot(self) -> bytes:
        header, events = self.past.snapshot()
        return pack_state(header, {}, {"inner": self.inner.snapshot(), "recent": events})

    def restore(self, data: bytes) -> None:
        header, _, blobs = unpack_state(data)
        self.past.restore(header, blobs["recent"])
        self.inner.restore(blobs["inner"])


def add_archive_writer(
    stages: tuple[PipelineStage, ...], source: SourceSchema, archive_set: ArchiveSet
) -> tuple[PipelineStage, ...]:
    """Adds the buffering of events for the stream's archive to its only stage."""
    if len(stages) > 1 or stages[0].arrival != (ARRIVAL,):
        raise QueryError(
            "the own archive of a stream cannot be combined with queries that have definitions yet",
            hint="run them in a separate call, without own= of ensue.Archives",
        )
    (stage,) = stages
    if isinstance(stage, ArchiveWritingStage):
        return stages
    assert archive_set.own is not None
    own_archive = replace(archive_set.travelling, archives={archive_set.own: archive_set.archives[archive_set.own]})
    return (ArchiveWriterStage(stage, own_archive, source, stage.outputs),)
