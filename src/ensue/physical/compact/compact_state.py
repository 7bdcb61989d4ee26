"""The compact structure: its kernel source, and its state of event nodes and partitions."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ensue.codegen.kernel_inputs import NODE_TOP, KernelContext
from ensue.kernels import arena
from ensue.physical.compact.compact_nodes import TIME_STATE, CompactWriter, EventNodes
from ensue.physical.compact.count import CountWriter, ExistsWriter
from ensue.physical.compact.enumeration import EnumerationWriter
from ensue.physical.structure import (
    FilledRows,
    InstanceKernel,
    InstanceState,
    KernelSignature,
    KeyedRows,
    Structure,
    Table,
    TableShape,
    get_instance_shapes,
)
from ensue.planner.physical_plan import CompactOutput, CompactPlan
from ensue.vector.arrow_numpy import sorted_unique

SETTLE = "settle_all"  # the function that expires state


@dataclass(frozen=True, slots=True)
class CompactKernel(InstanceKernel):
    """The kernel of a compact structure."""

    instances: EventNodes
    state: tuple[str, ...]  # the tables that `step` takes
    growing: tuple[str, ...]  # tables that it may grow
    by_key: tuple[int, int]  # number of integers and floats of a partition
    beginnings: int  # the roles whose events the result may need; 0: all of them
    # columns of tables by partition that hold rows, and their offset
    row_columns_by_key: tuple[int, int, int] | None
    links: tuple[int, ...]  # the columns of nodes that link to others

    @property
    def shapes(self) -> tuple[TableShape, ...]:
        wholes, reals = self.by_key
        shapes = [
            *get_instance_shapes(self.instances),
            TableShape("K", KeyedRows(), max(1, wholes)),
            TableShape("KF", KeyedRows(), max(1, reals), np.float64),
        ]
        if "N" in self.state:  # the events of Kleene variables, written for the output
            shapes.append(TableShape("N", FilledRows(NODE_TOP, scratch=True), 2))
        return tuple(shapes)

    @property
    def taken(self) -> tuple[str, ...]:
        return self.state

    @property
    def returned(self) -> tuple[str, ...]:
        return self.growing

    @property
    def kernels(self) -> Mapping[str, KernelSignature]:
        return {SETTLE: KernelSignature(("time",), TIME_STATE)}

    @property
    def has_nodes(self) -> bool:
        """Whether a partition is alive as long as it has nodes."""
        return bool(self.instances.number)


class CompactState(InstanceState[CompactKernel]):
    """Events as nodes, or aggregated by partition."""

    @property
    def partial_matches(self) -> int:
        """The number of stored events."""
        if self.source.has_nodes:
            return super().partial_matches
        return int(np.count_nonzero(self._rows_by_key()))

    @property
    def population(self) -> int:
        return super().population + int(self.meta[NODE_TOP])

    def _rows_by_key(self) -> Table:
        """The columns by partition with rows of the stream, 0: none."""
        low, high, _ = self.source.row_columns_by_key or (0, 0, 0)
        return self.tables["K"][:, low:high]

    def live_keys(self) -> npt.NDArray[np.bool_]:
        if self.source.has_nodes:
            return super().live_keys()
        return np.asarray(np.any(self._rows_by_key() != 0, axis=1))

    def expire_instances(self, now: float | None) -> None:
        frame, tables = self.frame, self.tables
        if frame.window is None or (now is None and not frame.by_events):
            return
        time = float(now or 0) if frame.real_time else int(now or 0)
        self.kernel(SETTLE)(time, *(tables[name] for name in TIME_STATE))
        if not len(self.entries):
            return
        self.keep_only(self.inside_window(time))

    def keep_only(self, alive: npt.NDArray[np.bool_]) -> None:
        self.keep_instances(alive, self.source.links, to_older=False)

    def get_held_rows(self, now: float | None) -> npt.NDArray[np.int64]:
        """The rows of the stream that a later result may need, ascending."""
        self.expire_instances(now)
        if self.source.row_columns_by_key:
            rows = self._rows_by_key().ravel()
            return sorted_unique(rows[rows != 0] + self.source.row_columns_by_key[2])
        nodes = self.entries
        if self.source.beginnings:
            mask = nodes[:, self.source.instances.columns.wholes["mask"]]
            nodes = nodes[(mask & self.source.beginnings) != 0]
        return sorted_unique(nodes[:, arena.ROW])

    @property
    def kleene_events(self) -> tuple[Table, int, int]:
        return self.tables["N"], 0, 1


_WRITERS: dict[CompactOutput, type[CompactWriter]] = {
    CompactOutput.COUNT: CountWriter,
    CompactOutput.EXISTS: ExistsWriter,
    CompactOutput.MATCHES: EnumerationWriter,
}


def write_compact_kernel(frame: KernelContext) -> CompactKernel:
    structure = frame.plan.structure
    assert isinstance(structure, CompactPlan)
    writer = _WRITERS[structure.answer](frame, structure)
    text = writer.write()
    columns = writer.nodes.columns.wholes
    return CompactKernel(
        text,
        writer.output,
        writer.nodes,
        writer.state,
        writer.growing,
        writer.by_key,
        0 if structure.answer is CompactOutput.MATCHES else writer.beginnings,
        writer.row_columns_by_key,
        tuple(number for name, number in columns.items() if writer.nodes.is_link(name)),
    )


COMPACT = Structure(write_compact_kernel, CompactState)
