"""The written kernel of a join tree, and the tables of its state."""

from dataclasses import dataclass

import numpy as np

from ensue.structures.instances import InstancesWritten, instance_shapes
from ensue.structures.tables import ByKey, TableShape
from ensue.structures.tree.operator_results import Memory
from ensue.structures.tree.records import GROWING, Records

MEMORY = ("L", "LF")  # where there are repeats


@dataclass(frozen=True, slots=True)
class TreeSource(InstancesWritten):
    """The text of a kernel and what the caller must know of it."""

    instances: Records
    memory: Memory
    grows: bool  # the kernel makes room itself

    @property
    def shapes(self) -> tuple[TableShape, ...]:
        found = instance_shapes(self.instances)
        if not self.memory.width:
            return found
        wholes, reals = self.memory.columns.widths()
        latest, real = MEMORY
        return (
            *found,
            TableShape(latest, ByKey(), wholes),
            TableShape(real, ByKey(), reals, np.float64),
        )

    @property
    def returned(self) -> tuple[str, ...]:
        return GROWING if self.grows else ()
