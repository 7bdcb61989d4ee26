"""Columns of values: NumPy arrays for numbers and times, Arrow arrays for strings."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.errors import EventError
from ensue.functions.interpreter import normalize_constant
from ensue.ir.values import (
    MAX_DECIMAL_DIGITS,
    MAX_EXACT_INTEGER,
    describe_out_of_range,
    is_exact_double,
    to_instant,
    to_microseconds,
)
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import (
    Bools,
    Ints,
    booleans,
    build_texts,
    decimals,
    decode_text,
    exceeds_64_bits,
    fixed_array,
    floats,
    get_raw_values,
    get_time_counts,
    get_unscaled,
    integers,
    to_single_array,
    to_ticks,
    validity,
    wrap_numbers,
)
from ensue.vector.arrow_types import Unit, kind_of_arrow

if TYPE_CHECKING:
    from ensue.vector.geo_columns import PlaceValues


def format_decimals(array: pa.Array) -> pa.Array:
    """Format decimals in the shortest plain notation.

    >>> format_decimals(pa.array(["1.50", "0.00", "200.00"]).cast(pa.decimal128(9, 2))).to_pylist()
    ['1.5', '0', '200']
    """
    texts = array.cast(pa.string())
    if array.type.scale < 0 or pc.any(pc.match_substring(texts, "E"), min_count=0).as_py():
        return pa.array([_plain(value) for value in array.to_pylist()], pa.string())
    if array.type.scale > 0:
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, characters="0"), characters=".")
    return texts


def _plain(value: Decimal | None) -> str | None:
    if value is None:
        return None
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_nested(array: pa.Array) -> pa.Array:
    """Convert nested, binary and other values to the text of their Python value."""
    if types.is_binary(array.type) or types.is_large_binary(array.type):
        return array.cast(pa.large_binary())
    texts = [None if value is None else repr(value) for value in array.to_pylist()]
    return pa.array(texts, pa.large_string())


# ---------------------------------------------------------------------------- exactness

_LONGEST = np.int64(10**MAX_DECIMAL_DIGITS)


def explain_inexact(array: pa.Array, kind: ValueKind, valid: Bools | None, unit: Unit, name: str | None) -> str | None:
    """Explain why a column is excluded from arithmetic, if one of its values cannot be exact."""
    match kind:
        case ValueKind.INTEGER if types.is_uint64(array.type):
            row = _first(get_raw_values(array, np.uint64) > np.uint64(2**63 - 1), valid)
            return None if row is None else describe_out_of_range(array[row].as_py(), name)
        case ValueKind.DECIMAL:
            row = _first_inexact(array)
            return None if row is None else describe_out_of_range(array[row].as_py(), name)
        case ValueKind.TIMESTAMP | ValueKind.DURATION if array.type.unit == unit:
            return None  # counted without conversion
        case ValueKind.TIMESTAMP | ValueKind.DATE | ValueKind.DURATION:
            row = _first(exceeds_64_bits(array, unit), valid)
            if row is None:
                return None
            return _beyond_time(array, int(get_time_counts(array, unit)[0][row]), unit, name)
        case _:
            return None


def _first(marks: Bools, valid: Bools | None) -> int | None:
    """The first marked row that is not NULL."""
    if not marks.any():
        return None
    if valid is not None:
        marks = marks & valid
    return int(marks.argmax()) if marks.any() else None


def _first_inexact(array: pa.Array) -> int | None:
    """The first decimal that no double represents."""
    parts = get_unscaled(array)
    if parts is not None:
        low, narrow, scale = parts
        exact = narrow & (low < _LONGEST) & (low > -_LONGEST)
        if not exact.all() and scale <= 18:
            unit = np.int64(10**scale)
            exact |= narrow & (low % unit == 0) & (np.abs(low // unit) <= MAX_EXACT_INTEGER)
        if exact.all():
            return None
    texts = format_decimals(array)
    digits = pc.utf8_ltrim(pc.replace_substring(texts, ".", ""), characters="-0")
    doubtful = booleans(pc.greater(pc.utf8_length(digits), MAX_DECIMAL_DIGITS))
    for row in np.flatnonzero(doubtful).tolist():
        if not is_exact_double(Decimal(texts[row].as_py())):
            return int(row)
    return None


def _beyond_time(array: pa.Array, count: int, unit: Unit, name: str | None) -> str:
    where = "" if name is None else f" in column '{name}'"
    own_unit = _UNITS[str(array.type) if types.is_date(array.type) else array.type.unit]
    since = "" if types.is_duration(array.type) else " since 1970"
    way = (
        "cast the columns with nanoseconds to microseconds: all times of a table use the finest unit of any column"
        if unit == "ns"
        else "replace it with a nearer time, or NULL"
    )
    return (
        f"{count} {own_unit}{since}{where} is too far away to be counted in {_UNITS[unit]} "
        "with 64 bits\n"
        f"  hint: {way}; carried through, or as a key [...], it stays unchanged"
    )


_UNITS = {
    "s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds",
    "date32[day]": "days", "date64[ms]": "milliseconds",
}  # fmt: skip


# ---------------------------------------------------------------------------- vectors


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """The values of an expression, one per row; a vector of length 1 is a constant.

    INTEGER is int64, FLOAT and DECIMAL are float64, BOOLEAN is bool; TIMESTAMP, DATE and DURATION
    are int64 counts of the computation's time unit; STRING and OTHER stay Arrow arrays; places are
    PlaceVectors. `valid` is None if nothing is NULL; `values` is undefined at a NULL.
    """

    kind: ValueKind
    values: npt.NDArray[Any] | pa.Array
    valid: Bools | None = None

    def __len__(self) -> int:
        return len(self.values)

    def at(self, rows: Ints) -> "Vector":
        """The values at some rows."""
        valid = None if self.valid is None else self.valid[rows]
        if isinstance(self.values, np.ndarray):
            # no row is out of bounds, so "clip" only skips the check
            return Vector(self.kind, self.values.take(rows, mode="clip"), valid)
        return Vector(self.kind, self.values.take(wrap_numbers(rows)), valid)


class Refused(Vector):
    """A column excluded from arithmetic: it can be counted and tested for NULL.

    Reading its values raises the reason.
    """

    __slots__ = ("length", "problem")
    length: int
    problem: str

    def __init__(self, kind: ValueKind, length: int, valid: Bools | None, problem: str) -> None:
        values = {"kind": kind, "valid": valid, "length": length, "problem": problem}
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def values(self) -> npt.NDArray[Any]:
        raise EventError(self.problem)

    def __len__(self) -> int:
        return self.length

    def at(self, rows: Ints) -> "Refused":
        valid = None if self.valid is None else self.valid.take(rows)
        return Refused(self.kind, len(rows), valid, self.problem)


class PlaceVector(Vector):
    """Places, one per row, for the functions of places only."""

    __slots__ = ("places",)
    places: "PlaceValues"

    def __init__(self, places: "PlaceValues", valid: Bools | None = None) -> None:
        for name, value in (("kind", ValueKind.PLACE), ("valid", valid), ("places", places)):
            object.__setattr__(self, name, value)

    @property
    def values(self) -> npt.NDArray[Any]:
        raise TypeError("places are not numbers")

    def __len__(self) -> int:
        return len(self.places)

    def spread(self, length: int) -> "PlaceVector":
        """Repeat a constant for every row."""
        if len(self) == length:
            return self
        valid = None if self.valid is None else np.full(length, bool(self.valid[0]))
        return PlaceVector(self.places.repeat(length), valid)


NUMBER_READERS: dict[ValueKind, Callable[[pa.Array], npt.NDArray[Any]]] = {
    ValueKind.INTEGER: integers,
    ValueKind.FLOAT: floats,
    ValueKind.DECIMAL: decimals,
    ValueKind.BOOLEAN: booleans,
}


def from_arrow(array: pa.Array | pa.ChunkedArray, unit: Unit, name: str | None = None) -> Vector:
    """Read a column as a vector, without a copy where possible; errors mention `name`.

    >>> from_arrow(pa.array([1, None]), "us").valid.tolist()
    [True, False]
    """
    array = to_single_array(array)
    if (plain := _find_plain(array.type, unit)) is not None:
        kind, layout = plain
        return Vector(kind, array if layout is None else get_raw_values(array, layout), validity(array))
    array = decode_dictionary(array)
    kind = kind_of_arrow(array.type)
    valid = validity(array)
    problem = explain_inexact(array, kind, valid, unit, name)
    if problem is not None:
        return Refused(kind, len(array), valid, problem)
    if kind in NUMBER_READERS:
        return Vector(kind, NUMBER_READERS[kind](array), valid)
    match kind:
        case ValueKind.TIMESTAMP | ValueKind.DATE | ValueKind.DURATION:
            return Vector(kind, to_ticks(array, unit), valid)
        case ValueKind.STRING if not types.is_dictionary(array.type):
            return Vector(kind, decode_text(array), valid)
        case ValueKind.NULL:
            return create_nulls(len(array))
        case _:
            return Vector(kind, array, valid)


@lru_cache(maxsize=256)
def _find_plain(type: pa.DataType, unit: Unit) -> tuple[ValueKind, npt.DTypeLike | None] | None:
    """The kind and the layout (None: an Arrow array) of a type whose values are read as they are, or None."""
    if types.is_string(type) or types.is_large_string(type):
        return ValueKind.STRING, None
    if types.is_int64(type):
        return ValueKind.INTEGER, np.int64
    if types.is_float64(type):
        return ValueKind.FLOAT, np.float64
    if (types.is_timestamp(type) or types.is_duration(type)) and type.unit == unit:
        return kind_of_arrow(type), np.int64
    return None


def decode_dictionary(array: pa.Array) -> pa.Array:
    """Decode the dictionary of an array, except for strings."""
    if not types.is_dictionary(array.type):
        return array
    if kind_of_arrow(array.type) is ValueKind.STRING and not array.dictionary.null_count:
        return array
    return to_single_array(array.dictionary.take(array.indices))


def create_nulls(length: int) -> Vector:
    return Vector(ValueKind.NULL, np.zeros(length, np.bool_), np.zeros(length, np.bool_))


def create_constant(value: object, unit: Unit) -> Vector:
    """Create a vector of length 1.

    >>> create_constant(timedelta(seconds=1), "us").values.tolist()
    [1000000]
    """
    value = normalize_constant(value)
    scale = 1_000 if unit == "ns" else 1
    match value:
        case None:
            return create_nulls(1)
        case bool():
            return Vector(ValueKind.BOOLEAN, np.array([value]))
        case int():
            return Vector(ValueKind.INTEGER, np.array([value], np.int64))
        case float():
            return Vector(ValueKind.FLOAT, np.array([value]))
        case str():
            return Vector(ValueKind.STRING, build_texts([value]))
        case timedelta():
            return Vector(ValueKind.DURATION, np.array([to_microseconds(value) * scale], np.int64))
        case date():
            since = to_microseconds(to_instant(value) - to_instant(date(1970, 1, 1)))
            kind = ValueKind.TIMESTAMP if isinstance(value, datetime) else ValueKind.DATE
            return Vector(kind, np.array([since * scale], np.int64))
        case _:
            raise TypeError(f"{value!r} cannot be used as a constant")


def truth(vector: Vector) -> Bools:
    """Where a predicate is true and not NULL.

    >>> truth(Vector(ValueKind.BOOLEAN, np.array([True, True]), np.array([True, False]))).tolist()
    [True, False]
    """
    if vector.kind is ValueKind.NULL:
        return np.zeros(len(vector), np.bool_)
    values: Bools = np.asarray(vector.values, np.bool_)
    return values if vector.valid is None else values & vector.valid


def broadcast(vector: Vector, length: int) -> Vector:
    """Repeat a constant for every row; other vectors stay."""
    if isinstance(vector, Refused):
        return vector
    if isinstance(vector, PlaceVector):
        return vector.spread(length)
    valid = vector.valid
    if valid is not None and len(valid) != length:
        valid = np.full(length, bool(valid[0]))
    if len(vector) == length:
        return vector if valid is vector.valid else Vector(vector.kind, vector.values, valid)
    if isinstance(vector.values, np.ndarray):
        return Vector(vector.kind, np.full(length, vector.values[0]), valid)
    if length == 0:
        return Vector(vector.kind, vector.values[:0], valid)
    return Vector(vector.kind, pa.repeat(vector.values[0], length), valid)


def to_arrow(vector: Vector, unit: Unit, zone: str | None = None) -> pa.Array:
    """Convert a vector to an Arrow array."""
    if isinstance(vector, PlaceVector):
        from ensue.vector.geo_columns import format_places

        return format_places(vector.places, vector.valid)
    values, valid = vector.values, vector.valid
    if not isinstance(values, np.ndarray):
        return values
    match vector.kind:
        case ValueKind.NULL:
            return pa.nulls(len(values))
        case ValueKind.DATE:
            days = values // (86_400_000_000 * (1_000 if unit == "ns" else 1))
            return fixed_array(pa.date32(), days.astype(np.int32), valid)
        case _:
            return fixed_array(arrow_type(vector.kind, unit, zone), values, valid)


def arrow_type(kind: ValueKind, unit: Unit, zone: str | None = None) -> pa.DataType:
    """The Arrow type of a computed value."""
    match kind:
        case ValueKind.TIMESTAMP:
            return pa.timestamp(unit, zone)
        case ValueKind.DURATION:
            return pa.duration(unit)
        case ValueKind.OTHER:
            raise TypeError("binary and nested values are excluded from arithmetic")
        case _:
            return _ARROW_TYPES[kind]


_ARROW_TYPES = {
    ValueKind.INTEGER: pa.int64(),
    ValueKind.FLOAT: pa.float64(),
    ValueKind.DECIMAL: pa.float64(),
    ValueKind.BOOLEAN: pa.bool_(),
    ValueKind.STRING: pa.string(),
    ValueKind.PLACE: pa.string(),  # as WKT
    ValueKind.DATE: pa.date32(),
    ValueKind.NULL: pa.null(),
}
