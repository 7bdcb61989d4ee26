"""The outbox: how many matches a second become notifications on disk, by processor time.

`python -m benchmarks.service.outbox` writes `benchmarks/results/service_outbox.json`. Matches of
two events each are found by `ensue.match` before the clock starts; measured is what the core
thread does with them: JSON, counters, one transaction for each piece, synchronous=FULL.
Everything that was put in must be read again, and a second time nothing may be added.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks.machine import machine
from benchmarks.tables import Sheet
from ensue.service.service import Service

RESULTS = Path(__file__).resolve().parents[1] / "results" / "service_outbox.json"
SUBSCRIPTIONS = 1_000
PIECES = (100, 1_000, 10_000)  # matches of a transaction
GOAL = 50_000  # notifications a second of processor time
_START = np.datetime64("2026-03-16T06:00:00", "us")
Report = dict[str, Any]


def matches(count: int, schema: pa.Schema) -> pa.Table:
    """So many matches of two events each, as a matcher hands them over."""
    chance = np.random.default_rng(5)
    numbers = np.arange(count)
    ids = numbers % SUBSCRIPTIONS + 1
    times = pa.array(_START + numbers.astype("timedelta64[ms]"), pa.timestamp("us", "UTC"))
    two = np.repeat(numbers, 2)
    event = {
        "ts": times.take(pa.array(two)), "id": pa.array(two % SUBSCRIPTIONS),
        "type": pa.array(["truck"] * (2 * count)), "x": pa.array(two / 7.0),
        "y": pa.array(two / 11.0),
    }  # fmt: skip
    fields = [schema.field(name) for name in event]
    members = pa.ListArray.from_arrays(
        pa.array(np.arange(count + 1) * 2, pa.int32()), pa.StructArray.from_arrays(list(event.values()), fields=fields)
    )
    where = pa.array([f"LINESTRING ({n} {n}, {n + 1} {n})" for n in range(count)])
    return pa.table(
        {
            "subscription": pa.array(ids).cast(pa.string()),
            "match_id": pa.array([chance.bytes(16).hex() for _ in range(count)]),
            "start": times, "end": times, "location": where, "members": members,
        }
    )  # fmt: skip


async def written(count: int, piece: int) -> Report:
    """Puts matches into the outbox, so many in a transaction."""
    schema = pa.schema(
        {
            "ts": pa.timestamp("us", "UTC"), "id": pa.int64(), "type": pa.string(),
            "x": pa.float64(), "y": pa.float64(),
        }
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        limits = {"notes_per_minute": 10 * count}
        given: dict[str, Any] = {"schema": schema, "time": "ts", "limits": limits}
        async with Service(Path(folder) / "outbox.db", **given) as service:
            await service.subscribe_all({"text": f"(ARITH:id = {n})"} for n in range(SUBSCRIPTIONS))
            found = matches(count, schema)
            pieces = [found.slice(k, piece) for k in range(0, count, piece)]
            before = (await service.health())["newest_note"]
            spent: list[tuple[float, float]] = []

            def put(db: Any, one: pa.Table) -> int:
                cpu, wall = time.thread_time(), time.perf_counter()
                made: int = service.core.store_matches(db, one, {})
                spent.append((time.thread_time() - cpu, time.perf_counter() - wall))
                return made

            process, began = time.process_time(), time.perf_counter()
            added = 0
            for one in pieces:
                added += await service.do(lambda db, one=one: put(db, one))  # type: ignore[misc]
            process, wall = time.process_time() - process, time.perf_counter() - began
            kept = (await service.health())["newest_note"] - before
            again = await service.do(lambda db: service.core.store_matches(db, pieces[0], {}))
            if (added, kept, again) != (count, count, 0):
                raise AssertionError(f"{count} put in, {added} added, {kept} kept, {again} again")
    return {
        "piece": piece,
        "notifications": count,
        "cpu_seconds": process,
        "core_cpu_seconds": sum(cpu for cpu, _ in spent),
        "seconds": wall,
        "per_cpu_second": count / process,
        "per_second": count / wall,
    }


def sheet(report: Report) -> Sheet:
    rows = tuple(
        (f"{run['piece']:,}", f"{run['per_cpu_second']:,.0f}", f"{run['per_second']:,.0f}") for run in report["runs"]
    )
    heads = ("matches of a transaction", "a second of processor", "a second of the clock")
    return Sheet("Notifications into the outbox", heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    count = 20_000 if options.quick else 200_000
    asyncio.run(written(2_000, 1_000))  # everything is imported and warm
    report: Report = {"machine": machine(), "goal": GOAL, "quick": options.quick}
    report["runs"] = [asyncio.run(written(count, piece)) for piece in PIECES]
    Console().print(sheet(report).rich())
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
