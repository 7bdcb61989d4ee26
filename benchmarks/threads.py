"""One process on all cores: the same call with one thread and with several, for each kind of query.

Both ways run in turns, and their results must be equal, with order and ids. The clock means something on a quiet
machine only. Processor time is also divided into that of tasks, which share it, and that of the steps before, between
and after them, which no number of cores makes faster; by Amdahl's law they bound the speed-up on more cores.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import ensue
from benchmarks.clauses import CLAUSES
from benchmarks.timing import Clock, Runs
from benchmarks.workloads import FEW_KEYS, MANY_KEYS, WORKLOADS, events
from ensue.engine import interrupts
from ensue.options import get_default_threads

MANY_CORES = 16


@dataclass(frozen=True, slots=True)
class Case:
    """A call that is measured."""

    name: str
    symbols: int
    query: Any  # as `ensue.match` takes it
    typed: bool = True
    ordered: bool = False  # by the query itself


def _surge(number: int) -> str:
    return f"""SEQ(A a, B b, C c) WHERE skip_till_next_match(a, b, c) {{
        [symbol] and a.volume > {1500 + 20 * number} and b.price > a.price and c.volume < {500 - 20 * number} }}
        WITHIN {120 + number} seconds RETURN a.ts AS first, c.ts AS last"""


_RISE = """EVENT Rise AS SEQ(A a, B b) WHERE skip_till_next_match(a, b) {
    [symbol] and b.price > a.price and a.volume > 1500 }
    WITHIN 60 seconds RETURN b.price AS price;
"""
HIERARCHIES = {
    "hierarchy, one key": _RISE + "SEQ(Rise x, Rise y) WHERE skip_till_next_match(x, y) "
    "{ [symbol] and y.price > x.price } WITHIN 300 seconds",
    "hierarchy, no key on top": _RISE + "SEQ(Rise x, Rise y) WHERE skip_till_next_match(x, y) "
    "{ y.price > 1.1 * x.price } WITHIN 1 seconds",
}
SLICES = """SEQ(A a, B b, C c) WHERE skip_till_next_match(a, b, c) {
    a.volume > 1500 and b.volume > 1500 and c.volume < 500 } WITHIN 5 seconds"""


def list_cases() -> Iterator[Case]:
    """All kinds of queries over trades of few symbols, and patterns over those of many."""
    for symbols in (FEW_KEYS, MANY_KEYS):
        for workload in WORKLOADS.values():
            yield Case(workload.name, symbols, workload.text(symbols), typed=workload.typed)
    yield Case("no key, 5 seconds", FEW_KEYS, SLICES)
    for count in (4, 20):
        yield Case(f"{count} queries", FEW_KEYS, [_surge(number) for number in range(count)])
    for name, text in HIERARCHIES.items():
        yield Case(name, FEW_KEYS, text)
    for name in ("V shape", "strict", "running average"):
        yield Case(f"SQL, {name}", FEW_KEYS, CLAUSES[name].text, ordered=True)


class Phases:
    """The processor time of the tasks of a call, and of the steps around them."""

    def __init__(self) -> None:
        self.tasks = 0.0
        self.around: list[float] = []  # before the first tasks, between them, and after the last ones
        self._since = time.process_time()

    def enter(self) -> None:
        now = time.process_time()
        self.around.append(now - self._since)
        self._since = now

    def leave(self) -> None:
        now = time.process_time()
        self.tasks += now - self._since
        self._since = now

    def report(self) -> dict[str, float]:
        first, *between = self.around  # only one: the call ran in one thread
        last = between.pop() if between else 0.0
        return {"before": first, "between": sum(between), "after": last, "tasks": self.tasks}


@contextmanager
def divided() -> Iterator[Phases]:
    """Notes the phases of a call."""
    phases = Phases()

    class Noting(ThreadPoolExecutor):
        def __enter__(self) -> "Noting":
            phases.enter()
            super().__enter__()
            return self

        def __exit__(self, *error: Any) -> bool | None:
            done = super().__exit__(*error)
            phases.leave()
            return done

    interrupts.ThreadPoolExecutor = Noting  # type: ignore[misc]
    try:
        yield phases
    finally:
        interrupts.ThreadPoolExecutor = ThreadPoolExecutor  # type: ignore[misc]
        phases.enter()


def measured(case: Case, table: pa.Table, times: int) -> dict[str, Any]:
    """One call, both ways; compiled before."""
    threads = get_default_threads()
    given = {} if case.ordered else {"time": "ts", "type": "type" if case.typed else None}

    def call(events: pa.Table, count: int) -> dict[Any, pa.Table]:
        found = ensue.match(events, case.query, options=ensue.Limits(threads=count), **given)
        return {0: found} if isinstance(found, pa.Table) else dict(found)

    expected = call(table, 1)
    same = call(table, threads) == expected
    matches = sum(found.num_rows for found in expected.values())
    clocks: dict[int, list[Clock]] = {1: [], threads: []}
    phases: list[Phases] = []
    for _ in range(times):
        for count, done in clocks.items():
            clock = Clock()
            with divided() as divisions, clock:
                call(table, count)
            done.append(clock)
        phases.append(divisions)
    one, cores = (
        Runs(matches, tuple(c.seconds for c in done), tuple(c.cpu_seconds for c in done)) for done in clocks.values()
    )
    best = min(phases, key=lambda found: found.tasks + sum(found.around)).report() if threads > 1 else {}
    return {
        "query": case.name,
        "events": table.num_rows,
        "symbols": case.symbols,
        "threads": threads,
        "one": one.report(table.num_rows),
        "cores": cores.report(table.num_rows),
        "clock_ratio": one.best / cores.best,
        "cpu_ratio": min(cores.cpu_seconds) / min(one.cpu_seconds),
        "phases": best,
        "serial_share": serial_share(best),
        "on_many": bound_speed_up(min(one.cpu_seconds), best, MANY_CORES),
        "same": same,
    }


def serial_share(phases: dict[str, float]) -> float:
    """The share of the steps around tasks in the processor time.

    >>> serial_share({"before": 1.0, "between": 0.5, "after": 0.5, "tasks": 18.0})
    0.1
    """
    total = sum(phases.values())
    return (total - phases["tasks"]) / total if total else 1.0


def bound_speed_up(one: float, phases: dict[str, float], cores: int) -> float:
    """How many times as fast as one thread (of so many seconds) cores could be that share the tasks evenly.

    >>> round(bound_speed_up(19.0, {"before": 1.0, "between": 0.0, "after": 0.0, "tasks": 19.0}, 16), 1)
    8.7
    """
    if not phases:
        return 1.0
    around = sum(phases.values()) - phases["tasks"]
    return one / (around + phases["tasks"] / cores)


def measure_cases(count: int, times: int, note: Callable[[str], object]) -> list[dict[str, Any]]:
    """All cases over so many events."""
    reports: list[dict[str, Any]] = []
    tables: dict[int, pa.Table] = {}
    for case in list_cases():
        note(f"{case.name}, {case.symbols:,} symbols, in threads ...")
        if case.symbols not in tables:
            tables = {case.symbols: events(count, case.symbols)}
        reports.append(measured(case, tables[case.symbols], times))
    return reports
