"""The state of subscriptions in the pattern language: an engine for each template."""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ensue.engine.memory_budget import get_machine_memory
from ensue.engine.state_format import pack_state, unpack_state
from ensue.operators.subscriptions.member_registry import Usage
from ensue.operators.subscriptions.query_template import TemplateId
from ensue.operators.subscriptions.template_engine import (
    SelectedMatches,
    TemplateEngine,
    TemplateMatches,
    select_matches,
)
from ensue.operators.subscriptions.template_table import PatternMember, TemplateTable
from ensue.options import Limits
from ensue.runtime.event_buffer import EventBuffer
from ensue.vector.event_table import get_end_times

Ints = npt.NDArray[np.int64]
NONE = np.zeros(0, np.int64)


class TemplateState:
    """The engines of all templates, or of one task's part of them.

    It holds row numbers of the stream; the caller stores the events.
    """

    def __init__(self, table: TemplateTable, limits: Limits, key_group: int = -1, key_groups: int = 1) -> None:
        self.table = table
        self.limits = limits
        self.key_group, self.key_groups = key_group, key_groups
        self.running: dict[tuple[TemplateId, int | None], TemplateEngine] = {}
        self.each: Limits | None = None  # limits of one subscription
        self.failed: TemplateEngine | None = None  # the engine that raised an error
        self._most = limits.compute_memory_bound(get_machine_memory(), os.cpu_count() or 1)
        self._dropped = table.cancelled

    def process(self, events: pa.Table, first: int, rows: Ints, numbers: Ints, versions: Ints) -> list[TemplateMatches]:
        """Matches the next events, of which `rows` are routed to the patterns `numbers`."""
        results = []
        for running, own_rows, own_numbers in self._split_by_engine(rows, numbers, versions):
            keys, places = self.table.rows["key"][own_numbers], self.table.rows["place"][own_numbers]
            with self._meter(running):
                results.append(running.process(events, first, own_rows, keys, places))
        if events.num_rows and self.running:
            results += self._advance_due(get_end_times(events.slice(events.num_rows - 1), self.table.shape)[0])
        return [f for f in results if f.matches.count]

    def _split_by_engine(
        self, rows: Ints, numbers: Ints, versions: Ints
    ) -> Iterator[tuple[TemplateEngine, Ints, Ints]]:
        """Yields the rows of each engine in stream order."""
        visible = self.table.sees(numbers, versions[rows])
        if self.key_group >= 0:
            visible &= self.table.key_groups(numbers, self.key_groups) == self.key_group
        rows, numbers = rows[visible], numbers[visible]
        if not len(rows):
            return
        pairs = np.unique(numbers << 32 | rows)  # an event that fits two variables counts once
        rows, numbers = pairs & 0xFFFFFFFF, pairs >> 32
        begins = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
        owner = np.repeat(np.arange(len(begins)), np.diff([*begins, len(rows)]))
        groups: dict[TemplateEngine, list[int]] = {}
        for place, number in enumerate(numbers[begins].tolist()):
            member = self.table.by_key[int(self.table.rows["key"][number])]
            groups.setdefault(self._get_engine(member), []).append(place)
        for running, places in groups.items():
            selected = np.zeros(len(begins), np.bool_)
            selected[places] = True
            chosen = np.flatnonzero(selected[owner])
            chosen = chosen[np.argsort(rows[chosen], kind="stable")]
            yield running, rows[chosen], numbers[chosen]

    def _get_engine(self, member: PatternMember) -> TemplateEngine:
        shape = member.shape
        key = None if shape.mode.alone is None else member.key
        running = self.running.get((shape.id, key))
        # of an equal template all subscriptions were cancelled
        if running is None or running.shape is not shape:
            running = self.running[shape.id, key] = TemplateEngine(shape, self.limits, key)
        return running

    def _advance_due(self, now: float) -> Iterator[TemplateMatches]:
        """Advances the engines whose deadline has passed."""
        for running in self.running.values():
            waits = running.engine.next_timer()
            if waits is not None and waits < now:
                with self._meter(running):
                    result = running.on_watermark(now)
                yield result

    def on_watermark(self, now: float) -> list[TemplateMatches]:
        """Returns the matches that the watermark `now` completes."""
        results = []
        for running in self.running.values():
            if not running.is_idle:
                with self._meter(running):
                    results.append(running.on_watermark(now))
        return [f for f in results if f.matches.count]

    def select(self, found: TemplateMatches, store: EventBuffer) -> SelectedMatches:
        """Selects the matches that are delivered."""
        with self._meter(found.running):
            return select_matches(found, self.table, store)

    @contextmanager
    def _meter(self, running: TemplateEngine) -> Iterator[None]:
        """Limits and measures an engine, and records it if it fails."""
        if self.each is not None:
            running.limit_each(self.each, self._most)
        try:
            with running.meter.running():
                yield
        except Exception:
            self.failed = running
            raise

    def next_timer(self) -> float | None:
        times = [t for r in self.running.values() if (t := r.engine.next_timer()) is not None]
        return min(times, default=None)

    def get_held_rows(self) -> Ints:
        """Returns the ascending rows of the stream that the engines may need."""
        return np.unique(np.concatenate([NONE, *(r.rows for r in self.running.values())]))

    def list_held_since(self, first: int) -> list[Ints]:
        """Returns the held rows of each engine from a row on."""
        return [r.rows[np.searchsorted(r.rows, first) :] for r in self.running.values()]

    def compact(self) -> None:
        """Drops the rows that are no longer needed."""
        for running in self.running.values():
            running.keep()

    def drop_cancelled(self, store: EventBuffer) -> None:
        """Drops the state of cancelled subscriptions."""
        if self._dropped == self.table.cancelled:
            return
        self._dropped = self.table.cancelled
        for name, running in list(self.running.items()):
            if self._is_cancelled(*name):
                del self.running[name]
            else:
                running.drop(self.table, store)

    def _is_cancelled(self, shape: TemplateId, key: int | None) -> bool:
        return shape not in self.table.shapes or (key is not None and key not in self.table.by_key)

    def get_failure_causes(self) -> dict[str, float]:
        """Returns the subscriptions of the failed engine with their shares in its state."""
        return {} if self.failed is None else self._by_name(self.failed.shares())

    def usage(self) -> Usage:
        """Returns the memory of each subscription, and its CPU time since the last call."""
        sizes: defaultdict[str, float] = defaultdict(float)
        seconds: defaultdict[str, float] = defaultdict(float)
        for running in self.running.values():
            size = int(running.engine.state_bytes)
            spent, running.meter.seconds = running.meter.seconds, 0.0
            for name, share in self._by_name(running.shares()).items():
                sizes[name] += share * size
                seconds[name] += share * spent
        return Usage(sizes, seconds)

    def _by_name(self, shares: Mapping[int, float]) -> dict[str, float]:
        by_key = self.table.by_key
        return {by_key[key].name: share for key, share in shares.items() if key in by_key}

    @property
    def seconds(self) -> float:
        """The CPU time since the last `usage`."""
        return sum(running.meter.seconds for running in self.running.values())

    @property
    def partial_matches(self) -> int:
        return sum(r.engine.partial_matches for r in self.running.values())

    @property
    def state_bytes(self) -> int:
        """The approximate size of `save`'s result."""
        return sum(int(r.engine.state_bytes) + 3 * r.own.nbytes for r in self.running.values())

    def snapshot(self) -> bytes:
        """Returns the state as bytes for `restore`, without the events."""
        arrays: dict[str, Any] = {}
        blobs: dict[str, bytes] = {}
        names = []
        for number, ((shape, key), running) in enumerate(self.running.items()):
            running.keep()
            names.append((shape, key))
            blobs[str(number)] = running.engine.snapshot()
            for attribute in ("own", "rows", "keys"):
                arrays[f"{attribute} {number}"] = getattr(running, attribute)
        return pack_state({"running": names}, arrays, blobs)

    def restore(self, data: bytes) -> None:
        """Continues from a saved state, without cancelled subscriptions."""
        header, arrays, blobs = unpack_state(data)
        self.running = {}
        for number, (shape, key) in enumerate(header["running"]):
            if self._is_cancelled(shape, key):
                continue
            running = TemplateEngine(self.table.shapes[shape], self.limits, key)
            running.engine.restore(blobs[str(number)])
            for attribute in ("own", "rows", "keys"):
                setattr(running, attribute, arrays[f"{attribute} {number}"].astype(np.int64))
            self.running[shape, key] = running
        self._dropped = -1  # some may have been cancelled meanwhile
