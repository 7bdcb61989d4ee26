"""Runs one query on Ensue from an Arrow table in memory, in a process of its own.

Reads a JSON object from standard input: `events` and `matches` (files), `query`, `typed` and
`passes`. Prints a line of JSON for each pass; the kernel is compiled before, on few events.
"""

import json
import sys
import time
from pathlib import Path

import pyarrow as pa
from benchmarks.peers.events import read, write

import ensue


def main() -> None:
    """A call that compiles, then the passes; the first one's matches are written."""
    task = json.load(sys.stdin)
    events = read(Path(task["events"])).combine_chunks()
    for column in ("type", "symbol"):  # plain strings, as Esper's events have them
        place = events.column_names.index(column)
        events = events.set_column(place, column, events[column].cast(pa.string()))
    type = "type" if task["typed"] else None
    ensue.match(events.slice(0, 1_000), task["query"], time="ts", type=type)
    for number in range(task["passes"]):
        begun, cpu = time.perf_counter(), time.process_time()
        found = ensue.match(events, task["query"], time="ts", type=type)
        took = {
            "seconds": time.perf_counter() - begun,
            "cpu_seconds": time.process_time() - cpu,
            "matches": found.num_rows,
        }
        print(json.dumps(took), flush=True)
        if number == 0:
            ends = [found[name].cast(pa.int64()) for name in ("s", "e")]
            write(pa.table(ends, names=["s", "e"]), Path(task["matches"]))


if __name__ == "__main__":
    main()
