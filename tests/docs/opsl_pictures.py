"""Draws the pictures of `docs/opsl.md`: one an operator, all its forms in it.

`python -m tests.docs.opsl_pictures` writes them into `docs/pictures/`. What is filled in them is
what takes part in a match, so a picture shows what happens.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.docs.subscription_examples import Asked, asked_of

from ensue.geo.geometry import build_hull
from ensue.svg import DIM, INK, Canvas

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
SCALE = 30  # of a unit of time or place, in pixels
TAKEN, LEFT, SHADE, EDGE = "#2563eb", "#ffffff", "#dbeafe", "#93b4e8"
KEY_GROUP = 34  # from one row of events to the next


@dataclass(frozen=True, slots=True)
class Line:
    """A time line: a subscription, its events, and the interval that it speaks of."""

    text: str
    stream: str
    since: float | None = None
    until: float | None = None
    behind: bool = False  # what lies behind the interval is meant


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan view: a subscription over regions and events, and how far it is about."""

    text: str
    stream: str
    region: tuple[tuple[float, float], ...] = ()
    reach: float = 0


_COMPLEX = {"A && B && C": "abc", "A && B,": "ab", "C && D": "cd", "(A && B)": "ab"}
SQUARE = ((1, 1), (4, 1), (4, 4), (1, 4))
_REGION = "POLYGON ((1 1, 4 1, 4 4, 1 4, 1 1))"

PICTURES: dict[str, tuple[str, tuple[Line | Plan, ...]]] = {
    "between": (
        "=|: wholly in the interval",
        (
            Line("=|(3; 4)A", "2: a1, 3: a2, 4: a3, 7: a4, 8: a5", 3, 7),
            Line("=|(A; 4)B", "3: a1 b1, 4: b2, 7: b3, 8: b4", 3, 7),
            Line("=|(A; B)C", "3: a1 c1, 5: c2, 7: c3 b1, 8: c4", 3, 7),
        ),
    ),
    "after": (
        "|=: behind the interval",
        (
            Line("|=(3; 4)A", "5: a1, 7: a2, 8: a3, 9: a4", 3, 7, True),
            Line("|=(A; 4)B", "3: a1, 5: b1, 7: b2, 8: b3, 9: b4", 3, 7, True),
            Line("|=(A; B)C", "3: a1, 5: c1, 7: b1 c2, 8: c3, 9: c4", 3, 7, True),
        ),
    ),
    "absent": (
        "!: nothing of it in the interval",
        (
            Line("!(3; 4)A", "3: a1, 8: a2", 3, 7),
            Line("!(A; 4)B", "3: a1 b1, 8: b2", 3, 7),
            Line("!(A; B)C", "3: a1 c1, 7: b1, 8: c2", 3, 7),
        ),
    ),
    "concurrent": (
        "|: they touch or overlap in time",
        (
            Line("|(A)B", "3: a1 b1, 4: b2"),
            Line("|(A)B", "2-5: a1, 4-6: b1, 7-9: b2"),
            Line("|(A; 1)B", "3: a1, 4: b1, 5: b2"),
        ),
    ),
    "inside": (
        "@ or IN: every point inside, or on the border",
        (
            Plan(f"@({_REGION})A", "1: a1 (2,2) a2 (4,3) a3 (5,2)", SQUARE),
            Plan(
                "IN($p;)D, $p; = A && B && C",
                "1: a1 (1,1) b1 (5,1) c1 (3,5) d1 (3,2) d2 (4,1) d3 (5,4)",
            ),
        ),
    ),
    "overlap": (
        "OVLP: at least one point in common",
        (
            Plan(
                f"OVLP({_REGION})(A && B)",
                "1: a1 (0.5,1.5) b1 (5.5,3.5) b2 (0.5,5)",
                SQUARE,
            ),
            Plan(
                "OVLP($p;)$q;, $p; = A && B, $q; = C && D",
                "1: a1 (1,1) b1 (5,4) c1 (1,4) d1 (4,1)",
            ),
        ),
    ),
    "same_place": (
        "SPL: the centres are less than the threshold apart",
        (
            Plan(f"SPL({_REGION}; 2)A", "1: a1 (3,3) a2 (4.5,2.5) a3 (2.5,0)", SQUARE, 2),
            Plan("SPL(A; 2)B", "1: a1 (3,3) b1 (4,4) b2 (5,3) b3 (1,1)", (), 2),
        ),
    ),
    "distance": (
        "DIST: the least distance, here with >",
        (
            Plan(f"DIST({_REGION}; >; 1)A", "1: a1 (4.5,3) a2 (5,2) a3 (5.5,4) a4 (2,2)", SQUARE),
            Plan("DIST(A; >; 2)B", "1: a1 (3,3) b1 (4,4) b2 (5,3) b3 (5.5,1)", (), 2),
        ),
    ),
}  # fmt: skip


def drawn(name: str) -> str:
    """A picture as SVG."""
    title, panels = PICTURES[name]
    canvas, at = Canvas(), 0.0
    for panel in panels:
        part = Canvas()
        if isinstance(panel, Line):
            _time_line(part, panel)
            canvas.put(part, (0, at))
            at += part.bottom - part.top + 26
        else:
            _plan_view(part, panel)
            canvas.put(part, (at, 0))
            at += part.right - part.left + 50
    return canvas.to_svg(title)


# --------------------------------------------------------------------------------------- time


def _time_line(canvas: Canvas, line: Line) -> None:
    asked = asked_of(f"{line.text} WITH select = all", line.stream)
    found = asked.found()
    taken = {position for match in found for position in match.members}
    letters = sorted({name[0] for name in asked.names})
    height = KEY_GROUP * len(letters)
    last = max(9.5, *(event.end + 0.5 for event in asked.events))
    canvas.text((0, -14), line.text, mono=True, bold=True)
    if line.since is not None and line.until is not None:
        _interval(canvas, line, height, last)
    canvas.line((0, height), (last * SCALE, height), head=True)
    for tick in range(1, int(last) + 1):
        canvas.line((tick * SCALE, height), (tick * SCALE, height + 5))
        canvas.text((tick * SCALE, height + 18), str(tick), anchor="middle", size=11, color=DIM)
    for position, (event, name) in enumerate(zip(asked.events, asked.names, strict=True)):
        y = letters.index(name[0]) * KEY_GROUP + KEY_GROUP / 2
        fill = TAKEN if position in taken else LEFT
        if event.end > event.start:
            width = (event.end - event.start) * SCALE
            canvas.box((event.start * SCALE + width / 2, y), width, 12, fill=fill)
        else:
            canvas.circle((event.start * SCALE, y), 6, fill=fill)
        above = 10 if event.end > event.start else 7
        canvas.text((event.start * SCALE + 9, y - above), name, size=11)
    canvas.text((last * SCALE + 24, height / 2), _told(asked), size=12)


def _interval(canvas: Canvas, line: Line, height: float, last: float) -> None:
    assert line.since is not None
    assert line.until is not None
    since, until = (line.until, last) if line.behind else (line.since, line.until)
    middle, width = (since + until) / 2 * SCALE, (until - since) * SCALE
    canvas.box((middle, height / 2), width, height, fill=SHADE, stroke=SHADE, round=0)
    canvas.text((since * SCALE, height / 2 + 6), "(", anchor="middle", size=22, color=EDGE)
    if not line.behind:
        canvas.text((until * SCALE, height / 2 + 6), "]", anchor="middle", size=22, color=EDGE)


def _told(asked: Asked) -> str:
    found = [asked.match(match) for match in asked.found()]
    return "matches: " + (", ".join(found) or "none")


# -------------------------------------------------------------------------------------- space


def _plan_view(canvas: Canvas, plan: Plan) -> None:
    asked = asked_of(f"{plan.text} WITH select = all", plan.stream)
    found = asked.found()
    taken = {position for match in found for position in match.members}
    shown = plan.text.replace(_REGION, "R")
    canvas.text((0, -14), shown, mono=True, bold=True)
    canvas.box((3 * SCALE, 3 * SCALE), 6 * SCALE, 6 * SCALE, stroke="#e2e8f0", round=0)
    centre = _centre(plan, asked)
    if plan.reach and not plan.region:
        _ring(canvas, centre, plan.reach)
    if plan.region:
        _area(canvas, plan.region, SHADE)
        if plan.reach and plan.text.startswith("SPL"):
            _ring(canvas, centre, plan.reach)
    for group in _groups(plan, asked):
        _area(canvas, group, "none")
    for position, name in enumerate(asked.names):
        x, y = _at(asked.corners[position][0])
        canvas.circle((x, y), 5, fill=TAKEN if position in taken else LEFT)
        canvas.text((x + 7, y - 5), name, size=11)
    for number, line in enumerate(_told(asked).split(", ")):
        canvas.text((0, 6 * SCALE + 18 + 15 * number), line, size=12)


def _at(corner: tuple[float, float]) -> tuple[float, float]:
    return corner[0] * SCALE, (6 - corner[1]) * SCALE  # north is up


def _centre(plan: Plan, asked: Asked) -> tuple[float, float]:
    if plan.region:
        xs, ys = zip(*plan.region, strict=True)
        return _at((sum(xs) / len(xs), sum(ys) / len(ys)))
    return _at(asked.corners[0][0])


def _ring(canvas: Canvas, at: tuple[float, float], reach: float) -> None:
    canvas.shapes.append(
        f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="{reach * SCALE:g}" fill="none" '
        f'stroke="{EDGE}" stroke-width="1.4" stroke-dasharray="5 4"/>'
    )


def _groups(plan: Plan, asked: Asked) -> list[tuple[tuple[float, float], ...]]:
    """The hulls of the complex events that a subscription names."""
    found = []
    letters = {"$p; = A && B && C": "abc", "$p; = A && B,": "ab", "$q; = C && D": "cd", "(A && B)": "ab"}
    for text, members in letters.items():
        if text in plan.text:
            firsts = [asked.names.index(f"{letter}1") for letter in members]
            hull = build_hull([asked.corners[position][0] for position in firsts])
            assert hull is not None
            found.append(hull.corners)
    return found


def _area(canvas: Canvas, corners: tuple[tuple[float, float], ...], fill: str) -> None:
    points = " ".join("{:.1f},{:.1f}".format(*_at(corner)) for corner in corners)
    stroke = EDGE if fill == SHADE else INK
    canvas.shapes.append(f'<polygon points="{points}" fill="{fill}" stroke="{stroke}" stroke-width="1.4"/>')


def written() -> None:
    """All pictures, into the folder."""
    for name in PICTURES:
        (FOLDER / f"opsl_{name}.svg").write_text(drawn(name), encoding="utf-8")


if __name__ == "__main__":
    written()
