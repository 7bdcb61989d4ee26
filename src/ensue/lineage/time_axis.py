"""Time axes: positions of times, and ticks at round times."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import count
from math import floor, log10
from typing import Any

_SECOND = 1_000_000  # calendar times are counted in microseconds
_DAY = 86_400 * _SECOND
_STEPS = (
    *(factor * 10**power for power in range(6) for factor in (1, 2, 5)),
    *(s * _SECOND for s in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)),
    *(h * 3600 * _SECOND for h in (3, 6, 12)),
    *(d * _DAY for d in (1, 2, 7, 14)),
)
_MONTHS = (1, 2, 3, 6)
_MONDAY = datetime(1970, 1, 5)  # weeks begin on Mondays


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Times from the first to the last, from left to right."""

    first: Any
    last: Any
    left: float
    width: float

    def locate(self, time: Any) -> float:
        """Returns the position of a time; the middle if the axis has one time only."""
        first, last = to_number(self.first), to_number(self.last)
        share = (to_number(time) - first) / (last - first) if last > first else 0.5
        return self.left + share * self.width

    def list_ticks(self, limit: int = 8) -> list[tuple[Any, str]]:
        """Lists round times of the axis, with their labels.

        >>> [label for _, label in TimeAxis(0, 40, 0, 100).list_ticks(5)]
        ['0', '10', '20', '30', '40']
        >>> [label for _, label in TimeAxis(1_700_000_003, 1_700_000_009, 0, 100).list_ticks(3)]
        ['1700000004', '1700000006', '1700000008']
        """
        if to_number(self.last) <= to_number(self.first):
            return [(self.first, format_time(self.first))]
        if isinstance(self.first, date):
            first, last = _to_datetime(self.first), _to_datetime(self.last)
            return list(_list_calendar_ticks(first, last, limit))
        return list(_list_number_ticks(self.first, self.last, limit))


def to_number(time: Any) -> float:
    """Converts a time to a number; seconds, for dates and timestamps."""
    if isinstance(time, date):
        time = _to_datetime(time)
        return float((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    return float(time)


def format_time(time: Any, day: bool = False) -> str:
    """Formats a time of day, with `day` also its date; a number stays as it is.

    >>> format_time(datetime(2026, 3, 2, 9, 5, 1, 250000))
    '09:05:01.25'
    >>> format_time(datetime(2026, 3, 2, 9), day=True)
    '2026-03-02 09:00:00'
    """
    if isinstance(time, datetime):
        fraction = f".{time.microsecond:06}".rstrip("0") if time.microsecond else ""
        return f"{time:%Y-%m-%d %H:%M:%S}{fraction}" if day else f"{time:%H:%M:%S}{fraction}"
    return f"{time:.6g}" if isinstance(time, float) else str(time)


def _to_datetime(time: Any) -> datetime:
    return time if isinstance(time, datetime) else datetime(time.year, time.month, time.day)


def _list_number_ticks(first: Any, last: Any, limit: int) -> Iterator[tuple[Any, str]]:
    """Yields multiples of a round step, computed in decimals, which are exact."""
    begin, end = Decimal(str(first)), Decimal(str(last))
    step = _round_up((end - begin) / limit)
    for number in range(-floor(-begin / step), floor(end / step) + 1):
        tick = (number * step).normalize()
        yield (int(tick) if tick == int(tick) else float(tick)), f"{tick:f}"


def _round_up(length: Decimal) -> Decimal:
    """Rounds a length up to 1, 2 or 5 times a power of ten."""
    power = Decimal(10) ** floor(log10(length))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= length)


def _list_calendar_ticks(first: datetime, last: datetime, limit: int) -> Iterator[tuple[datetime, str]]:
    """Yields times that are round on the clock of the events' time zone."""
    begin, end = first.replace(tzinfo=None), last.replace(tzinfo=None)
    if first.tzinfo is not None:
        end = last.astimezone(first.tzinfo).replace(tzinfo=None)
    shortest = (end - begin) / timedelta(microseconds=limit)
    several_days = begin.date() != end.date()
    for local, step in _list_local_times(begin, end, shortest):
        if local > end:
            return
        time = _to_zone(local, first)
        if time.replace(tzinfo=None) == local:  # no clock shows the hour that summer time skips
            yield time, _label_tick(local, step, several_days)


def _list_local_times(begin: datetime, end: datetime, shortest: float) -> Iterator[tuple[datetime, int]]:
    """Yields round times from `begin` on, and their distance in microseconds."""
    step = next((step for step in _STEPS if step >= shortest), None)
    if step is not None:
        length = timedelta(microseconds=step)
        time = begin + (_MONDAY - begin) % length
        while time <= end:
            yield time, step
            time += length
        return
    months = shortest / (28 * _DAY)
    every = next((m for m in _MONTHS if m >= months), None)
    if every is None:
        years = int(_round_up(Decimal(months / 12).quantize(Decimal("0.001"))).to_integral_value())
        every = 12 * max(1, years)
    number = begin.year * 12 + begin.month - 1
    for month_number in count(number + -number % every, every):
        year, month = divmod(month_number, 12)
        if year > end.year:
            return
        time = datetime(year, month + 1, 1)
        if time >= begin:
            yield time, every * 28 * _DAY


def _to_zone(local: datetime, like: datetime) -> datetime:
    """Returns the time at which a clock of the zone shows `local`."""
    if like.tzinfo is None:
        return local
    offset = like.utcoffset()
    for _ in range(2):  # the zone may have another offset at that time
        assert offset is not None
        time = (local - offset).replace(tzinfo=UTC).astimezone(like.tzinfo)
        offset = time.utcoffset()
    return time


def _label_tick(time: datetime, step: int, several_days: bool) -> str:
    if step >= 28 * _DAY:
        return f"{time:%b %Y}"
    if step >= _DAY or (several_days and not (time.hour or time.minute or time.second)):
        return f"{time.day} {time:%b}"
    return f"{time:%H:%M}" if step >= 60 * _SECOND else format_time(time)
