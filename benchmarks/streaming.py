"""Structured Streaming: `python -m benchmarks.streaming [--quick]`.

Throughput beside the same pipeline with an identity function in place of the matcher: the same
source, packing, key groups and unpacking, and as many bytes of state written. Events a second by size
of micro-batch and number of keys. The latency of small micro-batches. And the naive way, one
state for each key. Each micro-batch is a folder's next files; compilation and the first
micro-batches are outside the clock. Matches are compared with those of a batch run.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import ensue
from benchmarks import readme
from benchmarks.machine import machine, sentence
from benchmarks.readme import RESULTS
from benchmarks.tables import latency_sheet, per_key_sheet, streaming_sheet
from benchmarks.workloads import FEW_KEYS, MANY_KEYS, WORKLOADS, events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
WATERMARK = "1 second"
WORKLOAD = WORKLOADS["next, correlated"]
FIRST = 2  # micro-batches outside the clock
Report = dict[str, Any]


def main() -> int:
    """Measures, prints, and writes benchmarks/results/streaming.json."""
    options = _options()
    console.print(sentence(machine()))
    with tempfile.TemporaryDirectory(prefix="ensue-stream-") as name:
        os.environ["ENSUE_CACHE"] = str(Path(name, "kernels"))
        from ensue.backends.spark.session import get_or_create_session

        session = get_or_create_session()
        session.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count() or 1))
        session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "200")
        said = measured(session, Path(name), quick=options.quick)
        session.stop()
    console.print(streaming_sheet(said["throughput"]).rich())
    console.print(per_key_sheet(said["per_key"]).rich(), latency_sheet(said["latency"]).rich())
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps({"machine": machine(), **said}, indent=1)
        (RESULTS / "streaming.json").write_text(text + "\n", encoding="utf-8")
        readme.main()
    return 0 if all(r["same"] for r in said["throughput"]) else 1


def measured(session: "SparkSession", folder: Path, *, quick: bool) -> dict[str, Any]:
    sizes = (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000)
    throughput = []
    for symbols in (FEW_KEYS, MANY_KEYS):
        for size in sizes:
            console.print(f"{size:,} rows a micro-batch, {symbols:,} keys ...", style="dim")
            throughput.append(_throughput(session, folder / f"{symbols}-{size}", size, symbols))
    console.print("latency ...", style="dim")
    latency = _latency(session, folder / "latency", batches=20 if quick else 100)
    console.print("one state for each key ...", style="dim")
    per_key = [
        _per_key(session, folder / f"key-{symbols}-{size}", size, symbols)
        for size, symbols in ((10_000, FEW_KEYS), (100_000, FEW_KEYS))
    ]
    return {"throughput": throughput, "latency": [latency], "per_key": per_key}


# ------------------------------------------------------------------------------ the stream


def in_files(table: pa.Table, folder: Path, size: int) -> int:
    """The events as micro-batches of one file for each core."""
    folder.mkdir(parents=True)
    cores = os.cpu_count() or 1
    step = size // cores
    for number in range(table.num_rows // step):
        path = folder / f"{number:05}.parquet"
        pq.write_table(table.slice(number * step, step), path)
        os.utime(path, (number + 1, number + 1))
    return cores


def stream_of(session: "SparkSession", folder: Path, files: int) -> "DataFrame":
    schema = session.read.parquet(str(folder / "00000.parquet")).schema
    reader = session.readStream.schema(schema).option("maxFilesPerTrigger", files)
    return reader.parquet(str(folder))


def run(frame: "DataFrame", checkpoint: Path) -> list[Any]:
    """Runs a stream to its end into nothing; Spark's reports of its micro-batches."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return list(query.recentProgress)


def timed(reports: list[Any]) -> list[Any]:
    return [p for p in reports if p["numInputRows"]][FIRST:]


def seconds_of(reports: list[Any]) -> list[float]:
    return [p["durationMs"]["triggerExecution"] / 1_000 for p in timed(reports)]


def _matches(reports: list[Any]) -> int:
    return sum(p["observedMetrics"]["ensue"].matches or 0 for p in reports)


def _match(session: "SparkSession", folder: Path, files: int, text: str) -> "DataFrame":
    stream = stream_of(session, folder, files)
    return ensue.match(stream, text, time="ts", type="type", watermark=WATERMARK)


# ------------------------------------------------------------------------------ throughput


def _throughput(session: "SparkSession", folder: Path, size: int, symbols: int) -> Report:
    cores = os.cpu_count() or 1
    table = events(size * (FIRST + (3 if size >= 1_000_000 else 6)), symbols)
    files = in_files(table, folder / "events", size)
    text = WORKLOAD.text(symbols)
    wanted = ensue.match(table, text, time="ts", type="type").num_rows
    del table
    found = set()
    seconds: dict[str, list[float]] = {"match": [], "identity": []}
    observed: list[Any] = []
    for turn in range(2):  # in turns: what disturbs one disturbs the other too
        checkpoint = folder / f"match-{turn}"
        reports = run(_match(session, folder / "events", files, text), checkpoint)
        found.add(_matches(reports) + ensue.remaining(session, checkpoint).count())
        seconds["match"] += seconds_of(reports)
        observed = [p["observedMetrics"]["ensue"] for p in timed(reports)]
        written = round(statistics.mean(o.written_bytes for o in observed))
        same = _identity(stream_of(session, folder / "events", files), text, written // cores)
        seconds["identity"] += seconds_of(run(same, folder / f"identity-{turn}"))
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    share = statistics.median(o.matching_us / 1e6 / cores for o in observed) / medians["match"]
    return {
        "rows": size,
        "symbols": symbols,
        "matches": wanted,
        "same": found == {wanted},
        "match_seconds": medians["match"],
        "identity_seconds": medians["identity"],
        "ratio": medians["identity"] / medians["match"],  # of throughputs
        "events_per_second": size / medians["match"],
        "written_bytes": written,
        "state_bytes": observed[-1].state_bytes,
        "matching_share": share,
        "seconds": seconds,
    }


def _chain(stream: "DataFrame", text: str, key_groups: int) -> Any:
    """What runs in the key groups of a match."""
    from ensue.backends.spark.frames import arrow_schema
    from ensue.runtime.query_spec import QuerySpec, RunOptions
    from ensue.runtime.source_schema import SourceSchema
    from ensue.runtime.workload import Workload

    source = SourceSchema(arrow_schema(stream.schema), "ts", "type")
    asked = (QuerySpec(ensue.parse(text)),)
    return Workload(asked, source, RunOptions(streaming=True), key_groups).chains[0]


def _identity(stream: "DataFrame", text: str, write: int) -> "DataFrame":
    """The pipeline of a match with nothing in place of the matcher."""
    from ensue.backends.spark import stream as spark_stream
    from ensue.backends.spark.event_time import with_watermark
    from ensue.backends.spark.frames import spark_schema
    from ensue.backends.spark.match_frames import UnpackMatches
    from ensue.backends.spark.state_store import select_results

    chain = _chain(stream, text, os.cpu_count() or 1)
    watched = with_watermark(stream, chain.source.shape, WATERMARK)
    packed = spark_stream.select_events(watched, chain).mapInArrow(
        spark_stream.PackEvents(chain, "raise"), spark_stream.FLOW
    )
    found = packed.groupBy(chain.grouped_by).transformWithState(
        _identity_processor(chain, write), spark_stream.FLOW, "append", "EventTime"
    )
    schema = chain.outputs[0].schema
    return select_results(found).mapInArrow(UnpackMatches(schema), spark_schema(schema))


def _identity_processor(chain: Any, write: int) -> Any:
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from ensue.backends.spark.state_store import KeyGroupStore
    from ensue.backends.spark.stream import build_counter_row
    from ensue.runtime.tasks.micro_batch import TaskCounters
    from ensue.runtime.tasks.task_state import StateHeader
    from ensue.runtime.tasks.wire_format import unpack_table

    nothing = dict.fromkeys((field.name for field in fields(TaskCounters)), 0)

    class Identity(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.store = KeyGroupStore(handle)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            blobs = [bytes(row.blob) for row in rows if row.control is None]
            head = self.store.head() or StateHeader(1, b"", b"", 0, 0, 0, None)
            count = sum(unpack_table(blob)[1].num_rows for blob in blobs)
            self.store.put_entry(0, os.urandom(64) + bytes(max(0, write - 64)))
            self.store.put_head(head)
            counters = TaskCounters(**nothing | {"events": count, "written_bytes": write})
            yield Row(**build_counter_row(chain, key[0], counters))

    return Identity()


# ------------------------------------------------------------------------------ latency


def _latency(session: "SparkSession", folder: Path, batches: int) -> Report:
    """Micro-batches of 1,000 rows, one after the other."""
    size = 1_000
    files = in_files(events(size * (batches + 5), FEW_KEYS), folder / "events", size)
    reports = run(_match(session, folder / "events", files, WORKLOAD.text(FEW_KEYS)), folder / "checkpoint")
    timed = [p for p in reports if p["numInputRows"]][-batches:]
    seconds = sorted(p["durationMs"]["triggerExecution"] / 1_000 for p in timed)
    steps = {name for p in timed for name in p["durationMs"]} - {"triggerExecution"}
    observed = [p["observedMetrics"]["ensue"] for p in timed]
    where = {name: statistics.median(p["durationMs"].get(name, 0) / 1_000 for p in timed) for name in sorted(steps)}
    return {
        "rows": size,
        "batches": len(timed),
        "p50": statistics.median(seconds),
        "p99": seconds[min(len(seconds) - 1, int(len(seconds) * 0.99))],
        "where_seconds": where,
        "key_groups_busy_seconds": statistics.median(o.busy_us / 1e6 for o in observed),
        "key_groups_matching_seconds": statistics.median(o.matching_us / 1e6 for o in observed),
    }


# ------------------------------------------------------------------------------ one state a key


def _per_key(session: "SparkSession", folder: Path, size: int, symbols: int) -> Report:
    """The naive way: Spark groups by the natural key, and each has a state of its own."""
    batches = FIRST + 3
    files = in_files(events(size * batches, symbols), folder / "events", size)
    text = WORKLOAD.text(symbols)
    naive = run(_by_key(stream_of(session, folder / "events", files), text), folder / "naive")
    ours = run(_match(session, folder / "events", files, text), folder / "match")
    naive_seconds, seconds = (statistics.median(seconds_of(r)) for r in (naive, ours))
    return {
        "rows": size,
        "symbols": symbols,
        "match_seconds": seconds,
        "per_key_seconds": naive_seconds,
        "ratio": naive_seconds / seconds,
        "same": _matches(naive) == _matches(ours),
    }


def _by_key(stream: "DataFrame", text: str) -> "DataFrame":
    from pyspark.sql import functions as sql

    from ensue.backends.spark import stream as spark_stream

    processor = _key_processor(_chain(stream, text, 1))
    found = (
        stream.withWatermark("ts", WATERMARK)
        .groupBy("symbol")
        .transformWithStateInPandas(processor, spark_stream.FLOW, "append", "EventTime")
    )
    counts = (sql.sum(name).alias(name) for name in spark_stream.COUNTERS)
    return found.observe(spark_stream.METRIC_NAME, *counts)


def _key_processor(chain: Any) -> Any:
    import pandas as pd

    from ensue.backends.spark.stream import StageProcessor, build_counter_row
    from ensue.engine.state_format import serialize_table
    from ensue.runtime.tasks.micro_batch import run_task

    class ByKey(StageProcessor):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            arrow = chain.source.arrow
            tables = [pa.Table.from_pandas(r, preserve_index=False) for r in rows]
            whole = pa.concat_tables(tables).select(arrow.names).cast(arrow)
            yield self._counted(timerValues, [serialize_table(whole)])

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            yield self._counted(timerValues, [])

        def _counted(self, times: Any, blobs: list[bytes]) -> Any:
            outcome = run_task(self.store, chain, 0, times.getCurrentWatermarkInMs(), blobs)
            if outcome.timer != outcome.timer_before:
                if outcome.timer_before is not None:
                    self.handle.deleteTimer(outcome.timer_before)
                if outcome.timer is not None:
                    self.handle.registerTimer(outcome.timer)
            return pd.DataFrame([build_counter_row(chain, 0, outcome.counters)])

    return ByKey(chain, 0, None)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
