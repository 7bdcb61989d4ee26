"""The written kernel of a compact structure, and the tables of its state."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ensue.source.kernel_inputs import NODE_TOP
from ensue.structures.compact.nodes import TIME_STATE, Nodes
from ensue.structures.contract import Signature
from ensue.structures.instances import InstancesWritten, instance_shapes
from ensue.structures.tables import ByKey, TableShape, UpTo

SETTLE = "settle_all"  # the function that lets time pass


@dataclass(frozen=True, slots=True)
class CompactSource(InstancesWritten):
    """The text of a kernel and what the caller must know of it."""

    instances: Nodes
    state: tuple[str, ...]  # the tables that `step` takes
    growing: tuple[str, ...]  # those that it may replace by larger ones
    by_key: tuple[int, int]  # how many whole numbers and floats a partition has
    beginnings: int  # the roles whose events the result may need; 0: all of them
    # where tables by partition have rows, and off by what
    rows_by_key: tuple[int, int, int] | None
    links: tuple[int, ...]  # the columns of nodes that lead to others

    @property
    def shapes(self) -> tuple[TableShape, ...]:
        wholes, reals = self.by_key
        found = [
            *instance_shapes(self.instances),
            TableShape("K", ByKey(), max(1, wholes)),
            TableShape("KF", ByKey(), max(1, reals), np.float64),
        ]
        if "N" in self.state:  # the events of Kleene variables, written for the output
            found.append(TableShape("N", UpTo(NODE_TOP, scratch=True), 2))
        return tuple(found)

    @property
    def taken(self) -> tuple[str, ...]:
        return self.state

    @property
    def returned(self) -> tuple[str, ...]:
        return self.growing

    @property
    def kernels(self) -> Mapping[str, Signature]:
        return {SETTLE: Signature(("time",), tuple(TIME_STATE))}

    @property
    def lives_in_nodes(self) -> bool:
        """Whether a partition is alive as long as it has nodes."""
        return bool(self.instances.number)
