"""Dense any-match: SEQ(A a, B b, C c), one key, windows of 100 to 10,000 events.

`python -m benchmarks.papers.dense [--quick]`. A third of the events is of each type, the time is
the position, so a window of w events holds about w * w / 18 matches of each C.

- *without listing*: COUNT(*), EXISTS and LIMIT 10 on the compact structure; beside them, instance
  stacks and runs, which list every match, on as many events as they can do in the time.
- *listing*: every match, on compact, stacks and runs; here C is so rare that the number of matches
  is about the same for every window. Runs keep every pair of A and B: not at 10,000.

Measured is the kernel: events come scanned, matches are counted and dropped. Time is that of the
processor, the best of some runs; kernels are compiled before. All that ran on the same events must
have found the same number of matches, which COUNT(*) also gives without listing them.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import ensue
from benchmarks.kernel import measured
from benchmarks.machine import machine
from benchmarks.tables import Sheet
from ensue.backends.dataframe_libs import read_event_table
from ensue.engine.engine import Engine
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.compiled_query import CompiledQuery, compile_query

RESULTS = Path(__file__).parent.parent / "results"
WINDOWS = (100, 1_000, 10_000)
ANSWERS = {"COUNT(*)": "RETURN COUNT(*)", "EXISTS": "RETURN EXISTS", "LIMIT 10": "LIMIT 10"}
LISTERS = ("compact", "stacks", "runs")
MOST_RUNS = 1_000  # the longest window in which runs are tried


def stream(count: int, triggers: float = 1 / 3, seed: int = 5) -> pa.Table:
    """A third A, a third B; of the rest as many are C as asked for, and others play no role."""
    random = np.random.default_rng(seed)
    types = np.array(list("ABX"))[random.integers(0, 3, count)]
    if triggers >= 1 / 3:
        types[types == "X"] = "C"
    else:
        step = round(1 / triggers)
        types[step - 1 :: step] = "C"
    return pa.table({"t": np.arange(count), "type": pa.array(types).dictionary_encode()})


def prepared(window: int, answer: str, table: pa.Table, structure: str) -> CompiledQuery:
    _, shape = read_event_table(table, time="t", type="type")
    query = ensue.parse(f"SEQ(A a, B b, C c) WITHIN {window} {answer}")
    ready = compile_query(query, shape, PlannerOptions(structure=structure))
    ready.engine().process(table.slice(0, 100))  # compiled, or loaded from the cache
    return ready


def timed(ready: CompiledQuery, table: pa.Table, times: int) -> dict[str, Any]:
    runs = measured(ready, table, times)
    seconds = min(runs.cpu_seconds)
    return {
        "events": table.num_rows,
        "rows": runs.matches,
        "cpu_seconds": seconds,
        "events_per_second": table.num_rows / seconds,
        "rows_per_second": runs.matches / seconds,
    }


def total(window: int, table: pa.Table) -> int:
    """The number of matches, by COUNT(*)."""
    engine = prepared(window, "RETURN COUNT(*)", table, "compact").engine()
    assert isinstance(engine, Engine)
    tally = engine.process(table).tally
    assert tally is not None
    return int(tally.sum())


def without_listing(windows: Sequence[int], count: int, times: int) -> list[dict[str, Any]]:
    table, found = stream(count), []
    for window in windows:
        row: dict[str, Any] = {"window": window, "matches": total(window, table)}
        for name, answer in ANSWERS.items():
            row[name] = timed(prepared(window, answer, table, "compact"), table, times)
        assert row["COUNT(*)"]["rows"] == row["EXISTS"]["rows"]
        fewer = table.slice(0, min(count, {100: 100_000, 1_000: 4_000}.get(window, 0)))
        for structure in ("stacks", "runs"):
            if fewer.num_rows:
                ready = prepared(window, "", fewer, structure)
                row[f"{structure}, all"] = timed(ready, fewer, 1)
                assert row[f"{structure}, all"]["rows"] == total(window, fewer)
        found.append(row)
    return found


def listing(windows: Sequence[int], matches: int, times: int) -> list[dict[str, Any]]:
    found = []
    for window in windows:
        each = window * window / 18
        count = max(2 * window, round(matches / each * 3)) if window > 100 else 60_000
        triggers = min(1 / 3, max(2, matches / each) / count)
        table = stream(count, triggers)
        known = total(window, table)
        row: dict[str, Any] = {"window": window, "matches": known}
        for structure in LISTERS:
            if structure == "runs" and window > MOST_RUNS:
                continue
            row[structure] = timed(prepared(window, "", table, structure), table, times)
            assert row[structure]["rows"] == known, f"{structure} found other matches"
        found.append(row)
    return found


def plot(report: dict[str, Any], path: Path) -> None:
    """Events a second without listing, and matches a second with it, by window."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2))
    rows = report["without_listing"]
    for name in (*ANSWERS, "stacks, all", "runs, all"):
        there = [row for row in rows if name in row]
        rates = [row[name]["events_per_second"] for row in there]
        style = "o-" if name in ANSWERS else "x--"
        left.plot([row["window"] for row in there], rates, style, label=name)
    left.set_title("without listing, and listing all", fontsize=10)
    left.set_ylabel("events a second")
    for name in LISTERS:
        there = [row for row in report["listing"] if name in row]
        rates = [row[name]["rows_per_second"] for row in there]
        right.plot([row["window"] for row in there], rates, "o-", label=name)
    right.set_title("listing", fontsize=10)
    right.set_ylabel("matches a second")
    right.set_ylim(bottom=0)
    left.set_yscale("log")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xlabel("window, events")
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def sheets(report: dict[str, Any]) -> list[Sheet]:
    def rate(row: dict[str, Any], name: str, what: str) -> str:
        return f"{row[name][what] / 1e6:,.3g}" if name in row else "-"

    names = (*ANSWERS, "stacks, all", "runs, all")
    return [
        Sheet(
            "Without listing: millions of events a second",
            ("window", *names, "matches"),
            tuple(
                (f"{row['window']:,}", *(rate(row, name, "events_per_second") for name in names), f"{row['matches']:,}")
                for row in report["without_listing"]
            ),
        ),
        Sheet(
            "Listing: millions of matches a second",
            ("window", *LISTERS, "matches"),
            tuple(
                (f"{row['window']:,}", *(rate(row, name, "rows_per_second") for name in LISTERS), f"{row['matches']:,}")
                for row in report["listing"]
            ),
        ),
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer events, one run each")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    count, matches, times = (200_000, 3_000_000, 2) if options.quick else (2_000_000, 10_000_000, 5)
    report: dict[str, Any] = {
        "machine": machine(),
        "quick": options.quick,
        "events": count,
        "runs": times,
        "counted": "processor seconds of the kernel; rows of the result counted and dropped",
        "without_listing": without_listing(WINDOWS, count, times),
        "listing": listing(WINDOWS, matches, times),
    }
    console = Console()
    for sheet in sheets(report):
        console.print(sheet.rich())
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "papers_dense.json").write_text(json.dumps(report, indent=1) + "\n")
    plot(report, options.output / "papers_dense.svg")


if __name__ == "__main__":
    main()
