"""The end of a stream of a tower: stage by stage, what is still open goes to the next one."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from ensue.algebra.operator import Operator
from ensue.runners.spark.finish import parts_of, stores_of
from ensue.runners.spark.matches import SeveralMatches
from ensue.runners.spark.paths import Checkpoint
from ensue.runners.spark.stream import lane_keys
from ensue.runners.spark.tower import STAGED, staged_rows
from ensue.runners.spark.tower_stream import One
from ensue.runners.spark.types import spark_schema
from ensue.workload.lane_state import rebuilt
from ensue.workload.stage_lane import StageJob
from ensue.workload.stage_rows import Packed, packed_outputs
from ensue.workload.tower_job import TowerJob, read_tower

_SENT = "sent"  # in the place of a part's name: what an earlier stage sent


def remaining(
    session: SparkSession,
    checkpoint: Checkpoint,
    texts: Mapping[int, str],
    operators: Iterable[Operator] = (),
) -> "DataFrame | SeveralMatches":
    """What a tower's stream would still deliver; `texts` are the jobs of its operators."""
    found = {json.loads(text)["stage"]: operator for operator, text in texts.items()}
    job = read_tower(next(iter(texts.values())), operators)
    staged: DataFrame | None = None
    for number in range(len(job.stages)):
        rows = parts_of(session, checkpoint, found[number], "through").select(
            sql.col("lane").alias("through"), "part", sql.col("number").alias("place"),
            sql.col("data").alias("blob"), *_nothing("stage", "lane", "number"),
        )  # fmt: skip
        if staged is not None:
            sent = staged.select("*", sql.lit(_SENT).alias("part"), sql.lit(0).alias("place"))
            rows = rows.unionByName(sent)
        lanes = rows.repartition(job.lanes_of(number), "through")
        staged = lanes.mapInArrow(Finish(job, number), spark_schema(STAGED))
    assert staged is not None
    packed = staged.select(sql.col("number").alias("query"), sql.col("blob").alias("matches"))
    if len(job.delivered) == 1:
        return packed.mapInArrow(One(job), spark_schema(One(job).result))
    return SeveralMatches(job.named, packed)


def _nothing(*names: str) -> list[Column]:
    return [sql.lit(None).cast("int").alias(name) for name in names]


@dataclass(frozen=True)
class Finish:
    """Opens the lanes of a stage from the parts of their state, and lets their stream end."""

    job: TowerJob
    number: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: list[dict[str, Any]] = []
        sent: list[Packed] = []
        passing: list[Packed] = []
        for batch in batches:
            for row in batch.to_pylist():
                if row["part"] != _SENT:
                    part = {"lane": row["through"], "part": row["part"]}
                    parts.append({**part, "number": row["place"], "data": row["blob"]})
                    continue
                packed = Packed(row["stage"], row["lane"], row["number"], row["blob"])
                (sent if packed.stage == self.number else passing).append(packed)
        yield from staged_rows(self.job, self.number, passing)
        stores = stores_of(parts)
        watch = StageJob(self.job, self.number).watch
        keys = lane_keys(self.job.lanes_of(self.number))
        for lane, key in enumerate(keys):
            blobs = [packed.blob for packed in sent if packed.lane == lane]
            store = stores.get(key)
            if store is None and not blobs:
                continue
            live = watch.lane() if store is None else rebuilt(store, store.count_head(), watch)
            live.accept(blobs)
            found = packed_outputs(self.job, self.number, live.finish())
            yield from staged_rows(self.job, self.number, found)
