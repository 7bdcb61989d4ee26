"""A pattern as a tree, for plans without a structure of their own."""

from ensue.algebra.form import Form, form, is_absence, is_event, parts
from ensue.algebra.pattern import Pattern
from ensue.algebra.text import show_head, show_pattern
from ensue.plan.show.drawing.canvas import DARK, PAPER, Canvas, Point, short, width_of

LEVEL = 76  # from one level to the next
BETWEEN = 18  # from one leaf to the next
HEIGHT = 32
NAME = 32


def draw_tree(canvas: Canvas, pattern: Pattern) -> None:
    """Leaves are events, inner nodes how they are arranged; what is negated is dark."""
    _draw(canvas, pattern, 0, 0, dark=False)


def _draw(canvas: Canvas, pattern: Pattern, left: float, level: int, *, dark: bool) -> Point:
    """Draws a part from `left` on and gives the top of its node."""
    dark = dark or is_absence(pattern)
    text = _text(pattern)
    width = _own_width(pattern)
    y = float(level * LEVEL)
    children = _children(pattern)
    inside = sum(_width(p) for p in children) + BETWEEN * max(0, len(children) - 1)
    x = left + max(width, inside) / 2
    at = left + (max(width, inside) - inside) / 2
    for child in children:
        top = _draw(canvas, child, at, level + 1, dark=dark)
        canvas.line((x, y + HEIGHT / 2), (x, y + LEVEL / 2), (top[0], y + LEVEL / 2), top)
        at += _width(child) + BETWEEN
    fill, ink = (DARK, PAPER) if dark else (PAPER, DARK)
    canvas.box((x, y), width, HEIGHT, fill=fill, round=16 if children else 4)
    canvas.text((x, y + 5), text, anchor="middle", color=ink, bold=True)
    return (x, y - HEIGHT / 2)


def _children(pattern: Pattern) -> tuple[Pattern, ...]:
    """What is drawn below it: an event stands in one box with its quantifier or its negation."""
    around_one = form(pattern) in (Form.LIST, Form.OPTION, Form.ABSENCE)
    inner = parts(pattern)
    return () if around_one and all(map(is_event, inner)) else inner


def _text(pattern: Pattern) -> str:
    whole = not _children(pattern)
    return short(show_pattern(pattern) if whole else show_head(pattern), NAME)


def _own_width(pattern: Pattern) -> float:
    return max(54.0, width_of(_text(pattern)) + 26)


def _width(pattern: Pattern) -> float:
    children = _children(pattern)
    inside = sum(_width(p) for p in children) + BETWEEN * max(0, len(children) - 1)
    return max(_own_width(pattern), inside)
