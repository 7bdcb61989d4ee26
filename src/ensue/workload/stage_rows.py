"""What goes from stage to stage: events packed by the lanes of the stage they are for."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.towers.layers import column_of
from ensue.columns.lane_hash import lanes_of
from ensue.engine.state import from_bytes, to_bytes
from ensue.plan.towers.stages import Stage
from ensue.workload.several_job import LATE_EVENTS
from ensue.workload.tower_job import TowerJob

EVENTS = -2  # in the place of a level's number: events that came in
MADE = -3  # complex events of an earlier stage
MOST_ROWS = 65_536  # of a packed table
_NAME = b"made"  # where a packed table says whose events these are


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed table on its way to a lane of a stage; behind the last stage it is delivered."""

    stage: int
    lane: int  # from 0
    number: int  # of a level, or what it is instead
    blob: bytes


def packed_events(job: TowerJob, events: pa.Table, first: int) -> Iterator[Packed]:
    """Events that came in, for the stages from `first` on that read such events."""
    for number in range(first, len(job.stages)):
        wanted = of_stage(job, events, job.stages[number].stage)
        yield from _by_lane(job, number, wanted, job.stages[number].stage.key, EVENTS)


def packed_outputs(job: TowerJob, number: int, tables: list[pa.Table]) -> Iterator[Packed]:
    """What a stage gives: levels that are delivered, and complex events for later stages."""
    stage = job.stages[number]
    levels = list(job.delivered)
    for name, table in zip(stage.delivered, tables, strict=False):
        for piece in _pieces(table):
            yield Packed(len(job.stages), 0, levels.index(name), to_bytes(piece))
    for name, table in zip(stage.stage.gives, tables[len(stage.delivered) :], strict=True):
        marked = table.replace_schema_metadata({_NAME: name.encode()})
        for later in range(number + 1, len(job.stages)):
            if name in job.stages[later].takes:
                key = [column_of(field) for field in job.stages[later].stage.key]
                yield from _by_lane(job, later, marked, key, MADE)


def packed_late(job: TowerJob, late: pa.Table) -> Iterator[Packed]:
    """Late events, to be delivered."""
    for piece in _pieces(late):
        yield Packed(len(job.stages), 0, LATE_EVENTS, to_bytes(piece))


def of_stage(job: TowerJob, events: pa.Table, stage: Stage) -> pa.Table:
    """The events that came in that matter to a stage."""
    return events.filter(pa.array(matters(job, events, stage)))


def first_seen(job: TowerJob, events: pa.Table, number: int) -> pa.Table:
    """Events of a stage that no earlier one has."""
    seen = np.zeros(events.num_rows, np.bool_)
    for earlier in job.stages[:number]:
        seen |= matters(job, events, earlier.stage)
    return events.filter(pa.array(~seen))


def matters(job: TowerJob, events: pa.Table, stage: Stage) -> npt.NDArray[np.bool_]:
    """Which events that came in matter to a stage."""
    kept = np.full(events.num_rows, stage.reads_raw)
    column = job.shape.schema.type_column
    if stage.raw is not None and column is not None:
        types = events.column(column)
        if pa.types.is_dictionary(types.type):
            types = types.cast(pa.string())
        found = pc.is_in(types, value_set=pa.array(sorted(stage.raw), types.type))
        kept &= found.to_numpy()
    for field in stage.key:  # NULL equals nothing
        kept &= events.column(field).is_valid().to_numpy()
    return kept


def name_of(table: pa.Table) -> str | None:
    """Whose events an unpacked table has; None: they came in."""
    metadata = table.schema.metadata or {}
    return metadata[_NAME].decode() if _NAME in metadata else None


def unpacked(blob: bytes) -> tuple[str | None, pa.Table]:
    """A table that was packed for a stage."""
    table = from_bytes(blob)
    return name_of(table), table


def _by_lane(
    job: TowerJob, number: int, events: pa.Table, key: "list[str] | tuple[str, ...]", kind: int
) -> Iterator[Packed]:
    if not events.num_rows:
        return
    count = job.lanes_of(number)
    lanes = lanes_of(events, key, count, job.shape.unit)
    if count > 1:
        order = np.argsort(lanes, kind="stable")
        events, lanes = events.take(pa.array(order)), lanes[order]
    bounds = np.searchsorted(lanes, np.arange(count + 1))
    for lane in range(count):
        begin, end = int(bounds[lane]), int(bounds[lane + 1])
        for piece in _pieces(events.slice(begin, end - begin)):
            yield Packed(number, lane, kind, to_bytes(piece))


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    for begin in range(0, table.num_rows, MOST_ROWS):
        yield table.slice(begin, MOST_ROWS)
