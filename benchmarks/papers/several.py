"""Several queries, one scan: 1, 10, 100 and 1,000 queries in one call against one by one.

`python -m benchmarks.papers.several [--quick]`. Three sets of queries over the same events:

- *alerts*: one shape, each query with constants of its own, which few events meet;
- *broad*: one shape with constants of its own, to which a third of all events matter;
- *diverse*: shapes, types, keys and strategies mixed.

Texts are parsed and kernels compiled before the clock starts; planning, the scan, matching and
the tables of results are inside, on both sides. Time is that of the processor (one thread), which
other work on the machine disturbs less. One by one, at most 100 queries of a set are run; for
1,000 the time is that of 100 times ten. Matches of all that ran both ways must be equal.
"""

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.tables import Sheet
from benchmarks.timing import Clock
from ensue.ir.query import Query

RESULTS = Path(__file__).parent.parent / "results"
COUNTS = (1, 10, 100, 1_000)
MOST_APART = 100  # queries that are also run one by one
HERE: dict[str, Any] = {"time": "t", "type": "type"}


def events(count: int, seed: int = 7) -> pa.Table:
    """Five types, 1,000 keys, a time that is the position."""
    random = np.random.default_rng(seed)
    names = np.array([f"key {n}" for n in range(1_000)])
    return pa.table(
        {
            "t": np.arange(count),
            "type": pa.array(np.array(list("ABCDE"))[random.integers(0, 5, count)]),
            "key": pa.array(names[random.integers(0, len(names), count)]),
            "group": random.integers(0, 50, count),
            "x": random.integers(0, 1_000, count),
            "y": random.random(count) * 100,
        }
    )


def alert(n: int) -> str:
    return f"""SEQ(A a, B b, C c)
        WHERE [key] and a.x = {n} and b.x >= {900 + n % 50} and c.x < {100 - n % 50}
          and c.y - a.y > {n % 40}.5
        WITHIN {100_000 + n} RETURN a.t AS first, c.t AS last, c.y - a.y AS rise"""


def broad(n: int) -> str:
    return f"""SEQ(A a, B b, C c)
        WHERE [key] and a.x > {900 + n % 100} and c.x > {500 + n % 100}
          and b.y - a.y > {n % 90}.5 and c.y > b.y
        WITHIN {20_000 + n} RETURN a.t AS first, c.t AS last"""


SHAPES = (
    "SEQ({0} a, {1} b, {2} c) WHERE [key] and a.x < {n} and b.y < {m} and c.x > a.x WITHIN 20000",
    "SEQ({0} a, !{1} b, {2} c) WHERE [key] and a.x < {n} and c.y < {m} WITHIN 20000",
    """SEQ({0} a, {1}+ b[], {2} c) WHERE skip_till_next_match(a, b[], c)
       {{ [key] and a.x < {n} and b[i].y > b[i-1].y and c.y < {m} }} WITHIN 50000""",
    """SEQ({0} a, {1} b) WHERE skip_till_next_match(a, b)
       {{ [group] and a.x < {n} and b.y < {m} and b.x - a.x > {m} }} WITHIN 2000""",
    """SEQ({0} a, {1} b, {2} c) WHERE partition_contiguity(a, b, c)
       {{ [group] and a.x < {n} and c.x > b.x }} WITHIN 5000""",
    "AND({0} a, {1} b) WHERE [key] and a.x < {n} and b.y < {m} WITHIN 5000",
    "SEQ({0} a, {1} b, !{2} c) WHERE [key] and a.x < {n} and b.y < {m} WITHIN 5000",
    """SEQ({0} a, OR({1} b, {2} c))
       WHERE [group] and a.x < {n} and b.y < {m} and c.y < {m} WITHIN 500""",
)


def diverse(n: int) -> str:
    kinds = [("ABCDE" * 2)[n % 5 + k * (1 + n // 8 % 2)] for k in range(3)]
    return SHAPES[n % len(SHAPES)].format(*kinds, n=5 + n % 17, m=2 + n % 13)


SETS: dict[str, Callable[[int], str]] = {"alerts": alert, "broad": broad, "diverse": diverse}


@dataclass(frozen=True, slots=True)
class Figures:
    """One number of queries of one set, both ways."""

    queries: int
    matches: int
    together: float  # seconds
    apart: float
    apart_queries: int  # how many were run one by one

    def report(self, events: int) -> dict[str, object]:
        return {
            "queries": self.queries,
            "matches": self.matches,
            "together_seconds": self.together,
            "together_ms_per_query": self.together / self.queries * 1e3,
            "apart_seconds": self.apart,
            "apart_ms_per_query": self.apart / self.queries * 1e3,
            "apart_queries": self.apart_queries,
            "ratio": self.apart / self.together,
            "query_events_per_second": self.queries * events / self.together,
        }  # fmt: skip


def measured(queries: Sequence[Query], table: pa.Table, times: int) -> Figures:
    """The same queries in one call and one by one; the best of some runs each."""
    start = table.slice(0, 3_000)
    few = queries[:MOST_APART]
    ensue.match(start, list(queries), **HERE)  # compiled, or loaded from the cache
    for query in few:
        ensue.match(start, query, **HERE)
    together, apart = [], []
    found: dict[Any, pa.Table] = {}
    for _ in range(times):
        with Clock() as clock:
            found = ensue.match(table, list(queries), **HERE)
        together.append(clock.cpu_seconds)
    alone: list[pa.Table] = []
    for _ in range(times):
        with Clock() as clock:
            alone = [ensue.match(table, query, **HERE) for query in few]
        apart.append(clock.cpu_seconds)
    for number, (one, other) in enumerate(zip(found.values(), alone, strict=False)):
        if not one.equals(other):
            raise AssertionError(f"query {number} found other matches in company")
    matches = sum(result.num_rows for result in found.values())
    seconds = min(apart) / len(few) * len(queries)
    return Figures(len(queries), matches, min(together), seconds, len(few))


def plot(report: dict[str, Any], path: Path) -> None:
    """Milliseconds a query against the number of queries."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2))
    for number, (name, rows) in enumerate(report["sets"].items()):
        colour = f"C{number}"
        counts = [row["queries"] for row in rows]
        axes.plot(counts, [r["together_ms_per_query"] for r in rows], "o-", color=colour, label=f"{name}, one call")
        axes.plot(counts, [r["apart_ms_per_query"] for r in rows], "x--", color=colour, label=f"{name}, one by one")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("queries")
    axes.set_ylabel(f"ms a query, {report['events']:,} events")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def sheet(name: str, rows: Sequence[dict[str, Any]]) -> Sheet:
    return Sheet(
        f"{name}: ms a query",
        ("queries", "one call", "one by one", "ratio", "matches"),
        tuple(
            (
                f"{row['queries']:,}",
                f"{row['together_ms_per_query']:.1f}",
                f"{row['apart_ms_per_query']:.1f}",
                f"{row['ratio']:.1f}",
                f"{row['matches']:,}",
            )
            for row in rows
        ),
    )


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--quick", action="store_true", help="200,000 events, one run each")
    parser.add_argument("--most", type=int, default=COUNTS[-1], help="queries at most")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    count, times = (200_000, 1) if options.quick else (options.events, 2)
    table = events(count)
    report: dict[str, Any] = {
        "machine": machine(),
        "events": count,
        "runs": times,
        "quick": options.quick,
        "counted": "processor seconds of ensue.match; queries parsed and compiled before",
        "sets": {},
    }
    console = Console()
    for name, text in SETS.items():
        parsed = [ensue.parse(text(n)) for n in range(min(COUNTS[-1], options.most))]
        sizes = [n for n in COUNTS if n <= options.most]
        figures = [measured(parsed[:n], table, times if n < 1_000 else 1) for n in sizes]
        report["sets"][name] = [f.report(count) for f in figures]
        console.print(sheet(name, report["sets"][name]).rich())
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "papers_several.json").write_text(json.dumps(report, indent=1) + "\n")
    plot(report, options.output / "papers_several.svg")


if __name__ == "__main__":
    main()
