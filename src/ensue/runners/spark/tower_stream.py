"""Towers on streaming DataFrames: a stateful operator for each stage, one behind the other.

Every stage is called in the same micro-batch, after the one before it, and with the same
watermark. So when a stage is called, all that earlier stages know up to that watermark is there,
and its own time is behind the stream's only by what the layers below it may take to decide.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sql
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ensue.algebra.tower import Tower
from ensue.engine.state import from_bytes
from ensue.runners.spark.frames import frame_of, quoted, without_time
from ensue.runners.spark.matches import SeveralMatches
from ensue.runners.spark.state import LaneStore
from ensue.runners.spark.stream import (
    COUNTERS,
    OBSERVED,
    OUTPUT_ROWS,
    delivers_late,
    lane_count,
    lane_keys,
    marked,
    nullable,
    observed,
    refuse_names,
    require_rocksdb,
    shelf,
)
from ensue.runners.spark.time import Ahead, Watermark, with_watermark
from ensue.runners.spark.tower import relevant, warn_of_whole_streams
from ensue.runners.spark.types import spark_schema
from ensue.workload.arguments import Arguments
from ensue.workload.arrivals import LANE, arrived, next_watermark
from ensue.workload.foresight import warn_of_explosion
from ensue.workload.micro_batch import Counters, run_lane
from ensue.workload.several_job import LATE_EVENTS
from ensue.workload.stage_lane import BATCH, ROW, StageJob
from ensue.workload.stage_rows import Packed, packed_events
from ensue.workload.stream_job import LATE, remember
from ensue.workload.tower_job import TowerJob, tower_job

CLOCK, COUNTS = -4, -5  # in the place of a level's number: what a row is instead
_TASK_BITS = 40  # of the number of an event: those below count the events of a task
_FLOW = pa.schema(
    {
        "through": pa.int32(),  # the lane of the next stage that it goes to or passes
        "stage": pa.int32(),  # that it is for
        "lane": pa.int32(),
        "number": pa.int32(),
        "sender": pa.int32(),
        "place": pa.int32(),  # among what the sender sent
        "newest_ms": pa.int64(),
        "blob": pa.binary(),
        **dict.fromkeys(COUNTERS, pa.int64()),
    }
)
FLOW = spark_schema(_FLOW)
_BATCH_ID = "streaming.sql.batchId"  # where Spark tells its tasks the number of the micro-batch


def match(
    events: "DataFrame | Mapping[str, DataFrame]",
    tower: Tower,
    given: Arguments,
    *,
    levels: Sequence[str] | str | None = None,
    trace: bool = False,
    watermark: Watermark | None = None,
    late_events: str = "count",
    lanes: int | None = None,
    max_ahead: Ahead = None,
) -> "DataFrame | SeveralMatches":
    """The complex events of a stream: of each level that is delivered, or of the only one."""
    deliver_late = delivers_late(late_events)
    for query in (*(d.query for d in tower.definitions), tower.query):
        remember(query)
    frame, shape = frame_of(events, time=given.time, type=given.type, order=given.order)
    watched = with_watermark(frame, shape, watermark, max_ahead)
    shape = replace(shape, arrow=nullable(shape.arrow))
    job = tower_job(
        tower, shape, given, lane_count(frame, lanes),
        levels=levels, trace=trace, streaming=True, deliver_late=deliver_late,
    )  # fmt: skip
    for prepared in job.prepared.layers:
        if prepared.layer.delivered:
            refuse_names(prepared.layer.meaning, frame)
    require_rocksdb(frame)
    warn_of_whole_streams(job)
    for layer in job.prepared.layers:
        warn_of_explosion(layer.prepared, stacklevel=5)
    names = [sql.col(quoted(name)) for name in job.arrow.names]
    others = without_time(job.shape, job.types) | watched.told_apart()
    flow = relevant(watched.frame, job, others).select(*names, marked(watched, sql.lit(0)))
    flow = flow.mapInArrow(Pack(job, given.bad_events), FLOW)
    for number in range(len(job.stages)):
        processor = StageProcessor(job, number, watched.delay_ms)
        flow = flow.groupBy("through").transformWithState(processor, FLOW, "append", "EventTime")
    flow = flow.observe(OBSERVED, *observed(job.shape))
    packed = delivered(flow)
    if len(job.delivered) == 1:
        return packed.mapInArrow(One(job), spark_schema(One(job).result))
    return SeveralMatches(job.named, packed, job.arrow if job.deliver_late else None)


def delivered(flow: DataFrame) -> DataFrame:
    """What is behind the last stage, as `SeveralMatches` has it."""
    done = flow.filter(sql.col("number") >= LATE_EVENTS)
    return done.select(sql.col("number").alias("query"), sql.col("blob").alias("matches"))


# ------------------------------------------------------------------------------ in the workers


@dataclass(frozen=True)
class Pack:
    """Packs the events of a task by stages and lanes, and sends every lane of the first stage
    the time that has come, so that all of them move on."""

    job: TowerJob
    bad_events: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job = self.job
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        number = None if context is None else context.getLocalProperty(_BATCH_ID)
        came = arrived(batches, job, self.bad_events)
        events = came.events.drop_columns([LANE])
        rows = np.arange(events.num_rows) + (task << _TASK_BITS)
        micro_batch = np.full(events.num_rows, int(number or 0))
        events = events.append_column(BATCH, pa.array(micro_batch))
        events = events.append_column(ROW, pa.array(rows))
        sent = list(packed_events(job, events, 0))
        rows_of = [
            _row(key, Packed(0, lane, CLOCK, b""), task, newest_ms=came.newest_ms)
            for lane, key in enumerate(lane_keys(job.lanes_of(0)))
        ]
        rows_of[0] |= {"dropped": came.dropped, "ahead": came.ahead}
        rows_of += _through(job, -1, sent, task)
        yield pa.RecordBatch.from_pylist(rows_of, schema=_FLOW)


class StageProcessor(StatefulProcessor):
    """A lane of a stage: called with what was sent to it, and when the watermark has passed its
    timer. What is for later stages passes through."""

    def __init__(self, job: TowerJob, number: int, delay_ms: int | None) -> None:
        self.job = job
        self.number = number
        self.delay_ms = delay_ms  # of the watermark, if it is known

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.store = LaneStore(handle)

    # Spark gives these their names and arguments.

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        given = sorted(rows, key=lambda row: (row.sender, row.place))
        mine = [row for row in given if row.stage == self.number]
        clocks = [row for row in mine if row.number == CLOCK]
        newest = [row.newest_ms for row in clocks if row.newest_ms is not None]
        passing = [row for row in given if row.stage != self.number]
        keys = lane_keys(self.job.lanes_of(self.number + 1)) if self._more else [0]
        for row in passing:
            through = keys[row.lane % len(keys)]
            yield Row(**(row.asDict() | {"through": through}))
        if not mine:
            return
        if clocks and key[0] == 0 and self._more:
            for lane, through in enumerate(keys):
                clock = Packed(self.number + 1, lane, CLOCK, b"")
                yield Row(**_row(through, clock, 0, newest_ms=max(newest, default=None)))
        next_ms = next_watermark(newest, self.delay_ms)
        blobs = [bytes(row.blob) for row in mine if row.number != CLOCK]
        counts = {name: sum(row[name] for row in mine) for name in ("dropped", "ahead")}
        yield from self._run(key[0], timerValues, blobs, next_ms, **counts)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        yield from self._run(key[0], timerValues, [])

    @property
    def _more(self) -> bool:
        return self.number + 1 < len(self.job.stages)

    def _run(
        self,
        lane: int,
        times: Any,
        blobs: list[bytes],
        next_ms: int | None = None,
        *,
        dropped: int = 0,
        ahead: int = 0,
    ) -> Iterator[Row]:
        watermark_ms = times.getCurrentWatermarkInMs()
        job = StageJob(self.job, self.number)
        outcome = run_lane(self.store, job, watermark_ms, blobs, next_ms, shelf())
        if outcome.timer != outcome.timer_before:
            if outcome.timer_before is not None:
                self.handle.deleteTimer(outcome.timer_before)
            if outcome.timer is not None:
                self.handle.registerTimer(outcome.timer)
        for row in _through(self.job, self.number, outcome.delivered, lane):
            yield Row(**row)
        counts = Packed(len(self.job.stages), lane, COUNTS, b"")
        row = _row(0, counts, lane, counters=outcome.counters)
        yield Row(**(row | {"dropped": dropped, "ahead": ahead}))


def _through(
    job: TowerJob, number: int, sent: Iterable[Packed], sender: int
) -> Iterator[dict[str, Any]]:
    """Packed tables as rows, with the lane of the next stage that each goes to or passes."""
    following = number + 1
    keys = lane_keys(job.lanes_of(following)) if following < len(job.stages) else [0]
    for place, packed in enumerate(sent):
        lane = packed.lane if packed.stage == following else packed.lane % len(keys)
        yield _row(keys[lane], packed, sender, place=place)


def _row(
    through: int,
    packed: Packed,
    sender: int,
    *,
    place: int = 0,
    newest_ms: int | None = None,
    counters: Counters | None = None,
) -> dict[str, Any]:
    counted = dict.fromkeys(COUNTERS, 0) if counters is None else asdict(counters)
    return {
        "through": through, "sender": sender, "place": place, "newest_ms": newest_ms,
        **asdict(packed), "dropped": 0, "ahead": 0, **counted,
    }  # fmt: skip


@dataclass(frozen=True)
class One:
    """The matches of the only level that is delivered as rows again, late events beside them."""

    job: TowerJob

    @property
    def result(self) -> pa.Schema:
        (result,) = self.job.delivered.values()
        return result.append(pa.field(LATE, self._event)) if self.job.deliver_late else result

    @property
    def _event(self) -> pa.DataType:
        return pa.struct(list(self.job.arrow))

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        (result,) = self.job.delivered.values()
        for batch in batches:
            for row in batch.to_pylist():
                table = from_bytes(row["matches"])
                if row["query"] == LATE_EVENTS:
                    events = table.cast(self.job.arrow).to_struct_array()
                    absent = [pa.nulls(table.num_rows, field.type) for field in result]
                    table = pa.table([*absent, events], schema=self.result)
                else:
                    table = table.cast(result)
                    if self.job.deliver_late:
                        table = table.append_column(LATE, pa.nulls(table.num_rows, self._event))
                yield from table.cast(self.result).to_batches(max_chunksize=OUTPUT_ROWS)
