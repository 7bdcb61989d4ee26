"""Rewrites the figures of README.md and docs/performance.md from the result files.

`python -m benchmarks.readme` does it alone; the benchmarks call it when they have written theirs.
"""

import json
from pathlib import Path

from benchmarks.performance import Results, list_all_plots, span, write_blocks
from benchmarks.plots import draw
from benchmarks.tables import on_all_cores

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
README = ROOT / "README.md"
PERFORMANCE = ROOT / "docs" / "performance.md"
FIGURES, TABLES = "figures", "bench"  # the marks around figures, and around tables of other pages


def main() -> None:
    """Writes plots, the page on performance, and the six figures into the README."""
    results = Results(RESULTS)
    for plot in list_all_plots(results):
        (RESULTS / f"{plot.name}.svg").write_text(draw(plot), encoding="utf-8")
    PERFORMANCE.write_text(write_page(PERFORMANCE.read_text(encoding="utf-8"), results), encoding="utf-8")
    page = README.read_text(encoding="utf-8")
    README.write_text(replace_block(page, FIGURES, write_figures(RESULTS)), encoding="utf-8")


def write_page(page: str, results: Results) -> str:
    """The page on performance with what the results say between its marks."""
    for mark, text in write_blocks(results).items():
        page = replace_block(page, mark, text)
    return page


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


def write_figures(folder: Path) -> str:
    """Six figures of the result files, as a table."""
    read = {
        name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("local", "by_hand", "peers", "esper", "spark", "live", "readme_example")
    }
    arrow = [q["arrow"]["events_per_second"] / 1e6 for q in read["local"]["queries"]]
    polars = [q["ratio"]["polars"] for q in on_all_cores(read["by_hand"]["questions"])]
    flink = [q["ratio"] for q in read["peers"]["queries"]]
    esper = [q["ratio"] for q in read["esper"]["queries"]]
    spark = [q["ratio"] for q in read["spark"]["queries"]]
    live = read["live"]["latency"][0]
    first = read["readme_example"]["queries"][0]
    rows = (
        (f"{span(arrow)} million events a second", "`ensue.match` on an Arrow table, one core"),
        (
            f"{span(flink, 0)} times Flink, {span(esper)} times Esper",
            "the same questions with equal matches, events a second",
        ),
        (f"{span(polars)} times Polars", "the same questions written by hand, processor time"),
        (f"{span(spark)} times the run time", "of a Spark job that only shuffles the events"),
        (
            f"{live['match_p50_ms']:.1f} ms, p99 {live['match_p99_ms']:.1f} ms",
            "from an event to its match in `ensue.live`",
        ),
        (f"{first['cpu_seconds']:.1f} s", "for the example above in a new process on a new machine, import included"),
    )
    return "\n".join(["| | |", "|---|---|", *(f"| **{figure}** | {what} |" for figure, what in rows)])


if __name__ == "__main__":
    main()
