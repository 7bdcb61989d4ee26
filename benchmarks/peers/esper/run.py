"""The same questions on Esper and on Ensue, events in memory: matches compared, ratio printed.

python -m benchmarks.peers.esper.run [--events 500000] [--query NAME ...]
python -m benchmarks.peers.esper.run --lengths 2 3 4 5 6 8   # sequences, with and without negation
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.peers.esper.build import POM, class_path
from benchmarks.peers.esper.queries import PAIRS, Pair, sequence
from benchmarks.peers.events import read_matches, trades, write
from benchmarks.tables import esper_lengths_sheet, esper_sheet
from rich.console import Console

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / "benchmarks" / ".cache"
RESULTS = ROOT / "benchmarks" / "results"
HEAP = "2g"

Report = dict[str, Any]


def main() -> int:
    """Runs all pairs, prints the table, writes the results; 1 if any matches differ."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 120)
    CACHE.mkdir(parents=True, exist_ok=True)
    classes, before = class_path(CACHE), machine() | {"esper": _version()}
    pairs = [p for p in PAIRS if options.query is None or p.name in options.query]
    if options.lengths:
        pairs = [sequence(length, negated=negated) for length in options.lengths for negated in (False, True)]
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="run-") as name:
        folder = Path(name)
        write(trades(options.events, options.symbols, options.seed), folder / "events.csv")
        reports = []
        for pair in pairs:
            console.print(f"{pair.name}: {pair.meaning}")
            reports.append(compare(pair, folder, classes, options))
    if options.query is None and not options.quick:
        summary = {"machine": before, "options": vars(options), "queries": reports}
        name = "esper_lengths.json" if options.lengths else "esper.json"
        (RESULTS / name).write_text(json.dumps(summary, indent=2) + "\n")
    sheet = esper_lengths_sheet if options.lengths else esper_sheet
    console.print(sheet(reports).markdown(), markup=False)
    for report in reports:
        if report["target"] is not None:
            reached = "reached" if report["ratio"] >= report["target"] else "not reached"
            console.print(f"{report['query']}: {report['target']} times Esper's speed: {reached}")
    return 0 if all(r["same"] for r in reports) else 1


def compare(pair: Pair, folder: Path, classes: str, options: argparse.Namespace) -> Report:
    """One question on Esper, then on Ensue; of each the pass with the least processor time."""
    events, statement = folder / "events.csv", folder / "statement.epl"
    statement.write_text(pair.esper)
    one = "false" if pair.typed else "true"
    command = ["java", "-XX:+UseParallelGC", f"-Xms{HEAP}", f"-Xmx{HEAP}", f"-Done.stream={one}"]
    command += ["-cp", classes, "EsperRunner", str(statement), str(events)]
    theirs = _passes([*command, str(folder / "esper.csv"), str(options.passes)])
    task = {
        "events": str(events),
        "matches": str(folder / "ensue.csv"),
        "query": pair.ensue,
        "typed": pair.typed,
        "passes": options.passes,
    }
    runner = [sys.executable, "-m", "benchmarks.peers.esper.ensue_runner"]
    ours = _passes(runner, json.dumps(task))
    found = [read_matches(folder / f"{side}.csv", ("s", "e")) for side in ("esper", "ensue")]
    best = [min(run["cpu_seconds"] for run in runs) for runs in (theirs, ours)]
    return {
        "query": pair.name,
        "target": pair.target,
        "events": options.events,
        "matches": len(found[1]),
        "same": found[0] == found[1],
        "esper": {"cpu_seconds": best[0], "passes": theirs},
        "ensue": {"cpu_seconds": best[1], "passes": ours},
        "ratio": best[0] / best[1],
    }


def _passes(command: list[str], given: str | None = None) -> list[Report]:
    done = subprocess.run(command, input=given, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    lines = done.stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def _version() -> str:
    """Esper's, from the list of jars."""
    return POM.read_text().split("esper-runtime</artifactId>")[1].split("version>")[1][:-2]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--symbols", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument(
        "--query", action="append", choices=[p.name for p in PAIRS],
        help="only this query (repeatable); results are then not written",
    )  # fmt: skip
    parser.add_argument("--lengths", type=int, nargs="+", help="sequences of so many events instead of the queries")
    parser.add_argument(
        "--quick", action="store_true", help="a fifth of the events, half of the passes, nothing is written"
    )
    options = parser.parse_args()
    if options.quick:
        options.events, options.passes = options.events // 5, options.passes // 2
    return options


if __name__ == "__main__":
    raise SystemExit(main())
