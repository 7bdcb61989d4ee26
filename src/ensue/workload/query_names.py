"""Several queries in one call: what each is called, and which of them an error speaks of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from ensue.algebra.query import Query
from ensue.errors import EventError, QueryError

Name = str | int
Names = dict[Name, Query]


def named(
    queries: "Mapping[str, str | Query] | Sequence[str | Query]", parse: Callable[[str], Query]
) -> Names:
    """Queries by name, in their order.

    The names are those of a mapping, or those that all queries give themselves (`EVENT Name AS`)
    if no two are alike, or else the queries' places, from 0.
    """
    if not queries:
        raise QueryError("there is no query", hint="pass at least one")
    given: list[tuple[Name, str | Query]]
    if isinstance(queries, Mapping):
        for key in queries:
            if not isinstance(key, str):
                raise QueryError(f"the name of a query is a text, not {key!r}")
        given = list(queries.items())
    else:
        given = list(enumerate(queries))
    read: Names = {}
    for name, query in given:
        with speaking_of(name):
            read[name] = query if isinstance(query, Query) else parse(query)
    own = [query.name for query in read.values()]
    if isinstance(queries, Mapping) or None in own or len(set(own)) < len(own):
        return read
    return {query.name: query for query in read.values() if query.name is not None}


@contextmanager
def speaking_of(name: Name) -> Iterator[None]:
    """An error inside says which query it is about."""
    shown = f"query '{name}'" if isinstance(name, str) else f"query {name}"
    try:
        yield
    except QueryError as error:
        raise QueryError(
            f"{shown}: {error.problem}", hint=error.hint, span=error.span, text=error.text
        ) from error
    except EventError as error:
        raise EventError(f"{shown}: {error}") from error
