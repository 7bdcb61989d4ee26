"""What very many subscriptions cost a stream on Spark.

`python -m benchmarks.papers.subscriptions_spark [--quick]`. Micro-batches of the same events, of
which the same rows are routed: once with a thousand subscriptions, once with a million, of which
all but the thousand are about other objects and other places. 40 % ask for a type and an id, 30 %
for a region, 20 % for a region and a range, 10 % for ranges; each joins two events.

The set is in a folder and its snapshot is mapped by the workers. Micro-batches behind the first
are measured: by the clock on the wall, and by the processor time of all processes of the session.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import ensue
from benchmarks.machine import machine
from ensue.backends.spark import stream as runner
from ensue.ir.subscription import Region, Subscription
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.change import SubscriptionChange
from ensue.operators.subscriptions.member_registry import Member
from ensue.operators.subscriptions.subscription_loader import SubscriptionSetLoader
from ensue.operators.subscriptions.subscription_set import _identity
from ensue.parser.opsl.opsl_parser import parse_subscription
from ensue.planner.subscription_network import plan_network
from ensue.runtime.source_schema import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
RESULTS = Path(__file__).parent.parent / "results" / "papers_subscriptions_spark.json"
FEW = 1_000
FIRST = 3  # micro-batches that are not counted: workers start, and map the tables
KEY_GROUPS = os.cpu_count() or 1
NUMBER, PLACE = 424_242, "POLYGON ((0 0, 1 0, 1 1, 0 0))"  # what is filled in
KINDS = (  # a text, and how many of ten are so
    (4, "=|(A; 50)(A), A = (STRING:kind = 'truck', ARITH:id = 424242)"),
    (3, "=|(@(R)(A); 50)(@(R)(A)), A = (STRING:kind = 'truck')"),
    (2, "=|(@(R)(A); 50)(@(R)(A)), A = (STRING:kind = 'truck', ARITH:speed > 60)"),
    (1, "=|(A; 50)(A), A = (ARITH:id >= 424242, ARITH:id < 424244, ARITH:speed > 60)"),
)
SCHEMA = "t long, id long, kind string, speed double, x double, y double"
COLUMNS: dict[str, Any] = {"time": "t", "location": ("x", "y")}


def asked(count: int) -> Iterator[tuple[int, int, str]]:
    """Which kind, about which object, and where: the first thousand are where events are."""
    kinds = [k for k, (share, _) in enumerate(KINDS) for _ in range(share)]
    for number in range(count):
        x, y = number % 1_000 * 4, number // 1_000 * 4
        corners = f"{x} {y}, {x + 2} {y}, {x + 2} {y + 2}, {x} {y + 2}, {x} {y}"
        yield number, kinds[number % 10], f"POLYGON (({corners}))"


def events(count: int, seed: int = 1) -> pa.Table:
    """Trucks of the first thousand numbers, in the first row of places."""
    random = np.random.default_rng(seed)
    id = random.integers(0, FEW, count)
    return pa.table(
        {
            "t": np.arange(count) // 10,
            "id": id,
            "kind": np.full(count, "truck"),
            "speed": random.integers(0, 120, count).astype(float),
            "x": id * 4.0 + random.random(count) * 4,
            "y": random.random(count) * 2,
        }
    )


# ------------------------------------------------------------------------------ the set


def filled(part: Any, number: int, place: str) -> Any:
    """A tree with another number and another region: quicker than reading a million texts."""
    if isinstance(part, Region):
        return Region(place)
    if isinstance(part, int | float) and not isinstance(part, bool) and part >= NUMBER:
        return part - NUMBER + number
    if isinstance(part, tuple):
        return tuple(filled(one, number, place) for one in part)
    if is_dataclass(part) and not isinstance(part, type):
        changed = {
            f.name: filled(getattr(part, f.name), number, place)
            for f in fields(part)
            if f.name not in ("span", "text", "variables")
        }
        return replace(part, **changed)
    return part


def kept(folder: Path, count: int, source: Any) -> None:
    """A set in a folder, with its snapshot."""
    ensue.Subscriptions(**COLUMNS, folder=folder)
    log = CatalogLog(folder)
    texts = [text for _, text in KINDS]
    log.append(
        SubscriptionChange.add(
            f"s{number}", texts[kind].replace(str(NUMBER), str(number)).replace(
                str(NUMBER + 2), str(number + 2)), regions={"R": place} if kind in (1, 2) else {},
        )
        for number, kind, place in asked(count)
    )  # fmt: skip
    fleets = SubscriptionSetLoader.build(source, streaming=True, key_groups=KEY_GROUPS, stream="")
    fleet = fleets.empty()
    trees: list[Subscription] = [parse_subscription(text, {"R": PLACE}) for text in texts]
    for number, kind, place in asked(count):
        tree = filled(trees[kind], number, place)
        place_in_table = fleet.nodes.subscribe(plan_network(tree, fleet.units), tree.select, 1)
        name = f"s{number}"
        fleet.members.add(Member(name, place_in_table, _identity(name, tree)))
    log.snapshot(1, {fleets.part: fleet})


# ------------------------------------------------------------------------------ the stream


def measured(session: "SparkSession", folder: Path, count: int, batches: int, size: int) -> dict[str, Any]:
    """Seconds and processor seconds of a micro-batch with so many subscriptions."""
    (folder / "events").mkdir(parents=True)
    table = events(batches * size)
    for number in range(batches):
        path = folder / "events" / f"{number:04}.parquet"
        pq.write_table(table.slice(number * size, size), path)
        os.utime(path, (number + 1,) * 2)
    reader = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    frame: DataFrame = reader.parquet(str(folder / "events"))
    _, source = runner.read(frame, SourceOptions(**COLUMNS))
    begun = perf_counter()
    kept(folder / "set", count, source)
    made = perf_counter() - begun
    fleet = ensue.Subscriptions(**COLUMNS, folder=folder / "set")
    matches = ensue.match(frame, fleet, watermark=0, options=ensue.StreamOptions(key_groups=KEY_GROUPS))
    at: list[float] = []
    used: list[float] = []

    def deliver(batch: "DataFrame", number: int) -> None:  # noqa: ARG001
        batch.count()
        at.append(perf_counter())
        used.append(processor_seconds())

    query = ensue.start(matches, deliver, checkpoint=folder / "checkpoint", once=True)
    reports = query.progress()
    whole = [b - a for a, b in zip(at[FIRST - 1 :], at[FIRST:], strict=False)]
    work = [b - a for a, b in zip(used[FIRST - 1 :], used[FIRST:], strict=False)]
    return {
        "subscriptions": count,
        "events": size,
        "routed": sum(report.events for report in reports),
        "matches": sum(report.matches for report in reports),
        "made": made,
        "seconds": statistics.median(whole),
        "processor_seconds": statistics.median(work),
        "first": at[0] - begun - made,
    }


def processor_seconds() -> float:
    """Of this process and all that it has started."""
    mine, found = {os.getpid()}, 0.0
    rows = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                values = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            rows.append((int(entry.name), int(values[1]), sum(map(int, values[11:15]))))
    for _ in range(6):  # the JVM, its daemons, their workers
        mine |= {number for number, parent, _ in rows if parent in mine}
    found = sum(ticks for number, _, ticks in rows if number in mine)
    return found / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Measures, prints, and writes the file of results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="twenty thousand instead of a million")
    parser.add_argument("--subscriptions", type=int, default=None)
    parser.add_argument("--events", type=int, default=50_000, help="of a micro-batch")
    options = parser.parse_args()
    many = options.subscriptions or (20_000 if options.quick else 1_000_000)
    batches = 8 if options.quick else 15
    from ensue.backends.spark.session import get_or_create_session

    found = []
    with tempfile.TemporaryDirectory(prefix="ensue-subscriptions-") as name:
        session = get_or_create_session({"spark.driver.memory": "2g"})
        session.conf.set("spark.sql.shuffle.partitions", str(KEY_GROUPS))
        for count in (FEW, many):
            found.append(measured(session, Path(name) / str(count), count, batches, options.events))
            console.print(found[-1])
        session.stop()
    few, lots = found
    ratio = {k: lots[k] / few[k] for k in ("seconds", "processor_seconds")}
    same = (few["routed"], few["matches"]) == (lots["routed"], lots["matches"])
    console.print({"same rows routed and matches found": same, "ratio": ratio})
    if not options.quick and options.subscriptions is None:
        said = {"machine": machine(), "runs": found, "ratio": ratio}
        RESULTS.write_text(json.dumps(said, indent=1) + "\n")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
