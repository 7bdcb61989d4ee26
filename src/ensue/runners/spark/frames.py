"""DataFrames of events: many as one, and which of their rows matter to a query."""

import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ensue.algebra.zones import is_utc
from ensue.columns.arrow_kinds import fields_of
from ensue.columns.stream import (
    PLACE,
    TYPE,
    Columns,
    Shape,
    refuse_own_names,
    shape_of,
    shape_of_union,
    type_clashes,
)
from ensue.errors import EventError
from ensue.own_frames import outside
from ensue.runners.spark.session_zone import session_zone
from ensue.runners.spark.text_times import with_times
from ensue.runners.spark.types import arrow_schema, spark_schema
from ensue.schema import Kind
from ensue.workload.arguments import Arguments
from ensue.workload.chain import Chain
from ensue.workload.source import Source
from ensue.workload.stage import Reads
from ensue.workload.workload import Workload


class WholeStreamWarning(UserWarning):
    """A query that has to see all events in one place."""


def is_streaming(events: "DataFrame | Mapping[str, DataFrame]") -> bool:
    """Whether events keep coming. Frames that go together are alike in that."""
    if not isinstance(events, Mapping):
        return events.isStreaming
    streaming = {str(name) for name, frame in events.items() if frame.isStreaming}
    if streaming and len(streaming) < len(events):
        raise EventError(
            f"streaming and batch DataFrames cannot be combined: {', '.join(sorted(streaming))} "
            "is a stream\n  hint: read all of them with spark.readStream"
        )
    return bool(streaming)


def frame_of(
    events: "DataFrame | Mapping[str, DataFrame]",
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
    drop: bool = False,
) -> tuple[DataFrame, Shape]:
    """The events as one DataFrame, and what is known of them without computing it.

    Times that are text are read; `drop`: one that is no time is NULL, and no error.
    """
    for frame in events.values() if isinstance(events, Mapping) else (events,):
        refuse_own_names(frame.columns)
    events = with_times(events, time, drop=drop)
    if not isinstance(events, Mapping):
        shape = shape_of(arrow_schema(events.schema), time=time, type=type, order=order)
        return events, _in_session(shape, events)
    if type is not None:
        raise EventError("type= is for a single DataFrame; in a dict the keys are the types")
    schemas = {str(name): arrow_schema(frame.schema) for name, frame in events.items()}
    for schema in schemas.values():
        shape_of(schema, time=time, type=None, order=order)
    clash = type_clashes(list(schemas.values()))
    by_type: dict[str, Columns] = {}
    whole: DataFrame | None = None
    for name, frame in events.items():
        columns = [(f, f"{f}@{name}" if f in clash else f) for f in frame.columns]
        by_type[str(name)] = columns
        marked = frame.toDF(*[c for _, c in columns]).withColumn(TYPE, sql.lit(str(name)))
        whole = marked if whole is None else whole.unionByName(marked, allowMissingColumns=True)
    assert whole is not None
    shape = shape_of_union(arrow_schema(whole.schema), by_type, time=time, order=order)
    return whole, _in_session(shape, whole)


def _in_session(shape: Shape, frame: DataFrame) -> Shape:
    """The shape of events whose times with a zone are in that of a session."""
    if not shape.schema.zones:
        return shape
    zone = session_zone(frame.sparkSession)
    session = "UTC" if is_utc(zone) else zone  # a checkpoint compares it by its name
    return replace(shape, schema=replace(shape.schema, session=session))


def read_frame(
    events: "DataFrame | Mapping[str, DataFrame]", given: Arguments
) -> tuple[DataFrame, Shape, Arguments]:
    """The events of a call as one DataFrame, and what is known of them without computing it.

    Queries that order and split events in their own ways say so; then they are read like that.
    """
    if given.arranging is None:
        time, type, order = given.time, given.type, given.order
        drop = given.bad_events == "drop"
        return *frame_of(events, time=time, type=type, order=order, drop=drop), given
    if isinstance(events, Mapping):
        raise EventError(
            "MATCH_RECOGNIZE reads one table, and these are several\n"
            "  hint: pass one DataFrame, with a column for the type of events"
        )
    refuse_own_names(events.columns)
    arrow = arrow_schema(events.schema)
    arranged = given.arranging(arrow, session_zone(events.sparkSession))
    if arranged.computed:
        events = events.mapInArrow(arranged.in_batches, spark_schema(arranged.schema(arrow)))
    if arranged.numbered:
        events = events.withColumn(PLACE, sql.monotonically_increasing_id())
    given = replace(given, time=arranged.time, order=arranged.order, arranging=None)
    known = arrow_schema(events.schema)
    shape = shape_of(known, time=given.time, type=given.type, order=given.order)
    return events, _in_session(shape, events), given


def without_time(shape: Shape, types: Collection[str] | None = None) -> Column:
    """The same for events of a shape; with `types` for those of these types, or of none."""
    found = _without_time(shape)
    column = shape.schema.type_column
    if types is None or column is None:
        return found
    type = sql.col(quoted(column))
    return found & (type.isin(sorted(types)) | type.isNull())


def _without_time(shape: Shape) -> Column:
    schema = shape.schema
    start, end = (sql.col(quoted(name)) for name in (schema.start, schema.end))
    bad = start.isNull() | end.isNull()
    if schema.time_kind is Kind.FLOAT:
        for time in (start, end):  # also where only a stream cannot use it
            bad = bad | sql.isnan(time) | (sql.abs(time) == sql.lit(math.inf))
    return bad | (end < start) if schema.intervals else bad


def relevant(chain: Chain) -> Column | None:
    """When an event can matter to a stage of a chain; None: always."""
    found: Column | None = None
    for stage in chain.stages:
        one = relevant_to(stage.reads, chain.source)
        if one is None:
            return None
        found = one if found is None else found | one
    return found


def relevant_to(reads: Reads, source: Source) -> Column | None:
    """When an event can matter to a stage: it is of one of its types, where others do not count,
    and belongs to a partition. None: always."""
    if not reads.any:
        return sql.lit(False)
    found, column = None, source.shape.schema.type_column
    if reads.types is not None and column is not None:
        found = sql.col(quoted(column)).isin(sorted(reads.types))
    for name in () if reads.nulls else reads.key:
        known = sql.col(quoted(name)).isNotNull()  # NULL equals nothing
        found = known if found is None else found & known
    return found


def key_columns(chain: Chain, number: int) -> list[Column]:
    """What splits the events of a stage."""
    kinds = fields_of(chain.source.arrow)
    return [hashed(name, kinds[name]) for name in chain.stages[number].reads.key]


def lane_column(chain: Chain) -> Column:
    """The lane of an event in the first stage, where Spark itself splits the events."""
    columns = key_columns(chain, 0)
    if not chain.split_by_spark or not columns:
        return sql.lit(0)
    return sql.pmod(sql.xxhash64(*columns), sql.lit(chain.lanes)).cast("int")


def warn_of_whole_streams(workload: Workload) -> None:
    """Says what one task has to do alone."""
    for chain in workload.chains:
        for stage in chain.stages:
            if stage.whole_stream is not None:
                warnings.warn(stage.whole_stream, WholeStreamWarning, stacklevel=outside())


def hashed(name: str, kind: Kind) -> Column:
    """A key column as one to hash: what is equal has one hash."""
    column = sql.col(quoted(name))
    return column + sql.lit(0.0) if kind is Kind.FLOAT else column  # -0.0 equals 0.0


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
