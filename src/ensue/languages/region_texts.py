"""Regions as a text writes them, WKT or a circle, in one spelling."""

import math
import re
from collections.abc import Sequence

from ensue.errors import QueryError
from ensue.span import Span

CORNERS = 10_000  # that a region has at most

_HEAD = re.compile(r"\s*([A-Za-z]+)\s*([A-Za-z]*)\s*")
_LEVELS = {"POINT": 1, "LINESTRING": 1, "POLYGON": 2, "MULTIPOLYGON": 3}
_FORMS = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0)), or CIRCLE (5 5, 3)"
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PIECE = re.compile(r"\s*([(),]|[^\s(),]+)")

Corner = tuple[float, float]


def region_text(text: str, span: Span | None = None) -> str:
    """The one spelling of a region, or a QueryError that says what is wrong with it.

    >>> region_text("polygon((0 0,1.50 0,1 1,0 0))"), region_text("Circle(1, 2, 3e0)")
    ('POLYGON ((0 0, 1.5 0, 1 1, 0 0))', 'CIRCLE (1 2, 3)')
    """
    head = _HEAD.match(text)
    kind = head[1].upper() if head else ""
    if head is None or (kind != "CIRCLE" and kind not in _LEVELS):
        raise QueryError(f"{kind or 'this'} is no region", hint=f"write {_FORMS}", span=span)
    body = text[head.end() :]
    if head[2].upper() == "EMPTY" or not body.strip(" ()"):
        raise QueryError(
            "this region is empty: nothing is in it", hint=f"write {_FORMS}", span=span
        )
    if head[2]:
        raise QueryError("regions are flat: two numbers a corner", hint="leave Z out", span=span)
    if kind == "CIRCLE":
        return _circle(body, span)
    found = _nested(body, span)
    return f"{kind} {_written(found, _LEVELS[kind], kind, span)}"


def _circle(body: str, span: Span | None) -> str:
    words = re.findall(r"[^\s,()]+", body)
    if len(words) != 3:
        raise QueryError(
            "a circle has a centre and a radius", hint="write CIRCLE (x y, radius)", span=span
        )
    x, y, radius = (_coordinate(word, span) for word in words)
    if radius <= 0:
        raise QueryError(
            "the radius of a circle is more than 0",
            hint=f"for one point write POINT ({shown(x)} {shown(y)})",
            span=span,
        )
    return f"CIRCLE ({shown(x)} {shown(y)}, {shown(radius)})"


# ----------------------------------------------------------------------------------- reading

Nested = list["Nested | Corner"]


def _nested(body: str, span: Span | None) -> Nested:
    """Lists of lists of corners, as the parentheses say."""
    outer: Nested = []
    stack, words = [outer], list[str]()
    corners = 0
    for piece in _PIECE.findall(body):
        if piece not in "(),":
            words.append(piece)
            continue
        if piece == "(":
            stack.append([])
            stack[-2].append(stack[-1])
            continue
        if words:
            corners += 1
            stack[-1].append(_corner(words, span))
            words = []
        if piece == ")":
            stack.pop()
        if not stack:
            raise QueryError("a ')' of this region closes nothing", hint="delete it", span=span)
    if len(stack) != 1 or words or len(outer) != 1 or not isinstance(outer[0], list):
        raise QueryError(
            "the parentheses of this region do not fit", hint=f"write {_FORMS}", span=span
        )
    if corners > CORNERS:
        raise QueryError(
            f"this region has {corners:,} corners; at most {CORNERS:,} are taken",
            hint="simplify it, or split it into several regions",
            span=span,
        )
    return outer[0]


def _corner(words: Sequence[str], span: Span | None) -> Corner:
    if len(words) != 2:
        raise QueryError(
            f"'{' '.join(words)}' is no corner: two numbers, x and y",
            hint="commas stand between corners: 0 0, 10 0",
            span=span,
        )
    return _coordinate(words[0], span), _coordinate(words[1], span)


def _coordinate(word: str, span: Span | None) -> float:
    value = float(word) if _NUMBER.fullmatch(word) else math.nan
    if not math.isfinite(value):
        raise QueryError(
            f"'{word}' is no usable number in a region",
            hint="corners are plain numbers, as in 8.54 47.37",
            span=span,
        )
    return value + 0.0  # -0.0 is 0.0: one spelling


# ----------------------------------------------------------------------------------- writing


def _written(found: Nested, level: int, kind: str, span: Span | None) -> str:
    lists = [item for item in found if isinstance(item, list)]
    if level > 1:
        if len(lists) != len(found) or not lists:
            raise QueryError(
                f"the parentheses of this {kind} do not fit", hint=f"write {_FORMS}", span=span
            )
        return f"({', '.join(_written(item, level - 1, kind, span) for item in lists)})"
    corners = [item for item in found if not isinstance(item, list)]
    if lists:
        raise QueryError(
            f"the parentheses of this {kind} do not fit", hint=f"write {_FORMS}", span=span
        )
    _require_enough(corners, kind, span)
    return f"({', '.join(f'{shown(x)} {shown(y)}' for x, y in corners)})"


def _require_enough(corners: Sequence[Corner], kind: str, span: Span | None) -> None:
    if kind == "POINT" and len(corners) != 1:
        raise QueryError("a point is one corner", hint="write POINT (5 5)", span=span)
    if kind == "LINESTRING" and len(corners) < 2:
        raise QueryError(
            "a line has two corners or more", hint="write LINESTRING (0 0, 10 10)", span=span
        )
    if not kind.endswith("POLYGON"):
        return
    if len(set(corners)) < 3:
        raise QueryError(
            "a ring has three different corners or more",
            hint="for one point write POINT (5 5), for a line LINESTRING (0 0, 10 10)",
            span=span,
        )
    if corners[0] != corners[-1]:
        x, y = corners[0]
        raise QueryError(
            "a ring ends where it begins",
            hint=f"repeat its first corner at its end: {shown(x)} {shown(y)}",
            span=span,
        )


def shown(number: float) -> str:
    """A number without needless digits.

    >>> shown(3.0), shown(0.1), shown(1e30)
    ('3', '0.1', '1e+30')
    """
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
