"""Reads the columns of predicates as integers and doubles for the index, and runs residual
tests."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from ensue.errors import EventError, QueryError, did_you_mean
from ensue.ir.subscription import Predicate
from ensue.operators.subscriptions.predicate_index.sortable_encoding import (
    LEAST,
    UNKNOWN,
    AtomTextCodes,
    CountedIds,
    encode_floats,
)
from ensue.schema import ValueKind
from ensue.vector import evaluation, functions
from ensue.vector.arrow_numpy import get_indices
from ensue.vector.arrow_types import get_field_kinds
from ensue.vector.column_values import create_constant
from ensue.vector.event_table import StreamSchema
from ensue.vector.take import take_values

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
