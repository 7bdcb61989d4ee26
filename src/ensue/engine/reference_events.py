"""The rows of tables as the events of the semantics, with the values that they have in Python."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.check.applied import read
from ensue.algebra.lapses import interval_ends
from ensue.algebra.predicate import Aggregate, Expr, Field, IsNull
from ensue.algebra.query import Query
from ensue.algebra.walk import operands
from ensue.columns import evaluate as vectors
from ensue.columns.arrow_kinds import Unit, kind_of_arrow
from ensue.columns.buffers import counted, single
from ensue.columns.values import decoded
from ensue.errors import EventError
from ensue.schema import Kind, Schema
from ensue.semantics import Event

Rows = npt.NDArray[np.int64]

_TEMPORAL = (Kind.TIMESTAMP, Kind.DATE, Kind.DURATION)


def computed_columns(query: Query) -> frozenset[str]:
    """The columns whose values conditions compute with: not those they count or test for NULL."""
    conditions = [*query.where, *(() if query.having is None else (query.having,))]
    conditions += interval_ends(query.pattern)
    return frozenset(n for c in conditions for n in _computed(c)) | frozenset(read(query.pattern))


def _computed(expr: Expr) -> Iterator[str]:
    match expr:
        case IsNull(operand=Field()) | Aggregate(function="count", argument=Field()):
            return
        case Field(name=str(name)):
            yield name
        case _:
            for operand in operands(expr):
                yield from _computed(operand)


def nanoseconds(schema: Schema, unit: Unit) -> int:
    """How many of the semantics' units one unit of the engine's time is."""
    return 1_000 if unit == "us" and schema.time_kind in (Kind.TIMESTAMP, Kind.DATE) else 1


def events_of(
    table: pa.Table,
    schema: Schema,
    unit: Unit,
    *,
    untyped: str = "",
    rows: Rows | None = None,
    computed: Collection[str] = (),
) -> list[Event]:
    """The rows of a table, which is in the order of the stream, as events.

    `untyped` is the type of all of them where no column says it; `rows` are their positions in
    the stream, where the table is only a part of it; `computed` are columns whose values must be
    those that kernels compute with.

    >>> from ensue.schema import Kind, one_table
    >>> table = pa.table({"t": [1, 2], "kind": ["A", "B"]})
    >>> schema = one_table({"t": Kind.INTEGER, "kind": Kind.STRING}, time="t", type_column="kind")
    >>> [(e.position, e.type, e.end) for e in events_of(table, schema, "us")]
    [(0, 'A', 1), (1, 'B', 2)]
    """
    scale = nanoseconds(schema, unit)
    positions = range(table.num_rows) if rows is None else rows.tolist()
    starts, ends = (
        np.asarray(vectors.from_arrow(table.column(name), unit, name).values).tolist()
        for name in (schema.start, schema.end)
    )
    for name in computed:
        if name in table.column_names:
            _ = vectors.from_arrow(table.column(name), unit, name).values  # or the reason why not
    columns = {
        name: _values(table.column(name), name, exact=name in computed)
        for name in table.column_names
    }
    found = []
    for row in range(table.num_rows):
        values = {name: column[row] for name, column in columns.items()}
        kind = untyped if schema.type_column is None else _type(values[schema.type_column])
        found.append(Event(positions[row], kind, starts[row] * scale, ends[row] * scale, values))
    return found


def _type(value: object) -> str:
    return "" if value is None else str(value)


def _values(column: pa.ChunkedArray, name: str, *, exact: bool) -> list[Any]:
    """The values of a column; times that Python does not have are counts: good as keys."""
    if kind_of_arrow(column.type) not in _TEMPORAL:
        return list(column.to_pylist())
    array = decoded(single(column))
    try:
        return list(_in_microseconds(array).to_pylist())
    except (pa.ArrowInvalid, OverflowError, ValueError):
        if exact:
            raise EventError(
                f"column '{name}' has times that only compiled queries compare: nanoseconds "
                "between two microseconds, or years outside 1 to 9999\n"
                "  hint: cast the column to microseconds, or see in ensue.explain why this query "
                "is not compiled"
            ) from None
    counts, known = counted(array, "us")[0].tolist(), array.is_valid().to_pylist()
    return [count if there else None for count, there in zip(counts, known, strict=True)]


def _in_microseconds(array: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        return array.cast(pa.timestamp("us", array.type.tz))
    if pa.types.is_duration(array.type) and array.type.unit == "ns":
        return array.cast(pa.duration("us"))
    return array
