"""Syntax trees of windows and counts to algebra."""

from lark import Token

from ensue.algebra.durations import nanoseconds
from ensue.algebra.window import ByEvents, ByTime, ByUnits, Window
from ensue.errors import QueryError
from ensue.languages.expressions import Node, interval, number, pieces, span_of


def window_of(node: Node) -> Window:
    """A length of time, or a number of events."""
    span = span_of(node)
    match node.data, pieces(node):
        case "interval", [text, unit]:
            return ByTime(interval(text, unit, span), span)
        case "units", [sign, amount]:
            return ByUnits(-number(amount) if sign else number(amount), span)
        case "time", [sign, amount, unit]:
            length = nanoseconds(amount, unit, span)
            return ByTime(-length if sign else length, span)
        case _, [sign, amount, _]:
            count = whole(amount)
            return ByEvents(-count if sign else count, span)
        case _:
            raise AssertionError(node.data)


def length_of(node: Node) -> ByTime | ByUnits:
    """A length of time that stands beside a part."""
    span = span_of(node)
    amount, unit, *_ = pieces(node)
    if node.data == "interval":
        return ByTime(interval(amount, unit, span), span)
    if unit is None:
        return ByUnits(number(amount), span)
    return ByTime(nanoseconds(amount, unit, span), span)


def whole(digits: Token) -> int:
    """A whole number that is not too large."""
    if digits.isdigit() and len(digits) <= 9:
        return int(digits)
    raise QueryError("this must be a whole number", hint="below a billion", span=span_of(digits))
