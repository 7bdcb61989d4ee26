"""The attributes of user operators' results, one value per match."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.analyzer.user_operators import get_read_columns
from ensue.codegen import kernel_cache
from ensue.codegen.state_layout import SourceWriter
from ensue.ir.pattern import Atom, OperatorCall, Pattern
from ensue.ir.query import Query
from ensue.ir.traits import is_input, is_operator_call
from ensue.ir.traversal import iterate_atoms, iterate_operator_calls, map_results_to_events
from ensue.ir.user_operator import TIME_ATTRIBUTES
from ensue.planner.features import KERNEL_KINDS
from ensue.planner.join_operators import WHOLE, describe_operator
from ensue.schema import Schema, ValueKind
from ensue.vector import evaluation
from ensue.vector.arrow_numpy import Bools, as_read_only, sorted_unique, wrap_numbers
from ensue.vector.arrow_types import Unit, plain_type, time_unit
from ensue.vector.column_values import Vector, arrow_type, to_arrow
from ensue.vector.match_rows import Matches

if TYPE_CHECKING:
    from ensue.reference import Binding, Event


@dataclass(frozen=True, slots=True)
class OperatorColumns:
    """The attributes of results by variable and name, and the matches that have a result."""

    columns: Mapping[str, Mapping[str, pa.Array]]
    there: Mapping[str, Bools]


class OperatorProjection:
    """Computes the results of a query's operators."""

    def __init__(self, query: Query, schema: Schema, arrow: pa.Schema) -> None:
        self.applied = {applied.variable: applied for applied in iterate_operator_calls(query.pattern)}
        self.origins = map_results_to_events(query.pattern)
        self._query = query
        self._schema = schema
        self._arrow = arrow
        self._unit = time_unit(arrow)

    def list_attributes(self, variable: str) -> tuple[str, ...]:
        """The attributes of a result besides the fields of its event."""
        return (*TIME_ATTRIBUTES, *(name for name, _ in self.applied[variable].operator.z))

    def get_type(self, variable: str, name: str) -> pa.DataType:
        """The type of an attribute; times have that of the events' times."""
        kind = self._get_kind(variable, name)
        if name in TIME_ATTRIBUTES and kind is self._schema.time_kind:
            column = self._schema.start if name == "start" else self._schema.end
            return plain_type(self._arrow.field(column).type)
        return arrow_type(kind, self._unit, None)

    def _get_kind(self, variable: str, name: str) -> ValueKind:
        applied = self.applied[variable]
        kind = applied.time if name in TIME_ATTRIBUTES else dict(applied.operator.z)[name]
        assert kind is not None
        return kind

    def compute(self, matches: Matches, events: pa.Table) -> OperatorColumns:
        """Computes the results of matches from their events."""
        from ensue.codegen.user_functions import find_uncompilable
        from ensue.reference import add_operator_results

        columns: dict[str, dict[str, pa.Array]] = {name: {} for name in self.applied}
        pattern = self._query.pattern
        if is_numeric_only(pattern):
            python = bool(find_uncompilable(self._query))
            numbers, there = compute_results(pattern, self._schema, self._unit, matches, events, python=python)
            for (variable, name), values in numbers.items():
                array = self._array(variable, name, values, there[variable])
                columns[variable][name] = array
            return OperatorColumns(columns, there)
        bindings = [add_operator_results(pattern, b) for b in self._bindings(matches, events)]
        there = {}
        for variable in self.applied:
            results = [b[variable][0] if variable in b else None for b in bindings]
            there[variable] = np.array([result is not None for result in results], np.bool_)
            for name in self.list_attributes(variable):
                columns[variable][name] = self._column(variable, name, results, there[variable])
        return OperatorColumns(columns, there)

    def _bindings(self, matches: Matches, events: pa.Table) -> "list[Binding]":
        from ensue.engine.reference_events import read_events

        variables = [atom.variable for applied in self.applied.values() for atom in iterate_atoms(applied)]
        bound = {v: matches.nth(v, 1) for v in dict.fromkeys(variables)}
        rows = sorted_unique(np.concatenate([*bound.values(), np.zeros(0, np.int64)]))
        rows = rows[rows >= 0]
        schema, computed = self._schema, get_read_columns(self._query.pattern)
        names = {schema.start, schema.end, schema.type_column, *computed}
        used = events.select([n for n in events.column_names if n in names])
        inputs = used.take(wrap_numbers(rows))
        members = read_events(inputs, schema, self._unit, rows=rows, computed=computed)
        by_row = {event.position: event for event in members}
        return [{v: (by_row[at[k]],) for v, at in bound.items() if at[k] >= 0} for k in range(matches.count)]

    def _column(self, variable: str, name: str, results: "list[Event | None]", there: Bools) -> pa.Array:
        def get_value(result: "Event") -> Any:
            return getattr(result, name) if name in TIME_ATTRIBUTES else result.numbers[name]

        kind = self._get_kind(variable, name)
        values = [None if result is None else get_value(result) for result in results]
        if kind is ValueKind.STRING:
            return pa.array(values, self.get_type(variable, name))
        is_time = kind in (ValueKind.TIMESTAMP, ValueKind.DURATION)
        scale = self.applied[variable].tick if is_time else 1
        numbers = [0 if v is None else v if scale == 1 else v // scale for v in values]
        return self._array(variable, name, np.array(numbers), there)

    def _array(self, variable: str, name: str, values: Any, there: Bools) -> pa.Array:
        type_, kind = self.get_type(variable, name), self._get_kind(variable, name)
        dtype = {ValueKind.FLOAT: np.float64, ValueKind.BOOLEAN: np.bool_}.get(kind, np.int64)
        vector = Vector(kind, values.astype(dtype), None if there.all() else there)
        array = to_arrow(vector, self._unit, None)
        return array if array.type == type_ else array.cast(type_, safe=False)


Array = npt.NDArray[np.generic]
Key = tuple[str, str]  # a result's variable and attribute

_REALS = (ValueKind.FLOAT, ValueKind.DECIMAL)


def is_numeric_only(pattern: Pattern) -> bool:
    """Whether the functions of all operators work on numbers only."""
    return all(
        kind in KERNEL_KINDS
        for applied in iterate_operator_calls(pattern)
        for kind in (*(r.kind for reads in applied.reads for r in reads), *(kind for _, kind in applied.operator.z))
    ) and not any(isinstance(p.value, str) for a in iterate_operator_calls(pattern) for p in a.parameters)


def compute_results(
    pattern: Pattern, schema: Schema, unit: Unit, matches: Matches, events: pa.Table, *, python: bool
) -> tuple[dict[Key, Array], dict[str, Bools]]:
    """The results of every match as numbers, by a generated loop, and the matches that have one;
    `python`: the functions are not compiled."""
    loop = _Loop(pattern, python)
    step = kernel_cache.get_loop(loop.text(), "make", python=python)
    real = schema.time_kind in _REALS

    def column(name: str, kind: ValueKind | None = None) -> Array:
        values = np.asarray(evaluation.from_arrow(events.column(name), unit).values)
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
    return values, there


def _time(real: bool) -> type[np.generic]:
    return np.float64 if real else np.int64


def _dtype(kind: ValueKind) -> type[np.generic]:
    return np.float64 if kind in _REALS else np.int64


class _Loop:
    """Generates the loop over matches."""

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
            self._write_result(body, applied)
        places = [f"c{k}" for k in range(len(self.columns))]
        rows = [f"r{k}" for k in range(len(self.events))]
        there = [f"there{k}" for k in range(len(self.applied))]
        outputs = [f"out{k}_{place}" for k, a in enumerate(self.applied) for place in range(2 + len(a.operator.z))]
        names = ["count", "starts", "ends", *places, *rows, *there, *outputs]
        head("", f"def make({', '.join(names)}):")
        with head:
            head("for k in range(count):")
        return head.text() + body.text()

    def _write_result(self, out: SourceWriter, applied: OperatorCall) -> None:
        number = self.number[applied.variable]
        node = describe_operator(applied, number, python=self.python)
        parts = [p for p in applied.inputs if is_input(p)]
        members = [f"r{self.events.index(atom.variable)}[k]" for atom in iterate_atoms(applied)]
        with out.block(f"if {' and '.join(f'{row} >= 0' for row in members)}:"):
            out(f"there{number}[k] = True")
            out(f"low = {_write_choice('min', [f'starts[{row}]' for row in members])}")
            out(f"high = {_write_choice('max', [f'ends[{row}]' for row in members])}")
            if node.builds is None:
                for place, (name, chosen) in enumerate((("start", "min"), ("end", "max"))):
                    values = [self._value(p, name) for p in parts]
                    out(f"out{number}_{place}[k] = {_write_choice(chosen, values)}")
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
        """The expression of an input's attribute."""
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


def _write_choice(function: str, values: list[str]) -> str:
    return values[0] if len(values) == 1 else f"{function}({', '.join(values)})"
