"""The state of the shared network of subscriptions, and its update by the next events."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.engine.memory_budget import Usage
from ensue.errors import LimitError, StateError
from ensue.kernels import network_tables
from ensue.kernels.network import TOO_MANY_FOUND, TOO_MANY_HELD, add_timer, run_network
from ensue.kernels.network_compaction import copy_marked, mark_events, mark_needed
from ensue.kernels.network_tables import NetworkEvents, NetworkOutput, NetworkValues
from ensue.kernels.network_values import count_members, gather_members, set_used_position
from ensue.kernels.regions import RegionTable
from ensue.operators.subscriptions.member_registry import CpuMeter
from ensue.operators.subscriptions.network_table import NetworkTable

Ints = npt.NDArray[np.int64]
_FEW = 4_096  # with fewer values, unneeded ones are not dropped


@dataclass(frozen=True, slots=True)
class NetworkMatches:
    """Matches of subscriptions: their start and end times, and their events."""

    subscription: Ints
    start: npt.NDArray[Any]
    end: npt.NDArray[Any]
    offsets: Ints
    members: Ints  # positions in the stream, ascending in each match

    def __len__(self) -> int:
        return len(self.subscription)


class NetworkState:
    """The values that wait at nodes, in one task or in all of them (`key_group` -1)."""

    def __init__(
        self,
        table: NetworkTable,
        time: Any,
        space: int,
        regions: Callable[[], RegionTable | None],
        key_group: int = -1,
        most_held: int = 2**40,
        most_found: int = 2**40,
    ) -> None:
        self.table = table
        self.space = space
        self.regions = regions
        self.key_group = key_group
        self.most_held = most_held
        self.most_found = most_found
        self.meter = CpuMeter()
        self.blamed: dict[int, float] = {}  # shares of subscriptions in the cause of an error
        self.time = np.dtype(time)
        none, no_times = np.zeros(0, np.int64), np.zeros(0, time)
        self.events = NetworkEvents(
            none, none, no_times, no_times, np.zeros(1, np.int64), np.zeros(0), np.zeros(0),
            np.zeros((0, 0)), np.zeros((0, 0), np.int64), np.zeros((0, 0), np.int8),
        )  # fmt: skip
        self._kept = 0
        self._seeded: set[int] = set()
        # of the set; absences between moments of later versions have not started
        self.version = int(network_tables.NEVER)
        self.held = NetworkValues(
            np.zeros((64, network_tables.WIDTH), np.int64),
            np.zeros((64, 2), time),
            np.zeros((64, 3), np.int32),
            np.full((0, 2), -1, np.int32),
            np.zeros((16, 2), np.int64),
            np.zeros(16, time),
            np.full(0, -1, np.int64),
            np.zeros((16, 3), np.int64),
            np.zeros(5, np.int64),
            np.zeros(1, time),
        )

    def process(self, new: NetworkEvents, rows: npt.NDArray[np.int32], leaves: Any) -> NetworkMatches:
        """Matches the next events, numbered by `rows`, with the `leaves` that each reaches."""
        self._apply_changes()
        before = len(self.events.position)
        self.events = append_events(self.events, new, len(self.table.fields))
        return self._run(rows + np.int32(before), leaves, self._never, flush=False)

    def on_watermark(self, now: Any) -> NetworkMatches:
        """Passes time: no further event ends before `now`; infinity ends the stream."""
        over = now == np.inf
        self._apply_changes()
        empty = np.zeros(0, np.int32)
        return self._run(empty, empty, self._never if over else self.time.type(now), flush=over)

    @property
    def _never(self) -> Any:
        """A time before all others."""
        if self.time.kind == "f":
            return self.time.type(-np.inf)
        return self.time.type(np.iinfo(self.time).min)

    def _run(self, rows: Any, leaves: Any, upto: Any, *, flush: bool) -> NetworkMatches:
        output = NetworkOutput(np.zeros((max(64, len(rows)), 4), np.int64), np.zeros(2, np.int64))
        with self.meter.running():
            self.held, output = run_network(
                self.table.arrays(), self.events, self.held, output, rows, leaves, self.regions(),
                self.space, self.key_group, upto, flush, self.most_held, self.most_found,
            )  # fmt: skip
        count, status = output.counted
        if status == TOO_MANY_HELD:
            self.blamed = self.shares()
            raise LimitError(
                f"subscriptions hold more than {self.most_held:,} partial matches\n"
                "  hint: bound them with WITH within = ..., or raise "
                "ensue.Limits(max_partial_matches=...)"
            )
        if status == TOO_MANY_FOUND:
            numbers, matches = np.unique(output.rows[:count, 0], return_counts=True)
            self.blamed = dict(zip(numbers.tolist(), matches.tolist(), strict=True))
            raise LimitError(
                f"subscriptions have found more than {self.most_found:,} matches\n"
                "  hint: WITH select = latest returns one for each event that completes any; "
                "or raise ensue.Limits(max_matches=...)"
            )
        delivered = self._collect_matches(output.rows[:count])
        if self.held.counted[0] > max(_FEW, 2 * self._kept, len(self.held.heads) // 2):
            self.compact()
        return delivered

    def _collect_matches(self, rows: Ints) -> NetworkMatches:
        offsets = np.zeros(len(rows) + 1, np.int64)
        members = np.zeros(count_members(self.held.instances, rows), np.int64)
        gather_members(self.held.instances, rows, offsets, members)
        times = self.held.times[rows[:, 1]]
        positions = self.events.position[members] if len(members) else members
        return NetworkMatches(rows[:, 0].copy(), times[:, 0], times[:, 1], offsets, positions)

    def _apply_changes(self) -> None:
        """Reserves space for new nodes, and starts new absences between moments."""
        self._reserve()
        for node, since in self.table.seeds.items():
            if node not in self._seeded and since <= self.version:
                self._seed(node)
        self._seeded &= self.table.seeds.keys()

    def _reserve(self) -> None:
        """Reserves space for new nodes and subscriptions."""
        held, table = self.held, self.table
        if len(held.heads) < table.size:
            self.held = held = held._replace(heads=_grow(held.heads, table.size, -1))
        if len(held.used) < table.subscriptions:
            self.held = held._replace(used=_grow(held.used, table.subscriptions, -1))

    def skip_past(self, now: float) -> None:
        """Drops new absences that start before `now`: part of their interval was not observed."""
        begins = self.table.arrays().absence_times
        for node, since in self.table.seeds.items():
            if since <= self.version and node not in self._seeded and begins[node, 1] < now:
                self._seeded.add(node)

    def _seed(self, node: int) -> None:
        """Starts the single value of an absence between moments."""
        nodes, held = self.table.arrays(), self.held
        if self.key_group >= 0:
            bit = np.uint64(1 << (self.key_group & 63))
            if not nodes.key_groups[node] & bit:
                return
        self._seeded.add(node)
        instances, cells, timers = (int(n) for n in held.counted[:3])
        if instances + 2 > len(held.instances):
            held = held._replace(instances=_grow(held.instances), times=_grow(held.times))
        if cells == len(held.cells):
            held = held._replace(cells=_grow(held.cells))
        if timers == len(held.heap):
            held = held._replace(heap=_grow(held.heap), heap_times=_grow(held.heap_times))
        length, at = nodes.absence_times[node]
        never = network_tables.NEVER
        held.instances[instances] = (-1, -1, -1, -1, never, -1, never, network_tables.THERE, -1)
        instance = instances + 1
        held.instances[instance] = (node, -1, instances, -1, never, -1, never, network_tables.PENDING, -1)
        held.times[instances : instances + 2] = (at, at + length)
        held.cells[cells] = (instance, held.heads[node, 0], -1)
        held.heads[node, 0] = cells
        height = int(nodes.height[node])
        add_timer(held.heap, held.heap_times, timers, instance, height, at + length)
        held.counted[:3] = (instances + 2, cells + 1, timers + 1)
        self.held = held

    def compact(self) -> None:
        """Drops all values and events that no match can use."""
        self._apply_changes()
        nodes, held = self.table.arrays(), self.held
        alive = np.zeros(len(held.heads), np.int8)
        alive[: self.table.size] = self.table.alive()
        marks = np.zeros(held.counted[0], np.int8)
        instance_count, cell_count = mark_needed(nodes, held, marks, alive)
        is_needed = np.zeros(len(self.events.position), np.int8)
        mark_events(held.instances, held.counted[0], marks, is_needed)
        needed_rows = np.flatnonzero(is_needed)
        new_rows = np.full(len(is_needed), -1, np.int64)
        new_rows[needed_rows] = np.arange(len(needed_rows))
        instances = np.zeros((max(64, 2 * instance_count), network_tables.WIDTH), np.int64)
        times = np.zeros((len(instances), 2), self.time)
        cells = np.zeros((max(64, 2 * cell_count), 3), np.int32)
        timer_count = copy_marked(held, marks, new_rows, instances, times, cells)
        held.counted[:3] = (instance_count, cell_count, timer_count)
        self.held = held._replace(instances=instances, times=times, cells=cells)
        self.events = select_events(self.events, needed_rows)
        self._kept = instance_count

    @property
    def usage(self) -> Usage:
        """The held values, with those that the next compaction drops."""
        instances, cells, timers = (int(n) for n in self.held.counted[:3])
        events = sum(array.nbytes for array in self.events)
        tables = sum(array.nbytes for array in self.held)
        return Usage(cells, 80 * instances + 12 * cells + 16 * timers + events, tables + events)

    def shares(self) -> dict[int, float]:
        """Returns how many values each subscription holds, by number; shared ones are divided."""
        nodes = self.held.instances[: int(self.held.counted[0]), network_tables.NODE]
        return self.table.shares(np.bincount(nodes[nodes >= 0], minlength=self.table.size))

    @property
    def now(self) -> float | None:
        """The current stream time; None before the first event."""
        return self.held.clock[0].item() if self.held.counted[3] else None

    @property
    def held_rows(self) -> Ints:
        """The rows of the stream that later matches may contain."""
        return self.events.position

    def next_timer(self) -> float | None:
        """Returns the time after which something is decided without events."""
        return self.held.heap_times[0].item() if self.held.counted[2] else None

    def get_consumed(self) -> tuple[Ints, Ints]:
        """Returns the position up to which subscriptions have consumed events, and by key."""
        consuming = np.flatnonzero(self.held.used >= 0)
        tied = self.held.tied[self.held.tied[:, 0] > 0]
        return np.stack([consuming, self.held.used[consuming]], axis=1), tied - (1, 0, 0)

    def restore_consumed(self, used: Ints, tied: Ints) -> None:
        """Restores what was consumed, by the subscription numbers of this process."""
        self._reserve()
        self.held.used[:] = -1
        self.held.used[used[:, 0]] = used[:, 1]
        table = np.zeros((16, 3), np.int64)
        for keys, (subscription, key, position) in enumerate(tied.tolist()):
            table = set_used_position(table, keys, subscription, key, position)
        self.held = self.held._replace(tied=table)
        self.held.counted[4] = len(tied)

    def snapshot(self) -> dict[str, npt.NDArray[Any]]:
        """Returns the state by keys of nodes, since numbers differ between processes."""
        self.compact()
        held = self.held
        instance_count, cell_count, timer_count, started, _ = (int(n) for n in held.counted)
        nodes = np.flatnonzero((held.heads >= 0).any(axis=1))
        instances = held.instances[:instance_count].copy()
        known = instances[:, 0] >= 0
        numbers = np.unique(np.concatenate([nodes, instances[known, 0]]))
        instances[known, 0] = np.searchsorted(numbers, instances[known, 0])
        cells = held.cells[:cell_count].copy()
        inputs = map(self.table.list_inputs, numbers.tolist())
        edges = {edge: place for listed in inputs for place, (_, edge) in enumerate(listed)}
        cells[:, 2] = [edges.get(e, -1) for e in cells[:, 2].tolist()]
        return {
            "seeds": self.table.get_keys(np.array(sorted(self._seeded), np.int64)),
            "keys": self.table.get_keys(numbers),
            "instances": instances,
            "times": held.times[:instance_count],
            "cells": cells,
            "listed": np.searchsorted(numbers, nodes),
            "heads": held.heads[nodes],
            "heap": held.heap[:timer_count, 0],
            "heap_times": held.heap_times[:timer_count],
            "clock": held.clock,
            "started": np.array([started]),
            **{f"event {name}": value for name, value in self.events._asdict().items()},
        }

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Continues from a saved state, without nodes that no subscription uses."""
        numbers = self._find_nodes(saved["keys"])
        if saved["times"].dtype != self.time:
            raise StateError("the state of subscriptions was saved for another time column")
        instances = _instances(saved)
        known = instances[:, 0] >= 0
        instances[known, 0] = numbers[instances[known, 0]] if len(numbers) else -1
        cells = np.array(saved["cells"], np.int32).reshape(-1, 3)
        self._reserve()
        heads = self.held.heads
        heads[:] = -1
        for number, head_cells in zip(saved["listed"].tolist(), saved["heads"].tolist(), strict=True):
            node = int(numbers[number])
            if node < 0:
                continue
            heads[node] = head_cells
            inputs = self.table.list_inputs(node)
            for cell in head_cells:
                while cell >= 0:
                    edge = int(cells[cell, 2])
                    cells[cell, 2] = inputs[edge][1] if edge >= 0 else -1
                    cell = int(cells[cell, 1])
        instance_count, cell_count, timer_count = len(instances), len(cells), len(saved["heap"])
        heap = np.zeros((max(16, 2 * timer_count), 2), np.int64)
        heap_times = np.zeros(len(heap), self.time)
        height = self.table.arrays().height
        for k, (instance, due) in enumerate(zip(saved["heap"].tolist(), saved["heap_times"], strict=True)):
            node = instances[instance, 0]
            add_timer(heap, heap_times, k, instance, int(height[node]) if node >= 0 else 0, due)
        gone = instances[:, 0] < 0
        gone &= _instances(saved)[:, 0] >= 0
        instances[gone, 7] = network_tables.BARRED  # no subscription uses it
        self.held = self.held._replace(
            instances=_grow(instances),
            times=_grow(np.array(saved["times"]).reshape(-1, 2)),
            cells=_grow(cells), heap=heap, heap_times=heap_times,
            counted=np.array(
                [instance_count, cell_count, timer_count, int(saved["started"][0]), 0]
            ),
            clock=np.array(saved["clock"]),
        )  # fmt: skip
        self.events = NetworkEvents(*(np.array(saved[f"event {name}"]) for name in NetworkEvents._fields))
        self._seeded = set(self._find_nodes(saved["seeds"]).tolist()) - {-1}
        self._kept = instance_count

    def _find_nodes(self, keys: npt.NDArray[Any]) -> Ints:
        """Returns the numbers of the nodes with these keys; -1: no subscription uses it."""
        found = [self.table.keys.find(key.tobytes()) for key in keys.astype(">u8")]
        return np.array(found, np.int64)


def _instances(saved: dict[str, npt.NDArray[Any]]) -> Ints:
    return np.array(saved["instances"], np.int64).reshape(-1, network_tables.WIDTH)


def _grow(rows: npt.NDArray[Any], least: int = 64, fill: int = 0) -> npt.NDArray[Any]:
    """Doubles an array, to at least `least` rows."""
    longer = np.full((max(least, 2 * len(rows)), *rows.shape[1:]), fill, rows.dtype)
    longer[: len(rows)] = rows
    return longer


# ------------------------------------------------------------------------------ events


def append_events(held: NetworkEvents, new: NetworkEvents, fields: int) -> NetworkEvents:
    """Appends events; earlier ones lack fields that are compared since then."""

    def widen(rows: Any) -> Any:
        if rows.ndim == 1 or rows.shape[1] == fields:
            return rows
        return np.pad(rows, ((0, 0), (0, fields - rows.shape[1])))

    events = NetworkEvents(*(np.concatenate([widen(a), widen(b)]) for a, b in zip(held, new, strict=True)))
    corner = np.concatenate([held.corner, held.corner[-1] + new.corner[1:]])
    return events._replace(corner=corner)


def select_events(events: NetworkEvents, rows: Ints) -> NetworkEvents:
    lengths = np.diff(events.corner)[rows]
    corner = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=corner[1:])
    corners = np.repeat(events.corner[:-1][rows] - corner[:-1], lengths) + np.arange(corner[-1])
    return NetworkEvents(
        events.position[rows], events.version[rows], events.start[rows], events.end[rows], corner,
        events.x[corners], events.y[corners], events.numbers[rows], events.codes[rows],
        events.known[rows],
    )  # fmt: skip
