"""What is held at the nodes of subscriptions, and how it goes on with the next events."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ensue.errors import LimitError, StateError
from ensue.kernels import node_tables as layout
from ensue.kernels.node_compaction import events_of, moved, needed
from ensue.kernels.node_selection import gathered, member_count, with_key
from ensue.kernels.node_tables import Events, Found, Held
from ensue.kernels.nodes import TOO_MANY_FOUND, TOO_MANY_HELD, add_timer, longer, longer_row, step
from ensue.kernels.regions import RegionTable
from ensue.workload.subscriptions.nodes.table import NodeTable
from ensue.workload.subscriptions.usage import Meter

Ints = npt.NDArray[np.int64]
_FEW = 4_096  # values that are kept without asking which of them matter


@dataclass(frozen=True, slots=True)
class Delivered:
    """Matches that were found: who gets them, from when to when, and their events."""

    subscription: Ints
    start: npt.NDArray[Any]
    end: npt.NDArray[Any]
    offsets: Ints
    members: Ints  # positions in the stream, ascending in each match

    def __len__(self) -> int:
        return len(self.subscription)


class NodeState:
    """The values that wait at nodes, in one lane or in all of them (`lane` -1)."""

    def __init__(
        self,
        table: NodeTable,
        time: Any,
        space: int,
        regions: Callable[[], RegionTable | None],
        lane: int = -1,
        most_held: int = 2**40,
        most_found: int = 2**40,
    ) -> None:
        self.table = table
        self.space = space
        self.regions = regions
        self.lane = lane
        self.most_held = most_held
        self.most_found = most_found
        self.meter = Meter()
        self.blamed: dict[int, float] = {}  # by subscription, what an error arose from
        self.time = np.dtype(time)
        self.events = no_events(time, 0)
        self._kept = 0
        self._seeded: set[int] = set()
        self.version: int = int(layout.NEVER)  # of the set, up to which absences of no event begin
        self.held = Held(
            np.zeros((64, layout.WIDTH), np.int64),
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

    # ---------------------------------------------------------------------------- going on

    def feed(self, new: Events, rows: npt.NDArray[np.int32], leaves: Any) -> Delivered:
        """The next events, and which leaves each reaches; `rows` are places in the new ones."""
        self._renew()
        before = len(self.events.position)
        self.events = together(self.events, new, len(self.table.fields))
        return self._run(rows + np.int32(before), leaves, self._never, flush=False)

    def advance(self, now: Any) -> Delivered:
        """Time has come to `now`: no event that ends before it comes any more."""
        return self._pass(self.time.type(now), flush=False)

    def finish(self) -> Delivered:
        """The stream is over."""
        return self._pass(self._never, flush=True)

    @property
    def _never(self) -> Any:
        """A time before all others."""
        if self.time.kind == "f":
            return self.time.type(-np.inf)
        return self.time.type(np.iinfo(self.time).min)

    def _pass(self, upto: Any, *, flush: bool) -> Delivered:
        self._renew()
        nothing = np.zeros(0, np.int32)
        return self._run(nothing, nothing, upto, flush=flush)

    def _run(self, rows: Any, leaves: Any, upto: Any, *, flush: bool) -> Delivered:
        found = Found(np.zeros((max(64, len(rows)), 4), np.int64), np.zeros(2, np.int64))
        with self.meter.running():
            self.held, found = step(
                self.table.arrays(), self.events, self.held, found, rows, leaves, self.regions(),
                self.space, self.lane, upto, flush, self.most_held, self.most_found,
            )  # fmt: skip
        count, status = found.counted
        if status == TOO_MANY_HELD:
            self.blamed = self.shares()
            raise LimitError(
                f"subscriptions hold more than {self.most_held:,} partial matches\n"
                "  hint: bound them with WITH within = ..., or raise max_partial_matches="
            )
        if status == TOO_MANY_FOUND:
            numbers, matches = np.unique(found.rows[:count, 0], return_counts=True)
            self.blamed = dict(zip(numbers.tolist(), matches.tolist(), strict=True))
            raise LimitError(
                f"subscriptions have found more than {self.most_found:,} matches\n"
                "  hint: WITH select = latest gives one for each event that completes any; "
                "or raise max_matches="
            )
        delivered = self._delivered(found.rows[:count])
        if self.held.counted[0] > max(_FEW, 2 * self._kept, len(self.held.heads) // 2):
            self.compact()
        return delivered

    def _delivered(self, rows: Ints) -> Delivered:
        offsets = np.zeros(len(rows) + 1, np.int64)
        members = np.zeros(member_count(self.held.instances, rows), np.int64)
        gathered(self.held.instances, rows, offsets, members)
        times = self.held.times[rows[:, 1]]
        positions = self.events.position[members] if len(members) else members
        return Delivered(rows[:, 0].copy(), times[:, 0], times[:, 1], offsets, positions)

    # ---------------------------------------------------------------------------- the set changes

    def _renew(self) -> None:
        """Room for what has come, and the absences of no event begin."""
        self._room()
        for node, since in self.table.seeds.items():
            if node not in self._seeded and since <= self.version:
                self._seed(node)
        self._seeded &= self.table.seeds.keys()

    def _room(self) -> None:
        """Room for nodes and subscriptions that have come."""
        heads, used = self.held.heads, self.held.used
        if len(heads) < self.table.size:
            more = np.full((max(self.table.size, 2 * len(heads)), 2), -1, np.int32)
            more[: len(heads)] = heads
            self.held = self.held._replace(heads=more)
        if len(used) < self.table.subscriptions:
            longer_used = np.full(max(self.table.subscriptions, 2 * len(used)), -1, np.int64)
            longer_used[: len(used)] = used
            self.held = self.held._replace(used=longer_used)

    def skip_past(self, now: float) -> None:
        """New absences between moments that begin before `now` are never known: part of their
        interval was not watched."""
        begins = self.table.arrays().absence_times
        for node, since in self.table.seeds.items():
            if since <= self.version and node not in self._seeded and begins[node, 1] < now:
                self._seeded.add(node)

    def _seed(self, node: int) -> None:
        """The one value of an absence between moments begins to wait."""
        nodes = self.table.arrays()
        if self.lane >= 0 and not nodes.lanes[node] & np.uint64(1 << (self.lane & 63)):
            return
        self._seeded.add(node)
        made, linked, timers = (int(n) for n in self.held.counted[:3])
        held = self.held
        if made + 2 > len(held.instances):
            held = held._replace(
                instances=longer(held.instances, 2 * made + 2),
                times=longer(held.times, 2 * made + 2),
            )
        if linked == len(held.cells):
            held = held._replace(cells=longer(held.cells, 2 * linked))
        if timers == len(held.heap):
            held = held._replace(
                heap=longer(held.heap, 2 * timers),
                heap_times=longer_row(held.heap_times, 2 * timers),
            )
        length, at = nodes.absence_times[node]
        for place, (of, right) in enumerate(((-1, -1), (node, made)), made):
            state = layout.THERE if of < 0 else layout.PENDING
            held.instances[place] = (of, -1, right, -1, layout.NEVER, -1, layout.NEVER, state, -1)
            held.times[place] = (at, at + length)
        held.cells[linked] = (made + 1, held.heads[node, 0], -1)
        held.heads[node, 0] = linked
        add_timer(
            held.heap, held.heap_times, timers, made + 1, int(nodes.height[node]), at + length
        )
        held.counted[:3] = (made + 2, linked + 1, timers + 1)
        self.held = held

    # ---------------------------------------------------------------------------- memory

    def compact(self) -> None:
        """Lets go of all that no match can use."""
        self._renew()
        nodes, held = self.table.arrays(), self.held
        alive = np.zeros(len(held.heads), np.int8)
        alive[: self.table.size] = self.table.alive()
        marks = np.zeros(held.counted[0], np.int8)
        made, linked = needed(nodes, held, marks, alive)
        wanted = np.zeros(len(self.events.position), np.int8)
        events_of(held.instances, held.counted[0], marks, wanted)
        kept = np.flatnonzero(wanted)
        places = np.full(len(wanted), -1, np.int64)
        places[kept] = np.arange(len(kept))
        instances = np.zeros((max(64, 2 * made), layout.WIDTH), np.int64)
        times = np.zeros((len(instances), 2), self.time)
        cells = np.zeros((max(64, 2 * linked), 3), np.int32)
        timers = moved(held, marks, places, instances, times, cells)
        held.counted[:3] = (made, linked, timers)
        self.held = held._replace(instances=instances, times=times, cells=cells)
        self.events = some_events(self.events, kept)
        self._kept = made

    @property
    def partial_matches(self) -> int:
        """How many values are held, those included that are let go when it is looked through."""
        return int(self.held.counted[1])

    def shares(self) -> dict[int, float]:
        """How many values each subscription holds, by its number; shared ones are divided."""
        nodes = self.held.instances[: int(self.held.counted[0]), layout.NODE]
        return self.table.shares(np.bincount(nodes[nodes >= 0], minlength=self.table.size))

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        return sum(a.nbytes for a in (*self.held, *self.events))

    @property
    def now(self) -> float | None:
        """The time that has come; None: none yet."""
        return self.held.clock[0].item() if self.held.counted[3] else None

    @property
    def saved_bytes(self) -> int:
        """About as many bytes as `save` gives: what is held, not the room for it."""
        made, linked, timers = (int(n) for n in self.held.counted[:3])
        return 80 * made + 12 * linked + 16 * timers + sum(a.nbytes for a in self.events)

    def deadline(self) -> float | None:
        """The time behind which something happens by itself."""
        return self.held.heap_times[0].item() if self.held.counted[2] else None

    # ---------------------------------------------------------------------------- state

    def used_up(self) -> tuple[Ints, Ints]:
        """Subscriptions and up to where their events are used up, and the same by key."""
        some = np.flatnonzero(self.held.used >= 0)
        tied = self.held.tied[self.held.tied[:, 0] > 0]
        return np.stack([some, self.held.used[some]], axis=1), tied - (1, 0, 0)

    def use_up(self, used: Ints, tied: Ints) -> None:
        """Goes on with what was used up; subscriptions by their numbers here."""
        self._room()
        self.held.used[:] = -1
        self.held.used[used[:, 0]] = used[:, 1]
        table = np.zeros((16, 3), np.int64)
        for keys, (subscription, key, position) in enumerate(tied.tolist()):
            table = with_key(table, keys, subscription, key, position)
        self.held = self.held._replace(tied=table)
        self.held.counted[4] = len(tied)

    def save(self) -> dict[str, npt.NDArray[Any]]:
        """All of it, by the keys of nodes: numbers of nodes mean nothing elsewhere."""
        self.compact()
        held = self.held
        made, linked, timers, started, _ = (int(n) for n in held.counted)
        nodes = np.flatnonzero((held.heads >= 0).any(axis=1))
        instances = held.instances[:made].copy()
        numbers = np.unique(np.concatenate([nodes, instances[:, 0][instances[:, 0] >= 0]]))
        rows = [self.table.by_number[n] for n in numbers.tolist()]
        assert all(row is not None for row in rows)
        keys = b"".join(row.key for row in rows if row is not None)
        known = instances[:, 0] >= 0
        instances[known, 0] = np.searchsorted(numbers, instances[known, 0])
        cells = held.cells[:linked].copy()
        edges = {e: n for row in rows if row for n, (_, e) in enumerate(row.children)}
        cells[:, 2] = [edges.get(e, -1) for e in cells[:, 2].tolist()]
        seeds = [self.table.by_number[node] for node in sorted(self._seeded)]
        return {
            "seeds": np.frombuffer(b"".join(r.key for r in seeds if r is not None), np.uint8),
            "keys": np.frombuffer(keys, np.uint8),
            "instances": instances,
            "times": held.times[:made],
            "cells": cells,
            "listed": np.searchsorted(numbers, nodes),
            "heads": held.heads[nodes],
            "heap": held.heap[:timers, 0],
            "heap_times": held.heap_times[:timers],
            "clock": held.clock,
            "started": np.array([started]),
            **{f"event {name}": value for name, value in self.events._asdict().items()},
        }

    def restore(self, saved: dict[str, npt.NDArray[Any]]) -> None:
        """Goes on with what was saved; what nobody asks for any more is left out."""
        keys = saved["keys"].tobytes()
        rows = [self.table.rows.get(keys[k : k + 16]) for k in range(0, len(keys), 16)]
        numbers = np.array([-1 if row is None else row.node for row in rows], np.int64)
        if saved["times"].dtype != self.time:
            raise StateError("the state of subscriptions was saved for another time column")
        instances = _instances(saved)
        known = instances[:, 0] >= 0
        instances[known, 0] = numbers[instances[known, 0]] if len(numbers) else -1
        cells = np.array(saved["cells"], np.int32).reshape(-1, 3)
        self._room()
        heads = self.held.heads
        heads[:] = -1
        for place, both in zip(saved["listed"].tolist(), saved["heads"].tolist(), strict=True):
            row = rows[place]
            if row is None:
                continue
            heads[row.node] = both
            for cell in both:
                while cell >= 0:
                    edge = int(cells[cell, 2])
                    cells[cell, 2] = row.children[edge][1] if edge >= 0 else -1
                    cell = int(cells[cell, 1])
        made, linked, timers = len(instances), len(cells), len(saved["heap"])
        heap = np.zeros((max(16, 2 * timers), 2), np.int64)
        heap_times = np.zeros(len(heap), self.time)
        height = self.table.arrays().height
        for k, (instance, due) in enumerate(
            zip(saved["heap"].tolist(), saved["heap_times"], strict=True)
        ):
            node = instances[instance, 0]
            add_timer(heap, heap_times, k, instance, int(height[node]) if node >= 0 else 0, due)
        gone = instances[:, 0] < 0
        gone &= _instances(saved)[:, 0] >= 0
        instances[gone, 7] = layout.BARRED  # nobody asks for it
        self.held = self.held._replace(
            instances=_with_room(instances),
            times=_with_room(np.array(saved["times"]).reshape(-1, 2)),
            cells=_with_room(cells), heap=heap, heap_times=heap_times,
            counted=np.array([made, linked, timers, int(saved["started"][0]), 0]),
            clock=np.array(saved["clock"]),
        )  # fmt: skip
        self.events = Events(*(np.array(saved[f"event {name}"]) for name in Events._fields))
        seeds = saved["seeds"].tobytes()
        known_seeds = (self.table.rows.get(seeds[k : k + 16]) for k in range(0, len(seeds), 16))
        self._seeded = {row.node for row in known_seeds if row is not None}
        self._kept = made


def _instances(saved: dict[str, npt.NDArray[Any]]) -> Ints:
    """The saved instances; those of earlier states were barred by nothing."""
    count = len(saved["times"].reshape(-1, 2))
    rows = np.array(saved["instances"], np.int64)
    rows = rows.reshape(count, rows.size // max(1, count))
    found = np.full((count, layout.WIDTH), -1, np.int64)
    found[:, : rows.shape[1]] = rows
    return found


def _with_room(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    found = np.zeros((max(64, 2 * len(rows)), *rows.shape[1:]), rows.dtype)
    found[: len(rows)] = rows
    return found


# ------------------------------------------------------------------------------ events


def no_events(time: Any, fields: int) -> Events:
    """None."""
    none, nothing = np.zeros(0, np.int64), np.zeros(0)
    return Events(
        none, none, np.zeros(0, time), np.zeros(0, time), np.zeros(1, np.int64), nothing, nothing,
        np.zeros((0, fields)), np.zeros((0, fields), np.int64), np.zeros((0, fields), np.int8),
    )  # fmt: skip


def together(a: Events, b: Events, fields: int) -> Events:
    """Events, and those that come behind them."""
    corner = np.concatenate([a.corner, a.corner[-1] + b.corner[1:]])

    def wide(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        found = np.zeros((len(rows), fields), rows.dtype)
        found[:, : rows.shape[1]] = rows
        return found

    def both(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.concatenate([x, y])

    return Events(
        both(a.position, b.position), both(a.version, b.version), both(a.start, b.start),
        both(a.end, b.end), corner, both(a.x, b.x), both(a.y, b.y),
        both(wide(a.numbers), wide(b.numbers)), both(wide(a.codes), wide(b.codes)),
        both(wide(a.known), wide(b.known)),
    )  # fmt: skip


def some_events(events: Events, rows: Ints) -> Events:
    """Only those of some rows."""
    lengths = np.diff(events.corner)[rows]
    corner = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths, out=corner[1:])
    picked = np.repeat(events.corner[:-1][rows] - corner[:-1], lengths) + np.arange(corner[-1])
    return Events(
        events.position[rows], events.version[rows], events.start[rows], events.end[rows], corner,
        events.x[picked], events.y[picked], events.numbers[rows], events.codes[rows],
        events.known[rows],
    )  # fmt: skip
