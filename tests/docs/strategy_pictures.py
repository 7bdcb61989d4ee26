"""Draws the pictures of `docs/strategies.md`: one stream, several queries, a row for each match.

`python -m tests.docs.strategy_pictures` writes them and the README's picture into
`docs/pictures/`. The matches are those that the queries find, so a picture shows what happens.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pyarrow as pa

import ensue
from ensue.svg import DIM, INK, PAPER, Canvas

FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
TAKEN, FAINT = "#2563eb", "#cbd5e1"
STEP, ROW, RADIUS = 40, 32, 11


@dataclass(frozen=True, slots=True)
class Event:
    """A letter, and whose event it is: circles are one customer's, squares another's."""

    letter: str
    key: int
    at: int


PICTURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "strategies": (
        "A1 B1 B1 A2 X2 A1 B2 B1",
        tuple(f"SEQ(A a, B b) USING {strategy} WHERE [key]" for strategy in ("any", "next", "partition", "strict")),
    ),
    "then": (
        "A1 B1 X1 C1 C1 D1 X1 D1",
        (
            "A a THEN B b THEN NEXT C c THEN ANY D d",
            "A a THEN B b THEN NEXT C c THEN NEXT D d",
            "A a THEN B b THEN C c",
        ),
    ),
    "loops": (
        "A1 B1 X1 B1 B1 C1",
        (
            "SEQ(A a, B+ b[], C c) USING any",
            "SEQ(A a, B+ b[], C c) USING next",
            "A a -> (B b THEN)+ -> C c USING next",
            "SEQ(A a, B+ b[] UNTIL X x, C c) USING next",
        ),
    ),
    "after_match": (
        "A1 A1 B1 B1 A1 B1",
        (
            "SEQ(A a, B b)",
            "SEQ(A a, B b) AFTER MATCH SKIP TO NEXT EVENT",
            "SEQ(A a, B b) AFTER MATCH SKIP PAST LAST EVENT",
        ),
    ),
}


def drawn(name: str) -> str:
    """A picture as SVG."""
    stream, queries = PICTURES[name]
    events = [Event(word[0], int(word[1]), at) for at, word in enumerate(stream.split(), 1)]
    canvas, y = Canvas(), 0.0
    _stream(canvas, events, y)
    y += ROW + 22
    for query in queries:
        matches = found(query, events)
        count = f"{len(matches)} match{'' if len(matches) == 1 else 'es'}"
        canvas.text((-RADIUS, y), query, mono=True, bold=True)
        canvas.text((-RADIUS, y + 17), count, size=12, color=DIM)
        y += 40
        for taken in matches:
            _match(canvas, events, taken, y)
            y += ROW
        y += 22
    return canvas.to_svg(f"{', '.join(queries)} on {stream}")


def found(query: str, events: list[Event]) -> list[set[int]]:
    """The times of the events of each match."""
    table = pa.table(
        {
            "t": [event.at for event in events],
            "type": [event.letter for event in events],
            "key": [event.key for event in events],
        }
    )
    matches = ensue.match(table, query, time="t", type="type", options=ensue.PlannerOptions(structure="reference"))
    return sorted(
        (
            {
                event["t"]
                for value in match.values()
                if isinstance(value, dict | list)
                for event in (value if isinstance(value, list) else [value])
            }
            for match in matches.to_pylist()
        ),
        key=sorted,
    )


def _stream(canvas: Canvas, events: list[Event], y: float) -> None:
    canvas.line((-RADIUS - 8, y), (STEP * len(events), y), color=DIM, head=True)
    for event in events:
        _event(canvas, event, y, fill=PAPER, ink=INK)


def _match(canvas: Canvas, events: list[Event], taken: set[int], y: float) -> None:
    first, last = min(taken), max(taken)
    canvas.line((STEP * (first - 1), y), (STEP * (last - 1), y), color=TAKEN)
    for event in events:
        if event.at in taken:
            _event(canvas, event, y, fill=TAKEN, ink=PAPER)
        elif first < event.at < last:
            _event(canvas, event, y, fill=PAPER, ink=INK)
        else:
            _event(canvas, event, y, fill=PAPER, ink=FAINT)


def _event(canvas: Canvas, event: Event, y: float, *, fill: str, ink: str) -> None:
    x = STEP * (event.at - 1)
    stroke = TAKEN if fill == TAKEN else ink
    if event.key == 1:
        canvas.extend((x - RADIUS, y - RADIUS), (x + RADIUS, y + RADIUS))
        canvas.shapes.append(
            f'<circle cx="{x}" cy="{y:g}" r="{RADIUS}" fill="{fill}" stroke="{stroke}" stroke-width="1.6"/>'
        )
    else:
        canvas.box((x, y), 2 * RADIUS, 2 * RADIUS, fill=fill, stroke=stroke, round=2)
    canvas.text((x, y + 4), event.letter, anchor="middle", size=12, color=ink, bold=True)


THEFT = """
SEQ(SHELF x, !COUNTER y, EXIT z)
WHERE [tag]
WITHIN 12 hours
"""
READINGS = (
    ("09:00", "SHELF", "shirt"),
    ("09:05", "SHELF", "jeans"),
    ("09:20", "COUNTER", "jeans"),
    ("09:25", "EXIT", "jeans"),
    ("09:40", "EXIT", "shirt"),
)


def draw_theft() -> str:
    """The README's events, a row for each tag, with the match that its query finds."""
    table = pa.table(
        {
            "ts": [datetime.fromisoformat(f"2026-03-14 {clock}") for clock, _, _ in READINGS],
            "reader": [reader for _, reader, _ in READINGS],
            "tag": [tag for _, _, tag in READINGS],
        }
    )
    matches = ensue.match(table, THEFT, time="ts", type="reader", options=ensue.PlannerOptions(structure="reference"))
    members = [{(m[v]["ts"], m[v]["tag"]) for v in ("x", "z")} for m in matches.to_pylist()]
    canvas = Canvas()
    for line, text in enumerate(THEFT.strip().splitlines()):
        canvas.text((0, 20 * line), text, mono=True, bold=line == 0)
    xs = {ts: 110 + 120 * k for k, ts in enumerate(table["ts"].to_pylist())}
    ys = {"shirt": 92, "jeans": 140}
    for tag, y in ys.items():
        canvas.text((0, y + 4), tag, bold=True)
        canvas.line((60, y), (max(xs.values()) + 70, y), color=FAINT, head=True)
    for match in members:
        (first, tag), (last, _) = sorted(match)
        canvas.line((xs[first], ys[tag]), (xs[last], ys[tag]), color=TAKEN)
    for event in table.to_pylist():
        taken = any((event["ts"], event["tag"]) in match for match in members)
        x, y = xs[event["ts"]], ys[event["tag"]]
        fill, ink = (TAKEN, PAPER) if taken else (PAPER, DIM)
        canvas.box((x, y), 86, 26, fill=fill, stroke=TAKEN if taken else FAINT)
        canvas.text((x, y + 4), event["reader"], anchor="middle", size=12, color=ink, bold=True)
        clock = f"{event['ts']:%H:%M}"
        canvas.text((x, 176), clock, anchor="middle", size=12, color=DIM)
    names = ", ".join(sorted({tag for match in members for _, tag in match}))
    count = f"{len(members)} match{'' if len(members) == 1 else 'es'}: {names}"
    canvas.text((max(xs.values()) + 86, ys["shirt"] + 4), count, color=TAKEN, bold=True)
    return canvas.to_svg("What was taken from a shelf and left without passing a counter")


def written() -> None:
    """All pictures, into the folder."""
    for name in PICTURES:
        (FOLDER / f"strategies_{name}.svg").write_text(drawn(name), encoding="utf-8")
    (FOLDER / "theft.svg").write_text(draw_theft(), encoding="utf-8")


if __name__ == "__main__":
    written()
