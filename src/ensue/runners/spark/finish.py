"""The end of a stream that has one: what is still open in a checkpoint's state."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

from ensue.algebra.operator import Operator
from ensue.errors import StateError
from ensue.runners.spark.checkpoint_files import has_begun, require_sound
from ensue.runners.spark.failure import failure, own_errors, spark_errors
from ensue.runners.spark.matches import SeveralMatches, schemas_of
from ensue.runners.spark.paths import Checkpoint, readable
from ensue.runners.spark.places import seen_from_here
from ensue.runners.spark.state import HEAD, JOB, LOG, SNAPSHOT
from ensue.runners.spark.types import spark_schema
from ensue.workload.lane_state import Head, rebuilt
from ensue.workload.several_job import SeveralJob, read_job
from ensue.workload.stream_job import StreamJob


def remaining(
    session: SparkSession, named: str, operators: Iterable[Operator] = ()
) -> "DataFrame | SeveralMatches":
    """The matches that a stopped stream would still deliver if it ended where it stopped."""
    with own_errors():
        checkpoint = readable(session, named)
        stateful = [row.operatorId for row in _operators(session, checkpoint)]
        texts = [job_text(session, checkpoint, number) for number in stateful]
    if "definitions" in json.loads(texts[0]):
        from ensue.runners.spark.tower_finish import remaining as of_tower

        return of_tower(session, checkpoint, dict(zip(stateful, texts, strict=True)), operators)
    found = [
        _remaining(session, checkpoint, number, read_job(text, operators))
        for number, text in zip(stateful, texts, strict=True)
    ]
    jobs = [job for job, _ in found if isinstance(job, SeveralJob)]
    if not jobs:
        return found[0][1]
    return SeveralMatches(schemas_of(jobs), reduce(DataFrame.union, (frame for _, frame in found)))


def _remaining(
    session: SparkSession, checkpoint: Checkpoint, operator: int, job: StreamJob
) -> tuple[StreamJob, DataFrame]:
    """What one stateful operator of a stream still has to deliver."""
    with own_errors():
        there = _state(session, checkpoint, operator, JOB).count()
    if there < job.lanes:  # every lane writes it with its first micro-batch
        raise StateError(
            f"the checkpoint is damaged: of {job.lanes} lanes {there} have a state\n"
            "  hint: restore the checkpoint from a copy, or name a new folder"
        )
    lanes = parts_of(session, checkpoint, operator, "lane").repartition(job.lanes, "lane")
    return job, lanes.mapInArrow(Finish(job), spark_schema(job.result))


def job_text(session: SparkSession, checkpoint: Checkpoint, operator: int) -> str:
    """The job that a stateful operator does, as text."""
    try:
        first = _state(session, checkpoint, operator, JOB).select("value.job").first()
    except spark_errors() as error:
        raise StateError(
            f"the state in the checkpoint {checkpoint.named} cannot be read: {failure(error)}"
        ) from None
    if first is None:
        raise StateError(
            f"the checkpoint {checkpoint.named} has no state yet: the stream has not begun"
        )
    return str(first.job)


def parts_of(session: SparkSession, checkpoint: Checkpoint, operator: int, key: str) -> DataFrame:
    """The parts of the lanes of a stateful operator, which is grouped by a column `key`."""
    lane = sql.col(f"key.{key}").alias("lane")
    heads = _state(session, checkpoint, operator, HEAD).select(
        lane, sql.lit("head").alias("part"), sql.lit(0).alias("number"),
        sql.to_json(sql.struct("value.parts", "value.entries")).cast("binary").alias("data"),
    )  # fmt: skip
    rest = [
        _state(session, checkpoint, operator, name).select(
            lane, sql.lit(part).alias("part"), sql.col(f"user_map_key.{key}").alias("number"),
            sql.col("user_map_value.data").alias("data"),
        )
        for name, part, key in ((SNAPSHOT, "snapshot", "part"), (LOG, "log", "entry"))
    ]  # fmt: skip
    return heads.unionByName(rest[0]).unionByName(rest[1])


def _state(session: SparkSession, checkpoint: Checkpoint, operator: int, name: str) -> DataFrame:
    reader = session.read.format("statestore").option("operatorId", operator)
    return reader.option("stateVarName", name).load(checkpoint.place)


def next_batch(session: SparkSession, checkpoint: str) -> int:
    """The number behind those of the micro-batches that a stream has done."""
    return int(_operators(session, readable(session, checkpoint))[0].maxBatchId) + 1


def _operators(session: SparkSession, checkpoint: Checkpoint) -> list[Row]:
    """The stateful operators of a stream that are ours; several queries may have several."""
    _require_begun(session, checkpoint.named)
    try:
        rows = session.read.format("state-metadata").load(checkpoint.place).collect()
    except spark_errors() as error:
        raise StateError(
            f"{checkpoint.named} is not a checkpoint that can be read: {failure(error)}"
        ) from None
    found = []
    for row in rows:
        variables = json.loads(row.operatorProperties or "{}").get("stateVariables", [])
        if any(v.get("stateName") == HEAD for v in variables):
            found.append(row)
    if found:
        return found
    raise StateError(f"the checkpoint {checkpoint.named} has no state of a query of Ensue")


def _require_begun(session: SparkSession, checkpoint: str) -> None:
    folder = seen_from_here(session, checkpoint)
    if folder is None:
        return
    if not folder.exists():
        raise StateError(f"there is no checkpoint {checkpoint}\n  hint: {_WHERE}")
    require_sound(checkpoint)
    if not has_begun(folder):
        raise StateError(
            f"the checkpoint {checkpoint} has no state of a query of Ensue: no micro-batch of a "
            f"stream is done yet\n  hint: {_WHERE}"
        )


_WHERE = "remaining() takes the checkpoint= with which ensue.start has run a stream"


@dataclass(frozen=True)
class Finish:
    """Opens lanes from the parts of their state, and lets their stream end."""

    job: StreamJob

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in batch.to_pylist())
        for _, store in sorted(stores_of(rows).items()):
            lane = rebuilt(store, store.count_head(), self.job.watch)
            found = self.job.delivered(lane.finish(), self.job.arrow.empty_table())
            yield from found.to_batches()


@dataclass(frozen=True)
class ReadStore:
    """A lane's state that was read from a checkpoint."""

    counts: dict[str, int]
    snapshot: dict[int, bytes]
    log: dict[int, bytes]

    def count_head(self) -> Head:
        return Head(0, b"", b"", self.counts["parts"], self.counts["entries"], 0, None)

    def parts(self, count: int) -> Iterator[bytes]:
        return _in_order(self.snapshot, count)

    def entries(self, count: int) -> Iterator[bytes]:
        return _in_order(self.log, count)


def stores_of(rows: Iterable[dict[str, Any]]) -> dict[int, ReadStore]:
    """Lanes by the parts of their state."""
    lanes: dict[int, ReadStore] = {}
    for row in rows:
        store = lanes.setdefault(row["lane"], ReadStore({}, {}, {}))
        match row["part"]:
            case "head":
                store.counts.update(json.loads(row["data"]))
            case "snapshot":
                store.snapshot[row["number"]] = row["data"]
            case _:
                store.log[row["number"]] = row["data"]
    return lanes


def _in_order(found: dict[int, bytes], count: int) -> Iterator[bytes]:
    missing: Sequence[int] = [k for k in range(count) if k not in found]
    if missing:
        raise StateError("a part of the stream's state is missing from the checkpoint")
    return (found[k] for k in range(count))
