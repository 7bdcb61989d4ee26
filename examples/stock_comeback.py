"""Stocks that fall this morning and have come back from a fall in the last 30 days.

A trade and three more in a row, each below the one before, are a fall. It is reported if the same
stock had a tick before: a fall, then a rise by more than a tenth, above where the fall began. The
trades of the weeks before lie in an archive that is only read. The same text runs on a table, on
Spark in batch and on a stream. The trades are generated, falls with and without a tick planted in
them, so the answer can be checked. Needs `ensue[spark,archive]` and Java 17 or newer.
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
from ensue.samples.comeback import comebacks

COMEBACK = """
    EVENT Comeback AS SEQ(Trade s, Trade{3,} d[])
        WHERE partition_contiguity(s, d[]) {
            [symbol] and d[1].price < s.price and d[i].price < d[i-1].price }
        WITHIN 10 minutes
        AFTER MATCH SKIP PAST LAST EVENT                    -- one report a fall
    JOIN ARCHIVE trades SEQ(Trade a, Trade+ b[], Trade+ c[])
        WHERE partition_contiguity(a, b[], c[]) {
            [symbol] and b[1].price < a.price and b[i].price < b[i-1].price
            and c[1].price > b[b.LEN].price and c[i].price > c[i-1].price
            and c[c.LEN].price > a.price and c[c.LEN].price > b[b.LEN].price * 1.1 }
        WITHIN 1 hour
        RANGE 30 days BEFORE START LAST 1 ON [symbol]       -- the latest tick
    RETURN s.symbol AS symbol, d[d.LEN].ts AS fallen, d[d.LEN].price AS price,
        c[c.LEN].ts AS back, b[b.LEN].price AS low, c[c.LEN].price AS high
"""
# This is query 2 of the paper on live and archived streams (docs/papers.md). Its SQL is lost; our
# reconstruction of it, for when Ensue reads SQL:
#   SELECT L.symbol, L.since, L.price, A.low, A.high, A.ended
#   FROM   trades MATCH_RECOGNIZE (
#            PARTITION BY symbol ORDER BY ts
#            MEASURES S.symbol AS symbol, S.ts AS since, LAST(D.price) AS price
#            AFTER MATCH SKIP PAST LAST ROW
#            PATTERN (S D{3,}) DEFINE D AS D.price < PREV(D.price)) AS L
#   JOIN   archived_trades MATCH_RECOGNIZE (
#            PARTITION BY symbol ORDER BY ts
#            MEASURES S.symbol AS symbol, S.ts AS begun, LAST(D.price) AS low,
#                     LAST(U.price) AS high, LAST(U.ts) AS ended
#            AFTER MATCH SKIP PAST LAST ROW PATTERN (S D+ U+)
#            DEFINE D AS D.price < PREV(D.price), U AS U.price > PREV(U.price)) AS A
#     ON   A.symbol = L.symbol AND A.high > A.low * 1.1
#    AND   A.ended < L.since AND A.begun >= L.since - INTERVAL '30' DAY


def main() -> None:
    weeks = comebacks(trades=50_000)
    print(f"{weeks.past.num_rows:,} trades in the archive", end=", ")
    print(f"{weeks.live.num_rows:,} this morning, {weeks.falls.num_rows} falls among them")
    spark = session()
    with tempfile.TemporaryDirectory() as folder:
        ensue.create_archive(f"{folder}/trades", weeks.past, time="ts", key="symbol")
        arrive(weeks.live, f"{folder}/live")
        found = {
            "on a table": on_a_table(weeks.live, folder),
            "on Spark": on_spark(spark, folder),
            "on a stream": on_a_stream(spark, folder),
        }
    for fall in found["on a stream"].sort_by("fallen").slice(0, 5).to_pylist():
        print(f"  {fall['fallen']:%H:%M:%S}  {fall['symbol']} at {fall['price']:.2f}", end=", ")
        print(f"came back from {fall['low']:.2f} to {fall['high']:.2f} on {fall['back']:%Y-%m-%d}")
    right = [check(runner, table, weeks.comebacks) for runner, table in found.items()]
    if not all(right):
        sys.exit(1)


def on_a_table(live: pa.Table, folder: str) -> pa.Table:
    return ensue.match(live, COMEBACK, time="ts", **past(folder))


def on_spark(spark: SparkSession, folder: str) -> pa.Table:
    live = spark.read.parquet(f"{folder}/live")
    return ensue.match(live, COMEBACK, time="ts", **past(folder)).toArrow()


def on_a_stream(spark: SparkSession, folder: str) -> pa.Table:
    live = (
        spark.readStream.schema(spark.read.parquet(f"{folder}/live").schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(f"{folder}/live")
    )
    falling = ensue.match(live, COMEBACK, time="ts", watermark="1 minute", **past(folder))
    ensue.start(
        falling,
        f"{folder}/found",
        checkpoint=f"{folder}/checkpoint",
        once=True,
        flush=True,
    )
    return spark.read.parquet(f"{folder}/found").toArrow()


def past(folder: str) -> dict[str, Any]:
    """The archive by its name."""
    return {"archives": {"trades": ensue.archive(f"{folder}/trades")}}


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
        [tuple(row.values()) for row in table.select(planted.column_names).to_pylist()]
        for table in (found, planted)
    )
    missed, false = len(set(theirs) - set(ours)), len(ours) - len(set(ours) & set(theirs))
    print(f"{runner:12} {len(ours)} found, {len(theirs)} planted: {missed} missed, {false} false")
    return missed == false == 0


if __name__ == "__main__":
    main()
