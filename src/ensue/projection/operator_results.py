"""What the results of users' operators have, for matches: one value a match."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.analyzer.user_operators import get_read_columns
from ensue.codegen import kernel_cache as cache
from ensue.codegen.state_layout import SourceWriter
from ensue.ir.pattern import Atom, OperatorCall, Pattern
from ensue.ir.query import Query
from ensue.ir.traits import is_input, is_operator_call
from ensue.ir.traversal import iterate_atoms, iterate_operator_calls, map_results_to_events
from ensue.ir.user_operator import TIME_ATTRIBUTES
from ensue.planner.features import KERNEL_KINDS
from ensue.planner.join_operators import WHOLE, describe_operator
from ensue.schema import Schema, ValueKind
from ensue.vector import evaluation as vectors
from ensue.vector.arrow_numpy import Bools, as_read_only, sorted_unique
from ensue.vector.arrow_types import Unit, plain_type, time_unit
from ensue.vector.column_values import Vector, arrow_type, to_arrow
from ensue.vector.match_rows import Matches

if TYPE_CHECKING:
    from ensue.reference import Binding, Event


@dataclass(frozen=True, slots=True)
class OperatorColumns:
    """The attributes of results, by variable and name, and where a result is there."""

    columns: Mapping[str, Mapping[str, pa.Array]]
    there: Mapping[str, Bools]


class OperatorProjection:
    """The results that a query's operators give."""

    def __init__(self, query: Query, schema: Schema, arrow: pa.Schema) -> None:
        self.applied = {
            applied.variable: applied for applied in iterate_operator_calls(query.pattern)
        }
        self.origins = map_results_to_events(query.pattern)
        self._pattern = query.pattern
        self._query = query
        self._schema = schema
        self._arrow = arrow
        self._unit = time_unit(arrow)

    def own(self, variable: str) -> tuple[str, ...]:
        """What a result has beside the fields of its event."""
        return (*TIME_ATTRIBUTES, *(name for name, _ in self.applied[variable].operator.z))

    def type_of(self, variable: str, name: str) -> pa.DataType:
        """The type of an attribute; times have that of the events' times."""
        if name in TIME_ATTRIBUTES:
            column = self._schema.start if name == "start" else self._schema.end
            type_ = plain_type(self._arrow.field(column).type)
            kind = self.applied[variable].time
            assert kind is not None
            plain = kind is self._schema.time_kind
            return type_ if plain else arrow_type(kind, self._unit, None)
        return arrow_type(dict(self.applied[variable].operator.z)[name], self._unit, None)

    def made(self, matches: Matches, events: pa.Table) -> OperatorColumns:
        """The results of matches, made of their events again."""
        from ensue.reference import add_operator_results

        if is_numeric_only(self._pattern):
            return self._by_loop(matches, events)
        found = [add_operator_results(self._pattern, b) for b in self._bindings(matches, events)]
        columns: dict[str, dict[str, pa.Array]] = {}
        there: dict[str, Bools] = {}
        for variable in self.applied:
            made = [b[variable][0] if variable in b else None for b in found]
            there[variable] = np.array([m is not None for m in made], np.bool_)
            columns[variable] = {
                name: self._column(variable, name, made, there[variable])
                for name in self.own(variable)
            }
        return OperatorColumns(columns, there)

    def _by_loop(self, matches: Matches, events: pa.Table) -> OperatorColumns:
        from ensue.codegen.user_functions import find_uncompilable

        python = bool(find_uncompilable(self._query))
        numbers = compute_results(
            self._pattern, self._schema, self._unit, matches, events, python=python
        )
        columns: dict[str, dict[str, pa.Array]] = {}
        for (variable, name), values in numbers.values.items():
            found = columns.setdefault(variable, {})
            found[name] = self._array(variable, name, values, numbers.there[variable])
        return OperatorColumns(columns, numbers.there)

    def _bindings(self, matches: Matches, events: pa.Table) -> "list[Binding]":
        from ensue.engine.reference_events import read_events

        variables = [
            atom.variable for applied in self.applied.values() for atom in iterate_atoms(applied)
        ]
        bound = {v: matches.nth(v, 1) for v in dict.fromkeys(variables)}
        rows = sorted_unique(np.concatenate([*bound.values(), np.zeros(0, np.int64)]))
        rows = rows[rows >= 0]
        schema = self._schema
        wanted = {
            schema.start,
            schema.end,
            schema.type_column,
            *get_read_columns(self._pattern),
        } - {None}
        used = events.select([n for n in events.column_names if n in wanted])
        inputs = used.take(pa.array(rows))
        members = read_events(
            inputs, schema, self._unit, rows=rows, computed=get_read_columns(self._pattern)
        )
        by_row = {event.position: event for event in members}
        return [
            {v: (by_row[at[k]],) for v, at in bound.items() if at[k] >= 0}
            for k in range(matches.count)
        ]

    def _column(
        self, variable: str, name: str, made: "list[Event | None]", there: Bools
    ) -> pa.Array:
        type_ = self.type_of(variable, name)
        applied = self.applied[variable]
        kind = applied.time if name in TIME_ATTRIBUTES else dict(applied.operator.z)[name]
        assert kind is not None
        values = [None if m is None else _number(m, name) for m in made]
        if kind is ValueKind.STRING:
            return pa.array(values, type_)
        scale = applied.tick if kind in (ValueKind.TIMESTAMP, ValueKind.DURATION) else 1
        numbers = [0 if v is None else v if scale == 1 else v // scale for v in values]
        return self._array(variable, name, np.array(numbers), there)

    def _array(self, variable: str, name: str, values: Any, there: Bools) -> pa.Array:
        type_ = self.type_of(variable, name)
        applied = self.applied[variable]
        kind = applied.time if name in TIME_ATTRIBUTES else dict(applied.operator.z)[name]
        assert kind is not None
        dtype = {ValueKind.FLOAT: np.float64, ValueKind.BOOLEAN: np.bool_}.get(kind, np.int64)
        vector = Vector(kind, values.astype(dtype), None if there.all() else there)
        array = to_arrow(vector, self._unit, None)
        return array if array.type == type_ else array.cast(type_, safe=False)


def _number(made: "Event", name: str) -> Any:
    match name:
        case "start":
            return made.start
        case "end":
            return made.end
        case _:
            return made.numbers[name]


Array = npt.NDArray[np.generic]
Key = tuple[str, str]  # a result and what it has

_REALS = (ValueKind.FLOAT, ValueKind.DECIMAL)


@dataclass(frozen=True, slots=True)
class OperatorNumbers:
    """What results have, as the numbers of the engine, and where they are there."""

    values: Mapping[Key, Array]
    there: Mapping[str, Bools]


def is_numeric_only(pattern: Pattern) -> bool:
    """Whether the functions of all operators work on numbers only."""
    return all(
        kind in KERNEL_KINDS
        for applied in iterate_operator_calls(pattern)
        for kind in (
            *(r.kind for reads in applied.reads for r in reads),
            *(kind for _, kind in applied.operator.z),
        )
    ) and not any(
        isinstance(p.value, str) for a in iterate_operator_calls(pattern) for p in a.parameters
    )


def compute_results(
    pattern: Pattern,
    schema: Schema,
    unit: Unit,
    matches: Matches,
    events: pa.Table,
    *,
    python: bool,
) -> OperatorNumbers:
    """The results of every match; `python`: the functions are not compiled."""
    loop = _Loop(pattern, python)
    step = cache.get_loop(loop.text(), "make", python=python)
    real = schema.time_kind in _REALS

    def column(name: str, kind: ValueKind | None = None) -> Array:
        values = np.asarray(vectors.from_arrow(events.column(name), unit).values)
        return as_read_only(np.ascontiguousarray(values, _dtype(kind) if kind else _time(real)))

    values: dict[Key, Array] = {}
    there: dict[str, Bools] = {}
    for applied in loop.applied:
        there[applied.variable] = np.zeros(matches.count, np.bool_)
        for name in TIME_ATTRIBUTES:
            values[applied.variable, name] = np.zeros(matches.count, _time(real))
        for name, kind in applied.operator.z:
            values[applied.variable, name] = np.zeros(matches.count, _dtype(kind))
    step(
        matches.count,
        column(schema.start),
        column(schema.end),
        *(column(name, kind) for name, kind in loop.columns.items()),
        *(as_read_only(matches.nth(variable, 1)) for variable in loop.events),
        *there.values(),
        *values.values(),
    )
    return OperatorNumbers(values, there)


def _time(real: bool) -> type[np.generic]:
    return np.float64 if real else np.int64


def _dtype(kind: ValueKind) -> type[np.generic]:
    return np.float64 if kind in _REALS else np.int64


class _Loop:
    """Writes the loop over matches."""

    def __init__(self, pattern: Pattern, python: bool) -> None:
        self.applied = list(iterate_operator_calls(pattern))
        self.python = python
        self.columns = {
            reading.column: reading.kind
            for applied in self.applied
            for part, reads in zip(applied.inputs, applied.reads, strict=True)
            for reading in reads
            if not (is_operator_call(part) and reading.field in dict(part.operator.z))
        }
        inside = (atom.variable for a in self.applied for atom in iterate_atoms(a))
        self.events = list(dict.fromkeys(inside))
        self.number = {a.variable: k for k, a in enumerate(self.applied)}

    def text(self) -> str:
        head = SourceWriter()
        head('"""Generated: results of matches."""', "", "import math", "", "import numpy as np")
        head("from numba import njit", "")
        body = SourceWriter(depth=2)
        for applied in self.applied:
            node = describe_operator(applied, self.number[applied.variable], python=self.python)
            if node.builds is not None:
                head(*node.builds.text.splitlines(), "")
            self._made(body, applied)
        places = [f"c{k}" for k in range(len(self.columns))]
        rows = [f"r{k}" for k in range(len(self.events))]
        there = [f"there{k}" for k in range(len(self.applied))]
        outputs = [
            f"out{k}_{place}"
            for k, a in enumerate(self.applied)
            for place in range(2 + len(a.operator.z))
        ]
        names = ["count", "starts", "ends", *places, *rows, *there, *outputs]
        head("", f"def make({', '.join(names)}):")
        with head:
            head("for k in range(count):")
        return head.text() + body.text()

    def _made(self, out: SourceWriter, applied: OperatorCall) -> None:
        number = self.number[applied.variable]
        node = describe_operator(applied, number, python=self.python)
        parts = [p for p in applied.inputs if is_input(p)]
        members = [f"r{self.events.index(atom.variable)}[k]" for atom in iterate_atoms(applied)]
        with out.block(f"if {' and '.join(f'{row} >= 0' for row in members)}:"):
            out(f"there{number}[k] = True")
            out(f"low = {_chosen('min', [f'starts[{row}]' for row in members])}")
            out(f"high = {_chosen('max', [f'ends[{row}]' for row in members])}")
            if node.builds is None:
                for place, (name, chosen) in enumerate((("start", "min"), ("end", "max"))):
                    values = [self._value(p, name) for p in parts]
                    out(f"out{number}_{place}[k] = {_chosen(chosen, values)}")
                return
            values = []
            for argument in node.builds.arguments:
                if argument.side == WHOLE:
                    values.append("low" if argument.name == "start" else "high")
                else:
                    part = parts[min(argument.side, len(parts) - 1)]
                    values.append(self._value(part, argument.name))
            out(f"made = {node.builds.name}({', '.join(values)})")
            for place in range(2 + len(applied.operator.z)):
                out(f"out{number}_{place}[k] = made[{place}]")

    def _value(self, part: Atom | OperatorCall, name: str) -> str:
        """What an input has under a name."""
        if is_operator_call(part):
            own = (*TIME_ATTRIBUTES, *dict(part.operator.z))
            if name in own:
                return f"out{self.number[part.variable]}_{own.index(name)}[k]"
            (event,) = iterate_atoms(part)
            return self._value(event, name)
        row = f"r{self.events.index(part.variable)}[k]"
        match name:
            case "start":
                return f"starts[{row}]"
            case "end":
                return f"ends[{row}]"
            case _:
                return f"c{list(self.columns).index(name)}[{row}]"


def _chosen(function: str, values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"{function}({', '.join(values)})"
