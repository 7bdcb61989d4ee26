"""Interface between the engine and its structures: a generated kernel, and its state.

A structure is a package with both, and a line in the registry. The engine feeds events, grows
tables and saves state through this interface, without knowing the structures.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ensue.codegen.absence import NestedMatches
from ensue.codegen.kernel_inputs import INSTANCE_TOP, META_SIZE, NEEDS_INSTANCES, OUT_TOP, KernelContext
from ensue.codegen.state_layout import StateColumns
from ensue.kernels import arena
from ensue.planner import physical_plan
from ensue.planner.physical_plan import CompactPlan, InstanceStacks, JoinTree, Nfa, ReferencePlan
from ensue.vector.arrow_numpy import sorted_unique

Table = npt.NDArray[Any]

INITIAL_ROWS = 1_024
SPARSE = 1 << 16  # rows above which a nearly empty table is shrunk


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """A row for each partition."""

    fresh: int = 0  # initial value of the row of a new partition


@dataclass(frozen=True, slots=True)
class FilledRows:
    """Rows in insertion order, up to the number at a position of `meta`."""

    top: int
    alive: int | None = None  # the position that counts live rows, if there are gaps
    scratch: bool = False  # only for the matches in the output: cleared with them

    @property
    def used(self) -> int:
        """The position in `meta` with the number of live rows."""
        return self.top if self.alive is None else self.alive


@dataclass(frozen=True, slots=True)
class TableShape:
    """A table of a structure: its name in the kernel's source, and the layout of its rows."""

    name: str
    rows: KeyedRows | FilledRows
    width: int | None = None  # numbers in a row; None: the table has one dimension
    dtype: type[np.generic] = np.int64

    def allocate(self, count: int) -> Table:
        """New rows with their initial values."""
        width = () if self.width is None else (self.width,)
        fresh = self.rows.fresh if isinstance(self.rows, KeyedRows) else 0
        return np.full((count, *width), fresh, self.dtype)


def make_named_shapes(columns: StateColumns, rows: KeyedRows | FilledRows) -> tuple[TableShape, TableShape]:
    """The two tables of named columns: of integers, and of floats."""
    wholes, reals = columns.widths()
    return (TableShape(columns.whole, rows, wholes), TableShape(columns.real, rows, reals, np.float64))


class StateTables:
    """Arrays by name: those of a structure, the output `O`, `meta`, and counters."""

    def __init__(self, shapes: Iterable[TableShape], frame: KernelContext, output: int) -> None:
        self._adopt(shapes)
        self.tables: dict[str, Table] = {"meta": np.zeros(META_SIZE, np.int64)}
        for name, shape in self.shapes.items():
            self.tables[name] = shape.allocate(1 if isinstance(shape.rows, KeyedRows) else INITIAL_ROWS)
        for name in frame.tally.tables:
            self.tables[name] = np.zeros((max(1, len(frame.tally.labels)), 2), np.int64)
        self.tables["O"] = np.zeros((4 * INITIAL_ROWS, max(1, output)), np.int64)

    def _adopt(self, shapes: Iterable[TableShape]) -> None:
        self.shapes = {shape.name: shape for shape in shapes}
        every = self.shapes.values()
        self.by_key = [shape for shape in every if isinstance(shape.rows, KeyedRows)]
        # tables whose rows belong to live entries
        self.listed = {shape.name: shape.rows for shape in every if isinstance(shape.rows, FilledRows)}
        # one table for each set of rows, except scratch
        self._sized = {rows: name for name, rows in self.listed.items() if not rows.scratch}

    @property
    def meta(self) -> Table:
        return self.tables["meta"]

    def get_used_rows(self, name: str) -> Table:
        """The filled rows of a listed table."""
        return self.tables[name][: int(self.meta[self.listed[name].top])]

    def grow(self, *names: str) -> None:
        """Doubles some tables."""
        for name in names:
            old = self.tables[name]
            self.resize(name, len(old), len(old) * 2)

    def resize(self, name: str, used: int, size: int) -> None:
        """Resizes a table that is filled up to some row."""
        old = self.tables[name]
        new = np.zeros((size, *old.shape[1:]), old.dtype)
        new[:used] = old[:used]
        self.tables[name] = new

    def room_for_keys(self, count: int) -> None:
        """Makes room for at least `count` partitions."""
        for shape in self.by_key:
            old = self.tables[shape.name]
            if count <= len(old):  # all of them have the same size
                return
            new = shape.allocate(max(count, len(old) * 2))
            new[: len(old)] = old
            self.tables[shape.name] = new

    @property
    def key_room(self) -> int:
        """The number of partitions that fit."""
        return len(self.tables[self.by_key[0].name])

    def fitting_room(self, used: int) -> int:
        """The size to which an oversized table is shrunk."""
        return max(INITIAL_ROWS, 2 * used)

    @property
    def is_sparse(self) -> bool:
        """Whether a table is much larger than its content."""
        for rows, name in self._sized.items():
            size = len(self.tables[name])
            if size > SPARSE and size > 8 * int(self.meta[rows.used]):
                return True
        return False

    def pack(self) -> None:
        """Compacts live rows and shrinks oversized tables."""
        for name, rows in self.listed.items():
            used = int(self.meta[rows.top])
            if len(self.tables[name]) > (size := self.fitting_room(used)):
                self.resize(name, used, size)

    def reset_output(self) -> None:
        """Resets the output after its matches were taken."""
        self.meta[OUT_TOP] = 0
        for rows in self.listed.values():
            if rows.scratch:
                self.meta[rows.top] = 0

    def take_shape(
        self, shapes: Iterable[TableShape], before: Sequence[StateColumns], after: Sequence[StateColumns]
    ) -> None:
        """Changes the columns and keeps the content; values without a null flag are not null."""
        self._adopt(shapes)
        for old, new in zip(before, after, strict=True):
            self._move(new.whole, old.wholes, new.wholes)
            self._move(new.real, old.reals, new.reals)

    def _move(self, name: str, before: dict[str, int], after: dict[str, int]) -> None:
        table = self.tables[name]
        moved = self.shapes[name].allocate(len(table))
        for column, number in after.items():
            if column in before:
                moved[:, number] = table[:, before[column]]
            elif column.endswith("_ok"):
                moved[:, number] = 1
        self.tables[name] = moved

    def keep_keys(self, kept: Table, moved: Table) -> None:  # noqa: ARG002  for tables that hold keys
        """Keeps the partitions `kept`, in this order; `moved` maps them to their new codes."""
        for shape in self.by_key:
            new = shape.allocate(max(1, len(kept)))
            new[: len(kept)] = self.tables[shape.name][kept]
            self.tables[shape.name] = new

    def drop_keys(self, gone: npt.NDArray[np.bool_]) -> None:
        """Clears the rows of some partitions."""
        for shape in self.by_key:
            self.tables[shape.name][gone] = shape.allocate(1)[0]

    def used_parts(self, keys: int) -> dict[str, Table]:
        """The tables without free room and output."""
        sizes = {shape.name: max(1, keys) for shape in self.by_key}
        sizes |= {name: int(self.meta[rows.top]) for name, rows in self.listed.items()}
        return {name: table[: sizes.get(name, len(table))] for name, table in self.tables.items() if name != "O"}

    @property
    def nbytes(self) -> int:
        """The memory of all tables, with spare capacity."""
        return sum(table.nbytes for table in self.tables.values())

    def saved_size(self, keys: int) -> int:
        """The approximate size of `used_parts` in bytes, with `keys` keys and without gaps."""
        size = self.meta.nbytes
        for shape in self.by_key:
            size += max(1, keys) * self.tables[shape.name][:1].nbytes
        for name, rows in self.listed.items():
            size += int(self.meta[rows.used]) * self.tables[name][:1].nbytes
        return size


# The contract of a structure.

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


# Events stored by partition in linked lists, newest first: the tables `A`, `AF` and `tops`.

YOUNG = 8  # multiple of the initial size up to which tables grow before dead entries are dropped


class InstanceLists(Protocol):
    """The instances of a kernel, as known when it is written."""

    columns: StateColumns
    number: dict[str, int]  # of the lists that a partition has


def get_instance_shapes(instances: InstanceLists) -> tuple[TableShape, ...]:
    """The tables of instances; `counts` has the number of events of a partition."""
    return (
        *make_named_shapes(instances.columns, FilledRows(INSTANCE_TOP)),
        TableShape("tops", KeyedRows(-1), max(1, len(instances.number)), np.int32),
        TableShape("counts", KeyedRows()),
    )


@dataclass(frozen=True, slots=True)
class InstanceKernel(KernelSource):
    """A kernel with instances."""

    instances: InstanceLists

    @property
    def shapes(self) -> tuple[TableShape, ...]:
        return get_instance_shapes(self.instances)

    @property
    def columns(self) -> tuple[StateColumns, ...]:
        return (self.instances.columns,)


InstanceSource = TypeVar("InstanceSource", bound=InstanceKernel)


class InstanceState(StructureState[InstanceSource]):
    """Instances in linked lists."""

    @property
    def partial_matches(self) -> int:
        return int(self.meta[INSTANCE_TOP])

    @property
    def population(self) -> int:
        return int(self.meta[INSTANCE_TOP])

    @property
    def entries(self) -> Table:
        """The integer columns of the instances."""
        return self.get_used_rows("A")

    def live_keys(self) -> npt.NDArray[np.bool_]:
        return np.asarray(np.any(self.tables["tops"] >= 0, axis=1))

    def keep_keys(self, kept: Table, moved: Table) -> None:
        super().keep_keys(kept, moved)
        entries = self.entries
        entries[:, arena.KEY] = moved[entries[:, arena.KEY]]

    def drop_keys(self, gone: npt.NDArray[np.bool_]) -> None:
        entries = self.entries
        if len(entries):
            self.keep_only(~gone[entries[:, arena.KEY]])
        super().drop_keys(gone)

    def keep_only(self, alive: npt.NDArray[np.bool_]) -> None:
        """Drops the other instances."""
        self.keep_instances(alive, [arena.PREVIOUS, arena.RIP])

    def make_room(self, request: RoomRequest, room: RoomProvider) -> None:
        if request.code != NEEDS_INSTANCES:
            raise AssertionError(f"unknown code {request.code} from a kernel")
        room.drain()  # matches may refer to instances
        self.expire_instances(request.now)
        size = len(self.tables["A"])
        # in a small table, growing is cheaper than dropping dead entries
        if request.again or size < YOUNG * INITIAL_ROWS or self.meta[INSTANCE_TOP] * 2 > size:
            room.grow("A", "AF")

    def expire(self, now: float | None, rows: int) -> None:  # noqa: ARG002
        self.expire_instances(now)

    def get_held_rows(self, now: float | None) -> npt.NDArray[np.int64]:
        self.expire_instances(now)
        rows = sorted_unique(self.entries[:, self.row_columns])
        return rows[rows >= 0]

    @property
    def row_columns(self) -> list[int]:
        """The columns of an instance with rows of events; -1: none."""
        return [arena.ROW]

    @abstractmethod
    def expire_instances(self, now: float | None) -> None:
        """Drops the instances that no later event can reach."""

    def inside_window(self, now: float | None, time: str = "end") -> npt.NDArray[np.bool_]:
        """The instances that an event from `now` on may reach, by their start or end."""
        frame, entries = self.frame, self.entries
        if frame.window is None:
            return np.ones(len(entries), np.bool_)
        if frame.by_events:
            index = entries[:, self.source.instances.columns.wholes["index"]]
            age = self.tables["counts"][entries[:, arena.KEY]] - index
        elif now is None:
            return np.ones(len(entries), np.bool_)
        else:
            age = now - self.times(time)
        return np.asarray(age <= frame.window)

    def times(self, name: str) -> Table:
        """A time of each instance."""
        return self.read_times(self.source.instances.columns, name)[: len(self.entries)]

    def keep_instances(self, alive: npt.NDArray[np.bool_], links: Sequence[int], *, to_older: bool = True) -> None:
        """Drops the other instances; `links` are the columns that refer to instances."""
        tables, columns = self.tables, np.array(links, np.int64)
        self.meta[INSTANCE_TOP] = arena.keep_instances(
            tables["A"], tables["AF"], tables["tops"], columns, alive, to_older
        )


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
