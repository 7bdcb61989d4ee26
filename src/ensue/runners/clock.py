"""The watermark of a stream in the units of its time column."""

import math
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from ensue.compile.stream import Shape
from ensue.schema import Kind


@dataclass(frozen=True, slots=True)
class Clock:
    """Between a watermark in milliseconds from 1970 on, as Spark has it, and a matcher's time.

    A column of numbers is taken for milliseconds.

    >>> clock = Clock(Kind.TIMESTAMP, 1_000)
    >>> clock.time(5), clock.timer(4_999), clock.timer(5_000)
    (5000, 5, 6)
    """

    kind: Kind
    per_ms: int  # units of the matcher's time in a millisecond

    def time(self, watermark_ms: int) -> float | None:
        """The watermark in the matcher's time. None: it has not begun."""
        if watermark_ms <= 0:  # what Spark says before the first one
            return None
        time = watermark_ms * self.per_ms
        return float(time) if self.kind is Kind.FLOAT else time

    def newest_ms(self, ends: npt.NDArray[Any]) -> int:
        """The newest of some times, as Spark's watermark takes it; 0 for none."""
        return math.floor(ends.max().item() // self.per_ms) if len(ends) else 0

    def timer(self, due: float) -> int:
        """The first watermark that has passed a time."""
        return max(1, math.floor(due // self.per_ms) + 1)


def clock_of(shape: Shape) -> Clock:
    """The clock of a stream's time column."""
    if not calendar(shape):
        return Clock(shape.schema.time_kind, 1)
    return Clock(shape.schema.time_kind, 1_000 if shape.unit == "us" else 1_000_000)


def calendar(shape: Shape) -> bool:
    """Whether the time column holds times of day and year, not numbers."""
    return shape.schema.time_kind in (Kind.TIMESTAMP, Kind.DATE)
