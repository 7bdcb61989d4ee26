"""Matching on Spark DataFrames: events are brought together by partition key, lane by lane."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from ensue.algebra.query import Query
from ensue.compile.carrying import Carried, arrived, carried
from ensue.compile.matcher import Prepared
from ensue.compile.stream import Columns, Shape, in_order, located, shape_again
from ensue.compile.timeouts import bundle
from ensue.errors import EventError
from ensue.plan.planning import DEFAULT, Planning
from ensue.runners.local import match_in_order
from ensue.runners.spark_frames import frame_of, partition_columns, relevant, unusable
from ensue.runners.spark_types import spark_schema

ARRIVAL = "__arrival"
OUTPUT_ROWS = 65_536  # rows of a batch of matches


def match(
    events: "DataFrame | Mapping[str, DataFrame]",
    query: Query,
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
    location: str | None = None,
    bad_events: str = "raise",
    emit_timeouts: bool = False,
    planning: Planning = DEFAULT,
) -> DataFrame:
    """All matches, as a DataFrame that is computed when it is asked for."""
    frame, shape = frame_of(events, time=time, type=type, order=order)
    if bad_events not in ("raise", "drop"):
        raise EventError(f"bad_events is 'raise' or 'drop', not {bad_events!r}")
    queries = bundle(query, located(shape, location), planning, emit_timeouts=emit_timeouts)
    lane = Lane(
        carried(query), time, type, tuple(order), location, shape.by_type, bad_events,
        emit_timeouts, queries.result, planning,
    )  # fmt: skip
    lanes = _lanes(frame, queries.main, keep_bad=bad_events == "raise")
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


def _lanes(frame: DataFrame, prepared: Prepared, *, keep_bad: bool) -> DataFrame:
    """The events that can matter, those of one partition in one lane.

    With `keep_bad` also events without usable time, so that no one is left out unnoticed.
    """
    kept = relevant(prepared)
    if kept is not None:
        frame = frame.filter(kept | unusable(prepared) if keep_bad else kept)
    frame = frame.withColumn(ARRIVAL, sql.monotonically_increasing_id())
    columns = partition_columns(prepared)
    return frame.repartition(*columns) if columns else frame.repartition(1)


@dataclass(frozen=True)
class Lane:
    """What a task does with its events. Everything is made anew where the task runs."""

    query: Carried
    time: str | tuple[str, str]
    type: str | None
    order: tuple[str, ...]
    location: str | None
    by_type: Mapping[str, Columns] | None
    bad_events: str
    emit_timeouts: bool
    result: pa.Schema
    planning: Planning

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kept = [batch for batch in batches if batch.num_rows]
        if not kept:
            return
        table = pa.Table.from_batches(kept)
        columns = table.drop_columns([ARRIVAL])
        order = (*self.order, ARRIVAL)
        sortable = self._shape(table.schema, order)
        shape = located(self._shape(columns.schema, self.order), self.location)
        query = arrived(self.query)
        queries = bundle(query, shape, self.planning, emit_timeouts=self.emit_timeouts)
        events = in_order(table, sortable, self.bad_events).drop_columns([ARRIVAL])
        matches = match_in_order(queries, events, whole=False)
        yield from matches.cast(self.result).to_batches(max_chunksize=OUTPUT_ROWS)

    def _shape(self, schema: pa.Schema, order: Sequence[str]) -> Shape:
        return shape_again(schema, self.by_type, time=self.time, type=self.type, order=order)
