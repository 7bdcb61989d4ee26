"""`ensue bench`: a few queries on seeded stock-like events, measured here and now."""

import json
import os
import platform
import time
from argparse import Namespace
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.table import Table

import ensue
from ensue.cli.terminal import Exit, UsageError, notice, output
from ensue.samples.stocks import stocks


@dataclass(frozen=True, slots=True)
class Measured:
    """A query that is measured; the same ones are in the project's own benchmarks."""

    text: str  # without its window
    seconds: int  # the window for 1,000 symbols, of which each has a trade every ten seconds
    type: str | None = "type"  # None: all events are trades

    def query(self, symbols: int) -> str:
        """The query with a window that spans as many trades of a symbol, however many there are.

        >>> Measured("SEQ(A a, B b) WHERE [symbol]", 60).query(5_000)
        'SEQ(A a, B b) WHERE [symbol]\\nWITHIN 300 seconds'
        """
        return f"{self.text}\nWITHIN {max(1, self.seconds * symbols // 1_000)} seconds"


QUERIES = {
    "next, unary": Measured(
        """\
PATTERN SEQ(A a, B b, C c)
WHERE skip_till_next_match(a, b, c) {
    [symbol] and a.volume > 1500 and b.volume > 1500 and c.volume < 500 }""",
        300,
    ),
    "next, correlated": Measured(
        """\
PATTERN SEQ(A a, B b, C c)
WHERE skip_till_next_match(a, b, c) {
    [symbol] and b.price > a.price and c.price < a.price and c.volume < b.volume }""",
        120,
    ),
    "Kleene": Measured(
        """\
PATTERN SEQ(Stock+ a[ ], Stock b)
WHERE skip_till_next_match(a[ ], b) {
    [symbol]
    and a[1]. volume > 1900
    and a[i]. price > avg(a[.. i-1]. price)
    and b. volume < 80% * a[a.LEN]. volume }""",
        60,
        type=None,
    ),
    "any, sparse": Measured(
        """\
PATTERN SEQ(A a, B b, C c)
WHERE [symbol] and a.volume > 1800 and b.volume > 1800 and c.volume < 300""",
        300,
    ),
}
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Figure:
    """One query, measured; the first answer includes planning and compiling."""

    query: str
    matches: int
    first_seconds: float
    seconds: float
    events_per_second: float


def bench(options: Namespace) -> Exit:
    """Measures each query: the first answer, then the best of three more."""
    notice(f"making {options.events:,} events of {options.symbols:,} symbols ...")
    events = stocks(options.events, options.symbols)
    figures = []
    for name, measured in QUERIES.items():
        notice(f"running: {name} ...")
        query = measured.query(options.symbols)
        first, count = _timed(events, query, measured.type)
        best = min(_timed(events, query, measured.type)[0] for _ in range(_ROUNDS))
        figures.append(Figure(name, count, first, best, options.events / best))
    output().print(_drawn(figures))
    if options.output:
        _write(options, figures)
    return Exit.FINE


def _timed(events: object, query: str, type: str | None) -> tuple[float, int]:
    began = time.perf_counter()
    found = ensue.match(events, query, time="ts", type=type)
    return time.perf_counter() - began, found.num_rows


def _drawn(figures: list[Figure]) -> Table:
    table = Table(show_edge=False, header_style="bold", pad_edge=False)
    table.add_column("query")
    for column in ("matches", "first answer", "again", "million events/s"):
        table.add_column(column, justify="right")
    for figure in figures:
        table.add_row(
            figure.query,
            f"{figure.matches:,}",
            f"{figure.first_seconds:.2f} s",
            f"{figure.seconds:.2f} s",
            f"{figure.events_per_second / 1e6:.1f}",
        )
    return table


def _write(options: Namespace, figures: list[Figure]) -> None:
    said = {
        "events": options.events,
        "symbols": options.symbols,
        "machine": {
            "system": platform.platform(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "figures": [asdict(figure) for figure in figures],
    }
    try:
        Path(options.output).write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write to {options.output}: {error.strerror}") from None
    notice(f"written to {options.output}")
