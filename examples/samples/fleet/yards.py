"""Stories of leaving a depot and of coming to one, and what looks like it."""

from collections.abc import Callable

from samples.fleet.asked import DWELL, MARGIN, MINUTE, WITHIN
from samples.fleet.logbook import Logbook
from samples.fleet.sites import place_at


class Visit:
    """A truck around one depot: reports by seconds from `start`, and metres out of the gate."""

    def __init__(self, log: Logbook, truck: int, depot: str, start: int) -> None:
        self.log, self.truck, self.depot, self.start = log, truck, depot, start

    def report(self, at: int, out: float) -> None:
        place = place_at(self.depot, out, float(self.log.between(-100, 100)))
        speed = 0.0 if out < 0 else 7.0
        self.log.report(self.start + at, self.truck, place, speed, exact=True)

    def left(self, at: int) -> None:
        self.log.to_be_found(f"left-{self.depot}", self.truck, self.start + at, DWELL)

    def reached(self, at: int) -> None:
        self.log.to_be_found(f"reached-{self.depot}", self.truck, self.start + at, DWELL)

    def goes(self, at: int) -> int:
        """Out of the gate, for good; when it is on the road."""
        self.report(at, -80)
        self.report(at + 40, 60)
        self.report(at + 70, 420)
        self.left(at + 70)
        return self.start + at + 120

    def comes(self, at: int) -> int:
        """In by the gate, for good; when it is parked."""
        self.report(at, 700)
        self.report(at + 40, 100)
        self.report(at + 75, -60)
        self.reached(at + 75)
        self.report(at + 200, -300)
        return self.start + at + 200


# ---- stories of leaving; they say when the truck is on the road


def _leaves(visit: Visit) -> int:
    """It stops exactly on the border, and at the gate."""
    visit.report(0, 0)
    visit.report(60, 90)
    return visit.goes(150)


def _leaves_after_jitter(visit: Visit) -> int:
    for step in range(8):
        visit.report(45 * step, -12 if step % 2 else 35.0 + 12 * step)
    return visit.goes(8 * 45)


def _turns_back(visit: Visit) -> int:
    """A metre before the wider border."""
    visit.report(0, -50)
    visit.report(60, MARGIN - 1)
    visit.report(120, -50)
    return visit.goes(20 * MINUTE)


def _forgets_papers(visit: Visit) -> int:
    """Back inside when the dwell time is just over: that is not longer."""
    visit.report(0, MARGIN + 150)
    visit.report(60, 600)
    visit.report(DWELL, -40)
    return visit.goes(20 * MINUTE)


def _comes_back(visit: Visit) -> int:
    """A second later it has left, and reached the depot again."""
    visit.report(0, MARGIN + 150)
    visit.left(0)
    visit.report(60, 600)
    visit.report(DWELL + 1, -40)
    visit.reached(DWELL + 1)
    return visit.goes(20 * MINUTE)


def _is_somewhere_else(visit: Visit) -> int:
    """For a moment, because its position is wrong."""
    visit.report(0, -200)
    visit.report(60, 3_000)
    visit.report(100, -200)
    return visit.goes(20 * MINUTE)


def _leaves_at_last(visit: Visit) -> int:
    visit.report(0, -100)
    visit.report(WITHIN, 800)
    visit.left(WITHIN)
    return visit.start + WITHIN + 30


def _leaves_unseen(visit: Visit) -> int:
    """The last report from inside is a second too old."""
    visit.report(0, -100)
    visit.report(WITHIN + 1, 800)
    return visit.start + WITHIN + 30


DEPARTURES: tuple[Callable[[Visit], int], ...] = (
    _leaves, _leaves_after_jitter, _turns_back, _forgets_papers, _comes_back,
    _is_somewhere_else, _leaves_at_last, _leaves_unseen,
)  # fmt: skip


# ---- stories of arriving; they say when the truck is parked


def _arrives(visit: Visit) -> int:
    """On the border at first; what it reports then is no news."""
    visit.report(0, 500)
    visit.report(40, 70)
    visit.report(80, 0)
    visit.reached(80)
    visit.report(130, -20)
    visit.report(200, -250)
    return visit.start + 200


def _arrives_with_jitter(visit: Visit) -> int:
    visit.report(0, 500)
    for step in range(1, 8):
        visit.report(45 * step, -10 if step % 2 else 30.0 + 10 * step)
    visit.reached(45)
    visit.report(8 * 45, -300)
    return visit.start + 8 * 45


def _passes_by(visit: Visit) -> int:
    """Near the border, and somewhere else for a while."""
    visit.report(0, 500)
    visit.report(50, 20)
    for at in range(100, 15 * MINUTE, 100):
        visit.report(at, 900)
    return visit.comes(15 * MINUTE)


def _drives_through(visit: Visit) -> int:
    """Outside again when the dwell time is just over."""
    visit.report(0, 500)
    visit.report(60, -40)
    visit.report(60 + DWELL, MARGIN + 50)
    for at in range(60 + DWELL + 90, 15 * MINUTE, 90):
        visit.report(at, 800)
    return visit.comes(15 * MINUTE)


def _delivers(visit: Visit) -> int:
    """A second later it was there, and has left."""
    visit.report(0, 500)
    visit.report(60, -40)
    visit.reached(60)
    visit.report(60 + DWELL + 1, MARGIN + 50)
    visit.left(60 + DWELL + 1)
    for at in range(60 + DWELL + 90, 15 * MINUTE, 90):
        visit.report(at, 800)
    return visit.comes(15 * MINUTE)


def _waits_at_the_gate(visit: Visit) -> int:
    for at in range(0, 20 * MINUTE, 3 * MINUTE):
        visit.report(at, 100)
    visit.report(20 * MINUTE, -60)
    visit.reached(20 * MINUTE)
    return visit.start + 20 * MINUTE


def _waits_too_long(visit: Visit) -> int:
    """The last report from outside is too old."""
    for at in range(0, WITHIN + 2 * MINUTE, 3 * MINUTE):
        visit.report(at, 100)
    visit.report(WITHIN + 3 * MINUTE, -60)
    return visit.start + WITHIN + 3 * MINUTE


def _is_lost_in_the_yard(visit: Visit) -> int:
    """For a moment it seems to be far away."""
    parked = visit.comes(0) - visit.start
    visit.report(parked + 5 * MINUTE, -300)
    visit.report(parked + 6 * MINUTE, 2_500)
    visit.report(parked + 7 * MINUTE, -300)
    return visit.start + parked + 10 * MINUTE


ARRIVALS: tuple[Callable[[Visit], int], ...] = (
    _arrives, _arrives_with_jitter, _passes_by, _drives_through, _delivers, _waits_at_the_gate,
    _waits_too_long, _is_lost_in_the_yard,
)  # fmt: skip
