"""Syntax trees of expressions to algebra."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

from lark import Token, Tree

from ensue.algebra import functions
from ensue.algebra.chains import chain
from ensue.algebra.durations import nanoseconds
from ensue.algebra.predicate import (
    GROUP,
    VALUE,
    Aggregate,
    At,
    Between,
    Binary,
    Call,
    Expr,
    Field,
    In,
    IsNull,
    Like,
    Literal,
    Unary,
)
from ensue.algebra.query import Equivalence
from ensue.errors import QueryError
from ensue.languages import sql_forms
from ensue.languages.aggregate_calls import aggregated, distinct_of, is_aggregate, tally
from ensue.languages.function_calls import called, part_of
from ensue.span import Span

Node = Tree[Token]

_OPERATORS = {"==": "=", "<>": "!=", "≠": "!=", "≤": "<=", "≥": ">="}
_INTERVAL = re.compile(r"\s*(-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+))\s*([^\W\d]*)\s*")
POSITIONS = "a[1], a[i], a[i-1], a[a.LEN]; in an aggregate also a[..i-1], a[..i], a[]"


def span_of(node: Node | Token) -> Span:
    """Where in the text a piece of syntax stands."""
    if isinstance(node, Token):
        start, end = node.start_pos, node.end_pos
    else:
        start, end = node.meta.start_pos, node.meta.end_pos
    assert start is not None
    assert end is not None
    return Span(start, end)


def pieces(node: Node) -> list[Any]:
    """What is directly inside: trees, tokens, or None, each as the grammar's rule says."""
    return node.children


def name_of(token: Token) -> str:
    """A name without its quotes."""
    if token.type != "QUOTED":
        return str(token)
    quote = token[0]
    name = token[1:-1].replace(quote * 2, quote)
    if not name:
        raise QueryError("a name cannot be empty", span=span_of(token))
    return name


def condition(node: Node) -> tuple[tuple[Expr, ...], tuple[Equivalence, ...]]:
    """The conjuncts of a WHERE clause, and its `[attr]`s."""
    if len(node.children) > 1:
        return (_alternatives(node),), ()
    (inside,) = pieces(node)
    terms = inside.children if inside.data == "conjunction" else [inside]
    conjuncts = [expr_of(term) for term in terms if term.data != "equivalence"]
    fields = [name for term in terms if term.data == "equivalence" for name in term.children]
    return tuple(conjuncts), tuple(Equivalence(name_of(f), span_of(f)) for f in fields)


def expr_of(node: Node) -> Expr:
    """The expression that a syntax tree stands for."""
    span = span_of(node)
    match node.data, pieces(node):
        case "expression", _:
            return _alternatives(node)
        case "conjunction", terms:
            return chain("and", [expr_of(term) for term in terms])
        case "equivalence", _:
            raise QueryError(
                "[attr] must be a condition of its own in WHERE or ON, joined with 'and'",
                hint="to compare two events in another way, write a.id = b.id",
                span=span,
            )
        case "inverted", [operand]:
            return Unary("not", expr_of(operand), span)
        case "minus", [_, operand]:
            return Unary("-", expr_of(operand), span)
        case "binary", [left, operator, right]:
            symbol = _OPERATORS.get(operator, str(operator))
            return Binary(symbol, expr_of(left), expr_of(right), span)
        case "is_null", [operand, negated]:
            return IsNull(expr_of(operand), negated is not None, span)
        case "is_true", [operand, negated]:
            return sql_forms.is_true(expr_of(operand), negated is not None, span)
        case "is_false", [operand, negated]:
            return sql_forms.is_false(expr_of(operand), negated is not None, span)
        case "is_distinct", [left, negated, right]:
            sides = expr_of(left), expr_of(right)
            return sql_forms.is_distinct(sides[0], negated is not None, sides[1], span)
        case "ilike", [operand, negated, pattern]:
            text = _unquoted(pattern)
            return sql_forms.ilike(expr_of(operand), negated is not None, text, span)
        case "rlike", [operand, negated, written]:
            found = Call("regexp_matches", (expr_of(operand), expr_of(written)), span)
            return Unary("not", found, span) if negated is not None else found
        case "cases", [*parts, _]:
            return sql_forms.chosen(_cases(parts), span)
        case "cases_of", [subject, *parts, _]:
            return sql_forms.chosen_by(expr_of(subject), _cases(parts), span)
        case "case_call", arguments:
            return sql_forms.chosen([expr_of(argument) for argument in arguments], span)
        case "at_time_zone", [time, zone]:
            named = Literal(_unquoted(zone), span_of(zone))
            return Call(functions.AT_TIME_ZONE, (expr_of(time), named), span)
        case "cast", [operand, kind]:
            return sql_forms.cast(expr_of(operand), kind, span)
        case "is_in", [operand, negated, *options]:
            inside = tuple(expr_of(option) for option in options)
            return In(expr_of(operand), inside, negated is not None, span)
        case "between", [operand, negated, low, high]:
            return Between(
                expr_of(operand), expr_of(low), expr_of(high), negated is not None, span
            )
        case "like", [operand, negated, pattern]:
            return Like(expr_of(operand), _unquoted(pattern), negated is not None, span)
        case "reference", [variable, index, field]:
            event = event_of(variable, index, span)
            return replace(event, name=_field_name(field)) if field else event
        case "call", [function, *arguments]:
            inside = tuple(expr_of(argument) for argument in arguments if argument)
            return called(name_of(function).lower(), inside, span)
        case "tally", [function, _]:
            return tally(name_of(function).lower(), span)
        case "distinct_call", [function, *arguments]:
            inside = tuple(expr_of(argument) for argument in arguments)
            return distinct_of(name_of(function).lower(), inside, span)
        case "extract", [part, operand]:
            return part_of(Literal(str(part), span_of(part)), expr_of(operand), span)
        case "wkt", [_, text]:
            return Call(functions.WKT, (Literal(_unquoted(text), span_of(text)),), span)
        case _:
            return Literal(_constant(node, span), span)


def _cases(parts: Sequence[Node | None]) -> list[Expr]:
    """Conditions and values in turn, and at the end what else there is."""
    inside = [part.children for part in parts if part is not None]
    return [expr_of(e) for part in inside for e in part if isinstance(e, Tree)]


def _alternatives(node: Node) -> Expr:
    return chain("or", [expr_of(alternative) for alternative in pieces(node)])


# ---------------------------------------------------------------------------------- constants


def _constant(node: Node, span: Span) -> bool | int | float | str | datetime | timedelta | None:
    match node.data, pieces(node):
        case "true", _:
            return True
        case "false", _:
            return False
        case "null", _:
            return None
        case "string", [text]:
            return _unquoted(text)
        case "number", [digits]:
            return number(digits)
        case "percent", [digits]:
            # By the exponent, so that 7% is the very float that 0.07 is.
            return _finite(float(f"{digits[:-1]}e-2"), span)
        case "duration", [amount, unit]:
            return _duration(nanoseconds(amount, unit, span), span)
        case "interval", [text, unit]:
            return _duration(interval(text, unit, span), span)
        case "timestamp", [keyword, text]:
            return _instant(keyword.type == "DATE", _unquoted(text), span)
        case _:
            raise AssertionError(node.data)


def number(token: Token) -> int | float:
    """The value of a number: an integer if it is written as one."""
    if token.isdigit() and len(token) <= 300:
        return int(token)
    return _finite(float(token), span_of(token))


def interval(text: Token, unit: Token | None, span: Span) -> int:
    """The nanoseconds of `INTERVAL '5' MINUTE` or `INTERVAL '5 minutes'`."""
    found = _INTERVAL.fullmatch(_unquoted(text))
    if not found or bool(found[2]) == bool(unit):
        raise QueryError(
            "this interval cannot be read",
            hint="write INTERVAL '5' MINUTE, INTERVAL '5 minutes', or just 5 minutes",
            span=span,
        )
    return nanoseconds(found[1], found[2] or str(unit), span)


def _finite(value: float, span: Span) -> float:
    if math.isinf(value):
        raise QueryError("this number is too large", span=span)
    return value


def _duration(length: int, span: Span) -> timedelta:
    if length % 1000:
        raise QueryError(
            "durations in conditions must be whole microseconds",
            hint="round it to microseconds: 1 us",
            span=span,
        )
    return timedelta(microseconds=length // 1000)


def _instant(day_only: bool, text: str, span: Span) -> datetime:
    try:
        if day_only:
            return datetime.combine(date.fromisoformat(text.strip()), datetime.min.time())
        return datetime.fromisoformat(text.strip())
    except ValueError:
        form = "DATE '2026-01-31'" if day_only else "TIMESTAMP '2026-01-31 10:00:00'"
        raise QueryError(
            f"'{text}' is not a {'date' if day_only else 'timestamp'}",
            hint=f"write it as {form}",
            span=span,
        ) from None


def _unquoted(token: Token) -> str:
    return token[1:-1].replace("''", "'")


# --------------------------------------------------------------------------------- references


def event_of(variable: Token, index: Node | None, span: Span) -> Field:
    """A whole event: of a Kleene variable the one at a position."""
    at, nth = (At.ONLY, 1) if index is None else _position(index, name_of(variable))
    return Field(name_of(variable), None, at, nth, span)


def _position(index: Node, variable: str) -> tuple[At, int]:
    span = span_of(index)
    match index.data, pieces(index):
        case "whole", _:
            return At.ALL, 1
        case "nth", [digits]:
            return At.NTH, _nth(digits, variable)
        case "moving", ["i"]:
            return At.CURRENT, 1
        case "moving", ["i", _, "1"]:
            return At.PREVIOUS, 1
        case "moving_up_to", ["i"]:
            return At.THROUGH, 1
        case "moving_up_to", ["i", _, "1"]:
            return At.BEFORE, 1
        case "length", [owner, length] if length.upper() == "LEN":
            if name_of(owner) == variable:
                return At.LAST, 1
            raise QueryError(
                f"{owner}.LEN is the length of another variable",
                hint=f"the last event of {variable} is {variable}[{variable}.LEN]",
                span=span,
            )
        case _:
            raise QueryError(
                "this is not a position in a Kleene variable",
                hint=f"positions are {POSITIONS}",
                span=span,
            )


def _field_name(field: Node | Token) -> str:
    """The name of a field; of a member's field with the way to it: `a.price`, `k[1].price`."""
    if isinstance(field, Token):
        return name_of(field)
    steps = []
    for step in field.children:
        assert isinstance(step, Tree)
        name, index = pieces(step)
        steps.append(name_of(name) + ("" if index is None else _member(index, name_of(name))))
    return ".".join(steps)


def _member(index: Node, variable: str) -> str:
    match _position(index, variable):
        case At.NTH, nth:
            return f"[{nth}]"
        case At.LAST, _:
            return "[last]"
        case _:
            raise QueryError(
                "a member is named by its number",
                hint=f"{variable}[1] is the first, {variable}[{variable}.LEN] the last",
                span=span_of(index),
            )


def _nth(digits: Token, variable: str) -> int:
    span = span_of(digits)
    if not digits.isdigit() or len(digits) > 9:
        raise QueryError(
            "a position must be a whole number", hint=f"as in {variable}[1]", span=span
        )
    if int(digits) == 0:
        raise QueryError(
            "positions count from 1",
            hint=f"the first event is {variable}[1]",
            span=span,
        )
    return int(digits)


# ---------------------------------------------------------------------------- over the matches


def over_matches(node: Node) -> tuple[Expr, Aggregate] | None:
    """An aggregate over the matches of a group: what it asks of each of them, and how these
    values are taken together. None: it is no aggregate."""
    inside = node
    while inside.data in ("expression", "conjunction") and len(inside.children) == 1:
        (inside,) = (child for child in inside.children if isinstance(child, Tree))
    span = span_of(inside)
    match inside.data, pieces(inside):
        case "tally", [function, _]:
            tally(name_of(function).lower(), span)
            asked: Expr = Literal(True, span)
            made: Expr = aggregated("count", [_OF_A_GROUP], span)
        case "distinct_call", [function, first, *others]:
            asked = expr_of(first)
            arguments = [_OF_A_GROUP, *(expr_of(other) for other in others)]
            made = distinct_of(name_of(function).lower(), arguments, span)
        case "call", [function, first, *others] if first and is_aggregate(name_of(function)):
            asked = expr_of(first)
            arguments = [_OF_A_GROUP, *(expr_of(other) for other in others)]
            made = aggregated(name_of(function).lower(), arguments, span)
        case _:
            return None
    if isinstance(asked, Field) and asked.name is None:
        name, function = asked.variable, pieces(inside)[0]
        raise QueryError(
            f"with GROUP BY, {function.lower()} is over matches, and {name} is an event",
            hint=f"COUNT(*) counts the matches, sum(count({name})) all their events of {name}",
            span=span,
        )
    if not isinstance(made, Aggregate):
        raise QueryError(
            "with GROUP BY, this stands for several aggregates",
            hint="write them out: max(a.price) AS most, min(a.price) AS least",
            span=span,
        )
    return asked, made


_OF_A_GROUP = Field(GROUP, VALUE, At.ALL)
