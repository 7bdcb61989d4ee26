"""The experiments of the paper on space-time subscriptions: all matches, messages, memory.

`python -m benchmarks.papers.subscriptions [--quick]`. Three runs, one for each of the paper's
subscriptions (a vehicle has left, has arrived, has strayed from its convoy): 5,000 of the kind,
then 20,000 events at 2,000 a second, of which every two (the convoy: four) that follow each
other are a match. All planted matches must be found, by everybody who is measured:

- *subscriptions*: one set; the processor's time to add them, to make them ready, and to match;
- *list of queries*: the same subscriptions in the pattern language (`ensue.show`), as a list
  given to `ensue.match`. 5,000 are too many for it: fewer are run, and the time is
  scaled up by what half of them cost less. Over 100 events only, the time is that of planning;
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
import math
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.papers.fat_client import CLIENTS, Client, Report, held_bytes
from benchmarks.papers.subscription_sheets import matching_seconds, sheets
from benchmarks.papers.subscription_streams import APART, IN_TIME, KINDS, STREAMS, YARD, Kind, planted, stream
from benchmarks.timing import Clock
from ensue.analyzer.normal_form import build_alternatives
from ensue.ir.subscription import EventTest
from ensue.kernels.geometry import PLANE
from ensue.operators.subscriptions.atom_index import AtomIndex
from ensue.operators.subscriptions.subscription_matcher import SubscriptionMatcher
from ensue.operators.subscriptions.subscription_set import SubscriptionSet, compile_subscription_set
from ensue.options import Limits
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.runtime.source_schema import SourceSchema
from ensue.runtime.stage import StageInput
from ensue.vector.event_table import StreamSchema, split_table
from ensue.vector.geo_columns import read_places
from ensue.vector.geo_regions import Regions

RESULTS = Path(__file__).parent.parent / "results"
SUBSCRIPTIONS, EVENTS = 5_000, 20_000
SECOND = 2_000  # events
TRACED = 1_000  # subscriptions whose bytes are counted: that takes long
HERE: dict[str, Any] = {"time": "ts", "type": "type", "location": ("x", "y")}

# --------------------------------------------------------------------------- our way


def shape() -> StreamSchema:
    return source().shape


def source() -> SourceSchema:
    arrow = stream(KINDS[0], "paper", 10, 10).schema
    return SourceSchema(arrow, **HERE)


def subscribed(kind: Kind, count: int) -> ensue.Subscriptions:
    fleet = ensue.Subscriptions(**HERE)
    fleet.add_all((f"{kind.name}-{n}", kind.opsl(n)) for n in range(count))
    return fleet


def matcher_of(fleet: SubscriptionSet) -> SubscriptionMatcher:
    matcher = SubscriptionMatcher(fleet, Limits())
    matcher.version = 1
    return matcher


class Prepared:
    """The subscriptions of a kind, made ready for our way and for plain filtering."""

    def __init__(self, kind: Kind, count: int) -> None:
        self.kind, self.count = kind, count
        self.add, self.ready = Clock(), Clock()
        with self.add:
            several = subscribed(kind, count)
        with self.ready:
            self.subscription_set = compile_subscription_set(several.subscribed(), source())
        self.index, self.owner = atoms_of(kind, count)
        some = subscribed(kind, min(count, TRACED))
        self.server_bytes = traced(lambda: compile_subscription_set(some.subscribed(), source())) / len(some)
        self.filter_bytes = traced(lambda: atoms_of(kind, len(some))) / len(some)


def traced(make: Callable[[], Any]) -> int:
    """The bytes of what is made."""
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = make()
    gc.collect()
    bytes_ = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    del kept
    return bytes_


def ours(prepared: Prepared, events: pa.Table, expected: int) -> dict[str, Any]:
    """One set over one stream: matches second by second, times, memory, messages."""
    fleet, clock = prepared.subscription_set, Clock()
    matcher_of(fleet).process(StageInput.from_events(events.slice(0, 100)))[0]  # compiled, or loaded from the cache
    matcher = matcher_of(fleet)
    over_time, found, state = [], [], 0
    for piece in split_table(events, SECOND):
        with clock:
            found.append(matcher.process(StageInput.from_events(piece))[0])
        state = max(state, matcher.usage.state_bytes)
        over_time.append(sum(table.num_rows for table in found))
    with clock:
        found += matcher.on_watermark(math.inf)
    matches = sum(table.num_rows for table in found)
    if matches != expected:
        raise AssertionError(f"{prepared.kind.name}: {matches:,} found, {expected:,} planted")
    return {
        "matches": matches,
        "planted": expected,
        "matches_by_second": over_time,
        "add_seconds": prepared.add.cpu_seconds,
        "ready_seconds": prepared.ready.cpu_seconds,
        "match_seconds": clock.cpu_seconds,
        "server_bytes_each": prepared.server_bytes,
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
    found, whole = _scaled(queries, count, events)
    _, planning = _scaled(queries, count, events.slice(0, 100))
    wanted = set(some)
    expected = sum(1 for n in _stories(events, kind) if n in wanted)
    if found != expected:
        raise AssertionError(f"{kind.name}: {found:,} found by queries, {expected:,} planted")
    return {"queries": run, "matches": found, "scaled_seconds": whole, "scaled_planning_seconds": planning}


def _scaled(queries: Sequence[Any], count: int, events: pa.Table) -> tuple[int, float]:
    """How many matches there are, and the time of so many queries, by what further ones cost."""
    run, half = len(queries), len(queries) // 2
    found, seconds = _asked(queries, events)
    _, fewer = _asked(queries[:half], events)
    return found, seconds + max(0.0, seconds - fewer) / (run - half) * (count - run)


def _asked(queries: Sequence[Any], events: pa.Table) -> tuple[int, float]:
    """How many matches a list of queries has, and the better time of two."""
    found, times = 0, []
    for _ in range(2):
        with Clock() as clock:
            tables = ensue.match(events, list(queries), **HERE)
        times.append(clock.cpu_seconds)
        found = sum(table.num_rows for table in tables.values())
    return found, min(times)


def _stories(events: pa.Table, kind: Kind) -> Iterator[int]:
    """Whose stories are told, on the paper's stream."""
    yield from events["id"].to_pylist()[:: len(kind.story)]


# --------------------------------------------------------------------------- fat clients


def atoms_of(kind: Kind, count: int) -> tuple[AtomIndex, dict[int, list[int]]]:
    """All atoms in one index, and whose each of them is."""
    index = AtomIndex(shape(), Regions("plane"), PLANE)
    owner: dict[int, list[int]] = {}
    for n in range(count):
        for way in build_alternatives(parse_subscription(kind.opsl(n))):
            for atom in way.parts:
                assert isinstance(atom, EventTest)
                owner.setdefault(index.add(atom), []).append(n)
    return index, owner


def fat_clients(prepared: Prepared, events: pa.Table, expected: int) -> dict[str, Any]:
    """Atoms are routed; each subscription has a client that does the rest."""
    kind, count = prepared.kind, prepared.count
    index, owner = prepared.index, prepared.owner
    make: Callable[[float, int, int], Client] = CLIENTS[kind.name]
    clients = [make(n * APART, YARD, IN_TIME) for n in range(count)]
    index.route(events.slice(0, 100), read_places(events.slice(0, 100), shape().schema))
    routing, matching = Clock(), Clock()
    forwarded, sent, matches, held = 0, 0, 0, 0
    for number, piece in enumerate(split_table(events, SECOND)):
        with routing:
            rows, slots = index.route(piece, read_places(piece, shape().schema))
        to = sorted({(int(r), n) for r, s in zip(rows, slots, strict=True) for n in owner[int(s)]})
        forwarded += len({row for row, _ in to})
        sent += len(to)
        reports = _reports(piece, number * SECOND)
        with matching:
            matches += sum(clients[n].take(reports[row]) for row, n in to)
        held = max(held, sum(map(held_bytes, clients)))
    if matches != expected:
        raise AssertionError(f"{kind.name}: clients found {matches:,}, {expected:,} planted")
    return {
        "matches": matches,
        "route_seconds": routing.cpu_seconds,
        "client_seconds": matching.cpu_seconds,
        "server_bytes_each": prepared.filter_bytes,
        "client_bytes": held,
        "messages_between_parts": forwarded,
        "messages_to_clients": sent,
    }


def _reports(events: pa.Table, first: int) -> list[Report]:
    times = events["ts"].cast(pa.int64()).to_pylist()
    columns = (events[name].to_pylist() for name in ("id", "x", "y"))
    return [Report(first + n, ts, *rest) for n, (ts, *rest) in enumerate(zip(times, *columns, strict=True))]


# --------------------------------------------------------------------------- report


def compared(run: dict[str, Any]) -> dict[str, float]:
    """How many times faster one set is than a list of queries: matching alone, and all of it."""
    mine, whole = run["ours"], run["queries"]["scaled_seconds"]
    everything = sum(mine[f"{part}_seconds"] for part in ("add", "ready", "match"))
    return {
        "times_faster": matching_seconds(run) / mine["match_seconds"],
        "times_faster_with_adding": whole / everything,
    }


def measured(prepared: Prepared, name: str, total: int, queries: int) -> dict[str, Any]:
    """One run: everybody over the same events."""
    kind, count = prepared.kind, prepared.count
    print(f"{kind.name}, {name}", flush=True)
    events = stream(kind, name, count, total)
    expected = planted(kind, name, total)
    run: dict[str, Any] = {
        "kind": kind.name,
        "stream": name,
        "ours": ours(prepared, events, expected),
        "fat_client": fat_clients(prepared, events, expected),
    }
    if name == "paper":
        run["queries"] = as_queries(kind, count, queries, events)
        run |= compared(run)
    return run


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--queries", type=int, default=100, help="that are run as a list")
    parser.add_argument("--queries-again", action="store_true", help="only these; keep the rest")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    count, total = SUBSCRIPTIONS, EVENTS
    if options.quick:
        count, total = count // 10, total // 10
    file = options.output / "papers_subscriptions.json"
    if options.queries_again:
        report = json.loads(file.read_text())
        _queries_again(report, options.queries)
        file.write_text(json.dumps(report, indent=1) + "\n")
        return
    began = time.perf_counter()
    report = {
        "machine": machine(),
        "subscriptions": count,
        "events": total,
        "quick": options.quick,
        "counted": "processor seconds of one thread; kernels compiled before",
        "runs": [
            measured(prepared, name, total, min(options.queries, count))
            for prepared in (Prepared(kind, count) for kind in KINDS)
            for name in STREAMS
        ],
    }
    console = Console()
    for sheet in sheets(report):
        console.print(sheet.rich())
    console.print(f"{time.perf_counter() - began:.0f} s in all")
    options.output.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report, indent=1) + "\n")


def _queries_again(report: dict[str, Any], queries: int) -> None:
    """Measures the lists of queries once more, and keeps the rest."""
    report["queries_again"] = True
    count, total = report["subscriptions"], report["events"]
    kinds = {kind.name: kind for kind in KINDS}
    for run in (run for run in report["runs"] if "queries" in run):
        kind = kinds[run["kind"]]
        events = stream(kind, run["stream"], count, total)
        run["queries"] = as_queries(kind, count, min(queries, count), events)
        run |= compared(run)


if __name__ == "__main__":
    main()
