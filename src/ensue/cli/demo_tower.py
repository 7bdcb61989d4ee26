"""The second scene of `ensue demo`: trades make collapses of symbols, sectors, the market."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

import ensue
from ensue.cli.steps import step
from ensue.cli.terminal import Exit
from ensue.testing.market import ALARM, Market, market

TRADES, TOWER = "trades.parquet", "market.ensue"  # what it writes


def market_falls(console: Console, folder: Path) -> Exit:
    """Finds every level of the tower, opens one alarm down to its trades, and checks the find."""
    with step(console, "Second scene: making a trading day"):
        day = market()
    pa.parquet.write_table(day.trades, folder / TRADES)
    (folder / TOWER).write_text(ALARM + "\n", encoding="utf-8")
    console.print(
        f"   {day.trades.num_rows:,} trades; {len(day.alarms)} alarms planted among "
        f"{len(day.collapses)} collapses"
    )
    console.print("Events made of events: a symbol's volume collapses, a sector's, the market's:")
    console.print(Padding(Text(ALARM, style="cyan"), (0, 0, 0, 3), expand=False))
    with step(console, "Running all levels in this process", events=day.trades.num_rows):
        levels = ensue.match({"Stock": day.trades}, ALARM, time="ts", levels="all", trace=True)
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


def _compare(console: Console, levels: dict[str, pa.Table], day: Market) -> Exit:
    found = {
        *_ends(levels["VolumeCollapse"], "symbol"),
        *_ends(levels["SectorCollapse"], "sector"),
        *(("the market", end) for end in levels["MarketAlarm"]["end"].to_pylist()),
    }
    planted = day.collapses | day.sectors | {("the market", at) for at in day.alarms}
    twice = sum(table.num_rows for table in levels.values()) - len(found)
    missed, false = planted - found, found - planted
    said = f"{len(found)} events of three levels found, {len(planted)} planted: "
    said += f"{len(missed)} missed, {len(false)} false, {twice} reported twice"
    right = not (missed or false or twice)
    console.print(Text(said, style="bold green" if right else "bold red"))
    return Exit.FINE if right else Exit.DIFFERENT


def _ends(found: pa.Table, of: str) -> list[tuple[str, object]]:
    return list(zip(found[of].to_pylist(), found["end"].to_pylist(), strict=True))
