"""How far a stream's time has come, in Spark's terms and in those of a matcher."""

import math
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from ensue.algebra.durations import parse_duration
from ensue.columns.stream import Shape
from ensue.errors import EventError
from ensue.runners.spark.frames import quoted
from ensue.schema import Kind
from ensue.workload.arguments import USUAL
from ensue.workload.lanes.clock import FURTHEST_MS, calendar

_TIME = "__time"  # the time column in a type that Spark has watermarks for
_DELAY = "spark.watermarkDelayMs"  # where Spark notes a watermark in a column's metadata
_LONGEST = 1 << 60  # microseconds
_USUAL_AHEAD = 24 * 3_600 * 1_000_000  # microseconds

Watermark = str | int | float | timedelta
Ahead = str | timedelta | None  # also USUAL


@dataclass(frozen=True)
class Watched:
    """A stream with a watermark."""

    frame: DataFrame
    clock: str  # the column that the watermark is on
    delay_ms: int | None  # how far it stays behind the newest event; None: it is not known
    ahead: Column | None = None  # which events are too far ahead of the clock

    def without_those_ahead(self) -> "Watched":
        """The same where somebody else counts them."""
        if self.ahead is None:
            return self
        return replace(self, frame=self.frame.filter(~self.ahead), ahead=None)

    def told_apart(self) -> Column:
        """The events that lanes or counters have to know of, whatever their type: those that are
        too far ahead, and those that Spark's watermark cannot follow.

        A filter that asks for them depends on the watermark's column, so Spark does not move it
        below the watermark: events that do not matter let time pass like all others.
        """
        clock = sql.unix_millis(sql.col(quoted(self.clock)))
        beyond = (clock <= 0) | (clock >= FURTHEST_MS)
        return beyond if self.ahead is None else beyond | self.ahead


def with_watermark(
    frame: DataFrame, shape: Shape, watermark: Watermark | None, max_ahead: Ahead = None
) -> Watched:
    """The frame with the watermark that is asked for, or with its own.

    How far a DataFrame's own one stays behind is not known: it may be the least of several.
    """
    end = shape.schema.end
    own = [f.name for f in frame.schema if _DELAY in (f.metadata or {})]
    if watermark is None:
        _check_own(own, end, shape)
        why = "the DataFrame's own withWatermark(...) follows every event"
        _refuse_ahead(max_ahead, why, "leave that out and pass watermark=")
        return Watched(frame, end, None)
    if own:
        raise EventError(
            f"the DataFrame already has a watermark, on column '{own[0]}'\n"
            "  hint: leave out watermark=, or pass the DataFrame without withWatermark(...)"
        )
    delay_ms = _delay_ms(watermark, calendar(shape))
    time = _timestamp(frame, shape)
    ahead = _ahead(time, max_ahead, calendar(shape))
    if ahead is not None:
        time = sql.when(~ahead, time)
    watched = frame.withColumn(_TIME, time).withWatermark(_TIME, f"{delay_ms} milliseconds")
    return Watched(watched, _TIME, delay_ms, ahead)


def _ahead(time: Column, max_ahead: Ahead, on_calendar: bool) -> Column | None:
    """When a time is too far ahead of the clock, at which Spark began the micro-batch.

    Spark notes that moment with the micro-batch: one that is repeated decides alike.
    """
    most = furthest_ahead(max_ahead, on_calendar)
    if most is None:
        return None
    now = sql.unix_micros(sql.current_timestamp())
    return sql.coalesce(sql.unix_micros(time) > now + sql.lit(most), sql.lit(False))


def furthest_ahead(max_ahead: Ahead, on_calendar: bool) -> int | None:
    """How many microseconds an event may be ahead of the clock; None: any number."""
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
            raise EventError(
                f'max_ahead={max_ahead!r} is not a length of time such as "1 hour", nor None'
            )
    if most < 0:
        raise EventError(f"max_ahead={max_ahead!r} is not a length of time")
    return min(most, _LONGEST)


def _refuse_ahead(max_ahead: Ahead, why: str, hint: str) -> None:
    """Unless it is what it is by default, or None."""
    if max_ahead is not None and max_ahead != USUAL:
        raise EventError(f"max_ahead={max_ahead!r} cannot be kept: {why}\n  hint: {hint}")


def _check_own(own: list[str], end: str, shape: Shape) -> None:
    if not own:
        example = '"10 seconds"' if calendar(shape) else "100"
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


def _timestamp(frame: DataFrame, shape: Shape) -> Column:
    """The end of events as timestamps, for which Spark has watermarks; NULL for no time."""
    name = shape.schema.end
    column = sql.col(quoted(name))
    match shape.schema.time_kind:
        case Kind.TIMESTAMP:
            if isinstance(frame.schema[name].dataType, spark.TimestampType):
                return column
            since = sql.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
            return sql.timestamp_micros(sql.timestamp_diff("MICROSECOND", since, column))
        case Kind.DATE:
            return sql.timestamp_seconds(sql.unix_date(column).cast("long") * 86_400)
        case Kind.FLOAT:
            column = sql.when(sql.abs(column) < sql.lit(math.inf), column)  # not for NaN either
        case _:
            pass
    within = sql.least(sql.greatest(column, sql.lit(-FURTHEST_MS)), sql.lit(FURTHEST_MS))
    return sql.timestamp_millis(sql.floor(within).cast("long"))


def before(frame: DataFrame, name: str, shape: Shape, time: float) -> Column:
    """Whether a time column is before a moment of the matcher's time, so that Spark can also pick
    files by it."""
    column = sql.col(quoted(name))
    match shape.schema.time_kind:
        case Kind.TIMESTAMP:
            limit = sql.timestamp_micros(sql.lit(int(time)))
            if not isinstance(frame.schema[name].dataType, spark.TimestampType):
                limit = sql.lit(str(np.datetime64(int(time), "us"))).cast("timestamp_ntz")
            return column < limit
        case Kind.DATE:
            return column < sql.date_from_unix_date(sql.lit(-(-int(time) // 86_400_000_000)))
        case _:
            return column < sql.lit(time)


def _delay_ms(watermark: Watermark, on_calendar: bool) -> int:
    match watermark:
        case timedelta() if on_calendar:
            delay = watermark / timedelta(milliseconds=1)
        case str() if on_calendar:
            delay = parse_duration(watermark) / 1_000_000
        case bool():
            delay = math.nan
        case int() | float() if not on_calendar:
            delay = watermark
        case _:
            wanted = 'a length of time such as "10 seconds"' if on_calendar else "a number"
            kind = "timestamps" if on_calendar else "numbers"
            raise EventError(
                f"watermark={watermark!r}: the time column holds {kind}, "
                f"so the watermark must be {wanted}"
            )
    if not (math.isfinite(delay) and delay >= 0):
        raise EventError(f"watermark={watermark!r} is not a length of time")
    return math.ceil(delay)
