"""Where a match of a clause begins and ends, and what of a table decides it."""

import math
from enum import Enum

from ensue.algebra.predicate import Field
from ensue.algebra.row_patterns.pattern import (
    Alternation,
    Anchor,
    Concatenation,
    Exclusion,
    Nothing,
    Permutation,
    Repetition,
    Row,
    RowTerm,
    nullable,
)
from ensue.algebra.row_patterns.recognition import Recognition
from ensue.algebra.row_patterns.values import Navigation, RowAggregate, RowValue, asks_match


class End(Enum):
    """An end of a match in time."""

    FIRST = "first row"
    LAST = "last row"


def alone(recognition: Recognition) -> bool:
    """Whether a match is one row, and nothing but this row has a say in it.

    >>> from ensue.languages.row_patterns.clause import read_bare
    >>> alone(read_bare("(PATTERN (A) DEFINE A AS A.x > 1)"))
    True
    >>> alone(read_bare("(PATTERN (A) DEFINE A AS A.x > PREV(A.x))"))
    False
    """
    if not isinstance(_bare(recognition.pattern), Row):
        return False
    return all(map(_of_one_row, recognition.values))


def _bare(term: RowTerm) -> RowTerm:
    while isinstance(term, Exclusion) or (
        isinstance(term, Concatenation | Alternation | Permutation) and len(term.parts) == 1
    ):
        term = term.part if isinstance(term, Exclusion) else term.parts[0]
    return term


def _of_one_row(value: RowValue) -> bool:
    for reach in value.reaches:
        match reach:
            case Navigation(shift=shift) if shift == 0 and not asks_match(reach):
                continue
            case RowAggregate() if not asks_match(reach):
                continue
            case _:
                return False
    return True


def ends_of(recognition: Recognition, value: RowValue) -> frozenset[End]:
    """The ends of a match whose time a measure is, whatever is matched.

    The clause is checked against its table, and its pattern matches at least one row.
    """
    only = value.only
    if not isinstance(only, Navigation) or not recognition.order:
        return frozenset()
    if only.expr != recognition.order[0].expr or only.shift or only.offset:
        return frozenset()
    pattern = recognition.pattern
    single = _most(pattern, None) == 1
    mapped = frozenset(only.variables or recognition.variables)
    once = _most(pattern, mapped) <= 1
    found = set()
    if (only.first or once) and _firsts(pattern) <= mapped:
        found.add(End.FIRST)
    if (not only.first or once) and _lasts(pattern) <= mapped:
        found.add(End.LAST)
    return frozenset(End) if found and single else frozenset(found)


def column_of_value(recognition: Recognition, value: RowValue) -> str | None:
    """The column that a measure is, or is NULL, and that all rows of its match have alike."""
    only = value.only
    if not isinstance(only, Navigation) or asks_match(only):
        return None
    expr = only.expr
    if not isinstance(expr, Field) or expr.name is None:
        return None
    if alone(recognition):
        return expr.name
    return expr.name if expr.name in {key.column for key in recognition.partition} else None


def outputs_alike(recognition: Recognition) -> dict[str, str]:
    """The columns that a checked clause gives and that tell its objects apart, and the columns of
    the table that they are."""
    found = {key.name: key.column for key in recognition.partition}
    found |= {m.name: column_of_value(recognition, m.value) for m in recognition.measures}
    return {name: column for name, column in found.items() if column is not None}


def _most(term: RowTerm, variables: frozenset[str] | None) -> float:
    """How many rows are mapped to some variables at the most; None: to any."""
    match term:
        case Row(variable=variable):
            return 1 if variables is None or variable in variables else 0
        case Nothing() | Anchor():
            return 0
        case Concatenation(parts=parts) | Permutation(parts=parts):
            return sum(_most(part, variables) for part in parts)
        case Alternation(parts=parts):
            return max(_most(part, variables) for part in parts)
        case Exclusion(part=part):
            return _most(part, variables)
        case Repetition(part=part, most=most):
            inside = _most(part, variables)
            return 0 if not inside else inside * (math.inf if most is None else most)


def _firsts(term: RowTerm) -> frozenset[str]:
    """The variables that the first row may be mapped to."""
    return _at_an_end(term, forward=True)


def _lasts(term: RowTerm) -> frozenset[str]:
    """The variables that the last row may be mapped to."""
    return _at_an_end(term, forward=False)


def _at_an_end(term: RowTerm, *, forward: bool) -> frozenset[str]:
    match term:
        case Row(variable=variable):
            return frozenset([variable])
        case Nothing() | Anchor():
            return frozenset()
        case Concatenation(parts=parts):
            found: frozenset[str] = frozenset()
            for part in parts if forward else reversed(parts):
                found |= _at_an_end(part, forward=forward)
                if not nullable(part):
                    break
            return found
        case Alternation(parts=parts) | Permutation(parts=parts):
            return frozenset().union(*(_at_an_end(part, forward=forward) for part in parts))
        case Repetition(part=part) | Exclusion(part=part):
            return _at_an_end(part, forward=forward)
