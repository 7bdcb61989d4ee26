"""The queries of a call, with their names and numbers."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

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
    named: Iterable[tuple[Name, Any]] = enumerate(queries)
    if isinstance(queries, Mapping):
        for key in queries:
            if not isinstance(key, str):
                raise QueryError(f"the name of a query is a text, not {key!r}")
        named = queries.items()
    parsed: dict[Name, Query | Hierarchy | ArchiveJoinQuery | RowPatternQuery] = {}
    for name, query in named:
        with name_query_in_errors(name):
            parsed[name] = parse(query)
    own = {name: query.name for name, query in parsed.items()}
    if isinstance(queries, Mapping) or len(set(own.values()) - {None}) < len(own):
        return parsed
    return {own[name] or name: query for name, query in parsed.items()}


@contextmanager
def name_query_in_errors(name: Name | None) -> Iterator[None]:
    """Adds the name of a query to errors; None: it is the only query."""
    if name is None:
        yield
        return
    shown = f"query '{name}'" if isinstance(name, str) else f"query {name}"
    try:
        yield
    except QueryError as error:
        raise QueryError(f"{shown}: {error.problem}", hint=error.hint, span=error.span, text=error.text) from error
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
        """All patterns: its definitions and itself, or itself and the sides it is joined with."""
        return self.query.queries

    @property
    def operators(self) -> Iterator[UserOperator]:
        """The user operators in its patterns."""
        for query in self.queries:
            for applied in iterate_operator_calls(query.pattern):
                yield applied.operator


@contextmanager
def pickle_by_value(specs: Iterable[QuerySpec]) -> Iterator[None]:
    """Pickles the functions of user operators by value: workers need not import their modules."""
    from numba import cloudpickle

    functions = [f for spec in specs for o in spec.operators for f in (o.q, o.f)]
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
    name: ClassVar[None] = None
    whole: ClassVar[None] = None
    queries: ClassVar[tuple[()]] = ()

    @property
    def folder(self) -> str | None:
        """The folder of the log; None: in memory."""
        folder = getattr(self.log, "folder", None)
        return None if folder is None else str(folder)
