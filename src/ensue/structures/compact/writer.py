"""Writes the source of a compact kernel: partial matches are held together, state by state.

What may follow a partial match depends on its state alone, so an event costs the same however
many partial matches there are. Which tables that needs depends on the answer: see
`compact_counting`, `compact_sign` and `compact_listing`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ensue.plan.physical import Answer, Compact
from ensue.source.kernel_inputs import NODE_TOP, Frame
from ensue.structures.compact.counting import Counting
from ensue.structures.compact.listing import Listing
from ensue.structures.compact.nodes import TIME_STATE, CompactText, Nodes
from ensue.structures.compact.sign import Sign
from ensue.structures.contract import Signature
from ensue.structures.instances import InstancesWritten, instance_shapes
from ensue.structures.tables import ByKey, TableShape, UpTo

SETTLE = "settle_all"  # the function that lets time pass


@dataclass(frozen=True, slots=True)
class CompactSource(InstancesWritten):
    """The text of a kernel and what the caller must know of it."""

    instances: Nodes
    growing: tuple[str, ...]  # the tables that the kernel may replace by larger ones
    state: tuple[str, ...]  # those that `step` takes
    by_key: tuple[int, int]  # how many whole numbers and floats a partition has
    beginnings: int  # the roles whose events the result may need; 0: all of them
    rows_by_key: (
        tuple[int, int, int] | None
    )  # where tables by partition have rows, and off by what
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


def compact_source(frame: Frame) -> CompactSource:
    """The kernel of a compact structure."""
    structure = frame.plan.structure
    assert isinstance(structure, Compact)
    writer: CompactText
    match structure.answer:
        case Answer.COUNT:
            writer = Counting(frame, structure)
        case Answer.EXISTS:
            writer = Sign(frame, structure)
        case Answer.MATCHES:
            writer = Listing(frame, structure)
    text = writer.written()
    columns = writer.nodes.columns.wholes
    return CompactSource(
        text,
        writer.output,
        writer.nodes,
        writer.growing,
        writer.state,
        writer.by_key,
        0 if structure.answer is Answer.MATCHES else writer.beginnings,
        writer.rows_by_key,
        tuple(number for name, number in columns.items() if writer.nodes.is_link(name)),
    )
