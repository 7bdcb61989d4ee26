"""Plans a MATCH_RECOGNIZE clause: predicates by row and by match, lookback, and types."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from ensue.analyzer.types import infer_kind
from ensue.cached import cached_property
from ensue.functions.row_aggregates import find_row_aggregate
from ensue.ir.expression import Binary, Expr, FieldRef, Literal
from ensue.ir.row_pattern import (
    CLASSIFIER,
    MATCH_COLUMNS,
    MATCH_NUMBER,
    OPERAND,
    ROW,
    MatchNumber,
    Navigation,
    RowAggregate,
    RowExpression,
    RowOperand,
    RowPatternQuery,
    reads_match_columns,
)
from ensue.ir.traversal import iterate_nodes, rewrite_expr
from ensue.planner.row_pattern_automaton import RowPatternAutomaton, build_row_automaton
from ensue.schema import ValueKind


@dataclass(frozen=True, slots=True)
class RowPredicates:
    """Predicates of a variable: on the row and its neighbours, and on the match."""

    alone: tuple[RowExpression, ...] = ()  # vectorised over columns, before the search
    matched: tuple[RowExpression, ...] = ()  # evaluated as rows are mapped


def _split(variable: str, value: RowExpression) -> RowPredicates:
    value = _resolve_classifier(variable, value)
    alone: list[RowExpression] = []
    matched: list[RowExpression] = []
    for conjunct in _conjuncts(value.expr):
        part = _part(conjunct, value)
        decided = all(is_own_row(reach, variable) for reach in part.operands)
        (alone if decided else matched).append(part)
    return RowPredicates(tuple(alone), tuple(matched))


def _conjuncts(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Binary(operator="and", left=left, right=right):
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield expr


def _part(expr: Expr, value: RowExpression) -> RowExpression:
    """A part of a value, with only the reaches that it uses."""
    numbers: dict[int, int] = {}

    def renumber(node: Expr) -> Expr:
        if isinstance(node, FieldRef) and node.variable == OPERAND:
            number = numbers.setdefault(int(node.name or 0), len(numbers))
            return replace(node, name=str(number))
        return node

    rewritten = rewrite_expr(expr, renumber)
    return RowExpression(rewritten, tuple(value.operands[n] for n in numbers), expr.span or value.span)


def is_own_row(reach: RowOperand, variable: str) -> bool:
    """Whether a reach of a variable's predicate is the row to be mapped, or one of its neighbours
    in the partition."""
    return _is_near(reach, variable) and not reads_match_columns(reach)


def _is_near(reach: RowOperand, variable: str) -> TypeGuard[Navigation]:
    return (
        isinstance(reach, Navigation)
        and not reach.first
        and reach.offset == 0
        and (not reach.variables or variable in reach.variables)
    )


def _resolve_classifier(variable: str, value: RowExpression) -> RowExpression:
    """Replaces CLASSIFIER() of the row to be mapped by the variable."""

    def resolve(reach: RowOperand) -> RowOperand:
        if not _is_near(reach, variable) or reach.shift or not reads_match_columns(reach):
            return reach

        def to_literal(node: Expr) -> Expr:
            if isinstance(node, FieldRef) and node.name == CLASSIFIER:
                return Literal(variable)
            return node

        return replace(reach, expr=rewrite_expr(reach.expr, to_literal))

    return replace(value, operands=tuple(map(resolve, value.operands)))


def compute_shifts(reaches: Iterator[RowOperand]) -> tuple[int, int]:
    """The number of rows read before and after those of a match."""
    back = ahead = 0
    for reach in reaches:
        if isinstance(reach, Navigation):
            back, ahead = max(back, -reach.shift), max(ahead, reach.shift)
    return back, ahead


def find_row_columns(expr: Expr) -> set[str]:
    """The columns of one row that an expression reads."""
    return {
        node.name
        for node in iterate_nodes(expr)
        if isinstance(node, FieldRef) and node.variable == ROW and node.name is not None
        if node.name not in MATCH_COLUMNS
    }


@dataclass(frozen=True)
class RowPatternPlan:
    """A clause that is checked against its table, with derived properties.

    It is pure and can be sent to other processes, which compile its kernels.
    """

    row_pattern: RowPatternQuery
    columns: Mapping[str, ValueKind]  # of the table

    @cached_property
    def automaton(self) -> RowPatternAutomaton:
        return build_row_automaton(self.row_pattern.pattern)

    @cached_property
    def conditions(self) -> tuple[RowPredicates, ...]:
        """By variable, in the order of the automaton."""
        defined = self.row_pattern.conditions
        return tuple(
            _split(variable, defined[variable]) if variable in defined else RowPredicates()
            for variable in self.row_pattern.variables
        )

    @property
    def is_decided_by_rows(self) -> bool:
        """Whether each row alone decides to which variables it can be mapped."""
        return self.row_pattern.within is None and not any(c.matched for c in self.conditions)

    @cached_property
    def back(self) -> int:
        """The number of rows before a match that its predicates and measures read."""
        return compute_shifts(self._reaches())[0]

    @cached_property
    def ahead(self) -> int:
        """The number of rows after a row that its predicates read."""
        reaches = (r for d in self.row_pattern.defines for r in d.value.operands)
        return compute_shifts(reaches)[1]

    @property
    def awaited(self) -> int:
        """The number of rows that must follow a row before it may end a match."""
        reaches = (r for m in self.row_pattern.measures for r in m.value.operands)
        return max(self.ahead, compute_shifts(reaches)[1])

    @cached_property
    def reads_match_number(self) -> bool:
        """Whether it reads MATCH_NUMBER()."""
        return any(isinstance(reach, MatchNumber) for reach in self._reaches())

    def _reaches(self) -> Iterator[RowOperand]:
        for value in self.row_pattern.values:
            yield from value.operands


OF_MATCH = {CLASSIFIER: ValueKind.STRING, MATCH_NUMBER: ValueKind.INTEGER}


def infer_row_kind(expr: Expr, columns: Mapping[str, ValueKind]) -> ValueKind:
    """The type of an expression over the columns of one row."""

    def column(field: FieldRef) -> ValueKind:
        assert field.name is not None
        return OF_MATCH.get(field.name) or columns[field.name]

    return infer_kind(expr, column)


def infer_reach_kind(reach: RowOperand, columns: Mapping[str, ValueKind]) -> ValueKind:
    """The type of a reach; the list of an aggregate is OTHER."""
    match reach:
        case Navigation(expr=expr):
            return infer_row_kind(expr, columns)
        case MatchNumber():
            return ValueKind.INTEGER
        case RowAggregate(function=function, arguments=arguments):
            record = find_row_aggregate(function)
            assert record is not None
            kind = record.kind([infer_row_kind(argument, columns) for argument in arguments])
            assert kind is not None, f"{function} was checked"
            return kind


def infer_value_kind(value: RowExpression, columns: Mapping[str, ValueKind]) -> ValueKind:
    """The type of a value of MEASURES or DEFINE."""
    return infer_kind(value.expr, lambda leaf: infer_reach_kind(value.reach(leaf), columns))
