"""The picture of one theft: what the antennas read of an item, over the day, as SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from html import escape

_WIDTH, _HEIGHT = 1000, 430
_LEFT, _RIGHT, _TOP, _KEY_GROUP = 140, 960, 110, 56
_KEY_GROUPS = ("SHELF", "FITTING_ROOM", "COUNTER", "EXIT")
_COLOURS = {
    "SHELF": "#2f6f9f", "FITTING_ROOM": "#8a5fbf", "COUNTER": "#2e8b57", "EXIT": "#c0392b",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reading:
    """An antenna saw the item."""

    time: datetime
    reader: str
    antenna: str


@dataclass(frozen=True, slots=True)
class _Clock:
    """Where on the page a time is."""

    first: datetime
    last: datetime

    def x(self, time: datetime) -> float:
        share = (time - self.first) / (self.last - self.first)
        return round(_LEFT + share * (_RIGHT - _LEFT), 1)

    def hours(self) -> list[datetime]:
        hour = self.first.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        every = []
        while hour <= self.last:
            every.append(hour)
            hour += timedelta(hours=1)
        return every


def timeline(tag: str, readings: Sequence[Reading], gone: datetime) -> str:
    """An SVG with a key group for each kind of antenna and the theft marked in it."""
    before = [r for r in readings if r.reader == "SHELF" and r.time < gone]
    taken = max(r.time for r in before)
    first, last = min(r.time for r in readings), max(r.time for r in readings)
    margin = max((last - first) * 0.05, timedelta(minutes=5))
    clock = _Clock(first - margin, last + margin)
    parts = [
        _heading(tag, taken, gone),
        *_axis(clock),
        *_theft(clock, taken, gone),
        *(_key_group(n, name) for n, name in enumerate(_KEY_GROUPS)),
        *(_dot(clock, reading) for reading in readings),
        *_labels(clock, readings, taken, gone),
        *_legend(),
    ]
    style = (
        "text{font-family:Helvetica,Arial,sans-serif;fill:#222}"
        ".label{stroke:#fff;stroke-width:3;stroke-opacity:.8;paint-order:stroke}"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" role="img">\n'
        f"<title>{escape(f'Theft of {tag}')}</title>\n<style>{style}</style>\n"
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _y(reader: str) -> float:
    return _TOP + _KEY_GROUPS.index(reader) * _KEY_GROUP + _KEY_GROUP / 2


def _bottom() -> float:
    return _TOP + len(_KEY_GROUPS) * _KEY_GROUP


def _text(x: float, y: float, text: str, *, size: int = 13, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" {more}>{escape(text)}</text>'


def _heading(tag: str, taken: datetime, gone: datetime) -> str:
    minutes = max(1, round((gone - taken).total_seconds() / 60))
    told = (
        f"{gone:%A, %d %B %Y}: last on a shelf at {taken:%H:%M}, through the exit {minutes} "
        f"minutes later, at {gone:%H:%M}, and no counter between"
    )
    return "\n".join(
        [_text(30, 38, f"Theft of {tag}", size=22, more='font-weight="bold"'), _text(30, 64, told, size=14)]
    )


def _axis(clock: _Clock) -> list[str]:
    bottom = _bottom()
    parts = [f'<line x1="{_LEFT}" y1="{bottom}" x2="{_RIGHT}" y2="{bottom}" stroke="#888"/>']
    hours = clock.hours()
    for hour in hours:
        x = clock.x(hour)
        parts.append(f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{bottom + 5}" stroke="#e4e4e4"/>')
        parts.append(_text(x, bottom + 20, f"{hour:%H:%M}", more='text-anchor="middle"'))
    return parts


def _key_group(number: int, name: str) -> str:
    top = _TOP + number * _KEY_GROUP
    label = name.replace("_", " ").capitalize()
    return f'<line x1="{_LEFT}" y1="{top}" x2="{_RIGHT}" y2="{top}" stroke="#cccccc"/>\n' + _text(
        30, top + _KEY_GROUP / 2 + 5, label, size=14, more='font-weight="bold"'
    )


def _theft(clock: _Clock, taken: datetime, gone: datetime) -> list[str]:
    left, right = clock.x(taken), clock.x(gone)
    width = max(round(right - left, 1), 2)
    return [
        (f'<rect x="{left}" y="{_TOP}" width="{width}" height="{_bottom() - _TOP}" fill="#f5b7b1" opacity="0.45"/>'),
        (
            f'<path d="M{left},{_y("SHELF")} L{right},{_y("EXIT")}" stroke="#c0392b" '
            'stroke-width="2" stroke-dasharray="5 4" fill="none"/>'
        ),
    ]


def _dot(clock: _Clock, reading: Reading) -> str:
    said = f"{reading.time:%H:%M:%S} {reading.antenna}"
    return (
        f'<circle cx="{clock.x(reading.time)}" cy="{_y(reading.reader)}" r="6" '
        f'fill="{_COLOURS[reading.reader]}" stroke="#ffffff" stroke-width="1.5">'
        f"<title>{escape(said)}</title></circle>"
    )


def _labels(clock: _Clock, readings: Sequence[Reading], taken: datetime, gone: datetime) -> list[str]:
    """Antenna and clock time beside the readings that tell the story, on the free side."""
    told: dict[str, Reading] = {}
    for reading in readings:
        if reading.reader == "SHELF" and reading.time != taken:
            continue
        if reading.reader == "EXIT" and reading.time < gone:
            continue
        told.setdefault(reading.reader, reading)
    parts = []
    for reading in told.values():
        x, y = clock.x(reading.time), _y(reading.reader)
        right_half = x > (_LEFT + _RIGHT) / 2
        above = reading.reader == "SHELF"
        x += 10 if not right_half else -10
        anchor = "end" if right_half else "start"
        y += -12 if above else 5
        said = f"{reading.antenna}, {reading.time:%H:%M:%S}"
        parts.append(_text(x, y, said, size=12, more=f'class="label" text-anchor="{anchor}"'))
    return parts


def _legend() -> list[str]:
    y = _bottom() + 58
    return [
        f'<circle cx="{_LEFT + 6}" cy="{y - 5}" r="6" fill="#555"/>',
        _text(_LEFT + 20, y, "a reading"),
        (f'<rect x="{_LEFT + 120}" y="{y - 13}" width="26" height="16" fill="#f5b7b1" opacity="0.6"/>'),
        (
            f'<line x1="{_LEFT + 120}" y1="{y - 5}" x2="{_LEFT + 146}" y2="{y - 5}" '
            'stroke="#c0392b" stroke-width="2" stroke-dasharray="5 4"/>'
        ),
        _text(_LEFT + 156, y, "from the last shelf reading to the exit: no counter"),
    ]
