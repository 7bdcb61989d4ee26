"""The lanes of a stream, brought up to date by a history in one batch job.

What the job gives lies beside the checkpoint: the matches of the history, and every lane as it is
at the cut. It is written down before anything is delivered or started, since Spark asks for the
first state of a stream again when the first micro-batch fails.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import count, groupby
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, GroupedData, SparkSession
from pyspark.sql import functions as sql

from ensue.errors import StateError
from ensue.runners.spark.finish import left_over
from ensue.runners.spark.frames import lane_column, quoted, relevant, without_time
from ensue.runners.spark.kept_texts import put_text, text_at
from ensue.runners.spark.lanes import lane_keys
from ensue.runners.spark.matches import SeveralMatches, frames_of, only_frame
from ensue.runners.spark.past_events import PastEvents, past_events, require_not_ahead
from ensue.runners.spark.paths import literal
from ensue.runners.spark.recipes import Recipe
from ensue.runners.spark.types import spark_schema
from ensue.workload.chain import Chain
from ensue.workload.lanes.arrivals import LANE, PASSING, arrived
from ensue.workload.lanes.packing import Packed
from ensue.workload.lanes.past import Cut, PastLane, Sliced, packed_past
from ensue.workload.lanes.state import check_same
from ensue.workload.workload import Workload

FOLDER = "ensue-history"  # in a checkpoint
FORMAT = 1
CHUNK = 500_000  # events that a task packs at a time
PRESENT, STATE = -7, -8  # in the place of an output's number: a lane is there; a part of its state
_OUT = -1  # in the place of a stage: what is delivered
_TASK_BITS = 40  # of the number of an event: those below count the events of a task
_FLOW = pa.schema(
    {
        "through": pa.int32(),  # the lane of the next stage that it goes to or passes
        "slice": pa.int32(),
        "sender": pa.int32(),
        "place": pa.int32(),  # among what the sender sent
        "stage": pa.int32(),  # that it is for; of a lane's state: that it is of
        "lane": pa.int32(),
        "number": pa.int32(),
        "parts": pa.int32(),  # of a lane's state
        "timer": pa.int64(),
        "blob": pa.binary(),
    }
)
_ORDER = ("through", "slice", "sender", "place")
_KEPT = pa.schema(
    {
        "lane": pa.int32(),  # as Spark knows it
        "number": pa.int32(),  # of an output, or of a part
        "parts": pa.int32(),
        "timer": pa.int64(),
        "blob": pa.binary(),
        "chain": pa.int32(),
        "stage": pa.int32(),
    }
)


@dataclass(frozen=True)
class Past:
    """A history that a stream begins with, as it lies beside the checkpoint."""

    session: SparkSession
    place: str
    workload: Workload
    cut: float
    begun: bool = False  # whether the stream has gone on from it

    def matches(self) -> DataFrame:
        """What the history has given, in the form in which a micro-batch of the stream comes."""
        kept = self._kept().filter(sql.col("stage") == _OUT)
        packed = kept.select(sql.col("number").alias("query"), sql.col("blob").alias("matches"))
        return only_frame(frames_of(self.workload, packed))

    def lanes(self, chain: int, stage: int) -> DataFrame:
        """The parts of the lanes of a stage."""
        of = (sql.col("chain") == chain) & (sql.col("stage") == stage)
        return self._kept().filter(of)

    def initial(self, chain: int, stage: int) -> GroupedData | None:
        """The same as the first state of the stream. None: it has begun already."""
        if self.begun:
            return None
        key = self.workload.chains[chain].grouped_by
        columns: list[Column] = [
            sql.col("lane").alias(key), sql.col("number").alias("part"), sql.col("parts"),
            sql.col("timer"), sql.col("blob").alias("data"),
        ]  # fmt: skip
        return self.lanes(chain, stage).select(*columns).groupBy(key)

    def remaining(self) -> "DataFrame | SeveralMatches":
        """What is still open at the cut, if no event comes any more."""
        chains = enumerate(self.workload.chains)
        parts = [[self._parts(n, s) for s in range(len(chain.stages))] for n, chain in chains]
        return left_over(self.workload, parts)

    def _parts(self, chain: int, stage: int) -> DataFrame:
        """The lanes of a stage as they would be in a checkpoint."""
        lanes = self.lanes(chain, stage)
        head = sql.to_json(sql.struct("parts", sql.lit(0).alias("entries"))).cast("binary")
        heads = lanes.filter("number = 0").select(
            "lane", sql.lit("head").alias("part"), sql.lit(0).alias("number"), head.alias("data")
        )
        return heads.unionByName(
            lanes.select(
                "lane", sql.lit("snapshot").alias("part"), "number", sql.col("blob").alias("data")
            )
        )

    def _kept(self) -> DataFrame:
        reader = self.session.read.schema(spark_schema(_KEPT))
        return reader.parquet(literal(f"{self.place}/lanes"))

    @property
    def delivered(self) -> bool:
        """Whether the matches of the history are in the output."""
        return text_at(self.session, f"{self.place}/delivered") is not None

    def note_delivered(self) -> None:
        put_text(self.session, f"{self.place}/delivered", "{}")


def found_past(
    session: SparkSession, checkpoint: str, workload: Workload, *, begun: bool
) -> Past | None:
    """The history that lies beside a checkpoint; None: there is none, or it was not finished."""
    place = f"{checkpoint.rstrip('/')}/{FOLDER}"
    text = text_at(session, f"{place}/manifest")
    if text is None:
        return None
    manifest = json.loads(text)
    if manifest["format"] != FORMAT:
        raise StateError(
            f"the history in {checkpoint} was written in format {manifest['format']}, "
            f"this release reads {FORMAT}\n  hint: start with a new checkpoint"
        )
    for then, now in zip(manifest["texts"], workload.texts, strict=False):
        check_same(then, now, "history in the checkpoint")
    return Past(session, place, workload, manifest["cut"], begun)


def backfilled(recipe: Recipe, checkpoint: str, history: Any, since: Any) -> Past:
    """Matches a history up to its cut, and writes down what that gives."""
    session, workload = recipe.frame.sparkSession, recipe.workload
    place = f"{checkpoint.rstrip('/')}/{FOLDER}"
    events = past_events(session, history, workload, since)
    ahead = recipe.given.max_ahead if recipe.given.watermark is not None else None
    require_not_ahead(events.cut, workload, ahead)
    done = [
        _matched(events, chain, recipe.given.bad_events).select(
            "lane", "number", "parts", "timer", "blob", sql.lit(number).alias("chain"), "stage"
        )
        for number, chain in enumerate(workload.chains)
    ]
    writer = reduce(DataFrame.union, done).write.mode("overwrite").partitionBy("chain", "stage")
    writer.option("partitionOverwriteMode", "static").parquet(f"{place}/lanes")
    manifest = {
        "format": FORMAT, "cut": events.cut.at, "since": None if since is None else str(since),
        "history": events.described, "texts": workload.texts,
    }  # fmt: skip
    put_text(session, f"{place}/manifest", json.dumps(manifest, default=str))
    return Past(session, place, workload, events.cut.at)


def _matched(events: PastEvents, chain: Chain, bad_events: str) -> DataFrame:
    """What the stages of a chain give for a history, and their lanes."""
    session, cut = events.frame.sparkSession, events.cut
    flow = _with_lanes(events.frame, chain).mapInArrow(
        PackPast(chain, cut, bad_events), spark_schema(_FLOW)
    )
    for number in range(len(chain.stages)):
        lanes = chain.lanes_of(number)
        there = session.createDataFrame(_present(chain, number))
        flow = flow.unionByName(there).repartition(lanes, "through").sortWithinPartitions(*_ORDER)
        flow = flow.mapInArrow(PastStage(chain, number, cut), spark_schema(_FLOW))
    of = sql.col("number") == STATE
    return flow.select(
        "lane",
        sql.when(of, sql.col("place")).otherwise(sql.col("number")).alias("number"),
        "parts",
        "timer",
        "blob",
        sql.when(of, sql.col("sender")).otherwise(_OUT).alias("stage"),
    )


def _with_lanes(frame: DataFrame, chain: Chain) -> DataFrame:
    """The events that can matter, with the lane of each where Spark knows it; and bad ones."""
    kept, lane = relevant(chain), lane_column(chain)
    if kept is not None:
        frame = frame.filter(kept | without_time(chain.source.shape, chain.types))
        lane = sql.when(kept, lane).otherwise(PASSING)
    names = [sql.col(quoted(name)) for name in chain.source.arrow.names]
    return frame.select(*names, lane.cast("int").alias(LANE))


def _present(chain: Chain, number: int) -> pa.Table:
    """A row for each lane of a stage: lanes without events also come to the cut."""
    rows = [
        _row(key, Sliced(-1, Packed(number, lane, PRESENT, b"")), 0, 0)
        for lane, key in enumerate(lane_keys(chain.lanes_of(number)))
    ]
    return pa.Table.from_batches([_batch(row) for row in rows])


# ------------------------------------------------------------------------------ in the workers


@dataclass(frozen=True)
class PackPast:
    """Packs the events of a task by slices, stages and lanes."""

    chain: Chain
    cut: Cut
    bad_events: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context, ways = TaskContext.get(), Ways.to(self.chain, 0)
        task = 0 if context is None else context.partitionId()
        rows, place = 0, 0
        for some in _chunks(batches):
            events = arrived(some, self.chain, self.bad_events).events
            lanes = events.column(LANE).to_numpy() if self.chain.split_by_spark else None
            first = (task << _TASK_BITS) + rows
            events = events.drop_columns([LANE])
            for sliced in packed_past(self.chain, events, self.cut, first, lanes):
                yield _batch(_row(ways.through(sliced.packed), sliced, task, place))
                place += 1
            rows += events.num_rows


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    kept: list[pa.RecordBatch] = []
    for batch in batches:
        kept.append(batch)
        if sum(one.num_rows for one in kept) >= CHUNK:
            yield kept
            kept = []
    if kept:
        yield kept


@dataclass(frozen=True)
class PastStage:
    """The lanes of a stage: they take the slices of the history, and are saved at the cut."""

    chain: Chain
    number: int
    cut: Cut

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (row for batch in batches for row in _rows(batch))
        for key, of_lane in groupby(rows, key=lambda row: row["through"]):
            yield from self._lane(int(key), of_lane)

    def _lane(self, key: int, rows: Iterable[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        mine = lane_keys(self.chain.lanes_of(self.number)).index(key)
        ways, places = Ways.to(self.chain, self.number + 1), count()
        lane = PastLane(self.chain, self.number, self.cut)
        for slice, of_slice in groupby(rows, key=lambda row: row["slice"]):
            blobs = []
            for row in of_slice:
                packed = Packed(row["stage"], row["lane"], row["number"], row["blob"])
                if packed.stage != self.number:
                    yield _batch(row | {"through": ways.through(packed)})
                elif packed.number != PRESENT:
                    blobs.append(packed.blob)
            for sliced in lane.take(slice, blobs) if blobs else ():
                yield _batch(_row(ways.through(sliced.packed), sliced, mine, next(places)))
        for sliced in lane.end():
            yield _batch(_row(ways.through(sliced.packed), sliced, mine, next(places)))
        saved = lane.saved()
        for number, part in enumerate(saved.parts):
            state = Packed(len(self.chain.stages), key, STATE, part)
            row = _row(ways.through(state), Sliced(self.cut.last, state), self.number, number)
            yield _batch(row | {"parts": len(saved.parts), "timer": saved.timer})


@dataclass(frozen=True)
class Ways:
    """How packed tables get to a stage, or past it to a later one."""

    keys: list[int]  # of its lanes

    @classmethod
    def to(cls, chain: Chain, stage: int) -> "Ways":
        """To a stage of a chain, or behind its last."""
        return cls(lane_keys(chain.lanes_of(stage)) if stage < len(chain.stages) else [0])

    def through(self, packed: Packed) -> int:
        """The lane that a packed table goes to or passes."""
        return self.keys[packed.lane % len(self.keys)]


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """One by one: the tables in them are large."""
    for number in range(batch.num_rows):
        yield batch.slice(number, 1).to_pylist()[0]


def _row(through: int, sliced: Sliced, sender: int, place: int) -> dict[str, Any]:
    return {
        "through": through, "slice": sliced.slice, "sender": sender, "place": place,
        **asdict(sliced.packed), "parts": None, "timer": None,
    }  # fmt: skip


def _batch(row: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([row], schema=_FLOW)
