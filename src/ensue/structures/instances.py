"""Events kept by partition in linked lists, the newest on top: the tables `A`, `AF` and `tops`."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from ensue.kernels import arena
from ensue.source.kernel_inputs import INSTANCE_TOP, NEEDS_INSTANCES
from ensue.source.table_columns import Columns
from ensue.structures import tables
from ensue.structures.contract import Asked, Room, State, Written
from ensue.structures.tables import ByKey, Table, TableShape, UpTo, named

YOUNG = 8  # first rooms up to which instances get more room before dead ones are looked for


class Lists(Protocol):
    """What is known of the instances when the kernel is written."""

    columns: Columns
    number: dict[str, int]  # of the lists that a partition has


def instance_shapes(instances: Lists) -> tuple[TableShape, ...]:
    """The tables of instances; `counts` has how many events a partition had."""
    return (
        *named(instances.columns, UpTo(INSTANCE_TOP)),
        TableShape("tops", ByKey(-1), max(1, len(instances.number)), np.int32),
        TableShape("counts", ByKey()),
    )


@dataclass(frozen=True, slots=True)
class InstancesWritten(Written):
    """A kernel that keeps instances."""

    instances: Lists

    @property
    def shapes(self) -> tuple[TableShape, ...]:
        return instance_shapes(self.instances)

    @property
    def columns(self) -> tuple[Columns, ...]:
        return (self.instances.columns,)


S = TypeVar("S", bound=InstancesWritten)


class InstancesState(State[S]):
    """Instances in their lists."""

    @property
    def partial_matches(self) -> int:
        return int(self.meta[INSTANCE_TOP])

    @property
    def population(self) -> int:
        return int(self.meta[INSTANCE_TOP])

    @property
    def entries(self) -> Table:
        """The whole numbers of the instances."""
        return self.used("A")

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

    @abstractmethod
    def keep_only(self, alive: npt.NDArray[np.bool_]) -> None:
        """Drops the other instances."""

    # ---------------------------------------------------------------------------- room and time

    def make_room(self, asked: Asked, room: Room) -> None:
        if asked.code != NEEDS_INSTANCES:
            raise AssertionError(f"unknown code {asked.code} from a kernel")
        room.drain()  # matches may lead to instances
        self.expire_instances(asked.now)
        size = len(self.tables["A"])
        # looking for dead ones among few costs more than room
        if asked.again or size < YOUNG * tables.FIRST_ROOM or self.meta[INSTANCE_TOP] * 2 > size:
            room.grow("A", "AF")

    def expire(self, now: float | None, rows: int) -> None:  # noqa: ARG002
        self.expire_instances(now)

    @abstractmethod
    def expire_instances(self, now: float | None) -> None:
        """Drops the instances that no event to come can reach."""

    def inside_window(self, now: float | None, time: str = "end") -> npt.NDArray[np.bool_]:
        """Which instances an event from `now` on may reach, by the time they are as old as."""
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
        columns, entries = self.source.instances.columns, self.entries
        if self.frame.real_time:
            return self.tables["AF"][: len(entries), columns.reals[name]]
        return entries[:, columns.wholes[name]]

    def keep_instances(self, alive: npt.NDArray[np.bool_], links: list[int]) -> None:
        """Drops the other instances; `links` are the columns, beside `previous`, that lead to
        older ones."""
        tables, top = self.tables, len(alive)
        self.meta[INSTANCE_TOP] = arena.keep_instances(
            tables["A"],
            tables["AF"],
            top,
            tables["tops"],
            np.array(links, np.int64),
            alive,
            np.empty(top, np.int64),
        )
