"""Rows of a table grouped by partition, each partition sorted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ensue.cached import cached_property
from ensue.ir.expression import Aggregate, Expr, FieldRef
from ensue.ir.row_pattern import RowSortKey
from ensue.kernels.row_search import Codes, Masks, clear_outside, group_rows
from ensue.schema import ValueKind
from ensue.vector.arrow_numpy import Ints, to_single_array
from ensue.vector.arrow_types import Unit, time_unit
from ensue.vector.column_values import Vector, from_arrow, to_arrow
from ensue.vector.evaluation import evaluate
from ensue.vector.key_codes import ColumnCodes
from ensue.vector.take import take_values

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Partitions:
    """Sorted partitions of a table: partition p has rows `bounds[p]` to `bounds[p + 1]`.

    `order` are the positions of these rows in the table; None if they are the same. Parts of the
    partitions share the values of columns, and the masks of rows by themselves.
    """

    table: pa.Table
    order: Ints | None
    bounds: Ints
    row_masks: Masks | None = None  # in the order of the table; None: not computed yet
    whole_columns: dict[str, Vector] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def rows(self) -> int:
        return int(self.table.num_rows) if self.order is None else len(self.order)

    @cached_property
    def unit(self) -> Unit:
        return time_unit(self.table.schema)

    @cached_property
    def as_they_stand(self) -> "Partitions":
        """The rows in the order of the table, as one partition."""
        if self.order is None:
            return self
        return Partitions(self.table, None, np.array([0, self.table.num_rows], np.int64))

    def select(self, begin: int, end: int) -> "Partitions":
        """Some consecutive partitions."""
        first, last = int(self.bounds[begin]), int(self.bounds[end])
        bounds = self.bounds[begin : end + 1] - first
        if self.order is None:
            masks = None if self.row_masks is None else self.row_masks[first:last]
            return Partitions(self.table.slice(first, last - first), None, bounds, masks)
        return Partitions(self.table, self.order[first:last], bounds, self.row_masks, self.whole_columns)

    @cached_property
    def _columns(self) -> dict[str, Vector]:
        return {}

    def places(self, rows: Ints) -> Ints:
        """The positions of rows in the table; negative rows stay."""
        if self.order is None or not len(self.order):
            return rows
        return np.where(rows >= 0, self.order.take(rows, mode="clip"), rows)

    def column(self, name: str) -> Vector:
        """The values of a column, in the order of the partitions."""
        if name not in self._columns:
            vector = self.whole_columns.get(name)
            if vector is None:
                vector = self.whole_columns[name] = from_arrow(self.table.column(name), self.unit, name)
            self._columns[name] = vector if self.order is None else vector.at(self.order)
        return self._columns[name]

    def vector(self, expr: Expr) -> Vector:
        """Evaluate an expression on each row."""

        def lookup(ref: FieldRef | Aggregate) -> Vector:
            assert isinstance(ref, FieldRef)
            assert ref.name is not None
            return self.column(ref.name)

        return evaluate(expr, lookup, self.rows, self.unit)

    def shift(self, vector: Vector, shift: int) -> Vector:
        """For each row the value `shift` rows later in its partition, else NULL."""
        if shift == 0:
            return vector
        count = self.rows
        valid = np.ones(count, np.bool_)
        clear_outside(self.bounds, shift, valid)
        if abs(shift) >= count:
            return _nothing(vector, count)
        values, known = vector.values, vector.valid
        if isinstance(values, np.ndarray):
            moved = np.zeros_like(values)
            _move(values, moved, shift)
            if known is not None:
                shifted_valid = np.zeros(count, np.bool_)
                _move(known, shifted_valid, shift)
                valid &= shifted_valid
            return Vector(vector.kind, moved, valid)
        rows = np.where(valid, np.arange(count) + shift, -1)
        return from_arrow(take_values(to_arrow(vector, self.unit), rows), self.unit)


def _move(values: Numbers, moved: Numbers, shift: int) -> None:
    if shift < 0:
        moved[-shift:] = values[:shift]
    else:
        moved[:-shift] = values[shift:]


def _nothing(vector: Vector, count: int) -> Vector:
    rows = np.full(count, -1, np.int64)
    if isinstance(vector.values, np.ndarray):
        return Vector(vector.kind, np.zeros(count, vector.values.dtype), rows >= 0)
    return from_arrow(take_values(vector.values, rows), "us")


def partition_rows(
    table: pa.Table, keys: Sequence[str], order: Sequence[RowSortKey], encoded: pa.Table | None = None
) -> Partitions:
    """Group the rows of a table by key columns and sort each partition stably.

    All NULLs are one key, and so are all NaNs. `encoded` has the same keys, if they are known as dictionaries.
    """
    sequence = find_sort_order(table, order)
    if not keys:
        bounds = np.array([0, table.num_rows] if table.num_rows else [0], np.int64)
        return Partitions(table, sequence, bounds)
    codes, count = encode_keys([(table if encoded is None else encoded).column(name) for name in keys])
    if sequence is not None:
        codes = codes[sequence]
    if not len(codes) or bool((codes[1:] >= codes[:-1]).all()):
        bounds = np.searchsorted(codes, np.arange(count + 1)).astype(np.int64)
        return Partitions(table, sequence, bounds)
    rows, bounds = group_rows(codes, count)
    return Partitions(table, rows if sequence is None else sequence[rows], bounds)


def encode_keys(columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[Codes, int]:
    """Encode combinations of values as numbers from 0; return the codes and their count."""
    combined: Codes | None = None
    count = 1
    for column in columns:
        codes, column_count = _column_codes(column)
        if combined is None:
            combined, count = codes, column_count
            continue
        pairs = combined * np.int64(column_count) + codes
        known, dense = np.unique(pairs, return_inverse=True)
        combined, count = dense.astype(np.int32), len(known)
    assert combined is not None
    return combined, count


def _column_codes(column: pa.Array | pa.ChunkedArray) -> tuple[Codes, int]:
    known = ColumnCodes()
    codes = known.encode(column)
    count = len(known)
    if not len(codes) or codes.min() >= 0:
        return codes, count
    missing = codes < 0
    array = to_single_array(column)
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


def find_sort_order(table: pa.Table, order: Sequence[RowSortKey]) -> Ints | None:
    """The positions of the rows in sort order; None if they are sorted."""
    if not order or table.num_rows < 2:
        return None
    partitions = Partitions(table, None, np.array([0, table.num_rows], np.int64))
    keys: list[Numbers] = []
    for by in order:
        keys += to_sort_keys(partitions.vector(by.expr), by)
    if len(keys) == 1:
        (only,) = keys
        if bool((only[1:] >= only[:-1]).all()):
            return None
        return np.argsort(only, kind="stable")
    places = np.lexsort(keys[::-1])
    return None if bool((places[1:] > places[:-1]).all()) else places


def to_sort_keys(vector: Vector, by: RowSortKey) -> list[Numbers]:
    """Arrays of numbers that sort like the values: NULLs first or last, NaN above all numbers."""
    values: Numbers
    if vector.kind is ValueKind.NULL:
        return []
    if not isinstance(vector.values, np.ndarray):
        values = rank_texts([vector])[0]
    else:
        values = vector.values
        if values.dtype == np.bool_:
            values = values.astype(np.int8)
    keys: list[Numbers] = []
    if vector.valid is not None and not vector.valid.all():
        valid = vector.valid
        keys.append((valid if by.nulls_first else ~valid).astype(np.int8))
        values = np.where(valid, values, np.zeros(1, values.dtype))
    if values.dtype.kind == "f":
        nan = np.isnan(values)
        if nan.any():
            keys.append((~nan if by.descending else nan).astype(np.int8))
            values = np.where(nan, 0.0, values)
        values = values + 0.0  # -0.0 is 0.0
    if by.descending:
        values = -values if values.dtype.kind == "f" else ~values.astype(np.int64)
    return [*keys, values]


def rank_texts(vectors: Sequence[Vector]) -> list[Ints]:
    """Numbers that compare like the texts, also between several columns."""
    arrays = [to_single_array(to_arrow(vector, "us")) for vector in vectors]
    plain = [a.dictionary.take(a.indices) if pa.types.is_dictionary(a.type) else a for a in arrays]
    texts = [to_single_array(a).cast(pa.large_string()) for a in plain]
    known = pc.unique(pa.chunked_array(texts, pa.large_string())).drop_null()
    # the order of bytes is that of code points, as in Python
    known = known.take(pc.sort_indices(known))
    ranked: list[Ints] = []
    for text in texts:
        ranks = pc.index_in(text, value_set=known)
        ranked.append(pc.fill_null(ranks, -1).cast(pa.int64()).to_numpy(zero_copy_only=False))
    return ranked
