"""Scalar functions on vectors that take more than a line: those that records name as routines."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.functions.numbers import POWERS_OF_TEN
from ensue.columns.buffers import Bools, Floats, plain_text
from ensue.columns.operators import as_floats, both, common_length, compare, join
from ensue.columns.place_functions import PLACE_ROUTINES
from ensue.columns.values import Vector, nulls, spread, truth
from ensue.schema import Kind

# ---- numbers


def _round(vector: Vector, digits: Vector | None = None) -> Vector:
    """Half away from zero."""
    places = np.zeros(1, np.int64) if digits is None else np.asarray(digits.values)
    if places.dtype != np.int64:
        places = np.trunc(places).astype(np.int64)
    valid = both(vector.valid, None if digits is None else digits.valid)
    if vector.kind is Kind.INTEGER:
        whole = np.asarray(vector.values)
        rounded = _round_integers(whole, places)
        turned = (places == -19) & (np.abs(whole / 1e18) >= 5)
        turned |= (whole != 0) & (rounded != 0) & ((whole < 0) != (rounded < 0))
        return Vector(Kind.INTEGER, rounded, both(valid, ~turned) if turned.any() else valid)
    values = as_floats(vector)
    if digits is None:
        return Vector(Kind.FLOAT, _to_whole(values), valid)
    scale = np.array(POWERS_OF_TEN)[np.minimum(np.abs(places), 308)]
    scaled = values * scale
    finer = np.where(np.isfinite(scaled), _to_whole(scaled) / scale, values)
    coarser = _to_whole(values / scale) * scale
    rounded = np.where(places == 0, _to_whole(values), np.where(places > 0, finer, coarser))
    return Vector(Kind.FLOAT, np.where(np.isfinite(values), rounded, values), valid)


def _to_whole(values: Floats) -> Floats:
    whole = np.trunc(values)
    return np.where(np.abs(values - whole) >= 0.5, whole + np.copysign(1.0, values), whole)


def _round_integers(values: npt.NDArray[Any], places: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if (places >= 0).all():
        return values
    scale = (10 ** np.clip(-places, 0, 18)).astype(np.uint64)
    magnitude = np.where(values < 0, -values, values).view(np.uint64)
    whole, rest = magnitude // scale, magnitude % scale
    away = ((whole + (rest * np.uint64(2) >= scale)) * scale).view(np.int64)
    signed = np.where(values < 0, -away, away)
    return np.where(places >= 0, values, np.where(places < -18, 0, signed))


# ---- choosing among arguments


def _folded(function: str, arguments: Sequence[Vector]) -> Vector:
    """coalesce, least, greatest: the best so far against the next, NULLs passed over."""
    best = arguments[0]
    for challenger in arguments[1:]:
        if challenger.kind is Kind.NULL:
            continue
        if best.kind is Kind.NULL:
            best = spread(challenger, common_length(best, challenger))
            continue
        a, b = _promoted(best, challenger)
        taken = np.zeros(1, np.bool_)
        if function != "coalesce":
            taken = _prefers("<" if function == "least" else ">", b, a)
        if a.valid is not None:
            taken = np.where(a.valid, taken, True)
        best = chosen(taken, b, a)
    return best


def _prefers(operator: str, value: Vector, best: Vector) -> Bools:
    """Where `value` is valid and replaces `best`: a NaN gives way to any number."""
    wins: Bools = np.asarray(compare(operator, value, best).values)
    if best.kind in (Kind.FLOAT, Kind.DECIMAL):
        wins = wins | (np.isnan(best.values) & ~np.isnan(value.values))
    return wins if value.valid is None else wins & value.valid


def _promoted(left: Vector, right: Vector) -> tuple[Vector, Vector]:
    """Both sides in one kind that can hold them."""
    if left.kind is right.kind:
        return left, right
    if left.kind.numeric and right.kind.numeric:
        return (
            Vector(Kind.FLOAT, as_floats(left), left.valid),
            Vector(Kind.FLOAT, as_floats(right), right.valid),
        )
    if {left.kind, right.kind} == {Kind.TIMESTAMP, Kind.DATE}:
        return (
            Vector(Kind.TIMESTAMP, left.values, left.valid),
            Vector(Kind.TIMESTAMP, right.values, right.valid),
        )
    raise TypeError(f"{left.kind.value} and {right.kind.value} have no common kind")


def chosen(mask: Bools, left: Vector, right: Vector) -> Vector:
    """`left` where the mask is true, `right` elsewhere; both of one kind."""
    length = common_length(left, right)
    length = len(mask) if length == 1 else length
    left, right = spread(left, length), spread(right, length)
    mask = mask if len(mask) == length else np.full(length, bool(mask[0]))
    valid = None
    if left.valid is not None or right.valid is not None:
        yes = np.ones(length, np.bool_)
        valid = np.where(
            mask,
            yes if left.valid is None else left.valid,
            yes if right.valid is None else right.valid,
        )
    if isinstance(left.values, np.ndarray):
        return Vector(left.kind, np.where(mask, left.values, right.values), valid)
    a, b = left.values, right.values
    if left.kind is Kind.STRING:
        a, b = plain_text(a), plain_text(b)
        if a.type != b.type:
            a, b = a.cast(pa.large_string()), b.cast(pa.large_string())
    return Vector(left.kind, pc.if_else(pa.array(mask), a, b), valid)


def _nullif(value: Vector, other: Vector) -> Vector:
    if Kind.NULL in (value.kind, other.kind):
        return value
    equality = compare("=", value, other)
    same = np.asarray(equality.values, np.bool_)
    if equality.valid is not None:
        same = same & equality.valid
    return _only(~same, spread(value, common_length(value, other)))


def _only(mask: Bools, vector: Vector) -> Vector:
    """The values where the mask is true, NULL elsewhere."""
    length = len(mask) if len(vector) == 1 else len(vector)
    vector, mask = spread(vector, length), np.broadcast_to(mask, length)
    valid = both(vector.valid, mask)
    if isinstance(vector.values, np.ndarray):
        return Vector(vector.kind, vector.values, valid)
    texts = plain_text(vector.values)
    kept = pc.if_else(pa.array(mask), texts, pa.scalar(None, texts.type))
    return Vector(vector.kind, kept, valid)


def _case(arguments: Sequence[Vector]) -> Vector:
    """Conditions and values in turn, and at the end what else there is."""
    pairs = [arguments[n : n + 2] for n in range(0, len(arguments) - 1, 2)]
    found = arguments[-1] if len(arguments) % 2 else nulls(1)
    for condition, value in reversed(pairs):
        holds = truth(condition)
        if value.kind is Kind.NULL is found.kind:
            found = nulls(common_length(condition, value, found))
        elif value.kind is Kind.NULL:
            found = _only(~holds, found)
        elif found.kind is Kind.NULL:
            found = _only(holds, value)
        else:
            found = chosen(holds, *_promoted(value, found))
    return found


ROUTINES: dict[str, Callable[[Sequence[Vector]], Vector]] = {
    "round": lambda arguments: _round(*arguments),
    "coalesce": lambda arguments: _folded("coalesce", arguments),
    "least": lambda arguments: _folded("least", arguments),
    "greatest": lambda arguments: _folded("greatest", arguments),
    "case": _case,
    "nullif": lambda arguments: _nullif(*arguments),
    "concat": join,
    **PLACE_ROUTINES,
}
