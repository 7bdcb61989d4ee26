"""The parts of an alternative with events in them, some perhaps still open."""

from ensue.algebra.alternatives import Alternative, Gone, Group, Later, Point
from ensue.algebra.event_test import EventTest
from ensue.algebra.subscription import Moment
from ensue.semantics.events import Event
from ensue.semantics.subscriptions import Stream, Time, length_of


class Filled:
    """Events by part, and what times follow from them.

    Of a group that is open in part, start and end are those of what is there: the start can only
    become earlier, the end only later.
    """

    def __init__(self, way: Alternative, stream: Stream) -> None:
        self.way = way
        self.stream = stream
        self.events: dict[int, Event] = {}
        self._members: dict[Group, tuple[tuple[int, ...], tuple[Gone, ...]]] = {}

    def members(self, group: Group) -> tuple[tuple[int, ...], tuple[Gone, ...]]:
        """The events and the absences of a group."""
        if group not in self._members:
            parts = [(n, self.way.parts[n]) for n in sorted(group)]
            self._members[group] = (
                tuple(n for n, part in parts if isinstance(part, EventTest)),
                tuple(part for _, part in parts if isinstance(part, Gone)),
            )
        return self._members[group]

    def complete(self, group: Group) -> bool:
        return all(n in self.events for n in self.members(group)[0])

    def positions(self, group: Group) -> frozenset[int]:
        there = (self.events[n].position for n in self.members(group)[0] if n in self.events)
        return frozenset(there)

    # ------------------------------------------------------------------------------ times

    def start(self, group: Group) -> Time | None:
        events, absences = self.members(group)
        found: list[Time] = [self.events[n].start for n in events if n in self.events]
        found += [self.stream.moment(a.since.of.at) for a in absences if _alone(a)]  # type: ignore[union-attr]
        return min(found, default=None)

    def end(self, group: Group) -> Time | None:
        events, absences = self.members(group)
        found: list[Time] = [self.events[n].end for n in events if n in self.events]
        found += [self.until(a) for a in absences if a.lasts and self.complete(a.base)]
        return max(found, default=None)

    def at(self, point: Point) -> Time | None:
        """When a point is; None: nothing of it is there."""
        if isinstance(point.of, Moment):
            return self.stream.moment(point.of.at)
        return self.end(point.of) if point.end else self.start(point.of)

    def since(self, gone: Gone) -> Time:
        """From where on nothing may happen. Its group is complete."""
        found = self.at(gone.since)
        assert found is not None
        return found

    def until(self, gone: Gone) -> Time:
        """Up to where."""
        found = self.at(gone.until)
        assert found is not None
        return found + length_of(gone.length)

    def in_time(self, later: Later) -> bool:
        """Whether a condition on times holds for what is there."""
        a, b = self.at(later.earlier), self.at(later.later)
        if a is None or b is None:
            return True
        border = a + length_of(later.by)
        if later.most:
            return b <= border
        return b > border if later.strict else b >= border


def _alone(gone: Gone) -> bool:
    """Whether it speaks of a moment, and is a value without events."""
    return isinstance(gone.since.of, Moment)
