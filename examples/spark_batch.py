"""The theft query on Spark: Parquet in, a DataFrame of matches out, more Spark behind it.

Needs `pip install ".[spark]"` and Java 17 or newer. The session is embedded (`local[*]`);
on a cluster only the session and the paths change.
"""

import os
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet
from pyspark.sql import SparkSession
from pyspark.sql.functions import count
from pyspark.sql.functions import max as latest

import ensue
from samples.shop import THEFT, shop


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks run on this very Python
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "readings.parquet")
        pyarrow.parquet.write_table(shop(events=50_000).readings, path)
        readings = spark.read.parquet(path)
        thefts = ensue.match(readings, THEFT, time="ts", type="reader")  # nothing has run yet
        by_exit = thefts.groupBy("exit").agg(count("*").alias("thefts"), latest("gone").alias("last"))
        by_exit.orderBy("exit").show()


if __name__ == "__main__":
    main()
