"""Functions of dates and times: parts, calendar arithmetic, formats and time zones.

`analyzer/types.py` converts a time with a zone to local time before these functions see it.
"""

import re
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from ensue.errors import did_you_mean
from ensue.functions.casts import EPOCH
from ensue.functions.record import (
    AT_TIME_ZONE,
    CASE,
    TO_CLOCK,
    TO_INSTANT,
    DatetimeForm,
    RewriteForm,
    ScalarFunction,
    define,
)
from ensue.ir.expression import Binary, Expr, FunctionCall, Literal
from ensue.ir.values import to_instant, to_number

# The calendar units by their names in queries; each may also end in an s.
_UNITS = {
    "microsecond": "us", "millisecond": "ms", "second": "sec", "minute": "min", "hour": "hr",
    "day": "dd", "week": "isoweek", "month": "mon", "quarter": "qtr", "year": "yr",
}  # fmt: skip
UNITS = {name: unit for unit, short in _UNITS.items() for name in (unit, f"{unit}s", short, f"{short}s")}

BELOW_A_DAY = ("microsecond", "millisecond", "second", "minute", "hour")
LENGTHS = {unit: timedelta(**{f"{unit}s": 1}) for unit in (*BELOW_A_DAY, "day")}
MONTHS = {"month": 1, "quarter": 3, "year": 12}
_MONDAY = EPOCH - timedelta(days=3)


def parse_unit(written: object) -> str | None:
    """Returns the unit of a name, or None.

    >>> parse_unit("Days"), parse_unit("fortnight")
    ('day', None)
    """
    return UNITS.get(str(written).strip().lower())


def count_units(unit: str, time: datetime) -> int:
    """Counts the units that started since 1970; negative before.

    >>> from datetime import UTC
    >>> count_units("month", datetime(1971, 2, 28, tzinfo=UTC))
    13
    """
    if unit in MONTHS:
        return ((time.year - 1970) * 12 + time.month - 1) // MONTHS[unit]
    if unit == "week":
        return (time - _MONDAY).days // 7
    return (time - EPOCH) // LENGTHS[unit]


def _date_trunc(name: object, value: object) -> datetime | None:
    unit, time = parse_unit(name), to_instant(value)
    if unit is None:
        return None
    count = count_units(unit, time)
    try:
        if unit in MONTHS:
            years, month = divmod(count * MONTHS[unit], 12)
            return EPOCH.replace(year=1970 + years, month=month + 1)
        return _MONDAY + timedelta(weeks=count) if unit == "week" else EPOCH + count * LENGTHS[unit]
    except OverflowError:  # the Monday before the year 1
        return None


def _date_diff(name: object, start: object, end: object) -> int | None:
    unit = parse_unit(name)
    if unit is None:
        return None
    return count_units(unit, to_instant(end)) - count_units(unit, to_instant(start))


def _add_months(value: object, count: object) -> datetime | None:
    """Returns the same day of another month, or its last day."""
    time, months = to_instant(value), int(to_number(count))
    years, month = divmod(time.year * 12 + time.month - 1 + months, 12)
    if not 1 <= years <= 9999:
        return None
    return time.replace(year=years, month=month + 1, day=min(time.day, monthrange(years, month + 1)[1]))


def _part(name: str, meaning: Callable[[datetime], int], vector: str) -> ScalarFunction:
    return define(
        f"{name}(time) -> integer", lambda value: meaning(to_instant(value)), DatetimeForm(vector), clock=True
    )


_WEEKDAY = "(ticks(clock, 'D') + 3) % 7"
_THURSDAY = "thursday(clock)"  # its year is the year of the ISO week

TIMES = (
    _part("year", lambda t: t.year, "ticks(clock, 'Y') + 1970"),
    _part("quarter", lambda t: (t.month + 2) // 3, "count_since(clock, 'M', 'Y') // 3 + 1"),
    _part("month", lambda t: t.month, "count_since(clock, 'M', 'Y') + 1"),
    _part("week|weekofyear", lambda t: t.isocalendar().week, f"count_since({_THURSDAY}, 'D', 'Y') // 7 + 1"),
    _part("isoyear", lambda t: t.isocalendar().year, f"ticks({_THURSDAY}, 'Y') + 1970"),
    _part("day|dayofmonth", lambda t: t.day, "count_since(clock, 'D', 'M') + 1"),
    _part("dayofyear|doy", lambda t: t.timetuple().tm_yday, "count_since(clock, 'D', 'Y') + 1"),
    _part("isodow", lambda t: t.isoweekday(), f"{_WEEKDAY} + 1"),
    _part("dayofweek|dow", lambda t: t.isoweekday() % 7, f"({_WEEKDAY} + 1) % 7"),
    _part("hour", lambda t: t.hour, "count_since(clock, 'h', 'D')"),
    _part("minute", lambda t: t.minute, "count_since(clock, 'm', 'h')"),
    _part("second", lambda t: t.second, "count_since(clock, 's', 'm')"),
    _part("millisecond", lambda t: t.second * 1_000 + t.microsecond // 1_000, "count_since(clock, 'ms', 'm')"),
    _part("microsecond", lambda t: t.second * 1_000_000 + t.microsecond, "count_since(clock, 'us', 'm')"),
    define(
        "epoch(time) -> float",
        lambda value: count_units("microsecond", to_instant(value)) / 1e6,
        DatetimeForm("ticks(clock, 'us') / 1e6"),
    ),
    define("date_trunc(unit, time) -> timestamp", _date_trunc, DatetimeForm("truncate(unit, clock)"), clock=True),
    define(
        "date_diff|datediff(unit, time, time) -> integer",
        _date_diff,
        DatetimeForm("units(unit, other) - units(unit, clock)"),
        clock=True,
    ),
    define("add_months(time, whole) -> timestamp", _add_months, clock=True),
)

# --- calendar functions

DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTH_NAMES = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


def _define_names(part: str, names: tuple[str, ...]) -> Callable[[Expr], Expr]:
    """Rewrites the name of a part of a time as a CASE over its number, from 1."""

    def rewrite(time: Expr) -> Expr:
        value = FunctionCall(part, (time,))
        cases: list[Expr] = []
        for index, name in enumerate(names, 1):
            cases += [Binary("=", value, Literal(index)), Literal(name)]
        return FunctionCall(CASE, tuple(cases))

    return rewrite


def _last_day(value: object) -> datetime | None:
    time = to_instant(value)
    years, month = divmod(time.year * 12 + time.month, 12)
    if years > 9999:
        return None
    return datetime(years, month + 1, 1, tzinfo=UTC) - timedelta(days=1)


def _as_last_day(time: Expr) -> Expr:
    month = FunctionCall("date_trunc", (Literal("month"), time))
    return Binary("-", FunctionCall("add_months", (month, Literal(1))), Literal(timedelta(days=1)))


def _make_date(year: object, month: object, day: object) -> date | None:
    try:
        return date(*(int(to_number(part)) for part in (year, month, day)))
    except (ValueError, OverflowError):
        return None


def _make_timestamp(*parts: object) -> datetime | None:
    *whole, seconds = (to_number(part) for part in parts)
    if not 0 <= seconds < 60:
        return None
    try:
        year, month, day, hour, minutes = map(int, whole)
        minute = datetime(year, month, day, hour, minutes, tzinfo=UTC)
        return minute + timedelta(microseconds=round(seconds * 1e6))
    except (ValueError, OverflowError):
        return None


# --- formats

_WRITTEN: dict[str, Callable[[datetime], str]] = {
    "Y": lambda t: f"{t.year:04}",
    "y": lambda t: f"{t.year % 100:02}",
    "m": lambda t: f"{t.month:02}",
    "B": lambda t: MONTH_NAMES[t.month - 1],
    "b": lambda t: MONTH_NAMES[t.month - 1][:3],
    "d": lambda t: f"{t.day:02}",
    "j": lambda t: f"{t.timetuple().tm_yday:03}",
    "A": lambda t: DAY_NAMES[t.weekday()],
    "a": lambda t: DAY_NAMES[t.weekday()][:3],
    "u": lambda t: str(t.isoweekday()),
    "w": lambda t: str(t.isoweekday() % 7),
    "G": lambda t: f"{t.isocalendar().year:04}",
    "V": lambda t: f"{t.isocalendar().week:02}",
    "H": lambda t: f"{t.hour:02}",
    "I": lambda t: f"{(t.hour - 1) % 12 + 1:02}",
    "p": lambda t: "AM" if t.hour < 12 else "PM",
    "M": lambda t: f"{t.minute:02}",
    "S": lambda t: f"{t.second:02}",
    "g": lambda t: f"{t.microsecond // 1_000:03}",
    "f": lambda t: f"{t.microsecond:06}",
    "%": lambda _: "%",
}
_SHORT = {"F": "%Y-%m-%d", "T": "%H:%M:%S", "D": "%m/%d/%y", "R": "%H:%M"}
_CODE = re.compile(r"%(.?)", re.DOTALL)
_READ = {
    "Y": r"(?P<Y>\d{4})",
    "y": r"(?P<y>\d{2})",
    "m": r"(?P<m>1[0-2]|0?[1-9])",
    "B": f"(?P<B>{'|'.join(MONTH_NAMES)})",
    "b": f"(?P<b>{'|'.join(name[:3] for name in MONTH_NAMES)})",
    "d": r"(?P<d>3[01]|[12]\d|0?[1-9])",
    "A": f"(?:{'|'.join(DAY_NAMES)})",
    "a": f"(?:{'|'.join(name[:3] for name in DAY_NAMES)})",
    "H": r"(?P<H>2[0-3]|1\d|0?\d)",
    "I": r"(?P<I>1[0-2]|0?[1-9])",
    "p": r"(?P<p>AM|PM)",
    "M": r"(?P<M>[0-5]?\d)",
    "S": r"(?P<S>[0-5]?\d)",
    "g": r"(?P<f>\d{3})",
    "f": r"(?P<f>\d{1,6})",
    "z": r"(?P<z>Z|[+-]\d{2}(?::?\d{2})?)",
    "%": "%",
}


def _strftime(value: object, form: object) -> str | None:
    """Formats a time; NULL if the format has an unknown code."""
    time = to_instant(value)
    text = _expand_format(str(form))
    codes = _CODE.findall(text)
    if any(code not in _WRITTEN for code in codes):
        return None
    return _CODE.sub(lambda code: _WRITTEN[code[1]](time), text)


def _expand_format(form: str) -> str:
    return _CODE.sub(lambda code: _SHORT.get(code[1], code[0]), form)


def _strptime(text: object, form: object) -> datetime | None:
    """Parses a time; NULL if the text does not have the format."""
    parts, at, spelled = [], 0, _expand_format(str(form))
    for code in _CODE.finditer(spelled):
        if code[1] not in _READ:
            return None
        parts += [re.escape(spelled[at : code.start()]), _READ[code[1]]]
        at = code.end()
    parts.append(re.escape(spelled[at:]))
    try:
        match = re.fullmatch("".join(parts), str(text).strip(), re.IGNORECASE)
        return None if match is None else _build_time(match.groupdict())
    except (re.error, ValueError, OverflowError):  # a repeated code, or an invalid date
        return None


def _build_time(groups: dict[str, str | None]) -> datetime:
    parts = {name: value for name, value in groups.items() if value is not None}
    year = int(parts.get("Y", 1970))
    if "y" in parts:
        short = int(parts["y"])
        year = short + (2000 if short < 69 else 1900)
    month = int(parts.get("m", 1))
    for code, length in (("B", None), ("b", 3)):
        if code in parts:
            names = [name[:length].lower() for name in MONTH_NAMES]
            month = names.index(parts[code].lower()) + 1
    hour = int(parts.get("H", 0))
    if "I" in parts:
        hour = int(parts["I"]) % 12 + (12 if parts.get("p", "").upper() == "PM" else 0)
    micros = int(parts.get("f", "0").ljust(6, "0"))
    time = datetime(
        year, month, int(parts.get("d", 1)), hour, int(parts.get("M", 0)),
        int(parts.get("S", 0)), micros, tzinfo=UTC,
    )  # fmt: skip
    zone = parts.get("z", "Z").upper().replace(":", "")
    if zone == "Z":
        return time
    ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5] or 0))
    return time - ahead if zone[0] == "+" else time + ahead


# --- records


def _define_unit_count(name: str, unit: str, ticks: str) -> ScalarFunction:
    """Defines a function that counts units since 1970."""
    return define(
        f"{name}(time) -> integer",
        lambda value: count_units(unit, to_instant(value)),
        DatetimeForm(f"ticks(clock, '{ticks}')"),
    )


CALENDAR = (
    _define_unit_count("unix_timestamp|unix_seconds", "second", "s"),
    _define_unit_count("epoch_ms|unix_millis", "millisecond", "ms"),
    _define_unit_count("epoch_us|unix_micros", "microsecond", "us"),
    define(
        "dayname(time) -> string",
        lambda value: DAY_NAMES[to_instant(value).weekday()],
        RewriteForm(_define_names("isodow", DAY_NAMES)),
        clock=True,
    ),
    define(
        "monthname(time) -> string",
        lambda value: MONTH_NAMES[to_instant(value).month - 1],
        RewriteForm(_define_names("month", MONTH_NAMES)),
        clock=True,
    ),
    define("last_day(time) -> timestamp", _last_day, RewriteForm(_as_last_day), clock=True),
    define("make_date(whole, whole, whole) -> date", _make_date),
    define("make_timestamp(whole, whole, whole, whole, whole, number) -> timestamp", _make_timestamp),
    define("strftime(time, text) -> string", _strftime, clock=True),
    define("strptime(text, text) -> timestamp", _strptime),
)

# --- time zones

_OFFSET = re.compile(r"([+-])([01][0-9]|2[0-3]):?([0-5][0-9])")
_UTC = ("utc", "etc/utc", "z", "gmt", "etc/gmt", "zulu", "etc/zulu", "+00:00", "-00:00")


@lru_cache(maxsize=256)
def find_zone(name: str) -> tzinfo | None:
    """Finds a zone by its name or by an offset such as +05:30; None if it is unknown.

    >>> find_zone("+05:30"), find_zone("Europe/Nowhere")
    (datetime.timezone(datetime.timedelta(seconds=19800)), None)
    """
    if is_utc(name):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        length = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-length if offset[1] == "-" else length)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def is_utc(name: str) -> bool:
    """Whether a name denotes UTC.

    >>> is_utc("Etc/UTC"), is_utc("Europe/London")
    (True, False)
    """
    return name.lower() in _UTC


def suggest_zone(name: str) -> str:
    """Suggests a zone for an unknown name."""
    known = sorted(available_timezones())
    if not known:
        return "this machine has no time zone data: pip install tzdata"
    spelled = {zone.lower(): zone for zone in known}
    if name.lower() in spelled:
        return f"did you mean '{spelled[name.lower()]}'?"
    last = {zone.rpartition("/")[2].lower(): zone for zone in known if "/" in zone}
    if name.lower().replace(" ", "_") in last:
        return f"did you mean '{last[name.lower().replace(' ', '_')]}'?"
    near = did_you_mean(name, known) or ""
    if near.startswith("did you mean"):
        return near
    return "zones are named like 'Europe/Zurich', 'America/New_York', 'UTC' or '+05:30'"


def _to_clock(value: object, name: object) -> datetime | None:
    """Converts an instant to the local time of a zone.

    >>> _to_clock(datetime(2026, 7, 1, 12), "Europe/Zurich")
    datetime.datetime(2026, 7, 1, 14, 0, tzinfo=datetime.timezone.utc)
    """
    zone = find_zone(str(name))
    try:
        return None if zone is None else to_instant(value).astimezone(zone).replace(tzinfo=UTC)
    except OverflowError:  # before the year 1, or after 9999
        return None


def _to_instant(value: object, name: object) -> datetime | None:
    """Converts the local time of a zone to an instant.

    >>> _to_instant(datetime(2026, 3, 29, 2, 30), "Europe/Zurich")  # skipped by the clock change
    datetime.datetime(2026, 3, 29, 1, 30, tzinfo=datetime.timezone.utc)
    """
    zone = find_zone(str(name))
    try:
        if zone is None:
            return None
        return to_instant(value).replace(tzinfo=zone, fold=0).astimezone(UTC)
    except OverflowError:
        return None


ZONES = (
    *(
        # the analyzer replaces AT TIME ZONE by one of the others, depending on the type of x
        define(f"{name}(time, zone) -> timestamp", _to_clock, DatetimeForm("on_clocks(unit, clock)"))
        for name in (AT_TIME_ZONE, TO_CLOCK)
    ),
    define(f"{TO_INSTANT}(time, zone) -> timestamp", _to_instant, DatetimeForm("instants(unit, clock)")),
)
