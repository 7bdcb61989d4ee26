"""Where each object of the stream was seen last: what a map shows."""

import threading
from collections import OrderedDict
from typing import Any

import pyarrow as pa

from ensue.service.columns import Columns
from ensue.service.wording import plain

MOST = 200_000  # objects that are known at a time; those that were silent longest go first


class Objects:
    """The newest event of every object, by the stream's key. Written by one thread."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.moves = 0  # grows with every event: a reader asks for what came since
        self._seen: OrderedDict[Any, dict[str, Any]] = OrderedDict()  # oldest move first
        self._lock = threading.Lock()

    def take(self, events: pa.Table) -> None:
        """Events that were accepted, in order."""
        key = self.columns.stream.key
        if key is None or not events.num_rows:
            return
        names = events.column_names
        ids = events.column(key).to_pylist()
        last = {id: row for row, id in enumerate(ids) if id is not None}
        some = events.take(pa.array(sorted(last.values()))) if len(last) < len(ids) else events
        fields = [plain(some.column(name)) for name in names]
        times = self.columns.seconds(some).tolist()
        xs, ys = self.columns.places(some)
        with self._lock:
            for id, t, x, y, *values in zip(
                some.column(key).to_pylist(), times, xs, ys, *fields, strict=True
            ):
                if id is None:
                    continue
                known = self._seen.get(id)
                if known is not None and known["t"] > t:
                    continue  # out of order: it was elsewhere since
                self.moves += 1
                self._seen[id] = {
                    "id": id, "t": t, "x": x, "y": y, "moves": self.moves,
                    "fields": dict(zip(names, values, strict=True)),
                }  # fmt: skip
                self._seen.move_to_end(id)
            while len(self._seen) > MOST:
                self._seen.popitem(last=False)

    def since(self, moves: int = 0, most: int = MOST) -> tuple[list[dict[str, Any]], int]:
        """Objects that moved since, newest first, and what to ask for next time."""
        found: list[dict[str, Any]] = []
        with self._lock:
            for seen in reversed(self._seen.values()):
                if seen["moves"] <= moves or len(found) >= most:
                    break
                found.append({**seen, "t": self.columns.shown(seen["t"])})
            return found, self.moves

    def __len__(self) -> int:
        return len(self._seen)
