"""Watermarks and event-time conditions of streams, in Spark columns."""

import math
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from ensue.backends.live_backend import parse_delay
from ensue.backends.spark.frames import get_column
from ensue.errors import EventError
from ensue.ir.values import parse_duration
from ensue.options import DEFAULT
from ensue.runtime.tasks.watermark import MAX_WATERMARK_MS, is_calendar_time
from ensue.schema import ValueKind
from ensue.vector.event_table import StreamSchema

_TIME = "__time"  # the time column as a timestamp, for Spark's watermark
_DELAY = "spark.watermarkDelayMs"  # the watermark in a column's metadata
_LONGEST = 1 << 60  # microseconds
_USUAL_AHEAD = 24 * 3_600 * 1_000_000  # microseconds

Watermark = str | int | float | timedelta
MaxAhead = str | timedelta | None  # also USUAL


@dataclass(frozen=True)
class WatermarkedFrame:
    """A stream with a watermark."""

    frame: DataFrame
    clock: str  # the column of the watermark
    delay_ms: int | None  # how far it lags behind the newest event; None: unknown
    ahead: Column | None = None  # whether an event is too far ahead of the clock

    def drop_ahead(self) -> "WatermarkedFrame":
        """Drop events too far ahead, which another chain counts."""
        if self.ahead is None:
            return self
        return replace(self, frame=self.frame.filter(~self.ahead), ahead=None)

    def must_keep(self) -> Column:
        """Return the condition for events that must be kept for any type: those too far ahead,
        and those beyond the range of Spark's watermark.

        A filter with it depends on the watermark column, so Spark does not push it below the
        watermark: irrelevant events advance the watermark, too.
        """
        clock = sql.unix_millis(get_column(self.clock))
        beyond = (clock <= 0) | (clock >= MAX_WATERMARK_MS)
        return beyond if self.ahead is None else beyond | self.ahead


def with_watermark(
    frame: DataFrame, shape: StreamSchema, watermark: Watermark | None, max_ahead: MaxAhead = None
) -> WatermarkedFrame:
    """Add a watermark to a frame, or use the one that it has.

    The delay of an existing one is unknown: it may be the minimum of several.
    """
    end = shape.schema.end
    watermarked = [f.name for f in frame.schema if _DELAY in (f.metadata or {})]
    if watermark is None:
        _check_own(watermarked, end, shape)
        why = "the DataFrame's own withWatermark(...) follows every event"
        _refuse_ahead(max_ahead, why, "leave that out and pass watermark=")
        return WatermarkedFrame(frame, end, None)
    if watermarked:
        raise EventError(
            f"the DataFrame already has a watermark, on column '{watermarked[0]}'\n"
            "  hint: leave out watermark=, or pass the DataFrame without withWatermark(...)"
        )
    calendar = is_calendar_time(shape)
    delay = parse_delay(watermark, on_calendar=calendar)
    delay_ms = math.ceil(delay) if not calendar else -(-int(delay) // 1_000_000)
    time = _timestamp(frame, shape)
    ahead = _ahead(time, max_ahead, calendar)
    if ahead is not None:
        time = sql.when(~ahead, time)
    watched = frame.withColumn(_TIME, time).withWatermark(_TIME, f"{delay_ms} milliseconds")
    return WatermarkedFrame(watched, _TIME, delay_ms, ahead)


def _ahead(time: Column, max_ahead: MaxAhead, on_calendar: bool) -> Column | None:
    """Return the condition for times too far ahead of the start of the micro-batch.

    Spark stores that start with the micro-batch, so a repeated one gives the same result.
    """
    most = parse_max_ahead(max_ahead, on_calendar)
    if most is None:
        return None
    now = sql.unix_micros(sql.current_timestamp())
    return sql.coalesce(sql.unix_micros(time) > now + sql.lit(most), sql.lit(False))


def parse_max_ahead(max_ahead: MaxAhead, on_calendar: bool) -> int | None:
    """Convert `max_ahead=` to microseconds; None means no limit."""
    if not on_calendar:
        why = "the time column holds numbers, which have no clock"
        _refuse_ahead(max_ahead, why, "make it timestamps, as with timestamp_millis(column)")
        return None
    match max_ahead:
        case None:
            return None
        case "usual":
            most = _USUAL_AHEAD
        case str():
            most = parse_duration(max_ahead) // 1_000
        case timedelta():
            most = max_ahead // timedelta(microseconds=1)
        case _:
            raise EventError(f'max_ahead={max_ahead!r} is not a length of time such as "1 hour", nor None')
    if most < 0:
        raise EventError(f"max_ahead={max_ahead!r} is not a length of time")
    return min(most, _LONGEST)


def _refuse_ahead(max_ahead: MaxAhead, why: str, hint: str) -> None:
    """Raise EventError if max_ahead= was set explicitly."""
    if max_ahead is not None and max_ahead != DEFAULT:
        raise EventError(f"max_ahead={max_ahead!r} is not possible: {why}\n  hint: {hint}")


def _check_own(own: list[str], end: str, shape: StreamSchema) -> None:
    if not own:
        example = '"10 seconds"' if is_calendar_time(shape) else "100"
        raise EventError(
            "a stream needs a watermark: how late events may be\n"
            f"  hint: pass watermark={example}, or a DataFrame with withWatermark(...)"
        )
    if end not in own:
        raise EventError(
            f"the DataFrame's watermark is on column '{own[0]}', "
            f"but events are ordered by '{end}'\n"
            f"  hint: withWatermark({end!r}, ...)"
        )


def _timestamp(frame: DataFrame, shape: StreamSchema) -> Column:
    """Return the end of events as a timestamp for Spark's watermark; NULL if unusable."""
    name = shape.schema.end
    column = get_column(name)
    match shape.schema.time_kind:
        case ValueKind.TIMESTAMP:
            if isinstance(frame.schema[name].dataType, spark.TimestampType):
                return column
            since = sql.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
            return sql.timestamp_micros(sql.timestamp_diff("MICROSECOND", since, column))
        case ValueKind.DATE:
            return sql.timestamp_seconds(sql.unix_date(column).cast("long") * 86_400)
        case ValueKind.FLOAT:
            column = sql.when(sql.abs(column) < sql.lit(math.inf), column)  # false for NaN, too
        case _:
            pass
    within = sql.least(sql.greatest(column, sql.lit(-MAX_WATERMARK_MS)), sql.lit(MAX_WATERMARK_MS))
    return sql.timestamp_millis(sql.floor(within).cast("long"))


def is_before(frame: DataFrame, name: str, shape: StreamSchema, time: float) -> Column:
    """Compare a time column with an engine time, in a form that Spark can push down to files."""
    column = get_column(name)
    match shape.schema.time_kind:
        case ValueKind.TIMESTAMP:
            limit = sql.timestamp_micros(sql.lit(int(time)))
            if not isinstance(frame.schema[name].dataType, spark.TimestampType):
                limit = sql.lit(str(np.datetime64(int(time), "us"))).cast("timestamp_ntz")
            return column < limit
        case ValueKind.DATE:
            return column < sql.date_from_unix_date(sql.lit(-(-int(time) // 86_400_000_000)))
        case _:
            return column < sql.lit(time)
