"""Prints MATCH_RECOGNIZE clauses and their joins in SQL, which parses back to the same query."""

from collections.abc import Iterator

from ensue.ir import row_pattern
from ensue.ir.archive_join import ArchiveJoinQuery, JoinSide, RowPatternSide
from ensue.ir.expression import Expr, FieldRef, Literal
from ensue.printing.expression_printer import format_order, format_quantifier, format_scalar, format_sql_name

_BRANCHES, _SEQUENCE, _REPEATED, _ALONE = range(4)  # precedences

Subsets = tuple[tuple[str, tuple[str, ...]], ...]


def format_clause(clause: row_pattern.RowPatternQuery) -> str:
    """Prints a clause, one part per line.

    >>> from ensue.parser.sql.clause_parser import parse_clause
    >>> clause = parse_clause("(pattern (a b+) define b as b.price>prev(b.price))")
    >>> print(format_clause(clause))
    MATCH_RECOGNIZE (
      ONE ROW PER MATCH
      AFTER MATCH SKIP PAST LAST ROW
      PATTERN (A B+)
      DEFINE
        B AS B.price > PREV(B.price)
    )
    """
    lines = "\n".join(f"  {line}" for line in _lines(clause))
    return f"MATCH_RECOGNIZE (\n{lines}\n)"


def _lines(clause: row_pattern.RowPatternQuery) -> Iterator[str]:
    subsets = clause.subsets
    if clause.partition:
        yield "PARTITION BY " + ", ".join(map(_key, clause.partition))
    if clause.order:
        yield "ORDER BY " + ", ".join(format_row_sort_key(key) for key in clause.order)
    if clause.measures:
        yield "MEASURES"
        shown = [
            f"  {format_row_expression(measure.value, subsets)} AS {format_sql_name(measure.name)}"
            for measure in clause.measures
        ]
        yield ",\n  ".join(shown)
    yield clause.rows.value
    target = "" if clause.skip.name is None else f" {format_variable(clause.skip.name)}"
    yield f"AFTER MATCH SKIP {clause.skip.to.value}{target}"
    yield f"PATTERN ({format_row_pattern(clause.pattern)})"
    if clause.within is not None:
        yield f"WITHIN {format_scalar(Literal(clause.within), str)}"
    if subsets:
        shown = [f"{format_variable(name)} = ({', '.join(map(format_variable, members))})" for name, members in subsets]
        yield "SUBSET " + ", ".join(shown)
    if clause.defines:
        yield "DEFINE"
        shown = [
            f"  {format_variable(define.variable)} AS {format_row_expression(define.value, subsets)}"
            for define in clause.defines
        ]
        yield ",\n  ".join(shown)


def _key(key: row_pattern.PartitionKey) -> str:
    shown = format_over_row(key.expr)
    return shown if key.column == key.name else f"{shown} AS {format_sql_name(key.name)}"


def format_row_sort_key(key: row_pattern.RowSortKey, owner: str = "") -> str:
    """Prints a key of ORDER BY."""
    return format_order(format_over_row(key.expr, owner), key.descending, key.nulls_first)


def format_variable(name: str) -> str:
    """Prints the name of a variable, quoted unless it is in upper case.

    >>> print(format_variable("UP"), format_variable("Up"))
    UP "Up"
    """
    shown = format_sql_name(name)
    return shown if shown.startswith('"') or name == name.upper() else f'"{name}"'


def format_row_pattern(term: row_pattern.RowTerm, inside: int = _BRANCHES) -> str:
    """Prints a pattern; `inside` is the surrounding precedence.

    >>> format_row_pattern(
    ...     row_pattern.Repetition(
    ...         row_pattern.Alternation((row_pattern.RowVariable("B"), row_pattern.EmptyRowPattern())), 1, None
    ...     )
    ... )
    '(B | ())+'
    """
    text, tightness = _format_pattern_term(term)
    return f"({text})" if tightness < inside else text


def _format_pattern_term(term: row_pattern.RowTerm) -> tuple[str, int]:
    match term:
        case row_pattern.RowVariable(variable=variable):
            return format_variable(variable), _ALONE
        case row_pattern.EmptyRowPattern():
            return "()", _ALONE
        case row_pattern.PartitionAnchor(at=at):
            return "^" if at == "start" else "$", _ALONE
        case row_pattern.Concatenation(parts=parts):
            return " ".join(format_row_pattern(part, _REPEATED) for part in parts), _SEQUENCE
        case row_pattern.Alternation(parts=parts):
            return " | ".join(format_row_pattern(part, _SEQUENCE) for part in parts), _BRANCHES
        case row_pattern.Permutation(parts=parts):
            return f"PERMUTE({', '.join(map(format_row_pattern, parts))})", _ALONE
        case row_pattern.Exclusion(part=part):
            return f"{{- {format_row_pattern(part)} -}}", _ALONE
        case row_pattern.Repetition(part=part):
            return f"{format_row_pattern(part, _ALONE)}{format_row_quantifier(term)}", _REPEATED


def format_row_quantifier(term: row_pattern.Repetition) -> str:
    """Prints a quantifier.

    >>> format_row_quantifier(row_pattern.Repetition(row_pattern.RowVariable("A"), 2, 5, False))
    '{2,5}?'
    """
    bounds = term.least, term.most
    times = "?" if bounds == (0, 1) else format_quantifier(*bounds)
    return times if term.greedy else f"{times}?"


def format_row_expression(value: row_pattern.RowExpression, subsets: Subsets = ()) -> str:
    """Prints an expression of MEASURES or DEFINE."""
    return format_scalar(value.expr, lambda field: format_operand(value.reach(field), subsets))


def format_operand(operand: row_pattern.RowOperand, subsets: Subsets = ()) -> str:
    """Prints an operand.

    >>> format_operand(row_pattern.Navigation(FieldRef("", "price"), ("A",), first=True, offset=2, shift=-1))
    'PREV(FIRST(A.price, 2))'
    """
    match operand:
        case row_pattern.MatchNumber():
            return "MATCH_NUMBER()"
        case row_pattern.Navigation():
            return _navigation(operand, _owner(operand.variables, subsets))
        case row_pattern.RowAggregate():
            return _aggregate(operand, _owner(operand.variables, subsets))


def _owner(variables: tuple[str, ...], subsets: Subsets) -> str:
    """Returns the name of a variable or subset; empty for all rows."""
    if len(variables) > 1:
        return next(format_variable(name) for name, members in subsets if members == variables)
    return format_variable(variables[0]) if variables else ""


def _column(field: FieldRef, owner: str) -> str:
    assert field.name is not None
    if field.name == row_pattern.CLASSIFIER:
        return f"CLASSIFIER({owner})"
    if field.name == row_pattern.MATCH_NUMBER:
        return "MATCH_NUMBER()"
    return f"{owner}.{format_sql_name(field.name)}" if owner else format_sql_name(field.name)


def format_over_row(expr: Expr, owner: str = "") -> str:
    """Prints an expression over the columns of a row, or of the rows of a variable."""
    return format_scalar(expr, lambda field: _column(field, owner))


def _navigation(navigation: row_pattern.Navigation, owner: str) -> str:
    shown = format_over_row(navigation.expr, owner)
    logical = navigation.first or navigation.offset or navigation.final
    if logical or (not navigation.shift and not isinstance(navigation.expr, FieldRef)):
        offset = f", {navigation.offset}" if navigation.offset else ""
        final = "FINAL " if navigation.final else ""
        shown = f"{final}{'FIRST' if navigation.first else 'LAST'}({shown}{offset})"
    if navigation.shift:
        away = f", {abs(navigation.shift)}" if abs(navigation.shift) > 1 else ""
        shown = f"{'NEXT' if navigation.shift > 0 else 'PREV'}({shown}{away})"
    return shown


def _aggregate(aggregate: row_pattern.RowAggregate, owner: str) -> str:
    inside = ", ".join(format_over_row(argument, owner) for argument in aggregate.arguments)
    if not aggregate.arguments:
        inside = f"{owner}.*" if owner else "*"
    if aggregate.distinct:
        inside = f"DISTINCT {inside}"
    if aggregate.order:
        inside += " ORDER BY " + ", ".join(format_row_sort_key(key, owner) for key in aggregate.order)
    only = "" if aggregate.only is None else f" FILTER (WHERE {format_over_row(aggregate.only, owner)})"
    return f"{'FINAL ' if aggregate.final else ''}{aggregate.function}({inside}){only}"


def format_archive_join(query: ArchiveJoinQuery) -> str:
    """Prints an archive join of MATCH_RECOGNIZE clauses."""
    named = {returned.name: returned.expr for returned in query.returns}
    columns = query.columns if query.columns is not None else tuple(named)
    shown = [f"{_over_sides(named[name])} AS {format_sql_name(name)}" if name in named else name for name in columns]
    lines = ["SELECT " + ", ".join(shown), f"FROM {_side(query.live, 'live')}"]
    for join in query.joins:
        on = " AND ".join(f"({_over_sides(part)})" for part in join.on)
        lines.append(f"{join.kind.value} {_side(join.query, join.archive)} ON {on}")
    if query.having is not None:
        lines.append(f"WHERE {_over_sides(query.having)}")
    return "\n".join(lines)


def _side(side: JoinSide, table: str) -> str:
    assert isinstance(side, RowPatternSide), "both sides are clauses"
    return f"{format_sql_name(table)} {format_clause(side.row_pattern)} AS {format_sql_name(side.alias)}"


def _over_sides(expr: Expr) -> str:
    return format_scalar(expr, lambda field: _column(field, format_sql_name(field.variable)))
