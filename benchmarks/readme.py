"""Rewrites the figures of README.md and docs/performance.md from the result files.

`python -m benchmarks.readme` does it alone; the benchmarks call it when they have written theirs.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.machine import sentence
from benchmarks.tables import (
    Report,
    Sheet,
    by_hand_sheet,
    esper_sheet,
    first_answer_sheet,
    first_kinds_sheet,
    latency_sheet,
    live_latency_sheet,
    live_sheet,
    local_sheet,
    peers_sheet,
    per_key_sheet,
    readme_example_sheet,
    row_pattern_growth_sheet,
    row_pattern_sheet,
    row_pattern_spark_sheet,
    row_pattern_stream_sheet,
    soak_sheet,
    spark_sheet,
    streaming_sheet,
    threads_sheet,
)

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
PERFORMANCE = ROOT / "docs" / "performance.md"
FIGURES, TABLES = "figures", "bench"  # the marks around them

Draw = Callable[[Sequence[Report]], Sheet]
_TABLES: tuple[tuple[str, str, Draw], ...] = (  # file, part of it, table
    ("local.json", "queries", local_sheet),
    ("threads.json", "queries", threads_sheet),
    ("spark.json", "queries", spark_sheet),
    ("streaming.json", "throughput", streaming_sheet),
    ("streaming.json", "per_key", per_key_sheet),
    ("streaming.json", "latency", latency_sheet),
    ("live.json", "latency", live_latency_sheet),
    ("live.json", "throughput", live_sheet),
    ("soak.json", "runs", soak_sheet),
    ("readme_example.json", "queries", readme_example_sheet),
    ("first_kinds.json", "queries", first_kinds_sheet),
    ("first_answer.json", "queries", first_answer_sheet),
    ("row_patterns.json", "tables", row_pattern_sheet),
    ("row_patterns.json", "growth", row_pattern_growth_sheet),
    ("row_patterns.json", "spark", row_pattern_spark_sheet),
    ("row_patterns.json", "stream", row_pattern_stream_sheet),
    ("by_hand.json", "questions", by_hand_sheet),
    ("peers.json", "queries", peers_sheet),
    ("esper.json", "queries", esper_sheet),
)


def main() -> None:
    """Writes the tables into the page on performance and the six figures into the README."""
    for page, mark, text in ((PERFORMANCE, TABLES, write_tables(RESULTS)), (README, FIGURES, write_figures(RESULTS))):
        page.write_text(replace_block(page.read_text(encoding="utf-8"), mark, text), encoding="utf-8")


def replace_block(page: str, mark: str, text: str) -> str:
    """A page with the text between its marks.

    >>> replace_block("a <!-- x:start --> old <!-- x:end --> b", "x", "new").split()
    ['a', '<!--', 'x:start', '-->', 'new', '<!--', 'x:end', '-->', 'b']
    """
    start, end = f"<!-- {mark}:start -->", f"<!-- {mark}:end -->"
    before, found, rest = page.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"the page needs {start} and {end} around its figures")
    return f"{before}{start}\n{text}\n{end}{after}"


def write_tables(folder: Path) -> str:
    """The tables of all result files, each with the machine it was measured on."""
    parts = []
    for name, part, draw in _TABLES:
        path = folder / name
        if not path.exists():
            continue
        results = json.loads(path.read_text(encoding="utf-8"))
        if not results.get(part):  # this part was not measured
            continue
        parts.append(draw(results[part]).markdown())
        parts.append(f"Measured on {sentence(results['machine'])}.")
    return "\n\n".join(parts)


def write_figures(folder: Path) -> str:
    """Six figures of the result files, as a table."""
    read = {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("local", "by_hand", "peers", "esper", "spark", "live", "readme_example")
    }
    arrow = [q["arrow"]["events_per_second"] / 1e6 for q in read["local"]["queries"]]
    polars = [q["ratio"]["polars"] for q in read["by_hand"]["questions"]]
    flink = [q["ratio"] for q in read["peers"]["queries"]]
    esper = [q["ratio"] for q in read["esper"]["queries"]]
    spark = [q["ratio"] for q in read["spark"]["queries"]]
    live = read["live"]["latency"][0]
    first = read["readme_example"]["queries"][0]
    rows = (
        (f"{_range(arrow)} million events a second", "`ensue.match` on an Arrow table, one core"),
        (
            f"{_range(flink, 0)} times Flink, {_range(esper)} times Esper",
            "the same questions with equal matches, events a second",
        ),
        (f"{_range(polars)} times Polars", "the same questions written by hand, processor time"),
        (f"{_range(spark)} times the run time", "of a Spark job that only shuffles the events"),
        (
            f"{live['match_p50_ms']:.1f} ms, p99 {live['match_p99_ms']:.1f} ms",
            "from an event to its match in `ensue.live`",
        ),
        (f"{first['cpu_seconds']:.1f} s", "for the example above in a new process on a new machine, import included"),
    )
    return "\n".join(["| | |", "|---|---|", *(f"| **{figure}** | {what} |" for figure, what in rows)])


def _range(values: Sequence[float], digits: int = 1) -> str:
    """The least and the greatest value.

    >>> _range([2.04, 1, 3.96])
    '1.0 to 4.0'
    """
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


if __name__ == "__main__":
    main()
