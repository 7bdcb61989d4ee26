"""Single values as predicates see them: 64-bit integers, doubles, instants, durations."""

import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, cast

from ensue.errors import EventError

EXACT = 2**53  # the integers up to here are doubles
DIGITS = 15  # decimals of so many digits are told apart by their nearest doubles
_WIDE = Context(prec=100)  # more digits than a decimal of 256 bits has
_MICROSECOND = timedelta(microseconds=1)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def fitting(value: int) -> int | None:
    """An integer, or NULL beyond 64 bits.

    >>> fitting(2**63 - 1), fitting(2**63) is None
    (9223372036854775807, True)
    """
    return value if -(2**63) <= value < 2**63 else None


def is_double(value: Decimal) -> bool:
    """Whether the nearest double stands for a decimal, and for no other that is computed with.

    So it is for fractions of up to 15 digits, and for whole numbers that are doubles.

    >>> is_double(Decimal("0.1")), is_double(Decimal(2**53 + 1)), is_double(Decimal(10**20))
    (True, False, True)
    """
    if value == value.to_integral_value(context=_WIDE):
        return Decimal(float(value)) == value
    return len(value.normalize(_WIDE).as_tuple().digits) <= DIGITS


def number(value: object) -> int | float:
    """An integer or a double: a decimal is its nearest double, if that stands for it alone.

    >>> number(Decimal("0.1"))
    0.1
    """
    if isinstance(value, float):
        return value
    if isinstance(value, int) and fitting(value) is not None:
        return int(value)
    if isinstance(value, Decimal) and is_double(value):
        return float(value)
    if isinstance(value, int | Decimal):
        raise EventError(beyond(value))
    raise TypeError(f"{value!r} is not a number")


def beyond(value: int | Decimal, column: str | None = None) -> str:
    """Why a number is not computed with, and what to do."""
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
        f"{DIGITS}, or a whole number up to 2^53\n"
        "  hint: round it, or cast the column to float64 to compute with rounded values, or to "
        "int64 in units of its last digit; carried through, or as a key [...], it stays unchanged"
    )


def instant(value: object) -> datetime:
    """A point in time in UTC: a date is its midnight, a timestamp without zone is in UTC.

    >>> instant(date(2026, 1, 1))
    datetime.datetime(2026, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)
    """
    if isinstance(value, datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    raise TypeError(f"{value!r} is not a point in time")


def microseconds(value: object) -> int:
    """The length of a duration.

    >>> microseconds(timedelta(seconds=2))
    2000000
    """
    return cast(timedelta, value) // _MICROSECOND


def duration(length: int | float) -> timedelta | None:
    """A duration of so many microseconds, rounded half to even; None beyond 64 bits.

    >>> duration(2.5), duration(float("inf")) is None
    (datetime.timedelta(microseconds=2), True)
    """
    return timedelta(microseconds=round(length)) if -(2**63) <= length < 2**63 else None


def compare(comparison: str, left: object, right: object) -> bool | None:
    """A comparison; unknown if either side is NULL, never true for NaN except by `!=`.

    >>> compare("<", 1, 1.5), compare("=", None, None) is None, compare("<", float("nan"), 1)
    (True, True, False)
    """
    if left is None or right is None:
        return None
    return bool(_COMPARE[comparison](*_comparable(left, right)))


def equal(left: object, right: object) -> bool | None:
    return compare("=", left, right)


def prefers(side: str, value: object, best: object) -> bool:
    """Whether `value` replaces `best` as the "min" or "max": a NaN gives way to any number.

    >>> prefers("min", 2, float("nan")), prefers("min", float("nan"), 2)
    (True, False)
    """
    if compare("<" if side == "min" else ">", value, best):
        return True
    return best != best and value == value


def _comparable(left: object, right: object) -> tuple[Any, Any]:
    """Both sides as values whose Python order is the order meant."""
    match left, right:
        case (bool(), bool()) | (str(), str()) | (timedelta(), timedelta()):
            return left, right
        case (int() | float() | Decimal(), int() | float() | Decimal()):
            return number(left), number(right)  # Python compares int and float exactly
        case (date(), date()):
            return instant(left), instant(right)
        case _ if type(left) is type(right):
            return left, right
        case _:
            raise TypeError(f"comparing {type(left).__name__} with {type(right).__name__}")
