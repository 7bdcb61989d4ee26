"""Writes the source of a compact kernel: partial matches are held together, state by state.

What may follow a partial match depends on its state alone, so an event costs the same however
many partial matches there are. Which tables that needs depends on the answer: see
`compact_counting`, `compact_sign` and `compact_listing`.
"""

from ensue.plan.physical import Answer, Compact
from ensue.source.kernel_inputs import Frame
from ensue.structures.compact.counting import Counting
from ensue.structures.compact.listing import Listing
from ensue.structures.compact.nodes import CompactText
from ensue.structures.compact.sign import Sign
from ensue.structures.compact.source import CompactSource


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
        writer.state,
        writer.growing,
        writer.by_key,
        0 if structure.answer is Answer.MATCHES else writer.beginnings,
        writer.rows_by_key,
        tuple(number for name, number in columns.items() if writer.nodes.is_link(name)),
    )
