"""Runs a tower with counters, and tells the estimates of each layer beside what happened."""

from collections.abc import Iterator, Mapping
from time import perf_counter

import numpy as np
import pyarrow as pa

from ensue.columns.stream import ends
from ensue.engine.engine import Engine
from ensue.plan.estimates.analysis import Met, analysed
from ensue.workload.stage import Fed
from ensue.workload.towers.explained import explained
from ensue.workload.towers.live_tower import LiveLayer, LiveTower, Step
from ensue.workload.towers.prepared import PreparedTower

PIECE = 1 << 16  # events between two looks at the partial matches
FIRST = 100  # events that let all kernels be compiled


def analysed_tower(prepared: PreparedTower, events: pa.Table) -> str:
    """The plan of a tower as text, with estimates and actual figures of each layer.

    `events` are in the order of the stream.
    """
    began = perf_counter()
    _run(prepared, events.slice(0, FIRST))  # what is compiled now is told apart
    compiled = perf_counter()
    live = _run(prepared, events)
    done = perf_counter()
    more = {name: one.told() for name, one in live.counted.items()}
    seconds = f"compiling {compiled - began:.3f} s, all layers {done - compiled:.3f} s"
    whole = f"the tower in {events.num_rows:,} events: {seconds}"
    return f"{explained(prepared, more)}\n\n{whole}"


def _run(prepared: PreparedTower, events: pa.Table) -> "_CountingTower":
    live = _CountingTower(prepared)
    for piece in _pieces(events, prepared):
        live.feed(Fed.of(piece))
        live.advance(ends(piece, prepared.shape)[-1].item())  # what is out of its window is gone
    live.finish()
    return live


def _pieces(events: pa.Table, prepared: PreparedTower) -> Iterator[pa.Table]:
    """Events of the same time stay together."""
    times, begin = ends(events, prepared.shape), 0
    while begin < events.num_rows:
        wanted = min(begin + PIECE, events.num_rows)
        end = int(np.searchsorted(times, times[wanted - 1], side="right"))
        yield events.slice(begin, end - begin)
        begin = end


class _Counted:
    """What happened in a layer."""

    def __init__(self, layer: LiveLayer) -> None:
        self.engine = layer.matcher.engine
        self.plan = layer.matcher.prepared.plan
        self.found = self.most = 0
        self.seconds = 0.0

    def told(self) -> str:
        counters = self.engine.counters() if isinstance(self.engine, Engine) else None
        seconds = (("this layer", self.seconds),)
        met = Met(self.engine.rows, self.found, counters, self.most, seconds)
        return analysed(self.plan, met)


class _CountingTower(LiveTower):
    """A tower whose layers count what they try, and how long it takes."""

    def __init__(self, prepared: PreparedTower) -> None:
        super().__init__(prepared)
        self.counted: dict[str, _Counted] = {}
        for layer in self.layers:
            layer.matcher.engine = layer.matcher.prepared.engine(counted=True)
            self.counted[layer.layer.layer.name] = _Counted(layer)

    def _up(self, step: Step) -> list[pa.Table]:
        def counted(layer: LiveLayer, found: Mapping[str, pa.Table]) -> pa.Table:
            began = perf_counter()
            events = step(layer, found)
            one = self.counted[layer.layer.layer.name]
            one.seconds += perf_counter() - began
            one.found += events.num_rows
            one.most = max(one.most, one.engine.partial_matches)
            return events

        return super()._up(counted)
