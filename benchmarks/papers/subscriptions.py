"""The experiments of the paper on space-time subscriptions: all matches, messages, memory.

`python -m benchmarks.papers.subscriptions [--quick]`. Three runs, one for each of the paper's
subscriptions (a vehicle has left, has arrived, has strayed from its convoy): 5,000 of the kind,
then 20,000 events at 2,000 a second, of which every two (the convoy: four) that follow each
other are a match. All planted matches must be found, by everybody who is measured:

- *subscriptions*: one set; the processor's time to add them, to make them ready, and to match;
- *list of queries*: the same subscriptions in the pattern language (`ensue.show`), as a list
  given to `ensue.match`. 5,000 are too many for it: fewer are run, and the time is scaled up;
- *fat client*: events are routed by the same index to whoever has an atom that they satisfy, and
  each client matches by itself, in plain Python.

Messages are counted, not sent: those between parts of the system, which forward an event to the
part that holds a subscription if one of its atoms is satisfied, and those to clients. Beside the
paper's stream there are two of the same length in which one event in a hundred is part of a
match: the other vehicles are *parked* where an atom is satisfied, or *elsewhere*.
"""

import argparse
import gc
import json
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.papers.fat_client import CLIENTS, Client, Report
from benchmarks.tables import Sheet
from benchmarks.timing import Clock
from ensue.algebra.alternatives import alternatives
from ensue.algebra.event_test import EventTest
from ensue.columns.location import places_of
from ensue.columns.regions import Regions
from ensue.columns.stream import Shape, slices
from ensue.kernels.geometry import PLANE
from ensue.languages.opsl import parse
from ensue.plan.limits import Limits
from ensue.workload.source import Source
from ensue.workload.subscriptions.fleet import Fleet, fleet_of
from ensue.workload.subscriptions.matcher import FleetMatcher
from ensue.workload.subscriptions.routing.index import AtomIndex

RESULTS = Path(__file__).parent.parent / "results"
SUBSCRIPTIONS, EVENTS = 5_000, 20_000
SECOND = 2_000  # events
STEP = 500  # microseconds between them
YARD, APART = 100, 1_000  # metres: of a yard, and from one to the next
IN_TIME = 10_000  # microseconds
HERE: dict[str, Any] = {"time": "ts", "type": "type", "location": ("x", "y")}

LEFT = """=|(@(Region1)(A); 10 milliseconds)(DIST(Region1; >; 300)(A)),
    A = (ARITH:id = {n}, STRING:type = 'truck'), Region1 = {yard}"""
ARRIVED = """=|(DIST(Region2; >; 300)(A); 10 milliseconds)(@(Region2)(A)),
    A = (ARITH:id = {n}, STRING:type = 'truck'), Region2 = {yard}"""
STRAYED = """=|($e1;; 10 milliseconds)($e2;),
    $e1; = (|($A;)($B;) && DIST($A;; <; 50)($B;)),
    $e2; = (|($C;)($D;) && DIST($C;; >; 50)($D;)),
    $A; = E-A, $B; = E-B, $C; = E-A, $D; = E-B,
    E-A = (ARITH:id = {follower}, STRING:type = 'truck'),
    E-B = (ARITH:id = {n}, STRING:type = 'truck')
    WITH concurrent = 1 millisecond"""


@dataclass(frozen=True)
class Kind:
    """One of the paper's subscriptions, and the events that match it: (follower?, x in a yard)."""

    name: str
    text: str
    story: tuple[tuple[bool, float], ...]
    parked: tuple[tuple[bool, float], ...]  # satisfies atoms, and completes nothing

    def opsl(self, n: int) -> str:
        x, end = n * APART, n * APART + YARD
        yard = f"POLYGON (({x} 0, {end} 0, {end} {YARD}, {x} {YARD}, {x} 0))"
        return self.text.format(n=n, follower=n + 1_000_000, yard=yard)


KINDS = (
    Kind("left", LEFT, ((False, 50), (False, 450)), ((False, 50),)),
    Kind("arrived", ARRIVED, ((False, 450), (False, 50)), ((False, 450),)),
    Kind("strayed", STRAYED, ((False, 0), (True, 10), (False, 0), (True, 90)),
         ((False, 0), (True, 10))),
)  # fmt: skip
STREAMS = ("paper", "parked", "elsewhere")


def stream(kind: Kind, name: str, subscriptions: int, events: int, seed: int = 7) -> pa.Table:
    """Stories one behind the other, each of a vehicle of its own; the same ones again when all had
    their turn. Then nothing matches by accident, since turns are longer than any interval."""
    random = np.random.default_rng(seed)
    order = random.permutation(subscriptions)
    rows: list[tuple[int, str, float]] = []
    if name == "paper":
        told = 0
        while len(rows) < events:
            rows += _told(int(order[told % subscriptions]), kind.story)
            told += 1
    else:
        planted, others = np.split(order, [subscriptions // 10])
        told = 0
        while len(rows) < events:
            rows += _told(int(planted[told % len(planted)]), kind.story)
            rest = 99 * len(kind.story)
            for place in range(told * rest, (told + 1) * rest, len(kind.parked)):
                other = int(others[place // len(kind.parked) % len(others)])
                if name == "elsewhere":
                    other += 10_000_000
                rows += _told(other, kind.parked)
            told += 1
    ids, types, x = zip(*rows[:events], strict=True)
    times = np.datetime64("2026-03-16T06:00:00", "us") + np.arange(events) * STEP
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")), "id": pa.array(ids, pa.int64()),
            "type": pa.array(types), "x": pa.array(x, pa.float64()),
            "y": pa.array(np.full(events, 50.0)),
        }
    )  # fmt: skip


def _told(n: int, story: Sequence[tuple[bool, float]]) -> Iterator[tuple[int, str, float]]:
    for follower, x in story:
        yield n + 1_000_000 * follower, "truck", n * APART + x


def planted(kind: Kind, name: str, events: int) -> int:
    """How many whole stories there are."""
    return events // len(kind.story) if name == "paper" else -(-events // (100 * len(kind.story)))


# --------------------------------------------------------------------------- our way


def shape() -> Shape:
    return source().shape


def source() -> Source:
    arrow = stream(KINDS[0], "paper", 10, 10).schema
    return Source(arrow, **HERE)


def subscribed(kind: Kind, count: int) -> ensue.Subscriptions:
    fleet = ensue.Subscriptions(**HERE)
    fleet.add_all((f"{kind.name}-{n}", kind.opsl(n)) for n in range(count))
    return fleet


def matcher_of(fleet: Fleet) -> FleetMatcher:
    matcher = FleetMatcher(fleet, Limits())
    matcher.version = 1
    return matcher


def ours(kind: Kind, count: int, events: pa.Table, expected: int) -> dict[str, Any]:
    """One set over one stream: matches second by second, times, memory, messages."""
    clocks = {name: Clock() for name in ("add", "ready", "match")}
    with clocks["add"]:
        several = subscribed(kind, count)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    fleet_of(several.subscribed(), source())
    server = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    with clocks["ready"]:
        fleet = fleet_of(several.subscribed(), source())
    matcher_of(fleet).feed_events(events.slice(0, 100))  # compiled, or loaded from the cache
    matcher = matcher_of(fleet)
    over_time, found, state = [], [], 0
    for piece in slices(events, SECOND):
        with clocks["match"]:
            found.append(matcher.feed_events(piece))
        state = max(state, matcher.state_bytes)
        over_time.append(sum(table.num_rows for table in found))
    with clocks["match"]:
        found += matcher.finish()
    matches = sum(table.num_rows for table in found)
    if matches != expected:
        raise AssertionError(f"{kind.name}: {matches:,} matches found, {expected:,} planted")
    return {
        "matches": matches,
        "planted": expected,
        "matches_by_second": over_time,
        "add_seconds": clocks["add"].cpu_seconds,
        "ready_seconds": clocks["ready"].cpu_seconds,
        "match_seconds": clocks["match"].cpu_seconds,
        "server_bytes": server,
        "state_bytes": state,
        "messages_between_parts": matcher.routed,
        "messages_to_clients": matches,
        "nodes": fleet.counters(),
    }


# --------------------------------------------------------------------------- lists of queries


def as_queries(kind: Kind, count: int, run: int, events: pa.Table) -> dict[str, Any]:
    """The same subscriptions as a list of queries: `run` of them, scaled up to `count`."""
    numbers = Counter(events["id"].to_pylist())
    some = [n for n in range(count) if numbers[n]][:run]
    texts = [ensue.show(ensue.parse(kind.opsl(n), language="opsl")) for n in some]
    queries = [ensue.parse(text) for text in texts]
    ensue.match(events.slice(0, 100), queries, **HERE)  # compiled, or loaded from the cache
    with Clock() as clock:
        found = ensue.match(events, queries, **HERE)
    matches = sum(table.num_rows for table in found.values())
    wanted = set(some)
    expected = sum(1 for rows in _stories(events, kind) if rows in wanted)
    if matches != expected:
        raise AssertionError(f"{kind.name}: {matches:,} found by queries, {expected:,} planted")
    return {
        "queries": run,
        "seconds": clock.cpu_seconds,
        "matches": matches,
        "scaled_seconds": clock.cpu_seconds / run * count,
    }


def _stories(events: pa.Table, kind: Kind) -> Iterator[int]:
    """Whose stories are told, on the paper's stream."""
    yield from events["id"].to_pylist()[:: len(kind.story)]


# --------------------------------------------------------------------------- fat clients


def fat_clients(kind: Kind, count: int, events: pa.Table, expected: int) -> dict[str, Any]:
    """Atoms are routed; each subscription has a client that does the rest."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    index = AtomIndex(shape(), Regions("plane"), PLANE)
    owner: dict[int, list[int]] = {}
    for n in range(count):
        for way in alternatives(parse(kind.opsl(n))):
            for atom in way.parts:
                assert isinstance(atom, EventTest)
                owner.setdefault(index.add(atom), []).append(n)
    server = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    make: Callable[[float, int, int], Client] = CLIENTS[kind.name]
    clients = [make(n * APART, YARD, IN_TIME) for n in range(count)]
    index.route(events.slice(0, 100), places_of(events.slice(0, 100), shape().schema))
    routing, matching = Clock(), Clock()
    forwarded, sent, matches = 0, 0, 0
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    most = 0
    for first, piece in enumerate(slices(events, SECOND)):
        with routing:
            rows, slots = index.route(piece, places_of(piece, shape().schema))
        to = sorted({(int(r), n) for r, s in zip(rows, slots, strict=True) for n in owner[int(s)]})
        forwarded += len({row for row, _ in to})
        sent += len(to)
        reports = _reports(piece, first * SECOND)
        tracemalloc.clear_traces()
        for row, n in to:
            matches += clients[n].take(reports[row])
    most = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    if matches != expected:
        raise AssertionError(f"{kind.name}: clients found {matches:,}, {expected:,} planted")
    return {
        "matches": matches,
        "route_seconds": routing.cpu_seconds,
        "client_seconds": _client_seconds(kind, count, events, index, owner, matching),
        "server_bytes": server,
        "client_bytes": most,
        "messages_between_parts": forwarded,
        "messages_to_clients": sent,
    }


def _client_seconds(
    kind: Kind,
    count: int,
    events: pa.Table,
    index: AtomIndex,
    owner: dict[int, list[int]],
    clock: Clock,
) -> float:
    """The same once more for the clock, without anybody who counts bytes."""
    clients = [CLIENTS[kind.name](n * APART, YARD, IN_TIME) for n in range(count)]
    for first, piece in enumerate(slices(events, SECOND)):
        rows, slots = index.route(piece, places_of(piece, shape().schema))
        to = sorted({(int(r), n) for r, s in zip(rows, slots, strict=True) for n in owner[int(s)]})
        reports = _reports(piece, first * SECOND)
        with clock:
            for row, n in to:
                clients[n].take(reports[row])
    return clock.cpu_seconds


def _reports(events: pa.Table, first: int) -> list[Report]:
    times = events["ts"].cast(pa.int64()).to_pylist()
    columns = (events[name].to_pylist() for name in ("id", "x", "y"))
    return [
        Report(first + n, ts, *rest)
        for n, (ts, *rest) in enumerate(zip(times, *columns, strict=True))
    ]


# --------------------------------------------------------------------------- report


def sheets(report: dict[str, Any]) -> list[Sheet]:
    return [_times(report), _messages(report), _memory(report)]


def _times(report: dict[str, Any]) -> Sheet:
    return Sheet(
        "Processor seconds on the paper's stream",
        ("run", "planted", "found", "add", "make ready", "match", "list of queries",
         "times faster", "with adding", "clients of plain filtering"),
        tuple(
            (
                run["kind"],
                f"{run['ours']['planted']:,}",
                f"{run['ours']['matches']:,}",
                *(f"{run['ours'][f'{part}_seconds']:.2f}" for part in ("add", "ready", "match")),
                f"{run['queries']['scaled_seconds']:,.0f}",
                f"{run['times_faster']:,.0f}",
                f"{run['times_faster_with_adding']:,.0f}",
                f"{run['fat_client']['client_seconds']:.2f}",
            )
            for run in report["runs"]
            if "queries" in run
        ),
    )  # fmt: skip


def _messages(report: dict[str, Any]) -> Sheet:
    return Sheet(
        "Messages, subscriptions / fat client",
        ("run", "stream", "matches", "between parts", "to clients", "to clients a match"),
        tuple(
            (
                run["kind"],
                run["stream"],
                f"{run['ours']['matches']:,}",
                *(
                    " / ".join(f"{run[way][name]:,}" for way in ("ours", "fat_client"))
                    for name in ("messages_between_parts", "messages_to_clients")
                ),
                " / ".join(
                    f"{run[way]['messages_to_clients'] / run['ours']['matches']:.1f}"
                    for way in ("ours", "fat_client")
                ),
            )
            for run in report["runs"]
        ),
    )


def _memory(report: dict[str, Any]) -> Sheet:
    return Sheet(
        "Bytes a subscription, subscriptions / fat client",
        ("run", "stream", "server", "server, waiting events", "all clients, waiting events"),
        tuple(
            (
                run["kind"],
                run["stream"],
                " / ".join(
                    f"{run[way]['server_bytes'] / report['subscriptions']:,.0f}"
                    for way in ("ours", "fat_client")
                ),
                f"{run['ours']['state_bytes'] / report['subscriptions']:,.0f} / 0",
                f"0 / {run['fat_client']['client_bytes'] / report['subscriptions']:,.0f}",
            )
            for run in report["runs"]
        ),
    )


def measured(kind: Kind, name: str, count: int, total: int, queries: int) -> dict[str, Any]:
    """One run: everybody over the same events."""
    events = stream(kind, name, count, total)
    expected = planted(kind, name, total)
    run: dict[str, Any] = {
        "kind": kind.name,
        "stream": name,
        "ours": ours(kind, count, events, expected),
        "fat_client": fat_clients(kind, count, events, expected),
    }
    if name == "paper":
        run["queries"] = as_queries(kind, count, queries, events)
        whole = run["queries"]["scaled_seconds"]
        mine = run["ours"]
        run["times_faster"] = whole / mine["match_seconds"]
        run["times_faster_with_adding"] = whole / sum(
            mine[f"{part}_seconds"] for part in ("add", "ready", "match")
        )
    return run


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--queries", type=int, default=100, help="that are run as a list")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    count, total = SUBSCRIPTIONS, EVENTS
    if options.quick:
        count, total = count // 10, total // 10
    began = time.perf_counter()
    report: dict[str, Any] = {
        "machine": machine(),
        "subscriptions": count,
        "events": total,
        "quick": options.quick,
        "counted": "processor seconds of one thread; kernels compiled before",
        "runs": [
            measured(kind, name, count, total, min(options.queries, count))
            for kind in KINDS
            for name in STREAMS
        ],
    }
    console = Console()
    for sheet in sheets(report):
        console.print(sheet.rich())
    console.print(f"{time.perf_counter() - began:.0f} s in all")
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "papers_subscriptions.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
