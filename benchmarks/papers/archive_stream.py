"""What an archive costs a stream: `python -m benchmarks.papers.archive_stream [--quick]`.

Cars pass points. A micro-batch has 100,000 passes, 1,000 of them at a toll, and each of these asks
where the car was in the last six hours:

- *no archive*: the tolls alone.
- *archive*: `JOIN ARCHIVE`, read in the key groups' tasks: for the live matches of a micro-batch
  (grouped), or once (eager).
- *Spark's join*: the tolls, joined by Spark with the same table in `foreachBatch`.
- *both types*: a query that looks at all passes; *writing*: and archives them.

Processor seconds of all processes a micro-batch, the first two left out, and the time on the wall.
Pairs of the two joins are counted, and must be equal.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.tables import Sheet
from ensue.archives.delta_writer import create

RESULTS = Path(__file__).parent.parent / "results"
FIRST = 2  # micro-batches outside the clock
HOUR = 3_600_000_000
SCHEMA = pa.schema({"ts": pa.timestamp("us", "UTC"), "type": pa.string(), "tag": pa.int64(), "point": pa.int64()})
LIVE = "SEQ(Toll p) WITHIN 1 minute"
JOINED = f"{LIVE} JOIN ARCHIVE passes SEQ(Pass q) RANGE 6 hours BEFORE START ON [tag]"
NAMED: dict[str, Any] = {"time": "ts", "type": "type"}


def passes(count: int, begin: int, length: int, cars: int, tolls: float, seed: int) -> pa.Table:
    """Passes of cars, at random; a share of them at a toll."""
    random = np.random.default_rng(seed)
    times = np.sort(random.integers(begin, begin + length, count))
    kinds = np.where(random.random(count) < tolls, "Toll", "Pass")
    return pa.table(
        [pa.array(times).cast(SCHEMA.field("ts").type), kinds, random.integers(0, cars, count),
         random.integers(0, 500, count)],
        schema=SCHEMA,
    )  # fmt: skip


class Bench:
    """The streams that are compared, over one archive and one folder of events."""

    def __init__(self, session: Any, folder: Path, *, quick: bool) -> None:
        self.session, self.folder = session, folder
        self.rows = 20_000 if quick else 100_000
        self.batches = FIRST + (2 if quick else 6)
        self.cars = 20_000 if quick else 100_000
        self.archived = 300_000 if quick else 3_000_000
        self.turn = 0

    def prepare(self) -> None:
        create(self.folder / "passes", SCHEMA, time="ts", key=["tag"], type="type", buckets=16)
        days = 3 * 24 * HOUR
        ensue.archive(self.folder / "passes").append(passes(self.archived, 0, days, self.cars, 0, 1))
        (self.folder / "events").mkdir()
        whole = passes(self.rows * self.batches, days, HOUR, self.cars, 0.01, 2)
        cores = os.cpu_count() or 1
        step = self.rows // cores
        for number in range(cores * self.batches):
            path = self.folder / "events" / f"{number:05}.parquet"
            pq.write_table(whole.slice(number * step, step), path)
            os.utime(path, (number + 1, number + 1))

    def stream(self) -> Any:
        place = str(self.folder / "events")
        schema = self.session.read.parquet(place).schema
        reader = self.session.readStream.schema(schema)
        return reader.option("maxFilesPerTrigger", os.cpu_count() or 1).parquet(place)

    def run(self, output: Callable[..., None], text: str, archives: Any = None, **options: Any) -> dict[str, float]:
        """A stream to its end; what a micro-batch costs."""
        matches = ensue.match(self.stream(), text, watermark="1 second", archives=archives, **NAMED)
        self.turn += 1
        marks: list[tuple[float, float]] = []

        def step(frame: Any, number: int) -> None:
            output(frame, number)
            marks.append((processor_seconds(), time.perf_counter()))

        query = ensue.start(matches, step, checkpoint=self.folder / f"checkpoint {self.turn}", once=True, **options)
        done = marks[FIRST - 1 : self.batches]
        count = len(done) - 1
        found = query.progress()
        return {
            "cpu": (done[-1][0] - done[0][0]) / count,
            "wall": (done[-1][1] - done[0][1]) / count,
            "matches": sum(p.matches for p in found),
            "probes": sum(p.probes for p in found),
            "archived": sum(p.archived for p in found),
        }

    def measured(self) -> dict[str, dict[str, float]]:
        place = self.folder / "passes"
        self.run(lambda frame, _: frame.count(), LIVE)  # what comes first pays for Spark's start
        found = {"no archive": self.run(lambda frame, _: frame.count(), LIVE)}
        archives = {"passes": ensue.archive(place)}
        for access in ("grouped", "eager"):
            found[f"archive, {access}"] = self.run(
                lambda frame, _: frame.count(), JOINED, archives=ensue.Archives(archives, access=access)
            )
        pairs = []

        def joined(frame: Any, _: int) -> None:
            pairs.append(self.spark_join(frame).count())

        found["Spark's join"] = self.run(joined, LIVE)
        found["Spark's join"]["matches"] = sum(pairs)
        assert sum(pairs) == found["archive, grouped"]["matches"], "the joins differ"
        writing = create(self.folder / "own", SCHEMA, time="ts", key=["tag"], type="type")
        every = "SEQ(Toll p, Pass q) WHERE [tag] WITHIN 1 second"
        found["both types"] = self.run(lambda frame, _: frame.count(), every)
        found["both types, writing"] = self.run(
            lambda frame, _: frame.count(), every, archive=ensue.ArchiveWriter(writing, rows=self.rows)
        )
        return found

    def spark_join(self, frame: Any) -> Any:
        from pyspark.sql import functions as sql

        old = self.session.read.parquet(str(self.folder / "passes")).filter("type = 'Pass'")
        live = frame.select("match_id", sql.col("start"), sql.col("p.tag").alias("of"))
        near = (old.ts < live.start) & (old.ts >= live.start - sql.expr("INTERVAL 6 HOURS"))
        return live.join(old, (live["of"] == old.tag) & near)


def processor_seconds() -> float:
    """Of this process and all that it has started."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                values = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(values[1])
            ticks[int(entry.name)] = sum(map(int, values[11:15]))
    found = {os.getpid()}
    while more := {p for p, of in parents.items() if of in found} - found:
        found |= more
    return sum(ticks.get(p, 0) for p in found) / os.sysconf("SC_CLK_TCK")


def sheet(result: dict[str, dict[str, float]]) -> Sheet:
    rows = tuple(
        (name, f"{one['cpu']:.2f}", f"{one['wall']:.2f}", f"{one['matches']:,}",
         f"{one['probes']:,}", f"{one['archived']:,}")
        for name, one in result.items()
    )  # fmt: skip
    head = ("stream", "CPU s", "wall s", "matches", "reads", "archived")
    return Sheet("An archive in a stream, a micro-batch", head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    from ensue.backends.spark.session import get_or_create_session

    with tempfile.TemporaryDirectory(prefix="ensue-archive-") as name:
        session = get_or_create_session()
        session.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count() or 1))
        bench = Bench(session, Path(name), quick=quick)
        bench.prepare()
        found = bench.measured()
        session.stop()
    Console(highlight=False).print(sheet(found).rich())
    if not quick:
        text = json.dumps({"machine": machine(), "streams": found}, indent=1)
        (RESULTS / "papers_archive_stream.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
