"""Arrow tables as pandas tables, without what Arrow's own conversion loses.

Inside structs and lists Arrow makes plain integers of times in nanoseconds, and floats of integers
beside NULL. Here a time is a `pandas.Timestamp` wherever it is, and an integer stays one.
"""

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_EXACT = 2**53  # beyond it a float does not hold every whole number


def as_pandas(table: pa.Table) -> Any:
    """A pandas table of the same rows; events are dicts and lists of dicts.

    >>> times = pa.array([1_500_000_000_000_000_001, None], pa.timestamp("ns"))
    >>> event = pa.StructArray.from_arrays([times, pa.array([7, None])], ["t", "n"])
    >>> as_pandas(pa.table({"a": event}))["a"].tolist()[0]
    {'t': Timestamp('2017-07-14 02:40:00.000000001'), 'n': 7}
    """
    import pandas as pd

    columns = {}
    for number, field in enumerate(table.schema):
        column = table.column(number)
        if types.is_nested(field.type):
            columns[number] = pd.Series(_objects(column), dtype=object)
        elif _lost_as_float(column):
            columns[number] = column.to_pandas(types_mapper=_nullable)
        else:
            columns[number] = column.to_pandas()
    made = pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows))
    made.columns = pd.Index(table.column_names)
    return made


def _lost_as_float(column: pa.ChunkedArray) -> bool:
    """Whether integers beside NULL are too large for floats, which pandas takes for them."""
    if not column.null_count or column.type not in (pa.int64(), pa.uint64()):
        return False
    ends = pc.min_max(column).as_py()
    return ends["min"] is not None and max(-ends["min"], ends["max"]) > _EXACT


def _nullable(type: pa.DataType) -> Any:
    """pandas' own integers that may be NULL."""
    import pandas as pd

    return pd.Int64Dtype() if type == pa.int64() else pd.UInt64Dtype()


def _objects(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values as Python has them; None stands for NULL."""
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in _objects(chunk)]
    type = column.type
    if isinstance(column, pa.ExtensionArray):
        return list(column.to_pylist())
    if types.is_struct(type):
        names = [field.name for field in type]
        parts = [_objects(pc.struct_field(column, [number])) for number in range(len(names))]
        rows = zip(*parts, strict=True) if parts else [()] * len(column)
        return _known(column, [dict(zip(names, row, strict=True)) for row in rows])
    if types.is_list(type) or types.is_large_list(type):
        values = _objects(column.values)
        ends = column.offsets.to_pylist()
        return _known(column, [values[a:b] for a, b in pairwise(ends)])
    if types.is_timestamp(type) or types.is_duration(type):
        return _known(column, column.to_pandas().astype(object).tolist())
    if types.is_integer(type):
        return _known(column, column.fill_null(0).to_numpy().tolist())
    return list(column.to_pylist())


def _known(column: pa.Array, values: list[Any]) -> list[Any]:
    """The values, with None for what is NULL."""
    if not column.null_count:
        return values
    there = column.is_valid().to_pylist()
    return [value if known else None for value, known in zip(values, there, strict=True)]
