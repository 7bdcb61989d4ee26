"""A long stream with a state of 100 MB: `python -m benchmarks.soak [--events 30000000]`.

State and memory must stay level: the median of the last quarter of the micro-batches is compared
with that of the second. The window is full within the first quarter. At the end the matches are
counted and compared with a batch run over the same events. Writes benchmarks/results/soak.json.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

import ensue
from benchmarks import readme
from benchmarks.machine import machine
from benchmarks.readme import RESULTS
from benchmarks.tables import growth
from ensue.backends.spark.stream_progress import get_progress

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
ROWS = 500_000  # of a micro-batch
FULL = 30_000_000  # events of a run that is written down
LEVEL = 1.25  # how much larger the last quarter may be than the second
MUST_BE_LEVEL = ("state_bytes", "partial_matches", "waiting", "python_bytes", "largest_worker")
WINDOW = 4_200  # seconds, of a thousand events each: about 100 MB of state
SYMBOLS = 140_000  # so many that an event is in as few matches as with a small window
QUERY = f"""
    PATTERN SEQ(A a, B b, !C c, D d)
    WHERE [symbol] and b.price > a.price and d.price < a.price
    WITHIN {WINDOW} seconds
"""


def main() -> int:
    """0 if state and memory are level and the matches are those of the batch run."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="ensue-soak-") as name:
        from ensue.backends.spark.session import get_or_create_session

        session = get_or_create_session()
        session.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count() or 1))
        samples, found = _run(session, options.events, Path(name))
        wanted = _matched(session.range(0, options.events), "id").count()
        session.stop()
    report = {
        "events": options.events,
        "window_seconds": WINDOW,
        "symbols": SYMBOLS,
        "rows": ROWS,
        "matches": found,
        "batch_matches": wanted,
        "samples": samples,
    }
    grown = {what: round(growth(samples, what), 3) for what in (*MUST_BE_LEVEL, "java_bytes")}
    console.print({k: v for k, v in report.items() if k != "samples"})
    console.print("last quarter over the second", grown)
    level = all(grown[what] <= LEVEL for what in MUST_BE_LEVEL)
    if options.events >= FULL:
        text = json.dumps({"machine": machine(), "runs": [report]}, indent=1)
        (RESULTS / "soak.json").write_text(text + "\n", encoding="utf-8")
        readme.main()
    if options.events < 4 * WINDOW * 1_000:
        console.print("too short for the window: it says nothing about what stays level")
    return 0 if level and found == wanted else 1


def _run(session: "SparkSession", count: int, folder: Path) -> tuple[list[dict[str, Any]], int]:
    batches = count // ROWS
    rows = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", os.cpu_count() or 1)
        .load()
    )
    rows = rows.filter(f"value < {count}")
    checkpoint = folder / "checkpoint"
    writer = _matched(rows, "value").writeStream.format("noop")
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    samples: list[dict[str, Any]] = []
    while query.isActive and len(samples) <= batches + 1:
        for done in get_progress(query):
            if done.batch >= len(samples):
                samples.append(_sample(done))
                if done.batch % 5 == 0:
                    console.print(samples[-1], style="dim")
        time.sleep(0.2)
    query.stop()
    if query.exception() is not None:
        raise query.exception()  # type: ignore[misc]
    delivered = sum(s["matches"] for s in samples)
    return samples[:batches], delivered + ensue.remaining(session, checkpoint).count()


def _sample(done: Any) -> dict[str, Any]:
    workers, java = _memory()
    return {
        "batch": done.batch,
        "rows_per_second": round(done.rows_per_second),
        "matches": done.matches,
        "partial_matches": done.partial_matches,
        "waiting": done.waiting,
        "state_bytes": done.state_bytes,
        "written_bytes": done.written_bytes,
        "rebuilt": done.rebuilt,
        "python_bytes": sum(workers),
        "largest_worker": max(workers, default=0),
        "java_bytes": java,
    }


def _matched(rows: "DataFrame", number: str) -> "DataFrame":
    from pyspark.sql import functions as sql

    value = sql.col(number)

    def drawn(salt: int, choices: int) -> "Column":
        return sql.pmod(sql.xxhash64(value, sql.lit(salt)), sql.lit(choices))

    events = rows.select(
        sql.timestamp_micros(sql.lit(1_770_000_000_000_000) + value * 1_000).alias("ts"),
        sql.element_at(sql.array(*map(sql.lit, "ABCDE")), (drawn(1, 5) + 1).cast("int")).alias("type"),
        # symbols come and go: each window of events has its own
        (drawn(2, SYMBOLS) + sql.floor(value / (WINDOW * 1_000)) * SYMBOLS).alias("symbol"),
        (drawn(3, 10_000) / 100).alias("price"),
    )
    options = {"watermark": "1 second"} if rows.isStreaming else {}
    return ensue.match(events, QUERY, time="ts", type="type", **options)


def _memory() -> tuple[list[int], int]:
    """What each of the Python workers and the JVM below this process hold."""
    parents, workers, java = {os.getpid()}, [], 0
    seen = True
    processes = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = path.read_text().rsplit(")", 1)
            pages = int(path.with_name("statm").read_text().split()[1])
        except OSError:
            continue  # it has ended
        processes[int(path.parent.name)] = (int(rest.split()[1]), name.split("(", 1)[1], pages)
    while seen:
        found = {p for p, (parent, _, _) in processes.items() if parent in parents} - parents
        parents |= found
        seen = bool(found)
    for process in parents - {os.getpid()}:
        _, name, pages = processes[process]
        size = pages * os.sysconf("SC_PAGE_SIZE")
        if name == "java":
            java += size
        else:
            workers.append(size)
    return workers, java


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=FULL)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
