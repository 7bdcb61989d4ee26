"""Numeric, trigonometric and bitwise functions."""

import math
import operator
from collections.abc import Callable

from ensue.functions.record import (
    ArgumentType,
    InlineForm,
    NumpyForm,
    ResultType,
    RewriteForm,
    RoutineForm,
    ScalarFunction,
)
from ensue.ir.expression import Binary
from ensue.ir.values import fit_int64, to_number
from ensue.schema import ValueKind


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


def _mod(value: object, divisor: object) -> int | float | None:
    """Computes the remainder with the sign of the value: `%`."""
    x, y = to_number(value), to_number(divisor)
    if y == 0:
        return None
    if isinstance(x, int) and isinstance(y, int):
        return abs(x) % abs(y) * (-1 if x < 0 else 1)
    return math.nan if math.isinf(x) else math.fmod(x, y)


def _div(value: object, divisor: object) -> int | None:
    """Divides integers, rounding towards zero."""
    x, y = int(to_number(value)), int(to_number(divisor))
    if y == 0:
        return None
    return fit_int64(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))


def _pmod(value: object, divisor: object) -> int | float | None:
    """Computes the remainder that is not negative."""
    rest = _mod(value, divisor)
    return rest + abs(to_number(divisor)) if rest is not None and rest < 0 else rest


def _hypot(x: object, y: object) -> float:
    across, up = float(to_number(x)), float(to_number(y))
    return math.sqrt(across * across + up * up)


def _sign(value: object) -> int | float:
    operand = to_number(value)
    if isinstance(operand, int):
        return (operand > 0) - (operand < 0)
    return operand if operand != operand else float((operand > 0) - (operand < 0))


def _sqrt(value: object) -> float | None:
    operand = float(to_number(value))
    return None if operand < 0 else math.sqrt(operand)


def _logarithm(function: Callable[[float], float]) -> Callable[[object], float | None]:
    def logarithm(value: object) -> float | None:
        operand = float(to_number(value))
        return None if operand <= 0 else function(operand)

    return logarithm


def _log(base: object, value: object = None) -> float | None:
    """Computes the logarithm to a base; with one argument the natural one."""
    if value is None:
        return _logarithm(math.log)(base)
    b, x = float(to_number(base)), float(to_number(value))
    return None if b <= 0 or b == 1 or x <= 0 else math.log(x) / math.log(b)


def _angle(function: Callable[..., float]) -> Callable[..., float | None]:
    """Wraps a function of floats; NULL outside its domain."""

    def compute(*values: object) -> float | None:
        try:
            return function(*(float(to_number(value)) for value in values))
        except ValueError:
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


def _of_one(
    name: str,
    gives: ValueKind | ResultType,
    meaning: Callable[..., object],
    vector: NumpyForm,
    *aliases: str,
    kernel: InlineForm | None = None,
) -> ScalarFunction:
    return ScalarFunction(
        name, (ArgumentType.NUMBER,), gives, meaning, aliases=aliases, vector=vector, kernel=kernel
    )


_NO_POWER = "(np.isfinite(x) & (x < 0) & np.isfinite(y) & (np.trunc(y) != y)) | (x == 0) & (y < 0)"

NUMBERS = (
    _of_one(
        "abs",
        ResultType.COMPUTED,
        _abs,
        NumpyForm("np.abs(x)", whole_null="found < 0"),
        kernel=InlineForm("abs({x})", whole_known="{x} != LEAST"),
    ),
    ScalarFunction(
        "round",
        (ArgumentType.NUMBER,),
        ResultType.COMPUTED,
        _round,
        optional=(ArgumentType.WHOLE,),
        vector=RoutineForm("round"),
    ),
    *(
        _of_one(
            name,
            ResultType.COMPUTED,
            _round_by(getattr(math, name)),
            NumpyForm(f"np.{name}(x)", whole="x"),
            *aliases,
        )
        for name, *aliases in (("floor",), ("ceil", "ceiling"), ("trunc", "truncate"))
    ),
    _of_one("sqrt", ValueKind.FLOAT, _sqrt, NumpyForm("np.sqrt(x)", null="x < 0")),
    _of_one("exp", ValueKind.FLOAT, _exp, NumpyForm("arrow(pc.exp, x)")),
    _of_one(
        "ln",
        ValueKind.FLOAT,
        _logarithm(math.log),
        NumpyForm("arrow(pc.ln, x)", null="x <= 0"),
    ),
    ScalarFunction(
        "log",
        (ArgumentType.NUMBER,),
        ValueKind.FLOAT,
        _log,
        optional=(ArgumentType.NUMBER,),
        vector=NumpyForm(
            "arrow(pc.ln, x) if y is None else arrow(pc.ln, y) / arrow(pc.ln, x)",
            null="x <= 0 if y is None else (x <= 0) | (x == 1) | (y <= 0)",
        ),
    ),
    _of_one(
        "log2",
        ValueKind.FLOAT,
        _logarithm(math.log2),
        NumpyForm("arrow(pc.log2, x)", null="x <= 0"),
    ),
    _of_one(
        "log10",
        ValueKind.FLOAT,
        _logarithm(math.log10),
        NumpyForm("arrow(pc.log10, x)", null="x <= 0"),
    ),
    ScalarFunction(
        "power",
        (ArgumentType.NUMBER, ArgumentType.NUMBER),
        ValueKind.FLOAT,
        _power,
        aliases=("pow",),
        vector=NumpyForm("arrow(pc.power, x, y)", null=_NO_POWER),
    ),
    ScalarFunction(
        "isnan",
        (ArgumentType.NUMBER,),
        ValueKind.BOOLEAN,
        lambda x: math.isnan(to_number(x)),
        vector=NumpyForm("np.isnan(x)"),
        kernel=InlineForm("({x} != {x})"),
    ),
    ScalarFunction(
        "isinf",
        (ArgumentType.NUMBER,),
        ValueKind.BOOLEAN,
        lambda x: math.isinf(to_number(x)),
        vector=NumpyForm("np.isinf(x)"),
        kernel=InlineForm("({x} == {x} and {x} - {x} != {x} - {x})"),
    ),
    ScalarFunction(
        "isfinite",
        (ArgumentType.NUMBER,),
        ValueKind.BOOLEAN,
        lambda x: math.isfinite(to_number(x)),
        vector=NumpyForm("np.isfinite(x)"),
        kernel=InlineForm("({x} - {x} == {x} - {x})"),
    ),
    ScalarFunction(
        "nanvl",
        (ArgumentType.NUMBER, ArgumentType.NUMBER),
        ResultType.NUMBER,
        lambda x, y: y if to_number(x) != to_number(x) else x,
        vector=NumpyForm("np.where(x != x, y, x)"),
    ),
    ScalarFunction(
        "hypot",
        (ArgumentType.NUMBER, ArgumentType.NUMBER),
        ValueKind.FLOAT,
        _hypot,
        vector=NumpyForm("np.sqrt(x * x + y * y)"),
    ),
    _of_one("sign", ResultType.COMPUTED, _sign, NumpyForm("np.sign(x)"), "signum"),
    _of_one("cbrt", ValueKind.FLOAT, _angle(math.cbrt), NumpyForm("np.cbrt(x)")),
    ScalarFunction(
        "mod",
        (ArgumentType.NUMBER, ArgumentType.NUMBER),
        ResultType.NUMBER,
        _mod,
        vector=RewriteForm(lambda x, y: Binary("%", x, y)),
        kernel=RewriteForm(lambda x, y: Binary("%", x, y)),
    ),
    ScalarFunction(
        "pmod",
        (ArgumentType.NUMBER, ArgumentType.NUMBER),
        ResultType.NUMBER,
        _pmod,
        vector=NumpyForm(
            "(lambda r: np.where(r < 0, np.where(y < 0, r - y, r + y), r))"
            "(np.fmod(x, np.where(y == 0, 1, y)))",
            null="y == 0",
        ),
    ),
    ScalarFunction(
        "div",
        (ArgumentType.WHOLE, ArgumentType.WHOLE),
        ValueKind.INTEGER,
        _div,
        vector=NumpyForm(
            "(x - np.fmod(x, np.where(y == 0, 1, y))) // np.where(y == 0, 1, y)",
            null="(y == 0) | (x == -(2**63)) & (y == -1)",
        ),
        kernel=InlineForm(
            "(({x} - remainder({x}, {y})) // {y})",
            known="{y} != 0 and not ({x} == LEAST and {y} == -1)",
        ),
    ),
)

_NOT_FINITE = "np.isinf(x)"
_BEYOND_ONE = "np.abs(x) > 1"

ANGLES = (
    _of_one("degrees", ValueKind.FLOAT, _angle(math.degrees), NumpyForm("np.degrees(x)")),
    _of_one("radians", ValueKind.FLOAT, _angle(math.radians), NumpyForm("np.radians(x)")),
    *(
        _of_one(
            name,
            ValueKind.FLOAT,
            _angle(getattr(math, name)),
            NumpyForm(f"arrow(pc.{name}, x)", null=null),
        )
        for name, null in (
            ("sin", _NOT_FINITE),
            ("cos", _NOT_FINITE),
            ("tan", _NOT_FINITE),
            ("asin", _BEYOND_ONE),
            ("acos", _BEYOND_ONE),
            ("atan", None),
        )
    ),
    ScalarFunction(
        "atan2",
        (ArgumentType.NUMBER, ArgumentType.NUMBER),
        ValueKind.FLOAT,
        _angle(math.atan2),
        vector=NumpyForm("arrow(pc.atan2, x, y)"),
    ),
)


# --- functions of the 64 bits of integers; the highest one is the sign

_TWO = (ArgumentType.WHOLE, ArgumentType.WHOLE)


def _whole(value: object) -> int:
    return int(to_number(value))


def _shift_left(value: object, count: object) -> int | None:
    """Multiplies by a power of two; NULL beyond 64 bits."""
    by = _whole(count)
    return fit_int64(_whole(value) << by) if 0 <= by < 64 else None


def _shift_right(value: object, count: object) -> int | None:
    by = _whole(count)
    return _whole(value) >> by if 0 <= by < 64 else None


_SHIFT = "np.clip(y, 0, 63)"
_NO_SHIFT = "(y < 0) | (y > 63)"


def _bitwise(
    name: str, sign: str, function: Callable[[int, int], int], *aliases: str
) -> ScalarFunction:
    return ScalarFunction(
        name,
        _TWO,
        ValueKind.INTEGER,
        lambda x, y: function(_whole(x), _whole(y)),
        aliases=aliases,
        vector=NumpyForm(f"x {sign} y"),
        kernel=InlineForm(f"({{x}} {sign} {{y}})"),
    )


BITS = (
    _bitwise("bitand", "&", operator.and_),
    _bitwise("bitor", "|", operator.or_),
    _bitwise("bitxor", "^", operator.xor, "xor"),
    ScalarFunction(
        "bitnot",
        (ArgumentType.WHOLE,),
        ValueKind.INTEGER,
        lambda x: ~_whole(x),
        vector=NumpyForm("~x"),
        kernel=InlineForm("(~{x})"),
    ),
    ScalarFunction(
        "shiftleft",
        _TWO,
        ValueKind.INTEGER,
        _shift_left,
        vector=NumpyForm(f"x << {_SHIFT}", null=f"{_NO_SHIFT} | ((found >> {_SHIFT}) != x)"),
    ),
    ScalarFunction(
        "shiftright",
        _TWO,
        ValueKind.INTEGER,
        _shift_right,
        vector=NumpyForm(f"x >> {_SHIFT}", null=_NO_SHIFT),
    ),
    ScalarFunction(
        "bit_count",
        (ArgumentType.WHOLE,),
        ValueKind.INTEGER,
        lambda x: (_whole(x) & (2**64 - 1)).bit_count(),
        vector=NumpyForm("np.bitwise_count(x.view(np.uint64)).astype(np.int64)"),
    ),
)
