"""Windows on the reference path: which events to retain, and when a match is decided."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from ensue.ir.query import Query
from ensue.ir.selection import ByEvents, ByTime, ByUnits, Strategy
from ensue.ir.traversal import iterate_atoms
from ensue.reference import Binding, Event, members
from ensue.schema import accepts_type

Key = tuple[object, ...]


def create_retention_window(query: Query, events: Sequence[Event], time: float | None) -> "RetentionWindow":
    """Create the window of a query over events; all events that end before `time` have arrived."""
    match query.within:
        case None:
            return _Lasting(events, inf, time)
        case ByTime(nanoseconds=length) | ByUnits(amount=length):
            return _Lasting(events, length, time)
        case ByEvents(count=count):
            return _Counted(events, count, query)


def get_partition_key(query: Query, event: Event) -> Key | None:
    """The partition key of an event; None if a key is NULL or NaN."""
    key = tuple(event.values.get(e.field_name) for e in query.equivalence)
    # NULL equals nothing, and NaN not even itself
    return key if all(value is not None and value == value for value in key) else None


def is_relevant(query: Query, event: Event) -> bool:
    """Whether an event can be bound, violate a negation, or be counted by a window."""
    if get_partition_key(query, event) is None:
        return False
    if Strategy.PARTITION in query.strategies or isinstance(query.within, ByEvents):
        return True
    return any(accepts_type(atom.type, event.type) for atom in iterate_atoms(query.pattern))


@dataclass(frozen=True, slots=True)
class _Lasting:
    """A window by time; it compares differences, not sums, so rounding cannot drop an event."""

    events: Sequence[Event]
    length: int | float
    time: float | None

    def is_over(self, binding: Binding) -> bool:
        """Whether no later event can be inside the window of a match."""
        # an event at exactly this time may still arrive
        begin = min(e.start for e in members(binding))
        return self.time is not None and self.time - begin > self.length

    def is_past(self, event: Event) -> bool:
        """Whether no later event can be inside a window that began at this event or earlier."""
        # earlier events ended before this one, so they began before its end
        return self.time is not None and self.time - event.end > self.length

    def list_needed(self) -> list[Event]:
        """The events of matches whose window is open, and all events between them."""
        if self.time is None:
            return list(self.events)
        for place, event in enumerate(self.events):
            if self.time - event.start <= self.length:
                return list(self.events[place:])
        return []


class _Counted:
    """A window by number of events of the partition."""

    def __init__(self, events: Sequence[Event], count: int, query: Query) -> None:
        self.count = count
        self.query = query
        self.partitions: dict[Key, list[Event]] = {}
        for event in events:
            key = get_partition_key(query, event)
            if key is not None:
                self.partitions.setdefault(key, []).append(event)

    def is_over(self, binding: Binding) -> bool:
        first = members(binding)[0]
        key = get_partition_key(self.query, first)
        assert key is not None
        events = self.partitions[key]
        return len(events) - events.index(first) >= self.count

    def is_past(self, event: Event) -> bool:
        key = get_partition_key(self.query, event)
        assert key is not None
        rows = [other.position for other in self.partitions.get(key, ())]
        return event.position not in rows or len(rows) - rows.index(event.position) >= self.count

    def list_needed(self) -> list[Event]:
        # the next event of the partition is the last one of the window
        needed = [
            event for events in self.partitions.values() for event in events[max(0, len(events) - self.count + 1) :]
        ]
        return sorted(needed, key=lambda event: event.position)


RetentionWindow = _Lasting | _Counted  # over the last events of the stream, in stream order
