"""Logic, comparison and arithmetic on vectors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.algebra.values import EXACT
from ensue.algebra.values import compare as compare_values
from ensue.columns.arrow_kinds import Unit
from ensue.columns.buffers import Bools, Floats, booleans, codes, plain_text
from ensue.columns.values import Vector, nulls, spread
from ensue.schema import Kind

_COMPARE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "=": (np.equal, pc.equal),
    "!=": (np.not_equal, pc.not_equal),
    "<": (np.less, pc.less),
    "<=": (np.less_equal, pc.less_equal),
    ">": (np.greater, pc.greater),
    ">=": (np.greater_equal, pc.greater_equal),
}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
Numbers = npt.NDArray[Any]

_POINTS = (Kind.TIMESTAMP, Kind.DATE)
_YEAR_1 = int(np.datetime64("0001-01-01", "us").astype(np.int64))
_YEAR_10000 = int(np.datetime64("10000-01-01", "us").astype(np.int64))


def both(left: Bools | None, right: Bools | None) -> Bools | None:
    """Where both sides are valid."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def common_length(*vectors: Vector) -> int:
    return next((len(v) for v in vectors if len(v) != 1), 1)


def as_floats(vector: Vector) -> Floats:
    assert vector.kind.numeric, f"{vector.kind.value} is not a number"
    return np.asarray(vector.values).astype(np.float64, copy=False)


def negation(vector: Vector) -> Vector:
    if vector.kind is Kind.NULL:
        return vector
    return Vector(Kind.BOOLEAN, ~vector.values, vector.valid)


def conjunction(left: Vector, right: Vector) -> Vector:
    """`and`: false wins over NULL."""
    a, b = _logical(left), _logical(right)
    if left.valid is None and right.valid is None:
        return Vector(Kind.BOOLEAN, a & b)
    known_a, known_b = _known(left), _known(right)
    false = (~a & known_a) | (~b & known_b)
    return Vector(Kind.BOOLEAN, a & b, false | (known_a & known_b))


def disjunction(left: Vector, right: Vector) -> Vector:
    """`or`: true wins over NULL."""
    a, b = _logical(left), _logical(right)
    if left.valid is None and right.valid is None:
        return Vector(Kind.BOOLEAN, a | b)
    known_a, known_b = _known(left), _known(right)
    a, b = a & known_a, b & known_b
    return Vector(Kind.BOOLEAN, a | b, a | b | (known_a & known_b))


def _logical(vector: Vector) -> Bools:
    return np.asarray(vector.values, np.bool_)


def _known(vector: Vector) -> Bools:
    return np.ones(1, np.bool_) if vector.valid is None else vector.valid


def minus(vector: Vector) -> Vector:
    if vector.kind is Kind.NULL:
        return vector
    if vector.kind in (Kind.INTEGER, Kind.DURATION):
        return whole_difference(vector.kind, np.zeros(1, np.int64), vector.values, vector.valid)
    return Vector(Kind.FLOAT, -vector.values, vector.valid)


def is_null(vector: Vector, negated: bool) -> Vector:
    if vector.valid is None:
        return Vector(Kind.BOOLEAN, np.full(len(vector), negated))
    return Vector(Kind.BOOLEAN, vector.valid if negated else ~vector.valid)


def binary(operator: str, left: Vector, right: Vector) -> Vector:
    """`and`, `or`, a comparison, arithmetic, or `||`."""
    if operator == "and":
        return conjunction(left, right)
    if operator == "or":
        return disjunction(left, right)
    if Kind.NULL in (left.kind, right.kind):
        return nulls(common_length(left, right))
    if operator in _COMPARE:
        return compare(operator, left, right)
    if operator == "||":
        return join([left, right])
    with np.errstate(all="ignore"):
        if left.kind.numeric and right.kind.numeric:
            return _arithmetic(operator, left, right)
        return _temporal(operator, left, right)


def compare(operator: str, left: Vector, right: Vector) -> Vector:
    """A comparison of two vectors of comparable kinds."""
    if Kind.NULL in (left.kind, right.kind):
        return nulls(common_length(left, right))
    valid = both(left.valid, right.valid)
    if left.kind is Kind.STRING and right.kind is Kind.STRING:
        return Vector(Kind.BOOLEAN, _compare_texts(operator, left, right), valid)
    a, b = left.values, right.values
    if left.kind is not right.kind:
        if left.kind.numeric and right.kind.numeric:
            return Vector(Kind.BOOLEAN, _compare_numbers(operator, left, right), valid)
        if not (left.kind in _POINTS and right.kind in _POINTS):
            raise TypeError(f"comparing {left.kind.value} with {right.kind.value}")
    if left.kind is Kind.OTHER:
        raise TypeError("binary and nested values are not compared")
    return Vector(Kind.BOOLEAN, _COMPARE[operator][0](a, b), valid)


def _compare_numbers(operator: str, left: Vector, right: Vector) -> Bools:
    """Numbers of different kinds, by their exact values."""
    a, b = as_floats(left), as_floats(right)
    found: Bools = np.asarray(_COMPARE[operator][0](a, b))
    if Kind.INTEGER not in (left.kind, right.kind):
        return found
    # Rounding keeps the order of what it does not make equal.
    doubtful = np.flatnonzero((a == b) & (np.abs(a) >= EXACT))
    if len(doubtful):
        length = common_length(left, right)
        sides = [np.asarray(spread(v, length).values)[doubtful].tolist() for v in (left, right)]
        exact = (compare_values(operator, *pair) for pair in zip(*sides, strict=True))
        found[doubtful] = list(exact)
    return found


def _compare_texts(operator: str, left: Vector, right: Vector) -> Bools:
    if len(left) == 1 != len(right):
        left, right, operator = right, left, _MIRRORED[operator]
    function = _COMPARE[operator][1]
    if len(right) == 1 and right.valid is None:
        scalar = plain_text(right.values)[0]
        return on_texts(left.values, lambda texts: booleans(function(texts, scalar)))
    length = common_length(left, right)
    texts = [plain_text(spread(side, length).values) for side in (left, right)]
    return booleans(function(*_alike(texts)))


def _alike(texts: Sequence[pa.Array]) -> list[pa.Array]:
    """String arrays with offsets of the same width."""
    if len({text.type for text in texts}) > 1:
        return [text.cast(pa.large_string()) for text in texts]
    return list(texts)


def on_texts(
    array: pa.Array, function: Callable[[pa.Array], npt.NDArray[Any]]
) -> npt.NDArray[Any]:
    """A function of each string: of each dictionary entry only, where there is a dictionary."""
    if not types.is_dictionary(array.type):
        return function(plain_text(array))
    if not len(array.dictionary):
        return function(plain_text(array))
    looked_up: npt.NDArray[Any] = function(plain_text(array.dictionary))[codes(array)]
    return looked_up


def is_in(operand: Vector, options: Sequence[Vector]) -> Vector:
    """`x IN (...)`: true if any equality is, else NULL if any is NULL."""
    constants = all(len(option) == 1 for option in options)
    if operand.kind is Kind.STRING and constants and len(options) > 2:
        return _text_in(operand, options)
    found = Vector(Kind.BOOLEAN, np.zeros(1, np.bool_))
    for option in options:
        found = disjunction(found, compare("=", operand, option))
    return found


def _text_in(operand: Vector, options: Sequence[Vector]) -> Vector:
    known = [option for option in options if option.kind is not Kind.NULL]
    known = [option for option in known if option.valid is None or option.valid[0]]
    choices = pa.array([option.values[0].as_py() for option in known], pa.string())
    found = on_texts(
        operand.values,
        lambda texts: booleans(pc.is_in(texts, value_set=choices.cast(texts.type))),
    )
    if len(known) == len(options):
        return Vector(Kind.BOOLEAN, found, operand.valid)
    return Vector(Kind.BOOLEAN, found, both(found, operand.valid))


def join(parts: Sequence[Vector]) -> Vector:
    """Strings put together; NULL if any is."""
    length = common_length(*parts)
    if any(part.kind is Kind.NULL for part in parts):
        return nulls(length)
    texts = _alike([plain_text(spread(part, length).values) for part in parts])
    joined = pc.binary_join_element_wise(*texts, pa.scalar("", texts[0].type))
    valid = None
    for part in parts:
        valid = both(valid, part.valid)
    return Vector(Kind.STRING, joined, valid if valid is None else _full(valid, length))


def _full(valid: Bools, length: int) -> Bools:
    return valid if len(valid) == length else np.full(length, bool(valid[0]))


def _arithmetic(operator: str, left: Vector, right: Vector) -> Vector:
    valid = both(left.valid, right.valid)
    whole = left.kind is Kind.INTEGER and right.kind is Kind.INTEGER and operator != "/"
    kind = Kind.INTEGER if whole else Kind.FLOAT
    a, b = (left.values, right.values) if whole else (as_floats(left), as_floats(right))
    match operator:
        case "+":
            return whole_sum(kind, a, b, valid) if whole else Vector(kind, a + b, valid)
        case "-":
            return whole_difference(kind, a, b, valid) if whole else Vector(kind, a - b, valid)
        case "*":
            return whole_product(kind, a, b, valid) if whole else Vector(kind, a * b, valid)
        case _:
            divide = np.divide if operator == "/" else np.fmod
            return _divided(kind, divide, a, b, valid)


def whole_sum(kind: Kind, a: Numbers, b: Numbers, valid: Bools | None) -> Vector:
    """A sum; NULL beyond 64 bits."""
    total = a + b
    return _inside(kind, total, ((a ^ total) & (b ^ total)) >= 0, valid)


def whole_difference(kind: Kind, a: Numbers, b: Numbers, valid: Bools | None) -> Vector:
    """A difference; NULL beyond 64 bits."""
    rest = a - b
    return _inside(kind, rest, ((a ^ b) & (a ^ rest)) >= 0, valid)


def whole_product(kind: Kind, a: Numbers, b: Numbers, valid: Bools | None) -> Vector:
    """A product; NULL beyond 64 bits."""
    product = a * b
    about = np.abs(a.astype(np.float64) * b.astype(np.float64))
    inside = about < 2.0**63
    near = np.flatnonzero(np.abs(about - 2.0**63) <= 2.0**12)  # the double may be on either side
    if len(near):
        length = len(product)
        sides = [np.broadcast_to(side, length)[near].tolist() for side in (a, b)]
        inside[near] = [-(2**63) <= x * y < 2**63 for x, y in zip(*sides, strict=True)]
    return _inside(kind, product, inside, valid)


def _inside(kind: Kind, found: Numbers, inside: Bools, valid: Bools | None) -> Vector:
    return Vector(kind, found, valid if inside.all() else both(valid, inside))


def in_years(vector: Vector, unit: Unit) -> Vector:
    """Times; NULL beyond the years 1 to 9999, which nanoseconds of 64 bits do not reach."""
    if vector.kind is not Kind.TIMESTAMP or unit == "ns" or not len(vector):
        return vector
    times = np.asarray(vector.values)
    if times.min() >= _YEAR_1 and times.max() < _YEAR_10000:
        return vector
    inside = (times >= _YEAR_1) & (times < _YEAR_10000)
    return Vector(vector.kind, np.where(inside, times, 0), both(vector.valid, inside))


def _divided(
    kind: Kind,
    divide: Callable[..., Any],
    dividend: npt.NDArray[Any],
    divisor: npt.NDArray[Any],
    valid: Bools | None,
) -> Vector:
    """A quotient or rest; NULL where the divisor is zero."""
    zero = divisor == 0
    if zero.any():
        divisor = np.where(zero, np.ones(1, divisor.dtype), divisor)
        valid = both(valid, ~zero)
    return Vector(kind, divide(dividend, divisor), valid)


def _temporal(operator: str, left: Vector, right: Vector) -> Vector:
    """Arithmetic in which a timestamp, date or duration takes part."""
    valid = both(left.valid, right.valid)
    a, b = left.values, right.values
    match operator, left.kind, right.kind:
        case "-", (Kind.TIMESTAMP | Kind.DATE), (Kind.TIMESTAMP | Kind.DATE):
            return whole_difference(Kind.DURATION, a, b, valid)
        case ("+", (Kind.TIMESTAMP | Kind.DATE), Kind.DURATION) | (
            "+",
            Kind.DURATION,
            (Kind.TIMESTAMP | Kind.DATE),
        ):
            return whole_sum(Kind.TIMESTAMP, a, b, valid)
        case "-", (Kind.TIMESTAMP | Kind.DATE), Kind.DURATION:
            return whole_difference(Kind.TIMESTAMP, a, b, valid)
        case "+", Kind.DURATION, Kind.DURATION:
            return whole_sum(Kind.DURATION, a, b, valid)
        case "-", Kind.DURATION, Kind.DURATION:
            return whole_difference(Kind.DURATION, a, b, valid)
        case "/", Kind.DURATION, Kind.DURATION:
            x, y = a.astype(np.float64), b.astype(np.float64)
            return _divided(Kind.FLOAT, np.divide, x, y, valid)
        case "%", Kind.DURATION, Kind.DURATION:
            return _divided(Kind.DURATION, np.fmod, a, b, valid)
        case "*", Kind.DURATION, _:
            return _scaled(left, right, valid)
        case "*", _, Kind.DURATION:
            return _scaled(right, left, valid)
        case "/", Kind.DURATION, _:
            quotient = _divided(
                Kind.FLOAT, np.divide, a.astype(np.float64), as_floats(right), valid
            )
            return rounded_duration(np.asarray(quotient.values), quotient.valid)
        case _:
            raise TypeError(f"{operator} of {left.kind.value} and {right.kind.value}")


def _scaled(length: Vector, factor: Vector, valid: Bools | None) -> Vector:
    lengths = np.asarray(length.values)
    if factor.kind is Kind.INTEGER:
        return whole_product(Kind.DURATION, lengths, np.asarray(factor.values), valid)
    return rounded_duration(lengths.astype(np.float64) * as_floats(factor), valid)


def rounded_duration(lengths: Floats, valid: Bools | None) -> Vector:
    """Durations from fractions of the unit, rounded half to even; NULL beyond 64 bits."""
    inside = (lengths >= -(2.0**63)) & (lengths < 2.0**63)
    if not inside.all():
        lengths = np.where(inside, lengths, 0.0)
        valid = both(valid, inside)
    return Vector(Kind.DURATION, np.rint(lengths).astype(np.int64), valid)
