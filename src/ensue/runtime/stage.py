"""The interfaces of operators, pipeline stages and matchers, and the data between them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.engine.memory_budget import Usage
from ensue.ir.query import Query
from ensue.options import Limits
from ensue.projection.match_order import get_named_columns
from ensue.projection.match_table import flatten_schema, flatten_table
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.query_spec import Name, QuerySpec
from ensue.runtime.source_schema import SourceSchema
from ensue.vector.arrow_numpy import booleans, build_texts, to_single_array
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import EventSelection, FindRoles, StreamSchema

if TYPE_CHECKING:
    from ensue.analyzer.output_mode import ResultAggregation
    from ensue.archives.archive import Archive
    from ensue.archives.file_archive import FileArchive
    from ensue.planner.explain.plan_node import PlanNode
    from ensue.projection.grouping import ResultFinisher

MatcherInput = TypeVar("MatcherInput", contravariant=True)  # noqa: PLC0105  as they read best
MatcherOutput = TypeVar("MatcherOutput", covariant=True)  # noqa: PLC0105


class Matcher(Protocol[MatcherInput, MatcherOutput]):
    """Matches events that arrive in batches, in stream order.

    An engine returns `Matches` (rows of the events), a query a table, a stage a table for each of
    its outputs. The result does not depend on how the stream is split into batches.
    """

    def process(self, events: MatcherInput, /) -> MatcherOutput:
        """The matches that the next events complete."""

    def on_watermark(self, now: float, /) -> MatcherOutput:
        """The matches that the watermark `now` completes; a watermark at infinity ends the stream."""

    def next_timer(self) -> float | None:
        """The watermark after which `advance` returns matches or drops state; None: none."""

    @property
    def usage(self) -> Usage:
        """What it holds now."""

    def snapshot(self) -> bytes:
        """Serialized state."""

    def restore(self, data: bytes, /) -> None:
        """Restores a serialized state."""


MATCH_ID = "match_id"
ARRIVAL = "__arrival"  # arrival number of an event in its key group
BATCH, ROW = "__batch", "__row"  # micro-batch of an event, and its row there
COPY = "__copy"  # number, from 0, of the copies of an event that goes to several key groups


@dataclass(frozen=True, slots=True)
class OutputTable:
    """A result table of a workload."""

    number: int  # among the outputs of the workload
    name: Name
    schema: pa.Schema
    query_number: int
    meaning: Query | None  # None: subscriptions
    flat: bool = False  # events are flat columns
    sorted_by: tuple[str, ...] = ()  # the result of a table is sorted by them; (): its matches are in order
    finishing: "ResultAggregation | None" = None  # GROUP BY, ORDER BY and FETCH FIRST
    with_ids: bool = True

    def convert(self, table: pa.Table) -> pa.Table:
        """The delivered form of a table of matches."""
        if not self.with_ids:
            table = table.drop_columns([MATCH_ID])
        return flatten_table(table) if self.flat else table

    @property
    def finished(self) -> "ResultFinisher | None":
        """Aggregates and sorts the complete result, if the query says so."""
        if self.finishing is None:
            return None
        from ensue.projection.grouping import ResultFinisher

        return ResultFinisher(self.finishing, self.schema)

    def flatten(self) -> "OutputTable":
        return replace(self, schema=flatten_schema(self.schema), flat=True)

    def leave_out_ids(self) -> "OutputTable":
        """The same table without the ids of matches, unless it has none."""
        if self.finishing is not None:  # it sorts by them
            return replace(self, finishing=replace(self.finishing, hidden=(*self.finishing.hidden, MATCH_ID)))
        own = set() if self.meaning is None else get_named_columns(self.meaning)
        if MATCH_ID not in self.schema.names or MATCH_ID in own:
            return self
        left = pa.schema([field for field in self.schema if field.name != MATCH_ID])
        return replace(self, schema=left, with_ids=False)


@dataclass(frozen=True, slots=True)
class InputFilter:
    """The input events of a stage."""

    types: frozenset[str] | None  # None: all types
    key: tuple[str, ...] = ()  # by which they are partitioned
    nulls: bool = False  # whether events without a key are included

    @property
    def any(self) -> bool:
        """Whether the stage reads input events at all."""
        return self.types is None or bool(self.types)

    def compute_mask(self, events: pa.Table, shape: StreamSchema) -> npt.NDArray[np.bool_]:
        """A mask of the events that the stage reads."""
        kept = np.full(events.num_rows, self.any)
        column = shape.schema.type_column
        if self.types is not None and column is not None:
            names = events.column(column).cast(pa.string())
            types = build_texts(sorted(self.types))
            kept &= booleans(to_single_array(pc.is_in(names, value_set=types)))
        for field in () if self.nulls else self.key:
            kept &= booleans(to_single_array(events.column(field).is_valid()))
        return kept


SLICE_ROWS = 1 << 20  # rows that a kernel processes before it can be interrupted
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class StageInput:
    """A batch for a stage: input events, and complex events of earlier stages."""

    events: pa.Table  # in stream order
    complex_events: Mapping[str, pa.Table]
    arrival: tuple[str, ...]  # the columns of the arrival order
    progress: Progress | None = None  # is called with the number of processed and of all events
    selection: EventSelection | None = None  # the events to match, if these are neither in order nor all relevant

    @classmethod
    def from_events(
        cls, events: pa.Table, progress: Progress | None = None, selection: EventSelection | None = None
    ) -> "StageInput":
        return cls(events, {}, (), progress, selection)

    def slices(self, rows: int | None = None) -> "Iterator[StageInput]":
        """Splits a large batch of input events, and reports the progress after each slice."""
        rows, total = rows or SLICE_ROWS, self.events.num_rows
        if total <= rows or self.complex_events:
            yield self
            self.report(total)
            return
        for first in range(0, total, rows):
            yield replace(self, events=self.events.slice(first, rows), progress=None)
            self.report(min(first + rows, total))

    def report(self, rows: int) -> None:
        if self.progress is not None and self.events.num_rows:
            self.progress(rows, self.events.num_rows)

    @property
    def bare(self) -> pa.Table:
        """The events without the columns of the arrival order."""
        return self.events.drop_columns(list(self.arrival)) if self.arrival else self.events


StageMatcher = Matcher[StageInput, list[pa.Table]]


class TableMatcher(Protocol):
    """A matcher of a table, which is one batch and a watermark at infinity. It has no state to save."""

    def process(self, batch: StageInput, /) -> list[pa.Table]: ...
    def on_watermark(self, now: float, /) -> list[pa.Table]: ...


class PipelineStage(Protocol):
    """Part of an operator whose input is partitioned by one key."""

    @property
    def reads(self) -> InputFilter:
        """Its input events, partitioned by the key of the filter."""

    @property
    def outputs(self) -> tuple[OutputTable, ...]: ...
    @property
    def whole_stream(self) -> str | None:
        """Why the stage cannot be partitioned; None if it can."""

    @property
    def takes(self) -> Mapping[str, pa.Schema]:
        """The complex events of earlier stages that it reads, by name."""

    @property
    def hold(self) -> int | float:
        """How far its watermark is behind that of the stream."""

    @property
    def arrival(self) -> tuple[str, ...]:
        """The columns of the arrival order."""

    @property
    def limits(self) -> Limits: ...

    def matcher(self, key_group: int = 0, key_groups: int = 1) -> StageMatcher:
        """An empty matcher for a key group of a stream."""

    def table_matcher(self, key_group: int = 0, key_groups: int = 1) -> TableMatcher:
        """A matcher for all events of a key group at once."""

    def matches(self, found: Sequence[pa.Table]) -> int:
        """The number of delivered matches in a result."""

    def iterate_outputs(self, found: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """The delivered tables of a result, with the numbers of their outputs."""

    def iterate_forwarded(self, found: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
        """The complex events of a result that later stages read, by name."""


class FinalStage:
    """A stage whose results are delivered, one table per output, and not sent to other stages."""

    outputs: tuple[OutputTable, ...]
    takes: Mapping[str, pa.Schema] = MappingProxyType({})
    hold = 0
    arrival: tuple[str, ...] = (ARRIVAL,)

    def matcher(self, key_group: int = 0, key_groups: int = 1) -> StageMatcher:
        raise NotImplementedError

    def table_matcher(self, key_group: int = 0, key_groups: int = 1) -> TableMatcher:
        return self.matcher(key_group, key_groups)

    def matches(self, tables: Sequence[pa.Table]) -> int:
        return sum(table.num_rows for table in tables)

    def iterate_outputs(self, tables: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        for output, table in zip(self.outputs, tables, strict=True):
            if table.num_rows:
                yield output.number, table

    def iterate_forwarded(self, found: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:  # noqa: ARG002
        return iter(())


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch of a stream."""

    stream: str  # an id that survives restarts
    number: int


@dataclass(frozen=True, slots=True)
class SubscriptionVersion:
    """A version of a set of subscriptions that changes while the stream runs."""

    number: int
    batch: int  # the first with this version: new subscriptions see its events and later ones
    stream: str = ""
    floor: int | None = None  # of later versions, cancelled subscriptions stay for earlier events; None: none stays


@dataclass(frozen=True, slots=True)
class RoutedEvents:
    """The key groups of events: none, one, or several for each."""

    rows: npt.NDArray[np.int64]  # of the events, ascending
    key_groups: npt.NDArray[np.int64]
    added: pa.Table  # further columns for the stage
    version: SubscriptionVersion | None = None  # None: subscriptions do not change


@runtime_checkable
class RoutingStage(Protocol):
    """A stage that assigns events to key groups itself, not by a key."""

    @property
    def added(self) -> pa.Schema:
        """The columns that routing adds to events."""

    def spread(self, events: pa.Table, key_groups: int, batch: MicroBatch | SubscriptionVersion | None) -> RoutedEvents:
        """Assigns events to key groups, with the version of a micro-batch or the sender's. None: in batch mode."""


@runtime_checkable
class SortingStage(Protocol):
    """A stage that sorts its input in batch mode."""

    @property
    def orders(self) -> bool: ...


@runtime_checkable
class VersionedMatcher(Protocol):
    """A matcher of subscriptions that change."""

    def renew(self, version: SubscriptionVersion) -> None:
        """Switches to a version. Called once for each version, in ascending order."""


FailedSubscriptions = Mapping[str, tuple[int, str]]  # by name: the version at which they failed, and the error


@runtime_checkable
class IsolatingMatcher(Protocol):
    """A matcher of subscriptions that leaves out those that make it fail."""

    def find_failed(self, error: Exception) -> FailedSubscriptions:
        """The subscriptions that caused an error; none: it has another cause, or stops the stream."""

    def leave_out(self, failed: FailedSubscriptions) -> None:
        """Removes subscriptions that were added at a version or before."""

    def report(self) -> Mapping[str, Any]:
        """What it says of its subscriptions after a micro-batch; empty: nothing."""


@runtime_checkable
class ArchiveReadingStage(Protocol):
    """A stage that reads archives."""

    @property
    def archives(self) -> "Mapping[str, Archive]": ...
    def archived_types(self, name: str) -> frozenset[str] | None:
        """The types of events that it reads from an archive. None: all of them."""

    def split_like(self, name: str) -> frozenset[str]:
        """The fields by which an archive can be partitioned like the stream."""

    def with_archives(self, archives: "Mapping[str, Archive]") -> "PipelineStage":
        """The stage with other archives of the same names."""


@dataclass(frozen=True, slots=True)
class ArchiveSink:
    """The archive that a stream writes, and when."""

    archive: "FileArchive"
    rows: int  # minimum number of recent events of a key group
    age: float | None = None  # maximum age of the oldest of them, in event time


@runtime_checkable
class ArchiveWritingStage(Protocol):
    """A stage that may write its events to an archive."""

    @property
    def archiving(self) -> ArchiveSink | None: ...


@dataclass(frozen=True, slots=True)
class ArchiveBatch:
    """All recent events of a key group up to its watermark, to be archived."""

    events: pa.Table
    first: int  # number of events archived before


@dataclass(slots=True)
class LookupCounters:
    """The archive reads of a matcher, and its recent events."""

    probes: int = 0
    files: int = 0
    rows: int = 0
    recent: int = 0  # events that are not archived yet
    before_cut: int = 0  # events that were archived when the stream began

    def subtract(self, before: "LookupCounters") -> "LookupCounters":
        """The difference to earlier counters; `recent` is the current value."""
        return LookupCounters(
            self.probes - before.probes, self.files - before.files, self.rows - before.rows,
            self.recent, self.before_cut - before.before_cut,
        )  # fmt: skip


@runtime_checkable
class ArchiveBuffer(Protocol):
    """A matcher that reads archives and buffers recent events."""

    def get_lookup_counters(self) -> LookupCounters: ...
    def hand_over(self, now: float, rows: int, age: float | None) -> ArchiveBatch | None:
        """Removes the events before `now` to archive them; None: too few, and too young."""


def is_partitioned(stage: PipelineStage) -> bool:
    """Whether a stage has several key groups."""
    return bool(stage.reads.key) or isinstance(stage, RoutingStage)


def union_types(filters: Iterable[InputFilter]) -> frozenset[str] | None:
    """The union of the types that filters pass. None: all types."""
    types: set[str] = set()
    for reads in filters:
        if reads.types is None:
            return None
        types |= reads.types
    return frozenset(types)


def get_complex_end_times(complex_events: pa.Table, shape: StreamSchema) -> npt.NDArray[Any]:
    """The end times of complex events."""
    return np.asarray(from_arrow(complex_events.column("end"), shape.unit).values)


def filter_unseen(events: pa.Table, source: SourceSchema, others: Iterable[InputFilter]) -> npt.NDArray[np.bool_]:
    """A mask of the events that no other stage reads."""
    seen = np.zeros(events.num_rows, np.bool_)
    for reads in others:
        seen |= reads.compute_mask(events, source.shape)
    return ~seen


@dataclass(frozen=True, slots=True)
class UnseenTypes:
    """Event types of a query that did not occur in the events."""

    types: frozenset[str] = frozenset()
    defined: tuple[str, ...] = ()  # names of definitions, for hints


class QueryOperator(Protocol):
    """A physical operator for queries of one kind."""

    @property
    def outputs(self) -> tuple[OutputTable, ...]: ...
    def with_outputs(self, outputs: Sequence[OutputTable]) -> "QueryOperator":
        """The operator with other forms of its outputs."""

    @property
    def expected(self) -> tuple[CompiledQuery, ...]:
        """The queries whose cost can be estimated."""

    @property
    def of_events(self) -> bool:
        """Whether these queries match the input events."""

    @property
    def reads(self) -> InputFilter: ...
    @property
    def rows(self) -> FindRoles | None:
        """Selects the events that can change the result, if its matcher takes a selection."""

    def find_unseen(self, matcher: TableMatcher, events: pa.Table, result: Sequence[pa.Table]) -> UnseenTypes:
        """The event types of its queries that did not occur in a table, if that may be a mistake."""

    def chains(self) -> tuple[tuple[PipelineStage, ...], ...]:
        """Its stages, as independent pipelines."""

    def as_single_stage(self) -> PipelineStage:
        """The operator as one unpartitioned stage."""

    def describe(self, ordered: pa.Table | None = None) -> "PlanNode":
        """Describes its plan, with the figures of a run over events in stream order if there are any."""


def build_output(
    spec: QuerySpec, schema: pa.Schema, meaning: Query | None, sorted_by: tuple[str, ...] = ()
) -> OutputTable:
    """The only output of a query, not numbered yet."""
    name = "" if spec.name is None else spec.name
    return OutputTable(0, name, schema, spec.number, meaning, sorted_by=sorted_by)
