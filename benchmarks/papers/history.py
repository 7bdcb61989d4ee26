"""A history matched in one batch job, beside the same events streamed from the beginning.

`python -m benchmarks.papers.history [--quick]`. One stream gets a folder of Parquet files as its
`history=`: measured is until its matches are delivered and the stream is started. The other
streams the same files, 100,000 events a micro-batch, until all of them are done. By the clock on
the wall, and in processor seconds of Spark and its Python workers; kernels are compiled before.
Behind the clock both go on to their end, and must have the same matches. Goal: at least three
times faster.
"""

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.streaming import WATERMARK, in_files, stream_of
from benchmarks.tables import Sheet
from benchmarks.workloads import WORKLOADS, events

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = Path(__file__).parent.parent / "results"
WORKLOAD = WORKLOADS["next, correlated"]
KEYS = 10_000
BATCH = 100_000  # events of a micro-batch
AGAIN = 10_000  # events of the history that the stream has again
COLUMNS = {"time": "ts", "type": "type"}


def processor_seconds() -> float:
    """Of this process and of all it has started, also of those that have ended."""
    ticks, parents = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                values = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            parents[int(entry.name)] = int(values[1])
            ticks[int(entry.name)] = sum(map(int, values[11:15]))

    def ours(number: int) -> bool:
        while number > 1:
            if number == os.getpid():
                return True
            number = parents.get(number, 0)
        return False

    return sum(t for n, t in ticks.items() if ours(n)) / os.sysconf("SC_CLK_TCK")


def timed(run: Callable[[], object]) -> dict[str, float]:
    wall, used = perf_counter(), processor_seconds()
    run()
    return {"wall": perf_counter() - wall, "cpu": processor_seconds() - used}


def measured(session: "SparkSession", folder: Path, count: int) -> dict[str, Any]:
    """Both ways over the same events."""
    table = events(count, KEYS)
    past, live = folder / "past", folder / "live"
    files = in_files(table, past, BATCH)
    live.mkdir()
    pq.write_table(table.slice(count - AGAIN), live / "00000.parquet")

    def start(name: str, source: Path, **options: Any) -> Any:
        stream = stream_of(session, source, files)
        matches = ensue.match(stream, WORKLOAD.text(KEYS), **COLUMNS, watermark=WATERMARK)
        output, checkpoint = folder / f"{name}-found", folder / f"{name}-checkpoint"
        return ensue.start(matches, output, checkpoint=checkpoint, **options)

    history = {"history": ensue.archive(past, **COLUMNS)}
    running: list[Any] = []
    found = {"history": timed(lambda: running.append(start("history", live, **history))), "streaming": {}}
    running[0].stop()
    start("history", live, **history, once=True, flush=True)
    found["streaming"] = timed(lambda: start("streaming", past, once=True))
    start("streaming", past, once=True, flush=True)
    ids = {name: sorted(pq.read_table(folder / f"{name}-found")["match_id"].to_pylist()) for name in found}
    return {
        "events": count,
        "matches": len(ids["streaming"]),
        "same": ids["history"] == ids["streaming"],
        **found,
        "times faster": found["streaming"]["wall"] / found["history"]["wall"],
        "times less CPU": found["streaming"]["cpu"] / found["history"]["cpu"],
    }


def sheet(rows: list[dict[str, Any]]) -> Sheet:
    columns = ("events", "matches", "history: s", "CPU s", "streaming: s", "CPU s", "faster")
    return Sheet(
        "A history in one batch job, and the same events streamed",
        columns,
        tuple(
            (
                f"{row['events']:,}", f"{row['matches']:,}",
                f"{row['history']['wall']:.1f}", f"{row['history']['cpu']:.1f}",
                f"{row['streaming']['wall']:.1f}", f"{row['streaming']['cpu']:.1f}",
                f"{row['times faster']:.1f}x",
            )
            for row in rows
        ),
    )  # fmt: skip


def main() -> int:
    """Measures, prints, and writes benchmarks/results/papers_history.json."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="1M events, nothing is written")
    quick = parser.parse_args().quick
    rows = []
    with tempfile.TemporaryDirectory(prefix="ensue-history-") as name:
        os.environ["ENSUE_CACHE"] = str(Path(name, "kernels"))
        from ensue.backends.spark.session import get_or_create_session

        session = get_or_create_session()
        session.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count() or 1))
        sizes = (BATCH, 1_000_000) if quick else (BATCH, 1_000_000, 5_000_000)
        for number, count in enumerate(sizes):
            rows.append(measured(session, Path(name, str(number)), count))
            shutil.rmtree(Path(name, str(number)))
        session.stop()
    rows = rows[1:]  # the first one has compiled the kernels
    Console().print(sheet(rows).rich())
    if not quick:
        text = json.dumps({"machine": machine(), "rows": rows}, indent=1)
        (RESULTS / "papers_history.json").write_text(text + "\n", encoding="utf-8")
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
