"""`ensue.match` as a user calls it: from an Arrow table in memory to a table of matches."""

from typing import Any

import pyarrow as pa

import ensue
from benchmarks.timing import Clock, Runs, repeated
from benchmarks.workloads import Workload
from ensue.options import get_default_threads


def measured(workload: Workload, events: pa.Table, symbols: int, times: int, threads: int = 1) -> Runs:
    """The time of the whole call; the kernel has been compiled before."""
    query = workload.text(symbols)
    limits = ensue.Limits(threads=threads)

    def run() -> tuple[Clock, int]:
        clock = Clock()
        with clock:
            found = ensue.match(events, query, time="ts", type=workload.type, options=limits)
        return clock, found.num_rows

    return repeated(run, times)


def measured_threads(workload: Workload, events: pa.Table, symbols: int, times: int) -> dict[str, Any]:
    """The same call with one thread and with one for each core."""
    one, cores = (measured(workload, events, symbols, times, n) for n in (1, get_default_threads()))
    return {
        "query": workload.name,
        "events": events.num_rows,
        "symbols": symbols,
        "threads": get_default_threads(),
        "one": one.report(events.num_rows),
        "cores": cores.report(events.num_rows),
        "clock_ratio": one.best / cores.best,
        "cpu_ratio": min(cores.cpu_seconds) / min(one.cpu_seconds),
        "same": one.matches == cores.matches,
    }
