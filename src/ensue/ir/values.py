"""Scalar values of predicates: 64-bit integers, doubles, instants and durations."""

import operator
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from difflib import get_close_matches
from typing import Any, cast

from ensue.errors import EventError, QueryError, Span

MAX_EXACT_INTEGER = 2**53  # every integer up to here is a double
MAX_DECIMAL_DIGITS = 15  # decimals with up to 15 digits have distinct nearest doubles
_WIDE = Context(prec=100)  # exact for decimals of 256 bits
_MICROSECOND = timedelta(microseconds=1)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def fit_int64(value: int) -> int | None:
    """Returns the integer, or NULL beyond 64 bits.

    >>> fit_int64(2**63 - 1), fit_int64(2**63) is None
    (9223372036854775807, True)
    """
    return value if -(2**63) <= value < 2**63 else None


def is_exact_double(value: Decimal) -> bool:
    """Whether the nearest double identifies a decimal.

    This holds for fractions of up to 15 digits, and for whole numbers that are doubles.

    >>> is_exact_double(Decimal("0.1")), is_exact_double(Decimal(2**53 + 1))
    (True, False)
    """
    if value == value.to_integral_value(context=_WIDE):
        return Decimal(float(value)) == value
    return len(value.normalize(_WIDE).as_tuple().digits) <= MAX_DECIMAL_DIGITS


def to_number(value: object) -> int | float:
    """Converts a value to an integer or a double; raises an EventError if that loses precision.

    >>> to_number(Decimal("0.1"))
    0.1
    """
    if isinstance(value, float):
        return value
    if isinstance(value, int) and fit_int64(value) is not None:
        return int(value)
    if isinstance(value, Decimal) and is_exact_double(value):
        return float(value)
    if isinstance(value, int | Decimal):
        raise EventError(describe_out_of_range(value))
    raise TypeError(f"{value!r} is not a number")


def describe_out_of_range(value: int | Decimal, column: str | None = None) -> str:
    """Builds the error message for a number outside the supported range."""
    where = "" if column is None else f" in column '{column}'"
    if isinstance(value, int):
        return (
            f"{value}{where} is beyond the 64-bit integers from -2^63 to 2^63 - 1 "
            "that conditions and aggregates compute with\n"
            "  hint: cast the column to float64 to compute with rounded values, or to string to "
            "compare for equality; carried through, or as a key [...], it stays unchanged"
        )
    return (
        f"{value:f}{where} has more digits than conditions and aggregates keep of a decimal: "
        f"{MAX_DECIMAL_DIGITS}, or a whole number up to 2^53\n"
        "  hint: round it, or cast the column to float64 to compute with rounded values, or to "
        "int64 in units of its last digit; carried through, or as a key [...], it stays unchanged"
    )


def to_instant(value: object) -> datetime:
    """Converts to a timestamp in UTC: a date to its midnight, a naive timestamp as UTC.

    >>> to_instant(date(2026, 1, 1))
    datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
    """
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise TypeError(f"{value!r} is not a point in time")


def to_microseconds(value: object) -> int:
    """Returns the length of a duration.

    >>> to_microseconds(timedelta(seconds=2))
    2000000
    """
    return cast(timedelta, value) // _MICROSECOND


def to_duration(length: int | float) -> timedelta | None:
    """Converts microseconds to a duration, rounded half to even; None beyond 64 bits.

    >>> to_duration(2.5), to_duration(float("inf")) is None
    (datetime.timedelta(microseconds=2), True)
    """
    return timedelta(microseconds=round(length)) if -(2**63) <= length < 2**63 else None


def compare(comparison: str, left: object, right: object) -> bool | None:
    """Compares two values: NULL if either is NULL, false for NaN except with `!=`.

    >>> compare("<", 1, 1.5), compare("=", None, None) is None, compare("<", float("nan"), 1)
    (True, True, False)
    """
    if left is None or right is None:
        return None
    return bool(_COMPARE[comparison](*_comparable(left, right)))


def compare_equal(left: object, right: object) -> bool | None:
    return compare("=", left, right)


def is_preferred(side: str, value: object, best: object) -> bool:
    """Whether `value` replaces `best` as the "min" or "max"; any number replaces NaN.

    >>> is_preferred("min", 2, float("nan")), is_preferred("min", float("nan"), 2)
    (True, False)
    """
    if compare("<" if side == "min" else ">", value, best):
        return True
    return best != best and value == value


def _comparable(left: object, right: object) -> tuple[Any, Any]:
    """Converts both sides to values whose Python order is the order of SQL."""
    match left, right:
        case (bool(), bool()) | (str(), str()) | (timedelta(), timedelta()):
            return left, right
        case (int() | float() | Decimal(), int() | float() | Decimal()):
            return to_number(left), to_number(right)  # Python compares int and float exactly
        case (date(), date()):
            return to_instant(left), to_instant(right)
        case _ if type(left) is type(right):
            return left, right
        case _:
            raise TypeError(f"comparing {type(left).__name__} with {type(right).__name__}")


# --- durations as text: `5 minutes`, `12 h`, `500 ms`

# The length in nanoseconds and the accepted spellings; the first one is printed.
UNITS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (604_800_000_000_000, ("week", "weeks", "w")),
    (86_400_000_000_000, ("day", "days", "d")),
    (3_600_000_000_000, ("hour", "hours", "hr", "hrs", "h")),
    (60_000_000_000, ("minute", "minutes", "min", "mins", "m")),
    (1_000_000_000, ("second", "seconds", "sec", "secs", "s")),
    (1_000_000, ("millisecond", "milliseconds", "millis", "ms")),
    (1_000, ("microsecond", "microseconds", "micros", "us", "µs", "μs")),
    (1, ("nanosecond", "nanoseconds", "nanos", "ns")),
)
_LENGTH = {spelling: length for length, spellings in UNITS for spelling in spellings}
_CALENDAR = ("month", "months", "year", "years", "quarter", "quarters")
_MOST = 9.2e18  # nanoseconds that fit into a signed 64-bit integer


def convert_to_nanoseconds(amount: str, unit: str, span: Span) -> int:
    """Converts an amount of a unit to nanoseconds, rounded.

    >>> convert_to_nanoseconds("1.5", "hours", Span(0, 9))
    5400000000000
    """
    spelling = unit.lower()
    if spelling not in _LENGTH:
        raise QueryError(f"'{unit}' is not a unit of time", hint=suggest_unit(unit), span=span)
    # The float check comes first: Decimal would fail on huge exponents.
    rough = float(amount) * _LENGTH[spelling]
    if abs(rough) > _MOST:
        raise QueryError("this duration is too long", hint="at most 292 years", span=span)
    return round(Decimal(amount) * _LENGTH[spelling]) if rough else 0


def is_unit(word: str) -> bool:
    """Whether a word is a unit of time, in any case.

    >>> is_unit("D"), is_unit("minutes"), is_unit("Day1")
    (True, True, False)
    """
    return word.lower() in _LENGTH


def parse_duration(text: str) -> int:
    """Parses a text such as `10 seconds` to nanoseconds.

    >>> parse_duration("1.5 min")
    90000000000
    """
    parts = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([^\W\d]+)\s*", text)
    if parts is None:
        raise EventError(f"{text!r} is not a length of time\n  hint: write it like '10 seconds'")
    if parts[2].lower() not in _LENGTH:
        raise EventError(f"'{parts[2]}' is not a unit of time\n  hint: {suggest_unit(parts[2])}")
    return round(Decimal(parts[1]) * _LENGTH[parts[2].lower()])


def format_duration(length: int) -> str:
    """Formats nanoseconds in the largest unit that divides them.

    >>> format_duration(90_000_000_000), format_duration(-1_000)
    ('90 seconds', '-1 microsecond')
    """
    size, name = next(
        ((size, names[0]) for size, names in UNITS if length and length % size == 0), (1_000_000_000, "second")
    )
    count = length // size
    return f"{count} {name}" if abs(count) == 1 else f"{count} {name}s"


def suggest_unit(unit: str) -> str:
    """Suggests a unit for an unknown one.

    >>> suggest_unit("minuts")
    "did you mean 'minutes'?"
    """
    if unit.lower() in _CALENDAR:
        return "months and years differ in length: count days or weeks"
    near = get_close_matches(unit.lower(), _LENGTH, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    return "units are weeks, days, hours, minutes, seconds, ms, us and ns"
