"""Clocks of a zone over arrays of datetime64, by the turns of its clocks."""

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ensue.algebra.zones import zone_named

Clock = npt.NDArray[np.datetime64]
Ints = npt.NDArray[np.int64]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_YEARS = (2, 9998)  # that Python can look around in
_SECOND = {"us": 1_000_000, "ns": 1_000_000_000}


def on_clocks(zone: str, clock: Clock) -> Clock:
    """What clocks of a zone show at instants.

    >>> on_clocks("Asia/Tokyo", np.array(["2026-01-01T20:00"], "M8[us]"))
    array(['2026-01-02T05:00:00.000000'], dtype='datetime64[us]')
    """
    turns, offsets = _turns(zone, clock)
    ticks, second = _ticks(clock)
    found: Ints = offsets[np.searchsorted(turns, ticks // second, side="right")]
    return (ticks + found * second).view(clock.dtype)


def instants(zone: str, clock: Clock) -> Clock:
    """The instants at which clocks of a zone show these times: the first, where it is twice."""
    turns, offsets = _turns(zone, clock)
    ticks, second = _ticks(clock)
    shown = turns + np.maximum(offsets[:-1], offsets[1:])
    found: Ints = offsets[np.searchsorted(shown, ticks // second, side="right")]
    return (ticks - found * second).view(clock.dtype)


def _ticks(clock: Clock) -> tuple[Ints, int]:
    unit, _ = np.datetime_data(clock.dtype)
    return clock.astype(np.int64), _SECOND[unit]


def _turns(name: str, clock: Clock) -> tuple[Ints, Ints]:
    """The seconds since 1970 at which clocks are turned in the years of some times, and how many
    seconds they are ahead of UTC before the first turn and behind each."""
    years = np.unique(clock.astype("M8[Y]").astype(np.int64)) + 1970
    around = np.unique(np.clip(np.concatenate([years - 1, years, years + 1]), *_YEARS))
    turns: list[int] = []
    offsets: list[int] = [0]
    for year in around.tolist() or [1970]:
        at, ahead = _turns_of_year(name, int(year))
        turns.extend(at)
        offsets.extend(ahead)
    offsets[0] = offsets[1]  # before the first year that is looked at
    return np.array(turns, np.int64), np.array(offsets, np.int64)


@lru_cache(maxsize=4_096)
def _turns_of_year(name: str, year: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The beginning of a year as if clocks were turned then, and its real turns."""
    zone = zone_named(name)
    assert zone is not None, "a name that was looked up"
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


def _between(zone: tzinfo, before: datetime, behind: datetime) -> datetime:
    """The first second at which clocks have been turned."""
    old = _ahead(zone, before)
    while behind - before > timedelta(seconds=1):
        middle = before + (behind - before) // 2
        middle = middle.replace(microsecond=0)
        if _ahead(zone, middle) == old:
            before = middle
        else:
            behind = middle
    return behind


def _ahead(zone: tzinfo, time: datetime) -> int:
    offset = time.astimezone(zone).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def _seconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(seconds=1)
