"""Spark batch from Parquet, beside a pipeline that only moves the same events.

The identity pipeline reads the events, shuffles them by key and passes them through Python. A
match shuffles only events of the types it names, so a third pipeline moves just those: the
stricter measure. All take turns in one session, so what disturbs one disturbs the others too.
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
from ensue.ir.traversal import iterate_atoms

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


def measured(session: "SparkSession", workload: Workload, folder: Path, symbols: int, times: int) -> Report:
    """The pipelines in turns, after one run of each that is not counted."""
    query = ensue.parse(workload.text(symbols))
    types = sorted({atom.type for atom in iterate_atoms(query.pattern)})
    seconds: dict[str, list[float]] = {"identity": [], "match": []}
    if workload.typed:
        seconds["same_events"] = []
    counts: dict[str, set[int]] = {name: set() for name in seconds}
    for turn in range(times + 1):
        # the order alternates: none always runs on another's warm files
        for name in sorted(seconds, reverse=bool(turn % 2)):
            frame = session.read.parquet(str(folder))
            match name:
                case "match":
                    frame = ensue.match(frame, query, time="ts", type=workload.type)
                case "identity":
                    frame = identity(frame)
                case _:
                    frame = identity(frame.filter(frame["type"].isin(types)))
            clock = Clock()
            with clock:
                counts[name].add(counted(frame))
            if turn:
                seconds[name].append(clock.seconds)
    assert all(len(found) == 1 for found in counts.values()), counts
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    return {
        "query": workload.name,
        "matches": counts["match"].pop(),
        "events": counts["identity"].pop(),
        "match_seconds": medians["match"],
        "identity_seconds": medians["identity"],
        "ratio": medians["match"] / medians["identity"],
        "same_events_ratio": medians["match"] / medians.get("same_events", medians["identity"]),
        "seconds": seconds,
    }


def identity(frame: "DataFrame") -> "DataFrame":
    return frame.repartition("symbol").mapInArrow(_passed_through, frame.schema)


def _passed_through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def counted(frame: "DataFrame") -> int:
    """Runs a pipeline to its end without keeping anything; the rows are counted on the way."""
    from pyspark.sql import Observation
    from pyspark.sql.functions import count, lit

    rows = Observation()
    observed = frame.observe(rows, count(lit(1)).alias("rows"))
    observed.write.format("noop").mode("overwrite").save()
    return int(rows.get["rows"])
