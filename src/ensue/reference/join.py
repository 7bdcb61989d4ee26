"""Evaluates archive joins: live matches joined with the matches of archives."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from ensue.ir.archive_join import (
    ArchiveJoin,
    ArchiveJoinQuery,
    JoinKind,
    JoinSide,
    LookbackRange,
    RangeAnchor,
    RowPatternSide,
)
from ensue.ir.expression import FieldRef
from ensue.ir.selection import get_amount
from ensue.reference.conditions import Binding, Event, is_true, members
from ensue.reference.match_search import find_matches
from ensue.reference.partition import rank_match
from ensue.reference.row_pattern_matches import build_output_rows, match_rows


@dataclass(frozen=True, slots=True)
class JoinedMatch:
    """One row: a live match, and the archived match of each join that is not ANTI."""

    live: Binding
    past: tuple[Binding | None, ...] = ()  # None: no match in a LEFT JOIN

    @property
    def binding(self) -> Binding:
        return self.live | {v: es for match in self.past if match for v, es in match.items()}


def join_matches(
    query: ArchiveJoinQuery, live_events: Sequence[Event], archive_events: Mapping[str, Sequence[Event]]
) -> list[JoinedMatch]:
    """Returns all rows, in the order of the live matches, then of their archived ones.

    Archived matches are those over the whole archive.
    """
    archived_matches = [_matches(join.query, archive_events[join.archive]) for join in query.joins]
    result: list[JoinedMatch] = []
    for live in _matches(query.live, live_events):
        rows = [JoinedMatch(live)]
        for join, archived in zip(query.joins, archived_matches, strict=True):
            rows = [new for row in rows for new in _join(row, join, archived)]
        having, limit = query.having, query.limit
        remaining = [row for row in rows if having is None or is_true(having, row.binding)]
        result += remaining if limit is None else remaining[: limit.count]
    return result


def _matches(side: JoinSide, events: Sequence[Event]) -> list[Binding]:
    """Returns the matches of a side; the match of a clause is one event, bound to its alias."""
    if isinstance(side, RowPatternSide):
        return [{side.alias: (event,)} for event in _clause_matches(side, events)]
    return find_matches(side, events)


def _clause_matches(side: RowPatternSide, events: Sequence[Event]) -> Iterator[Event]:
    """Yields the output rows of a clause as events from the first row of a match to its last.

    Events are sorted by time; other keys of ORDER BY must not reorder them.
    """
    clause = side.row_pattern
    partitions: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        names = [key.expr.name for key in clause.partition if isinstance(key.expr, FieldRef)]
        partitions.setdefault(tuple(event.values[n or ""] for n in names), []).append(event)
    for values, rows in partitions.items():
        table = [event.values for event in rows]
        matches_ = zip(match_rows(clause, table), build_output_rows(clause, table), strict=True)
        for match, (_, measures) in matches_:
            first, last = rows[match.start], rows[match.start + len(match.labels) - 1]
            fields = dict(zip((key.name for key in clause.partition), values, strict=True))
            fields |= dict(zip((m.name for m in clause.measures), measures, strict=True))
            at, begin = last.position, first.position
            yield Event(at, side.alias, first.start, last.end, fields, first=begin)


def _join(row: JoinedMatch, join: ArchiveJoin, archived: Sequence[Binding]) -> Iterator[JoinedMatch]:
    """Yields a row for each archived match that fits."""
    fitting = [match for match in archived if _fits(row, join, match)]
    fitting.sort(key=lambda match: (*_span(match)[::-1], _steps(join.query, match)))
    if join.last is not None:
        fitting = fitting[-join.last :]
    match join.kind:
        case JoinKind.ANTI:
            yield from () if fitting else (row,)
        case JoinKind.LEFT | JoinKind.INNER:
            partners: list[Binding | None] = [*fitting]
            if not partners and join.kind is JoinKind.LEFT:
                partners.append(None)
            for partner in partners:
                yield JoinedMatch(row.live, (*row.past, partner))


def _fits(row: JoinedMatch, join: ArchiveJoin, archived: Binding) -> bool:
    """Whether an archived match is in the range, and satisfies ON."""
    return (
        is_in_range(join.range, _span(row.live), _span(archived))
        and all(is_true(condition, row.binding | archived) for condition in join.on)
        and all(_has_equal_field(e.field_name, row.live, archived) for e in join.equivalence)
    )


def _has_equal_field(field: str, live: Binding, archived: Binding) -> bool:
    """Whether all events of both sides have one value in a field; NULL and NaN equal nothing."""
    values = [event.values.get(field) for event in (*members(live), *members(archived))]
    return all(value is not None and value == values[0] == value for value in values)


def _steps(side: JoinSide, match: Binding) -> list[Any]:
    """Returns the sort key of matches of the same time: their events from the first one."""
    if isinstance(side, RowPatternSide):
        return [(event.begin, event.position) for event in members(match)]
    return [*rank_match(side.pattern, match)[1], (inf,)]


TimeSpan = tuple[int | float, int | float]  # start and end of a match


def _span(binding: Binding) -> TimeSpan:
    events = members(binding)
    return min(event.start for event in events), max(event.end for event in events)


def is_in_range(range_: LookbackRange, live: TimeSpan, archived: TimeSpan) -> bool:
    """Whether an archived match is completely in the range of a live one.

    >>> from ensue.ir.selection import ByUnits
    >>> (
    ...     is_in_range(LookbackRange(ByUnits(10)), (20, 25), (10, 19)),
    ...     is_in_range(LookbackRange(ByUnits(10)), (20, 25), (9, 19)),
    ... )
    (True, False)
    """
    anchor = live[0] if range_.anchor is RangeAnchor.START else live[1]
    start, end = archived
    if not anchor - get_amount(range_.far) <= start:
        return False
    return end < anchor if range_.near is None else end <= anchor - get_amount(range_.near)
