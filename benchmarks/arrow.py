"""`ensue.match` as a user calls it: from an Arrow table in memory to a table of matches."""

import pyarrow as pa

import ensue
from benchmarks.timing import Clock, Runs, repeated
from benchmarks.workloads import Workload


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
