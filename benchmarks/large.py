"""Parquet files larger than memory: processor time for each row, peak memory and disk, from one million rows on.

Each measurement is a process of its own that reads a folder of Parquet files with a limit on its memory. Times of the
events rise from file to file, or the files are in any order. At the smallest size a table in memory must give the same.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from examples.samples.stocks import stocks

import ensue
from benchmarks.machine import machine
from benchmarks.threads import SLICES
from benchmarks.timing import Clock
from benchmarks.workloads import WORKLOADS
from ensue.runtime.spill.spilled_keys import SpillFolder

ROOT = Path(__file__).parent.parent
SIZES = (1_000_000, 10_000_000)
SYMBOLS = 10_000
FILE = 1_000_000  # rows of a file
QUERIES = {
    "next, unary": WORKLOADS["next, unary"].text(SYMBOLS),
    "next, correlated": WORKLOADS["next, correlated"].text(1_000),  # the window of few symbols: few matches
    "no key, 5 seconds": SLICES,
    "no key, any order": SLICES,
}


def write_files(folder: Path, rows: int) -> None:
    """Writes trades in the order of time."""
    folder.mkdir(parents=True)
    end = None
    for number in range(-(-rows // FILE)):
        table = stocks(min(FILE, rows - number * FILE), SYMBOLS, seed=number)
        if end is not None:
            shifted = pc.add(table["ts"], pc.subtract(end, table["ts"][0]))
            table = table.set_column(0, "ts", shifted)
        end = table["ts"][-1]
        pq.write_table(table, folder / f"{number:05d}.parquet", row_group_size=1 << 17)


def measured(query: str, folder: Path, memory: str) -> dict[str, Any]:
    """What one process needs for a query."""
    paths = sorted(map(str, folder.glob("*.parquet")))
    if query == "no key, any order":
        paths = [paths[k] for k in np.random.default_rng(7).permutation(len(paths))]
    columns: dict[str, Any] = {"time": "ts", "type": "type"}
    some = pq.ParquetFile(paths[0]).read_row_group(0)
    ensue.match(some, QUERIES[query], **columns)  # compiles the kernels
    del some
    written, write = [0], SpillFolder.write

    def count(self: SpillFolder, table: pa.Table) -> Any:
        file = write(self, table)
        written[0] += file.bytes
        return file

    SpillFolder.write = count  # type: ignore[method-assign]
    pa.default_memory_pool().release_unused()
    forget = Path("/proc/self/clear_refs")
    if forget.exists():
        forget.write_text("5")  # the peak is what there is now
    clock, dataset = Clock(), ds.dataset(paths)
    rows = dataset.count_rows()
    with clock:
        found = ensue.match(dataset, QUERIES[query], options=ensue.Limits(memory=memory), **columns)
    report = {
        "query": query,
        "rows": rows,
        "matches": found.num_rows,
        "cpu_seconds": clock.cpu_seconds,
        "cpu_microseconds_per_row": 1e6 * clock.cpu_seconds / rows,
        "peak_bytes": _status("VmHWM"),
        "written_bytes": written[0],
    }
    if rows <= min(SIZES):
        report["same"] = found.equals(ensue.match(dataset.to_table(), QUERIES[query], **columns))
    return report


def _status(name: str) -> int | None:
    try:
        said = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:  # no such system
        return None
    return 1024 * int(said[1]) if said else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES)
    parser.add_argument("--memory", default="2 GB", help="as in ensue.Limits(memory=...)")
    parser.add_argument("--folder", type=Path, help="where the files are written; default: a temporary folder")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/large.json")
    parser.add_argument("--only", choices=[*QUERIES], nargs="+", default=[*QUERIES])
    parser.add_argument("--measure", choices=[*QUERIES], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measured(options.measure, options.folder, options.memory)))
        return
    reports = []
    place = Path(tempfile.mkdtemp(prefix="ensue-large-", dir=options.folder))
    try:
        for rows in options.rows:
            folder = place / str(rows)
            write_files(folder, rows)
            for query in options.only:
                command = [sys.executable, "-m", "benchmarks.large", "--measure", query]
                command += ["--folder", str(folder), "--memory", options.memory]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
                reports.append(json.loads(done.stdout.strip().splitlines()[-1]))
                print(format_report(reports[-1]), flush=True)
            shutil.rmtree(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    said = {"machine": machine(), "memory": options.memory, "reports": reports}
    options.output.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")


def format_report(report: dict[str, Any]) -> str:
    """One line of figures.

    >>> format_report(
    ...     {
    ...         "query": "q",
    ...         "rows": 10,
    ...         "matches": 2,
    ...         "cpu_microseconds_per_row": 0.5,
    ...         "peak_bytes": 5e6,
    ...         "written_bytes": 0,
    ...     }
    ... )
    'q: 10 rows, 2 matches, 0.50 us of processor time for each row, peak 5 MB, written 0 MB'
    """
    return (
        f"{report['query']}: {report['rows']:,} rows, {report['matches']:,} matches, "
        f"{report['cpu_microseconds_per_row']:.2f} us of processor time for each row, "
        f"peak {(report['peak_bytes'] or 0) / 1e6:,.0f} MB, written {report['written_bytes'] / 1e6:,.0f} MB"
    )


if __name__ == "__main__":
    main()
