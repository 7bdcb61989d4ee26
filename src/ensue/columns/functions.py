"""The scalar functions and LIKE on vectors: the forms that the functions' records describe."""

import re
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.algebra.evaluate import like as expression_of
from ensue.algebra.functions import FUNCTIONS
from ensue.algebra.functions.record import (
    Function,
    OverNumbers,
    OverTexts,
    OverTimes,
    Rewritten,
    Routine,
    Takes,
)
from ensue.algebra.functions.times import unit_of
from ensue.algebra.regular import compiled
from ensue.algebra.regular import expression_of as regular
from ensue.algebra.values import instant
from ensue.algebra.zones import zone_named
from ensue.columns.arrow_kinds import Unit
from ensue.columns.buffers import Bools, Floats, booleans, fixed_array, floats, plain_text, raw
from ensue.columns.calendars import CALENDARS
from ensue.columns.operators import as_floats, both, common_length, in_years, on_texts
from ensue.columns.routines import ROUTINES
from ensue.columns.values import Vector, arrow_type, from_arrow, nulls, spread, to_arrow
from ensue.schema import Kind


def call(function: str, arguments: Sequence[Vector], unit: Unit) -> Vector:
    """A function of vectors; NULL where an argument is, except where NULLs are its business."""
    record = FUNCTIONS[function]
    if not record.sees_null and any(a.kind is Kind.NULL for a in arguments):
        return nulls(common_length(*arguments))
    with np.errstate(all="ignore"):
        match record.vector:
            case Routine(name=name):
                return ROUTINES[name](arguments)
            case OverNumbers() as form if all(a.kind.numeric for a in arguments):
                return _over_numbers(record, form, arguments)
            case OverTimes(value=value) if _told(record, arguments):
                return _over_times(record, value, arguments, unit)
            case OverTexts() as form if _others_are_constants(arguments) and _looked_through(
                record, arguments
            ):
                return _over_texts(record, form, arguments)
            case Rewritten():
                raise AssertionError(f"{function} is not computed by itself")
            case OverNumbers() | OverTexts() | OverTimes() | None:
                return _one_by_one(record, arguments, unit)


# ---- what the texts of forms may name


def _through_arrow(function: Callable[..., pa.Array], *values: Floats) -> Floats:
    """Arrow calls the C library, as Python does; NumPy's routines may differ in the last bit."""
    return floats(function(*(fixed_array(pa.float64(), v) for v in values)))


def _portable(expression: str) -> str:
    """A regular expression of the language as one of RE2, which Arrow uses."""
    return compiled(expression).portable


_NAMES = {"np": np, "pc": pc, "arrow": _through_arrow, "portable": _portable, **CALENDARS}


@cache
def _written(parameters: str, text: str) -> Callable[..., Any]:
    form: Callable[..., Any] = eval(f"lambda {parameters}: {text}", dict(_NAMES))
    return form


# ---- numbers


def _over_numbers(record: Function, form: OverNumbers, arguments: Sequence[Vector]) -> Vector:
    kind = record.kind([a.kind for a in arguments])
    whole = kind is Kind.INTEGER and all(a.kind is Kind.INTEGER for a in arguments)
    length = common_length(*arguments)
    given = [spread(a, length) for a in arguments]
    numbers = [np.asarray(a.values) if whole else as_floats(a) for a in given]
    columns = (*numbers, None, None)[:3]
    value = form.whole if whole and form.whole is not None else form.value
    found = _written("x, y, z", value)(*columns)
    valid = reduce(both, (a.valid for a in given))
    for null in (form.null, form.whole_null if whole else None):
        if null is not None:
            missing: Bools = _written("x, y, z, found", null)(*columns, found)
            valid = both(valid, ~missing) if missing.any() else valid
    return Vector(kind, found.astype(_TYPES[kind], copy=False), valid)


_TYPES = {Kind.INTEGER: np.int64, Kind.FLOAT: np.float64, Kind.BOOLEAN: np.bool_}


# ---- strings


def _others_are_constants(arguments: Sequence[Vector]) -> bool:
    text, *others = arguments
    return len(text) != 1 and all(len(other) == 1 and other.valid is None for other in others)


def _over_texts(record: Function, form: OverTexts, arguments: Sequence[Vector]) -> Vector:
    text, *others = arguments
    constants = [other.values[0] for other in others]
    plain = [c.as_py() if isinstance(c, pa.Scalar) else c.item() for c in constants]
    plain += [None] * (2 - len(plain))

    def asked(texts: pa.Array) -> pa.Array:
        if form.ascii and not pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
            distinct = texts.dictionary_encode()
            found = [record([w, *plain[: len(others)]]) for w in distinct.dictionary.to_pylist()]
            kind = texts.type if record.gives is Kind.STRING else None
            return pa.array(found, kind).take(distinct.indices)
        return _written("texts, y, z", form.value)(texts, *plain)

    array: pa.Array = text.values
    match record.gives:
        case Kind.STRING if types.is_dictionary(array.type):
            words = asked(plain_text(array.dictionary))
            coded = pa.DictionaryArray.from_arrays(array.indices, words)
            return Vector(Kind.STRING, coded, text.valid)
        case Kind.STRING:
            return Vector(Kind.STRING, asked(plain_text(array)), text.valid)
        case Kind.BOOLEAN:
            tested = on_texts(array, lambda texts: booleans(asked(texts)))
            return Vector(Kind.BOOLEAN, tested, text.valid)
        case Kind.INTEGER:
            count = on_texts(array, lambda texts: raw(asked(texts).cast(pa.int64()), np.int64))
            return Vector(Kind.INTEGER, count, text.valid)
        case _:
            raise AssertionError(f"{record.name}: no form over texts gives {record.gives}")


def _looked_through(record: Function, arguments: Sequence[Vector]) -> bool:
    """Whether the regular expression, where there is one, is one for all of the texts."""
    if Takes.REGEXP not in record.takes:
        return True
    expression = regular(plain_text(arguments[1].values)[0].as_py())
    longest = pc.max(pc.utf8_length(plain_text(arguments[0].values))).as_py() or 0
    return expression is not None and not expression.too_long(longest)


# ---- times

_TOLD = (Takes.UNIT, Takes.ZONE)


def _told(record: Function, arguments: Sequence[Vector]) -> bool:
    """Whether the unit or the zone, where there is one, is a constant that is one."""
    known: dict[Takes, Callable[[str], object]] = {Takes.UNIT: unit_of, Takes.ZONE: zone_named}
    takes = record.wanted(len(arguments))
    return all(
        len(a) == 1 and a.valid is None and known[wanted](plain_text(a.values)[0].as_py())
        for a, wanted in zip(arguments, takes, strict=True)
        if wanted in known
    )


def _over_times(record: Function, form: str, arguments: Sequence[Vector], unit: Unit) -> Vector:
    takes = record.wanted(len(arguments))
    given = list(zip(arguments, takes, strict=True))
    told = [plain_text(a.values)[0].as_py() for a, wanted in given if wanted in _TOLD]
    times = [a for a, wanted in given if wanted is Takes.TIME]
    clocks = [np.asarray(time.values).view(f"M8[{unit}]") for time in times]
    found = _written("unit, clock, other", form)(*(*told, None)[:1], *(*clocks, None)[:2])
    valid = reduce(both, (time.valid for time in times))
    if record.gives is Kind.TIMESTAMP:
        found = found.astype(f"M8[{unit}]").astype(np.int64)
    return in_years(Vector(record.kind([]), found, valid), unit)


# ---- no form: the plain meaning, row by row


def _one_by_one(record: Function, arguments: Sequence[Vector], unit: Unit) -> Vector:
    first, *others = arguments
    kind = record.kind([argument.kind for argument in arguments])
    if first.kind is Kind.STRING and len(first) != 1 and all(len(o) == 1 for o in others):
        texts = plain_text(first.values).dictionary_encode()  # each word once
        words = Vector(Kind.STRING, texts.dictionary)
        found = _rows(record, [words, *others], kind, unit)
        return from_arrow(found.take(texts.indices), unit)
    return from_arrow(_rows(record, arguments, kind, unit), unit)


def _rows(record: Function, arguments: Sequence[Vector], kind: Kind, unit: Unit) -> pa.Array:
    length = common_length(*arguments)
    columns = [_values(spread(argument, length), unit) for argument in arguments]
    results = [record(row) for row in zip(*columns, strict=True)]
    if kind in (Kind.TIMESTAMP, Kind.DATE):
        results = [_within(r, unit) for r in results]
    if kind is Kind.TIMESTAMP:
        results = [None if r is None else instant(r) for r in results]
    return pa.array(results, arrow_type(kind, "us"))


def _within(time: object, unit: Unit) -> object:
    """A time, or NULL where 64 bits do not count so far."""
    if time is None or unit != "ns" or 1678 <= instant(time).year < 2262:
        return time
    return None


def _values(vector: Vector, unit: Unit) -> list[object]:
    """The values as Python has them: of times no more than microseconds, and NULL beyond the
    years that it knows."""
    vector = in_years(vector, unit)
    if unit == "ns" and vector.kind in (Kind.TIMESTAMP, Kind.DURATION):
        vector = Vector(vector.kind, np.asarray(vector.values) // 1_000, vector.valid)
        unit = "us"
    return list(to_arrow(vector, unit).to_pylist())


# ---- LIKE


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
