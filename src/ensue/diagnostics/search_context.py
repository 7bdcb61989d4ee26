"""The context of a search: the order of the parts, assigned events and time windows, budget, filters and indexes."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import hypot, radians

from ensue.analyzer import normal_form
from ensue.geo import geometry
from ensue.geo.geometry import RADIUS
from ensue.geo.wkt import Circle
from ensue.ir.subscription import EventTest, Predicate, Region, RegionTest, SpatialRelation, TimePoint
from ensue.reference.conditions import Event
from ensue.reference.subscription_matches import ReferenceStream, Time, compute_length, normalize_value

# The costs of work in steps. A step is about the work of one predicate on one event.
EDGE = 15  # an edge of a region, against a place
PLACES = 15  # the places of events, against each other
CONDITION = 3
TRIED = 5  # an event, for a part
FOUND = 10  # a match

_SLACK = 1e-9  # floats are rounded, so times and places near a border are tested exactly
MAX_OTHERS = 50  # events of another id or type that are tried by all other tests

AtomTest = Predicate | RegionTest


@dataclass(frozen=True, slots=True)
class PartLevel:
    """A part, and the conditions and absences to test once it is filled, in this order."""

    part: int
    equal: tuple[int, ...] = ()  # `=` with a field of an earlier part: candidates by value
    times: tuple[int, ...] = ()  # candidates by time
    rest: tuple[int, ...] = ()
    absences: tuple[int, ...] = ()  # numbers of parts

    @property
    def conditions(self) -> tuple[int, ...]:
        return (*self.equal, *self.times, *self.rest)


def plan_levels(way: normal_form.SubscriptionAlternative) -> list[PartLevel]:
    """Plans the levels of an alternative: one without events, then the parts as written."""
    order = [-1, *(n for n, part in enumerate(way.parts) if isinstance(part, EventTest))]
    return [_plan_level(way, part, frozenset(order[: k + 1])) for k, part in enumerate(order)]


def _plan_level(way: normal_form.SubscriptionAlternative, part: int, bound: normal_form.Group) -> PartLevel:
    def is_due(group: normal_form.Group) -> bool:
        events = _select_events(way, group)
        return part in events if part >= 0 else not events

    def is_bound(group: normal_form.Group) -> bool:
        return _select_events(way, group) <= bound

    def is_decided(later: normal_form.TimeConstraint) -> bool:
        # with each event, the start of a group can only become earlier, its end only later
        return (later.earlier.end is not later.most or is_bound(later.earlier.group)) and (
            later.later.end is later.most or is_bound(later.later.group)
        )

    equal: list[int] = []
    times: list[int] = []
    fields: list[int] = []
    locations: list[int] = []
    for number, condition in enumerate(way.conditions):
        if not is_due(condition.group):
            continue
        match condition:
            case normal_form.TimeConstraint():
                if is_decided(condition):
                    times.append(number)
            case _ if not is_bound(condition.group):
                continue
            case normal_form.FieldComparison(operator="=") if condition.part != condition.other:
                equal.append(number)
            case normal_form.FieldComparison():
                fields.append(number)
            case _:
                locations.append(number)
    absences = (
        n
        for n, gone in enumerate(way.parts)
        if isinstance(gone, normal_form.AbsentPart) and is_due(gone.group) and is_bound(gone.group)
    )
    return PartLevel(part, tuple(equal), tuple(times), (*fields, *locations), tuple(absences))


def _select_events(way: normal_form.SubscriptionAlternative, group: normal_form.Group) -> normal_form.Group:
    return frozenset(n for n in group if isinstance(way.parts[n], EventTest))


class Assignment:
    """Events by part, and the times that follow from them.

    The start and end of a group with open parts are those of its events so far: the start can
    only become earlier, the end only later.
    """

    def __init__(self, way: normal_form.SubscriptionAlternative, stream: ReferenceStream) -> None:
        self.way = way
        self.stream = stream
        self.events: dict[int, Event] = {}
        self._members: dict[normal_form.Group, tuple[tuple[int, ...], tuple[normal_form.AbsentPart, ...]]] = {}

    @contextmanager
    def assign(self, part: int, event: Event) -> Iterator[None]:
        """Assigns an event to a part inside of a `with` statement."""
        self.events[part] = event
        try:
            yield
        finally:
            del self.events[part]

    def _split(self, group: normal_form.Group) -> tuple[tuple[int, ...], tuple[normal_form.AbsentPart, ...]]:
        """Returns the numbers of the events, and the absences of a group."""
        if group not in self._members:
            parts = [(n, self.way.parts[n]) for n in sorted(group)]
            self._members[group] = (
                tuple(n for n, part in parts if isinstance(part, EventTest)),
                tuple(part for _, part in parts if isinstance(part, normal_form.AbsentPart)),
            )
        return self._members[group]

    def _list_events(self, group: normal_form.Group) -> list[Event]:
        return [self.events[n] for n in self._split(group)[0] if n in self.events]

    def get_positions(self, group: normal_form.Group) -> frozenset[int]:
        return frozenset(event.position for event in self._list_events(group))

    def get_start(self, group: normal_form.Group) -> Time | None:
        times: list[Time] = [event.start for event in self._list_events(group)]
        anchors = (gone.since.anchor for gone in self._split(group)[1])
        times += [self.stream.moment(a.at) for a in anchors if isinstance(a, TimePoint)]
        return min(times, default=None)

    def get_end(self, group: normal_form.Group) -> Time | None:
        times: list[Time] = [event.end for event in self._list_events(group)]
        times += [
            self.get_until(gone)
            for gone in self._split(group)[1]
            if gone.lasts and all(n in self.events for n in self._split(gone.base)[0])
        ]
        return max(times, default=None)

    def get_time(self, point: normal_form.TimeAnchor) -> Time | None:
        """Returns the time of a point, or None if none of its events is assigned."""
        if isinstance(point.anchor, TimePoint):
            return self.stream.moment(point.anchor.at)
        return self.get_end(point.anchor) if point.end else self.get_start(point.anchor)

    def get_until(self, gone: normal_form.AbsentPart) -> Time:
        """Returns the end of an absence, whose group is complete."""
        time = self.get_time(gone.until)
        assert time is not None
        return time + compute_length(gone.length)

    def is_in_time(self, later: normal_form.TimeConstraint) -> bool:
        """Returns whether a condition on times holds for the events so far."""
        earlier, time = self.get_time(later.earlier), self.get_time(later.later)
        if earlier is None or time is None:
            return True
        border = earlier + compute_length(later.by)
        if later.most:
            return time <= border
        return time > border if later.strict else time >= border


@dataclass
class TimeWindow:
    """The ends that an event may have, and the conditions that set the bounds."""

    low: Time | None = None
    low_by: int = -1
    high: Time | None = None
    high_by: int = -1

    def raise_low(self, at: Time, by: int) -> None:
        if self.low is None or at > self.low:
            self.low, self.low_by = at, by

    def lower_high(self, at: Time, by: int) -> None:
        if self.high is None or at < self.high:
            self.high, self.high_by = at, by

    def widen(self) -> tuple[Time | None, Time | None]:
        """Returns the bounds within which events are tried one by one."""
        low, high = self.low, self.high
        return (
            low - _SLACK * max(1.0, abs(low)) if isinstance(low, float) else low,
            high + _SLACK * max(1.0, abs(high)) if isinstance(high, float) else high,
        )


def derive_window(
    level: PartLevel, conditions: tuple[normal_form.Condition, ...], assignment: Assignment, longest: Time
) -> TimeWindow:
    """Derives the window of the part of a level; no event lasts longer than `longest`."""
    window, part, alone = TimeWindow(), level.part, frozenset((level.part,))
    for number in level.times:
        later = conditions[number]
        assert isinstance(later, normal_form.TimeConstraint)
        sides = (later.later, later.earlier, 1), (later.earlier, later.later, -1)
        for point, other, sign in sides:
            is_upper = later.most is (sign > 0)
            # where the part is on both sides, it may only make the other side worse
            if part not in point.group or (part in other.group and other.end is is_upper):
                continue
            at = assignment.get_time(other)
            if at is None:
                continue
            at += sign * compute_length(later.by)
            single = point.group == alone
            if is_upper and (point.end or single):
                window.lower_high(at if point.end else at + longest, number)
            elif not is_upper and (single or not point.end):
                window.raise_low(at, number)
    return window


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

    def get_levels(self, way: normal_form.SubscriptionAlternative) -> list[PartLevel]:
        if id(way) not in self._levels:
            self._levels[id(way)] = plan_levels(way)
        return self._levels[id(way)]
