"""Where on a picture a time is, and the marks of its time axis."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import floor, log10
from typing import Any

from ensue.tracing.values import clock, shown

_SPANS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Axis:
    """Times from the first to the last, laid out from left to right."""

    first: Any
    last: Any
    left: float
    width: float

    def x(self, time: Any) -> float:
        """The place of a time; the middle where all times are one."""
        first, last = number(self.first), number(self.last)
        share = (number(time) - first) / (last - first) if last > first else 0.5
        return self.left + share * self.width

    def marks(self, most: int = 8) -> list[tuple[Any, str]]:
        """Round times within the axis, with their names.

        >>> [name for _, name in Axis(0, 40, 0, 100).marks(5)]
        ['0', '10', '20', '30', '40']
        """
        first, last = number(self.first), number(self.last)
        if last <= first:
            return [(self.first, clock(self.first))]
        step = _step((last - first) / most, isinstance(self.first, datetime))
        place = -(-first // step) * step
        found = []
        while place <= last + step * 1e-9:
            time = _time(place, self.first)
            found.append((time, _name(time, step)))
            place += step
        return found


def number(time: Any) -> float:
    """A time as a number; seconds, where it is a moment of the calendar."""
    if isinstance(time, datetime):
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
    return float(time)


def _step(least: float, calendar: bool) -> float:
    """The smallest round length that is long enough."""
    if calendar and least > 0.5:
        days = -(-least // _SPANS[-1]) * _SPANS[-1]
        return next((float(span) for span in _SPANS if span >= least), days)
    power: float = 10.0 ** floor(log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * 0.999)


def _time(place: float, like: Any) -> Any:
    if not isinstance(like, datetime):
        return place
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=place)
    return moment.astimezone(like.tzinfo) if like.tzinfo else moment.replace(tzinfo=None)


def _name(time: Any, step: float) -> str:
    if not isinstance(time, datetime):
        return shown(time)
    if step >= _SPANS[-1]:
        return f"{time:%d %b}"
    return f"{time:%H:%M}" if step >= 60 else clock(time)
