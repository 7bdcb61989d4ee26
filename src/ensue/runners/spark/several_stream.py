"""Several queries on streaming DataFrames: one stream, one set of lanes by distinct key."""

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame

from ensue.errors import EventError
from ensue.runners.spark.frames import frame_of
from ensue.runners.spark.groups import groups_of
from ensue.runners.spark.matches import PACKED_COLUMNS, SeveralMatches
from ensue.runners.spark.stream import (
    FOUND,
    OBSERVED,
    PACKED,
    LaneProcessor,
    Pack,
    Unpack,
    delivers_late,
    lane_count,
    nullable,
    numbered,
    observed,
    refuse_names,
    require_rocksdb,
)
from ensue.runners.spark.time import Ahead, Watermark, with_watermark
from ensue.workload.arguments import Arguments, bundles_of
from ensue.workload.foresight import warn_of_explosion
from ensue.workload.query_names import Names, speaking_of
from ensue.workload.several_job import SeveralJob
from ensue.workload.stream_job import remember


def match(
    events: "DataFrame | Mapping[str, DataFrame]",
    queries: Names,
    given: Arguments,
    *,
    watermark: Watermark | None = None,
    late_events: str = "count",
    lanes: int | None = None,
    max_ahead: Ahead = None,
) -> SeveralMatches:
    """The matches of each query in a stream, as streaming DataFrames."""
    deliver_late = delivers_late(late_events)
    frame, shape = frame_of(events, time=given.time, type=given.type, order=given.order)
    for name, query in queries.items():
        with speaking_of(name):
            refuse_names(query, frame)
            remember(query)
    watched = with_watermark(frame, shape, watermark, max_ahead)
    shape = replace(shape, arrow=nullable(shape.arrow))
    bundles = bundles_of(queries, shape, given, streaming=True)
    for bundle in bundles.values():
        warn_of_explosion(bundle.main, stacklevel=5)
    require_rocksdb(frame)
    groups = groups_of([bundle.main for bundle in bundles.values()])
    if deliver_late and len(groups) > 1:
        shown = "; ".join(", ".join(group.key) or "none" for group in groups)
        raise EventError(
            'late_events="deliver" goes with queries that can share lanes, and these are '
            f"partitioned by different keys ({shown})\n"
            "  hint: match those of each key in a call of their own"
        )
    names, found = list(queries), []
    for number, group in enumerate(groups):
        given_events = watched.without_those_ahead() if number else watched
        mine = tuple(queries[names[n]] for n in group.numbers)
        job = SeveralJob(
            mine[0], shape.arrow, given.time, given.type, given.order, given.location,
            shape.by_type, lane_count(frame, lanes) if group.key else 1, given.emit_timeouts,
            deliver_late, given.planning,
            several=mine,
            numbers=group.numbers,
            names=tuple(names[n] for n in group.numbers),
        )  # fmt: skip
        found.append(
            numbered(given_events, job, group.relevant(), group.columns())
            .mapInArrow(Pack(job, given.bad_events), PACKED)
            .groupBy("lane")
            .transformWithState(LaneProcessor(job, watched.delay_ms), FOUND, "append", "EventTime")
        )
    together = reduce(DataFrame.union, found).observe(OBSERVED, *observed(shape))
    packed = together.select("blob").mapInArrow(Unpack(job), PACKED_COLUMNS)
    late = shape.arrow if deliver_late else None
    return SeveralMatches({name: b.result for name, b in bundles.items()}, packed, late)
