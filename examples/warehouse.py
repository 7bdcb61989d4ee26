"""Who has left a warehouse, and who has arrived: two subscriptions for every truck.

These are subscriptions (1) and (2) of a paper on space-time events (docs/papers.md), as it prints
them. They run on a table, on Spark in batch, and on a stream. The reports are generated, with
the departures and arrivals planted in them among much that looks like one, so the answer can be
checked. Needs `pip install ".[spark]"` and Java 17 or newer.
"""

import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import ensue
from samples.warehouses import Trip, warehouses

# `=|(a; t)(b)`: b at most t after a. `@(R)(A)`: an A inside R, its border included. A name stands
# for an event that fits it, so the two A's are two reports of the same truck. Without `once` every
# report from outside would tell it again, as long as the last one from inside is recent enough.
LEFT = """
    =|(@(Region1)(A); 25 minutes)(DIST(Region1; >; 300)(A)),
    A = (ARITH:id = {truck}, STRING:type = 'truck'), Region1 = {home}
    WITH select = once
"""
ARRIVED = """
    =|(DIST(Region2; >; 300)(A); 25 minutes)(@(Region2)(A)),
    A = (ARITH:id = {truck}, STRING:type = 'truck'), Region2 = {target}
    WITH select = once
"""


def main() -> None:
    day = warehouses(trucks=300)
    print(f"{day.reports.num_rows:,} reports of {len(day.trips):,} trucks")
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        fleet = subscriptions(day.trips, folder)
        arrive(day.reports, f"{folder}/reports")
        found = {
            "on a table": ensue.match(day.reports, fleet),
            "on Spark": on_spark(spark, fleet, folder),
            "on a stream": on_a_stream(spark, fleet, folder),
        }
    for note in found["on a table"].slice(0, 5).to_pylist():
        print(f"  {note['end']:%H:%M:%S}  {note['subscription']:12}", end="")
        print(f" {(note['end'] - note['start']).seconds // 60} minutes, {note['location']}")
    right = [check(runner, table, day.notes) for runner, table in found.items()]
    if not all(right):
        sys.exit(1)


def subscriptions(trips: list[Trip], folder: str) -> ensue.Subscriptions:
    """Two for every truck, kept in a folder, where a stream sees what is added or cancelled."""
    fleet = ensue.Subscriptions(time="ts", type="type", location=("x", "y"), folder=f"{folder}/subscriptions")
    for what, text in (("left", LEFT), ("arrived", ARRIVED)):
        fleet.add_all((f"{what}-{trip.truck}", text.format(**trip._asdict())) for trip in trips)
    return fleet


def on_spark(spark: SparkSession, fleet: ensue.Subscriptions, folder: str) -> pa.Table:
    return ensue.match(spark.read.parquet(f"{folder}/reports"), fleet).toArrow()


def on_a_stream(spark: SparkSession, fleet: ensue.Subscriptions, folder: str) -> pa.Table:
    reports = (
        spark.readStream.schema(spark.read.parquet(f"{folder}/reports").schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(f"{folder}/reports")
    )
    notes = ensue.match(reports, fleet, watermark="1 minute")
    ensue.start(notes, f"{folder}/notes", checkpoint=f"{folder}/checkpoint", once=True, flush=True)
    return spark.read.parquet(f"{folder}/notes").toArrow()


def arrive(reports: pa.Table, folder: str, files: int = 4) -> None:
    """The reports, file by file."""
    Path(folder).mkdir()
    rows = -(-reports.num_rows // files)
    for number in range(files):
        file = f"{folder}/{number}.parquet"
        pq.write_table(reports.slice(number * rows, rows), file)
        os.utime(file, (number, number))  # a stream takes the oldest file first


def session() -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks run on this very Python
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def check(runner: str, found: pa.Table, planted: pa.Table) -> bool:
    ours, theirs = (
        [tuple(row.values()) for row in table.select(planted.column_names).to_pylist()] for table in (found, planted)
    )
    missed, false = len(set(theirs) - set(ours)), len(ours) - len(set(ours) & set(theirs))
    print(f"{runner:12} {len(ours)} found, {len(theirs)} planted: {missed} missed, {false} false")
    return missed == false == 0


if __name__ == "__main__":
    main()
