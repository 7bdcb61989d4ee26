"""Cars on a toll road, past and present, with those that drive too fast between two points.

Readers at toll plazas and at gantries between them read the tag of every car that passes. A car
enters at a plaza, drives from point to point, leaves somewhere, stays for half an hour or for
most of a day, and drives back. Between the speeders there is what makes a road: tags that are read
twice, cars that rest between two points or break down there for more than six hours, and those
that drive too fast towards a gantry, where nobody is fined.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

SPEEDING = """\
EVENT Speeding AS SEQ(Pass p) WHERE p.kind = 'toll'
JOIN ARCHIVE passes SEQ(Pass q) RANGE 6 hours BEFORE START LAST 1 ON [tag]
RETURN p.tag AS tag, q.point AS came_from, p.point AS at, p.ts AS ts, p.ts - q.ts AS travel
HAVING p.ts - q.ts < abs(p.km - q.km) / 120 * 1 hour"""

_NOON = np.datetime64("2026-03-14T12:00:00", "us")  # when the past ends
_MINUTE, _HOUR = 60.0, 3600.0
_SINCE, _UNTIL = -24 * _HOUR, 4 * _HOUR  # seconds from noon
_KM = np.array([0.0, 14, 31, 40, 58, 77, 85, 103, 122, 131, 149, 170])
_TOLL = np.array([1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 1], bool)  # the others are gantries
_PASSES_PER_CAR = 15.7  # on average; turns a number of passes into one of cars

Cars = NDArray[np.int64]
Seconds = NDArray[np.float64]  # from noon


class Toll(NamedTuple):
    """The passes of a day, those of the four hours after it, and who was too fast in these."""

    past: pa.Table  # ts, tag, point, kind, km; in the order of ts
    live: pa.Table  # the same from noon on
    speeders: pa.Table  # tag, came_from, at, ts: when they came to a plaza; in the order of ts


def toll(passes: int = 50_000, seed: int = 7) -> Toll:
    """About `passes` of them, past and live, and every speeder to be fined after noon.

    >>> road = toll(2_000)
    >>> road.live.column_names
    ['ts', 'tag', 'point', 'kind', 'km']
    >>> road.speeders.column_names
    ['tag', 'came_from', 'at', 'ts']
    """
    road = _Road(np.random.default_rng(seed), max(100, round(passes / _PASSES_PER_CAR)))
    road.drive()
    time, car, point = (np.concatenate(column) for column in zip(*road.passes, strict=True))
    order = np.argsort(time, kind="stable")
    read = _table(time[order], car[order], point[order])
    live = int(np.searchsorted(time[order], 0.0))
    return Toll(read.slice(0, live), read.slice(live), _speeders(road))


class _Road:
    """All cars at once, from point to point; what readers read on the way is noted down."""

    def __init__(self, random: np.random.Generator, cars: int) -> None:
        self.random = random
        self.car = np.arange(cars)
        self.time = random.uniform(_SINCE, _UNTIL - 0.5 * _HOUR, cars)
        self.at = random.choice(np.flatnonzero(_TOLL), cars)
        self.way = random.choice([-1, 1], cars)
        self.passes: list[tuple[Seconds, Cars, Cars]] = []
        self.fast: list[tuple[Seconds, Cars, Cars, Cars]] = []

    def drive(self) -> None:
        """Until nobody is on the road any more at its end."""
        self.read()
        while len(self.car):
            self.leave()
            self.go_on()
            self.keep(self.time < _UNTIL)
            self.read()

    def read(self) -> None:
        """A car passes; one in twenty is read twice."""
        twice = self.random.random(len(self.car)) < 0.05
        later = self.time[twice] + self.random.uniform(0.5, 3, twice.sum())
        self.passes.append((self.time.copy(), self.car, self.at.copy()))
        seen = later < _UNTIL
        self.passes.append((later[seen], self.car[twice][seen], self.at[twice][seen]))
        self.time[twice] = later

    def leave(self) -> None:
        """At the road's ends, and at one plaza in four: back after a while, the other way."""
        ended = (self.at + self.way < 0) | (self.at + self.way >= len(_KM))
        leaves = ended | (_TOLL[self.at] & (self.random.random(len(self.car)) < 0.25))
        stay = self.random.choice([0.5, 2, 8, 20], len(self.car))
        stay = stay * self.random.uniform(0.8, 1.2, len(self.car)) * _HOUR
        self.time = np.where(leaves, self.time + stay, self.time)
        self.way = np.where(leaves, -self.way, self.way)
        self.way[self.at == 0], self.way[self.at == len(_KM) - 1] = 1, -1
        back = leaves & (self.time < _UNTIL)
        self.passes.append((self.time[back], self.car[back], self.at[back]))

    def go_on(self) -> None:
        """To the next point, a few of them too fast; some rest on the way, or break down."""
        cars = len(self.car)
        fate = self.random.random(cars)
        fast = fate < 0.05
        speed = np.where(fast, self.random.uniform(138, 185, cars), self.random.uniform(85, 115, cars))
        rest = np.where(fate > 0.95, self.random.uniform(10, 50, cars) * _MINUTE, 0)
        rest = np.where(fate > 0.995, self.random.uniform(6.5, 9, cars) * _HOUR, rest)
        before = self.at
        self.at = self.at + self.way
        self.time = self.time + np.abs(_KM[self.at] - _KM[before]) / speed * _HOUR + rest
        fined = fast & _TOLL[self.at] & (self.time >= 0) & (self.time < _UNTIL)
        self.fast.append((self.time[fined], self.car[fined], before[fined], self.at[fined]))

    def keep(self, kept: NDArray[np.bool_]) -> None:
        self.car, self.time = self.car[kept], self.time[kept]
        self.at, self.way = self.at[kept], self.way[kept]


def _speeders(road: _Road) -> pa.Table:
    time, car, before, at = (np.concatenate(column) for column in zip(*road.fast, strict=True))
    order = np.argsort(time, kind="stable")
    return pa.table(
        {
            "tag": _tags(car[order]),
            "came_from": _points(before[order]),
            "at": _points(at[order]),
            "ts": _timestamps(time[order]),
        }
    )


def _table(time: Seconds, car: Cars, point: Cars) -> pa.Table:
    return pa.table(
        {
            "ts": _timestamps(time),
            "tag": _tags(car),
            "point": _points(point),
            "kind": pa.array(["gantry", "toll"]).take(pa.array(_TOLL[point].astype(int))),
            "km": _KM[point],
        }
    )


def _timestamps(time: Seconds) -> pa.Array:
    return pa.array(_NOON + np.floor(time * 1e6).astype("m8[us]"), pa.timestamp("us", "UTC"))


def _tags(cars: Cars) -> pa.Array:
    every = int(cars.max(initial=0)) + 1
    return pa.array([f"car-{n:05d}" for n in range(every)], pa.string()).take(pa.array(cars))


def _points(points: Cars) -> pa.Array:
    kinds = np.where(_TOLL, "plaza", "gantry")
    names = [f"{kind}-{km:.0f}" for kind, km in zip(kinds, _KM, strict=True)]
    return pa.array(names).take(pa.array(points))
