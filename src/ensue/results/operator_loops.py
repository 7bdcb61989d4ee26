"""Results of operators made of the events of matches, by a loop that is written for the query."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.algebra.form import is_input, is_result
from ensue.algebra.operator import TIMES
from ensue.algebra.pattern import Apply, Atom, Pattern
from ensue.algebra.walk import atoms, results
from ensue.columns import evaluate as vectors
from ensue.columns.arrow_kinds import Unit
from ensue.columns.buffers import Bools, frozen
from ensue.columns.matches import Matches
from ensue.plan.physical_rules.features import KERNEL_KINDS
from ensue.plan.physical_rules.user_operators import WHOLE, operator_of
from ensue.schema import Kind, Schema
from ensue.source import cache
from ensue.source.table_columns import Source

Array = npt.NDArray[np.generic]
Key = tuple[str, str]  # a result and what it has

_REALS = (Kind.FLOAT, Kind.DECIMAL)


@dataclass(frozen=True, slots=True)
class Numbers:
    """What results have, as the numbers of the engine, and where they are there."""

    values: Mapping[Key, Array]
    there: Mapping[str, Bools]


def of_numbers(pattern: Pattern) -> bool:
    """Whether the functions of all operators work on numbers only."""
    return all(
        kind in KERNEL_KINDS
        for applied in results(pattern)
        for kind in (
            *(r.kind for reads in applied.reads for r in reads),
            *(kind for _, kind in applied.operator.z),
        )
    ) and not any(isinstance(p.value, str) for a in results(pattern) for p in a.parameters)


def made_by_loop(
    pattern: Pattern,
    schema: Schema,
    unit: Unit,
    matches: Matches,
    events: pa.Table,
    *,
    python: bool,
) -> Numbers:
    """The results of every match; `python`: the functions are not compiled."""
    loop = _Loop(pattern, python)
    step = cache.loop(loop.text(), "make", python=python)
    real = schema.time_kind in _REALS

    def column(name: str, kind: Kind | None = None) -> Array:
        values = np.asarray(vectors.from_arrow(events.column(name), unit).values)
        return frozen(np.ascontiguousarray(values, _dtype(kind) if kind else _time(real)))

    values: dict[Key, Array] = {}
    there: dict[str, Bools] = {}
    for applied in loop.applied:
        there[applied.variable] = np.zeros(matches.count, np.bool_)
        for name in TIMES:
            values[applied.variable, name] = np.zeros(matches.count, _time(real))
        for name, kind in applied.operator.z:
            values[applied.variable, name] = np.zeros(matches.count, _dtype(kind))
    step(
        matches.count,
        column(schema.start),
        column(schema.end),
        *(column(name, kind) for name, kind in loop.columns.items()),
        *(frozen(matches.nth(variable, 1)) for variable in loop.events),
        *there.values(),
        *values.values(),
    )
    return Numbers(values, there)


def _time(real: bool) -> type[np.generic]:
    return np.float64 if real else np.int64


def _dtype(kind: Kind) -> type[np.generic]:
    return np.float64 if kind in _REALS else np.int64


class _Loop:
    """Writes the loop over matches."""

    def __init__(self, pattern: Pattern, python: bool) -> None:
        self.applied = list(results(pattern))
        self.python = python
        self.columns = {
            reading.column: reading.kind
            for applied in self.applied
            for part, reads in zip(applied.inputs, applied.reads, strict=True)
            for reading in reads
            if not (is_result(part) and reading.field in dict(part.operator.z))
        }
        inside = (atom.variable for a in self.applied for atom in atoms(a))
        self.events = list(dict.fromkeys(inside))
        self.number = {a.variable: k for k, a in enumerate(self.applied)}

    def text(self) -> str:
        head = Source()
        head('"""Generated: results of matches."""', "", "import math", "", "import numpy as np")
        head("from numba import njit", "")
        body = Source(depth=2)
        for applied in self.applied:
            node = operator_of(applied, self.number[applied.variable], python=self.python)
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

    def _made(self, out: Source, applied: Apply) -> None:
        number = self.number[applied.variable]
        node = operator_of(applied, number, python=self.python)
        parts = [p for p in applied.inputs if is_input(p)]
        members = [f"r{self.events.index(atom.variable)}[k]" for atom in atoms(applied)]
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

    def _value(self, part: Atom | Apply, name: str) -> str:
        """What an input has under a name."""
        if is_result(part):
            own = (*TIMES, *dict(part.operator.z))
            if name in own:
                return f"out{self.number[part.variable]}_{own.index(name)}[k]"
            (event,) = atoms(part)
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
