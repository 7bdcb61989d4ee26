"""The rows of a table by partition, each partition in its order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.algebra.predicate import Aggregate, Expr, Field
from ensue.algebra.row_patterns.values import OrderedBy
from ensue.columns.arrow_kinds import Unit, time_unit
from ensue.columns.buffers import Ints, single
from ensue.columns.evaluate import evaluate
from ensue.columns.keys import ColumnCodes
from ensue.columns.rows import taken
from ensue.columns.values import Refused, Vector, from_arrow, to_arrow
from ensue.computed import cached_property
from ensue.kernels.row_patterns import Codes, at_places, grouped, inside
from ensue.schema import Kind

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Partitions:
    """Partitions of a table side by side: partition p has rows `bounds[p]` to `bounds[p + 1]`.

    Rows are numbered as they stand here; `order` are their places in the table (None: the same).
    """

    table: pa.Table
    order: Ints | None
    bounds: Ints

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def rows(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def unit(self) -> Unit:
        return time_unit(self.table.schema)

    @cached_property
    def as_they_stand(self) -> "Partitions":
        """The same rows in the order of the table, as one partition."""
        if self.order is None:
            return self
        return Partitions(self.table, None, np.array([0, self.rows], np.int64))

    @cached_property
    def _columns(self) -> dict[str, Vector]:
        return {}

    def places(self, rows: Ints) -> Ints:
        """Where rows are in the table; those below 0 stay so."""
        if self.order is None or not len(self.order):
            return rows
        found: Ints = at_places(self.order, rows)
        return found

    def column(self, name: str) -> Vector:
        """The values of a column, in the order of the rows here."""
        if name not in self._columns:
            whole = from_arrow(self.table.column(name), self.unit, name)
            self._columns[name] = whole if self.order is None else _picked(whole, self.order)
        return self._columns[name]

    def vector(self, expr: Expr) -> Vector:
        """The values of an expression over one row, for all rows."""

        def lookup(field: Field | Aggregate) -> Vector:
            assert isinstance(field, Field)
            assert field.name is not None
            return self.column(field.name)

        return evaluate(expr, lookup, self.rows, self.unit)

    def shifted(self, vector: Vector, shift: int) -> Vector:
        """For each row the value so many rows on in its partition; NULL where that is over."""
        if shift == 0:
            return vector
        count = self.rows
        valid = np.ones(count, np.bool_)
        inside(self.bounds, shift, valid)
        if abs(shift) >= count:
            return _nothing(vector, count)
        values, known = vector.values, vector.valid
        if isinstance(values, np.ndarray):
            moved = np.zeros_like(values)
            _move(values, moved, shift)
            if known is not None:
                there = np.zeros(count, np.bool_)
                _move(known, there, shift)
                valid &= there
            return Vector(vector.kind, moved, valid)
        rows = np.where(valid, np.arange(count) + shift, -1)
        return from_arrow(taken(to_arrow(vector, self.unit), rows), self.unit)


def _move(values: Numbers, moved: Numbers, shift: int) -> None:
    if shift < 0:
        moved[-shift:] = values[:shift]
    else:
        moved[:-shift] = values[shift:]


def _nothing(vector: Vector, count: int) -> Vector:
    rows = np.full(count, -1, np.int64)
    if isinstance(vector.values, np.ndarray):
        return Vector(vector.kind, np.zeros(count, vector.values.dtype), rows >= 0)
    return from_arrow(taken(vector.values, rows), "us")


def _picked(vector: Vector, rows: Ints) -> Vector:
    if isinstance(vector, Refused):
        return vector.at(rows)
    valid = None if vector.valid is None else vector.valid[rows]
    if isinstance(vector.values, np.ndarray):
        # no row is outside, so none needs to be looked at twice
        return Vector(vector.kind, vector.values.take(rows, mode="clip"), valid)
    return Vector(vector.kind, vector.values.take(pa.array(rows)), valid)


def partitions_of(table: pa.Table, keys: Sequence[str], order: Sequence[OrderedBy]) -> Partitions:
    """The rows of a table by some columns, each partition in its order; equal ones as they come.

    NULLs are one key, and so are NaNs.
    """
    sequence = places_by(table, order)
    if not keys:
        bounds = np.array([0, table.num_rows] if table.num_rows else [0], np.int64)
        return Partitions(table, sequence, bounds)
    codes, count = key_codes([table.column(name) for name in keys])
    if sequence is not None:
        codes = codes[sequence]
    if not len(codes) or bool((codes[1:] >= codes[:-1]).all()):
        bounds = np.searchsorted(codes, np.arange(count + 1)).astype(np.int64)
        return Partitions(table, sequence, bounds)
    rows, bounds = grouped(codes, count)
    return Partitions(table, rows if sequence is None else sequence[rows], bounds)


def key_codes(columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Codes, int]:
    """A number from 0 on for each combination of values, and how many there are."""
    found: Codes | None = None
    count = 1
    for column in columns:
        codes, several = _column_codes(column)
        if found is None:
            found, count = codes, several
            continue
        pairs = found * np.int64(several) + codes
        known, dense = np.unique(pairs, return_inverse=True)
        found, count = dense.astype(np.int32), len(known)
    assert found is not None
    return found, count


def _column_codes(column: pa.Array | pa.ChunkedArray) -> tuple[Codes, int]:
    known = ColumnCodes()
    codes = known.encode(column)
    count = len(known)
    if not len(codes) or codes.min() >= 0:
        return codes, count
    missing = codes < 0
    array = single(column)
    none = np.zeros(len(array), np.bool_)
    if array.null_count:
        none = np.asarray(pc.is_null(array))
        codes[none] = count
        count += 1
    not_a_number = missing & ~none
    if not_a_number.any():
        codes[not_a_number] = count
        count += 1
    return codes, count


def places_by(table: pa.Table, order: Sequence[OrderedBy]) -> Ints | None:
    """The places of the rows in their order; None: they are in it."""
    if not order or table.num_rows < 2:
        return None
    whole = Partitions(table, None, np.array([0, table.num_rows], np.int64))
    keys: list[Numbers] = []
    for by in order:
        keys += sort_keys(whole.vector(by.expr), by)
    if len(keys) == 1:
        (only,) = keys
        if bool((only[1:] >= only[:-1]).all()):
            return None
        return np.argsort(only, kind="stable")
    places = np.lexsort(keys[::-1])
    return None if bool((places[1:] > places[:-1]).all()) else places


def sort_keys(vector: Vector, by: OrderedBy) -> list[Numbers]:
    """Arrays of numbers that sort as the values do: NULLs first or last, NaN above all numbers."""
    values: Numbers
    if vector.kind is Kind.NULL:
        return []
    if not isinstance(vector.values, np.ndarray):
        values = text_ranks([vector])[0]
    else:
        values = vector.values
        if values.dtype == np.bool_:
            values = values.astype(np.int8)
    keys: list[Numbers] = []
    if vector.valid is not None and not vector.valid.all():
        there = vector.valid
        keys.append((there if by.nulls_first else ~there).astype(np.int8))
        values = np.where(there, values, np.zeros(1, values.dtype))
    if values.dtype.kind == "f":
        nan = np.isnan(values)
        if nan.any():
            keys.append((~nan if by.descending else nan).astype(np.int8))
            values = np.where(nan, 0.0, values)
        values = values + 0.0  # -0.0 is 0.0
    if by.descending:
        values = -values if values.dtype.kind == "f" else ~values.astype(np.int64)
    return [*keys, values]


def text_ranks(vectors: Sequence[Vector]) -> list[Ints]:
    """Numbers that compare as texts do, also between several columns."""
    arrays = [single(to_arrow(vector, "us")) for vector in vectors]
    plain = [a.dictionary.take(a.indices) if pa.types.is_dictionary(a.type) else a for a in arrays]
    texts = [single(a).cast(pa.large_string()) for a in plain]
    known = pc.unique(pa.chunked_array(texts, pa.large_string())).drop_null()
    # the order of bytes is that of code points, as Python compares
    known = known.take(pc.sort_indices(known))
    found: list[Ints] = []
    for text in texts:
        ranks = pc.index_in(text, value_set=known)
        found.append(pc.fill_null(ranks, -1).cast(pa.int64()).to_numpy(zero_copy_only=False))
    return found
