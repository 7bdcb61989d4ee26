"""Matching on Spark DataFrames: events are brought together by partition key, lane by lane."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from ensue.algebra.policy import Strategy
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms
from ensue.algebra.window import ByEvents
from ensue.compile.arrow_kinds import fields_of
from ensue.compile.matcher import Prepared, prepare
from ensue.compile.results import result_schema
from ensue.compile.stream import (
    TYPE,
    Columns,
    Shape,
    in_order,
    located,
    shape_of,
    shape_of_union,
    type_clashes,
)
from ensue.errors import EventError
from ensue.runners.local import match_in_order
from ensue.runners.spark_types import arrow_schema, spark_schema
from ensue.schema import Kind

ARRIVAL = "__arrival"
OUTPUT_ROWS = 65_536  # rows of a batch of matches


class WholeStreamWarning(UserWarning):
    """A query that has to see all events in one place."""


def match(
    events: "DataFrame | Mapping[str, DataFrame]",
    query: Query,
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
    location: str | None = None,
    bad_events: str = "raise",
) -> DataFrame:
    """All matches, as a DataFrame that is computed when it is asked for."""
    frame, shape = _frame_of(events, time=time, type=type, order=order)
    if frame.isStreaming:
        raise EventError(
            "streaming DataFrames are not supported yet\n"
            "  hint: run the query on a batch DataFrame, for example inside foreachBatch"
        )
    if bad_events not in ("raise", "drop"):
        raise EventError(f"bad_events is 'raise' or 'drop', not {bad_events!r}")
    prepared = prepare(query, located(shape, location))
    arrow = result_schema(*_result_arguments(prepared))
    lane = Lane(query, time, type, tuple(order), location, shape.by_type, bad_events, arrow)
    lanes = _lanes(frame, prepared, keep_bad=bad_events == "raise")
    return lanes.mapInArrow(lane, spark_schema(arrow))


def shape_of_frames(
    events: "DataFrame | Mapping[str, DataFrame]",
    *,
    time: str | tuple[str, str],
    type: str | None = None,
    order: Sequence[str] = (),
) -> Shape:
    """What is known of DataFrames of events without computing them."""
    return _frame_of(events, time=time, type=type, order=order)[1]


def _result_arguments(prepared: Prepared) -> tuple[Any, ...]:
    query, schema = prepared.shape.physical(prepared.query)
    return query, schema, prepared.shape.arrow, prepared.shape.columns_of(query)


# ------------------------------------------------------------------------------ many frames, one


def _frame_of(
    events: "DataFrame | Mapping[str, DataFrame]",
    *,
    time: str | tuple[str, str],
    type: str | None,
    order: Sequence[str],
) -> tuple[DataFrame, Shape]:
    if not isinstance(events, Mapping):
        shape = shape_of(arrow_schema(events.schema), time=time, type=type, order=order)
        return events, shape
    if type is not None:
        raise EventError("type= goes with one DataFrame; a dict of them is typed by its keys")
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
    return whole, shape_of_union(arrow_schema(whole.schema), by_type, time=time, order=order)


# ------------------------------------------------------------------------------ lanes


def _lanes(frame: DataFrame, prepared: Prepared, *, keep_bad: bool) -> DataFrame:
    """The events that can matter, those of one partition in one lane.

    With `keep_bad` also events without usable time, so that no one is left out unnoticed.
    """
    query = prepared.plan.query
    bad = _unusable(prepared) if keep_bad else sql.lit(False)
    frame = _relevant(frame, prepared, bad)
    frame = frame.withColumn(ARRIVAL, sql.monotonically_increasing_id())
    keys = [e.field_name for e in query.equivalence]
    if prepared.plan.whole_stream or not keys:
        why = (
            "strict contiguity looks at the events of every partition"
            if prepared.plan.whole_stream
            else "the query has no [attr] that would split the stream"
        )
        warnings.warn(
            f"{why}: one task, on one core, will match all events",
            WholeStreamWarning,
            stacklevel=4,
        )
        return frame.repartition(1)
    kinds = fields_of(prepared.shape.arrow)
    known = sql.lit(True)
    for key in keys:
        known = known & sql.col(_quoted(key)).isNotNull()  # NULL equals nothing
    frame = frame.filter(known | bad)
    return frame.repartition(*(_hashed(key, kinds[key]) for key in keys))


def _unusable(prepared: Prepared) -> Column:
    """When an event has no time, or one that no order knows."""
    schema = prepared.shape.schema
    start, end = (sql.col(_quoted(name)) for name in (schema.start, schema.end))
    bad = start.isNull() | end.isNull()
    if schema.time_kind is Kind.FLOAT:
        bad = bad | sql.isnan(start) | sql.isnan(end)
    return bad | (end < start) if schema.intervals else bad


def _relevant(frame: DataFrame, prepared: Prepared, bad: Column) -> DataFrame:
    """Without events of types the pattern does not name, where they do not count."""
    query, column = prepared.plan.query, prepared.shape.schema.type_column
    contiguous = query.strategy in (Strategy.STRICT, Strategy.PARTITION)
    if column is None or contiguous or isinstance(query.within, ByEvents):
        return frame
    names = sorted({a.type for a in atoms(query.pattern)})
    return frame.filter(sql.col(_quoted(column)).isin(names) | bad)


def _hashed(name: str, kind: Kind) -> Column:
    column = sql.col(_quoted(name))
    return column + sql.lit(0.0) if kind is Kind.FLOAT else column  # -0.0 equals 0.0


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Lane:
    """What a task does with its events. Everything is made anew where the task runs."""

    query: Query
    time: str | tuple[str, str]
    type: str | None
    order: tuple[str, ...]
    location: str | None
    by_type: Mapping[str, Columns] | None
    bad_events: str
    result: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kept = [batch for batch in batches if batch.num_rows]
        if not kept:
            return
        table = pa.Table.from_batches(kept)
        columns = table.drop_columns([ARRIVAL])
        order = (*self.order, ARRIVAL)
        sortable = self._shape(table.schema, order)
        prepared = prepare(
            self.query, located(self._shape(columns.schema, self.order), self.location)
        )
        events = in_order(table, sortable, self.bad_events).drop_columns([ARRIVAL])
        matches = match_in_order(prepared, events, whole=False)
        yield from matches.cast(self.result).to_batches(max_chunksize=OUTPUT_ROWS)

    def _shape(self, schema: pa.Schema, order: Sequence[str]) -> Shape:
        if self.by_type is None:
            return shape_of(schema, time=self.time, type=self.type, order=order)
        return shape_of_union(schema, self.by_type, time=self.time, order=order)
