"""A side of a join made ready: a pattern, or a clause of SQL."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.correlation import AnySide, ClauseSide
from ensue.algebra.form import is_event
from ensue.algebra.predicate import Field
from ensue.algebra.reach import Reach, clause_reach, longest_of, reach
from ensue.algebra.row_patterns.edges import alone
from ensue.algebra.row_patterns.recognition import Measure
from ensue.algebra.row_patterns.values import REACHED, Navigation, RowValue
from ensue.algebra.walk import bound_variables
from ensue.algebra.window import ByEvents, ByTime, ByUnits
from ensue.columns.arrow_kinds import plain_type
from ensue.columns.buffers import Ints, single
from ensue.columns.matches import Matches
from ensue.columns.rows import no_rows
from ensue.columns.stream import Shape
from ensue.columns.values import decoded
from ensue.computed import cached_property
from ensue.plan.limits import Limits
from ensue.plan.planning import Planning
from ensue.results.identity import fingerprint
from ensue.results.joined import Side
from ensue.results.row_patterns.ids import MATCH_ID
from ensue.results.triggers import RANK
from ensue.workload.held_events import Held
from ensue.workload.live_matcher import LiveMatcher
from ensue.workload.prepared import Prepared, prepare, result_of
from ensue.workload.queries.work import matched
from ensue.workload.relevance import types_that_matter
from ensue.workload.row_patterns.clause import Clause
from ensue.workload.row_patterns.clause import prepared as prepared_clause
from ensue.workload.row_patterns.matcher import ClauseMatcher
from ensue.workload.row_patterns.streamable import require_bounded, require_open_end
from ensue.workload.source import Source
from ensue.workload.together import Fits

_FIRST, _LAST = "\0start", "\0end"  # measures that no text can name


class SideMatcher(Fits, Protocol):
    """Finds the matches of a side in events that come piece by piece."""


class PreparedSide(Protocol):
    """What a join asks of each of its sides."""

    @property
    def shape(self) -> Shape:
        """Of the events."""

    @property
    def limits(self) -> Limits: ...

    @property
    def side(self) -> Side:
        """The columns of its matches: `match_id`, `start`, `end`, and its variables."""

    @property
    def types(self) -> frozenset[str] | None:
        """The types of events that matter. None: all of them."""

    @property
    def reach(self) -> Reach:
        """How far beyond a range events have a say in the matches inside it."""

    @property
    def longest(self) -> ByTime | ByUnits | ByEvents | None:
        """How long a match is at most, if that is known."""

    @property
    def single(self) -> bool:
        """Whether a match is one event, in which no other has a say."""

    @property
    def keys(self) -> frozenset[str]:
        """The fields that all events of a match have alike."""

    @property
    def whole_stream(self) -> bool:
        """Whether all events have to be seen together, for all that."""

    @property
    def keys_may_be_null(self) -> bool:
        """Whether events without a value in them may match."""

    @property
    def name(self) -> bytes:
        """What sets its matches apart from those of others."""

    def matches(self, events: pa.Table) -> pa.Table:
        """The matches in events that are in order, and all there, in the order of time."""

    def matcher(self) -> SideMatcher:
        """A matcher with no events yet."""

    def ranked_matcher(self) -> SideMatcher:
        """The same, whose matches also tell their order: see `ranks_of`."""

    @property
    def ranked(self) -> pa.Schema:
        """The columns of the matches that such a matcher gives."""


# ------------------------------------------------------------------------------------ patterns


@dataclass(frozen=True)
class PatternSide:
    """A pattern with its conditions."""

    prepared: Prepared

    @property
    def shape(self) -> Shape:
        return self.prepared.shape

    @property
    def limits(self) -> Limits:
        return self.prepared.planning.limits

    @cached_property
    def side(self) -> Side:
        variables = tuple(bound_variables(self.prepared.query.pattern))
        return Side(result_of(self.prepared), variables)

    @property
    def types(self) -> frozenset[str] | None:
        return types_that_matter((self.prepared,))

    @property
    def reach(self) -> Reach:
        return reach(self.prepared.query, intervals=self.shape.schema.intervals)

    @property
    def longest(self) -> ByTime | ByUnits | ByEvents | None:
        if self.single and not self.shape.schema.intervals:
            return ByUnits(0)
        return self.prepared.plan.query.within

    @property
    def single(self) -> bool:
        return is_event(self.prepared.query.pattern)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(e.field_name for e in self.prepared.plan.query.equivalence)

    @property
    def whole_stream(self) -> bool:
        return bool(self.prepared.plan.whole_stream)

    @property
    def keys_may_be_null(self) -> bool:
        return False

    @property
    def name(self) -> bytes:
        return self.prepared.result.identity

    def matches(self, events: pa.Table) -> pa.Table:
        if not events.num_rows:
            return no_rows(self.side.schema)
        return matched((self.prepared,), events, ordered=True).tables[0]

    def matcher(self) -> LiveMatcher:
        return LiveMatcher(self.prepared)

    def ranked_matcher(self) -> "RankedMatcher":
        return RankedMatcher(self.prepared)

    @property
    def ranked(self) -> pa.Schema:
        return self.side.schema.append(pa.field(RANK, pa.binary()))


class RankedMatcher(LiveMatcher):
    """Finds matches with their rank: what comes first in the stream has the lower one."""

    def _built(self, matches: Matches, known: Held) -> pa.Table:
        return self.ranked_result(matches, known)


def ranks_of(matches: pa.Table, *, by_id: bool) -> Ints:
    """Numbers that order matches of the same time: as the stream orders their events, or by id.

    Without a column of ranks they were found together, and stand in their order.
    """
    name = MATCH_ID if by_id else RANK
    if name not in matches.column_names:
        return np.arange(matches.num_rows)
    ranks = pc.rank(single(matches.column(name)), tiebreaker="dense")
    return np.asarray(ranks.to_numpy(), np.int64)


def patterns_of(sides: Sequence[PreparedSide]) -> tuple[Prepared, ...]:
    """Those of some sides that are patterns."""
    return tuple(side.prepared for side in sides if isinstance(side, PatternSide))


# ------------------------------------------------------------------------------------- clauses


@dataclass(frozen=True)
class PreparedClause:
    """A clause of SQL: each of its matches is one event, which is called by its alias."""

    clause: Clause  # its last two measures are the times of the first and of the last row
    alias: str
    shape: Shape
    ids: bool  # events have a field match_id

    @property
    def limits(self) -> Limits:
        return self.clause.limits

    @cached_property
    def side(self) -> Side:
        own = self.clause.schema
        time = plain_type(self.shape.arrow.field(self.shape.schema.end).type)
        shown = [pa.field(f.name, plain_type(f.type)) for f in own if self._is_shown(f.name)]
        fields = [
            own.field(MATCH_ID), pa.field("start", time), pa.field("end", time),
            pa.field(self.alias, pa.struct(shown)),
        ]  # fmt: skip
        return Side(pa.schema(fields), (self.alias,))

    def _is_shown(self, name: str) -> bool:
        return name not in (_FIRST, _LAST) and (self.ids or name != MATCH_ID)

    @property
    def types(self) -> frozenset[str] | None:
        return None  # a clause is about all rows

    @property
    def reach(self) -> Reach:
        return clause_reach(self.clause.recognition)

    @property
    def longest(self) -> ByTime | ByUnits | None:
        if self.clause.plan.awaited:
            return None  # it is told when a row behind it comes, however late
        return longest_of(self.clause.recognition)

    @cached_property
    def single(self) -> bool:
        return alone(self.clause.recognition)

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.clause.key)

    @property
    def whole_stream(self) -> bool:
        return False

    @property
    def keys_may_be_null(self) -> bool:
        return True

    @property
    def name(self) -> bytes:
        return self.clause.meaning.encode()

    def matches(self, events: pa.Table) -> pa.Table:
        if not events.num_rows:
            return no_rows(self.side.schema)
        return self.shown(self.clause.whole(events.select(self.clause.arrow.names)))

    def matcher(self) -> "ClauseSideMatcher":
        return ClauseSideMatcher(self)

    def ranked_matcher(self) -> "ClauseSideMatcher":
        return self.matcher()

    @property
    def ranked(self) -> pa.Schema:
        return self.side.schema

    def shown(self, found: pa.Table) -> pa.Table:
        """What the clause gives as a table of matches."""
        wanted = self.side.schema
        struct = wanted.field(self.alias).type
        columns = [_plain(found.column(field.name), field.type) for field in struct]
        event = pa.StructArray.from_arrays(columns, fields=list(struct))
        times = (_plain(found.column(n), wanted.field("start").type) for n in (_FIRST, _LAST))
        return pa.Table.from_arrays([single(found.column(MATCH_ID)), *times, event], schema=wanted)


def _plain(column: pa.ChunkedArray, type: pa.DataType) -> pa.Array:
    found = decoded(single(column))
    return found if found.type == type else found.cast(type)


class ClauseSideMatcher:
    """A clause over events that come piece by piece."""

    def __init__(self, prepared: PreparedClause) -> None:
        self.prepared = prepared
        schema = prepared.shape.schema
        source = Source(prepared.clause.arrow, schema.end, schema.type_column, tuple(schema.order))
        self.matcher = ClauseMatcher(prepared.clause, source)

    def feed(self, events: pa.Table) -> pa.Table:
        """What the next rows decide."""
        return self.prepared.shown(self.matcher.feed(events))

    def advance(self, now: float) -> pa.Table:
        """What time alone decides."""
        return self.prepared.shown(self.matcher.advance(now))

    def finish(self) -> pa.Table:
        """What only waited for further rows."""
        return self.prepared.shown(self.matcher.finish())

    def deadline(self) -> float | None:
        return self.matcher.deadline()

    @property
    def partial_matches(self) -> int:
        return self.matcher.partial_matches

    @property
    def state_bytes(self) -> int:
        return self.matcher.state_bytes

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        return self.matcher.save()

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped."""
        self.matcher.restore(data)


# ------------------------------------------------------------------------------------ preparing


def prepared_side(
    side: AnySide, shape: Shape, planning: Planning, *, streaming: bool = False
) -> PreparedSide:
    """A checked side over events of a shape; `streaming`: they keep coming."""
    if not isinstance(side, ClauseSide):
        return PatternSide(prepare(side, shape, planning, streaming=streaming))
    if streaming:
        require_open_end(side.recognition)
    plain = prepared_clause(
        side.recognition, shape.arrow, planning.limits, ids=True, session=shape.schema.session
    )
    if streaming:
        require_bounded(plain.plan)
    meant = plain.recognition
    time = meant.order[0].expr
    ends = (
        Measure(RowValue(Field(REACHED, "0"), (Navigation(time, first=first, final=True),)), name)
        for name, first in ((_FIRST, True), (_LAST, False))
    )
    timed = replace(meant, measures=(*meant.measures, *ends))
    clause = replace(plain, plan=replace(plain.plan, recognition=timed))
    return PreparedClause(clause, side.alias, shape, side.ids)


def archived_side(
    keyed: AnySide, asked: AnySide, shape: Shape, planning: Planning
) -> PreparedSide:
    """The archived side of a join; its ids do not tell whether it got a key from ON."""
    found = prepared_side(keyed, shape, Planning(limits=planning.limits))
    if isinstance(found, PatternSide) and not isinstance(asked, ClauseSide):
        return PatternSide(replace(found.prepared, identity=fingerprint(asked)))
    return found
