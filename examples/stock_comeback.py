"""Stocks that fall this morning and have come back from a fall in the last 30 days.

A trade and three more in a row, each below the one before, are a fall. It is reported if the same
stock had a tick before: a fall, then a rise by more than a tenth, above where the fall began. The
trades of the weeks before lie in an archive that is only read. The same text runs on a table, on
Spark in batch and on a stream. The trades are generated, falls with and without a tick planted in
them, so the answer can be checked. Needs `pip install ".[spark,archive]"` and Java 17 or newer.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import ensue
from samples.comeback import comebacks

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
# This is query 2 of the paper on live and archived streams (docs/papers.md), in SQL: two clauses,
# joined by the stock and a range of time. It has a row for each tick of the 30 days; the latest of
# a fall is what LAST 1 gives. A stream is delivered by its match_id.
COMEBACK_SQL = """
    SELECT match_id, L.symbol, L.fallen, L.price, A.back, A.low, A.high
    FROM trades MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY ts
        MEASURES S.ts AS since, LAST(D.ts) AS fallen, LAST(D.price) AS price
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (S D{3}) WITHIN INTERVAL '10' MINUTE
        DEFINE D AS D.price < PREV(D.price)) AS L
    JOIN archived_trades MATCH_RECOGNIZE (
        PARTITION BY symbol ORDER BY ts
        MEASURES S.ts AS begun, S.price AS fell_from, LAST(D.price) AS low,
            LAST(U.price) AS high, LAST(U.ts) AS back
        AFTER MATCH SKIP PAST LAST ROW
        PATTERN (S D+ U+) WITHIN INTERVAL '1' HOUR
        DEFINE D AS D.price < PREV(D.price), U AS U.price > PREV(U.price)) AS A
    ON A.symbol = L.symbol AND A.high > A.fell_from AND A.high > A.low * 1.1
        AND A.back < L.since AND A.begun >= L.since - INTERVAL '30' DAY
"""


COLUMNS = ["symbol", "fallen", "price", "back", "low", "high"]


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
        in_sql = {
            "SQL, a table": in_sql_on(weeks.live, folder),
            "SQL on Spark": in_sql_on(spark.read.parquet(f"{folder}/live"), folder).toArrow(),
            "SQL, a stream": in_sql_on_a_stream(spark, folder),
        }
    for fall in found["on a stream"].sort_by("fallen").slice(0, 5).to_pylist():
        print(f"  {fall['fallen']:%H:%M:%S}  {fall['symbol']} at {fall['price']:.2f}", end=", ")
        print(f"came back from {fall['low']:.2f} to {fall['high']:.2f} on {fall['back']:%Y-%m-%d}")
    right = [check(runner, table, weeks.comebacks) for runner, table in found.items()]
    for runner, table in in_sql.items():
        right.append(check(runner, latest(table), weeks.comebacks))
        right.append(latest(table).equals(latest(found["on a table"])))  # the same ticks
    if not all(right):
        sys.exit(1)


def on_a_table(live: pa.Table, folder: str) -> pa.Table:
    return ensue.match(live, COMEBACK, time="ts", **past(folder))


def on_spark(spark: SparkSession, folder: str) -> pa.Table:
    live = spark.read.parquet(f"{folder}/live")
    return ensue.match(live, COMEBACK, time="ts", **past(folder)).toArrow()


def on_a_stream(spark: SparkSession, folder: str) -> pa.Table:
    falling = ensue.match(arriving(spark, folder), COMEBACK, time="ts", watermark="1 minute", **past(folder))
    return delivered(spark, falling, f"{folder}/found")


def in_sql_on(live: Any, folder: str, **stream: Any) -> Any:
    archived = past(folder, "archived_trades")
    return ensue.sql(COMEBACK_SQL, tables={"trades": live}, **archived, **stream)


def in_sql_on_a_stream(spark: SparkSession, folder: str) -> pa.Table:
    falling = in_sql_on(arriving(spark, folder), folder, watermark="1 minute")
    return delivered(spark, falling, f"{folder}/found_in_sql")


def arriving(spark: SparkSession, folder: str) -> DataFrame:
    """The live events as a stream."""
    schema = spark.read.parquet(f"{folder}/live").schema
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return files.parquet(f"{folder}/live")


def delivered(spark: SparkSession, falling: DataFrame, folder: str) -> pa.Table:
    ensue.start(falling, folder, checkpoint=f"{folder}_checkpoint", once=True, flush=True)
    return spark.read.parquet(folder).toArrow()


def latest(found: pa.Table) -> pa.Table:
    """The latest tick of each fall."""
    ticks = {}
    for row in found.select(COLUMNS).sort_by("back").to_pylist():
        ticks[row["symbol"], row["fallen"]] = row
    return pa.Table.from_pylist([ticks[fall] for fall in sorted(ticks)])


def past(folder: str, name: str = "trades") -> dict[str, Any]:
    """The archive by its name."""
    return {"archives": {name: ensue.archive(f"{folder}/trades")}}


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
