"""Functions of numbers."""

import math
from collections.abc import Callable

from ensue.algebra.functions.record import (
    Function,
    Gives,
    Inline,
    OverNumbers,
    Rewritten,
    Routine,
    Takes,
)
from ensue.algebra.predicate import Binary
from ensue.algebra.values import fitting, number
from ensue.schema import Kind


def _abs(value: object) -> int | float | None:
    operand = number(value)
    return fitting(abs(operand)) if isinstance(operand, int) else abs(operand)


# The powers of ten as their nearest doubles: `round` multiplies by the same ones everywhere.
POWERS_OF_TEN = tuple(float(f"1e{exponent}") for exponent in range(309))


def _round(value: object, digits: object = 0) -> int | float | None:
    """Half away from zero."""
    operand, places = number(value), int(number(digits))
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
    return fitting(-away if value < 0 else away)


def _floor(value: object) -> int | float:
    operand = number(value)
    if isinstance(operand, int) or not math.isfinite(operand):
        return operand
    return math.copysign(float(math.floor(operand)), operand)


def _ceil(value: object) -> int | float:
    operand = number(value)
    if isinstance(operand, int) or not math.isfinite(operand):
        return operand
    return math.copysign(float(math.ceil(operand)), operand)


def _trunc(value: object) -> int | float:
    operand = number(value)
    if isinstance(operand, int) or not math.isfinite(operand):
        return operand
    return math.copysign(float(math.trunc(operand)), operand)


def _mod(value: object, divisor: object) -> int | float | None:
    """The rest of a division, with the sign of the value: `%`."""
    x, y = number(value), number(divisor)
    if y == 0:
        return None
    if isinstance(x, int) and isinstance(y, int):
        return abs(x) % abs(y) * (-1 if x < 0 else 1)
    return math.nan if math.isinf(x) else math.fmod(x, y)


def _div(value: object, divisor: object) -> int | None:
    """How often a whole number goes into another, towards zero."""
    x, y = int(number(value)), int(number(divisor))
    if y == 0:
        return None
    return fitting(abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1))


def _pmod(value: object, divisor: object) -> int | float | None:
    """The rest of a division that is not negative."""
    rest = _mod(value, divisor)
    return rest + abs(number(divisor)) if rest is not None and rest < 0 else rest


def _hypot(x: object, y: object) -> float:
    across, up = float(number(x)), float(number(y))
    return math.sqrt(across * across + up * up)


def _sign(value: object) -> int | float:
    operand = number(value)
    if isinstance(operand, int):
        return (operand > 0) - (operand < 0)
    return operand if operand != operand else float((operand > 0) - (operand < 0))


def _sqrt(value: object) -> float | None:
    operand = float(number(value))
    return None if operand < 0 else math.sqrt(operand)


def _logarithm(of: Callable[[float], float]) -> Callable[[object], float | None]:
    def logarithm(value: object) -> float | None:
        operand = float(number(value))
        return None if operand <= 0 else of(operand)

    return logarithm


def _log(base: object, value: object = None) -> float | None:
    """The logarithm to a base; of one number, the natural one."""
    if value is None:
        return _logarithm(math.log)(base)
    b, x = float(number(base)), float(number(value))
    return None if b <= 0 or b == 1 or x <= 0 else math.log(x) / math.log(b)


def _angle(of: Callable[..., float]) -> Callable[..., float | None]:
    """A function of angles; NULL outside its domain."""

    def found(*values: object) -> float | None:
        try:
            return of(*(float(number(value)) for value in values))
        except ValueError:
            return None

    return found


def _exp(value: object) -> float:
    try:
        return math.exp(number(value))
    except OverflowError:
        return math.inf


def _power(value: object, exponent: object) -> float | None:
    base, by = float(number(value)), float(number(exponent))
    if base == 0 and by < 0:  # a division by zero
        return None
    try:
        return math.pow(base, by)
    except OverflowError:
        return -math.inf if base < 0 and by % 2 == 1 else math.inf
    except ValueError:  # a negative base with a broken exponent
        return None


def _of_one(
    name: str,
    gives: Kind | Gives,
    meaning: Callable[..., object],
    vector: OverNumbers,
    *aliases: str,
    kernel: Inline | None = None,
) -> Function:
    return Function(
        name, (Takes.NUMBER,), gives, meaning, aliases=aliases, vector=vector, kernel=kernel
    )


_NO_POWER = "(np.isfinite(x) & (x < 0) & np.isfinite(y) & (np.trunc(y) != y)) | (x == 0) & (y < 0)"

NUMBERS = (
    _of_one(
        "abs",
        Gives.COMPUTED,
        _abs,
        OverNumbers("np.abs(x)", whole_null="found < 0"),
        kernel=Inline("abs({x})", whole_known="{x} != LEAST"),
    ),
    Function(
        "round",
        (Takes.NUMBER,),
        Gives.COMPUTED,
        _round,
        optional=(Takes.WHOLE,),
        vector=Routine("round"),
    ),
    _of_one("floor", Gives.COMPUTED, _floor, OverNumbers("np.floor(x)", whole="x")),
    _of_one("ceil", Gives.COMPUTED, _ceil, OverNumbers("np.ceil(x)", whole="x"), "ceiling"),
    _of_one("sqrt", Kind.FLOAT, _sqrt, OverNumbers("np.sqrt(x)", null="x < 0")),
    _of_one("exp", Kind.FLOAT, _exp, OverNumbers("arrow(pc.exp, x)")),
    _of_one(
        "ln",
        Kind.FLOAT,
        _logarithm(math.log),
        OverNumbers("arrow(pc.ln, x)", null="x <= 0"),
    ),
    Function(
        "log",
        (Takes.NUMBER,),
        Kind.FLOAT,
        _log,
        optional=(Takes.NUMBER,),
        vector=OverNumbers(
            "arrow(pc.ln, x) if y is None else arrow(pc.ln, y) / arrow(pc.ln, x)",
            null="x <= 0 if y is None else (x <= 0) | (x == 1) | (y <= 0)",
        ),
    ),
    _of_one(
        "log2",
        Kind.FLOAT,
        _logarithm(math.log2),
        OverNumbers("arrow(pc.log2, x)", null="x <= 0"),
    ),
    _of_one(
        "log10",
        Kind.FLOAT,
        _logarithm(math.log10),
        OverNumbers("arrow(pc.log10, x)", null="x <= 0"),
    ),
    Function(
        "power",
        (Takes.NUMBER, Takes.NUMBER),
        Kind.FLOAT,
        _power,
        aliases=("pow",),
        vector=OverNumbers("arrow(pc.power, x, y)", null=_NO_POWER),
    ),
    Function(
        "isnan",
        (Takes.NUMBER,),
        Kind.BOOLEAN,
        lambda x: math.isnan(number(x)),
        vector=OverNumbers("np.isnan(x)"),
        kernel=Inline("({x} != {x})"),
    ),
    Function(
        "isinf",
        (Takes.NUMBER,),
        Kind.BOOLEAN,
        lambda x: math.isinf(number(x)),
        vector=OverNumbers("np.isinf(x)"),
        kernel=Inline("({x} == {x} and {x} - {x} != {x} - {x})"),
    ),
    Function(
        "isfinite",
        (Takes.NUMBER,),
        Kind.BOOLEAN,
        lambda x: math.isfinite(number(x)),
        vector=OverNumbers("np.isfinite(x)"),
        kernel=Inline("({x} - {x} == {x} - {x})"),
    ),
    Function(
        "nanvl",
        (Takes.NUMBER, Takes.NUMBER),
        Gives.NUMBER,
        lambda x, y: y if number(x) != number(x) else x,
        vector=OverNumbers("np.where(x != x, y, x)"),
    ),
    Function(
        "hypot",
        (Takes.NUMBER, Takes.NUMBER),
        Kind.FLOAT,
        _hypot,
        vector=OverNumbers("np.sqrt(x * x + y * y)"),
    ),
    _of_one("sign", Gives.COMPUTED, _sign, OverNumbers("np.sign(x)"), "signum"),
    _of_one("trunc", Gives.COMPUTED, _trunc, OverNumbers("np.trunc(x)", whole="x"), "truncate"),
    _of_one("cbrt", Kind.FLOAT, _angle(math.cbrt), OverNumbers("np.cbrt(x)")),
    Function(
        "mod",
        (Takes.NUMBER, Takes.NUMBER),
        Gives.NUMBER,
        _mod,
        vector=Rewritten(lambda x, y: Binary("%", x, y)),
        kernel=Rewritten(lambda x, y: Binary("%", x, y)),
    ),
    Function(
        "pmod",
        (Takes.NUMBER, Takes.NUMBER),
        Gives.NUMBER,
        _pmod,
        vector=OverNumbers(
            "(lambda r: np.where(r < 0, np.where(y < 0, r - y, r + y), r))"
            "(np.fmod(x, np.where(y == 0, 1, y)))",
            null="y == 0",
        ),
    ),
    Function(
        "div",
        (Takes.WHOLE, Takes.WHOLE),
        Kind.INTEGER,
        _div,
        vector=OverNumbers(
            "(x - np.fmod(x, np.where(y == 0, 1, y))) // np.where(y == 0, 1, y)",
            null="(y == 0) | (x == -(2**63)) & (y == -1)",
        ),
        kernel=Inline(
            "(({x} - remainder({x}, {y})) // {y})",
            known="{y} != 0 and not ({x} == LEAST and {y} == -1)",
        ),
    ),
)

_NOT_FINITE = "np.isinf(x)"
_BEYOND_ONE = "np.abs(x) > 1"

ANGLES = (
    _of_one("degrees", Kind.FLOAT, _angle(math.degrees), OverNumbers("np.degrees(x)")),
    _of_one("radians", Kind.FLOAT, _angle(math.radians), OverNumbers("np.radians(x)")),
    *(
        _of_one(
            name,
            Kind.FLOAT,
            _angle(getattr(math, name)),
            OverNumbers(f"arrow(pc.{name}, x)", null=null),
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
    Function(
        "atan2",
        (Takes.NUMBER, Takes.NUMBER),
        Kind.FLOAT,
        _angle(math.atan2),
        vector=OverNumbers("arrow(pc.atan2, x, y)"),
    ),
)
