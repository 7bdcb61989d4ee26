"""PNCEP's experiment: negation pushed into the scan against SASE's filter behind it.

Five event types of 20 % each, five places in a sequence, one of them negated, windows of 500 to
900 events: `python -m benchmarks.papers.negation [--quick]`. All ways run the same generated
kernel over the same events in one process, compiled before the clock starts; they must find the
same matches. Ratios are of processor time, which neighbours on the machine disturb less.

The filter is as good as we can make it: one comparison for a whole sequence, with the newest
negated event that stood before its right neighbour, and nothing is written down for sequences
that fail.

An intermediate result is a sequence of positive events inside the window that construction has
completed, before the filter judges it: what PNCEP's figure 7 counts for 1,000 events.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from rich.console import Console

import ensue
from benchmarks.machine import machine
from benchmarks.tables import Sheet
from benchmarks.timing import Clock, Runs, repeated
from ensue.codegen.kernel_inputs import OUT_TOP, SEQUENCES
from ensue.engine.engine import Engine
from ensue.planner.physical_plan import InstanceStacks
from ensue.runtime.compiled_query import CompiledQuery, compile_query
from ensue.vector.event_table import create_schema

RESULTS = Path(__file__).parent.parent / "results"
WAYS = {
    "pushed": (),  # PNCEP: each negated event empties the stack in front of it
    "looked up": ("push_negation",),  # judged as soon as both neighbours are bound
    "afterwards": ("negation_in_construction",),  # SASE: a filter on whole sequences
}
PLACES = {
    "second": "SEQ(A a, !C c, B b, D d, E e)",
    "middle": "SEQ(A a, B b, !C c, D d, E e)",
    "fourth": "SEQ(A a, B b, D d, !C c, E e)",
}
SLICE = 1_000  # events fed at a time
BEGIN = 400  # events whose matches are compared one by one


@dataclass(frozen=True, slots=True)
class Measured:
    """One way through the stream."""

    runs: Runs
    sequences: int


def events(count: int, seed: int = 1) -> pa.Table:
    """Random events of five types; their time is their position."""
    random = Random(seed)
    return pa.table({"t": range(count), "type": [random.choice("ABCDE") for _ in range(count)]})


def prepared(pattern: str, window: int, off: Sequence[str], table: pa.Table) -> CompiledQuery:
    """A plan that counts the sequences it constructs."""
    shape = create_schema(table.schema, time="t", type="type", order=())
    ready = compile_query(ensue.parse(f"{pattern} WITHIN {window}"), shape, off=off)
    structure = ready.plan.structure
    assert isinstance(structure, InstanceStacks)
    plan = replace(ready.plan, structure=replace(structure, counted=True))
    return replace(ready, plan=plan)


def measured(ready: CompiledQuery, table: pa.Table, times: int) -> Measured:
    """Feeds the stream; the kernel is compiled before, matches are counted and dropped."""
    _engine(ready).process(table.slice(0, 10))
    sequences = 0

    def run() -> tuple[Clock, int]:
        nonlocal sequences
        engine, clock, found = _engine(ready), Clock(), 0

        def drop() -> None:
            nonlocal found
            meta = engine.state.meta
            found += int(meta[OUT_TOP])
            meta[OUT_TOP] = 0

        engine.drain = drop  # type: ignore[method-assign]
        for start in range(0, table.num_rows, SLICE):
            piece = table.slice(start, SLICE)
            with clock:
                engine.process(piece)
        sequences = int(engine.state.meta[SEQUENCES])
        return clock, found

    return Measured(repeated(run, times), sequences)


def members(ready: CompiledQuery, table: pa.Table) -> set[tuple[int, ...]]:
    """The rows of every match."""
    found = _engine(ready).process(table)
    return set(zip(*(found.rows[v].tolist() for v in sorted(found.variables)), strict=True))


def _engine(ready: CompiledQuery) -> Engine:
    engine = ready.engine()
    assert isinstance(engine, Engine)
    return engine


def compared(place: str, window: int, table: pa.Table, times: int) -> dict[str, Any]:
    """All ways for one place of the negation and one window."""
    count = table.num_rows
    plans = {name: prepared(PLACES[place], window, off, table) for name, off in WAYS.items()}
    begin = [members(ready, table.slice(0, BEGIN)) for ready in plans.values()]
    if not begin[0] == begin[1] == begin[2]:
        raise AssertionError("the ways found different matches")
    ways = {name: measured(ready, table, times) for name, ready in plans.items()}
    if len({way.runs.matches for way in ways.values()}) != 1:
        raise AssertionError(f"the ways found different numbers of matches: {ways}")
    pushed, after = ways["pushed"], ways["afterwards"]
    return {
        "negation": place,
        "pattern": PLACES[place],
        "window": window,
        "events": count,
        "matches": pushed.runs.matches,
        "ways": {
            name: way.runs.report(count)
            | {
                "events_per_cpu_second": count / min(way.runs.cpu_seconds),
                "intermediate_results_per_1000_events": way.sequences * 1_000 / count,
            }
            for name, way in ways.items()
        },
        "throughput_ratio": after.runs.best / pushed.runs.best,
        "cpu_ratio": min(after.runs.cpu_seconds) / min(pushed.runs.cpu_seconds),
        "intermediate_ratio": after.sequences / pushed.sequences,
    }


def sheet(reports: Sequence[dict[str, Any]]) -> Sheet:
    """The figures side by side."""
    return Sheet(
        "Negation pushed (PNCEP) and afterwards (SASE), events a second of the processor",
        ("negation", "window", "pushed", "looked up", "afterwards", "faster", "fewer sequences"),
        tuple(
            (
                r["negation"],
                str(r["window"]),
                *(f"{r['ways'][name]['events_per_cpu_second']:,.0f}" for name in WAYS),
                f"{r['cpu_ratio']:.1f} x",
                f"1/{r['intermediate_ratio']:.1f}",
            )
            for r in reports
        ),
    )


def plot(reports: Sequence[dict[str, Any]], folder: Path) -> None:
    """Throughput and intermediate results over the window, as the paper's figures 6 and 7."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "ensue"  # the same figures, the same file
    middle = [r for r in reports if r["negation"] == "middle"]
    windows = [r["window"] for r in middle]
    figure, axes = plt.subplots(1, 2, figsize=(10, 4))
    for axis, key, title in (
        (axes[0], "events_per_cpu_second", "events a second of the processor"),
        (axes[1], "intermediate_results_per_1000_events", "sequences built in 1,000 events"),
    ):
        for name, mark in (("pushed", "o-"), ("afterwards", "s--")):
            axis.plot(windows, [r["ways"][name][key] for r in middle], mark, label=name)
        axis.set(xlabel="window (events)", title=title, yscale="log")
        axis.grid(visible=True, alpha=0.3)
        axis.legend()
    figure.suptitle(PLACES["middle"])
    figure.tight_layout()
    figure.savefig(folder / "papers_negation.svg", metadata={"Date": None})
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> None:
    """Measures, prints, and writes benchmarks/results/papers_negation.json and .svg."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a short stream, for a first look")
    parser.add_argument("--events", type=int, help="length of the stream")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args(argv)
    count = options.events or (2_000 if options.quick else 6_000)
    table = events(count)
    cases = [("middle", window) for window in range(500, 901, 100)]
    cases += [("second", 900), ("fourth", 900)]
    described = machine()
    reports = []
    for place, window in cases:
        reports.append(compared(place, window, table, times=1 if options.quick else 3))
    results = {
        "machine": described,
        "counted": "intermediate results are sequences of positive events inside the window that "
        "construction has completed, before a filter judges them, for 1,000 events",
        "cases": reports,
    }
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "papers_negation.json").write_text(json.dumps(results, indent=1) + "\n")
    plot(reports, options.folder)
    Console().print(sheet(reports).rich())


if __name__ == "__main__":
    main()
