"""The same queries and files on Apache Flink and on Ensue: matches compared, ratio printed.

python -m benchmarks.peers.run [--events 1000000] [--query NAME ...]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.peers.environment import REQUIREMENTS, flink_python
from benchmarks.peers.events import read_matches, trades, write
from benchmarks.peers.queries import PAIRS, Pair
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "benchmarks" / ".cache"
RESULTS = ROOT / "benchmarks" / "results" / "peers.json"
TARGET = 30  # times Flink's events per second, from files to matches
SQL_TARGET = 50  # the same where both are asked in the same words
REPEATS = 3

Report = dict[str, Any]


def main() -> int:
    """Runs all pairs, prints the table, writes the results; 1 if any matches differ."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 140)
    python = flink_python(CACHE)
    before = _machine(python)
    pairs = [p for p in PAIRS if options.query is None or p.name in options.query]
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name:
        folder = Path(name)
        console.print(f"Writing {options.events:,} events of {options.symbols:,} symbols ...")
        events = folder / "events.csv"
        table = trades(options.events, options.symbols, options.seed)
        write(table, events)
        write(table.slice(0, min(options.events, 100_000)), folder / "warm_up.csv")
        reports = []
        for pair in pairs:
            console.print(f"{pair.name}: {pair.meaning}")
            report = compare(pair, folder, python, options)
            reports.append(report | {"events": options.events})
            console.print(_sentence(reports[-1]))
        size = events.stat().st_size
    summary = {"machine": before, "options": vars(options) | {"file_bytes": size}, "queries": reports}
    if options.query is None:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(summary, indent=2) + "\n")
    console.print(_table(reports))
    for target in sorted({r["target"] for r in reports}):
        ratios = [r["ratio"] for r in reports if r["target"] == target]
        reached = sum(ratio >= target for ratio in ratios)
        console.print(f"{target} times Flink's events/s: {reached} of {len(ratios)} queries")
    return 0 if all(r["same"] for r in reports) else 1


def compare(pair: Pair, folder: Path, python: Path, options: argparse.Namespace) -> Report:
    """One query on Flink, then on Ensue with an empty kernel cache, then with a full one."""
    task: Report = {"events": str(folder / "events.csv"), "columns": pair.columns}
    flink = _run(
        [str(python), str(Path(__file__).with_name("flink_runner.py"))],
        task
        | {
            "warm_up": str(folder / "warm_up.csv"),
            "matches": str(folder / "flink"),
            "insert": pair.insert(),
            "mode": options.mode,
            "parallelism": options.parallelism,
        },
    )
    task |= {"matches": str(folder / "ensue.csv"), "query": pair.ensue, "typed": pair.typed}
    task |= {"sql": pair.sql()}
    command = [sys.executable, "-m", "benchmarks.peers.ensue_runner"]
    kernels = folder / "kernels"
    shutil.rmtree(kernels, ignore_errors=True)
    cold = _run(command, task | {"repeats": 0}, kernels)
    warm = _run(command, task | {"repeats": REPEATS}, kernels)
    net = statistics.median(warm["seconds"])
    theirs = read_matches(folder / "flink", pair.columns)
    ours = read_matches(folder / "ensue.csv", pair.columns)
    return {
        "query": pair.name,
        "target": TARGET if pair.ensue is not None else SQL_TARGET,
        "flink": flink,
        "ensue": {"net_seconds": net, "cold": cold, "warm": warm, "matches": len(ours)},
        "same": theirs == ours,
        "only_flink": len(set(theirs) - set(ours)),
        "only_ensue": len(set(ours) - set(theirs)),
        "ratio": flink["net_seconds"] / net,
        "gross_ratio": flink["gross_seconds"] / cold["gross_seconds"],
    }


def _run(command: list[str], task: Report, kernels: Path | None = None) -> Report:
    environment = dict(os.environ)
    if kernels is not None:
        environment |= {"NUMBA_CACHE_DIR": str(kernels), "ENSUE_CACHE": str(kernels)}
    done = subprocess.run(
        command, input=json.dumps(task), capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    # Java may print warnings before the report.
    report: Report = json.loads(done.stdout.strip().splitlines()[-1])
    return report


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--symbols", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--query", action="append", choices=[p.name for p in PAIRS],
        help="only this query (repeatable); results are then not written",
    )  # fmt: skip
    parser.add_argument("--mode", choices=("streaming", "batch"), default="streaming")
    parser.add_argument("--parallelism", type=int, default=1, help="Flink's")
    return parser.parse_args()


def _sentence(report: Report) -> str:
    same = "the same matches" if report["same"] else (
        f"[red]matches differ: {report['only_flink']:,} only Flink's, "
        f"{report['only_ensue']:,} only Ensue's[/red]"
    )  # fmt: skip
    return f"  Flink {report['flink']['net_seconds']:.2f} s, Ensue {report['ensue']['net_seconds']:.3f} s, {same}"


def _table(reports: list[Report]) -> Table:
    table = Table(title="Apache Flink and Ensue, from a CSV file to a CSV file of matches")
    table.add_column("query")
    for heading in (
        "matches", "same", "Flink ev/s", "Ensue ev/s", "ratio",
        "Flink gross s", "Ensue cold s", "gross ratio",
    ):  # fmt: skip
        table.add_column(heading, justify="right")
    for r in reports:
        table.add_row(
            r["query"],
            f"{r['ensue']['matches']:,}",
            "yes" if r["same"] else "[red]NO[/red]",
            f"{r['events'] / r['flink']['net_seconds']:,.0f}",
            f"{r['events'] / r['ensue']['net_seconds']:,.0f}",
            f"{r['ratio']:.1f}",
            f"{r['flink']['gross_seconds']:.1f}",
            f"{r['ensue']['cold']['gross_seconds']:.2f}",
            f"{r['gross_ratio']:.1f}",
        )
    return table


def _machine(python: Path) -> Report:
    said = subprocess.run([str(python), "-V"], capture_output=True, text=True, check=True)
    return machine() | {
        "flink": REQUIREMENTS.read_text().strip().partition("==")[2],
        "flink_python": said.stdout.split()[1],
    }


if __name__ == "__main__":
    raise SystemExit(main())
