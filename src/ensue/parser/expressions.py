"""Transforms the syntax trees of expressions to the IR."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

from lark import Token, Tree

from ensue import functions
from ensue.errors import QueryError, Span
from ensue.functions.record import CASE
from ensue.ir import expression
from ensue.ir.expression import Expr
from ensue.ir.query import Equivalence
from ensue.ir.traversal import build_chain
from ensue.ir.values import convert_to_nanoseconds
from ensue.parser import calls

Node = Tree[Token]

OPERATORS = {"==": "=", "<>": "!=", "≠": "!=", "≤": "<=", "≥": ">="}
_INTERVAL = re.compile(r"\s*(-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+))\s*([^\W\d]*)\s*")
POSITIONS = "a[1], a[i], a[i-1], a[a.LEN]; in an aggregate also a[..i-1], a[..i], a[]"


def get_span(node: Node | Token) -> Span:
    """Returns the position of a node or token in the text."""
    if isinstance(node, Token):
        start, end = node.start_pos, node.end_pos
    else:
        start, end = node.meta.start_pos, node.meta.end_pos
    assert start is not None
    assert end is not None
    return Span(start, end)


def get_children(node: Node) -> list[Any]:
    """Returns the children of a node: trees, tokens, or None, as the grammar's rule defines."""
    return node.children


def unquote_name(token: Token) -> str:
    """Returns a name without its quotes."""
    if token.type != "QUOTED":
        return str(token)
    quote = token[0]
    name = token[1:-1].replace(quote * 2, quote)
    if not name:
        raise QueryError("a name cannot be empty", span=get_span(token))
    return name


def build_conjuncts(node: Node) -> tuple[tuple[Expr, ...], tuple[Equivalence, ...]]:
    """Builds the conjuncts of a WHERE clause, and its `[attr]`s."""
    if len(node.children) > 1:
        return (_build_or(node),), ()
    (inside,) = get_children(node)
    terms = inside.children if inside.data == "conjunction" else [inside]
    conjuncts = [build_expression(term) for term in terms if term.data != "equivalence"]
    fields = [name for term in terms if term.data == "equivalence" for name in term.children]
    return tuple(conjuncts), tuple(Equivalence(unquote_name(f), get_span(f)) for f in fields)


def build_expression(node: Node) -> Expr:
    """Builds the expression of a syntax tree."""
    span = get_span(node)
    match node.data, get_children(node):
        case "expression", _:
            return _build_or(node)
        case "conjunction", terms:
            return build_chain("and", [build_expression(term) for term in terms])
        case "equivalence", _:
            raise QueryError(
                "[attr] must be a separate condition in WHERE or ON, joined with 'and'",
                hint="to compare two events in another way, write a.id = b.id",
                span=span,
            )
        case "inverted", [operand]:
            return expression.Unary("not", build_expression(operand), span)
        case "minus", [_, operand]:
            return expression.Unary("-", build_expression(operand), span)
        case "binary", [left, operator, right]:
            symbol = OPERATORS.get(operator, str(operator))
            return expression.Binary(symbol, build_expression(left), build_expression(right), span)
        case "is_null", [operand, negated]:
            return expression.IsNull(build_expression(operand), negated is not None, span)
        case "is_true" | "is_false" as form, [operand, negated]:
            condition = build_expression(operand)
            condition = condition if form == "is_true" else expression.Unary("not", condition, span)
            return calls.build_is_true(condition, negated is not None, span)
        case "is_distinct", [left, negated, right]:
            sides = build_expression(left), build_expression(right)
            return calls.build_is_distinct(sides[0], negated is not None, sides[1], span)
        case "ilike", [operand, negated, pattern]:
            text = _unquote(pattern)
            return calls.build_ilike(build_expression(operand), negated is not None, text, span)
        case "rlike", [operand, negated, pattern]:
            matches = expression.FunctionCall(
                "regexp_matches", (build_expression(operand), build_expression(pattern)), span
            )
            return expression.Unary("not", matches, span) if negated is not None else matches
        case "cases", [*parts, _]:
            return expression.FunctionCall(CASE, tuple(_build_cases(parts)), span)
        case "cases_of", [subject, *parts, _]:
            return calls.build_simple_case(build_expression(subject), _build_cases(parts), span)
        case "case_call", arguments:
            return expression.FunctionCall(CASE, tuple(map(build_expression, arguments)), span)
        case "at_time_zone", [time, zone]:
            named = expression.Literal(_unquote(zone), get_span(zone))
            return expression.FunctionCall(functions.AT_TIME_ZONE, (build_expression(time), named), span)
        case "cast", [operand, kind]:
            return calls.build_cast(build_expression(operand), kind, span)
        case "is_in", [operand, negated, *options]:
            inside = tuple(build_expression(option) for option in options)
            return expression.In(build_expression(operand), inside, negated is not None, span)
        case "between", [operand, negated, low, high]:
            ends = build_expression(low), build_expression(high)
            return expression.Between(build_expression(operand), *ends, negated is not None, span)
        case "like", [operand, negated, pattern]:
            return expression.Like(build_expression(operand), _unquote(pattern), negated is not None, span)
        case "reference", [variable, index, field]:
            event = build_event_reference(variable, index, span)
            return replace(event, name=_build_field_name(field)) if field else event
        case "call", [function, *arguments]:
            inside = tuple(build_expression(argument) for argument in arguments if argument)
            return calls.build_call(unquote_name(function).lower(), inside, span)
        case "tally", [function, _]:
            return calls.build_match_count(unquote_name(function).lower(), span)
        case "distinct_call", [function, *arguments]:
            inside = tuple(build_expression(argument) for argument in arguments)
            return calls.build_distinct_count(unquote_name(function).lower(), inside, span)
        case "extract", [part, operand]:
            return calls.build_extract(expression.Literal(str(part), get_span(part)), build_expression(operand), span)
        case "wkt", [_, text]:
            return expression.FunctionCall(functions.WKT, (expression.Literal(_unquote(text), get_span(text)),), span)
        case _:
            return expression.Literal(_build_constant(node, span), span)


def _build_cases(parts: Sequence[Node | None]) -> list[Expr]:
    """Builds conditions and values in turn, with the value of ELSE at the end."""
    inside = [part.children for part in parts if part is not None]
    return [build_expression(e) for part in inside for e in part if isinstance(e, Tree)]


def _build_or(node: Node) -> Expr:
    return build_chain("or", [build_expression(alternative) for alternative in get_children(node)])


def _build_constant(node: Node, span: Span) -> bool | int | float | str | datetime | timedelta | None:
    match node.data, get_children(node):
        case "true", _:
            return True
        case "false", _:
            return False
        case "null", _:
            return None
        case "string", [text]:
            return _unquote(text)
        case "number", [digits]:
            return parse_number(digits)
        case "percent", [digits]:
            # By the exponent, so that 7% is the same float as 0.07.
            return _require_finite(float(f"{digits[:-1]}e-2"), span)
        case "duration", [amount, unit]:
            return _build_duration(convert_to_nanoseconds(amount, unit, span), span)
        case "interval", [text, unit]:
            return _build_duration(parse_interval(text, unit, span), span)
        case "timestamp", [keyword, text]:
            return parse_timestamp(keyword.type == "DATE", _unquote(text), span)
        case _:
            raise AssertionError(node.data)


def parse_number(text: str, span: Span | None = None) -> int | float:
    """Parses a number: an integer if it is written as one.

    >>> parse_number("17"), parse_number("1.5e3")
    (17, 1500.0)
    """
    if text.isdigit() and len(text) <= 300:
        return int(text)
    return _require_finite(float(text), get_span(text) if isinstance(text, Token) else span)


def parse_interval(text: Token, unit: Token | None, span: Span) -> int:
    """Parses `INTERVAL '5' MINUTE` or `INTERVAL '5 minutes'` to nanoseconds."""
    parsed = _INTERVAL.fullmatch(_unquote(text))
    if not parsed or bool(parsed[2]) == bool(unit):
        raise QueryError(
            "this interval cannot be read",
            hint="write INTERVAL '5' MINUTE, INTERVAL '5 minutes', or just 5 minutes",
            span=span,
        )
    return convert_to_nanoseconds(parsed[1], parsed[2] or str(unit), span)


def _require_finite(value: float, span: Span | None) -> float:
    if math.isinf(value):
        raise QueryError("this number is too large", span=span)
    return value


def _build_duration(length: int, span: Span) -> timedelta:
    if length % 1000:
        raise QueryError(
            "durations in conditions must be whole microseconds", hint="round it to microseconds: 1 us", span=span
        )
    return timedelta(microseconds=length // 1000)


def parse_timestamp(day_only: bool, text: str, span: Span | None) -> datetime:
    """Parses the text of `DATE '...'` or `TIMESTAMP '...'`."""
    try:
        if day_only:
            return datetime.combine(date.fromisoformat(text.strip()), datetime.min.time())
        return datetime.fromisoformat(text.strip())
    except ValueError:
        form = "DATE '2026-01-31'" if day_only else "TIMESTAMP '2026-01-31 10:00:00'"
        raise QueryError(
            f"'{text}' is not a {'date' if day_only else 'timestamp'}", hint=f"write it as {form}", span=span
        ) from None


def _unquote(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def build_event_reference(variable: Token, index: Node | None, span: Span) -> expression.FieldRef:
    """Builds a reference to a whole event; for a Kleene variable, to the one at a position."""
    name = unquote_name(variable)
    at, nth = (expression.EventPosition.ONLY, 1) if index is None else _build_position(index, name)
    return expression.FieldRef(name, None, at, nth, span)


def _build_position(index: Node, variable: str) -> tuple[expression.EventPosition, int]:
    span = get_span(index)
    match index.data, get_children(index):
        case "whole", _:
            return expression.EventPosition.ALL, 1
        case "nth", [digits]:
            return expression.EventPosition.NTH, _parse_position(digits, variable)
        case "moving", ["i"]:
            return expression.EventPosition.CURRENT, 1
        case "moving", ["i", _, "1"]:
            return expression.EventPosition.PREVIOUS, 1
        case "moving_up_to", ["i"]:
            return expression.EventPosition.THROUGH, 1
        case "moving_up_to", ["i", _, "1"]:
            return expression.EventPosition.BEFORE, 1
        case "length", [owner, length] if length.upper() == "LEN":
            if unquote_name(owner) == variable:
                return expression.EventPosition.LAST, 1
            raise QueryError(
                f"{owner}.LEN is the length of another variable",
                hint=f"the last event of {variable} is {variable}[{variable}.LEN]",
                span=span,
            )
        case _:
            raise QueryError(
                "this is not a position in a Kleene variable", hint=f"positions are {POSITIONS}", span=span
            )


def _build_field_name(field: Node | Token) -> str:
    """Returns the name of a field, with the path of a member's field: `a.price`, `k[1].price`."""
    if isinstance(field, Token):
        return unquote_name(field)
    steps = []
    for step in field.children:
        assert isinstance(step, Tree)
        name, index = get_children(step)
        member = unquote_name(name)
        steps.append(member if index is None else member + _format_member(index, member))
    return ".".join(steps)


def _format_member(index: Node, variable: str) -> str:
    match _build_position(index, variable):
        case expression.EventPosition.NTH, nth:
            return f"[{nth}]"
        case expression.EventPosition.LAST, _:
            return "[last]"
        case _:
            raise QueryError(
                "a member is named by its number",
                hint=f"{variable}[1] is the first, {variable}[{variable}.LEN] the last",
                span=get_span(index),
            )


def _parse_position(digits: Token, variable: str) -> int:
    span = get_span(digits)
    if not digits.isdigit() or len(digits) > 9:
        raise QueryError("a position must be a whole number", hint=f"as in {variable}[1]", span=span)
    if int(digits) == 0:
        hint = f"the first event is {variable}[1]"
        raise QueryError("positions count from 1", hint=hint, span=span)
    return int(digits)


def build_group_aggregate(node: Node) -> tuple[Expr, expression.Aggregate] | None:
    """Splits an aggregate over the matches of a group into the expression of each match and the
    aggregate of these values; returns None if it is no aggregate."""
    inner = node
    while inner.data in ("expression", "conjunction") and len(inner.children) == 1:
        (inner,) = (child for child in inner.children if isinstance(child, Tree))
    span = get_span(inner)
    match inner.data, get_children(inner):
        case "tally", [function, _]:
            calls.build_match_count(unquote_name(function).lower(), span)
            value: Expr = expression.Literal(True, span)
            aggregate = calls.build_aggregate("count", [_GROUP_VALUE], span)
        case "distinct_call" | "call" as form, [function, first, *others] if first:
            name = unquote_name(function).lower()
            if form == "call" and not calls.is_aggregate_name(name):
                return None
            build = calls.build_aggregate if form == "call" else calls.build_distinct_count
            value = build_expression(first)
            aggregate = build(name, [_GROUP_VALUE, *map(build_expression, others)], span)
        case _:
            return None
    if isinstance(value, expression.FieldRef) and value.name is None:
        name, function = value.variable, get_children(inner)[0]
        raise QueryError(
            f"with GROUP BY, {function.lower()} is over matches, and {name} is an event",
            hint=f"COUNT(*) counts the matches, sum(count({name})) all their events of {name}",
            span=span,
        )
    if not isinstance(aggregate, expression.Aggregate):
        raise QueryError(
            "with GROUP BY, this stands for several aggregates",
            hint="write them out: max(a.price) AS most, min(a.price) AS least",
            span=span,
        )
    return value, aggregate


_GROUP_VALUE = expression.FieldRef(expression.GROUP, expression.VALUE, expression.EventPosition.ALL)
