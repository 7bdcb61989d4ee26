"""Calls of aggregates over the events of a variable: `avg(a.price)`, `count(DISTINCT a.kind)`."""

from collections.abc import Callable, Sequence

from ensue.algebra.aggregates import OTHER_NAMES
from ensue.algebra.functions.choices import CASE
from ensue.algebra.predicate import (
    AGGREGATES,
    MATCHES,
    Aggregate,
    At,
    Binary,
    Call,
    Expr,
    Field,
    Literal,
)
from ensue.algebra.walk import references
from ensue.errors import QueryError
from ensue.span import Span

Made = Callable[[Sequence[Expr], Span], Expr]


def aggregate_of(written: str, arguments: Sequence[Expr], span: Span) -> Expr | None:
    """What a call of an aggregate stands for; None: it is no aggregate."""
    name = OTHER_NAMES.get(written, written)
    if name in AGGREGATES:
        return _aggregate(name, arguments, span)
    made = _BY_OTHERS.get(name)
    if made is None:
        return None
    if len(arguments) != (2 if name in _FRACTIONS else 1):
        wanted = "an expression and a fraction" if name in _FRACTIONS else "one argument"
        raise QueryError(f"{written} takes {wanted}, not {len(arguments)}", span=span)
    return made(arguments, span)


def is_aggregate(written: str) -> bool:
    """Whether a name is that of an aggregate."""
    name = OTHER_NAMES.get(written.lower(), written.lower())
    return name in AGGREGATES or name in _BY_OTHERS


def aggregated(written: str, arguments: Sequence[Expr], span: Span) -> Expr:
    """What a call of something that is an aggregate stands for."""
    found = aggregate_of(written, arguments, span)
    assert found is not None
    return found


def distinct_of(written: str, arguments: Sequence[Expr], span: Span) -> Expr:
    """`count(DISTINCT a.kind)`."""
    if written != "count" or len(arguments) != 1:
        raise QueryError(
            "DISTINCT stands in count(DISTINCT a.kind), with one argument",
            hint="min and max are the same with it and without",
            span=span,
        )
    return _aggregate("count_distinct", arguments, span)


# ------------------------------------------------------------------ those that others stand for


def _median(arguments: Sequence[Expr], span: Span) -> Expr:
    return _aggregate("percentile", (*arguments, Literal(50, span)), span)


def _quantile(arguments: Sequence[Expr], span: Span) -> Expr:
    fraction = arguments[1]
    if not (isinstance(fraction, Literal) and isinstance(fraction.value, int | float)):
        raise QueryError(
            "the second argument of quantile is a number from 0 to 1",
            hint="as in quantile(a.price, 0.9), which is percentile(a.price, 90)",
            span=fraction.span,
        )
    percent = Literal(round(fraction.value * 100, 10), fraction.span)
    return _aggregate("percentile", (arguments[0], percent), span)


def _range(arguments: Sequence[Expr], span: Span) -> Expr:
    most, least = (_aggregate(name, arguments, span) for name in ("max", "min"))
    return Binary("-", most, least, span)


def _count_if(arguments: Sequence[Expr], span: Span) -> Expr:
    counted = Call(CASE, (arguments[0], Literal(1, span)), span)
    return _aggregate("count", (counted,), span)


_FRACTIONS = ("quantile", "quantile_cont", "percentile_cont")
_BY_OTHERS: dict[str, Made] = {
    "median": _median,
    "range": _range,
    "count_if": _count_if,
    "countif": _count_if,
    **dict.fromkeys(_FRACTIONS, _quantile),
}


# ------------------------------------------------------------------------------------ the rest


def tally(function: str, span: Span) -> Aggregate:
    if function == "count":
        return Aggregate("count", MATCHES, None, span=span)
    raise QueryError(
        f"{function}(*) does not exist: only COUNT(*) counts matches",
        hint="use the events of a variable, as in avg(a.price)",
        span=span,
    )


def _aggregate(function: str, arguments: Sequence[Expr], span: Span) -> Aggregate:
    parameter: float | str | None = None
    if function == "percentile":
        if len(arguments) != 2:
            raise QueryError(
                "percentile takes an expression and a percentage",
                hint="as in percentile(a.price, 90)",
                span=span,
            )
        parameter = _percentage(arguments[1])
    elif function == "string_agg" and len(arguments) in (1, 2):
        parameter = _separator(arguments[1]) if len(arguments) == 2 else ","
    elif len(arguments) != 1:
        scalar = {"min": "least", "max": "greatest"}.get(function)
        raise QueryError(
            f"{function} takes one argument, not {len(arguments)}",
            hint=f"{scalar}(x, y) picks one of several values" if scalar else None,
            span=span,
        )
    argument = arguments[0]
    variable, at = _subject(function, argument, span)
    if isinstance(argument, Field) and argument.name is None:
        if function != "count":
            raise QueryError(
                f"{function} needs a field of {variable}",
                hint=f"as in {function}({variable}.price)",
                span=span,
            )
        return Aggregate(function, variable, None, at, None, span)
    return Aggregate(function, variable, argument, at, parameter, span)


def _percentage(expr: Expr) -> float:
    if isinstance(expr, Literal) and isinstance(expr.value, int | float):
        return float(expr.value)
    raise QueryError(
        "the second argument of percentile is a number from 0 to 100",
        hint="as in percentile(a.price, 90)",
        span=expr.span,
    )


def _separator(expr: Expr) -> str:
    if isinstance(expr, Literal) and isinstance(expr.value, str):
        return expr.value
    raise QueryError(
        "what stands between the texts is a string",
        hint="as in string_agg(a.name, ', ')",
        span=expr.span,
    )


def _subject(function: str, argument: Expr, span: Span) -> tuple[str, At]:
    """The one variable an aggregate is over, and which of its events."""
    fields = []
    for reference in references(argument):
        if isinstance(reference, Aggregate):
            raise QueryError(
                "an aggregate inside an aggregate",
                hint="aggregate once, over the events of one variable",
                span=reference.span,
            )
        fields.append(reference)
    if not fields:
        raise QueryError(
            f"{function} needs the events of a variable",
            hint=f"as in {function}(a.price), where a is a variable of the pattern",
            span=span,
        )
    first = fields[0]
    for other in fields[1:]:
        if other.variable != first.variable:
            raise QueryError(
                f"{function} works over the events of one variable, not of "
                f"{first.variable} and {other.variable}",
                hint="aggregate each variable on its own",
                span=span,
            )
    positions = {At.ALL if f.at is At.ONLY else f.at for f in fields}
    if len(positions) > 1:
        raise QueryError(
            f"{function} mixes positions of {first.variable}",
            hint="use the same position in all of its fields",
            span=span,
        )
    (at,) = positions
    if at not in (At.ALL, At.BEFORE, At.THROUGH):
        name = first.variable
        raise QueryError(
            f"{function} works over several events, and this position names one",
            hint=f"all of them: {name}[], those before the current one: {name}[..i-1]",
            span=first.span,
        )
    return first.variable, at
