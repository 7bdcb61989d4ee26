"""The plain meaning of the scalar functions: None for NULL."""

import math
from collections.abc import Callable, Sequence

from ensue.algebra.values import equal, fitting, instant, number, prefers


def call(function: str, arguments: Sequence[object]) -> object:
    """A function's value; NULL if an argument is, except where NULLs are its business.

    >>> call("round", [2.5]), call("round", [-2.45, 1]), call("sqrt", [-1]) is None
    (3.0, -2.5, True)
    >>> call("greatest", [1, None, 3]), call("coalesce", [None, 7]), call("upper", ["ab"])
    (3, 7, 'AB')
    """
    match function:
        case "coalesce":
            return next((a for a in arguments if a is not None), None)
        case "nullif":
            value, other = arguments
            return None if equal(value, other) else value
        case "least" | "greatest":
            return _extreme("min" if function == "least" else "max", arguments)
        case _:
            if any(a is None for a in arguments):
                return None
            return _STRICT[function](*arguments)


def _extreme(side: str, arguments: Sequence[object]) -> object:
    best = None
    for value in arguments:
        if value is not None and (best is None or prefers(side, value, best)):
            best = value
    return best


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


def _substring(text: object, start: object, length: object = None) -> str:
    """Characters from position `start`, counted from 1; positions before the text are empty."""
    characters, begin = str(text), int(number(start)) - 1
    end = len(characters) if length is None else begin + max(int(number(length)), 0)
    return characters[max(begin, 0) : max(end, 0)]


def _part(name: str) -> Callable[[object], int]:
    return lambda value: int(getattr(instant(value), name))


_STRICT: dict[str, Callable[..., object]] = {
    "abs": _abs,
    "round": _round,
    "floor": _floor,
    "ceil": _ceil,
    "sqrt": _sqrt,
    "exp": _exp,
    "ln": _logarithm(math.log),
    "log10": _logarithm(math.log10),
    "power": _power,
    "sign": _sign,
    "lower": lambda text: str(text).lower(),
    "upper": lambda text: str(text).upper(),
    "length": lambda text: len(str(text)),
    "trim": lambda text: str(text).strip(" "),
    "substring": _substring,
    "concat": lambda *texts: "".join(str(text) for text in texts),
    "starts_with": lambda text, prefix: str(text).startswith(str(prefix)),
    "ends_with": lambda text, suffix: str(text).endswith(str(suffix)),
    "contains": lambda text, inner: str(inner) in str(text),
    "year": _part("year"),  # the parts of a timestamp are those in UTC, whatever its zone
    "month": _part("month"),
    "day": _part("day"),
    "hour": _part("hour"),
    "minute": _part("minute"),
    "second": _part("second"),
}
