"""A traced match as a timeline in text, for terminals: a line for each event."""

from collections.abc import Iterator

from ensue.tracing.axis import Axis
from ensue.tracing.members import Node
from ensue.tracing.text import in_time

WIDTH = 80
_NAMES = 28  # the most characters of a name


def timeline(root: Node, width: int = WIDTH) -> str:
    """Bars for complex events, dots for those that came in, over the times of the match."""
    rows = list(_rows(root, 0))
    room = min(_NAMES, max(len(name) for name, _ in rows))
    if root.start is None:
        return "\n".join(name for name, _ in rows)
    long = max(20, width - room - 2)
    axis = Axis(root.start, root.end, 0, long - 1)
    lines = []
    for name, node in rows:
        drawn = "" if node is None else _drawn(node, axis)
        shown = name if len(name) <= room or node is None else name[: room - 1] + "…"
        lines.append(f"{shown:<{room}}  {drawn}".rstrip())
    return "\n".join([*lines, *(f"{'':<{room}}  {line}".rstrip() for line in _scale(axis, long))])


def _rows(node: Node, depth: int) -> Iterator[tuple[str, Node | None]]:
    name = node.variable or node.type or "match"
    if node.variable and node.type:
        name += f" {node.type}"
    yield "  " * depth + name, node
    for member in in_time(node.members):
        if isinstance(member, str):
            yield "  " * (depth + 1) + member, None
        else:
            yield from _rows(member, depth + 1)


def _drawn(node: Node, axis: Axis) -> str:
    if node.start is None:
        return ""
    left = round(axis.x(node.start))
    right = round(axis.x(node.end)) if node.end is not None else left
    if not node.complex and left == right:
        return " " * left + "●"
    return " " * left + ("├" + "─" * (right - left - 1) + "┤" if right > left else "│")


def _scale(axis: Axis, long: int) -> list[str]:
    """The marks of the axis, and below each its name where there is room for it."""
    ticks, names, free = ["─"] * long, "", 0
    for time, name in axis.marks(max(2, long // 12)):
        place = round(axis.x(time))
        ticks[place] = "┴"
        begin = min(max(0, place - len(name) // 2), long - len(name))
        if begin >= free:
            names = names.ljust(begin) + name
            free = len(names) + 1
    return ["".join(ticks), names]
