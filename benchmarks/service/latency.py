"""From an event in to its notification out, with 100,000 subscriptions at 2,000 events a second.

`python -m benchmarks.service.latency` writes `benchmarks/results/service_latency.json`. The
server is one process; another posts events over HTTP, a few at a time at an even pace, and listens
to the notifications as server-sent events. An event carries the moment it was posted, so what is
measured lies between the post and the notification read, by the same clock. Every subscription
watches one truck, which leaves its yard; one event in ten completes a match, and all of them
must arrive.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import orjson
from rich.console import Console

from benchmarks.machine import machine
from benchmarks.tables import Sheet

RESULTS = Path(__file__).resolve().parents[1] / "results" / "service_latency.json"
SUBSCRIPTIONS, RATE, SECONDS, WARM = 100_000, 2_000, 20, 5
POSTED = 20  # events of a post: a hundred posts a second
SCHEMA = {"t": "int64", "id": "int64", "x": "double", "y": "double", "sent": "double"}
LEFT = (
    "=|(@(POLYGON (({x} 0, {e} 0, {e} 10, {x} 10, {x} 0)))(A); 3000)(DIST(POLYGON (({x} 0, "
    "{e} 0, {e} 10, {x} 10, {x} 0)); >; 20)(A)), A = (ARITH:id = {id}) WITH select = once"
)
Report = dict[str, Any]


# -------------------------------------------------------------------------------- the server


async def serve(count: int) -> None:
    """The server: says where it is, and stops when its input ends."""
    from ensue.service.service import Service
    from ensue.service.web.server import HttpServer

    limits = {
        "subscriptions_per_user": count, "corners_per_user": 20 * count,
        "notes_per_minute": 10_000_000, "buffer": 100_000,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        given: dict[str, Any] = {"time": "t", "key": "id", "location": ("x", "y")}
        path = Path(folder) / "latency.db"
        async with Service(path, schema=SCHEMA, limits=limits, **given) as service:
            texts = (LEFT.format(id=n, x=100 * n, e=100 * n + 10) for n in range(count))
            await service.subscribe_all({"text": text} for text in texts)
            made = time.perf_counter() - began
            await service.publish({"t": 0, "id": -1, "x": 0.0, "y": 0.0, "sent": 0.0})
            server = HttpServer(service, port=0)
            ready = asyncio.Event()
            serving = asyncio.create_task(server.serve(lambda _: ready.set()))
            await ready.wait()
            report = {"url": server.address, "add_seconds": made}
            print(json.dumps(report), flush=True)
            cpu = time.process_time()
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            print(json.dumps({"cpu_seconds": time.process_time() - cpu}), flush=True)
            server.stop()
            await serving


# -------------------------------------------------------------------------------- the client


def planned(count: int, rate: int, seconds: int) -> list[dict[str, Any]]:
    """Events of trucks: of ten, one is inside its yard, one has left it, eight are elsewhere."""
    chance = np.random.default_rng(3)
    found = []
    trucks = chance.permutation(count).tolist()
    for number in range(rate * seconds):
        story, part = divmod(number, 10)
        truck = trucks[story % count]
        x = {0: 5.0, 9: 60.0}.get(part, 15.0)  # between, it is neither inside nor far away
        found.append({"t": number, "id": truck, "x": 100.0 * truck + x, "y": 5.0})
    return found


async def listened(url: str, expected: int, delays: list[tuple[float, float]]) -> None:
    """Reads notifications until all are there."""
    async with (
        httpx2.AsyncClient(timeout=None) as client,
        client.stream("GET", f"{url}/api/v1/notifications/stream") as answer,
    ):
        delays.append((0.0, 0.0))  # it listens
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                now = time.time()
                note = orjson.loads(line[6:])
                if note["kind"] == "match":
                    delays.append((note["members"][-1]["sent"], now))
                    if len(delays) > expected:
                        return


async def posted(url: str, events: list[dict[str, Any]], rate: int) -> None:
    """Posts events at an even pace, or as fast as they are answered."""
    async with httpx2.AsyncClient(timeout=60) as client:
        began = time.time()
        for first in range(0, len(events), POSTED):
            due = began + first / rate
            if (wait := due - time.time()) > 0:
                await asyncio.sleep(wait)
            now = time.time()
            some = events[first : first + POSTED]
            body = b"\n".join(orjson.dumps({**one, "sent": now}) for one in some)
            answer = await client.post(  # one after the other: the stream has no watermark
                f"{url}/api/v1/events", content=body,
                headers={"content-type": "application/x-ndjson"},
            )  # fmt: skip
            answer.raise_for_status()


async def client(url: str, count: int, rate: int, seconds: int) -> Report:
    events = planned(count, rate, WARM + seconds)
    expected = len(events) // 10
    delays: list[tuple[float, float]] = []
    listening = asyncio.create_task(listened(url, expected, delays))
    while not delays:
        await asyncio.sleep(0.01)
    began = time.time()
    await posted(url, events, rate)
    took = time.time() - began
    async with asyncio.timeout(60):
        await listening
    measured = np.array([b - a for a, b in delays[1:] if a >= began + WARM]) * 1e3
    return {
        "events": len(events),
        "expected": expected,
        "received": len(delays) - 1,
        "events_per_second": len(events) / took,
        **{f"p{p}_ms": float(np.percentile(measured, p)) for p in (50, 90, 99)},
        "worst_ms": float(measured.max()),
    }


def measured(count: int, rate: int, seconds: int) -> Report:
    command = [sys.executable, "-m", "benchmarks.service.latency", "--serve", "--count"]
    with subprocess.Popen([*command, str(count)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        said = json.loads(server.stdout.readline())
        report = asyncio.run(client(said.pop("url"), count, rate, seconds))
        server.stdin.write("\n")
        server.stdin.flush()
        report |= said | json.loads(server.stdout.readline())
    if report["received"] != report["expected"]:
        raise AssertionError(f"{report['expected']} expected, {report['received']} received")
    return {"subscriptions": count, "rate": rate, **report}


def sheet(report: Report) -> Sheet:
    rows = tuple(
        (
            f"{run['subscriptions']:,}", f"{run['events_per_second']:,.0f}",
            f"{run['p50_ms']:.1f}", f"{run['p99_ms']:.1f}", f"{run['worst_ms']:.0f}",
        )
        for run in report["runs"]
    )  # fmt: skip
    heads = ("subscriptions", "events a second", "p50, ms", "p99, ms", "worst, ms")
    return Sheet("From a post to its notification", heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer subscriptions, less time")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, default=SUBSCRIPTIONS)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.serve:
        from ensue.service.web.server import get_loop_factory

        with asyncio.Runner(loop_factory=get_loop_factory()) as runner:  # as `ensue serve` does
            runner.run(serve(options.count))
        return
    counts = (1_000,) if options.quick else (1_000, options.count)
    seconds = 5 if options.quick else SECONDS
    report: Report = {"machine": machine(), "quick": options.quick}
    report["runs"] = [measured(count, RATE, seconds) for count in counts]
    Console().print(sheet(report).rich())
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
