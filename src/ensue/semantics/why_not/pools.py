"""The events that may fill a part, found by time and by the value of a field."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from ensue.semantics.events import Event
from ensue.semantics.subscriptions import Stream, Time, comparable


class Pool:
    """Events in the order of their ends."""

    def __init__(self, events: Sequence[Event], stream: Stream) -> None:
        self.events = sorted(events, key=lambda e: (e.end, e.position))
        self.longest = max((e.end - e.start for e in events), default=0)
        self._ends = [e.end for e in self.events]
        self._stream = stream
        self._by_value: dict[str, dict[object, Pool]] = {}

    def __len__(self) -> int:
        return len(self.events)

    def rows(self, low: Time | None, high: Time | None) -> tuple[int, int]:
        """The first that ends at `low` or later, and the first that ends later than `high`."""
        first = 0 if low is None else bisect_left(self._ends, low)
        last = len(self.events) if high is None else bisect_right(self._ends, high)
        return first, max(first, last)

    def equal(self, name: str, value: object) -> "Pool":
        """Those whose field has a value; none has NULL. Of NaN it may give some: try them."""
        if name not in self._by_value:
            found: dict[object, list[Event]] = {}
            for event in self.events:
                own = comparable(self._stream.value(event, name))
                if own is not None:
                    found.setdefault(own, []).append(event)
            self._by_value[name] = {k: Pool(es, self._stream) for k, es in found.items()}
        return self._by_value[name].get(comparable(value)) or Pool((), self._stream)
