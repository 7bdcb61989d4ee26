"""A day of trucks between depots in the Netherlands and Germany, and what looks like news of it.

Trucks report where they are every 30 seconds to two minutes while they drive, and now and then
from their yards. They leave depots and reach others, fall silent on the way, rest for too long,
and some stray from their convoys. Beside these there is what must not be told: trucks that turn
back at the border or jump over it because of a wrong position, that are a second too early or too
late, wait at the gate, drive through a yard, lag behind but not enough. Every happening is planted
by a story (`samples.fleet`), so what templates find can be compared with the notes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from samples.fleet.asked import (
    ANSWERED,
    CLOSE,
    DAY,
    DWELL,
    HOUR,
    MARGIN,
    MINUTE,
    REACH,
    RESTED,
    SILENT,
    STRAYED,
    WIDER,
    WITHIN,
)
from samples.fleet.convoys import FOLLOWING, Convoy
from samples.fleet.logbook import MIDNIGHT, Deck, Logbook
from samples.fleet.sites import DEPOTS, place_at, regions, rest_on, targets, way
from samples.fleet.trips import RESTS, SILENCES, Trip
from samples.fleet.yards import ARRIVALS, DEPARTURES, Visit

_CONVOY = 5  # trucks; one in eight trucks is in one


class Watched(NamedTuple):
    """A subscription: its name, a template, and the values of that."""

    name: str
    template: str
    values: dict[str, Any]


class FleetDay(NamedTuple):
    """The reports of a day, the regions, what is asked for, and what is to be found.

    A note names the object, its last report of the match, and when that is over and told.
    """

    reports: pa.Table  # ts, id, type, x, y, speed: degrees, km/h; in the order of ts
    regions: dict[str, str]  # WKT, longitude and latitude
    subscriptions: tuple[Watched, ...]
    notes: pa.Table  # subscription, object, at, end; in the order of end

    def batches(self, seconds: float) -> Iterator[pa.Table]:
        """The reports in pieces of so many seconds, in order; a piece may be empty."""
        times = self.reports["ts"].to_numpy().astype("datetime64[us]")
        step = np.timedelta64(round(seconds * 1e6), "us")
        begin = 0
        for number in count(1):
            end = int(np.searchsorted(times, MIDNIGHT + number * step))
            yield self.reports.slice(begin, end - begin)
            if end == len(times):
                return
            begin = end

    def different(self, matches: Iterable[Mapping[str, Any]]) -> list[str]:
        """What subscribers were told, as JSON has it, beside what was planted: no line is right.

        Whose a match is, and when it was seen last, is said by its last event.
        """
        names = {watched.name for watched in self.subscriptions}
        told = Counter(
            (match["name"], last["id"], _moment(last["ts"]), _moment(match["end"]))
            for match in matches
            if match["name"] in names and (last := match["members"][-1])
        )
        planted = Counter(tuple(note.values()) for note in self.notes.to_pylist())
        return [
            f"{what}: {name} of {object}, seen at {at:%H:%M:%S}, told at {end:%H:%M:%S}"
            for what, some in (("missed", planted - told), ("false", told - planted))
            for name, object, at, end in some.elements()
        ]


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def fleet_day(trucks: int = 200, seed: int = 11) -> FleetDay:
    """The reports of so many trucks, and what happens to them.

    >>> day = fleet_day(12)
    >>> day.reports.column_names
    ['ts', 'id', 'type', 'x', 'y', 'speed']
    >>> day.notes.column_names
    ['subscription', 'object', 'at', 'end']
    >>> sum(piece.num_rows for piece in day.batches(600)) == day.reports.num_rows
    True
    """
    day = _Day(np.random.default_rng(seed))
    convoys = _convoys(trucks)
    for number, members in enumerate(convoys, 1):
        day.convoy(f"convoy-{number}", members)
    for truck in range(1 + len(convoys) * _CONVOY, 1 + trucks):
        day.truck(truck)
    return FleetDay(day.log.reports(), regions(), tuple(_watched(convoys)), day.log.notes())


def _convoys(trucks: int) -> list[range]:
    number = max(1, trucks // (8 * _CONVOY)) if trucks >= _CONVOY else 0
    return [range(1 + k * _CONVOY, 1 + (k + 1) * _CONVOY) for k in range(number)]


def _watched(convoys: Sequence[range]) -> Iterator[Watched]:
    border = {"margin": MARGIN, "dwell": DWELL, "within": WITHIN, "reach": REACH}
    for depot in DEPOTS:
        yield Watched(f"left-{depot}", "leaves", {"region": depot, **border})
        yield Watched(f"reached-{depot}", "enters", {"region": depot, **border})
    silence = {"longer_than": SILENT, "unless_in": "Depots", "margin": MARGIN}
    yield Watched("silent", "not_seen", silence)
    yield Watched("rests", "stays", {"region": "RestAreas", "longer_than": RESTED, **border})
    for number, (leader, *followers) in enumerate(convoys, 1):
        values = {
            "leader": leader, "followers": followers, "distance": CLOSE, "margin": WIDER,
            "dwell": STRAYED, "together": ANSWERED, "within": WITHIN,
        }  # fmt: skip
        yield Watched(f"convoy-{number}", "strays", values)


class _Day:
    """Truck by truck, story by story."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random
        self.log = Logbook(random)
        self.departures = Deck(random, DEPARTURES)
        self.arrivals = Deck(random, ARRIVALS)
        self.silences = Deck(random, SILENCES)
        self.rests = Deck(random, RESTS)
        self.following = Deck(random, FOLLOWING)

    def truck(self, truck: int) -> None:
        """Parks, drives, parks, and perhaps drives on, until the day is over."""
        log = self.log
        home = str(self.random.choice(list(DEPOTS)))
        parked, departs = log.between(0, 12 * MINUTE), log.between(2 * HOUR, 9 * HOUR)
        while True:
            target = str(self.random.choice(targets(home)))
            speed = float(self.random.uniform(18.0, 23.0))
            if departs + way(home, target).length / speed + 5 * HOUR > DAY:
                break
            self._park(truck, home, parked, departs - 5 * MINUTE)
            on_the_road = self.departures.draw()(Visit(log, truck, home, departs))
            there = self._drive(truck, home, target, on_the_road, speed)
            parked = self.arrivals.draw()(Visit(log, truck, target, there + 45))
            home, departs = target, parked + log.between(HOUR, 3 * HOUR)
        self._park(truck, home, parked, DAY)

    def convoy(self, name: str, trucks: Sequence[int]) -> None:
        """A convoy drives once."""
        home = str(self.random.choice(list(DEPOTS)))
        target = str(self.random.choice(targets(home)))
        departs = self.log.between(4 * HOUR, 9 * HOUR)
        for truck in trucks:
            self._park(truck, home, self.log.between(0, 9 * MINUTE), departs - 5 * MINUTE)
        parked = Convoy(self.log, name, trucks, departs).drive(home, target, self.following)
        for truck in trucks:
            self._park(truck, target, parked, DAY)

    def _park(self, truck: int, depot: str, since: int, until: int) -> None:
        """In the yard, with a report now and then."""
        between = self.log.between
        spot = place_at(depot, -float(between(250, 650)), float(between(-180, 180)))
        at = since + between(1, 3) * MINUTE
        while at < until:
            self.log.report(at, truck, spot)
            at += between(10 * MINUTE, 14 * MINUTE)

    def _drive(self, truck: int, home: str, target: str, start: int, speed: float) -> int:
        """From road to road, with a story on the way; when it is there."""
        line, rest = way(home, target), rest_on(home, target)
        trip = Trip(self.log, truck, line, start, speed)
        if rest is not None and self.random.random() < 0.6:
            trip.drive(rest[0])
            self.rests.draw()(trip, rest[1])
        else:
            trip.drive(line.length * float(self.random.uniform(0.15, 0.3)))
            self.silences.draw()(trip)
        trip.drive(line.length)
        return trip.at
