"""Stories on the road: who falls silent, who rests for too long, and who does not."""

from collections.abc import Callable

from samples.fleet.asked import DWELL, MINUTE, RESTED, SILENT
from samples.fleet.logbook import Logbook
from samples.fleet.roads import Place, Way


class Trip:
    """A truck on its way: where and when it has reported last."""

    def __init__(self, log: Logbook, truck: int, way: Way, start: int, speed: float) -> None:
        self.log, self.truck, self.way, self.speed = log, truck, way, speed
        self.at, self.metres = start, 0.0
        self.report(start, 0.0)

    def report(self, at: int, metres: float) -> None:
        self.log.report(at, self.truck, self.way.at(metres), self.speed)
        self.at, self.metres = at, metres

    def drive(self, until: float) -> None:
        """Reports every 30 seconds to two minutes, the last one exactly there."""
        while self.metres < until:
            wait = self.log.between(30, 120)
            further = self.metres + wait * self.speed * float(self.log.random.uniform(0.85, 1.0))
            self.report(self.at + wait, min(further, until))

    def pause(self, seconds: int) -> None:
        """No report for so long; it drives on meanwhile."""
        self.report(self.at + seconds, self.metres + 0.5 * seconds * self.speed)

    def fell_silent(self) -> None:
        self.log.to_be_found("silent", self.truck, self.at, SILENT)

    def rest(self, place: Place, since: int, until: int) -> None:
        """Beside the road, with a report now and then."""
        at = since
        while at < until:
            self.log.report(at, self.truck, place)
            self.at, at = at, at + self.log.between(3 * MINUTE, 6 * MINUTE)

    def rested(self, since: int) -> None:
        self.log.to_be_found("rests", self.truck, since, RESTED + DWELL)


# ---- silences


def _reports_always(trip: Trip) -> None:
    trip.pause(MINUTE)


def _falls_silent(trip: Trip) -> None:
    trip.fell_silent()
    trip.pause(trip.log.between(SILENT + 5 * MINUTE, 50 * MINUTE))


def _is_a_second_too_late(trip: Trip) -> None:
    trip.fell_silent()
    trip.pause(SILENT + 1)


def _is_heard_in_time(trip: Trip) -> None:
    trip.pause(SILENT)


def _is_in_a_tunnel(trip: Trip) -> None:
    trip.pause(12 * MINUTE)


def _is_silent_twice(trip: Trip) -> None:
    for _ in range(2):
        trip.fell_silent()
        trip.pause(SILENT + 2 * MINUTE)


SILENCES: tuple[Callable[[Trip], None], ...] = (
    _reports_always, _falls_silent, _is_a_second_too_late, _is_heard_in_time, _is_in_a_tunnel,
    _is_silent_twice,
)  # fmt: skip


# ---- rests


def _rests(trip: Trip, place: Place) -> None:
    since = trip.at + 90
    trip.rest(place, since, since + 30 * MINUTE)


def _rests_too_long(trip: Trip, place: Place) -> None:
    since = trip.at + 90
    trip.rest(place, since, since + RESTED + 20 * MINUTE)
    trip.rested(since)


def _rests_just_long_enough(trip: Trip, place: Place) -> None:
    """On the road again in time, if only just."""
    since = trip.at + 90
    trip.rest(place, since, since + RESTED)
    trip.report(since + RESTED, trip.metres)


def _rests_a_second_too_long(trip: Trip, place: Place) -> None:
    since = trip.at + 90
    trip.rest(place, since, since + RESTED + 1)
    trip.report(since + RESTED + 1, trip.metres)
    trip.rested(since)


def _looks_for_a_better_place(trip: Trip, place: Place) -> None:
    """It is on the road for a minute between, which is no leaving."""
    since = trip.at + 90
    trip.rest(place, since, since + 25 * MINUTE)
    again = trip.at + 4 * MINUTE
    trip.report(again - MINUTE, trip.metres)
    trip.rest(place, again, since + RESTED + 15 * MINUTE)
    trip.rested(since)


def _rests_twice(trip: Trip, place: Place) -> None:
    """Long enough together, but between it has left."""
    since = trip.at + 90
    trip.rest(place, since, since + 30 * MINUTE)
    for _ in range(6):
        trip.report(trip.at + MINUTE, trip.metres)
    trip.rest(place, trip.at + 90, trip.at + 30 * MINUTE)


RESTS: tuple[Callable[[Trip, Place], None], ...] = (
    _rests, _rests_too_long, _rests_just_long_enough, _rests_a_second_too_long,
    _looks_for_a_better_place, _rests_twice,
)  # fmt: skip
