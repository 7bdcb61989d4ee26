"""Listeners: how many notifications one process hands to thousands of clients, by processor time.

`python -m benchmarks.service.sse` writes `benchmarks/results/service_sse.json`. The server, the
clients and this are three processes. Each client is a user with a token of its own and gets
notifications of its own: one at a time, then in bursts. Processor time is that of the server
alone; all that was sent must have been received, in order. Matching and the outbox are measured
elsewhere: notifications begin where a commit would hand them to the listeners.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console

from benchmarks.machine import machine
from benchmarks.tables import Sheet
from benchmarks.timing import Clock

RESULTS = Path(__file__).resolve().parents[1] / "results" / "service_sse.json"
CLIENTS = 5_000
ROUNDS = {1: 30, 10: 20}  # rounds by the notifications that each client gets in one
_PIECE = 500  # notifications of one commit
_PATIENCE = 120.0  # seconds until all clients are there
_FILES = 2 * CLIENTS + 1_000
Report = dict[str, Any]

# What the issue of the service asks for.
GOALS = {"single": 15_000, "bursts": 100_000, "bytes_per_client": 40_000}


# -------------------------------------------------------------------------------- the server


def body(subscription: int, number: int) -> bytes:
    """The body of a notification, as long as that of a match of two events."""
    member = {"ts": "2026-01-31T10:00:00Z", "id": subscription, "x": 4.25, "y": 51.75}
    return orjson.dumps(
        {
            "kind": "match", "subscription": subscription, "name": f"left {subscription}",
            "match_id": f"{number:032x}", "start": member["ts"], "end": member["ts"],
            "location": "LINESTRING (4.25 51.75, 4.5 51.5)", "members": [member, member],
        }
    )  # fmt: skip


def used() -> float:
    """The processor time of this process."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_utime + found.ru_stime


def resident() -> int:
    """The memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def sent(service: Any, users: list[int], rounds: int, each: int) -> Report:
    """Hands notifications to all clients, round by round, and waits until they are written."""
    from ensue.service.store.outbox import Notification

    number = first = service.listeners.newest
    size, clock = 0, Clock()
    for _ in range(rounds):
        notes = []
        for user in users:
            for _ in range(each):
                number += 1
                notes.append(Notification(number, user, user, "match", None, 0.0, body(user, number)))
        size += sum(len(note.body) for note in notes)
        with clock:  # from here on it is the listeners' work
            for piece in range(0, len(notes), _PIECE):
                service.listeners.dispatch(notes[piece : piece + _PIECE])
                await asyncio.sleep(0)
            while service.listeners.lag:
                await asyncio.sleep(0.001)
    count = number - first
    return {
        "notifications": count,
        "bytes": size / count,
        "seconds": clock.seconds,
        "cpu_seconds": clock.cpu_seconds,
        "per_second": count / clock.seconds,
        "per_cpu_second": count / clock.cpu_seconds,
    }


async def serve(clients: int, share: float) -> None:
    """The server: says where it is, waits for all clients, sends, and says what that took."""
    from ensue.service.service import Service
    from ensue.service.store import user_store
    from ensue.service.web.server import HttpServer

    with tempfile.TemporaryDirectory() as folder:
        schema = {"ts": "int64", "id": "int64"}
        path = Path(folder) / "sse.db"
        async with Service(path, schema=schema, time="ts", limits={"buffer": 1_000}) as service:

            def people(db: Any) -> list[tuple[int, str]]:
                ids = [user_store.add_user(db, f"user{n}") for n in range(clients)]
                made = (user_store.add_token(db, id, scopes=["read"]).token for id in ids)
                return list(zip(ids, made, strict=True))

            found = await service.do(people)
            users = [id for id, _ in found]
            server = HttpServer(service, port=0)
            ready = asyncio.Event()
            serving = asyncio.create_task(server.serve(lambda _: ready.set()))
            await ready.wait()
            empty = resident()
            print(json.dumps({"url": server.address, "tokens": [t for _, t in found]}), flush=True)
            cpu = used()
            async with asyncio.timeout(_PATIENCE):
                while sum(listener.live for listener in service.listeners) < clients:
                    await asyncio.sleep(0.05)
            connected = used() - cpu
            idle = resident()
            report: Report = {
                "clients": clients,
                "connect_cpu_ms": connected / clients * 1e3,
                "idle_bytes_per_client": (idle - empty) / clients,
            }
            for each, rounds in ROUNDS.items():
                found_in = await sent(service, users, max(1, int(rounds * share)), each)
                report["single" if each == 1 else "bursts"] = {"each": each, **found_in}
            report["bytes_per_client"] = (resident() - empty) / clients
            report["cut"] = service.listeners.slow
            print(json.dumps(report), flush=True)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
            server.stop()
            await serving


# -------------------------------------------------------------------------------- measuring


def measured(clients: int, share: float) -> Report:
    """Runs server and clients, and compares what was sent with what came."""
    this = [sys.executable, "-m", "benchmarks.service.sse", "--serve"]
    options = ["--clients", str(clients), "--share", str(share)]
    with subprocess.Popen([*this, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        there = json.loads(server.stdout.readline())
        url = f"{there['url']}/api/v1/notifications/stream"
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.service.sse_load", url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        ) as load:  # fmt: skip
            assert load.stdin is not None
            load.stdin.write("\n".join([*there["tokens"], "", ""]))
            load.stdin.flush()
            said = server.stdout.readline()
            if not said:
                load.kill()
                raise SystemExit("the server has ended; what it said is above")
            report: Report = json.loads(said)
            time.sleep(1.0)  # what was written has to arrive
            came = json.loads(load.communicate()[0])
        server.communicate()
    wanted = sum(report[phase]["notifications"] for phase in ("single", "bursts"))
    assert set(came["received"]) == {wanted // clients}, "not all notifications were received"
    assert not came["refused"], f"{came['refused']} clients were refused"
    assert not came["disorder"], f"{came['disorder']} notifications came out of order"
    assert not came["ended"], f"{came['ended']} clients were cut"
    return {**report, "received": sum(came["received"])}


def sheet(report: Report) -> Sheet:
    """The figures beside what they should be."""
    return Sheet(
        f"{report['clients']:,} listeners in one process, all notifications received",
        ("", "measured", "goal"),
        (
            (
                "single notifications, a second of processor time",
                f"{report['single']['per_cpu_second']:,.0f}",
                f"{GOALS['single']:,}",
            ),
            ("in bursts of ten", f"{report['bursts']['per_cpu_second']:,.0f}", f"{GOALS['bursts']:,}"),
            ("kB a client, idle", f"{report['idle_bytes_per_client'] / 1e3:.1f}", ""),
            (
                "kB a client, behind the bursts",
                f"{report['bytes_per_client'] / 1e3:.1f}",
                f"below {GOALS['bytes_per_client'] / 1e3:.0f}",
            ),
        ),
    )


def main() -> None:
    """Measures and writes the file of results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--share", type=float, default=1.0, help="of the rounds")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        from ensue.service.web.server import get_loop_factory

        _more_files()
        with asyncio.Runner(loop_factory=get_loop_factory()) as runner:
            runner.run(serve(given.clients, given.share))
        return
    _more_files()
    results: Report = {"machine": machine(), "sse": measured(given.clients, given.share)}
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    Console().print(sheet(results["sse"]).rich())


def _more_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < _FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(_FILES, hard), hard))


if __name__ == "__main__":
    main()
