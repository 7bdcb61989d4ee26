"""What a key change and every further subscription of a hierarchy cost on Spark.

`python -m benchmarks.papers.definitions_spark [--quick]`. Loads followed by errors of one host are
trouble, trouble followed by a restart is a failure, two failures are the match. Every host has a
rack of its own and every rack a site, so that the hierarchy has the same matches whether its levels
are partitioned by host, or the upper ones by rack and site. Then events have to be shuffled anew
between the levels, which is what is measured:

- *one key*: all levels by host, in one stage; top-down and bottom-up.
- *one cut*: the level on top by rack. *two cuts*: the middle by rack, the top by site.
- *top* delivers the matches on top only, *all* those of every level.

Batch: by the clock on the wall, from Parquet files to counted matches, the best of some runs in
turns, after one that is not counted. Streaming: the median time of a micro-batch behind the first.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.spark import written
from benchmarks.tables import Sheet
from benchmarks.timing import Clock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = Path(__file__).parent.parent / "results"
KINDS = np.array(["Load", "Error", "Restart", "Heartbeat"])
SHARES = (0.3, 0.1, 0.05, 0.55)
HIERARCHY = """
EVENT Trouble AS SEQ(Load a, Error b)
WHERE [host] and a.value > 0.9 and b.value > a.value
WITHIN 20000 RETURN a.rack AS rack, a.site AS site, b.value AS value;
EVENT Failure AS SEQ(Trouble x, Restart r)
WHERE [{middle}] and r.value < x.value
WITHIN 20000 RETURN r.host AS host, r.rack AS rack, r.site AS site, x.value AS value;
SEQ(Failure f, Failure g)
WHERE [{top}] and g.value > f.value
WITHIN 60000 RETURN g.value AS value
"""
KEYS = {"one key": ("host", "host"), "one cut": ("host", "rack"), "two cuts": ("rack", "site")}
COLUMNS = {"time": "ts", "type": "kind"}


def stream(count: int, hosts: int, seed: int = 1) -> pa.Table:
    random = np.random.default_rng(seed)
    host = random.integers(0, hosts, count)
    return pa.table(
        {
            "ts": np.cumsum(random.integers(0, 3, count)),
            "kind": KINDS[random.choice(4, count, p=SHARES)],
            "host": host,
            "rack": host + 1_000_000,
            "site": host + 2_000_000,
            "value": random.random(count),
        }
    )


def text(name: str) -> str:
    middle, top = KEYS[name]
    return HIERARCHY.format(middle=middle, top=top)


BOTTOM_UP, EVERY_LEVEL = ensue.PlannerOptions(off="top_down"), ensue.OutputOptions(levels="all")


def ways() -> dict[str, dict[str, Any]]:
    """What is measured: a hierarchy, and how it is called."""
    found: dict[str, dict[str, Any]] = {
        "one key, top-down": {"hierarchy": "one key"},
        "one key": {"hierarchy": "one key", "options": BOTTOM_UP},
    }
    for name in ("one cut", "two cuts"):
        found[name] = {"hierarchy": name, "options": BOTTOM_UP}
    for name in KEYS:
        found[f"{name}, all levels"] = {"hierarchy": name, "options": [BOTTOM_UP, EVERY_LEVEL]}
    return found


# ---------------------------------------------------------------------------------------- batch


def local(events: pa.Table, times: int) -> dict[str, Any]:
    """The same in this process: what subscribing costs without Spark."""
    report = {}
    for name in ("one key", "one key, all levels"):
        options = dict(ways()[name])
        hierarchy = text(options.pop("hierarchy"))
        seconds = []
        for _ in range(times + 1):
            clock = Clock()
            with clock:
                found = ensue.match(events, hierarchy, **COLUMNS, **options)
            seconds.append(clock.cpu_seconds)
        top = found[""] if isinstance(found, dict) else found
        levels = {k: v.num_rows for k, v in found.items()} if isinstance(found, dict) else None
        report[name] = {
            "cpu_seconds": min(seconds[1:]), "matches": top.num_rows, "levels": levels,
        }  # fmt: skip
    return report


def batch(session: "SparkSession", folder: Path, times: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {name: [] for name in ways()}
    counts: dict[str, set[int]] = {name: set() for name in ways()}
    for turn in range(times + 1):
        for name, options in sorted(ways().items(), reverse=bool(turn % 2)):
            given = dict(options)
            hierarchy = text(given.pop("hierarchy"))
            frame = session.read.parquet(str(folder))
            clock = Clock()
            with clock:
                found = ensue.match(frame, hierarchy, **COLUMNS, **given)
                if isinstance(given.get("options"), list):  # of every level
                    kept = found.cache()
                    top = [kept[level].count() for level in kept][-1]
                    kept.unpersist()
                else:
                    top = found.count()
            counts[name].add(top)
            if turn:
                seconds[name].append(clock.seconds)
    assert len(set().union(*counts.values())) == 1, f"other matches: {counts}"
    return {name: {"best_seconds": min(times), "matches": next(iter(counts[name]))} for name, times in seconds.items()}


# ------------------------------------------------------------------------------------ streaming


def streaming(session: "SparkSession", events: pa.Table, files: int, folder: Path) -> Any:
    source = folder / "stream"
    source.mkdir()
    size = -(-events.num_rows // files)
    for number in range(files):
        path = source / f"{number:03}.parquet"
        pq.write_table(events.slice(number * size, size), path)
        os.utime(path, (number + 1, number + 1))
    schema = session.read.parquet(str(source)).schema
    report, found = {}, set()
    for name in KEYS:
        reader = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        matches = ensue.match(reader.parquet(str(source)), text(name), **COLUMNS, watermark=10, options=BOTTOM_UP)
        count = [0]

        def sink(frame: Any, _: int, count: list[int] = count) -> None:
            count[0] += frame.count()

        query = ensue.start(matches, sink, checkpoint=folder / name.replace(" ", "_"), once=True, flush=True)
        batches = [p for p in query.progress() if p.input_rows]
        report[name] = {
            "median_seconds": statistics.median(p.seconds for p in batches[1:]),
            "matching_share": statistics.median(p.matching_share for p in batches[1:]),
            "micro_batches": len(batches),
            "events_of_each": size,
            "matches": count[0],
        }
        found.add(count[0])
    assert len(found) == 1, f"other matches: {report}"
    return report


# --------------------------------------------------------------------------------------- report


def sheets(report: dict[str, Any]) -> list[Sheet]:
    base = report["batch"]["one key"]["best_seconds"]
    rows = [
        (name, f"{row['best_seconds']:.2f} s", f"{row['best_seconds'] / base:.2f}")
        for name, row in report["batch"].items()
    ]
    tables = [
        Sheet(
            f"Spark batch, {report['events']:,} events, {report['matches']:,} matches on top",
            ("hierarchy", "time", "over one key"),
            tuple(rows),
        )
    ]
    base = report["streaming"]["one key"]["median_seconds"]
    rows = [
        (name, f"{row['median_seconds']:.2f} s", f"{row['median_seconds'] / base:.2f}")
        for name, row in report["streaming"].items()
    ]
    size = report["streaming"]["one key"]["events_of_each"]
    tables.append(
        Sheet(
            f"Spark streaming, micro-batches of {size:,} events",
            ("hierarchy", "median micro-batch", "over one key"),
            tuple(rows),
        )
    )
    base = report["local"]["one key"]["cpu_seconds"]
    rows = [
        (name, f"{row['cpu_seconds']:.2f} s", f"{row['cpu_seconds'] / base:.2f}")
        for name, row in report["local"].items()
    ]
    tables.append(Sheet("In one process", ("hierarchy", "processor", "over the top"), tuple(rows)))
    return tables


def main(argv: Sequence[str] | None = None) -> None:
    from ensue.backends.spark.session import get_or_create_session

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer events, one run each")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    count, hosts, times, files = (50_000, 200, 1, 3) if options.quick else (5_000_000, 1_000, 3, 10)
    streamed = count if options.quick else 1_000_000
    events = stream(count, hosts)
    session = get_or_create_session()
    folder = Path(tempfile.mkdtemp(prefix="ensue-hierarchies-"))
    try:
        inside = local(events, times)
        report: dict[str, Any] = {
            "machine": machine(),
            "quick": options.quick,
            "events": count,
            "runs": times,
            "matches": inside["one key"]["matches"],
            "counted": "batch: seconds from Parquet files to counted matches; "
            "streaming: of a micro-batch; local: processor seconds",
            "local": inside,
            "batch": batch(session, written(events, folder / "events"), times),
            "streaming": streaming(session, events.slice(0, streamed), files, folder),
        }
    finally:
        session.stop()
        shutil.rmtree(folder, ignore_errors=True)
    assert report["matches"] == report["batch"]["one key"]["matches"]
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "papers_definitions_spark.json").write_text(json.dumps(report, indent=1) + "\n")
    console = Console()
    for sheet in sheets(report):
        console.print(sheet.rich())


if __name__ == "__main__":
    main()
