"""Draws the tree that explains a plan: graphs of states, trees of boxes, and frames around whole plans."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ensue.planner.explain.plan_node import PlanNode, Shape
from ensue.svg import DARK, DIM, INK, LINE, PAPER, Canvas, Point, cut_text, measure_pill, measure_text, wrap_text

MAX_NAME = 32  # characters of a box
LEGEND_WIDTH = 96  # characters of a line of the legend
_BESIDE = 60.0  # between two frames
_MAX_INLINE = 30  # characters that fit beside an arrow
_MAX_LINES = 3  # lines that do
_INPUT = "raw events"


def draw_plan(plan: PlanNode) -> str:
    """Draws a plan as SVG."""
    title = next((section.label for section in plan.list_children(Shape.HEADER)), plan.name)
    return _draw_on_canvas(plan).to_svg(title)


def _draw_on_canvas(plan: PlanNode) -> Canvas:
    """Draws a plan on a canvas, which may become part of another picture."""
    canvas, legend = Canvas(), _Legend()
    for section in plan.children:
        match section.shape:
            case Shape.GRAPH:
                _GraphDrawing(canvas, legend, section).draw()
            case Shape.CHAIN:
                _draw_tree(canvas, _build_chain(legend, section.children))
            case Shape.TREE | Shape.OUTLINE:
                _draw_tree(canvas, _build_box(legend, section.children[0]))
            case Shape.TABLE:
                legend.table += section.properties
            case Shape.REMARKS:
                legend.remarks += [": ".join(filter(None, (section.title, line))) for line in section.lines]
            case _:
                continue
        if section.shape is Shape.OUTLINE:
            legend.tests += section.lines
        if section.shape in (Shape.GRAPH, Shape.CHAIN, Shape.OUTLINE):
            legend.remarks.append(section.title)
    _draw_frames(canvas, {frame.title: frame for frame in plan.list_children(Shape.PLAN)})
    legend.draw(canvas)
    for header in plan.list_children(Shape.HEADER):
        canvas.title(wrap_text(header.label, LEGEND_WIDTH), "  ·  ".join(header.details))
    return canvas


# ------------------------------------------------------------------------------------ trees

_BETWEEN = 22  # from one leaf to the next
_ABOVE = 44  # between two levels
_HEIGHT = 32  # of a box without lines
_INSIDE = 16  # around the picture in a box


@dataclass(frozen=True, slots=True)
class _TreeBox:
    """A node of a tree: a bold text, lines and a picture below it, dark pills beside it, and its children."""

    text: str
    children: tuple["_TreeBox", ...] = ()
    dark: bool = False
    lines: tuple[str, ...] = ()
    pills: tuple[str, ...] = ()
    inside: Canvas | None = None
    above: str = ""  # what flows from it to its parent

    @property
    def height(self) -> float:
        inside = 0 if self.inside is None else self.inside.bottom - self.inside.top + _INSIDE
        return _HEIGHT + LINE * len(self.lines) + (2 if self.lines else 0) + inside

    @property
    def box_width(self) -> float:
        lines = [measure_text(line, size=12, mono=True) + 24 for line in self.lines]
        inside = 0 if self.inside is None else self.inside.right - self.inside.left + 2 * _INSIDE
        above = 2 * measure_text(self.above, size=12)  # it stands on the right of the middle
        return max(54.0, measure_text(self.text) + 26, inside, above, *lines)

    @property
    def children_width(self) -> float:
        return sum(c.width for c in self.children) + _BETWEEN * max(0, len(self.children) - 1)

    @property
    def width(self) -> float:
        pills = sum(measure_pill(pill) + 6 for pill in self.pills)
        return max(self.box_width + (2 * (pills + 8) if pills else 0), self.children_width)


def _draw_tree(canvas: Canvas, root: _TreeBox) -> None:
    """Draws a tree with the root at the top; boxes of a level are at the same height."""
    tops, level = [0.0], [root]
    while level:
        tops.append(tops[-1] + max(box.height for box in level) + _ABOVE)
        level = [child for box in level for child in box.children]
    _draw_box(canvas, root, 0, tops)


def _draw_box(canvas: Canvas, box: _TreeBox, left: float, tops: Sequence[float]) -> Point:
    """Draws a box and its children, and returns the middle of its upper edge."""
    x, top = left + box.width / 2, tops[0]
    child_left = left + (box.width - box.children_width) / 2
    for child in box.children:
        end = _draw_box(canvas, child, child_left, tops[1:])
        bend = tops[1] - _ABOVE / 2
        way = ((x, top + box.height), (x, bend), (end[0], bend), end)
        canvas.line(*(reversed(way) if child.above else way), head=bool(child.above))
        if child.above:
            canvas.text((end[0] + 6, end[1] - 6), child.above, size=12)
        child_left += child.width + _BETWEEN
    middle = (x, top + box.height / 2)
    fill, ink = (DARK, PAPER) if box.dark else (PAPER, INK)
    corner = 16 if box.children else 4
    canvas.box(middle, box.box_width, box.height, fill=fill, round=corner)
    canvas.text((x, top + 21), box.text, anchor="middle", color=ink, bold=True)
    for number, line in enumerate(box.lines):
        at = (x, top + _HEIGHT + LINE * (number + 0.5))
        canvas.text(at, line, anchor="middle", size=12, mono=True, color=DIM)
    if box.inside is not None:
        width, height = box.inside.right - box.inside.left, box.inside.bottom - box.inside.top
        canvas.put(box.inside, (x - width / 2, top + box.height - height - _INSIDE))
    pill_left = x + box.box_width / 2 + 8
    for pill in box.pills:
        width = measure_pill(pill)
        canvas.pill((pill_left + width / 2, middle[1]), pill)
        pill_left += width + 6
    return (x, top)


# ----------------------------------------------------------------------------------- frames


def _draw_frames(canvas: Canvas, frames: Mapping[str, PlanNode]) -> None:
    """Draws plans above those that they take events from."""
    sources = {edge.target for frame in frames.values() for edge in frame.list_children(Shape.EDGE)}
    seen: set[str] = set()
    for frame in frames.values():
        if frame.title not in sources:
            tree = Canvas()
            _draw_tree(tree, _build_frame(frame, "", frames, seen))
            canvas.put(tree, (canvas.right + _BESIDE if seen else 0.0, 0.0))
            seen.add(frame.title)


def _build_frame(plan: PlanNode, taken: str, frames: Mapping[str, PlanNode], seen: set[str]) -> _TreeBox:
    """Builds the box of a plan; `taken` are the events that the one above takes from it."""
    if plan.title in seen:
        return _TreeBox(f"see {plan.title}", above=taken)
    seen.add(plan.title)
    children = [
        _build_frame(frames[edge.target], edge.label, frames, seen)
        if edge.target in frames
        else _TreeBox(edge.target or _INPUT, above=edge.label)
        for edge in plan.list_children(Shape.EDGE)
    ]
    drawn = any(section.shape is not Shape.EDGE for section in plan.children)
    inside = _draw_on_canvas(plan) if drawn else None
    return _TreeBox(plan.title, tuple(children), lines=plan.lines, inside=inside, above=taken)


# ----------------------------------------------------------------------------------- legend


@dataclass
class _Legend:
    """Collects texts that are too long for their place: a number there, the text below."""

    tests: list[str] = field(default_factory=list)
    negations: list[str] = field(default_factory=list)
    table: list[tuple[str, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def shorten(self, tests: Sequence[str]) -> list[str]:
        """Returns few and short tests as they are, else their numbers."""
        if len(tests) <= _MAX_LINES and all(len(test) <= _MAX_INLINE for test in tests):
            return [*tests]
        self.tests += [test for test in dict.fromkeys(tests) if test not in self.tests]
        marks = [f"[{number}]" for number in sorted(self.tests.index(t) + 1 for t in tests)]
        size = _MAX_INLINE // 5
        return [" ".join(marks[k : k + size]) for k in range(0, len(marks), size)]

    def label_negations(self, node: PlanNode) -> list[str]:
        """Adds the negations below a node to the legend, and returns the labels of their pills."""
        negations = node.list_children(Shape.NEGATION)
        for negation in negations:
            where = f", where {' and '.join(negation.details)}" if negation.details else ""
            if negation.title + where not in self.negations:
                self.negations.append(negation.title + where)
        return [negation.label for negation in negations]

    def draw(self, canvas: Canvas) -> None:
        """Writes the legend below everything else."""
        x, y = canvas.left, canvas.bottom + 2 * LINE
        indent = max((measure_text(f"[{len(self.tests)}] ", mono=True), 24))
        beside = max((measure_text(name) for name, _ in self.table), default=0.0) + 20

        def write(text: str, indent: float = 0.0, *, mono: bool = True) -> None:
            nonlocal y
            for line in wrap_text(text, LEGEND_WIDTH):
                canvas.text((x + indent, y), line, mono=mono, color=INK if mono else DIM)
                y += LINE

        for number, test in enumerate(self.tests, 1):
            canvas.text((x, y), f"[{number}]", mono=True, color=DIM)
            write(test, indent)
        for negation in self.negations:
            canvas.box((x + 8, y - 4), 12, 12, fill=DARK, stroke=DARK, round=6)
            write(negation, indent)
        for name, text in self.table:
            canvas.text((x, y), name, bold=True)
            write(text, beside)
        for remark in self.remarks:
            write(remark, mono=False)


# ------------------------------------------------------------------------------------ boxes


def _build_box(legend: _Legend, node: PlanNode, children: Sequence[_TreeBox] | None = None) -> _TreeBox:
    """Builds the box of a node; without `children` those of the nodes below it."""
    if children is None:
        children = [_build_box(legend, child) for child in node.list_children(Shape.BOX, Shape.DARK_BOX)]
    lines = legend.shorten([*node.details, *node.lines])
    pills = legend.label_negations(node)
    dark = node.shape is Shape.DARK_BOX
    return _TreeBox(cut_text(node.name, MAX_NAME), tuple(children), dark, tuple(lines), tuple(pills))


def _build_chain(legend: _Legend, nodes: Sequence[PlanNode]) -> _TreeBox:
    below = [_build_chain(legend, nodes[1:])] if len(nodes) > 1 else []
    return _build_box(legend, nodes[0], below)


# ----------------------------------------------------------------------------------- graphs

_RADIUS = 20
_LOOP = 44  # how far a loop rises above its state
_BOW = 90  # how far an edge inside a column is bent
_NEAR = 0.28  # how far along a crossing edge its label stands
_PILL = 42  # height of a negation below a state


@dataclass(frozen=True, slots=True)
class _Edge:
    source: int
    target: int
    lines: tuple[str, ...]  # the event, and the tests
    pills: tuple[str, ...]  # negated events

    @property
    def width(self) -> float:
        return max(measure_text(line, mono=True) for line in self.lines)

    @property
    def pills_width(self) -> float:
        return sum(measure_pill(pill) + 6 for pill in self.pills)


class _GraphDrawing:
    """Draws states from left to right."""

    def __init__(self, canvas: Canvas, legend: _Legend, graph: PlanNode) -> None:
        self.canvas = canvas
        self.states = graph.list_children(Shape.STATE, Shape.FINAL_STATE)
        numbers = {state.label: number for number, state in enumerate(self.states)}
        self.edges = [
            _Edge(
                source,
                numbers[edge.target],
                (edge.label, *legend.shorten([*edge.details, *edge.lines])),
                tuple(legend.label_negations(edge)),
            )
            for source, state in enumerate(self.states)
            for edge in state.list_children(Shape.EDGE)
        ]
        self.below = [
            ["match"] * (state.shape is Shape.FINAL_STATE) + legend.shorten(state.lines) for state in self.states
        ]
        self.pills = [legend.label_negations(state) for state in self.states]
        self.loops = [
            [(line, not n) for e in self.edges if e.source == e.target == number for n, line in enumerate(e.lines)]
            for number in range(len(self.states))
        ]
        self.columns: dict[int, list[int]] = {}
        for number, state in enumerate(self.states):
            self.columns.setdefault(state.column, []).append(number)
        self.places = self._place_states()

    def draw(self) -> None:
        x, y = self.places[0]
        self.canvas.line((x - _RADIUS - 34, y), (x - _RADIUS, y), head=True)
        for edge in self.edges:
            if edge.source != edge.target:
                self._draw_edge(edge)
        for number in range(len(self.states)):
            self._draw_state(number)

    # ----------------------------------------------------------------------------- layout

    def _place_states(self) -> dict[int, Point]:
        places: dict[int, Point] = {}
        height, x = self._measure_row(), 0.0
        for depth in sorted(self.columns):
            column = self.columns[depth]
            x += self._measure_bows(column) if places else 0.0
            for row, number in enumerate(column):
                places[number] = (x, (row - (len(column) - 1) / 2) * height)
            widest = max((self._measure_room(e) for e in self.edges if e.source in column), default=0.0)
            x += max(80.0, widest) + 2 * _RADIUS
        return places

    def _measure_row(self) -> float:
        loops = max(map(len, self.loops))
        above = _LOOP * 0.75 + loops * LINE if loops else 0
        below = max(len(lines) * LINE + len(pills) * _PILL for lines, pills in zip(self.below, self.pills, strict=True))
        lines = max((len(edge.lines) for edge in self.edges), default=0)
        slopes = (lines * LINE + 12) / (1 - 2 * _NEAR) if any(map(self._crosses, self.edges)) else 0
        return max(120.0, above + below + 2 * _RADIUS + 40, slopes)

    def _measure_room(self, edge: _Edge) -> float:
        """Returns the way to the next column that an edge needs for its label."""
        if edge.source == edge.target:
            return edge.width + 40
        if self._crosses(edge):
            return 2 * edge.width + edge.pills_width + 60
        if self._is_lone(edge):
            return max(edge.width, edge.pills_width) + 40
        return edge.width + edge.pills_width + 80

    def _measure_bows(self, column: list[int]) -> float:
        """Returns the room that edges up inside a column take on its left."""
        upwards = (e for e in self.edges if e.source in column and e.target in column and e.source > e.target)
        return max((_BOW / 2 + edge.width for edge in upwards), default=0.0)

    def _count_states(self, edge: _Edge) -> list[int]:
        """Returns the sizes of the columns of an edge."""
        return [len(self.columns[self.states[number].column]) for number in (edge.source, edge.target)]

    def _crosses(self, edge: _Edge) -> bool:
        return min(self._count_states(edge)) > 1

    def _is_lone(self, edge: _Edge) -> bool:
        """Returns whether an edge is the only one between its columns."""
        return self._count_states(edge) == [1, 1]

    # ----------------------------------------------------------------------------- shapes

    def _draw_state(self, number: int) -> None:
        x, y = self.places[number]
        loops = self.loops[number]
        if loops:
            self.canvas.loop((x, y), _RADIUS, _LOOP)
            self._write((x, y - _RADIUS - _LOOP * 0.75 - 8 - (len(loops) - 1) * LINE), loops)
        self.canvas.circle((x, y), _RADIUS)
        if self.states[number].shape is Shape.FINAL_STATE:
            self.canvas.circle((x, y), _RADIUS - 4)
        self.canvas.text((x, y + 5), self.states[number].label, anchor="middle")
        y += _RADIUS + LINE
        for line in self.below[number]:
            self.canvas.text((x, y), line, anchor="middle", color=DIM, size=12, halo=True)
            y += LINE
        for pill in self.pills[number]:
            self.canvas.line((x, y - LINE + 6), (x, y + 2), dashed=True)
            self.canvas.pill((x, y + 18), pill)
            y += _PILL

    def _write(self, top: Point, lines: list[tuple[str, bool]], *, anchor: str = "middle") -> None:
        for number, (line, bold) in enumerate(lines):
            at, size = (top[0], top[1] + number * LINE), 13 if bold else 12
            self.canvas.text(at, line, anchor=anchor, size=size, bold=bold, mono=not bold, halo=True)

    def _draw_edge(self, edge: _Edge) -> None:
        source, target = self.places[edge.source], self.places[edge.target]
        lines = [(line, not number) for number, line in enumerate(edge.lines)]
        rise = (len(lines) - 1) * LINE
        if source[0] == target[0]:  # inside a column: downwards on the right, else on the left
            side = 1 if source[1] < target[1] else -1
            bend = (source[0] + side * _BOW, (source[1] + target[1]) / 2)
            start, end = _clip(source, bend)[0], _clip(bend, target)[1]
            x, y = self.canvas.curve(start, bend, end)
            anchor = "start" if side > 0 else "end"
            self._write((x + side * 6, y + 5 - rise / 2), lines, anchor=anchor)
            return
        start, end = _clip(source, target)
        self.canvas.line(start, end, head=True)
        flat, lone = source[1] == target[1], self._is_lone(edge)
        slope = (end[1] - start[1]) / (end[0] - start[0])
        self.canvas.pills(_interpolate(start, end, 0.5 if lone else 0.78), edge.pills, slope)
        along = 0.5 if lone else 0.42
        if self._crosses(edge):
            along = 0.62 if flat else _NEAR
        x, y = _interpolate(start, end, along)
        if flat:
            self._write((x, y - (24 if lone and edge.pills else 8) - rise), lines)
        else:
            self._write((x, y + 5 - rise / 2), lines)


def _interpolate(start: Point, end: Point, share: float) -> Point:
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _clip(source: Point, target: Point) -> tuple[Point, Point]:
    """Returns where a straight line leaves one circle and reaches the other."""
    dx, dy = target[0] - source[0], target[1] - source[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1
    dx, dy = dx / length * (_RADIUS + 1), dy / length * (_RADIUS + 1)
    return (source[0] + dx, source[1] + dy), (target[0] - dx, target[1] - dy)
