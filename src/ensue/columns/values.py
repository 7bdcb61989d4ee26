"""The values of an expression for many rows at once: NumPy arrays, and Arrow for strings."""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from ensue.algebra.evaluate import literal
from ensue.algebra.values import instant, microseconds
from ensue.columns.arrow_kinds import Unit, kind_of_arrow
from ensue.columns.buffers import (
    Bools,
    Ints,
    booleans,
    decimals,
    fixed_array,
    floats,
    integers,
    plain_text,
    single,
    ticks,
    validity,
)
from ensue.columns.exactness import not_computed
from ensue.columns.place_vectors import PlaceValues, written
from ensue.errors import EventError
from ensue.schema import Kind


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """The values of an expression, one a row; a vector of length 1 is a constant.

    INTEGER is int64, FLOAT and DECIMAL are float64, BOOLEAN is bool; TIMESTAMP, DATE and DURATION
    are int64 counts of the computation's time unit; STRING and OTHER stay Arrow arrays; PLACE has
    a class of its own.
    `valid` is None where nothing is NULL; what `values` holds at a NULL is undefined.
    """

    kind: Kind
    values: npt.NDArray[Any] | pa.Array
    valid: Bools | None = None

    def __len__(self) -> int:
        return len(self.values)


class Refused(Vector):
    """A column with a value that is not computed with: it can be counted and tested for NULL.

    Who asks for its values gets the reason.
    """

    __slots__ = ("length", "problem")
    length: int
    problem: str

    def __init__(self, kind: Kind, length: int, valid: Bools | None, problem: str) -> None:
        for name, value in zip(
            ("kind", "valid", "length", "problem"), (kind, valid, length, problem), strict=True
        ):
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
    """Places, one a row; they are no numbers, and only functions of places look at them."""

    __slots__ = ("places",)
    places: PlaceValues

    def __init__(self, places: PlaceValues, valid: Bools | None = None) -> None:
        for name, value in (("kind", Kind.PLACE), ("valid", valid), ("places", places)):
            object.__setattr__(self, name, value)

    @property
    def values(self) -> npt.NDArray[Any]:
        raise TypeError("places are not computed with as numbers")

    def __len__(self) -> int:
        return len(self.places)

    def spread(self, length: int) -> "PlaceVector":
        """A constant repeated for every row."""
        if len(self) == length:
            return self
        valid = None if self.valid is None else np.full(length, bool(self.valid[0]))
        return PlaceVector(self.places.repeated(length), valid)


def from_arrow(array: pa.Array | pa.ChunkedArray, unit: Unit, name: str | None = None) -> Vector:
    """A column as a vector, without a copy where the layouts agree; errors call it by its name.

    >>> from_arrow(pa.array([1, None]), "us").valid.tolist()
    [True, False]
    """
    array = decoded(single(array))
    kind = kind_of_arrow(array.type)
    valid = validity(array)
    problem = not_computed(array, kind, valid, unit, name)
    if problem is not None:
        return Refused(kind, len(array), valid, problem)
    match kind:
        case Kind.INTEGER:
            return Vector(kind, integers(array), valid)
        case Kind.FLOAT:
            return Vector(kind, floats(array), valid)
        case Kind.DECIMAL:
            return Vector(kind, decimals(array), valid)
        case Kind.BOOLEAN:
            return Vector(kind, booleans(array), valid)
        case Kind.TIMESTAMP | Kind.DATE | Kind.DURATION:
            return Vector(kind, ticks(array, unit), valid)
        case Kind.STRING:
            if not types.is_dictionary(array.type):
                array = plain_text(array)
            return Vector(kind, array, valid)
        case Kind.OTHER | Kind.PLACE:
            return Vector(kind, array, valid)
        case Kind.NULL:
            return nulls(len(array))


def decoded(array: pa.Array) -> pa.Array:
    """An array without its dictionary, except that of strings."""
    if not types.is_dictionary(array.type):
        return array
    if kind_of_arrow(array.type) is Kind.STRING and not array.dictionary.null_count:
        return array
    return single(array.dictionary.take(array.indices))


def nulls(length: int) -> Vector:
    return Vector(Kind.NULL, np.zeros(length, np.bool_), np.zeros(length, np.bool_))


def constant(value: object, unit: Unit) -> Vector:
    """A vector of length 1.

    >>> constant(timedelta(seconds=1), "us").values.tolist()
    [1000000]
    """
    value = literal(value)
    scale = 1_000 if unit == "ns" else 1
    match value:
        case None:
            return nulls(1)
        case bool():
            return Vector(Kind.BOOLEAN, np.array([value]))
        case int():
            return Vector(Kind.INTEGER, np.array([value], np.int64))
        case float():
            return Vector(Kind.FLOAT, np.array([value]))
        case str():
            return Vector(Kind.STRING, pa.array([value], pa.string()))
        case timedelta():
            return Vector(Kind.DURATION, np.array([microseconds(value) * scale], np.int64))
        case date():
            since = microseconds(instant(value) - instant(date(1970, 1, 1)))
            kind = Kind.TIMESTAMP if isinstance(value, datetime) else Kind.DATE
            return Vector(kind, np.array([since * scale], np.int64))
        case _:
            raise TypeError(f"{value!r} cannot be used as a constant")


def truth(vector: Vector) -> Bools:
    """Where a predicate holds: true, and not NULL.

    >>> truth(Vector(Kind.BOOLEAN, np.array([True, True]), np.array([True, False]))).tolist()
    [True, False]
    """
    if vector.kind is Kind.NULL:
        return np.zeros(len(vector), np.bool_)
    values: Bools = np.asarray(vector.values, np.bool_)
    return values if vector.valid is None else values & vector.valid


def spread(vector: Vector, length: int) -> Vector:
    """A constant repeated for every row; other vectors as they are."""
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
    """The values as an Arrow array.

    >>> to_arrow(Vector(Kind.FLOAT, np.array([1.5, 2.5]), np.array([True, False])), "us")
    <pyarrow.lib.DoubleArray object at ...>
    [
      1.5,
      null
    ]
    """
    if isinstance(vector, PlaceVector):
        return written(vector.places, vector.valid)
    values, valid = vector.values, vector.valid
    if not isinstance(values, np.ndarray):
        return values
    match vector.kind:
        case Kind.NULL:
            return pa.nulls(len(values))
        case Kind.DATE:
            days = values // (86_400_000_000 * (1_000 if unit == "ns" else 1))
            return fixed_array(pa.date32(), days.astype(np.int32), valid)
        case _:
            return fixed_array(arrow_type(vector.kind, unit, zone), values, valid)


def arrow_type(kind: Kind, unit: Unit, zone: str | None = None) -> pa.DataType:
    """The Arrow type of a computed value.

    >>> arrow_type(Kind.DECIMAL, "us")
    DataType(double)
    """
    match kind:
        case Kind.INTEGER:
            return pa.int64()
        case Kind.FLOAT | Kind.DECIMAL:
            return pa.float64()
        case Kind.BOOLEAN:
            return pa.bool_()
        case Kind.STRING | Kind.PLACE:  # as WKT
            return pa.string()
        case Kind.TIMESTAMP:
            return pa.timestamp(unit, zone)
        case Kind.DATE:
            return pa.date32()
        case Kind.DURATION:
            return pa.duration(unit)
        case Kind.NULL:
            return pa.null()
        case Kind.OTHER:
            raise TypeError("binary and nested values are not computed with")
