"""What runs in the key groups of one key, whatever kind of work it is."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.ir.query import Query
from ensue.planner.limits import MatcherLimits
from ensue.projection.match_table import flatten_schema, flatten_table
from ensue.runtime.compiled_query import CompiledQuery
from ensue.runtime.query_spec import Name
from ensue.runtime.source_schema import SourceSchema
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import Rows, StreamSchema

if TYPE_CHECKING:
    from ensue.analyzer.aggregation import ResultAggregation
    from ensue.archives.archive import Archive
    from ensue.archives.file_archive import FileArchive
    from ensue.projection.grouping import ResultFinisher

MatcherInput = TypeVar("MatcherInput", contravariant=True)  # noqa: PLC0105  as they read best
MatcherOutput = TypeVar("MatcherOutput", covariant=True)  # noqa: PLC0105


class Matcher(Protocol[MatcherInput, MatcherOutput]):
    """Finds matches in events that come piece by piece, in the order of the stream.

    A query is given tables of events, what runs in a key group also complex events of other key groups. An
    engine finds `Matches` (rows of the events), a query a table, a key group a table for each output.
    However the stream is cut, they find the same.
    """

    def feed(self, events: MatcherInput, /) -> MatcherOutput:
        """What the next events complete, or show to be complete."""

    def advance(self, now: float, /) -> MatcherOutput:
        """What only waited for time to pass: no event that ends before `now` comes any more."""

    def finish(self) -> MatcherOutput:
        """What only waited for the stream to end."""

    def deadline(self) -> float | None:
        """The time behind which `advance` finds or forgets something; None: there is none."""

    @property
    def partial_matches(self) -> int:
        """How many partial matches it holds."""

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""

    def restore(self, data: bytes, /) -> None:
        """Goes on where the saved one stopped."""


ARRIVAL = "__arrival"  # when an event came, as its key group counts
BATCH, ROW = "__batch", "__row"  # in which micro-batch it came, and where in that
COPY = "__copy"  # of the rows of an event that goes to several key groups, which one: from 0


@dataclass(frozen=True, slots=True)
class OutputTable:
    """A table of matches that a workload gives."""

    number: int  # among the outputs of the workload
    name: Name
    schema: pa.Schema
    asked: int  # the number of the query that it is of
    meaning: Query | None  # whose matches these are; None: those of subscriptions
    flat: bool = False  # events are plain columns
    finishing: "ResultAggregation | None" = None  # what is done with all matches

    def given(self, found: pa.Table) -> pa.Table:
        """Matches as they are delivered."""
        return flatten_table(found) if self.flat else found

    @property
    def finished(self) -> "ResultFinisher | None":
        """What all matches together become, if not just their table."""
        if self.finishing is None:
            return None
        from ensue.projection.grouping import ResultFinisher

        return ResultFinisher(self.finishing, self.schema)

    def flattened(self) -> "OutputTable":
        """The same with events as plain columns."""
        return replace(self, schema=flatten_schema(self.schema), flat=True)


@dataclass(frozen=True, slots=True)
class InputFilter:
    """Which events that come in matter to a stage."""

    types: frozenset[str] | None  # None: those of every type
    key: tuple[str, ...] = ()  # by which they are split
    nulls: bool = False  # those without a key matter too; else NULL equals nothing

    @property
    def any(self) -> bool:
        """Whether events that come in matter at all."""
        return self.types is None or bool(self.types)

    def of(self, events: pa.Table, shape: StreamSchema) -> npt.NDArray[np.bool_]:
        """Which of some events matter."""
        kept = np.full(events.num_rows, self.any)
        column = shape.schema.type_column
        if self.types is not None and column is not None:
            names = events.column(column).cast(pa.string())
            found = pc.is_in(names, value_set=pa.array(sorted(self.types), pa.string()))
            kept &= found.to_numpy()
        for field in () if self.nulls else self.key:
            kept &= events.column(field).is_valid().to_numpy()
        return kept


@dataclass(frozen=True, slots=True)
class StageInput:
    """What a stage is given: events that came in, and complex events of earlier stages."""

    events: pa.Table  # in the order of the stream
    made: Mapping[str, pa.Table]
    arrival: tuple[str, ...]  # the columns of events that say when they came

    @classmethod
    def of(cls, events: pa.Table) -> "StageInput":
        """Events of a stream that nobody else sees a part of."""
        return cls(events, {}, ())

    @property
    def bare(self) -> pa.Table:
        """The events as they came in."""
        return self.events.drop_columns(list(self.arrival)) if self.arrival else self.events


StageMatcher = Matcher[StageInput, list[pa.Table]]


class PipelineStage(Protocol):
    """Nodes of a workload that find all they need in the key groups of one key."""

    @property
    def reads(self) -> InputFilter:
        """The events that come in to it. They are split by the key of these."""

    @property
    def outputs(self) -> tuple[OutputTable, ...]:
        """What it delivers."""

    @property
    def whole_stream(self) -> str | None:
        """Why one key group has to see all events, if it has to."""

    @property
    def takes(self) -> Mapping[str, pa.Schema]:
        """The complex events of earlier stages that it is made of, as they come."""

    @property
    def hold(self) -> int | float:
        """How far its time is behind that of the stream."""

    @property
    def arrival(self) -> tuple[str, ...]:
        """The columns by which it knows when an event came."""

    @property
    def limits(self) -> MatcherLimits: ...

    def matcher(self) -> StageMatcher:
        """A matcher for a key group, with no events yet."""

    def matched(self, given: StageInput) -> list[pa.Table]:
        """What a key group finds where all events are there."""

    def matches(self, found: Sequence[pa.Table]) -> int:
        """How many of what was found are matches that are delivered."""

    def delivered(self, found: Sequence[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
        """The tables of what was found that are delivered, with the numbers of their outputs."""

    def sent(self, found: Sequence[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
        """The complex events among what was found that later stages take, by name."""


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The part of a stream that a task is of."""

    stream: str  # an id that the stream keeps, also when it is started again
    number: int


@dataclass(frozen=True, slots=True)
class SubscriptionVersion:
    """What is asked of a stream where that changes while it runs: from a micro-batch on."""

    number: int
    batch: int  # the first that has it: new ones see the events that came with it, and later
    stream: str = ""  # of which it is a part


@dataclass(frozen=True, slots=True)
class RoutedEvents:
    """Events on their way to key groups: to none, to one, or to several."""

    rows: npt.NDArray[np.int64]  # which event it is, ascending
    key_groups: npt.NDArray[np.int64]  # where it goes
    added: pa.Table  # what the stage wants to know of it there
    version: SubscriptionVersion | None = None  # None: what is asked does not change


@runtime_checkable
class RoutingStage(Protocol):
    """A stage that says itself to which key groups an event goes, not by a key of the event."""

    @property
    def added(self) -> pa.Schema:
        """The columns that events get on their way."""

    def spread(self, events: pa.Table, key_groups: int, batch: MicroBatch | None) -> RoutedEvents:
        """Where events go. `batch` is None where all events are there."""

    def task_matcher(self, key_group: int, key_groups: int) -> StageMatcher:
        """A matcher for one of so many key groups, with no events yet."""

    def match_key_group(
        self, given: StageInput, key_group: int, key_groups: int
    ) -> list[pa.Table]:
        """What one of so many key groups finds where all events are there."""


@runtime_checkable
class SortingStage(Protocol):
    """A stage that puts events that are all there into an order of its own."""

    @property
    def orders(self) -> bool: ...


@runtime_checkable
class VersionedMatcher(Protocol):
    """A matcher of which something else is asked from time to time."""

    def renew(self, version: SubscriptionVersion) -> None:
        """What is asked now. Matchers are told once of each version, in ascending order."""


def create_task_matcher(stage: PipelineStage, key_group: int, key_groups: int) -> StageMatcher:
    """A matcher for a key group of a stage of any kind."""
    return (
        stage.task_matcher(key_group, key_groups)
        if isinstance(stage, RoutingStage)
        else stage.matcher()
    )


@runtime_checkable
class ArchiveReadingStage(Protocol):
    """What a stage can do that looks things up in archives."""

    @property
    def archives(self) -> "Mapping[str, Archive]":
        """Those that it looks things up in, by name."""

    def archived_types(self, name: str) -> frozenset[str] | None:
        """The types of events of an archive that matter to it. None: all of them."""

    def split_like(self, name: str) -> frozenset[str]:
        """The fields by which an archive can be split as the stream is."""

    def with_archives(self, archives: "Mapping[str, Archive]") -> "PipelineStage":
        """The same with some archives in the place of those of the same names."""


@dataclass(frozen=True, slots=True)
class ArchiveSink:
    """How key groups write the archive that their events belong to."""

    archive: "FileArchive"
    rows: int  # recent events of a key group that are worth archiving
    age: float | None = None  # how long the oldest of them may wait, in the stream's time


@runtime_checkable
class ArchiveWritingStage(Protocol):
    """A stage whose events belong to an archive."""

    @property
    def archiving(self) -> ArchiveSink | None:
        """How they are written there; None: they stay in the key group."""


@dataclass(frozen=True, slots=True)
class ArchiveBatch:
    """Events that a key group gives to the archive: all that it had, up to its time."""

    events: pa.Table
    first: int  # how many it has given before


@dataclass(slots=True)
class LookupCounters:
    """What a matcher has read of archives, and what it keeps for its own, so far."""

    probes: int = 0
    files: int = 0
    rows: int = 0
    recent: int = 0  # events that are not in the archive yet
    before_cut: int = 0  # events that were in the archive when the stream began

    def since(self, before: "LookupCounters") -> "LookupCounters":
        """What came to it since; what it keeps is what it keeps now."""
        return LookupCounters(
            self.probes - before.probes, self.files - before.files, self.rows - before.rows,
            self.recent, self.before_cut - before.before_cut,
        )  # fmt: skip


@runtime_checkable
class ArchiveBuffer(Protocol):
    """What a matcher can do that has a past."""

    def looked_up(self) -> LookupCounters:
        """What it has read so far, and what it keeps."""

    def hand_over(self, now: float, rows: int, age: float | None) -> ArchiveBatch | None:
        """The events before `now`, to be archived; None: they are too few, and too young."""


def is_partitioned(stage: PipelineStage) -> bool:
    """Whether a stage has several key groups."""
    return bool(stage.reads.key) or isinstance(stage, RoutingStage)


def union_types(several: Iterable[InputFilter]) -> frozenset[str] | None:
    """The types of events that matter to one of several. None: all of them."""
    found: set[str] = set()
    for reads in several:
        if reads.types is None:
            return None
        found |= reads.types
    return frozenset(found)


def get_complex_end_times(made: pa.Table, shape: StreamSchema) -> npt.NDArray[Any]:
    """When complex events on their way end."""
    return np.asarray(from_arrow(made.column("end"), shape.unit).values)


def filter_unseen(
    events: pa.Table, source: SourceSchema, others: Iterable[InputFilter]
) -> npt.NDArray[np.bool_]:
    """Which events no other stage has."""
    seen = np.zeros(events.num_rows, np.bool_)
    for reads in others:
        seen |= reads.of(events, source.shape)
    return ~seen


SLICE_ROWS = 1 << 20  # rows a kernel looks at before it can be interrupted
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class UnseenTypes:
    """Types of events that are asked for, and of which none came as far as is known."""

    types: frozenset[str] = frozenset()
    defined: tuple[str, ...] = ()  # events that are defined, and may have been meant


@dataclass(frozen=True, slots=True)
class TableResult:
    """What was found in events that are all there."""

    tables: list[pa.Table]
    unseen: UnseenTypes = UnseenTypes()


class QueryOperator(Protocol):
    """One kind of work over the events of a workload, planned."""

    @property
    def outputs(self) -> tuple[OutputTable, ...]: ...
    @property
    def expected(self) -> tuple[CompiledQuery, ...]:
        """The parts of it of which it can be foreseen what they hold and find."""

    @property
    def of_events(self) -> bool:
        """Whether these are found in the events as they come in."""

    @property
    def reads(self) -> InputFilter:
        """The events that matter to it."""

    @property
    def rows(self) -> Rows | None:
        """Picks the events that may be in a match or forbid one; None: all of them are needed."""

    def matched(self, events: pa.Table, progress: Progress | None = None) -> TableResult:
        """What it finds in events that are all there, in the order of the stream."""

    def chains(self) -> tuple[tuple[PipelineStage, ...], ...]:
        """Its stages, as chains that do not wait for each other."""

    def whole(self) -> PipelineStage:
        """All of it as one stage, where one key group has all events."""
