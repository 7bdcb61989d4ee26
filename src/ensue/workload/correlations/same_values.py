"""`[attr]` over joined rows: a field that is the same in all events of both sides."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ensue.columns.buffers import Bools
from ensue.columns.keys import ColumnCodes
from ensue.columns.rows import taken
from ensue.columns.values import decoded
from ensue.results.joined import JoinedRows


def first_values(rows: JoinedRows, field: str) -> pa.Array:
    """The field of the first event that a match has, by the order of its variables."""
    found: pa.Array | None = None
    for side in rows.shape.sides:
        for variable in side.variables:
            if all(f.name != field for f in side.fields(variable)):
                continue
            column = rows.gathered.column(variable, field)
            values = decoded(taken(column, rows.gathered.matches.nth(variable, 1)))
            found = values if found is None else pc.coalesce(found, values.cast(found.type))
    assert found is not None, f"no event has a field {field}"
    return found


def same_in_all(rows: JoinedRows, sides: Sequence[int], field: str) -> Bools:
    """Whether all events of some sides have the same value, which equals itself."""
    matches, codes = rows.gathered.matches, ColumnCodes()
    least = np.full(matches.count, np.iinfo(np.int64).max)
    most = np.full(matches.count, -1, np.int64)
    for number in sides:
        side = rows.shape.sides[number]
        for variable in side.variables:
            if all(f.name != field for f in side.fields(variable)):
                continue  # a result of an operator has no such field
            offsets, elements = matches.segments(variable)
            column = taken(rows.gathered.column(variable, field), elements)
            found = codes.encode(column).astype(np.int64)
            of = np.repeat(np.arange(matches.count), np.diff(offsets))
            np.minimum.at(least, of, found)
            np.maximum.at(most, of, found)
    return np.asarray((least == most) & (least >= 0), np.bool_)
