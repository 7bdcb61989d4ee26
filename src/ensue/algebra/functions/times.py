"""The parts of a time, as clocks show them, and counting in units.

A time in a zone is taken to its clocks before it comes here (`algebra/check/zones.py`).
"""

from calendar import monthrange
from collections.abc import Callable
from datetime import datetime, timedelta

from ensue.algebra.functions.casts import EPOCH
from ensue.algebra.functions.record import Function, OverTimes, Takes
from ensue.algebra.values import instant, number
from ensue.schema import Kind

# The units of calendars, by the names that queries give them; each may also end in an s.
_UNITS = {
    "microsecond": ("microsecond", "us"),
    "millisecond": ("millisecond", "ms"),
    "second": ("second", "sec"),
    "minute": ("minute", "min"),
    "hour": ("hour", "hr"),
    "day": ("day", "dd"),
    "week": ("week", "isoweek"),
    "month": ("month", "mon"),
    "quarter": ("quarter", "qtr"),
    "year": ("year", "yr"),
}
UNITS = {
    name: unit for unit, names in _UNITS.items() for one in names for name in (one, f"{one}s")
}

LENGTHS = {
    "microsecond": timedelta(microseconds=1),
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}
BELOW_A_DAY = tuple(unit for unit in LENGTHS if unit != "day")
MONTHS = {"month": 1, "quarter": 3, "year": 12}
_MONDAY = EPOCH - timedelta(days=3)


def unit_of(written: object) -> str | None:
    """The unit that a name means.

    >>> unit_of("Days"), unit_of("fortnight")
    ('day', None)
    """
    return UNITS.get(str(written).strip().lower())


def units_since(unit: str, time: datetime) -> int:
    """How many units have begun since 1970; negative before.

    >>> from datetime import UTC
    >>> units_since("month", datetime(1971, 2, 28, tzinfo=UTC))
    13
    """
    if unit in MONTHS:
        return ((time.year - 1970) * 12 + time.month - 1) // MONTHS[unit]
    if unit == "week":
        return (time - _MONDAY).days // 7
    return (time - EPOCH) // LENGTHS[unit]


def _date_trunc(name: object, value: object) -> datetime | None:
    unit, time = unit_of(name), instant(value)
    if unit is None:
        return None
    count = units_since(unit, time)
    try:
        if unit in MONTHS:
            years, month = divmod(count * MONTHS[unit], 12)
            return EPOCH.replace(year=1970 + years, month=month + 1)
        return (
            _MONDAY + timedelta(weeks=count) if unit == "week" else EPOCH + count * LENGTHS[unit]
        )
    except OverflowError:  # the Monday before the year 1
        return None


def _date_diff(name: object, start: object, end: object) -> int | None:
    unit = unit_of(name)
    if unit is None:
        return None
    return units_since(unit, instant(end)) - units_since(unit, instant(start))


def _add_months(value: object, count: object) -> datetime | None:
    """The same day of another month, or its last one."""
    time, months = instant(value), int(number(count))
    years, month = divmod(time.year * 12 + time.month - 1 + months, 12)
    if not 1 <= years <= 9999:
        return None
    return time.replace(
        year=years, month=month + 1, day=min(time.day, monthrange(years, month + 1)[1])
    )


def _part(name: str, meaning: Callable[[datetime], int], vector: str, *aliases: str) -> Function:
    return Function(
        name,
        (Takes.TIME,),
        Kind.INTEGER,
        lambda value: meaning(instant(value)),
        aliases=aliases,
        clock=True,
        vector=OverTimes(vector),
    )


_WEEKDAY = "(ticks(clock, 'D') + 3) % 7"
_THURSDAY = "thursday(clock)"  # whose year is the one that a week belongs to

TIMES = (
    _part("year", lambda t: t.year, "ticks(clock, 'Y') + 1970"),
    _part("quarter", lambda t: (t.month + 2) // 3, "since(clock, 'M', 'Y') // 3 + 1"),
    _part("month", lambda t: t.month, "since(clock, 'M', 'Y') + 1"),
    _part(
        "week",
        lambda t: t.isocalendar().week,
        f"since({_THURSDAY}, 'D', 'Y') // 7 + 1",
        "weekofyear",
    ),
    _part("isoyear", lambda t: t.isocalendar().year, f"ticks({_THURSDAY}, 'Y') + 1970"),
    _part("day", lambda t: t.day, "since(clock, 'D', 'M') + 1", "dayofmonth"),
    _part("dayofyear", lambda t: t.timetuple().tm_yday, "since(clock, 'D', 'Y') + 1", "doy"),
    _part("isodow", lambda t: t.isoweekday(), f"{_WEEKDAY} + 1"),
    _part("dayofweek", lambda t: t.isoweekday() % 7, f"({_WEEKDAY} + 1) % 7", "dow"),
    _part("hour", lambda t: t.hour, "since(clock, 'h', 'D')"),
    _part("minute", lambda t: t.minute, "since(clock, 'm', 'h')"),
    _part("second", lambda t: t.second, "since(clock, 's', 'm')"),
    _part(
        "millisecond",
        lambda t: t.second * 1_000 + t.microsecond // 1_000,
        "since(clock, 'ms', 'm')",
    ),
    _part(
        "microsecond",
        lambda t: t.second * 1_000_000 + t.microsecond,
        "since(clock, 'us', 'm')",
    ),
    Function(
        "epoch",
        (Takes.TIME,),
        Kind.FLOAT,
        lambda value: units_since("microsecond", instant(value)) / 1e6,
        vector=OverTimes("ticks(clock, 'us') / 1e6"),
    ),
    Function(
        "date_trunc",
        (Takes.UNIT, Takes.TIME),
        Kind.TIMESTAMP,
        _date_trunc,
        clock=True,
        vector=OverTimes("truncated(unit, clock)"),
    ),
    Function(
        "date_diff",
        (Takes.UNIT, Takes.TIME, Takes.TIME),
        Kind.INTEGER,
        _date_diff,
        aliases=("datediff",),
        clock=True,
        vector=OverTimes("units(unit, other) - units(unit, clock)"),
    ),
    Function("add_months", (Takes.TIME, Takes.WHOLE), Kind.TIMESTAMP, _add_months, clock=True),
)
