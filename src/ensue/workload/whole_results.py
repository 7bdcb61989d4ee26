"""Queries apart from what they say of their whole results, where a result has an end."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ensue.algebra.correlation import Correlation
from ensue.algebra.query import Query, WholeResult
from ensue.algebra.tower import Tower
from ensue.algebra.whole_results import Finishing, apart
from ensue.errors import QueryError
from ensue.workload.asked import Asked
from ensue.workload.query_names import speaking_of


def finished_apart(
    asked: Sequence[Asked], *, emit_timeouts: bool = False
) -> tuple[tuple[Asked, ...], dict[int, Finishing]]:
    """Queries for the matches alone, and by their numbers what is done with all of them."""
    found, finishing = [], {}
    for one in asked:
        query, last = _apart(one)
        if last is not None:
            finishing[one.number] = last
            if emit_timeouts and last.whole.grouped:
                raise QueryError(
                    "emit_timeouts=True does not go with GROUP BY and TOTAL: partial matches "
                    "would be counted as matches",
                    hint="leave one of them out",
                )
        found.append(replace(one, query=query))
    return tuple(found), finishing


def _apart(
    one: Asked,
) -> "tuple[Query | Tower | Correlation, Finishing | None] | tuple[object, None]":
    match one.query:
        case Query() | Correlation():
            return apart(one.query)
        case Tower(query=top):
            inside, last = apart(top)
            return replace(one.query, query=inside), last
        case _:
            return one.query, None


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
