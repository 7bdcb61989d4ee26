"""Values as 64-bit integers in their own order, so that every comparison is an interval.

Whole numbers, booleans and times stand for themselves. A double is its bits, those of negative
ones turned round; NaN lies beyond infinity, and NULL is the least integer, where doubles of the
same row are NaN. Constants are compared exactly: `x < 17.5` is `x <= 17` where x is an integer,
and `x <= 2**53 + 1` ends at the double below where x is one.
"""

import math
import struct

import numpy as np
import numpy.typing as npt

LEAST, GREATEST = -(2**63), 2**63 - 1
EVERYTHING = (LEAST, GREATEST)

_AS_DOUBLE, _AS_INTEGER = struct.Struct("<d").pack, struct.Struct("<q").unpack

Interval = tuple[int, int]  # both ends belong to it


def whole(operator: str, constant: float) -> Interval | None:
    """The integers that compare so with a number; None: there are none.

    >>> whole("<", 17.5), whole("=", 17.5), whole(">", 2**63)
    ((-9223372036854775808, 17), None, None)
    """
    if constant != constant:
        return None
    if constant in (math.inf, -math.inf):
        below = constant > 0
        holds = operator in (("<", "<=") if below else (">", ">="))
        return EVERYTHING if holds else None
    floor, ceiling = math.floor(constant), math.ceil(constant)
    match operator:
        case "=":
            low, high = ceiling, floor
        case "<":
            low, high = LEAST, ceiling - 1
        case "<=":
            low, high = LEAST, floor
        case ">":
            low, high = floor + 1, GREATEST
        case ">=":
            low, high = ceiling, GREATEST
        case _:
            raise ValueError(operator)
    low, high = max(low, LEAST), min(high, GREATEST)
    return (low, high) if low <= high else None


def ordered(value: float) -> int:
    """The integer that stands for a double.

    >>> ordered(-0.0) == ordered(0.0) == 0, ordered(-1.5) < ordered(-1.0) < ordered(2.5)
    (True, True)
    """
    if math.isnan(value):
        return GREATEST
    bits: int = _AS_INTEGER(_AS_DOUBLE(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ GREATEST


_LOWEST, _HIGHEST = ordered(-math.inf), ordered(math.inf)


def real(operator: str, constant: float) -> Interval | None:
    """The doubles that compare so with a number; NaN is none of them.

    >>> real("=", 2**53 + 1) is None, real("<=", 2**53 + 1) == real("<=", 2**53)
    (True, True)
    """
    if constant != constant:
        return None
    try:
        nearest = float(constant)
    except OverflowError:
        nearest = math.inf if constant > 0 else -math.inf
    low, high = _LOWEST, _HIGHEST
    match operator:
        case "=":
            if nearest != constant:
                return None
            low = high = ordered(nearest)
        case "<" | "<=":
            high = ordered(nearest)
            if nearest > constant or (operator == "<" and nearest == constant):
                high -= 1
        case ">" | ">=":
            low = ordered(nearest)
            if nearest < constant or (operator == ">" and nearest == constant):
                low += 1
        case _:
            raise ValueError(operator)
    return (low, high) if _LOWEST <= low <= high <= _HIGHEST else None


def ordered_floats(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """The integers that stand for doubles.

    >>> ordered_floats(np.array([-0.0, 1.0, np.nan])).tolist() == [0, ordered(1.0), GREATEST]
    True
    """
    bits = (values + 0.0).view(np.int64)
    found = np.where(bits < 0, bits ^ GREATEST, bits)
    found[np.isnan(values)] = GREATEST
    return found
