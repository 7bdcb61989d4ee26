"""A stream and its past: live matches, joined with the matches of archives."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from ensue.algebra.correlation import (
    Anchor,
    AnySide,
    ArchiveJoin,
    ClauseSide,
    Correlation,
    JoinKind,
    Range,
)
from ensue.algebra.predicate import Field
from ensue.algebra.window import ByTime, ByUnits
from ensue.semantics.conditions import is_true
from ensue.semantics.events import Binding, Event, members
from ensue.semantics.matches import matches
from ensue.semantics.partition import rank
from ensue.semantics.row_patterns import recognized, results


@dataclass(frozen=True, slots=True)
class Correlated:
    """One row: a live match, and the archived match of each join that is not ANTI."""

    live: Binding
    past: tuple[Binding | None, ...] = ()  # None: a LEFT JOIN found none

    @property
    def binding(self) -> Binding:
        """All of its events, by variable."""
        return self.live | {v: es for one in self.past if one for v, es in one.items()}


def correlated(
    correlation: Correlation,
    live_events: Sequence[Event],
    archive_events: Mapping[str, Sequence[Event]],
) -> list[Correlated]:
    """All rows, in the order of the live matches, then of their archived ones, the latest last.

    An archived match is one over the whole archive.
    """
    past = [_matches(join.query, archive_events[join.archive]) for join in correlation.joins]
    found: list[Correlated] = []
    for live in _matches(correlation.live, live_events):
        rows = [Correlated(live)]
        for join, archived in zip(correlation.joins, past, strict=True):
            rows = [new for row in rows for new in _joined(row, join, archived)]
        having, limit = correlation.having, correlation.limit
        kept = [row for row in rows if having is None or is_true(having, row.binding)]
        found += kept if limit is None else kept[: limit.count]
    return found


def _matches(side: AnySide, events: Sequence[Event]) -> list[Binding]:
    """The matches of a side; those of a clause are one event each, by its alias."""
    if isinstance(side, ClauseSide):
        return [{side.alias: (event,)} for event in _recognized(side, events)]
    return matches(side, events)


def _recognized(side: ClauseSide, events: Sequence[Event]) -> Iterator[Event]:
    """What a clause gives, as events that last from the first row of a match to its last.

    Events are in the order of time; what ORDER BY says beside it must not reorder them.
    """
    clause = side.recognition
    partitions: dict[tuple[object, ...], list[Event]] = {}
    for event in events:
        names = [key.expr.name for key in clause.partition if isinstance(key.expr, Field)]
        partitions.setdefault(tuple(event.values[n or ""] for n in names), []).append(event)
    for values, rows in partitions.items():
        table = [event.values for event in rows]
        found = zip(recognized(clause, table), results(clause, table), strict=True)
        for match, (_, measures) in found:
            first, last = rows[match.start], rows[match.start + len(match.labels) - 1]
            fields = dict(zip((key.name for key in clause.partition), values, strict=True))
            fields |= dict(zip((m.name for m in clause.measures), measures, strict=True))
            yield Event(
                last.position, side.alias, first.start, last.end, fields, first=first.position
            )


def _joined(
    row: Correlated, join: ArchiveJoin, archived: Sequence[Binding]
) -> Iterator[Correlated]:
    """A row with each archived match that fits it."""
    fitting = [match for match in archived if _fits(row, join, match)]
    fitting.sort(key=lambda match: (*_span(match)[::-1], _steps(join.query, match)))
    if join.last is not None:
        fitting = fitting[-join.last :]
    match join.kind:
        case JoinKind.ANTI:
            yield from () if fitting else (row,)
        case JoinKind.LEFT | JoinKind.INNER:
            found: list[Binding | None] = [*fitting]
            if not found and join.kind is JoinKind.LEFT:
                found.append(None)
            for one in found:
                yield Correlated(row.live, (*row.past, one))


def _fits(row: Correlated, join: ArchiveJoin, archived: Binding) -> bool:
    """Whether an archived match lies in the range, and what ON says is true of both."""
    return (
        in_range(join.range, _span(row.live), _span(archived))
        and all(is_true(condition, row.binding | archived) for condition in join.on)
        and all(_alike(e.field_name, row.live, archived) for e in join.equivalence)
    )


def _alike(field: str, live: Binding, archived: Binding) -> bool:
    """Whether all events of both sides have one value in a field: NULL and NaN equal nothing."""
    values = [event.values.get(field) for event in (*members(live), *members(archived))]
    return all(value is not None and value == values[0] == value for value in values)


def _steps(side: AnySide, match: Binding) -> list[Any]:
    """What orders matches of the same time: their events from the first on, as in a result."""
    if isinstance(side, ClauseSide):
        return [(event.begin, event.position) for event in members(match)]
    _, steps = rank(side.pattern, match)
    assert isinstance(steps, list)
    return [*steps, (inf,)]


Times = tuple[int | float, int | float]  # when a match starts, and when it ends


def _span(binding: Binding) -> Times:
    inside = members(binding)
    return min(event.start for event in inside), max(event.end for event in inside)


def in_range(range_: Range, live: Times, archived: Times) -> bool:
    """Whether an archived match lies in the range of a live one, as a whole.

    >>> (
    ...     in_range(Range(ByUnits(10)), (20, 25), (10, 19)),
    ...     in_range(Range(ByUnits(10)), (20, 25), (9, 19)),
    ... )
    (True, False)
    """
    anchor = live[0] if range_.anchor is Anchor.START else live[1]
    start, end = archived
    if not anchor - _length(range_.far) <= start:
        return False
    return end < anchor if range_.near is None else end <= anchor - _length(range_.near)


def _length(length: ByTime | ByUnits) -> int | float:
    match length:
        case ByTime(nanoseconds=amount) | ByUnits(amount=amount):
            return amount
