"""The end of a stream that has one: what is still open in a checkpoint's state."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

from ensue.algebra.operator import Operator
from ensue.errors import StateError
from ensue.runners.spark.batch import STAGED, staged_rows
from ensue.runners.spark.checkpoint_files import has_begun, require_sound
from ensue.runners.spark.failure import failure, own_errors, spark_errors
from ensue.runners.spark.lanes import lane_keys
from ensue.runners.spark.matches import SeveralMatches, frames_of
from ensue.runners.spark.paths import Checkpoint, readable
from ensue.runners.spark.places import seen_from_here
from ensue.runners.spark.state import HEAD, JOB, LOG, SNAPSHOT
from ensue.runners.spark.types import spark_schema
from ensue.workload.chain import Chain
from ensue.workload.lanes.lane import Lane
from ensue.workload.lanes.packing import Packed, packed_outputs
from ensue.workload.lanes.state import Head, rebuilt
from ensue.workload.text import upgraded
from ensue.workload.workload import Workload

_SENT = "sent"  # in the place of a part's name: what an earlier stage sent


def remaining(
    session: SparkSession, named: str, operators: Iterable[Operator] = ()
) -> "DataFrame | SeveralMatches":
    """The matches that a stopped stream would still deliver if it ended where it stopped."""
    with own_errors():
        checkpoint = readable(session, named)
        stateful = [row.operatorId for row in _operators(session, checkpoint)]
        texts = {number: job_text(session, checkpoint, number) for number in stateful}
    workload = Workload.read(texts.values(), operators)
    found = {_canonical(upgraded(text)): number for number, text in texts.items()}
    parts = []
    for chain in workload.chains:
        stages = [_operator_of(found, chain, number) for number in range(len(chain.stages))]
        for number, operator in enumerate(stages):
            _require_all_lanes(session, checkpoint, operator, chain.lanes_of(number))
        key = chain.grouped_by
        parts.append([parts_of(session, checkpoint, operator, key) for operator in stages])
    return left_over(workload, parts)


def left_over(
    workload: Workload, parts: Sequence[Sequence[DataFrame]]
) -> "DataFrame | SeveralMatches":
    """What lanes would still deliver if the stream ended: by chain and stage the parts of their
    states, as `parts_of` gives them."""
    pieces = [_remaining(*both) for both in zip(workload.chains, parts, strict=True)]
    frames = frames_of(workload, reduce(DataFrame.union, pieces))
    return frames if isinstance(frames, SeveralMatches) else next(iter(frames.values()))


def _remaining(chain: Chain, parts: Sequence[DataFrame]) -> DataFrame:
    """What the stages of a chain still have to deliver, packed: each goes on with what the one
    before it gives when it ends."""
    staged: DataFrame | None = None
    for number, of_stage in enumerate(parts):
        rows = of_stage.select(
            sql.col("lane").alias("through"), "part", sql.col("number").alias("place"),
            sql.col("data").alias("blob"), *_nothing("stage", "lane", "number"),
        )  # fmt: skip
        if staged is not None:
            sent = staged.select("*", sql.lit(_SENT).alias("part"), sql.lit(0).alias("place"))
            rows = rows.unionByName(sent)
        lanes = rows.repartition(chain.lanes_of(number), "through")
        staged = lanes.mapInArrow(Finish(chain, number), spark_schema(STAGED))
    assert staged is not None
    return staged.select(sql.col("number").alias("query"), sql.col("blob").alias("matches"))


def _nothing(*names: str) -> list[Column]:
    return [sql.lit(None).cast("int").alias(name) for name in names]


def _operator_of(found: Mapping[str, int], chain: Chain, number: int) -> int:
    """The stateful operator that does a stage."""
    operator = found.get(_canonical(json.loads(chain.stage_text(number))))
    if operator is None:
        raise StateError(
            "the queries of the checkpoint are divided into stages differently than in this "
            "release\n  hint: finish the stream with the release that wrote the checkpoint"
        )
    return operator


def _canonical(described: object) -> str:
    return json.dumps(described, sort_keys=True)


def _require_all_lanes(
    session: SparkSession, checkpoint: Checkpoint, operator: int, lanes: int
) -> None:
    """Every lane writes down what it does with its first micro-batch."""
    with own_errors():
        there = _state(session, checkpoint, operator, JOB).count()
    if there < lanes:
        raise StateError(
            f"the checkpoint is damaged: {there} of {lanes} lanes have a state\n"
            "  hint: restore the checkpoint from a copy, or name a new folder"
        )


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
            f"the checkpoint {checkpoint.named} has no state yet: the stream has not started"
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


def has_state(session: SparkSession, checkpoint: str) -> bool:
    """Whether a stream of ours has done a micro-batch, wherever the checkpoint is."""
    try:
        return bool(_operators(session, readable(session, checkpoint)))
    except StateError:
        return False


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
    raise StateError(f"the checkpoint {checkpoint.named} has no state of an Ensue query")


def _require_begun(session: SparkSession, checkpoint: str) -> None:
    folder = seen_from_here(session, checkpoint)
    if folder is None:
        return
    if not folder.exists():
        raise StateError(f"there is no checkpoint {checkpoint}\n  hint: {_WHERE}")
    require_sound(checkpoint)
    if not has_begun(folder):
        raise StateError(
            f"the checkpoint {checkpoint} has no state of an Ensue query: no micro-batch has "
            f"finished yet\n  hint: {_WHERE}"
        )


_WHERE = "remaining() takes the checkpoint= with which ensue.start has run a stream"


@dataclass(frozen=True)
class Finish:
    """Opens the lanes of a stage from the parts of their state, and lets their stream end."""

    chain: Chain
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
        yield from staged_rows(self.chain, self.number, passing)
        stores = stores_of(parts)
        for lane, key in enumerate(lane_keys(self.chain.lanes_of(self.number))):
            blobs = [packed.blob for packed in sent if packed.lane == lane]
            store = stores.get(key)
            if store is None and not blobs:
                continue
            given = (self.chain, self.number, lane)
            live = Lane(*given) if store is None else rebuilt(store, store.count_head(), *given)
            live.accept(blobs)
            found = packed_outputs(self.chain, self.number, live.finish())
            yield from staged_rows(self.chain, self.number, found)


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

    def part(self, number: int) -> bytes:
        if number not in self.snapshot:
            raise StateError("a part of the stream's state is missing from the checkpoint")
        return self.snapshot[number]

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
