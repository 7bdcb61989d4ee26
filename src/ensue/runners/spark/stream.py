"""Matching on streaming DataFrames: lanes of events, each with its state in Spark's store."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import SparkFiles, TaskContext
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as sql
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ensue.algebra.check.column_names import refuse_column, refuse_other_cases
from ensue.algebra.query import Query
from ensue.columns.stream import Shape
from ensue.engine.state import from_bytes, to_bytes
from ensue.errors import EventError
from ensue.runners.spark.frames import frame_of, partition_columns, quoted, relevant, without_time
from ensue.runners.spark.state import LaneStore
from ensue.runners.spark.time import Ahead, Watched, Watermark, with_watermark
from ensue.runners.spark.types import spark_schema
from ensue.workload.arguments import Arguments
from ensue.workload.arrivals import AHEAD, LANE, PASSING, arrived, next_watermark
from ensue.workload.clock import calendar
from ensue.workload.foresight import warn_of_explosion
from ensue.workload.lane_shelf import Shelf
from ensue.workload.micro_batch import Counters, run_lane
from ensue.workload.stream_job import LATE, StreamJob, remember

MOST_LANES = 4_096
OUTPUT_ROWS = 65_536  # rows of a batch of matches
OBSERVED = "ensue"  # the name of the counters in a query's progress
NUMBERS = "numbers"  # among them, where the time column holds numbers
COUNTERS = ("dropped", "ahead", *(f.name for f in fields(Counters)))
PACKED = "lane int, task int, dropped long, ahead long, newest_ms long, blob binary"
FOUND = "blob binary, " + ", ".join(f"{name} long" for name in COUNTERS)
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def match(
    events: "DataFrame | Mapping[str, DataFrame]",
    query: Query,
    given: Arguments,
    *,
    watermark: Watermark | None = None,
    late_events: str = "count",
    lanes: int | None = None,
    max_ahead: Ahead = None,
) -> DataFrame:
    """The matches of a stream, as a streaming DataFrame."""
    deliver_late = delivers_late(late_events)
    frame, shape = frame_of(events, time=given.time, type=given.type, order=given.order)
    refuse_names(query, frame)
    watched = with_watermark(frame, shape, watermark, max_ahead)
    job = StreamJob(
        query, nullable(shape.arrow), given.time, given.type, given.order, given.location,
        shape.by_type, lane_count(frame, lanes), given.emit_timeouts, deliver_late, given.planning,
    )  # fmt: skip
    remember(query)
    warn_of_explosion(job.prepared)
    require_rocksdb(frame)
    columns = partition_columns(job.prepared)
    if not columns:
        job = replace(job, lanes=1)
    found = (
        with_lanes(watched, job, columns)
        .mapInArrow(Pack(job, given.bad_events), PACKED)
        .groupBy("lane")
        .transformWithState(LaneProcessor(job, watched.delay_ms), FOUND, "append", "EventTime")
        .observe(OBSERVED, *observed(job.shape))
    )
    return found.select("blob").mapInArrow(Unpack(job), spark_schema(job.result))


def delivers_late(late_events: str) -> bool:
    """Whether late events are given back: otherwise they are only counted."""
    if late_events not in ("count", "deliver"):
        raise EventError(f"late_events is 'count' or 'deliver', not {late_events!r}")
    return late_events == "deliver"


def refuse_names(query: Query, frame: DataFrame) -> None:
    """What sinks go by: matches are known by their id, late events taken out by their column."""
    refuse_column(query, "match_id", "sinks know a match by its own match_id")
    refuse_column(query, LATE, "the late events of a stream are in a column of that name")
    if frame.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
        refuse_other_cases(query, ("match_id", "start", "end", LATE))


def observed(shape: Shape) -> list[Column]:
    """The counters in a query's progress, which also says of a time column that it has numbers."""
    counted = [sql.sum(name).alias(name) for name in COUNTERS]
    return counted if calendar(shape) else [*counted, sql.count(sql.lit(1)).alias(NUMBERS)]


def with_lanes(watched: Watched, job: StreamJob, columns: Sequence[Column]) -> DataFrame:
    """The events that can matter, with the lane of each."""
    return numbered(watched, job, relevant(job.prepared), columns)


def numbered(
    watched: Watched, job: StreamJob, kept: Column | None, columns: Sequence[Column]
) -> DataFrame:
    """The events that are kept, with the lane of each.

    Others go with them as far as `Pack` if they are bad, too far ahead, or the only ones that
    know how far time has come.
    """
    frame = watched.frame
    if kept is not None:
        bad = without_time(job.shape, job.types)
        frame = frame.filter(kept | bad | watched.told_apart())
    lane = sql.pmod(sql.xxhash64(*columns), sql.lit(job.lanes)) if columns else sql.lit(0)
    lane = lane.cast("int")
    if kept is not None:
        lane = sql.when(kept, lane).otherwise(PASSING)
    return frame.select(*_named(job.arrow), marked(watched, lane))


def marked(watched: Watched, lane: Column) -> Column:
    """The column LANE: where an event goes, or that it is too far ahead."""
    if watched.ahead is not None:
        lane = sql.when(watched.ahead, AHEAD).otherwise(lane)
    return lane.cast("int").alias(LANE)


def _named(schema: pa.Schema) -> list[Column]:
    return [sql.col(quoted(name)) for name in schema.names]


def nullable(schema: pa.Schema) -> pa.Schema:
    """What Spark says of a column that is never NULL holds for a source, not for a checkpoint."""
    return pa.schema([field.with_nullable(True) for field in schema])


def lane_count(frame: DataFrame, lanes: int | None) -> int:
    """How many lanes a stream has: as many as are asked for, or as Spark shuffles to."""
    if lanes is None:
        lanes = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    if not 1 <= lanes <= MOST_LANES:
        raise EventError(f"lanes={lanes}: a stream has from 1 to {MOST_LANES} lanes")
    return lanes


def require_rocksdb(frame: DataFrame) -> None:
    """Spark keeps this kind of state in RocksDB only, and has another store by default."""
    conf = frame.sparkSession.conf
    name = "spark.sql.streaming.stateStore.providerClass"
    if "HDFSBackedStateStoreProvider" in (conf.get(name) or ""):
        conf.set(name, _ROCKSDB)
        changes = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
        if conf.get(changes, None) is None:
            conf.set(changes, "true")


def lane_keys(lanes: int) -> list[int]:
    """The numbers under which Spark keeps lanes.

    They are chosen so that Spark's hash spreads the lanes evenly over as many partitions, or over
    a divisor of it. The number 0 is always among them: that lane notices if the count changes.

    >>> keys = lane_keys(4)
    >>> sorted(spark_hash(key) % 4 for key in keys), 0 in keys
    ([0, 1, 2, 3], True)
    """
    keys: dict[int, int] = {}
    number = 0
    while len(keys) < lanes:
        keys.setdefault(spark_hash(number) % lanes, number)
        number += 1
    return list(keys.values())


def spark_hash(number: int) -> int:
    """Spark's hash of an int column (Murmur3 of 32 bits, seed 42)."""
    mixed = number * 0xCC9E2D51 & 0xFFFFFFFF
    mixed = (mixed << 15 | mixed >> 17) & 0xFFFFFFFF
    value = 42 ^ (mixed * 0x1B873593 & 0xFFFFFFFF)
    value = (value << 13 | value >> 19) & 0xFFFFFFFF
    value = (value * 5 + 0xE6546B64) & 0xFFFFFFFF
    value ^= 4  # bytes
    value = (value ^ value >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


# ------------------------------------------------------------------------------ in the workers


@dataclass(frozen=True)
class Pack:
    """Packs the events of a task by lane: one blob a lane instead of a row an event.

    Every lane gets a row, so that every lane notices that time has passed.
    """

    job: StreamJob
    bad_events: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        came = arrived(batches, self.job, self.bad_events)
        blobs = self._by_lane(came.events)
        yield pa.record_batch(
            {
                "lane": pa.array(lane_keys(self.job.lanes), pa.int32()),
                "task": pa.array([task] * self.job.lanes, pa.int32()),
                "dropped": pa.array([came.dropped] + [0] * (self.job.lanes - 1), pa.int64()),
                "ahead": pa.array([came.ahead] + [0] * (self.job.lanes - 1), pa.int64()),
                "newest_ms": pa.array([came.newest_ms] * self.job.lanes, pa.int64()),
                "blob": pa.array(blobs, pa.binary()),
            }
        )

    def _by_lane(self, events: pa.Table) -> list[bytes | None]:
        lanes = events.column(LANE).to_numpy()
        events = events.drop_columns([LANE])
        count = self.job.lanes
        if count == 1:
            return [to_bytes(events) if events.num_rows else None]
        narrow = lanes.astype(np.uint16)  # sorted by radix
        events = events.take(pa.array(np.argsort(narrow, kind="stable")))
        bounds = np.concatenate([[0], np.cumsum(np.bincount(narrow, minlength=count))])
        return [
            to_bytes(events.slice(begin, end - begin)) if end > begin else None
            for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        ]


class LaneProcessor(StatefulProcessor):
    """A lane in Spark: called with its events, and when the watermark has passed its timer."""

    def __init__(self, job: StreamJob, delay_ms: int | None) -> None:
        self.job = job
        self.delay_ms = delay_ms  # of the watermark, if it is known

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.store = LaneStore(handle)

    # Spark gives these their names and arguments.

    def handleInputRows(  # noqa: N802
        self,
        key: Any,  # noqa: ARG002
        rows: Any,
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        given = sorted(rows, key=lambda row: int(row.task))  # the DataFrame's own order
        blobs = [bytes(row.blob) for row in given if row.blob is not None]
        counts = {name: sum(row[name] for row in given) for name in ("dropped", "ahead")}
        next_ms = next_watermark((row.newest_ms for row in given), self.delay_ms)
        yield self._run(timerValues, blobs, next_ms, **counts)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,  # noqa: ARG002
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        yield self._run(timerValues, [])

    def _run(
        self,
        times: Any,
        blobs: list[bytes],
        next_ms: int | None = None,
        *,
        dropped: int = 0,
        ahead: int = 0,
    ) -> Row:
        watermark_ms = times.getCurrentWatermarkInMs()
        outcome = run_lane(self.store, self.job, watermark_ms, blobs, next_ms, shelf())
        if outcome.timer != outcome.timer_before:
            if outcome.timer_before is not None:
                self.handle.deleteTimer(outcome.timer_before)
            if outcome.timer is not None:
                self.handle.registerTimer(outcome.timer)
        table = outcome.delivered
        blob = to_bytes(table) if table.num_rows else None
        return Row(blob=blob, dropped=dropped, ahead=ahead, **asdict(outcome.counters))


def shelf() -> Shelf:
    """A folder of this machine that Spark removes when the application ends."""
    return Shelf(Path(SparkFiles.getRootDirectory()) / "ensue-lanes")


@dataclass(frozen=True)
class Unpack:
    """Matches as rows again."""

    job: StreamJob

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob in batch.column("blob"):
                if blob.is_valid:
                    table = from_bytes(blob.as_py()).cast(self.job.result)
                    yield from table.to_batches(max_chunksize=OUTPUT_ROWS)
