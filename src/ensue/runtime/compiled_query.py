"""A compiled query: its plan, engines and result builder, and the queries for timed-out partial matches."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from ensue.analyzer.key_inference import add_equivalence
from ensue.analyzer.output_mode import ALL_EVENTS_COLUMNS, collects_matches
from ensue.cached import cached_property
from ensue.codegen.user_functions import find_uncompilable
from ensue.engine.engine import Engine
from ensue.engine.match_output import concat_matches
from ensue.engine.memory_budget import MemoryBudget, MemoryRequest
from ensue.engine.program import Program, format_kernel
from ensue.engine.scan import RoleTest, Scan, build_tests
from ensue.ir.canonical_form import compute_fingerprint
from ensue.ir.query import TIMED_OUT, Limit, Query
from ensue.ir.traits import is_interval_negation
from ensue.ir.traversal import iterate_positive_atoms
from ensue.planner.physical_plan import PhysicalPlan, ReferencePlan
from ensue.planner.planner import choose_plan
from ensue.planner.planner_options import DEFAULT_OPTIONS, PlannerOptions
from ensue.projection.match_ids import RowHashes
from ensue.projection.match_order import get_named_columns, sort_matches
from ensue.projection.match_table import MatchTableBuilder, estimate_result_bytes
from ensue.schema import Schema, get_type_names
from ensue.vector.event_table import StreamSchema
from ensue.vector.match_rows import Matches
from ensue.vector.query_check import check_with_regions
from ensue.vector.take import create_empty_table

if TYPE_CHECKING:
    from ensue.engine.adaptive import AdaptiveEngine
    from ensue.engine.reference_engine import ReferenceEngine
    from ensue.planner.explain.plan_node import PlanNode

AnyEngine: TypeAlias = "Engine | AdaptiveEngine | ReferenceEngine"
MANY_EVENTS = 100_000  # in a table; matching fewer in threads costs more than it saves
FEW_EVENTS = 10_000  # matches up to which the size of the table is not checked


@dataclass(frozen=True)
class CompiledQuery:
    """A query compiled for a stream schema."""

    query: Query  # checked
    plan: PhysicalPlan  # in terms of columns
    shape: StreamSchema
    identity: bytes | None = None  # part of match ids; None: the query's fingerprint
    planning: PlannerOptions = DEFAULT_OPTIONS
    ids: bool = True  # whether its result has a column match_id

    @cached_property
    def physical(self) -> tuple[Query, Schema]:
        """The query in terms of columns."""
        return self.shape.physical(self.query)

    @cached_property
    def result(self) -> MatchTableBuilder:
        query, schema = self.physical
        return MatchTableBuilder(
            query,
            schema,
            self.shape.arrow,
            self.plan.residual,
            columns_of=self.shape.get_columns(query),
            whole_of=self.shape.get_event_columns(query),
            named_by=self.shape.get_identity_columns(query),
            query_fingerprint=self.identity or compute_fingerprint(self.query),
            ids=self.ids,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # not what follows from it

    def engine(self, *, nullable: bool = False, counted: bool = False) -> AnyEngine:
        """An empty engine; `counted`: with counters for EXPLAIN ANALYZE."""
        query, schema = self.physical
        limits = self.planning.limits
        if isinstance(self.plan.structure, ReferencePlan):
            return self._reference_engine(query, schema)
        if self.planning.adaptive:
            from ensue.engine.adaptive import AdaptiveEngine, CostBasedAdviser, why_not_adaptive

            if why_not_adaptive(self.plan) is None:
                adviser = CostBasedAdviser(self, query, schema, self.planning)
                return AdaptiveEngine(self.plan, schema, self.shape.unit, adviser, nullable=nullable, limits=limits)
        known = None if nullable or counted else self.program.copy()
        return Engine(
            self.plan, schema, self.shape.unit, nullable=nullable, counted=counted, limits=limits,
            program=known,
        )  # fmt: skip

    def _reference_engine(self, query: Query, schema: Schema) -> "ReferenceEngine":
        from ensue.engine.negated_patterns import AbsenceEngine
        from ensue.engine.reference_engine import ReferenceEngine

        kind = AbsenceEngine if is_interval_negation(query.pattern) else ReferenceEngine
        return kind(self.plan, schema, self.shape.unit, self.planning.limits)

    @cached_property
    def program(self) -> Program:
        """Its kernel, generated once for all engines."""
        _, schema = self.physical
        return Program(self.plan, schema, self.shape.unit, nullable=False)

    @cached_property
    def matching_part(self) -> str:
        """A text that is equal for queries that differ only in RETURN, HAVING and LIMIT."""
        plan = self.plan
        return f"{get_matching_query(plan)!r} {plan.structure!r} {plan.roles!r} {plan.prune}"

    @cached_property
    def role_tests(self) -> tuple[RoleTest, ...]:
        """The tests of its roles, for a scan that several queries share."""
        return tuple(build_tests(self.program))

    def describe(self) -> "PlanNode":
        """Describes its plan, with its kernel."""
        from ensue.planner.explain.plan_description import describe_plan

        kernel = partial(format_kernel, self.plan, self.physical[1], self.shape.unit)
        return replace(describe_plan(self.plan), kernel=kernel)


def get_matching_query(plan: PhysicalPlan) -> Query:
    """The query of a plan without what does not decide the matches."""
    together = Limit(1) if collects_matches(plan.query) else None  # no other query shares such an engine
    query = replace(plan.query, name=None, returns=(), exists=False, limit=together)
    if not isinstance(plan.structure, ReferencePlan):  # the reference evaluates HAVING itself
        query = replace(query, having=None)
    return query


def compile_query(
    query: Query,
    shape: StreamSchema,
    planning: PlannerOptions = DEFAULT_OPTIONS,
    *,
    streaming: bool = False,
    off: Collection[str] = (),
) -> CompiledQuery:
    """Checks a query against a stream schema and plans it."""
    checked = check_with_regions(query, shape.schema, streaming=streaming)
    physical, schema = shape.physical(checked)
    plan = choose_plan(physical, schema, planning, off=off, python=find_uncompilable(physical))
    return CompiledQuery(checked, plan, shape, planning=planning)


def has_many_events(events: pa.Table) -> bool:
    """Whether matching a table in threads may be worthwhile."""
    return bool(events.num_rows >= MANY_EVENTS)


def can_match_in_parts(query: CompiledQuery) -> bool:
    """Whether no part of a table depends on another one."""
    plan, planning = query.plan, query.planning
    return not (
        isinstance(plan.structure, ReferencePlan)
        or planning.adaptive
        or planning.limits.max_partial_matches is not None  # it counts those of all keys at one time
        or plan.whole_stream
        or plan.interpreted  # functions of the user, which may not be made for threads
        or any(role.inner is not None for role in plan.roles)
    )


def build_result(
    prepared: CompiledQuery, matches: Matches, events: pa.Table, hashes: RowHashes | None = None
) -> pa.Table:
    """The result table of matches; `hashes` are those of the events, if they are known."""
    check_result_size(prepared, matches, events)
    return prepared.result.build(matches, events, hashes)


def check_result_size(prepared: CompiledQuery, matches: Matches, events: pa.Table) -> None:
    """Raises a LimitError if the result table of matches needs too much memory."""
    query, schema = prepared.physical
    chosen_from = prepared.plan.residual or query.having is not None or query.limit is not None
    if matches.count > FEW_EVENTS and not chosen_from:
        whole_of = prepared.shape.get_event_columns(query)
        size = matches.nbytes + estimate_result_bytes(matches, events, query, whole_of)
        held = MemoryRequest(0, matches.number, size, events.num_rows - 1, None)
        MemoryBudget(prepared.planning.limits, prepared.query, schema, prepared.shape.unit).ask(held)


def sort_by_time(prepared: CompiledQuery, matches: Matches, events: pa.Table) -> Matches:
    """Sorts matches by time."""
    query, schema = prepared.physical
    return sort_matches(matches, events, query, schema, prepared.shape.unit)


def get_result_schema(prepared: CompiledQuery) -> pa.Schema:
    """The columns of a query's result."""
    return prepared.result.output_schema


def concat_deliveries(matcher: AnyEngine, found: Sequence[Matches]) -> Matches:
    """Concatenates the results of several calls of an engine."""
    return concat_matches([f for f in found if f.count], matcher.output)


def find_unseen_types(prepared: CompiledQuery, matcher: "AnyEngine | Scan") -> frozenset[str]:
    """The types of a query's positive variables that no event had."""
    names = {n for role in prepared.plan.roles if not role.negative for n in get_type_names(role.type)}
    return frozenset(names.intersection(matcher.unseen_types()))


@dataclass(frozen=True, slots=True)
class TimeoutQueries:
    """Queries over one stream with a common result table."""

    queries: tuple[CompiledQuery, ...]  # the query itself, then those for its timeouts
    result: pa.Schema

    @property
    def main(self) -> CompiledQuery:
        return self.queries[0]

    def merge(self, found: Sequence[pa.Table]) -> pa.Table:
        """Concatenates the results of all queries."""
        if len(self.queries) == 1 and found[0].schema == self.result:
            return found[0]
        pieces = [
            self._widen(_mask_empty_lists(query, table), query.query, timed_out=number > 0)
            for number, (query, table) in enumerate(zip(self.queries, found, strict=True))
            if table.num_rows
        ]
        return pa.concat_tables([create_empty_table(self.result), *pieces])

    def _widen(self, table: pa.Table, query: Query, *, timed_out: bool) -> pa.Table:
        """A result with the columns of all queries; missing ones are NULL.

        A timeout query without a variable called `start` has the standard column of that name
        instead, which is not used.
        """
        columns = []
        missing = get_named_columns(self.main.query) - get_named_columns(query)
        for field in self.result:
            if field.name in missing:
                columns.append(pa.nulls(table.num_rows, field.type))
            elif field.name == TIMED_OUT and TIMED_OUT not in table.column_names:
                columns.append(pa.repeat(pa.scalar(timed_out), table.num_rows))
            elif field.name in table.column_names:
                column = table.column(field.name)
                columns.append(column if column.type == field.type else column.cast(field.type))
            else:
                columns.append(pa.nulls(table.num_rows, field.type))
        return pa.table(columns, schema=self.result)


def _mask_empty_lists(query: CompiledQuery, table: pa.Table) -> pa.Table:
    """The result of a timeout query, with NULL for empty lists."""
    if not query.query.unfinished:
        return table
    for place, field in enumerate(table.schema):
        if pa.types.is_list(field.type):
            lists = table.column(place)
            empty = pc.equal(pc.list_value_length(lists), 0)
            lists = pc.if_else(empty, pa.scalar(None, field.type), lists)
            table = table.set_column(place, field, lists)
    return table


def compile_with_timeouts(
    query: Query,
    shape: StreamSchema,
    planning: PlannerOptions = DEFAULT_OPTIONS,
    *,
    emit_timeouts: bool = False,
    streaming: bool = False,
) -> TimeoutQueries:
    """Compiles a query, with the queries for its timeouts if `emit_timeouts`."""
    main = compile_query(query, shape, planning, streaming=streaming)
    result = get_result_schema(main)
    if not emit_timeouts:
        return TimeoutQueries((main,), result)
    from ensue.analyzer.timeouts import build_timeout_queries

    checked = add_plan_keys(main)
    identity = blake2b(compute_fingerprint(main.query), digest_size=16, person=b"timed out").digest()
    others = []
    free = replace(planning, structure=None, shape=None)
    for other in build_timeout_queries(checked, shape.schema.end):
        # not checked again: a chain of equalities must not become a key that the query has not
        physical, schema = shape.physical(other)
        plan = choose_plan(physical, schema, free)
        others.append(CompiledQuery(other, plan, shape, identity, free))
    columns = len(main.query.returns) or sum(1 for _ in iterate_positive_atoms(main.query.pattern))
    place = len(result) - columns
    if query.all_events:
        place = result.get_field_index(ALL_EVENTS_COLUMNS[0])
    return TimeoutQueries((main, *others), result.insert(place, pa.field(TIMED_OUT, pa.bool_())))


def add_plan_keys(main: CompiledQuery) -> Query:
    """The checked query with the keys that its plan inferred, so that all queries have them."""
    query = main.query
    for key in main.plan.query.equivalence:
        query = add_equivalence(query, key.field_name)
    return query
