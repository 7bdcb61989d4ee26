"""Measures Ensue on this machine: `python -m benchmarks.run [--quick] [--only local ...]`.

Reading the events and a plain loop, kernels, `ensue.match` from Arrow, loops beside their encodings,
Spark batch from Parquet, the first answer of a new query, and how long kernels compile.
Writes `benchmarks/results` and the figures of the README; with --quick only prints.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from rich.console import Console

import ensue
from benchmarks import arrow, compile_time, first_answer, floor, kernel, loops, readme, spark, threads
from benchmarks.machine import machine, sentence
from benchmarks.tables import (
    Report,
    first_answer_sheet,
    first_kinds_sheet,
    floor_sheet,
    growth_sheet,
    local_sheet,
    loops_sheet,
    readme_example_sheet,
    spark_sheet,
    threads_sheet,
)
from benchmarks.workloads import FEW_KEYS, MANY_KEYS, WARM_UP, WORKLOADS, events

PARTS = ("floor", "local", "threads", "loops", "first-answer", "compile-time", "spark")
console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)


def main() -> int:
    """Runs the parts asked for; 1 if two ways of running a query found different matches."""
    options = _options()
    here = machine()
    console.print(f"{sentence(here)}; {options.events:,} events, {options.times} runs each")
    said: dict[str, list[Report]] = {}
    with tempfile.TemporaryDirectory(prefix="ensue-bench-") as name:
        # every kernel is compiled here and now; Spark's workers inherit the variable
        os.environ["ENSUE_CACHE"] = str(Path(name, "kernels"))
        if "floor" in options.only:
            console.print("the floor: all bytes, a loop, `ensue.match` ...", style="dim")
            said["floor"] = floor.measured(options.events, FEW_KEYS, options.times)
            console.print(floor_sheet(said["floor"]).rich())
        if "local" in options.only:
            said["local"] = measure_local(options.events, options.times)
            console.print(local_sheet(said["local"]).rich())
        if "threads" in options.only:
            said["threads"] = threads.measure_cases(
                options.events, options.times, lambda text: console.print(text, style="dim")
            )
            console.print(threads_sheet(said["threads"]).rich())
        if "loops" in options.only:
            console.print("loops beside their encodings ...", style="dim")
            table = events(min(options.events, 2_000_000), FEW_KEYS)
            said["loops"] = loops.measured(table, FEW_KEYS, options.times)
            said["loops_growth"] = loops.growth()
            console.print(loops_sheet(said["loops"]).rich())
            console.print(growth_sheet(said["loops_growth"]).rich())
        if "first-answer" in options.only:
            said["first_answer"] = first_answer.measured(options.times)
            console.print(first_answer_sheet(said["first_answer"]).rich())
            said["readme_example"] = first_answer.readme_example(options.times)
            console.print(readme_example_sheet(said["readme_example"]).rich())
            said["first_kinds"] = first_answer.kinds(options.times)
            console.print(first_kinds_sheet(said["first_kinds"]).rich())
        if "compile-time" in options.only:
            said["compile_time"] = compile_time.measured()
        if "spark" in options.only:
            said["spark"] = measure_spark(options.events, options.times, Path(name))
            console.print(spark_sheet(said["spark"]).rich())
    same = compared(said)
    if not options.quick:
        _write(said, here)
        readme.main()
    return 0 if same else 1


def measure_local(count: int, times: int) -> list[Report]:
    """The kernel alone and `ensue.match`, with few keys and with many."""
    reports: list[Report] = []
    for symbols in (FEW_KEYS, MANY_KEYS):
        console.print(f"making {count:,} events of {symbols:,} symbols ...", style="dim")
        table = events(count, symbols)
        ensue.match(table.slice(0, 1_000), WARM_UP, time="ts", type="type")
        for workload in WORKLOADS.values():
            console.print(f"{workload.name}: {workload.meaning} ...", style="dim")
            ready = kernel.compiled(workload, table, symbols)
            alone = kernel.measured(ready.prepared, table, times)
            whole = arrow.measured(workload, table, symbols, times)
            reports.append(
                {
                    "query": workload.name,
                    "text": workload.text(symbols),
                    "events": count,
                    "symbols": symbols,
                    "compile_seconds": ready.seconds,
                    "kernel": alone.report(count),
                    "arrow": whole.report(count),
                    "same": alone.matches == whole.matches,
                }
            )
    return reports


def measure_spark(count: int, times: int, folder: Path) -> list[Report]:
    """Spark batch beside an identity pipeline."""
    from ensue.backends.spark.session import get_or_create_session

    console.print(f"writing {count:,} events as Parquet, starting Spark ...", style="dim")
    path = spark.written(events(count, FEW_KEYS), folder / "events")
    session = get_or_create_session()
    reports: list[Report] = []
    try:
        for workload in WORKLOADS.values():
            if workload.on_spark:
                console.print(f"{workload.name}, on Spark ...", style="dim")
                reports.append(spark.measured(session, workload, path, FEW_KEYS, times))
    finally:
        session.stop()
    return reports


def compared(said: dict[str, list[Report]]) -> bool:
    """Whether all ways of running a query found as many matches; notes it in the reports."""
    local = {r["query"]: r for r in said.get("local", []) if r["symbols"] == FEW_KEYS}
    for report in said.get("spark", []):
        if report["query"] in local:
            report["same"] = report["matches"] == local[report["query"]]["arrow"]["matches"]
    reports = [r for part in ("floor", "local", "threads", "loops", "spark") for r in said.get(part, [])]
    different = [r["query"] for r in reports if not r.get("same", True)]
    for query in different:
        console.print(f"the numbers of matches differ: {query}", style="bold red")
    return not different


def _write(said: dict[str, list[Report]], here: dict[str, object]) -> None:
    readme.RESULTS.mkdir(parents=True, exist_ok=True)
    for name, reports in said.items():
        path = readme.RESULTS / f"{name}.json"
        content = json.dumps({"machine": here, "queries": reports}, indent=2)
        path.write_text(content + "\n", encoding="utf-8")
        console.print(f"written to {path.relative_to(readme.ROOT)}", style="dim")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--times", type=int, default=3, help="how often everything is run")
    parser.add_argument("--quick", action="store_true", help="200,000 events, nothing is written")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    options = parser.parse_args()
    if options.quick:
        options.events = min(options.events, 200_000)
    return options


if __name__ == "__main__":
    raise SystemExit(main())
