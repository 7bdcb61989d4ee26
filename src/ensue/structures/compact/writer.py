"""Writes the source of a compact kernel: partial matches are held together, state by state.

What may follow a partial match depends on its state alone, so an event costs the same however
many partial matches there are. Which tables that needs depends on the answer: see
`compact_counting`, `compact_sign` and `compact_listing`.
"""

from dataclasses import dataclass, field

from ensue.plan.physical import Answer, Compact
from ensue.source.kernel_inputs import Frame
from ensue.structures.compact.counting import Counting
from ensue.structures.compact.listing import Listing
from ensue.structures.compact.nodes import CompactText, Nodes
from ensue.structures.compact.sign import Sign


@dataclass(frozen=True, slots=True)
class CompactSource:
    """The text of a kernel and what the caller must know of it."""

    text: str
    instances: Nodes
    output: tuple[str, ...]
    state: tuple[str, ...]  # the tables that `step` takes
    growing: tuple[str, ...]  # those that it may replace by larger ones
    by_key: tuple[int, int]  # how many whole numbers and floats a partition has
    beginnings: int  # the roles whose events the result may need; 0: all of them
    rows_by_key: (
        tuple[int, int, int] | None
    )  # where tables by partition have rows, and off by what
    links: tuple[int, ...] = field(default=())  # the columns of nodes that lead to others

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
        writer.nodes,
        writer.output,
        writer.state,
        writer.growing,
        writer.by_key,
        0 if structure.answer is Answer.MATCHES else writer.beginnings,
        writer.rows_by_key,
        tuple(number for name, number in columns.items() if writer.nodes.is_link(name)),
    )
