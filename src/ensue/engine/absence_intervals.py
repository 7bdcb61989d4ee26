"""Absences with an interval of their own on a stream: until when, and by which events."""

from collections.abc import Iterable, Sequence

from ensue.algebra.lapses import lapses
from ensue.algebra.lives import looks_as_far
from ensue.algebra.query import Query
from ensue.algebra.walk import atoms
from ensue.algebra.window import ByTime, ByUnits
from ensue.schema import Schema, Types, takes
from ensue.semantics import Binding, Event, members, over_after


class AbsenceIntervals:
    """What a query with such absences has to hold beyond its window."""

    def __init__(self, query: Query, schema: Schema) -> None:
        self._query = query
        # by types, how long before the first event of a match they matter; None: for ever
        self._types: dict[Types, int | float | None] = {}
        for negation, interval in lapses(query.pattern):
            looks = looks_as_far(interval, query, schema)
            back = None if looks is None or looks.back is None else float(looks.back)
            for atom in atoms(negation):
                known = self._types.get(atom.type, 0.0)
                longest = None if back is None or known is None else max(back, known)
                self._types[atom.type] = longest

    def until(self, binding: Binding) -> int | float | None:
        """The moment that has to be over; None: with the last event of a match all is known."""
        if not self._types:
            return None
        until = over_after(self._query.pattern, binding)
        return None if until is None or until < members(binding)[-1].end else until

    def held(
        self,
        events: Sequence[Event],
        needed: Sequence[Event],
        time: float | None,
        waiting: Iterable[Binding],
    ) -> tuple[Event, ...]:
        """The events that are needed by a window, and by intervals beside it, in their order."""
        if not self._types or len(needed) == len(events):
            return tuple(needed)
        kept = {event.position for event in needed}
        kept |= {event.position for binding in waiting for event in members(binding)}
        kept |= {event.position for event in events if self._matters(event, time)}
        return tuple(event for event in events if event.position in kept)

    def _matters(self, event: Event, time: float | None) -> bool:
        """Whether an event may lie in an interval of a match to come."""
        looks = [back for types, back in self._types.items() if takes(types, event.type)]
        if not looks:
            return False
        known = [back for back in looks if back is not None]
        back = max(known) if len(known) == len(looks) else None
        match self._query.within:
            case ByTime(nanoseconds=length) | ByUnits(amount=length):
                return back is None or time is None or time - event.start <= length + back
            case _:
                return True
