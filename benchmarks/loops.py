"""Loops and steps as they are written now, beside what one had to write without them.

Greedy and reluctant loops and `THEN` against encodings by negations and OR that have the same
matches: kernels alone, in turn on the same events, compilation apart. And what a loop of n events
holds where n matches come out. Part of `python -m benchmarks.run`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

import ensue
from benchmarks import kernel
from benchmarks.tables import Report
from benchmarks.workloads import WARM_UP, Workload
from ensue.backends.dataframe_libs import read_event_table
from ensue.runtime.compiled_query import compile_query

LOOP = "A a THEN NEXT (B b THEN NEXT)+ THEN NEXT C c"
SIZES = (100, 1_000, 10_000)  # events of a loop


@dataclass(frozen=True, slots=True)
class Pair:
    """A query as it is written, and an encoding with the same matches."""

    native: Workload
    encoded: Workload


def _pair(name: str, meaning: str, native: str, encoded: str, *, typed: bool = True, seconds: int = 120) -> Pair:
    return Pair(
        Workload(name, meaning, native, seconds, typed=typed),
        Workload(f"{name}, encoded", meaning, encoded, seconds, typed=typed),
    )


_KINDS = "[symbol] and a.type = 'A' and b.type = 'B' and c.type = 'C'"
_ALL = (
    _pair(
        "greedy",
        "all B behind an A, up to a C",
        "A a THEN NEXT (B b THEN NEXT)++ THEN ANY C c WHERE [symbol] and a.volume > 1500",
        "SEQ(A a, B+ b[], !B n, C c) USING next WHERE [symbol] and a.volume > 1500",
    ),
    _pair(
        "reluctant",
        "one to three B behind an A, none behind the first C",
        "A a THEN NEXT (B b THEN NEXT){1,3}? THEN NEXT C c WHERE [symbol] and a.volume > 1500",
        "OR(SEQ(A a, !B n1, B b1, !C m1, C c), "
        "SEQ(A d, !B n2, B d1, !B n3, !C m2, B d2, !C m3, C e), "
        "SEQ(A f, !B n4, B f1, !B n5, !C m4, B f2, !B n6, !C m5, B f3, !C m6, C g)) "
        "WHERE [symbol] and a.volume > 1500 and d.volume > 1500 and f.volume > 1500",
    ),
    _pair(
        "next",
        "an A, the next B, the next C",
        "A a THEN NEXT B b THEN NEXT C c WHERE [symbol] and a.volume > 1500",
        "SEQ(A a, !B n, B b, !C m, C c) WHERE [symbol] and a.volume > 1500",
    ),
    _pair(
        "neighbours",
        "an A with a B as its very next event, then the next C",
        f"Stock a THEN Stock b THEN NEXT Stock c WHERE {_KINDS}",
        f"SEQ(Stock a, !Stock n, Stock b, !Stock m, Stock c) WHERE {_KINDS} and m.type = 'C'",
        typed=False,
    ),
)
PAIRS = {pair.native.name: pair for pair in _ALL}


def measured(events: pa.Table, symbols: int, times: int) -> list[Report]:
    """Every pair on the same events: events a second, and what they took to compile."""
    ensue.match(events.slice(0, 1_000), WARM_UP, time="ts", type="type")
    return [_compared(pair, events, symbols, times) for pair in PAIRS.values()]


def _compared(pair: Pair, events: pa.Table, symbols: int, times: int) -> Report:
    report: Report = {"query": pair.native.name, "events": events.num_rows, "symbols": symbols}
    found = set()
    for way, workload in (("native", pair.native), ("encoded", pair.encoded)):
        ready = kernel.compiled(workload, events, symbols)
        runs = kernel.measured(ready.prepared, events, times)
        found.add(runs.matches)
        report[way] = runs.report(events.num_rows) | {"text": workload.text(symbols), "compile_seconds": ready.seconds}
    # by processor time: what else runs on the machine disturbs it less
    report["ratio"] = report["encoded"]["cpu_seconds"] / report["native"]["cpu_seconds"]
    report["same"] = len(found) == 1
    return report


def growth(sizes: Iterable[int] = SIZES) -> list[Report]:
    """Partial matches and matches of an A, n B and a C, for growing n."""
    reports = []
    for count in sizes:
        types = ["A", *"B" * count, "C"]
        table, shape = read_event_table(pa.table({"t": range(len(types)), "type": types}), time="t", type="type")
        engine = compile_query(ensue.parse(LOOP), shape).engine()
        engine.process(table.slice(0, count + 1))
        partial = engine.usage.partial_matches
        found = engine.process(table.slice(count + 1)).count + engine.on_watermark(math.inf).count
        reports.append({"text": LOOP, "loop": count, "partial_matches": partial, "matches": found})
    return reports
