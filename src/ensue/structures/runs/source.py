"""The written kernel of runs, and the tables of its state."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ensue.plan.physical import Automaton
from ensue.source.absence import Inside, Instances
from ensue.source.kernel_inputs import LIVE, NODE_TOP, RUN_TOP
from ensue.source.table_columns import Columns
from ensue.structures.contract import Signature
from ensue.structures.instances import InstancesWritten, instance_shapes
from ensue.structures.runs.registers import Registers
from ensue.structures.tables import ByKey, TableShape, UpTo, named

SWEEP = "sweep"  # the function that lets time pass, and the tables that it takes
SWEPT = ("head", "live", "nxt", "I", "F", "N", "NF", "counts", "O", "meta")


@dataclass(frozen=True, slots=True)
class RunsSource(InstancesWritten):
    """The text of a kernel and what the caller must know of it."""

    instances: Instances
    registers: Registers
    automaton: Automaton
    used: tuple[str, ...] = ()  # the table of AFTER MATCH SKIP, where the kernel knows of it

    @property
    def shapes(self) -> tuple[TableShape, ...]:
        runs = UpTo(RUN_TOP, alive=LIVE)
        return (
            TableShape("head", ByKey(-1), 2 * len(self.automaton.states), np.int32),
            TableShape("live", ByKey(), dtype=np.int32),
            TableShape("nxt", runs, dtype=np.int32),
            *named(self.registers.runs, runs),
            *named(self.registers.nodes, UpTo(NODE_TOP)),
            *instance_shapes(self.instances),
            *(TableShape(name, ByKey()) for name in self.used),
        )

    @property
    def columns(self) -> tuple[Columns, ...]:
        return self.instances.columns, self.registers.runs, self.registers.nodes

    @property
    def kernels(self) -> Mapping[str, Signature]:
        return {SWEEP: Signature(("time", "truth"), SWEPT)}

    @property
    def complexes(self) -> Mapping[str, Inside]:
        return self.instances.complexes
