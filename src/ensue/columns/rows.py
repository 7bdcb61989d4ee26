"""Rows out of columns, with the column's type untouched."""

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.columns.buffers import Ints, fixed_array

_FEW = 64  # rows of a column that a part of it may keep in memory


def no_rows(schema: pa.Schema) -> pa.Table:
    """A table without rows, of any types: Arrow's own knows no dictionaries inside events."""
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


def whole_column(events: pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    """A column in one piece if it fits into one."""
    column = events.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    if types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    try:
        return column.combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowCapacityError, pa.ArrowNotImplementedError):
        return column


def rows_taken(table: pa.Table, places: Ints) -> pa.Table:
    """Some rows of a table.

    >>> import numpy as np
    >>> views = pa.table({"x": pa.array(["a", "b"], pa.string_view())})
    >>> rows_taken(views, np.array([1])).to_pylist()
    [{'x': 'b'}]
    """
    try:
        return table.take(pa.array(places))
    except pa.ArrowNotImplementedError:
        columns = [taken(whole_column(table, name), places) for name in table.column_names]
        return pa.table(columns, schema=table.schema)


def taken(column: pa.Array | pa.ChunkedArray, rows: Ints) -> pa.Array:
    """The values at some rows; null where the row is -1.

    >>> import numpy as np
    >>> taken(pa.array(["x", "y"]), np.array([1, -1])).to_pylist()
    ['y', None]
    """
    if 0 < len(rows) <= len(column) <= _FEW:  # Arrow's own way takes as long as for many
        first = int(rows[0])
        if first >= 0 and rows.tolist() == list(range(first, first + len(rows))):
            part = column.slice(first, len(rows))
            return part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part
    bound = rows >= 0
    places = fixed_array(pa.int64(), rows, None if bool(bound.all()) else bound)
    try:
        found = column.take(places)
    except pa.ArrowNotImplementedError:
        return _taken_otherwise(column, places)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _taken_otherwise(column: pa.Array | pa.ChunkedArray, places: pa.Array) -> pa.Array:
    """For the types that Arrow has no kernel for."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    type = column.type
    if isinstance(column, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(type, _taken_otherwise(column.storage, places))
    if types.is_string_view(type):
        return column.cast(pa.large_string()).take(places).cast(type)
    if types.is_run_end_encoded(type):
        values = pc.run_end_decode(column).take(places)
        return pc.run_end_encode(values, run_end_type=type.run_end_type)
    values = column.to_pylist()
    return pa.array([None if p is None else values[p] for p in places.to_pylist()], type)
