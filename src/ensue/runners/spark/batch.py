"""Matching on Spark DataFrames: events are brought together by partition key, lane by lane."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ensue.algebra.query import Query
from ensue.columns.stream import Columns, Shape, in_order, shape_again
from ensue.runners.local import match_in_order
from ensue.runners.spark.frames import frame_of, partition_columns, relevant, without_time
from ensue.runners.spark.types import spark_schema
from ensue.workload.arguments import Arguments
from ensue.workload.foresight import warn_of_explosion
from ensue.workload.pickled_queries import Carried, arrived, carried
from ensue.workload.prepared import Prepared
from ensue.workload.relevance import types_that_matter

ARRIVAL = "__arrival"
OUTPUT_ROWS = 65_536  # rows of a batch of matches


def match(
    events: "DataFrame | Mapping[str, DataFrame]", query: Query, given: Arguments
) -> DataFrame:
    """All matches, as a DataFrame that is computed when it is asked for."""
    frame, shape = frame_of(events, time=given.time, type=given.type, order=given.order)
    queries = given.bundle(query, shape)
    warn_of_explosion(queries.main)
    lane = Lane(carried(query), given, shape.by_type, queries.result)
    kept, columns = relevant(queries.main), partition_columns(queries.main)
    lanes = in_lanes(frame, queries.queries, kept, columns, given)
    return lanes.mapInArrow(lane, spark_schema(queries.result))


def shape_of_frames(
    events: "DataFrame | Mapping[str, DataFrame]",
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
) -> Shape:
    """What is known of DataFrames of events without computing them."""
    return frame_of(events, time=time, type=type, order=order)[1]


# ------------------------------------------------------------------------------ lanes


def in_lanes(
    frame: DataFrame,
    queries: Sequence[Prepared],
    kept: Column | None,
    columns: Sequence[Column],
    given: Arguments,
) -> DataFrame:
    """The events that can matter, those of one partition in one lane.

    Unless they are to be dropped also events of their types without usable time: none is left out
    unnoticed.
    """
    if kept is not None:
        bad = without_time(queries[0].shape, types_that_matter(queries))
        frame = frame.filter(kept | bad if given.bad_events == "raise" else kept)
    frame = frame.withColumn(ARRIVAL, sql.monotonically_increasing_id())
    return frame.repartition(*columns) if columns else frame.repartition(1)


def lane_events(
    batches: Iterator[pa.RecordBatch], given: Arguments, by_type: Mapping[str, Columns] | None
) -> tuple[pa.Table, Shape] | None:
    """The events of a task in the order of the stream, and their shape; None: there are none.

    Those of a type that does not matter are gone already, unless all types do.
    """
    kept = [batch for batch in batches if batch.num_rows]
    if not kept:
        return None
    table = pa.Table.from_batches(kept)
    order = (*given.order, ARRIVAL)
    sortable = shape_again(table.schema, by_type, time=given.time, type=given.type, order=order)
    events = in_order(table, sortable, given.bad_events).drop_columns([ARRIVAL])
    return events, shape_again(
        events.schema, by_type, time=given.time, type=given.type, order=given.order
    )


@dataclass(frozen=True)
class Lane:
    """What a task does with its events. Everything is made anew where the task runs."""

    query: Carried
    given: Arguments
    by_type: Mapping[str, Columns] | None
    result: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = lane_events(batches, self.given, self.by_type)
        if found is None:
            return
        events, shape = found
        queries = self.given.bundle(arrived(self.query), shape)
        matches = match_in_order(queries, events, whole=False)
        yield from matches.cast(self.result).to_batches(max_chunksize=OUTPUT_ROWS)
