"""Calls of functions, also by names and in forms that other systems have for them."""

import math
from collections.abc import Callable, Sequence
from datetime import timedelta

from ensue.algebra.functions import FUNCTIONS, name_of
from ensue.algebra.functions.choices import CASE
from ensue.algebra.functions.times import LENGTHS, MONTHS, unit_of
from ensue.algebra.predicate import Binary, Call, Expr, Field, IsNull, Literal, Unary
from ensue.errors import QueryError, did_you_mean
from ensue.languages.aggregate_calls import aggregate_of
from ensue.languages.sql_forms import chosen_by
from ensue.span import Span

Arguments = Sequence[Expr]
_PARTS = {"doy": "dayofyear", "dow": "dayofweek", "weekday": "", "isoweek": "week"}
_LENGTHS = LENGTHS | {"week": timedelta(weeks=1)}


def called(written: str, arguments: Arguments, span: Span) -> Expr:
    """What a call stands for. Functions that there are not are found where names are checked.

    >>> called("nvl2", [Field("a", "x"), Literal(1), Literal(2)], Span(0, 1)).function
    'case'
    """
    found = form_of(written, arguments, span) or aggregate_of(written, arguments, span)
    return found or Call(name_of(written), tuple(arguments), span)


def form_of(written: str, arguments: Arguments, span: Span) -> Expr | None:
    """A call that means another expression; None: it means a function."""
    if written == "decode" and len(arguments) > 2:
        return chosen_by(arguments[0], arguments[1:], span)
    form = _FORMS.get((written, len(arguments)))
    return None if form is None else form(arguments, span)


def part_of(part: Expr, time: Expr, span: Span) -> Expr:
    """`EXTRACT(hour FROM t)`, `date_part('hour', t)`: the function of that name."""
    name = _unit(part) or ""
    name = _PARTS.get(name, name)
    record = FUNCTIONS.get(name_of(name))
    unit = unit_of(name)
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
    return Call(record.name, (time,), span)


def _unit(expr: Expr) -> str | None:
    """A unit as a string, or as other systems write it: dateadd(hour, 3, t)."""
    match expr:
        case Literal(value=str() as text):
            return text.strip().lower()
        case Field(variable=name, name=None):
            return name.lower()
        case _:
            return None


# --------------------------------------------------------------------------------------- forms


def _as(name: str, *places: int) -> Callable[[Arguments, Span], Expr]:
    """A function of ours that takes its arguments in another order."""
    return lambda given, span: Call(name, tuple(given[place] for place in places), span)


def _constant(value: float) -> Callable[[Arguments, Span], Expr]:
    return lambda _, span: Literal(value, span)


def _zero_otherwise(given: Arguments, span: Span) -> Expr:
    return Call("coalesce", (given[0], Literal(0, span)), span)


def _is_null(*, negated: bool) -> Callable[[Arguments, Span], Expr]:
    return lambda given, span: IsNull(given[0], negated, span)


def _if_there(given: Arguments, span: Span) -> Expr:
    return Call(CASE, (IsNull(given[0], True, span), *given[1:]), span)


def _days(sign: str) -> Callable[[Arguments, Span], Expr]:
    """`date_add(t, 3)` counts days, as Spark does; a length of time is added as it is."""

    def moved(given: Arguments, span: Span) -> Expr:
        time, by = given
        if not _is_length(by):
            by = Binary("*", by, Literal(timedelta(days=1), span), span)
        return Binary(sign, time, by, span)

    return moved


def _is_length(expr: Expr) -> bool:
    match expr:
        case Literal(value=timedelta()):
            return True
        case Unary(operand=inner):
            return _is_length(inner)
        case Binary(left=left, right=right):
            return _is_length(left) or _is_length(right)
        case _:
            return False


def _moved(given: Arguments, span: Span) -> Expr:
    """`dateadd('hour', 3, t)`."""
    written, count, time = given
    unit = unit_of(_unit(written) or "")
    if unit is None:
        raise QueryError(
            "the first argument is a unit of time",
            hint="as in dateadd('hour', 3, a.time), or a.time + 3 hours",
            span=written.span or span,
        )
    if unit in _LENGTHS:
        by = Binary("*", count, Literal(_LENGTHS[unit], span), span)
        return Binary("+", time, by, span)
    months = count if unit == "month" else Binary("*", count, Literal(MONTHS[unit], span), span)
    return Call("add_months", (time, months), span)


def _between(given: Arguments, span: Span) -> Expr:
    """`date_diff('day', t, u)`, where other systems write the unit without quotes."""
    unit = given[0]
    if isinstance(unit, Field) and unit.name is None and unit_of(unit.variable):
        unit = Literal(unit.variable.lower(), unit.span)
    return Call("date_diff", (unit, *given[1:]), span)


def _days_between(given: Arguments, span: Span) -> Expr:
    """`datediff(end, start)`, as Spark has it."""
    return Call("date_diff", (Literal("day", span), given[1], given[0]), span)


# By name and number of arguments: a call that means another expression.
_FORMS: dict[tuple[str, int], Callable[[Arguments, Span], Expr]] = {
    ("pi", 0): _constant(math.pi),
    ("e", 0): _constant(math.e),
    ("nvl2", 3): _if_there,
    ("zeroifnull", 1): _zero_otherwise,
    ("nullifzero", 1): lambda given, span: Call("nullif", (given[0], Literal(0, span)), span),
    ("isnull", 1): _is_null(negated=False),
    ("isnotnull", 1): _is_null(negated=True),
    ("locate", 2): _as("position", 1, 0),
    ("charindex", 2): _as("position", 1, 0),
    ("date_part", 2): lambda given, span: part_of(given[0], given[1], span),
    ("datepart", 2): lambda given, span: part_of(given[0], given[1], span),
    ("date_add", 2): _days("+"),
    ("date_sub", 2): _days("-"),
    ("datediff", 2): _days_between,
    ("date_diff", 3): _between,
    ("datediff", 3): _between,
    **{(name, 3): _moved for name in ("dateadd", "date_add", "timestampadd")},
}
