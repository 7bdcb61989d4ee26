"""Which parts of DEFINE a row alone decides, and what the others look at."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ensue.algebra.predicate import Binary, Expr, Field, Literal
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.row_patterns.values import (
    CLASSIFIER,
    OF_THE_MATCH,
    REACHED,
    ROW,
    Navigation,
    Reach,
    RowValue,
    asks_match,
)
from ensue.algebra.walk import nodes, rewrite_expr


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a variable asks of a row: of the row and its neighbours alone, and of the match."""

    alone: tuple[RowValue, ...] = ()  # over whole columns, before anything is matched
    matched: tuple[RowValue, ...] = ()  # as rows are mapped


def conditions_of(recognition: Recognition) -> tuple[Conditions, ...]:
    """The conditions of each variable of the pattern, in its order."""
    given = recognition.conditions
    return tuple(
        _split(variable, given[variable]) if variable in given else Conditions()
        for variable in recognition.variables
    )


def _split(variable: str, value: RowValue) -> Conditions:
    value = _named(variable, value)
    alone: list[RowValue] = []
    matched: list[RowValue] = []
    for conjunct in _conjuncts(value.expr):
        part = _part(conjunct, value)
        decided = all(is_own_row(reach, variable) for reach in part.reaches)
        (alone if decided else matched).append(part)
    return Conditions(tuple(alone), tuple(matched))


def _conjuncts(expr: Expr) -> Iterator[Expr]:
    match expr:
        case Binary(operator="and", left=left, right=right):
            yield from _conjuncts(left)
            yield from _conjuncts(right)
        case _:
            yield expr


def _part(expr: Expr, value: RowValue) -> RowValue:
    """A part of a value, with the reaches that it has."""
    numbers: dict[int, int] = {}

    def renumbered(node: Expr) -> Expr:
        if isinstance(node, Field) and node.variable == REACHED:
            number = numbers.setdefault(int(node.name or 0), len(numbers))
            return replace(node, name=str(number))
        return node

    rewritten = rewrite_expr(expr, renumbered)
    return RowValue(rewritten, tuple(value.reaches[n] for n in numbers), expr.span or value.span)


def is_own_row(reach: Reach, variable: str) -> bool:
    """Whether a reach of a variable's condition is the very row that is to be mapped to it, or
    one of its neighbours in the partition."""
    return (
        isinstance(reach, Navigation)
        and not reach.first
        and reach.offset == 0
        and (not reach.variables or variable in reach.variables)
        and not asks_match(reach)
    )


def _named(variable: str, value: RowValue) -> RowValue:
    """CLASSIFIER() of the row that is to be mapped is the variable itself."""

    def named(reach: Reach) -> Reach:
        own = (
            isinstance(reach, Navigation)
            and not reach.first
            and reach.offset == reach.shift == 0
            and (not reach.variables or variable in reach.variables)
        )
        if not own or not asks_match(reach):
            return reach
        assert isinstance(reach, Navigation)

        def known(node: Expr) -> Expr:
            if isinstance(node, Field) and node.name == CLASSIFIER:
                return Literal(variable)
            return node

        return replace(reach, expr=rewrite_expr(reach.expr, known))

    return replace(value, reaches=tuple(map(named, value.reaches)))


def shifts_of(reaches: Iterator[Reach]) -> tuple[int, int]:
    """How many rows before those of a match, and behind them, are looked at."""
    back = ahead = 0
    for reach in reaches:
        if isinstance(reach, Navigation):
            back, ahead = max(back, -reach.shift), max(ahead, reach.shift)
    return back, ahead


def row_columns(expr: Expr) -> set[str]:
    """The columns of one row that an expression reads."""
    return {
        node.name
        for node in nodes(expr)
        if isinstance(node, Field) and node.variable == ROW and node.name is not None
        if node.name not in OF_THE_MATCH
    }
