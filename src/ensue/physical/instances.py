"""Events stored by partition in linked lists, newest first: the tables `A`, `AF` and `tops`."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ensue.codegen.kernel_inputs import INSTANCE_TOP, NEEDS_INSTANCES
from ensue.codegen.state_layout import StateColumns
from ensue.kernels import arena
from ensue.physical import state_tables
from ensue.physical.state_tables import FilledRows, KeyedRows, Table, TableShape, make_named_shapes
from ensue.physical.structure import KernelSource, RoomProvider, RoomRequest, StructureState

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


S = TypeVar("S", bound=InstanceKernel)


class InstanceState(StructureState[S]):
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
        if request.again or size < YOUNG * state_tables.INITIAL_ROWS or self.meta[INSTANCE_TOP] * 2 > size:
            room.grow("A", "AF")

    def expire(self, now: float | None, rows: int) -> None:  # noqa: ARG002
        self.expire_instances(now)

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
