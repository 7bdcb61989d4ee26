"""What runs in the lanes of one key, whatever kind of work it is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.query import Query
from ensue.algebra.whole_results import Finishing
from ensue.archives.contract import Archive
from ensue.columns.stream import Shape
from ensue.columns.values import from_arrow
from ensue.engine.contract import Matcher
from ensue.plan.limits import Limits
from ensue.results.flat import flat, flat_schema
from ensue.results.whole_results import Finished
from ensue.workload.query_names import Name
from ensue.workload.source import Source

if TYPE_CHECKING:
    from ensue.archives.stored import FileArchive

ARRIVAL = "__arrival"  # when an event came, as its lane counts
BATCH, ROW = "__batch", "__row"  # in which micro-batch it came, and where in that
COPY = "__copy"  # of the rows of an event that goes to several lanes, which one: from 0


@dataclass(frozen=True, slots=True)
class Output:
    """A table of matches that a workload gives."""

    number: int  # among the outputs of the workload
    name: Name
    schema: pa.Schema
    asked: int  # the number of the query that it is of
    meaning: Query | None  # whose matches these are; None: those of subscriptions
    flat: bool = False  # events are plain columns
    finishing: Finishing | None = None  # what is done with all matches

    def given(self, found: pa.Table) -> pa.Table:
        """Matches as they are delivered."""
        return flat(found) if self.flat else found

    @property
    def finished(self) -> Finished | None:
        """What all matches together become, if not just their table."""
        return None if self.finishing is None else Finished(self.finishing, self.schema)

    def flattened(self) -> "Output":
        """The same with events as plain columns."""
        return replace(self, schema=flat_schema(self.schema), flat=True)


@dataclass(frozen=True, slots=True)
class Reads:
    """Which events that come in matter to a stage."""

    types: frozenset[str] | None  # None: those of every type
    key: tuple[str, ...] = ()  # by which they are split
    nulls: bool = False  # those without a key matter too; else NULL equals nothing

    @property
    def any(self) -> bool:
        """Whether events that come in matter at all."""
        return self.types is None or bool(self.types)

    def of(self, events: pa.Table, shape: Shape) -> npt.NDArray[np.bool_]:
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
class Fed:
    """What a stage is given: events that came in, and complex events of earlier stages."""

    events: pa.Table  # in the order of the stream
    made: Mapping[str, pa.Table]
    arrival: tuple[str, ...]  # the columns of events that say when they came

    @classmethod
    def of(cls, events: pa.Table) -> "Fed":
        """Events of a stream that nobody else sees a part of."""
        return cls(events, {}, ())

    @property
    def bare(self) -> pa.Table:
        """The events as they came in."""
        return self.events.drop_columns(list(self.arrival)) if self.arrival else self.events


StageMatcher = Matcher[Fed, list[pa.Table]]


class Stage(Protocol):
    """Nodes of a workload that find all they need in the lanes of one key."""

    @property
    def reads(self) -> Reads:
        """The events that come in to it. They are split by the key of these."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What it delivers."""

    @property
    def whole_stream(self) -> str | None:
        """Why one lane has to see all events, if it has to."""

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
    def limits(self) -> Limits: ...

    def matcher(self) -> StageMatcher:
        """A matcher for a lane, with no events yet."""

    def matched(self, given: Fed) -> list[pa.Table]:
        """What a lane finds where all events are there."""

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
class Version:
    """What is asked of a stream where that changes while it runs: from a micro-batch on."""

    number: int
    batch: int  # the first that has it: new ones see the events that came with it, and later
    stream: str = ""  # of which it is a part


@dataclass(frozen=True, slots=True)
class Spread:
    """Events on their way to lanes: to none, to one, or to several."""

    rows: npt.NDArray[np.int64]  # which event it is, ascending
    lanes: npt.NDArray[np.int64]  # where it goes
    added: pa.Table  # what the stage wants to know of it there
    version: Version | None = None  # None: what is asked does not change


@runtime_checkable
class Spreads(Protocol):
    """A stage that says itself to which lanes an event goes, not by a key of the event."""

    @property
    def added(self) -> pa.Schema:
        """The columns that events get on their way."""

    def spread(self, events: pa.Table, lanes: int, batch: MicroBatch | None) -> Spread:
        """Where events go. `batch` is None where all events are there."""

    def lane_matcher(self, lane: int, lanes: int) -> StageMatcher:
        """A matcher for one of so many lanes, with no events yet."""

    def lane_matched(self, given: Fed, lane: int, lanes: int) -> list[pa.Table]:
        """What one of so many lanes finds where all events are there."""


@runtime_checkable
class Orders(Protocol):
    """A stage that puts events that are all there into an order of its own."""

    @property
    def orders(self) -> bool: ...


@runtime_checkable
class Renews(Protocol):
    """A matcher of which something else is asked from time to time."""

    def renew(self, version: Version) -> None:
        """What is asked now. Matchers are told once of each version, in ascending order."""


def lane_matcher(stage: Stage, lane: int, lanes: int) -> StageMatcher:
    """A matcher for a lane of a stage of any kind."""
    return stage.lane_matcher(lane, lanes) if isinstance(stage, Spreads) else stage.matcher()


@runtime_checkable
class LooksBack(Protocol):
    """What a stage can do that looks things up in archives."""

    @property
    def archives(self) -> Mapping[str, Archive]:
        """Those that it looks things up in, by name."""

    def archived_types(self, name: str) -> frozenset[str] | None:
        """The types of events of an archive that matter to it. None: all of them."""

    def split_like(self, name: str) -> frozenset[str]:
        """The fields by which an archive can be split as the stream is."""

    def with_archives(self, archives: Mapping[str, Archive]) -> "Stage":
        """The same with some archives in the place of those of the same names."""


@dataclass(frozen=True, slots=True)
class Archiving:
    """How lanes write the archive that their events belong to."""

    archive: "FileArchive"
    rows: int  # recent events of a lane that are worth archiving
    age: float | None = None  # how long the oldest of them may wait, in the stream's time


@runtime_checkable
class Archives(Protocol):
    """A stage whose events belong to an archive."""

    @property
    def archiving(self) -> Archiving | None:
        """How they are written there; None: they stay in the lane."""


@dataclass(frozen=True, slots=True)
class Handover:
    """Events that a lane gives to the archive: all that it had, up to its time."""

    events: pa.Table
    first: int  # how many it has given before


@dataclass(slots=True)
class LookedUp:
    """What a matcher has read of archives, and what it keeps for its own, so far."""

    probes: int = 0
    files: int = 0
    rows: int = 0
    recent: int = 0  # events that are not in the archive yet
    before_cut: int = 0  # events that were in the archive when the stream began

    def since(self, before: "LookedUp") -> "LookedUp":
        """What came to it since; what it keeps is what it keeps now."""
        return LookedUp(
            self.probes - before.probes, self.files - before.files, self.rows - before.rows,
            self.recent, self.before_cut - before.before_cut,
        )  # fmt: skip


@runtime_checkable
class Remembers(Protocol):
    """What a matcher can do that has a past."""

    def looked_up(self) -> LookedUp:
        """What it has read so far, and what it keeps."""

    def hand_over(self, now: float, rows: int, age: float | None) -> Handover | None:
        """The events before `now`, to be archived; None: they are too few, and too young."""


def split(stage: Stage) -> bool:
    """Whether a stage has several lanes."""
    return bool(stage.reads.key) or isinstance(stage, Spreads)


def types_of(several: Iterable[Reads]) -> frozenset[str] | None:
    """The types of events that matter to one of several. None: all of them."""
    found: set[str] = set()
    for reads in several:
        if reads.types is None:
            return None
        found |= reads.types
    return frozenset(found)


def ends_of(made: pa.Table, shape: Shape) -> npt.NDArray[Any]:
    """When complex events on their way end."""
    return np.asarray(from_arrow(made.column("end"), shape.unit).values)


def unseen(events: pa.Table, source: Source, others: Iterable[Reads]) -> npt.NDArray[np.bool_]:
    """Which events no other stage has."""
    seen = np.zeros(events.num_rows, np.bool_)
    for reads in others:
        seen |= reads.of(events, source.shape)
    return ~seen
