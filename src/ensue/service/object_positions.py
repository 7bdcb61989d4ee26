"""The last known position of each object, for maps, and the rate of events."""

import threading
import time
from collections import OrderedDict, deque
from typing import Any

import pyarrow as pa

from ensue.service.event_columns import EventColumns
from ensue.service.notification_rules import to_json_values

MAX_OBJECTS = 200_000  # objects in memory; the longest silent are evicted first


class ObjectPositions:
    """The newest event of every object, by the stream's key; written by one thread."""

    def __init__(self, columns: EventColumns) -> None:
        self.columns = columns
        self.moves = 0  # grows with every event, so that readers can ask for changes
        self._seen: OrderedDict[Any, dict[str, Any]] = OrderedDict()  # oldest move first
        self._lock = threading.Lock()

    def take(self, events: pa.Table) -> None:
        """Records accepted events, in order."""
        key = self.columns.stream.key
        if key is None or not events.num_rows:
            return
        names = events.column_names
        ids = events.column(key).to_pylist()
        last = {id: row for row, id in enumerate(ids) if id is not None}
        newest = events.take(pa.array(sorted(last.values()))) if len(last) < len(ids) else events
        fields = [to_json_values(newest.column(name)) for name in names]
        times = self.columns.seconds(newest).tolist()
        xs, ys = self.columns.places(newest)
        with self._lock:
            for id, t, x, y, *values in zip(newest.column(key).to_pylist(), times, xs, ys, *fields, strict=True):
                if id is None:
                    continue
                known = self._seen.get(id)
                if known is not None and known["t"] > t:
                    continue  # out of order: a newer position is known
                self.moves += 1
                self._seen[id] = {
                    "id": id, "t": t, "x": x, "y": y, "moves": self.moves,
                    "fields": dict(zip(names, values, strict=True)),
                }  # fmt: skip
                self._seen.move_to_end(id)
            while len(self._seen) > MAX_OBJECTS:
                self._seen.popitem(last=False)

    def list_moved(self, moves: int = 0, most: int = MAX_OBJECTS) -> tuple[list[dict[str, Any]], int]:
        """Returns the objects that moved since, newest first, and the number for the next call."""
        objects: list[dict[str, Any]] = []
        with self._lock:
            for seen in reversed(self._seen.values()):
                if seen["moves"] <= moves or len(objects) >= most:
                    break
                objects.append({**seen, "t": self.columns.to_json(seen["t"])})
            return objects, self.moves

    def __len__(self) -> int:
        return len(self._seen)


RATE_WINDOW = 10.0  # seconds of the averaging window


class RateMeter:
    """Measures events per second; one thread counts, others read."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def count(self, events: int, now: float | None = None) -> None:
        instant = time.monotonic() if now is None else now
        self._counts.append((instant, events))
        while self._counts and self._counts[0][0] < instant - RATE_WINDOW:
            self._counts.popleft()

    def per_second(self, now: float | None = None) -> float:
        """The average rate of the last seconds.

        >>> pace = RateMeter()
        >>> pace.count(30, now=100.0)
        >>> pace.per_second(now=104.0), pace.per_second(now=120.0)
        (3.0, 0.0)
        """
        instant = time.monotonic() if now is None else now
        return sum(n for at, n in list(self._counts) if at >= instant - RATE_WINDOW) / RATE_WINDOW
