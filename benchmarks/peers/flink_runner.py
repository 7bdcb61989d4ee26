"""Runs one MATCH_RECOGNIZE query on Flink, inside Flink's own virtual environment.

Reads a JSON object from standard input: `events` and `warm_up` (CSV files), `matches` (a folder
to write to), `columns` (of a match), `insert` (the statement), `mode`, `parallelism`. Prints one
JSON object with the seconds of each phase.
"""

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

TableEnvironment = Any  # pyflink is only known in its own environment

EVENTS = """
    CREATE TEMPORARY TABLE stock (
        ts BIGINT, type STRING, symbol STRING, price DOUBLE, volume BIGINT,
        rowtime AS TO_TIMESTAMP_LTZ(ts, 3),
        WATERMARK FOR rowtime AS rowtime
    ) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{path}')"""

MATCHES = """
    CREATE TEMPORARY TABLE found ({columns})
    WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{path}')"""


def environment(mode: str, parallelism: int) -> TableEnvironment:
    """A local Flink, untuned but for object reuse."""
    from pyflink.table import EnvironmentSettings  # type: ignore[import-not-found]
    from pyflink.table import TableEnvironment as Tables

    settings = EnvironmentSettings.in_batch_mode() if mode == "batch" else EnvironmentSettings.in_streaming_mode()
    tables = Tables.create(settings)
    tables.get_config().set("parallelism.default", str(parallelism))
    tables.get_config().set("pipeline.object-reuse", "true")
    tables.get_config().set("table.local-time-zone", "UTC")
    return tables


def run(tables: TableEnvironment, events: str, matches: Path, columns: list[str], insert: str) -> tuple[float, float]:
    """Seconds to plan and submit the job, and seconds the job takes."""
    shutil.rmtree(matches, ignore_errors=True)
    for name in ("stock", "found"):
        tables.execute_sql(f"DROP TEMPORARY TABLE IF EXISTS {name}")
    begun = time.perf_counter()
    tables.execute_sql(EVENTS.format(path=Path(events).absolute()))
    typed = ", ".join(f"{column} BIGINT" for column in columns)
    tables.execute_sql(MATCHES.format(columns=typed, path=matches.absolute()))
    job = tables.execute_sql(insert)
    submitted = time.perf_counter()
    job.wait()
    return submitted - begun, time.perf_counter() - submitted


def main() -> None:
    """Start, warm up on few events, then the measured job."""
    task = json.load(sys.stdin)
    matches = Path(task["matches"])
    begun = time.perf_counter()
    tables = environment(task["mode"], task["parallelism"])
    start = time.perf_counter() - begun
    warm_plan, warm_job = run(tables, task["warm_up"], matches, task["columns"], task["insert"])
    plan, job = run(tables, task["events"], matches, task["columns"], task["insert"])
    # Flink makes no folder if there is no match; glob then finds nothing.
    lines = sum(file.read_bytes().count(b"\n") for file in matches.glob("*"))
    print(
        json.dumps(
            {
                "gross_seconds": start + plan + job,  # the warm-up left out, in Flink's favour
                "net_seconds": job,
                "start_seconds": start,
                "plan_seconds": plan,
                "warm_up_seconds": warm_plan + warm_job,
                "matches": lines,
            }
        )
    )


if __name__ == "__main__":
    main()
