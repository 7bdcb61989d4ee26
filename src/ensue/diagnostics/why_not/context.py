"""The shared context of searches: the step budget, atom filters and candidate indexes."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot, radians

from ensue.analyzer.normal_form import SubscriptionAlternative
from ensue.diagnostics.why_not.assignment import PartLevel, plan_levels
from ensue.geo import geometry
from ensue.geo.geometry import RADIUS
from ensue.geo.wkt import Circle
from ensue.ir.subscription import EventTest, Predicate, Region, RegionTest, SpatialRelation
from ensue.reference.conditions import Event
from ensue.reference.subscription_matches import ReferenceStream, Time, normalize_value

# The costs of work in steps. A step is about the work of one predicate on one event.
EDGE = 15  # an edge of a region, against a place
PLACES = 15  # the places of events, against each other
CONDITION = 3
TRIED = 5  # an event, for a part
FOUND = 10  # a match

_SLACK = 1e-9  # sums are rounded, so places near a border are tested exactly
MAX_OTHERS = 50  # events of another id or type that are tried by all other tests

AtomTest = Predicate | RegionTest


class BudgetExceeded(Exception):  # noqa: N818  the search ends early, nothing went wrong
    """Raised when all steps are spent."""


class StepBudget:
    """Counts tests of events and of combinations, up to a limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.spent = 0

    def spend(self, steps: int = 1) -> None:
        """Spends steps, or raises BudgetExceeded."""
        if self.spent + steps > self.limit:
            raise BudgetExceeded
        self.spent += steps


def list_tests(atom: EventTest) -> tuple[AtomTest, ...]:
    """Returns the predicates and regions of an atom, in the order in which they are tried."""
    return (*atom.predicates, *atom.places)


def is_graded(test: AtomTest) -> bool:
    """Returns whether an event may fail a test narrowly: another id is just another event."""
    return not (isinstance(test, Predicate) and test.operator in ("=", "IN"))


@dataclass
class FilterStats:
    """The newest events by the test of an atom that stopped them."""

    tests: tuple[AtomTest, ...]
    stopped: list[list[Event]]  # by each test, newest first
    passed: list[Event] = field(default_factory=list)
    examined: int = 0
    near: list[list[Event]] = field(default_factory=list)  # stopped by this test alone

    def count(self) -> list[tuple[int, int]]:
        """Returns for each test the number of events it stopped, and of those left."""
        left, counts = self.examined, []
        for stopped in self.stopped:
            left -= len(stopped)
            counts.append((len(stopped), left))
        return counts


@dataclass(frozen=True, slots=True)
class RegionBox:
    """A region, the number of its edges, and its box; a circle on the earth has no box."""

    shape: geometry.Shape
    edges: int
    box: tuple[float, float, float, float] | None  # least x, least y, greatest x, greatest y
    space: str

    def decide(self, test: RegionTest, place: geometry.ConvexHull) -> bool | None:
        """Returns whether a test holds for a place, or None if the box does not tell."""
        if self.box is None:
            return None
        match test.where:
            case SpatialRelation.INSIDE | SpatialRelation.OVERLAP:
                return False if self.is_clear_of(place) else None
            case SpatialRelation.DISTANCE:
                far = self.is_farther(place, test.number + test.tolerance)
                return test.comparison == ">" if far else None
            case SpatialRelation.SAME:
                return None

    def is_clear_of(self, place: geometry.ConvexHull) -> bool:
        """Returns whether a place is outside of the box, so that it shares no point with it."""
        across, along = self._measure_gaps(place)
        return along > 0 or across > (0 if self.space == geometry.PLANE else _SLACK)

    def is_farther(self, place: geometry.ConvexHull, distance: float) -> bool:
        """Returns whether the box, and so the region, is farther from a place than `distance`."""
        across, along = self._measure_gaps(place)
        least = hypot(across, along)
        if self.space == geometry.EARTH:  # a degree of latitude is as long everywhere
            least = radians(along) * RADIUS
        return least * (1 - _SLACK) > distance * (1 + _SLACK)

    def _measure_gaps(self, place: geometry.ConvexHull) -> tuple[float, float]:
        """Returns the gaps between a place and the box in x and y; on the earth in degrees."""
        assert self.box is not None
        west, south, east, north = self.box
        xs, ys = zip(*place.corners, strict=True)
        along = max(0.0, south - max(ys), min(ys) - north)
        if self.space == geometry.PLANE:
            return max(0.0, west - max(xs), min(xs) - east), along
        turned = (west - max(xs)) % 360  # eastwards, to where the box begins
        width = (east - west) + (max(xs) - min(xs))
        return max(0.0, min(turned, 360 - turned - width)), along


def build_region_box(text: str, space: str) -> RegionBox:
    """Builds the region that a text describes."""
    shape = geometry.parse_region(text, space)
    if isinstance(shape, Circle):
        x, y = shape.x, shape.y
        r = shape.radius + _SLACK * max(shape.radius, abs(x), abs(y))
        box = None if space == geometry.EARTH else (x - r, y - r, x + r, y + r)
        return RegionBox(shape, 1, box, space)
    corners = [corner for ring in shape.rings for corner in ring]
    if not corners:
        return RegionBox(shape, 0, None, space)
    xs, ys = zip(*corners, strict=True)
    return RegionBox(shape, len(corners), (min(xs), min(ys), max(xs), max(ys)), space)


class AtomFilter:
    """Tries the tests of atoms on the events of a stream."""

    def __init__(self, stream: ReferenceStream) -> None:
        self.stream = stream
        self._regions: dict[str, RegionBox] = {}

    def filter_events(self, atom: EventTest, budget: StepBudget) -> tuple[FilterStats, bool]:
        """Filters events, newest first; False if the budget ended before the oldest."""
        tests = list_tests(atom)
        stats = FilterStats(tests, [[] for _ in tests])
        try:
            for event in reversed(self.stream.events):
                failed = self._find_failed(tests, event, budget)
                stats.examined += 1
                (stats.passed if failed is None else stats.stopped[failed]).append(event)
        except BudgetExceeded:
            return stats, False
        return stats, True

    def find_near_misses(self, stats: FilterStats, budget: StepBudget) -> None:
        """Finds the newest events that failed one test alone, within the budget."""
        stats.near = [[] for _ in stats.tests]
        try:
            for number in reversed(range(len(stats.tests))):
                stopped, rest = stats.stopped[number], stats.tests[number + 1 :]
                for event in stopped if is_graded(stats.tests[number]) else stopped[:MAX_OTHERS]:
                    if self._find_failed(rest, event, budget) is None:
                        stats.near[number].append(event)
        except BudgetExceeded:
            return

    def _find_failed(self, tests: Sequence[AtomTest], event: Event, budget: StepBudget) -> int | None:
        budget.spend()
        failed = (n for n, test in enumerate(tests) if not self._holds(test, event, budget))
        return next(failed, None)

    def _holds(self, test: AtomTest, event: Event, budget: StepBudget) -> bool:
        budget.spend()
        if isinstance(test, Predicate):
            return self.stream.holds(event, test.name, test.operator, test.value)
        place = self.stream.place((event.position,))
        if place is None:
            return False
        region = self.get_region(test.region)
        decided = region.decide(test, place)
        if decided is not None:
            return decided
        budget.spend(EDGE * region.edges)
        relation = test.comparison, test.number, test.tolerance, self.stream.space
        return geometry.evaluate_relation(test.where, region.shape, place, *relation)

    def get_region(self, region: Region) -> RegionBox:
        if region.text not in self._regions:
            self._regions[region.text] = build_region_box(region.text, self.stream.space)
        return self._regions[region.text]


class CandidateIndex:
    """Finds the events that may fill a part by their end, and by the value of a field."""

    def __init__(self, events: Sequence[Event], stream: ReferenceStream) -> None:
        self.events = sorted(events, key=lambda e: (e.end, e.position))
        self.longest = max((e.end - e.start for e in events), default=0)
        self._ends = [e.end for e in self.events]
        self._stream = stream
        self._by_value: dict[str, dict[object, CandidateIndex]] = {}

    def __len__(self) -> int:
        return len(self.events)

    def find_rows(self, low: Time | None, high: Time | None) -> tuple[int, int]:
        """Returns the range of rows that end from `low` to `high`."""
        first = 0 if low is None else bisect_left(self._ends, low)
        last = len(self.events) if high is None else bisect_right(self._ends, high)
        return first, max(first, last)

    def select_equal(self, name: str, value: object) -> "CandidateIndex":
        """Selects the events with a value, never NULL. NaN may select some: they are tried."""
        if name not in self._by_value:
            groups: dict[object, list[Event]] = {}
            for event in self.events:
                key = normalize_value(self._stream.value(event, name))
                if key is not None:
                    groups.setdefault(key, []).append(event)
            indexes = ((key, CandidateIndex(events, self._stream)) for key, events in groups.items())
            self._by_value[name] = dict(indexes)
        return self._by_value[name].get(normalize_value(value)) or CandidateIndex((), self._stream)


@dataclass
class SearchContext:
    """The filtered events of a stream, and the budget for searching them."""

    stream: ReferenceStream
    filter: AtomFilter
    candidates: Mapping[EventTest, CandidateIndex]
    near: Mapping[EventTest, Sequence[tuple[int, CandidateIndex]]]  # by the one test they fail
    budget: StepBudget
    now: Time | None  # the current time; None: the stream has ended
    violations: dict[object, tuple[Event, ...] | None] = field(default_factory=dict)
    _levels: dict[int, list[PartLevel]] = field(default_factory=dict)

    def get_levels(self, way: SubscriptionAlternative) -> list[PartLevel]:
        if id(way) not in self._levels:
            self._levels[id(way)] = plan_levels(way)
        return self._levels[id(way)]
