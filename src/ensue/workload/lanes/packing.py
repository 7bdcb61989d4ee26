"""What goes from stage to stage and out of the last: tables packed for the lanes they are for."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.towers.layers import column_of
from ensue.archives.written_files import Added
from ensue.columns.lane_hash import lanes_of
from ensue.engine.state import from_bytes, to_bytes
from ensue.workload.chain import Chain
from ensue.workload.stage import COPY, Spread

LATE_EVENTS = -1  # in the place of an output's number
EVENTS = -2  # events that came in
MADE = -3  # complex events of an earlier stage
ARCHIVED = -6  # a file that was written, to be made part of the stream's archive
SHED = -7  # keys that were given up, each with its interval
MOST_ROWS = 65_536  # of a packed table
_NAME = b"made"  # where a packed table says whose events these are


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed table on its way to a lane of a stage; behind the last stage it is delivered."""

    stage: int
    lane: int  # from 0
    number: int  # of an output, or what it is instead
    blob: bytes


def packed_events(
    chain: Chain,
    events: pa.Table,
    first: int = 0,
    lanes: npt.NDArray[np.integer] | None = None,
) -> Iterator[Packed]:
    """Events that came in, for the stages from `first` on that read such events.

    `lanes`: to which lane of the only stage each event goes, if somebody has found out already.
    """
    for number in range(first, len(chain.stages)):
        reads = chain.stages[number].reads
        if lanes is not None:
            yield from _by_lane(chain, number, events, lanes, EVENTS)
            continue
        wanted = events.filter(pa.array(reads.of(events, chain.source.shape)))
        if wanted.num_rows:
            yield from _by_lane(
                chain, number, wanted, _hashed(chain, number, wanted, reads.key), EVENTS
            )


def packed_spread(chain: Chain, events: pa.Table, spread: Spread) -> Iterator[Packed]:
    """Events for the lanes of a stage that says itself where they go."""
    rows, before = spread.rows, np.arange(len(spread.rows))
    copies = before - np.searchsorted(rows, rows)  # the rows of an event follow each other
    going = events.take(pa.array(rows))
    for field in spread.added.schema:
        going = going.append_column(field, spread.added.column(field.name))
    going = going.append_column(COPY, pa.array(copies, pa.int64()))
    yield from _by_lane(chain, 0, going, spread.lanes, EVENTS)


def packed_outputs(chain: Chain, number: int, found: Sequence[pa.Table]) -> Iterator[Packed]:
    """What a stage gives: tables that are delivered, and complex events for later stages."""
    stage = chain.stages[number]
    outputs = {output.number: output for output in stage.outputs}
    for output, table in stage.delivered(found):
        for piece in _pieces(outputs[output].given(table)):
            yield Packed(len(chain.stages), 0, output, to_bytes(piece))
    for name, table in stage.sent(found):
        if not table.num_rows:
            continue
        marked = table.replace_schema_metadata({_NAME: name.encode()})
        for later in range(number + 1, len(chain.stages)):
            if name in chain.stages[later].takes:
                key = [column_of(field) for field in chain.stages[later].reads.key]
                yield from _by_lane(chain, later, marked, _hashed(chain, later, marked, key), MADE)


def packed_late(chain: Chain, late: pa.Table) -> Iterator[Packed]:
    """Late events, to be delivered."""
    for piece in _pieces(late):
        yield Packed(len(chain.stages), 0, LATE_EVENTS, to_bytes(piece))


def packed_files(chain: Chain, files: Iterable[Added]) -> Iterator[Packed]:
    """Files of the stream's archive, for whoever commits them."""
    for file in files:
        yield Packed(len(chain.stages), 0, ARCHIVED, file.text().encode())


def packed_shed(chain: Chain, shed: pa.Table | None) -> Iterator[Packed]:
    """Keys that a lane has given up, to be listed."""
    for piece in () if shed is None else _pieces(shed):
        yield Packed(len(chain.stages), 0, SHED, to_bytes(piece))


def table_of(blob: bytes) -> tuple[str | None, pa.Table]:
    """A table that was packed for a stage, and whose events it has; None: they came in."""
    table = from_bytes(blob)
    metadata = table.schema.metadata or {}
    if _NAME not in metadata:
        return None, table
    return metadata[_NAME].decode(), table.replace_schema_metadata(None)


def _hashed(
    chain: Chain, number: int, events: pa.Table, key: Sequence[str]
) -> npt.NDArray[np.int64]:
    return lanes_of(events, key, chain.lanes_of(number), chain.source.shape.unit)


def _by_lane(
    chain: Chain, number: int, events: pa.Table, lanes: npt.NDArray[np.integer], kind: int
) -> Iterator[Packed]:
    if not events.num_rows:
        return
    count = chain.lanes_of(number)
    if count > 1:
        narrow = lanes.astype(np.uint16)  # sorted by radix
        order = np.argsort(narrow, kind="stable")
        events, lanes = events.take(pa.array(order)), narrow[order]
    bounds = np.searchsorted(lanes, np.arange(count + 1)) if count > 1 else [0, events.num_rows]
    for lane in range(count):
        begin, end = int(bounds[lane]), int(bounds[lane + 1])
        for piece in _pieces(events.slice(begin, end - begin)):
            yield Packed(number, lane, kind, to_bytes(piece))


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    for begin in range(0, table.num_rows, MOST_ROWS):
        yield table.slice(begin, MOST_ROWS)
