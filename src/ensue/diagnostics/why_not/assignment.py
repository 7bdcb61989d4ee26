"""Assigns events to the parts of an alternative: order of the parts, times, time windows."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ensue.analyzer.normal_form import (
    AbsentPart,
    Condition,
    FieldComparison,
    Group,
    SubscriptionAlternative,
    TimeAnchor,
    TimeConstraint,
)
from ensue.ir.subscription import EventTest, TimePoint
from ensue.reference.conditions import Event
from ensue.reference.subscription_matches import ReferenceStream, Time, compute_length

_SLACK = 1e-9  # floats: events near a border are tried one by one


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


def plan_levels(way: SubscriptionAlternative) -> list[PartLevel]:
    """Plans the levels of an alternative: one without events, then the parts as written."""
    order = [-1, *(n for n, part in enumerate(way.parts) if isinstance(part, EventTest))]
    return [_plan_level(way, part, frozenset(order[: k + 1])) for k, part in enumerate(order)]


def _plan_level(way: SubscriptionAlternative, part: int, bound: Group) -> PartLevel:
    def is_due(group: Group) -> bool:
        events = _select_events(way, group)
        return part in events if part >= 0 else not events

    def is_bound(group: Group) -> bool:
        return _select_events(way, group) <= bound

    def is_decided(later: TimeConstraint) -> bool:
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
            case TimeConstraint():
                if is_decided(condition):
                    times.append(number)
            case _ if not is_bound(condition.group):
                continue
            case FieldComparison(operator="=") if condition.part != condition.other:
                equal.append(number)
            case FieldComparison():
                fields.append(number)
            case _:
                locations.append(number)
    absences = (
        n
        for n, gone in enumerate(way.parts)
        if isinstance(gone, AbsentPart) and is_due(gone.group) and is_bound(gone.group)
    )
    return PartLevel(part, tuple(equal), tuple(times), (*fields, *locations), tuple(absences))


def _select_events(way: SubscriptionAlternative, group: Group) -> Group:
    return frozenset(n for n in group if isinstance(way.parts[n], EventTest))


class Assignment:
    """Events by part, and the times that follow from them.

    The start and end of a group with open parts are those of its events so far: the start can
    only become earlier, the end only later.
    """

    def __init__(self, way: SubscriptionAlternative, stream: ReferenceStream) -> None:
        self.way = way
        self.stream = stream
        self.events: dict[int, Event] = {}
        self._members: dict[Group, tuple[tuple[int, ...], tuple[AbsentPart, ...]]] = {}

    @contextmanager
    def assign(self, part: int, event: Event) -> Iterator[None]:
        """Assigns an event to a part inside of a `with` statement."""
        self.events[part] = event
        try:
            yield
        finally:
            del self.events[part]

    def _split(self, group: Group) -> tuple[tuple[int, ...], tuple[AbsentPart, ...]]:
        """Returns the numbers of the events, and the absences of a group."""
        if group not in self._members:
            parts = [(n, self.way.parts[n]) for n in sorted(group)]
            self._members[group] = (
                tuple(n for n, part in parts if isinstance(part, EventTest)),
                tuple(part for _, part in parts if isinstance(part, AbsentPart)),
            )
        return self._members[group]

    def _list_events(self, group: Group) -> list[Event]:
        return [self.events[n] for n in self._split(group)[0] if n in self.events]

    def get_positions(self, group: Group) -> frozenset[int]:
        return frozenset(event.position for event in self._list_events(group))

    def get_start(self, group: Group) -> Time | None:
        times: list[Time] = [event.start for event in self._list_events(group)]
        anchors = (gone.since.anchor for gone in self._split(group)[1])
        times += [self.stream.moment(a.at) for a in anchors if isinstance(a, TimePoint)]
        return min(times, default=None)

    def get_end(self, group: Group) -> Time | None:
        times: list[Time] = [event.end for event in self._list_events(group)]
        times += [
            self.get_until(gone)
            for gone in self._split(group)[1]
            if gone.lasts and all(n in self.events for n in self._split(gone.base)[0])
        ]
        return max(times, default=None)

    def get_time(self, point: TimeAnchor) -> Time | None:
        """Returns the time of a point, or None if none of its events is assigned."""
        if isinstance(point.anchor, TimePoint):
            return self.stream.moment(point.anchor.at)
        return self.get_end(point.anchor) if point.end else self.get_start(point.anchor)

    def get_until(self, gone: AbsentPart) -> Time:
        """Returns the end of an absence, whose group is complete."""
        time = self.get_time(gone.until)
        assert time is not None
        return time + compute_length(gone.length)

    def is_in_time(self, later: TimeConstraint) -> bool:
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
    level: PartLevel, conditions: tuple[Condition, ...], assignment: Assignment, longest: Time
) -> TimeWindow:
    """Derives the window of the part of a level; no event lasts longer than `longest`."""
    window, part, alone = TimeWindow(), level.part, frozenset((level.part,))
    for number in level.times:
        later = conditions[number]
        assert isinstance(later, TimeConstraint)
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
