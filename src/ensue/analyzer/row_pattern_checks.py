"""Checks MATCH_RECOGNIZE clauses, resolves their columns, and derives facts about matches."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

from ensue.analyzer.time_bounds import ReadDistance, ReadRange, UnboundedRead
from ensue.analyzer.types import add_implicit_casts, apply_time_zones, get_time_zone, infer_kind
from ensue.errors import QueryError, Span, did_you_mean
from ensue.functions.row_aggregates import find_row_aggregate
from ensue.ir import row_pattern
from ensue.ir.expression import Expr, FieldRef
from ensue.ir.selection import ByTime, ByUnits
from ensue.ir.traversal import iterate_nodes, rewrite_expr
from ensue.schema import ValueKind

ColumnKinds = Mapping[str, ValueKind]

_NO_ZONES: Mapping[str, str] = MappingProxyType({})
_WITHOUT_ORDER = (ValueKind.OTHER, ValueKind.PLACE)
_OF_MATCH = {row_pattern.CLASSIFIER: ValueKind.STRING, row_pattern.MATCH_NUMBER: ValueKind.INTEGER}
_TIMES = (ValueKind.TIMESTAMP, ValueKind.DATE, ValueKind.DURATION)


def check_row_pattern(
    clause: row_pattern.RowPatternQuery, columns: ColumnKinds, zones: Mapping[str, str] = _NO_ZONES
) -> row_pattern.RowPatternQuery:
    """Checks a clause and resolves its columns, or raises a QueryError.

    Quoted names are case-sensitive, others are not. `zones` are the time zones of columns.
    """
    try:
        resolved = _resolve_clause(clause, _Names(columns, clause.text, zones))
        _check_kinds(resolved, columns)
        _check_within(resolved, columns)
        _collect_output(resolved, columns)
        _require_columns(resolved)
        return resolved
    except QueryError as error:
        raise error.at(None, clause.text) from None


def get_output_kinds(clause: row_pattern.RowPatternQuery, columns: ColumnKinds) -> dict[str, ValueKind]:
    """Returns the output columns of a clause, in order, and their kinds.

    With ONE ROW PER MATCH these are the keys of PARTITION BY and MEASURES; with ALL ROWS PER
    MATCH the keys, the columns of ORDER BY, MEASURES, and the other columns of the table.
    """
    return _collect_output(check_row_pattern(clause, columns), columns)


class _Names:
    """Resolves names in a clause to columns of the table."""

    def __init__(self, columns: ColumnKinds, text: str | None, zones: Mapping[str, str]) -> None:
        self.columns = columns
        self.zones = zones
        self.text = text
        self.folded: dict[str, list[str]] = {}
        for name in columns:
            self.folded.setdefault(name.lower(), []).append(name)

    def resolve_name(self, name: str, span: Span | None) -> str:
        quoted = _is_quoted(span, self.text)
        if quoted and name in self.columns:
            return name
        same = [] if quoted else self.folded.get(name.lower(), [])
        if len(same) == 1:
            return same[0]
        if same:
            raise QueryError(
                f"'{name}' may be any of the columns {', '.join(same)}: SQL ignores case",
                hint=f'quote the one you mean: "{same[0]}"',
                span=span,
            )
        raise QueryError(f"there is no column '{name}'", hint=did_you_mean(name, self.columns), span=span)

    def resolve(self, expr: Expr) -> Expr:
        def change(node: Expr) -> Expr:
            if not isinstance(node, FieldRef) or node.name in (None, *row_pattern.MATCH_COLUMNS):
                return node
            return replace(node, name=self.resolve_name(str(node.name), node.span))

        cast = add_implicit_casts(rewrite_expr(expr, change), lambda field: _column_kind(field, self.columns))
        return apply_time_zones(cast, lambda field: self.zones.get(field.name or ""))


def _is_quoted(span: Span | None, text: str | None) -> bool:
    """Whether a name is quoted in the text."""
    return span is not None and text is not None and text[span.end - 1 : span.end] in ('"', "`")


def _resolve_clause(clause: row_pattern.RowPatternQuery, names: _Names) -> row_pattern.RowPatternQuery:
    return replace(
        clause,
        partition=tuple(_resolve_key(key, names) for key in clause.partition),
        order=_resolve_order(clause.order, names),
        measures=tuple(replace(m, value=_resolve_value(m.value, names)) for m in clause.measures),
        defines=tuple(replace(d, value=_resolve_value(d.value, names)) for d in clause.defines),
    )


def _resolve_key(key: row_pattern.PartitionKey, names: _Names) -> row_pattern.PartitionKey:
    expr = names.resolve(key.expr)
    if key.column == key.name and isinstance(expr, FieldRef) and expr.name is not None:
        return replace(key, expr=expr, name=expr.name)
    return replace(key, expr=expr)


def _resolve_order(keys: Sequence[row_pattern.RowSortKey], names: _Names) -> tuple[row_pattern.RowSortKey, ...]:
    return tuple(replace(key, expr=names.resolve(key.expr)) for key in keys)


def _resolve_value(value: row_pattern.RowExpression, names: _Names) -> row_pattern.RowExpression:
    """Resolves an expression, and merges operands that become equal, as `price` and `Price`."""
    operands: list[row_pattern.RowOperand] = []
    numbers: dict[str, str] = {}
    for number, operand in enumerate(value.operands):
        resolved = _resolve_operand(operand, names)
        if resolved not in operands:
            operands.append(resolved)
        numbers[str(number)] = str(operands.index(resolved))

    def change(node: Expr) -> Expr:
        if isinstance(node, FieldRef) and node.variable == row_pattern.OPERAND and node.name is not None:
            return replace(node, name=numbers[node.name])
        return node

    expr = rewrite_expr(value.expr, change)
    try:
        kinds = [infer_operand_kind(operand, names.columns) for operand in operands]
        expr = add_implicit_casts(expr, lambda field: kinds[int(field.name or 0)])
        zoned = [get_operand_zone(operand, names.zones) for operand in operands]
        expr = apply_time_zones(expr, lambda field: zoned[int(field.name or 0)])
    except QueryError as error:
        raise error.at(value.span, None) from None
    return replace(value, expr=expr, operands=tuple(operands))


def get_expression_zone(value: row_pattern.RowExpression, zones: Mapping[str, str]) -> str | None:
    """Returns the time zone of an expression; `zones` are those of columns."""
    operand_zones = [get_operand_zone(operand, zones) for operand in value.operands]
    return get_time_zone(value.expr, lambda field: operand_zones[int(field.name or 0)])


def get_operand_zone(reach: row_pattern.RowOperand, zones: Mapping[str, str]) -> str | None:
    """Returns the time zone of an operand; `zones` are those of columns."""
    match reach:
        case row_pattern.Navigation(expr=expr) | row_pattern.RowAggregate(arguments=(expr, *_)):
            return get_time_zone(expr, lambda field: zones.get(field.name or ""))
        case _:
            return None


def _resolve_operand(reach: row_pattern.RowOperand, names: _Names) -> row_pattern.RowOperand:
    match reach:
        case row_pattern.Navigation(expr=expr):
            return replace(reach, expr=names.resolve(expr))
        case row_pattern.RowAggregate(arguments=arguments, only=only, order=order):
            return replace(
                reach,
                arguments=tuple(map(names.resolve, arguments)),
                only=None if only is None else names.resolve(only),
                order=_resolve_order(order, names),
            )
        case row_pattern.MatchNumber():
            return reach


def _check_kinds(clause: row_pattern.RowPatternQuery, columns: ColumnKinds) -> None:
    for key in clause.partition:
        _require_order(infer_row_kind(key.expr, columns), "PARTITION BY", key.span)
        if not any(isinstance(node, FieldRef) for node in iterate_nodes(key.expr)):
            raise QueryError(
                "a key of PARTITION BY needs a column, and this is the same for all rows",
                hint="name a column, or leave PARTITION BY out",
                span=key.span,
            )
    _check_keys(clause.order, columns, "ORDER BY")
    for measure in clause.measures:
        infer_value_kind(measure.value, columns)
    for define in clause.defines:
        kind = infer_value_kind(define.value, columns)
        if kind not in (ValueKind.BOOLEAN, ValueKind.NULL):
            raise QueryError(
                f"{define.variable} is defined by a condition, and this is of kind {kind.value}",
                hint=f"compare it with something: {define.variable} AS price > 3",
                span=define.value.span,
            )


def _require_columns(clause: row_pattern.RowPatternQuery) -> None:
    if clause.rows is row_pattern.RowsPerMatch.ONE and not (clause.partition or clause.measures):
        raise QueryError(
            "ONE ROW PER MATCH returns the keys of PARTITION BY and MEASURES, and there are none",
            hint="add MEASURES, or ALL ROWS PER MATCH",
            span=clause.pattern.span,
        )


def infer_value_kind(value: row_pattern.RowExpression, columns: ColumnKinds) -> ValueKind:
    """Infers the kind of an expression; errors point at least at all of it."""
    try:
        kinds = [infer_operand_kind(reach, columns) for reach in value.operands]
        return infer_kind(value.expr, lambda field: kinds[int(field.name or 0)])
    except QueryError as error:
        raise error.at(value.span, None) from None


def infer_row_kind(expr: Expr, columns: ColumnKinds) -> ValueKind:
    """Infers the kind of an expression over the columns of one row."""
    return infer_kind(expr, lambda field: _column_kind(field, columns))


def _column_kind(field: FieldRef, columns: ColumnKinds) -> ValueKind:
    return _OF_MATCH.get(field.name or "") or columns[field.name or ""]


def infer_operand_kind(reach: row_pattern.RowOperand, columns: ColumnKinds) -> ValueKind:
    """Infers the kind of an operand; the list of an aggregate is OTHER."""
    match reach:
        case row_pattern.MatchNumber():
            return ValueKind.INTEGER
        case row_pattern.Navigation(expr=expr):
            return infer_row_kind(expr, columns)
        case row_pattern.RowAggregate():
            return _aggregate_kind(reach, columns)


def _aggregate_kind(aggregate: row_pattern.RowAggregate, columns: ColumnKinds) -> ValueKind:
    function = find_row_aggregate(aggregate.function)
    assert function is not None
    kinds = [infer_row_kind(argument, columns) for argument in aggregate.arguments]
    result = function.kind(kinds)
    if result is None:
        raise QueryError(
            f"{aggregate.function} does not work on {' and '.join(kind.value for kind in kinds)}",
            hint="count, min, max, any_value and array_agg take most kinds of values",
            span=aggregate.span,
        )
    if aggregate.distinct and kinds:
        _require_order(kinds[0], "DISTINCT", aggregate.span)
    if aggregate.only is not None:
        only = infer_row_kind(aggregate.only, columns)
        if only not in (ValueKind.BOOLEAN, ValueKind.NULL):
            raise QueryError(
                f"FILTER takes a condition, and this is of kind {only.value}",
                hint="compare it with something: FILTER (WHERE price > 3)",
                span=aggregate.only.span or aggregate.span,
            )
    _check_keys(aggregate.order, columns, "ORDER BY")
    return result


def _check_keys(keys: Iterable[row_pattern.RowSortKey], columns: ColumnKinds, clause: str) -> None:
    for key in keys:
        _require_order(infer_row_kind(key.expr, columns), clause, key.span)


def _require_order(kind: ValueKind, clause: str, span: Span | None) -> None:
    if kind in _WITHOUT_ORDER:
        raise QueryError(
            f"{clause} compares values, and these are nested, binary or places",
            hint="use a number, a string or a time in them",
            span=span,
        )


def _check_within(clause: row_pattern.RowPatternQuery, columns: ColumnKinds) -> None:
    if clause.within is None:
        return
    timed = isinstance(clause.within, timedelta)
    what, length = ("a time", "a length of time") if timed else ("a number", "a number")
    if not clause.order:
        raise QueryError(
            f"WITHIN needs ORDER BY, and {what} as its first key",
            hint=f"add ORDER BY {'time' if timed else 'position'}",
            span=clause.pattern.span,
        )
    first = clause.order[0]
    kind = infer_row_kind(first.expr, columns)
    if not (kind in _TIMES if timed else kind.numeric):
        raise QueryError(
            f"WITHIN is {length} here, and rows are ordered by {kind.value}",
            hint=f"start ORDER BY with {what}",
            span=first.span,
        )
    if first.descending:
        raise QueryError("WITHIN needs rows in ascending order", hint="leave DESC out", span=first.span)


class _OutputColumn(NamedTuple):
    """An output column; with `folds` it conflicts with names that differ only in case."""

    name: str
    kind: ValueKind
    span: Span | None = None
    folds: bool = False


def _collect_output(clause: row_pattern.RowPatternQuery, columns: ColumnKinds) -> dict[str, ValueKind]:
    output = list(_output_columns(clause, columns))
    known: dict[str, list[_OutputColumn]] = {}
    for column in output:
        same = known.setdefault(column.name.lower(), [])
        for other in same:
            if column.name == other.name or column.folds or other.folds:
                raise _build_clash_error(column, other)
        same.append(column)
    return {column.name: column.kind for column in output}


def _build_clash_error(column: _OutputColumn, other: _OutputColumn) -> QueryError:
    named = column if column.folds or column.span else other  # the one that the clause names
    return QueryError(
        f"two columns of the result would be called '{named.name}'",
        hint="give the measure or key another name with AS",
        span=named.span,
    )


def _output_columns(clause: row_pattern.RowPatternQuery, columns: ColumnKinds) -> Iterator[_OutputColumn]:
    """Yields the output columns in order."""
    text = clause.text
    for key in clause.partition:
        folds = key.column != key.name and not _is_quoted(key.span, text)
        yield _OutputColumn(key.name, infer_row_kind(key.expr, columns), key.span, folds)
    left = dict(columns)
    if clause.rows is row_pattern.RowsPerMatch.ONE:
        left.clear()
    for key in clause.partition:
        left.pop(key.column or "", None)
    for ordered in clause.order:
        name = ordered.expr.name if isinstance(ordered.expr, FieldRef) else None
        if name is not None and name in left:
            yield _OutputColumn(name, left.pop(name))
    for measure in clause.measures:
        folds = not _is_quoted(measure.span, text)
        yield _OutputColumn(measure.name, infer_value_kind(measure.value, columns), measure.span, folds)
    for name, kind in left.items():
        yield _OutputColumn(name, kind)


# --- facts about the matches of a clause


class MatchEnd(Enum):
    """An end of a match in time."""

    FIRST = "first row"
    LAST = "last row"


def is_single_row(clause: row_pattern.RowPatternQuery) -> bool:
    """Whether a match is one row and independent of all others.

    >>> from ensue.parser.sql.clause_parser import parse_clause
    >>> is_single_row(parse_clause("(PATTERN (A) DEFINE A AS A.x > PREV(A.x))"))
    False
    """
    if not isinstance(_unwrap(clause.pattern), row_pattern.RowVariable):
        return False
    return all(map(_reads_one_row, clause.values))


def _unwrap(term: row_pattern.RowTerm) -> row_pattern.RowTerm:
    while isinstance(term, row_pattern.Exclusion) or (
        isinstance(term, row_pattern.Concatenation | row_pattern.Alternation | row_pattern.Permutation)
        and len(term.parts) == 1
    ):
        term = term.part if isinstance(term, row_pattern.Exclusion) else term.parts[0]
    return term


def _reads_one_row(value: row_pattern.RowExpression) -> bool:
    return not any(
        isinstance(operand, row_pattern.MatchNumber)
        or (isinstance(operand, row_pattern.Navigation) and operand.shift)
        or row_pattern.reads_match_columns(operand)
        for operand in value.operands
    )


def find_match_ends(clause: row_pattern.RowPatternQuery, value: row_pattern.RowExpression) -> frozenset[MatchEnd]:
    """Returns the ends of a match whose time a measure always is.

    The clause must be checked, and its pattern must match at least one row.
    """
    only = value.only
    if not isinstance(only, row_pattern.Navigation) or not clause.order:
        return frozenset()
    if only.expr != clause.order[0].expr or only.shift or only.offset:
        return frozenset()
    pattern = clause.pattern
    single = _count_rows(pattern, None) == 1
    mapped = frozenset(only.variables or clause.variables)
    once = _count_rows(pattern, mapped) <= 1
    ends = set()
    if (only.first or once) and _find_edges(pattern, forward=True) <= mapped:
        ends.add(MatchEnd.FIRST)
    if (not only.first or once) and _find_edges(pattern, forward=False) <= mapped:
        ends.add(MatchEnd.LAST)
    return frozenset(MatchEnd) if ends and single else frozenset(ends)


def get_constant_column(clause: row_pattern.RowPatternQuery, value: row_pattern.RowExpression) -> str | None:
    """Returns the column of a measure if all rows of a match have the same value in it."""
    only = value.only
    if not isinstance(only, row_pattern.Navigation) or row_pattern.reads_match_columns(only):
        return None
    expr = only.expr
    if not isinstance(expr, FieldRef) or expr.name is None:
        return None
    if is_single_row(clause):
        return expr.name
    return expr.name if expr.name in {key.column for key in clause.partition} else None


def get_key_columns(clause: row_pattern.RowPatternQuery) -> dict[str, str]:
    """Maps the output columns of a checked clause that separate its matches to table columns."""
    columns = {key.name: key.column for key in clause.partition}
    columns |= {m.name: get_constant_column(clause, m.value) for m in clause.measures}
    return {name: column for name, column in columns.items() if column is not None}


def _count_rows(term: row_pattern.RowTerm, variables: frozenset[str] | None) -> float:
    """Returns the maximum number of rows mapped to some variables; None: to any."""
    match term:
        case row_pattern.RowVariable(variable=variable):
            return 1 if variables is None or variable in variables else 0
        case row_pattern.EmptyRowPattern() | row_pattern.PartitionAnchor():
            return 0
        case row_pattern.Concatenation(parts=parts) | row_pattern.Permutation(parts=parts):
            return sum(_count_rows(part, variables) for part in parts)
        case row_pattern.Alternation(parts=parts):
            return max(_count_rows(part, variables) for part in parts)
        case row_pattern.Exclusion(part=part):
            return _count_rows(part, variables)
        case row_pattern.Repetition(part=part, most=most):
            inside = _count_rows(part, variables)
            return 0 if not inside else inside * (math.inf if most is None else most)


def _find_edges(term: row_pattern.RowTerm, *, forward: bool) -> frozenset[str]:
    """Returns the variables to which the first (`forward`) or last row may be mapped."""
    match term:
        case row_pattern.RowVariable(variable=variable):
            return frozenset([variable])
        case row_pattern.EmptyRowPattern() | row_pattern.PartitionAnchor():
            return frozenset()
        case row_pattern.Concatenation(parts=parts):
            variables: frozenset[str] = frozenset()
            for part in parts if forward else reversed(parts):
                variables |= _find_edges(part, forward=forward)
                if not row_pattern.is_nullable(part):
                    break
            return variables
        case row_pattern.Alternation(parts=parts) | row_pattern.Permutation(parts=parts):
            return frozenset().union(*(_find_edges(part, forward=forward) for part in parts))
        case row_pattern.Repetition(part=part) | row_pattern.Exclusion(part=part):
            return _find_edges(part, forward=forward)


def compute_row_pattern_read_range(clause: row_pattern.RowPatternQuery) -> ReadRange:
    """Computes how far a checked clause reads beyond the range of its matches.

    The search starts at the first row of a partition, so a match depends on all rows before it,
    and on later rows until no longer match is preferred.

    >>> from ensue.parser.sql.clause_parser import parse_clause
    >>> clause = parse_clause("(PATTERN (A B+) WITHIN 5 DEFINE B AS B.x > 1)")
    >>> print(compute_row_pattern_read_range(clause))
    from the first event of the key, 5 after
    """
    if is_single_row(clause):
        return ReadRange()
    operands = [operand for value in clause.values for operand in value.operands]
    ahead = any(isinstance(operand, row_pattern.Navigation) and operand.shift > 0 for operand in operands)
    ahead |= row_pattern.PartitionAnchor("end") in row_pattern.iterate_terms(clause.pattern)
    after = UnboundedRead.OBJECT if ahead else _convert_within(clause.within)
    return ReadRange(UnboundedRead.OBJECT, after)


def _convert_within(within: timedelta | int | float | None) -> ReadDistance:
    match within:
        case None:
            return UnboundedRead.OBJECT
        case timedelta():
            return ByTime(within // timedelta(microseconds=1) * 1_000)
        case _:
            return ByUnits(within)


def get_max_length(clause: row_pattern.RowPatternQuery) -> ByTime | ByUnits | None:
    """Returns the maximum length of a match of a clause, or None if it is unlimited."""
    if is_single_row(clause):
        return ByUnits(0)
    length = _convert_within(clause.within)
    return None if isinstance(length, UnboundedRead) else length
