"""Numeric, trigonometric and bitwise functions."""

import math
import operator
from collections.abc import Callable

from ensue.functions.interpreter import evaluate_binary
from ensue.functions.record import InlineForm, NumpyForm, RewriteForm, RoutineForm, define
from ensue.ir.expression import Binary
from ensue.ir.values import fit_int64, to_number


def _abs(value: object) -> int | float | None:
    operand = to_number(value)
    return fit_int64(abs(operand)) if isinstance(operand, int) else abs(operand)


# The powers of ten as doubles: all implementations of `round` multiply by the same ones.
POWERS_OF_TEN = tuple(float(f"1e{exponent}") for exponent in range(309))


def _round(value: object, digits: object = 0) -> int | float | None:
    """Rounds half away from zero."""
    operand, places = to_number(value), int(to_number(digits))
    if isinstance(operand, int):
        return _round_integer(operand, places)
    if not math.isfinite(operand):
        return operand
    scale = POWERS_OF_TEN[min(abs(places), 308)]
    if places == 0:
        return _to_whole(operand)
    if places > 0:
        scaled = operand * scale
        return operand if math.isinf(scaled) else _to_whole(scaled) / scale
    return _to_whole(operand / scale) * scale


def _to_whole(value: float) -> float:
    whole = math.copysign(math.floor(abs(value)), value)
    return whole + math.copysign(1.0, value) if abs(value - whole) >= 0.5 else whole


def _round_integer(value: int, places: int) -> int | None:
    if places >= 0:
        return value
    if places < -19:  # more than twice as far as 64 bits go
        return 0
    scale = 10**-places
    whole, rest = divmod(abs(value), scale)
    away = (whole + (2 * rest >= scale)) * scale
    return fit_int64(-away if value < 0 else away)


def _round_by(function: Callable[[float], int]) -> Callable[[object], int | float]:
    def rounded(value: object) -> int | float:
        operand = to_number(value)
        if isinstance(operand, int) or not math.isfinite(operand):
            return operand
        return math.copysign(float(function(operand)), operand)

    return rounded


def _div(value: object, divisor: object) -> int | None:
    """Divides integers, rounding towards zero."""
    x, y = int(to_number(value)), int(to_number(divisor))
    if y == 0:
        return None
    return fit_int64(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))


def _pmod(value: object, divisor: object) -> object:
    """Computes the remainder that is not negative."""
    rest = evaluate_binary("%", value, divisor)
    negative = rest is not None and to_number(rest) < 0
    return to_number(rest) + abs(to_number(divisor)) if negative else rest


def _sign(value: object) -> int | float:
    operand = to_number(value)
    if isinstance(operand, int):
        return (operand > 0) - (operand < 0)
    return operand if operand != operand else float((operand > 0) - (operand < 0))


def _over_floats(function: Callable[..., object]) -> Callable[..., object]:
    """Wraps a function of floats; NULL outside its domain."""

    def compute(*values: object) -> object:
        try:
            return function(*(float(to_number(value)) for value in values))
        except (ValueError, ZeroDivisionError):
            return None

    return compute


def _exp(value: object) -> float:
    try:
        return math.exp(to_number(value))
    except OverflowError:
        return math.inf


def _power(value: object, exponent: object) -> float | None:
    base, by = float(to_number(value)), float(to_number(exponent))
    if base == 0 and by < 0:  # a division by zero
        return None
    try:
        return math.pow(base, by)
    except OverflowError:
        return -math.inf if base < 0 and by % 2 == 1 else math.inf
    except ValueError:  # a negative base with a fractional exponent
        return None


_NO_POWER = "(np.isfinite(x) & (x < 0) & np.isfinite(y) & (np.trunc(y) != y)) | (x == 0) & (y < 0)"
_MODULO = RewriteForm(lambda x, y: Binary("%", x, y))

NUMBERS = (
    define(
        "abs(number) -> computed",
        _abs,
        NumpyForm("np.abs(x)", whole_null="found < 0"),
        InlineForm("abs({x})", whole_known="{x} != LEAST"),
    ),
    define("round(number, whole?) -> computed", _round, RoutineForm("round")),
    *(
        define(f"{names}(number) -> computed", _round_by(getattr(math, name)), NumpyForm(f"np.{name}(x)", whole="x"))
        for name, names in (("floor", "floor"), ("ceil", "ceil|ceiling"), ("trunc", "trunc|truncate"))
    ),
    define("sqrt(number) -> float", _over_floats(math.sqrt), NumpyForm("np.sqrt(x)", null="x < 0")),
    define("exp(number) -> float", _exp, NumpyForm("arrow(pc.exp, x)")),
    define(
        "log(number, number?) -> float",
        _over_floats(lambda x, y=None: math.log(x) if y is None else math.log(y) / math.log(x)),
        NumpyForm(
            "arrow(pc.ln, x) if y is None else arrow(pc.ln, y) / arrow(pc.ln, x)",
            null="x <= 0 if y is None else (x <= 0) | (x == 1) | (y <= 0)",
        ),
    ),
    *(
        define(f"{name}(number) -> float", _over_floats(function), NumpyForm(f"arrow(pc.{name}, x)", null="x <= 0"))
        for name, function in (("ln", math.log), ("log2", math.log2), ("log10", math.log10))
    ),
    define("power|pow(number, number) -> float", _power, NumpyForm("arrow(pc.power, x, y)", null=_NO_POWER)),
    *(
        define(
            f"{name}(number) -> boolean",
            _over_floats(getattr(math, name)),
            NumpyForm(f"np.{name}(x)"),
            InlineForm(test),
        )
        for name, test in (
            ("isnan", "({x} != {x})"),
            ("isinf", "({x} == {x} and {x} - {x} != {x} - {x})"),
            ("isfinite", "({x} - {x} == {x} - {x})"),
        )
    ),
    define(
        "nanvl(number, number) -> number",
        lambda x, y: y if to_number(x) != to_number(x) else x,
        NumpyForm("np.where(x != x, y, x)"),
    ),
    define(
        "hypot(number, number) -> float",
        _over_floats(lambda x, y: math.sqrt(x * x + y * y)),
        NumpyForm("np.sqrt(x * x + y * y)"),
    ),
    define("sign|signum(number) -> computed", _sign, NumpyForm("np.sign(x)")),
    define("cbrt(number) -> float", _over_floats(math.cbrt), NumpyForm("np.cbrt(x)")),
    define("mod(number, number) -> number", lambda x, y: evaluate_binary("%", x, y), _MODULO, _MODULO),
    define(
        "pmod(number, number) -> number",
        _pmod,
        NumpyForm(
            "(lambda r: np.where(r < 0, np.where(y < 0, r - y, r + y), r))(np.fmod(x, np.where(y == 0, 1, y)))",
            null="y == 0",
        ),
    ),
    define(
        "div(whole, whole) -> integer",
        _div,
        NumpyForm(
            "(x - np.fmod(x, np.where(y == 0, 1, y))) // np.where(y == 0, 1, y)",
            null="(y == 0) | (x == -(2**63)) & (y == -1)",
        ),
        InlineForm("(({x} - remainder({x}, {y})) // {y})", known="{y} != 0 and not ({x} == LEAST and {y} == -1)"),
    ),
)

_NOT_FINITE = "np.isinf(x)"
_BEYOND_ONE = "np.abs(x) > 1"

ANGLES = (
    *(
        define(f"{name}(number) -> float", _over_floats(getattr(math, name)), NumpyForm(form, null))
        for name, form, null in (
            ("degrees", "np.degrees(x)", None),
            ("radians", "np.radians(x)", None),
            ("sin", "arrow(pc.sin, x)", _NOT_FINITE),
            ("cos", "arrow(pc.cos, x)", _NOT_FINITE),
            ("tan", "arrow(pc.tan, x)", _NOT_FINITE),
            ("asin", "arrow(pc.asin, x)", _BEYOND_ONE),
            ("acos", "arrow(pc.acos, x)", _BEYOND_ONE),
            ("atan", "arrow(pc.atan, x)", None),
        )
    ),
    define("atan2(number, number) -> float", _over_floats(math.atan2), NumpyForm("arrow(pc.atan2, x, y)")),
)

# --- functions of the 64 bits of integers; the highest one is the sign


def _to_integer(value: object) -> int:
    return int(to_number(value))


def _shift_left(value: object, count: object) -> int | None:
    """Multiplies by a power of two; NULL beyond 64 bits."""
    by = _to_integer(count)
    return fit_int64(_to_integer(value) << by) if 0 <= by < 64 else None


def _shift_right(value: object, count: object) -> int | None:
    by = _to_integer(count)
    return _to_integer(value) >> by if 0 <= by < 64 else None


_SHIFT = "np.clip(y, 0, 63)"
_NO_SHIFT = "(y < 0) | (y > 63)"


BITS = (
    *(
        define(
            f"{name}(whole, whole) -> integer",
            lambda x, y, function=function: function(_to_integer(x), _to_integer(y)),
            NumpyForm(f"x {sign} y"),
            InlineForm(f"({{x}} {sign} {{y}})"),
        )
        for name, sign, function in (
            ("bitand", "&", operator.and_),
            ("bitor", "|", operator.or_),
            ("bitxor|xor", "^", operator.xor),
        )
    ),
    define("bitnot(whole) -> integer", lambda x: ~_to_integer(x), NumpyForm("~x"), InlineForm("(~{x})")),
    define(
        "shiftleft(whole, whole) -> integer",
        _shift_left,
        NumpyForm(f"x << {_SHIFT}", null=f"{_NO_SHIFT} | ((found >> {_SHIFT}) != x)"),
    ),
    define("shiftright(whole, whole) -> integer", _shift_right, NumpyForm(f"x >> {_SHIFT}", null=_NO_SHIFT)),
    define(
        "bit_count(whole) -> integer",
        lambda x: (_to_integer(x) & (2**64 - 1)).bit_count(),
        NumpyForm("np.bitwise_count(x.view(np.uint64)).astype(np.int64)"),
    ),
)
