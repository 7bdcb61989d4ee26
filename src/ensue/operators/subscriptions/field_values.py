"""The values of fields as order-preserving 64-bit integers, so that every comparison is an interval.

Integers, booleans and times are their own codes. The code of a double is its bits, those of
negative ones inverted; NaN is above infinity, and NULL is the least integer, where doubles of the
same row are NaN. Constants are compared exactly: `x < 17.5` is `x <= 17` where x is an integer,
and `x <= 2**53 + 1` ends at the double below where x is one. What is no interval is a residual test.
"""

import math
import struct
from collections.abc import Hashable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from ensue.errors import EventError, QueryError, did_you_mean
from ensue.ir.subscription import Predicate
from ensue.operators.subscriptions.growing_columns import map_arrays, save_arrays
from ensue.schema import ValueKind
from ensue.vector import evaluation, functions
from ensue.vector.arrow_numpy import get_indices
from ensue.vector.arrow_types import get_field_kinds
from ensue.vector.column_values import create_constant
from ensue.vector.event_table import StreamSchema
from ensue.vector.take import take_values

LEAST, GREATEST = -(2**63), 2**63 - 1
EVERYTHING = (LEAST, GREATEST)

_AS_DOUBLE, _AS_INTEGER = struct.Struct("<d").pack, struct.Struct("<q").unpack

Interval = tuple[int, int]  # both ends included


def integer_interval(operator: str, constant: float) -> Interval | None:
    """Returns the integers that satisfy a comparison with a constant; None if there are none.

    >>> integer_interval("<", 17.5), integer_interval("=", 17.5), integer_interval(">", 2**63)
    ((-9223372036854775808, 17), None, None)
    """
    if constant != constant:
        return None
    if constant in (math.inf, -math.inf):
        below = constant > 0
        holds = operator in (("<", "<=") if below else (">", ">="))
        return EVERYTHING if holds else None
    floor, ceiling = math.floor(constant), math.ceil(constant)
    low, high = {
        "=": (ceiling, floor), "<": (LEAST, ceiling - 1), "<=": (LEAST, floor),
        ">": (floor + 1, GREATEST), ">=": (ceiling, GREATEST),
    }[operator]  # fmt: skip
    low, high = max(low, LEAST), min(high, GREATEST)
    return (low, high) if low <= high else None


def encode_float(value: float) -> int:
    """Encodes a double.

    >>> (encode_float(-0.0) == encode_float(0.0) == 0, encode_float(-1.5) < encode_float(-1.0) < encode_float(2.5))
    (True, True)
    """
    if math.isnan(value):
        return GREATEST
    bits: int = _AS_INTEGER(_AS_DOUBLE(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ GREATEST


_LOWEST, _HIGHEST = encode_float(-math.inf), encode_float(math.inf)


def float_interval(operator: str, constant: float) -> Interval | None:
    """Returns the codes of doubles that satisfy a comparison with a constant, without NaN.

    >>> (float_interval("=", 2**53 + 1) is None, float_interval("<=", 2**53 + 1) == float_interval("<=", 2**53))
    (True, True)
    """
    if constant != constant:
        return None
    try:
        nearest = float(constant)
    except OverflowError:
        nearest = math.inf if constant > 0 else -math.inf
    low, high = _LOWEST, _HIGHEST
    code = encode_float(nearest)
    if operator == "=":
        low = high = code if nearest == constant else _HIGHEST + 1
    elif operator in ("<", "<="):
        high = code - (nearest > constant or (operator == "<" and nearest == constant))
    else:
        low = code + (nearest < constant or (operator == ">" and nearest == constant))
    return (low, high) if _LOWEST <= low <= high <= _HIGHEST else None


def encode_floats(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Encodes doubles.

    >>> encode_floats(np.array([-0.0, 1.0, np.nan])).tolist() == [0, encode_float(1.0), GREATEST]
    True
    """
    bits = (values + 0.0).view(np.int64)
    encoded = np.where(bits < 0, bits ^ GREATEST, bits)
    encoded[np.isnan(values)] = GREATEST
    return encoded


# ---------------------------------------------------------------------------- codes of texts

_SHARDS = 256  # a growing dictionary moves all its entries: these stay small

UNKNOWN = -1  # the code of a text that no atom uses


V = TypeVar("V", bound=Hashable)


class CountedIds(Generic[V]):
    """Assigns a number to each value while it is in use; free numbers are reused."""

    def __init__(self, shards: int = 1) -> None:
        self._shards: list[dict[V, int]] = [{} for _ in range(shards)]
        self._values: list[V | None] = []
        self._uses: list[int] = []
        self._free: list[int] = []

    def _shard(self, value: V) -> dict[V, int]:
        return self._shards[hash(value) % len(self._shards)]

    def take(self, value: V) -> int:
        """Returns the number of a value and counts one more use."""
        shard = self._shard(value)
        number = shard.get(value)
        if number is None:
            if self._free:
                number = self._free.pop()
            else:
                number = len(self._values)
                self._values.append(None)
                self._uses.append(0)
            self._values[number] = value
            shard[value] = number
        self._uses[number] += 1
        return number

    def give_back(self, number: int) -> bool:
        """Counts one use less; returns whether the number is free now."""
        self._uses[number] -= 1
        if self._uses[number]:
            return False
        value = self._values[number]
        assert value is not None
        del self._shard(value)[value]
        self._values[number] = None
        self._free.append(number)
        return True

    def items(self) -> list[tuple[V | None, int]]:
        """Returns the values and their uses by number, for `restore`."""
        return list(zip(self._values, self._uses, strict=True))

    @classmethod
    def restore(cls, items: Iterable[tuple[V | None, int]]) -> Self:
        ids = cls()
        ids._values, ids._uses = [], []
        for number, (value, uses) in enumerate(items):
            ids._values.append(value)
            ids._uses.append(uses)
            if value is None:
                ids._free.append(number)
            else:
                ids._shard(value)[value] = number
        return ids


class AtomTextCodes(CountedIds[str]):
    """Assigns a code to each text while it is in use.

    >>> texts = AtomTextCodes()
    >>> texts.take("truck"), texts.take("van"), texts.take("truck")
    (0, 1, 0)
    >>> texts.give_back(1), texts.take("bus"), texts.codes(["van", "bus"]).tolist()
    (True, 1, [-1, 1])
    """

    def __init__(self) -> None:
        super().__init__(_SHARDS)

    def __len__(self) -> int:
        return len(self._values) - len(self._free)

    @property
    def end(self) -> int:
        """The largest code so far plus one."""
        return len(self._values)

    def codes(self, texts: Iterable[str]) -> npt.NDArray[np.int64]:
        shards = self._shards
        return np.array([shards[hash(t) % _SHARDS].get(t, UNKNOWN) for t in texts], np.int64)

    def save(self, folder: Path) -> None:
        encoded = [(text or "").encode("utf-8", "surrogatepass") for text in self._values]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        data, uses = np.frombuffer(b"".join(encoded), np.uint8), np.array(self._uses, np.int64)
        save_arrays(folder, {"text_offsets": offsets, "text_bytes": data, "text_uses": uses})

    @classmethod
    def open(cls, folder: Path) -> "AtomTextCodes":
        offsets, data, uses = map_arrays(folder, ("text_offsets", "text_bytes", "text_uses")).values()
        encoded, bounds = data.tobytes(), pairwise(offsets.tolist())
        texts = (encoded[start:end].decode("utf-8", "surrogatepass") for start, end in bounds)
        pairs = zip(texts, uses.tolist(), strict=True)
        return cls.restore((text if used else None, used) for text, used in pairs)

    @property
    def nbytes(self) -> int:
        """The approximate size: each text is a string, a table entry and two list entries."""
        sample = self._values[:1024]
        average = sum(len(text or "") for text in sample) / max(1, len(sample))
        return int((150 + average) * len(self._values))


# ---------------------------------------------------------------------------- fields

TYPE_FIELD = "type"  # also names the type column

REAL = (ValueKind.FLOAT, ValueKind.DECIMAL)  # decimals are compared as doubles


class IndexField(NamedTuple):
    """A column that predicates read."""

    number: int
    column: str
    kind: ValueKind


class IndexFields:
    """Numbers the columns that predicates read."""

    def __init__(self, shape: StreamSchema) -> None:
        self._shape = shape
        self._kinds = get_field_kinds(shape.arrow)
        self._by_name: dict[str, IndexField] = {}
        self._by_column: dict[str, IndexField] = {}
        self.all: list[IndexField] = []
        named = shape.schema.type_column or TYPE_FIELD
        # the text column that groups atoms by type
        self.type_column = named if self._kinds.get(named) is ValueKind.STRING else None
        self.type_number = -1  # the field of that column, once it is read

    def get_field(self, predicate: Predicate) -> IndexField:
        if predicate.name not in self._by_name:
            self._by_name[predicate.name] = self.take(self._column(predicate))
        return self._by_name[predicate.name]

    def take(self, column: str) -> IndexField:
        """Returns the field of a column, and numbers it if it is new."""
        field = self._by_column.get(column)
        if field is None:
            field = IndexField(len(self.all), column, self._kinds[column])
            self._by_column[column] = field
            self.all.append(field)
            if column == self.type_column:
                self.type_number = field.number
        return field

    def _column(self, predicate: Predicate) -> str:
        name, shape = predicate.name, self._shape
        if shape.by_type is None:
            columns = {name} & set(self._kinds)
        else:
            columns = {c for cs in shape.by_type.values() for field, c in cs if field == name}
            columns |= {name} & set(shape.hidden)
        if not columns and name == TYPE_FIELD and shape.schema.type_column is not None:
            columns = {shape.schema.type_column}
        if not columns and name in self._kinds:
            columns = {name}  # one of several columns of a field, given by its own name
        if len(columns) == 1:
            return columns.pop()
        if columns:
            raise QueryError(
                f"field '{name}' has values of different kinds in different tables",
                hint="use the same type for the field in every table",
                span=predicate.span,
            )
        raise QueryError(f"unknown field '{name}'", hint=did_you_mean(name, self._kinds), span=predicate.span)


def encode_field_values(
    events: pa.Table, shape: StreamSchema, fields: list[IndexField], texts: AtomTextCodes
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Returns the order-preserving integers and the doubles (NaN if none) of fields."""
    values = np.empty((events.num_rows, len(fields)), np.int64)
    numbers = np.empty((events.num_rows, len(fields)), np.float64)
    for field in fields:
        vector = evaluation.from_arrow(events.column(field.column), shape.unit, field.column)
        if vector.kind is not field.kind and ValueKind.NULL not in (vector.kind, field.kind):
            raise EventError(
                f"column '{field.column}' holds values of kind {vector.kind.value}; "
                f"it was declared as {field.kind.value}\n  hint: cast it"
            )
        number = field.number
        if vector.kind in REAL:
            floats = np.asarray(vector.values, np.float64)
            values[:, number] = encode_floats(floats)
            numbers[:, number] = floats
        else:
            integers = _integers(vector, texts)
            values[:, number] = integers
            numbers[:, number] = integers
        if vector.valid is not None:
            values[~vector.valid, number] = LEAST
            numbers[~vector.valid, number] = np.nan
    return values, numbers


def _integers(vector: evaluation.Vector, texts: AtomTextCodes) -> npt.NDArray[Any]:
    if vector.kind is not ValueKind.STRING:
        return np.asarray(vector.values)
    array: Any = vector.values
    if not types.is_dictionary(array.type):
        array = array.dictionary_encode()
    text_codes = texts.codes(array.dictionary.to_pylist())
    if not len(text_codes):
        return np.full(len(array), UNKNOWN, np.int64)
    return np.asarray(text_codes[get_indices(array)])


# ---------------------------------------------------------------------------- residual tests

ResidualTest = tuple[str, str, str]  # column, operator, text


class ResidualTests(CountedIds[ResidualTest]):
    """Numbers the residual tests of atoms: LIKE and comparisons of texts, which no kernel runs.

    >>> tests = ResidualTests()
    >>> tests.take(("name", "LIKE", "a%")), tests.take(("name", "LIKE", "a%"))
    (0, 0)
    """

    def find_failures(
        self, events: pa.Table, rows: npt.NDArray[np.int32], numbers: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Returns where the test of each number fails on the event of each row."""
        failed = np.zeros(len(rows), np.bool_)
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        for group in np.split(order, cuts[1:]):
            test = self._values[int(numbers[group[0]])]
            assert test is not None
            distinct, places = np.unique(rows[group], return_inverse=True)
            column = take_values(events.column(test[0]), distinct.astype(np.int64))
            failed[group] = ~_holds(test, column)[places]
        return failed

    @classmethod
    def restore(cls, items: Iterable[tuple[Any, int]]) -> Self:
        return super().restore((None if test is None else tuple(test), uses) for test, uses in items)


def _holds(test: ResidualTest, column: pa.Array) -> npt.NDArray[np.bool_]:
    _, operator, text = test
    vector = evaluation.from_arrow(column, "us")
    if operator == "LIKE":
        return evaluation.truth(functions.match_like(vector, text))
    return evaluation.truth(evaluation.compare(operator, vector, create_constant(text, "us")))
