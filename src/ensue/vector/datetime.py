"""Time zones and calendar units on arrays of datetime64, called by the functions over times."""

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.functions.datetime import find_zone, parse_unit

Clock = npt.NDArray[np.datetime64]
Counts = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_YEARS = (2, 9998)  # Python's range, less one year on both sides
_SECOND = {"us": 1_000_000, "ns": 1_000_000_000}


def on_clocks(zone: str, clock: Clock) -> Clock:
    """Convert instants to the local time of a zone.

    >>> on_clocks("Asia/Tokyo", np.array(["2026-01-01T20:00"], "M8[us]"))
    array(['2026-01-02T05:00:00.000000'], dtype='datetime64[us]')
    """
    turns, offsets = _turns(zone, clock)
    ticks, second = _ticks(clock)
    offset: Ints = offsets[np.searchsorted(turns, ticks // second, side="right")]
    return (ticks + offset * second).view(clock.dtype)


def instants(zone: str, clock: Clock) -> Clock:
    """Convert local times of a zone to instants: the first one if the time occurs twice."""
    turns, offsets = _turns(zone, clock)
    ticks, second = _ticks(clock)
    shown = turns + np.maximum(offsets[:-1], offsets[1:])
    offset: Ints = offsets[np.searchsorted(shown, ticks // second, side="right")]
    return (ticks - offset * second).view(clock.dtype)


def _ticks(clock: Clock) -> tuple[Ints, int]:
    unit, _ = np.datetime_data(clock.dtype)
    return clock.astype(np.int64), _SECOND[unit]


def _turns(name: str, clock: Clock) -> tuple[Ints, Ints]:
    """The UTC seconds of a zone's clock changes in the years of some times, and its offsets.

    The offsets are those before the first change and after each change, in seconds.
    """
    years = np.unique(clock.astype("M8[Y]").astype(np.int64)) + 1970
    around = np.unique(np.clip(np.concatenate([years - 1, years, years + 1]), *_YEARS))
    turns: list[int] = []
    offsets: list[int] = [0]
    for year in around.tolist() or [1970]:
        at, ahead = _turns_of_year(name, int(year))
        turns.extend(at)
        offsets.extend(ahead)
    offsets[0] = offsets[1]  # before the first year
    return np.array(turns, np.int64), np.array(offsets, np.int64)


@lru_cache(maxsize=4_096)
def _turns_of_year(name: str, year: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The start of a year, and the clock changes in it, with the offset after each."""
    zone = find_zone(name)
    assert zone is not None, "checked by the analyzer"
    time = datetime(year, 1, 1, tzinfo=UTC)
    turns, offsets = [_seconds(time)], [_ahead(zone, time)]
    while time.year == year:
        following = time + _DAY
        if _ahead(zone, following) != offsets[-1]:
            turn = _between(zone, time, following)
            turns.append(_seconds(turn))
            offsets.append(_ahead(zone, turn))
        time = following
    return tuple(turns), tuple(offsets)


def _between(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    """The first second after a clock change."""
    old = _ahead(zone, before)
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // 2
        middle = middle.replace(microsecond=0)
        if _ahead(zone, middle) == old:
            before = middle
        else:
            after = middle
    return after


def _ahead(zone: tzinfo, time: datetime) -> int:
    offset = time.astimezone(zone).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def _seconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(seconds=1)


# ---------------------------------------------------------------------------- calendar units

_CODES = {
    "microsecond": "us", "millisecond": "ms", "second": "s", "minute": "m", "hour": "h",
    "day": "D", "month": "M", "year": "Y",
}  # fmt: skip


def ticks(clock: Clock, unit: str) -> Counts:
    """The number of `unit`s begun since 1970."""
    counts: Counts = clock.astype(f"M8[{unit}]").astype(np.int64)
    return counts


def count_since(clock: Clock, unit: str, within: str) -> Counts:
    """The number of `unit`s passed since the last `within` began."""
    whole = clock.astype(f"M8[{unit}]")
    passed: Counts = whole - whole.astype(f"M8[{within}]")
    return passed.astype(np.int64)


def thursday(clock: Clock) -> Clock:
    """The Thursday of the week, which decides the year of the week."""
    days = ticks(clock, "D")
    thursdays: Clock = (days - (days + 3) % 7 + 3).view("M8[D]")
    return thursdays


def units(unit_name: str, clock: Clock) -> Counts:
    """The number of units, as named in the query language, begun since 1970."""
    match parse_unit(unit_name):
        case "week":
            return (ticks(clock, "D") + 3) // 7
        case "quarter":
            return ticks(clock, "M") // 3
        case unit:
            assert unit is not None
            return ticks(clock, _CODES[unit])


def truncate(unit_name: str, clock: Clock) -> Clock:
    """The start of the unit that contains each time."""
    match parse_unit(unit_name):
        case "week":
            starts = (units(unit_name, clock) * 7 - 3).view("M8[D]")
        case "quarter":
            starts = (units(unit_name, clock) * 3).view("M8[M]")
        case unit:
            assert unit is not None
            starts = clock.astype(f"M8[{_CODES[unit]}]")
    return starts


CALENDARS = {
    "ticks": ticks, "count_since": count_since, "thursday": thursday, "units": units, "truncate": truncate,
    "on_clocks": on_clocks, "instants": instants,
}  # fmt: skip
