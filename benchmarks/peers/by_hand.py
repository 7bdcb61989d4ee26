"""Questions in Ensue, and what one would write by hand: Polars, pandas, DuckDB.

python -m benchmarks.peers.by_hand [--events 2000000 10000000] [--symbols 1000 ...] [--cores 1 ...] [--question NAME]

Each question is asked of one symbol and within a minute. Times are of the processor, all cores
together, and of the clock, the best of several passes in turns; each library takes as many threads
as it does by itself. Ensue's kernel is compiled before. Fewer cores, and a second number of events,
are measured with texts in order only. Where there are several ways to write a question by hand, the
fastest counts. Code by hand gives no ids to matches, so Ensue is measured with and without them.
Matches are compared one by one, by the times of their events.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from benchmarks.machine import machine
from benchmarks.peers.events import trades
from benchmarks.tables import by_hand_sheet
from benchmarks.timing import Clock
from rich.console import Console

import ensue

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "by_hand.json"
SECONDS = 60
BARE = "ensue without ids"
FORMS = ("strings", "dictionaries", "integers")  # of the symbols; types are dictionaries beside integers
SYMBOLS = (1_000, 100_000, 1_000_000)
SETTINGS = (  # symbols, their form, and whether the events are in order
    *((SYMBOLS[0], form, ordered) for ordered in (True, False) for form in FORMS),
    *((symbols, "strings", ordered) for symbols in SYMBOLS[1:] for ordered in (True, False)),
    (SYMBOLS[2], "integers", True),
)

Report = dict[str, Any]
Way = Callable[..., pa.Table]  # of the events, and whether they are in order
Volumes = tuple[tuple[int, int], tuple[int, int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Question:
    """A query, and the ways to write it by hand; the last name of a way tells ways of one library apart."""

    name: str
    pattern: str
    columns: str  # the names of the variables
    by_hand: Mapping[str, Way] = field(hash=False)
    conditions: tuple[str, ...] = ()

    @property
    def query(self) -> str:
        """The question in Ensue's language."""
        where = " AND ".join(["[symbol]", *self.conditions])
        returned = ", ".join(f"{name}.ts AS {name}" for name in self.columns)
        return f"{self.pattern} WHERE {where} WITHIN {SECONDS} seconds RETURN {returned}"


WINDOW = pl.duration(seconds=SECONDS)


def in_order(events: pl.DataFrame, ordered: bool) -> pl.LazyFrame:
    """The events by time; Polars is told that they are sorted."""
    return events.lazy().with_columns(pl.col("ts").set_sorted()) if ordered else events.lazy().sort("ts")


# --------------------------------------------------------------------------------- A, then B, then C


def chain_in_polars(events: pl.DataFrame, volumes: Volumes, *, ordered: bool) -> pa.Table:
    """Rows that may matter, the next B and C filled in backwards, then looked up."""
    may = [
        (pl.col("type") == name) & pl.col("volume").is_between(low, high)
        for name, (low, high) in zip("ABC", volumes, strict=True)
    ]
    rows = events.lazy() if ordered else events.lazy().sort("ts")
    rows = rows.filter(may[0] | may[1] | may[2]).select("ts", "type", "symbol")
    numbered = rows.with_row_index("row").with_columns(
        pl.when(pl.col("type") == name).then("row").backward_fill().over("symbol").alias(name) for name in "BC"
    )
    filled = numbered.collect()
    times, next_c = filled["ts"], filled["C"]
    begins = filled.filter((pl.col("type") == "A") & pl.col("B").is_not_null())
    found = begins.select(a="ts", b=times.gather(begins["B"]), c=times.gather(next_c.gather(begins["B"])))
    return found.filter(pl.col("c") - pl.col("a") <= WINDOW).to_arrow()


def chain_in_pandas(events: pd.DataFrame, volumes: Volumes, *, ordered: bool) -> pa.Table:
    """The same in pandas."""
    if not ordered:
        events = events.sort_values("ts", kind="stable")
    type_, volume = events["type"], events["volume"]
    kept = np.zeros(len(events), bool)
    for name, (low, high) in zip("ABC", volumes, strict=True):
        kept |= ((type_ == name) & volume.between(low, high)).to_numpy()
    rows = events.loc[kept, ["ts", "type", "symbol"]].reset_index(drop=True)
    number = pd.Series(np.arange(len(rows)), dtype="float64")
    symbols = rows["symbol"]
    following = {name: number.where(rows["type"] == name).groupby(symbols, observed=True).bfill() for name in "BC"}
    next_b = following["B"][(rows["type"] == "A")].dropna().astype("int64")
    next_c = following["C"].to_numpy()[next_b.to_numpy()]
    known = ~np.isnan(next_c)
    times = rows["ts"].array
    found = pd.DataFrame(
        {
            "a": times[next_b.index.to_numpy()[known]],
            "b": times[next_b.to_numpy()[known]],
            "c": times[next_c[known].astype(np.int64)],
        }
    )
    found = found[found["c"] - found["a"] <= pd.Timedelta(seconds=SECONDS)]
    return pa.Table.from_pandas(found, preserve_index=False)


def in_duckdb(text: str, events: pa.Table, *, ordered: bool) -> pa.Table:  # noqa: ARG001
    """A statement over `events`."""
    with duckdb.connect(config={"threads": get_cores()}) as connection:
        connection.register("events", events)
        return connection.sql(text).to_arrow_table()


def chain_in_sql(volumes: Volumes) -> str:
    """The same as windows of SQL: the first B that follows, with the first C that follows it."""
    may = [
        f"(type = '{name}' AND volume BETWEEN {low} AND {high})"
        for name, (low, high) in zip("ABC", volumes, strict=True)
    ]
    rest = "PARTITION BY symbol ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING"
    return f"""
        WITH kept AS (SELECT ts, type, symbol FROM events WHERE {" OR ".join(may)}),
        c_filled AS (
            SELECT *, min(ts) FILTER (type = 'C') OVER ({rest}) AS c FROM kept
        ),
        b_filled AS (
            SELECT type, ts AS a,
                   first_value(CASE WHEN type = 'B' THEN ts END IGNORE NULLS) OVER ({rest}) AS b,
                   first_value(CASE WHEN type = 'B' THEN struct_pack(c) END IGNORE NULLS)
                       OVER ({rest}) AS after
            FROM c_filled
        )
        SELECT a, b, after.c AS c FROM b_filled
        WHERE type = 'A' AND after.c - a <= INTERVAL {SECONDS} SECONDS
    """


def chain(name: str, volumes: Volumes, *, tested: bool) -> Question:
    """Every A, the next B after it and the next C after that, of volumes in a range."""
    ranges = zip("abc", volumes, strict=True)
    return Question(
        name, "SEQ(A a, B b, C c) USING next", "abc",
        {
            "polars": partial(chain_in_polars, volumes=volumes),
            "pandas": partial(chain_in_pandas, volumes=volumes),
            "duckdb": partial(in_duckdb, chain_in_sql(volumes)),
        },
        tuple(f"{v}.volume BETWEEN {low} AND {high}" for v, (low, high) in ranges) if tested else (),
    )  # fmt: skip


# --------------------------------------------------------------------------------- pairs and rows in a row


def absence_filled_in_polars(events: pl.DataFrame, *, ordered: bool) -> pa.Table:
    """The next B or C of each A is a B: its row, filled in backwards."""
    rows = in_order(events, ordered).filter(pl.col("type").is_in(["A", "B", "C"])).select("ts", "type", "symbol")
    starts = pl.col("type") == "A"
    after = pl.when(~starts).then("row").backward_fill().over("symbol")
    filled = rows.with_row_index("row").with_columns(after=after).collect()
    begins = filled.filter(starts & pl.col("after").is_not_null())
    found = begins.select(a="ts", b=filled["ts"].gather(begins["after"]), of=filled["type"].gather(begins["after"]))
    return found.filter((pl.col("of") == "B") & (pl.col("b") - pl.col("a") <= WINDOW)).to_arrow()


def absence_joined_in_polars(events: pl.DataFrame, *, ordered: bool) -> pa.Table:
    """The same as a join with the next row in time."""
    rows = in_order(events, ordered).select("ts", "type", "symbol")
    others = rows.filter(pl.col("type").is_in(["B", "C"])).rename({"ts": "b", "type": "of"})
    joined = rows.filter(pl.col("type") == "A").rename({"ts": "a"}).join_asof(
        others, left_on="a", right_on="b", by="symbol", strategy="forward", check_sortedness=False,
        allow_exact_matches=False,
    )  # fmt: skip
    return joined.filter((pl.col("of") == "B") & (pl.col("b") - pl.col("a") <= WINDOW)).collect().to_arrow()


def last_filled_in_polars(events: pl.DataFrame, *, ordered: bool) -> pa.Table:
    """The time of the last A, filled in forwards."""
    rows = in_order(events, ordered).filter(pl.col("type").is_in(["A", "B"])).select("ts", "type", "symbol")
    last = pl.when(pl.col("type") == "A").then("ts").forward_fill().over("symbol")
    filled = rows.with_columns(a=last).filter(pl.col("type") == "B").rename({"ts": "b"})
    return filled.filter(pl.col("b") - pl.col("a") <= WINDOW).collect().to_arrow()


def last_joined_in_polars(events: pl.DataFrame, *, ordered: bool) -> pa.Table:
    """The same as an asof join."""
    rows = in_order(events, ordered).select("ts", "type", "symbol")
    begins = rows.filter(pl.col("type") == "A").select("symbol", a="ts")
    joined = rows.filter(pl.col("type") == "B").select("symbol", b="ts").join_asof(
        begins, left_on="b", right_on="a", by="symbol", strategy="backward", check_sortedness=False,
        allow_exact_matches=False,
    )  # fmt: skip
    return joined.filter(pl.col("b") - pl.col("a") <= WINDOW).collect().to_arrow()


def row_shifted_in_polars(events: pl.DataFrame, *, ordered: bool) -> pa.Table:
    """The types and times of the three rows before, of the same symbol."""
    rows = in_order(events, ordered).select("ts", "type", "symbol")
    starts = pl.col("type") == "A"
    before = [starts.shift(n).over("symbol") for n in (1, 2, 3)]
    times = [pl.col("ts").shift(n).over("symbol").alias(v) for v, n in (("a", 3), ("b", 2), ("c", 1))]
    found = rows.select("ts", *times, hit=pl.all_horizontal(pl.col("type") == "B", *before)).filter("hit")
    return found.rename({"ts": "d"}).filter(pl.col("d") - pl.col("a") <= WINDOW).collect().to_arrow()


def row_sorted_in_polars(events: pl.DataFrame, *, ordered: bool) -> pa.Table:
    """The same, of all rows in the order of their symbols."""
    rows = in_order(events, ordered).select("ts", "type", "symbol").sort("symbol", maintain_order=True)
    starts = pl.col("type") == "A"
    hit = pl.all_horizontal(
        pl.col("type") == "B", *(starts.shift(n) for n in (1, 2, 3)), pl.col("symbol") == pl.col("symbol").shift(3)
    )
    times = [pl.col("ts").shift(n).alias(v) for v, n in (("a", 3), ("b", 2), ("c", 1))]
    found = rows.select("ts", *times, hit=hit).filter("hit").rename({"ts": "d"})
    return found.filter(pl.col("d") - pl.col("a") <= WINDOW).collect().to_arrow()


IN_TIME = f"INTERVAL {SECONDS} SECONDS"
ABSENCE = f"""
    WITH kept AS (SELECT ts, type, symbol FROM events WHERE type IN ('A', 'B', 'C')),
    filled AS (
        SELECT type, ts AS a, first_value(CASE WHEN type <> 'A' THEN struct_pack(ts, type) END IGNORE NULLS) OVER (
            PARTITION BY symbol ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS after
        FROM kept
    )
    SELECT a, after.ts AS b FROM filled WHERE type = 'A' AND after.type = 'B' AND after.ts - a <= {IN_TIME}
"""
ABSENCE_JOINED = f"""
    SELECT l.ts AS a, r.ts AS b FROM (SELECT ts, symbol FROM events WHERE type = 'A') l
    ASOF JOIN (SELECT ts, symbol, type FROM events WHERE type IN ('B', 'C')) r ON l.symbol = r.symbol AND l.ts < r.ts
    WHERE r.type = 'B' AND r.ts - l.ts <= {IN_TIME}
"""
LAST = f"""
    WITH kept AS (SELECT ts, type, symbol FROM events WHERE type IN ('A', 'B')),
    filled AS (
        SELECT type, ts AS b, max(CASE WHEN type = 'A' THEN ts END) OVER (
            PARTITION BY symbol ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS a
        FROM kept
    )
    SELECT a, b FROM filled WHERE type = 'B' AND b - a <= {IN_TIME}
"""
LAST_JOINED = f"""
    SELECT r.ts AS a, l.ts AS b FROM (SELECT ts, symbol FROM events WHERE type = 'B') l
    ASOF JOIN (SELECT ts, symbol FROM events WHERE type = 'A') r ON l.symbol = r.symbol AND l.ts > r.ts
    WHERE l.ts - r.ts <= {IN_TIME}
"""
ROW = f"""
    WITH shifted AS (
        SELECT type, ts AS d, {", ".join(f"lag(ts, {n}) OVER w AS {v}" for v, n in zip("abc", (3, 2, 1), strict=True))},
               {", ".join(f"lag(type, {n}) OVER w AS before{n}" for n in (1, 2, 3))}
        FROM events WINDOW w AS (PARTITION BY symbol ORDER BY ts)
    )
    SELECT a, b, c, d FROM shifted
    WHERE type = 'B' AND before1 = 'A' AND before2 = 'A' AND before3 = 'A' AND d - a <= {IN_TIME}
"""

QUESTIONS = (
    chain("sparse", ((1_500, 2_000), (1_500, 2_000), (0, 500)), tested=True),
    chain("dense", ((0, 10_000),) * 3, tested=False),
    Question(
        "A then B, no C between", "SEQ(A a, !C c, B b) USING next", "ab",
        {
            "polars": absence_filled_in_polars, "polars joined": absence_joined_in_polars,
            "duckdb": partial(in_duckdb, ABSENCE), "duckdb joined": partial(in_duckdb, ABSENCE_JOINED),
        },
    ),
    Question(
        "last A before each B", "SEQ(A a, !A x, B b) USING any", "ab",
        {
            "polars": last_filled_in_polars, "polars joined": last_joined_in_polars,
            "duckdb": partial(in_duckdb, LAST), "duckdb joined": partial(in_duckdb, LAST_JOINED),
        },
    ),
    Question(
        "three A in a row, then B", "SEQ(A a, A b, A c, B d) USING partition", "abcd",
        {
            "polars": row_shifted_in_polars, "polars sorted": row_sorted_in_polars,
            "duckdb": partial(in_duckdb, ROW),
        },
    ),
)  # fmt: skip


# --------------------------------------------------------------------------------- measured


def main() -> int:
    """Asks all questions in all ways, writes the results; 1 if any matches differ."""
    options = _options()
    before = machine() | {p.__name__: p.__version__ for p in (pl, pd, duckdb)}
    reports = []
    numbers = options.cores or sorted({1, get_cores()})
    for cores in numbers:  # a library counts them when it starts
        with ProcessPoolExecutor(1, get_context("spawn"), _keep_cores, (cores,)) as process:
            reports += process.submit(measure, options, cores == max(numbers)).result()
    if options.output or not (options.question or options.symbols or options.cores or options.form):
        summary = {"machine": before, "options": vars(options), "questions": reports}
        (options.output or RESULTS).write_text(json.dumps(summary, indent=2, default=str) + "\n")
    Console(width=None if sys.stdout.isatty() else 140).print(by_hand_sheet(reports).markdown(), markup=False)
    return 0 if all(report["same"] for report in reports) else 1


def measure(options: argparse.Namespace, all_cores: bool) -> list[Report]:
    """All questions that are asked for, on the cores of this process."""
    reports = []
    for place, count in enumerate(options.events):
        for symbols, form, ordered in SETTINGS:
            if symbols not in (options.symbols or SYMBOLS) or form not in (options.form or FORMS):
                continue
            if not (all_cores and place == 0) and (form, ordered) != (FORMS[0], True):
                continue
            plain = events(count, symbols, options.seed)
            given = arranged(plain, ordered=ordered, form=form, seed=options.seed)
            for question in QUESTIONS:
                if question.name in (options.question or [question.name]):
                    reports.append(compare(question, given, options.passes, ordered=ordered, form=form))
                    reports[-1] |= {"symbols": symbols, "cores": get_cores()}
                    print(by_hand_sheet(reports[-1:]).markdown(), flush=True)
    return reports


def get_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _keep_cores(count: int) -> None:
    if count != get_cores():
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def events(count: int, symbols: int, seed: int) -> pa.Table:
    """Trades in the order of time, no two at the same; more symbols have more events in the same time."""
    table = trades(count, symbols, seed)
    if symbols <= SYMBOLS[0]:
        return table.set_column(0, "ts", table["ts"].cast(pa.timestamp("ms", "UTC")))
    closer = pa.array(table["ts"].to_numpy() * (SYMBOLS[2] // symbols))  # microseconds, still different
    return table.set_column(0, "ts", closer.cast(pa.timestamp("us", "UTC")))


def arranged(table: pa.Table, *, ordered: bool, form: str, seed: int) -> pa.Table:
    """The events in the order of time or in any; texts as they are or as dictionaries, or numbers as symbols."""
    if not ordered:
        places = np.random.default_rng(seed).permutation(table.num_rows)
        table = table.take(pa.array(places)).combine_chunks()
    for name in ("type", "symbol"):
        column, place = table.column(name), table.column_names.index(name)
        if form == "integers" and name == "symbol":
            digits = pa.compute.utf8_slice_codeunits(column, 3)
            table = table.set_column(place, name, digits.cast(pa.int64()))
        elif form != "strings":
            table = table.set_column(place, name, column.dictionary_encode())
    return table


def compare(question: Question, events: pa.Table, passes: int, *, ordered: bool, form: str) -> Report:
    """One question in all ways, in turns; of each the pass with the least processor time."""
    own: dict[str, Any] = {"polars": pl.from_arrow(events)}
    if "pandas" in question.by_hand:
        own["pandas"] = events.to_pandas()
    ways: dict[str, Way] = {
        **question.by_hand,
        "ensue": partial(in_ensue, question.query, ids=True),
        BARE: partial(in_ensue, question.query, ids=False),
    }
    found: dict[str, pa.Table] = {}
    seconds: dict[str, list[float]] = {}
    by_clock: dict[str, list[float]] = {}
    for turn in range(passes + 1):
        for name, way in ways.items():
            library = name if name == BARE else name.split()[0]
            clock = Clock()
            with clock:
                result = way(own.get(library, events), ordered=ordered)
            found[name] = result.select(list(question.columns))
            if turn:  # the first compiles, and finds memory
                seconds.setdefault(library, []).append(clock.cpu_seconds)
                by_clock.setdefault(library, []).append(clock.seconds)
            del result
    expected = members(found["ensue"])
    best = {name: min(taken) for name, taken in seconds.items()}
    return {
        "question": question.name,
        "query": question.query,
        "ordered": ordered,
        "form": form,
        "events": events.num_rows,
        "matches": found["ensue"].num_rows,
        "same": all(np.array_equal(members(t), expected) for t in found.values()),
        "cpu_seconds": best,
        "seconds": {name: min(taken) for name, taken in by_clock.items()},
        "ratio": {name: best[name] / best["ensue"] for name in best if name not in ("ensue", BARE)},
    }


def in_ensue(query: str, events: pa.Table, *, ordered: bool, ids: bool) -> pa.Table:  # noqa: ARG001
    """The matches of a query."""
    return ensue.match(events, query, time="ts", type="type", options=ensue.OutputOptions(ids=ids))


def members(found: pa.Table) -> Any:
    """The matches as numbers, in one order."""
    columns = [column.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() for column in found.columns]
    rows = np.stack(columns, axis=1)
    return rows[np.lexsort(rows.T[::-1])]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[2_000_000])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--output", type=Path, help="instead of benchmarks/results/by_hand.json")
    only = "only these; results are then written with --output only"
    parser.add_argument("--symbols", type=int, nargs="+", choices=SYMBOLS, help=only)
    parser.add_argument("--cores", type=int, nargs="+", help=f"{only}; usually one, and all")
    parser.add_argument("--form", action="append", choices=FORMS, help=only)
    parser.add_argument("--question", action="append", choices=[q.name for q in QUESTIONS], help=only)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
