"""A traced match as a picture: bars for complex events, dots for those that came in."""

from collections.abc import Iterator, Mapping
from typing import Any
from xml.sax.saxutils import escape

from ensue.plan.show.drawing.canvas import DIM, INK, PAPER, Canvas, short, width_of
from ensue.tracing.axis import Axis
from ensue.tracing.members import Node
from ensue.tracing.text import shortened
from ensue.tracing.values import clock, listed, said_below, several_days, telling, times

_LONG = 640  # the time axis, in pixels
_INDENT, _GAP = 18, 40
_BAR, _ROW, _DOTS = 16, 44, 34  # heights: of a bar, of its row, of the row of dots below it
_MOST_BARS = 40
_COLOURS = ("#2f6f9f", "#2e8b57", "#d08a1d", "#c0392b", "#8a5fbf")  # by height above the ground
_LINE = "#d7dee6"


class _Row:
    """A complex event: its bar, and the events that came in right below it."""

    def __init__(self, node: Node, depth: int, known: Mapping[str, Any]) -> None:
        self.node, self.depth, self.known = node, depth, known
        self.dots = [member for member in node.members if not member.complex]
        self.fields = listed(telling(node, known), 44)
        self.name = " ".join(filter(None, (node.variable, node.type))) or "match"

    @property
    def height(self) -> float:
        return _ROW + (_DOTS if self.dots else 0)

    @property
    def colour(self) -> str:
        return _COLOURS[(self.node.height() - 1) % len(_COLOURS)]


def draw(root: Node) -> str:
    """SVG; hovering over a bar or a dot shows what the event says."""
    rows = list(_rows(root, 0, {}))
    hidden = len(rows) - _MOST_BARS
    rows = rows[:_MOST_BARS]
    room = max(
        row.depth * _INDENT + max(width_of(row.name), width_of(row.fields, size=11))
        for row in rows
    )
    axis = Axis(*_extent(root), left=room + _GAP, width=_LONG)
    canvas = Canvas()
    bottom = sum(row.height for row in rows) + 8
    _draw_axis(canvas, axis, bottom)
    y = 0.0
    for row in rows:
        _draw_row(canvas, axis, row, y, several_days(root))
        y += row.height
    if hidden > 0:
        canvas.text((0, bottom + 20), f"… {hidden} more complex events", color=DIM, size=11)
    _draw_head(canvas, root)
    return canvas.svg(f"{root.type or 'match'} and its members")


def _rows(node: Node, depth: int, known: Mapping[str, Any]) -> Iterator[_Row]:
    yield _Row(node, depth, known)
    for member in shortened(tuple(m for m in node.members if m.complex)):
        if isinstance(member, Node):
            yield from _rows(member, depth + 1, said_below(node, known))


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


def _draw_row(canvas: Canvas, axis: Axis, row: _Row, top: float, days: bool) -> None:
    indent, middle = row.depth * _INDENT, top + _ROW / 2
    for step in range(row.depth):
        x = step * _INDENT + 4
        canvas.line((x, top), (x, top + row.height), color=_LINE)
    canvas.text((indent, middle - (1 if row.fields else -4)), row.name, bold=True)
    canvas.text((indent, middle + 14), row.fields, size=11, color=DIM)
    node = row.node
    left = axis.x(node.start if node.start is not None else 0)
    right = axis.x(node.end if node.end is not None else 1)
    width = max(right - left, 6)
    _told(
        canvas,
        f'<rect x="{left - 3:.1f}" y="{middle - _BAR / 2:.1f}" width="{width + 6:.1f}" '
        f'height="{_BAR}" rx="4" fill="{row.colour}"/>',
        f"{row.name}: {times(node, days)}  {listed(node.fields, 400)}",
    )
    canvas.covers(left, middle, left + width, middle)
    _draw_dots(canvas, axis, row, middle, days)


def _draw_dots(canvas: Canvas, axis: Axis, row: _Row, middle: float, days: bool) -> None:
    """Dots under the bar; a name where there is room for it beside the one before."""
    y, free = middle + _DOTS, float("-inf")
    for place, dot in enumerate(row.dots):
        time = dot.start if dot.start is not None else (place + 0.5) / len(row.dots)
        x = axis.x(time)
        canvas.line((x, middle + _BAR / 2), (x, y - 4), color=row.colour)
        if dot.end is not None and dot.end != dot.start:
            until = axis.x(dot.end)
            canvas.line((x, y), (until, y))
        said = " ".join(filter(None, (dot.variable, dot.type)))
        _told(
            canvas,
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{PAPER}" stroke="{INK}" '
            'stroke-width="1.6"/>',
            f"{said}: {times(dot, days)}  {listed(dot.fields, 400)}",
        )
        label = short(dot.variable, 12)
        wide = width_of(label, size=11) / 2
        if x - wide > free + 4:
            canvas.text((x, y + 17), label, anchor="middle", size=11, color=INK, halo=True)
            free = x + wide


def _told(canvas: Canvas, shape: str, text: str) -> None:
    """A shape that says something when it is pointed at."""
    canvas.shapes.append(f"<g><title>{escape(text.strip())}</title>{shape}</g>")
