"""Ends a stopped stream: computes the matches that its checkpoint still holds."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql

from ensue.backends.spark.batch import STAGE_SCHEMA, pack_stage_rows
from ensue.backends.spark.frames import spark_schema
from ensue.backends.spark.match_frames import SeveralMatches, build_frames
from ensue.backends.spark.spark_errors import translate_errors
from ensue.backends.spark.state_store import HEAD, JOB, LOG, SNAPSHOT, get_stage_keys, read_message, select_results
from ensue.backends.spark.stream_folders import (
    ReadableCheckpoint,
    check_checkpoint,
    get_local_folder,
    has_commits,
    make_readable,
)
from ensue.errors import StateError
from ensue.ir.user_operator import UserOperator
from ensue.runtime.job_fingerprint import parse_stage
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.tasks.task import Task
from ensue.runtime.tasks.task_state import StateHeader, rebuild_task
from ensue.runtime.tasks.wire_format import Message, pack_outputs
from ensue.runtime.workload import Workload

ROWS = spark_schema(STAGE_SCHEMA)
_SENT = "sent"  # the part name of results of an earlier stage


def remaining(session: SparkSession, path: str, operators: Iterable[UserOperator] = ()) -> "DataFrame | SeveralMatches":
    """Return the matches that a stopped stream would deliver if it ended now."""
    with translate_errors():
        checkpoint = make_readable(session, path)
        stateful = [row.operatorId for row in _operators(session, checkpoint)]
        texts = {number: read_job_text(session, checkpoint, number) for number in stateful}
    workload = Workload.read(texts.values(), operators)
    operator_by_job = {_canonical(parse_stage(text)): number for number, text in texts.items()}
    parts = []
    for chain in workload.chains:
        stages = [_find_operator(operator_by_job, chain, number) for number in range(len(chain.stages))]
        for number, operator in enumerate(stages):
            _require_all_key_groups(session, checkpoint, operator, chain.count_key_groups(number))
        key = chain.grouped_by
        parts.append([read_state_parts(session, checkpoint, operator, key) for operator in stages])
    return finish_state(workload, parts)


def finish_state(workload: Workload, parts: Sequence[Sequence[DataFrame]]) -> "DataFrame | SeveralMatches":
    """Return the matches that complete if the stream ends, from the state parts of each chain and
    stage."""
    pieces = [_finish_chain(*both) for both in zip(workload.chains, parts, strict=True)]
    frames = build_frames(workload, reduce(DataFrame.union, pieces))
    return frames if isinstance(frames, SeveralMatches) else next(iter(frames.values()))


def _finish_chain(chain: PipelinePlan, parts: Sequence[DataFrame]) -> DataFrame:
    """Finish the stages of a chain, each with the results of the one before it."""
    staged: DataFrame | None = None
    nulls = [sql.lit(None).cast(f.dataType).alias(f.name) for f in ROWS if f.name not in ("through", "blob")]
    for number, stage_parts in enumerate(parts):
        rows = stage_parts.select(
            sql.col("key_group").alias("through"), "part", sql.col("number").alias("place"),
            sql.col("data").alias("blob"), *nulls,
        )  # fmt: skip
        if staged is not None:
            sent = staged.select("*", sql.lit(_SENT).alias("part"), sql.lit(0).alias("place"))
            rows = rows.unionByName(sent)
        key_groups = rows.repartition(chain.count_key_groups(number), "through")
        staged = key_groups.mapInArrow(FinishStage(chain, number), ROWS)
    assert staged is not None
    return select_results(staged)


def _find_operator(operator_by_job: Mapping[str, int], chain: PipelinePlan, number: int) -> int:
    operator = operator_by_job.get(_canonical(json.loads(chain.stage_text(number))))
    if operator is None:
        raise StateError(
            "the queries of the checkpoint are divided into stages differently than in this "
            "release\n  hint: finish the stream with the release that wrote the checkpoint"
        )
    return operator


def _canonical(described: object) -> str:
    return json.dumps(described, sort_keys=True)


def _require_all_key_groups(
    session: SparkSession, checkpoint: ReadableCheckpoint, operator: int, key_groups: int
) -> None:
    """Raise StateError unless every key group has stored its job."""
    with translate_errors():
        stored = _state(session, checkpoint, operator, JOB).count()
    if stored < key_groups:
        raise StateError(
            f"the checkpoint is damaged: only {stored} of {key_groups} key groups have a state\n"
            "  hint: restore the checkpoint from a copy, or name a new folder"
        )


def read_job_text(session: SparkSession, checkpoint: ReadableCheckpoint, operator: int) -> str:
    with translate_errors(f"the state in the checkpoint {checkpoint.named} cannot be read: ", StateError):
        first = _state(session, checkpoint, operator, JOB).select("value.job").first()
    if first is None:
        raise StateError(f"the checkpoint {checkpoint.named} has no state yet: the stream has not started")
    return str(first.job)


def read_state_parts(session: SparkSession, checkpoint: ReadableCheckpoint, operator: int, key: str) -> DataFrame:
    """Read the state parts of a stateful operator that is grouped by a column `key`."""
    key_group = sql.col(f"key.{key}").alias("key_group")
    heads = _state(session, checkpoint, operator, HEAD).select(
        key_group, sql.lit("head").alias("part"), sql.lit(0).alias("number"),
        sql.to_json(sql.struct("value.parts", "value.entries")).cast("binary").alias("data"),
    )  # fmt: skip
    others = [
        _state(session, checkpoint, operator, name).select(
            key_group, sql.lit(part).alias("part"), sql.col(f"user_map_key.{key}").alias("number"),
            sql.col("user_map_value.data").alias("data"),
        )
        for name, part, key in ((SNAPSHOT, "snapshot", "part"), (LOG, "log", "entry"))
    ]  # fmt: skip
    return heads.unionByName(others[0]).unionByName(others[1])


def _state(session: SparkSession, checkpoint: ReadableCheckpoint, operator: int, name: str) -> DataFrame:
    reader = session.read.format("statestore").option("operatorId", operator)
    return reader.option("stateVarName", name).load(checkpoint.place)


def has_state(session: SparkSession, checkpoint: str) -> bool:
    """Whether an Ensue stream has finished a micro-batch, on any file system."""
    folder = get_local_folder(session, checkpoint)
    if folder is not None:
        return has_commits(folder)
    try:
        return bool(_operators(session, make_readable(session, checkpoint)))
    except StateError:
        return False


def get_next_batch(session: SparkSession, checkpoint: str) -> int:
    """Return the number after the last finished micro-batch."""
    return int(_operators(session, make_readable(session, checkpoint))[0].maxBatchId) + 1


def _operators(session: SparkSession, checkpoint: ReadableCheckpoint) -> list[Row]:
    """Return the stateful operators of Ensue in a checkpoint."""
    _require_begun(session, checkpoint.named)
    with translate_errors(f"{checkpoint.named} is not a checkpoint that can be read: ", StateError):
        rows = session.read.format("state-metadata").load(checkpoint.place).collect()
    operators = []
    for row in rows:
        variables = json.loads(row.operatorProperties or "{}").get("stateVariables", [])
        if any(v.get("stateName") == HEAD for v in variables):
            operators.append(row)
    if not operators:
        raise StateError(f"the checkpoint {checkpoint.named} has no state of an Ensue query")
    return operators


def _require_begun(session: SparkSession, checkpoint: str) -> None:
    folder = get_local_folder(session, checkpoint)
    if folder is None:
        return
    if not folder.exists():
        raise StateError(f"there is no checkpoint {checkpoint}\n  hint: {_WHERE}")
    check_checkpoint(checkpoint)
    if not has_commits(folder):
        raise StateError(
            f"the checkpoint {checkpoint} has no state of an Ensue query: no micro-batch has "
            f"finished yet\n  hint: {_WHERE}"
        )


_WHERE = "remaining() takes the checkpoint= with which ensue.start has run a stream"


@dataclass(frozen=True)
class FinishStage:
    """Restores the key groups of a stage from their state parts, and ends their stream."""

    chain: PipelinePlan
    number: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        states: defaultdict[int, CheckpointState] = defaultdict(CheckpointState)
        sent: list[Message] = []
        passing: list[Message] = []
        for batch in batches:
            for row in batch.to_pylist():
                if row["part"] != _SENT:
                    states[row["through"]].parts_by_kind[row["part"]][row["place"]] = row["blob"]
                    continue
                message = read_message(row)
                (sent if message.stage == self.number else passing).append(message)
        yield from pack_stage_rows(self.chain, self.number, passing)
        for key_group, key in enumerate(get_stage_keys(self.chain, self.number)):
            blobs = [packed.blob for packed in sent if packed.key_group == key_group]
            store = states.get(key)
            if store is None and not blobs:
                continue
            arguments = (self.chain, self.number, key_group)
            if store is None:
                task = Task(*arguments)
            else:
                counts = json.loads(store.parts_by_kind["head"][0])
                head = StateHeader(0, b"", b"", counts["parts"], counts["entries"], 0, None)
                task = rebuild_task(store, head, *arguments)
            task.accept(blobs)
            outputs = pack_outputs(self.chain, self.number, task.release(math.inf))
            yield from pack_stage_rows(self.chain, self.number, outputs)


class CheckpointState:
    """The state of a key group, read from a checkpoint."""

    def __init__(self) -> None:
        self.parts_by_kind: dict[str, dict[int, bytes]] = {"head": {}, "snapshot": {}, "log": {}}

    def parts(self, count: int) -> Iterator[bytes]:
        return map(self.part, range(count))

    def part(self, number: int, kind: str = "snapshot") -> bytes:
        if number not in self.parts_by_kind[kind]:
            raise StateError("a part of the stream's state is missing from the checkpoint")
        return self.parts_by_kind[kind][number]

    def entries(self, count: int) -> Iterator[bytes]:
        return (self.part(number, "log") for number in range(count))
