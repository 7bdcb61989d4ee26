"""The events of a history as a DataFrame with the columns of the stream."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import time
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql

from ensue.archives.contract import SINCE, UNTIL, Archive, Wanted
from ensue.archives.last_event import last_end
from ensue.archives.opening import opened
from ensue.archives.tables import TableArchive
from ensue.columns.arrow_kinds import kind_of_arrow
from ensue.columns.stream import TYPE, Shape
from ensue.columns.values import from_arrow
from ensue.errors import EventError
from ensue.runners.live import moment
from ensue.runners.spark.archives import FrameArchive
from ensue.runners.spark.frames import frame_of, quoted, without_time
from ensue.runners.spark.matches import OUTPUT_ROWS
from ensue.runners.spark.time import Ahead, before, furthest_ahead
from ensue.runners.spark.types import arrow_schema, spark_schema
from ensue.runners.tables import as_table
from ensue.schema import Kind
from ensue.workload.arranged import is_own
from ensue.workload.lanes.clock import calendar
from ensue.workload.lanes.past import Cut
from ensue.workload.source import Source
from ensue.workload.workload import Workload

SLICE = 500_000  # events, about
LEAST = 50_000  # fewer are not worth a slice of their own
MOST_SLICES = 1_024
UNKNOWN = 32  # slices where nobody knows how many events there are


@dataclass(frozen=True)
class Extent:
    """How far a history reaches, in the matcher's time; None: it has no events."""

    oldest: float | None
    newest: float | None
    rows: int | None


@dataclass(frozen=True)
class PastEvents:
    """A history before its cut."""

    frame: DataFrame
    cut: Cut
    described: dict[str, object]


def past_events(session: SparkSession, history: Any, workload: Workload, since: Any) -> PastEvents:
    """The events of a history from `since` on, up to where it is complete."""
    source, begin = workload.source, None
    if since is not None:
        begin = moment(since, source.shape)
    if isinstance(history, str | Path):
        history = opened(history, time=source.time, type=source.type, order=source.order)
    if isinstance(history, Mapping):
        return _of_frame(_by_type(session, history, source), workload, begin, None, {})
    if _is_archive(history):
        return _of_archive(session, history.pinned(), workload, begin)
    frame = _as_frame(session, history, source)
    return _of_frame(frame, workload, begin, None, {"kind": "frame"})


def _is_archive(history: object) -> bool:
    # of its class: over Spark Connect, a DataFrame has an attribute of any name
    methods = ("pinned", "described", "layout", "read")
    return all(hasattr(type(history), name) for name in methods)


# -------------------------------------------------------------------------------- frames


def _as_frame(session: SparkSession, history: Any, source: Source) -> DataFrame:
    """A batch DataFrame of a history that is one, or is a table of this process."""
    if hasattr(history, "isStreaming"):
        if history.isStreaming:
            raise EventError(
                "history= is a stream, and a history must be a table\n"
                "  hint: read it with spark.read, not with spark.readStream"
            )
        frame: DataFrame = history
        return frame
    table = as_table(history)
    names = [name for name in source.arrow.names if name in table.column_names]
    known = pa.schema([source.arrow.field(name) for name in names])
    _require_columns(table.schema, source, ())
    return session.createDataFrame(_cast(table, known))


def _by_type(session: SparkSession, history: Mapping[str, Any], source: Source) -> DataFrame:
    """A history by event type, as the stream is."""
    if source.by_type is None:
        raise EventError(
            "history= is a dict by event type, and the stream is one DataFrame\n"
            "  hint: pass the history as one table, too"
        )
    frames = {}
    for name, one in history.items():
        if not hasattr(one, "isStreaming"):
            one = session.createDataFrame(as_table(one))
        elif one.isStreaming:
            raise EventError(f"history= of {name} is a stream\n  hint: read it with spark.read")
        frames[name] = one
    return frame_of(frames, time=source.time, order=source.order)[0]


def _of_frame(
    frame: DataFrame,
    workload: Workload,
    begin: float | None,
    complete: float | None,
    described: dict[str, object],
) -> PastEvents:
    source, shape = workload.source, workload.source.shape
    frame = _selected(frame, source)
    bad = without_time(shape, workload.types)
    start, end = shape.schema.start, shape.schema.end
    if begin is not None:
        frame = frame.filter(bad | ~before(frame, start, shape, begin))
    usable = frame.filter(~without_time(shape))
    column = sql.col(quoted(end))
    found = usable.agg(
        sql.min(column).alias("oldest"), sql.max(column).alias("newest"), sql.count(column)
    ).toArrow()
    extent = Extent(
        _time_of(found.column(0), shape),
        _time_of(found.column(1), shape),
        found.column(2)[0].as_py(),
    )
    cut = cut_of(extent, complete, workload)
    frame = frame.filter(bad | before(frame, end, shape, cut.at))
    return PastEvents(frame, cut, described)


def _selected(frame: DataFrame, source: Source) -> DataFrame:
    """The columns of the stream, with its types."""
    there = arrow_schema(frame.schema)
    _require_columns(there, source, (TYPE,) if source.by_type is not None else ())
    wanted = spark_schema(source.arrow)
    columns: list[Column] = []
    for field in wanted:
        column = sql.col(quoted(field.name))
        if field.name not in there.names:  # a type that the history has no events of
            column = sql.lit(None)
        if field.name not in there.names or frame.schema[field.name].dataType != field.dataType:
            column = column.cast(field.dataType)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def _require_columns(there: pa.Schema, source: Source, known: tuple[str, ...]) -> None:
    """Raises EventError unless the stream's columns are there, and are of its kinds."""
    for field in source.arrow:
        if field.name not in there.names:
            if source.by_type is not None and field.name not in known:
                continue
            if is_own(field.name):
                raise EventError(
                    "history= does not support a computed PARTITION BY yet\n"
                    "  hint: add the key as a column to the history and to the stream"
                )
            raise EventError(
                f"the history has no column '{field.name}', which the stream has\n"
                f"  hint: it has {', '.join(there.names)}"
            )
        kinds = kind_of_arrow(there.field(field.name).type), kind_of_arrow(field.type)
        zones = [
            pa.types.is_timestamp(type) and type.tz is not None
            for type in (there.field(field.name).type, field.type)
        ]
        if kinds[0] is not kinds[1] or zones[0] is not zones[1]:
            raise EventError(
                f"column '{field.name}' of the history is {there.field(field.name).type}, that "
                f"of the stream {field.type}\n  hint: cast one of them"
            )


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    try:
        # Spark keeps microseconds, and cuts off what is finer
        return table.select(schema.names).cast(schema, safe=False)
    except pa.ArrowException as error:
        raise EventError(f"the history does not have the stream's columns: {error}") from None


def _time_of(column: pa.ChunkedArray, shape: Shape) -> float | None:
    if column[0].as_py() is None:
        return None
    found: float = np.asarray(from_arrow(column, shape.unit).values)[0].item()
    return found


# ------------------------------------------------------------------------------- the cut


def require_not_ahead(cut: Cut, workload: Workload, max_ahead: Ahead) -> None:
    """Raises EventError if everything that comes would be before the cut."""
    shape, most = workload.source.shape, furthest_ahead(max_ahead, calendar(workload.source.shape))
    now = int(time() * 1_000) * workload.source.clock.per_ms
    if most is not None and calendar(shape) and cut.at > now + most:
        raise EventError(
            f"the history ends at {workload.source.clock.shown(cut.at)}, further ahead of the "
            "clock than max_ahead= allows: all events of the stream would be before that\n"
            "  hint: fix the time of its newest event, or say up to when it is complete: "
            "ensue.archive(..., complete=...)"
        )


def cut_of(extent: Extent, complete: float | None, workload: Workload) -> Cut:
    """Where the history ends, and slices of about as many events.

    It is complete to where it is said to be, or else just behind its newest event.
    """
    kind = workload.source.shape.schema.time_kind
    at = complete
    if at is None:
        if extent.newest is None:
            raise EventError(
                "the history has no events, so its end is not known\n"
                "  hint: ensue.archive(..., complete=...) says so, or leave out history="
            )
        at = workload.source.clock.following(extent.newest)
    if extent.oldest is None or extent.oldest >= at:
        return Cut(at)
    count = slices_for(extent.rows, workload.lanes)
    between = [extent.oldest + (at - extent.oldest) * k / count for k in range(1, count)]
    if kind is not Kind.FLOAT:
        width = int(at) - int(extent.oldest)
        between = [int(extent.oldest) + width * k // count for k in range(1, count)]
    return Cut(at, tuple(sorted(t for t in set(between) if extent.oldest < t < at)))


def slices_for(rows: int | None, lanes: int) -> int:
    """Into how many slices of time a history is cut.

    >>> slices_for(100, 8), slices_for(200_000, 8), slices_for(20_000_000, 8)
    (1, 4, 40)
    """
    if rows is None:
        return UNKNOWN
    return max(1, min(MOST_SLICES, max(rows // SLICE, min(lanes, rows // LEAST))))


# ------------------------------------------------------------------------------ archives


def _of_archive(
    session: SparkSession, archive: Archive, workload: Workload, begin: float | None
) -> PastEvents:
    source, there = workload.source, archive.shape
    schema, ours = there.schema, source.shape.schema
    for what, then, now in (
        ("time", (schema.start, schema.end), (ours.start, ours.end)),
        ("type", schema.type_column, ours.type_column),
    ):
        if then != now:
            raise EventError(
                f"the {what} column of the history is {then!r}, that of the stream {now!r}\n"
                "  hint: rename the columns of one to match the other"
            )
    complete = getattr(archive, "complete", None)
    until = None if complete is None else moment(complete, source.shape)
    described = archive.described()
    if isinstance(archive, FrameArchive):
        return _of_frame(archive.frame, workload, begin, until, described)
    if isinstance(archive, TableArchive):
        frame = _as_frame(session, archive.events, source)
        return _of_frame(frame, workload, begin, until, described)
    _require_columns(there.arrow, source, ())
    cut = cut_of(_extent(archive, source, begin), until, workload)
    read = ReadSlices(archive, source, workload.types, _pieces(archive, source, begin, cut))
    count = len(read.pieces)
    numbers = session.range(0, count, 1, count)
    return PastEvents(numbers.mapInArrow(read, spark_schema(source.arrow)), cut, described)


def _open_piece(shape: Shape) -> pa.Table:
    kind = shape.arrow.field(shape.schema.end).type
    return pa.table({SINCE: pa.nulls(1, kind), UNTIL: pa.nulls(1, kind)})


def _extent(archive: Archive, source: Source, begin: float | None) -> Extent:
    """What its layout says; where it says nothing, its times are read."""
    layout, shape = archive.layout(), source.shape
    known = layout.since is not None and layout.until is not None
    if known:
        kind = archive.shape.arrow.field(shape.schema.end).type
        last = last_end(archive)
        if last is None:
            return Extent(None, None, 0)
        both = pa.chunked_array([pa.array([layout.since], kind), last.cast(kind)])
        oldest, newest = np.asarray(from_arrow(both, shape.unit).values).tolist()
        if begin is not None and begin > oldest:
            return Extent(begin, newest, None)
        return Extent(oldest, newest, layout.rows)
    wanted = Wanted(_open_piece(archive.shape), columns=(shape.schema.start, shape.schema.end))
    times = archive.read(wanted).events.column(shape.schema.end)
    if not len(times):
        return Extent(None, None, 0)
    values = np.asarray(from_arrow(times, shape.unit).values)
    return Extent(values.min().item(), values.max().item(), len(values))


def _pieces(archive: Archive, source: Source, begin: float | None, cut: Cut) -> list[pa.Table]:
    """What each task reads: a slice. Events that last may lie across the ends of slices, and are
    read by one task."""
    kind = archive.shape.arrow.field(archive.shape.schema.end).type
    firsts = [None if begin is None else _first(begin, kind, source)]
    if not source.shape.schema.intervals:
        firsts += [_first(bound, kind, source) for bound in cut.bounds]
    firsts.append(_first(cut.at, kind, source))
    return [
        pa.table({SINCE: _array(since, kind), UNTIL: _array(_previous(until), kind)})
        for since, until in pairwise(firsts)
    ]


def _first(time: float, kind: pa.DataType, source: Source) -> Any:
    """The first value of an archive's time column that is not before a moment."""
    if pa.types.is_floating(kind):
        least = np.dtype(kind.to_pandas_dtype()).type(time)
        return least if least >= time else np.nextafter(least, least.dtype.type(np.inf))
    if pa.types.is_integer(kind):
        return math.ceil(time)
    ours = source.clock.per_ms  # ticks of ours in a millisecond
    ticks = {"s": (1, 1_000), "ms": (1, 1), "us": (1_000, 1), "ns": (1_000_000, 1)}
    many, few = (1, 86_400_000) if pa.types.is_date(kind) else ticks[kind.unit]
    return -(-int(time) * many // (ours * few))


def _previous(value: Any) -> Any:
    return (
        np.nextafter(value, -np.inf, dtype=value.dtype) if hasattr(value, "dtype") else value - 1
    )


def _array(value: Any, kind: pa.DataType) -> pa.Array:
    if value is None or pa.types.is_floating(kind):
        return pa.array([value], kind)
    if pa.types.is_date32(kind):
        return pa.array([value], pa.int32()).cast(kind)
    return pa.array([value], pa.int64()).cast(kind)


@dataclass(frozen=True)
class ReadSlices:
    """Reads the slices of an archive in the tasks of Spark: each number is that of a slice."""

    archive: Archive
    source: Source
    types: frozenset[str] | None
    pieces: list[pa.Table]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.source.arrow
        for batch in batches:
            for number in batch.column(0).to_pylist():
                wanted = Wanted(self.pieces[number], None, self.types, tuple(schema.names))
                events = _cast(self.archive.read(wanted).events, schema)
                yield from events.to_batches(max_chunksize=OUTPUT_ROWS)
