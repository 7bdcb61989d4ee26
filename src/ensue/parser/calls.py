"""Builds function calls, aggregates and SQL forms, also by names that other systems use."""

import math
from collections.abc import Callable, Sequence
from datetime import timedelta

from lark import Token, Tree

from ensue.errors import QueryError, Span, did_you_mean
from ensue.functions import FUNCTIONS, resolve_function_name
from ensue.functions.casts import CAST_FUNCTIONS, DECIMAL_TYPES, coalesce_to_false
from ensue.functions.datetime import LENGTHS, MONTHS, parse_unit
from ensue.functions.interpreter import AGGREGATE_ALIASES
from ensue.functions.record import CASE
from ensue.ir import expression
from ensue.ir.expression import Expr
from ensue.ir.traversal import iterate_references

Arguments = Sequence[Expr]
Builder = Callable[[Arguments, Span], Expr]


def build_aggregate(name: str, arguments: Arguments, span: Span) -> Expr | None:
    """Builds a call of an aggregate; returns None for other functions."""
    canonical = AGGREGATE_ALIASES.get(name, name)
    if canonical in expression.AGGREGATES:
        return _aggregate(canonical, arguments, span)
    build = _DERIVED.get(canonical)
    if build is None:
        return None
    if len(arguments) != (2 if canonical in _FRACTIONS else 1):
        expected = "an expression and a fraction" if canonical in _FRACTIONS else "one argument"
        raise QueryError(f"{name} takes {expected}, not {len(arguments)}", span=span)
    return build(arguments, span)


def is_aggregate_name(written: str) -> bool:
    """Whether a name is that of an aggregate."""
    name = AGGREGATE_ALIASES.get(written.lower(), written.lower())
    return name in expression.AGGREGATES or name in _DERIVED


def build_distinct_count(name: str, arguments: Arguments, span: Span) -> Expr:
    """Builds `count(DISTINCT a.kind)`."""
    if name != "count" or len(arguments) != 1:
        raise QueryError(
            "DISTINCT stands in count(DISTINCT a.kind), with one argument",
            hint="min and max are the same with it and without",
            span=span,
        )
    return _aggregate("count_distinct", arguments, span)


def _quantile(arguments: Arguments, span: Span) -> Expr:
    example = "quantile(a.price, 0.9), which is percentile(a.price, 90)"
    fraction = _read_number(arguments[1], "quantile", 1, example)
    percent = expression.Literal(round(fraction * 100, 10), arguments[1].span)
    return _aggregate("percentile", (arguments[0], percent), span)


def _range(arguments: Arguments, span: Span) -> Expr:
    most, least = (_aggregate(name, arguments, span) for name in ("max", "min"))
    return expression.Binary("-", most, least, span)


def _count_if(arguments: Arguments, span: Span) -> Expr:
    counted = expression.FunctionCall(CASE, (arguments[0], expression.Literal(1, span)), span)
    return _aggregate("count", (counted,), span)


_FRACTIONS = ("quantile", "quantile_cont", "percentile_cont")
_DERIVED: dict[str, Builder] = {
    "median": lambda arguments, span: _aggregate("percentile", (*arguments, expression.Literal(50, span)), span),
    "range": _range,
    "count_if": _count_if,
    "countif": _count_if,
    **dict.fromkeys(_FRACTIONS, _quantile),
}


def build_match_count(function: str, span: Span) -> expression.Aggregate:
    """Builds COUNT(*), which counts matches."""
    if function == "count":
        return expression.Aggregate("count", expression.MATCHES, None, span=span)
    raise QueryError(
        f"{function}(*) does not exist: only COUNT(*) counts matches",
        hint="use the events of a variable, as in avg(a.price)",
        span=span,
    )


def _aggregate(function: str, arguments: Arguments, span: Span) -> expression.Aggregate:
    parameter: float | str | None = None
    if function == "percentile":
        if len(arguments) != 2:
            raise QueryError(
                "percentile takes an expression and a percentage", hint="as in percentile(a.price, 90)", span=span
            )
        parameter = float(_read_number(arguments[1], "percentile", 100, "percentile(a.price, 90)"))
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
    if isinstance(argument, expression.FieldRef) and argument.name is None:
        if function != "count":
            raise QueryError(
                f"{function} needs a field of {variable}", hint=f"as in {function}({variable}.price)", span=span
            )
        return expression.Aggregate(function, variable, None, at, None, span)
    return expression.Aggregate(function, variable, argument, at, parameter, span)


def _read_number(expr: Expr, name: str, most: int, example: str) -> int | float:
    if isinstance(expr, expression.Literal) and isinstance(expr.value, int | float):
        return expr.value
    raise QueryError(
        f"the second argument of {name} is a number from 0 to {most}", hint=f"as in {example}", span=expr.span
    )


def _separator(expr: Expr) -> str:
    if isinstance(expr, expression.Literal) and isinstance(expr.value, str):
        return expr.value
    raise QueryError("the separator must be a string", hint="as in string_agg(a.name, ', ')", span=expr.span)


def _subject(function: str, argument: Expr, span: Span) -> tuple[str, expression.EventPosition]:
    """Returns the one variable an aggregate covers, and which of its events."""
    fields = []
    for reference in iterate_references(argument):
        if isinstance(reference, expression.Aggregate):
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
                f"{function} works over the events of one variable, not of {first.variable} and {other.variable}",
                hint="aggregate each variable on its own",
                span=span,
            )
    positions = {expression.EventPosition.ALL if f.at is expression.EventPosition.ONLY else f.at for f in fields}
    if len(positions) > 1:
        raise QueryError(
            f"{function} mixes positions of {first.variable}",
            hint="use the same position in all of its fields",
            span=span,
        )
    (at,) = positions
    if at not in (expression.EventPosition.ALL, expression.EventPosition.BEFORE, expression.EventPosition.THROUGH):
        name = first.variable
        raise QueryError(
            f"{function} works over several events, and this position names one",
            hint=f"all of them: {name}[], those before the current one: {name}[..i-1]",
            span=first.span,
        )
    return first.variable, at


# -------------------------------- CASE, CAST, IS TRUE, IS DISTINCT FROM, ILIKE


def build_simple_case(subject: Expr, parts: Arguments, span: Span) -> Expr:
    """Builds `CASE x WHEN y THEN ...`, in which each condition compares x."""
    tests = range(0, len(parts) - 1, 2)
    arms = (expression.Binary("=", subject, p, p.span) if n in tests else p for n, p in enumerate(parts))
    return expression.FunctionCall(CASE, tuple(arms), span)


def build_cast(operand: Expr, kind: Tree[Token], span: Span) -> Expr:
    """Builds CAST as a call of the type's function; a decimal is a float, rounded to its scale."""
    *words, precision, scale = kind.children
    name = str(words[0]).lower()
    if name not in CAST_FUNCTIONS:
        raise QueryError(f"unknown type '{words[0]}'", hint=did_you_mean(name, list(CAST_FUNCTIONS)), span=span)
    converted = expression.FunctionCall(CAST_FUNCTIONS[name], (operand,), span)
    if name not in DECIMAL_TYPES or precision is None:
        return converted
    return expression.FunctionCall("round", (converted, expression.Literal(int(str(scale or 0)))), span)


def build_is_true(operand: Expr, negated: bool, span: Span) -> Expr:
    """Builds `x IS TRUE` and `x IS NOT TRUE`."""
    truth = coalesce_to_false(operand)
    return expression.Unary("not", truth, span) if negated else truth


def build_is_distinct(left: Expr, negated: bool, right: Expr, span: Span) -> Expr:
    """Builds `x IS DISTINCT FROM y`, for which two NULLs are equal."""
    distinct = expression.FunctionCall("is_distinct", (left, right), span)
    return expression.Unary("not", distinct, span) if negated else distinct


def build_ilike(operand: Expr, negated: bool, pattern: str, span: Span) -> Expr:
    """Builds ILIKE, which ignores case."""
    return expression.Like(expression.FunctionCall("lower", (operand,), span), pattern.lower(), negated, span)


_PARTS = {"doy": "dayofyear", "dow": "dayofweek", "weekday": "", "isoweek": "week"}
_LENGTHS = LENGTHS | {"week": timedelta(weeks=1)}


def build_call(name: str, arguments: Arguments, span: Span) -> Expr:
    """Builds a call by any known name; the analyzer reports unknown functions.

    >>> build_call(
    ...     "nvl2", [expression.FieldRef("a", "x"), expression.Literal(1), expression.Literal(2)], Span(0, 1)
    ... ).function
    'case'
    """
    rewritten = rewrite_call(name, arguments, span) or build_aggregate(name, arguments, span)
    return rewritten or expression.FunctionCall(resolve_function_name(name), tuple(arguments), span)


def rewrite_call(name: str, arguments: Arguments, span: Span) -> Expr | None:
    """Rewrites a call that stands for another expression; returns None for a function."""
    if name == "decode" and len(arguments) > 2:
        return build_simple_case(arguments[0], arguments[1:], span)
    build = _REWRITES.get((name, len(arguments)))
    return None if build is None else build(arguments, span)


def build_extract(part: Expr, time: Expr, span: Span) -> Expr:
    """Builds `EXTRACT(hour FROM t)` or `date_part('hour', t)`, which call a function."""
    name = _unit(part) or ""
    name = _PARTS.get(name, name)
    record = FUNCTIONS.get(resolve_function_name(name))
    unit = parse_unit(name)
    if record is None and unit is not None:
        record = FUNCTIONS.get(unit)
    if record is None or record.takes != FUNCTIONS["year"].takes:
        known = ["year", "quarter", "month", "week", "day", "dayofweek", "dayofyear", "hour"]
        known += ["minute", "second", "millisecond", "microsecond", "epoch", "isodow", "isoyear"]
        raise QueryError(
            f"'{name}' is no part of a time" if name else "the part of a time is a name",
            hint=did_you_mean(name, known),
            span=part.span or span,
        )
    return expression.FunctionCall(record.name, (time,), span)


def _unit(expr: Expr) -> str | None:
    """Reads a unit as a string, or as other systems write it: dateadd(hour, 3, t)."""
    match expr:
        case expression.Literal(value=str() as text):
            return text.strip().lower()
        case expression.FieldRef(variable=name, name=None):
            return name.lower()
        case _:
            return None


# ------------------------------------------------- calls that stand for other expressions


def _reorder(name: str, *places: int) -> Builder:
    """Calls a function with its arguments in another order."""
    return lambda arguments, span: expression.FunctionCall(name, tuple(arguments[place] for place in places), span)


def _days(sign: str) -> Builder:
    """`date_add(t, 3)` adds days, as in Spark; a duration is added as it is."""

    def moved(arguments: Arguments, span: Span) -> Expr:
        time, by = arguments
        if not _is_length(by):
            by = expression.Binary("*", by, expression.Literal(timedelta(days=1), span), span)
        return expression.Binary(sign, time, by, span)

    return moved


def _is_length(expr: Expr) -> bool:
    match expr:
        case expression.Literal(value=timedelta()):
            return True
        case expression.Unary(operand=inner):
            return _is_length(inner)
        case expression.Binary(left=left, right=right):
            return _is_length(left) or _is_length(right)
        case _:
            return False


def _date_add(arguments: Arguments, span: Span) -> Expr:
    """`dateadd('hour', 3, t)`."""
    written, count, time = arguments
    unit = parse_unit(_unit(written) or "")
    if unit is None:
        raise QueryError(
            "the first argument is a unit of time",
            hint="as in dateadd('hour', 3, a.time), or a.time + 3 hours",
            span=written.span or span,
        )
    if unit in _LENGTHS:
        by = expression.Binary("*", count, expression.Literal(_LENGTHS[unit], span), span)
        return expression.Binary("+", time, by, span)
    months = count if unit == "month" else expression.Binary("*", count, expression.Literal(MONTHS[unit], span), span)
    return expression.FunctionCall("add_months", (time, months), span)


def _date_diff(arguments: Arguments, span: Span) -> Expr:
    """`date_diff('day', t, u)`; other systems write the unit without quotes."""
    unit = arguments[0]
    if isinstance(unit, expression.FieldRef) and unit.name is None and parse_unit(unit.variable):
        unit = expression.Literal(unit.variable.lower(), unit.span)
    return expression.FunctionCall("date_diff", (unit, *arguments[1:]), span)


# By name and number of arguments.
_REWRITES: dict[tuple[str, int], Builder] = {
    ("pi", 0): lambda _, span: expression.Literal(math.pi, span),
    ("e", 0): lambda _, span: expression.Literal(math.e, span),
    ("nvl2", 3): lambda a, span: expression.FunctionCall(CASE, (expression.IsNull(a[0], True, span), *a[1:]), span),
    ("zeroifnull", 1): lambda a, span: expression.FunctionCall("coalesce", (*a, expression.Literal(0, span)), span),
    ("nullifzero", 1): lambda a, span: expression.FunctionCall("nullif", (*a, expression.Literal(0, span)), span),
    ("isnull", 1): lambda a, span: expression.IsNull(a[0], False, span),
    ("isnotnull", 1): lambda a, span: expression.IsNull(a[0], True, span),
    ("locate", 2): _reorder("position", 1, 0),
    ("charindex", 2): _reorder("position", 1, 0),
    ("date_part", 2): lambda a, span: build_extract(a[0], a[1], span),
    ("datepart", 2): lambda a, span: build_extract(a[0], a[1], span),
    ("date_add", 2): _days("+"),
    ("date_sub", 2): _days("-"),
    ("datediff", 2): lambda a, span: expression.FunctionCall(  # (end, start), as in Spark
        "date_diff", (expression.Literal("day", span), a[1], a[0]), span
    ),
    ("date_diff", 3): _date_diff,
    ("datediff", 3): _date_diff,
    **{(name, 3): _date_add for name in ("dateadd", "date_add", "timestampadd")},
}
