"""A long stream with a small window: `python -m benchmarks.soak [--events 30000000]`.

State and memory must stay level: their largest values in the last third are compared with those in
the middle third. At the end the matches are counted and compared with a batch run over the same
events. Writes benchmarks/results/soak.json.
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

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
ROWS = 500_000  # of a micro-batch
LEVEL = 1.25  # how much larger the last third may be than the one before
QUERY = """
    PATTERN SEQ(A a, B b, !C c, D d)
    WHERE [symbol] and b.price > a.price and d.price < a.price
    WITHIN 30 seconds
"""


def main() -> int:
    """0 if state and memory are level and the matches are those of the batch run."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="ensue-soak-") as name:
        from ensue.runners.spark_session import embedded

        session = embedded()
        session.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count() or 1))
        samples, found = _run(session, options.events, Path(name))
        wanted = _matched(session.range(0, options.events), "id").count()
        session.stop()
    middle, last = (samples[len(samples) * k // 3 : len(samples) * (k + 1) // 3] for k in (1, 2))
    growth = {
        what: max(s[what] for s in last) / max(1, *(s[what] for s in middle))
        for what in ("state_bytes", "partial_matches", "waiting", "python_bytes", "java_bytes")
    }
    report = {
        "events": options.events,
        "matches": found,
        "batch_matches": wanted,
        "growth_of_last_third": growth,
        "samples": samples[:: max(1, len(samples) // 30)],
    }
    console.print({k: v for k, v in report.items() if k != "samples"})
    level = all(growth[what] <= LEVEL for what in growth if what != "java_bytes")
    if options.events >= 30_000_000:
        text = json.dumps({"machine": machine(), "runs": [report]}, indent=1)
        (RESULTS / "soak.json").write_text(text + "\n", encoding="utf-8")
        readme.main()
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
        for done in ensue.progress_of(query):
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
    python, java = _memory()
    return {
        "batch": done.batch,
        "rows_per_second": round(done.rows_per_second),
        "matches": done.matches,
        "partial_matches": done.partial_matches,
        "waiting": done.waiting,
        "state_bytes": done.state_bytes,
        "python_bytes": python,
        "java_bytes": java,
    }


def _matched(rows: "DataFrame", number: str) -> "DataFrame":
    from pyspark.sql import functions as sql

    value = sql.col(number)

    def drawn(salt: int, choices: int) -> "Column":
        return sql.pmod(sql.xxhash64(value, sql.lit(salt)), sql.lit(choices))

    events = rows.select(
        sql.timestamp_micros(sql.lit(1_770_000_000_000_000) + value * 1_000).alias("ts"),
        sql.element_at(sql.array(*map(sql.lit, "ABCDE")), (drawn(1, 5) + 1).cast("int")).alias(
            "type"
        ),
        # symbols come and go: an hour of events has its own thousand
        (drawn(2, 1_000) + (value / 3_600_000).cast("long") * 1_000).alias("symbol"),
        (drawn(3, 10_000) / 100).alias("price"),
    )
    options = {"watermark": "1 second"} if rows.isStreaming else {}
    return ensue.match(events, QUERY, time="ts", type="type", **options)


def _memory() -> tuple[int, int]:
    """What the Python workers and the JVM below this process hold."""
    parents, python, java = {os.getpid()}, 0, 0
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
        python, java = (python, java + size) if name == "java" else (python + size, java)
    return python, java


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=30_000_000)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
