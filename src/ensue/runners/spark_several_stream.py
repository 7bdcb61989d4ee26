"""Several queries on streaming DataFrames: one stream, one set of lanes by distinct key."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from ensue.compile.stream import located
from ensue.errors import EventError
from ensue.plan.planning import DEFAULT, Planning
from ensue.runners.local_several import bundles_of
from ensue.runners.named import Names, speaking_of
from ensue.runners.several_job import SeveralJob
from ensue.runners.spark_frames import frame_of, quoted, unusable
from ensue.runners.spark_groups import Group, groups_of
from ensue.runners.spark_matches import PACKED_COLUMNS, SeveralMatches
from ensue.runners.spark_stream import (
    COUNTERS,
    FOUND,
    LANE,
    OBSERVED,
    PACKED,
    LaneProcessor,
    Pack,
    Unpack,
    lane_count,
    nullable,
    refuse_match_id,
    require_rocksdb,
)
from ensue.runners.spark_time import Watermark, with_watermark
from ensue.runners.stream_job import remember


def match(
    events: "DataFrame | Mapping[str, DataFrame]",
    queries: Names,
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
    location: str | None = None,
    bad_events: str = "raise",
    emit_timeouts: bool = False,
    watermark: Watermark | None = None,
    late_events: str = "count",
    lanes: int | None = None,
    planning: Planning = DEFAULT,
) -> SeveralMatches:
    """The matches of each query in a stream, as streaming DataFrames."""
    if bad_events not in ("raise", "drop"):
        raise EventError(f"bad_events is 'raise' or 'drop', not {bad_events!r}")
    if late_events not in ("count", "deliver"):
        raise EventError(f"late_events is 'count' or 'deliver', not {late_events!r}")
    for name, query in queries.items():
        with speaking_of(name):
            refuse_match_id(query)
            remember(query)
    frame, shape = frame_of(events, time=time, type=type, order=order)
    watched, delay_ms = with_watermark(frame, shape, watermark)
    shape = replace(shape, arrow=nullable(shape.arrow))
    bundles = bundles_of(
        queries, located(shape, location), planning, emit_timeouts=emit_timeouts, streaming=True
    )
    require_rocksdb(frame)
    groups = groups_of([bundle.main for bundle in bundles.values()])
    if late_events == "deliver" and len(groups) > 1:
        shown = "; ".join(", ".join(group.key) or "none" for group in groups)
        raise EventError(
            'late_events="deliver" goes with queries that can share lanes, and these are '
            f"partitioned by different keys ({shown})\n"
            "  hint: match those of each key in a call of their own"
        )
    names, found = list(queries), []
    for group in groups:
        mine = tuple(queries[names[n]] for n in group.numbers)
        job = SeveralJob(
            mine[0], shape.arrow, time, type, tuple(order), location, shape.by_type,
            lanes=lane_count(frame, lanes) if group.key else 1,
            emit_timeouts=emit_timeouts,
            deliver_late=late_events == "deliver",
            planning=planning,
            several=mine,
            numbers=group.numbers,
            names=tuple(names[n] for n in group.numbers),
        )  # fmt: skip
        found.append(
            _with_lanes(watched, job, group)
            .mapInArrow(Pack(job, bad_events), PACKED)
            .groupBy("lane")
            .transformWithState(LaneProcessor(job, delay_ms), FOUND, "append", "EventTime")
        )
    together = reduce(DataFrame.union, found).observe(
        OBSERVED, *(sql.sum(name).alias(name) for name in COUNTERS)
    )
    packed = together.select("blob").mapInArrow(Unpack(job), PACKED_COLUMNS)
    late = shape.arrow if late_events == "deliver" else None
    return SeveralMatches({name: b.result for name, b in bundles.items()}, packed, late)


def _with_lanes(frame: DataFrame, job: SeveralJob, group: Group) -> DataFrame:
    """The events that can matter to a group, with the lane of each.

    What is kept depends on the time column too, so that Spark cannot move the filter below the
    watermark: events that do not matter let time pass like all others.
    """
    kept = group.relevant()
    if kept is not None:
        frame = frame.filter(kept | unusable(group.queries[0]))
    columns = group.columns()
    lane = sql.pmod(sql.xxhash64(*columns), sql.lit(job.lanes)) if columns else sql.lit(0)
    names = [sql.col(quoted(name)) for name in job.arrow.names]
    return frame.select(*names, lane.cast("int").alias(LANE))
