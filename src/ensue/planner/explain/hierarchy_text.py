"""Hierarchies explained: their layers, how each box is matched, and the plan of each matcher."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from ensue.ir.hierarchy import Hierarchy
from ensue.ir.traversal import iterate_atoms
from ensue.planner.explain.plan_picture import draw_on_canvas
from ensue.planner.explain.plan_text import explain_plan
from ensue.planner.hierarchy_stages import InliningChoice
from ensue.planner.physical_plan import PhysicalPlan
from ensue.planner.statistics import format_number
from ensue.printing.expression_printer import format_name
from ensue.printing.pattern_printer import format_pattern, format_types, format_window
from ensue.svg import DIM, LINE, PAPER, Canvas, Point, cut_text, measure_text

_TOP = "the query"


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """A layer that is matched separately, alone or together with the layers in its boxes."""

    name: str
    plan: PhysicalPlan
    delivered: bool
    waits: bool  # a layer below is only known when a window has ended, so this one is late


def explain_hierarchy(
    hierarchy: Hierarchy,
    boxes: Sequence[InliningChoice],
    matchers: Sequence[LayerPlan],
    keys: Sequence[str] = (),
    more: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Explains how a hierarchy runs, from the query at the top down to the input events.

    `more` has texts to append to the plans of matchers, by their names.
    """
    layers = len(hierarchy.definitions) + len(hierarchy.top_queries)
    count = "one matcher" if len(matchers) == 1 else f"{len(matchers)} matchers"
    lines = [f"hierarchy of {layers} layers, {count}"]
    seen: set[str] = set()
    for name in hierarchy.top_queries:
        lines += _explain_layer(hierarchy, name, boxes, matchers, "  ", seen)
    lines += keys
    for matcher in reversed(matchers):
        lines += ["", f"--- {name_layer(matcher.name, hierarchy)} ---", explain_plan(matcher.plan)]
        lines += ["", more[matcher.name]] if matcher.name in more else []
    return "\n".join(lines)


def name_layer(name: str, hierarchy: Hierarchy) -> str:
    """Returns the name of a layer for readers."""
    label = next((top.label for top in hierarchy.tops if top.layer == name), name)
    if name in hierarchy.top_queries:
        return _TOP if not label else f"{_TOP} {format_name(label)}"
    return format_name(name)


def _explain_layer(
    hierarchy: Hierarchy,
    name: str,
    boxes: Sequence[InliningChoice],
    matchers: Sequence[LayerPlan],
    indent: str,
    seen: set[str],
) -> Iterator[str]:
    if name in seen:
        yield f"{indent}{name_layer(name, hierarchy)}: as above"
        return
    seen.add(name)
    below = name not in hierarchy.top_queries
    query = next(d.query for d in hierarchy.definitions if d.name == name) if below else hierarchy.top_queries[name]
    facts = [format_pattern(query.pattern)]
    facts += [f"[{e.field_name}]" for e in query.equivalence]
    if query.within is not None:
        facts.append(f"within {format_window(query.within)}")
    matcher = next((m for m in matchers if m.name == name), None)
    if matcher is not None and matcher.delivered and below:
        facts.append("delivered")
    if matcher is not None and matcher.waits:
        facts.append("waits for what is below it")
    yield f"{indent}{name_layer(name, hierarchy)}: {', '.join(facts)}"
    for box in boxes:
        if box.layer == name:
            yield f"{indent}  box {format_name(box.variable)}: {_describe_box(box)}"
            yield from _explain_layer(hierarchy, box.type, boxes, matchers, indent + "    ", seen)


def _describe_box(box: InliningChoice) -> str:
    why = f", {box.why}" if box.why else ""
    if box.costs is not None and box.costs[0] < box.costs[1]:
        why += f" (costs {format_number(box.costs[0])} against {format_number(box.costs[1])} all bottom-up)"
    return ("top-down" if box.top_down else "bottom-up") + why


# ---------------------------------------------------------------------------------- picture

_PAD = 16  # inside a frame
_BESIDE = 36  # between frames of a row
_TRACK = 14  # between parallel arrows
_MAX_LABEL = 44  # characters beside an arrow
_TITLE = 15  # the size of a frame's title
_TINT = "#f1f5f9"


def draw_hierarchy(hierarchy: Hierarchy, boxes: Sequence[InliningChoice], matchers: Sequence[LayerPlan]) -> str:
    """Draws a frame with the plan of each matcher, and arrows for their events, as SVG."""
    return _HierarchyDrawing(hierarchy, boxes, matchers).to_svg()


@dataclass(eq=False)
class _Frame:
    """A matcher, or the input events."""

    title: str
    remarks: list[str]
    inside: Canvas | None
    row: int = 0
    left: float = 0
    top: float = 0
    inputs: "list[_Arrow]" = field(default_factory=list)
    outputs: "list[_Arrow]" = field(default_factory=list)

    @property
    def width(self) -> float:
        texts = [measure_text(self.title, size=1.1 * _TITLE), *map(measure_text, self.remarks)]
        labels = sum(arrow.width for arrow in self.inputs)
        inside = 0 if self.inside is None else self.inside.right - self.inside.left
        return max(inside, labels, *texts) + 2 * _PAD

    @property
    def height(self) -> float:
        inside = 0 if self.inside is None else self.inside.bottom - self.inside.top + _PAD
        return 2 * _PAD + _TITLE + LINE * len(self.remarks) + inside

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def place(self, left: float, bottom: float) -> None:
        """Places the frame and the ends of its arrows."""
        self.left, self.top = left, bottom - self.height
        x = left + _PAD
        for arrow in self.inputs:
            arrow.end = x
            x += arrow.width
        for number, arrow in enumerate(self.outputs, 1):
            arrow.start = left + self.width / (len(self.outputs) + 1) * number

    def draw(self, canvas: Canvas) -> None:
        middle = (self.left + self.width / 2, self.top + self.height / 2)
        fill = _TINT if self.inside is None else PAPER
        canvas.box(middle, self.width, self.height, fill=fill, stroke=DIM)
        x, y = self.left + _PAD, self.top + _PAD + _TITLE
        canvas.text((x, y - 2), self.title, size=_TITLE, bold=True)
        for remark in self.remarks:
            y += LINE
            canvas.text((x, y), remark, color=DIM)
        if self.inside is not None:
            canvas.put(self.inside, (x, y + _PAD))


@dataclass(eq=False)
class _Arrow:
    """Events that flow from one frame up to another."""

    source: _Frame
    target: _Frame
    label: str
    start: float = 0  # x at the source
    end: float = 0  # x at the target

    @property
    def width(self) -> float:
        return measure_text(self.label, size=12) + 2 * _PAD


class _HierarchyDrawing:
    def __init__(self, hierarchy: Hierarchy, boxes: Sequence[InliningChoice], matchers: Sequence[LayerPlan]) -> None:
        self.hierarchy, self.boxes = hierarchy, boxes
        self.frames = {m.name: self._build_frame(m) for m in matchers}
        self.input = _Frame("raw events", [], None)
        self.arrows: list[_Arrow] = []
        for matcher in matchers:
            self._connect(matcher)
        self.rows: dict[int, list[_Frame]] = {}
        for frame in (self.input, *self.frames.values()):
            self.rows.setdefault(frame.row, []).append(frame)
        self._place_rows()

    def _build_frame(self, matcher: LayerPlan) -> _Frame:
        remarks = []
        inlined = self._list_inlined(matcher.name)
        opened = [b for b in self.boxes if b.top_down and b.layer in inlined]
        if opened:
            names = ", ".join(f"{format_name(b.type)} {format_name(b.variable)}" for b in opened)
            remarks.append(f"finds with it, from the top down: {names}")
        if matcher.waits:
            remarks.append("waits for what is below it")
        title = name_layer(matcher.name, self.hierarchy)
        below = matcher.name not in self.hierarchy.top_queries
        title += ", delivered" if below and matcher.delivered else ""
        return _Frame(title, remarks, draw_on_canvas(matcher.plan))

    def _list_inlined(self, name: str) -> set[str]:
        """Returns a layer and the layers that are matched inside of it."""
        boxes = [b for b in self.boxes if b.top_down and b.layer == name]
        return {name}.union(*(self._list_inlined(box.type) for box in boxes))

    def _connect(self, matcher: LayerPlan) -> None:
        """Adds the arrows to a matcher, whose row is above those of its sources."""
        target = self.frames[matcher.name]
        variables: dict[str, list[str]] = {}
        for atom in iterate_atoms(matcher.plan.query.pattern):
            variables.setdefault(format_types(atom.type), []).append(format_name(atom.variable))
        labels: dict[str | None, list[str]] = {}
        for name, names in sorted(variables.items(), key=lambda one: one[0] in self.frames):
            source = name if name in self.frames else None
            labels.setdefault(source, []).append(f"{format_name(name)} {', '.join(names)}")
        for source, texts in labels.items():
            frame = self.input if source is None else self.frames[source]
            arrow = _Arrow(frame, target, cut_text("; ".join(texts), _MAX_LABEL))
            frame.outputs.append(arrow)
            target.inputs.append(arrow)
            self.arrows.append(arrow)
            target.row = max(target.row, frame.row + 1)

    def _list_tracks(self, row: int) -> list[_Arrow]:
        """Lists the arrows that run sideways below a row."""
        return [a for a in self.arrows if row in (a.target.row, a.source.row + 1)]

    def _place_rows(self) -> None:
        """Places the rows from the bottom up, each centred."""
        widths = {row: sum(f.width for f in frames) + _BESIDE * (len(frames) - 1) for row, frames in self.rows.items()}
        self.width = max(widths.values())
        bottom = 0.0
        for row in sorted(self.rows):
            left = (self.width - widths[row]) / 2
            for frame in self.rows[row]:
                frame.place(left, bottom)
                left += frame.width + _BESIDE
            tracks = len(self._list_tracks(row + 1))
            top = min(frame.top for frame in self.rows[row])
            bottom = top - (2 * LINE + _TRACK * (tracks + 1))

    def to_svg(self) -> str:
        canvas = Canvas()
        far = [a for a in self.arrows if a.target.row - a.source.row > 1]
        for arrow in self.arrows:
            aside = self.width + _TRACK * (far.index(arrow) + 2) if arrow in far else None
            canvas.line(*self._route(arrow, aside), color=DIM, head=True)
        for frame in (self.input, *self.frames.values()):
            frame.draw(canvas)
        for arrow in self.arrows:
            at = (arrow.end + 8, arrow.target.bottom + LINE)
            canvas.text(at, arrow.label, size=12, halo=True)
        return canvas.to_svg(f"a hierarchy of {len(self.frames)} matchers")

    def _route(self, arrow: _Arrow, aside: float | None) -> list[Point]:
        """Routes an arrow up, sideways, and up; past other rows it runs at the side."""
        start, end = (arrow.start, arrow.source.top), (arrow.end, arrow.target.bottom)
        last = self._find_track(arrow, arrow.target.row)
        if aside is None:
            return [start, (start[0], last), (end[0], last), end]
        first = self._find_track(arrow, arrow.source.row + 1)
        return [start, (start[0], first), (aside, first), (aside, last), (end[0], last), end]

    def _find_track(self, arrow: _Arrow, row: int) -> float:
        """Returns the height at which an arrow runs sideways below a row."""
        lowest = max(frame.bottom for frame in self.rows[row])
        return lowest + 2 * LINE + _TRACK * (1 + self._list_tracks(row).index(arrow))
