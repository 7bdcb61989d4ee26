"""Key groups on Spark: their state variables, number and keys, and the rows between them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, astuple
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.streaming.stateful_processor import MapState, StatefulProcessorHandle

from ensue.errors import EventError, StateError
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.tasks.task_state import StateHeader
from ensue.runtime.tasks.wire_format import Control, ControlMessage, Message, PackedTable

JOB, HEAD, SNAPSHOT, LOG = "ensue_job", "ensue_head", "ensue_snapshot", "ensue_log"

_HEAD = "format int, job binary, stamp binary, parts int, entries int, logged long, timer long"


class KeyGroupStore:
    """The state variables of the key group that Spark is processing."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._job = handle.getValueState(JOB, "job string")
        self._head = handle.getValueState(HEAD, _HEAD)
        self._snapshot = handle.getMapState(SNAPSHOT, "part int", "data binary")
        self._log = handle.getMapState(LOG, "entry int", "data binary")

    def job(self) -> str:
        found = self._job.get()
        return "{}" if found is None else str(found[0])

    def put_job(self, job: str) -> None:
        self._job.update((job,))

    def head(self) -> StateHeader | None:
        found = self._head.get()
        if found is None:
            return None
        format, job, stamp, *counts = found
        return StateHeader(format, bytes(job), bytes(stamp), *counts)

    def put_head(self, head: StateHeader) -> None:
        self._head.update(astuple(head))

    def parts(self, count: int) -> Iterator[bytes]:
        return (_value(self._snapshot, number) for number in range(count))

    def part(self, number: int) -> bytes:
        return _value(self._snapshot, number)

    def put_parts(self, parts: Sequence[bytes], kept: Collection[int] = ()) -> None:
        if not kept:
            self._snapshot.clear()
        else:
            stay = {*kept, *range(len(parts))}
            for (number,) in [key for key in self._snapshot.keys() if key[0] not in stay]:  # noqa: SIM118
                self._snapshot.removeKey((number,))
        for number, part in enumerate(parts):
            self.put_part(number, part)

    def put_part(self, number: int, part: bytes) -> None:
        self._snapshot.updateValue((number,), (part,))

    def entries(self, count: int) -> Iterator[bytes]:
        return (_value(self._log, number) for number in range(count))

    def put_entry(self, number: int, entry: bytes) -> None:
        self._log.updateValue((number,), (entry,))

    def clear_entries(self) -> None:
        self._log.clear()


def _value(state: MapState, number: int) -> bytes:
    found = state.getValue((number,))
    if found is None:
        raise StateError("a part of the stream's state is missing from the checkpoint")
    return bytes(found[0])


MAX_KEY_GROUPS = 4_096


def get_key_group_count(frame: DataFrame, key_groups: int | None) -> int:
    """Return the number of key groups: `key_groups=`, or Spark's shuffle partitions."""
    if key_groups is None:
        key_groups = int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    if not 1 <= key_groups <= MAX_KEY_GROUPS:
        raise EventError(f"key_groups={key_groups}: it must be between 1 and {MAX_KEY_GROUPS}")
    return key_groups


def compute_state_keys(key_groups: int) -> list[int]:
    """Return the keys of key groups in Spark's state store.

    They are chosen so that Spark's hash distributes the key groups evenly over as many partitions,
    or over a divisor of it. The key 0 is always among them: it notices if the count changes.

    >>> keys = compute_state_keys(4)
    >>> sorted(spark_hash(key) % 4 for key in keys), 0 in keys
    ([0, 1, 2, 3], True)
    """
    keys: dict[int, int] = {}
    number = 0
    while len(keys) < key_groups:
        keys.setdefault(spark_hash(number) % key_groups, number)
        number += 1
    return list(keys.values())


def get_stage_keys(chain: PipelinePlan, stage: int) -> list[int]:
    """Return the keys of the key groups of a stage; the output after the last stage has key 0."""
    return compute_state_keys(chain.count_key_groups(stage)) if stage < len(chain.stages) else [0]


# A message as a row. A row for a later stage than the next one is forwarded by the next one.
MESSAGE_COLUMNS = {
    "through": pa.int32(),  # the key group of the next stage that receives or forwards it
    "stage": pa.int32(),  # target stage
    "key_group": pa.int32(),
    "control": pa.string(),  # NULL: data
    "output": pa.int32(),  # NULL: control, or events of a stage
    "blob": pa.binary(),
}


def build_message_row(through: int, message: Message) -> dict[str, Any]:
    """Build the row of a message, which goes through a key group of the next stage."""
    row = {"through": through, "control": None, "output": None, **asdict(message)}
    return row | {"control": str(message.control)} if isinstance(message, ControlMessage) else row


def read_message(row: Mapping[str, Any]) -> Message:
    if row["control"] is None:
        return PackedTable(row["stage"], row["key_group"], row["output"], row["blob"])
    return ControlMessage(row["stage"], row["key_group"], Control(row["control"]), row["blob"])


def select_results(rows: DataFrame, *controls: Control) -> DataFrame:
    """Select the matches of the outputs, and these control messages, as packed matches."""
    control = sql.col("control")
    kept: Column = sql.col("output").isNotNull()
    if controls:
        kept = kept | control.isin(*map(str, controls))
    return rows.filter(kept).select("control", sql.col("output").alias("query"), sql.col("blob").alias("matches"))


def get_partition_id() -> int:
    """Return the number of the current task within its stage; 0 outside Spark."""
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def spark_hash(number: int) -> int:
    """Compute Spark's hash of an int column (32-bit Murmur3, seed 42)."""
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
