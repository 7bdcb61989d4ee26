"""Statistics of DataFrames of events: counted by Spark, conditions tried on a bounded sample."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ensue.algebra.query import Query
from ensue.algebra.tower import types_of
from ensue.columns.stream import with_time
from ensue.engine.sampling import Counted, sampled
from ensue.errors import EventError
from ensue.plan.estimates.statistics import Statistics
from ensue.runners.spark.frames import frame_of, is_streaming, quoted, without_time
from ensue.runners.spark.session import collect
from ensue.workload.arguments import Arguments
from ensue.workload.prepared import Prepared, prepare

FEW = 0.1  # of the sample asked for: so small a part of the partitions says too little


def measured(
    events: "DataFrame | Mapping[str, DataFrame]",
    query: Query,
    given: Arguments,
    *,
    sample: int = 10_000,
    seed: int = 0,
) -> Statistics:
    """The statistics of DataFrames: a few Spark jobs, and no more than `sample` rows here."""
    if is_streaming(events):
        raise EventError(
            "a stream has no events to measure before it runs\n"
            "  hint: measure an archive of it, or a batch DataFrame of the same source"
        )
    frame, shape = frame_of(events, time=given.time, type=given.type, order=given.order)
    prepared = prepare(query, shape)
    frame = frame.filter(~without_time(shape))
    counted = _counted(frame, prepared)
    rows = collect(_sample(frame, prepared, counted.events, sample, seed))
    usable, _ = with_time(rows, shape, "drop")
    return sampled(prepared, usable, sample=sample, seed=seed, counted=counted)


def _counted(frame: DataFrame, prepared: Prepared) -> Counted:
    schema = prepared.shape.schema
    end = sql.col(quoted(schema.end)).cast("double")
    kind = sql.lit("") if schema.type_column is None else sql.col(quoted(schema.type_column))
    found = (
        frame.groupBy(kind.cast("string").alias("kind"))
        .agg(sql.count(sql.lit(1)), sql.min(end), sql.max(end))
        .collect()
    )
    rows = [tuple(row) for row in found]
    events = sum(count for _, count, _, _ in rows)
    counts = {name: count for name, count, _, _ in rows}
    names = sorted(types_of(prepared.plan.query))
    every = schema.type_column is None
    types = {name: events if every else counts.get(name, 0) for name in names}
    first = min((low for _, _, low, _ in rows), default=0.0)
    last = max((high for _, _, _, high in rows), default=0.0)
    keys = _keys(prepared)
    if not keys:
        return Counted(events, last - first, types)
    size = sql.col("count").cast("double")
    partitions, total, squares = tuple(
        frame.filter(_known(keys))
        .groupBy(*keys)
        .count()
        .agg(sql.count(sql.lit(1)), sql.sum(size), sql.sum(size * size))
        .collect()[0]
    )
    effective = total * total / squares if squares else None
    return Counted(events, last - first, types, partitions or None, effective)


def _sample(frame: DataFrame, prepared: Prepared, events: int, size: int, seed: int) -> DataFrame:
    """Whole partitions if the query has keys, else rows; no more than `size`."""
    if events <= size:
        return frame
    keys = _keys(prepared)
    if keys:
        parts = max(1, round(events / (2 * size)))
        spread = sql.pmod(sql.xxhash64(*keys, sql.lit(seed)), sql.lit(parts)) == 0
        whole = frame.filter(_known(keys) & spread).limit(size)
        if whole.count() >= FEW * size:
            return whole
    return frame.sample(fraction=min(1.0, 1.2 * size / events), seed=seed).limit(size)


def _keys(prepared: Prepared) -> list[Column]:
    return [sql.col(quoted(e.field_name)) for e in prepared.plan.query.equivalence]


def _known(keys: Sequence[Column]) -> Column:
    found = keys[0].isNotNull()
    for key in keys[1:]:
        found = found & key.isNotNull()
    return found
