"""Reads the events of a history (`history=`) into a DataFrame with the columns of the stream."""

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

from ensue.archives.archive import SINCE, UNTIL, Archive, ArchiveOptions, ArchiveRead, read_last_end
from ensue.archives.factory import open_archive
from ensue.archives.memory_archive import TableArchive
from ensue.backends.dataframe_libs import as_table
from ensue.backends.live_backend import to_engine_time
from ensue.backends.spark.dataframe_archives import FrameArchive
from ensue.backends.spark.event_time import MaxAhead, is_before, parse_max_ahead
from ensue.backends.spark.frames import arrow_schema, get_column, is_without_time, read_dataframe, spark_schema
from ensue.backends.spark.match_frames import OUTPUT_ROWS
from ensue.errors import EventError
from ensue.runtime.source_schema import SourceSchema, is_internal_column
from ensue.runtime.tasks.backfill import BackfillCut
from ensue.runtime.tasks.watermark import is_calendar_time
from ensue.runtime.workload import Workload
from ensue.schema import ValueKind
from ensue.vector.arrow_types import kind_of_arrow
from ensue.vector.column_values import from_arrow
from ensue.vector.event_table import TYPE, StreamSchema

SLICE_EVENTS = 500_000  # events in a slice of time, roughly
MIN_SLICE_EVENTS = 50_000  # fewer are not worth a separate slice
MAX_SLICES = 1_024
DEFAULT_SLICES = 32  # slices of a history of unknown size


@dataclass(frozen=True)
class Extent:
    """The time range of a history in the engine's unit; None without events."""

    oldest: float | None
    newest: float | None
    rows: int | None


@dataclass(frozen=True)
class HistoryEvents:
    """The events of a history before the cut, where the stream takes over."""

    frame: DataFrame
    cut: BackfillCut


def read_history(session: SparkSession, history: Any, workload: Workload, since: Any) -> HistoryEvents:
    """Read the events of a history from `since` up to its cut."""
    source = workload.source
    begin = None if since is None else to_engine_time(since, source.shape)
    if isinstance(history, str | Path):
        history = open_archive(history, ArchiveOptions(source.time, source.type, order=source.order))
    if isinstance(history, Mapping):
        return _past_of_frame(_by_type(session, history, source), workload, begin, None)
    if _is_archive(history):
        return _past_of_archive(session, history.pinned(), workload, begin)
    return _past_of_frame(_as_frame(session, history, source), workload, begin, None)


def _is_archive(history: object) -> bool:
    # ask the class: a Spark Connect DataFrame has attributes of any name
    methods = ("pinned", "describe", "layout", "read")
    return all(hasattr(type(history), name) for name in methods)


# -------------------------------------------------------------------------------- frames


def _as_frame(session: SparkSession, history: Any, source: SourceSchema) -> DataFrame:
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


def _by_type(session: SparkSession, history: Mapping[str, Any], source: SourceSchema) -> DataFrame:
    """Read a history that is a dict by event type, like the stream."""
    if source.by_type is None:
        raise EventError(
            "history= is a dict by event type, and the stream is one DataFrame\n"
            "  hint: pass the history as one table as well"
        )
    frames = {}
    for name, table in history.items():
        if not hasattr(table, "isStreaming"):
            table = session.createDataFrame(as_table(table))
        elif table.isStreaming:
            raise EventError(f"history= of {name} is a stream\n  hint: read it with spark.read")
        frames[name] = table
    return read_dataframe(frames, time=source.time, order=source.order)[0]


def _past_of_frame(frame: DataFrame, workload: Workload, begin: float | None, complete: float | None) -> HistoryEvents:
    source, shape = workload.source, workload.source.shape
    frame = _select_columns(frame, source)
    bad = is_without_time(shape, workload.types)
    start, end = shape.schema.start, shape.schema.end
    if begin is not None:
        frame = frame.filter(bad | ~is_before(frame, start, shape, begin))
    usable = frame.filter(~is_without_time(shape))
    column = get_column(end)
    oldest, newest, rows = (
        usable.agg(sql.min(column).alias("oldest"), sql.max(column).alias("newest"), sql.count(column))
        .toArrow()
        .columns
    )
    extent = Extent(_find_newest_time(oldest, shape), _find_newest_time(newest, shape), rows[0].as_py())
    cut = compute_cut(extent, complete, workload)
    frame = frame.filter(bad | is_before(frame, end, shape, cut.at))
    return HistoryEvents(frame, cut)


def _select_columns(frame: DataFrame, source: SourceSchema) -> DataFrame:
    available = arrow_schema(frame.schema)
    _require_columns(available, source, (TYPE,) if source.by_type is not None else ())
    schema = spark_schema(source.arrow)
    columns: list[Column] = []
    for field in schema:
        column = get_column(field.name)
        if field.name not in available.names:  # an event type without events in the history
            column = sql.lit(None).cast(field.dataType)
        elif frame.schema[field.name].dataType != field.dataType:
            column = column.cast(field.dataType)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def _require_columns(available: pa.Schema, source: SourceSchema, known: tuple[str, ...]) -> None:
    """Raise EventError unless the history has the columns of the stream, with the same types."""
    for field in source.arrow:
        if field.name not in available.names:
            if source.by_type is not None and field.name not in known:
                continue
            if is_internal_column(field.name):
                raise EventError(
                    "history= does not support a computed PARTITION BY yet\n"
                    "  hint: add the key as a column to the history and to the stream"
                )
            raise EventError(
                f"the history has no column '{field.name}', which the stream has\n"
                f"  hint: it has {', '.join(available.names)}"
            )
        past, live = available.field(field.name).type, field.type
        kinds = {(kind_of_arrow(type), pa.types.is_timestamp(type) and type.tz is not None) for type in (past, live)}
        if len(kinds) > 1:
            raise EventError(
                f"column '{field.name}' is {past} in the history and {live} in the stream\n  hint: cast one of them"
            )


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    try:
        # Spark truncates times to microseconds
        return table.select(schema.names).cast(schema, safe=False)
    except pa.ArrowException as error:
        raise EventError(f"the history does not have the stream's columns: {error}") from None


def _find_newest_time(column: pa.ChunkedArray, shape: StreamSchema) -> float | None:
    if column[0].as_py() is None:
        return None
    ticks: float = np.asarray(from_arrow(column, shape.unit).values)[0].item()
    return ticks


# ------------------------------------------------------------------------------- the cut


def require_not_ahead(cut: BackfillCut, workload: Workload, max_ahead: MaxAhead) -> None:
    """Raise EventError if the cut lies so far in the future that all events would precede it."""
    calendar = is_calendar_time(workload.source.shape)
    max_ticks = parse_max_ahead(max_ahead, calendar)
    now = int(time() * 1_000) * workload.source.clock.per_ms
    if max_ticks is not None and calendar and cut.at > now + max_ticks:
        raise EventError(
            f"the history ends at {workload.source.clock.format_time(cut.at)}, further ahead of the "
            "clock than max_ahead allows: all events of the stream would be before that\n"
            "  hint: fix the time of its newest event, or set until when it is complete: "
            "ensue.archive(..., complete=...)"
        )


def compute_cut(extent: Extent, complete: float | None, workload: Workload) -> BackfillCut:
    """Compute the end of the history and the bounds of its slices.

    The history is complete up to `complete`, or else up to and including its newest event.
    """
    kind = workload.source.shape.schema.time_kind
    at = complete
    if at is None:
        if extent.newest is None:
            raise EventError(
                "the history has no events, so its end is not known\n"
                "  hint: set it with ensue.archive(..., complete=...), or leave out history="
            )
        at = workload.source.clock.following(extent.newest)
    if extent.oldest is None or extent.oldest >= at:
        return BackfillCut(at)
    count = count_slices(extent.rows, workload.key_groups)
    between = [extent.oldest + (at - extent.oldest) * k / count for k in range(1, count)]
    if kind is not ValueKind.FLOAT:
        width = int(at) - int(extent.oldest)
        between = [int(extent.oldest) + width * k // count for k in range(1, count)]
    return BackfillCut(at, tuple(sorted(t for t in set(between) if extent.oldest < t < at)))


def count_slices(rows: int | None, key_groups: int) -> int:
    """Return the number of time slices of a history.

    >>> count_slices(100, 8), count_slices(200_000, 8), count_slices(20_000_000, 8)
    (1, 4, 40)
    """
    if rows is None:
        return DEFAULT_SLICES
    return max(1, min(MAX_SLICES, max(rows // SLICE_EVENTS, min(key_groups, rows // MIN_SLICE_EVENTS))))


# ------------------------------------------------------------------------------ archives


def _past_of_archive(session: SparkSession, archive: Archive, workload: Workload, begin: float | None) -> HistoryEvents:
    source, shape = workload.source, archive.shape
    schema, ours = shape.schema, source.shape.schema
    for what, then, now in (
        ("time", (schema.start, schema.end), (ours.start, ours.end)),
        ("type", schema.type_column, ours.type_column),
    ):
        if then != now:
            raise EventError(
                f"the {what} column is {then!r} in the history and {now!r} in the stream\n"
                "  hint: rename the columns of one to match the other"
            )
    complete = getattr(archive, "complete", None)
    until = None if complete is None else to_engine_time(complete, source.shape)
    if isinstance(archive, FrameArchive):
        return _past_of_frame(archive.frame, workload, begin, until)
    if isinstance(archive, TableArchive):
        return _past_of_frame(_as_frame(session, archive.events, source), workload, begin, until)
    _require_columns(shape.arrow, source, ())
    cut = compute_cut(_extent(archive, source, begin), until, workload)
    read = ReadSlices(archive, source, workload.types, _pieces(archive, source, begin, cut))
    count = len(read.pieces)
    numbers = session.range(0, count, 1, count)
    return HistoryEvents(numbers.mapInArrow(read, spark_schema(source.arrow)), cut)


def _extent(archive: Archive, source: SourceSchema, begin: float | None) -> Extent:
    """Return the time range from the layout of an archive, or else from its time column."""
    layout, shape = archive.layout(), source.shape
    kind = archive.shape.arrow.field(shape.schema.end).type
    if layout.since is not None and layout.until is not None:
        last = read_last_end(archive)
        if last is None:
            return Extent(None, None, 0)
        both = pa.chunked_array([pa.array([layout.since], kind), last.cast(kind)])
        oldest, newest = np.asarray(from_arrow(both, shape.unit).values).tolist()
        if begin is not None and begin > oldest:
            return Extent(begin, newest, None)
        return Extent(oldest, newest, layout.rows)
    unbounded = pa.table({SINCE: pa.nulls(1, kind), UNTIL: pa.nulls(1, kind)})
    request = ArchiveRead(unbounded, columns=(shape.schema.end,))
    times = archive.read(request).events.column(shape.schema.end)
    if not len(times):
        return Extent(None, None, 0)
    values = np.asarray(from_arrow(times, shape.unit).values)
    return Extent(values.min().item(), values.max().item(), len(values))


def _pieces(archive: Archive, source: SourceSchema, begin: float | None, cut: BackfillCut) -> list[pa.Table]:
    """Return the slice of each task. Events with a duration may cross slice bounds, so one task
    reads all of them."""
    kind = archive.shape.arrow.field(archive.shape.schema.end).type
    firsts = [None if begin is None else _first_value(begin, kind, source)]
    if not source.shape.schema.intervals:
        firsts += [_first_value(bound, kind, source) for bound in cut.bounds]
    firsts.append(_first_value(cut.at, kind, source))
    return [
        pa.table({SINCE: _array(since, kind), UNTIL: _array(_previous(until), kind)})
        for since, until in pairwise(firsts)
    ]


def _first_value(time: float, kind: pa.DataType, source: SourceSchema) -> Any:
    """Return the smallest value of an archive's time column that is not before a time."""
    if pa.types.is_floating(kind):
        least = np.dtype(kind.to_pandas_dtype()).type(time)
        return least if least >= time else np.nextafter(least, least.dtype.type(np.inf))
    if pa.types.is_integer(kind):
        return math.ceil(time)
    ours = source.clock.per_ms  # engine ticks in a millisecond
    ticks = {"s": (1, 1_000), "ms": (1, 1), "us": (1_000, 1), "ns": (1_000_000, 1)}
    many, few = (1, 86_400_000) if pa.types.is_date(kind) else ticks[kind.unit]
    return -(-int(time) * many // (ours * few))


def _previous(value: Any) -> Any:
    return np.nextafter(value, -np.inf, dtype=value.dtype) if hasattr(value, "dtype") else value - 1


def _array(value: Any, kind: pa.DataType) -> pa.Array:
    if value is None or pa.types.is_floating(kind):
        return pa.array([value], kind)
    if pa.types.is_date32(kind):
        return pa.array([value], pa.int32()).cast(kind)
    return pa.array([value], pa.int64()).cast(kind)


@dataclass(frozen=True)
class ReadSlices:
    """Reads the slices of an archive in Spark tasks; the input rows are slice numbers."""

    archive: Archive
    source: SourceSchema
    types: frozenset[str] | None
    pieces: list[pa.Table]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.source.arrow
        for batch in batches:
            for number in batch.column(0).to_pylist():
                request = ArchiveRead(self.pieces[number], None, self.types, tuple(schema.names))
                events = _cast(self.archive.read(request).events, schema)
                yield from events.to_batches(max_chunksize=OUTPUT_ROWS)
