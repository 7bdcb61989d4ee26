"""The watermark of a stream in the units of its time column."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.algebra.durations import parse_duration
from ensue.columns.stream import Shape
from ensue.errors import EventError
from ensue.schema import Kind

# Spark keeps microseconds in 64 bits: no watermark is beyond
FURTHEST_MS = 9_000_000_000_000_000
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1  # of 64 bits


@dataclass(frozen=True, slots=True)
class Clock:
    """Between milliseconds from 1970 on, as Spark has a watermark, and a matcher's time.

    A column of numbers is taken for milliseconds. Spark's own watermark begins at 0 and stops at
    `FURTHEST_MS`. Before and behind, lanes go by the newest times that tasks tell them.

    >>> clock = Clock(Kind.TIMESTAMP, 1_000)
    >>> clock.time(5), clock.time(-5), clock.timer(4_999), clock.timer(5_000)
    (5000, -5000, 5, 6)
    """

    kind: Kind
    per_ms: int  # units of the matcher's time in a millisecond

    def time(self, ms: int) -> float:
        """Milliseconds in the matcher's time, rounded down where it cannot tell them apart."""
        time = ms * self.per_ms
        if self.kind is not Kind.FLOAT:
            return max(_LEAST, min(time, _MOST))
        rounded = float(time)
        return math.nextafter(rounded, -math.inf) if rounded > time else rounded

    def watermark(self, watermark_ms: int) -> float | None:
        """Spark's watermark in the matcher's time. None: it has not begun."""
        return self.time(watermark_ms) if watermark_ms > 0 else None

    def newest_ms(self, ends: npt.NDArray[Any]) -> int | None:
        """The newest of some times, as Spark's watermark takes it; None for none."""
        if not len(ends):
            return None
        newest = math.floor(ends.max().item() // self.per_ms)
        return min(newest, _MOST) if newest >= _LEAST else None

    def following(self, time: float) -> float:
        """The first moment behind another one.

        >>> Clock(Kind.INTEGER, 1).following(7)
        8
        """
        return math.nextafter(time, math.inf) if self.kind is Kind.FLOAT else time + 1

    def shown(self, time: float) -> str:
        """A moment of the matcher's time as an error writes it.

        >>> print(Clock(Kind.TIMESTAMP, 1_000).shown(1_500_000), Clock(Kind.INTEGER, 1).shown(7))
        1970-01-01T00:00:01.500000 7
        """
        if self.kind not in (Kind.TIMESTAMP, Kind.DATE):
            return str(time)
        return str(np.datetime64(int(time), "us" if self.per_ms == 1_000 else "ns"))

    def timer(self, due: float) -> int:
        """The first watermark of Spark that has passed a time."""
        return min(max(1, math.floor(due // self.per_ms) + 1), _MOST)


def known_to_spark(ms: int) -> bool:
    """Whether Spark has this watermark too, be it as far behind the newest event as it may."""
    return 0 < ms < FURTHEST_MS // 2


def clock_of(shape: Shape) -> Clock:
    """The clock of a stream's time column."""
    if not calendar(shape):
        return Clock(shape.schema.time_kind, 1)
    return Clock(shape.schema.time_kind, 1_000 if shape.unit == "us" else 1_000_000)


def length_in(length: object, shape: Shape, name: str) -> float:
    """A length of time in the matcher's time; `name` is that of the argument that it is of."""
    clock = clock_of(shape)
    if isinstance(length, str) and calendar(shape):
        return parse_duration(length) * clock.per_ms // 1_000_000
    if not calendar(shape) and isinstance(length, int | float) and length >= 0:
        return length
    wanted = "as '2 hours'" if calendar(shape) else "a number, as the time column holds numbers"
    raise EventError(f"{name}={length!r} is not a length of time\n  hint: {wanted}")


def calendar(shape: Shape) -> bool:
    """Whether the time column holds times of day and year, not numbers."""
    return shape.schema.time_kind in (Kind.TIMESTAMP, Kind.DATE)
