"""Spark batch from Parquet, beside a pipeline that only moves the same events.

The identity pipeline reads the events, shuffles them by key and passes them through Python. Both
take turns in one session, so what disturbs one disturbs the other too.
"""

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

import ensue
from benchmarks.timing import Clock
from benchmarks.workloads import Workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 8  # so that every core has something to read
Report = dict[str, object]


def written(events: pa.Table, folder: Path) -> Path:
    """The events as a folder of Parquet files, in order."""
    folder.mkdir(parents=True)
    size = -(-events.num_rows // FILES)
    for number in range(FILES):
        pq.write_table(events.slice(number * size, size), folder / f"part-{number}.parquet")
    return folder


def measured(
    session: "SparkSession", workload: Workload, folder: Path, symbols: int, times: int
) -> Report:
    """Both pipelines in turns, after one run of each that is not counted."""
    query = workload.text(symbols)
    seconds: dict[str, list[float]] = {"identity": [], "match": []}
    counts: dict[str, set[int]] = {"identity": set(), "match": set()}
    for turn in range(times + 1):
        # the order alternates: neither always runs on the other's warm files
        for name in sorted(seconds, reverse=bool(turn % 2)):
            frame = session.read.parquet(str(folder))
            if name == "match":
                frame = ensue.match(frame, query, time="ts", type=workload.type)
            else:
                frame = _identity(frame)
            clock = Clock()
            with clock:
                counts[name].add(_counted(frame))
            if turn:
                seconds[name].append(clock.seconds)
    assert len(counts["match"]) == len(counts["identity"]) == 1, counts
    ratios = [m / i for m, i in zip(seconds["match"], seconds["identity"], strict=True)]
    return {
        "query": workload.name,
        "matches": counts["match"].pop(),
        "events": counts["identity"].pop(),
        "match_seconds": statistics.median(seconds["match"]),
        "identity_seconds": statistics.median(seconds["identity"]),
        "ratio": statistics.median(seconds["match"]) / statistics.median(seconds["identity"]),
        "ratios": ratios,
    }


def _identity(frame: "DataFrame") -> "DataFrame":
    return frame.repartition("symbol").mapInArrow(_passed_through, frame.schema)


def _passed_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _counted(frame: "DataFrame") -> int:
    """Runs a pipeline to its end without keeping anything; the rows are counted on the way."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    rows = Observation()
    observed = frame.observe(rows, count(lit(1)).alias("rows"))
    observed.write.format("noop").mode("overwrite").save()
    return int(rows.get["rows"])
