"""Matching on batch DataFrames: events are shuffled by key, stage by stage."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from ensue.backends.spark import frames
from ensue.backends.spark.dataframe_archives import CoPartitioning, SplitArchives, reject_large_tables
from ensue.backends.spark.frames import (
    build_relevance_filter,
    build_stage_filter,
    is_without_time,
    key_columns,
    read_frame,
    spark_schema,
    warn_of_whole_streams,
)
from ensue.backends.spark.match_frames import OUTPUT_ROWS, Frames, SeveralMatches, build_result_frame
from ensue.backends.spark.session import freeze_loaded_code
from ensue.backends.spark.state_store import (
    MESSAGE_COLUMNS,
    build_message_row,
    compute_state_keys,
    get_key_group_count,
    get_partition_id,
    get_stage_keys,
    read_message,
    select_results,
    spark_hash,
)
from ensue.brief_tracebacks import shorten_task_tracebacks
from ensue.runtime.event_pruning import warn_if_expensive
from ensue.runtime.pipeline import PipelinePlan, run_to_end
from ensue.runtime.source_schema import SourceOptions, SourceSchema
from ensue.runtime.stage import ARRIVAL, SortingStage, StageInput
from ensue.runtime.tasks.task import get_input_schema
from ensue.runtime.tasks.wire_format import (
    Message,
    PackedTable,
    pack_events,
    pack_outputs,
    pack_routed_events,
    unpack_table,
)
from ensue.runtime.workload import Workload
from ensue.vector.event_table import drop_bad_times, sort_events
from ensue.vector.take import create_empty_table

STREAMING = False
measure = frames.measure
STAGE_SCHEMA = pa.schema(MESSAGE_COLUMNS)
CHUNK = 200_000  # events that a task sends to key groups at a time
_COLUMNS = spark_schema(STAGE_SCHEMA)


def read(events: "DataFrame | Mapping[str, DataFrame]", options: SourceOptions) -> tuple[DataFrame, SourceSchema]:
    """Read the events into one DataFrame, with their source schema, without running a job."""
    options.require_table()
    frame, shape, options = read_frame(events, options)
    return frame, SourceSchema.from_options(shape, options)


def key_groups(frame: DataFrame, options: SourceOptions) -> int:  # noqa: ARG001
    """Return the number of key groups: Spark's shuffle partitions."""
    return get_key_group_count(frame, None)


def run(workload: Workload, frame: DataFrame, options: SourceOptions) -> Frames:
    """Build a lazy DataFrame of matches for each output."""
    warn_of_whole_streams(workload)
    for work in workload.works:
        for prepared in work.expected:
            warn_if_expensive(prepared)
    (chain, *others), (output, *further) = workload.chains, workload.outputs
    if not others and not further and len(chain.stages) == 1 and chain.spreads is None:
        schema = spark_schema(output.schema)
        matches = _run_first_stage(frame, chain, options, OnlyStage, schema)
        finished = output.finished
        return {output.name: matches if finished is None else build_result_frame(matches, finished)}
    packed = reduce(DataFrame.union, (_run_chain(frame, c, options) for c in workload.chains))
    return SeveralMatches.from_packed(workload, packed)


def _run_chain(frame: DataFrame, chain: PipelinePlan, options: SourceOptions) -> DataFrame:
    """Run the stages of a chain; return their packed output."""
    if chain.spreads is not None:
        events = _relevant(frame, chain, options)
        staged = events.mapInArrow(RouteEvents(chain, options.stream.bad_events), _COLUMNS)
    else:
        staged = _run_first_stage(frame, chain, options, FirstStage, _COLUMNS)
    for number in range(0 if chain.spreads is not None else 1, len(chain.stages)):
        by_key_group = staged.repartition(chain.count_key_groups(number), "through")
        staged = by_key_group.mapInArrow(LaterStage(chain, number), _COLUMNS)
    return select_results(staged)


def _run_first_stage(
    frame: DataFrame,
    chain: PipelinePlan,
    options: SourceOptions,
    first: "type[OnlyStage | FirstStage]",
    schema: StructType,
) -> DataFrame:
    """Run the first stage, with the rows of DataFrame archives beside its events."""
    reject_large_tables(chain)
    events, both = _relevant(frame, chain, options), CoPartitioning.from_pipeline(chain)
    if both is None:
        return _by_first_key(events, chain).mapInArrow(first(chain, options.stream.bad_events), schema)
    apart = SplitArchives.split(both, lambda emptied: first(emptied, options.stream.bad_events))
    return both.shuffle(events).mapInArrow(apart, schema)


def _relevant(frame: DataFrame, chain: PipelinePlan, options: SourceOptions) -> DataFrame:
    """Select the relevant events and number them.

    With bad_events="raise" events of these types without a usable time are kept for the error.
    """
    condition = build_relevance_filter(chain)
    if condition is not None:
        bad = is_without_time(chain.source.shape, chain.types)
        frame = frame.filter(condition | bad if options.stream.bad_events == "raise" else condition)
    return frame.withColumn(ARRIVAL, sql.monotonically_increasing_id())


def _by_first_key(frame: DataFrame, chain: PipelinePlan) -> DataFrame:
    """Shuffle the events of the first stage by key; events of later stages go to any task."""
    columns = key_columns(chain)
    of_first_stage = build_stage_filter(chain.stages[0].reads, chain.source)
    if len(chain.stages) == 1 or of_first_stage is None:
        return frame.repartition(*columns) if columns else frame.repartition(1)
    key = sql.xxhash64(*columns) if columns else sql.lit(0).cast("long")
    return frame.repartition(sql.when(of_first_stage, key).otherwise(sql.col(ARRIVAL)))


# ------------------------------------------------------------------------------ in the workers


@dataclass(frozen=True)
class OnlyStage:
    """Runs the only stage of a chain with one output, and returns its matches as rows."""

    chain: PipelinePlan
    bad_events: str

    @shorten_task_tracebacks
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        events = _read_batches(batches, self.chain)
        if events is None:
            return
        stage, (output,) = self.chain.stages[0], self.chain.outputs
        ordered = _in_order(events, self.chain, 0, self.bad_events)
        for _, matches in stage.iterate_outputs(run_to_end(stage.table_matcher(), StageInput(ordered, {}, (ARRIVAL,)))):
            table = output.convert(matches).cast(output.schema)
            yield from table.to_batches(max_chunksize=OUTPUT_ROWS)
        freeze_loaded_code()


@dataclass(frozen=True)
class FirstStage:
    """Runs the first stage on events, and packs its results."""

    chain: PipelinePlan
    bad_events: str

    @shorten_task_tracebacks
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chain = self.chain
        events = _read_batches(batches, chain)
        if events is None:
            return
        shape = chain.source.shape
        events, dropped = drop_bad_times(events, shape, self.bad_events, chain.types)
        _warn_of_dropped(dropped)
        yield from pack_stage_rows(chain, 0, pack_events(chain, events, 1))
        if len(chain.stages) > 1:  # otherwise all events are for this stage
            events = events.filter(pa.array(chain.stages[0].reads.compute_mask(events, shape)))
        if events.num_rows:
            yield from pack_stage_rows(chain, 0, _match_stage(chain, 0, events, {}))
        freeze_loaded_code()


@dataclass(frozen=True)
class RouteEvents:
    """Sends events to the key groups of a first stage that routes them itself."""

    chain: PipelinePlan
    bad_events: str

    @shorten_task_tracebacks
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chain, stage, dropped = self.chain, self.chain.spreads, 0
        assert stage is not None
        for chunk in chunk_batches(batches, CHUNK):
            events, shape = _read_batches(chunk, chain), chain.source.shape
            if events is None:
                continue
            events, bad = drop_bad_times(events, shape, self.bad_events, chain.types)
            dropped += bad
            routed = events.filter(pa.array(chain.stages[0].reads.compute_mask(events, shape)))
            spread = stage.spread(routed.drop_columns([ARRIVAL]), chain.count_key_groups(0), None)
            yield from pack_stage_rows(chain, -1, pack_routed_events(chain, routed, spread))
        _warn_of_dropped(dropped)


@dataclass(frozen=True)
class LaterStage:
    """Runs a later stage on packed results, and forwards those for even later stages."""

    chain: PipelinePlan
    number: int

    @shorten_task_tracebacks
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blobs: list[bytes] = []
        for batch in batches:
            passing = []
            for row in batch.to_pylist():
                if row["stage"] == self.number:
                    blobs.append(row["blob"])
                else:
                    passing.append(read_message(row))
            yield from pack_stage_rows(self.chain, self.number, passing)
        # a key group of subscriptions may have matches without events
        if blobs or (self.number == 0 and self.chain.spreads is not None):
            yield from pack_stage_rows(self.chain, self.number, match_packed(self.chain, self.number, blobs))
        freeze_loaded_code()


def chunk_batches(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Group batches into chunks of at least `rows` rows, except for the last one."""
    chunk: list[pa.RecordBatch] = []
    for batch in batches:
        chunk.append(batch)
        if sum(part.num_rows for part in chunk) >= rows:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _read_batches(batches: Iterable[pa.RecordBatch], chain: PipelinePlan) -> pa.Table | None:
    non_empty = [batch for batch in batches if batch.num_rows]
    schema = chain.source.get_arrival_schema([ARRIVAL])
    return pa.Table.from_batches(non_empty).cast(schema) if non_empty else None


def _match_stage(
    chain: PipelinePlan, number: int, events: pa.Table, layers: dict[str, pa.Table]
) -> Iterator[PackedTable]:
    batch, key_group, key_groups = StageInput(_in_order(events, chain, number), layers, (ARRIVAL,)), 0, 1
    if chain.spreads is not None:
        key_groups = chain.count_key_groups(number)
        # each key group has its own partition
        partitions = [spark_hash(key) % key_groups for key in compute_state_keys(key_groups)]
        key_group = partitions.index(get_partition_id())
    matcher = chain.stages[number].table_matcher(key_group, key_groups)
    return pack_outputs(chain, number, run_to_end(matcher, batch))


def _in_order(events: pa.Table, chain: PipelinePlan, number: int, bad_events: str = "raise") -> pa.Table:
    """Sort events in stream order, unless the stage sorts them itself."""
    if not isinstance(chain.stages[number], SortingStage):
        return sort_events(events, chain.source.sortable([ARRIVAL]), bad_events)
    usable, dropped = drop_bad_times(events, chain.source.shape, bad_events)
    _warn_of_dropped(dropped)
    return usable


def _warn_of_dropped(dropped: int) -> None:
    if dropped:
        warnings.warn(f"{dropped} events without usable time are left out", stacklevel=3)


def match_packed(chain: PipelinePlan, number: int, blobs: Iterable[bytes]) -> Iterator[PackedTable]:
    schema = get_input_schema(chain, number, (ARRIVAL,))
    events: list[pa.Table] = [create_empty_table(schema)]
    pieces: dict[str, list[pa.Table]] = {}
    for blob in blobs:
        name, table = unpack_table(blob)
        if name is None:
            events.append(table.cast(schema))
        else:
            pieces.setdefault(name, []).append(table)
    takes = chain.stages[number].takes
    layers = {n: pa.concat_tables(t).cast(takes[n]) for n, t in pieces.items()}
    return _match_stage(chain, number, pa.concat_tables(events), layers)


def pack_stage_rows(chain: PipelinePlan, number: int, messages: Iterable[Message]) -> Iterator[pa.RecordBatch]:
    """Convert packed tables to rows, routed to the key groups of the next stage."""
    keys = get_stage_keys(chain, number + 1)
    through = keys[get_partition_id() % len(keys)]
    for message in messages:
        target = keys[message.key_group] if message.stage == number + 1 else through
        yield pa.RecordBatch.from_pylist([build_message_row(target, message)], schema=STAGE_SCHEMA)
