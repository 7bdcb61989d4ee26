"""A question in Ensue, and what one would write by hand: Polars, pandas, DuckDB.

python -m benchmarks.peers.by_hand [--events 2000000] [--question NAME ...]

Every A, the next B after it and the next C after that, of one symbol and in a window. Times are of
the processor, all cores together, the best of several passes in turns; Ensue's kernel is compiled
before. Matches are compared one by one, by the times of their events.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
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

Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """Which events may be the A, the B and the C of a match: those of a volume in a range."""

    name: str
    volumes: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]

    @property
    def query(self) -> str:
        """The question in Ensue's language."""
        conditions = [
            f"{name}.volume BETWEEN {low} AND {high}" for name, (low, high) in zip("abc", self.volumes, strict=True)
        ]
        tested = [] if self == DENSE else conditions
        return (
            f"SEQ(A a, B b, C c) USING next WHERE {' AND '.join(['[symbol]', *tested])} "
            f"WITHIN {SECONDS} seconds RETURN a.ts AS a, b.ts AS b, c.ts AS c"
        )


DENSE = Question("dense", ((0, 10_000),) * 3)
SPARSE = Question("sparse", ((1_500, 2_000), (1_500, 2_000), (0, 500)))
QUESTIONS = (SPARSE, DENSE)


# --------------------------------------------------------------------------------- by hand


def in_polars(events: pl.DataFrame, question: Question, *, ordered: bool) -> pa.Table:
    """Rows that may matter, the next B and C filled in backwards, then looked up."""
    may = [
        (pl.col("type") == name) & pl.col("volume").is_between(low, high)
        for name, (low, high) in zip("ABC", question.volumes, strict=True)
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
    window = pl.duration(seconds=SECONDS)
    return found.filter(pl.col("c") - pl.col("a") <= window).to_arrow()


def in_pandas(events: pd.DataFrame, question: Question, *, ordered: bool) -> pa.Table:
    """The same in pandas."""
    if not ordered:
        events = events.sort_values("ts", kind="stable")
    type_, volume = events["type"], events["volume"]
    kept = np.zeros(len(events), bool)
    for name, (low, high) in zip("ABC", question.volumes, strict=True):
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


def in_duckdb(events: pa.Table, question: Question, *, ordered: bool) -> pa.Table:  # noqa: ARG001
    """The same as windows of SQL: the first B that follows, with the first C that follows it."""
    may = [
        f"(type = '{name}' AND volume BETWEEN {low} AND {high})"
        for name, (low, high) in zip("ABC", question.volumes, strict=True)
    ]
    rest = "PARTITION BY symbol ORDER BY ts ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING"
    text = f"""
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
    with duckdb.connect() as connection:
        connection.register("events", events)
        return connection.sql(text).to_arrow_table()


def in_ensue(events: pa.Table, question: Question, *, ordered: bool) -> pa.Table:  # noqa: ARG001
    """The question as it stands."""
    return ensue.match(events, question.query, time="ts", type="type")


Way = Callable[..., pa.Table]
WAYS: dict[str, Way] = {"polars": in_polars, "pandas": in_pandas, "duckdb": in_duckdb, "ensue": in_ensue}


# --------------------------------------------------------------------------------- measured


def main() -> int:
    """Asks all questions in all ways, writes the results; 1 if any matches differ."""
    options = _options()
    console = Console(width=None if sys.stdout.isatty() else 120)
    before = machine() | {p.__name__: p.__version__ for p in (pl, pd, duckdb)}
    plain = events(options.events, options.symbols, options.seed)
    reports = []
    for question in QUESTIONS:
        if options.question and question.name not in options.question:
            continue
        for ordered in (True, False):
            for coded in (False, True):
                given = arranged(plain, ordered=ordered, coded=coded, seed=options.seed)
                reports.append(compare(question, given, options.passes, ordered=ordered, coded=coded))
                console.print(by_hand_sheet(reports[-1:]).markdown(), markup=False)
    if not options.question:
        summary = {"machine": before, "options": vars(options), "questions": reports}
        RESULTS.write_text(json.dumps(summary, indent=2) + "\n")
    console.print(by_hand_sheet(reports).markdown(), markup=False)
    return 0 if all(report["same"] for report in reports) else 1


def events(count: int, symbols: int, seed: int) -> pa.Table:
    """Trades in the order of time; no two at the same."""
    table = trades(count, symbols, seed)
    return table.set_column(0, "ts", table["ts"].cast(pa.timestamp("ms", "UTC")))


def arranged(table: pa.Table, *, ordered: bool, coded: bool, seed: int) -> pa.Table:
    """The events in the order of time or in any, texts as they are or as a dictionary."""
    if not ordered:
        places = np.random.default_rng(seed).permutation(table.num_rows)
        table = table.take(pa.array(places)).combine_chunks()
    if coded:
        for name in ("type", "symbol"):
            place = table.column_names.index(name)
            table = table.set_column(place, name, table.column(name).dictionary_encode())
    return table


def compare(question: Question, events: pa.Table, passes: int, *, ordered: bool, coded: bool) -> Report:
    """One question in all ways, in turns; of each the pass with the least processor time."""
    own: dict[str, Any] = {"polars": pl.from_arrow(events), "pandas": events.to_pandas()}
    found: dict[str, pa.Table] = {}
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for turn in range(passes + 1):
        for name, way in WAYS.items():
            given = own.get(name, events)
            clock = Clock()
            with clock:
                result = way(given, question, ordered=ordered)
            found[name] = result.select(["a", "b", "c"])
            if turn:  # the first compiles, and finds memory
                seconds[name].append(clock.cpu_seconds)
            del result
    expected = members(found["ensue"])
    best = {name: min(taken) for name, taken in seconds.items()}
    return {
        "question": question.name,
        "query": question.query,
        "ordered": ordered,
        "coded": coded,
        "events": events.num_rows,
        "matches": found["ensue"].num_rows,
        "same": all(np.array_equal(members(t), expected) for t in found.values()),
        "cpu_seconds": best,
        "ratio": {name: best[name] / best["ensue"] for name in best if name != "ensue"},
    }


def members(found: pa.Table) -> Any:
    """The matches as numbers, in one order."""
    columns = [found.column(n).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() for n in "abc"]
    rows = np.stack(columns, axis=1)
    return rows[np.lexsort(rows.T[::-1])]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--symbols", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument(
        "--question", action="append", choices=[q.name for q in QUESTIONS],
        help="only this one (repeatable); results are then not written",
    )  # fmt: skip
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
