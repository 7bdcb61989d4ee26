"""Probes of an archive: what it costs to read some objects over some time.

`python -m benchmarks.papers.archive_probe [--events 20000000] [--quick] [--folder DIR]`. An
archive of Ensue's own: 100,000 objects, 30 days, five columns, by day and 16 buckets, sorted by
object and time. Each probe asks for other objects and other times than the one before.

Counted are processor milliseconds of one thread, log followed and rows in the order of the stream
included: *warm*, the median of some probes, and *first touch*, the first probe when nothing is
kept in the process and none of the files is in the memory of the system. Beside it the same events
in the order in which they came, a file a day: what a table looks like that nobody has clustered.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.tables import Sheet
from ensue.archives.archive import KEY, SINCE, UNTIL, ArchiveRead
from ensue.archives.delta_writer import commit, create, write_files

RESULTS = Path(__file__).parent.parent / "results"
INSTANT = pa.timestamp("us", "UTC")
BEGIN = 1_772_323_200_000_000  # 2026-03-01
HOUR, DAY, DAYS = 3_600_000_000, 86_400_000_000, 30
OBJECTS = 100_000
PROBES = {
    "1 object x 1 hour": (1, HOUR),
    "10 x 1 hour": (10, HOUR),
    "1,000 x 1 hour": (1_000, HOUR),
    "1 x 30 days": (1, DAYS * DAY),
    "1,000 x 24 hours": (1_000, DAY),
}
GOALS = {"1 object x 1 hour": 10, "1 x 30 days": 50, "1,000 x 1 hour": 100}  # ms of CPU


def day_of_events(day: int, count: int) -> pa.Table:
    """The events of a day, in the order of time."""
    random = np.random.default_rng(day)
    times = np.sort(random.integers(0, DAY, count)) + BEGIN + day * DAY
    return pa.table(
        {
            "ts": pa.array(times, INSTANT),
            "id": random.integers(0, OBJECTS, count),
            "type": pa.array(np.array(["Trade", "Quote"])[random.integers(0, 2, count)]),
            "price": random.random(count).round(3) * 100,
            "volume": random.integers(1, 2_000, count),
        }
    )


def build(folder: Path, events: int) -> dict[str, Any]:
    """The clustered archive and the folder in the order of arrival."""
    schema = day_of_events(0, 1).schema
    archive = create(folder / "clustered", schema, time="ts", type="type", key=["id"])
    (folder / "arrival").mkdir()
    count, seconds, commits = events // DAYS, 0.0, []
    for day in range(DAYS):
        table = day_of_events(day, count)
        pq.write_table(table, folder / "arrival" / f"day-{day:02}.parquet")
        began = time.process_time()
        added = write_files(archive, table, day * count)
        seconds += time.process_time() - began
        began = time.process_time()
        assert commit(archive, added, "benchmark", day)
        commits.append(time.process_time() - began)
    layout = archive.layout()
    return {
        "events": layout.rows,
        "files": layout.files,
        "bytes": layout.bytes,
        "written_events_per_cpu_second": count * DAYS / seconds,
        "commit_ms": statistics.median(commits) * 1_000,
    }


def wanted(objects: int, length: int, seed: int) -> ArchiveRead:
    """Objects, and a stretch of time that is the same for all of them."""
    random = np.random.default_rng((seed, objects, length))
    ids = random.choice(OBJECTS, objects, replace=False)
    since = BEGIN + int(random.integers(0, DAYS * DAY - length + 1))
    bounds = {SINCE: since, UNTIL: since + length}
    columns = {n: pa.array(np.full(objects, v), INSTANT) for n, v in bounds.items()}
    return ArchiveRead(pa.table({KEY: ids, **columns}), "id")


def archive_of(place: Path) -> Any:
    return ensue.archive(place, time="ts", type="type", key="id")


def probe(place: Path, name: str, times: int) -> dict[str, Any]:
    """Warm probes of one size."""
    archive = archive_of(place)
    objects, length = PROBES[name]
    cpu, wall, rows, files = [], [], 0, 0
    for seed in range(times + 2):
        asked = wanted(objects, length, seed)
        began, clock = time.process_time(), time.perf_counter()
        found = archive.read(asked)
        if seed >= 2:
            cpu.append((time.process_time() - began) * 1_000)
            wall.append((time.perf_counter() - clock) * 1_000)
        rows, files = rows + found.events.num_rows, files + found.files
    return {
        "cpu_ms": statistics.median(cpu),
        "wall_ms": statistics.median(wall),
        "rows": rows / (times + 2),
        "files": files / (times + 2),
    }


def first_touch(place: Path, name: str) -> float:
    """The first probe of a process that has read from another archive before: code is loaded."""
    for path in place.rglob("*.parquet"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    program = (
        "import sys, time; from pathlib import Path\n"
        "from benchmarks.papers import archive_probe as b\n"
        "place, other, name = sys.argv[1:]\n"
        "b.archive_of(Path(other)).read(b.wanted(*b.PROBES[name], 0))\n"
        "archive = b.archive_of(Path(place))\n"
        "began = time.process_time()\n"
        "archive.read(b.wanted(*b.PROBES[name], 1))\n"
        "print((time.process_time() - began) * 1_000)\n"
    )
    other = place.parent / ("arrival" if place.name == "clustered" else "clustered")
    done = subprocess.run(
        [sys.executable, "-c", program, str(place), str(other), name],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


def measured(folder: Path, times: int) -> list[dict[str, Any]]:
    found = []
    for kind in ("clustered", "arrival"):
        for name in PROBES:
            heavy = kind == "arrival" and PROBES[name][1] > DAY
            row = {"layout": kind, "engine": "pyarrow", "probe": name}
            row |= probe(folder / kind, name, 2 if heavy else times)
            row["first_touch_cpu_ms"] = first_touch(folder / kind, name)
            found.append(row)
    return found


def sheets(report: dict[str, Any]) -> list[Sheet]:
    rows = report["probes"]

    def line(layout: str) -> tuple[str, ...]:
        own = {r["probe"]: r for r in rows if r["layout"] == layout}
        return (layout, *(f"{own[n]['cpu_ms']:,.1f} ({own[n]['first_touch_cpu_ms']:,.0f})" for n in PROBES))

    events = report["archive"]["events"]
    return [
        Sheet(
            f"A probe of {events:,} events: CPU ms, warm (first touch)",
            ("archive", *PROBES),
            (*map(line, dict.fromkeys(r["layout"] for r in rows)), ("goal", *(f"{GOALS.get(n, '-')}" for n in PROBES))),
        )
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="300,000 events, few probes")
    parser.add_argument("--events", type=int, default=20_000_000)
    parser.add_argument("--folder", type=Path, help="where the archive is, or is to be built")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    events, times = (300_000, 3) if options.quick else (options.events, 15)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        built = folder / "built.json"
        if not built.exists():
            folder.mkdir(parents=True, exist_ok=True)
            built.write_text(json.dumps(build(folder, events)))
        report: dict[str, Any] = {
            "machine": machine(),
            "quick": options.quick,
            "counted": "processor milliseconds of a probe, log followed, rows in order",
            "archive": json.loads(built.read_text()),
            "goals_cpu_ms": GOALS,
            "probes": measured(folder, times),
        }
    console = Console()
    for sheet in sheets(report):
        console.print(sheet.rich())
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "papers_archive_probe.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
