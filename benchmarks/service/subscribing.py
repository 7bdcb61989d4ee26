"""Many subscriptions: what one more costs, alone and in bulk, and what a restart costs.

`python -m benchmarks.service.subscribing` writes `benchmarks/results/service_subscribing.json`.
By processor time of the whole process. One more subscription must not cost more the more there
are. A restart is measured twice: with the compiled set that the service has kept, and without it.
"""

import argparse
import asyncio
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.machine import machine
from benchmarks.tables import Sheet
from ensue.service.service import Service

RESULTS = Path(__file__).resolve().parents[1] / "results" / "service_subscribing.json"
COUNT = 16_000
PARTS = 8  # of the subscriptions that are made one by one, each measured
BULK = 1_000
_LEFT = "=|(@(Depot)(A); 60)(DIST(Depot; >; 20)(A)), A = (ARITH:id = {})"
_DEPOT = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"
Report = dict[str, Any]


def _service(path: Path) -> Service:
    return Service(
        path, schema={"t": "int64", "id": "int64", "x": "double", "y": "double"}, time="t",
        location=("x", "y"), key="id", regions={"Depot": _DEPOT}, synchronous="NORMAL",
        limits={"subscriptions_per_user": 10 * COUNT},
    )  # fmt: skip


async def made(path: Path, count: int, size: int) -> list[float]:
    """Makes subscriptions, so many at a time; seconds for one of them, in each part."""
    spent = []
    async with _service(path) as service:
        await service.publish({"t": 0, "id": -1, "x": 5.0, "y": 5.0})
        for part in range(PARTS):
            first, last = part * count // PARTS, (part + 1) * count // PARTS
            began = time.process_time()
            for n in range(first, last, size):
                texts = [{"text": _LEFT.format(k)} for k in range(n, min(n + size, last))]
                await service.subscribe_each(texts)
            spent.append((time.process_time() - began) / (last - first))
        await service.publish({"t": 1, "id": 0, "x": 5.0, "y": 5.0})
    return spent


async def restarted(path: Path, at: int) -> float:
    """Seconds until a service has matched its next event."""
    began = time.process_time()
    async with _service(path) as service:
        await service.publish({"t": at, "id": 0, "x": 5.0, "y": 5.0})
        spent = time.process_time() - began
        found = await service.health()
    if not found["subscriptions"]:
        raise AssertionError("a restart has lost its subscriptions")
    return spent


def measured(count: int) -> Report:
    """All of it, on files of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bulk.db"
        asyncio.run(made(Path(folder) / "warm.db", PARTS, 1))
        bulk = asyncio.run(made(path, count, BULK))
        kept = asyncio.run(restarted(path, 2))
        shutil.rmtree(f"{path}-set")
        return {
            "subscriptions": count,
            "one_by_one": asyncio.run(made(Path(folder) / "single.db", count, 1)),
            "bulk": bulk,
            "restart": kept,
            "restart_from_texts": asyncio.run(restarted(path, 3)),
        }


def sheet(report: Report) -> Sheet:
    count = report["subscriptions"]
    rows = [
        (f"{(part + 1) * count // PARTS:,}", f"{1e3 * alone:.2f}", f"{1e3 * bulk:.2f}")
        for part, (alone, bulk) in enumerate(zip(report["one_by_one"], report["bulk"], strict=True))
    ]
    title = (
        f"One more subscription; a restart with {count:,} takes {report['restart']:.2f} s of "
        f"processor time, from their texts {report['restart_from_texts']:.1f} s"
    )
    return Sheet(title, ("up to", "alone, ms", "in bulk, ms"), tuple(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="an eighth of everything")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    report = {"machine": machine(), "quick": options.quick}
    report |= measured(COUNT // 8 if options.quick else COUNT)
    Console().print(sheet(report).rich())
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
