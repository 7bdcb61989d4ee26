"""Functions that turn a value into one of another kind; what is none there is NULL.

>>> from ensue.algebra.functions import call
>>> call("to_integer", ["12.7"]), call("to_integer", ["twelve"]), call("to_string", [0.1])
(12, None, '0.1')
"""

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from ensue.algebra.functions.record import Function, Inline, OverNumbers, Takes
from ensue.algebra.values import fitting, instant, number
from ensue.schema import Kind

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]{1,9})?", re.IGNORECASE)
_NO_NUMBER = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_TRUE = ("true", "t", "yes", "y", "on", "1")
_FALSE = ("false", "f", "no", "n", "off", "0")

# The types of SQL, by the function that casts to them.
_TYPES = {
    "to_integer": "int integer bigint smallint tinyint long short byte int2 int4 int8 hugeint",
    "to_float": "double float real float4 float8 decimal numeric dec",
    "to_string": "varchar string text char character nvarchar bpchar",
    "to_boolean": "boolean bool logical",
    "to_timestamp": "timestamp datetime timestamptz timestamp_ntz timestamp_ltz",
    "to_date": "date",
}
TYPES = {name: function for function, names in _TYPES.items() for name in names.split()}
DECIMALS = ("decimal", "numeric", "dec")


def _to_integer(value: object) -> int | None:
    """Towards zero."""
    if isinstance(value, str):
        text = value.strip()
        if not _NUMBER.fullmatch(text):
            return None
        exact = Decimal(text)
        return fitting(int(exact)) if exact.adjusted() < 20 else None
    operand = number(value)
    if isinstance(operand, int):
        return operand
    return fitting(int(operand)) if math.isfinite(operand) else None


def _to_float(value: object) -> float | None:
    if isinstance(value, str):
        text = value.strip()
        return float(text) if _NUMBER.fullmatch(text) or _NO_NUMBER.fullmatch(text) else None
    return float(number(value))


def _to_string(value: object) -> str:
    """A float by the fewest digits that tell it from others, a time in UTC."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case datetime():
            shown = instant(value).replace(tzinfo=None).isoformat(sep=" ")
            return shown.rstrip("0") if "." in shown else shown
        case date():
            return value.isoformat()
        case _:
            return repr(number(value))


def _to_boolean(value: object) -> bool | None:
    if isinstance(value, str):
        word = value.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else None
    operand = number(value)
    return None if operand != operand else operand != 0


def _to_timestamp(value: object) -> datetime | None:
    try:
        match value:
            case str():
                return instant(datetime.fromisoformat(value.strip()))
            case date():
                return instant(value)
            case _:
                return EPOCH + _seconds(number(value))
    except (ValueError, OverflowError):  # none, or beyond the years 1 to 9999
        return None


def _seconds(length: int | float) -> timedelta:
    if isinstance(length, int):
        return timedelta(seconds=length)
    return timedelta(microseconds=round(length * 1e6))  # a NaN is a ValueError here


def _to_date(value: object) -> date | None:
    moment = _to_timestamp(value)
    return None if moment is None else moment.date()


def _cast(
    name: str,
    takes: Takes,
    gives: Kind,
    meaning: Callable[[object], object],
    *aliases: str,
    clock: bool = False,
    vector: OverNumbers | None = None,
    kernel: Inline | None = None,
) -> Function:
    return Function(
        name, (takes,), gives, meaning, aliases=aliases, clock=clock, vector=vector, kernel=kernel
    )


_INSIDE = "((x >= -2.0**63) & (x < 2.0**63))"

CASTS = (
    _cast(
        "to_integer",
        Takes.SIMPLE,
        Kind.INTEGER,
        _to_integer,
        "to_bigint",
        vector=OverNumbers(
            f"np.where({_INSIDE}, np.trunc(x), 0)",
            null=f"(x.dtype != np.int64) & ~{_INSIDE}",
            whole="x",
        ),
    ),
    _cast(
        "to_float",
        Takes.SIMPLE,
        Kind.FLOAT,
        _to_float,
        "to_double",
        vector=OverNumbers("x"),
        kernel=Inline("float({x})"),
    ),
    _cast("to_string", Takes.PRINTED, Kind.STRING, _to_string, "to_varchar", "to_text"),
    _cast(
        "to_boolean",
        Takes.SIMPLE,
        Kind.BOOLEAN,
        _to_boolean,
        vector=OverNumbers("x != 0", null="x != x"),
    ),
    _cast("to_timestamp", Takes.MOMENT, Kind.TIMESTAMP, _to_timestamp),
    _cast("to_date", Takes.MOMENT, Kind.DATE, _to_date, "date", clock=True),
)
