"""Several queries in one call: what each is called, and which of them an error speaks of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ensue.algebra.correlation import Correlation
from ensue.algebra.query import Query
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.tower import Tower
from ensue.errors import EventError, QueryError

Name = str | int


def named(
    queries: "Mapping[str, Any] | Sequence[Any]",
    parse: Callable[[Any], Query | Tower | Correlation | Recognition],
) -> dict[Name, Query | Tower | Correlation | Recognition]:
    """Queries by name, in their order.

    The names are those of a mapping, or those that all queries give themselves (`EVENT Name AS`)
    if no two are alike, or else the queries' places, from 0.
    """
    if not queries:
        raise QueryError("there is no query", hint="pass at least one")
    given: list[tuple[Name, Any]]
    if isinstance(queries, Mapping):
        for key in queries:
            if not isinstance(key, str):
                raise QueryError(f"the name of a query is a text, not {key!r}")
        given = list(queries.items())
    else:
        given = list(enumerate(queries))
    read: dict[Name, Query | Tower | Correlation | Recognition] = {}
    for name, query in given:
        with speaking_of(name):
            read[name] = parse(query)
    own = {name: _own_name(query) for name, query in read.items()}
    given_names = [name for name in own.values() if name is not None]
    if isinstance(queries, Mapping) or len(set(given_names)) < len(own):
        return read
    return {own[name] or name: query for name, query in read.items()}


def _own_name(query: Query | Tower | Correlation | Recognition) -> str | None:
    match query:
        case Tower(query=top):
            return top.name
        case Recognition():
            return None
        case _:
            return query.name


@contextmanager
def speaking_of(name: Name | None) -> Iterator[None]:
    """An error inside says which query it is about; None: there is no other."""
    if name is None:
        yield
        return
    shown = f"query '{name}'" if isinstance(name, str) else f"query {name}"
    try:
        yield
    except QueryError as error:
        raise QueryError(
            f"{shown}: {error.problem}", hint=error.hint, span=error.span, text=error.text
        ) from error
    except EventError as error:
        raise EventError(f"{shown}: {error}") from error
