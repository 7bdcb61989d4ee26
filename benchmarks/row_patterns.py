"""Measures MATCH_RECOGNIZE: `python -m benchmarks.row_patterns [--quick] [--only tables ...]`.

`ensue.sql` from Arrow and its engine alone, beside a pass that only copies the rows; how time and
memory grow with the rows; Spark batch and stream beside pipelines that only move the same rows.
Compilation is outside the clock. Processor time stands beside the clock: a neighbour on the same
cores disturbs it less. Writes `benchmarks/results/row_patterns.json`; with --quick only prints.
"""

import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

import ensue
from benchmarks import readme, spark, streaming
from benchmarks.clauses import CLAUSES, STREAMED, Clause
from benchmarks.machine import machine, sentence
from benchmarks.tables import (
    Report,
    row_pattern_growth_sheet,
    row_pattern_sheet,
    row_pattern_spark_sheet,
    row_pattern_stream_sheet,
)
from benchmarks.timing import Clock, Runs, repeated
from benchmarks.workloads import FEW_KEYS, events

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ensue.operators.row_match.compiled_clause import CompiledClause as Prepared

PARTS = ("tables", "growth", "spark", "stream")
GROWN = ("V shape", "failing", "failing, any row")
ROOT = Path(__file__).resolve().parents[1]
console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)


def main() -> int:
    """Runs the parts asked for; 1 if two ways of running a clause found different rows."""
    options = _options()
    if options.memory is not None:
        print(json.dumps(grown_memory(CLAUSES[options.memory], options.rows, options.keys)))
        return 0
    here = machine()
    console.print(f"{sentence(here)}; {options.rows:,} rows, {options.times} runs each")
    said: dict[str, list[Report]] = {}
    with tempfile.TemporaryDirectory(prefix="ensue-bench-") as name:
        # every kernel is compiled here and now; other processes inherit the variable
        os.environ["ENSUE_CACHE"] = str(Path(name, "kernels"))
        if "tables" in options.only:
            said["tables"] = measure_tables(options.rows, options.times)
            console.print(row_pattern_sheet(said["tables"]).rich())
        if "growth" in options.only:
            said["growth"] = measure_growth(options.rows, options.times, quick=options.quick)
            console.print(row_pattern_growth_sheet(said["growth"]).rich())
        if "spark" in options.only or "stream" in options.only:
            said |= measure_spark(options, Path(name))
    if not options.quick:
        _write(said, here)
        readme.main()
    same = [r["same"] for reports in said.values() for r in reports if "same" in r]
    return 0 if all(same) else 1


# ---------------------------------------------------------------------------- from Arrow


def rows_of(count: int, keys: int) -> pa.Table:
    """Rows of many keys, or of one: then the same prices, one symbol's behind the other's.

    One walk of millions of steps would not do. It comes to prices of which most are equal, so more
    rows would be easier ones.
    """
    table = events(count, FEW_KEYS)
    if keys == FEW_KEYS:
        return table
    assert keys == 1
    by_symbol = table.take(pc.sort_indices(table["symbol"]))
    one = pa.repeat(pa.scalar("SYM00000"), count)
    return by_symbol.set_column(0, "ts", table["ts"]).set_column(2, "symbol", one)


def measure_tables(count: int, times: int) -> list[Report]:
    """`ensue.sql` and its engine alone, of many partitions and of one."""
    reports = []
    for keys in (FEW_KEYS, 1):
        console.print(f"making {count:,} rows of {keys:,} keys ...", style="dim")
        table = rows_of(count, keys)
        copied = _copied(table, times)
        for clause in CLAUSES.values():
            console.print(f"{clause.name}: {clause.meaning} ...", style="dim")
            compiling = Clock()
            with compiling:
                ensue.sql(clause.sql, tables={"ticks": table.slice(0, 1_000)})
            whole, alone = _whole(clause, table, times), _alone(clause, table, times)
            reports.append(
                {
                    "query": clause.name,
                    "text": clause.sql,
                    "events": count,
                    "symbols": keys,
                    "compile_seconds": compiling.seconds,
                    "sql": _report(whole, count),
                    "engine": _report(alone, count),
                    "copy": _report(copied, count),
                    "ratio": min(whole.cpu_seconds) / min(copied.cpu_seconds),
                    "bytes_per_row": _memory_of(clause, count, keys),
                }
            )
    return reports


def _report(runs: Runs, events: int) -> Report:
    return runs.report(events) | {"events_per_cpu_second": events / min(runs.cpu_seconds)}


def _copied(table: pa.Table, times: int) -> Runs:
    """`SELECT *` of the same rows."""

    def run() -> tuple[Clock, int]:
        clock = Clock()
        with clock:
            found = ensue.sql("SELECT * FROM ticks", tables={"ticks": table})
        return clock, found.num_rows

    return repeated(run, times)


def _whole(clause: Clause, table: pa.Table, times: int) -> Runs:
    """The whole call, from a table to a table."""

    return repeated(lambda: _called(clause, table), times)


def _called(clause: Clause, table: pa.Table) -> tuple[Clock, int]:
    clock = Clock()
    with clock:
        found = ensue.sql(clause.sql, tables={"ticks": table})
    return clock, found.num_rows


def _alone(clause: Clause, table: pa.Table, times: int) -> Runs:
    """The search alone: rows come by partition, matches are counted and dropped."""
    from ensue.engine.row_match.row_partitions import Partitions, partition_rows
    from ensue.engine.row_match.search import RowMatchFinder, SearchState

    prepared = _prepared(clause, table.schema)
    split = partition_rows(table, prepared.key, prepared.row_pattern.order)

    def run() -> tuple[Clock, int]:
        partitions = Partitions(split.table, split.order, split.bounds)
        clock = Clock()
        with clock:
            search = SearchState.from_complete(partitions.bounds)
            found = sum(len(some) for some in RowMatchFinder(prepared.plan).find(partitions, search))
        return clock, found

    return repeated(run, times)


def _prepared(clause: Clause, schema: pa.Schema) -> "Prepared":
    from ensue.operators.row_match.compiled_clause import compile_clause
    from ensue.options import Limits
    from ensue.parser.sql.clause_parser import parse_clause

    return compile_clause(parse_clause(clause.text), schema, Limits(), ids=False)


# -------------------------------------------------------------------- how time and memory grow


def measure_growth(count: int, times: int, *, quick: bool) -> list[Report]:
    """Ten times as many rows, and again: with one partition, all of them in one piece."""
    reports = []
    sizes = [count // 20, count // 2] + ([] if quick else [count * 5])
    for keys in (FEW_KEYS, 1):
        runs: dict[str, list[list[Clock]]] = {name: [] for name in GROWN}
        matches: dict[str, list[int]] = {name: [] for name in GROWN}
        for size in sizes:
            console.print(f"{size:,} rows of {keys:,} keys ...", style="dim")
            table = rows_of(size, keys)
            for name in GROWN:
                clocks = [_called(CLAUSES[name], table) for _ in range(times + 4)]
                runs[name].append([clock for clock, _ in clocks])
                matches[name].append(clocks[0][1])
            del table
        reports += [
            {
                "query": name,
                "symbols": keys,
                "rows": sizes,
                "matches": matches[name],
                "cpu_seconds": (cpu := [min(c.cpu_seconds for c in some) for some in runs[name]]),
                "user_seconds": (user := [min(c.user_seconds for c in some) for some in runs[name]]),
                "growth": _ratios(cpu),
                "user_growth": _ratios(user),
                "all_cpu_seconds": [[c.cpu_seconds for c in some] for some in runs[name]],
            }
            for name in GROWN
        ]
    return reports


def _ratios(seconds: list[float]) -> list[float | None]:
    """None where the shorter run was too short to be timed."""
    return [after / before if before else None for before, after in itertools.pairwise(seconds)]


def _memory_of(clause: Clause, rows: int, keys: int) -> float | None:
    """What a process of its own says of its memory: bytes a row, beside the table itself."""
    command = [sys.executable, "-m", "benchmarks.row_patterns", "--memory", clause.name]
    command += ["--rows", str(rows), "--keys", str(keys)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    said: Report = json.loads(done.stdout.strip().splitlines()[-1])
    return said["bytes_per_row"]


def grown_memory(clause: Clause, rows: int, keys: int) -> Report:
    """How far a process grows at most while it runs a clause; None where no system says it."""
    table = rows_of(rows, keys)
    ensue.sql(clause.sql, tables={"ticks": table.slice(0, 1_000)})
    pa.default_memory_pool().release_unused()
    forget = Path("/proc/self/clear_refs")
    if not forget.exists():
        return {"bytes_per_row": None}
    forget.write_text("5")  # the peak is what there is now
    before = _status("VmRSS")
    found = ensue.sql(clause.sql, tables={"ticks": table})
    return {"bytes_per_row": (_status("VmHWM") - before) / rows, "matches": found.num_rows}


def _status(name: str) -> int:
    said = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert said is not None
    return 1024 * int(said[1])


# --------------------------------------------------------------------------------------- Spark


def measure_spark(options: argparse.Namespace, folder: Path) -> dict[str, list[Report]]:
    """Batch and stream, each beside a pipeline that only moves the rows."""
    from ensue.backends.spark.session import get_or_create_session

    session = get_or_create_session()
    session.conf.set("spark.sql.streaming.numRecentProgressUpdates", "200")
    said: dict[str, list[Report]] = {}
    try:
        if "spark" in options.only:
            said["spark"] = _batch(session, options.rows, options.times, folder)
            console.print(row_pattern_spark_sheet(said["spark"]).rich())
        if "stream" in options.only:
            session.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count() or 1))
            sizes = (10_000, 100_000) if options.quick else (10_000, 100_000, 1_000_000)
            said["stream"] = [_streamed(session, folder / f"s{size}", size) for size in sizes]
            console.print(row_pattern_stream_sheet(said["stream"]).rich())
    except ensue.EnsueError as error:
        console.print(f"left out, clauses do not run on Spark here: {error}", style="bold yellow")
    finally:
        session.stop()
    return said


def _batch(session: "SparkSession", count: int, times: int, folder: Path) -> list[Report]:
    console.print(f"writing {count:,} rows as Parquet ...", style="dim")
    table = events(count, FEW_KEYS)
    path = spark.written(table, folder / "ticks")
    reports = []
    for clause in CLAUSES.values():
        if clause.on_spark:
            console.print(f"{clause.name}, on Spark ...", style="dim")
            wanted = ensue.sql(clause.sql, tables={"ticks": table}).num_rows
            reports.append(_in_turns(session, clause, path, times, wanted))
    return reports


def _in_turns(session: "SparkSession", clause: Clause, folder: Path, times: int, wanted: int) -> Report:
    """The pipelines in turns, after one run of each that is not counted."""
    seconds: dict[str, list[float]] = {"identity": [], "match": []}
    counts: dict[str, set[int]] = {name: set() for name in seconds}
    rows = 0
    for turn in range(times + 1):
        # the order alternates: none always runs on another's warm files
        for name in sorted(seconds, reverse=bool(turn % 2)):
            frame = session.read.parquet(str(folder))
            if name == "match":
                frame = ensue.sql(clause.sql, tables={"ticks": frame})
            else:
                frame = spark.identity(frame)
            clock = Clock()
            with clock:
                rows = spark.counted(frame)
            counts[name].add(rows)
            if turn:
                seconds[name].append(clock.seconds)
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    (moved,) = counts["identity"]
    return {
        "query": clause.name,
        "matches": wanted,
        "same": counts["match"] == {wanted},
        "events": moved,
        "match_seconds": medians["match"],
        "identity_seconds": medians["identity"],
        "ratio": medians["match"] / medians["identity"],
        "best_ratio": min(seconds["match"]) / min(seconds["identity"]),
        "events_per_second": moved / medians["match"],
        "seconds": seconds,
    }


def _streamed(session: "SparkSession", folder: Path, size: int) -> Report:
    """Micro-batches of a size: rows a second, and whether a batch run finds the same."""
    console.print(f"{size:,} rows a micro-batch ...", style="dim")
    table = events(size * (streaming.FIRST + (3 if size >= 1_000_000 else 6)), FEW_KEYS)
    files = streaming.in_files(table, folder / "events", size)
    wanted = ensue.sql(STREAMED.sql, tables={"ticks": table}).num_rows
    del table
    stream = streaming.stream_of(session, folder / "events", files)
    frame = ensue.match(stream, STREAMED.text, watermark=streaming.WATERMARK)
    reports = streaming.run(frame, folder / "match")
    moved = streaming.run(_moved(session, folder / "events", files), folder / "identity")
    found = sum(p["observedMetrics"]["ensue"].matches or 0 for p in reports)
    found += ensue.remaining(session, folder / "match").count()
    median = statistics.median(streaming.seconds_of(reports))
    identity = statistics.median(streaming.seconds_of(moved))
    return {
        "query": STREAMED.name,
        "rows": size,
        "symbols": FEW_KEYS,
        "matches": wanted,
        "same": found == wanted,
        "match_seconds": median,
        "identity_seconds": identity,
        "events_per_second": size / median,
    }


def _moved(session: "SparkSession", folder: Path, files: int) -> "DataFrame":
    """The same stream through Python, without state."""
    return spark.identity(streaming.stream_of(session, folder, files))


def _write(said: dict[str, Any], here: dict[str, object]) -> None:
    """The parts that were run; the others stay as they are."""
    path = readme.RESULTS / "row_patterns.json"
    before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    content = json.dumps(before | {"machine": here} | said, indent=2)
    path.write_text(content + "\n", encoding="utf-8")
    console.print(f"written to {path.relative_to(readme.ROOT)}", style="dim")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.row_patterns", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--times", type=int, default=5, help="how often everything is run")
    parser.add_argument("--quick", action="store_true", help="200,000 rows, nothing is written")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--memory", choices=list(CLAUSES), help="the memory of one clause alone")
    parser.add_argument("--keys", type=int, default=FEW_KEYS, help="of --memory")
    options = parser.parse_args()
    if options.quick:
        options.rows = min(options.rows, 200_000)
    return options


if __name__ == "__main__":
    raise SystemExit(main())
