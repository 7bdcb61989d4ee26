"""Trucks that leave one warehouse and come to another, and what looks like it.

Every truck reports where it is from its yard, on the way, and where it is bound for. A yard is an
L of 200 by 200 metres. Some trucks stop on its border, or exactly 300 metres away; some are a
second too late, turn back, pass by, wait in the corner of the L beside the yard, or send a
report without a place. And some have a van with the same number, which drives for them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

_MORNING = np.datetime64("2026-03-16T06:00:00", "us")
_MINUTE, _HOUR = 60, 3_600
_IN_TIME = 25 * _MINUTE
_SITES, _APART = 6, 5_000  # a square of yards, metres from one to the next
_YARD = ((0, 0), (200, 0), (200, 80), (80, 80), (80, 200), (0, 200), (0, 0))

# Places seen from the yard's corner.
_INSIDE, _BORDER, _BESIDE = (40.0, 40.0), (200.0, 40.0), (150.0, 150.0)
_AT_300 = (500.0, 40.0)  # metres from the border, exactly

Place = tuple[float, float]


class Trip(NamedTuple):
    """A truck, and the yards it goes between, as WKT."""

    truck: int
    home: str
    target: str


class Warehouses(NamedTuple):
    """A day of reports, the trips, and who has left and arrived."""

    reports: pa.Table  # ts, id, type, x, y: metres; in the order of ts
    trips: list[Trip]
    notes: pa.Table  # subscription ("left-7", "arrived-7"), start, end


def warehouses(trucks: int = 1_000, seed: int = 7) -> Warehouses:
    """The reports of so many trucks, and who has left a yard or come to one.

    >>> day = warehouses(20)
    >>> day.reports.column_names
    ['ts', 'id', 'type', 'x', 'y']
    >>> day.notes.column_names
    ['subscription', 'start', 'end']
    """
    day = _Day(np.random.default_rng(seed))
    trips = [day.trip(truck) for truck in range(trucks)]
    day.reports.sort(key=lambda report: report["ts"])
    reports = pa.Table.from_pylist(day.reports, _REPORT)
    notes = pa.Table.from_pylist(sorted(day.notes, key=lambda note: note["end"]), _NOTE)
    return Warehouses(reports, trips, notes)


_TIME = pa.timestamp("us", "UTC")
_REPORT = pa.schema({"ts": _TIME, "id": pa.int64(), "type": pa.string(), "x": pa.float64(), "y": pa.float64()})
_NOTE = pa.schema({"subscription": pa.string(), "start": _TIME, "end": _TIME})


class _Day:
    """Truck by truck; what is reported and what is to be found are noted down."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.reports: list[dict[str, Any]] = []
        self.notes: list[dict[str, Any]] = []

    def trip(self, truck: int) -> Trip:
        """From one yard to another, hours later."""
        home, target = self.random.choice(_SITES**2, 2, replace=False).tolist()
        start = int(self.random.integers(1 * _HOUR, 6 * _HOUR))
        departs: list[Callable[[_Visit], None]] = [
            _leaves, _leaves_at_last, _leaves_late, _turns_back, _van_leaves, _waits_beside,
            _leaves_twice, _is_lost,
        ]  # fmt: skip
        arrives: list[Callable[[_Visit], None]] = [
            _arrives, _arrives_at_last, _arrives_late, _comes_from_the_gate, _van_arrives,
            _stops_beside, _passes_by,
        ]  # fmt: skip
        departs[self.random.integers(len(departs))](_Visit(self, truck, home, start, "left"))
        arrival = start + int(self.random.integers(4 * _HOUR, 6 * _HOUR))
        for on_the_way in range(start + 3 * _HOUR // 2, arrival - _IN_TIME - 1, _HOUR):
            share = self.random.uniform(0.3, 0.7)
            x, y = (a + share * (b - a) for a, b in zip(_corner(home), _corner(target), strict=True))
            self.report(on_the_way, truck, "truck", (x, y))
        arrives[self.random.integers(len(arrives))](_Visit(self, truck, target, arrival, "arrived"))
        return Trip(truck, _wkt(home), _wkt(target))

    def report(self, at: int, number: int, type: str, place: Place | None) -> None:
        x, y = place or (None, None)
        self.reports.append({"ts": _time(at), "id": number, "type": type, "x": x, "y": y})


class _Visit:
    """A truck around one yard: reports with places seen from there, by seconds from `start`."""

    def __init__(self, day: _Day, truck: int, site: int, start: int, what: str) -> None:
        self.day, self.truck, self.start, self.what = day, truck, start, what
        self.corner = _corner(site)
        self.far = (float(day.random.uniform(500.5, 2_000)), 40.0)  # more than 300 metres away

    def report(self, at: int, place: Place | None, type: str = "truck") -> None:
        if place is not None:
            place = (self.corner[0] + place[0], self.corner[1] + place[1])
        self.day.report(self.start + at, self.truck, type, place)

    def to_be_found(self, start: int, end: int) -> None:
        name = f"{self.what}-{self.truck}"
        times = {"start": _time(self.start + start), "end": _time(self.start + end)}
        self.day.notes.append({"subscription": name, **times})


# ---- stories of leaving


def _leaves(visit: _Visit) -> None:
    """The last place inside is on the border; the next one is not yet far enough away."""
    visit.report(-10 * _MINUTE, _INSIDE)
    visit.report(0, _BORDER)
    visit.report(10 * _MINUTE, _AT_300)
    visit.report(20 * _MINUTE, visit.far)
    visit.to_be_found(0, 20 * _MINUTE)


def _leaves_at_last(visit: _Visit) -> None:
    visit.report(0, _INSIDE)
    visit.report(_IN_TIME, visit.far)
    visit.to_be_found(0, _IN_TIME)


def _leaves_late(visit: _Visit) -> None:
    visit.report(0, _INSIDE)
    visit.report(_IN_TIME + 1, visit.far)


def _turns_back(visit: _Visit) -> None:
    visit.report(0, _INSIDE)
    visit.report(10 * _MINUTE, _AT_300)
    visit.report(20 * _MINUTE, _INSIDE)


def _van_leaves(visit: _Visit) -> None:
    """Its number is that of a truck, which stays."""
    visit.report(0, _INSIDE)
    visit.report(1, _INSIDE, "van")
    visit.report(10 * _MINUTE, visit.far, "van")
    visit.report(20 * _MINUTE, _INSIDE)


def _waits_beside(visit: _Visit) -> None:
    visit.report(0, _BESIDE)
    visit.report(10 * _MINUTE, visit.far)


def _leaves_twice(visit: _Visit) -> None:
    for first in (0, 20 * _MINUTE):
        visit.report(first, _INSIDE)
        visit.report(first + 10 * _MINUTE, visit.far)
        visit.to_be_found(first, first + 10 * _MINUTE)


def _is_lost(visit: _Visit) -> None:
    visit.report(0, _INSIDE)
    visit.report(10 * _MINUTE, None)
    visit.report(_IN_TIME + 1, visit.far)


# ---- stories of arriving


def _arrives(visit: _Visit) -> None:
    """On the border at first; what it reports then is no news."""
    visit.report(0, visit.far)
    visit.report(10 * _MINUTE, _AT_300)
    visit.report(20 * _MINUTE, _BORDER)
    visit.report(22 * _MINUTE, _INSIDE)
    visit.to_be_found(0, 20 * _MINUTE)


def _arrives_at_last(visit: _Visit) -> None:
    visit.report(0, visit.far)
    visit.report(_IN_TIME, _INSIDE)
    visit.to_be_found(0, _IN_TIME)


def _arrives_late(visit: _Visit) -> None:
    visit.report(0, visit.far)
    visit.report(_IN_TIME + 1, _INSIDE)


def _comes_from_the_gate(visit: _Visit) -> None:
    visit.report(0, _AT_300)
    visit.report(10 * _MINUTE, _INSIDE)


def _van_arrives(visit: _Visit) -> None:
    visit.report(0, visit.far)
    visit.report(10 * _MINUTE, _INSIDE, "van")


def _stops_beside(visit: _Visit) -> None:
    visit.report(0, visit.far)
    visit.report(10 * _MINUTE, _BESIDE)


def _passes_by(visit: _Visit) -> None:
    visit.report(0, visit.far)
    visit.report(10 * _MINUTE, _AT_300)
    visit.report(20 * _MINUTE, visit.far)


# ---- yards, times


def _corner(site: int) -> Place:
    return float(site % _SITES * _APART), float(site // _SITES * _APART)


def _wkt(site: int) -> str:
    x, y = _corner(site)
    return f"POLYGON (({', '.join(f'{x + a:g} {y + b:g}' for a, b in _YARD)}))"


def _time(seconds: int) -> Any:
    return (_MORNING + np.timedelta64(seconds, "s")).item()
