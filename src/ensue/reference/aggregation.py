"""Evaluates GROUP BY, ORDER BY, FETCH FIRST and RETURN ALL EVENTS, and sorts result rows."""

from collections.abc import Iterable, Iterator, Sequence
from math import inf
from typing import Any

from ensue.functions.interpreter import compute_aggregate
from ensue.ir.expression import Expr, FieldRef
from ensue.ir.query import Query, ReturnItem, SortKey
from ensue.ir.traversal import iterate_positive_atoms
from ensue.reference.conditions import Binding, Event, compute_value, members
from ensue.reference.partition import rank_match

Row = dict[str, Any]
_MATCH = "\0match"  # the column with the events of the match


def sort_matches(query: Query, matches: Iterable[Binding]) -> list[Binding]:
    """Sorts matches by their end, their start, and their events from the first one.

    If one match continues the other, the longer one is first.
    """
    return sorted(matches, key=lambda match: (*_times(match), [*rank_match(query.pattern, match)[1], (inf,)]))


def build_event_rows(query: Query, match: Binding) -> list[tuple[str, int, int, Event]]:
    """Builds the rows of ALL EVENTS: a variable, the index in the match and in the variable, both
    from 1, and the event."""
    rows = [
        (event.position, number, atom.variable, index, event)
        for number, atom in enumerate(iterate_positive_atoms(query.pattern))
        for index, event in enumerate(match.get(atom.variable, ()), 1)
    ]
    rows.sort(key=lambda row: row[:2])
    return [(name, k, index, event) for k, (_, _, name, index, event) in enumerate(rows, 1)]


def build_result_rows(query: Query, matches: Iterable[tuple[Binding, str]]) -> list[Row]:
    """Builds the rows of a query with clauses of the whole result from its matches and ids."""
    whole = query.whole
    assert whole is not None
    rows = [_row(query, match, name) for match, name in matches]
    rows.sort(key=lambda row: (row["end"], row["start"], row["match_id"]))
    if query.all_events:
        rows = [row | event for row in rows for event in _list_events(query, row[_MATCH])]
    if whole.keys is not None:
        rows = _group(query.returns, rows)
    for key in reversed(whole.order):
        rows = _sort(key, rows)
    rows = rows if whole.first is None else rows[: whole.first]
    return [{name: value for name, value in row.items() if name != _MATCH} for row in rows]


def _list_events(query: Query, match: Binding) -> Iterator[Row]:
    for name, position, index, event in build_event_rows(query, match):
        yield {"variable": name, "position": position, "index": index, **event.values}


def _row(query: Query, match: Binding, name: str) -> Row:
    end, start = _times(match)
    standard = {"match_id": name, "start": start, "end": end, _MATCH: match}
    return standard | {f"\0{r.name}": compute_value(r.expr, match) for r in query.returns}


def _times(match: Binding) -> tuple[Any, Any]:
    events = members(match)
    return max(event.end for event in events), min(event.start for event in events)


def _group(returns: Sequence[ReturnItem], matches: Sequence[Row]) -> list[Row]:
    """Groups matches, ordered by the times of first matches, then by keys; without keys, into one."""
    keys = [column.name for column in returns if column.over is None]
    groups: dict[tuple[Any, ...], list[Row]] = {} if keys else {(): []}
    for match in matches:
        values = tuple(_comparison_key(match[f"\0{key}"]) for key in keys)
        groups.setdefault(values, []).append(match)
    rows = []

    def sort_key(group: tuple[tuple[Any, ...], list[Row]]) -> tuple[Any, ...]:
        key, members_ = group
        times = [members_[0]["end"], members_[0]["start"]] if members_ else []
        return (*times, *((value[1] is not None or value[0], value) for value in key))

    for _, members_ in sorted(groups.items(), key=sort_key):
        row: Row = {}
        for column in returns:
            inside, over = [match[f"\0{column.name}"] for match in members_], column.over
            if over is None:
                row[column.name] = inside[0]
            else:
                row[column.name] = compute_aggregate(over.function, inside, over.parameter)
        rows.append(row)
    return rows


def _sort(key: SortKey, rows: Sequence[Row]) -> list[Row]:
    values = [(_value(key.expr, row), row) for row in rows]
    known = [(value, row) for value, row in values if value is not None]
    known.sort(key=lambda pair: _comparison_key(pair[0]), reverse=key.descending)
    unknown = [row for value, row in values if value is None]
    ordered = [row for _, row in known]
    return [*unknown, *ordered] if key.nulls_first else [*ordered, *unknown]


def _value(expr: Expr, row: Row) -> Any:
    """Returns the column of a bare name, or else evaluates the expression in the match."""
    if isinstance(expr, FieldRef) and expr.name is None:
        column = f"\0{expr.variable}"
        return row[column] if column in row else row[expr.variable]
    return compute_value(expr, row[_MATCH])


def _comparison_key(value: Any) -> tuple[bool, Any]:
    """Returns a key under which NaN equals itself and exceeds all numbers."""
    unknown = isinstance(value, float) and value != value
    return unknown, None if unknown else value
