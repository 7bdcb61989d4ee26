"""How far a stream's time has come, in Spark's terms and in those of a matcher."""

import math
from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql
from pyspark.sql import types as spark

from ensue.algebra.durations import parse_duration
from ensue.compile.stream import Shape
from ensue.errors import EventError
from ensue.runners.clock import calendar
from ensue.runners.spark_frames import quoted
from ensue.schema import Kind

_TIME = "__time"  # the time column in a type that Spark has watermarks for
_MOST = 9_000_000_000_000_000  # milliseconds
_DELAY = "spark.watermarkDelayMs"  # where Spark notes a watermark in a column's metadata

Watermark = str | int | float | timedelta


def with_watermark(
    frame: DataFrame, shape: Shape, watermark: Watermark | None
) -> tuple[DataFrame, int | None]:
    """The frame with the watermark that is asked for, or with its own.

    Also how many milliseconds it stays behind the newest event; None where this is not known,
    since a DataFrame's own watermark may be the least of several.
    """
    end = shape.schema.end
    own = [f.name for f in frame.schema if _DELAY in (f.metadata or {})]
    if watermark is None:
        _check_own(own, end, shape)
        return frame, None
    if own:
        raise EventError(
            f"the DataFrame has a watermark already, on column '{own[0]}'\n"
            "  hint: leave out watermark=, or pass the DataFrame without withWatermark(...)"
        )
    delay_ms = _delay_ms(watermark, calendar(shape))
    name = end
    if not isinstance(frame.schema[end].dataType, spark.TimestampType):
        name = _TIME
        frame = frame.withColumn(_TIME, _timestamp(end, shape.schema.time_kind))
    return frame.withWatermark(name, f"{delay_ms} milliseconds"), delay_ms


def _check_own(own: list[str], end: str, shape: Shape) -> None:
    if not own:
        example = '"10 seconds"' if calendar(shape) else "100"
        raise EventError(
            "a stream needs a watermark: how late events may come\n"
            f"  hint: pass watermark={example}, or a DataFrame with withWatermark(...)"
        )
    if end not in own:
        raise EventError(
            f"the DataFrame's watermark is on column '{own[0]}', "
            f"but events are ordered by '{end}'\n"
            f"  hint: withWatermark({end!r}, ...)"
        )


def _timestamp(name: str, kind: Kind) -> Column:
    """A time column as timestamps, for which Spark has watermarks."""
    column = sql.col(quoted(name))
    match kind:
        case Kind.TIMESTAMP:  # without a time zone
            since = sql.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
            return sql.timestamp_micros(sql.timestamp_diff("MICROSECOND", since, column))
        case Kind.DATE:
            return sql.timestamp_seconds(sql.unix_date(column) * 86_400)
        case Kind.FLOAT:
            column = sql.when(~sql.isnan(column), column)
        case _:
            pass
    # Spark keeps microseconds in 64 bits: beyond them the clock stands still
    within = sql.least(sql.greatest(column, sql.lit(-_MOST)), sql.lit(_MOST))
    return sql.timestamp_millis(sql.floor(within).cast("long"))


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
                f"so the watermark is {wanted}"
            )
    if not (math.isfinite(delay) and delay >= 0):
        raise EventError(f"watermark={watermark!r} is not a length of time")
    return math.ceil(delay)
