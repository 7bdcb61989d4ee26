"""Matching on streaming DataFrames: lanes of events, each with its state in Spark's store.

Every stage of a chain is a stateful operator, called in the same micro-batch after the one before
it, and with the same watermark. So when a stage is called, all that earlier stages know up to that
watermark is there, and its own time is behind the stream's only by what the layers below it may
take to decide.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import reduce
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark import SparkFiles, TaskContext
from pyspark.sql import Column, DataFrame, GroupedData, Row
from pyspark.sql import functions as sql
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ensue.algebra.check.column_names import refuse_column, refuse_other_cases
from ensue.algebra.query import Query
from ensue.columns.stream import Shape
from ensue.runners.spark import statistics
from ensue.runners.spark.archives import refuse_frames, refuse_large
from ensue.runners.spark.frames import (
    lane_column,
    quoted,
    read_frame,
    relevant,
    warn_of_whole_streams,
    without_time,
)
from ensue.runners.spark.lanes import lane_count, lane_keys
from ensue.runners.spark.matches import LATE, Frames, SeveralMatches, frames_of
from ensue.runners.spark.micro_batches import micro_batch, no_micro_batch
from ensue.runners.spark.python_workers import freeze_loaded_code, silence_init_worker
from ensue.runners.spark.recipes import Recipe, note
from ensue.runners.spark.state import LaneStore
from ensue.runners.spark.time import Watched, before, with_watermark
from ensue.runners.spark.types import spark_schema
from ensue.workload.arguments import Arguments
from ensue.workload.chain import Chain
from ensue.workload.foresight import warn_of_explosion
from ensue.workload.lanes.arrivals import AHEAD, LANE, PASSING, arrived, next_watermark
from ensue.workload.lanes.clock import calendar
from ensue.workload.lanes.micro_batch import Counters, run_lane
from ensue.workload.lanes.packing import (
    ARCHIVED,
    LATE_EVENTS,
    SHED,
    Packed,
    packed_events,
    packed_spread,
)
from ensue.workload.lanes.shelf import Shelf
from ensue.workload.lanes.state import begin
from ensue.workload.query_names import speaking_of
from ensue.workload.source import Source
from ensue.workload.stage import BATCH, ROW, Version
from ensue.workload.text import remember
from ensue.workload.workload import Workload

STREAMING = True
measured = statistics.measured
OBSERVED = "ensue"  # the name of the counters in a query's progress
NUMBERS = "numbers"  # among them, where the time column holds numbers
COUNTERS = ("dropped", "ahead", *(f.name for f in fields(Counters)))
CLOCK, COUNTS = -4, -5  # in the place of an output's number: what a row is instead
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
        "version": pa.string(),  # of what is asked, where that changes
        "blob": pa.binary(),
        **dict.fromkeys(COUNTERS, pa.int64()),
    }
)
FLOW = spark_schema(_FLOW)
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def read(
    events: "DataFrame | Mapping[str, DataFrame]", given: Arguments
) -> tuple[DataFrame, Source]:
    """The events as one DataFrame, and what is known of them before they come."""
    frame, shape, given = read_frame(events, given)
    # what Spark says of a column that is never NULL holds for a source, not for a checkpoint
    nullable = pa.schema([field.with_nullable(True) for field in shape.arrow])
    return frame, Source.of(replace(shape, arrow=nullable), given)


def lanes(frame: DataFrame, given: Arguments) -> int:
    """How many lanes a stage has, for as long as the checkpoint is used."""
    return lane_count(frame, given.lanes)


def run(workload: Workload, frame: DataFrame, given: Arguments) -> Frames:
    """The matches of a stream, as streaming DataFrames by output."""
    for output in workload.outputs:
        with speaking_of(None if workload.alone else output.name):
            if output.meaning is not None:
                _refuse_names(output.meaning, frame)
    for chain in workload.chains:
        refuse_frames(chain)
        refuse_large(chain)
    recipe = Recipe(workload, frame, given)
    found = flowing(recipe)
    remember(workload.asked, workload.pasts)
    for work in workload.works:
        for prepared in work.expected:
            warn_of_explosion(prepared)
    _require_rocksdb(frame)
    warn_of_whole_streams(workload)
    note(found if isinstance(found, SeveralMatches) else next(iter(found.values())), recipe)
    return found


class Beginning(Protocol):
    """What the lanes of a stream begin with."""

    @property
    def cut(self) -> float:
        """Where the history ends, in the matcher's time."""

    def initial(self, chain: int, stage: int) -> GroupedData | None:
        """The parts of the lanes of a stage. None: the stream has begun already."""


def flowing(recipe: Recipe, beginning: Beginning | None = None, *, gap: bool = False) -> Frames:
    """The stream, built anew; `gap`: it may begin later than the history ends."""
    return frames_of(recipe.workload, packed_flow(recipe, beginning, gap=gap))


def packed_flow(
    recipe: Recipe,
    beginning: Beginning | None = None,
    *,
    gap: bool = False,
    shed: bool = False,
) -> DataFrame:
    """All that comes out of its lanes, packed: matches, late events, files of its archive, and,
    if asked, keys that were given up."""
    workload, given = recipe.workload, recipe.given
    shape = workload.source.shape
    watched = with_watermark(recipe.frame, shape, given.watermark, given.max_ahead)
    cut = None if beginning is None or gap else beginning.cut
    flows = []
    for number, chain in enumerate(workload.chains):
        mine = watched.without_those_ahead() if number else watched
        flow = with_lanes(mine, chain, cut).mapInArrow(Pack(chain, given.bad_events, cut), FLOW)
        for stage in range(len(chain.stages)):
            processor = StageProcessor(chain, stage, watched.delay_ms, cut)
            first = None if beginning is None else beginning.initial(number, stage)
            flow = flow.groupBy(chain.grouped_by).transformWithState(
                processor, FLOW, "append", "EventTime", first
            )
        flows.append(flow)
    flow = reduce(DataFrame.union, flows).observe(counters(given.number), *observed(shape))
    kind = sql.col("number")
    done = flow.filter((kind >= LATE_EVENTS) | kind.isin(ARCHIVED, *((SHED,) if shed else ())))
    return done.select(kind.alias("query"), sql.col("blob").alias("matches"))


def _refuse_names(query: Query, frame: DataFrame) -> None:
    """What sinks go by: matches are known by their id, late events taken out by their column."""
    refuse_column(query, "match_id", "sinks know a match by its own match_id")
    refuse_column(query, LATE, "the late events of a stream are in a column of that name")
    if frame.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
        refuse_other_cases(query, ("match_id", "start", "end", LATE))


def counters(number: int) -> str:
    """The name of the counters of one of the streams that a query of Spark is made of."""
    return OBSERVED if number == 1 else f"{OBSERVED}_{number}"


def is_ours(name: str) -> bool:
    """Whether these are counters of ours.

    >>> is_ours(counters(1)), is_ours(counters(2)), is_ours("ensued")
    (True, True, False)
    """
    return name == OBSERVED or name.startswith(f"{OBSERVED}_")


def observed(shape: Shape) -> list[Column]:
    """The counters in a query's progress, which also says of a time column that it has numbers."""
    counted = [sql.sum(name).alias(name) for name in COUNTERS]
    return counted if calendar(shape) else [*counted, sql.count(sql.lit(1)).alias(NUMBERS)]


def with_lanes(watched: Watched, chain: Chain, cut: float | None = None) -> DataFrame:
    """The events that can matter, with the lane of each where Spark knows it.

    Others go with them as far as `Pack` if they are bad, too far ahead, or the only ones that
    know how far time has come, or that a history and the stream overlap.
    """
    frame, kept = watched.frame, relevant(chain)
    if kept is not None:
        asked = kept | without_time(chain.source.shape, chain.types) | watched.told_apart()
        if cut is not None:
            asked = asked | _overlapping(frame, chain, cut)
        frame = frame.filter(asked)
    lane = lane_column(chain)
    if kept is not None:
        lane = sql.when(kept, lane).otherwise(PASSING)
    if watched.ahead is not None:
        lane = sql.when(watched.ahead, AHEAD).otherwise(lane)
    names = [sql.col(quoted(name)) for name in chain.source.arrow.names]
    return frame.select(*names, lane.cast("int").alias(LANE))


def _overlapping(frame: DataFrame, chain: Chain, cut: float) -> Column:
    """Whether an event shows that the stream began no later than the history ends."""
    shape = chain.source.shape
    found = before(frame, shape.schema.end, shape, chain.clock.following(cut))
    return sql.coalesce(found, sql.lit(False))


def _require_rocksdb(frame: DataFrame) -> None:
    """Spark keeps this kind of state in RocksDB only, and has another store by default."""
    conf = frame.sparkSession.conf
    name = "spark.sql.streaming.stateStore.providerClass"
    if "HDFSBackedStateStoreProvider" in (conf.get(name) or ""):
        conf.set(name, _ROCKSDB)
        changes = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
        if conf.get(changes, None) is None:
            conf.set(changes, "true")


# ------------------------------------------------------------------------------ in the workers


@dataclass(frozen=True)
class Pack:
    """Packs the events of a task by stages and lanes, and sends every lane of the first stage
    the time that has come, so that all of them move on."""

    chain: Chain
    bad_events: str
    cut: float | None = None  # of a history, where it is to be seen whether there is a gap

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chain, context = self.chain, TaskContext.get()
        task = 0 if context is None else context.partitionId()
        came = arrived(batches, chain, self.bad_events)
        packed, version = self._packed(came.events, task)
        newest_ms = came.newest_ms
        rows = [
            _row(key, Packed(0, lane, CLOCK, b""), task, newest_ms=newest_ms, version=version)
            for lane, key in enumerate(lane_keys(chain.lanes_of(0)))
        ]
        if self.cut is not None and came.oldest is not None:
            rows[0]["blob"] = json.dumps(came.oldest).encode()
        rows[0] |= {"dropped": came.dropped, "ahead": came.ahead}
        rows += _through(chain, -1, packed, task)
        if chain.grouped_by == "lane":
            rows = [row | {"lane": row["through"]} for row in rows]
        yield pa.RecordBatch.from_pylist(rows, schema=_FLOW)
        freeze_loaded_code()

    def _packed(self, events: pa.Table, task: int) -> tuple[Iterator[Packed], str | None]:
        """The events for their lanes, and the version of what is asked."""
        lanes = events.column(LANE).to_numpy()
        events = events.drop_columns([LANE])
        if self.chain.split_by_spark:
            return packed_events(self.chain, events, lanes=lanes), None
        batch = micro_batch()
        numbers = np.full(events.num_rows, 0 if batch is None else batch.number)
        rows = np.arange(events.num_rows) + (task << _TASK_BITS)
        arriving = events.append_column(BATCH, pa.array(numbers))
        arriving = arriving.append_column(ROW, pa.array(rows))
        if (stage := self.chain.spreads) is None:
            return packed_events(self.chain, arriving), None
        if batch is None:
            raise no_micro_batch()
        spread = stage.spread(events, self.chain.lanes_of(0), batch)
        version = None if spread.version is None else json.dumps(asdict(spread.version))
        return packed_spread(self.chain, arriving, spread), version


class StageProcessor(StatefulProcessor):
    """A lane of a stage: called with what was sent to it, and when the watermark has passed its
    timer. What is for later stages passes through."""

    def __init__(
        self, chain: Chain, number: int, delay_ms: int | None, cut: float | None = None
    ) -> None:
        self.chain = chain
        self.number = number
        self.delay_ms = delay_ms  # of the watermark, if it is known
        self.cut = cut  # of a history, if there must not be a gap behind it

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        silence_init_worker()

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
        keys = lane_keys(self.chain.lanes_of(self.number + 1)) if self._more else [0]
        for row in given:
            if row.stage != self.number:
                yield Row(**(row.asDict() | {"through": keys[row.lane % len(keys)]}))
        if not mine:
            return
        if clocks and key[0] == 0 and self._more:
            for lane, through in enumerate(keys):
                clock = Packed(self.number + 1, lane, CLOCK, b"")
                yield Row(**_row(through, clock, 0, newest_ms=max(newest, default=None)))
        next_ms = next_watermark(newest, self.delay_ms)
        oldest = min((json.loads(bytes(row.blob)) for row in clocks if row.blob), default=None)
        blobs = [bytes(row.blob) for row in mine if row.number != CLOCK]
        counts = {name: sum(row[name] for row in mine) for name in ("dropped", "ahead")}
        newest_ms = max(newest, default=None)
        versions = {row.version for row in clocks if row.version is not None}
        version = Version(**json.loads(versions.pop())) if versions else None
        yield from self._run(
            key[0], timerValues, blobs, next_ms, oldest, newest_ms, version, **counts
        )

    def handleInitialState(  # noqa: N802
        self,
        key: Any,  # noqa: ARG002
        initialState: Any,  # noqa: N803
        timerValues: Any,  # noqa: ARG002, N803
    ) -> None:
        row = initialState
        of, data = (row.part, row.parts), bytes(row.data)
        begin(self.store, self.chain, self.number, of, data, row.timer)
        if row.part == 0 and row.timer is not None:
            self.handle.registerTimer(row.timer)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        yield from self._run(key[0], timerValues, [])

    def close(self) -> None:
        freeze_loaded_code()

    @property
    def _more(self) -> bool:
        return self.number + 1 < len(self.chain.stages)

    def _run(
        self,
        lane: int,
        times: Any,
        blobs: list[bytes],
        next_ms: int | None = None,
        oldest: float | None = None,
        newest_ms: int | None = None,
        version: Version | None = None,
        *,
        dropped: int = 0,
        ahead: int = 0,
    ) -> Iterator[Row]:
        watermark_ms = times.getCurrentWatermarkInMs()
        checks = self.cut is not None and self.number == 0 and lane == 0
        place = 0
        if self.chain.spreads is not None and lane:
            place = lane_keys(self.chain.lanes_of(self.number)).index(lane)
        outcome = run_lane(
            self.store, self.chain, self.number, watermark_ms, blobs, next_ms, shelf(), oldest,
            newest_ms, require_no_gap=checks, place=place, version=version,
        )  # fmt: skip
        if outcome.timer != outcome.timer_before:
            if outcome.timer_before is not None:
                self.handle.deleteTimer(outcome.timer_before)
            if outcome.timer is not None:
                self.handle.registerTimer(outcome.timer)
        for row in _through(self.chain, self.number, outcome.sent, lane):
            yield Row(**row)
        row = counted_row(self.chain, lane, outcome.counters)
        yield Row(**(row | {"dropped": dropped, "ahead": ahead}))


def shelf() -> Shelf:
    """A folder of this machine that Spark removes when the application ends."""
    return Shelf(Path(SparkFiles.getRootDirectory()) / "ensue-lanes")


def _through(
    chain: Chain, number: int, sent: Iterable[Packed], sender: int
) -> Iterator[dict[str, Any]]:
    """Packed tables as rows, with the lane of the next stage that each goes to or passes."""
    following = number + 1
    keys = lane_keys(chain.lanes_of(following)) if following < len(chain.stages) else [0]
    for place, packed in enumerate(sent):
        lane = packed.lane if packed.stage == following else packed.lane % len(keys)
        yield _row(keys[lane], packed, sender, place=place)


def counted_row(chain: Chain, lane: int, counters: Counters) -> dict[str, Any]:
    """What a lane did, as a row."""
    return _row(0, Packed(len(chain.stages), lane, COUNTS, b""), lane, counters=counters)


def _row(
    through: int,
    packed: Packed,
    sender: int,
    *,
    place: int = 0,
    newest_ms: int | None = None,
    version: str | None = None,
    counters: Counters | None = None,
) -> dict[str, Any]:
    counted = dict.fromkeys(COUNTERS, 0) if counters is None else asdict(counters)
    return {
        "through": through, "sender": sender, "place": place, "newest_ms": newest_ms,
        "version": version,
        **asdict(packed), "dropped": 0, "ahead": 0, **counted,
    }  # fmt: skip
