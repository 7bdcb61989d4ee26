"""Towers on Spark DataFrames: layers of one key in one task, a shuffle where the key changes."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ensue.algebra.tower import Tower
from ensue.columns.arrow_kinds import fields_of
from ensue.columns.stream import with_time
from ensue.plan.towers.stages import Stage
from ensue.runners.spark.frames import WholeStreamWarning, frame_of, hashed, quoted, without_time
from ensue.runners.spark.matches import SeveralMatches
from ensue.runners.spark.stream import lane_count, lane_keys
from ensue.runners.spark.types import spark_schema
from ensue.workload.arguments import Arguments
from ensue.workload.foresight import warn_of_explosion
from ensue.workload.stage_batch import ARRIVAL, matched, taken
from ensue.workload.stage_rows import Packed, of_stage, packed_events
from ensue.workload.tower_job import TowerJob, tower_job

STAGED = pa.schema(
    {
        "through": pa.int32(),  # the lane of the next stage that it goes to or passes
        "stage": pa.int32(),  # that it is for
        "lane": pa.int32(),
        "number": pa.int32(),
        "blob": pa.binary(),
    }
)
_COLUMNS = spark_schema(STAGED)


def match(
    events: "DataFrame | Mapping[str, DataFrame]",
    tower: Tower,
    given: Arguments,
    *,
    levels: Sequence[str] | str | None = None,
    trace: bool = False,
) -> SeveralMatches:
    """The complex events of each level that is delivered, as DataFrames of one pass."""
    frame, shape = frame_of(events, time=given.time, type=given.type, order=given.order)
    job = tower_job(tower, shape, given, lane_count(frame, None), levels=levels, trace=trace)
    warn_of_whole_streams(job)
    for layer in job.prepared.layers:
        warn_of_explosion(layer.prepared, stacklevel=5)
    bad = without_time(shape, job.types) if given.bad_events == "raise" else sql.lit(False)
    first = _spread(relevant(frame, job, bad), job)
    staged = first.mapInArrow(First(job, given.bad_events), _COLUMNS)
    for number in range(1, len(job.stages)):
        lanes = staged.repartition(job.lanes_of(number), "through")
        staged = lanes.mapInArrow(Next(job, number), _COLUMNS)
    packed = staged.select(sql.col("number").alias("query"), sql.col("blob").alias("matches"))
    return SeveralMatches(job.named, packed)


def relevant(frame: DataFrame, job: TowerJob, others: Column) -> DataFrame:
    """The events that can matter to a stage, and others."""
    kept: Column | None = None
    for stage in job.stages:
        found = _of_stage(stage.stage, job)
        if found is None:
            return frame
        kept = found if kept is None else kept | found
    assert kept is not None
    return frame.filter(kept | others)


def _of_stage(stage: Stage, job: TowerJob) -> Column | None:
    """When an event matters to a stage; None: always."""
    if not stage.reads_raw:
        return sql.lit(False)
    found, column = None, job.shape.schema.type_column
    if stage.raw is not None and column is not None:
        found = sql.col(quoted(column)).isin(sorted(stage.raw))
    for name in stage.key:
        known = sql.col(quoted(name)).isNotNull()  # NULL equals nothing
        found = known if found is None else found & known
    return found


def key_hash(stage: Stage, job: TowerJob) -> Column:
    """What splits the events of a stage."""
    kinds = fields_of(job.shape.arrow)
    return sql.xxhash64(*(hashed(name, kinds[name]) for name in stage.key))


def _spread(frame: DataFrame, job: TowerJob) -> DataFrame:
    """The events by the key of the first stage; those of later stages anywhere."""
    frame = frame.withColumn(ARRIVAL, sql.monotonically_increasing_id())
    stage = job.stages[0].stage
    key = key_hash(stage, job) if stage.key else sql.lit(0).cast("long")
    mine = _of_stage(stage, job)
    if len(job.stages) == 1 or mine is None:
        return frame.repartition(key) if stage.key else frame.repartition(1)
    return frame.repartition(sql.when(mine, key).otherwise(sql.col(ARRIVAL)))


def warn_of_whole_streams(job: TowerJob) -> None:
    """Says which layers one task has to run alone."""
    for stage in job.stages:
        if not stage.stage.key:
            names = ", ".join(layer.name or "the query on top" for layer in stage.stage.layers)
            warnings.warn(
                f"nothing splits the stream of {names}: one task, on one core, will match its "
                "events",
                WholeStreamWarning,
                stacklevel=5,
            )


# ------------------------------------------------------------------------------ in the workers


@dataclass(frozen=True)
class First:
    """The first stage: events come in."""

    job: TowerJob
    bad_events: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kept = [batch for batch in batches if batch.num_rows]
        if not kept:
            return
        job = self.job
        schema = job.arrow.append(pa.field(ARRIVAL, pa.int64()))
        table = pa.Table.from_batches(kept).cast(schema)
        events, dropped = with_time(table, job.shape, self.bad_events, job.types)
        if dropped:
            warnings.warn(f"{dropped} events without usable time are left out", stacklevel=2)
        own = of_stage(job, events, job.stages[0].stage)
        yield from staged_rows(job, 0, packed_events(job, events, 1))
        if own.num_rows:
            yield from staged_rows(job, 0, matched(job, 0, own, {}))


@dataclass(frozen=True)
class Next:
    """A later stage: what earlier ones packed comes in, for it or for those behind it."""

    job: TowerJob
    number: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blobs: list[bytes] = []
        for batch in batches:
            mine = []
            for row in batch.to_pylist():
                if row["stage"] == self.number:
                    blobs.append(row["blob"])
                else:
                    row.pop("through")
                    mine.append(Packed(**row))
            yield from staged_rows(self.job, self.number, mine)
        if blobs:
            yield from staged_rows(self.job, self.number, taken(self.job, self.number, blobs))


def staged_rows(job: TowerJob, number: int, packed: Iterable[Packed]) -> Iterator[pa.RecordBatch]:
    """Packed tables as rows, with the lane of the next stage that each goes through."""
    following = number + 1
    keys = lane_keys(job.lanes_of(following)) if following < len(job.stages) else [0]
    context = TaskContext.get()
    through = keys[(0 if context is None else context.partitionId()) % len(keys)]
    for one in packed:
        to = keys[one.lane] if one.stage == following else through
        values = [[to], [one.stage], [one.lane], [one.number], [one.blob]]
        yield pa.record_batch(values, schema=STAGED)
