"""Casts between kinds of values, NULL if one cannot be converted, and functions that choose among their arguments."""

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise

from ensue.functions.interpreter import compute_aggregate
from ensue.functions.record import (
    CASE,
    CaseForm,
    FoldForm,
    InlineForm,
    NumpyForm,
    RewriteForm,
    RoutineForm,
    ScalarFunction,
    define,
)
from ensue.ir.expression import Binary, Expr, FunctionCall, IsNull, Literal, Unary
from ensue.ir.values import compare_equal, fit_int64, to_instant, to_number

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
CAST_FUNCTIONS = {name: function for function, names in _TYPES.items() for name in names.split()}
DECIMAL_TYPES = ("decimal", "numeric", "dec")


def _to_integer(value: object) -> int | None:
    """Rounds towards zero."""
    if isinstance(value, str):
        text = value.strip()
        if not _NUMBER.fullmatch(text):
            return None
        exact = Decimal(text)
        return fit_int64(int(exact)) if exact.adjusted() < 20 else None
    operand = to_number(value)
    if isinstance(operand, int):
        return operand
    return fit_int64(int(operand)) if math.isfinite(operand) else None


def _to_float(value: object) -> float | None:
    if isinstance(value, str):
        text = value.strip()
        return float(text) if _NUMBER.fullmatch(text) or _NO_NUMBER.fullmatch(text) else None
    return float(to_number(value))


def _to_string(value: object) -> str:
    """Formats floats with the fewest digits that identify them, and times in UTC."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case datetime():
            shown = to_instant(value).replace(tzinfo=None).isoformat(sep=" ")
            return shown.rstrip("0") if "." in shown else shown
        case date():
            return value.isoformat()
        case _:
            return repr(to_number(value))


def _to_boolean(value: object) -> bool | None:
    if isinstance(value, str):
        word = value.strip().lower()
        return True if word in _TRUE else False if word in _FALSE else None
    operand = to_number(value)
    return None if operand != operand else operand != 0


def _to_timestamp(value: object) -> datetime | None:
    try:
        match value:
            case str():
                return to_instant(datetime.fromisoformat(value.strip()))
            case date():
                return to_instant(value)
            case _:
                return EPOCH + _seconds(to_number(value))
    except (ValueError, OverflowError):  # not a time, or outside the years 1 to 9999
        return None


def _seconds(length: int | float) -> timedelta:
    if isinstance(length, int):
        return timedelta(seconds=length)
    return timedelta(microseconds=round(length * 1e6))  # a NaN is a ValueError here


def _to_date(value: object) -> date | None:
    moment = _to_timestamp(value)
    return None if moment is None else moment.date()


_INSIDE = "((x >= -2.0**63) & (x < 2.0**63))"

CASTS = (
    define(
        "to_integer|to_bigint(simple) -> integer",
        _to_integer,
        NumpyForm(f"np.where({_INSIDE}, np.trunc(x), 0)", null=f"(x.dtype != np.int64) & ~{_INSIDE}", whole="x"),
    ),
    define("to_float|to_double(simple) -> float", _to_float, NumpyForm("x"), InlineForm("float({x})")),
    define("to_string|to_varchar|to_text(printed) -> string", _to_string),
    define("to_boolean(simple) -> boolean", _to_boolean, NumpyForm("x != 0", null="x != x")),
    define("to_timestamp(moment) -> timestamp", _to_timestamp),
    define("to_date|date(moment) -> date", _to_date, clock=True),
)


# --- conditional functions: they choose among their arguments


def _case(*arguments: object) -> object:
    """Returns the value after the first true condition, or the trailing default."""
    for condition, value in list(pairwise(arguments))[::2]:
        if condition is True:
            return value
    return arguments[-1] if len(arguments) % 2 else None


def coalesce_to_false(condition: Expr) -> Expr:
    """Turns an unknown condition into a false one."""
    return FunctionCall("coalesce", (condition, Literal(False)))


def _distinct(left: Expr, right: Expr) -> Expr:
    missing = Binary("and", IsNull(left), IsNull(right))
    return Unary("not", Binary("or", coalesce_to_false(Binary("=", left, right)), missing))


def _extreme(name: str, side: str, sign: str) -> ScalarFunction:
    # any number replaces NaN
    better = f"({{b}} {sign} {{a}} or {{a}} != {{a}})"
    return define(
        f"{name}(any, any...) -> shared",
        lambda *values: compute_aggregate(side, values),
        RoutineForm(name),
        FoldForm(f"({{b}} if (not {{a_known}}) or ({{b_known}} and {better}) else {{a}})"),
        sees_null=True,
    )


CHOICES = (
    _extreme("least", "min", "<"),
    _extreme("greatest", "max", ">"),
    define(
        "coalesce|ifnull|nvl(any...) -> shared",
        lambda *values: next((value for value in values if value is not None), None),
        RoutineForm("coalesce"),
        FoldForm("({a} if {a_known} else {b})"),
        sees_null=True,
    ),
    define(
        "nullif(any, any) -> first",
        lambda value, other: None if compare_equal(value, other) else value,
        RoutineForm("nullif"),
        RewriteForm(lambda value, other: FunctionCall(CASE, (Binary("=", value, other), Literal(None), value))),
        sees_null=True,
    ),
    define(
        f"{CASE}|if|iff(condition, any) -> shared", _case, RoutineForm(CASE), CaseForm(), in_pairs=True, sees_null=True
    ),
    define(
        "is_distinct(any, any) -> boolean",
        lambda left, right: (left is None) != (right is None) or compare_equal(left, right) is False,
        RewriteForm(_distinct),
        RewriteForm(_distinct),
        sees_null=True,
    ),
)
