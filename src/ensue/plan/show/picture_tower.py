"""The plan of a tower as a picture: its matchers from bottom to top, and what goes up to them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ensue.algebra.text import show_name, show_types
from ensue.algebra.tower import Tower
from ensue.algebra.walk import atoms
from ensue.plan.show.drawing.canvas import DIM, LINE, PAPER, Canvas, short, width_of
from ensue.plan.show.explain_tower import Matcher, called
from ensue.plan.show.picture import drawn
from ensue.plan.towers.boxes import BoxChoice

RAW = "raw events"
PAD = 16  # inside a frame
BESIDE = 36  # between frames of a row
TRACK = 14  # between arrows that run beside each other
LABEL = 44  # the most characters beside an arrow
TITLE = 15  # the size of a frame's title
TINT = "#f1f5f9"


def tower_picture(tower: Tower, boxes: Sequence[BoxChoice], matchers: Sequence[Matcher]) -> str:
    """SVG: a frame for each matcher with the picture of its plan, and arrows for its events."""
    return _Drawing(tower, boxes, matchers).svg()


@dataclass(eq=False)
class _Frame:
    """A matcher, or the events that come in."""

    name: str  # "" may be that of a matcher
    title: str
    remarks: list[str]
    inside: Canvas | None
    row: int = 0
    left: float = 0
    top: float = 0
    takes: "list[_Arrow]" = field(default_factory=list)
    gives: "list[_Arrow]" = field(default_factory=list)

    @property
    def width(self) -> float:
        texts = [width_of(self.title, size=1.1 * TITLE), *map(width_of, self.remarks)]
        labels = sum(arrow.width for arrow in self.takes)
        inside = 0 if self.inside is None else self.inside.right - self.inside.left
        return max(inside, labels, *texts) + 2 * PAD

    @property
    def height(self) -> float:
        inside = 0 if self.inside is None else self.inside.bottom - self.inside.top + PAD
        return 2 * PAD + TITLE + LINE * len(self.remarks) + inside


@dataclass(eq=False)
class _Arrow:
    """Events on their way from one frame up to another."""

    source: _Frame
    target: _Frame
    label: str
    leaves: float = 0  # x at its source
    arrives: float = 0  # x at its target

    @property
    def width(self) -> float:
        return width_of(self.label, size=12) + 2 * PAD

    @property
    def rises(self) -> int:
        return self.target.row - self.source.row


class _Drawing:
    def __init__(
        self, tower: Tower, boxes: Sequence[BoxChoice], matchers: Sequence[Matcher]
    ) -> None:
        self.tower, self.boxes = tower, boxes
        self.frames = {m.name: self._frame(m) for m in matchers}
        self.raw = _Frame("", RAW, [], None)
        self.arrows: list[_Arrow] = []
        for matcher in matchers:
            self._connect(matcher)
        count = 1 + max(frame.row for frame in self.frames.values())
        self.rows: list[list[_Frame]] = [[] for _ in range(count)]
        for frame in (self.raw, *self.frames.values()):
            self.rows[frame.row].append(frame)
        self.gaps = [self._between(row) for row in range(1, count)]
        self._place()

    def _frame(self, matcher: Matcher) -> _Frame:
        remarks = []
        within = self._opened(matcher.name)
        opened = [b for b in self.boxes if b.top_down and b.layer in within]
        if opened:
            found = ", ".join(f"{show_name(b.type)} {show_name(b.variable)}" for b in opened)
            remarks.append(f"finds with it, from the top down: {found}")
        if matcher.waits:
            remarks.append("waits for what is below it")
        below = matcher.name not in self.tower.on_top
        title = called(matcher.name, self.tower)
        title += ", delivered" if below and matcher.delivered else ""
        return _Frame(matcher.name, title, remarks, drawn(matcher.plan))

    def _opened(self, name: str) -> set[str]:
        """A layer and those that are found in it."""
        found = {name}
        for box in self.boxes:
            if box.top_down and box.layer == name:
                found |= self._opened(box.type)
        return found

    def _connect(self, matcher: Matcher) -> None:
        """The arrows to a matcher; lower ones have their rows already."""
        target = self.frames[matcher.name]
        taken: dict[str, list[str]] = {}
        for atom in atoms(matcher.plan.query.pattern):
            taken.setdefault(show_types(atom.type), []).append(show_name(atom.variable))
        raw = [f"{show_name(t)} {', '.join(v)}" for t, v in taken.items() if t not in self.frames]
        pairs = [(self.raw, "; ".join(raw))] if raw else []
        pairs += [
            (self.frames[t], f"{show_name(t)} {', '.join(v)}")
            for t, v in taken.items()
            if t in self.frames
        ]
        for source, label in pairs:
            arrow = _Arrow(source, target, short(label, LABEL))
            source.gives.append(arrow)
            target.takes.append(arrow)
            self.arrows.append(arrow)
        target.row = 1 + max(source.row for source, _ in pairs)

    # ---------------------------------------------------------------------------- places

    def _between(self, row: int) -> list[_Arrow]:
        """The arrows that run sideways below a row: those that arrive, and those that pass."""
        return [a for a in self.arrows if row in (a.target.row, a.source.row + 1)]

    def _place(self) -> None:
        """Rows from the bottom up, each in the middle."""
        widths = [sum(f.width for f in row) + BESIDE * (len(row) - 1) for row in self.rows]
        self.width = max(widths)
        bottom = 0.0
        for row, width in zip(self.rows, widths, strict=True):
            left = (self.width - width) / 2
            for frame in row:
                frame.left, frame.top = left, bottom - frame.height
                left += frame.width + BESIDE
                _ports(frame)
            highest = bottom - max(frame.height for frame in row)
            number = row[0].row
            tracks = len(self.gaps[number]) if number < len(self.gaps) else 0
            bottom = highest - (2 * LINE + TRACK * (tracks + 1))

    # ---------------------------------------------------------------------------- drawing

    def svg(self) -> str:
        canvas = Canvas()
        far = [a for a in self.arrows if a.rises > 1]
        for arrow in self.arrows:
            aside = self.width + TRACK * (far.index(arrow) + 2) if arrow in far else None
            canvas.line(*self._way(arrow, aside), color=DIM, head=True)
        for frame in (self.raw, *self.frames.values()):
            _draw(canvas, frame)
        for arrow in self.arrows:
            at = (arrow.arrives + 8, arrow.target.top + arrow.target.height + LINE)
            canvas.text(at, arrow.label, size=12, halo=True)
        return canvas.svg(f"a tower of {len(self.frames)} matchers")

    def _way(self, arrow: _Arrow, aside: float | None) -> list[tuple[float, float]]:
        """Up, sideways, and up; past the rows between it runs at the side."""
        start = (arrow.leaves, arrow.source.top)
        end = (arrow.arrives, arrow.target.top + arrow.target.height)
        last = self._track(arrow, arrow.target.row)
        if aside is None:
            return [start, (start[0], last), (end[0], last), end]
        first = self._track(arrow, arrow.source.row + 1)
        return [start, (start[0], first), (aside, first), (aside, last), (end[0], last), end]

    def _track(self, arrow: _Arrow, row: int) -> float:
        """Where it runs sideways below a row."""
        lowest = max(f.top + f.height for f in self.rows[row])
        return lowest + 2 * LINE + TRACK * (1 + self.gaps[row - 1].index(arrow))


def _ports(frame: _Frame) -> None:
    """Where arrows leave and arrive."""
    x = frame.left + PAD
    for arrow in frame.takes:
        arrow.arrives = x
        x += arrow.width
    step = frame.width / (len(frame.gives) + 1)
    for number, arrow in enumerate(frame.gives, 1):
        arrow.leaves = frame.left + step * number


def _draw(canvas: Canvas, frame: _Frame) -> None:
    middle = (frame.left + frame.width / 2, frame.top + frame.height / 2)
    fill = TINT if frame.inside is None else PAPER
    canvas.box(middle, frame.width, frame.height, fill=fill, stroke=DIM)
    x, y = frame.left + PAD, frame.top + PAD + TITLE
    canvas.text((x, y - 2), frame.title, size=TITLE, bold=True)
    for remark in frame.remarks:
        y += LINE
        canvas.text((x, y), remark, color=DIM)
    if frame.inside is not None:
        canvas.put(frame.inside, (x, y + PAD))
