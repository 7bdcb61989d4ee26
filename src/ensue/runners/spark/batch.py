"""Matching on Spark DataFrames: events are brought together by key, stage by stage."""

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql
from pyspark.sql.types import StructType

from ensue.brief_errors import brief_task
from ensue.columns.rows import no_rows
from ensue.columns.stream import in_order, with_time
from ensue.runners.spark import statistics
from ensue.runners.spark.archives import Apart, SideBySide, refuse_large
from ensue.runners.spark.frames import (
    key_columns,
    read_frame,
    relevant,
    relevant_to,
    warn_of_whole_streams,
    without_time,
)
from ensue.runners.spark.lanes import lane_count, lane_keys, spark_hash
from ensue.runners.spark.matches import OUTPUT_ROWS, Frames, SeveralMatches
from ensue.runners.spark.python_workers import freeze_loaded_code
from ensue.runners.spark.types import spark_schema
from ensue.runners.spark.whole_results import finished_frame
from ensue.workload.arguments import Arguments
from ensue.workload.chain import Chain
from ensue.workload.foresight import warn_of_explosion
from ensue.workload.lanes.lane import arriving
from ensue.workload.lanes.packing import (
    Packed,
    packed_events,
    packed_outputs,
    packed_spread,
    table_of,
)
from ensue.workload.source import Source
from ensue.workload.stage import ARRIVAL, Fed, Orders
from ensue.workload.workload import Workload

STREAMING = False
measured = statistics.measured
STAGED = pa.schema(
    {
        "through": pa.int32(),  # the lane of the next stage that it goes to or passes
        "stage": pa.int32(),  # that it is for
        "lane": pa.int32(),
        "number": pa.int32(),
        "blob": pa.binary(),
    }
)
CHUNK = 200_000  # events that a task sends to lanes at a time
_COLUMNS = spark_schema(STAGED)


def read(
    events: "DataFrame | Mapping[str, DataFrame]", given: Arguments
) -> tuple[DataFrame, Source]:
    """The events as one DataFrame, and what is known of them without computing it."""
    given.require_table()
    frame, shape, given = read_frame(events, given)
    return frame, Source.of(shape, given)


def lanes(frame: DataFrame, given: Arguments) -> int:  # noqa: ARG001
    """How many lanes a stage has: as many as Spark shuffles to."""
    return lane_count(frame, None)


def run(workload: Workload, frame: DataFrame, given: Arguments) -> Frames:
    """All matches, as DataFrames by output that are computed when they are asked for."""
    warn_of_whole_streams(workload)
    for work in workload.works:
        for prepared in work.expected:
            warn_of_explosion(prepared)
    (chain, *others), (output, *further) = workload.chains, workload.outputs
    if not others and not further and len(chain.stages) == 1 and chain.spreads is None:
        schema = spark_schema(output.schema)
        found = _in_tasks(frame, chain, given, Only, schema)
        finished = output.finished
        return {output.name: found if finished is None else finished_frame(found, finished)}
    packed = reduce(DataFrame.union, (_staged(frame, one, given) for one in workload.chains))
    return SeveralMatches.of(workload, packed)


def _staged(frame: DataFrame, chain: Chain, given: Arguments) -> DataFrame:
    """What the stages of a chain deliver, packed."""
    if chain.spreads is not None:
        events = _relevant(frame, chain, given)
        staged = events.mapInArrow(SpreadOut(chain, given.bad_events), _COLUMNS)
    else:
        staged = _in_tasks(frame, chain, given, First, _COLUMNS)
    for number in range(0 if chain.spreads is not None else 1, len(chain.stages)):
        by_lane = staged.repartition(chain.lanes_of(number), "through")
        staged = by_lane.mapInArrow(Next(chain, number), _COLUMNS)
    return staged.select(sql.col("number").alias("query"), sql.col("blob").alias("matches"))


def _in_tasks(
    frame: DataFrame,
    chain: Chain,
    given: Arguments,
    first: "type[Only | First]",
    schema: StructType,
) -> DataFrame:
    """What the first stage gives; rows of DataFrames that it looks up are beside its events."""
    refuse_large(chain)
    events, both = _relevant(frame, chain, given), SideBySide.of(chain)
    if both is None:
        return _by_first_key(events, chain).mapInArrow(first(chain, given.bad_events), schema)
    apart = Apart.of(both, lambda emptied: first(emptied, given.bad_events))
    return both.brought_together(events).mapInArrow(apart, schema)


def _relevant(frame: DataFrame, chain: Chain, given: Arguments) -> DataFrame:
    """The events that can matter, with a number by which they came.

    Unless they are to be dropped also events of their types without usable time: none is left out
    unnoticed.
    """
    kept = relevant(chain)
    if kept is not None:
        bad = without_time(chain.source.shape, chain.types)
        frame = frame.filter(kept | bad if given.bad_events == "raise" else kept)
    return frame.withColumn(ARRIVAL, sql.monotonically_increasing_id())


def _by_first_key(frame: DataFrame, chain: Chain) -> DataFrame:
    """Events, those of one partition of the first stage in one task; those of later stages are
    anywhere."""
    columns = key_columns(chain, 0)
    mine = relevant_to(chain.stages[0].reads, chain.source)
    if len(chain.stages) == 1 or mine is None:
        return frame.repartition(*columns) if columns else frame.repartition(1)
    key = sql.xxhash64(*columns) if columns else sql.lit(0).cast("long")
    return frame.repartition(sql.when(mine, key).otherwise(sql.col(ARRIVAL)))


# ------------------------------------------------------------------------------ in the workers


@dataclass(frozen=True)
class Only:
    """The only stage of a chain with one output: its matches come out as rows."""

    chain: Chain
    bad_events: str

    @brief_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        events = _arrived(batches, self.chain)
        if events is None:
            return
        stage, (output,) = self.chain.stages[0], self.chain.outputs
        ordered = _in_order(events, self.chain, 0, self.bad_events)
        for _, matches in stage.delivered(stage.matched(Fed(ordered, {}, (ARRIVAL,)))):
            given = output.given(matches).cast(output.schema)
            yield from given.to_batches(max_chunksize=OUTPUT_ROWS)
        freeze_loaded_code()


@dataclass(frozen=True)
class First:
    """The first stage: events come in."""

    chain: Chain
    bad_events: str

    @brief_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chain = self.chain
        events = _arrived(batches, chain)
        if events is None:
            return
        shape = chain.source.shape
        events, dropped = with_time(events, shape, self.bad_events, chain.types)
        if dropped:
            warnings.warn(f"{dropped} events without usable time are left out", stacklevel=2)
        yield from staged_rows(chain, 0, packed_events(chain, events, 1))
        if len(chain.stages) > 1:  # else no others are here
            events = events.filter(pa.array(chain.stages[0].reads.of(events, shape)))
        if events.num_rows:
            yield from staged_rows(chain, 0, _matched(chain, 0, events, {}))
        freeze_loaded_code()


@dataclass(frozen=True)
class SpreadOut:
    """Before a first stage that says itself where events go: they are sent to its lanes."""

    chain: Chain
    bad_events: str

    @brief_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chain, stage, dropped = self.chain, self.chain.spreads, 0
        assert stage is not None
        for several in _chunks(batches):
            events, shape = _arrived(several, chain), chain.source.shape
            if events is None:
                continue
            events, bad = with_time(events, shape, self.bad_events, chain.types)
            dropped += bad
            wanted = events.filter(pa.array(chain.stages[0].reads.of(events, shape)))
            spread = stage.spread(wanted.drop_columns([ARRIVAL]), chain.lanes_of(0), None)
            yield from staged_rows(chain, -1, packed_spread(chain, wanted, spread))
        if dropped:
            warnings.warn(f"{dropped} events without usable time are left out", stacklevel=2)


@dataclass(frozen=True)
class Next:
    """A later stage: what earlier ones packed comes in, for it or for those behind it."""

    chain: Chain
    number: int

    @brief_task
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        blobs: list[bytes] = []
        for batch in batches:
            passing = []
            for row in batch.to_pylist():
                if row["stage"] == self.number:
                    blobs.append(row["blob"])
                else:
                    row.pop("through")
                    passing.append(Packed(**row))
            yield from staged_rows(self.chain, self.number, passing)
        # what no event has to do with may be found as well, where a lane has work of its own
        if blobs or (self.number == 0 and self.chain.spreads is not None):
            yield from staged_rows(self.chain, self.number, taken(self.chain, self.number, blobs))
        freeze_loaded_code()


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """Batches, so many together that it is worth to send something to every lane."""
    kept: list[pa.RecordBatch] = []
    for batch in batches:
        kept.append(batch)
        if sum(one.num_rows for one in kept) >= CHUNK:
            yield kept
            kept = []
    yield kept


def _arrived(batches: Iterable[pa.RecordBatch], chain: Chain) -> pa.Table | None:
    kept = [batch for batch in batches if batch.num_rows]
    schema = chain.source.arriving([ARRIVAL])
    return pa.Table.from_batches(kept).cast(schema) if kept else None


def _matched(
    chain: Chain, number: int, events: pa.Table, made: dict[str, pa.Table]
) -> Iterator[Packed]:
    """What a stage gives for the events of some lanes."""
    given = Fed(_in_order(events, chain, number), made, (ARRIVAL,))
    if chain.spreads is not None:
        lanes = chain.lanes_of(number)
        found = chain.spreads.lane_matched(given, _lane_here(lanes), lanes)
    else:
        found = chain.stages[number].matched(given)
    return packed_outputs(chain, number, found)


def _in_order(events: pa.Table, chain: Chain, number: int, bad_events: str = "raise") -> pa.Table:
    """Events in the order of the stream, unless a stage puts them into another one."""
    if not isinstance(chain.stages[number], Orders):
        return in_order(events, chain.source.sortable([ARRIVAL]), bad_events)
    usable, dropped = with_time(events, chain.source.shape, bad_events)
    if dropped:
        warnings.warn(f"{dropped} events without usable time are left out", stacklevel=2)
    return usable


def _lane_here(lanes: int) -> int:
    """The lane that this task is: Spark puts each into a partition of its own."""
    context = TaskContext.get()
    partition = 0 if context is None else context.partitionId()
    hashes = [spark_hash(key) % lanes for key in lane_keys(lanes)]
    return hashes.index(partition)


def taken(chain: Chain, number: int, blobs: Iterable[bytes]) -> Iterator[Packed]:
    """The same for events that were packed for the stage."""
    schema = arriving(chain, number, (ARRIVAL,))
    raw: list[pa.Table] = [no_rows(schema)]
    made: dict[str, list[pa.Table]] = {}
    for blob in blobs:
        name, table = table_of(blob)
        if name is None:
            raw.append(table.cast(schema))
        else:
            made.setdefault(name, []).append(table)
    takes = chain.stages[number].takes
    whole = {n: pa.concat_tables(t).cast(takes[n]) for n, t in made.items()}
    return _matched(chain, number, pa.concat_tables(raw), whole)


def staged_rows(chain: Chain, number: int, packed: Iterable[Packed]) -> Iterator[pa.RecordBatch]:
    """Packed tables as rows, with the lane of the next stage that each goes through."""
    following = number + 1
    keys = lane_keys(chain.lanes_of(following)) if following < len(chain.stages) else [0]
    context = TaskContext.get()
    through = keys[(0 if context is None else context.partitionId()) % len(keys)]
    for one in packed:
        to = keys[one.lane] if one.stage == following else through
        values = [[to], [one.stage], [one.lane], [one.number], [one.blob]]
        yield pa.record_batch(values, schema=STAGED)
