"""The one spelling of a MATCH_RECOGNIZE clause, which is read as the same clause."""

from collections.abc import Iterator
from datetime import timedelta

from ensue.algebra.durations import show_duration
from ensue.algebra.predicate import Expr, Field
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
)
from ensue.algebra.row_patterns.recognition import Key, Recognition, Skip
from ensue.algebra.row_patterns.values import (
    CLASSIFIER,
    NUMBER,
    MatchNumber,
    Navigation,
    OrderedBy,
    Reach,
    RowAggregate,
    RowValue,
)
from ensue.languages.row_patterns.scalar_text import show_name, show_scalar, show_variable

_BRANCHES, _SEQUENCE, _REPEATED, _ALONE = range(4)  # how tightly a pattern holds together

Subsets = tuple[tuple[str, tuple[str, ...]], ...]


def show_clause(recognition: Recognition) -> str:
    """A clause, a part a line.

    >>> from ensue.languages.row_patterns.clause import read_bare
    >>> print(show_clause(read_bare("(pattern (a b+) define b as b.price>prev(b.price))")))
    MATCH_RECOGNIZE (
      ONE ROW PER MATCH
      AFTER MATCH SKIP PAST LAST ROW
      PATTERN (A B+)
      DEFINE
        B AS B.price > PREV(B.price)
    )
    """
    lines = "\n".join(f"  {line}" for line in _lines(recognition))
    return f"MATCH_RECOGNIZE (\n{lines}\n)"


def _lines(recognition: Recognition) -> Iterator[str]:
    subsets = recognition.subsets
    if recognition.partition:
        yield "PARTITION BY " + ", ".join(map(_key, recognition.partition))
    if recognition.order:
        yield "ORDER BY " + ", ".join(_ordered(key, "") for key in recognition.order)
    if recognition.measures:
        yield "MEASURES"
        shown = [
            f"  {show_value(measure.value, subsets)} AS {show_name(measure.name)}"
            for measure in recognition.measures
        ]
        yield ",\n  ".join(shown)
    yield recognition.rows.value
    yield f"AFTER MATCH SKIP {_skip(recognition.skip)}"
    yield f"PATTERN ({show_pattern(recognition.pattern)})"
    if recognition.within is not None:
        yield f"WITHIN {_within(recognition.within)}"
    if subsets:
        yield "SUBSET " + ", ".join(_subset(*subset) for subset in subsets)
    if recognition.defines:
        yield "DEFINE"
        shown = [
            f"  {show_variable(define.variable)} AS {show_value(define.value, subsets)}"
            for define in recognition.defines
        ]
        yield ",\n  ".join(shown)


def _key(key: Key) -> str:
    shown = show_scalar(key.expr, lambda field: _column(field, ""))
    return shown if key.column == key.name else f"{shown} AS {show_name(key.name)}"


def _ordered(key: OrderedBy, owner: str) -> str:
    shown = show_scalar(key.expr, lambda field: _column(field, owner))
    descending = " DESC" if key.descending else ""
    return f"{shown}{descending}{' NULLS FIRST' if key.nulls_first else ''}"


def _skip(skip: Skip) -> str:
    return skip.to.value if skip.name is None else f"{skip.to.value} {show_variable(skip.name)}"


def _within(length: timedelta | int | float) -> str:
    if isinstance(length, timedelta):
        return f"INTERVAL '{show_duration(length // timedelta(microseconds=1) * 1000)}'"
    return repr(length)


def _subset(name: str, members: tuple[str, ...]) -> str:
    return f"{show_variable(name)} = ({', '.join(map(show_variable, members))})"


# ---------------------------------------------------------------------------------- the pattern


def show_pattern(term: RowTerm, inside: int = _BRANCHES) -> str:
    """A pattern; `inside` is how tightly what is around it holds.

    >>> show_pattern(Concatenation((Row("A"), Alternation((Row("B"), Nothing())))))
    'A (B | ())'
    """
    text, tightness = _shown_pattern(term)
    return f"({text})" if tightness < inside else text


def _shown_pattern(term: RowTerm) -> tuple[str, int]:
    match term:
        case Row(variable=variable):
            return show_variable(variable), _ALONE
        case Nothing():
            return "()", _ALONE
        case Anchor(at=at):
            return "^" if at == "start" else "$", _ALONE
        case Concatenation(parts=parts):
            return " ".join(show_pattern(part, _REPEATED) for part in parts), _SEQUENCE
        case Alternation(parts=parts):
            return " | ".join(show_pattern(part, _SEQUENCE) for part in parts), _BRANCHES
        case Permutation(parts=parts):
            return f"PERMUTE({', '.join(map(show_pattern, parts))})", _ALONE
        case Exclusion(part=part):
            return f"{{- {show_pattern(part)} -}}", _ALONE
        case Repetition(part=part, greedy=greedy):
            reluctant = "" if greedy else "?"
            return f"{show_pattern(part, _ALONE)}{_quantifier(term)}{reluctant}", _REPEATED


def _quantifier(repetition: Repetition) -> str:
    match repetition.least, repetition.most:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case least, None:
            return f"{{{least},}}"
        case least, most if least == most:
            return f"{{{least}}}"
        case least, most:
            return f"{{{least},{most}}}"


# -------------------------------------------------------------------------------------- values


def show_value(value: RowValue, subsets: Subsets = ()) -> str:
    """An expression of MEASURES or DEFINE."""
    return show_scalar(value.expr, lambda field: show_reach(value.reach(field), subsets))


def show_reach(reach: Reach, subsets: Subsets = ()) -> str:
    """What a value reaches.

    >>> show_reach(Navigation(Field("", "price"), ("A",), first=True, offset=2, shift=-1))
    'PREV(FIRST(A.price, 2))'
    """
    match reach:
        case MatchNumber():
            return "MATCH_NUMBER()"
        case Navigation():
            return _navigation(reach, _owner(reach.variables, subsets))
        case RowAggregate():
            return _aggregate(reach, _owner(reach.variables, subsets))


def _owner(variables: tuple[str, ...], subsets: Subsets) -> str:
    """The name of some variables, as it is written; empty: of all rows."""
    if len(variables) > 1:
        return next(show_variable(name) for name, members in subsets if members == variables)
    return show_variable(variables[0]) if variables else ""


def _column(field: Field, owner: str) -> str:
    assert field.name is not None
    if field.name == CLASSIFIER:
        return f"CLASSIFIER({owner})"
    if field.name == NUMBER:
        return "MATCH_NUMBER()"
    return f"{owner}.{show_name(field.name)}" if owner else show_name(field.name)


def _over_row(expr: Expr, owner: str) -> str:
    return show_scalar(expr, lambda field: _column(field, owner))


def _navigation(reach: Navigation, owner: str) -> str:
    shown = _over_row(reach.expr, owner)
    logical = reach.first or reach.offset or reach.final
    if logical or (not reach.shift and not isinstance(reach.expr, Field)):
        offset = f", {reach.offset}" if reach.offset else ""
        final = "FINAL " if reach.final else ""
        shown = f"{final}{'FIRST' if reach.first else 'LAST'}({shown}{offset})"
    if reach.shift:
        away = f", {abs(reach.shift)}" if abs(reach.shift) > 1 else ""
        shown = f"{'NEXT' if reach.shift > 0 else 'PREV'}({shown}{away})"
    return shown


def _aggregate(reach: RowAggregate, owner: str) -> str:
    inside = ", ".join(_over_row(argument, owner) for argument in reach.arguments)
    if not reach.arguments:
        inside = f"{owner}.*" if owner else "*"
    if reach.distinct:
        inside = f"DISTINCT {inside}"
    if reach.order:
        inside += " ORDER BY " + ", ".join(_ordered(key, owner) for key in reach.order)
    only = "" if reach.only is None else f" FILTER (WHERE {_over_row(reach.only, owner)})"
    return f"{'FINAL ' if reach.final else ''}{reach.function}({inside}){only}"
