"""Syntax trees of OPSL's predicates, lengths and moments to algebra."""

import math
import re
from collections.abc import Mapping

from lark import Token

from ensue.algebra.durations import nanoseconds
from ensue.algebra.predicate import Constant, Literal
from ensue.algebra.subscription import (
    Atomic,
    FieldOf,
    Length,
    Moment,
    Predicate,
    PredicateType,
)
from ensue.algebra.window import ByTime, ByUnits
from ensue.errors import QueryError, did_you_mean
from ensue.languages.expressions import Node, expr_of, name_of, pieces, span_of
from ensue.span import Span

_VARIABLE = re.compile(r"\$(?P<name>[^;\s]+)\s*;")
_OPERATORS = {"==": "=", "<>": "!=", "≠": "!=", "≤": "<=", "≥": ">="}
_LARGEST = 2**63  # what a column of integers holds lies below
_VALUES: Mapping[PredicateType, tuple[str, str]] = {
    PredicateType.ARITH: ("a number", "ARITH:id = 17; for texts use STRING:name = 'x'"),
    PredicateType.STRING: ("a text", "STRING:type = 'truck'; for numbers use ARITH:id = 17"),
    PredicateType.BOOL: ("TRUE or FALSE", "BOOL:loaded = TRUE"),
    PredicateType.TIME: ("a moment", "TIME:seen > TIMESTAMP '2026-01-31 10:00:00'"),
}


def variable_of(token: Token) -> tuple[str, Span]:
    """The name of a variable, and where `$name;` stands."""
    found = _VARIABLE.match(token)
    assert found is not None
    start = span_of(token).start
    return found["name"], Span(start, start + found.end())


# --------------------------------------------------------------------------------- predicates


def atomic_of(node: Node) -> Atomic:
    """An event by its predicates."""
    return Atomic(tuple(_predicate(child) for child in pieces(node)), span_of(node))


def _predicate(node: Node) -> Predicate:
    type_name, field, *rest = pieces(node)
    type, name, span = _type_of(type_name), name_of(field), span_of(node)
    match node.data, rest:
        case "comparison", [operator, value]:
            symbol = _OPERATORS.get(operator, str(operator))
            if type is PredicateType.BOOL and symbol not in ("=", "!="):
                raise QueryError(
                    f"BOOL can be compared with = and !=, not with {operator}",
                    hint=f"write BOOL:{name} = TRUE",
                    span=span_of(operator),
                )
            return Predicate(type, name, symbol, _value(value, type), span)
        case "like", [value]:
            return Predicate(type, name, "LIKE", _like(value, type, name, span), span)
        case _, values:
            return Predicate(type, name, "IN", _listed(values, type, name, span), span)


def _type_of(token: Token) -> PredicateType:
    try:
        return PredicateType[token.upper()]
    except KeyError:
        known = [type.value for type in PredicateType]
        raise QueryError(
            f"'{token}' is not a type of predicate",
            hint=did_you_mean(token.upper(), known),
            span=span_of(token),
        ) from None


def _like(value: Node, type: PredicateType, name: str, span: Span) -> str:
    if type is not PredicateType.STRING:
        raise QueryError(
            f"LIKE works on texts, and {type.value} says that '{name}' is not one",
            hint=f"write STRING:{name} LIKE 'ab%'",
            span=span,
        )
    found = _value(value, type)
    if not isinstance(found, str):
        raise QueryError(
            "LIKE needs a text, not a field of another event",
            hint=f"write STRING:{name} LIKE 'ab%'",
            span=span_of(value),
        )
    return found


def _listed(
    values: list[Node], type: PredicateType, name: str, span: Span
) -> tuple[Constant, ...]:
    if type is PredicateType.BOOL:
        raise QueryError(
            "BOOL can be compared with = and !=, not with IN",
            hint=f"write BOOL:{name} = TRUE",
            span=span,
        )
    found: list[Constant] = []
    for value in values:
        constant = _value(value, type)
        if isinstance(constant, FieldOf):
            raise QueryError(
                "an IN list takes values, not fields of other events",
                hint="compare with a field using =, and join the cases with ||",
                span=constant.span,
            )
        found.append(constant)
    return tuple(found)


def _value(node: Node, type: PredicateType) -> Constant | FieldOf:
    span = span_of(node)
    match node.data, pieces(node):
        case "field_of", [variable, field]:
            return FieldOf(variable_of(variable)[0], name_of(field), span)
        case "number", [digits] if type in (PredicateType.ARITH, PredicateType.TIME):
            return number_of(digits)
        case "string", _ if type is PredicateType.STRING:
            return _plain(node)
        case "truth", [word] if type is PredicateType.BOOL:
            return bool(word.upper() == "TRUE")
        case "timestamp", _ if type is PredicateType.TIME:
            return _plain(node)
        case _:
            wanted, example = _VALUES[type]
            raise QueryError(
                f"{type.value} must be compared with {wanted}", hint=f"as in {example}", span=span
            )


def number_of(token: Token) -> int | float:
    """The value of a number: an integer if it is written as one."""
    digits = re.sub(r"\s", "", token)
    whole = digits.lstrip("+-").isdigit()
    if not whole or len(digits) > 30:
        value = float(digits)
        if math.isfinite(value) and not whole:
            return value
    elif -_LARGEST <= (exact := int(digits)) < _LARGEST:
        return exact
    raise QueryError(
        "this number is too large",
        hint="integers have at most 64 bits, other numbers end at 1.8e308",
        span=span_of(token),
    )


def _plain(node: Node) -> Constant:
    """A text or a timestamp, written as in the pattern language."""
    literal = expr_of(node)
    assert isinstance(literal, Literal)
    return literal.value


# ------------------------------------------------------------------------ lengths and moments


def length_of(node: Node) -> Length:
    """`25 minutes`, or a number in the units of the time column."""
    amount, unit = pieces(node)
    span = span_of(node)
    value = number_of(amount)
    if value < 0:
        raise QueryError(
            "a length of time cannot be negative", hint="leave out the sign", span=span
        )
    if unit is None:
        return ByUnits(value, span)
    return ByTime(nanoseconds(re.sub(r"[\s+]", "", amount), unit, span), span)


def distance_of(token: Token, what: str, *, positive: bool = False) -> float:
    """A number that is a distance; `what` says of what."""
    value = float(number_of(token))
    if value < 0 or (positive and value == 0):
        raise QueryError(
            f"{what} is {'more than 0' if positive else 'not negative'}",
            hint="leave out the sign" if value < 0 else "centres are less than it apart",
            span=span_of(token),
        )
    return value


def moment_of(node: Node) -> Moment:
    """A number in the units of the time column, or a timestamp."""
    value = number_of(pieces(node)[0]) if node.data == "number" else _plain(node)
    return Moment(value, span_of(node))
