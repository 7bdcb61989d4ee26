"""Rewrites a query into itself and queries for its timed-out partial matches."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import pyarrow as pa
import pyarrow.compute as pc

from ensue.analyzer.aggregation import ALL_EVENTS_COLUMNS
from ensue.analyzer.key_inference import add_equivalence
from ensue.ir.canonical_form import compute_fingerprint
from ensue.ir.query import TIMED_OUT, Query
from ensue.ir.traversal import iterate_positive_atoms
from ensue.planner.planner import choose_plan
from ensue.planner.planner_options import DEFAULT_OPTIONS, PlannerOptions
from ensue.projection.time_order import get_named_columns
from ensue.runtime.compiled_query import CompiledQuery, compile_query, get_result_schema
from ensue.vector.event_table import StreamSchema
from ensue.vector.take import create_empty_table


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
