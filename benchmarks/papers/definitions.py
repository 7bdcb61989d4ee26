"""A hierarchy of three levels: fused in one matcher, and by hand with a table between the levels.

`python -m benchmarks.papers.definitions [--quick]`. Events of 1,000 hosts; loads followed by errors are
trouble, trouble followed by a restart is a failure, two failures are the match. Two streams: one
with little trouble, and one with a lot of it below few failures.

- *by hand*: one `ensue.match` a level. Its matches become a table that is put together with the
  events the next level needs, as the manual way is.
- *bottom-up* and *top-down*: the hierarchy as one query, all boxes found in one way.
- *planner*: the same with measured statistics, the planner chooses.
- *subscribed*: the planner's choice where every level is delivered.

Beside it the hierarchy of `benchmarks.papers.hierarchies` (H8), written with definitions, for a
box in the middle and for one that comes first: what the planner makes of it.

Time is that of the processor, the best of some runs, from tables in memory to tables of matches;
kernels are compiled before. All must find matches with the same times and values.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.papers.hierarchies import CHANCE, Case
from benchmarks.papers.hierarchies import stream as paper_stream
from benchmarks.tables import Sheet

RESULTS = Path(__file__).parent.parent / "results"
KINDS = np.array(["Load", "Error", "Restart", "Heartbeat"])
COLUMNS = ["start", "end", "kind", "host", "value"]

LEVELS = (
    """EVENT Trouble AS SEQ(Load a, Error b)
WHERE [host] and a.value > {low} and b.value > a.value
WITHIN {near} RETURN a.host AS host, b.value AS value""",
    """EVENT Failure AS SEQ(Trouble x, Restart r)
WHERE [host] and r.value < x.value
WITHIN {near} RETURN r.host AS host, x.value AS value""",
    """SEQ(Failure f, Failure g)
WHERE [host] and g.value > f.value
WITHIN {far} RETURN f.host AS host, g.value AS value""",
)
STREAMS: dict[str, dict[str, Any]] = {
    "few": {"shares": (0.3, 0.1, 0.05, 0.55), "low": 0.9, "near": 20_000, "far": 60_000},
    "many": {"shares": (0.3, 0.1, 0.002, 0.598), "low": 0.0, "near": 10_000, "far": 60_000},
}


def stream(name: str, count: int, seed: int = 1) -> pa.Table:
    random = np.random.default_rng(seed)
    kinds = KINDS[random.choice(4, count, p=STREAMS[name]["shares"])]
    return pa.table(
        {
            "ts": np.cumsum(random.integers(0, 3, count)),
            "kind": pa.array(kinds).dictionary_encode(),
            "host": random.integers(0, 1_000, count),
            "value": random.random(count),
        }
    )


def texts(name: str) -> list[str]:
    return [level.format(**STREAMS[name]) for level in LEVELS]


def by_hand(events: pa.Table, levels: Sequence[str]) -> tuple[pa.Table, list[int]]:
    """One call a level; what it finds is a table of events for the next one."""
    raw = pa.table(
        [events["ts"], events["ts"], events["kind"].cast(pa.string()), events["host"],
         events["value"]],
        COLUMNS,
    )  # fmt: skip
    counts = []
    lower: list[pa.Table] = []
    for number, level in enumerate(levels):
        reads = pa.concat_tables([raw, *lower]) if number < 2 else lower[-1]
        found = ensue.match(reads, level, time=("start", "end"), type="kind")
        counts.append(found.num_rows)
        kind = level.split()[1] if number < 2 else "Match"
        marks = pa.repeat(pa.scalar(kind), found.num_rows)
        lower.append(found.append_column("kind", marks).select(COLUMNS))
    return lower[-1], counts


def values(found: pa.Table) -> list[tuple[Any, ...]]:
    """Matches as something to compare."""
    return sorted(zip(*(found[c].to_pylist() for c in ("start", "end", "host", "value")), strict=True))


def measured(work: Callable[[], pa.Table], times: int) -> tuple[float, pa.Table]:
    found = work()  # compiled, or loaded from the cache
    best = float("inf")
    for _ in range(times):
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best, found


def compared(name: str, count: int, times: int) -> dict[str, Any]:
    events, levels = stream(name, count), texts(name)
    hierarchy = ";\n".join(levels)
    known = ensue.statistics(events, hierarchy, time="ts", type="kind")

    def fused(**planning: Any) -> Callable[[], pa.Table]:
        options = ensue.PlannerOptions(**planning)
        return lambda: ensue.match(events, hierarchy, time="ts", type="kind", options=options)

    def subscribed() -> pa.Table:
        options = [ensue.PlannerOptions(statistics=known), ensue.OutputOptions(levels="all")]
        return ensue.match(events, hierarchy, time="ts", type="kind", options=options)[""]

    ways: dict[str, Callable[[], Any]] = {
        "by hand": lambda: by_hand(events, levels)[0],
        "bottom-up": fused(off="top_down"),
        "top-down": fused(off="bottom_up"),
        "planner": fused(statistics=known),
        "subscribed": subscribed,
    }
    _, counts = by_hand(events, levels)
    row: dict[str, Any] = {"stream": name, "events": count, "found": counts}
    plan = ensue.explain(hierarchy, events, time="ts", type="kind", options=ensue.PlannerOptions(statistics=known))
    row["plan"] = plan.split("\n\n---")[0]
    wanted = None
    for way, work in ways.items():
        seconds, found = measured(work, times)
        wanted = values(found) if wanted is None else wanted
        assert values(found) == wanted, f"{way} found other matches"
        row[way] = {"cpu_seconds": seconds, "events_per_second": count / seconds}
    return row


def written(case: Case) -> str:
    """The hierarchy of an experiment of the paper with a definition for each module."""
    place = {"first": 0, "middle": case.length // 2, "last": case.length - 1}[case.box]
    texts = []
    for level in range(case.levels, 0, -1):
        names = [f"e{level}{k + 1}" for k in range(case.length)]
        boxed = level < case.levels
        parts = [f"M{level + 1} x" if boxed and k == place else f"{n.upper()} {n}" for k, n in enumerate(names)]
        own = [n for k, n in enumerate(names) if not (boxed and k == place)]
        conditions = [f"{n}.v < {CHANCE}" for n in own] + [f"{n}.id = {own[0]}.id" for n in own[1:]]
        head = f"EVENT M{level} AS " if level > 1 else ""
        where = " and ".join(conditions)
        texts.append(f"{head}SEQ({', '.join(parts)}) WHERE {where} WITHIN {case.window}")
    texts[-1] += " RETURN e11.t AS value" if case.box != "first" else " RETURN e13.t AS value"
    return ";\n".join(texts)


def planned(case: Case, times: int) -> dict[str, Any]:
    """A hierarchy of the paper in all ways."""
    events, hierarchy = paper_stream(case.events), written(case)
    columns = {"time": "t", "type": "type"}
    known = ensue.statistics(events, hierarchy, **columns)

    def run(**planning: Any) -> Callable[[], pa.Table]:
        options = ensue.PlannerOptions(**planning)
        return lambda: ensue.match(events, hierarchy, **columns, options=options)

    row: dict[str, Any] = {"levels": case.levels, "box": case.box, "events": case.events}
    plan = ensue.explain(hierarchy, events, **columns, options=ensue.PlannerOptions(statistics=known))
    plan = plan.split("\n\n---")[0]
    row["top_down"], row["bottom_up"] = plan.count(": top-down"), plan.count(": bottom-up")
    ways = {"bottom-up": run(off="top_down"), "top-down": run(off="bottom_up"), "planner": run(statistics=known)}
    ids = None
    for way, work in ways.items():
        seconds, found = measured(work, times)
        row[way] = {"cpu_seconds": seconds, "events_per_second": case.events / seconds}
        ids = set(found["match_id"].to_pylist()) if ids is None else ids
        assert ids == set(found["match_id"].to_pylist()), f"{way} found other matches"
    return row | {"matches": len(ids or ())}


def sheets(report: dict[str, Any]) -> list[Sheet]:
    ways = ("by hand", "bottom-up", "top-down", "planner", "subscribed")
    rows = []
    for row in report["hierarchies"]:
        base = row["by hand"]["cpu_seconds"]
        shown = [f"{row[w]['cpu_seconds']:.2f} s ({base / row[w]['cpu_seconds']:.2f})" for w in ways]
        found = " / ".join(f"{n:,}" for n in row["found"])
        rows.append((row["stream"], *shown, found))
    title = f"Three levels, {report['events']:,} events: seconds (times faster than by hand)"
    paper = [
        (
            f"{row['levels']}, {row['box']}",
            *(f"{row[w]['cpu_seconds']:.2f} s" for w in ("bottom-up", "top-down", "planner")),
            f"{row['top_down']} top-down, {row['bottom_up']} bottom-up",
            f"{row['matches']:,}",
        )
        for row in report["paper"]
    ]
    head = ("H, box", "bottom-up", "top-down", "planner", "boxes of the planner", "matches")
    size = report["paper"][0]["events"]
    return [
        Sheet(title, ("stream", *ways, "found by level"), tuple(rows)),
        Sheet(f"The paper's hierarchy, L = 3, T = 200, {size:,} events", head, tuple(paper)),
    ]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer events, one run each")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    count, few, times = (200_000, 20_000, 1) if options.quick else (5_000_000, 250_000, 3)
    report: dict[str, Any] = {
        "machine": machine(),
        "quick": options.quick,
        "events": count,
        "runs": times,
        "counted": "processor seconds, from tables in memory to tables of matches",
        "hierarchies": [compared(name, count, times) for name in STREAMS],
        "paper": [
            planned(Case(levels, 3, events=few, box=box), times)
            for box in ("middle", "first")
            for levels in ((2, 3) if options.quick else (2, 3, 4, 5))
        ],
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "papers_definitions.json").write_text(json.dumps(report, indent=1) + "\n")
    console = Console()
    for sheet in sheets(report):
        console.print(sheet.rich())
    for row in report["hierarchies"]:
        console.print(row["plan"], markup=False)


if __name__ == "__main__":
    main()
