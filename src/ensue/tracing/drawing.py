"""A traced match as a picture: bars for complex events, dots for those that came in.

A match that is made of no complex events has a line of its own for each variable.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from ensue.plan.show.drawing.canvas import DIM, INK, PAPER, Canvas, escaped, short, width_of
from ensue.tracing.axis import Axis
from ensue.tracing.members import Node, in_time_order
from ensue.tracing.text import in_time, more
from ensue.tracing.values import clock, listed, said_below, several_days, telling, times

_LONG = 640  # the time axis, in pixels
_INDENT, _GAP = 18, 40
_BAR, _ROW, _DOTS = 16, 44, 34  # heights: of a bar, of its row, of the row of dots below it
_NARROW = 8.0  # the least width of a bar
_LEFT_OUT = 26  # the height of a row that says how many are left out
_MOST_BARS = 40
_MOST_DOTS = 200  # of one event; there is no room for more
_COLOURS = ("#2f6f9f", "#2e8b57", "#d08a1d", "#c0392b", "#8a5fbf")  # by height above the ground
_LINE = "#d7dee6"


class _Row:
    """A complex event: its bar, and the events that came in right below it."""

    def __init__(self, node: Node, depth: int, known: Mapping[str, Any]) -> None:
        self.node, self.depth = node, depth
        self.dots = in_time_order(member for member in node.members if not member.complex)
        self.alone = depth == 0 and len(self.dots) == len(node.members)
        self.fields = listed(telling(node, known), 44)
        self.name = _name(node) or "match"

    @property
    def height(self) -> float:
        return _ROW + (_DOTS if self.dots and not self.alone else 0)

    @property
    def width(self) -> float:
        return max(width_of(self.name), width_of(self.fields, size=11))

    @property
    def colour(self) -> str:
        return _COLOURS[(self.node.height() - 1) % len(_COLOURS)]

    def draw(self, canvas: Canvas, axis: Axis, top: float, days: bool) -> None:
        middle, node = top + _ROW / 2, self.node
        _draw_name(canvas, self.name, self.fields, self.depth, middle)
        left = axis.x(node.start if node.start is not None else 0)
        right = axis.x(node.end if node.end is not None else 1)
        if right - left < _NARROW:
            left = (left + right - _NARROW) / 2
        width = max(right - left, _NARROW)
        _told(
            canvas,
            f'<rect x="{left:.1f}" y="{middle - _BAR / 2:.1f}" width="{width:.1f}" '
            f'height="{_BAR}" rx="4" fill="{self.colour}"/>',
            f"{self.name}: {times(node, days)}  {listed(node.fields, 400)}",
        )
        canvas.covers(left, middle, left + width, middle)
        if not self.alone:
            _draw_dots(canvas, axis, self.dots, middle + _DOTS, days, self.colour, middle)


class _Lane:
    """The events of one variable of a match that is made of no complex events."""

    def __init__(self, dots: list[Node], known: Mapping[str, Any]) -> None:
        self.dots, self.depth = in_time_order(dots), 1
        first = dots[0]
        several = len(dots) > 1 or "[" in first.variable
        variable = f"{first.path[-1]}[]" if several else first.variable
        self.name = " ".join(filter(None, (variable, first.type)))
        self.fields = f"{len(dots)} events" if several else listed(telling(first, known), 44)
        self.height = float(_ROW)

    @property
    def width(self) -> float:
        return max(width_of(self.name), width_of(self.fields, size=11))

    def draw(self, canvas: Canvas, axis: Axis, top: float, days: bool) -> None:
        middle = top + _ROW / 2
        _draw_name(canvas, self.name, self.fields, self.depth, middle)
        ends = axis.left, axis.left + axis.width
        canvas.line((ends[0], middle), (ends[1], middle), color=_LINE)
        _draw_dots(canvas, axis, self.dots, middle, days, _COLOURS[0])


class _LeftOut:
    """Says how many events are not shown here."""

    def __init__(self, text: str, depth: int) -> None:
        self.name, self.depth = text, depth
        self.height = float(_LEFT_OUT)

    @property
    def width(self) -> float:
        return width_of(self.name, size=11)

    def draw(self, canvas: Canvas, _axis: Axis, top: float, _days: bool) -> None:
        at = (self.depth * _INDENT, top + _LEFT_OUT / 2 + 2)
        canvas.text(at, self.name, size=11, color=DIM)


def draw(root: Node) -> str:
    """SVG; hovering over a bar or a dot shows what the event says."""
    rows: list[_Row | _Lane | _LeftOut] = list(_rows(root, 0, {}))
    if len(rows) > _MOST_BARS:
        hidden = [row for row in rows[_MOST_BARS:] if not isinstance(row, _LeftOut)]
        rows = [*rows[:_MOST_BARS], _LeftOut(f"{more(len(hidden))} below these", 0)]
    room = max(row.depth * _INDENT + row.width for row in rows)
    axis = Axis(*_extent(root), left=room + _GAP, width=_LONG)
    canvas = Canvas()
    bottom = sum(row.height for row in rows) + 8
    _draw_axis(canvas, axis, bottom)
    y, days = 0.0, several_days(root)
    for row in rows:
        for step in range(row.depth):
            x = step * _INDENT + 4
            canvas.line((x, y), (x, y + row.height), color=_LINE)
        row.draw(canvas, axis, y, days)
        y += row.height
    _draw_head(canvas, root)
    return canvas.svg(f"{root.type or 'match'} and its members")


def _rows(node: Node, depth: int, known: Mapping[str, Any]) -> "Iterator[_Row | _Lane | _LeftOut]":
    row = _Row(node, depth, known)
    yield row
    below = said_below(node, known)
    if row.alone:
        for path in dict.fromkeys(member.path for member in node.members):
            yield _Lane([member for member in node.members if member.path == path], below)
        return
    for member in in_time([member for member in node.members if member.complex]):
        if isinstance(member, Node):
            yield from _rows(member, depth + 1, below)
        else:
            yield _LeftOut(member, depth + 1)


def _name(node: Node) -> str:
    return " ".join(filter(None, (node.variable, node.type)))


def _extent(root: Node) -> tuple[Any, Any]:
    """The first and the last time; places in a row where no times are known."""
    return (root.start, root.end) if root.start is not None else (0, 1)


def _draw_axis(canvas: Canvas, axis: Axis, bottom: float) -> None:
    for time, name in axis.marks():
        x = axis.x(time)
        canvas.line((x, -10), (x, bottom), color=_LINE)
        canvas.text((x, bottom + 16), name, anchor="middle", size=11, color=DIM)


def _draw_head(canvas: Canvas, root: Node) -> None:
    title = root.type or "A match"
    when = ""
    if root.start is not None:
        when = f"{clock(root.start, day=True)} to {clock(root.end, several_days(root))}"
    canvas.text((0, -46), title, size=18, bold=True)
    canvas.text((0, -26), when, color=DIM, size=12)


def _draw_name(canvas: Canvas, name: str, fields: str, depth: int, middle: float) -> None:
    indent = depth * _INDENT
    canvas.text((indent, middle - (1 if fields else -4)), name, bold=True)
    canvas.text((indent, middle + 14), fields, size=11, color=DIM)


def _draw_dots(
    canvas: Canvas,
    axis: Axis,
    dots: list[Node],
    y: float,
    days: bool,
    colour: str,
    bar: float | None = None,
) -> None:
    """Dots at their times, hanging on a bar if there is one; a name where there is room for it."""
    free = float("-inf")
    for place, dot in enumerate(dots[:_MOST_DOTS]):
        time = dot.start if dot.start is not None else (place + 0.5) / len(dots)
        x = axis.x(time)
        if bar is not None:
            canvas.line((x, bar + _BAR / 2), (x, y - 4), color=colour)
        if dot.end is not None and dot.end != dot.start:
            until = axis.x(dot.end)
            canvas.line((x, y), (until, y))
        _told(
            canvas,
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{PAPER if bar else colour}" '
            f'stroke="{INK if bar else colour}" stroke-width="1.6"/>',
            f"{_name(dot)}: {times(dot, days)}  {listed(dot.fields, 400)}",
        )
        label = short(dot.variable, 12)
        wide = width_of(label, size=11) / 2
        if x - wide > free + 4:
            canvas.text((x, y + 17), label, anchor="middle", size=11, color=INK, halo=True)
            free = x + wide
    if len(dots) > _MOST_DOTS:
        left_out = more(len(dots) - _MOST_DOTS)
        canvas.text((axis.left + axis.width + 10, y + 4), left_out, size=11, color=DIM)


def _told(canvas: Canvas, shape: str, text: str) -> None:
    """A shape that says something when it is pointed at."""
    canvas.shapes.append(f"<g><title>{escaped(text.strip())}</title>{shape}</g>")
