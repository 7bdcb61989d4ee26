"""Interface between the engine and its structures: a generated kernel, and its state.

A structure is a package with both, and a line in the registry. The engine feeds events, grows
tables and saves state through this interface, without knowing the structures.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ensue.codegen.absence import NestedMatches
from ensue.codegen.kernel_inputs import KernelContext
from ensue.codegen.state_layout import StateColumns
from ensue.physical.state_tables import StateTables, Table, TableShape
from ensue.planner import physical_plan
from ensue.planner.physical_plan import CompactPlan, InstanceStacks, JoinTree, Nfa, ReferencePlan

USED = "used"  # a table: by partition, the first row with which a match may still begin
BEGAN = "began"  # a column of stored entries: the row of the first event

Kernels = Callable[[str], Callable[..., Any]]  # a compiled function of a kernel's text, by name


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """Parameters of a function of a kernel."""

    scalars: tuple[str, ...]  # types of single values, which come first: time, truth
    tables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelSource(ABC):
    """The text of a kernel, and the interface of its `step`."""

    text: str
    output: tuple[str, ...]  # columns of a match: row_x, node_x and count_x, or tally_

    @property
    @abstractmethod
    def shapes(self) -> tuple[TableShape, ...]:
        """The tables of the state."""

    @property
    def taken(self) -> tuple[str, ...]:
        """The tables that `step` takes, in its order: by default all of them."""
        return tuple(shape.name for shape in self.shapes)

    @property
    @abstractmethod
    def columns(self) -> tuple[StateColumns, ...]:
        """The tables with named columns, which are saved by these names."""

    @property
    def returned(self) -> tuple[str, ...]:
        """The tables that `step` returns in addition to its code, as it may have grown them."""
        return ()

    @property
    def kernels(self) -> Mapping[str, KernelSignature]:
        """The functions besides `step` that the state calls."""
        return {}

    @property
    def complexes(self) -> Mapping[str, NestedMatches]:
        """The negated nested patterns, by variable: `step` takes arrays of their matches."""
        return {}


@dataclass(frozen=True, slots=True)
class RoomRequest:
    """A kernel's request for room, before an event for which it has too little."""

    code: int  # a code of the structure
    now: float  # end time of the event
    rows: int  # of the stream before it
    again: bool  # the same request for the same event, as the room was still too small


class RoomProvider(Protocol):
    """Grows the tables of a state within its limits."""

    def ask(self, more: float = 0.0) -> None:
        """Raises an error if `more` bytes exceed the limit."""

    def drain(self) -> None:
        """Moves the matches out of the output."""

    def grow(self, *names: str) -> None:
        """Doubles some tables, within the limit."""


@dataclass(frozen=True, slots=True, eq=False)
class LivePartialMatches:
    """Partial matches, and matches that wait for time to pass."""

    key: Table
    first: Table  # the row of its first event
    last: Table  # the row of its last event so far
    waits: Table  # it is complete if time or later events confirm it
    until: float | None = None  # none of their windows ends before

    def where(self, kept: Table) -> "LivePartialMatches":
        """Selects some of them."""
        key, first, last, waits = self.key, self.first, self.last, self.waits
        return LivePartialMatches(key[kept], first[kept], last[kept], waits[kept], self.until)


S = TypeVar("S", bound=KernelSource)


class StructureState(StateTables, ABC, Generic[S]):
    """The state of a structure between events."""

    waits = False  # matches may be stored until time confirms them

    def __init__(self, frame: KernelContext, source: S, kernel: Kernels) -> None:
        super().__init__(source.shapes, frame, len(source.output))
        self.frame = frame
        self.source = source
        self.kernel = kernel

    def adopt_kernel(self, frame: KernelContext, source: S, kernel: Kernels) -> None:
        """Adopts a kernel of the same plan that tracks nulls."""
        self.take_shape(source.shapes, self.source.columns, source.columns)
        self.frame, self.source, self.kernel = frame, source, kernel

    def read_times(self, columns: StateColumns, name: str) -> Table:
        """A column of times of all rows."""
        if self.frame.real_time:
            return self.tables[columns.real][:, columns.reals[name]]
        return self.tables[columns.whole][:, columns.wholes[name]]

    @property
    def tracks_used_rows(self) -> bool:
        """Whether the kernel drops partial matches that AFTER MATCH SKIP forbids."""
        return False

    def set_used_rows(self, earliest: Table) -> None:
        """Sets by partition the first row with which AFTER MATCH SKIP lets a match begin."""

    @abstractmethod
    def make_room(self, request: RoomRequest, room: RoomProvider) -> None:
        """Answers a request of the kernel: drops dead entries, or grows tables."""

    def sweep(self, now: float, room: RoomProvider, *, flush: bool) -> None:
        """Moves matches to the output that waited for this time; with `flush` all of them."""

    @abstractmethod
    def expire(self, now: float | None, rows: int) -> None:
        """Drops entries that no event from `now` on can reach; `rows` of the stream are over."""

    def next_timer(self) -> float | None:
        """The time after which a waiting match can be emitted; None: no match waits."""
        return None

    @property
    def is_over(self) -> bool:
        """Whether `sweep` can emit matches regardless of the time."""
        return False

    @property
    @abstractmethod
    def partial_matches(self) -> int:
        """The number of stored entries, in the units of limits."""

    @property
    @abstractmethod
    def population(self) -> int:
        """The number of entries in all tables: each has at most one key."""

    @property
    def is_blank(self) -> bool:
        """Whether it is equivalent to a new state for all later events."""
        return False

    @abstractmethod
    def live_keys(self) -> npt.NDArray[np.bool_]:
        """The partitions with live entries, after expiry."""

    @abstractmethod
    def get_held_rows(self, now: float | None) -> npt.NDArray[np.int64]:
        """The rows of the stream that a later match may still contain, ascending."""

    def alive(self) -> LivePartialMatches:
        """The live partial matches; not all structures support it."""
        raise NotImplementedError(f"{type(self).__name__} does not know where a match would begin")

    @property
    def kleene_events(self) -> tuple[Table, int, int]:
        """The table of the events of Kleene variables, with its link and row columns."""
        raise NotImplementedError(f"{type(self).__name__} keeps no lists of events")

    @property
    def is_scattered(self) -> bool:
        """Whether compaction before saving pays off, because of gaps in the tables."""
        return False

    def tidy(self) -> None:
        """Drops dead entries that are cheap to find, before saving."""


@dataclass(frozen=True, slots=True)
class Structure(Generic[S]):
    """A physical structure for partial matches."""

    write: Callable[[KernelContext], S]
    state: Callable[[KernelContext, S, Kernels], StructureState[S]]


# Only the structure of a plan is loaded.
_STRUCTURES: dict[type, str] = {
    Nfa: "ensue.physical.nfa.table_driven_writer:RUNS",
    InstanceStacks: "ensue.physical.instance_stacks:STACKS",
    JoinTree: "ensue.physical.join_tree.tree_writer:TREE",
    CompactPlan: "ensue.physical.compact.compact_state:COMPACT",
}


def load_structure(node: physical_plan.Structure) -> Structure[Any]:
    """Loads the structure of a plan's node, or raises an error that names the node."""
    if isinstance(node, ReferencePlan):
        raise TypeError(f"a plan for the reference path has no kernel: {node.reason}")
    path = _STRUCTURES.get(type(node))
    if path is None:
        raise TypeError(f"no structure is registered for {type(node).__name__}: see {__name__}")
    structure: Structure[Any] = resolve_name(path)
    return structure
