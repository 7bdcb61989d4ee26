"""Backfill: a batch job that matches a history and builds the initial state of a stream.

The job writes the matches of the history and the state of every key group at the cut beside the
checkpoint, before anything is delivered or started: Spark reads the initial state again if the
first micro-batch fails.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import count, groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as sql

from ensue.backends.spark.backfill_events import HistoryEvents, read_history, require_not_ahead
from ensue.backends.spark.batch import chunk_batches
from ensue.backends.spark.flush import finish_state, has_state
from ensue.backends.spark.frames import select_input, spark_schema
from ensue.backends.spark.match_frames import SeveralMatches, build_frames, get_single_frame
from ensue.backends.spark.state_store import (
    MESSAGE_COLUMNS,
    build_message_row,
    compute_state_keys,
    get_partition_id,
    get_stage_keys,
    select_results,
)
from ensue.backends.spark.stream import StreamPlan
from ensue.backends.spark.stream_folders import escape_path, has_commits, read_text_file, write_text_file
from ensue.errors import EventError, StateError
from ensue.options import History
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.tasks.backfill import BackfillCut, BackfillTask, pack_history
from ensue.runtime.tasks.task_state import require_same_job
from ensue.runtime.tasks.wire_format import KEY_GROUP, Control, ControlMessage, Message, read_task_input
from ensue.runtime.workload import Workload

FOLDER = "ensue-history"  # in a checkpoint
FORMAT = 1
CHUNK = 500_000  # events that a task packs at a time
_OUT = -1  # stage number of delivered matches
_TASK_BITS = 40  # low bits of an event number: the event within its task
_FLOW = pa.schema(
    {
        **MESSAGE_COLUMNS,
        "slice": pa.int32(),
        "sender": pa.int32(),  # of state, the stage that it belongs to
        "place": pa.int32(),  # position among the rows of the sender
        "parts": pa.int32(),  # number of state parts of the key group
        "timer": pa.int64(),
        "blob": pa.binary(),
    }
)
_ORDER = ("through", "slice", "sender", "place")
_KEPT = pa.schema(
    {
        "key_group": pa.int32(),  # the key in Spark's state store
        "control": pa.string(),
        "output": pa.int32(),
        "part": pa.int32(),  # of the state
        "parts": pa.int32(),
        "timer": pa.int64(),
        "blob": pa.binary(),
        "chain": pa.int32(),
        "stage": pa.int32(),
    }
)


@dataclass(frozen=True)
class Backfill:
    """A finished backfill, stored beside the checkpoint."""

    session: SparkSession
    place: str
    workload: Workload
    cut: float
    begun: bool = False  # whether the stream has continued from it

    def matches(self) -> DataFrame:
        """Return the matches of the history in the form of a micro-batch."""
        kept = self._read_stored().filter(sql.col("stage") == _OUT)
        return get_single_frame(build_frames(self.workload, select_results(kept)))

    def key_groups(self, chain: int, stage: int) -> DataFrame:
        """Return the state parts of the key groups of a stage."""
        return self._read_stored().filter((sql.col("chain") == chain) & (sql.col("stage") == stage))

    def initial(self, chain: int, stage: int) -> GroupedData | None:
        """Return the initial state of a stage; None if the stream has started already."""
        if self.begun:
            return None
        key = self.workload.chains[chain].grouped_by
        columns: list[Column] = [
            sql.col("key_group").alias(key), sql.col("part"), sql.col("parts"),
            sql.col("timer"), sql.col("blob").alias("data"),
        ]  # fmt: skip
        return self.key_groups(chain, stage).select(*columns).groupBy(key)

    def remaining(self) -> "DataFrame | SeveralMatches":
        """Return the matches that complete if the stream ends at the cut."""
        chains = enumerate(self.workload.chains)
        parts = [[self._parts(n, s) for s in range(len(chain.stages))] for n, chain in chains]
        return finish_state(self.workload, parts)

    def _parts(self, chain: int, stage: int) -> DataFrame:
        """Return the state of a stage in the format of a checkpoint."""
        key_groups = self.key_groups(chain, stage)
        head = sql.to_json(sql.struct("parts", sql.lit(0).alias("entries"))).cast("binary")
        heads, parts = (
            rows.select("key_group", sql.lit(part).alias("part"), sql.col("part").alias("number"), data.alias("data"))
            for part, rows, data in (
                ("head", key_groups.filter("part = 0"), head),
                ("snapshot", key_groups, sql.col("blob")),
            )
        )
        return heads.unionByName(parts)

    def _read_stored(self) -> DataFrame:
        reader = self.session.read.schema(spark_schema(_KEPT))
        return reader.parquet(escape_path(f"{self.place}/key_groups"))

    @property
    def delivered(self) -> bool:
        return read_text_file(self.session, f"{self.place}/delivered") is not None

    def mark_delivered(self) -> None:
        write_text_file(self.session, f"{self.place}/delivered", "{}")


def load_backfill(session: SparkSession, checkpoint: str, workload: Workload, *, begun: bool) -> Backfill | None:
    """Load the backfill of a checkpoint; None if there is none, or it did not finish."""
    place = f"{checkpoint.rstrip('/')}/{FOLDER}"
    text = read_text_file(session, f"{place}/manifest")
    if text is None:
        return None
    manifest = json.loads(text)
    if manifest["format"] != FORMAT:
        raise StateError(
            f"the history in {checkpoint} was written in format {manifest['format']}, "
            f"this release reads {FORMAT}\n  hint: start with a new checkpoint"
        )
    for then, now in zip(manifest["texts"], workload.texts, strict=False):
        require_same_job(then, now, "history in the checkpoint")
    return Backfill(session, place, workload, manifest["cut"], begun)


def run_backfill(plan: StreamPlan, checkpoint: str, history: Any, since: Any) -> Backfill:
    """Match a history up to its cut, and store its matches and state."""
    session, workload = plan.frame.sparkSession, plan.workload
    place = f"{checkpoint.rstrip('/')}/{FOLDER}"
    events = read_history(session, history, workload, since)
    ahead = plan.options.stream.max_ahead if plan.options.watermark is not None else None
    require_not_ahead(events.cut, workload, ahead)
    by_chain = [
        _match_chain(events, chain, plan.options.stream.bad_events)
        .withColumn("chain", sql.lit(number))
        .select(*_KEPT.names)
        for number, chain in enumerate(workload.chains)
    ]
    writer = reduce(DataFrame.union, by_chain).write.mode("overwrite").partitionBy("chain", "stage")
    writer.option("partitionOverwriteMode", "static").parquet(f"{place}/key_groups")
    manifest = {"format": FORMAT, "cut": events.cut.at, "texts": workload.texts}
    write_text_file(session, f"{place}/manifest", json.dumps(manifest))
    return Backfill(session, place, workload, events.cut.at)


def _match_chain(events: HistoryEvents, chain: PipelinePlan, bad_events: str) -> DataFrame:
    """Run the stages of a chain over a history; return matches and state."""
    session, cut = events.frame.sparkSession, events.cut
    flow = select_input(events.frame, chain).mapInArrow(PackHistory(chain, cut, bad_events), spark_schema(_FLOW))
    for number in range(len(chain.stages)):
        key_groups = chain.count_key_groups(number)
        groups = session.createDataFrame(_mark_key_groups(chain, number))
        flow = flow.unionByName(groups).repartition(key_groups, "through").sortWithinPartitions(*_ORDER)
        flow = flow.mapInArrow(HistoryStage(chain, number, cut), spark_schema(_FLOW))
    is_state = sql.col("control") == str(Control.STATE)
    stage = sql.when(is_state, sql.col("sender")).otherwise(_OUT)
    return flow.withColumns({"part": sql.when(is_state, sql.col("place")), "stage": stage})


def _mark_key_groups(chain: PipelinePlan, number: int) -> pa.Table:
    """Build a row for each key group: those without events also advance to the cut."""
    keys = get_stage_keys(chain, number)
    marks = (ControlMessage(number, group, Control.KEY_GROUP) for group in range(len(keys)))
    return pa.Table.from_batches(_batch(_row(keys, -1, m, 0, 0)) for m in marks)


# ------------------------------------------------------------------------------ in the workers


@dataclass(frozen=True)
class PackHistory:
    """Packs the events of a task by slice, stage and key group."""

    chain: PipelinePlan
    cut: BackfillCut
    bad_events: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        task, keys = get_partition_id(), get_stage_keys(self.chain, 0)
        rows, places = 0, count()
        for chunk in chunk_batches(batches, CHUNK):
            events = read_task_input(chunk, self.chain, self.bad_events).events
            key_groups = events.column(KEY_GROUP).to_numpy() if self.chain.split_by_spark else None
            first = (task << _TASK_BITS) + rows
            events = events.drop_columns([KEY_GROUP])
            for sliced in pack_history(self.chain, events, self.cut, first, key_groups):
                yield _batch(_row(keys, sliced.slice, sliced.packed, task, next(places)))
            rows += events.num_rows


@dataclass(frozen=True)
class HistoryStage:
    """Runs the key groups of a stage over the slices of the history, and saves their state."""

    chain: PipelinePlan
    number: int
    cut: BackfillCut

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in _rows(batch))
        for key, rows_of_group in groupby(rows, key=lambda row: row["through"]):
            yield from self._key_group(int(key), rows_of_group)

    def _key_group(self, key: int, rows: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        sender = compute_state_keys(self.chain.count_key_groups(self.number)).index(key)
        keys, places = get_stage_keys(self.chain, self.number + 1), count()
        key_group = BackfillTask(self.chain, self.number, self.cut)
        for slice, slice_rows in groupby(rows, key=lambda row: row["slice"]):
            blobs = []
            for row in slice_rows:
                if row["stage"] != self.number:
                    yield _batch(row | {"through": keys[row["key_group"] % len(keys)]})
                elif row["control"] is None:
                    blobs.append(row["blob"])
            for sliced in key_group.take(slice, blobs) if blobs else ():
                yield _batch(_row(keys, sliced.slice, sliced.packed, sender, next(places)))
        for sliced in key_group.end():
            yield _batch(_row(keys, sliced.slice, sliced.packed, sender, next(places)))
        saved = key_group.save_state()
        for number, part in enumerate(saved.parts):
            state = ControlMessage(len(self.chain.stages), key, Control.STATE, part)
            row = _row(keys, self.cut.last, state, self.number, number)
            yield _batch(row | {"parts": len(saved.parts), "timer": saved.timer})


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Convert rows one by one, since they contain large tables."""
    for number in range(batch.num_rows):
        yield batch.slice(number, 1).to_pylist()[0]


def _row(keys: list[int], slice: int, message: Message, sender: int, place: int) -> dict[str, Any]:
    """Build a row for the key group of the next stage that receives or forwards a message."""
    row = build_message_row(keys[message.key_group % len(keys)], message)
    return dict.fromkeys(_FLOW.names) | row | {"slice": slice, "sender": sender, "place": place}


def _batch(row: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row], schema=_FLOW)


# ------------------------------------------------------------------------- history= of a stream


def build_backfill(history: History, plan: StreamPlan, checkpoint: str) -> Backfill:
    """Return the backfill of a checkpoint, which runs once, before the stream starts."""
    if any(chain.spreads is not None for chain in plan.workload.chains):
        raise EventError(
            "history= is for queries: a subscription only sees events from the moment it "
            "is accepted\n  hint: leave out history="
        )
    session = plan.frame.sparkSession
    begun = has_state(session, checkpoint)
    past = load_backfill(session, checkpoint, plan.workload, begun=begun)
    if past is not None:
        return past
    if begun:
        raise StateError(
            f"the stream of the checkpoint {checkpoint} began without history=\n"
            "  hint: name a new checkpoint, or leave out history= to continue this one"
        )
    return run_backfill(plan, checkpoint, history.events, history.since)


def require_no_history(here: Path | None, checkpoint: str) -> None:
    """Raise StateError if the checkpoint has a backfill that the stream has not continued from."""
    if here is None or has_commits(here) or not (here / FOLDER / "manifest").exists():
        return
    raise StateError(
        f"the stream of the checkpoint {checkpoint} begins with a history, and has not continued "
        "from there yet\n  hint: pass history= as before, or name a new checkpoint"
    )
