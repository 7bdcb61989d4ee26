"""`ensue.live`: from one event in to its match out, and events a second by the size of a feed.

`python -m benchmarks.live` writes `benchmarks/results/live.json`. Kernels are compiled, and the
matcher holds a window of events, before the clock starts. What is found is compared with
`ensue.match` on the same events.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.tables import live_latency_sheet, live_sheet
from benchmarks.workloads import FEW_KEYS, WORKLOADS, events

RESULTS = Path(__file__).resolve().parent / "results" / "live.json"
WARM = 3_000  # events before the clock starts
FEEDS = {1: 10_000, 100: 200_000, 10_000: 1_000_000}  # events by the size of a feed
Report = dict[str, Any]

_HIERARCHY = """
    EVENT Rise AS SEQ(A a, B b)
        WHERE skip_till_next_match(a, b) { [symbol] and b.price > a.price } WITHIN 60 seconds
        RETURN b.price AS price;
    SEQ(Rise x, C c)
    WHERE skip_till_next_match(x, c) { [symbol] and c.price < x.price } WITHIN 60 seconds
"""


@dataclass(frozen=True, slots=True)
class Case:
    """Something to be asked of a live stream."""

    name: str
    query: Any
    type: str | None = "type"

    def live(self, schema: pa.Schema) -> Any:
        return ensue.live(self.query, schema=schema, time="ts", type=self.type)


CASES = (
    Case("SEQ with a key", WORKLOADS["next, correlated"].text(FEW_KEYS)),
    Case("Kleene", WORKLOADS["Kleene"].text(FEW_KEYS), None),
    Case(
        "ten queries",
        {
            f"above {least}": f"""
            PATTERN SEQ(A a, B b, C c)
            WHERE skip_till_next_match(a, b, c) {{
                [symbol] and a.volume > {least} and b.price > a.price and c.price < a.price }}
            WITHIN 120 seconds"""
            for least in range(1_000, 2_000, 100)
        },
    ),
    Case("hierarchy of two levels", _HIERARCHY),
)


def fed(case: Case, table: pa.Table, size: int) -> tuple[list[float], list[float], float, int]:
    """The seconds of all feeds, of those that gave a match, in all, and the matches."""
    live = case.live(table.schema)
    for feed in _feeds(table.slice(0, WARM), min(size, WARM)):
        live.feed(feed)
    matches, every, fruitful, busy = live.progress.matches, [], [], 0.0
    for feed in _feeds(table.slice(WARM), size):
        begun = time.perf_counter()
        found = live.feed(feed)
        seconds = time.perf_counter() - begun
        busy += seconds
        every.append(seconds)
        if _count(found):
            fruitful.append(seconds)
    found_in_all = live.progress.matches + _count(live.finish())
    wanted = _count(ensue.match(table, case.query, time="ts", type=case.type))
    assert found_in_all == wanted, f"{case.name}: {found_in_all} matches, in a batch {wanted}"
    return every, fruitful, busy, found_in_all - matches


def _feeds(table: pa.Table, size: int) -> Iterator[Any]:
    """One event as a dict, several as a table."""
    if size == 1:
        yield from table.to_pylist()
        return
    for first in range(0, table.num_rows, size):
        yield table.slice(first, size)


def _count(found: pa.Table | Mapping[Any, pa.Table]) -> int:
    tables: Sequence[pa.Table] = [*found.values()] if isinstance(found, Mapping) else [found]
    return sum(table.num_rows for table in tables)


def percentile(seconds: Sequence[float], share: float) -> float:
    """The time that so many of all feeds did not take longer than."""
    return sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * share))]


def measured(case: Case, sizes: Mapping[int, int]) -> tuple[Report, Report]:
    """The latency of one event, and events a second by the size of a feed."""
    latency: Report = {}
    rates: Report = {"query": case.name, "events_per_second": {}}
    for size, count in sizes.items():
        table = events(WARM + count, FEW_KEYS)
        every, fruitful, busy, matches = fed(case, table, size)
        rates["events_per_second"][str(size)] = count / busy
        if size == 1:
            latency = {
                "query": case.name,
                "events": count,
                "matches": matches,
                "p50_ms": percentile(every, 0.5) * 1e3,
                "p99_ms": percentile(every, 0.99) * 1e3,
                "match_p50_ms": percentile(fruitful, 0.5) * 1e3,
                "match_p99_ms": percentile(fruitful, 0.99) * 1e3,
            }
    return latency, rates


def main() -> None:
    """Measures all cases and writes the file of results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the events")
    share = parser.parse_args().share
    sizes = {size: max(size, int(count * share)) for size, count in FEEDS.items()}
    results: Report = {"machine": machine(), "latency": [], "throughput": []}
    for case in CASES:
        latency, rates = measured(case, sizes)
        results["latency"].append(latency)
        results["throughput"].append(rates)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    console = Console()
    console.print(live_latency_sheet(results["latency"]).rich())
    console.print(live_sheet(results["throughput"]).rich())


if __name__ == "__main__":
    main()
