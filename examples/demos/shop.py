"""`make demo`: finds the thefts in a generated day of a shop, and checks them; then the alarms in
a trading day, whose events are made of events of events.

    cd examples && python -m demos.shop [--engine local] [--events N] [--folder DIR]
"""

import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

import ensue
from demos.market import HIERARCHY, TRADES, market_falls
from demos.steps import step
from demos.timeline import Reading, timeline
from ensue.cli.main import count, run_parsed
from ensue.cli.output import print_matches
from ensue.cli.terminal import UsageError, get_output_console
from ensue.errors import RunnerError
from samples.shop import THEFT, shop

_SHOWN = 10


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; 1 if the result differs from what was planted."""
    parser = ArgumentParser(
        prog="demos.shop", description="Find the thefts in a shop's day, and the alarms in a market's."
    )
    parser.add_argument("--folder", metavar="DIR", help="where to write; default: a temporary one")
    parser.add_argument("--events", metavar="N", type=count, default=1_000_000, help="default: 1000000")
    parser.add_argument(
        "--engine", choices=("local", "spark"),
        help="default: spark, and local where Spark does not start",
    )  # fmt: skip
    parser.set_defaults(command=demo)
    return run_parsed(parser, arguments)


def demo(options: Namespace) -> int:
    """Finds the thefts and the alarms, and says what it does."""
    console = get_output_console()
    folder = _folder(options.folder)
    with step(console, "Making a day of a shop's RFID readings"):
        day = shop(options.events)
    console.print(
        f"   {day.readings.num_rows:,} readings of {len(day.readings['tag'].unique()):,} items, "
        f"{day.thefts.num_rows} thefts planted among them"
    )
    files = folder / "readings.parquet"
    with step(console, f"Writing them to {files}"):
        pa.parquet.write_table(day.readings, files)
    console.print("The query: off a shelf and out, and no counter on the way:")
    console.print(Padding(Text(THEFT, style="cyan"), (0, 0, 0, 3), expand=False))
    session = _session(console, options.engine)
    found = _find(console, files, session, day.readings.num_rows)
    found = found.sort_by([("gone", "ascending")])
    pa.parquet.write_table(found, folder / "thefts.parquet")
    console.print()
    shown = [name for name in found.column_names if name not in ("match_id", "start", "end")]
    print_matches(console, found.select(shown), _SHOWN)
    console.print()
    if found.num_rows:
        _draw(day.readings, found, folder / "theft.svg")
        console.print(f"A picture of one of them: {folder / 'theft.svg'}", markup=False)
    right = _compare(console, found, day.thefts)
    console.print()
    right &= market_falls(console, folder, session)
    if right:
        console.print(
            "Now your turn:\n"
            f'   ensue run "SEQ(FITTING_ROOM f, !COUNTER c, EXIT e) WHERE [tag] WITHIN 1 hour" '
            f"--events {files} --time ts --type reader\n"
            f"   ensue run {folder / HIERARCHY} --events Stock={folder / TRADES} --levels all "
            "--trace 1",
            soft_wrap=True,
            markup=False,
        )
    return 0 if right else 1


def _folder(named: str | None) -> Path:
    if named is None:
        return Path(tempfile.mkdtemp(prefix="ensue-demo-"))
    folder = Path(named)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {named}: {error.strerror}") from None
    return folder


def _session(console: Console, engine: str | None) -> Any:
    """Spark, or None to run here. Who has no Spark wants to see the demo all the same."""
    if engine == "local":
        return None
    from ensue.backends.spark.session import get_or_create_session

    try:
        with step(console, "Starting Spark inside this process"):
            return get_or_create_session()
    except RunnerError as error:
        if engine == "spark":
            raise
        for line in str(error).splitlines():
            console.print(Text(f"   {line}", style="yellow"), soft_wrap=True)
        console.print("   So it runs without Spark, in this process. The query is the same.")
        return None


def _find(console: Console, files: Path, session: Any, readings: int) -> pa.Table:
    columns: dict[str, Any] = {"time": "ts", "type": "reader"}
    if session is not None:
        from ensue.backends.spark import session as spark_session
        from ensue.backends.spark.event_sources import read_events
        from ensue.backends.spark.stream_folders import escape_path

        events = read_events(session, [escape_path(files)], "parquet")
        with step(console, "Running the query on Spark", events=readings):
            return spark_session.collect(ensue.match(events, THEFT, **columns))
    with step(console, "Running the query", events=readings):
        return ensue.match(pa.parquet.read_table(files), THEFT, **columns)


def _compare(console: Console, found: pa.Table, planted: pa.Table) -> bool:
    ours, theirs = _pairs(found), _pairs(planted)
    missed, false = set(theirs) - set(ours), set(ours) - set(theirs)
    twice = len(ours) - len(set(ours))
    said = f"{len(ours)} thefts found, {len(theirs)} planted: {len(missed)} missed, "
    said += f"{len(false)} false, {twice} reported twice"
    right = not (missed or false or twice)
    console.print(Text(said, style="bold green" if right else "bold red"))
    for tag, gone in sorted(missed)[:3]:
        console.print(Text(f"   missed: {tag}, gone at {gone}", style="red"))
    for tag, gone in sorted(false)[:3]:
        console.print(Text(f"   false: {tag}, gone at {gone}", style="red"))
    return right


def _pairs(thefts: pa.Table) -> list[tuple[str, int]]:
    """Item and microsecond: the same whichever engine wrote the timestamps."""
    micros = pc.cast(pc.cast(thefts["gone"], pa.timestamp("us", "UTC")), pa.int64())
    return list(zip(thefts["tag"].to_pylist(), micros.to_pylist(), strict=True))


def _draw(readings: pa.Table, found: pa.Table, file: Path) -> None:
    """Draws the theft with the longest story: most kinds of antennas, then most readings."""
    stolen = readings.filter(pc.is_in(readings["tag"], value_set=pc.unique(found["tag"])))
    stories = stolen.group_by("tag").aggregate([("reader", "count_distinct"), ("ts", "count")])
    best = stories.sort_by([("reader_count_distinct", "descending"), ("ts_count", "descending"), ("tag", "ascending")])[
        "tag"
    ][0].as_py()
    gone = found.filter(pc.equal(found["tag"], best))["gone"]
    of_item = stolen.filter(pc.equal(stolen["tag"], best))
    told = [Reading(row["ts"], row["reader"], row["reader_id"]) for row in of_item.to_pylist()]
    exits = pc.cast(gone, of_item.schema.field("ts").type)
    file.write_text(timeline(best, told, exits[0].as_py()), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
