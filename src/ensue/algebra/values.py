"""Single values as predicates see them: 64-bit integers, doubles, instants, durations."""

import operator
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

_MICROSECOND = timedelta(microseconds=1)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def wrapped(value: int) -> int:
    """An integer in 64 bits, with two's complement overflow.

    >>> wrapped(2**63) == -(2**63)
    True
    """
    if -(2**63) <= value < 2**63:
        return value
    return (value + 2**63) % 2**64 - 2**63


def number(value: object) -> int | float:
    """An integer or a double; decimals are computed as doubles.

    >>> number(Decimal("0.1"))
    0.1
    """
    if isinstance(value, float):
        return value
    if isinstance(value, int):
        return wrapped(int(value))
    if isinstance(value, Decimal):
        return float(value)
    raise TypeError(f"{value!r} is not a number")


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
    return timedelta(microseconds=round(length)) if abs(length) < 2**63 else None


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
            a, b = number(left), number(right)
            if isinstance(a, int) and isinstance(b, int):
                return a, b
            return float(a), float(b)
        case (date(), date()):
            return instant(left), instant(right)
        case _ if type(left) is type(right):
            return left, right
        case _:
            raise TypeError(f"comparing {type(left).__name__} with {type(right).__name__}")
