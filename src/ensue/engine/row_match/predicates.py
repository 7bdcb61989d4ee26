"""Conditions on the match so far, evaluated by a compiled kernel or row by row."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ensue.cached import cached_property
from ensue.codegen.kernel_cache import get_loop, load_interpreted
from ensue.codegen.row_pattern_conditions import RowPatternKernel, build_kernel
from ensue.codegen.row_pattern_search import SearchRegisters, VariableTexts, write_match_search
from ensue.engine.row_match.row_partitions import Partitions, rank_texts
from ensue.functions.interpreter import evaluate
from ensue.functions.row_aggregates import compute_row_aggregate, order_and_deduplicate
from ensue.ir.expression import Aggregate, Expr, FieldRef
from ensue.ir.row_pattern import (
    CLASSIFIER,
    MATCH_NUMBER,
    MatchNumber,
    Navigation,
    RowAggregate,
    RowExpression,
    RowOperand,
    iterate_operand_expressions,
    reads_match_columns,
)
from ensue.planner.row_pattern_plan import RowPatternPlan, find_row_columns
from ensue.schema import ValueKind
from ensue.vector.arrow_types import Unit
from ensue.vector.column_values import Vector, to_arrow

_WIDE = 2.0**62


class CompiledConditions:
    """The generated search of a clause, compiled; a search stores `wholes` and `reals` numbers."""

    def __init__(self, source: RowPatternKernel, *, nullable: bool) -> None:
        self._source = source
        self._nullable = nullable
        self.wholes = len(source.registers.wholes)
        self.reals = len(source.registers.reals)

    @cached_property
    def kernel(self) -> Callable[..., int]:
        return get_loop(self._source.text, "search")

    def arguments(self, partitions: Partitions) -> tuple[Any, ...] | None:
        """The constants and features of all rows; None if a sum might exceed 64 bits."""
        rows, features = partitions.rows, self._source.features
        whole = np.zeros((max(1, len(features)), rows), np.int64)
        real = np.zeros((max(1, len(features)), rows), np.float64)
        valid = np.ones((max(1, len(features)), rows if self._nullable else 1), np.bool_)
        texts: list[tuple[int, Vector]] = []
        for feature in features:
            vector = partitions.vector(feature.expr)
            if vector.valid is not None and not vector.valid.all():
                if not self._nullable:
                    return None
                valid[feature.number] = vector.valid
            if vector.kind is ValueKind.NULL:
                continue
            if vector.kind is ValueKind.STRING:
                texts.append((feature.number, vector))
            elif feature.integral:
                whole[feature.number] = vector.values
            else:
                real[feature.number] = vector.values
        for (number, _), ranks in zip(texts, rank_texts([v for _, v in texts]), strict=True):
            whole[number] = ranks
        for number in self._source.summed:
            most = float(np.abs(whole[number].astype(np.float64)).max()) if rows else 0.0
            if most * max(1, rows) >= _WIDE:
                return None
        return (*self._source.constants.arrays(), whole, real, valid)


class ConditionKernels:
    """The kernels that may evaluate the conditions of a clause, created on demand."""

    def __init__(self, plan: RowPatternPlan) -> None:
        self._plan = plan
        self._known: dict[tuple[Unit, bool], CompiledConditions | None] = {}

    def iterate_kernels(self, unit: Unit) -> Iterator[CompiledConditions]:
        """Yield the kernels for rows without and with NULL, if kernels support the conditions."""
        for nullable in (False, True):
            if (unit, nullable) not in self._known:
                kernel = build_kernel(self._plan, unit, nullable=nullable)
                self._known[unit, nullable] = None if kernel is None else CompiledConditions(kernel, nullable=nullable)
            conditions = self._known[unit, nullable]
            if conditions is not None:
                yield conditions


_WORK = 1 << 20  # rows that conditions may visit in the search from one row: some seconds

Mapped = tuple[int, int]  # a row, and the number of its variable
Kept = tuple[tuple[Mapped, ...], ...]  # for each group of rows that conditions visit


class TooMuchWorkError(Exception):
    """The search for a match exceeds its budget; the partition and its first row are arguments."""


class InterpretedConditions:
    """The generated search as Python, which interprets the conditions.

    Its state is one number: that of the rows which conditions can still reach, so that a search
    does not visit the same state twice.
    """

    wholes = 1
    reals = 0

    def __init__(self, plan: RowPatternPlan) -> None:
        self._plan = plan
        self._groups = _groups(plan)

    @cached_property
    def kernel(self) -> Callable[..., int]:
        row_pattern = self._plan.row_pattern
        in_time = "times[i] - times[r] < horizon and " if row_pattern.within is not None else ""
        takings = [
            VariableTexts(number, f"{in_time}F(v, i, h, p, number[p] + 1, r)", ("h = V(h, v, i)",))
            for number in range(len(self._plan.automaton.variables))
        ]
        registers = SearchRegisters(("h",), (), {"h": "0"})
        text = write_match_search("Conditions by their plain meaning.", takings, registers, ())
        return load_interpreted(text, "search")

    def arguments(self, partitions: Partitions) -> tuple[Any, ...]:
        interpreter = _Interpreter(self._plan, self._groups, partitions)
        return None, None, None, interpreter.fits, interpreter.remember


class _Interpreter:
    """Interprets conditions over the rows of some partitions."""

    def __init__(self, plan: RowPatternPlan, groups: "dict[_Group, int]", partitions: Partitions) -> None:
        self._conditions = [conditions.matched for conditions in plan.conditions]
        self._variables = plan.automaton.variables
        self._numbers = {name: number for number, name in enumerate(self._variables)}
        self._groups = groups
        self._bounds = partitions.bounds.tolist()
        names: set[str] = set()
        for conditions in self._conditions:
            for condition in conditions:
                for reach in condition.operands:
                    for expr in iterate_operand_expressions(reach):
                        names |= find_row_columns(expr)
        unit = partitions.unit
        self._columns = {name: to_arrow(partitions.column(name), unit).to_pylist() for name in names}
        self._kept: list[Kept] = [((),) * len(groups)]  # by number
        self._known: dict[Kept, int] = {self._kept[0]: 0}
        self._start = (-1, -1)  # the partition and the row at which the search starts
        self._work = 0  # since then

    def remember(self, kept: int, variable: int, row: int) -> int:
        """The state after a row is mapped to a variable."""
        return self._number(self._with(self._kept[kept], variable, row))

    def _number(self, kept: Kept) -> int:
        number = self._known.setdefault(kept, len(self._kept))
        if number == len(self._kept):
            self._kept.append(kept)
        return number

    def _with(self, kept: Kept, variable: int, row: int) -> Kept:
        return tuple(
            group.with_row(rows, (row, variable)) if not group.variables or variable in group.variables else rows
            for group, rows in zip(self._groups, kept, strict=True)
        )

    def fits(self, variable: int, row: int, kept: int, p: int, number: int, start: int) -> bool:
        """Whether a row may be mapped to a variable in a state."""
        conditions = self._conditions[variable]
        before = self._kept[kept]
        bounds = self._bounds[p], self._bounds[p + 1]
        self._count(p, start, 1 + len(conditions) * sum(map(len, before)), bounds[1] - bounds[0])
        if not conditions:
            return True
        rows = self._with(before, variable, row)
        return all(self._holds(c, rows, bounds, int(number)) for c in conditions)

    def _count(self, p: int, start: int, work: int, rows: int) -> None:
        """Count work; one pass over all pairs of rows of a partition is always allowed."""
        if self._start != (p, start):
            self._start, self._work = (p, start), 0
        self._work += work
        if self._work > _WORK + rows * rows:
            raise TooMuchWorkError(p, start)

    def _holds(self, condition: RowExpression, rows: Kept, bounds: tuple[int, int], number: int) -> bool:
        def reached(leaf: FieldRef | Aggregate) -> object:
            assert isinstance(leaf, FieldRef)
            return self._read_operand(condition.reach(leaf), rows, bounds, number)

        return evaluate(condition.expr, reached) is True

    def _read_operand(self, reach: RowOperand, rows: Kept, bounds: tuple[int, int], number: int) -> object:
        if isinstance(reach, MatchNumber):
            return number
        kept = rows[self._groups[_group(reach, self._numbers)]]
        labels = dict(kept) if reads_match_columns(reach) else {}
        match reach:
            case Navigation(variables=variables):
                numbers = {self._numbers[v] for v in variables}
                places = [m for m in kept if not numbers or m[1] in numbers]
                if reach.offset >= len(places):
                    return None
                place, _ = places[reach.offset] if reach.first else places[-1 - reach.offset]
                return self._at(place + reach.shift, reach.expr, labels, bounds, number)
            case RowAggregate(arguments=arguments, only=only):
                numbers = {self._numbers[v] for v in reach.variables}
                members = [row for row, v in kept if not numbers or v in numbers]
                if only is not None:
                    members = [m for m in members if self._at(m, only, labels, bounds, number) is True]
                values = [tuple(self._at(m, a, labels, bounds, number) for a in arguments) for m in members]
                keys = [tuple(self._at(m, o.expr, labels, bounds, number) for o in reach.order) for m in members]
                return compute_row_aggregate(reach.function, order_and_deduplicate(reach, values, keys))

    def _at(self, row: int, expr: Expr, labels: Mapping[int, int], bounds: tuple[int, int], number: int) -> object:
        if not bounds[0] <= row < bounds[1]:
            return None

        def column(field: FieldRef | Aggregate) -> object:
            assert isinstance(field, FieldRef)
            assert field.name is not None
            if field.name == MATCH_NUMBER:
                return number
            if field.name != CLASSIFIER:
                return self._columns[field.name][row]
            return self._variables[labels[row]] if row in labels else None

        return evaluate(expr, column)


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows that conditions visit: the first, the last, or all rows of some variables."""

    variables: frozenset[int]  # empty: all variables
    first: int | None  # how many of the first rows are needed
    last: int | None  # how many of the last rows are needed; None for both: all

    def with_row(self, rows: tuple[Mapped, ...], row: Mapped) -> tuple[Mapped, ...]:
        if self.first is not None:
            return rows if len(rows) == self.first else (*rows, row)
        longer = (*rows, row)
        return longer if self.last is None else longer[-self.last :]


def _group(reach: Navigation | RowAggregate, numbers: dict[str, int]) -> _Group:
    variables = frozenset(numbers[v] for v in reach.variables)
    if isinstance(reach, RowAggregate):
        return _Group(variables, None, None)
    if reads_match_columns(reach) and reach.shift:
        return _Group(frozenset(), None, None)  # a neighbour may be of any variable
    if reach.first:
        return _Group(variables, reach.offset + 1, None)
    return _Group(variables, None, reach.offset + 1)


def _groups(plan: RowPatternPlan) -> dict[_Group, int]:
    numbers = {name: number for number, name in enumerate(plan.automaton.variables)}
    groups: dict[_Group, int] = {}
    for conditions in plan.conditions:
        for condition in conditions.matched:
            for reach in condition.operands:
                if not isinstance(reach, MatchNumber):
                    groups.setdefault(_group(reach, numbers), len(groups))
    return groups
