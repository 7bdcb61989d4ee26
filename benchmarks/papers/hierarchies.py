"""Hierarchies of events: the EH-Tree against the flattened NFA, the paper's four experiments (H8).

`python -m benchmarks.papers.hierarchies [--quick]`. Both run the same flat query over the same
events and must find the same matches: the EH-Tree as a join tree with the hierarchy's modules, the NFA
as runs. Instance stacks, which keep events and no runs, are measured beside them.

The hierarchy: each module is a sequence of L parts, of which one in the middle is the box of the next
level; the innermost has L events. That makes H * (L - 1) + 1 events in the flat pattern. The paper
lets modules begin and end with a simple event; what happens if the box comes first or last is
measured apart. All modules have the window T, as in the paper's analysis.

The stream: 25 event types, one for each place in a hierarchy of 5 levels and 5 parts, so that H and L
change the query and never the stream; three events at each time. An event meets its own constraint
with p = 70 %. The paper does not say how events of a module belong together; here they have the
same `id`, one of 10, and the ids of different modules are independent. So a lower complex event
is about as rare as a simple one, as the paper assumes for its windows, and the numbers of matches
stay small at H = 5. A window of 250 holds 21 events for each place.

These choices favour the tree, and were made after first trials: the denser the stream and the more
selective a module, the more runs an NFA has that share a lower level. With two events at a time,
H = 2 was about even; at T = 100 and H = 2 it is behind. The scan of events, the same for both, is
left out, and costs more than either loop for small H.

Measured: processor seconds of the compiled loop (events come scanned, matches are counted and
dropped), best of some runs, kernels compiled before; and, in a run of its own that stops every few
hundred events and lets time pass, the most and the mean of partial matches ("runs") alive, and of
bytes of state. What would take longer than MOST_SECONDS gets only as many events as it can do, and
its matches are compared with those of the EH-Tree on as many.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
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
from ensue.ir.selection import ByUnits
from ensue.planner.hierarchy_modules import HierarchyModule
from ensue.planner.planner_options import PlannerOptions
from ensue.runtime.compiled_query import CompiledQuery, compile_query

RESULTS = Path(__file__).parent.parent / "results"
LEVELS, LENGTHS, WINDOWS = (1, 2, 3, 4, 5), (3, 4, 5), (100, 150, 200, 250)
SIZES = (5_000, 10_000, 15_000, 20_000, 25_000)
WINDOW = 200
CHANCE, IDS, AT_A_TIME = 0.7, 10, 3
MOST_SECONDS, PILOT = 6.0, 10_000  # of one run, by the pace of the first events
MOST_STACKED = 15  # events in a sequence that stacks are tried with
STRUCTURES = {"eh_tree": "tree", "nfa": "runs", "stacks": "stacks"}
NAMES = {"eh_tree": "EH-Tree", "nfa": "flattened NFA", "stacks": "instance stacks"}


@dataclass(frozen=True, slots=True)
class Case:
    """One point of an experiment."""

    levels: int
    length: int
    window: int = WINDOW
    events: int = SIZES[-1]
    box: str = "middle"  # or first, or last

    def query(self) -> tuple[str, tuple[HierarchyModule, ...]]:
        """The hierarchy as one flat query, and its modules."""
        place = {"first": 0, "middle": self.length // 2, "last": self.length - 1}[self.box]
        conditions: list[str] = []
        modules: list[HierarchyModule] = []

        def module(level: int) -> tuple[str, list[str]]:
            texts, own, names = [], [], []
            for part in range(self.length):
                if level < self.levels and part == place:
                    text, inner = module(level + 1)
                    names += inner
                else:
                    name = f"e{level}{part + 1}"
                    text = f"E{level}{part + 1} {name}"
                    own.append(name)
                    names.append(name)
                texts.append(text)
            conditions.extend(f"{name}.v < {CHANCE}" for name in own)
            conditions.extend(f"{name}.id = {own[0]}.id" for name in own[1:])
            if level > 1:
                conditions.append(f"{names[-1]}.t - {names[0]}.t <= {self.window}")
                above = f"box{level - 1}" if level > 2 else None
                within = ByUnits(self.window)
                modules.append(HierarchyModule(f"M{level}", f"box{level}", tuple(names), within, level, above))
            return f"SEQ({', '.join(texts)})", names

        text, _ = module(1)
        return f"{text} WHERE {' and '.join(conditions)} WITHIN {self.window}", tuple(modules)


@cache
def stream(count: int, seed: int = 7) -> pa.Table:
    random = np.random.default_rng(seed)
    types = np.array([f"E{level}{part}" for level in range(1, 6) for part in range(1, 6)])
    return pa.table(
        {
            "t": np.arange(count) // AT_A_TIME,
            "type": pa.array(types[random.integers(0, len(types), count)]).dictionary_encode(),
            "id": random.integers(0, IDS, count),
            "v": random.random(count),
        }
    )


def prepared(case: Case, name: str, table: pa.Table) -> CompiledQuery:
    text, modules = case.query()
    _, shape = read_event_table(table, time="t", type="type")
    modules = modules if name == "eh_tree" else ()
    return compile_query(ensue.parse(text), shape, PlannerOptions(structure=STRUCTURES[name], modules=modules))


def held(ready: CompiledQuery, table: pa.Table) -> dict[str, float]:
    """What is alive while the stream runs, and the matches."""
    engine = ready.engine()
    assert isinstance(engine, Engine)
    runs, sizes, found = [], [], 0
    step = max(500, table.num_rows // 500)
    for start in range(0, table.num_rows, step):
        piece = table.slice(start, step)
        found += engine.process(piece).count
        engine.on_watermark(piece.column("t")[-1].as_py())
        runs.append(engine.usage.partial_matches)
        sizes.append(engine.usage.state_bytes)
    return {
        "matches": found,
        "peak_runs": max(runs),
        "mean_runs": float(np.mean(runs)),
        "peak_bytes": max(sizes),
        "mean_bytes": float(np.mean(sizes)),
    }


def compared(case: Case, times: int) -> dict[str, Any]:
    """One point: every structure on the same events."""
    table = stream(case.events)
    row: dict[str, Any] = {
        "levels": case.levels,
        "length": case.length,
        "window": case.window,
        "events": case.events,
        "box": case.box,
    }
    for name in STRUCTURES:
        if name == "stacks" and case.levels * (case.length - 1) + 1 > MOST_STACKED:
            continue
        ready = prepared(case, name, table)
        begun = table.slice(0, min(PILOT, case.events))
        held(ready, begun)  # compiles all there is
        pace = begun.num_rows / min(measured(ready, begun, 1).cpu_seconds)
        events = table.slice(0, min(case.events, max(PILOT, int(pace * MOST_SECONDS))))
        runs = measured(ready, events, times)
        alive = held(ready, events)
        assert runs.matches == alive["matches"], "a run found other matches"
        seconds = min(runs.cpu_seconds)
        row[name] = {
            "events": events.num_rows,
            "cpu_seconds": seconds,
            "events_per_second": events.num_rows / seconds,
            **alive,
        }
        whole = row["eh_tree"]
        same = whole["matches"] if events.num_rows == whole["events"] else _found(case, events)
        assert same == alive["matches"], f"{case}: {name} found {alive['matches']}, not {same}"
    row["matches"] = row["eh_tree"]["matches"]
    tree, nfa = row["eh_tree"], row["nfa"]
    row["times_faster"] = tree["events_per_second"] / nfa["events_per_second"]
    row["times_smaller"] = nfa["peak_bytes"] / tree["peak_bytes"]
    row["times_fewer_runs"] = nfa["mean_runs"] / tree["mean_runs"]
    return row


def _found(case: Case, events: pa.Table) -> int:
    """The matches of the EH-Tree on some of the events."""
    return measured(prepared(case, "eh_tree", events), events, 1).matches


def cases(scale: int, *, quick: bool) -> dict[str, list[Case]]:
    """The experiments: by levels and length (figures 10 to 13), by window, by stream size."""
    few = quick or scale > 1  # of the long streams the ends of each range
    lengths, windows = (LENGTHS[:1], WINDOWS[::3]) if few else (LENGTHS, WINDOWS)
    sizes = SIZES[::2] if few else SIZES
    events = SIZES[-1] * scale
    return {
        "levels": [Case(h, n, events=events) for n in lengths for h in LEVELS],
        "window": [Case(h, 3, t, events) for h in LEVELS[1:] for t in windows],
        "stream": [Case(h, 3, events=s * scale) for h in LEVELS[2:] for s in sizes],
        "box": [Case(h, 3, events=events, box=b) for b in ("first", "last") for h in LEVELS[1:]],
    }


# ----------------------------------------------------------------------------------------- plots


@dataclass(frozen=True, slots=True)
class Figure:
    """Two rows of axes, one column a panel: throughput above, memory below."""

    name: str
    experiment: str
    panel: str
    across: str
    title: str


FIGURES = (
    Figure("levels", "levels", "length", "levels", "figures 10 and 11: levels H"),
    Figure("length", "levels", "levels", "length", "figures 12 and 13: parts of a module L"),
    Figure("window", "window", "levels", "window", "figures 14 and 15: window T"),
    Figure("stream", "stream", "levels", "events", "figures 16 and 17: stream size S"),
)
MEASURES = (
    ("events_per_second", "events a second"),
    ("peak_bytes", "most bytes of state"),
    ("mean_runs", "partial matches alive"),
)


def plot(rows: Sequence[dict[str, Any]], figure: Figure, title: str, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    panels = sorted({row[figure.panel] for row in rows})
    drawing, grid = pyplot.subplots(len(MEASURES), len(panels), figsize=(3.1 * len(panels) + 1, 7.5), squeeze=False)
    for column, panel in enumerate(panels):
        here = sorted((r for r in rows if r[figure.panel] == panel), key=lambda r: r[figure.across])
        for axes, (measure, label) in zip(grid[:, column], MEASURES, strict=True):
            for name in STRUCTURES:
                there = [row for row in here if name in row]
                style = "x--" if name == "stacks" else "o-"
                xs, ys = [r[figure.across] for r in there], [r[name][measure] for r in there]
                axes.plot(xs, ys, style, label=NAMES[name], markersize=4)
            axes.set_yscale("log")
            axes.grid(alpha=0.3, which="both")
            if column == 0:
                axes.set_ylabel(label)
        grid[0, column].set_title(f"{figure.panel} {panel}", fontsize=10)
        grid[-1, column].set_xlabel(figure.across)
    grid[0, 0].legend(fontsize=7)
    drawing.suptitle(title, fontsize=11)
    drawing.tight_layout()
    drawing.savefig(path)
    pyplot.close(drawing)


def sheets(report: dict[str, Any]) -> Iterator[Sheet]:
    for scale, experiments in report["scales"].items():
        for name, rows in experiments.items():
            yield Sheet(
                f"{name}, {scale}: millions of events a second, KB, partial matches",
                ("H", "L", "T", "S", "box", *_heads(), "faster", "smaller", "matches"),
                tuple(_cells(row) for row in rows),
            )


def _heads() -> tuple[str, ...]:
    return tuple(f"{name} {what}" for name in STRUCTURES for what in ("M/s", "KB", "runs"))


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    found = [str(row[k]) for k in ("levels", "length", "window")]
    found += [f"{row['events']:,}", row["box"]]
    for name in STRUCTURES:
        if name not in row:
            found += ["-"] * 3
            continue
        of = row[name]
        found += [f"{of['events_per_second'] / 1e6:.3g}", f"{of['peak_bytes'] / 1024:,.0f}", f"{of['mean_runs']:,.0f}"]
    return (*found, f"{row['times_faster']:.2g}", f"{row['times_smaller']:.2g}", f"{row['matches']:,}")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the paper's sizes only, L = 3")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    scales = (1,) if options.quick else (1, 100)
    report: dict[str, Any] = {
        "machine": machine(),
        "quick": options.quick,
        "counted": "processor seconds of the kernel, best of some runs; matches counted, compared",
        "scales": {},
    }
    for scale in scales:
        name = "as in the paper" if scale == 1 else f"{scale} times as many events"
        report["scales"][name] = found = {
            experiment: [compared(case, 5 if scale == 1 else 1) for case in chosen]
            for experiment, chosen in cases(scale, quick=options.quick).items()
        }
        for figure in FIGURES:
            path = options.output / f"papers_hierarchies_{figure.name}_x{scale}.svg"
            plot(found[figure.experiment], figure, f"{figure.title}, {name}", path)
    console = Console(width=200)
    for sheet in sheets(report):
        console.print(sheet.rich())
    (options.output / "papers_hierarchies.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
