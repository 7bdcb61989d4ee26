"""More partial matches than memory: TPM, STPM as printed, and by need.

`python -m benchmarks.papers.partial_matches [--quick]`. Objects go A, B, C, D; after each step the
next one comes with the same chance, after a gap of up to 60, 120 and 240 units, within a window of
420. All runs find the same matches.

- *sizes* (experiment 5): 10,000 to 50,000 events, match ratio 0.5; CPU and misses of each policy.
- *ratios* (experiment 6): the same for match ratios 0.1 to 0.9 at 50,000 events.
  The stream is fed 5,000 events at a time (the paper's |WSub|), a quarter of what the stream
  would hold is allowed, and a miss is a key that was not in memory when an event of it came.
- *ten times*: a state ten times the limit, a million live partial matches; how much memory grows,
  and the throughput, against a stream without a limit. Each run is a process of its own; memory is
  what only the process has (RssAnon): pages of files are the machine's to drop.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.tables import Sheet
from ensue.options import EVICTION_POLICIES

RESULTS = Path(__file__).parent.parent / "results"
SIZES = (10_000, 20_000, 30_000, 40_000, 50_000)
RATIOS = (0.1, 0.3, 0.5, 0.7, 0.9)
GAPS = (60.0, 120.0, 240.0)
UNIT = 1_000_000  # a unit of the paper in the numbers of the time column
QUERY = f"SEQ(A a, B b, C c, D d) WHERE [tag] WITHIN {420 * UNIT}"
COLUMNS = {"time": "t", "type": "type"}
FED = 5_000  # events at a time, |WSub|


def stream(count: int, ratio: float, rate: float, seed: int = 1) -> pa.Table:
    """About so many events of objects, `rate` of which begin in a unit of time."""
    random = np.random.default_rng(seed)
    chance = ratio ** (1 / 3)
    each = 1 + chance + chance**2 + chance**3
    objects = round(count / each) + 1
    now = np.cumsum(random.exponential(1 / rate, objects))
    alive = np.ones(objects, np.bool_)
    steps = [(now, np.arange(objects), np.zeros(objects, np.int64))]
    for step, longest in enumerate(GAPS):
        alive &= random.random(objects) < chance
        now = now + random.uniform(0, longest, objects)
        left = np.flatnonzero(alive)
        steps.append((now[left], left, np.full(len(left), step + 1)))
    times, tags, states = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    order = np.argsort(times, kind="stable")[:count]
    names = pa.array(list("ABCD"))
    return pa.table(
        {
            "t": (times[order] * UNIT).astype(np.int64),
            "tag": tags[order],
            "type": pa.DictionaryArray.from_arrays(states[order].astype(np.int32), names),
            "reader": pa.array(np.char.add("reader ", (tags[order] % 1_000).astype(str))),
            "signal": random.random(len(order)),
        }
    )


def private_bytes() -> int:
    """The memory that only this process has."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1_024
    return 0


def run(events: pa.Table, fed: int, memory: int | str | None, evict: str | None) -> dict[str, Any]:
    """One pass over the stream."""
    live = ensue.live(QUERY, schema=events.schema, **COLUMNS, options=ensue.Limits(memory=memory, evict=evict))
    before, most, held, matches = private_bytes(), 0, 0, 0
    wall, cpu = time.perf_counter(), time.process_time()
    for begin in range(0, events.num_rows, fed):
        matches += live.feed(events.slice(begin, fed)).num_rows
        most = max(most, private_bytes() - before)
        held = max(held, sum(m.usage.held_bytes for m in live.work.pipeline.matchers))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    counts = live.progress
    return {
        "evict": evict,
        "memory": memory,
        "events": events.num_rows,
        "matches": matches,
        "misses": counts.misses,
        "stored_keys": counts.stored_keys,
        "held_bytes": held,
        "grown_bytes": most,
        "cpu_seconds": cpu,
        "seconds": wall,
        "events_per_cpu_second": events.num_rows / cpu,
    }


def compared(count: int, ratio: float) -> dict[str, Any]:
    """All policies on one stream, with a quarter of what it would hold."""
    events = stream(count, ratio, rate=20.0)
    free = run(events, FED, "100 GB", None)
    limit = max(1, free["held_bytes"] // 4)
    found = {"ratio": ratio, "events": events.num_rows, "limit": limit, "unlimited": free}
    for evict in EVICTION_POLICIES:
        found[evict] = run(events, FED, limit, evict)
        assert found[evict]["matches"] == free["matches"], f"{evict} found other matches"
    return found


def ten_times(objects: int, fed: int) -> list[dict[str, Any]]:
    """A state ten times the limit, each run in a process of its own."""
    given = {"count": objects * 3, "ratio": 0.5, "rate": objects / 500, "fed": fed}
    first = _apart(given | {"memory": "100 GB", "evict": None})
    limit = first["held_bytes"] // 10
    plain = _apart(given | {"memory": None, "evict": None})
    rows = [plain | {"name": "unlimited"}]
    for evict in EVICTION_POLICIES:
        found = _apart(given | {"memory": limit, "evict": evict})
        assert found["matches"] == plain["matches"], f"{evict} found other matches"
        rows.append(found | {"name": evict})
    return rows


def _apart(given: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.papers.partial_matches", "--one"]
    done = subprocess.run([*command, json.dumps(given)], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def _one(given: dict[str, Any]) -> None:
    events = stream(given["count"], given["ratio"], given["rate"])
    for memory in (None, 200_000):  # compiled, or loaded from the cache
        run(events.slice(0, 4_000), 1_000, memory, None)
    found = run(events, given["fed"], given["memory"], given["evict"])
    print(json.dumps(found))


def sheets(report: dict[str, Any]) -> list[Sheet]:
    def policies(rows: Sequence[dict[str, Any]], name: str, key: str) -> Sheet:
        return Sheet(
            name,
            (key, *(f"{e}, {what}" for what in ("CPU s", "misses") for e in EVICTION_POLICIES), "no limit"),
            tuple(
                (
                    f"{row[key]:,}",
                    *(f"{row[e]['cpu_seconds']:.2f}" for e in EVICTION_POLICIES),
                    *(f"{row[e]['misses']:,}" for e in EVICTION_POLICIES),
                    f"{row['unlimited']['cpu_seconds']:.2f}",
                )
                for row in rows
            ),
        )

    free = report["ten_times"][0]
    return [
        policies(report["sizes"], "Experiment 5: events, match ratio 0.5", "events"),
        policies(report["ratios"], "Experiment 6: match ratio", "ratio"),
        Sheet(
            f"State ten times the limit, {free['events']:,} events",
            ("evict", "limit, MB", "memory grows by, MB", "M events a CPU s", "share", "misses"),
            tuple(
                (
                    row["name"],
                    "-" if row["memory"] is None else f"{row['memory'] / 1e6:.1f}",
                    f"{row['grown_bytes'] / 1e6:.0f}",
                    f"{row['events_per_cpu_second'] / 1e6:.2f}",
                    f"{row['events_per_cpu_second'] / free['events_per_cpu_second']:.0%}",
                    f"{row['misses']:,}",
                )
                for row in report["ten_times"]
            ),
        ),
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer sizes, a smaller state")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.one:
        _one(json.loads(options.one))
        return
    sizes, ratios = (SIZES[:2], RATIOS[::2]) if options.quick else (SIZES, RATIOS)
    compared(5_000, 0.5)  # compiled, or loaded from the cache
    report: dict[str, Any] = {
        "machine": machine(),
        "quick": options.quick,
        "query": QUERY,
        "fed": FED,
        "counted": "processor seconds of ensue.live; kernels compiled before",
        "sizes": [compared(count, 0.5) for count in sizes],
        "ratios": [compared(sizes[-1], ratio) for ratio in ratios],
        "ten_times": ten_times(200_000 if options.quick else 1_000_000, 100_000),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "papers_partial_matches.json"
    path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for sheet in sheets(report):
        Console().print(sheet.rich())


if __name__ == "__main__":
    main()
