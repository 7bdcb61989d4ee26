"""The scalar functions and LIKE on vectors, by the forms in the functions' records."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, lru_cache, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.functions import FUNCTIONS
from ensue.functions.datetime import find_zone, parse_unit
from ensue.functions.interpreter import compile_like
from ensue.functions.numeric import POWERS_OF_TEN
from ensue.functions.record import (
    ArgumentType,
    ArrowStringForm,
    DatetimeForm,
    NumpyForm,
    RewriteForm,
    RoutineForm,
    ScalarFunction,
)
from ensue.functions.string import try_compile_regexp
from ensue.ir.values import to_instant
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import Bools, Floats, booleans, decode_text, fixed_array, floats, get_raw_values
from ensue.vector.arrow_types import Unit
from ensue.vector.column_values import Vector, arrow_type, broadcast, create_nulls, from_arrow, to_arrow, truth
from ensue.vector.evaluation import (
    apply_to_texts,
    combine_validity,
    compare,
    concat_texts,
    get_common_length,
    limit_years,
    to_floats,
)
from ensue.vector.geo_columns import PLACE_ROUTINES

Clock = npt.NDArray[np.datetime64]
Counts = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_YEARS = (2, 9998)  # Python's range, less one year on both sides
_SECOND = {"us": 1_000_000, "ns": 1_000_000_000}


def on_clocks(zone: str, clock: Clock) -> Clock:
    """Convert instants to the local time of a zone.

    >>> on_clocks("Asia/Tokyo", np.array(["2026-01-01T20:00"], "M8[us]"))
    array(['2026-01-02T05:00:00.000000'], dtype='datetime64[us]')
    """
    turns, offsets = _turns(zone, clock)
    ticks, second = _ticks(clock)
    offset: Ints = offsets[np.searchsorted(turns, ticks // second, side="right")]
    return (ticks + offset * second).view(clock.dtype)


def instants(zone: str, clock: Clock) -> Clock:
    """Convert local times of a zone to instants: the first one if the time occurs twice."""
    turns, offsets = _turns(zone, clock)
    ticks, second = _ticks(clock)
    shown = turns + np.maximum(offsets[:-1], offsets[1:])
    offset: Ints = offsets[np.searchsorted(shown, ticks // second, side="right")]
    return (ticks - offset * second).view(clock.dtype)


def _ticks(clock: Clock) -> tuple[Ints, int]:
    unit, _ = np.datetime_data(clock.dtype)
    return clock.astype(np.int64), _SECOND[unit]


def _turns(name: str, clock: Clock) -> tuple[Ints, Ints]:
    """The UTC seconds of a zone's clock changes in the years of some times, and its offsets.

    The offsets are those before the first change and after each change, in seconds.
    """
    years = np.unique(clock.astype("M8[Y]").astype(np.int64)) + 1970
    around = np.unique(np.clip(np.concatenate([years - 1, years, years + 1]), *_YEARS))
    turns: list[int] = []
    offsets: list[int] = [0]
    for year in around.tolist() or [1970]:
        at, ahead = _turns_of_year(name, int(year))
        turns.extend(at)
        offsets.extend(ahead)
    offsets[0] = offsets[1]  # before the first year
    return np.array(turns, np.int64), np.array(offsets, np.int64)


@lru_cache(maxsize=4_096)
def _turns_of_year(name: str, year: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The start of a year, and the clock changes in it, with the offset after each."""
    zone = find_zone(name)
    assert zone is not None, "checked by the analyzer"
    time = datetime(year, 1, 1, tzinfo=UTC)
    turns, offsets = [_seconds(time)], [_ahead(zone, time)]
    while time.year == year:
        following = time + _DAY
        if _ahead(zone, following) != offsets[-1]:
            turn = _between(zone, time, following)
            turns.append(_seconds(turn))
            offsets.append(_ahead(zone, turn))
        time = following
    return tuple(turns), tuple(offsets)


def _between(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    """The first second after a clock change."""
    old = _ahead(zone, before)
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) // 2
        middle = middle.replace(microsecond=0)
        if _ahead(zone, middle) == old:
            before = middle
        else:
            after = middle
    return after


def _ahead(zone: tzinfo, time: datetime) -> int:
    offset = time.astimezone(zone).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def _seconds(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(seconds=1)


# ---------------------------------------------------------------------------- calendar units

_CODES = {
    "microsecond": "us", "millisecond": "ms", "second": "s", "minute": "m", "hour": "h",
    "day": "D", "month": "M", "year": "Y",
}  # fmt: skip


def ticks(clock: Clock, unit: str) -> Counts:
    """The number of `unit`s begun since 1970."""
    counts: Counts = clock.astype(f"M8[{unit}]").astype(np.int64)
    return counts


def count_since(clock: Clock, unit: str, within: str) -> Counts:
    """The number of `unit`s passed since the last `within` began."""
    whole = clock.astype(f"M8[{unit}]")
    passed: Counts = whole - whole.astype(f"M8[{within}]")
    return passed.astype(np.int64)


def thursday(clock: Clock) -> Clock:
    """The Thursday of the week, which decides the year of the week."""
    days = ticks(clock, "D")
    thursdays: Clock = (days - (days + 3) % 7 + 3).view("M8[D]")
    return thursdays


def units(unit_name: str, clock: Clock) -> Counts:
    """The number of units, as named in the query language, begun since 1970."""
    match parse_unit(unit_name):
        case "week":
            return (ticks(clock, "D") + 3) // 7
        case "quarter":
            return ticks(clock, "M") // 3
        case unit:
            assert unit is not None
            return ticks(clock, _CODES[unit])


def truncate(unit_name: str, clock: Clock) -> Clock:
    """The start of the unit that contains each time."""
    match parse_unit(unit_name):
        case "week":
            starts = (units(unit_name, clock) * 7 - 3).view("M8[D]")
        case "quarter":
            starts = (units(unit_name, clock) * 3).view("M8[M]")
        case unit:
            assert unit is not None
            starts = clock.astype(f"M8[{_CODES[unit]}]")
    return starts


CALENDARS = {
    "ticks": ticks, "count_since": count_since, "thursday": thursday, "units": units, "truncate": truncate,
    "on_clocks": on_clocks, "instants": instants,
}  # fmt: skip


# ---- numbers


def _round(vector: Vector, digits: Vector | None = None) -> Vector:
    """Round half away from zero."""
    places = np.zeros(1, np.int64) if digits is None else np.asarray(digits.values)
    if places.dtype != np.int64:
        places = np.trunc(places).astype(np.int64)
    valid = combine_validity(vector.valid, None if digits is None else digits.valid)
    if vector.kind is ValueKind.INTEGER:
        whole = np.asarray(vector.values)
        rounded = _round_integers(whole, places)
        overflow = (places == -19) & (np.abs(whole / 1e18) >= 5)
        overflow |= (whole != 0) & (rounded != 0) & ((whole < 0) != (rounded < 0))
        valid = combine_validity(valid, ~overflow) if overflow.any() else valid
        return Vector(ValueKind.INTEGER, rounded, valid)
    values = to_floats(vector)
    if digits is None:
        return Vector(ValueKind.FLOAT, _to_whole(values), valid)
    scale = np.array(POWERS_OF_TEN)[np.minimum(np.abs(places), 308)]
    scaled = values * scale
    finer = np.where(np.isfinite(scaled), _to_whole(scaled) / scale, values)
    coarser = _to_whole(values / scale) * scale
    rounded = np.where(places == 0, _to_whole(values), np.where(places > 0, finer, coarser))
    return Vector(ValueKind.FLOAT, np.where(np.isfinite(values), rounded, values), valid)


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


def _fold(function: str, arguments: Sequence[Vector]) -> Vector:
    """coalesce, least, greatest: fold the arguments, skipping NULLs."""
    best = arguments[0]
    for challenger in arguments[1:]:
        if challenger.kind is ValueKind.NULL:
            continue
        if best.kind is ValueKind.NULL:
            best = broadcast(challenger, get_common_length(best, challenger))
            continue
        a, b = _promote(best, challenger)
        replace = np.zeros(1, np.bool_)
        if function != "coalesce":
            replace = _prefers("<" if function == "least" else ">", b, a)
        if a.valid is not None:
            replace = np.where(a.valid, replace, True)
        best = choose_values(replace, b, a)
    return best


def _prefers(operator: str, value: Vector, best: Vector) -> Bools:
    """Where `value` is valid and replaces `best`; any number replaces NaN."""
    wins: Bools = np.asarray(compare(operator, value, best).values)
    if best.kind in (ValueKind.FLOAT, ValueKind.DECIMAL):
        wins = wins | (np.isnan(best.values) & ~np.isnan(value.values))
    return wins if value.valid is None else wins & value.valid


def _promote(left: Vector, right: Vector) -> tuple[Vector, Vector]:
    """Both sides in a common kind."""
    if left.kind is right.kind:
        return left, right
    if left.kind.numeric and right.kind.numeric:
        a, b = (Vector(ValueKind.FLOAT, to_floats(v), v.valid) for v in (left, right))
    elif {left.kind, right.kind} == {ValueKind.TIMESTAMP, ValueKind.DATE}:
        a, b = (Vector(ValueKind.TIMESTAMP, v.values, v.valid) for v in (left, right))
    else:
        raise TypeError(f"{left.kind.value} and {right.kind.value} have no common kind")
    return a, b


def choose_values(mask: Bools, left: Vector, right: Vector) -> Vector:
    """`left` where the mask is true, `right` elsewhere; both of the same kind."""
    length = get_common_length(left, right)
    length = len(mask) if length == 1 else length
    left, right = broadcast(left, length), broadcast(right, length)
    mask = mask if len(mask) == length else np.full(length, bool(mask[0]))
    valid = None
    if left.valid is not None or right.valid is not None:
        valid = np.where(mask, *(True if v.valid is None else v.valid for v in (left, right)))
    if isinstance(left.values, np.ndarray):
        return Vector(left.kind, np.where(mask, left.values, right.values), valid)
    a, b = left.values, right.values
    if left.kind is ValueKind.STRING:
        a, b = decode_text(a), decode_text(b)
        if a.type != b.type:
            a, b = a.cast(pa.large_string()), b.cast(pa.large_string())
    return Vector(left.kind, pc.if_else(fixed_array(pa.bool_(), mask), a, b), valid)


def _mask_values(mask: Bools, vector: Vector) -> Vector:
    """The values where the mask is true, NULL elsewhere."""
    length = len(mask) if len(vector) == 1 else len(vector)
    vector, mask = broadcast(vector, length), np.broadcast_to(mask, length)
    valid = combine_validity(vector.valid, mask)
    if isinstance(vector.values, np.ndarray):
        return Vector(vector.kind, vector.values, valid)
    texts = decode_text(vector.values)
    selected = pc.if_else(fixed_array(pa.bool_(), mask), texts, pa.scalar(None, texts.type))
    return Vector(vector.kind, selected, valid)


def _case(arguments: Sequence[Vector]) -> Vector:
    """CASE: alternating conditions and values, then the ELSE value."""
    pairs = [arguments[n : n + 2] for n in range(0, len(arguments) - 1, 2)]
    result = arguments[-1] if len(arguments) % 2 else create_nulls(1)
    for condition, value in reversed(pairs):
        holds = truth(condition)
        if value.kind is ValueKind.NULL is result.kind:
            result = create_nulls(get_common_length(condition, value, result))
        elif value.kind is ValueKind.NULL:
            result = _mask_values(~holds, result)
        elif result.kind is ValueKind.NULL:
            result = _mask_values(holds, value)
        else:
            result = choose_values(holds, *_promote(value, result))
    return result


ROUTINES: dict[str, Callable[[Sequence[Vector]], Vector]] = {
    "round": lambda arguments: _round(*arguments),
    "coalesce": lambda arguments: _fold("coalesce", arguments),
    "least": lambda arguments: _fold("least", arguments),
    "greatest": lambda arguments: _fold("greatest", arguments),
    "case": _case,
    "nullif": lambda arguments: _case([compare("=", *arguments), create_nulls(1), arguments[0]]),
    "concat": concat_texts,
    **PLACE_ROUTINES,
}


# ---------------------------------------------------------------------------- dispatch


def call_function(function: str, arguments: Sequence[Vector], unit: Unit) -> Vector:
    """Call a function on vectors; NULL where an argument is, unless the function handles NULL."""
    record = FUNCTIONS[function]
    if not record.sees_null and any(a.kind is ValueKind.NULL for a in arguments):
        return create_nulls(get_common_length(*arguments))
    with np.errstate(all="ignore"):
        match record.vector:
            case RoutineForm(name=name):
                return ROUTINES[name](arguments)
            case NumpyForm() as form if all(a.kind.numeric for a in arguments):
                return _over_numbers(record, form, arguments)
            case DatetimeForm(value=value) if _has_constant_unit(record, arguments):
                return _over_times(record, value, arguments, unit)
            case ArrowStringForm() as form if _has_constant_pattern(record, arguments):
                return _over_texts(record, form, arguments)
            case RewriteForm():
                raise AssertionError(f"{function} is not computed by itself")
            case NumpyForm() | ArrowStringForm() | DatetimeForm() | None:
                return _interpret_rows(record, arguments, unit)


# names that the forms may use


def _through_arrow(function: Callable[..., pa.Array], *values: Floats) -> Floats:
    """Call Arrow, which uses the C library like Python; NumPy may differ in the last bit."""
    return floats(function(*(fixed_array(pa.float64(), v) for v in values)))


_NAMES = {"np": np, "pc": pc, "arrow": _through_arrow, **CALENDARS}


@cache
def _compile_lambda(parameters: str, text: str) -> Callable[..., Any]:
    form: Callable[..., Any] = eval(f"lambda {parameters}: {text}", dict(_NAMES))
    return form


# ---- numbers


def _over_numbers(record: ScalarFunction, form: NumpyForm, arguments: Sequence[Vector]) -> Vector:
    kind = record.kind([a.kind for a in arguments])
    whole = kind is ValueKind.INTEGER and all(a.kind is ValueKind.INTEGER for a in arguments)
    length = get_common_length(*arguments)
    aligned = [broadcast(a, length) for a in arguments]
    numbers = [np.asarray(a.values) if whole else to_floats(a) for a in aligned]
    columns = (*numbers, None, None)[:3]
    value = form.whole if whole and form.whole is not None else form.value
    result = _compile_lambda("x, y, z", value)(*columns)
    valid = reduce(combine_validity, (a.valid for a in aligned))
    for null in (form.null, form.whole_null if whole else None):
        if null is not None:
            missing: Bools = _compile_lambda("x, y, z, found", null)(*columns, result)
            valid = combine_validity(valid, ~missing) if missing.any() else valid
    return Vector(kind, result.astype(_TYPES[kind], copy=False), valid)


_TYPES = {ValueKind.INTEGER: np.int64, ValueKind.FLOAT: np.float64, ValueKind.BOOLEAN: np.bool_}


# ---- strings


def _has_constant_pattern(record: ScalarFunction, arguments: Sequence[Vector]) -> bool:
    """Whether all arguments but the first are constants, and valid as regular expressions."""
    text, *others = arguments
    if len(text) == 1 or not all(len(other) == 1 and other.valid is None for other in others):
        return False
    if ArgumentType.REGEXP not in record.takes:
        return True
    return try_compile_regexp(decode_text(others[0].values)[0].as_py()) is not None


def _over_texts(record: ScalarFunction, form: ArrowStringForm, arguments: Sequence[Vector]) -> Vector:
    text, *others = arguments
    constants = [other.values[0] for other in others]
    plain = [c.as_py() if isinstance(c, pa.Scalar) else c.item() for c in constants]
    plain += [None] * (2 - len(plain))

    def apply(texts: pa.Array) -> pa.Array:
        if form.ascii and not pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
            distinct = texts.dictionary_encode()
            results = [record([w, *plain[: len(others)]]) for w in distinct.dictionary.to_pylist()]
            kind = texts.type if record.gives is ValueKind.STRING else None
            return pa.array(results, kind).take(distinct.indices)
        return _compile_lambda("texts, y, z", form.value)(texts, *plain)

    array: pa.Array = text.values
    match record.gives:
        case ValueKind.STRING if types.is_dictionary(array.type):
            words = apply(decode_text(array.dictionary))
            result = pa.DictionaryArray.from_arrays(array.indices, words)
        case ValueKind.STRING:
            result = apply(decode_text(array))
        case ValueKind.BOOLEAN:
            result = apply_to_texts(array, lambda texts: booleans(apply(texts)))
        case ValueKind.INTEGER:
            result = apply_to_texts(array, lambda texts: get_raw_values(apply(texts).cast(pa.int64()), np.int64))
        case _:
            raise AssertionError(f"{record.name}: no form over texts gives {record.gives}")
    return Vector(record.gives, result, text.valid)


# ---- times

_UNIT_OR_ZONE = (ArgumentType.UNIT, ArgumentType.ZONE)


def _has_constant_unit(record: ScalarFunction, arguments: Sequence[Vector]) -> bool:
    """Whether unit and time zone, where the function takes them, are valid constants."""
    known: dict[ArgumentType, Callable[[str], object]] = {ArgumentType.UNIT: parse_unit, ArgumentType.ZONE: find_zone}
    takes = record.get_argument_types(len(arguments))
    return all(
        len(a) == 1 and a.valid is None and known[wanted](decode_text(a.values)[0].as_py())
        for a, wanted in zip(arguments, takes, strict=True)
        if wanted in known
    )


def _over_times(record: ScalarFunction, form: str, arguments: Sequence[Vector], unit: Unit) -> Vector:
    takes = record.get_argument_types(len(arguments))
    pairs = list(zip(arguments, takes, strict=True))
    constants = [decode_text(a.values)[0].as_py() for a, wanted in pairs if wanted in _UNIT_OR_ZONE]
    times = [a for a, wanted in pairs if wanted is ArgumentType.TIME]
    clocks = [np.asarray(time.values).view(f"M8[{unit}]") for time in times]
    result = _compile_lambda("unit, clock, other", form)(*(*constants, None)[:1], *(*clocks, None)[:2])
    valid = reduce(combine_validity, (time.valid for time in times))
    if record.gives is ValueKind.TIMESTAMP:
        result = result.astype(f"M8[{unit}]").astype(np.int64)
    return limit_years(Vector(record.kind([]), result, valid), unit)


# ---- no vectorized form: the interpreter, row by row


def _interpret_rows(record: ScalarFunction, arguments: Sequence[Vector], unit: Unit) -> Vector:
    first, *others = arguments
    kind = record.kind([argument.kind for argument in arguments])
    if first.kind is ValueKind.STRING and len(first) != 1 and all(len(o) == 1 for o in others):
        texts = decode_text(first.values).dictionary_encode()  # each distinct word once
        words = Vector(ValueKind.STRING, texts.dictionary)
        results = _rows(record, [words, *others], kind, unit)
        return from_arrow(results.take(texts.indices), unit)
    return from_arrow(_rows(record, arguments, kind, unit), unit)


def _rows(record: ScalarFunction, arguments: Sequence[Vector], kind: ValueKind, unit: Unit) -> pa.Array:
    length = get_common_length(*arguments)
    columns = [_values(broadcast(argument, length), unit) for argument in arguments]
    results = [record(row) for row in zip(*columns, strict=True)]
    if kind in (ValueKind.TIMESTAMP, ValueKind.DATE):
        results = [_within(r, unit) for r in results]
    if kind is ValueKind.TIMESTAMP:
        results = [None if r is None else to_instant(r) for r in results]
    return pa.array(results, arrow_type(kind, "us"))


def _within(time: object, unit: Unit) -> object:
    """The time, or NULL if nanoseconds do not fit into 64 bits."""
    if time is None or unit != "ns" or 1678 <= to_instant(time).year < 2262:
        return time
    return None


def _values(vector: Vector, unit: Unit) -> list[object]:
    """The values as Python objects; times are cut to microseconds, NULL outside Python's range."""
    vector = limit_years(vector, unit)
    if unit == "ns" and vector.kind in (ValueKind.TIMESTAMP, ValueKind.DURATION):
        vector = Vector(vector.kind, np.asarray(vector.values) // 1_000, vector.valid)
        unit = "us"
    return list(to_arrow(vector, unit).to_pylist())


# ---- LIKE


def match_like(vector: Vector, pattern: str) -> Vector:
    """LIKE with a constant pattern."""
    if vector.kind is ValueKind.NULL:
        return vector
    alike = apply_to_texts(vector.values, lambda texts: _match_like(texts, pattern))
    return Vector(ValueKind.BOOLEAN, alike, vector.valid)


def _match_like(texts: pa.Array, pattern: str) -> Bools:
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
    expression = f"(?s)\\A(?:{compile_like(pattern).pattern})\\z"
    return booleans(pc.match_substring_regex(texts, pattern=expression))
