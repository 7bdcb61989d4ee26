"""The reference semantics as a matcher: for what no kernel takes yet."""

from typing import Any

import numpy as np
import pyarrow as pa

from ensue.algebra.walk import atoms, kleenes, positives
from ensue.compile import vectors
from ensue.compile.arrow_kinds import Unit
from ensue.compile.matches import Matches
from ensue.plan.physical import Plan
from ensue.schema import Schema
from ensue.semantics import Binding, Event, matches


class ReferenceEngine:
    """Collects the events and judges them when the stream is over."""

    def __init__(self, plan: Plan, schema: Schema, unit: Unit) -> None:
        self.plan = plan
        self.schema = schema
        self.unit = unit
        self.rows = 0
        self.pieces: list[pa.Table] = []

    def feed(self, events: pa.Table) -> Matches:
        self.pieces.append(events)
        self.rows += events.num_rows
        return rows_of(self.plan, [])

    def finish(self) -> Matches:
        if not self.pieces:
            return rows_of(self.plan, [])
        whole = pa.concat_tables(self.pieces)
        only = next(iter(atoms(self.plan.query.pattern))).type
        events = events_of(whole, self.schema, self.unit, untyped=only)
        return rows_of(self.plan, matches(self.plan.query, events))


def events_of(table: pa.Table, schema: Schema, unit: Unit, *, untyped: str = "") -> list[Event]:
    """The rows of a table, which is in the order of the stream, as events.

    `untyped` is the type of all of them where no column says it.

    >>> from ensue.schema import Kind, one_table
    >>> table = pa.table({"t": [1, 2], "kind": ["A", "B"]})
    >>> schema = one_table({"t": Kind.INTEGER, "kind": Kind.STRING}, time="t", type_column="kind")
    >>> [(e.position, e.type, e.end) for e in events_of(table, schema, "us")]
    [(0, 'A', 1), (1, 'B', 2)]
    """
    scale = 1_000 if unit == "us" and schema.time_kind.value in ("timestamp", "date") else 1
    starts, ends = (
        np.asarray(vectors.from_arrow(table.column(name), unit).values).tolist()
        for name in (schema.start, schema.end)
    )
    columns = {name: _values(table.column(name)) for name in table.column_names}
    found = []
    for row in range(table.num_rows):
        values = {name: column[row] for name, column in columns.items()}
        kind = untyped if schema.type_column is None else _type(values[schema.type_column])
        found.append(Event(row, kind, starts[row] * scale, ends[row] * scale, values))
    return found


def _type(value: object) -> str:
    return "" if value is None else str(value)


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    if pa.types.is_duration(column.type) and column.type.unit == "ns":
        column = column.cast(pa.duration("us"), safe=False)
    return list(column.to_pylist())


def rows_of(plan: Plan, found: list[Binding]) -> Matches:
    """Bindings as rows of the stream."""
    several = kleenes(plan.query.pattern)
    rows: dict[str, Any] = {}
    lists: dict[str, Any] = {}
    for atom in positives(plan.query.pattern):
        variable = atom.variable
        members = [[e.position for e in b.get(variable, ())] for b in found]
        if variable in several:
            offsets = np.zeros(len(found) + 1, np.int64)
            np.cumsum([len(m) for m in members], out=offsets[1:])
            flat = [row for m in members for row in m]
            lists[variable] = (offsets, np.array(flat, np.int64))
        else:
            rows[variable] = np.array([m[0] if m else -1 for m in members], np.int64)
    return Matches(rows, lists, len(found))
