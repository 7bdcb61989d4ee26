"""Matching on streaming DataFrames: key groups of events with their state in Spark's store.

Every stage of a chain is a stateful operator. All stages run in the same micro-batch, one after
the other, with the same watermark. So a stage sees all results of earlier stages up to that
watermark, and lags behind the stream only by the delay with which lower layers decide.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from ensue.analyzer.query import reject_case_conflicts, reject_column
from ensue.backends.spark import frames
from ensue.backends.spark.dataframe_archives import reject_dataframe_archives, reject_large_tables
from ensue.backends.spark.event_time import WatermarkedFrame, is_before, with_watermark
from ensue.backends.spark.frames import read_frame, select_input, spark_schema, warn_of_whole_streams
from ensue.backends.spark.match_frames import LATE_COLUMN, FrameRegistry, Frames, SeveralMatches, build_frames
from ensue.backends.spark.session import (
    build_micro_batch_error,
    freeze_loaded_code,
    get_micro_batch,
    silence_init_worker,
)
from ensue.backends.spark.state_store import (
    MESSAGE_COLUMNS,
    KeyGroupStore,
    build_message_row,
    get_key_group_count,
    get_partition_id,
    get_stage_keys,
    select_results,
)
from ensue.cached import cached_property
from ensue.engine.state_format import deserialize_table
from ensue.errors import EventError
from ensue.ir.query import Query
from ensue.runtime.event_pruning import warn_if_expensive
from ensue.runtime.job_fingerprint import register_job
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.query_spec import name_query_in_errors
from ensue.runtime.source_schema import SourceOptions, SourceSchema
from ensue.runtime.stage import BATCH, ROW, SubscriptionVersion
from ensue.runtime.tasks.micro_batch import TaskCounters, run_task
from ensue.runtime.tasks.task_state import TaskCache, import_part
from ensue.runtime.tasks.watermark import is_calendar_time
from ensue.runtime.tasks.wire_format import (
    KEY_GROUP,
    Control,
    ControlMessage,
    Message,
    PackedTable,
    StepInput,
    StreamClock,
    pack_events,
    pack_routed_events,
    read_steps,
    read_task_input,
)
from ensue.runtime.workload import Workload

if TYPE_CHECKING:
    from ensue.backends.spark.backfill import Backfill

STREAMING = True
measure = frames.measure
METRIC_NAME = "ensue"  # the name of the counters in a query's progress
NUMBERS = "numbers"  # among them, where the time column holds numbers
COUNTERS = ("dropped", "ahead", *(f.name for f in fields(TaskCounters)))
_TASK_BITS = 40  # low bits of an event number: the event within its task
_FLOW = pa.schema(
    {
        **MESSAGE_COLUMNS,
        "sender": pa.int32(),
        "place": pa.int32(),  # position among the rows of the sender
        **dict.fromkeys(COUNTERS, pa.int64()),
    }
)
FLOW = spark_schema(_FLOW)
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def read(events: "DataFrame | Mapping[str, DataFrame]", options: SourceOptions) -> tuple[DataFrame, SourceSchema]:
    frame, shape, options = read_frame(events, options)
    # NOT NULL holds for the source, not for the state of a checkpoint
    nullable = pa.schema([field.with_nullable(True) for field in shape.arrow])
    return frame, SourceSchema.from_options(replace(shape, arrow=nullable), options)


def key_groups(frame: DataFrame, options: SourceOptions) -> int:
    """Return the number of key groups, which is fixed for the life of a checkpoint."""
    return get_key_group_count(frame, options.stream.key_groups)


def run(workload: Workload, frame: DataFrame, options: SourceOptions) -> Frames:
    for output in workload.outputs:
        with name_query_in_errors(None if workload.is_single else output.name):
            if output.meaning is not None:
                _refuse_names(output.meaning, frame)
    for chain in workload.chains:
        reject_dataframe_archives(chain)
        reject_large_tables(chain)
    plan = StreamPlan(workload, frame, options)
    matches = build_frames(workload, plan.packed)
    register_job(workload.specs, workload.archive_set)
    for work in workload.works:
        for prepared in work.expected:
            warn_if_expensive(prepared)
    use_rocksdb(frame.sparkSession)
    warn_of_whole_streams(workload)
    several = isinstance(matches, SeveralMatches)
    STREAM_PLANS.put(matches if several else next(iter(matches.values())), plan)
    return matches


@dataclass(frozen=True)
class StreamPlan:
    """The plan of a stream. `ensue.start` may begin it with a history and pin its archives."""

    workload: Workload
    frame: DataFrame
    options: SourceOptions
    past: "Backfill | None" = None
    gap: bool = False  # whether the stream may begin after the end of the history

    @cached_property
    def packed(self) -> DataFrame:
        """Its packed output: matches, late events, archive files and shed keys."""
        workload, options, past = self.workload, self.options, self.past
        shape = workload.source.shape
        watched = with_watermark(self.frame, shape, options.watermark, options.stream.max_ahead)
        cut = None if past is None or self.gap else past.cut
        flows = []
        for number, chain in enumerate(workload.chains):
            chain_input = watched.drop_ahead() if number else watched
            flow = select_events(chain_input, chain, cut).mapInArrow(
                PackEvents(chain, options.stream.bad_events, cut), FLOW
            )
            for stage in range(len(chain.stages)):
                processor = StageProcessor(chain, stage, watched.delay_ms, cut)
                first = None if past is None else past.initial(number, stage)
                flow = flow.groupBy(chain.grouped_by).transformWithState(processor, FLOW, "append", "EventTime", first)
            flows.append(flow)
        metric = METRIC_NAME if options.number == 1 else f"{METRIC_NAME}_{options.number}"  # of the streams of a query
        counters = [sql.sum(name).alias(name) for name in COUNTERS]
        if not is_calendar_time(shape):
            counters.append(sql.count(sql.lit(1)).alias(NUMBERS))
        flow = reduce(DataFrame.union, flows).observe(metric, *counters)
        return select_results(flow, Control.LATE, Control.ARCHIVED, Control.SHED)


STREAM_PLANS = FrameRegistry[StreamPlan | None]()  # of the results of `ensue.match`


def get_stream_plan(matches: object, what: str) -> StreamPlan:
    """Return the plan of a result of `ensue.match`, which the argument `what` needs."""
    plan = STREAM_PLANS.get(matches, None)
    if plan is None:
        raise EventError(
            f"{what} needs the result of ensue.match for a stream, but these matches were "
            "changed since\n"
            "  hint: pass them unchanged; a function as output gets each micro-batch and can "
            "change it there"
        )
    return plan


def _refuse_names(query: Query, frame: DataFrame) -> None:
    """Reject result columns whose names sinks use for match ids and late events."""
    reject_column(query, "match_id", "sinks identify matches by match_id")
    reject_column(query, LATE_COLUMN, "streams deliver late events in a column of that name")
    if frame.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
        reject_case_conflicts(query, ("match_id", "start", "end", LATE_COLUMN))


def is_ensue_metric(name: str) -> bool:
    return name == METRIC_NAME or name.startswith(f"{METRIC_NAME}_")


def select_events(watched: WatermarkedFrame, chain: PipelinePlan, cut: float | None = None) -> DataFrame:
    """Select the input of a chain, with events that are too far ahead, advance the watermark, or
    show that the history and the stream overlap."""
    also = watched.must_keep()
    if cut is not None:
        shape = chain.source.shape
        overlaps = is_before(watched.frame, shape.schema.end, shape, chain.clock.following(cut))
        also = also | sql.coalesce(overlaps, sql.lit(False))
    return select_input(watched.frame, chain, also, watched.ahead)


def use_rocksdb(session: SparkSession) -> None:
    """Use RocksDB, the only state store of transformWithState, instead of Spark's default."""
    name = "spark.sql.streaming.stateStore.providerClass"
    if "HDFSBackedStateStoreProvider" in (session.conf.get(name) or ""):
        session.conf.set(name, _ROCKSDB)
        changes = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
        if session.conf.get(changes, None) is None:
            session.conf.set(changes, "true")


# ------------------------------------------------------------------------------ in the workers


@dataclass(frozen=True)
class PackEvents:
    """Packs the events of a task by stage and key group, and sends the event time to every key
    group of the first stage, so that all of them advance."""

    chain: PipelinePlan
    bad_events: str
    cut: float | None = None  # the end of a history, to detect a gap

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chain, task = self.chain, get_partition_id()
        arrivals = read_task_input(batches, chain, self.bad_events)
        packed, version = self._pack(arrivals.events, task)
        clock = StreamClock(arrivals.newest_ms, None, version)
        rows = [
            _row(key, ControlMessage(0, key_group, Control.CLOCK, clock.pack()), task)
            for key_group, key in enumerate(get_stage_keys(chain, 0))
        ]
        if self.cut is not None:
            rows[0]["blob"] = replace(clock, oldest=arrivals.oldest).pack()
        rows[0] |= {"dropped": arrivals.dropped, "ahead": arrivals.ahead}
        rows += _route(chain, -1, packed, task)
        if chain.grouped_by == "key_group":
            rows = [row | {"key_group": row["through"]} for row in rows]
        yield pa.RecordBatch.from_pylist(rows, schema=_FLOW)
        freeze_loaded_code()

    def _pack(self, events: pa.Table, task: int) -> tuple[Iterator[PackedTable], SubscriptionVersion | None]:
        """Pack the events by key group, with the version of the subscriptions."""
        key_groups = events.column(KEY_GROUP).to_numpy()
        events = events.drop_columns([KEY_GROUP])
        if self.chain.split_by_spark:
            return pack_events(self.chain, events, key_groups=key_groups), None
        batch = get_micro_batch()
        numbers = np.full(events.num_rows, 0 if batch is None else batch.number)
        rows = np.arange(events.num_rows) + (task << _TASK_BITS)
        arriving = events.append_column(BATCH, pa.array(numbers))
        arriving = arriving.append_column(ROW, pa.array(rows))
        if (stage := self.chain.spreads) is None:
            return pack_events(self.chain, arriving), None
        if batch is None:
            raise build_micro_batch_error()
        spread = stage.spread(events, self.chain.count_key_groups(0), batch)
        return pack_routed_events(self.chain, arriving, spread), spread.version


@dataclass(frozen=True)
class PackSteps:
    """Packs the steps of a sender, which decides order, watermark and version of its events."""

    chain: PipelinePlan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        steps = (step for batch in batches for step in batch.to_pylist())
        messages = (message for step in steps for message in self._pack(step["clock"], step["events"]))
        yield pa.RecordBatch.from_pylist(list(_route(self.chain, -1, messages, get_partition_id())), schema=_FLOW)
        freeze_loaded_code()

    def _pack(self, clock: str, packed: bytes) -> Iterator[Message]:
        """Pack a step: its clock for every key group, and its events for those that need them."""
        step, events = StreamClock.merge([clock.encode()]), deserialize_table(packed)
        key_groups, rows = self.chain.count_key_groups(0), np.arange(events.num_rows)
        for key_group in range(key_groups):
            yield ControlMessage(0, key_group, Control.CLOCK, clock.encode())
        if self.chain.spreads is not None and len(rows):
            spread = self.chain.spreads.spread(events, key_groups, step.version)
            arriving = events.append_column(BATCH, pa.array(np.full(len(rows), step.position)))
            yield from pack_routed_events(self.chain, arriving.append_column(ROW, pa.array(rows)), spread)


class StageProcessor(StatefulProcessor):
    """A key group of a stage: processes its input, and its timers when the watermark passes them.
    Input of later stages is forwarded."""

    def __init__(self, chain: PipelinePlan, number: int, delay_ms: int | None, cut: float | None = None) -> None:
        self.chain = chain
        self.number = number
        self.delay_ms = delay_ms  # of the watermark, if known
        self.cut = cut  # the end of a history that must have no gap after it

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        silence_init_worker()

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.store = KeyGroupStore(handle)

    # Spark prescribes these names and arguments.

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        ordered = sorted(rows, key=lambda row: (row.sender, row.place))
        own = [row for row in ordered if row.stage == self.number]
        keys = get_stage_keys(self.chain, self.number + 1)
        for row in ordered:
            if row.stage != self.number:
                yield Row(**(row.asDict() | {"through": keys[row.key_group % len(keys)]}))
        if not own:
            return
        steps = read_steps((row.control, bytes(row.blob)) for row in own)
        first = key[0] == 0 and any(row.control == Control.CLOCK for row in own)
        if first and self.number + 1 < len(self.chain.stages):
            time = StreamClock(steps[0].clock.newest_ms).pack()
            for key_group, through in enumerate(keys):
                yield Row(**_row(through, ControlMessage(self.number + 1, key_group, Control.CLOCK, time), 0))
        counts = {name: sum(row[name] or 0 for row in own) for name in ("dropped", "ahead")}
        yield from self._run(key[0], timerValues, steps, **counts)

    def handleInitialState(  # noqa: N802
        self,
        key: Any,  # noqa: ARG002
        initialState: Any,  # noqa: N803
        timerValues: Any,  # noqa: ARG002, N803
    ) -> None:
        row = initialState
        part, data = (row.part, row.parts), bytes(row.data)
        import_part(self.store, self.chain, self.number, part, data, row.timer)
        if row.part == 0 and row.timer is not None:
            self.handle.registerTimer(row.timer)

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        yield from self._run(key[0], timerValues, [StepInput(StreamClock(), ())])

    def close(self) -> None:
        freeze_loaded_code()

    def _run(
        self, key_group: int, times: Any, steps: Sequence[StepInput], *, dropped: int = 0, ahead: int = 0
    ) -> Iterator[Row]:
        watermark_ms = times.getCurrentWatermarkInMs()
        clock = steps[0].clock
        checks = self.cut is not None and self.number == 0 and key_group == 0
        place = 0
        if self.chain.spreads is not None and key_group:
            place = get_stage_keys(self.chain, self.number).index(key_group)
        outcome = run_task(
            self.store, self.chain, self.number, watermark_ms, steps[0].blobs, clock.watermark_ms(self.delay_ms),
            get_task_cache(), clock, steps=steps if clock.position else (), require_no_gap=checks, place=place,
        )  # fmt: skip
        if outcome.timer != outcome.timer_before:
            if outcome.timer_before is not None:
                self.handle.deleteTimer(outcome.timer_before)
            if outcome.timer is not None:
                self.handle.registerTimer(outcome.timer)
        for row in _route(self.chain, self.number, outcome.sent, key_group):
            yield Row(**row)
        row = build_counter_row(self.chain, key_group, outcome.counters)
        yield Row(**(row | {"dropped": dropped, "ahead": ahead}))


def get_task_cache() -> TaskCache:
    """Return the task cache in a local folder that Spark removes when the application ends."""
    return TaskCache(Path(SparkFiles.getRootDirectory()) / "ensue-tasks")


def _route(chain: PipelinePlan, number: int, sent: Iterable[Message], sender: int) -> Iterator[dict[str, Any]]:
    """Convert messages to rows, routed to the key groups of the next stage."""
    keys = get_stage_keys(chain, number + 1)
    for place, packed in enumerate(sent):
        yield _row(keys[packed.key_group % len(keys)], packed, sender) | {"place": place}


def build_counter_row(chain: PipelinePlan, key_group: int, counters: TaskCounters) -> dict[str, Any]:
    mark = ControlMessage(len(chain.stages), key_group, Control.COUNTERS)
    return _row(0, mark, key_group) | asdict(counters)


def _row(through: int, message: Message, sender: int) -> dict[str, Any]:
    return dict.fromkeys(_FLOW.names) | build_message_row(through, message) | {"sender": sender, "place": 0}
