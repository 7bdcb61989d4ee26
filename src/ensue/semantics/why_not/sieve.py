"""Events at the tests of one atom: which test stopped how many, and which came near."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ensue.algebra import places
from ensue.algebra.event_test import EventTest, RegionTest
from ensue.algebra.subscription import Predicate, Region
from ensue.semantics.events import Event
from ensue.semantics.subscriptions import Stream
from ensue.semantics.why_not.steps import EDGE, Cut, Steps
from ensue.semantics.why_not.zones import Zone, zone_of

MOST_OTHERS = 50  # events of another id or type that are tried by all other tests


@dataclass
class Sieved:
    """What became of the newest events at an atom."""

    tests: tuple[Predicate | RegionTest, ...]
    stopped: list[list[Event]]  # by each test, newest first
    passed: list[Event] = field(default_factory=list)
    looked: int = 0  # how many events were looked at
    near: list[list[Event]] = field(default_factory=list)  # that each test alone stopped, likewise

    def counts(self) -> list[tuple[int, int]]:
        """For each test how many it stopped, and how many were left."""
        left, found = self.looked, []
        for stopped in self.stopped:
            left -= len(stopped)
            found.append((len(stopped), left))
        return found


def is_measured(test: Predicate | RegionTest) -> bool:
    """Whether an event may fail it by little: what has another id is just another event."""
    return not (isinstance(test, Predicate) and test.operator in ("=", "IN"))


class Sieve:
    """Tries tests of atoms on events of a stream."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._zones: dict[str, Zone] = {}

    def sieved(self, atom: EventTest, steps: Steps) -> tuple[Sieved, bool]:
        """Tries events from the newest back, as far as the steps reach; whether it was all."""
        tests: tuple[Predicate | RegionTest, ...] = (*atom.predicates, *atom.places)
        found = Sieved(tests, [[] for _ in tests])
        try:
            for event in reversed(self.stream.events):
                failed = self._first_failed(tests, event, steps)
                found.looked += 1
                (found.passed if failed is None else found.stopped[failed]).append(event)
        except Cut:
            return found, False
        return found, True

    def look_near(self, found: Sieved, steps: Steps) -> None:
        """Finds the newest events that failed one test alone, as far as the steps reach."""
        found.near = [[] for _ in found.tests]
        try:
            for number in reversed(range(len(found.tests))):
                stopped, rest = found.stopped[number], found.tests[number + 1 :]
                tried = stopped if is_measured(found.tests[number]) else stopped[:MOST_OTHERS]
                for event in tried:
                    if self._first_failed(rest, event, steps) is None:
                        found.near[number].append(event)
        except Cut:
            return

    def _first_failed(
        self, tests: Sequence[Predicate | RegionTest], event: Event, steps: Steps
    ) -> int | None:
        steps.take()
        for number, test in enumerate(tests):
            if not self.holds(test, event, steps):
                return number
        return None

    def holds(self, test: Predicate | RegionTest, event: Event, steps: Steps) -> bool:
        """Whether an event passes a test by itself."""
        steps.take()
        if isinstance(test, Predicate):
            return self.stream.holds(event, test.name, test.operator, test.value)
        zone = self.zone(test.region)
        place = self.stream.place((event.position,))
        if place is None:
            return False
        settled = zone.settled(test, place)
        if settled is not None:
            return settled
        steps.take(EDGE * zone.edges)
        asked = test.comparison, test.number, test.tolerance
        return places.satisfies(test.where, zone.shape, place, *asked, self.stream.space)

    def zone(self, region: Region) -> Zone:
        """A region made ready."""
        if region.text not in self._zones:
            self._zones[region.text] = zone_of(region.text, self.stream.space)
        return self._zones[region.text]
