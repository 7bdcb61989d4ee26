"""A canvas that grows with what is drawn on it, written as SVG."""

import re
from dataclasses import dataclass, field
from math import hypot
from xml.sax.saxutils import escape

from ensue.algebra.text import shortened

SIZE = 13  # of text, in pixels
LINE = 18  # from one line of text to the next
MARGIN = 24

INK, DIM, DARK, PAPER = "#1b2733", "#64748b", "#111111", "#ffffff"
FONT = "font-family=\"'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif\""
MONO = "monospace"
_NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
NARROW, WIDE = "iljtf.,:;|!'()[] ", "mwMW"

Point = tuple[float, float]


def width_of(text: str, *, size: float = SIZE, mono: bool = False) -> float:
    """How wide a text will be, roughly and rather too much.

    >>> width_of("iii") < width_of("mmm")
    True
    """
    if mono:
        return len(text) * size * 0.61
    return size * sum(0.36 if c in NARROW else 0.9 if c in WIDE else 0.66 for c in text)


def escaped(text: str) -> str:
    """A text as XML has it; characters that XML cannot hold are left out.

    >>> escaped("a < b" + chr(1))
    'a &lt; b'
    """
    return escape(_NO_XML.sub("", text))


def dark_width(text: str) -> float:
    """The width of a negated event's mark."""
    return max(34.0, width_of(text, size=12) * 1.08 + 18)


def wrapped(text: str, most: int) -> list[str]:
    """The text in lines of at most `most` characters, broken at blanks where there are any.

    >>> wrapped("a.price > avg(b.price)", 12)
    ['a.price >', '  avg(b.pric', '  e)']
    """
    lines: list[str] = []
    rest = text
    while len(rest) > most:
        cut = rest.rfind(" ", len(rest) - len(rest.lstrip()) + 1, most + 1)
        cut = most if cut <= 0 else cut
        lines.append(rest[:cut].rstrip())
        rest = "  " + rest[cut:].strip()
    return [*lines, rest]


def short(text: str, most: int) -> str:
    """The text, cut if it is longer.

    >>> short("temperature", 6)
    'tempe…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


@dataclass
class Canvas:
    """Shapes in the order they are drawn, and the room they take."""

    shapes: list[str] = field(default_factory=list)
    left: float = 0
    top: float = 0
    right: float = 0
    bottom: float = 0

    def covers(self, left: float, top: float, right: float, bottom: float) -> None:
        self.left, self.top = min(self.left, left), min(self.top, top)
        self.right, self.bottom = max(self.right, right), max(self.bottom, bottom)

    def text(
        self,
        at: Point,
        text: str,
        *,
        anchor: str = "start",
        size: float = SIZE,
        color: str = INK,
        mono: bool = False,
        bold: bool = False,
        halo: bool = False,
    ) -> None:
        """A line of text whose baseline is at a point; a halo hides the lines behind it."""
        x, y = at
        text = shortened(text)
        width = width_of(text, size=size, mono=mono)
        begin = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        self.covers(begin, y - size, begin + width, y + size * 0.3)
        style = f' font-family="{MONO}"' if mono else ""
        style += ' font-weight="600"' if bold else ""
        if halo:
            self.shapes.append(
                f'<rect x="{begin - 3:.1f}" y="{y - size:.1f}" width="{width + 6:.1f}" '
                f'height="{size * 1.35:.1f}" rx="3" fill="{PAPER}" fill-opacity="0.9"/>'
            )
        self.shapes.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size:g}" '
            f'fill="{color}" xml:space="preserve"{style}>{escaped(text)}</text>'
        )

    def circle(self, at: Point, radius: float, *, fill: str = PAPER, width: float = 1.6) -> None:
        x, y = at
        self.covers(x - radius, y - radius, x + radius, y + radius)
        self.shapes.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}" stroke="{INK}" '
            f'stroke-width="{width:g}"/>'
        )

    def box(
        self,
        at: Point,
        width: float,
        height: float,
        *,
        fill: str = PAPER,
        stroke: str = INK,
        round: float = 6,
    ) -> None:
        """A box around its middle."""
        x, y = at[0] - width / 2, at[1] - height / 2
        self.covers(x, y, x + width, y + height)
        self.shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
            f'rx="{round:g}" fill="{fill}" stroke="{stroke}" stroke-width="1.6"/>'
        )

    def dark(self, at: Point, text: str) -> float:
        """A negated event: black with white text, a circle as long as the text is short."""
        width = dark_width(text)
        self.box(at, width, 34, fill=DARK, stroke=DARK, round=17)
        self.text((at[0], at[1] + 4), text, anchor="middle", size=12, color=PAPER, bold=True)
        return width

    def line(
        self, *points: Point, dashed: bool = False, color: str = INK, head: bool = False
    ) -> None:
        for x, y in points:
            self.covers(x, y, x, y)
        way = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._path(way, dashed, color)
        if head:
            self.head(points[-2], points[-1], color)

    def curve(self, start: Point, bend: Point, end: Point, *, color: str = INK) -> None:
        """An arrow that bends towards a point."""
        middle = middle_of(start, bend, end)
        self.covers(middle[0], middle[1], middle[0], middle[1])
        a, b, c = (f"{x:.1f},{y:.1f}" for x, y in (start, bend, end))
        way = f"M{a} Q{b} {c}"
        self._path(way, False, color)
        self.head(bend, end, color)

    def loop(self, at: Point, radius: float, height: float) -> None:
        """An arrow from the top of a circle back to it."""
        x, y = at
        side = radius * 0.6
        edge = y - radius * 0.8
        self.covers(x - height, y - radius - height, x + height, y)
        way = (
            f"M{x - side:.1f},{edge:.1f} C{x - height:.1f},{y - radius - height:.1f} "
            f"{x + height:.1f},{y - radius - height:.1f} {x + side:.1f},{edge:.1f}"
        )
        self._path(way, False, INK)
        self.head((x + height * 0.72, y - radius - height * 0.35), (x + side, edge), INK)

    def put(self, other: "Canvas", at: Point) -> None:
        """Another drawing, its upper left corner at a point."""
        x, y = at[0] - other.left, at[1] - other.top
        self.covers(at[0], at[1], other.right + x, other.bottom + y)
        inside = "\n".join(other.shapes)
        self.shapes.append(f'<g transform="translate({x:.1f} {y:.1f})">\n{inside}\n</g>')

    def head(self, origin: Point, end: Point, color: str) -> None:
        """The head of an arrow that comes from somewhere."""
        dx, dy = end[0] - origin[0], end[1] - origin[1]
        length = hypot(dx, dy) or 1
        dx, dy = dx / length, dy / length
        back = (end[0] - 10 * dx, end[1] - 10 * dy)
        corners = [end, (back[0] - 4.5 * dy, back[1] + 4.5 * dx)]
        corners.append((back[0] + 4.5 * dy, back[1] - 4.5 * dx))
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        self.shapes.append(f'<polygon points="{points}" fill="{color}"/>')

    def _path(self, way: str, dashed: bool, color: str) -> None:
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self.shapes.append(
            f'<path d="{way}" fill="none" stroke="{color}" stroke-width="1.6"{dashes}/>'
        )

    def svg(self, title: str) -> str:
        """The drawing, with a margin around it."""
        left, top = self.left - MARGIN, self.top - MARGIN
        width, height = self.right + MARGIN - left, self.bottom + MARGIN - top
        size = f'width="{width:.0f}" height="{height:.0f}"'
        view = f'viewBox="{left:.0f} {top:.0f} {width:.0f} {height:.0f}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {view} {size} {FONT} role="img">',
            f"<title>{escaped(title)}</title>",
            f'<rect x="{left:.0f}" y="{top:.0f}" {size} fill="{PAPER}"/>',
            *self.shapes,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def middle_of(start: Point, bend: Point, end: Point) -> Point:
    """The middle of a curve."""
    return (
        (start[0] + 2 * bend[0] + end[0]) / 4,
        (start[1] + 2 * bend[1] + end[1]) / 4,
    )
