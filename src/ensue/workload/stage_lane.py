"""A lane of a stage of a tower over a stream.

Events that came in and complex events of earlier stages wait until no earlier one can come: those
that came in until the watermark has passed them, complex ones also until the layers below them
have decided all that is before it. Then the stage's time passes, behind the stream's by as much
as these layers may take.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ensue.columns.rows import no_rows
from ensue.columns.stream import Shape, ends, in_order
from ensue.engine.state import from_bytes, packed, to_bytes, unpacked
from ensue.plan.limits import Limits
from ensue.workload.clock import Clock
from ensue.workload.live_stage import ends_of, live_stage
from ensue.workload.stage_rows import (
    Packed,
    first_seen,
    packed_late,
    packed_outputs,
)
from ensue.workload.stage_rows import unpacked as table_of
from ensue.workload.stages import PreparedStage
from ensue.workload.tower_job import TowerJob

BATCH, ROW = "__batch", "__row"  # in which micro-batch an event came, and where in it
ARRIVAL = (BATCH, ROW)


@dataclass(frozen=True, slots=True)
class StageWatch:
    """What a lane of a stage watches for."""

    job: TowerJob
    number: int

    @property
    def limits(self) -> Limits:
        return self.job.planning.limits

    def lane(self) -> "StageLane":
        """A new lane."""
        return StageLane(self)

    def restored(self, data: bytes) -> "StageLane":
        """A lane that goes on where a saved one stopped."""
        return StageLane.restore(self, data)

    @property
    def stage(self) -> PreparedStage:
        return self.job.stages[self.number]

    @property
    def sortable(self) -> Shape:
        """The events that come in, with the order of arrival as the last tie-breaker."""
        shape = self.job.shape
        schema = replace(shape.schema, order=(*shape.schema.order, *ARRIVAL))
        return replace(shape, schema=schema, arrow=arriving(shape.arrow))


@dataclass(frozen=True, slots=True)
class StageJob:
    """What runs in the lanes of a stage."""

    job: TowerJob
    number: int

    @property
    def clock(self) -> Clock:
        return self.job.clock

    @property
    def text(self) -> str:
        return self.job.stage_text(self.number)

    @property
    def watch(self) -> StageWatch:
        return StageWatch(self.job, self.number)

    def matches(self, found: list[pa.Table]) -> int:
        """How many of what was found are delivered."""
        levels = len(self.job.stages[self.number].delivered)
        return sum(table.num_rows for table in found[:levels])

    def delivered(self, found: list[pa.Table], late: pa.Table) -> list[Packed]:
        """What was found, packed for those it goes to."""
        rows = list(packed_outputs(self.job, self.number, found)) if found else []
        return [*rows, *packed_late(self.job, late)] if self.job.deliver_late else rows


class StageLane:
    """The events of some partitions, matched as far as the stage's time has come."""

    def __init__(self, watch: StageWatch) -> None:
        self.watch = watch
        self.live = live_stage(watch.stage, ARRIVAL)
        self.waiting = no_rows(arriving(watch.job.arrow))
        self.made: dict[str, pa.Table] = {}  # complex events that wait
        self.watermark: float | None = None  # of the stream

    @property
    def limits(self) -> Limits:
        return self.watch.limits

    def accept(
        self, blobs: Sequence[bytes], watermark: float | None = None
    ) -> tuple[int, pa.Table]:
        """Lets events wait. Gives the number of those that no earlier stage has, and of these
        the late ones."""
        schema, takes = self.waiting.schema, self.watch.stage.takes
        raw, made = [no_rows(schema)], {n: [t] for n, t in self.made.items()}
        for blob in blobs:
            name, table = table_of(blob)
            if name is None:
                raw.append(table.cast(schema))
            else:
                made.setdefault(name, []).append(table.cast(takes[name]))
        self.made = {name: pa.concat_tables(tables) for name, tables in made.items()}
        events = pa.concat_tables(raw)
        counted = first_seen(self.watch.job, events, self.watch.number).num_rows
        late = events.slice(0, 0)
        known = [w for w in (watermark, self.watermark) if w is not None]
        if known:
            behind = ends(events, self.watch.job.shape) < max(known)
            if behind.any():
                late = events.filter(pa.array(behind))
                events = events.filter(pa.array(~behind))
        self.waiting = pa.concat_tables([self.waiting, events])
        late = first_seen(self.watch.job, late, self.watch.number)
        return counted, late.drop_columns(list(ARRIVAL))

    def release(self, watermark: float) -> list[pa.Table]:
        """What is certain once the stream's watermark has come so far."""
        if self.watermark is not None and watermark < self.watermark:
            watermark = self.watermark
        self.watermark = watermark
        now = watermark - self.watch.stage.hold
        shape = self.watch.job.shape
        ready = ends(self.waiting, shape) < now
        released = self.waiting.filter(pa.array(ready))
        self.waiting = self.waiting.filter(pa.array(~ready)).combine_chunks()
        made, left = {}, {}
        for name, table in self.made.items():
            done = ends_of(table, shape) < now
            if done.any():
                made[name] = table.filter(pa.array(done))
            if not done.all():
                left[name] = table.filter(pa.array(~done)).combine_chunks()
        self.made = left
        found = self._fed(released, made)
        passed = self.live.advance(now)
        return [pa.concat_tables(pair) for pair in zip(found, passed, strict=True)]

    def finish(self) -> list[pa.Table]:
        """What is left when the stream is over."""
        released, self.waiting = self.waiting, self.waiting.slice(0, 0)
        made, self.made = self.made, {}
        found = self._fed(released, made)
        left = self.live.finish()
        return [pa.concat_tables(pair) for pair in zip(found, left, strict=True)]

    def _fed(self, released: pa.Table, made: dict[str, pa.Table]) -> list[pa.Table]:
        return self.live.feed(in_order(released, self.watch.sortable), made)

    def due(self) -> float | None:
        """The time behind which the watermark lets something happen, without further events."""
        shape = self.watch.job.shape
        times = [] if (due := self.live.deadline()) is None else [due]
        if self.waiting.num_rows:
            times.append(ends(self.waiting, shape).min().item())
        times += [np.min(ends_of(t, shape)).item() for t in self.made.values() if t.num_rows]
        return min(times) + self.watch.stage.hold if times else None

    @property
    def partial_matches(self) -> int:
        return self.live.partial_matches

    @property
    def waiting_events(self) -> int:
        return sum(int(t.num_rows) for t in (self.waiting, *self.made.values()))

    # ---------------------------------------------------------------------------- state

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        waiting = int(self.waiting.nbytes) + sum(int(t.nbytes) for t in self.made.values())
        return waiting + int(self.live.state_bytes)

    def save(self) -> bytes:
        """Everything needed to go on elsewhere."""
        blobs = {"waiting": to_bytes(self.waiting)}
        blobs |= {f"made {name}": to_bytes(table) for name, table in self.made.items()}
        blobs |= {f"live {name}": blob for name, blob in self.live.save().items()}
        return packed({"watermark": self.watermark}, {}, blobs)

    @classmethod
    def restore(cls, watch: StageWatch, data: bytes) -> "StageLane":
        """A lane that goes on where the saved one stopped."""
        header, _, blobs = unpacked(data)
        lane = cls(watch)
        lane.watermark = header["watermark"]
        lane.waiting = from_bytes(blobs["waiting"]).cast(lane.waiting.schema)
        for name, schema in watch.stage.takes.items():
            if f"made {name}" in blobs:
                lane.made[name] = from_bytes(blobs[f"made {name}"]).cast(schema)
        lane.live.restore(
            {n.removeprefix("live "): b for n, b in blobs.items() if n.startswith("live ")}
        )
        return lane


def arriving(arrow: pa.Schema) -> pa.Schema:
    """The columns of events that know when they came."""
    return arrow.append(pa.field(BATCH, pa.int64())).append(pa.field(ROW, pa.int64()))
