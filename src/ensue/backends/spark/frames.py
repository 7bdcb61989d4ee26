"""DataFrames of events: types, reading, filters on relevant rows, key columns and statistics."""

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from ensue.backends.dataframe_libs import find_text_times
from ensue.backends.spark.session import collect
from ensue.backends.text_columns import CellTest
from ensue.backends.text_files import warn_text_times
from ensue.engine.sampling import EventCounts, sample_statistics
from ensue.errors import EventError
from ensue.functions.datetime import is_utc
from ensue.ir.hierarchy import get_pattern_types
from ensue.ir.query import Query
from ensue.planner.statistics import Statistics
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.runtime.pipeline import PipelinePlan
from ensue.runtime.source_schema import SourceOptions, SourceSchema
from ensue.runtime.stage import InputFilter
from ensue.runtime.tasks.wire_format import AHEAD, KEY_GROUP, PASSING
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

# ------------------------------------------------------------------------- types of Spark and Arrow

_SIMPLE: list[tuple[type[spark.DataType], pa.DataType]] = [
    (spark.BooleanType, pa.bool_()),
    (spark.ByteType, pa.int8()),
    (spark.ShortType, pa.int16()),
    (spark.IntegerType, pa.int32()),
    (spark.LongType, pa.int64()),
    (spark.FloatType, pa.float32()),
    (spark.DoubleType, pa.float64()),
    (spark.StringType, pa.string()),
    (spark.BinaryType, pa.binary()),
    (spark.DateType, pa.date32()),
    (spark.TimestampType, pa.timestamp("us", "UTC")),
    (spark.TimestampNTZType, pa.timestamp("us")),
    (spark.DayTimeIntervalType, pa.duration("us")),
    (spark.NullType, pa.null()),
]


def to_arrow(kind: spark.DataType) -> pa.DataType:
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.ArrayType):
        return pa.list_(pa.field("element", to_arrow(kind.elementType), kind.containsNull))
    if isinstance(kind, spark.MapType):
        return pa.map_(to_arrow(kind.keyType), to_arrow(kind.valueType))
    if isinstance(kind, spark.StructType):
        return pa.struct([pa.field(f.name, to_arrow(f.dataType), f.nullable) for f in kind])
    for ours, arrow in _SIMPLE:
        if isinstance(kind, ours):
            return arrow
    raise EventError(
        f"columns of the Spark type {kind.simpleString()} are not supported\n"
        "  hint: cast the column, or leave it out with df.drop(...)"
    )


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    return pa.schema([pa.field(f.name, to_arrow(f.dataType), f.nullable) for f in schema])


def from_arrow(kind: pa.DataType) -> spark.DataType:
    if pa.types.is_decimal(kind):
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_map(kind):
        return spark.MapType(from_arrow(kind.key_type), from_arrow(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return spark.ArrayType(from_arrow(kind.value_type))
    if pa.types.is_struct(kind):
        return spark.StructType([spark.StructField(f.name, from_arrow(f.type)) for f in kind])
    if pa.types.is_timestamp(kind):
        return spark.TimestampType() if kind.tz else spark.TimestampNTZType()
    for ours, arrow in _SIMPLE:
        if kind == arrow:
            return spark.DayTimeIntervalType() if pa.types.is_duration(kind) else ours()
    raise EventError(f"a result column of type {kind} has no Spark type")


def spark_schema(schema: pa.Schema) -> spark.StructType:
    return spark.StructType([spark.StructField(f.name, from_arrow(f.type)) for f in schema])


def get_session_zone(session: SparkSession) -> str:
    return str(session.conf.get("spark.sql.session.timeZone"))


# ------------------------------------------------------------------------- reading


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


def normalize_times(times: Column) -> Column:
    """Normalize times for Spark: dashes in the date, and seconds before a zone."""
    dashed = sql.translate(times, "/", "-")
    return sql.regexp_replace(dashed, r"([T ][0-9]{2}:[0-9]{2})(Z|[+-][0-9:]+)$", "$1:00$2")


def parse_time_columns(events: Any, time: str | tuple[str, str], *, drop: bool) -> Any:
    """Parse the time columns of DataFrames that hold text, in the session's zone if they have
    none. An unreadable time raises an error, or becomes NULL with `drop`."""
    frames = events if isinstance(events, Mapping) else {"": events}
    texts = {name: find_text_times(arrow_schema(f.schema), time) for name, f in frames.items()}
    if not any(texts.values()):
        return events
    warn_text_times(sorted({column for columns in texts.values() for column in columns}))
    parsed = {
        name: frame.withColumns({c: _parse_time(c, drop=drop) for c in texts[name]}) if texts[name] else frame
        for name, frame in frames.items()
    }
    return parsed if isinstance(events, Mapping) else parsed[""]


def _parse_time(name: str, *, drop: bool) -> Column:
    column = get_column(name)
    text = sql.trim(column)
    looks = text.rlike(CellTest.TIMESTAMP.value) | text.rlike(CellTest.DATE.value)
    read = sql.when(looks, normalize_times(text).try_cast("timestamp"))
    if drop:
        return read
    problem = f"' in column '{name}' is not an ISO time such as 2026-03-14T09:30:00Z"
    message = sql.concat(sql.lit("'"), column, sql.lit(problem))
    return sql.when(column.isNotNull() & read.isNull(), sql.raise_error(message).cast("timestamp")).otherwise(read)


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


# ------------------------------------------------------------------------- filters and keys


def is_without_time(shape: StreamSchema, types: Collection[str] | None = None) -> Column:
    """Return the condition for events without a usable time, of these `types` or of no type."""
    schema = shape.schema
    start, end = (get_column(name) for name in (schema.start, schema.end))
    bad = start.isNull() | end.isNull()
    if schema.time_kind is ValueKind.FLOAT:
        for time in (start, end):  # infinite times are unusable in a stream
            bad = bad | sql.isnan(time) | (sql.abs(time) == sql.lit(math.inf))
    if schema.intervals:
        bad = bad | (end < start)
    if types is None or schema.type_column is None:
        return bad
    type = get_column(schema.type_column)
    return bad & (type.isin(sorted(types)) | type.isNull())


def build_relevance_filter(chain: PipelinePlan) -> Column | None:
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
        condition = get_column(column).isin(sorted(reads.types))
    for name in () if reads.nulls else reads.key:
        not_null = get_column(name).isNotNull()  # NULL equals nothing
        condition = not_null if condition is None else condition & not_null
    return condition


def key_columns(chain: PipelinePlan) -> list[Column]:
    """Return the key columns of the first stage, ready for hashing."""
    kinds, key = get_field_kinds(chain.source.arrow), chain.stages[0].reads.key
    columns = {name: get_column(name) for name in key}
    zero = sql.lit(0.0)  # -0.0 equals 0.0, so their hashes must be equal
    return [c + zero if kinds[n] is ValueKind.FLOAT else c for n, c in columns.items()]


def select_input(
    frame: DataFrame, chain: PipelinePlan, also: Column | None = None, ahead: Column | None = None
) -> DataFrame:
    """Select the relevant events with their key group, if Spark computes it, the bad ones, and `also`
    others, which only tell the time. `ahead` are those too far ahead of the clock."""
    condition, columns, key_group = build_relevance_filter(chain), key_columns(chain), sql.lit(0)
    if chain.split_by_spark and columns:
        key_group = sql.pmod(sql.xxhash64(*columns), sql.lit(chain.key_groups))
    if condition is not None:
        kept = condition | is_without_time(chain.source.shape, chain.types)
        frame = frame.filter(kept if also is None else kept | also)
        key_group = sql.when(condition, key_group).otherwise(PASSING)
    if ahead is not None:
        key_group = sql.when(ahead, AHEAD).otherwise(key_group)
    names = map(get_column, chain.source.arrow.names)
    return frame.select(*names, key_group.cast("int").alias(KEY_GROUP))


def warn_of_whole_streams(workload: Workload) -> None:
    for chain in workload.chains:
        for stage in chain.stages:
            if stage.whole_stream is not None:
                warnings.warn(stage.whole_stream, WholeStreamWarning, stacklevel=find_stacklevel())


def quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def get_column(name: str) -> Column:
    return sql.col(quote_name(name))


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
    end = get_column(schema.end).cast("double")
    kind = sql.lit("") if schema.type_column is None else get_column(schema.type_column)
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
    return [get_column(e.field_name) for e in prepared.plan.query.equivalence]


def _all_known(keys: Sequence[Column]) -> Column:
    return reduce(lambda left, right: left & right, (key.isNotNull() for key in keys))
