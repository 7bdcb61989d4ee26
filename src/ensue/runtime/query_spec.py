"""The queries of a call, and its options for planning and output."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from ensue.errors import EventError, QueryError
from ensue.ir.archive_join import ArchiveJoinQuery
from ensue.ir.hierarchy import Hierarchy
from ensue.ir.query import Query
from ensue.ir.traversal import iterate_operator_calls
from ensue.ir.user_operator import UserOperator
from ensue.options import Archives, OutputOptions
from ensue.planner.planner_options import DEFAULT_OPTIONS, PlannerOptions

if TYPE_CHECKING:
    from ensue.archives.archive import Archive
    from ensue.ir.row_pattern import RowPatternQuery
    from ensue.operators.archive_join.archived_events import ArchivedEvents
    from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog, MemoryLog
    from ensue.runtime.stage import ArchiveSink
    from ensue.vector.arrow_types import Unit

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


@dataclass(frozen=True, eq=False)
class InputEvents:
    """The events of a call, as known to the planner."""

    table: pa.Table | None = None  # all events, in any order, if they are in memory
    whole: bool = False  # whether they are complete, not a stream

    @property
    def events(self) -> int | None:
        return None if self.table is None else self.table.num_rows


STREAM_INPUT = InputEvents()


def describe_input(events: object, *, streaming: bool) -> InputEvents:
    if isinstance(events, pa.Table):
        return InputEvents(events, whole=True)
    return InputEvents(whole=not streaming)


@dataclass(frozen=True)
class ArchiveSet:
    """The archives of a call by name, pinned when it begins."""

    archives: "Mapping[str, Archive]"
    own: str | None = None  # the archive that the stream itself writes
    # events that end before are in the own archive already: a number, or nanoseconds; None: it
    # was empty
    cut: int | float | None = None
    archiving: "ArchiveSink | None" = None  # how the own archive is written
    unpinned: "Mapping[str, Archive]" = field(default_factory=dict, repr=False)
    access: str | None = None  # None: the cheapest access path
    latency: str | int | float | None = None  # maximum wait of a live match for batching

    def with_own_archive(self, name: str, archive: "Archive") -> "ArchiveSet":
        """The set with an archive that the stream writes."""
        archives = {**self.archives, name: archive}
        return replace(self, archives=archives, own=name, cut=_find_cut(archive.pinned()))

    def renew(self) -> "ArchiveSet":
        """The set with the current end of the own archive as the cut."""
        return self if self.own is None else self.with_own_archive(self.own, self.archives[self.own])

    @property
    def travelling(self) -> "ArchiveSet":
        """The part that tasks need."""
        return replace(self, unpinned={})

    def open_archived_events(self, name: str, unit: "Unit") -> "ArchivedEvents":
        """The archived events of a new key group."""
        from ensue.operators.archive_join.archived_events import ArchivedEvents

        own = name == self.own
        cut = self.first_cut(unit) if own else None
        waits = own and self.archiving is not None
        return ArchivedEvents(self.archives[name], unit, own, cut, cut, waits_for_archive=waits)

    def first_cut(self, unit: "Unit") -> int | float | None:
        """The cut in ticks."""
        if self.own is None or self.cut is None or unit == "ns":
            return self.cut
        if self.archives[self.own].shape.schema.time_kind.numeric:
            return self.cut
        return -(-int(self.cut) // 1_000)


def _find_cut(archive: "Archive") -> int | float | None:
    """The time after an archive's last event: a number, or nanoseconds; None: it is empty."""
    from ensue.archives.archive import read_last_end
    from ensue.vector.column_values import from_arrow

    last_end = read_last_end(archive)
    if last_end is None:
        return None
    last = from_arrow(last_end, "ns").values[0].item()
    return math.nextafter(last, math.inf) if isinstance(last, float) else int(last) + 1


NO_ARCHIVES = ArchiveSet({})


def open_archives(archives: "Mapping[str, Archive] | Archives | None", *, streaming: bool = False) -> ArchiveSet:
    """Pins the archives of a call; that of a stream's own events stays unpinned."""
    archives = Archives.wrap(archives)
    pinned = {name: archive.pinned() for name, archive in archives.archives.items()}
    opened = ArchiveSet(
        pinned, unpinned=dict(archives.archives), access=archives.access, latency=archives.latency
    )  # fmt: skip
    if archives.own is None:
        return opened
    own = archives.own
    return opened.with_own_archive(own, archives.archives[own] if streaming else pinned[own])


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a call for all its queries."""

    streaming: bool = False
    planning: PlannerOptions = DEFAULT_OPTIONS
    output: OutputOptions = OutputOptions()  # noqa: RUF009  it is frozen
    coming: InputEvents = STREAM_INPUT
    ids: bool = True  # whether results of MATCH_RECOGNIZE begin with a column match_id
    explain: bool = False  # nothing runs: all alternatives are estimated, and eviction may be impossible
