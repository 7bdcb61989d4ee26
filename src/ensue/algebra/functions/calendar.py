"""Times from their parts, as texts and as numbers, and the days of calendars.

A time in a zone is taken to its clocks before it comes here (`algebra/check/zones.py`).
"""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from ensue.algebra.functions.choices import CASE
from ensue.algebra.functions.record import Function, OverTimes, Rewritten, Takes
from ensue.algebra.functions.times import units_since
from ensue.algebra.predicate import Binary, Call, Expr, Literal
from ensue.algebra.values import instant, number
from ensue.schema import Kind

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


def _named(part: str, names: tuple[str, ...]) -> Callable[[Expr], Expr]:
    """The name for each number that a part of a time has, from 1."""

    def named(time: Expr) -> Expr:
        found = Call(part, (time,))
        cases: list[Expr] = []
        for number_, name in enumerate(names, 1):
            cases += [Binary("=", found, Literal(number_)), Literal(name)]
        return Call(CASE, tuple(cases))

    return named


def _last_day(value: object) -> datetime | None:
    time = instant(value)
    years, month = divmod(time.year * 12 + time.month, 12)
    if years > 9999:
        return None
    return datetime(years, month + 1, 1, tzinfo=UTC) - timedelta(days=1)


def _as_last_day(time: Expr) -> Expr:
    month = Call("date_trunc", (Literal("month"), time))
    return Binary("-", Call("add_months", (month, Literal(1))), Literal(timedelta(days=1)))


def _make_date(year: object, month: object, day: object) -> date | None:
    try:
        return date(*(int(number(part)) for part in (year, month, day)))
    except (ValueError, OverflowError):
        return None


def _make_timestamp(*parts: object) -> datetime | None:
    *whole, seconds = (number(part) for part in parts)
    if not 0 <= seconds < 60:
        return None
    try:
        year, month, day, hour, minutes = map(int, whole)
        minute = datetime(year, month, day, hour, minutes, tzinfo=UTC)
        return minute + timedelta(microseconds=round(seconds * 1e6))
    except (ValueError, OverflowError):
        return None


# -------------------------------------------------------------------------------------- formats

_WRITTEN: dict[str, Callable[[datetime], str]] = {
    "Y": lambda t: f"{t.year:04}",
    "y": lambda t: f"{t.year % 100:02}",
    "m": lambda t: f"{t.month:02}",
    "B": lambda t: MONTHS[t.month - 1],
    "b": lambda t: MONTHS[t.month - 1][:3],
    "d": lambda t: f"{t.day:02}",
    "j": lambda t: f"{t.timetuple().tm_yday:03}",
    "A": lambda t: DAYS[t.weekday()],
    "a": lambda t: DAYS[t.weekday()][:3],
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
    "B": f"(?P<B>{'|'.join(MONTHS)})",
    "b": f"(?P<b>{'|'.join(name[:3] for name in MONTHS)})",
    "d": r"(?P<d>3[01]|[12]\d|0?[1-9])",
    "A": f"(?:{'|'.join(DAYS)})",
    "a": f"(?:{'|'.join(name[:3] for name in DAYS)})",
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
    """A time as a text; NULL where the form has a code that there is not."""
    time = instant(value)
    text = _spelled_out(str(form))
    codes = _CODE.findall(text)
    if any(code not in _WRITTEN for code in codes):
        return None
    return _CODE.sub(lambda code: _WRITTEN[code[1]](time), text)


def _spelled_out(form: str) -> str:
    return _CODE.sub(lambda code: _SHORT.get(code[1], code[0]), form)


def _strptime(text: object, form: object) -> datetime | None:
    """The time that a text says in a form; NULL where it does not."""
    parts, at, spelled = [], 0, _spelled_out(str(form))
    for code in _CODE.finditer(spelled):
        if code[1] not in _READ:
            return None
        parts += [re.escape(spelled[at : code.start()]), _READ[code[1]]]
        at = code.end()
    parts.append(re.escape(spelled[at:]))
    try:
        found = re.fullmatch("".join(parts), str(text).strip(), re.IGNORECASE)
        return None if found is None else _told(found.groupdict())
    except (re.error, ValueError, OverflowError):  # a code that is there twice; no such day
        return None


def _told(parts: dict[str, str | None]) -> datetime:
    given = {name: value for name, value in parts.items() if value is not None}
    year = int(given.get("Y", 1970))
    if "y" in given:
        short = int(given["y"])
        year = short + (2000 if short < 69 else 1900)
    month = int(given.get("m", 1))
    for code, length in (("B", None), ("b", 3)):
        if code in given:
            names = [name[:length].lower() for name in MONTHS]
            month = names.index(given[code].lower()) + 1
    hour = int(given.get("H", 0))
    if "I" in given:
        hour = int(given["I"]) % 12 + (12 if given.get("p", "").upper() == "PM" else 0)
    micros = int(given.get("f", "0").ljust(6, "0"))
    time = datetime(
        year, month, int(given.get("d", 1)), hour, int(given.get("M", 0)),
        int(given.get("S", 0)), micros, tzinfo=UTC,
    )  # fmt: skip
    zone = given.get("z", "Z").upper().replace(":", "")
    if zone == "Z":
        return time
    ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:5] or 0))
    return time - ahead if zone[0] == "+" else time + ahead


# -------------------------------------------------------------------------------------- records


def _counted(name: str, unit: str, ticks: str, *aliases: str) -> Function:
    """How many units have begun since 1970, a whole number."""
    return Function(
        name,
        (Takes.TIME,),
        Kind.INTEGER,
        lambda value: units_since(unit, instant(value)),
        aliases=aliases,
        vector=OverTimes(f"ticks(clock, '{ticks}')"),
    )


def _name_of(name: str, part: str, names: tuple[str, ...]) -> Function:
    of: dict[str, Callable[[datetime], int]] = {
        "isodow": lambda t: t.isoweekday(),
        "month": lambda t: t.month,
    }
    return Function(
        name,
        (Takes.TIME,),
        Kind.STRING,
        lambda value: names[of[part](instant(value)) - 1],
        clock=True,
        vector=Rewritten(_named(part, names)),
    )


CALENDAR = (
    _counted("unix_timestamp", "second", "s", "unix_seconds"),
    _counted("epoch_ms", "millisecond", "ms", "unix_millis"),
    _counted("epoch_us", "microsecond", "us", "unix_micros"),
    _name_of("dayname", "isodow", DAYS),
    _name_of("monthname", "month", MONTHS),
    Function(
        "last_day",
        (Takes.TIME,),
        Kind.TIMESTAMP,
        _last_day,
        clock=True,
        vector=Rewritten(_as_last_day),
    ),
    Function("make_date", (Takes.WHOLE,) * 3, Kind.DATE, _make_date),
    Function(
        "make_timestamp", (*(Takes.WHOLE,) * 5, Takes.NUMBER), Kind.TIMESTAMP, _make_timestamp
    ),
    Function("strftime", (Takes.TIME, Takes.TEXT), Kind.STRING, _strftime, clock=True),
    Function("strptime", (Takes.TEXT, Takes.TEXT), Kind.TIMESTAMP, _strptime),
)
