"""How long events matter: what a window lets one forget, and when it decides a match."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

from ensue.algebra.policy import Strategy
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms
from ensue.algebra.window import ByEvents, ByTime, ByUnits
from ensue.schema import takes
from ensue.semantics import Binding, Event, members

Key = tuple[object, ...]


class Reach(Protocol):
    """A window over events of the stream, which are in its order."""

    def is_over(self, binding: Binding) -> bool:
        """Whether no later event is inside the window that begins at a match's first event."""
        ...

    def is_past(self, event: Event) -> bool:
        """Whether no later event is inside a window that began at this one, or before it."""
        ...

    def needed(self) -> list[Event]:
        """The events that matches to come depend on.

        They hold all events of a match whose window is not over, and all between them. What came
        before such a match was judged with its last event.
        """
        ...


def reach(query: Query, events: Sequence[Event], time: float | None) -> Reach:
    """The window of a query over the last events; no more come that end before `time`."""
    match query.within:
        case None:
            return _Lasting(events, inf, time)
        case ByTime(nanoseconds=length) | ByUnits(amount=length):
            return _Lasting(events, length, time)
        case ByEvents(count=count):
            return _Counted(events, count, query)


def key_of(query: Query, event: Event) -> Key | None:
    """The partition of an event; None if it is in none."""
    key = tuple(event.values.get(e.field_name) for e in query.equivalence)
    # NULL equals nothing, and NaN not even itself
    return key if all(value is not None and value == value for value in key) else None


def matters(query: Query, event: Event) -> bool:
    """Whether an event can change anything: be in a match, forbid one, or be counted."""
    if key_of(query, event) is None:
        return False
    if Strategy.PARTITION in query.strategies or isinstance(query.within, ByEvents):
        return True
    return any(takes(atom.type, event.type) for atom in atoms(query.pattern))


@dataclass(frozen=True, slots=True)
class _Lasting:
    """A window by time.

    Differences are compared with its length, never sums: rounding then cannot make an event
    leave a window that the semantics still sees it in.
    """

    events: Sequence[Event]
    length: int | float
    time: float | None

    def is_over(self, binding: Binding) -> bool:
        # an event at this very time may still come
        begin = min(e.start for e in members(binding))
        return self.time is not None and self.time - begin > self.length

    def is_past(self, event: Event) -> bool:
        # what came before it has ended before it, and so has begun before its end
        return self.time is not None and self.time - event.end > self.length

    def needed(self) -> list[Event]:
        if self.time is None:
            return list(self.events)
        for place, event in enumerate(self.events):
            if self.time - event.start <= self.length:
                return list(self.events[place:])
        return []


class _Counted:
    """A window by events of the partition."""

    def __init__(self, events: Sequence[Event], count: int, query: Query) -> None:
        self.count = count
        self.query = query
        self.partitions: dict[Key, list[Event]] = {}
        for event in events:
            key = key_of(query, event)
            if key is not None:
                self.partitions.setdefault(key, []).append(event)

    def is_over(self, binding: Binding) -> bool:
        first = members(binding)[0]
        key = key_of(self.query, first)
        assert key is not None
        events = self.partitions[key]
        return len(events) - events.index(first) >= self.count

    def is_past(self, event: Event) -> bool:
        key = key_of(self.query, event)
        assert key is not None
        rows = [other.position for other in self.partitions.get(key, ())]
        return event.position not in rows or len(rows) - rows.index(event.position) >= self.count

    def needed(self) -> list[Event]:
        # the next event of the partition is the last of the window
        kept = [
            event
            for events in self.partitions.values()
            for event in events[max(0, len(events) - self.count + 1) :]
        ]
        return sorted(kept, key=lambda event: event.position)
