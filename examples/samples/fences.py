"""Fences all over the earth, circles and polygons, and the vehicles that come to some of them.

Half of the fences ask who enters: a truck that was outside, less than two kilometres away, and is
inside at most ten minutes later. The others ask whether one vehicle stays away: it was inside, and
is not seen there for half an hour. Some vehicles come a second too late, from 2,001 metres, or
pass a metre beside; some stop on the border, which is inside; some stories are told by two
vehicles, or by a car. The first two fences, and a few others, lie across 180 degrees.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

_MIDNIGHT = np.datetime64("2026-03-16T00:00:00", "us")
_MINUTE, _HOUR = 60, 3_600
_METRES = np.pi / 180 * 6_371_008.8  # of a degree of latitude
_CELL = 0.5  # degrees; a cell has one fence at most, in its middle
_ACROSS, _UP = 720, 240  # cells, from 180 degrees on and from 60 degrees south
_HALF = 1 / 128  # degrees: half the side of a polygon
_FIJI = tuple(int((60 - south) / _CELL) * _ACROSS for south in (16.5, 17))  # at 180 degrees


class Fence(NamedTuple):
    """A region as WKT or `CIRCLE (x y, r)`, and the vehicle that must not stay away; else None."""

    name: str
    region: str
    vehicle: int | None


class Fences(NamedTuple):
    """A day of reports, the fences, and what there is to tell."""

    reports: pa.Table  # ts, id, type, lon, lat; in the order of ts
    fences: list[Fence]
    notes: pa.Table  # subscription ("fence-17"), start, end


def fences(fences: int = 100_000, seed: int = 7) -> Fences:
    """So many fences, about as many reports, and what there is to tell.

    >>> day = fences(100)
    >>> day.reports.column_names
    ['ts', 'id', 'type', 'lon', 'lat']
    >>> day.notes.column_names
    ['subscription', 'start', 'end']
    """
    random = np.random.default_rng(seed)
    others = np.setdiff1d(random.permutation(_ACROSS * _UP), _FIJI, assume_unique=True)
    cells = [*_FIJI, *random.permutation(others)[: fences - 2].tolist()]
    day = _Day(random)
    found = [day.fence(number, cell) for number, cell in enumerate(cells)]
    day.drive_elsewhere(len(day.reports))
    day.reports.sort(key=lambda report: report["ts"])
    notes = pa.Table.from_pylist(sorted(day.notes, key=lambda note: note["end"]), _NOTE)
    return Fences(pa.Table.from_pylist(day.reports, _REPORT), found, notes)


_TIME = pa.timestamp("us", "UTC")
_REPORT = pa.schema({"ts": _TIME, "id": pa.int64(), "type": pa.string(), "lon": pa.float64(), "lat": pa.float64()})
_NOTE = pa.schema({"subscription": pa.string(), "start": _TIME, "end": _TIME})


class _Day:
    """Fence by fence; what is reported and what is to be told are noted down."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.vehicles = 0
        self.reports: list[dict[str, Any]] = []
        self.notes: list[dict[str, Any]] = []

    def fence(self, number: int, cell: int) -> Fence:
        """A fence; one in ten has something happen at it."""
        x, y = cell % _ACROSS * _CELL - 180, cell // _ACROSS * _CELL - 60
        circle = bool(number % 4 // 2)
        radius = float(self.random.integers(200, 1_000)) if circle else None
        site = _Site(self, f"fence-{number}", x, y, radius)
        stories, name = (_STAYS_AWAY, "away") if number % 2 else (_ENTERS, "enters")
        told = number < 4 or self.random.random() < 0.1
        if told:
            name = name if number < 4 else str(self.random.choice(list(stories)))
            site.tell(stories[name])
        return Fence(site.name, site.region, site.vehicle if number % 2 else None)

    def vehicle(self) -> int:
        self.vehicles += 1
        return self.vehicles - 1

    def drive_elsewhere(self, reports: int) -> None:
        """Trucks far from every fence: around the corners of cells."""
        trucks = max(1, reports // 20)
        for _ in range(reports):
            lon = self.random.integers(_ACROSS) * _CELL - 180 + _CELL / 2
            lat = self.random.integers(_UP) * _CELL - 60 + _CELL / 2
            lon, lat = np.array([lon, lat]) + self.random.uniform(-0.1, 0.1, 2)
            truck = self.vehicles + int(self.random.integers(trucks))
            self.report(int(self.random.integers(24 * _HOUR)), truck, "truck", lon, lat)

    def report(self, at: int, number: int, type: str, lon: float, lat: float) -> None:
        lon = (float(lon) + 180) % 360 - 180
        self.reports.append({"ts": _time(at), "id": number, "type": type, "lon": lon, "lat": float(lat)})


# Stories: when, how many metres east of the border (None: in the middle), who, and from when to
# when there is something to be told, if that is so. Who: 0 is the vehicle, 1 another, 2 a car.
_Story = tuple[tuple[tuple[float, float | None, int], ...], tuple[tuple[float, float], ...]]
_ON_BORDER = 0.0
_ENTERS: dict[str, _Story] = {
    "enters": (((-9, 5_000, 0), (-7, 1_999, 0), (-5, 500, 0), (0, None, 0), (5, None, 0)),
               ((-5, 0),)),
    "stops on the border": (((-5, 1, 0), (0, _ON_BORDER, 0)), ((-5, 0),)),
    "in time": (((-10, 800, 0), (0, None, 0)), ((-10, 0),)),
    "twice": (((-5, 800, 0), (0, None, 0), (15, 900, 0), (20, None, 0)), ((-5, 0), (15, 20))),
    "late": (((-10 - 1 / 60, 800, 0), (0, None, 0)), ()),
    "from afar": (((-5, 2_001, 0), (0, None, 0)), ()),
    "from the border": (((-5, _ON_BORDER, 0), (0, None, 0)), ()),
    "another one": (((-5, 500, 0), (0, None, 1)), ()),
    "a car": (((-5, 500, 2), (0, None, 2)), ()),
    "passes by": (((-5, 500, 0), (0, 1, 0), (5, 500, 0)), ()),
}  # fmt: skip
_STAYS_AWAY: dict[str, _Story] = {
    "away": (((0, None, 0), (10, None, 0), (20, 5_000, 0)), ((10, 40),)),
    "on the border": (((0, None, 0), (10, _ON_BORDER, 0), (20, 1, 0)), ((10, 40),)),
    "back in time": (((0, None, 0), (30, None, 0)), ((30, 60),)),
    "back late": (((0, None, 0), (30 + 1 / 60, None, 0)), ((0, 30), (30 + 1 / 60, 60 + 1 / 60))),
    "another one comes": (((0, None, 0), (10, None, 1)), ((0, 30),)),
    "only another one": (((0, None, 1),), ()),
    "passes by": (((0, 1, 0), (10, 1, 0)), ()),
}


class _Site:
    """One fence and what happens there."""

    def __init__(self, day: _Day, name: str, x: float, y: float, radius: float | None) -> None:
        self.day, self.name, self.x, self.y, self.radius = day, name, x, y, radius
        self.vehicle = day.vehicle()

    @property
    def region(self) -> str:
        if self.radius is not None:
            return f"CIRCLE ({self.x!r} {self.y!r}, {self.radius:g})"
        h, x = _HALF, self.x if self.x > -180 else 180.0
        house = [(-h, -h), (h, -h), (h, h), (0, 1.5 * h), (-h, h), (-h, -h)]
        return f"POLYGON (({', '.join(f'{x + a!r} {self.y + b!r}' for a, b in house)}))"

    def tell(self, story: _Story) -> None:
        reports, notes = story
        start = int(self.day.random.integers(1 * _HOUR, 23 * _HOUR))
        who = (self.vehicle, self.day.vehicle(), self.day.vehicle())
        for minutes, metres, by in reports:
            type = "car" if by == 2 else "truck"
            at = start + round(minutes * _MINUTE)
            self.day.report(at, who[by], type, self.east(metres), self.y)
        for begin, end in notes:
            times = {
                name: _time(start + round(minutes * _MINUTE)) for name, minutes in (("start", begin), ("end", end))
            }
            self.day.notes.append({"subscription": self.name, **times})

    def east(self, metres: float | None) -> float:
        """The longitude so far east of the border."""
        degree = _METRES * np.cos(np.radians(self.y))
        if metres is None:
            return self.x
        if self.radius is None:  # its eastern border goes north and south
            return self.x + _HALF + float(metres / degree)
        # A border of a circle is nowhere exactly: a millimetre inside stands for it.
        return self.x + float((self.radius + (metres or -0.001)) / degree)


def _time(seconds: int) -> Any:
    return (_MIDNIGHT + np.timedelta64(seconds, "s")).item()
