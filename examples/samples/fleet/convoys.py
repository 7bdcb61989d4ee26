"""Convoys: once a minute the leader reports where it is, and the others answer within seconds."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from samples.fleet.asked import ANSWERED, DWELL, MINUTE, STRAYED
from samples.fleet.logbook import Deck, Logbook
from samples.fleet.roads import Way, moved
from samples.fleet.sites import place_at, way

_STEP = 1_200.0  # metres in a minute
_FREE = 9_000.0  # metres without a story at both ends
_PHASE = 16  # minutes: a follower has one story in them, and is near at both ends


class Answer(NamedTuple):
    """How a follower answers in a minute."""

    behind: float | None  # metres from the leader; None: it does not answer
    found: bool = False  # it has strayed
    late: bool = False


def _answers(*behind: float | None, found: Sequence[int] = (), late: Sequence[int] = ()) -> tuple[Answer, ...]:
    assert len(behind) == _PHASE
    return tuple(Answer(metres, minute in found, minute in late) for minute, metres in enumerate(behind))


FOLLOWING: tuple[tuple[Answer, ...], ...] = (
    # stays
    _answers(100, 120, 90, 110, 150, 300, 500, 700, 980, 700, 500, 300, 200, 100, 110, 100),
    # lags behind, but not enough
    _answers(100, 300, 700, 990, 1_100, 1_300, 1_490, 1_490, 1_450, 1_200, 1_010, 900, 600, 300,
             200, 100),
    # strays
    _answers(100, 300, 800, 1_300, 1_510, 2_000, 2_600, 3_000, 3_000, 2_400, 1_800, 1_200, 900,
             400, 200, 100, found=(4,)),
    # is back when the dwell time is just over
    _answers(100, 200, 990, 1_600, 1_800, 1_300, 990, 600, 300, 200, 150, 120, 100, 100, 100, 100),
    # is back a minute too late
    _answers(100, 200, 990, 1_600, 1_800, 1_700, 1_100, 990, 600, 300, 200, 150, 120, 100, 100,
             100, found=(3,)),
    # strays twice
    _answers(100, 1_600, 2_000, 2_000, 2_000, 1_600, 800, 300, 1_700, 2_200, 2_400, 2_100, 1_600,
             900, 300, 100, found=(1, 8)),
    # goes to and fro over both borders, and never stays there
    _answers(100, 950, 1_550, 950, 1_550, 1_550, 950, 1_200, 950, 1_600, 900, 400, 300, 200, 100,
             100),
    # answers too late while it is far away
    _answers(100, 300, 800, 1_700, 2_200, 2_400, 2_100, 1_900, 1_600, 1_300, 900, 500, 300, 200,
             100, 100, late=range(3, 9)),
    # is silent while it is far away
    _answers(100, 300, 800, None, None, None, None, None, None, None, 900, 500, 300, 200, 100,
             100),
)  # fmt: skip


class Convoy:
    """Trucks that drive from one depot to another, the leader first."""

    def __init__(self, log: Logbook, name: str, trucks: Sequence[int], start: int) -> None:
        self.log, self.name, self.trucks, self.start = log, name, trucks, start
        self.minute = 0

    def drive(self, home: str, target: str, stories: Deck[tuple[Answer, ...]]) -> int:
        """From yard to yard; when all are there."""
        self._park(home)
        line = way(home, target)
        followers = [self._follower(line, stories) for _ in self.trucks[1:]]
        metres = 0.0
        while metres < line.length:
            self.minute += 1
            if self.minute == 1:
                self._to_be_found(f"left-{home}")
            self._drive_on(line, metres, followers)
            metres += _STEP
        self.minute += 1
        self._park(target)
        self._to_be_found(f"reached-{target}")
        return self.start + (self.minute + 1) * MINUTE

    def _at(self, place: int) -> int:
        """When the truck at a place of the convoy reports."""
        return self.start + self.minute * MINUTE + (2 + 3 * place if place else 0)

    def _park(self, depot: str) -> None:
        for place, truck in enumerate(self.trucks):
            spot = place_at(depot, -300.0 - 40 * place, 100.0)
            self.log.report(self._at(place), truck, spot)

    def _to_be_found(self, subscription: str) -> None:
        for place, truck in enumerate(self.trucks):
            self.log.to_be_found(subscription, truck, self._at(place), DWELL)

    def _follower(self, line: Way, stories: Deck[tuple[Answer, ...]]) -> Iterator[Answer]:
        """How one is behind the leader, minute by minute."""
        free = int(_FREE / _STEP)
        for _ in range(free):
            yield self._near()
        for _ in range((int(line.length / _STEP) - 2 * free) // _PHASE):
            yield from stories.draw()
        while True:
            yield self._near()

    def _near(self) -> Answer:
        return Answer(float(self.log.between(80, 300)))

    def _drive_on(self, line: Way, metres: float, followers: Sequence[Iterator[Answer]]) -> None:
        """One minute: the leader, then those that answer."""
        here, (east, north) = line.at(metres), line.heading(metres)
        speed = _STEP / MINUTE
        self.log.report(self._at(0), self.trucks[0], here, speed, exact=True)
        for place, follower in enumerate(followers, 1):
            truck, answer = self.trucks[place], next(follower)
            at = self._at(0) + ANSWERED + 1 if answer.late else self._at(place)
            if answer.behind is not None:
                there = moved(here, -east * answer.behind, -north * answer.behind)
                self.log.report(at, truck, there, speed, exact=True)
            if answer.found:
                self.log.to_be_found(self.name, truck, at, STRAYED)
