"""Ways to keep state in Python on Structured Streaming: `python -m benchmarks.state_forms`.

What Spark itself costs, with nothing matched: rows as they are or packed into one Arrow block for
each key group and task, into each of the stateful operators that PySpark has; then state of several
sizes, written and read, with and without changelog checkpointing. The figures in
docs/architecture.md come from benchmarks/results/state_forms.json.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from rich.console import Console

from benchmarks.machine import machine, sentence
from benchmarks.readme import RESULTS
from benchmarks.streaming import FIRST, in_files, run, stream_of, timed
from benchmarks.workloads import FEW_KEYS, events
from ensue.engine.state_format import deserialize_table, serialize_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
KEY_GROUPS = os.cpu_count() or 1
COUNTED = "rows long, write_ms double, read_ms double"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def main() -> int:
    """Measures, prints, and writes the file of results."""
    options = _options()
    console.print(sentence(machine()))
    sizes = (20_000,) if options.quick else (100_000, 500_000)
    state = (1,) if options.quick else (1, 10, 25)
    with tempfile.TemporaryDirectory(prefix="ensue-forms-") as name:
        from ensue.backends.spark.session import get_or_create_session

        session = get_or_create_session()
        session.conf.set("spark.sql.shuffle.partitions", str(KEY_GROUPS))
        session.conf.set(PROVIDER, ROCKSDB)
        forms = _forms(session, Path(name), sizes)
        stores = _stores(session, Path(name), state)
        session.stop()
    console.print(forms, stores)
    if not options.quick:
        said = {"machine": machine(), "forms": forms, "stores": stores}
        (RESULTS / "state_forms.json").write_text(json.dumps(said, indent=1) + "\n")
    return 0


def _forms(session: "SparkSession", folder: Path, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    found = []
    for size in sizes:
        here = folder / str(size)
        files = in_files(events(size * (FIRST + 3), FEW_KEYS), here / "events", size)
        for packed in (False, True):
            for operator, piped in OPERATORS.items():
                frame = _key_groups(stream_of(session, here / "events", files), packed)
                kind = f"{'packed' if packed else 'rows'}, {operator}"
                console.print(f"{size:,}: {kind} ...", style="dim")
                reports = run(piped(frame, packed), here / kind.replace(" ", "-"))
                seconds = [p["durationMs"]["triggerExecution"] / 1_000 for p in timed(reports)]
                median = statistics.median(seconds)
                found.append({"rows": size, "form": kind, "seconds": median, "rows_per_second": size / median})
    return found


def _stores(session: "SparkSession", folder: Path, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    found = []
    files = in_files(events(1_000 * (FIRST + 4), FEW_KEYS), folder / "small", 1_000)
    for changelog in ("true", "false"):
        session.conf.set(CHANGELOG, changelog)
        for size in sizes:
            console.print(f"{size} MB a key group, changelog {changelog} ...", style="dim")
            frame = _key_groups(stream_of(session, folder / "small", files), packed=True)
            checkpoint = folder / f"store-{size}-{changelog}"
            reports = timed(run(_by_rows(frame, True, size << 20), checkpoint))
            seen = [p["observedMetrics"]["seen"] for p in reports]
            found.append(
                {
                    "megabytes_a_key_group": size,
                    "changelog": changelog == "true",
                    "write_ms_per_mb": statistics.median(s.write_ms for s in seen) / KEY_GROUPS / size,
                    "read_ms_per_mb": statistics.median(s.read_ms for s in seen) / KEY_GROUPS / size,
                    "seconds": statistics.median(p["durationMs"]["triggerExecution"] / 1_000 for p in reports),
                }
            )
    session.conf.unset(CHANGELOG)
    return found


# ------------------------------------------------------------------------------ pipelines


def _key_groups(stream: "DataFrame", packed: bool) -> "DataFrame":
    from pyspark.sql import functions as sql

    key_group = sql.pmod(sql.xxhash64("symbol"), sql.lit(KEY_GROUPS)).cast("int").alias("key_group")
    frame = stream.withWatermark("ts", "1 second").select("*", key_group)
    if not packed:
        return frame

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kept = [b for b in batches if b.num_rows]
        if not kept:
            return
        table = pa.Table.from_batches(kept)
        key_groups = table.column("key_group").to_numpy()
        for number in range(KEY_GROUPS):
            blob = serialize_table(table.filter(pa.array(key_groups == number)))
            yield pa.record_batch({"key_group": pa.array([number], pa.int32()), "blob": [blob]})

    return frame.mapInArrow(pack, "key group int, blob binary")


def _observed(frame: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as sql

    return frame.observe("seen", *(sql.sum(name).alias(name) for name in ("rows", "write_ms", "read_ms")))


def _by_rows(frame: "DataFrame", packed: bool, write: int = 1_000) -> "DataFrame":
    from pyspark.sql import Row

    def count(rows: Any) -> int:
        if packed:
            return sum(deserialize_table(bytes(r.blob)).num_rows for r in rows)
        return sum(1 for _ in rows)

    found = frame.groupBy("key_group").transformWithState(
        _processor(count, lambda *values: Row(**dict(zip(NAMES, values, strict=True))), write),
        COUNTED,
        "append",
        "EventTime",
    )
    return _observed(found)


def _by_pandas(frame: "DataFrame", packed: bool, write: int = 1_000) -> "DataFrame":
    def count(frames: Any) -> int:
        if packed:
            return sum(deserialize_table(bytes(b)).num_rows for f in frames for b in f["blob"])
        return sum(len(f) for f in frames)

    found = frame.groupBy("key_group").transformWithStateInPandas(
        _processor(count, lambda *values: pd.DataFrame([dict(zip(NAMES, values, strict=True))]), write),
        COUNTED,
        "append",
        "EventTime",
    )
    return _observed(found)


def _by_group_state(frame: "DataFrame", packed: bool) -> "DataFrame":
    from pyspark.sql.streaming.state import GroupStateTimeout

    def count(_: Any, frames: Any, state: Any) -> Iterator[pd.DataFrame]:
        rows = 0
        for f in frames:
            rows += sum(deserialize_table(bytes(b)).num_rows for b in f["blob"]) if packed else len(f)
        state.update((b"x" * 1_000,))
        yield pd.DataFrame([dict(zip(NAMES, (rows, 0.0, 0.0), strict=True))])

    found = frame.groupBy("key_group").applyInPandasWithState(
        count, COUNTED, "data binary", "append", GroupStateTimeout.NoTimeout
    )
    return _observed(found)


NAMES = ("rows", "write_ms", "read_ms")
OPERATORS = {
    "applyInPandasWithState": _by_group_state,
    "transformWithStateInPandas": _by_pandas,
    "transformWithState": _by_rows,
}


def _processor(count: Any, made: Any, write: int) -> Any:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Counted(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.state = handle.getValueState("state", "data binary")

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            seen = count(rows)
            begun = perf_counter()
            self.state.get()
            read = perf_counter()
            self.state.update((os.urandom(1_024) * (write // 1_024) or b"x" * write,))
            yield made(seen, (perf_counter() - read) * 1_000, (read - begun) * 1_000)

    return Counted()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, nothing written")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
