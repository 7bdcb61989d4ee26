"""The compiled sides of an archive join: patterns and MATCH_RECOGNIZE clauses."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.analyzer.row_pattern_checks import compute_row_pattern_read_range, get_max_length, is_single_row
from ensue.analyzer.time_bounds import ReadRange, compute_read_range
from ensue.cached import cached_property
from ensue.ir.archive_join import JoinSide, RowPatternSide
from ensue.ir.canonical_form import compute_fingerprint
from ensue.ir.expression import FieldRef
from ensue.ir.row_pattern import OPERAND, Measure, Navigation, RowExpression
from ensue.ir.selection import ByEvents, ByTime, ByUnits
from ensue.ir.traits import is_event
from ensue.ir.traversal import iterate_bound_variables
from ensue.operators.match.match_operator import match_queries
from ensue.operators.row_match.compiled_clause import CompiledClause, compile_clause, require_bounded, require_open_end
from ensue.operators.row_match.row_matcher import RowPatternMatcher
from ensue.options import Limits
from ensue.planner.planner_options import PlannerOptions
from ensue.projection.join_output import ProjectedSide
from ensue.projection.match_order import RANK
from ensue.projection.row_pattern_output import MATCH_ID
from ensue.runtime.compiled_query import CompiledQuery, compile_query, get_result_schema
from ensue.runtime.event_buffer import BufferedEvents
from ensue.runtime.event_pruning import get_relevant_types
from ensue.runtime.live_matcher import LiveMatcher
from ensue.runtime.source_schema import SourceSchema
from ensue.vector.arrow_numpy import Ints, to_single_array
from ensue.vector.arrow_types import plain_type
from ensue.vector.column_values import decode_dictionary
from ensue.vector.event_table import StreamSchema
from ensue.vector.match_rows import Matches
from ensue.vector.take import create_empty_table

_FIRST, _LAST = "\0start", "\0end"  # measures that no text can name


@dataclass(frozen=True)
class PatternSide:
    """A pattern with its conditions."""

    prepared: CompiledQuery
    keys_may_be_null: bool = False  # whether events with NULL keys may match

    @property
    def shape(self) -> StreamSchema:
        return self.prepared.shape

    @property
    def limits(self) -> Limits:
        return self.prepared.planning.limits

    @cached_property
    def side(self) -> ProjectedSide:
        """The columns of its matches: `match_id`, `start`, `end`, and its variables."""
        variables = tuple(iterate_bound_variables(self.prepared.query.pattern))
        return ProjectedSide(get_result_schema(self.prepared), variables)

    @property
    def types(self) -> frozenset[str] | None:
        """The relevant event types; None means all."""
        return get_relevant_types((self.prepared,))

    @property
    def reach(self) -> ReadRange:
        """How far outside a range events affect the matches inside it."""
        return compute_read_range(self.prepared.query, intervals=self.shape.schema.intervals)

    @property
    def longest(self) -> ByTime | ByUnits | ByEvents | None:
        """The longest duration of a match, if known."""
        if self.single and not self.shape.schema.intervals:
            return ByUnits(0)
        return self.prepared.plan.query.within

    @property
    def single(self) -> bool:
        """Whether a match is one event and depends on no other."""
        return is_event(self.prepared.query.pattern)

    @property
    def keys(self) -> frozenset[str]:
        """The fields that are equal in all events of a match."""
        return frozenset(e.field_name for e in self.prepared.plan.query.equivalence)

    @property
    def whole_stream(self) -> bool:
        """Whether it needs the events of all keys together nevertheless."""
        return bool(self.prepared.plan.whole_stream)

    @property
    def name(self) -> bytes:
        """Identifies its matches."""
        return self.prepared.result.identity

    def matches(self, events: pa.Table) -> pa.Table:
        """Returns the matches in complete ordered events, in time order."""
        if not events.num_rows:
            return create_empty_table(self.side.schema)
        return match_queries((self.prepared,), events)[0]

    def matcher(self) -> LiveMatcher:
        return LiveMatcher(self.prepared)

    def ranked_matcher(self) -> "RankedMatcher":
        """Creates a matcher whose matches have a rank for `compute_ranks`."""
        return RankedMatcher(self.prepared)

    @property
    def ranked(self) -> pa.Schema:
        return self.side.schema.append(pa.field(RANK, pa.binary()))


class RankedMatcher(LiveMatcher):
    """Adds to each match its rank in stream order."""

    def _build_table(self, matches: Matches, known: BufferedEvents) -> pa.Table:
        return self.ranked_result(matches, known)


def compute_ranks(matches: pa.Table, *, by_id: bool) -> Ints:
    """Returns numbers that order matches of the same time: by stream order, or by id.

    Matches without a rank column were found together and are in order.
    """
    name = MATCH_ID if by_id else RANK
    if name not in matches.column_names:
        return np.arange(matches.num_rows)
    ranks = pc.rank(to_single_array(matches.column(name)), tiebreaker="dense")
    return np.asarray(ranks.to_numpy(), np.int64)


def select_patterns(sides: "Sequence[CompiledSide]") -> tuple[CompiledQuery, ...]:
    return tuple(side.prepared for side in sides if isinstance(side, PatternSide))


# ------------------------------------------------------------------------------------- clauses


@dataclass(frozen=True)
class CompiledRowPatternSide:
    """A compiled MATCH_RECOGNIZE clause: each match is one event, named by its alias."""

    clause: CompiledClause  # its last two measures are the times of the first and of the last row
    alias: str
    shape: StreamSchema
    ids: bool  # whether events have a field match_id
    types: None = None  # every row counts
    whole_stream: bool = False
    keys_may_be_null: bool = True

    @property
    def limits(self) -> Limits:
        return self.clause.limits

    @cached_property
    def side(self) -> ProjectedSide:
        schema = self.clause.schema
        time = plain_type(self.shape.arrow.field(self.shape.schema.end).type)
        hidden = (_FIRST, _LAST) if self.ids else (_FIRST, _LAST, MATCH_ID)
        shown = [pa.field(f.name, plain_type(f.type)) for f in schema if f.name not in hidden]
        fields = [
            schema.field(MATCH_ID), pa.field("start", time), pa.field("end", time),
            pa.field(self.alias, pa.struct(shown)),
        ]  # fmt: skip
        return ProjectedSide(pa.schema(fields), (self.alias,))

    @property
    def reach(self) -> ReadRange:
        return compute_row_pattern_read_range(self.clause.row_pattern)

    @property
    def longest(self) -> ByTime | ByUnits | None:
        if self.clause.plan.awaited:
            return None  # a match is known only when a later row arrives
        return get_max_length(self.clause.row_pattern)

    @cached_property
    def single(self) -> bool:
        return is_single_row(self.clause.row_pattern)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.clause.key)

    @property
    def name(self) -> bytes:
        return self.clause.meaning.encode()

    def matches(self, events: pa.Table) -> pa.Table:
        if not events.num_rows:
            return create_empty_table(self.side.schema)
        return self.convert_result(self.clause.match_complete(events.select(self.clause.arrow.names)))

    def matcher(self) -> "RowPatternSideMatcher":
        return RowPatternSideMatcher(self)

    def ranked_matcher(self) -> "RowPatternSideMatcher":
        return self.matcher()

    @property
    def ranked(self) -> pa.Schema:
        return self.side.schema

    def convert_result(self, result: pa.Table) -> pa.Table:
        schema = self.side.schema
        struct = schema.field(self.alias).type
        columns = [_plain(result.column(field.name), field.type) for field in struct]
        event = pa.StructArray.from_arrays(columns, fields=list(struct))
        times = (_plain(result.column(n), schema.field("start").type) for n in (_FIRST, _LAST))
        ids = to_single_array(result.column(MATCH_ID))
        return pa.Table.from_arrays([ids, *times, event], schema=schema)


def _plain(column: pa.ChunkedArray, type: pa.DataType) -> pa.Array:
    array = decode_dictionary(to_single_array(column))
    return array if array.type == type else array.cast(type)


class RowPatternSideMatcher(RowPatternMatcher):
    """Matches a clause incrementally as a side of a join."""

    def __init__(self, prepared: CompiledRowPatternSide) -> None:
        clause, schema = prepared.clause, prepared.shape.schema
        order = tuple(schema.order)
        super().__init__(clause, SourceSchema(clause.arrow, schema.end, schema.type_column, order))
        self.prepared = prepared

    def process(self, events: pa.Table) -> pa.Table:
        return self.prepared.convert_result(super().process(events))

    def on_watermark(self, now: float) -> pa.Table:
        return self.prepared.convert_result(super().on_watermark(now))


# ------------------------------------------------------------------------------------ compilation

CompiledSide = PatternSide | CompiledRowPatternSide


def compile_side(
    side: JoinSide, shape: StreamSchema, planning: PlannerOptions, *, streaming: bool = False
) -> CompiledSide:
    if not isinstance(side, RowPatternSide):
        return PatternSide(compile_query(side, shape, planning, streaming=streaming))
    if streaming:
        require_open_end(side.row_pattern)
    compiled = compile_clause(side.row_pattern, shape.arrow, planning.limits, ids=True, session=shape.schema.session)
    if streaming:
        require_bounded(compiled.plan)
    row_pattern = compiled.row_pattern
    time = row_pattern.order[0].expr
    ends = (
        Measure(RowExpression(FieldRef(OPERAND, "0"), (Navigation(time, first=first, final=True),)), name)
        for name, first in ((_FIRST, True), (_LAST, False))
    )
    timed = replace(row_pattern, measures=(*row_pattern.measures, *ends))
    clause = replace(compiled, plan=replace(compiled.plan, row_pattern=timed))
    return CompiledRowPatternSide(clause, side.alias, shape, side.ids)


def compile_archived_side(
    keyed: JoinSide, original: JoinSide, shape: StreamSchema, planning: PlannerOptions
) -> CompiledSide:
    """Compiles the archived side of a join; its match ids ignore the key that ON adds."""
    compiled = compile_side(keyed, shape, PlannerOptions(limits=planning.limits))
    if isinstance(compiled, PatternSide) and not isinstance(original, RowPatternSide):
        return PatternSide(replace(compiled.prepared, identity=compute_fingerprint(original)))
    return compiled
