"""Selecting rows of columns without changing their type."""

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from ensue.vector.arrow_numpy import Ints, fixed_array, wrap_numbers

_FEW = 64  # rows below which a slice may share the column's memory


def create_empty_table(schema: pa.Schema) -> pa.Table:
    """An empty table of any types; Arrow's own method fails for nested dictionaries."""
    return pa.table([pa.nulls(0, field.type) for field in schema], schema=schema)


def combine_column(events: pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
    """A column as one array, if it fits into one."""
    column = events.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    if types.is_dictionary(column.type):
        column = column.unify_dictionaries()
    try:
        return column.combine_chunks()
    except (pa.ArrowInvalid, pa.ArrowCapacityError, pa.ArrowNotImplementedError):
        return column


def take_rows(table: pa.Table, places: Ints) -> pa.Table:
    """Select rows of a table.

    >>> import numpy as np
    >>> views = pa.table({"x": pa.array(["a", "b"], pa.string_view())})
    >>> take_rows(views, np.array([1])).to_pylist()
    [{'x': 'b'}]
    """
    try:
        return table.take(wrap_numbers(places))
    except pa.ArrowNotImplementedError:
        columns = [take_values(combine_column(table, name), places) for name in table.column_names]
        return pa.table(columns, schema=table.schema)


def find_slice(rows: Ints, count: int) -> int | None:
    """The first of consecutive rows out of a few, for which Arrow's take has a high fixed cost; else None."""
    if not 0 < len(rows) <= count <= _FEW:
        return None
    first = int(rows[0])
    return first if first >= 0 and rows.tolist() == list(range(first, first + len(rows))) else None


def take_values(column: pa.Array | pa.ChunkedArray, rows: Ints) -> pa.Array:
    """Select values by row; null where the row is -1.

    >>> import numpy as np
    >>> take_values(pa.array(["x", "y"]), np.array([1, -1])).to_pylist()
    ['y', None]
    """
    if (first := find_slice(rows, len(column))) is not None:
        part = column.slice(first, len(rows))
        return part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part
    bound = rows >= 0
    places = fixed_array(pa.int64(), rows, None if bool(bound.all()) else bound)
    try:
        values = column.take(places)
    except pa.ArrowNotImplementedError:
        return _take_in_python(column, places)
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _take_in_python(column: pa.Array | pa.ChunkedArray, places: pa.Array) -> pa.Array:
    """Select rows of types for which Arrow has no kernel."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    type = column.type
    if isinstance(column, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(type, _take_in_python(column.storage, places))
    if types.is_string_view(type):
        return column.cast(pa.large_string()).take(places).cast(type)
    if types.is_run_end_encoded(type):
        values = pc.run_end_decode(column).take(places)
        return pc.run_end_encode(values, run_end_type=type.run_end_type)
    values = column.to_pylist()
    return pa.array([None if p is None else values[p] for p in places.to_pylist()], type)
