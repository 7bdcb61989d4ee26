"""Cars that drive too fast between two points of a toll road.

When a car passes a plaza, the pass before it is looked up in the past of the road: the archive,
and what the stream itself has seen since. Time and distance between the two say whether it was
too fast. The same text runs on a table, on Spark in batch, and on a stream that writes the archive
it looks back into. The passes are generated, with the speeders planted in them, so the answer can
be checked. Needs `pip install ".[spark,archive]"` and Java 17 or newer.
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
from samples.toll import toll

# HAVING judges the speed of the section that LAST 1 has chosen. In ON the same condition would
# have a say in which pass before is chosen: the latest of those from which the car was too fast.
SPEEDING = """
    EVENT Speeding AS SEQ(Pass p) WHERE p.kind = 'toll'
    JOIN ARCHIVE passes SEQ(Pass q) RANGE 6 hours BEFORE START LAST 1 ON [tag]
    RETURN p.tag AS tag, q.point AS came_from, p.point AS at, p.ts AS ts,
        abs(p.km - q.km) AS km, p.ts - q.ts AS travel
    HAVING p.ts - q.ts < abs(p.km - q.km) / 120 * 1 hour
"""
# This is query 1 of the paper on live and archived streams (docs/papers.md), in SQL: two clauses,
# joined by the car and a range of time. SQL has no LAST 1 here, so this asks for more: all passes
# of the last 6 hours from which the car was too fast, not only the latest.
SPEEDING_SQL = """
    SELECT L.tag, A.point AS came_from, L.point AS at, L.ts,
        abs(L.km - A.km) AS km, L.ts - A.ts AS travel
    FROM passes MATCH_RECOGNIZE (
        PARTITION BY tag ORDER BY ts
        MEASURES P.point AS point, P.km AS km, P.ts AS ts
        PATTERN (P) DEFINE P AS P.kind = 'toll') AS L
    JOIN archived_passes MATCH_RECOGNIZE (
        PARTITION BY tag ORDER BY ts
        MEASURES Q.point AS point, Q.km AS km, Q.ts AS ts
        PATTERN (Q) DEFINE Q AS TRUE) AS A
    ON A.tag = L.tag AND A.ts < L.ts AND A.ts >= L.ts - INTERVAL '6' HOUR
    WHERE L.ts - A.ts < abs(L.km - A.km) / 120 * INTERVAL '1' HOUR
"""


def main() -> None:
    road = toll(passes=20_000)
    print(f"{road.past.num_rows:,} passes in the archive, {road.live.num_rows:,} live")
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        ensue.create_archive(f"{folder}/passes", road.past, time="ts", key="tag")
        arrive(road.live, f"{folder}/live")
        in_sql = {"SQL, a table": in_sql_on_a_table(road.live, folder), "SQL on Spark": in_sql_on_spark(spark, folder)}
        from_anywhere = ensue.match(road.live, SPEEDING.replace("LAST 1", ""), time="ts", **past(folder))
        found = {
            "on a table": on_a_table(road.live, folder),
            "on Spark": on_spark(spark, folder),
            "on a stream": on_a_stream(spark, folder),  # the last one: it adds to the archive
        }
    for car in found["on a stream"].sort_by("ts").slice(0, 5).to_pylist():
        speed = car["km"] / car["travel"].total_seconds() * 3600
        print(f"  {car['ts']:%H:%M:%S}  {car['tag']}  {car['came_from']} -> {car['at']}", end="")
        print(f": {car['km']:.0f} km at {speed:.0f} km/h")
    right = [check(runner, table, road.speeders) for runner, table in found.items()]
    for runner, table in in_sql.items():
        right.append(check(runner, table, from_anywhere, "by the pattern without LAST 1"))
    if not all(right):
        sys.exit(1)


def on_a_table(live: pa.Table, folder: str) -> pa.Table:
    return ensue.match(live, SPEEDING, time="ts", **past(folder))


def on_spark(spark: SparkSession, folder: str) -> pa.Table:
    live = spark.read.parquet(f"{folder}/live")
    return ensue.match(live, SPEEDING, time="ts", **past(folder)).toArrow()


def on_a_stream(spark: SparkSession, folder: str) -> pa.Table:
    live = (
        spark.readStream.schema(spark.read.parquet(f"{folder}/live").schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(f"{folder}/live")
    )
    speeding = ensue.match(live, SPEEDING, time="ts", watermark="1 minute", **past(folder))
    ensue.start(
        speeding,
        f"{folder}/found",
        checkpoint=f"{folder}/checkpoint",
        archive="passes",  # what the stream has seen becomes part of its past
        once=True,
        flush=True,
    )
    return spark.read.parquet(f"{folder}/found").toArrow()


def in_sql_on_a_table(live: pa.Table, folder: str) -> pa.Table:
    return ensue.sql(SPEEDING_SQL, tables={"passes": live}, **past(folder, "archived_passes"))


def in_sql_on_spark(spark: SparkSession, folder: str) -> pa.Table:
    live = spark.read.parquet(f"{folder}/live")
    archived = past(folder, "archived_passes")
    return ensue.sql(SPEEDING_SQL, tables={"passes": live}, **archived).toArrow()


def past(folder: str, name: str = "passes") -> dict[str, Any]:
    """The archive by its name; and that the passes we look at belong to it, too."""
    return {"archives": ensue.Archives({name: ensue.archive(f"{folder}/passes")}, own=name)}


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


def check(runner: str, found: pa.Table, planted: pa.Table, how: str = "planted") -> bool:
    columns = [name for name in planted.column_names if name in found.column_names]
    ours, theirs = ([tuple(row.values()) for row in table.select(columns).to_pylist()] for table in (found, planted))
    missed, false = len(set(theirs) - set(ours)), len(ours) - len(set(ours) & set(theirs))
    print(f"{runner:12} {len(ours)} found, {len(theirs)} {how}: {missed} missed, {false} false")
    return missed == false == 0


if __name__ == "__main__":
    main()
