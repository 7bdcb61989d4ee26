"""Which columns predicates read, and the values of events as routing takes them."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from ensue.algebra.subscription import Predicate
from ensue.columns import evaluate as vectors
from ensue.columns.arrow_kinds import fields_of
from ensue.columns.buffers import codes
from ensue.columns.stream import Shape
from ensue.errors import EventError, QueryError, did_you_mean
from ensue.schema import Kind
from ensue.workload.subscriptions.routing.ordered import LEAST, ordered_floats
from ensue.workload.subscriptions.routing.texts import UNKNOWN, Texts

TYPE_FIELD = "type"  # the name that also means the type column

REAL = (Kind.FLOAT, Kind.DECIMAL)  # decimals are computed with as doubles that stand for them


class Field(NamedTuple):
    """A column that predicates read."""

    number: int
    column: str
    kind: Kind


class Fields:
    """The columns that predicates have read so far, numbered."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._kinds = fields_of(shape.arrow)
        self._by_name: dict[str, Field] = {}
        self._by_column: dict[str, Field] = {}
        self.all: list[Field] = []
        self.type_column = self._column_of_types()
        self.type_number = -1  # of the field of that column, once it is one

    def _column_of_types(self) -> str | None:
        """The column of texts that groups atoms."""
        named = self._shape.schema.type_column or TYPE_FIELD
        return named if self._kinds.get(named) is Kind.STRING else None

    def of(self, predicate: Predicate) -> Field:
        """The column that a predicate names."""
        found = self._by_name.get(predicate.name)
        if found is None:
            found = self.take(self._column(predicate))
            self._by_name[predicate.name] = found
        return found

    def take(self, column: str) -> Field:
        """The field of a column."""
        found = self._by_column.get(column)
        if found is None:
            found = Field(len(self.all), column, self._kinds[column])
            self._by_column[column] = found
            self.all.append(found)
            if column == self.type_column:
                self.type_number = found.number
        return found

    def _column(self, predicate: Predicate) -> str:
        name, shape = predicate.name, self._shape
        if shape.by_type is None:
            found = {name} & set(self._kinds)
        else:
            found = {c for cs in shape.by_type.values() for field, c in cs if field == name}
            found |= {name} & set(shape.hidden)
        if not found and name == TYPE_FIELD and shape.schema.type_column is not None:
            found = {shape.schema.type_column}
        if not found and name in self._kinds:
            found = {name}  # one of several columns of a field, told apart by its own name
        if len(found) == 1:
            return found.pop()
        if found:
            raise QueryError(
                f"field '{name}' has values of different kinds in different tables",
                hint="use the same type for the field in every table",
                span=predicate.span,
            )
        raise QueryError(
            f"unknown field '{name}'",
            hint=did_you_mean(name, self._kinds),
            span=predicate.span,
        )


def values_of(
    events: pa.Table, shape: Shape, fields: list[Field], texts: Texts
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """For each event and field its ordered integer, and its double (NaN where there is none)."""
    values = np.empty((events.num_rows, len(fields)), np.int64)
    numbers = np.empty((events.num_rows, len(fields)), np.float64)
    for field in fields:
        vector = vectors.from_arrow(events.column(field.column), shape.unit, field.column)
        if vector.kind is not field.kind and Kind.NULL not in (vector.kind, field.kind):
            raise EventError(
                f"column '{field.column}' holds values of kind {vector.kind.value}; "
                f"it was declared as {field.kind.value}\n  hint: cast it"
            )
        place = field.number
        if vector.kind in REAL:
            floats = np.asarray(vector.values, np.float64)
            values[:, place] = ordered_floats(floats)
            numbers[:, place] = floats
        else:
            found = _whole(vector, texts)
            values[:, place] = found
            numbers[:, place] = found
        if vector.valid is not None:
            values[~vector.valid, place] = LEAST
            numbers[~vector.valid, place] = np.nan
    return values, numbers


def _whole(vector: vectors.Vector, texts: Texts) -> npt.NDArray[Any]:
    if vector.kind is not Kind.STRING:
        return np.asarray(vector.values)
    array: Any = vector.values
    if not types.is_dictionary(array.type):
        array = array.dictionary_encode()
    known = texts.codes(array.dictionary.to_pylist())
    if not len(known):
        return np.full(len(array), UNKNOWN, np.int64)
    found: npt.NDArray[np.int64] = known[codes(array)]
    return found
