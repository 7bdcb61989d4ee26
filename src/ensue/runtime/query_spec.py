"""What is asked of a stream: queries, each with its name and its place in the call."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ensue.errors import EventError, QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_operator_calls
from ensue.ir.user_operator import UserOperator

if TYPE_CHECKING:
    from ensue.ir.row_pattern import RowPatternQuery
    from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog, MemoryLog

Name = str | int


def name_queries(
    queries: "Mapping[str, Any] | Sequence[Any]",
    parse: "Callable[[Any], Query | Hierarchy | ArchiveJoinQuery | RowPatternQuery]",
) -> "dict[Name, Query | Hierarchy | ArchiveJoinQuery | RowPatternQuery]":
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
    read: dict[Name, Query | Hierarchy | ArchiveJoinQuery | RowPatternQuery] = {}
    for name, query in given:
        with name_query_in_errors(name):
            read[name] = parse(query)
    own = {name: _own_name(query) for name, query in read.items()}
    given_names = [name for name in own.values() if name is not None]
    if isinstance(queries, Mapping) or len(set(given_names)) < len(own):
        return read
    return {own[name] or name: query for name, query in read.items()}


def _own_name(query: "Query | Hierarchy | ArchiveJoinQuery | RowPatternQuery") -> str | None:
    match query:
        case Hierarchy(query=top):
            return top.name
        case Query() | ArchiveJoinQuery():
            return query.name
        case _:  # a clause of SQL has none
            return None


@contextmanager
def name_query_in_errors(name: Name | None) -> Iterator[None]:
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


@dataclass(frozen=True, slots=True)
class QuerySpec:
    """One query of a call, with the definitions that it is made of."""

    query: "Query | Hierarchy | ArchiveJoinQuery | SubscriptionsSpec | RowPatternQuery"
    name: Name | None = None  # None: it is the only one
    number: int = 0  # its place in the call

    @property
    def queries(self) -> tuple[Query, ...]:
        """All that is matched: it, behind its definitions or before what it is joined with."""
        match self.query:
            case Hierarchy(definitions=definitions, query=top):
                return (*(definition.query for definition in definitions), top)
            case ArchiveJoinQuery(live=live, joins=joins):
                sides = (live, *(join.query for join in joins))
                return tuple(side for side in sides if isinstance(side, Query))
            case Query():
                return (self.query,)
            case _:  # subscriptions and clauses of SQL have none
                return ()

    @property
    def operators(self) -> Iterator[UserOperator]:
        """Those of users, in its patterns."""
        for query in self.queries:
            for applied in iterate_operator_calls(query.pattern):
                yield applied.operator


@contextmanager
def pickle_by_value(asked: Iterable[QuerySpec]) -> Iterator[None]:
    """While it lasts, cloudpickle takes the functions of users' operators along.

    Else a worker would have to be able to import the modules that they were written in.
    """
    from numba import cloudpickle

    functions = [f for one in asked for o in one.operators for f in (o.q, o.f)]
    names = {f.__module__ for f in functions if f is not None}
    modules = [
        sys.modules[name]
        for name in sorted(names - {"__main__"})
        if name in sys.modules and name not in cloudpickle.list_registry_pickle_by_value()
    ]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


@dataclass(frozen=True)
class SubscriptionsSpec:
    """Subscriptions over one stream, from a version of their log on."""

    log: "CatalogLog | MemoryLog"
    version: int

    @property
    def folder(self) -> str | None:
        """Where the log is; None: in memory."""
        folder = getattr(self.log, "folder", None)
        return None if folder is None else str(folder)
