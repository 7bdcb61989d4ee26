"""DataFrames of events: reading, filters on relevant rows, key columns and statistics."""

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ensue.backends.spark.arrow_types import arrow_schema, get_session_zone, spark_schema
from ensue.backends.spark.event_sources import parse_time_columns
from ensue.backends.spark.session import collect
from ensue.engine.sampling import EventCounts, sample_statistics
from ensue.errors import EventError
from ensue.functions.datetime import is_utc
from ensue.ir.hierarchy import get_pattern_types
from ensue.ir.query import Query
from ensue.planner.statistics import Statistics
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.runtime.pipeline import Pipeline
from ensue.runtime.source_schema import SourceOptions, SourceSchema
from ensue.runtime.stage import InputFilter
from ensue.runtime.workload import Workload
from ensue.schema import ValueKind
from ensue.traceback_filter import find_stacklevel
from ensue.vector.arrow_types import get_field_kinds
from ensue.vector.event_table import (
    PLACE,
    TYPE,
    Columns,
    StreamSchema,
    check_reserved_names,
    create_schema,
    create_union_schema,
    drop_bad_times,
    find_type_conflicts,
)


class WholeStreamWarning(UserWarning):
    """A query without a key runs in a single task."""


def is_streaming(events: "DataFrame | Mapping[str, DataFrame]") -> bool:
    """Whether the events are a stream; mixing streams and batches raises EventError."""
    if not isinstance(events, Mapping):
        return events.isStreaming
    streaming = {str(name) for name, frame in events.items() if frame.isStreaming}
    if streaming and len(streaming) < len(events):
        raise EventError(
            f"streaming and batch DataFrames cannot be combined: {', '.join(sorted(streaming))} "
            "is a stream\n  hint: read all of them with spark.readStream"
        )
    return bool(streaming)


def read_dataframe(
    events: "DataFrame | Mapping[str, DataFrame]",
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
    drop: bool = False,
) -> tuple[DataFrame, StreamSchema]:
    """Read the events into one DataFrame, with its shape, without running a job.

    Times that are text are parsed; with `drop` an unreadable one becomes NULL instead of an error.
    """
    for frame in events.values() if isinstance(events, Mapping) else (events,):
        check_reserved_names(frame.columns)
    events = parse_time_columns(events, time, drop=drop)
    if not isinstance(events, Mapping):
        shape = create_schema(arrow_schema(events.schema), time=time, type=type, order=order)
        return events, _in_session(shape, events)
    if type is not None:
        raise EventError("type= is for a single DataFrame; in a dict the keys are the types")
    schemas = {str(name): arrow_schema(frame.schema) for name, frame in events.items()}
    for schema in schemas.values():
        create_schema(schema, time=time, type=None, order=order)
    clash = find_type_conflicts(list(schemas.values()))
    by_type: dict[str, Columns] = {}
    union: DataFrame | None = None
    for name, frame in events.items():
        columns = [(f, f"{f}@{name}" if f in clash else f) for f in frame.columns]
        by_type[str(name)] = columns
        marked = frame.toDF(*[c for _, c in columns]).withColumn(TYPE, sql.lit(str(name)))
        union = marked if union is None else union.unionByName(marked, allowMissingColumns=True)
    assert union is not None
    shape = create_union_schema(arrow_schema(union.schema), by_type, time=time, order=order)
    return union, _in_session(shape, union)


def _in_session(shape: StreamSchema, frame: DataFrame) -> StreamSchema:
    """Add the session's time zone to the shape of events with zoned times."""
    if not shape.schema.zones:
        return shape
    zone = get_session_zone(frame.sparkSession)
    session = "UTC" if is_utc(zone) else zone  # a checkpoint compares zones by name
    return replace(shape, schema=replace(shape.schema, session=session))


def read_frame(
    events: "DataFrame | Mapping[str, DataFrame]", options: SourceOptions
) -> tuple[DataFrame, StreamSchema, SourceOptions]:
    """Read the events of a call into one DataFrame, with its shape.

    Queries with their own ORDER BY and PARTITION BY replace the time and order of the call.
    """
    if options.arranging is None:
        time, type, order = options.time, options.type, options.order
        drop = options.stream.drops_bad_events
        return *read_dataframe(events, time=time, type=type, order=order, drop=drop), options
    if isinstance(events, Mapping):
        raise EventError(
            "MATCH_RECOGNIZE reads one table, and these are several\n"
            "  hint: pass one DataFrame, with a column for the event type"
        )
    check_reserved_names(events.columns)
    arrow = arrow_schema(events.schema)
    arranged = options.arranging(arrow, get_session_zone(events.sparkSession))
    if arranged.computed:
        events = events.mapInArrow(arranged.in_batches, spark_schema(arranged.schema(arrow)))
    if arranged.numbered:
        events = events.withColumn(PLACE, sql.monotonically_increasing_id())
    options = replace(options, time=arranged.time, order=arranged.order, arranging=None)
    known = arrow_schema(events.schema)
    shape = create_schema(known, time=options.time, type=options.type, order=options.order)
    return events, _in_session(shape, events), options


def is_without_time(shape: StreamSchema, types: Collection[str] | None = None) -> Column:
    """Return the condition for events without a usable time, of these `types` or of no type."""
    schema = shape.schema
    start, end = (sql.col(quote_name(name)) for name in (schema.start, schema.end))
    bad = start.isNull() | end.isNull()
    if schema.time_kind is ValueKind.FLOAT:
        for time in (start, end):  # infinite times are unusable in a stream
            bad = bad | sql.isnan(time) | (sql.abs(time) == sql.lit(math.inf))
    if schema.intervals:
        bad = bad | (end < start)
    if types is None or schema.type_column is None:
        return bad
    type = sql.col(quote_name(schema.type_column))
    return bad & (type.isin(sorted(types)) | type.isNull())


def build_relevance_filter(chain: Pipeline) -> Column | None:
    """Return the condition for events that a stage of a chain reads; None: all."""
    condition: Column | None = None
    for stage in chain.stages:
        of_stage = build_stage_filter(stage.reads, chain.source)
        if of_stage is None:
            return None
        condition = of_stage if condition is None else condition | of_stage
    return condition


def build_stage_filter(reads: InputFilter, source: SourceSchema) -> Column | None:
    """Return the condition for events that a stage reads, by type and non-NULL key; None: all."""
    if not reads.any:
        return sql.lit(False)
    condition, column = None, source.shape.schema.type_column
    if reads.types is not None and column is not None:
        condition = sql.col(quote_name(column)).isin(sorted(reads.types))
    for name in () if reads.nulls else reads.key:
        not_null = sql.col(quote_name(name)).isNotNull()  # NULL equals nothing
        condition = not_null if condition is None else condition & not_null
    return condition


def key_columns(chain: Pipeline, number: int) -> list[Column]:
    """Return the key columns of a stage, ready for hashing."""
    kinds, key = get_field_kinds(chain.source.arrow), chain.stages[number].reads.key
    columns = {name: sql.col(quote_name(name)) for name in key}
    zero = sql.lit(0.0)  # -0.0 equals 0.0, so their hashes must be equal
    return [c + zero if kinds[n] is ValueKind.FLOAT else c for n, c in columns.items()]


def build_key_group_column(chain: Pipeline) -> Column:
    """Return the key group of an event in the first stage, if Spark partitions the events."""
    columns = key_columns(chain, 0)
    if not chain.split_by_spark or not columns:
        return sql.lit(0)
    return sql.pmod(sql.xxhash64(*columns), sql.lit(chain.key_groups)).cast("int")


def warn_of_whole_streams(workload: Workload) -> None:
    """Warn of stages that run in a single task."""
    for chain in workload.chains:
        for stage in chain.stages:
            if stage.whole_stream is not None:
                warnings.warn(stage.whole_stream, WholeStreamWarning, stacklevel=find_stacklevel())


def quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# ------------------------------------------------------------------------- statistics

MIN_SAMPLE_SHARE = 0.1  # of the requested sample: fewer rows are not representative


def measure(
    events: "DataFrame | Mapping[str, DataFrame]",
    query: Query,
    options: SourceOptions,
    *,
    sample: int = 10_000,
    seed: int = 0,
) -> Statistics:
    """Measure statistics by a few Spark jobs, with at most `sample` rows on the driver."""
    if is_streaming(events):
        raise EventError(
            "a stream cannot be measured before it runs\n"
            "  hint: measure an archive of it, or a batch DataFrame of the same source"
        )
    frame, shape = read_dataframe(events, time=options.time, type=options.type, order=options.order)
    prepared = compile_query(query, shape)
    frame = frame.filter(~is_without_time(shape))
    counted = _count_events(frame, prepared)
    rows = collect(_sample(frame, prepared, counted.events, sample, seed))
    usable, _ = drop_bad_times(rows, shape, "drop")
    return sample_statistics(prepared, usable, sample=sample, seed=seed, counted=counted)


def _count_events(frame: DataFrame, prepared: CompiledQuery) -> EventCounts:
    schema = prepared.shape.schema
    end = sql.col(quote_name(schema.end)).cast("double")
    kind = sql.lit("") if schema.type_column is None else sql.col(quote_name(schema.type_column))
    by_type = frame.groupBy(kind.cast("string").alias("kind")).agg(sql.count(sql.lit(1)), sql.min(end), sql.max(end))
    rows = [tuple(row) for row in by_type.collect()]
    events = sum(count for _, count, _, _ in rows)
    counts = {name: count for name, count, _, _ in rows}
    names = sorted(get_pattern_types(prepared.plan.query))
    every = schema.type_column is None
    types = {name: events if every else counts.get(name, 0) for name in names}
    first = min((low for _, _, low, _ in rows), default=0.0)
    last = max((high for _, _, _, high in rows), default=0.0)
    keys = _keys(prepared)
    if not keys:
        return EventCounts(events, last - first, types)
    size = sql.col("count").cast("double")
    partitions, total, squares = tuple(
        frame.filter(_all_known(keys))
        .groupBy(*keys)
        .count()
        .agg(sql.count(sql.lit(1)), sql.sum(size), sql.sum(size * size))
        .collect()[0]
    )
    effective = total * total / squares if squares else None
    return EventCounts(events, last - first, types, partitions or None, effective)


def _sample(frame: DataFrame, prepared: CompiledQuery, events: int, size: int, seed: int) -> DataFrame:
    """Sample complete keys if the query has some, else rows; at most `size`."""
    if events <= size:
        return frame
    keys = _keys(prepared)
    if keys:
        parts = max(1, round(events / (2 * size)))
        selected = sql.pmod(sql.xxhash64(*keys, sql.lit(seed)), sql.lit(parts)) == 0
        complete_keys = frame.filter(_all_known(keys) & selected).limit(size)
        if complete_keys.count() >= MIN_SAMPLE_SHARE * size:
            return complete_keys
    return frame.sample(fraction=min(1.0, 1.2 * size / events), seed=seed).limit(size)


def _keys(prepared: CompiledQuery) -> list[Column]:
    return [sql.col(quote_name(e.field_name)) for e in prepared.plan.query.equivalence]


def _all_known(keys: Sequence[Column]) -> Column:
    return reduce(lambda left, right: left & right, (key.isNotNull() for key in keys))
