"""The scalar functions and LIKE on vectors."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.algebra.evaluate import like as expression_of
from ensue.algebra.functions import POWERS_OF_TEN
from ensue.algebra.functions import call as call_on_values
from ensue.columns.arrow_kinds import Unit
from ensue.columns.buffers import Bools, Floats, booleans, fixed_array, floats, plain_text, raw
from ensue.columns.operators import as_floats, both, common_length, compare, join, on_texts
from ensue.columns.values import Vector, nulls, spread
from ensue.schema import Kind


def call(function: str, arguments: Sequence[Vector], unit: Unit) -> Vector:
    """A function of vectors; NULL where an argument is, except where NULLs are its business."""
    with np.errstate(all="ignore"):
        match function:
            case "coalesce" | "least" | "greatest":
                return _folded(function, arguments)
            case "nullif":
                return _nullif(*arguments)
            case _:
                pass
        if any(a.kind is Kind.NULL for a in arguments):
            return nulls(common_length(*arguments))
        if function in _NUMERIC:
            return _NUMERIC[function](*arguments)
        if function in _PARTS:
            (time,) = arguments
            return Vector(Kind.INTEGER, _PARTS[function](_clock(time, unit)), time.valid)
        if function == "concat":
            return join(arguments)
        return _on_text(function, arguments)


# ---- numbers


def _abs(vector: Vector) -> Vector:
    found = np.abs(vector.values)
    return Vector(_computed(vector), found, _in_64_bits(vector, found < 0, vector.valid))


def _in_64_bits(vector: Vector, beyond: Bools, valid: Bools | None) -> Bools | None:
    """What a function of integers makes NULL: results that 64 bits do not hold."""
    if vector.kind is not Kind.INTEGER or not beyond.any():
        return valid
    return both(valid, ~beyond)


def _computed(vector: Vector) -> Kind:
    return Kind.INTEGER if vector.kind is Kind.INTEGER else Kind.FLOAT


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
        return Vector(Kind.INTEGER, rounded, _in_64_bits(vector, turned, valid))
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


def _to_floor(vector: Vector) -> Vector:
    if vector.kind is Kind.INTEGER:
        return vector
    return Vector(Kind.FLOAT, np.floor(as_floats(vector)), vector.valid)


def _to_ceil(vector: Vector) -> Vector:
    if vector.kind is Kind.INTEGER:
        return vector
    return Vector(Kind.FLOAT, np.ceil(as_floats(vector)), vector.valid)


def _sign(vector: Vector) -> Vector:
    return Vector(_computed(vector), np.sign(vector.values), vector.valid)


def _sqrt(vector: Vector) -> Vector:
    values = as_floats(vector)
    return _defined(np.sqrt(values), ~(values < 0), vector.valid)


def _logarithm(of: Callable[[pa.Array], pa.Array]) -> Callable[[Vector], Vector]:
    def logarithm(vector: Vector) -> Vector:
        values = as_floats(vector)
        return _defined(_through_arrow(of, values), ~(values <= 0), vector.valid)

    return logarithm


def _exp(vector: Vector) -> Vector:
    return Vector(Kind.FLOAT, _through_arrow(pc.exp, as_floats(vector)), vector.valid)


def _power(base: Vector, exponent: Vector) -> Vector:
    length = common_length(base, exponent)
    x, y = as_floats(spread(base, length)), as_floats(spread(exponent, length))
    broken = np.isfinite(x) & (x < 0) & np.isfinite(y) & (np.trunc(y) != y)
    undefined = broken | ((x == 0) & (y < 0))
    return _defined(_through_arrow(pc.power, x, y), ~undefined, both(base.valid, exponent.valid))


def _through_arrow(function: Callable[..., pa.Array], *values: Floats) -> Floats:
    """Arrow calls the C library, as Python does; NumPy's routines may differ in the last bit."""
    return floats(function(*(fixed_array(pa.float64(), v) for v in values)))


def _defined(values: Floats, inside: Bools, valid: Bools | None) -> Vector:
    """NULL outside a function's domain."""
    return Vector(Kind.FLOAT, values, valid if inside.all() else both(valid, inside))


_NUMERIC: dict[str, Callable[..., Vector]] = {
    "abs": _abs,
    "round": _round,
    "floor": _to_floor,
    "ceil": _to_ceil,
    "sign": _sign,
    "sqrt": _sqrt,
    "exp": _exp,
    "ln": _logarithm(pc.ln),
    "log10": _logarithm(pc.log10),
    "power": _power,
}


# ---- time


def _clock(vector: Vector, unit: Unit) -> npt.NDArray[np.datetime64]:
    return np.asarray(vector.values).view(f"M8[{unit}]")


def _since(clock: npt.NDArray[np.datetime64], unit: str, within: str) -> npt.NDArray[Any]:
    """How many `unit`s have passed since the last `within` began."""
    whole = clock.astype(f"M8[{unit}]")
    passed: npt.NDArray[Any] = whole - whole.astype(f"M8[{within}]")
    return passed.astype(np.int64)


_PARTS: dict[str, Callable[[npt.NDArray[np.datetime64]], npt.NDArray[Any]]] = {
    "year": lambda clock: clock.astype("M8[Y]").astype(np.int64) + 1970,
    "month": lambda clock: _since(clock, "M", "Y") + 1,
    "day": lambda clock: _since(clock, "D", "M") + 1,
    "hour": lambda clock: _since(clock, "h", "D"),
    "minute": lambda clock: _since(clock, "m", "h"),
    "second": lambda clock: _since(clock, "s", "m"),
}


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
    length = common_length(value, other)
    value = spread(value, length)
    valid = both(value.valid, ~same)
    if isinstance(value.values, np.ndarray):
        return Vector(value.kind, value.values, valid)
    texts = plain_text(value.values)
    kept = pc.if_else(pa.array(np.broadcast_to(~same, length)), texts, pa.scalar(None, texts.type))
    return Vector(value.kind, kept, valid)


# ---- strings


def _on_text(function: str, arguments: Sequence[Vector]) -> Vector:
    """A function of strings, whose other arguments are mostly constants."""
    text, *others = arguments
    constants = [other for other in others if len(other) == 1 and other.valid is None]
    if len(constants) < len(others) or len(text) == 1:
        return _one_by_one(function, arguments)
    extra = [other.values[0] for other in others]
    if function in _TESTS:
        pattern = extra[0].as_py()
        found = on_texts(
            text.values, lambda texts: booleans(_TESTS[function](texts, pattern=pattern))
        )
        return Vector(Kind.BOOLEAN, found, text.valid)
    if function == "length":
        lengths = on_texts(
            text.values, lambda texts: raw(pc.utf8_length(texts).cast(pa.int64()), np.int64)
        )
        return Vector(Kind.INTEGER, lengths, text.valid)
    array: pa.Array = text.values
    if types.is_dictionary(array.type):
        changed = _changed(function, plain_text(array.dictionary), extra)
        return Vector(
            Kind.STRING, pa.DictionaryArray.from_arrays(array.indices, changed), text.valid
        )
    return Vector(Kind.STRING, _changed(function, plain_text(array), extra), text.valid)


_TESTS: dict[str, Callable[..., pa.Array]] = {
    "starts_with": pc.starts_with,
    "ends_with": pc.ends_with,
    "contains": pc.match_substring,
}


def _changed(function: str, texts: pa.Array, extra: Sequence[Any]) -> pa.Array:
    match function:
        case "trim":
            return pc.utf8_trim(texts, characters=" ")
        case "substring":
            begin = int(extra[0]) - 1
            if len(extra) == 1:
                return pc.utf8_slice_codeunits(texts, start=max(begin, 0))
            end = begin + max(int(extra[1]), 0)
            return pc.utf8_slice_codeunits(texts, start=max(begin, 0), stop=max(end, 0))
        case _ if pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
            return pc.ascii_lower(texts) if function == "lower" else pc.ascii_upper(texts)
        case _:  # Arrow maps characters one to one, Python knows of the others: ß, İ
            distinct = texts.dictionary_encode()
            words = [call_on_values(function, [w]) for w in distinct.dictionary.to_pylist()]
            return pa.array(words, texts.type).take(distinct.indices)


def _one_by_one(function: str, arguments: Sequence[Vector]) -> Vector:
    """The plain meaning, row by row: for the rare calls whose patterns are columns too."""
    length = common_length(*arguments)
    columns = [_values(spread(argument, length)) for argument in arguments]
    results = [call_on_values(function, row) for row in zip(*columns, strict=True)]
    valid = np.array([result is not None for result in results], np.bool_)
    known = None if valid.all() else valid
    if function in _TESTS:
        return Vector(Kind.BOOLEAN, np.array([bool(r) for r in results], np.bool_), known)
    if function == "length":
        return Vector(Kind.INTEGER, np.array([r or 0 for r in results], np.int64), known)
    return Vector(Kind.STRING, pa.array(results, pa.string()), known)


def _values(vector: Vector) -> list[object]:
    if not isinstance(vector.values, np.ndarray):
        return list(vector.values.to_pylist())
    if vector.valid is None:
        return list(vector.values.tolist())
    known = zip(vector.values.tolist(), vector.valid.tolist(), strict=True)
    return [value if valid else None for value, valid in known]


def like(vector: Vector, pattern: str) -> Vector:
    """LIKE with a pattern known beforehand."""
    if vector.kind is Kind.NULL:
        return vector
    return Vector(
        Kind.BOOLEAN, on_texts(vector.values, lambda texts: _alike(texts, pattern)), vector.valid
    )


def _alike(texts: pa.Array, pattern: str) -> Bools:
    core = pattern.strip("%")
    if not re.search(r"[%_\\]", core) and not pattern.endswith("\\"):
        begins, ends = pattern.startswith("%"), pattern.endswith("%")
        if begins and ends:
            return booleans(pc.match_substring(texts, pattern=core))
        if begins:
            return booleans(pc.ends_with(texts, pattern=core))
        if ends:
            return booleans(pc.starts_with(texts, pattern=core))
        return booleans(pc.equal(texts, pa.scalar(core, texts.type)))
    expression = f"(?s)\\A(?:{expression_of(pattern).pattern})\\z"
    return booleans(pc.match_substring_regex(texts, pattern=expression))
