"""`make demo-archive`: a stream from Kafka that looks back into the archive it writes.

    cd examples && python -m demos.archive [--passes N] [--folder DIR]

Real parts throughout: a broker on this machine, embedded Spark, a Delta table. The stream is
stopped in the middle and goes on from its checkpoint; the archive is compacted while it runs.
"""

import sys
import tempfile
import time
import warnings
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

import ensue
from brokers import kafka
from demos.steps import step
from ensue.cli import main as command_line
from ensue.cli.terminal import UsageError, get_output_console
from ensue.errors import RunnerError
from samples.toll import SPEEDING, Toll, toll

TOPIC = "passes"
_COLUMNS = "ts timestamp, tag string, point string, kind string, km double"
_PIECES = 6  # into which the live passes are cut: 3 before the stop, 1 meanwhile, 2 after it
_DELAY = 90.0  # seconds that a pass arrives late, at most
_PATIENCE = 300.0  # seconds for a stream to read what was sent
_SHOWN = 2  # matches of a micro-batch


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demo; 1 if the result differs from what was planted."""
    parser = ArgumentParser(
        prog="demos.archive", description="Find speeders in a Kafka stream that looks back into the archive it writes."
    )
    parser.add_argument(
        "--folder", metavar="DIR",
        help="a new folder to write to; default: a temporary one, which is removed",
    )  # fmt: skip
    parser.add_argument("--passes", metavar="N", type=command_line.count, default=50_000, help="default: 50000")
    parser.set_defaults(command=demo_archive)
    return command_line.run_parsed(parser, arguments)


def demo_archive(options: Namespace) -> int:
    """Runs, stops and continues the stream, and says what it does."""
    console = get_output_console()
    with step(console, "Looking for Kafka's broker and connector"):
        reason = kafka.missing()
    if reason is not None:
        raise RunnerError(
            f"the demo needs a Kafka broker, and none can run here: {reason}\n"
            "  hint: its jars are downloaded once through Maven; without it, "
            "python examples/toll_travel.py shows the same on files"
        )
    with _folder(options.folder) as folder:
        with step(console, "Making the passes of a toll road"):
            road = toll(options.passes)
        console.print(
            f"   {road.past.num_rows:,} passes before noon, {road.live.num_rows:,} after it, "
            f"{road.speeders.num_rows} speeders planted among these"
        )
        console.print("The query: from a plaza back to the point before it, and too fast:")
        console.print(Padding(Text(SPEEDING, style="cyan"), (0, 0, 0, 3), expand=False))
        console.print("What happened before noon becomes an archive:")
        pq.write_table(road.past, folder / "past.parquet")
        archive = str(folder / "passes")
        past = str(folder / "past.parquet")
        _command(console, ["create", archive, "--events", past, "--time", "ts", "--key", "tag"])
        with ExitStack() as parts:
            with step(console, f"Starting Kafka {kafka.KAFKA}"):
                broker = parts.enter_context(kafka.Broker())
            with step(console, "Starting Spark inside this process"):
                session, concern = _session()
            if concern:
                console.print(Text(f"   {concern}", style="dim"))
            scene = _Scene(console, session, broker.address, folder)
            _play(scene, _arriving(road.live))
        _command(console, ["show", archive])
        right = _compare(console, scene.found(), road)
        once = _archived_once(console, archive, road, scene.kept)
        return 0 if right and once else 1


def _play(scene: "_Scene", pieces: Sequence[pa.Table]) -> None:
    """The stream runs, is stopped, goes on, and ends."""
    console = scene.console
    console.print("The stream runs; passes arrive in Kafka, matches are printed as they come:")
    scene.send(pieces[0])
    with scene.running() as stream:
        for piece in pieces[1:3]:
            scene.wait(stream)
            scene.send(piece)
        scene.wait(stream)
    console.print("The stream is stopped. Meanwhile passes go on arriving ...")
    scene.send(pieces[3])
    console.print("... and it goes on from its checkpoint, with what it has missed:")
    with scene.running() as stream:
        scene.wait(stream)
        scene.send(pieces[4])
        scene.wait(stream)
        console.print("Archived passes came in small files. While the stream runs:")
        _command(console, ["compact", scene.archive, "--fewest", "2"])
        scene.send(pieces[5])
        scene.wait(stream)
    console.print("The road is closed: what waited for passes that come late is delivered, too.")
    scene.finish()


@dataclass
class _Scene:
    """The stream, from the topic to the table of speeders."""

    console: Console
    session: Any
    address: str
    folder: Path
    sent: int = 0
    read: int = 0  # records that streams which were stopped have read
    kept: int = 0  # passes that the stream holds: they are late, or not archived yet

    @property
    def archive(self) -> str:
        return str(self.folder / "passes")

    def send(self, passes: pa.Table) -> None:
        """Passes as JSON into the topic, in the order they arrive."""
        from ensue.backends.spark.sinks import MICROSECONDS

        form = MICROSECONDS["timestampFormat"].replace("'", "\\'")
        value = f"to_json(struct(*), map('timestampFormat', '{form}')) AS value"
        rows = self.session.createDataFrame(passes).coalesce(1).selectExpr("tag AS key", value)
        # one request at a time: a broker that is just making the topic may take them out of order
        rows.write.format("kafka").option("kafka.bootstrap.servers", self.address).option(
            "kafka.max.in.flight.requests.per.connection", "1"
        ).option("topic", TOPIC).save()
        self.sent += passes.num_rows

    def matches(self) -> Any:
        from ensue.backends.spark import event_sources as sources

        columns = sources.parse_columns(_COLUMNS)
        passes = sources.read_kafka(self.session, self.address, TOPIC, columns)
        archives = {"passes": ensue.archive(self.archive)}
        return ensue.match(
            passes, SPEEDING, time="ts", watermark="2 minutes", options=ensue.StreamOptions(key_groups=2),
            archives=ensue.Archives(archives, own="passes"),
        )  # fmt: skip

    def start(self, *, over: bool = False) -> Any:
        table = ensue.parquet_table(self.folder / "speeders")

        def deliver(matches: Any, batch: int) -> None:
            table(matches, batch)  # a match that is there already is not added again
            self.show(matches, batch)

        return ensue.start(
            self.matches(), deliver, checkpoint=self.folder / "checkpoint",
            archive=ensue.ArchiveWriter("passes", age="20 minutes"), once=over, flush=over,
        )  # fmt: skip

    @contextmanager
    def running(self) -> Iterator[Any]:
        """The stream, until it is stopped; then what it has done with the passes."""
        stream = self.start()
        try:
            yield stream
        finally:
            stream.stop()
        batches = stream.progress()
        self.read += self.total(stream, "input_rows")
        self.kept = batches[-1].recent + batches[-1].waiting
        archived = self.total(stream, "archived")
        said = f"   {archived:,} passes went into the archive, {self.kept:,} are with the stream"
        self.console.print(Text(said, "dim"))

    def finish(self) -> None:
        """The stream is over: what only waited for more."""
        ended = self.start(over=True)
        self.kept -= self.total(ended, "archived")

    def wait(self, stream: Any) -> None:
        """Until the stream has read all that was sent."""
        until = time.monotonic() + _PATIENCE
        while self.read + self.total(stream, "input_rows") < self.sent:
            if stream.wait(0.2):
                raise RunnerError("the stream ended by itself")
            if time.monotonic() > until:
                raise RunnerError(f"the stream has not read all passes in {_PATIENCE:.0f} s")

    def total(self, stream: Any, name: str) -> int:
        return sum(getattr(batch, name) for batch in stream.progress())

    def show(self, matches: Any, batch: int) -> None:
        """The first matches of a micro-batch, and how many more there are."""
        rows = _rows(matches)
        for car in rows[:_SHOWN]:
            minutes = car["travel"].total_seconds() / 60
            said = f"   {car['ts']:%H:%M:%S}  {car['tag']}  {car['came_from']} -> {car['at']}"
            self.console.print(Text(f"{said} in {minutes:.1f} minutes", "green"))
        if len(rows) > _SHOWN:
            more = f"             and {len(rows) - _SHOWN} more of micro-batch {batch}"
            self.console.print(Text(more, "dim"))

    def found(self) -> list[dict[str, Any]]:
        table = self.folder / "speeders"
        return _rows(self.session.read.parquet(str(table))) if table.exists() else []


def _arriving(live: pa.Table) -> list[pa.Table]:
    """The live passes in the order they arrive, some a little late, cut into pieces."""
    random = np.random.default_rng(7)
    seconds = pc.cast(live["ts"], pa.int64()).to_numpy() / 1e6
    order = np.argsort(seconds + random.uniform(0, _DELAY, len(seconds)), kind="stable")
    arriving = live.take(pa.array(order))
    rows = -(-live.num_rows // _PIECES)
    return [arriving.slice(k * rows, rows) for k in range(_PIECES)]


def _rows(matches: Any) -> list[dict[str, Any]]:
    from ensue.backends.spark.session import collect

    found: list[dict[str, Any]] = collect(matches).sort_by("ts").to_pylist()
    return found


# ------------------------------------------------------------------------------ real parts


def _session() -> tuple[Any, str | None]:
    """Spark with Kafka's connector; and what there is to say of that one."""
    from ensue.backends.spark import session as spark_session

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", kafka.ConnectorWarning)
        jars = ",".join(map(str, kafka.jars()))
    concern = str(caught[0].message).partition(". ")[0] if caught else None
    settings = {"spark.jars": jars, "spark.sql.shuffle.partitions": "2"}
    return spark_session.get_or_create_session(settings), concern


def _command(console: Console, arguments: list[str]) -> None:
    """Runs `ensue archive ...` as a user would."""
    said = " ".join(["ensue archive", *arguments])
    console.print(Text(f"$ {said}", style="bold"), soft_wrap=True)
    code = command_line.main(["archive", *arguments])
    if code:
        raise RunnerError(f"{said} ended with {code}")


@contextmanager
def _folder(named: str | None) -> Iterator[Path]:
    """The folder named, which stays; else a temporary one, which does not."""
    if named is None:
        with tempfile.TemporaryDirectory(prefix="ensue-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    path = Path(named)
    if path.exists() and (path.is_file() or any(path.iterdir())):
        raise UsageError(f"{named} already exists\n  hint: name a new or empty folder")
    path.mkdir(parents=True, exist_ok=True)
    yield path


# ----------------------------------------------------------------------------------- truth


def _compare(console: Console, found: list[dict[str, Any]], road: Toll) -> bool:
    columns = road.speeders.column_names
    ours = [tuple(row[name] for name in columns) for row in found]
    theirs = [tuple(row.values()) for row in road.speeders.to_pylist()]
    missed, false = set(theirs) - set(ours), set(ours) - set(theirs)
    twice = len(ours) - len(set(ours))
    right = not (missed or false or twice)
    said = f"{len(ours)} speeders found, {len(theirs)} planted: {len(missed)} missed, "
    said += f"{len(false)} false, {twice} reported twice"
    console.print(Text(said, style="bold green" if right else "bold red"))
    for what, several in (("missed", missed), ("false", false)):
        for tag, _, at, ts in sorted(several)[:3]:
            console.print(Text(f"   {what}: {tag} at {at}, {ts}", style="red"))
    return right


def _archived_once(console: Console, place: str, road: Toll, kept: int) -> bool:
    """Whether every pass is either in the archive, once, or still with the stream."""
    import deltalake  # as anybody would read the table who knows nothing of Ensue

    table = deltalake.DeltaTable(place).to_pyarrow_table(columns=road.past.column_names)
    stored, all_of_them = (
        [tuple(row.values()) for row in events.to_pylist()]
        for events in (table, pa.concat_tables([road.past, road.live]))
    )
    twice = len(stored) - len(set(stored))
    strange = len(set(stored) - set(all_of_them))
    lost = len(set(all_of_them) - set(stored)) - kept
    right = twice == strange == lost == 0
    said = f"{len(stored):,} passes in the archive, {kept:,} newer ones with the stream: "
    said += f"{lost} lost, {twice} archived twice"
    console.print(Text(said, style="bold green" if right else "bold red"))
    return right


if __name__ == "__main__":
    sys.exit(main())
