"""Joins live matches with archived matches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.cached import cached_property
from ensue.ir.archive_join import ArchiveJoin, ArchiveJoinQuery, JoinKind, RangeAnchor, RowPatternSide
from ensue.ir.expression import Expr, FieldRef
from ensue.ir.query import Query
from ensue.operators.archive_join.archive_access import ArchiveLookup
from ensue.operators.archive_join.join_sides import CompiledSide, compute_ranks
from ensue.planner.access_paths import AccessDecision
from ensue.projection.join_output import (
    JoinedRows,
    JoinSchema,
    ProjectedSide,
    TimeRange,
    Times,
    encode_keys,
    evaluate_having,
    filter_rows,
    get_match_times,
    join_intervals,
    select_latest,
)
from ensue.vector.arrow_numpy import Bools, Ints
from ensue.vector.arrow_types import Unit
from ensue.vector.column_values import decode_dictionary, to_arrow
from ensue.vector.key_codes import ColumnCodes
from ensue.vector.take import create_empty_table, take_values


def get_first_values(rows: JoinedRows, field: str) -> pa.Array:
    """Returns a field of the first event of each match, by the order of its variables."""
    result: pa.Array | None = None
    for side in rows.shape.sides:
        for variable in side.variables:
            if all(f.name != field for f in side.fields(variable)):
                continue
            column = rows.gathered.column(variable, field)
            values = decode_dictionary(take_values(column, rows.gathered.matches.nth(variable, 1)))
            result = values if result is None else pc.coalesce(result, values.cast(result.type))
    assert result is not None, f"no event has a field {field}"
    return result


def are_values_equal(rows: JoinedRows, sides: Sequence[int], field: str) -> Bools:
    """Whether all events of some sides have the same value, which is not NULL."""
    matches, codes = rows.gathered.matches, ColumnCodes()
    least = np.full(matches.count, np.iinfo(np.int64).max)
    most = np.full(matches.count, -1, np.int64)
    for number in sides:
        side = rows.shape.sides[number]
        for variable in side.variables:
            if all(f.name != field for f in side.fields(variable)):
                continue  # a result of an operator has no such field
            offsets, elements = matches.segments(variable)
            column = take_values(rows.gathered.column(variable, field), elements)
            values = codes.encode(column).astype(np.int64)
            match_numbers = np.repeat(np.arange(matches.count), np.diff(offsets))
            np.minimum.at(least, match_numbers, values)
            np.maximum.at(most, match_numbers, values)
    return np.asarray((least == most) & (least >= 0), np.bool_)


@dataclass(frozen=True, slots=True)
class KeyEquality:
    """A value that is equal on both sides of a join."""

    archived: str  # the field, which is equal in all events of an archived match
    live: Expr
    field: str = ""  # of the archive's events; empty: the same
    same_field: bool = False  # whether it is the same field of live and archived events


@dataclass(frozen=True)
class MatchJoiner:
    """Joins the matches of the sides of an archive join."""

    archive_join: ArchiveJoinQuery  # checked
    live: ProjectedSide
    archived: tuple[ProjectedSide, ...]  # one per join
    equal: tuple[tuple[KeyEquality, ...], ...]  # one per join: the key comparisons
    unit: Unit  # of the times of all sides
    identity: bytes

    @cached_property
    def _delivered(self) -> JoinSchema:
        """The shape of the result: all sides but those of ANTI JOIN."""
        kinds = [join.kind for join in self.archive_join.joins]
        sides = [s for s, k in zip(self.archived, kinds, strict=True) if k is not JoinKind.ANTI]
        query = self.archive_join
        return JoinSchema([self.live, *sides], query.returns, query.having, query.columns)

    @property
    def result(self) -> pa.Schema:
        return self._delivered.result

    @cached_property
    def _live_shape(self) -> JoinSchema:
        return JoinSchema([self.live])

    @cached_property
    def _archived_shapes(self) -> tuple[JoinSchema, ...]:
        return tuple(JoinSchema([side]) for side in self.archived)

    @cached_property
    def _on_shapes(self) -> tuple[JoinSchema, ...]:
        """The shape of the sides that the ON of each join may use: its own and earlier ones."""
        shapes, sides = [], [self.live]
        for join, side in zip(self.archive_join.joins, self.archived, strict=True):
            shapes.append(JoinSchema([*sides, side]))
            sides += [side] if join.kind is not JoinKind.ANTI else []
        return tuple(shapes)

    @cached_property
    def _ranges(self) -> tuple[TimeRange, ...]:
        return tuple(TimeRange.from_range(join.range, self.unit) for join in self.archive_join.joins)

    def ranges(self, number: int, live: pa.Table) -> tuple[Times, Times]:
        """Returns the first and last time of archived matches, both included."""
        anchor, range_ = self.archive_join.joins[number].range.anchor, self._ranges[number]
        name = "start" if anchor is RangeAnchor.START else "end"
        times = get_match_times(live, name, self.unit)
        return range_.compute_start(times), range_.compute_end(times)

    def live_keys(self, live: pa.Table, equal: KeyEquality) -> pa.Array:
        rows = JoinedRows(self._live_shape, [live], [np.arange(live.num_rows)])
        if isinstance(equal.live, FieldRef) and equal.live.name is not None:
            return rows.gathered.values(equal.live)  # in its own type
        return to_arrow(rows.values(equal.live), rows.shape.unit)

    def archived_keys(self, number: int, archived: pa.Table, equal: KeyEquality) -> pa.Array:
        shape, all_rows = self._archived_shapes[number], np.arange(archived.num_rows)
        return get_first_values(JoinedRows(shape, [archived], [all_rows]), equal.archived)

    def join(self, live: pa.Table, archived: Sequence[pa.Table]) -> pa.Table:
        """Joins live matches with candidates of archived matches."""
        tables, rows = [live], [np.arange(live.num_rows)]
        for number, join in enumerate(self.archive_join.joins):
            pairs = self._find_pairs(number, tables, rows, archived[number])
            if join.kind is JoinKind.ANTI:
                unmatched = np.ones(len(rows[0]), np.bool_)
                unmatched[pairs[0]] = False
                rows = list(filter_rows(rows, unmatched))
                continue
            left, right = _add_unmatched(*pairs, len(rows[0]), join)
            rows = [*(numbers[left] for numbers in rows), right]
            tables.append(archived[number])
        return self._table(tables, rows)

    def _find_pairs(
        self, number: int, tables: Sequence[pa.Table], rows: Sequence[Ints], archived: pa.Table
    ) -> tuple[Ints, Ints]:
        """Returns the joined rows and archived matches, ordered by row."""
        if not archived.num_rows or not len(rows[0]):
            return _EMPTY, _EMPTY
        join = self.archive_join.joins[number]
        live, chosen = tables[0], rows[0]
        since, until = self.ranges(number, live)
        starts, ends = (get_match_times(archived, name, self.unit) for name in ("start", "end"))
        live_codes, archived_codes = encode_keys(
            [self.live_keys(live, e) for e in self.equal[number]],
            [self.archived_keys(number, archived, e) for e in self.equal[number]],
            live.num_rows,
            archived.num_rows,
        )
        codes = live_codes[chosen], archived_codes
        lefts, rights = [_EMPTY], [_EMPTY]
        for left, right in join_intervals(codes, since[chosen], until[chosen], starts, ends):
            fits = self._filter_pairs(number, [*tables, archived], rows, left, right)
            lefts.append(left[fits])
            rights.append(right[fits])
        left, right = np.concatenate(lefts), np.concatenate(rights)
        if not len(left):
            return left, right
        ranks = compute_ranks(archived, by_id=isinstance(join.query, RowPatternSide))
        if join.last is not None:
            latest = select_latest(left, right, starts, ends, ranks, join.last)
            left, right = left[latest], right[latest]
        order = np.lexsort((ranks[right], starts[right], ends[right], left))
        return left[order], right[order]

    def _filter_pairs(
        self, number: int, tables: Sequence[pa.Table], rows: Sequence[Ints], left: Ints, right: Ints
    ) -> Bools:
        join = self.archive_join.joins[number]
        if not (join.on or join.equivalence) or not len(left):
            return np.ones(len(left), np.bool_)
        chosen = [*(numbers[left] for numbers in rows), right]
        joined = JoinedRows(self._on_shapes[number], tables, chosen)
        holds = joined.holds(join.on)
        sides = (0, len(tables) - 1)  # [attr] is of the live match and of this archived one
        for equivalence in join.equivalence:
            holds &= are_values_equal(joined, sides, equivalence.field_name)
        return holds

    def _table(self, tables: Sequence[pa.Table], rows: Sequence[Ints]) -> pa.Table:
        if not len(rows[0]):
            return self.nothing()
        joined = JoinedRows(self._delivered, tables, rows)
        fits = evaluate_having(joined)
        if fits is not None:
            rows = filter_rows(rows, fits)
            joined = JoinedRows(self._delivered, tables, rows)
        limit = self.archive_join.limit
        table = joined.table(self.identity)
        if limit is None or not table.num_rows:
            return table
        return table.filter(pa.array(_first_of_each(rows[0], limit.count)))

    def nothing(self) -> pa.Table:
        return create_empty_table(self.result)


_EMPTY = np.zeros(0, np.int64)


def _add_unmatched(left: Ints, right: Ints, count: int, join: ArchiveJoin) -> tuple[Ints, Ints]:
    """Adds the unmatched rows of a LEFT JOIN at their positions."""
    if join.kind is not JoinKind.LEFT:
        return left, right
    is_unmatched = np.ones(count, np.bool_)
    is_unmatched[left] = False
    missing = np.flatnonzero(is_unmatched)
    left = np.concatenate([left, missing])
    right = np.concatenate([right, np.full(len(missing), -1, np.int64)])
    order = np.argsort(left, kind="stable")
    return left[order], right[order]


def _first_of_each(rows: Ints, count: int) -> Bools:
    """Selects the first `count` rows of each live match; its rows are contiguous.

    >>> _first_of_each(np.array([0, 0, 0, 2]), 2)
    array([ True,  True, False,  True])
    """
    first = np.searchsorted(rows, rows, side="left")
    return np.asarray(np.arange(len(rows)) - first < count)


@dataclass(frozen=True)
class CompiledJoin:
    """A compiled join: its lookup, and the value of the live match that it reads by."""

    lookup: ArchiveLookup
    key: KeyEquality | None  # by which the archive is read; None: all keys
    far: float  # how far back its range reaches
    waits: float  # how long after its range archived matches are undecided


@dataclass(frozen=True)
class CompiledArchiveJoin:
    """A compiled query with JOIN ARCHIVE: a live side, lookups, and the join of their matches."""

    archive_join: ArchiveJoinQuery  # checked
    live: CompiledSide
    joins: tuple[CompiledJoin, ...]
    joining: MatchJoiner
    unit: Unit
    decision: AccessDecision  # the access, and the reason
    latency: float = 0.0  # how long grouped access may delay a live match
    live_window: float | None = None  # the longest duration of live matches, if known
    filter_field: str | None = None  # the live field by which keys without matches are skipped
    partition_key: tuple[str, ...] = ()  # splits the stream into key groups
    has_null_partition_keys: bool = False  # NULL keys count
    why_unpartitioned: str | None = None  # why no key splits the stream

    @property
    def meaning(self) -> Query:
        """The live side with the returned columns."""
        live = self.archive_join.live
        if isinstance(live, RowPatternSide):
            return Query(live.pattern, returns=self.archive_join.returns)
        return replace(live, returns=self.archive_join.returns)

    @property
    def sides(self) -> "tuple[CompiledSide, ...]":
        """The live side, then the archived ones."""
        return (self.live, *(join.lookup.prepared for join in self.joins))

    @property
    def keeps(self) -> float | None:
        """How long after its end an event may be needed; None: forever.

        A live match starts at most its window before now, and may be delayed.
        """
        return self._add_delay(join.far + join.lookup.before + join.waits for join in self.joins)

    @property
    def asks(self) -> float | None:
        """How long after its start an archived match may be needed; None: forever."""
        return self._add_delay(join.far + join.waits for join in self.joins)

    def _add_delay(self, distances: Iterable[float]) -> float | None:
        if self.live_window is None:
            return None
        return self.live_window + self.latency + max(distances, default=0)

    @property
    def access(self) -> str:
        return self.decision.access
