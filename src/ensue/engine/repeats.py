"""Repeats on a stream: which events fire, with the last event of every partition kept."""

from collections.abc import Iterable, Sequence
from typing import Any

from ensue.algebra.form import is_event
from ensue.algebra.operator import Over
from ensue.algebra.pattern import Apply
from ensue.algebra.query import Query
from ensue.algebra.walk import results
from ensue.engine.retention import key_of
from ensue.semantics import Event
from ensue.semantics.partition import Partition
from ensue.semantics.results import Fired, fires, last_names, record


class Repeats:
    """Sees every event once, in order. A last event is kept however long ago it was."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._applied = [a for a in results(query.pattern) if a.operator.over is Over.REPEAT]
        self._last: dict[tuple[str, str], Any] = {}  # by variable and partition
        self._fired: dict[str, dict[int, Event]] = {a.variable: {} for a in self._applied}

    def __bool__(self) -> bool:
        return bool(self._applied)

    @property
    def fired(self) -> Fired:
        """The results at the events that are held."""
        return self._fired

    def take(self, events: Sequence[Event]) -> None:
        """The next events of the stream."""
        for applied in self._applied:
            source = applied.inputs[0]
            assert is_event(source)
            for event in Partition(self._query, events).candidates(source):
                place = (applied.variable, _partition(key_of(self._query, event)))
                result, self._last[place] = fires(applied, event, self._last.get(place))
                if result is not None:
                    self._fired[applied.variable][event.position] = result

    def keep(self, events: Iterable[Event]) -> None:
        """Forgets the results at other events."""
        if self._applied:
            held = {event.position for event in events}
            for variable, made in self._fired.items():
                self._fired[variable] = {p: e for p, e in made.items() if p in held}

    # ---------------------------------------------------------------------------- saving

    def save(self) -> dict[str, Any]:
        """What was decided, as texts and numbers."""
        return {
            "last": [[v, key, seen and list(seen)] for (v, key), seen in self._last.items()],
            "fired": {variable: sorted(made) for variable, made in self._fired.items()},
        }

    def restore(self, saved: dict[str, Any] | None, held: Iterable[Event]) -> None:
        if saved is None:
            return
        names = {a.variable: record("Last", last_names(a)) for a in self._applied}
        self._last = {(v, key): seen and names[v](*seen) for v, key, seen in saved["last"]}
        events = {event.position: event for event in held}
        for applied in self._applied:
            fired = [events[p] for p in saved["fired"][applied.variable] if p in events]
            self._fired[applied.variable] = {e.position: _made(applied, e) for e in fired}


def _made(applied: Apply, event: Event) -> Event:
    result, _ = fires(applied, event, None)
    assert result is not None
    return result


def _partition(key: tuple[object, ...] | None) -> str:
    """A key as text: 0.0 and -0.0 are one."""
    return repr(tuple(k + 0.0 if isinstance(k, float) else k for k in key or ()))
