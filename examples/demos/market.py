"""The second scene of `demos.shop`: trades make collapses of symbols, sectors, the market."""

import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

import ensue
from demos.steps import step
from samples.market import ALARM, Market, market

TRADES, HIERARCHY = "trades.parquet", "market.ensue"  # what it writes


def market_falls(console: Console, folder: Path, session: Any) -> bool:
    """Finds every level of the hierarchy, opens one alarm down to its trades, and checks the find.

    `session` is Spark's; without one, the hierarchy runs in this process.
    """
    with step(console, "Second scene: making a trading day"):
        day = market()
    pa.parquet.write_table(day.trades, folder / TRADES)
    (folder / HIERARCHY).write_text(ALARM + "\n", encoding="utf-8")
    console.print(
        f"   {day.trades.num_rows:,} trades; {len(day.alarms)} alarms planted among {len(day.collapses)} collapses"
    )
    console.print("Events made of events: a symbol's volume collapses, a sector's, the market's:")
    console.print(Padding(Text(ALARM, style="cyan"), (0, 0, 0, 3), expand=False))
    levels = _find(console, folder / TRADES, session, day.trades.num_rows)
    for name, found in levels.items():
        console.print(f"   {found.num_rows:4} {name}")
    alarms = levels["MarketAlarm"]
    if alarms.num_rows:
        opened = ensue.trace(alarms.slice(0, 1), ALARM)
        console.print("The first alarm, opened down to the trades it comes from:")
        console.print(Padding(Text(str(opened)), (0, 0, 0, 3), expand=False))
        (folder / "alarm.svg").write_text(opened.svg, encoding="utf-8")
        console.print(f"The same as a picture: {folder / 'alarm.svg'}", markup=False)
    return _compare(console, levels, day)


def _find(console: Console, files: Path, session: Any, trades: int) -> dict[str, pa.Table]:
    asked: dict[str, Any] = {"time": "ts", "options": ensue.OutputOptions(levels="all", trace=True)}
    if session is not None:
        from ensue.backends.spark import session as spark_session
        from ensue.backends.spark.event_sources import read_events
        from ensue.backends.spark.frames import WholeStreamWarning
        from ensue.backends.spark.stream_folders import escape_path

        events = {"Stock": read_events(session, [escape_path(files)], "parquet")}
        with step(console, "Running all levels on Spark, by symbol, sector and market", events=trades):
            with warnings.catch_warnings():  # that the market as a whole is one task is meant so
                warnings.simplefilter("ignore", WholeStreamWarning)
                found = ensue.match(events, ALARM, **asked).cache()
            return {name: spark_session.collect(found[name]) for name in found}
    with step(console, "Running all levels", events=trades):
        here: dict[str, pa.Table] = ensue.match({"Stock": pa.parquet.read_table(files)}, ALARM, **asked)
        return here


def _compare(console: Console, levels: dict[str, pa.Table], day: Market) -> bool:
    found = {
        *_ends(levels["VolumeCollapse"], "symbol"),
        *_ends(levels["SectorCollapse"], "sector"),
        *(("the market", end) for end in _micros(levels["MarketAlarm"]["end"])),
    }
    happened = [*day.collapses, *day.sectors, *(("the market", at) for at in day.alarms)]
    instants = _micros(pa.chunked_array([pa.array([at for _, at in happened])]))
    planted = set(zip((what for what, _ in happened), instants, strict=True))
    twice = sum(table.num_rows for table in levels.values()) - len(found)
    missed, false = planted - found, found - planted
    said = f"{len(found)} events of three levels found, {len(planted)} planted: "
    said += f"{len(missed)} missed, {len(false)} false, {twice} reported twice"
    right = not (missed or false or twice)
    console.print(Text(said, style="bold green" if right else "bold red"))
    return right


def _ends(found: pa.Table, of: str) -> list[tuple[str, int]]:
    return list(zip(found[of].to_pylist(), _micros(found["end"]), strict=True))


def _micros(instants: pa.ChunkedArray) -> list[int]:
    """The same whichever engine wrote the timestamps."""
    micros: list[int] = instants.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return micros
