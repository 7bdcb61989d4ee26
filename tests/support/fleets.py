"""Nodes of subscriptions fed with random streams, with leaves that are found by trying all."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from ensue.ir.subscription import EventTest, Subscription
from ensue.kernels.network_tables import NetworkEvents
from ensue.kernels.regions import RegionTable
from ensue.operators.subscriptions.network_state import NetworkState
from ensue.operators.subscriptions.network_table import NetworkTable
from ensue.planner.subscription_network import TimeUnits, plan_network
from ensue.reference.conditions import Event
from ensue.reference.subscription_matches import ReferenceStream, compare_values, find_subscription_matches

Found = tuple[tuple[int, ...], Any, Any]  # members, start, end


@dataclass
class Tried:
    """Leaves that are tried one by one."""

    atoms: dict[int, EventTest] = field(default_factory=dict)
    fits: Any = None  # whether an event passes a region test

    def add(self, atom: EventTest) -> int:
        slot = next(n for n in range(len(self.atoms) + 1) if n not in self.atoms)
        self.atoms[slot] = atom
        return slot

    def cancel(self, slot: int) -> None:
        del self.atoms[slot]

    def reached(self, event: Event) -> list[int]:
        return [slot for slot, atom in self.atoms.items() if self._passes(atom, event)]

    def _passes(self, atom: EventTest, event: Event) -> bool:
        return all(
            event.values[p.name] is not None and compare_values(p.operator, event.values[p.name], p.value)
            for p in atom.predicates
        ) and all(self.fits(test, event) for test in atom.places)


@dataclass
class Nodes:
    """Subscriptions in one table of nodes, and a state that goes on event by event."""

    regions: Any = None
    space: int = 0
    points: bool = True
    key_group: int = -1
    fits: Any = None

    def __post_init__(self) -> None:
        self.tried = Tried(fits=self.fits)
        self.table = NetworkTable(np.int64, self.regions, self.tried)
        self.state = NetworkState(self.table, np.int64, self.space, self._regions, self.key_group)
        self.names: dict[int, Any] = {}

    def _regions(self) -> RegionTable:
        if self.regions is not None:
            return self.regions.table
        return RegionTable(np.zeros((1, 10)), np.zeros((1, 2)))

    def add(self, name: Any, subscription: Subscription, since: int = 0, key_group: int = 0) -> int:
        units = TimeUnits(lambda length: 0 if length is None else length.amount,  # type: ignore[union-attr]
                      lambda moment: moment.at, self.points)  # type: ignore[arg-type, return-value]  # fmt: skip
        roots = plan_network(subscription, units)
        number = self.table.subscribe(roots, subscription.select, since, key_group)
        self.names[number] = name
        return number

    def feed(self, events: Sequence[Event], corners: dict[int, Any], version: int = 0) -> list[tuple[Any, Found]]:
        rows, leaves = [], []
        for row, event in enumerate(events):
            for slot in self.tried.reached(event):
                rows.append(row)
                leaves.append(self.table.leaf_of["node"][slot])
        return self._given(
            self.state.process(
                self.arrays(events, corners, version),
                np.array(rows, np.int32), np.array(leaves, np.int32),
            )
        )  # fmt: skip

    def advance(self, now: int) -> list[tuple[Any, Found]]:
        return self._given(self.state.on_watermark(now))

    def finish(self) -> list[tuple[Any, Found]]:
        return self._given(self.state.on_watermark(math.inf))

    def _given(self, found: Any) -> list[tuple[Any, Found]]:
        return [
            (
                self.names[int(s)],
                (
                    tuple(found.members[found.offsets[k] : found.offsets[k + 1]].tolist()),
                    found.start[k].item(),
                    found.end[k].item(),
                ),
            )
            for k, s in enumerate(found.subscription)
        ]

    def arrays(self, events: Sequence[Event], corners: dict[int, Any], version: int) -> NetworkEvents:
        fields = sorted(self.table.fields, key=lambda name: self.table.fields[name])
        numbers = np.zeros((len(events), len(fields)))
        codes = np.zeros((len(events), len(fields)), np.int64)
        known = np.zeros((len(events), len(fields)), np.int8)
        for row, event in enumerate(events):
            for place, name in enumerate(fields):
                value: Any = event.values[name]
                if value is None:
                    continue
                if isinstance(value, float):
                    numbers[row, place], known[row, place] = value, 2
                else:
                    code = value if isinstance(value, int) else int.from_bytes(value.encode())
                    numbers[row, place], codes[row, place] = code, code
                    known[row, place] = 1
        at = [corners.get(event.position, ()) for event in events]
        first = np.concatenate([[0], np.cumsum([len(c) for c in at])]).astype(np.int64)
        flat = [corner for one in at for corner in one]
        return NetworkEvents(
            np.array([e.position for e in events], np.int64),
            np.full(len(events), version, np.int64),
            np.array([e.start for e in events], np.int64),
            np.array([e.end for e in events], np.int64),
            first,
            np.array([x for x, _ in flat], np.float64),
            np.array([y for _, y in flat], np.float64),
            numbers,
            codes,
            known,
        )


def random_events(random: Random, count: int, *, points: bool = True) -> list[Event]:
    """Events of the fields that random subscriptions speak of, in order."""
    times = sorted(random.randint(0, 12) for _ in range(count))
    found = []
    for position, end in enumerate(times):
        start = end if points else end - random.choice((0, 0, 1, 3))
        values = {
            "id": random.choice((1, 2, 3, None)) if random.random() < 0.1 else random.randint(1, 3),
            "kind": random.choice("abc"),
            "v": random.randint(0, 9),
        }
        found.append(Event(position, "", start, end, values))
    return found


def random_corners(random: Random, events: Sequence[Event]) -> dict[int, Any]:
    """Most are a point, some nowhere, a few a segment or a triangle."""
    found: dict[int, Any] = {}
    for event in events:
        size = random.choice((0, 1, 1, 1, 1, 1, 1, 1, 2, 3))
        if size:
            found[event.position] = tuple(
                (float(random.randint(0, 10)), float(random.randint(0, 10))) for _ in range(size)
            )
    return found


def meant(subscription: Subscription, events: Sequence[Event], corners: dict[int, Any], space: str) -> list[Found]:
    """What the oracle says."""
    stream = ReferenceStream(events, corners, space)
    return [(m.members, m.start, m.end) for m in find_subscription_matches(subscription, stream)]
