"""Runs one query on Ensue from a CSV file to a CSV file of matches, in a process of its own.

Reads a JSON object from standard input: `events` and `matches` (files), `columns`, `query` and
`typed`, or `sql`, and `repeats`. Prints one JSON object: `first_seconds` is the first run, which
compiles the query (or loads its kernels from the cache), `seconds` lists the runs behind it.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

BEGUN = time.perf_counter()

import pyarrow as pa  # noqa: E402
from benchmarks.peers.events import read, write  # noqa: E402

import ensue  # noqa: E402


def run(events: Path, matches: Path, task: dict[str, Any]) -> float:
    """Seconds from the file of events to the file of matches."""
    begun = time.perf_counter()
    table = read(events)
    if task["query"] is None:
        found = ensue.sql(task["sql"], tables={"stock": table})
    else:
        type = "type" if task["typed"] else None
        found = ensue.match(table, task["query"], time="ts", type=type)
    times = [pa.timestamp("ms", "UTC") == field.type for field in found.schema]
    plain = [
        column.cast(pa.int64()) if is_time else column for column, is_time in zip(found.columns, times, strict=True)
    ]
    write(pa.table(plain, names=found.column_names).select(task["columns"]), matches)
    return time.perf_counter() - begun


def main() -> None:
    """One first run, then the repeats."""
    task = json.load(sys.stdin)
    start = time.perf_counter() - BEGUN
    events, matches = Path(task["events"]), Path(task["matches"])
    seconds = [run(events, matches, task) for _ in range(1 + task["repeats"])]
    print(
        json.dumps(
            {
                "gross_seconds": start + seconds[0],
                "start_seconds": start,
                "first_seconds": seconds[0],
                "seconds": seconds[1:],
                "matches": matches.read_bytes().count(b"\n"),
            }
        )
    )


if __name__ == "__main__":
    main()
