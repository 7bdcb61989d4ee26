"""The first login of a user from a device in 90 days.

A login is reported if the past has none like it: the archive of the last months, and the logins of
today before it. So a second login from the same device is not reported any more. The same text
runs on a table, on Spark in batch, and on a stream that writes the archive it looks back into. The
logins are generated, new devices and what only looks new planted in them, so the answer can be
checked. Needs `pip install ".[spark,archive]"` and Java 17 or newer.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import ensue
from samples.logins import logins

# In vain does not count, today and in the past: somebody else may have tried.
NEW_DEVICE = """
    EVENT NewDevice AS SEQ(Login l) WHERE l.ok
    ANTI JOIN ARCHIVE logins SEQ(Login m) WHERE m.ok
        RANGE 90 days BEFORE START ON [user] and [device]
    RETURN l.user AS user, l.device AS device, l.ts AS ts
"""


def main() -> None:
    log = logins(events=20_000)
    print(f"{log.past.num_rows:,} logins in the archive, {log.live.num_rows:,} today")
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        ensue.create_archive(f"{folder}/logins", log.past, time="ts", key="user")
        arrive(log.live, f"{folder}/live")
        found = {
            "on a table": on_a_table(log.live, folder),
            "on Spark": on_spark(spark, folder),
            "on a stream": on_a_stream(spark, folder),  # the last one: it adds to the archive
        }
    for login in found["on a stream"].sort_by("ts").slice(0, 5).to_pylist():
        print(f"  {login['ts']:%H:%M:%S}  {login['user']} from {login['device']}")
    right = [check(runner, table, log.new) for runner, table in found.items()]
    if not all(right):
        sys.exit(1)


def on_a_table(live: pa.Table, folder: str) -> pa.Table:
    return ensue.match(live, NEW_DEVICE, time="ts", **past(folder))


def on_spark(spark: SparkSession, folder: str) -> pa.Table:
    live = spark.read.parquet(f"{folder}/live")
    return ensue.match(live, NEW_DEVICE, time="ts", **past(folder)).toArrow()


def on_a_stream(spark: SparkSession, folder: str) -> pa.Table:
    live = (
        spark.readStream.schema(spark.read.parquet(f"{folder}/live").schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(f"{folder}/live")
    )
    first = ensue.match(live, NEW_DEVICE, time="ts", watermark="1 minute", **past(folder))
    ensue.start(
        first,
        f"{folder}/found",
        checkpoint=f"{folder}/checkpoint",
        archive="logins",  # what the stream has seen becomes part of its past
        once=True,
        flush=True,
    )
    return spark.read.parquet(f"{folder}/found").toArrow()


def past(folder: str) -> dict[str, Any]:
    """The archive by its name; and that the logins we look at belong to it, too."""
    return {"archives": ensue.Archives({"logins": ensue.archive(f"{folder}/logins")}, own="logins")}


def arrive(live: pa.Table, folder: str, files: int = 4) -> None:
    """The live events, file by file."""
    Path(folder).mkdir()
    rows = -(-live.num_rows // files)
    for number in range(files):
        file = f"{folder}/{number}.parquet"
        pq.write_table(live.slice(number * rows, rows), file)
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
