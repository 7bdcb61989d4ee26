"""The watermark of a stream in the units of its time column."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.errors import EventError
from ensue.ir.values import parse_duration
from ensue.schema import ValueKind
from ensue.vector.event_table import StreamSchema

# Spark stores microseconds in 64 bits, which limits its watermark
MAX_WATERMARK_MS = 9_000_000_000_000_000
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1  # of 64 bits


@dataclass(frozen=True, slots=True)
class WatermarkClock:
    """Converts between Spark's watermark, in milliseconds since 1970, and the time of a matcher.

    A numeric column counts milliseconds. Spark's own watermark is between 0 and
    `MAX_WATERMARK_MS`; outside, key groups use the newest times that tasks report.

    >>> clock = WatermarkClock(ValueKind.TIMESTAMP, 1_000)
    >>> clock.time(5), clock.time(-5), clock.timer(4_999), clock.timer(5_000)
    (5000, -5000, 5, 6)
    """

    kind: ValueKind
    per_ms: int  # units of the matcher's time in a millisecond

    def time(self, ms: int) -> float:
        """Converts milliseconds to the matcher's time, rounded down to its precision."""
        time = ms * self.per_ms
        if self.kind is not ValueKind.FLOAT:
            return max(_LEAST, min(time, _MOST))
        rounded = float(time)
        return math.nextafter(rounded, -math.inf) if rounded > time else rounded

    def watermark(self, watermark_ms: int) -> float | None:
        """Spark's watermark in the matcher's time. None: it has not begun."""
        return self.time(watermark_ms) if watermark_ms > 0 else None

    def newest_ms(self, ends: npt.NDArray[Any]) -> int | None:
        """The newest time in milliseconds, for Spark's watermark; None if there is none."""
        if not len(ends):
            return None
        newest = math.floor(ends.max().item() // self.per_ms)
        return min(newest, _MOST) if newest >= _LEAST else None

    def following(self, time: float) -> float:
        """The smallest time after another one.

        >>> WatermarkClock(ValueKind.INTEGER, 1).following(7)
        8
        """
        return math.nextafter(time, math.inf) if self.kind is ValueKind.FLOAT else time + 1

    def format_time(self, time: float) -> str:
        """Formats a time for error messages.

        >>> print(
        ...     WatermarkClock(ValueKind.TIMESTAMP, 1_000).format_time(1_500_000),
        ...     WatermarkClock(ValueKind.INTEGER, 1).format_time(7),
        ... )
        1970-01-01T00:00:01.500000 7
        """
        if self.kind not in (ValueKind.TIMESTAMP, ValueKind.DATE):
            return str(time)
        return str(np.datetime64(int(time), "us" if self.per_ms == 1_000 else "ns"))

    def timer(self, due: float) -> int:
        """The first of Spark's watermarks that has passed a time."""
        return min(max(1, math.floor(due // self.per_ms) + 1), _MOST)


def fits_spark_watermark(ms: int) -> bool:
    """Whether Spark can represent this watermark, with any delay behind the newest event."""
    return 0 < ms < MAX_WATERMARK_MS // 2


def create_clock(shape: StreamSchema) -> WatermarkClock:
    """The clock of a stream's time column."""
    if not is_calendar_time(shape):
        return WatermarkClock(shape.schema.time_kind, 1)
    return WatermarkClock(shape.schema.time_kind, 1_000 if shape.unit == "us" else 1_000_000)


def convert_length(length: object, shape: StreamSchema, name: str) -> float:
    """Converts the value of the argument `name` to a length in the matcher's time."""
    clock = create_clock(shape)
    if isinstance(length, str) and is_calendar_time(shape):
        return parse_duration(length) * clock.per_ms // 1_000_000
    if not is_calendar_time(shape) and isinstance(length, int | float) and length >= 0:
        return length
    hint = "as '2 hours'" if is_calendar_time(shape) else "a number, as the time column holds numbers"
    raise EventError(f"{name}={length!r} is not a length of time\n  hint: {hint}")


def is_calendar_time(shape: StreamSchema) -> bool:
    """Whether the time column holds times of day and year, not numbers."""
    return shape.schema.time_kind in (ValueKind.TIMESTAMP, ValueKind.DATE)
