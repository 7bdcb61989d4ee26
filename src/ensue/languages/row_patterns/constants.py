"""Constants of SQL: numbers, instants, and intervals."""

import math
import re
from datetime import date, datetime, timedelta
from decimal import Decimal

from ensue.algebra.durations import nanoseconds
from ensue.errors import QueryError
from ensue.span import Span

_FORMS = "INTERVAL '5' MINUTE, INTERVAL '5 minutes', INTERVAL '1 02:30' DAY TO MINUTE"
_AMOUNT = r"[+-]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_ALONE = re.compile(rf"\s*({_AMOUNT})\s*")
_PAIRS = re.compile(rf"\s*(?:{_AMOUNT}\s*[^\W\d]+\s*)+")
_PAIR = re.compile(rf"({_AMOUNT})\s*([^\W\d]+)")
_CLOCK = ("DAY", "HOUR", "MINUTE", "SECOND")
_FIELDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")


def number(text: str, span: Span | None) -> int | float:
    """The value of a number: an integer if it is written as one.

    >>> number("17", None), number("1.5e3", None)
    (17, 1500.0)
    """
    if text.isdigit() and len(text) <= 300:
        return int(text)
    value = float(text)
    if math.isinf(value):
        raise QueryError("this number is too large", span=span)
    return value


def instant(day_only: bool, text: str, span: Span | None) -> datetime:
    """The value of `DATE '...'` or `TIMESTAMP '...'`."""
    try:
        if day_only:
            return datetime.combine(date.fromisoformat(text.strip()), datetime.min.time())
        return datetime.fromisoformat(text.strip())
    except ValueError:
        form = "DATE '2026-01-31'" if day_only else "TIMESTAMP '2026-01-31 10:00:00'"
        raise QueryError(
            f"'{text}' is not a {'date' if day_only else 'timestamp'}",
            hint=f"write it as {form}",
            span=span,
        ) from None


def interval(amount: str, unit: str | None, to: str | None, span: Span) -> timedelta:
    """The length of `INTERVAL 'amount' unit TO to`.

    >>> interval("5", "MINUTE", None, Span(0, 1)), interval("1 day 2 h", None, None, Span(0, 1))
    (datetime.timedelta(seconds=300), datetime.timedelta(days=1, seconds=7200))
    >>> interval("1:30", "HOUR", "MINUTE", Span(0, 1))
    datetime.timedelta(seconds=5400)
    """
    if unit is not None and to is not None:
        length = _spread(amount, unit.upper(), to.upper(), span)
    elif unit is not None and (alone := _ALONE.fullmatch(amount)):
        length = nanoseconds(alone[1], unit, span)
    elif unit is None and _PAIRS.fullmatch(amount):
        length = sum(nanoseconds(pair[1], pair[2], span) for pair in _PAIR.finditer(amount))
    else:
        raise QueryError("this interval cannot be read", hint=f"write {_FORMS}", span=span)
    if length % 1000:
        raise QueryError(
            "intervals must be whole microseconds", hint="round it to microseconds", span=span
        )
    return timedelta(microseconds=length // 1000)


def _spread(text: str, unit: str, to: str, span: Span) -> int:
    """The nanoseconds of `INTERVAL '1 02:30' DAY TO MINUTE`."""
    stripped = text.strip()
    sign = -1 if stripped.startswith("-") else 1
    fields = re.split(r"[ :]", stripped.lstrip("+-"))
    if unit in _CLOCK and to in _CLOCK:
        units = _CLOCK[_CLOCK.index(unit) : _CLOCK.index(to) + 1]
        if len(units) == len(fields) > 1 and all(map(_FIELDS.fullmatch, fields)):
            pairs = zip(fields, units, strict=True)
            return sign * sum(nanoseconds(str(Decimal(f)), u, span) for f, u in pairs)
    raise QueryError("this interval cannot be read", hint=f"write {_FORMS}", span=span)
