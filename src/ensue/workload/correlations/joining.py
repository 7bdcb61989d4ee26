"""Live matches beside the archived ones that belong to them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ensue.algebra.correlation import Anchor, ArchiveJoin, ClauseSide, Correlation, JoinKind
from ensue.algebra.predicate import Expr, Field
from ensue.columns.arrow_kinds import Unit
from ensue.columns.buffers import Bools, Ints
from ensue.columns.rows import no_rows
from ensue.columns.values import to_arrow
from ensue.computed import cached_property
from ensue.results.joined import JoinedRows, JoinedShape, Side, having_kept, picked
from ensue.results.pairing import Reaches, Times, key_codes, latest, pairs, times_of
from ensue.workload.correlations.same_values import first_values, same_in_all
from ensue.workload.correlations.sides import ranks_of


@dataclass(frozen=True, slots=True)
class Equal:
    """A value that both sides of a join have alike."""

    archived: str  # the field, which all events of an archived match have alike
    live: Expr
    field: str = ""  # of the archive's events; empty: the same
    same_field: bool = False  # whether it is one field of the live events and of the archived ones


@dataclass(frozen=True)
class Joining:
    """Everything that is known of a correlation's rows before there are any."""

    correlation: Correlation  # checked
    live: Side
    archived: tuple[Side, ...]  # one a join
    equal: tuple[tuple[Equal, ...], ...]  # one a join: what is compared as keys
    unit: Unit  # of the times of all sides
    identity: bytes

    @cached_property
    def _delivered(self) -> JoinedShape:
        """All sides but those that must not be there."""
        kinds = [join.kind for join in self.correlation.joins]
        sides = [s for s, k in zip(self.archived, kinds, strict=True) if k is not JoinKind.ANTI]
        asked = self.correlation
        return JoinedShape([self.live, *sides], asked.returns, asked.having, asked.columns)

    @cached_property
    def result(self) -> pa.Schema:
        """The columns of the result."""
        return self._delivered.result

    @cached_property
    def _of_live(self) -> JoinedShape:
        return JoinedShape([self.live])

    @cached_property
    def _of_archived(self) -> tuple[JoinedShape, ...]:
        return tuple(JoinedShape([side]) for side in self.archived)

    @cached_property
    def _of_both(self) -> tuple[JoinedShape, ...]:
        """For each join the sides that its ON may name: its own, and those shown before it."""
        found, sides = [], [self.live]
        for join, side in zip(self.correlation.joins, self.archived, strict=True):
            found.append(JoinedShape([*sides, side]))
            sides += [side] if join.kind is not JoinKind.ANTI else []
        return tuple(found)

    @cached_property
    def _reaches(self) -> tuple[Reaches, ...]:
        return tuple(Reaches.of(join.range, self.unit) for join in self.correlation.joins)

    def anchors(self, number: int, live: pa.Table) -> Times:
        """From where the range of a join is counted back."""
        anchor = self.correlation.joins[number].range.anchor
        return times_of(live, "start" if anchor is Anchor.START else "end", self.unit)

    def ranges(self, number: int, live: pa.Table) -> tuple[Times, Times]:
        """From when to when an archived match may be, both included."""
        anchors, reaches = self.anchors(number, live), self._reaches[number]
        return reaches.since(anchors), reaches.until(anchors)

    def live_keys(self, live: pa.Table, equal: Equal) -> pa.Array:
        """What a live match has that an archived one must have, too."""
        every = np.arange(live.num_rows)
        return _values(JoinedRows(self._of_live, [live], [every]), equal.live)

    def archived_keys(self, number: int, archived: pa.Table, equal: Equal | None) -> pa.Array:
        """What archived matches have that a live one must have, too."""
        assert equal is not None
        every = np.arange(archived.num_rows)
        rows = JoinedRows(self._of_archived[number], [archived], [every])
        return first_values(rows, equal.archived)

    # ---------------------------------------------------------------------------- rows

    def joined(self, live: pa.Table, archived: Sequence[pa.Table]) -> pa.Table:
        """The rows of live matches; among the archived ones are all that may belong to them."""
        tables, rows = [live], [np.arange(live.num_rows)]
        for number, join in enumerate(self.correlation.joins):
            fit = self._fitting(number, tables, rows, archived[number])
            if join.kind is JoinKind.ANTI:
                alone = np.ones(len(rows[0]), np.bool_)
                alone[fit[0]] = False
                rows = list(picked(rows, alone))
                continue
            ours, theirs = _with_those_alone(*fit, len(rows[0]), join)
            rows = [*(one[ours] for one in rows), theirs]
            tables.append(archived[number])
        return self._table(tables, rows)

    def _fitting(
        self,
        number: int,
        tables: Sequence[pa.Table],
        rows: Sequence[Ints],
        archived: pa.Table,
    ) -> tuple[Ints, Ints]:
        """Which rows and archived matches belong together, in the order of the rows."""
        if not archived.num_rows or not len(rows[0]):
            return _EMPTY, _EMPTY
        join = self.correlation.joins[number]
        live, chosen = tables[0], rows[0]
        since, until = self.ranges(number, live)
        starts, ends = (times_of(archived, name, self.unit) for name in ("start", "end"))
        codes = self._codes(number, live, archived)
        own = codes[0][chosen], codes[1]
        shape = self._of_both[number]
        found: list[tuple[Ints, Ints]] = []
        for ours, theirs in pairs(own, since[chosen], until[chosen], starts, ends):
            kept = self._holding(shape, join, [*tables, archived], rows, ours, theirs)
            found.append((ours[kept], theirs[kept]))
        ours, theirs = (np.concatenate([_EMPTY, *(f[k] for f in found)]) for k in (0, 1))
        ranks = ranks_of(archived, by_id=isinstance(join.query, ClauseSide))
        if join.last is not None and len(ours):
            kept = latest(ours, theirs, starts, ends, ranks, join.last)
            ours, theirs = ours[kept], theirs[kept]
        order = _in_order(ours, theirs, starts, ends, ranks)
        return ours[order], theirs[order]

    def _holding(
        self,
        shape: JoinedShape,
        join: ArchiveJoin,
        tables: Sequence[pa.Table],
        rows: Sequence[Ints],
        ours: Ints,
        theirs: Ints,
    ) -> Bools:
        if not (join.on or join.equivalence) or not len(ours):
            return np.ones(len(ours), np.bool_)
        joined = JoinedRows(shape, tables, [*(one[ours] for one in rows), theirs])
        kept = joined.holds(join.on)
        sides = (0, len(tables) - 1)  # [attr] is of the live match and of this archived one
        for equivalence in join.equivalence:
            kept &= same_in_all(joined, sides, equivalence.field_name)
        return kept

    def _codes(self, number: int, live: pa.Table, archived: pa.Table) -> tuple[Ints, Ints]:
        equal = self.equal[number]
        ours = JoinedRows(self._of_live, [live], [np.arange(live.num_rows)])
        every = np.arange(archived.num_rows)
        theirs = JoinedRows(self._of_archived[number], [archived], [every])
        return key_codes(
            [_values(ours, e.live) for e in equal],
            [first_values(theirs, e.archived) for e in equal],
            live.num_rows,
            archived.num_rows,
        )

    def _table(self, tables: Sequence[pa.Table], rows: Sequence[Ints]) -> pa.Table:
        if not len(rows[0]):
            return self.nothing()
        joined = JoinedRows(self._delivered, tables, rows)
        kept = having_kept(joined)
        if kept is not None:
            rows = picked(rows, kept)
            joined = JoinedRows(self._delivered, tables, rows)
        limit = self.correlation.limit
        table = joined.table(self.identity)
        if limit is None or not table.num_rows:
            return table
        return table.filter(pa.array(_first_of_each(rows[0], limit.count)))

    def nothing(self) -> pa.Table:
        """What there is without matches."""
        return no_rows(self.result)


_EMPTY = np.zeros(0, np.int64)


def _values(rows: JoinedRows, wanted: Expr) -> pa.Array:
    if isinstance(wanted, Field) and wanted.name is not None:
        return rows.gathered.values(wanted)  # in its own type
    return to_arrow(rows.values(wanted), rows.shape.unit)


def _with_those_alone(
    ours: Ints, theirs: Ints, count: int, join: ArchiveJoin
) -> tuple[Ints, Ints]:
    """Of LEFT JOIN also the rows that nothing fits, in their places."""
    if join.kind is not JoinKind.LEFT:
        return ours, theirs
    alone = np.ones(count, np.bool_)
    alone[ours] = False
    missing = np.flatnonzero(alone)
    ours = np.concatenate([ours, missing])
    theirs = np.concatenate([theirs, np.full(len(missing), -1, np.int64)])
    order = np.argsort(ours, kind="stable")
    return ours[order], theirs[order]


def _in_order(ours: Ints, theirs: Ints, starts: Times, ends: Times, ranks: Ints) -> Ints:
    if not len(ours):
        return _EMPTY
    return np.lexsort((ranks[theirs], starts[theirs], ends[theirs], ours))


def _first_of_each(rows: Ints, count: int) -> Bools:
    """Of the rows of each live match, which stand together, the first few.

    >>> _first_of_each(np.array([0, 0, 0, 2]), 2)
    array([ True,  True, False,  True])
    """
    first = np.searchsorted(rows, rows, side="left")
    return np.asarray(np.arange(len(rows)) - first < count)
