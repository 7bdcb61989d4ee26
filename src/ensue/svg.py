"""SVG pictures: a canvas that grows with its shapes, and outlines of regions."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from ensue.printing.expression_printer import truncate_wkt

SIZE = 13  # of text, in pixels
LINE = 18  # from one line of text to the next
MARGIN = 24
INK, DIM, DARK, PAPER = "#1b2733", "#64748b", "#111111", "#ffffff"
FONT = "'Helvetica Neue', Helvetica, Arial, 'DejaVu Sans', sans-serif"

_NO_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_NARROW, _WIDE = "iljtf.,:;|!'()[] ", "mwMW"

Point = tuple[float, float]


# ------------------------------------------------------------------------------------ texts


def measure_text(text: str, *, size: float = SIZE, mono: bool = False) -> float:
    """Estimates the width of a text, rather too wide."""
    if mono:
        return len(text) * size * 0.61
    return size * sum(0.36 if c in _NARROW else 0.9 if c in _WIDE else 0.66 for c in text)


def measure_pill(text: str) -> float:
    return max(34.0, measure_text(text, size=12) * 1.08 + 18)


def wrap_text(text: str, limit: int) -> list[str]:
    """Breaks a text into lines of at most `limit` characters, at blanks if it has any.

    >>> wrap_text("a.price > avg(b.price)", 12)
    ['a.price >', '  avg(b.pric', '  e)']
    """
    lines: list[str] = []
    while len(text) > limit:
        cut = text.rfind(" ", len(text) - len(text.lstrip()) + 1, limit + 1)
        cut = limit if cut <= 0 else cut
        lines.append(text[:cut].rstrip())
        text = "  " + text[cut:].strip()
    return [*lines, text]


def cut_text(text: str, limit: int) -> str:
    """Cuts a text that is longer than `limit`.

    >>> cut_text("temperature", 6)
    'tempe…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def escape_xml(text: str) -> str:
    """Escapes a text for XML, without the characters that XML cannot hold.

    >>> escape_xml("a < b" + chr(1))
    'a &lt; b'
    """
    return escape(_NO_XML.sub("", text))


def format_element(tag: str, **attributes: Any) -> str:
    """Formats an element; numbers have one decimal, `_` stands for `-`, None is left out.

    >>> format_element("circle", r=4.25, stroke_width=None, fill="#fff")
    '<circle r="4.2" fill="#fff"/>'
    """
    shown = []
    for name, value in attributes.items():
        if value is not None:
            text = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
            shown.append(f"{name.replace('_', '-')}={quoteattr(text)}")
    return f"<{tag} {' '.join(shown)}/>"


@dataclass
class Canvas:
    """Shapes in the order in which they are drawn, and the rectangle around them."""

    shapes: list[str] = field(default_factory=list)
    left: float = 0
    top: float = 0
    right: float = 0
    bottom: float = 0

    def extend(self, *points: Point) -> None:
        for x, y in points:
            self.left, self.top = min(self.left, x), min(self.top, y)
            self.right, self.bottom = max(self.right, x), max(self.bottom, y)

    def add(self, tag: str, hint: str = "", **attributes: Any) -> None:
        """Adds an element, which shows a hint while the pointer is over it."""
        shape = format_element(tag, **attributes)
        if hint:
            shape = f"<g><title>{escape_xml(hint.strip())}</title>{shape}</g>"
        self.shapes.append(shape)

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
        """Draws a line of text with its baseline at a point; a halo hides the lines below it."""
        x, y = at
        text = truncate_wkt(text)
        width = measure_text(text, size=size, mono=mono)
        begin = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        self.extend((begin, y - size), (begin + width, y + size * 0.3))
        if halo:
            middle, height = (begin + width / 2, y - size * 0.325), size * 1.35
            self.box(middle, width + 6, height, stroke=None, round=3, opacity="0.9")
        element = format_element(
            "text",
            x=float(x),
            y=float(y),
            text_anchor=anchor,
            font_size=size,
            fill=color,
            font_family="monospace" if mono else None,
            font_weight="600" if bold else None,
        ).removesuffix("/>")
        self.shapes.append(f'{element} xml:space="preserve">{escape_xml(text)}</text>')

    def circle(self, at: Point, radius: float, *, fill: str = PAPER, stroke: str = INK, hint: str = "") -> None:
        x, y = map(float, at)
        self.extend((x - radius, y - radius), (x + radius, y + radius))
        self.add("circle", hint, cx=x, cy=y, r=radius, fill=fill, stroke=stroke, stroke_width=1.6)

    def box(
        self,
        at: Point,
        width: float,
        height: float,
        *,
        fill: str = PAPER,
        stroke: str | None = INK,
        round: float = 6,
        opacity: str | None = None,
        hint: str = "",
    ) -> None:
        x, y = at[0] - width / 2, at[1] - height / 2
        self.extend((x, y), (x + width, y + height))
        self.add(
            "rect",
            hint,
            x=float(x),
            y=float(y),
            width=float(width),
            height=float(height),
            rx=round,
            fill=fill,
            fill_opacity=opacity,
            stroke=stroke,
            stroke_width=None if stroke is None else 1.6,
        )

    def pill(self, at: Point, text: str) -> float:
        """Draws a negated event in white on black, and returns its width."""
        width = measure_pill(text)
        self.box(at, width, 34, fill=DARK, stroke=DARK, round=17)
        self.text((at[0], at[1] + 4), text, anchor="middle", size=12, color=PAPER, bold=True)
        return width

    def pills(self, at: Point, texts: Sequence[str], slope: float = 0) -> None:
        """Draws several negated events beside each other, on a line of a slope."""
        widths = [measure_pill(text) + 6 for text in texts]
        x = at[0] - sum(widths) / 2
        for text, width in zip(texts, widths, strict=True):
            middle = x + width / 2
            self.pill((middle, at[1] + (middle - at[0]) * slope), text)
            x += width

    def line(
        self, *points: Point, dashed: bool = False, color: str = INK, head: bool = False, opacity: str | None = None
    ) -> None:
        """Draws a line through points; `head` adds an arrow's head."""
        self.extend(*points)
        path = "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.path(path, dashed=dashed, color=color, opacity=opacity)
        if head:
            self._head(points[-2], points[-1], color)

    def curve(self, start: Point, bend: Point, end: Point, *, color: str = INK) -> Point:
        """Draws an arrow that bends towards a point, and returns its middle."""
        x, y = ((a + 2 * b + c) / 4 for a, b, c in zip(start, bend, end, strict=True))
        self.extend((x, y))
        a, b, c = (f"{x:.1f},{y:.1f}" for x, y in (start, bend, end))
        self.path(f"M{a} Q{b} {c}", color=color)
        self._head(bend, end, color)
        return x, y

    def loop(self, at: Point, radius: float, height: float) -> None:
        """Draws an arrow from the top of a circle back to it."""
        x, y = at
        side, edge, top = radius * 0.6, y - radius * 0.8, y - radius - height
        self.extend((x - height, top), (x + height, y))
        self.path(
            f"M{x - side:.1f},{edge:.1f} C{x - height:.1f},{top:.1f} "
            f"{x + height:.1f},{top:.1f} {x + side:.1f},{edge:.1f}"
        )
        self._head((x + height * 0.72, y - radius - height * 0.35), (x + side, edge), INK)

    def path(self, path: str, *, dashed: bool = False, color: str = INK, opacity: str | None = None) -> None:
        """Draws a path, which does not extend the picture."""
        self.add(
            "path",
            d=path,
            fill="none",
            stroke=color,
            stroke_width=1.6,
            stroke_opacity=opacity,
            stroke_dasharray="5 4" if dashed else None,
        )

    def _head(self, origin: Point, end: Point, color: str) -> None:
        dx, dy = end[0] - origin[0], end[1] - origin[1]
        length = hypot(dx, dy) or 1
        dx, dy = dx / length, dy / length
        x, y = end[0] - 10 * dx, end[1] - 10 * dy
        corners = (end, (x - 4.5 * dy, y + 4.5 * dx), (x + 4.5 * dy, y - 4.5 * dx))
        self.add("polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners), fill=color)

    def put(self, other: "Canvas", at: Point) -> None:
        """Puts the upper left corner of another picture at a point."""
        x, y = at[0] - other.left, at[1] - other.top
        self.extend(at, (other.right + x, other.bottom + y))
        inside = "\n".join(other.shapes)
        self.shapes.append(f'<g transform="translate({x:.1f} {y:.1f})">\n{inside}\n</g>')

    def title(self, lines: Sequence[str], subtitle: str) -> None:
        """Writes bold lines and a subtitle above everything else."""
        x, y = self.left, self.top - 24 - LINE * len(lines)
        for line in lines:
            self.text((x, y), line, bold=True)
            y += LINE
        self.text((x, y), subtitle, color=DIM)

    def to_svg(self, title: str) -> str:
        left, top = self.left - MARGIN, self.top - MARGIN
        width, height = self.right + MARGIN - left, self.bottom + MARGIN - top
        size = f'width="{width:.0f}" height="{height:.0f}"'
        view = f'viewBox="{left:.0f} {top:.0f} {width:.0f} {height:.0f}"'
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" {view} {size} font-family="{FONT}" role="img">',
            f"<title>{escape_xml(title)}</title>",
            f'<rect x="{left:.0f}" y="{top:.0f}" {size} fill="{PAPER}"/>',
            *self.shapes,
            "</svg>\n",
        ])  # fmt: skip


# ---------------------------------------------------------------------------------- outlines

_OUTLINE_WIDTH, _OUTLINE_HEIGHT, _OUTLINE_MARGIN = 46.0, 34.0, 3.0
_DOT = 2  # the size of the smallest visible ring
_MAX_CORNERS = 400  # more corners make no difference in a small picture


def build_outline(geometry: Mapping[str, Any], radius: float | None = None) -> str:
    """Builds the path of a region for a thumbnail; all circles have the same size.

    >>> build_outline({"type": "Polygon", "coordinates": [[[0, 0], [2, 0], [2, 1], [0, 0]]]})
    'M3.0 27.0L43.0 27.0L43.0 7.0Z'
    >>> build_outline({"type": "Point", "coordinates": [5, 5]}, 3)
    'M9.0 17.0a14.0 14.0 0 1 0 28.0 0a14.0 14.0 0 1 0 -28.0 0Z'
    """
    if radius is not None:
        r = _OUTLINE_HEIGHT / 2 - _OUTLINE_MARGIN
        arcs = "".join(f"a{r:.1f} {r:.1f} 0 1 0 {to:.1f} 0" for to in (2 * r, -2 * r))
        return f"M{_OUTLINE_WIDTH / 2 - r:.1f} {_OUTLINE_HEIGHT / 2:.1f}{arcs}Z"
    rings = [ring for ring in _list_rings(geometry) if len(ring) > 2]
    if not rings:
        return ""
    xs, ys = zip(*(corner for ring in rings for corner in ring), strict=True)
    west, north = min(xs), max(ys)
    width, height = max(xs) - west, north - min(ys)
    scale = min(
        (_OUTLINE_WIDTH - 2 * _OUTLINE_MARGIN) / width if width else float("inf"),
        (_OUTLINE_HEIGHT - 2 * _OUTLINE_MARGIN) / height if height else float("inf"),
    )
    left, top = (_OUTLINE_WIDTH - width * scale) / 2, (_OUTLINE_HEIGHT - height * scale) / 2
    return "".join(
        _build_ring([(left + (x - west) * scale, top + (north - y) * scale) for x, y in ring[:-1]]) for ring in rings
    )


def _build_ring(ring: list[Point]) -> str:
    xs, ys = zip(*ring, strict=True)
    if max(max(xs) - min(xs), max(ys) - min(ys)) < _DOT:
        return f"M{xs[0] - _DOT / 2:.1f} {ys[0]:.1f}h{_DOT}v{_DOT}h-{_DOT}Z"
    corners = ring[:: max(1, len(ring) // _MAX_CORNERS)]
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in corners) + "Z"


def _list_rings(geometry: Mapping[str, Any]) -> Iterator[list[Point]]:
    coordinates = geometry.get("coordinates", ())
    polygons = {"Polygon": [coordinates], "MultiPolygon": coordinates}
    for polygon in polygons.get(geometry.get("type", ""), ()):
        for ring in polygon:
            yield [(float(corner[0]), float(corner[1])) for corner in ring]
