"""What the results of users' operators have, for matches: one value a match."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ensue.algebra.check.applied import read
from ensue.algebra.operator import TIMES
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms, origins, results
from ensue.columns.arrow_kinds import plain_type, time_unit
from ensue.columns.buffers import Bools
from ensue.columns.distinct import distinct
from ensue.columns.matches import Matches
from ensue.columns.values import Vector, arrow_type, to_arrow
from ensue.results.operator_loops import made_by_loop, of_numbers
from ensue.schema import Kind, Schema
from ensue.semantics import Binding, Event, derived
from ensue.source.operator_functions import run_as_python


@dataclass(frozen=True, slots=True)
class Made:
    """The attributes of results, by variable and name, and where a result is there."""

    columns: Mapping[str, Mapping[str, pa.Array]]
    there: Mapping[str, Bools]


class Results:
    """The results that a query's operators give."""

    def __init__(self, query: Query, schema: Schema, arrow: pa.Schema) -> None:
        self.applied = {applied.variable: applied for applied in results(query.pattern)}
        self.origins = origins(query.pattern)
        self._pattern = query.pattern
        self._query = query
        self._schema = schema
        self._arrow = arrow
        self._unit = time_unit(arrow)

    def own(self, variable: str) -> tuple[str, ...]:
        """What a result has beside the fields of its event."""
        return (*TIMES, *(name for name, _ in self.applied[variable].operator.z))

    def type_of(self, variable: str, name: str) -> pa.DataType:
        """The type of an attribute; times have that of the events' times."""
        if name in TIMES:
            column = self._schema.start if name == "start" else self._schema.end
            type_ = plain_type(self._arrow.field(column).type)
            kind = self.applied[variable].time
            assert kind is not None
            plain = kind is self._schema.time_kind
            return type_ if plain else arrow_type(kind, self._unit, None)
        return arrow_type(dict(self.applied[variable].operator.z)[name], self._unit, None)

    def made(self, matches: Matches, events: pa.Table) -> Made:
        """The results of matches, made of their events again."""
        if of_numbers(self._pattern):
            return self._by_loop(matches, events)
        found = [derived(self._pattern, b) for b in self._bindings(matches, events)]
        columns: dict[str, dict[str, pa.Array]] = {}
        there: dict[str, Bools] = {}
        for variable in self.applied:
            made = [b[variable][0] if variable in b else None for b in found]
            there[variable] = np.array([m is not None for m in made], np.bool_)
            columns[variable] = {
                name: self._column(variable, name, made, there[variable])
                for name in self.own(variable)
            }
        return Made(columns, there)

    def _by_loop(self, matches: Matches, events: pa.Table) -> Made:
        python = bool(run_as_python(self._query))
        numbers = made_by_loop(
            self._pattern, self._schema, self._unit, matches, events, python=python
        )
        columns: dict[str, dict[str, pa.Array]] = {}
        for (variable, name), values in numbers.values.items():
            found = columns.setdefault(variable, {})
            found[name] = self._array(variable, name, values, numbers.there[variable])
        return Made(columns, numbers.there)

    def _bindings(self, matches: Matches, events: pa.Table) -> list[Binding]:
        from ensue.engine.reference_events import events_of

        variables = [atom.variable for applied in self.applied.values() for atom in atoms(applied)]
        bound = {v: matches.nth(v, 1) for v in dict.fromkeys(variables)}
        rows = distinct(np.concatenate([*bound.values(), np.zeros(0, np.int64)]))
        rows = rows[rows >= 0]
        schema = self._schema
        wanted = {schema.start, schema.end, schema.type_column, *read(self._pattern)} - {None}
        used = events.select([n for n in events.column_names if n in wanted])
        inputs = used.take(pa.array(rows))
        members = events_of(inputs, schema, self._unit, rows=rows, computed=read(self._pattern))
        by_row = {event.position: event for event in members}
        return [
            {v: (by_row[at[k]],) for v, at in bound.items() if at[k] >= 0}
            for k in range(matches.count)
        ]

    def _column(
        self, variable: str, name: str, made: list[Event | None], there: Bools
    ) -> pa.Array:
        type_ = self.type_of(variable, name)
        applied = self.applied[variable]
        kind = applied.time if name in TIMES else dict(applied.operator.z)[name]
        assert kind is not None
        values = [None if m is None else _number(m, name) for m in made]
        if kind is Kind.STRING:
            return pa.array(values, type_)
        scale = applied.tick if kind in (Kind.TIMESTAMP, Kind.DURATION) else 1
        numbers = [0 if v is None else v if scale == 1 else v // scale for v in values]
        return self._array(variable, name, np.array(numbers), there)

    def _array(self, variable: str, name: str, values: Any, there: Bools) -> pa.Array:
        type_ = self.type_of(variable, name)
        applied = self.applied[variable]
        kind = applied.time if name in TIMES else dict(applied.operator.z)[name]
        assert kind is not None
        dtype = {Kind.FLOAT: np.float64, Kind.BOOLEAN: np.bool_}.get(kind, np.int64)
        vector = Vector(kind, values.astype(dtype), None if there.all() else there)
        array = to_arrow(vector, self._unit, None)
        return array if array.type == type_ else array.cast(type_, safe=False)


def _number(made: Event, name: str) -> Any:
    match name:
        case "start":
            return made.start
        case "end":
            return made.end
        case _:
            return made.numbers[name]
