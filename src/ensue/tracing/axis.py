"""Where on a picture a time is, and the marks of its time axis: at round times, exactly there."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from math import floor, log10
from typing import Any

from ensue.tracing.values import clock

_SECOND = 1_000_000  # times of the calendar are counted in microseconds
_DAY = 86_400 * _SECOND
_FRACTIONS = tuple(factor * 10**power for power in range(6) for factor in (1, 2, 5))
_SECONDS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200,
)  # fmt: skip
_DAYS = (1, 2, 7, 14)
_MONTHS = (1, 2, 3, 6)
_MONDAY = datetime(1970, 1, 5)  # from which weeks are counted


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
        >>> [name for _, name in Axis(1_700_000_003, 1_700_000_009, 0, 100).marks(3)]
        ['1700000004', '1700000006', '1700000008']
        """
        if number(self.last) <= number(self.first):
            return [(self.first, clock(self.first))]
        if isinstance(self.first, date):
            return list(_calendar(_moment(self.first), _moment(self.last), most))
        return list(_numbers(self.first, self.last, most))


def number(time: Any) -> float:
    """A time as a number; seconds, where it is a moment of the calendar."""
    if isinstance(time, date):
        time = _moment(time)
        return float((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    return float(time)


def _moment(time: Any) -> datetime:
    """A day is the moment that it begins at."""
    return time if isinstance(time, datetime) else datetime(time.year, time.month, time.day)


# ------------------------------------------------------------------------------ numbers


def _numbers(first: Any, last: Any, most: int) -> Iterator[tuple[Any, str]]:
    """Multiples of a round step; in decimals, in which they are exact."""
    begin, end = Decimal(str(first)), Decimal(str(last))
    step = _step((end - begin) / most)
    for times in range(_up(begin, step), floor(end / step) + 1):
        place = (times * step).normalize()
        yield (int(place) if place == int(place) else float(place)), f"{place:f}"


def _step(least: Decimal) -> Decimal:
    """The smallest round length that is long enough: 1, 2 or 5 times a power of ten."""
    power = Decimal(10) ** floor(log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _up(begin: Decimal, step: Decimal) -> int:
    return -floor(-begin / step)


# ------------------------------------------------------------------------------ the calendar


def _calendar(first: datetime, last: datetime, most: int) -> Iterator[tuple[datetime, str]]:
    """Times that are round on the clock of the events' own zone."""
    zone = first.tzinfo
    begin, end = first.replace(tzinfo=None), last.replace(tzinfo=None)
    if zone is not None:
        end = last.astimezone(zone).replace(tzinfo=None)
    least = (end - begin) / timedelta(microseconds=most)
    days = begin.date() != end.date()
    for wall, step in _walls(begin, end, least):
        if wall > end:
            return
        moment = _in_zone(wall, first)
        if moment.replace(tzinfo=None) == wall:  # no clock shows the hour that summer time skips
            yield moment, _name(wall, step, days)


def _walls(begin: datetime, end: datetime, least: float) -> Iterator[tuple[datetime, int]]:
    """Round times from the first on, without end, and how far they are apart in microseconds."""
    steps = (*_FRACTIONS, *(s * _SECOND for s in _SECONDS), *(d * _DAY for d in _DAYS))
    step = next((step for step in steps if step >= least), None)
    if step is not None:
        length = timedelta(microseconds=step)
        place = begin - (begin - _MONDAY) % length
        place += length if place < begin else timedelta()
        while place <= end:
            yield place, step
            place += length
        return
    months = least / (28 * _DAY)
    every = next((m for m in _MONTHS if m >= months), None)
    if every is None:
        years = int(_step(Decimal(months / 12).quantize(Decimal("0.001"))).to_integral_value())
        every = 12 * max(1, years)
    number = begin.year * 12 + begin.month - 1
    number += -number % every
    for months_on in count(number, every):
        year, month = divmod(months_on, 12)
        if year > end.year:
            return
        place = datetime(year, month + 1, 1)
        if place >= begin:
            yield place, every * 28 * _DAY


def _in_zone(wall: datetime, like: datetime) -> datetime:
    """The moment at which a clock of the zone shows this."""
    if like.tzinfo is None:
        return wall
    offset = like.utcoffset()
    for _ in range(2):  # the offset may be another one at that time
        assert offset is not None
        moment = (wall - offset).replace(tzinfo=UTC).astimezone(like.tzinfo)
        offset = moment.utcoffset()
    return moment


def _name(time: datetime, step: int, days: bool) -> str:
    if step >= 28 * _DAY:
        return f"{time:%b %Y}"
    if step >= _DAY or (days and not (time.hour or time.minute or time.second)):
        return f"{time.day} {time:%b}"
    return f"{time:%H:%M}" if step >= 60 * _SECOND else clock(time)
