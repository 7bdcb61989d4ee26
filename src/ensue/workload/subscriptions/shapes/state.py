"""What is held of the subscriptions in the pattern language: an engine for each shape."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.columns.stream import ends
from ensue.engine.allowance import machine_memory
from ensue.engine.state import packed, unpacked
from ensue.plan.limits import Limits
from ensue.workload.held_events import EventStore
from ensue.workload.subscriptions.shapes.running import Found, Running, Told, told
from ensue.workload.subscriptions.shapes.shape import ShapeId
from ensue.workload.subscriptions.shapes.table import PatternMember, Patterns
from ensue.workload.subscriptions.usage import Usage

Ints = npt.NDArray[np.int64]
NONE = np.zeros(0, np.int64)


class PatternState:
    """The engines of all shapes, or of what one lane has of them.

    It holds rows of the stream by number; whoever feeds it keeps the events.
    """

    def __init__(self, table: Patterns, limits: Limits, lane: int = -1, lanes: int = 1) -> None:
        self.table = table
        self.limits = limits
        self.lane, self.lanes = lane, lanes
        self.running: dict[tuple[ShapeId, int | None], Running] = {}
        self.each: Limits | None = None  # bounds of one subscription
        self.failed: Running | None = None  # the engine in which an error arose
        self._most = limits.bytes_of(machine_memory(), os.cpu_count() or 1)
        self._dropped = table.cancelled

    # ---------------------------------------------------------------------------- going on

    def feed(
        self, events: pa.Table, first: int, rows: Ints, numbers: Ints, versions: Ints
    ) -> list[Found]:
        """What the next events complete, of which `rows` are routed to the patterns `numbers`."""
        found = []
        for running, rows_of, numbers_of in self._dealt(rows, numbers, versions):
            keys, places = self.table.keys(numbers_of), self.table.places(numbers_of)
            with self._metered(running):
                found.append(running.feed(events, first, rows_of, keys, places))
        if events.num_rows and self.running:
            found += self._overdue(ends(events.slice(events.num_rows - 1), self.table.shape)[0])
        return [f for f in found if f.matches.count]

    def _dealt(
        self, rows: Ints, numbers: Ints, versions: Ints
    ) -> Iterator[tuple[Running, Ints, Ints]]:
        """Rows by engine, each in the order of the stream."""
        kept = self.table.sees(numbers, versions[rows])
        if self.lane >= 0:
            kept &= self.table.lanes(numbers, self.lanes) == self.lane
        rows, numbers = rows[kept], numbers[kept]
        if not len(rows):
            return
        pairs = np.unique(numbers << 32 | rows)  # an event that fits two variables comes once
        rows, numbers = pairs & 0xFFFFFFFF, pairs >> 32
        begins = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
        owner = np.repeat(np.arange(len(begins)), np.diff([*begins, len(rows)]))
        groups: dict[Running, list[int]] = {}
        for place, number in enumerate(numbers[begins].tolist()):
            member = self.table.by_number[number]
            assert member is not None
            groups.setdefault(self._of(member), []).append(place)
        for running, places in groups.items():
            wanted = np.zeros(len(begins), np.bool_)
            wanted[places] = True
            chosen = np.flatnonzero(wanted[owner])
            chosen = chosen[np.argsort(rows[chosen], kind="stable")]
            yield running, rows[chosen], numbers[chosen]

    def _of(self, member: PatternMember) -> Running:
        shape = member.shape
        key = None if shape.way.alone is None else member.key
        running = self.running.get((shape.id, key))
        if running is None or running.shape is not shape:  # all of the old one are gone
            running = self.running[shape.id, key] = Running(shape, self.limits, key)
        return running

    def _overdue(self, now: float) -> Iterator[Found]:
        """What has waited for the time that has come."""
        for running in self.running.values():
            waits = running.engine.deadline()
            if waits is not None and waits < now:
                with self._metered(running):
                    found = running.advance(now)
                yield found

    def advance(self, now: float) -> list[Found]:
        """What only waited for time to pass."""
        found = []
        for running in self.running.values():
            if not running.is_idle:
                with self._metered(running):
                    found.append(running.advance(now))
        return [f for f in found if f.matches.count]

    def finish(self) -> list[Found]:
        """What only waited for the stream to end."""
        found = [running.finish() for running in self.running.values()]
        return [f for f in found if f.matches.count]

    def told(self, found: Found, store: EventStore) -> Told:
        """Who is told of it."""
        with self._metered(found.running):
            return told(found, self.table, store)

    @contextmanager
    def _metered(self, running: Running) -> Iterator[None]:
        """Bounds and measures what an engine does; an error is that engine's."""
        if self.each is not None:
            running.bound_each(self.each, self._most)
        try:
            with running.meter.running():
                yield
        except Exception:
            self.failed = running
            raise

    def deadline(self) -> float | None:
        times = [t for r in self.running.values() if (t := r.engine.deadline()) is not None]
        return min(times, default=None)

    # ---------------------------------------------------------------------------- what is held

    def held(self) -> Ints:
        """The rows of the stream that it needs, ascending, and maybe others."""
        return np.unique(np.concatenate([NONE, *(r.rows for r in self.running.values())]))

    def held_since(self, first: int) -> list[Ints]:
        """Those of them from a row on, as each engine has them."""
        return [r.rows[np.searchsorted(r.rows, first) :] for r in self.running.values()]

    def compact(self) -> None:
        """Lets go of the rows that are not needed any more."""
        for running in self.running.values():
            running.keep()

    def drop_gone(self, store: EventStore) -> None:
        """Lets go of what belonged to subscriptions that were cancelled."""
        if self._dropped == self.table.cancelled:
            return
        self._dropped = self.table.cancelled
        for name, running in list(self.running.items()):
            if self._is_gone(*name):
                del self.running[name]
            else:
                running.drop(self.table, store)

    def _is_gone(self, shape: ShapeId, key: int | None) -> bool:
        return shape not in self.table.shapes or (key is not None and key not in self.table.by_key)

    def blamed(self) -> dict[str, float]:
        """The subscriptions of the engine that failed, each with its share in what it holds."""
        return {} if self.failed is None else self._named(self.failed.shares())

    def usage(self) -> Usage:
        """What each subscription holds, and the processor time it took since it was asked last."""
        sizes: defaultdict[str, float] = defaultdict(float)
        seconds: defaultdict[str, float] = defaultdict(float)
        for running in self.running.values():
            size = int(running.engine.state_bytes)
            spent, running.meter.seconds = running.meter.seconds, 0.0
            for name, share in self._named(running.shares()).items():
                sizes[name] += share * size
                seconds[name] += share * spent
        return Usage(sizes, seconds)

    def _named(self, shares: Mapping[int, float]) -> dict[str, float]:
        by_key = self.table.by_key
        return {by_key[key].name: share for key, share in shares.items() if key in by_key}

    @property
    def seconds(self) -> float:
        """Processor time since `usage` was asked last."""
        return sum(running.meter.seconds for running in self.running.values())

    @property
    def partial_matches(self) -> int:
        return sum(r.engine.partial_matches for r in self.running.values())

    @property
    def state_bytes(self) -> int:
        """About as many bytes as `save` gives."""
        return sum(int(r.engine.state_bytes) + 3 * r.own.nbytes for r in self.running.values())

    # ---------------------------------------------------------------------------- state

    def save(self) -> bytes:
        """Everything needed to go on elsewhere, but for the events."""
        arrays: dict[str, Any] = {}
        blobs: dict[str, bytes] = {}
        names = []
        for number, ((shape, key), running) in enumerate(self.running.items()):
            running.keep()
            names.append((shape, key))
            blobs[str(number)] = running.engine.save()
            for what in ("own", "rows", "keys"):
                arrays[f"{what} {number}"] = getattr(running, what)
        return packed({"running": names}, arrays, blobs)

    def restore(self, data: bytes) -> None:
        """Goes on where the saved one stopped, without those that are gone."""
        header, arrays, blobs = unpacked(data)
        self.running = {}
        for number, (shape, key) in enumerate(header["running"]):
            if self._is_gone(shape, key):
                continue
            running = Running(self.table.shapes[shape], self.limits, key)
            running.engine.restore(blobs[str(number)])
            for what in ("own", "rows", "keys"):
                setattr(running, what, arrays[f"{what} {number}"].astype(np.int64))
            self.running[shape, key] = running
        self._dropped = -1  # some may have been cancelled meanwhile
