"""Matches over their stream as a picture: lanes of events, and each match a line through its own.

Below the lanes each match is a bar from its start to its end. What is not drawn is counted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ensue.plan.show.drawing.canvas import DIM, INK, PAPER, Canvas, escaped, short, width_of
from ensue.tracing.axis import Axis, number
from ensue.tracing.members import Node, in_time_order
from ensue.tracing.text import more
from ensue.tracing.values import clock, listed, times

_LONG = 760  # the time axis, in pixels
_LANE, _BAR, _STEP = 30, 7, 11  # heights: of a lane, of a bar, from one bar to the next
_MOST_LANES = 24
_COLOURS = ("#2f6f9f", "#c0392b", "#2e8b57", "#d08a1d", "#8a5fbf", "#159895", "#b5478f")
_LINE, _QUIET = "#d7dee6", "#9fb0c0"
_REST = "other events"


@dataclass(frozen=True, slots=True)
class PlottedEvent:
    """An event of the stream: when it was, and the lane that it is in."""

    start: Any
    end: Any
    lane: str
    says: str = ""


@dataclass(frozen=True, slots=True)
class Plotted:
    """What is drawn, and how much there is in all."""

    events: Sequence[PlottedEvent]
    matches: Sequence[Node]
    all_events: int
    all_matches: int
    lane_of: str | None = None  # the field of an event that says its lane


def plot(shown: Plotted) -> str:
    """SVG; hovering over a dot or a bar shows what the event or the match says."""
    return _Plot(shown).svg()


class _Plot:
    def __init__(self, shown: Plotted) -> None:
        self.shown = shown
        self.members = [_members(match) for match in shown.matches]
        self.lanes, self.hidden = self._lanes()
        self.at = {name: place * _LANE for place, name in enumerate(self.lanes)}
        room = max([width_of(short(name, 28)) for name in self.lanes] + [width_of("matches")])
        self.axis = Axis(*self._extent(), left=room + 24, width=_LONG)
        self.canvas = Canvas()

    def svg(self) -> str:
        below = _LANE * len(self.lanes) + 6
        rows = self._packed()
        bottom = below + _STEP * (1 + max(rows, default=-1)) + 8
        self._draw_axis(bottom)
        self._draw_lanes()
        for event in self.shown.events:
            if event.lane in self.at:
                self._dot(event.start, event.end, self.at[event.lane], _QUIET, event.says)
        for place, (match, members) in enumerate(
            zip(self.shown.matches, self.members, strict=True)
        ):
            colour = _COLOURS[place % len(_COLOURS)]
            self._draw_match(match, members, colour, below + _STEP * rows[place])
        if self.shown.matches:
            self.canvas.text((0, below + _STEP), "matches", bold=True)
        self._draw_head(bottom)
        return self.canvas.svg("matches over their events")

    def _lanes(self) -> tuple[list[str], int]:
        """Those of members first, then those with the most events, in the order of names."""
        counts: dict[str, int] = {}
        for event in self.shown.events:
            counts[event.lane] = counts.get(event.lane, 0) + 1
        for members in self.members:
            for member in members:
                lane = self._lane(member)
                counts[lane] = counts.get(lane, 0) + 1_000_000
        wanted = sorted(counts, key=lambda name: (-counts[name], name))
        return sorted(wanted[:_MOST_LANES]), max(0, len(wanted) - _MOST_LANES)

    def _lane(self, member: Node) -> str:
        name = self.shown.lane_of
        return _REST if name is None else str(member.fields.get(name, _REST))

    def _extent(self) -> tuple[Any, Any]:
        """From the first to the last of what is drawn."""
        events, matches = self.shown.events, self.shown.matches
        starts = [*(e.start for e in events), *(m.start for m in matches)]
        ends = [*(e.end for e in events), *(m.end for m in matches)]
        return (min(starts, key=number), max(ends, key=number)) if starts else (0, 1)

    def _packed(self) -> list[int]:
        """The row of each match's bar: the first one that is free then."""
        free: list[float] = []
        rows = []
        for match in self.shown.matches:
            left, right = self._ends(match)
            row = next((n for n, until in enumerate(free) if until + 3 < left), len(free))
            free[row : row + 1] = [right]
            rows.append(row)
        return rows

    def _ends(self, match: Node) -> tuple[float, float]:
        left, right = self.axis.x(match.start), self.axis.x(match.end)
        return (left, right) if right - left >= _BAR else (left - _BAR / 2, left + _BAR / 2)

    # ---------------------------------------------------------------------------- drawing

    def _draw_axis(self, bottom: float) -> None:
        for time, name in self.axis.marks():
            x = self.axis.x(time)
            self.canvas.line((x, -10), (x, bottom), color=_LINE)
            self.canvas.text((x, bottom + 16), name, anchor="middle", size=11, color=DIM)

    def _draw_lanes(self) -> None:
        left, right = self.axis.left, self.axis.left + self.axis.width
        for name, top in self.at.items():
            middle = top + _LANE / 2
            self.canvas.text((0, middle + 4), short(name, 28))
            self.canvas.line((left, middle), (right, middle), color=_LINE)

    def _draw_match(self, match: Node, members: list[Node], colour: str, top: float) -> None:
        drawn = [m for m in members if m.start is not None and self._lane(m) in self.at]
        points = [(self.axis.x(m.start), self.at[self._lane(m)] + _LANE / 2) for m in drawn]
        if len(points) > 1:
            way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            self.canvas.shapes.append(
                f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="1.6" '
                'stroke-opacity="0.7"/>'
            )
        for member in drawn:
            said = f"{member.variable}: {times(member, True)}  {listed(member.fields, 400)}"
            self._dot(member.start, member.end, self.at[self._lane(member)], colour, said)
        left, right = self._ends(match)
        said = f"{times(match, True)}  {listed(match.fields, 400)}"
        shape = (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{_BAR}" '
            f'rx="3" fill="{colour}"/>'
        )
        self.canvas.covers(left, top, right, top + _BAR)
        self._told(shape, said)

    def _dot(self, start: Any, end: Any, top: float, colour: str, says: str) -> None:
        x, y = self.axis.x(start), top + _LANE / 2
        if end is not None and end != start:
            self.canvas.line((x, y), (self.axis.x(end), y), color=colour)
        shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.6" fill="{colour}" stroke="{PAPER}"/>'
        self._told(shape, says)

    def _draw_head(self, bottom: float) -> None:
        shown = self.shown
        said = [
            _of(len(shown.matches), shown.all_matches, "match", "matches"),
            _of(len(shown.events), shown.all_events, "event", "events"),
        ]
        if self.hidden:
            said.append(f"{more(self.hidden)} lanes are not shown")
        first, last = self._extent()
        when = f"{clock(first, day=True)} to {clock(last, day=True)}" if shown.events else ""
        self.canvas.text((0, -46), ", ".join(said), size=15, bold=True, color=INK)
        self.canvas.text((0, -26), when, color=DIM, size=12)
        self.canvas.covers(0, -46, 0, bottom)

    def _told(self, shape: str, text: str) -> None:
        self.canvas.shapes.append(f"<g><title>{escaped(text.strip())}</title>{shape}</g>")


def _of(drawn: int, there_are: int, one: str, several: str) -> str:
    """How many are drawn of how many.

    >>> _of(1, 1, "match", "matches"), _of(50, 1_234, "match", "matches")
    ('1 match', '50 of 1,234 matches')
    """
    if drawn == there_are:
        return f"{drawn:,} {one if drawn == 1 else several}"
    return f"{drawn:,} of {there_are:,} {several}"


def _members(match: Node) -> list[Node]:
    """The events that came in, in the order of time."""
    return in_time_order(node for node in match.walk() if not node.complex and node is not match)


def spread(count: int, most: int) -> Iterator[int]:
    """Which of many are drawn: as many as there is room for, evenly.

    >>> list(spread(3, 5)), list(spread(10, 5))
    ([0, 1, 2], [0, 2, 4, 6, 8])
    """
    if count <= most:
        return iter(range(count))
    return (place * count // most for place in range(most))


def says(row: Mapping[str, Any]) -> str:
    """What an event says when it is pointed at."""
    return listed(row, 400)
