"""`ensue demo`: a shop's day is made, the thefts in it are found, and the find is checked; then
a trading day, in which events are made of events of events."""

import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

import ensue
from ensue.cli.demo_tower import TOWER, TRADES, market_falls
from ensue.cli.matches import drawn
from ensue.cli.steps import step
from ensue.cli.terminal import Exit, UsageError, output
from ensue.cli.timeline import Reading, timeline
from ensue.errors import RunnerError
from ensue.samples.shop import THEFT, shop

_SHOWN = 10


def demo(options: Namespace) -> Exit:
    """Tells what it does while it does it."""
    console = output()
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
    console.print(Padding(drawn(found.select(shown), _SHOWN), (0, 0, 0, 3), expand=False))
    console.print()
    if found.num_rows:
        _draw(day.readings, found, folder / "theft.svg")
        console.print(f"A picture of one of them: {folder / 'theft.svg'}", markup=False)
    ending = _compare(console, found, day.thefts)
    console.print()
    falls = market_falls(console, folder, session)
    if ending is falls is Exit.FINE:
        console.print(
            "Now your turn:\n"
            f'   ensue run "SEQ(FITTING_ROOM f, !COUNTER c, EXIT e) WHERE [tag] WITHIN 1 hour" '
            f"--events {files} --time ts --type reader\n"
            f"   ensue run {folder / TOWER} --events Stock={folder / TRADES} --levels all "
            "--trace 1",
            soft_wrap=True,
            markup=False,
        )
    return max(ending, falls)


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
    from ensue.runners.spark.session import embedded

    try:
        with step(console, "Starting Spark inside this process"):
            return embedded()
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
        from ensue.runners.spark import paths as spark_paths
        from ensue.runners.spark import session as spark_session

        events = spark_session.read(session, spark_paths.literal(files), "parquet")
        with step(console, "Running the query on Spark", events=readings):
            return spark_session.collect(ensue.match(events, THEFT, **columns))
    with step(console, "Running the query", events=readings):
        return ensue.match(pa.parquet.read_table(files), THEFT, **columns)


def _compare(console: Console, found: pa.Table, planted: pa.Table) -> Exit:
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
    return Exit.FINE if right else Exit.DIFFERENT


def _pairs(thefts: pa.Table) -> list[tuple[str, int]]:
    """Item and microsecond: the same whichever engine wrote the timestamps."""
    micros = pc.cast(pc.cast(thefts["gone"], pa.timestamp("us", "UTC")), pa.int64())
    return list(zip(thefts["tag"].to_pylist(), micros.to_pylist(), strict=True))


def _draw(readings: pa.Table, found: pa.Table, file: Path) -> None:
    """Draws the theft with the longest story: most kinds of antennas, then most readings."""
    stolen = readings.filter(pc.is_in(readings["tag"], value_set=pc.unique(found["tag"])))
    stories = stolen.group_by("tag").aggregate([("reader", "count_distinct"), ("ts", "count")])
    best = stories.sort_by(
        [("reader_count_distinct", "descending"), ("ts_count", "descending"), ("tag", "ascending")]
    )["tag"][0].as_py()
    gone = found.filter(pc.equal(found["tag"], best))["gone"]
    of_item = stolen.filter(pc.equal(stolen["tag"], best))
    told = [Reading(row["ts"], row["reader"], row["reader_id"]) for row in of_item.to_pylist()]
    exits = pc.cast(gone, of_item.schema.field("ts").type)
    file.write_text(timeline(best, told, exits[0].as_py()), encoding="utf-8")
