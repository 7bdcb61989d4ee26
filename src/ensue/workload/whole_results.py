"""Queries apart from what they say of their whole results, where a result has an end."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ensue.algebra.correlation import Correlation
from ensue.algebra.query import Query, WholeResult
from ensue.algebra.text import show_name, show_whole
from ensue.algebra.tower import Tower
from ensue.algebra.whole_results import Column, Finishing, apart
from ensue.errors import QueryError
from ensue.workload.asked import Asked
from ensue.workload.query_names import speaking_of


def finished_apart(
    asked: Sequence[Asked], *, emit_timeouts: bool = False
) -> tuple[tuple[Asked, ...], dict[int, Finishing]]:
    """Queries for the matches alone, and by their numbers what is done with all of them."""
    found, finishing = [], {}
    for one in asked:
        query, last = matches_of(one.query)
        if last is not None:
            finishing[one.number] = last
            if emit_timeouts and last.whole.grouped:
                raise QueryError(
                    "emit_timeouts=True cannot be combined with GROUP BY and TOTAL: partial "
                    "matches would be counted as matches",
                    hint="leave one of them out",
                )
        found.append(replace(one, query=query))
    return tuple(found), finishing


def matches_of(query: Any) -> tuple[Any, Finishing | None]:
    """A query for the matches alone, and what is done with all of them."""
    match query:
        case Query() | Correlation():
            return apart(query)
        case Tower(query=top):
            inside, last = apart(top)
            return replace(query, query=inside), last
        case _:
            return query, None


def told_of_whole(finishing: Finishing) -> str:
    """What is done with all matches, in words."""
    lines = ["whole result"]
    if finishing.whole.grouped:
        shown = ", ".join(_told(column) for column in finishing.columns)
        lines.append(f"  RETURN {shown}")
    if finishing.whole.keys == ():
        lines.append("  TOTAL: all matches are one group")
    lines += [f"  {line}" for line in show_whole(finishing.whole)]
    if finishing.counts is not None:
        lines.append("  the matches of each last event are counted, not listed, and added up")
    return "\n".join(lines)


def _told(column: Column) -> str:
    if column.over is None:
        return show_name(column.name)
    inside = "*" if column.over.function == "count" else column.source.strip()
    return f"{column.over.function}({inside}) AS {show_name(column.name)}"


def refuse_endless(asked: Iterable[Asked]) -> None:
    """Raises a QueryError for what is said of a whole result, where there is never a whole."""
    for one in asked:
        whole = _whole(one)
        if whole is not None:
            with speaking_of(one.name):
                raise QueryError(
                    "GROUP BY, ORDER BY, TOTAL and FETCH FIRST are about a whole result, and that "
                    "of a stream never ends",
                    hint="write the matches to a table (ensue.start), and ask that table: "
                    "spark.read, DuckDB, or ensue.sql",
                    span=whole.span,
                    text=_text(one),
                )


def _whole(one: Asked) -> WholeResult | None:
    match one.query:
        case Query(whole=whole) | Correlation(whole=whole) | Tower(query=Query(whole=whole)):
            return whole
        case _:
            return None


def _text(one: Asked) -> str | None:
    return one.query.query.text if isinstance(one.query, Tower) else getattr(one.query, "text", "")
