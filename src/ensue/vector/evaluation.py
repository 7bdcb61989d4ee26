"""Vectorized evaluation of expressions, with exactly the semantics of the interpreter."""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.functions import FUNCTIONS
from ensue.functions.record import RewriteForm
from ensue.ir.expression import (
    Aggregate,
    Between,
    Binary,
    Expr,
    FieldRef,
    FunctionCall,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.ir.values import MAX_EXACT_INTEGER
from ensue.ir.values import compare as compare_values
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import Bools, Floats, booleans, decode_text, get_indices
from ensue.vector.arrow_types import Unit
from ensue.vector.column_values import (
    Refused,
    Vector,
    arrow_type,
    broadcast,
    create_constant,
    create_nulls,
    from_arrow,
    to_arrow,
    truth,
)

__all__ = [
    "Lookup", "Refused", "Vector", "arrow_type", "evaluate", "from_arrow", "to_arrow", "truth",
]  # fmt: skip

_NAMES = {
    "=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater",
    ">=": "greater_equal",
}  # fmt: skip
_COMPARE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    operator: (getattr(np, name), getattr(pc, name)) for operator, name in _NAMES.items()
}
_MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
Numbers = npt.NDArray[Any]

_POINTS = (ValueKind.TIMESTAMP, ValueKind.DATE)
_YEAR_1 = int(np.datetime64("0001-01-01", "us").astype(np.int64))
_YEAR_10000 = int(np.datetime64("10000-01-01", "us").astype(np.int64))


def combine_validity(left: Bools | None, right: Bools | None) -> Bools | None:
    """Where both sides are valid."""
    if left is None or right is None:
        return right if left is None else left
    return left & right


def get_common_length(*vectors: Vector) -> int:
    return next((len(v) for v in vectors if len(v) != 1), 1)


def to_floats(vector: Vector) -> Floats:
    assert vector.kind.numeric, f"{vector.kind.value} is not a number"
    return np.asarray(vector.values).astype(np.float64, copy=False)


def logical_not(vector: Vector) -> Vector:
    if vector.kind is ValueKind.NULL:
        return vector
    return Vector(ValueKind.BOOLEAN, ~vector.values, vector.valid)


def logical_and(left: Vector, right: Vector) -> Vector:
    """`and`: false wins over NULL."""
    a, b = _logical(left), _logical(right)
    if left.valid is None and right.valid is None:
        return Vector(ValueKind.BOOLEAN, a & b)
    known_a, known_b = _get_valid(left), _get_valid(right)
    false = (~a & known_a) | (~b & known_b)
    return Vector(ValueKind.BOOLEAN, a & b, false | (known_a & known_b))


def logical_or(left: Vector, right: Vector) -> Vector:
    """`or`: true wins over NULL."""
    a, b = _logical(left), _logical(right)
    if left.valid is None and right.valid is None:
        return Vector(ValueKind.BOOLEAN, a | b)
    known_a, known_b = _get_valid(left), _get_valid(right)
    a, b = a & known_a, b & known_b
    return Vector(ValueKind.BOOLEAN, a | b, a | b | (known_a & known_b))


def _logical(vector: Vector) -> Bools:
    return np.asarray(vector.values, np.bool_)


def _get_valid(vector: Vector) -> Bools:
    return np.ones(1, np.bool_) if vector.valid is None else vector.valid


def negate(vector: Vector) -> Vector:
    if vector.kind is ValueKind.NULL:
        return vector
    if vector.kind in (ValueKind.INTEGER, ValueKind.DURATION):
        return subtract_integers(vector.kind, np.zeros(1, np.int64), vector.values, vector.valid)
    return Vector(ValueKind.FLOAT, -vector.values, vector.valid)


def is_null(vector: Vector, negated: bool) -> Vector:
    if vector.valid is None:
        return Vector(ValueKind.BOOLEAN, np.full(len(vector), negated))
    return Vector(ValueKind.BOOLEAN, vector.valid if negated else ~vector.valid)


def apply_binary(operator: str, left: Vector, right: Vector) -> Vector:
    """Evaluate `and`, `or`, a comparison, arithmetic, or `||`."""
    if operator == "and":
        return logical_and(left, right)
    if operator == "or":
        return logical_or(left, right)
    if ValueKind.NULL in (left.kind, right.kind):
        return create_nulls(get_common_length(left, right))
    if operator in _COMPARE:
        return compare(operator, left, right)
    if operator == "||":
        return concat_texts([left, right])
    with np.errstate(all="ignore"):
        if left.kind.numeric and right.kind.numeric:
            return _arithmetic(operator, left, right)
        return _temporal(operator, left, right)


def compare(operator: str, left: Vector, right: Vector) -> Vector:
    """Compare two vectors of comparable kinds."""
    if ValueKind.NULL in (left.kind, right.kind):
        return create_nulls(get_common_length(left, right))
    valid = combine_validity(left.valid, right.valid)
    if left.kind is ValueKind.STRING and right.kind is ValueKind.STRING:
        return Vector(ValueKind.BOOLEAN, _compare_texts(operator, left, right), valid)
    a, b = left.values, right.values
    if left.kind is not right.kind:
        if left.kind.numeric and right.kind.numeric:
            return Vector(ValueKind.BOOLEAN, _compare_numbers(operator, left, right), valid)
        if not (left.kind in _POINTS and right.kind in _POINTS):
            raise TypeError(f"comparing {left.kind.value} with {right.kind.value}")
    if left.kind is ValueKind.OTHER:
        raise TypeError("binary and nested values are not compared")
    return Vector(ValueKind.BOOLEAN, _COMPARE[operator][0](a, b), valid)


def _compare_numbers(operator: str, left: Vector, right: Vector) -> Bools:
    """Compare numbers of different kinds by their exact values."""
    a, b = to_floats(left), to_floats(right)
    result: Bools = np.asarray(_COMPARE[operator][0](a, b))
    if ValueKind.INTEGER not in (left.kind, right.kind):
        return result
    # conversion to double keeps the order of values that stay distinct
    doubtful = np.flatnonzero((a == b) & (np.abs(a) >= MAX_EXACT_INTEGER))
    if len(doubtful):
        length = get_common_length(left, right)
        sides = [np.asarray(broadcast(v, length).values)[doubtful].tolist() for v in (left, right)]
        exact = (compare_values(operator, *pair) for pair in zip(*sides, strict=True))
        result[doubtful] = list(exact)
    return result


def _compare_texts(operator: str, left: Vector, right: Vector) -> Bools:
    if len(left) == 1 != len(right):
        left, right, operator = right, left, _MIRRORED[operator]
    function = _COMPARE[operator][1]
    if len(right) == 1 and right.valid is None:
        scalar = decode_text(right.values)[0]
        return apply_to_texts(left.values, lambda texts: booleans(function(texts, scalar)))
    length = get_common_length(left, right)
    texts = [decode_text(broadcast(side, length).values) for side in (left, right)]
    return booleans(function(*_unify_offsets(texts)))


def _unify_offsets(texts: Sequence[pa.Array]) -> list[pa.Array]:
    """Cast string arrays to the same offset width."""
    if len({text.type for text in texts}) > 1:
        return [text.cast(pa.large_string()) for text in texts]
    return list(texts)


def apply_to_texts(array: pa.Array, function: Callable[[pa.Array], npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Apply a function to strings, only to the dictionary if there is one."""
    if not types.is_dictionary(array.type) or not len(array.dictionary):
        return function(decode_text(array))
    values: npt.NDArray[Any] = function(decode_text(array.dictionary))[get_indices(array)]
    return values


def is_in(operand: Vector, options: Sequence[Vector]) -> Vector:
    """`x IN (...)`: true if any equality is, else NULL if any is NULL."""
    constants = all(len(option) == 1 for option in options)
    if operand.kind is ValueKind.STRING and constants and len(options) > 2:
        return _text_in(operand, options)
    result = Vector(ValueKind.BOOLEAN, np.zeros(1, np.bool_))
    for option in options:
        result = logical_or(result, compare("=", operand, option))
    return result


def _text_in(operand: Vector, options: Sequence[Vector]) -> Vector:
    known = [option for option in options if option.kind is not ValueKind.NULL]
    known = [option for option in known if option.valid is None or option.valid[0]]
    choices = pa.array([option.values[0].as_py() for option in known], pa.string())
    result = apply_to_texts(operand.values, lambda texts: booleans(pc.is_in(texts, value_set=choices.cast(texts.type))))
    if len(known) == len(options):
        return Vector(ValueKind.BOOLEAN, result, operand.valid)
    return Vector(ValueKind.BOOLEAN, result, combine_validity(result, operand.valid))


def concat_texts(parts: Sequence[Vector]) -> Vector:
    """Concatenate strings; NULL if any is."""
    length = get_common_length(*parts)
    if any(part.kind is ValueKind.NULL for part in parts):
        return create_nulls(length)
    texts = _unify_offsets([decode_text(broadcast(part, length).values) for part in parts])
    joined = pc.binary_join_element_wise(*texts, pa.scalar("", texts[0].type))
    valid = reduce(combine_validity, (part.valid for part in parts))
    return broadcast(Vector(ValueKind.STRING, joined, valid), length)


def _arithmetic(operator: str, left: Vector, right: Vector) -> Vector:
    valid = combine_validity(left.valid, right.valid)
    whole = left.kind is ValueKind.INTEGER and right.kind is ValueKind.INTEGER and operator != "/"
    kind = ValueKind.INTEGER if whole else ValueKind.FLOAT
    a, b = (left.values, right.values) if whole else (to_floats(left), to_floats(right))
    match operator:
        case "+":
            return add_integers(kind, a, b, valid) if whole else Vector(kind, a + b, valid)
        case "-":
            return subtract_integers(kind, a, b, valid) if whole else Vector(kind, a - b, valid)
        case "*":
            return multiply_integers(kind, a, b, valid) if whole else Vector(kind, a * b, valid)
        case _:
            divide = np.divide if operator == "/" else np.fmod
            return _divide(kind, divide, a, b, valid)


def add_integers(kind: ValueKind, a: Numbers, b: Numbers, valid: Bools | None) -> Vector:
    """A sum; NULL beyond 64 bits."""
    total = a + b
    return _inside(kind, total, ((a ^ total) & (b ^ total)) >= 0, valid)


def subtract_integers(kind: ValueKind, a: Numbers, b: Numbers, valid: Bools | None) -> Vector:
    """A difference; NULL beyond 64 bits."""
    rest = a - b
    return _inside(kind, rest, ((a ^ b) & (a ^ rest)) >= 0, valid)


def multiply_integers(kind: ValueKind, a: Numbers, b: Numbers, valid: Bools | None) -> Vector:
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


def _inside(kind: ValueKind, values: Numbers, inside: Bools, valid: Bools | None) -> Vector:
    return Vector(kind, values, valid if inside.all() else combine_validity(valid, inside))


def limit_years(vector: Vector, unit: Unit) -> Vector:
    """Replace times outside the years 1 to 9999 by NULL; nanoseconds never exceed them."""
    if vector.kind is not ValueKind.TIMESTAMP or unit == "ns" or not len(vector):
        return vector
    times = np.asarray(vector.values)
    if times.min() >= _YEAR_1 and times.max() < _YEAR_10000:
        return vector
    inside = (times >= _YEAR_1) & (times < _YEAR_10000)
    return Vector(vector.kind, np.where(inside, times, 0), combine_validity(vector.valid, inside))


def _divide(
    kind: ValueKind,
    divide: Callable[..., Any],
    dividend: npt.NDArray[Any],
    divisor: npt.NDArray[Any],
    valid: Bools | None,
) -> Vector:
    """A quotient or remainder; NULL where the divisor is zero."""
    zero = divisor == 0
    if zero.any():
        divisor = np.where(zero, np.ones(1, divisor.dtype), divisor)
        valid = combine_validity(valid, ~zero)
    return Vector(kind, divide(dividend, divisor), valid)


def _temporal(operator: str, left: Vector, right: Vector) -> Vector:
    """Arithmetic with a timestamp, date or duration."""
    valid = combine_validity(left.valid, right.valid)
    a, b = left.values, right.values
    points = left.kind in _POINTS, right.kind in _POINTS
    lengths = left.kind is ValueKind.DURATION, right.kind is ValueKind.DURATION
    match operator:
        case "-" if all(points) or all(lengths):
            return subtract_integers(ValueKind.DURATION, a, b, valid)
        case "-" if points[0] and lengths[1]:
            return subtract_integers(ValueKind.TIMESTAMP, a, b, valid)
        case "+" if any(lengths) and (any(points) or all(lengths)):
            kind = ValueKind.DURATION if all(lengths) else ValueKind.TIMESTAMP
            return add_integers(kind, a, b, valid)
        case "/" if all(lengths):
            x, y = a.astype(np.float64), b.astype(np.float64)
            return _divide(ValueKind.FLOAT, np.divide, x, y, valid)
        case "%" if all(lengths):
            return _divide(ValueKind.DURATION, np.fmod, a, b, valid)
        case "*" if any(lengths):
            return _scale(*((left, right) if lengths[0] else (right, left)), valid)
        case "/" if lengths[0]:
            quotient = _divide(ValueKind.FLOAT, np.divide, a.astype(np.float64), to_floats(right), valid)
            return round_duration(np.asarray(quotient.values), quotient.valid)
        case _:
            raise TypeError(f"{operator} of {left.kind.value} and {right.kind.value}")


def _scale(length: Vector, factor: Vector, valid: Bools | None) -> Vector:
    lengths = np.asarray(length.values)
    if factor.kind is ValueKind.INTEGER:
        return multiply_integers(ValueKind.DURATION, lengths, np.asarray(factor.values), valid)
    return round_duration(lengths.astype(np.float64) * to_floats(factor), valid)


def round_duration(lengths: Floats, valid: Bools | None) -> Vector:
    """Round fractions of the unit half to even; NULL beyond 64 bits."""
    inside = (lengths >= -(2.0**63)) & (lengths < 2.0**63)
    if not inside.all():
        lengths = np.where(inside, lengths, 0.0)
        valid = combine_validity(valid, inside)
    return Vector(ValueKind.DURATION, np.rint(lengths).astype(np.int64), valid)


# values of the fields and aggregates of an expression
Lookup = Callable[[FieldRef | Aggregate], Vector]


def evaluate(expr: Expr, lookup: Lookup, length: int, unit: Unit) -> Vector:
    """Evaluate an expression over the columns of its fields and aggregates.

    >>> import numpy as np
    >>> from ensue.schema import ValueKind
    >>> price = Vector(ValueKind.INTEGER, np.array([1, 5]))
    >>> evaluate(Binary(">", FieldRef("a", "price"), Literal(3)), lambda _: price, 2, "us").values
    array([False,  True])
    """
    return broadcast(_evaluate(expr, lookup, unit), length)


def _evaluate(expr: Expr, lookup: Lookup, unit: Unit) -> Vector:
    match expr:
        case Literal():
            return create_constant(expr.value, unit)
        case FieldRef() | Aggregate():
            return lookup(expr)
        case Unary(operator="not", operand=operand):
            return logical_not(_evaluate(operand, lookup, unit))
        case Unary(operand=operand):
            return negate(_evaluate(operand, lookup, unit))
        case Binary(operator=operator, left=left, right=right):
            result = apply_binary(operator, _evaluate(left, lookup, unit), _evaluate(right, lookup, unit))
            return limit_years(result, unit)
        case IsNull(operand=operand, negated=negated):
            return is_null(_evaluate(operand, lookup, unit), negated)
        case In(operand=operand, options=options, negated=negated):
            result = is_in(_evaluate(operand, lookup, unit), [_evaluate(o, lookup, unit) for o in options])
            return logical_not(result) if negated else result
        case Between(operand=operand, low=low, high=high, negated=negated):
            value = _evaluate(operand, lookup, unit)
            inside = logical_and(
                apply_binary(">=", value, _evaluate(low, lookup, unit)),
                apply_binary("<=", value, _evaluate(high, lookup, unit)),
            )
            return logical_not(inside) if negated else inside
        case Like(operand=operand, pattern=pattern, negated=negated):
            from ensue.vector.functions import match_like

            result = match_like(_evaluate(operand, lookup, unit), pattern)
            return logical_not(result) if negated else result
        case FunctionCall(function=function, arguments=arguments):
            form = FUNCTIONS[function].vector
            if isinstance(form, RewriteForm):
                return _evaluate(form.by(*arguments), lookup, unit)

            from ensue.vector.functions import call_function

            return call_function(function, [_evaluate(a, lookup, unit) for a in arguments], unit)
