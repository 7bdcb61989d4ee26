"""A stream whose rates drift: static plans against one that follows.

`python -m benchmarks.papers.drift [--quick]`. The stream has phases: in one, A events are common
and C events rare, in the next it is the other way round. Join trees that begin at the rare end
are cheap, those that begin at the common end are dear, so no static plan is good throughout. Each
plan is fed the same chunks of events in turn, in one process; kernels are compiled before, but the
adaptive run also pays for loading the kernels it changes to. The matches must be equal.
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import ensue
from benchmarks.machine import machine
from ensue.engine.adaptive import AdaptiveEngine
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.compiled_query import AnyEngine, compile_query
from ensue.vector.event_table import create_schema

RESULTS = Path(__file__).parent.parent / "results"
QUERY = "SEQ(A a, B b, C c) WHERE a.x > b.x + 0.9 and c.y > b.y + 0.9 WITHIN 4000"
PHASES = ((0.6, 0.39, 0.01), (0.01, 0.39, 0.6), (0.6, 0.39, 0.01), (0.01, 0.39, 0.6))
PLANS = {
    "from the left": PlannerOptions(structure="tree", shape=(("a", "b"), "c")),
    "from the right": PlannerOptions(structure="tree", shape=("a", ("b", "c"))),
    "stacks": PlannerOptions(structure="stacks"),
    "runs": PlannerOptions(structure="runs"),
    "adaptive": PlannerOptions(adaptive=True),
}


def drifting(events: int, seed: int = 3) -> pa.Table:
    """Events of types A, B and C in phases of equal length; their time is their position."""
    random = np.random.default_rng(seed)
    each = events // len(PHASES)
    types = np.concatenate([random.choice(3, each, p=shares) for shares in PHASES])
    return pa.table(
        {
            "t": np.arange(len(types)),
            "type": pa.array(np.array(["A", "B", "C"])[types]).dictionary_encode(),
            "x": random.random(len(types)),
            "y": random.random(len(types)),
        }
    )


def measured(engine: AnyEngine, table: pa.Table, chunk: int) -> tuple[list[float], int]:
    """Seconds a chunk, and the matches."""
    seconds, found = [], 0
    for begin in range(0, table.num_rows, chunk):
        piece = table.slice(begin, chunk)
        before = time.perf_counter()
        found += engine.process(piece).count
        seconds.append(time.perf_counter() - before)
    return seconds, found + engine.on_watermark(math.inf).count


def run(events: int, chunk: int) -> dict[str, Any]:
    table = drifting(events)
    shape = create_schema(table.schema, time="t", type="type", order=())
    report: dict[str, Any] = {"query": QUERY, "events": table.num_rows, "chunk": chunk}
    plans: dict[str, Any] = {}
    for name, planning in PLANS.items():
        prepared = compile_query(ensue.parse(QUERY), shape, planning)
        prepared.engine().process(table.slice(0, 1_000))  # compiles
        engine = prepared.engine()
        seconds, matches = measured(engine, table, chunk)
        plans[name] = {
            "seconds": sum(seconds),
            "events_per_second": table.num_rows / sum(seconds),
            "matches": matches,
            "chunks": [chunk / s for s in seconds],
        }
        if isinstance(engine, AdaptiveEngine):
            plans[name]["changes"] = [
                {"event": c.row, "from": c.before, "to": c.after, "reason": c.reason} for c in engine.changes
            ]
    if len({plan["matches"] for plan in plans.values()}) != 1:
        raise AssertionError({name: plan["matches"] for name, plan in plans.items()})
    static = [plan for name, plan in plans.items() if name != "adaptive"]
    report["plans"] = plans
    # of each chunk the best static plan: what nobody can reach without knowing the future
    report["best_of_all_seconds"] = sum(
        min(chunk / plan["chunks"][k] for plan in static) for k in range(len(static[0]["chunks"]))
    )
    return report


def draw(report: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4))
    for name, plan in report["plans"].items():
        at = [k * report["chunk"] / 1e3 for k in range(len(plan["chunks"]))]
        axes.plot(at, plan["chunks"], label=name, linewidth=2 if name == "adaptive" else 1)
    for change in report["plans"]["adaptive"]["changes"]:
        axes.axvline(change["event"] / 1e3, color="gray", linestyle=":", linewidth=1)
    axes.set_yscale("log")
    axes.set_xlabel("thousand events (dotted: the plan changes)")
    axes.set_ylabel("events a second")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer events, nothing is written")
    options = parser.parse_args(argv)
    events, chunk = (160_000, 10_000) if options.quick else (1_600_000, 20_000)
    report = {"machine": machine(), **run(events, chunk)}
    shown = Table("plan", "seconds", "events/s", "matches", "changes")
    for name, plan in report["plans"].items():
        changes = str(len(plan["changes"])) if "changes" in plan else ""
        speed = f"{plan['events_per_second']:,.0f}"
        shown.add_row(name, f"{plan['seconds']:.2f}", speed, f"{plan['matches']:,}", changes)
    shown.add_row("best static one, chunk by chunk", f"{report['best_of_all_seconds']:.2f}")
    console = Console()
    console.print(shown)
    for change in report["plans"]["adaptive"]["changes"]:
        console.print(f"event {change['event']:,}: {change['reason']}")
    if not options.quick:
        (RESULTS / "papers_drift.json").write_text(json.dumps(report, indent=2) + "\n")
        draw(report, RESULTS / "papers_drift.svg")


if __name__ == "__main__":
    main()
