"""References to variables in expressions: their positions, and the clauses that allow them."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from math import isfinite

from ensue.analyzer.output_mode import is_count_all
from ensue.analyzer.spatial import check_constant_location, check_spatial_call
from ensue.errors import QueryError, did_you_mean
from ensue.functions import FUNCTIONS
from ensue.functions.interpreter import AGGREGATE_ALIASES
from ensue.ir.expression import (
    AGGREGATES,
    MATCHES,
    MOVING_POSITIONS,
    Aggregate,
    EventPosition,
    Expr,
    FieldRef,
    FunctionCall,
    Literal,
    Unary,
)
from ensue.ir.pattern import Pattern
from ensue.ir.query import ReturnItem
from ensue.ir.traversal import (
    get_kleene_variables,
    get_operands,
    get_variables,
    iterate_aligned_variables,
    iterate_atoms,
    iterate_bound_variables,
    iterate_negations,
    iterate_references,
    iterate_untils,
    replace_operands,
    rewrite_expr,
)
from ensue.printing.expression_printer import format_expr


@dataclass(frozen=True, slots=True)
class VariableRoles:
    """The roles of the variables of a pattern."""

    known: tuple[str, ...]
    lists: frozenset[str]  # the Kleene variables
    absent: dict[str, int]  # the negated variables, with the index of their negation
    text: str | None = None
    together: tuple[frozenset[str], ...] = ()  # variables whose [i] is the same iteration


def collect_roles(pattern: Pattern, text: str | None = None) -> VariableRoles:
    """Collects the roles of the variables of a pattern."""
    return VariableRoles(
        known=tuple(dict.fromkeys([*iterate_bound_variables(pattern), *(a.variable for a in iterate_atoms(pattern))])),
        lists=frozenset(get_kleene_variables(pattern)),
        absent={
            atom.variable: number
            for number, negation in enumerate([*iterate_negations(pattern), *iterate_untils(pattern)])
            for atom in iterate_atoms(negation)
        },
        text=text,
        together=tuple(iterate_aligned_variables(pattern)),
    )


def normalize_where(expr: Expr, roles: VariableRoles) -> Expr:
    """Checks and normalizes a condition of WHERE."""
    expr = _normalize(expr, roles)
    for reference in iterate_references(expr):
        _check_one_value(reference, roles)
    moving = sorted({r.variable for r in iterate_references(expr) if r.at in MOVING_POSITIONS})
    if len(moving) > 1 and not any({*moving} <= group for group in roles.together):
        raise QueryError(
            f"{moving[0]}[i] and {moving[1]}[i] both run in the same condition",
            hint="compare one of them with an aggregate or a fixed event: "
            f"avg({moving[1]}.price), {moving[1]}[1].price",
            span=expr.span,
        )
    absent = {roles.absent[v]: v for v in sorted(get_variables(expr)) if v in roles.absent}
    if len(absent) > 1:
        raise QueryError(
            f"{' and '.join(absent.values())} are both absent: they cannot be compared",
            hint="compare each of them with events that do occur",
            span=expr.span,
        )
    return expr


def normalize_clause(expr: Expr, roles: VariableRoles, clause: str) -> Expr:
    """Checks and normalizes an expression of HAVING, ON, or FROM and TO of an interval."""
    expr = _normalize(expr, roles)
    for reference in iterate_references(expr):
        _check_settled(reference, roles, clause)
        _check_one_value(reference, roles)
    return expr


def normalize_return(expr: Expr, roles: VariableRoles) -> Expr:
    """Checks and normalizes a column of RETURN, which may be an event or a list `a[].price`."""
    if is_count_all(expr):
        return expr
    expr = _normalize(expr, roles)
    if isinstance(expr, FieldRef) and expr.variable in roles.lists:
        if expr.name is None and expr.at is EventPosition.ONLY:
            expr = replace(expr, at=EventPosition.ALL)
        if expr.at is EventPosition.ALL:
            return expr
    for reference in iterate_references(expr):
        _check_settled(reference, roles, "RETURN")
        _check_one_value(reference, roles, whole=reference is expr)
    return expr


def normalize_returns(returns: Iterable[ReturnItem], roles: VariableRoles) -> tuple[ReturnItem, ...]:
    """Checks and normalizes the columns of RETURN."""
    columns = []
    for column in returns:
        try:
            columns.append(replace(column, expr=normalize_return(column.expr, roles)))
        except QueryError as error:
            if column.over is None or column.expr.span is None:
                raise
            function, argument = column.over.function, format_expr(column.expr)
            raise QueryError(
                error.problem,
                hint=f"with GROUP BY, {function}(...) is over matches; its argument is one value "
                f"of each match, as in {function}(max({argument}))",
                span=error.span,
            ) from None
    return tuple(columns)


def _normalize(expr: Expr, roles: VariableRoles) -> Expr:
    """Normalizes an expression, and checks its names and calls.

    `a.LEN` becomes `count(a)`, `-5` a literal; inside an aggregate the fields of a Kleene
    variable are at ALL, BEFORE or THROUGH, and those of a plain variable at ONLY.
    """
    match expr:
        case FieldRef():
            _check_known(expr, roles)
            if expr.variable in roles.lists and expr.at is EventPosition.ONLY and (expr.name or "").upper() == "LEN":
                return Aggregate("count", expr.variable, None, span=expr.span)
            return expr
        case Aggregate(argument=argument):
            _check_known(expr, roles)
            _check_aggregate(expr, roles)
            if argument is None:
                return expr
            plain = expr.variable not in roles.lists

            def settled(node: Expr) -> Expr:
                if not isinstance(node, FieldRef):
                    return node
                if node.name is None:
                    raise _event_error(node)
                return replace(node, at=EventPosition.ONLY if plain else expr.at)

            return replace(expr, argument=_normalize(rewrite_expr(argument, settled), roles))
        case FunctionCall(function=function):
            _check_call(expr, function)
        case Literal(value=float(value)) if not isfinite(value):
            raise QueryError("a constant must be a finite number", span=expr.span)
    folded = _fold_sign(replace_operands(expr, tuple(_normalize(e, roles) for e in get_operands(expr))))
    if isinstance(folded, FunctionCall):
        check_constant_location(folded)
        check_spatial_call(folded)
    return folded


def _fold_sign(expr: Expr) -> Expr:
    match expr:
        case Unary(operator="-", operand=Literal(value=value)) if not isinstance(value, bool):
            if isinstance(value, int | float | timedelta):
                return Literal(-value, expr.span)
    return expr


def _check_known(reference: FieldRef | Aggregate, roles: VariableRoles) -> None:
    name = reference.variable
    if name in roles.known:
        return
    if name == MATCHES:
        raise QueryError(
            "COUNT(*) is a column of RETURN, and counts the matches of each last event",
            hint=f"RETURN COUNT(*) AS n; count the events of a variable with count({roles.known[0]})",
            span=reference.span,
        )
    problem, hint = f"unknown variable '{name}'", did_you_mean(name, roles.known)
    if isinstance(reference, FieldRef) and reference.name is None and reference.at is EventPosition.ONLY:
        hint = f"a field is written with its event: {roles.known[0]}.{name}"
        if roles.text and reference.span and reference.span.over(roles.text)[:1] == '"':
            hint = f"a string is written in single quotes: '{name}'"
    raise QueryError(problem, hint=hint, span=reference.span)


def _check_call(call: FunctionCall, function: str) -> None:
    if function not in FUNCTIONS:
        from ensue.functions.aliases import suggest_function

        raise QueryError(
            f"unknown function '{function}'", hint=suggest_function(function, _list_functions()), span=call.span
        )
    least, most, count = FUNCTIONS[function].least, FUNCTIONS[function].most, len(call.arguments)
    if count < least or (most is not None and count > most):
        expected = describe_argument_count(least, most)
        raise QueryError(f"{function} takes {expected}, not {count}", span=call.span)


def describe_argument_count(least: int, most: int | None) -> str:
    """Describes the arguments of a function.

    >>> describe_argument_count(1, 2), describe_argument_count(1, None)
    ('1 or 2 arguments', 'at least 1 argument')
    """
    if most is None:
        return f"at least {describe_argument_count(least, least)}"
    if least == most:
        return f"{least} argument" if least == 1 else f"{least} arguments"
    return f"{least} {'or' if most == least + 1 else 'to'} {most} arguments"


def _list_functions() -> list[str]:
    """Returns the names of all functions and aggregates."""
    known = [name for f in FUNCTIONS.values() for name in (f.name, *f.aliases)]
    return [*(name for name in known if name.isidentifier()), *AGGREGATES, *AGGREGATE_ALIASES]


def _check_aggregate(aggregate: Aggregate, roles: VariableRoles) -> None:
    name = aggregate.variable
    if name in roles.absent:
        raise QueryError(
            f"{aggregate.function} of {name}, which is negated: a match has no such event",
            hint=f"use the fields of {name} without an aggregate, to restrict the absent events",
            span=aggregate.span,
        )
    if name not in roles.lists and aggregate.at is not EventPosition.ALL:
        raise _position_error(name, aggregate)
    percent = aggregate.parameter if aggregate.function == "percentile" else None
    if isinstance(percent, int | float) and not 0 <= percent <= 100:
        raise QueryError(
            f"a percentage is from 0 to 100, not {percent:g}",
            hint=f"as in percentile({name}.price, 90)",
            span=aggregate.span,
        )


def _suggest_index(name: str, field: str | None) -> str:
    """Builds the hint for a variable of several events that needs an index."""
    if field is None or field.lower() in ("length", "len", "count", "size"):
        return f"count({name}), or {name}.LEN, is their number; {name}[1].price is of the first"
    return (
        f"{name}[i].{field} for each, {name}[1] the first, {name}[{name}.LEN] the last, or an "
        f"aggregate: avg({name}.{field})"
    )


def _check_one_value(reference: FieldRef | Aggregate, roles: VariableRoles, *, whole: bool = False) -> None:
    """Checks that a reference has one value per match, or per i."""
    if isinstance(reference, Aggregate):
        return
    name, field = reference.variable, reference.name
    if name not in roles.lists:
        if reference.at is not EventPosition.ONLY:
            raise _position_error(name, reference)
    elif reference.at is EventPosition.ONLY:
        raise QueryError(
            f"{name} stands for several events: which one do you mean?",
            hint=_suggest_index(name, field),
            span=reference.span,
        )
    elif reference.at in (EventPosition.ALL, EventPosition.BEFORE, EventPosition.THROUGH):
        raise QueryError(
            "several events where one value is needed",
            hint=f"use an aggregate, as in avg({_spell(reference)}), or {name}[i].{field or 'price'} for each of them",
            span=reference.span,
        )
    if field is None and not whole:
        raise _event_error(reference)


def _check_settled(reference: FieldRef | Aggregate, roles: VariableRoles, clause: str) -> None:
    """Checks that a reference is constant in a match: no running position, nothing absent."""
    name = reference.variable
    where = "the WHERE of its side" if clause == "ON" else "WHERE"
    if name in roles.absent:
        raise QueryError(
            f"{name} is negated: a match has no such event to use in {clause}",
            hint=f"conditions on {name} belong in {where}",
            span=reference.span,
        )
    if reference.at in MOVING_POSITIONS:
        raise QueryError(
            f"a running position in {clause}",
            hint=f"use [i] only in {where}; here use avg({name}.price), {name}[1] or {name}[{name}.LEN]",
            span=reference.span,
        )


def _spell(field: FieldRef) -> str:
    position = {EventPosition.BEFORE: "[..i-1]", EventPosition.THROUGH: "[..i]"}.get(field.at, "")
    return f"{field.variable}{position}.{field.name or 'price'}"


def _position_error(name: str, reference: FieldRef | Aggregate) -> QueryError:
    field = reference.name if isinstance(reference, FieldRef) else None
    return QueryError(
        f"{name} is a single event and has no positions",
        hint=f"write {name}.{field}" if field else f"write {name} without [...]",
        span=reference.span,
    )


def _event_error(field: FieldRef) -> QueryError:
    return QueryError(
        f"{field.variable} is a whole event, and a value is needed here",
        hint=f"use one of its fields, as in {field.variable}.price",
        span=field.span,
    )
