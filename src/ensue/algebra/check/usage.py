"""How expressions speak of a pattern's variables: which positions, and where they may stand."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import timedelta
from math import isfinite

from ensue.algebra.aggregates import OTHER_NAMES
from ensue.algebra.answers import is_tally
from ensue.algebra.check.places import check_asked, check_written
from ensue.algebra.functions import FUNCTIONS
from ensue.algebra.functions.foreign import instead_of
from ensue.algebra.pattern import Pattern
from ensue.algebra.predicate import (
    AGGREGATES,
    MATCHES,
    Aggregate,
    At,
    Call,
    Expr,
    Field,
    Literal,
    Unary,
)
from ensue.algebra.query import Returned
from ensue.algebra.text import show_expr
from ensue.algebra.walk import (
    atoms,
    bound_variables,
    in_step,
    kleenes,
    negations,
    operands,
    references,
    rewrite_expr,
    untils,
    variables,
    with_operands,
)
from ensue.errors import QueryError, did_you_mean

_MOVING = (At.CURRENT, At.PREVIOUS, At.BEFORE, At.THROUGH)


@dataclass(frozen=True, slots=True)
class Roles:
    """What the variables of a pattern stand for."""

    known: tuple[str, ...]
    lists: frozenset[str]  # the Kleene variables
    absent: dict[str, int]  # the negated variables, with the number of their negation
    text: str | None = None
    together: tuple[frozenset[str], ...] = ()  # lists of one group, whose [i] is the same time


def roles_of(pattern: Pattern, text: str | None = None) -> Roles:
    """The roles that the variables of a pattern play."""
    return Roles(
        known=tuple(
            dict.fromkeys([*bound_variables(pattern), *(a.variable for a in atoms(pattern))])
        ),
        lists=frozenset(kleenes(pattern)),
        absent={
            atom.variable: number
            for number, negation in enumerate([*negations(pattern), *untils(pattern)])
            for atom in atoms(negation)
        },
        text=text,
        together=tuple(in_step(pattern)),
    )


def in_where(expr: Expr, roles: Roles) -> Expr:
    """A condition of WHERE in its normal form."""
    expr = _normal(expr, roles)
    for reference in references(expr):
        _check_one_value(reference, roles)
    moving = sorted({r.variable for r in references(expr) if r.at in _MOVING})
    if len(moving) > 1 and not any({*moving} <= group for group in roles.together):
        raise QueryError(
            f"{moving[0]}[i] and {moving[1]}[i] both run in the same condition",
            hint="compare one of them with an aggregate or a fixed event: "
            f"avg({moving[1]}.price), {moving[1]}[1].price",
            span=expr.span,
        )
    absent = {roles.absent[v]: v for v in sorted(variables(expr)) if v in roles.absent}
    if len(absent) > 1:
        raise QueryError(
            f"{' and '.join(absent.values())} are both absent: they cannot be compared",
            hint="compare each of them with events that do occur",
            span=expr.span,
        )
    return expr


def in_having(expr: Expr, roles: Roles) -> Expr:
    """The condition of HAVING in its normal form."""
    expr = _normal(expr, roles)
    for reference in references(expr):
        _check_one_value(reference, roles)
        _check_settled(reference, roles, "HAVING")
    return expr


def in_interval(expr: Expr, roles: Roles) -> Expr:
    """An end of an absence's interval in its normal form."""
    expr = _normal(expr, roles)
    for reference in references(expr):
        _check_settled(reference, roles, "FROM and TO")
        _check_one_value(reference, roles)
    return expr


def in_on(expr: Expr, roles: Roles) -> Expr:
    """A condition of ON, between the matches of two sides, in its normal form."""
    expr = _normal(expr, roles)
    for reference in references(expr):
        _check_settled(reference, roles, "ON")
        _check_one_value(reference, roles)
    return expr


def in_return(expr: Expr, roles: Roles) -> Expr:
    """A column of RETURN in its normal form; it may be a whole event or a list `a[].price`."""
    if is_tally(expr):
        return expr
    expr = _normal(expr, roles)
    if isinstance(expr, Field) and expr.variable in roles.lists:
        if expr.name is None and expr.at is At.ONLY:
            expr = replace(expr, at=At.ALL)
        if expr.at is At.ALL:
            return expr
    for reference in references(expr):
        _check_settled(reference, roles, "RETURN")
        _check_one_value(reference, roles, whole=reference is expr)
    return expr


def in_returns(returns: Iterable[Returned], roles: Roles) -> tuple[Returned, ...]:
    """The columns of RETURN in their normal form."""
    found = []
    for column in returns:
        try:
            found.append(replace(column, expr=in_return(column.expr, roles)))
        except QueryError as error:
            if column.over is None or column.expr.span is None:
                raise
            function, asked = column.over.function, show_expr(column.expr)
            raise QueryError(
                error.problem,
                hint=f"with GROUP BY, {function}(...) is over matches; inside it stands one value "
                f"of each match, as in {function}(max({asked}))",
                span=error.span,
            ) from None
    return tuple(found)


# -------------------------------------------------------------------------------- normal form


def _normal(expr: Expr, roles: Roles) -> Expr:
    """The one form of what an expression means, its names and calls checked.

    `a.LEN` becomes `count(a)`, `-5` a literal; inside an aggregate the fields of a Kleene
    variable are at ALL, BEFORE or THROUGH, and those of a plain variable at ONLY.
    """
    match expr:
        case Field():
            _check_known(expr, roles)
            if expr.variable in roles.lists and expr.at is At.ONLY and _is_length(expr.name):
                return Aggregate("count", expr.variable, None, span=expr.span)
            return expr
        case Aggregate(argument=argument):
            _check_known(expr, roles)
            _check_aggregate(expr, roles)
            if argument is None:
                return expr
            plain = expr.variable not in roles.lists

            def settled(node: Expr) -> Expr:
                if not isinstance(node, Field):
                    return node
                if node.name is None:
                    raise _whole_event(node)
                return replace(node, at=At.ONLY if plain else expr.at)

            return replace(expr, argument=_normal(rewrite_expr(argument, settled), roles))
        case Call(function=function):
            _check_call(expr, function)
        case Literal(value=float(value)) if not isfinite(value):
            raise QueryError("a constant must be a finite number", span=expr.span)
    folded = _folded(with_operands(expr, tuple(_normal(e, roles) for e in operands(expr))))
    if isinstance(folded, Call):
        check_written(folded)
        check_asked(folded)
    return folded


def _folded(expr: Expr) -> Expr:
    match expr:
        case Unary(operator="-", operand=Literal(value=value)) if not isinstance(value, bool):
            if isinstance(value, int | float | timedelta):
                return Literal(-value, expr.span)
    return expr


def _is_length(name: str | None) -> bool:
    return name is not None and name.upper() == "LEN"


# ----------------------------------------------------------------------------- names and calls


def _check_known(reference: Field | Aggregate, roles: Roles) -> None:
    name = reference.variable
    if name in roles.known:
        return
    if name == MATCHES:
        raise QueryError(
            "COUNT(*) is a column of RETURN, and counts the matches that end with one event",
            hint="RETURN COUNT(*) AS n; count the events of a variable with "
            f"count({roles.known[0]})",
            span=reference.span,
        )
    problem, hint = f"unknown variable '{name}'", did_you_mean(name, roles.known)
    if isinstance(reference, Field) and reference.name is None and reference.at is At.ONLY:
        hint = f"a field is written with its event: {roles.known[0]}.{name}"
        if roles.text and reference.span and reference.span.over(roles.text)[:1] == '"':
            hint = f"a string is written in single quotes: '{name}'"
    raise QueryError(problem, hint=hint, span=reference.span)


def _check_call(call: Call, function: str) -> None:
    if function not in FUNCTIONS:
        raise QueryError(
            f"unknown function '{function}'",
            hint=instead_of(function, _names()),
            span=call.span,
        )
    least, most = FUNCTIONS[function].least, FUNCTIONS[function].most
    given = len(call.arguments)
    if given < least or (most is not None and given > most):
        if most is None:
            wanted = f"at least {least}"
        else:
            wanted = str(least) if least == most else f"{least} or {most}"
        plural = "" if wanted in ("1", "at least 1") else "s"
        raise QueryError(
            f"{function} takes {wanted} argument{plural}, not {given}", span=call.span
        )


def _names() -> list[str]:
    """All names of functions and aggregates."""
    known = [name for f in FUNCTIONS.values() for name in (f.name, *f.aliases)]
    return [*(name for name in known if name.isidentifier()), *AGGREGATES, *OTHER_NAMES]


def _check_aggregate(aggregate: Aggregate, roles: Roles) -> None:
    name = aggregate.variable
    if name in roles.absent:
        raise QueryError(
            f"{aggregate.function} of {name}, which is negated: a match has no such event",
            hint=f"use the fields of {name} as they are, to say which events must not occur",
            span=aggregate.span,
        )
    if name not in roles.lists and aggregate.at is not At.ALL:
        raise _no_positions(name, aggregate)
    percent = aggregate.parameter if aggregate.function == "percentile" else None
    if isinstance(percent, int | float) and not 0 <= percent <= 100:
        raise QueryError(
            f"a percentage is from 0 to 100, not {percent:g}",
            hint=f"as in percentile({name}.price, 90)",
            span=aggregate.span,
        )


# ---------------------------------------------------------------------------------- positions


def _which(name: str, field: str | None) -> str:
    """A hint for a variable of several events where one is meant."""
    if field is None or field.lower() in ("length", "len", "count", "size"):
        return f"count({name}), or {name}.LEN, is their number; {name}[1].price is of the first"
    return (
        f"{name}[i].{field} for each, {name}[1] the first, {name}[{name}.LEN] the last, or an "
        f"aggregate: avg({name}.{field})"
    )


def _check_one_value(reference: Field | Aggregate, roles: Roles, *, whole: bool = False) -> None:
    """A reference that gives one value in each match, and for each i."""
    if isinstance(reference, Aggregate):
        return
    name, field = reference.variable, reference.name
    if name not in roles.lists:
        if reference.at is not At.ONLY:
            raise _no_positions(name, reference)
    elif reference.at is At.ONLY:
        raise QueryError(
            f"{name} stands for several events: which one do you mean?",
            hint=_which(name, field),
            span=reference.span,
        )
    elif reference.at in (At.ALL, At.BEFORE, At.THROUGH):
        raise QueryError(
            "several events where one value is needed",
            hint=f"take an aggregate, as in avg({_spelled(reference)}), "
            f"or {name}[i].{field or 'price'} for each of them",
            span=reference.span,
        )
    if field is None and not whole:
        raise _whole_event(reference)


def _check_settled(reference: Field | Aggregate, roles: Roles, clause: str) -> None:
    """A reference that means the same in all of a match: no running position, nothing absent."""
    name = reference.variable
    where = "the WHERE of its side" if clause == "ON" else "WHERE"
    if name in roles.absent:
        raise QueryError(
            f"{name} is negated: a match has no such event to use in {clause}",
            hint=f"conditions on {name} belong in {where}",
            span=reference.span,
        )
    if reference.at in _MOVING:
        raise QueryError(
            f"a running position in {clause}",
            hint=f"use [i] only in {where}; here take avg({name}.price), {name}[1] or "
            f"{name}[{name}.LEN]",
            span=reference.span,
        )


def _spelled(field: Field) -> str:
    position = {At.BEFORE: "[..i-1]", At.THROUGH: "[..i]"}.get(field.at, "")
    return f"{field.variable}{position}.{field.name or 'price'}"


def _no_positions(name: str, reference: Field | Aggregate) -> QueryError:
    field = reference.name if isinstance(reference, Field) else None
    return QueryError(
        f"{name} is a single event and has no positions",
        hint=f"write {name}.{field}" if field else f"write {name} without [...]",
        span=reference.span,
    )


def _whole_event(field: Field) -> QueryError:
    return QueryError(
        f"{field.variable} is a whole event, and a value is needed here",
        hint=f"take one of its fields, as in {field.variable}.price",
        span=field.span,
    )
