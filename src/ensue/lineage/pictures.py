"""Pictures over a time axis: the lineage of one match, and many matches over their stream."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ensue.lineage.text import (
    TimeAxis,
    format_fields,
    format_more,
    format_time,
    format_times,
    inherit_fields,
    list_by_time,
    name_node,
    select_fields,
    spans_days,
    to_number,
)
from ensue.lineage.trace import MemberNode, sort_by_time
from ensue.svg import DIM, INK, PAPER, Canvas, cut_text, measure_text

_COLOURS = ("#2f6f9f", "#2e8b57", "#d08a1d", "#c0392b", "#8a5fbf", "#159895", "#b5478f")
_LINE, _QUIET = "#d7dee6", "#9fb0c0"
_MAX_HINT = 400  # characters that a shape shows under the pointer


def _draw_axis(canvas: Canvas, axis: TimeAxis, bottom: float) -> None:
    for time, label in axis.list_ticks():
        x = axis.locate(time)
        canvas.line((x, -10), (x, bottom), color=_LINE)
        canvas.text((x, bottom + 16), label, anchor="middle", size=11, color=DIM)


def _draw_head(canvas: Canvas, title: str, subtitle: str) -> None:
    canvas.text((0, -46), title, size=16, bold=True)
    canvas.text((0, -26), subtitle, color=DIM, size=12)


def _describe(node: MemberNode, days: bool) -> str:
    times, fields = format_times(node, days), format_fields(node.fields, _MAX_HINT)
    return f"{name_node(node)}: {times}  {fields}"


# --------------------------------------------------------------------------------- lineage

_LENGTH = 640  # of the time axis, in pixels
_INDENT, _GAP = 18, 40
_BAR, _ROW, _DOTS = 16, 44, 34  # heights: of a bar, of its row, of the row of dots below it
_MIN_BAR = 8.0
_NOTE = 26  # height of a row that tells how many are left out
_MAX_ROWS = 40
_MAX_DOTS = 200  # of one event


@dataclass(frozen=True, slots=True)
class _LineageRow:
    """A row: a complex event and its input events, those of one variable, or a note."""

    name: str
    depth: int
    fields: str = ""
    bar: MemberNode | None = None
    dots: tuple[MemberNode, ...] = ()
    note: bool = False

    @property
    def height(self) -> float:
        if self.note:
            return _NOTE
        return _ROW + (_DOTS if self.bar is not None and self.dots else 0)

    @property
    def width(self) -> float:
        name = measure_text(self.name, size=11 if self.note else 13)
        return self.depth * _INDENT + max(name, measure_text(self.fields, size=11))

    def draw(self, canvas: Canvas, axis: TimeAxis, top: float, days: bool) -> None:
        x, middle = self.depth * _INDENT, top + _ROW / 2
        if self.note:
            canvas.text((x, top + _NOTE / 2 + 2), self.name, size=11, color=DIM)
            return
        canvas.text((x, middle - (1 if self.fields else -4)), self.name, bold=True)
        canvas.text((x, middle + 14), self.fields, size=11, color=DIM)
        if self.bar is None:
            ends = axis.left, axis.left + axis.width
            canvas.line((ends[0], middle), (ends[1], middle), color=_LINE)
            self._draw_dots(canvas, axis, middle, days, _COLOURS[0], None)
            return
        node, colour = self.bar, _COLOURS[(self.bar.height() - 1) % len(_COLOURS)]
        left = axis.locate(node.start if node.start is not None else 0)
        right = axis.locate(node.end if node.end is not None else 1)
        width, at = max(right - left, _MIN_BAR), ((left + right) / 2, middle)
        hint = _describe(node, days)
        canvas.box(at, width, _BAR, fill=colour, stroke=None, round=4, hint=hint)
        self._draw_dots(canvas, axis, middle + _DOTS, days, colour, middle)

    def _draw_dots(self, canvas: Canvas, axis: TimeAxis, y: float, days: bool, colour: str, bar: float | None) -> None:
        """Draws dots at their times, below a bar if there is one; with names where they fit."""
        fill, stroke = (colour, colour) if bar is None else (PAPER, INK)
        free = float("-inf")
        for number, dot in enumerate(self.dots[:_MAX_DOTS]):
            time = dot.start if dot.start is not None else (number + 0.5) / len(self.dots)
            x = axis.locate(time)
            if bar is not None:
                canvas.line((x, bar + _BAR / 2), (x, y - 4), color=colour)
            if dot.end is not None and dot.end != dot.start:
                canvas.line((x, y), (axis.locate(dot.end), y))
            canvas.circle((x, y), 4, fill=fill, stroke=stroke, hint=_describe(dot, days))
            label = cut_text(dot.variable, 12)
            half = measure_text(label, size=11) / 2
            if x - half > free + 4:
                canvas.text((x, y + 17), label, anchor="middle", size=11, halo=True)
                free = x + half
        if len(self.dots) > _MAX_DOTS:
            at = (axis.left + axis.width + 10, y + 4)
            canvas.text(at, format_more(len(self.dots) - _MAX_DOTS), size=11, color=DIM)


def draw_lineage(root: MemberNode) -> str:
    """Draws bars for complex events and dots for input events over one time axis, as SVG.

    Bars and dots show the fields of their event under the pointer.
    """
    rows = list(_list_rows(root, 0, {}))
    if len(rows) > _MAX_ROWS:
        hidden = sum(not row.note for row in rows[_MAX_ROWS:])
        note = _LineageRow(f"{format_more(hidden)} below these", 0, note=True)
        rows = [*rows[:_MAX_ROWS], note]
    first, last = (root.start, root.end) if root.start is not None else (0, 1)
    axis = TimeAxis(first, last, max(row.width for row in rows) + _GAP, _LENGTH)
    canvas, days = Canvas(), spans_days(root)
    _draw_axis(canvas, axis, sum(row.height for row in rows) + 8)
    y = 0.0
    for row in rows:
        for step in range(row.depth):
            x = step * _INDENT + 4
            canvas.line((x, y), (x, y + row.height), color=_LINE)
        row.draw(canvas, axis, y, days)
        y += row.height
    when = ""
    if root.start is not None:
        when = f"{format_time(root.start, day=True)} to {format_time(root.end, days)}"
    _draw_head(canvas, root.type or "A match", when)
    return canvas.to_svg(f"{root.type or 'match'} and its members")


def _list_rows(node: MemberNode, depth: int, known: Mapping[str, Any]) -> Iterator[_LineageRow]:
    fields, name = format_fields(select_fields(node, known), 44), name_node(node)
    inherited = inherit_fields(node, known)
    dots = tuple(sort_by_time(member for member in node.members if not member.complex))
    if depth == 0 and len(dots) == len(node.members):  # without complex events: a row a variable
        yield _LineageRow(name, depth, fields, node)
        for path in dict.fromkeys(member.path for member in node.members):
            events = [member for member in node.members if member.path == path]
            yield _build_variable_row(events, inherited)
        return
    yield _LineageRow(name, depth, fields, node, dots)
    for member in list_by_time([member for member in node.members if member.complex]):
        if isinstance(member, MemberNode):
            yield from _list_rows(member, depth + 1, inherited)
        else:
            yield _LineageRow(member, depth + 1, note=True)


def _build_variable_row(events: list[MemberNode], known: Mapping[str, Any]) -> _LineageRow:
    first = events[0]
    variable, fields = first.variable, format_fields(select_fields(first, known), 44)
    if len(events) > 1 or "[" in variable:
        variable, fields = f"{first.path[-1]}[]", f"{len(events)} events"
    name = " ".join(filter(None, (variable, first.type)))
    return _LineageRow(name, 1, fields, dots=tuple(sort_by_time(events)))


# ------------------------------------------------------------------------------------ plots

_PLOT_LENGTH = 760  # of the time axis, in pixels
_GROUP, _MATCH, _STEP = 30, 7, 11  # heights: of a group, of a match, from a match to the next
_MAX_GROUPS = 24
_MAX_LABEL = 28
OTHER_EVENTS = "other events"


@dataclass(frozen=True, slots=True)
class PlottedEvent:
    """An event of the stream, and the group in whose row it is drawn."""

    start: Any
    end: Any
    group: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class PlotData:
    """The events and matches to draw, and how many there are in total."""

    events: Sequence[PlottedEvent]
    matches: Sequence[MemberNode]
    total_events: int
    total_matches: int
    group_by: str | None = None  # the field of an event with its group

    def get_group(self, member: MemberNode) -> str:
        if self.group_by is None:
            return OTHER_EVENTS
        return str(member.fields.get(self.group_by, OTHER_EVENTS))


def draw_plot(data: PlotData) -> str:
    """Draws events as dots in rows, and each match as a line through its events and a bar below.

    Returns SVG; dots and bars show fields under the pointer.
    """
    members = [
        sort_by_time(node for node in match.walk() if not node.complex and node is not match) for match in data.matches
    ]
    names, hidden = _select_groups(data, members)
    heights = {name: (number + 0.5) * _GROUP for number, name in enumerate(names)}
    labels = [measure_text(cut_text(name, _MAX_LABEL)) for name in names]
    first, last = _find_extent(data)
    left = max([*labels, measure_text("matches")]) + 24
    axis = TimeAxis(first, last, left=left, width=_PLOT_LENGTH)
    bars = [_locate_match(match, axis) for match in data.matches]
    rows = _pack(bars)
    below = _GROUP * len(names) + 6
    bottom = below + _STEP * (1 + max(rows, default=-1)) + 8
    canvas = Canvas()
    _draw_axis(canvas, axis, bottom)
    for name, y in heights.items():
        canvas.text((0, y + 4), cut_text(name, _MAX_LABEL))
        canvas.line((left, y), (left + _PLOT_LENGTH, y), color=_LINE)
    for event in data.events:
        if event.group in heights:
            y = heights[event.group]
            _draw_dot(canvas, axis, event.start, event.end, y, _QUIET, event.hint)
    for number, (match, events) in enumerate(zip(data.matches, members, strict=True)):
        colour = _COLOURS[number % len(_COLOURS)]
        groups = [(m, data.get_group(m)) for m in events if m.start is not None]
        drawn = [(member, heights[group]) for member, group in groups if group in heights]
        points = [(axis.locate(member.start), y) for member, y in drawn]
        if len(points) > 1:
            canvas.line(*points, color=colour, opacity="0.7")
        for member, y in drawn:
            hint = _describe(member, days=True)
            _draw_dot(canvas, axis, member.start, member.end, y, colour, hint)
        begin, end = bars[number]
        at = ((begin + end) / 2, below + _STEP * rows[number] + _MATCH / 2)
        hint = f"{format_times(match, True)}  {format_fields(match.fields, _MAX_HINT)}"
        canvas.box(at, end - begin, _MATCH, fill=colour, stroke=None, round=3, hint=hint)
    if data.matches:
        canvas.text((0, below + _STEP), "matches", bold=True)
    when = f"{format_time(first, day=True)} to {format_time(last, day=True)}"
    title = _format_share(len(data.matches), data.total_matches, "match", "matches")
    title += f", {_format_share(len(data.events), data.total_events, 'event', 'events')}"
    if hidden:
        title += f", {format_more(hidden)} groups are not shown"
    _draw_head(canvas, title, when if data.events else "")
    canvas.extend((0, bottom))
    return canvas.to_svg("matches over their events")


def _select_groups(data: PlotData, members: Sequence[Sequence[MemberNode]]) -> tuple[list[str], int]:
    """Selects the groups of members first, then the largest; and counts the others."""
    in_matches = Counter(data.get_group(member) for events in members for member in events)
    sizes = Counter(event.group for event in data.events)
    groups = sorted({*in_matches, *sizes}, key=lambda g: (-in_matches[g], -sizes[g], g))
    return sorted(groups[:_MAX_GROUPS]), max(0, len(groups) - _MAX_GROUPS)


def _find_extent(data: PlotData) -> tuple[Any, Any]:
    drawn: list[PlottedEvent | MemberNode] = [*data.events, *data.matches]
    starts, ends = [item.start for item in drawn], [item.end for item in drawn]
    return (min(starts, key=to_number), max(ends, key=to_number)) if starts else (0, 1)


def _locate_match(match: MemberNode, axis: TimeAxis) -> tuple[float, float]:
    left, right = axis.locate(match.start), axis.locate(match.end)
    return (left, right) if right - left >= _MATCH else (left - _MATCH / 2, left + _MATCH / 2)


def _pack(bars: Sequence[tuple[float, float]]) -> list[int]:
    """Returns the row of each bar: the first one that is free."""
    ends: list[float] = []
    rows = []
    for left, right in bars:
        row = next((n for n, end in enumerate(ends) if end + 3 < left), len(ends))
        ends[row : row + 1] = [right]
        rows.append(row)
    return rows


def _draw_dot(canvas: Canvas, axis: TimeAxis, start: Any, end: Any, y: float, colour: str, hint: str) -> None:
    x = axis.locate(start)
    if end is not None and end != start:
        canvas.line((x, y), (axis.locate(end), y), color=colour)
    canvas.circle((x, y), 3.6, fill=colour, stroke=PAPER, hint=hint)


def _format_share(drawn: int, total: int, noun: str, plural: str) -> str:
    """Formats how many of all are drawn.

    >>> _format_share(1, 1, "match", "matches"), _format_share(50, 1_234, "match", "matches")
    ('1 match', '50 of 1,234 matches')
    """
    if drawn == total:
        return f"{drawn:,} {noun if drawn == 1 else plural}"
    return f"{drawn:,} of {total:,} {plural}"
