"""A tree of boxes, and a pattern as one, for plans without a structure of their own."""

from dataclasses import dataclass

from ensue.algebra.form import Form, form, is_absence, is_event, parts
from ensue.algebra.pattern import Pattern
from ensue.algebra.text import show_head, show_pattern
from ensue.plan.show.drawing.canvas import DARK, PAPER, Canvas, Point, short, width_of

LEVEL = 76  # from one level to the next
BETWEEN = 18  # from one leaf to the next
HEIGHT = 32
NAME = 32


@dataclass(frozen=True, slots=True)
class Box:
    """A node with what is below it."""

    text: str
    below: tuple["Box", ...] = ()
    dark: bool = False

    @property
    def own_width(self) -> float:
        return max(54.0, width_of(self.text) + 26)

    @property
    def inside(self) -> float:
        return sum(box.width for box in self.below) + BETWEEN * max(0, len(self.below) - 1)

    @property
    def width(self) -> float:
        return max(self.own_width, self.inside)


def draw_tree(canvas: Canvas, pattern: Pattern) -> None:
    """Leaves are events, inner nodes how they are arranged; what is negated is dark."""
    draw_boxes(canvas, _box(pattern, dark=False))


def draw_boxes(canvas: Canvas, box: Box, left: float = 0, level: int = 0) -> Point:
    """Draws a tree from `left` on and gives the middle of its upper edge."""
    y = float(level * LEVEL)
    x = left + box.width / 2
    at = left + (box.width - box.inside) / 2
    for child in box.below:
        top = draw_boxes(canvas, child, at, level + 1)
        canvas.line((x, y + HEIGHT / 2), (x, y + LEVEL / 2), (top[0], y + LEVEL / 2), top)
        at += child.width + BETWEEN
    fill, ink = (DARK, PAPER) if box.dark else (PAPER, DARK)
    canvas.box((x, y), box.own_width, HEIGHT, fill=fill, round=16 if box.below else 4)
    canvas.text((x, y + 5), box.text, anchor="middle", color=ink, bold=True)
    return (x, y - HEIGHT / 2)


def _box(pattern: Pattern, *, dark: bool) -> Box:
    dark = dark or is_absence(pattern)
    children = _children(pattern)
    text = show_head(pattern) if children else show_pattern(pattern)
    return Box(short(text, NAME), tuple(_box(child, dark=dark) for child in children), dark)


def _children(pattern: Pattern) -> tuple[Pattern, ...]:
    """What is drawn below it: an event stands in one box with its quantifier or its negation."""
    around_one = form(pattern) in (Form.LIST, Form.OPTION, Form.ABSENCE)
    inner = parts(pattern)
    return () if around_one and all(map(is_event, inner)) else inner
