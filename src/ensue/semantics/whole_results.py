"""What a query says of its whole result, by its definition: groups, their order, the first rows.

Also the order that rows have in a table, and the rows of RETURN ALL EVENTS.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

from ensue.algebra.evaluate import aggregate
from ensue.algebra.predicate import Expr, Field
from ensue.algebra.query import Query, Returned, SortKey
from ensue.algebra.walk import positives
from ensue.semantics.conditions import value_of
from ensue.semantics.events import Binding, Event, members
from ensue.semantics.partition import rank

Row = dict[str, Any]
_MATCH = "\0match"  # in a row: the events of the match that it is


def in_time_order(query: Query, found: Iterable[Binding]) -> list[Binding]:
    """Matches by their end, then by their start, then by their events from the first on.

    Of two that begin alike, the one with a further event comes first.
    """

    def steps_of(match: Binding) -> list[Any]:
        _, steps = rank(query.pattern, match)
        assert isinstance(steps, list)
        return [*steps, (inf,)]

    return sorted(found, key=lambda match: (*_times(match), steps_of(match)))


def labelled(query: Query, match: Binding) -> list[tuple[str, int, int, Event]]:
    """The rows of ALL EVENTS: a variable, the place of its event in the match and among its own
    events, both from 1, and the event."""
    found = [
        (event.position, number, atom.variable, index, event)
        for number, atom in enumerate(positives(query.pattern))
        for index, event in enumerate(match.get(atom.variable, ()), 1)
    ]
    rows = sorted(found, key=lambda row: row[:2])
    return [
        (name, place, index, event) for place, (_, _, name, index, event) in enumerate(rows, 1)
    ]


def whole_rows(query: Query, found: Iterable[tuple[Binding, str]]) -> list[Row]:
    """The rows of a query that says something of its whole result, given its matches and their
    ids."""
    whole = query.whole
    assert whole is not None
    rows = [_row(query, match, name) for match, name in found]
    rows.sort(key=lambda row: (row["end"], row["start"], row["match_id"]))
    if whole.keys is not None:
        rows = _groups(query.returns, rows)
    for key in reversed(whole.order):
        rows = _sorted(key, rows)
    rows = rows if whole.first is None else rows[: whole.first]
    return [{name: value for name, value in row.items() if name != _MATCH} for row in rows]


def _row(query: Query, match: Binding, name: str) -> Row:
    end, start = _times(match)
    standard = {"match_id": name, "start": start, "end": end, _MATCH: match}
    return standard | {f"\0{r.name}": value_of(r.expr, match) for r in query.returns}


def _times(match: Binding) -> tuple[Any, Any]:
    inside = members(match)
    return max(event.end for event in inside), min(event.start for event in inside)


def _groups(returns: Sequence[Returned], matches: Sequence[Row]) -> list[Row]:
    """Groups in the order of their first matches, those of the same times by their keys; without
    a key, there is always one."""
    keys = [column.name for column in returns if column.over is None]
    groups: dict[tuple[Any, ...], list[Row]] = {} if keys else {(): []}
    for match in matches:
        groups.setdefault(tuple(_alike(match[f"\0{key}"]) for key in keys), []).append(match)
    found = []

    def place(group: tuple[tuple[Any, ...], list[Row]]) -> tuple[Any, ...]:
        key, inside = group
        times = [inside[0]["end"], inside[0]["start"]] if inside else []
        return (*times, *((value[1] is not None or value[0], value) for value in key))

    for _, inside in sorted(groups.items(), key=place):
        row: Row = {}
        for column in returns:
            values = [match[f"\0{column.name}"] for match in inside]
            if column.over is None:
                row[column.name] = values[0]
            else:
                row[column.name] = aggregate(column.over.function, values, column.over.parameter)
        found.append(row)
    return found


def _sorted(key: SortKey, rows: Sequence[Row]) -> list[Row]:
    """By one key; what is equal in it stays as it stands."""
    values = [(_value(key.expr, row), row) for row in rows]
    known = [(value, row) for value, row in values if value is not None]
    known.sort(key=lambda pair: _alike(pair[0]), reverse=key.descending)
    unknown = [row for value, row in values if value is None]
    ordered = [row for _, row in known]
    return [*unknown, *ordered] if key.nulls_first else [*ordered, *unknown]


def _value(expr: Expr, row: Row) -> Any:
    """Of a bare name the column, else what the match says."""
    if isinstance(expr, Field) and expr.name is None:
        own = f"\0{expr.variable}"
        return row[own] if own in row else row[expr.variable]
    return value_of(expr, row[_MATCH])


def _alike(value: Any) -> tuple[bool, Any]:
    """Equal for equal values: NaN equals itself, and is greater than all numbers."""
    unknown = isinstance(value, float) and value != value
    return unknown, None if unknown else value
