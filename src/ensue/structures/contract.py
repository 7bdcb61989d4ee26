"""What a structure is for the engine: a kernel that it writes, and the state that this one moves.

A structure is a folder with both, and a line in the registry. The engine feeds events, makes room
and saves by what is said here, and knows of no structure in particular.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ensue.source.absence import Inside
from ensue.source.kernel_inputs import Frame
from ensue.source.table_columns import Columns
from ensue.structures.tables import Table, Tables, TableShape

USED = "used"  # a table: by partition, the first row that a match may still begin with
BEGAN = "began"  # a column of what is kept: the row of its first event

Kernels = Callable[[str], Callable[..., Any]]  # a compiled function of a kernel's text, by name


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function of a kernel's text takes."""

    given: tuple[str, ...]  # sorts of single values, which come first: time, truth
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Written(ABC):
    """The text of a kernel, and what the caller of its `step` must know."""

    text: str
    output: tuple[str, ...]  # columns of a match: row_x, node_x and count_x, or tally_

    @property
    @abstractmethod
    def shapes(self) -> tuple[TableShape, ...]:
        """The tables of the state."""

    @property
    def taken(self) -> tuple[str, ...]:
        """Those that `step` takes, in its order: all of them, unless a structure says less."""
        return tuple(shape.name for shape in self.shapes)

    @property
    @abstractmethod
    def columns(self) -> tuple[Columns, ...]:
        """Those of the tables whose columns have names: they are saved by them."""

    @property
    def returned(self) -> tuple[str, ...]:
        """The tables that `step` gives back beside its code: it may have made them larger."""
        return ()

    @property
    def kernels(self) -> Mapping[str, Signature]:
        """The functions beside `step` that the state calls."""
        return {}

    @property
    def complexes(self) -> Mapping[str, Inside]:
        """The negated complex events, by variable: `step` takes arrays of their matches."""
        return {}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a kernel returned for, before an event that there is too little room for."""

    code: int  # one of the structure's own
    now: float  # when the event ends
    rows: int  # of the stream before it
    again: bool  # it has asked for the same at the same event, and got too little


class Room(Protocol):
    """Who makes room for a state."""

    def ask(self, more: float = 0.0) -> None:
        """An error if there may not be so many bytes more."""

    def drain(self) -> None:
        """Takes the matches out of the output."""

    def grow(self, *names: str) -> None:
        """Twice the room in some tables, if there may be so much."""


@dataclass(frozen=True, slots=True, eq=False)
class Alive:
    """Partial matches, and matches that wait for time to show them to be complete."""

    key: Table
    first: Table  # the row of its first event
    last: Table  # that of its last one so far
    waits: Table  # it may be a match as it is, if time or later events show it
    until: float | None = None  # no window of theirs is over before

    def where(self, kept: Table) -> "Alive":
        """Only some of them."""
        key, first, last, waits = self.key, self.first, self.last, self.waits
        return Alive(key[kept], first[kept], last[kept], waits[kept], self.until)


S = TypeVar("S", bound=Written)


class State(Tables, ABC, Generic[S]):
    """What a structure keeps between events, and what of it is alive."""

    waits = False  # matches may be kept until time shows them to be complete

    def __init__(self, frame: Frame, source: S, kernel: Kernels) -> None:
        super().__init__(source.shapes, frame, len(source.output))
        self.frame = frame
        self.source = source
        self.kernel = kernel

    def become(self, frame: Frame, source: S, kernel: Kernels) -> None:
        """The same state for the same plan with marks of which values are there."""
        self.take_shape(source.shapes, self.source.columns, source.columns)
        self.frame, self.source, self.kernel = frame, source, kernel

    # ---------------------------------------------------------------------------- taking over

    @property
    def knows_used(self) -> bool:
        """Whether the kernel itself drops what AFTER MATCH SKIP forbids."""
        return False

    def know_used(self, earliest: Table) -> None:
        """By partition, the first row that AFTER MATCH SKIP lets a match begin with."""

    def recall(self, lacking: Collection[str]) -> None:
        """Works out the columns that an earlier release did not save; the tables are filled."""

    # ---------------------------------------------------------------------------- room

    @abstractmethod
    def make_room(self, asked: Asked, room: Room) -> None:
        """Does what the kernel asks for: drops what is dead, or has tables grow."""

    # ---------------------------------------------------------------------------- time

    def sweep(self, now: float, room: Room, *, flush: bool) -> None:
        """Delivers to the output what has only waited for this time; with `flush` for any."""

    @abstractmethod
    def expire(self, now: float | None, rows: int) -> None:
        """Drops what no event from `now` on, after so many rows of the stream, can reach."""

    def deadline(self) -> float | None:
        """The time after which something that waits can be delivered; None: nothing waits."""
        return None

    @property
    def is_over(self) -> bool:
        """Whether something can be delivered by `sweep` whatever the time is."""
        return False

    # ---------------------------------------------------------------------------- what is alive

    @property
    @abstractmethod
    def partial_matches(self) -> int:
        """What is kept, in units that limits count."""

    @property
    @abstractmethod
    def population(self) -> int:
        """How many entries there are in all tables: each holds one key at most."""

    @property
    def is_blank(self) -> bool:
        """Whether it is known to be as good as a fresh one: nothing bears on what comes."""
        return False

    @abstractmethod
    def live_keys(self) -> npt.NDArray[np.bool_]:
        """Which partitions have anything alive; what is out of time has been dropped."""

    @abstractmethod
    def held_rows(self, now: float | None) -> npt.NDArray[np.int64]:
        """The rows of the stream that a later match may still contain, ascending."""

    def alive(self) -> Alive:
        """What may still become a match; a structure that cannot tell is not asked."""
        raise NotImplementedError(f"{type(self).__name__} does not know where a match would begin")

    @property
    def kleene_events(self) -> tuple[Table, int, int]:
        """Where the events of Kleene variables are: the table, its places of links and of rows."""
        raise NotImplementedError(f"{type(self).__name__} keeps no lists of events")

    # ---------------------------------------------------------------------------- saving

    @property
    def is_scattered(self) -> bool:
        """Whether the used parts of tables have so many gaps that packing pays before saving."""
        return False

    def tidy(self) -> None:
        """Drops what needs no looking for, before saving."""


@dataclass(frozen=True, slots=True)
class Structure(Generic[S]):
    """A way to hold partial matches."""

    write: Callable[[Frame], S]
    state: Callable[[Frame, S, Kernels], State[S]]
