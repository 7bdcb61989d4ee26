"""The paper's streams through the service: messages to clients, against those to fat clients.

`python -m benchmarks.service.messages` writes `benchmarks/results/service_messages.json`. 5,000
subscriptions of each of the paper's kinds, 20,000 events published in pieces. Counted is what the
outbox holds for subscribers (matches, and beside them that subscriptions have started), and the
events that satisfy an atom of a subscription, which a client that matches by itself would have to
be sent. All planted matches must be in the outbox.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from benchmarks.machine import machine
from benchmarks.papers.subscription_streams import KINDS, STREAMS, Kind, planted, stream
from benchmarks.papers.subscriptions import EVENTS, SECOND, SUBSCRIPTIONS, atoms_of, shape
from benchmarks.tables import Sheet
from ensue.service.service import Service
from ensue.vector.event_table import split_table
from ensue.vector.geo_columns import read_places

RESULTS = Path(__file__).resolve().parents[1] / "results" / "service_messages.json"
Report = dict[str, Any]


def to_fat_clients(kind: Kind, count: int, events: pa.Table) -> int:
    """How many events clients get that match by themselves: one each for every client."""
    index, owner = atoms_of(kind, count)
    sent = 0
    for piece in split_table(events, SECOND):
        rows, slots = index.route(piece, read_places(piece, shape().schema))
        pairs = zip(rows.tolist(), slots.tolist(), strict=True)
        sent += len({(row, client) for row, slot in pairs for client in owner[slot]})
    return sent


async def to_subscribers(kind: Kind, count: int, events: pa.Table) -> Report:
    """What the service tells its subscribers."""
    limits = {
        "subscriptions_per_user": count, "corners_per_user": 100 * count,
        "notes_per_minute": 10_000_000,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        given: dict[str, Any] = {"time": "ts", "type": "type", "location": ("x", "y")}
        path = Path(folder) / "messages.db"
        async with Service(path, schema=events.schema, limits=limits, **given) as service:
            await service.subscribe_all({"text": kind.opsl(n)} for n in range(count))
            process, began = time.process_time(), time.perf_counter()
            for piece in split_table(events, SECOND):
                await service.publish(piece)
            last = events["ts"][-1].as_py()
            await service.advance(last.replace(year=last.year + 1))
            spent = time.process_time() - process, time.perf_counter() - began
            kinds: dict[str, int] = dict(
                await service.look(
                    lambda db: [tuple(row) for row in db.execute("SELECT kind, count(*) FROM outbox GROUP BY kind")]
                )
            )
    return {**kinds, "cpu_seconds": spent[0], "seconds": spent[1]}


def measured(kind: Kind, name: str, count: int, total: int) -> Report:
    events = stream(kind, name, count, total)
    expected = planted(kind, name, total)
    told = asyncio.run(to_subscribers(kind, count, events))
    if told.get("match", 0) != expected:
        raise AssertionError(f"{kind.name}, {name}: {told.get('match')} told, {expected} planted")
    fat = to_fat_clients(kind, count, events)
    print(f"{kind.name}, {name}: {expected:,} against {fat:,}", flush=True)
    return {
        "kind": kind.name,
        "stream": name,
        "planted": expected,
        "told": told,
        "to_fat_clients": fat,
        "share": expected / fat,
    }


def sheet(report: Report) -> Sheet:
    rows = tuple(
        (
            f"{run['kind']}, {run['stream']}", f"{run['planted']:,}",
            f"{run['to_fat_clients']:,}", f"1/{1 / run['share']:.3g}",
        )
        for run in report["runs"]
    )  # fmt: skip
    heads = ("subscriptions, stream", "notifications", "events to fat clients", "share")
    return Sheet("Messages to clients", heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    count, total = SUBSCRIPTIONS, EVENTS
    if options.quick:
        count, total = count // 10, total // 10
    report: Report = {"machine": machine(), "quick": options.quick}
    report |= {"subscriptions": count, "events": total}
    report["runs"] = [measured(kind, name, count, total) for kind in KINDS for name in STREAMS]
    Console().print(sheet(report).rich())
    options.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
