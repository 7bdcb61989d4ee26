"""What the parts of an alternative are called."""

from ensue.algebra.alternatives import Alternative, Group
from ensue.algebra.event_test import EventTest


class Names:
    """A variable by its name; other events e1, e2 and so on, in the order of the text.

    >>> from ensue.algebra.alternatives import Alternative
    >>> one = EventTest(())
    >>> way = Alternative((one, one, one), bound=(("A", frozenset({1})),))
    >>> names = Names(way)
    >>> names.part(0), names.part(1), names.group(frozenset({0, 1, 2}))
    ('e1', '$A;', 'e1, $A; and e3')
    """

    def __init__(self, way: Alternative) -> None:
        self._variables = {group: f"${variable};" for variable, group in way.bound}
        events = [n for n, part in enumerate(way.parts) if isinstance(part, EventTest)]
        self._events = {
            n: self._variables.get(frozenset((n,)), f"e{k}") for k, n in enumerate(events, 1)
        }

    def part(self, part: int) -> str:
        return self._events[part]

    def group(self, group: Group) -> str:
        """A variable, or all its events; what has none is an absence from a moment on."""
        if group in self._variables:
            return self._variables[group]
        *others, last = [self._events[n] for n in sorted(group) if n in self._events] or [
            "the absence"
        ]
        return f"{', '.join(others)} and {last}" if others else last
