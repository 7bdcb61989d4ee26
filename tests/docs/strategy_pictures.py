"""Draws the pictures of `docs/strategies.md`: one stream, several queries, a row for each match.

`python -m tests.docs.strategy_pictures` writes them into `docs/pictures/`. The matches are those
that the queries find, so a picture shows what happens.
"""

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import ensue
from ensue.plan.show.drawing.canvas import DIM, INK, PAPER, Canvas

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
        tuple(
            f"SEQ(A a, B b) USING {strategy} WHERE [key]"
            for strategy in ("any", "next", "partition", "strict")
        ),
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
    return canvas.svg(f"{', '.join(queries)} on {stream}")


def found(query: str, events: list[Event]) -> list[set[int]]:
    """The times of the events of each match."""
    table = pa.table(
        {
            "t": [event.at for event in events],
            "type": [event.letter for event in events],
            "key": [event.key for event in events],
        }
    )
    matches = ensue.match(table, query, time="t", type="type", structure="reference")
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
        canvas.covers(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS)
        canvas.shapes.append(
            f'<circle cx="{x}" cy="{y:g}" r="{RADIUS}" fill="{fill}" stroke="{stroke}" '
            'stroke-width="1.6"/>'
        )
    else:
        canvas.box((x, y), 2 * RADIUS, 2 * RADIUS, fill=fill, stroke=stroke, round=2)
    canvas.text((x, y + 4), event.letter, anchor="middle", size=12, color=ink, bold=True)


def written() -> None:
    """All pictures, into the folder."""
    for name in PICTURES:
        (FOLDER / f"strategies_{name}.svg").write_text(drawn(name), encoding="utf-8")


if __name__ == "__main__":
    written()
