"""Kill the stream at any moment and start it again: the table has the matches of the batch run.

The stream is a process with an embedded Spark (driver.py). The driver is killed with its JVM and
its Python workers, or a Python worker alone; SIGKILL leaves nobody time to clean up.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.streaming import driver

import ensue
from ensue.archives.delta_writer import create
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.catalog.change import ChangeKind
from ensue.operators.subscriptions.catalog.version_pins import find_version_start, list_streams
from support.past import whole

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="finds processes in /proc"),
]

ROWS = 60  # in a file, which is a micro-batch
RETRYING, FAILING = "local[2,4]", "local[2]"  # whether Spark tries a failed task again
PATIENCE = 240.0  # seconds until a stream must have done something
# when a kill may come, and how long behind it
MOMENTS = {"begun": 1.5, "done": 1.5, "written": 0.3}
OF_ARCHIVES = MOMENTS | {"archived": 0.3, "compacted": 0.1}


# ------------------------------------------------------------------------------ the stream


def events(count: int) -> pa.Table:
    """Events of eight keys, in the order of the stream, ties among them."""
    random = np.random.default_rng(11)
    times = np.datetime64("2026-01-05T14:30:00", "us") + np.cumsum(random.integers(0, 20, count) * 10_000).astype(
        "m8[us]"
    )
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "type": random.choice(list("AABBC"), count),
            "k": random.integers(0, 8, count),
            "x": random.integers(0, 10, count),
            "side": random.choice(["left", "right"], count),
            "row": np.arange(count),
            # wide enough for snapshots of key groups, and for copies that workers leave each other
            "note": [f"{number:04}" * 250 for number in range(count)],
        }
    )


def arriving(table: pa.Table) -> pa.Table:
    """The events in another order, none later than the watermark allows."""
    random = np.random.default_rng(12)
    delay = random.integers(0, 2_900_000, table.num_rows)
    arrival = table["ts"].cast(pa.int64()).to_numpy() + delay
    return table.take(pa.array(np.argsort(arrival, kind="stable")))


@dataclass(frozen=True)
class Kill:
    """Where a kill has hit."""

    batch: int  # the last that was committed
    where: str


class Crashing:
    """A stream that is killed and started again, with what it leaves on disk."""

    def __init__(
        self,
        folder: Path,
        files: int,
        *,
        sink: str = "parquet",
        kind: str = "flat",
        known: int = 0,  # files whose events are in a history, too
    ) -> None:
        self.folder, self.files, self.sink, self.kind = folder, files, sink, kind
        self.kills: list[Kill] = []
        self.starts = 0
        self.table = events(files * ROWS)
        (folder / "events").mkdir(parents=True)
        shuffled = arriving(self.table)
        if known:
            (folder / "history").mkdir()
            end = self.table["ts"][known * ROWS].as_py()
            before = [time < end for time in shuffled["ts"].to_pylist()]
            pq.write_table(shuffled.filter(pa.array(before)), folder / "history" / "0.parquet")
        for number in range(max(0, known - 3), files):
            path = folder / "events" / f"{number:04}.parquet"
            pq.write_table(shuffled.slice(number * ROWS, ROWS), path)
            os.utime(path, (1_600_000_000 + number,) * 2)  # the order in which Spark reads them
        if kind == "archive":
            create(
                folder / driver.PAST, self.table.schema, time="ts", key=["k"], type="type",
                order=["row"], buckets=4,
            )  # fmt: skip

    def start(self, master: str = RETRYING) -> "Driver":
        self.starts += 1
        return Driver(self.folder, master, self.sink, self.kind)

    def numbers(self, log: str) -> set[int]:
        """The micro-batches in a log of the checkpoint: begun are `offsets`, done `commits`."""
        found = self._names(self.folder / "checkpoint" / log)
        return {int(name) for name in found if name.isdigit()}

    @property
    def last(self) -> int:
        """The last micro-batch that was committed."""
        return max(self.numbers("commits"), default=-1)

    def written(self) -> set[str]:
        """The files of the table, or of the tables in it."""
        inside = "_delta_log" if self.sink == "delta" else "."
        found = (self.folder / "table" / inside).rglob("*")
        return {str(p.relative_to(self.folder)) for p in found if p.name[0] not in "._"}

    def commits(self, *, compactions: bool = False) -> set[str]:
        """The commits to the archive; or the files that compactions have begun."""
        place = self.folder / driver.PAST
        found = place.glob("*/*/part-compact-*" if compactions else "_delta_log/*.json")
        return {path.name for path in found}

    def _names(self, folder: Path) -> list[str]:
        return [path.name for path in folder.iterdir()] if folder.exists() else []

    def output(self) -> str:
        """What all drivers have printed."""
        return (self.folder / "output").read_text(errors="replace")

    def failed_tasks(self) -> int:
        """How many tasks have failed, as Spark's own log has it."""
        count = 0
        for path in (self.folder / "log").iterdir():
            for line in path.read_text(errors="replace").splitlines():
                if '"SparkListenerTaskEnd"' in line:
                    count += json.loads(line)["Task End Reason"]["Reason"] != "Success"
        return count

    # -------------------------------------------------------------------- kills

    def kill_driver(self, random: Random) -> None:
        """Starts the stream, and kills it with everything it has started, at a random moment."""
        look: dict[str, Callable[[], set]] = {
            "begun": lambda: self.numbers("offsets"),
            "done": lambda: self.numbers("commits"),
            "written": self.written,
            "archived": self.commits,
            "compacted": lambda: self.commits(compactions=True),
        }
        moments = OF_ARCHIVES if self.kind == "archive" else MOMENTS
        moment = random.choice(list(moments))
        before = look[moment]()
        running = self.start()
        running.wait(lambda: look[moment]() - before)
        time.sleep(random.uniform(0, moments[moment]))
        assert running.process.poll() is None, "the stream was over before the kill"
        running.kill()
        self.kills.append(Kill(self.last, self._where()))

    def kill_history(self, random: Random, at: str) -> None:
        """The same while its history is read, or behind that: `at` is a part of its folder."""
        place = self.folder / "checkpoint" / "ensue-history" / at
        running = self.start()
        running.wait(lambda: place.exists() or self.numbers("offsets"))
        time.sleep(random.uniform(0, 0.5))
        assert running.process.poll() is None, "the stream was over before the kill"
        running.kill()
        self.kills.append(Kill(self.last, f"history: {at}"))

    def _where(self) -> str:
        if not self.numbers("offsets"):
            return "before the first micro-batch"
        begun, done = max(self.numbers("offsets"), default=-1), self.last
        if begun == done:
            return "between micro-batches"
        since = (self.folder / "checkpoint" / "offsets" / str(begun)).stat().st_mtime
        files = [self.folder / n for n in self.written()]
        if any(f.stat().st_mtime > since for f in files):
            return "matches written, micro-batch not committed"
        return "in a micro-batch"

    def kill_worker(self, running: "Driver", random: Random) -> None:
        """Kills a Python worker that is at work, in the next micro-batch."""
        before = self.numbers("offsets")
        running.wait(lambda: self.numbers("offsets") - before)
        time.sleep(random.uniform(0, 0.5))
        if running.kill_busy_worker(random):
            self.kills.append(Kill(self.last, "worker"))

    # -------------------------------------------------------------------- the outcome

    def check(self) -> int:
        """Compares each table with the batch run. The number of matches, the least of them."""
        query, options = driver.KINDS[self.kind]
        if self.kind == "subscriptions":
            return self._each_alone()
        if self.kind == "archive":
            named = driver.EVENTS | {"key": "k"}
            empty = ensue.archive(self.table.slice(0, 0), **named)
            options = {"archives": ensue.Archives({driver.PAST: empty}, own=driver.PAST)}
            self._require_archive()
        wanted = ensue.match(self.table, query, **driver.EVENTS, **options)
        if isinstance(wanted, dict):
            places = {name: self.folder / "table" / (name or "matches") for name in wanted}
            return min(self._equal(table, places[name]) for name, table in wanted.items())
        return self._equal(wanted, self.folder / "table")

    def _each_alone(self) -> int:
        """Each subscription has found what it finds alone in the events from its moment on."""
        log = CatalogLog(self.folder / driver.SET)
        (stream,) = list_streams(log)
        lives: dict[str, list[Any]] = {}  # text, the first micro-batch, the first without it
        last = max(self.numbers("offsets")) + 1
        for version, change in log.changes():
            moment = find_version_start(log, stream, version)
            batch = last if moment is None else moment.batch
            if change.kind is ChangeKind.ADD:
                lives[change.name] = [change.text, batch, last]
            else:
                lives[change.name][2] = batch
        found = pq.read_table(self.folder / "table")
        ids = Counter(zip(*(found[c].to_pylist() for c in ("subscription", "match_id")),
                          strict=True))  # fmt: skip
        assert set(ids.values()) == {1}, "a match was delivered twice"
        files = self._files()
        count = 0
        for name, (text, first, end) in lives.items():
            seen = [pq.read_table(path) for path, batch in files.items() if batch >= first]
            fleet = ensue.Subscriptions(**driver.EVENTS)
            fleet.add(name, text)
            mine = {id for who, id in ids if who == name}
            if not seen:
                assert not mine
                continue
            wanted = ensue.match(pa.concat_tables(seen), fleet)
            known = set(wanted["match_id"].to_pylist())
            if end == last:
                assert mine == known, name
            else:  # what was known when it was cancelled, and nothing that came later
                gone = {path for path, batch in files.items() if batch >= end}
                later = {row for path in gone for row in pq.read_table(path)["row"].to_pylist()}
                assert mine <= known
                members = dict(zip(wanted["match_id"].to_pylist(), wanted["members"].to_pylist(),
                                   strict=True))  # fmt: skip
                assert not any(e["row"] in later for id in mine for e in members[id])
            count += len(mine)
        return count

    def _files(self) -> dict[Path, int]:
        """The micro-batch of each file of events, as the checkpoint has it."""
        checkpoint = self.folder / "checkpoint"
        upto = {}
        for number in sorted(self.numbers("offsets")):
            line = (checkpoint / "offsets" / str(number)).read_text().splitlines()[-1]
            upto[number] = json.loads(line)["logOffset"]
        found = {}
        for log in (checkpoint / "sources" / "0").iterdir():
            for line in log.read_text().splitlines()[1:] if log.name[0].isdigit() else ():
                entry = json.loads(line)
                batch = min(n for n, offset in upto.items() if offset >= entry["batchId"])
                found[Path(urlparse(entry["path"]).path)] = batch
        return found

    def _require_archive(self) -> None:
        """All events before the last watermark are in the archive, once."""
        place = self.folder / driver.PAST
        found = Counter(whole(ensue.archive(place))["row"].to_pylist())
        times = self.table["ts"].cast(pa.int64()).to_numpy()
        last = times.max() // 1_000 * 1_000 - 3_000_000
        before = pc.filter(self.table["row"], pa.array(times < last))
        assert found == Counter(before.to_pylist())

    def _equal(self, wanted: pa.Table, place: Path) -> int:
        if self.sink == "delta":
            import deltalake

            found = deltalake.DeltaTable(str(place)).to_pyarrow_table()
        else:
            found = pq.read_table(place)
        assert Counter(found["match_id"].to_pylist()) == Counter(wanted["match_id"].to_pylist())
        found = found.cast(wanted.schema)  # Spark's files count in nanoseconds
        assert found.sort_by("match_id").equals(wanted.sort_by("match_id"))
        return wanted.num_rows


# ---------------------------------------------------------------------------- the processes


class Driver:
    """The stream's process, and those it has started: all of its session."""

    def __init__(self, folder: Path, master: str, sink: str, kind: str) -> None:
        source = str(Path(ensue.__file__).parent.parent)
        paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
        with (folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, driver.__file__, str(folder), master, sink, kind],
                stdout=output,
                stderr=output,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        self.output = folder / "output"

    def wait(self, seen: Callable[[], object]) -> None:
        """Until something is seen on disk, or the process has ended."""
        limit = time.monotonic() + PATIENCE
        while not seen() and self.process.poll() is None:
            assert time.monotonic() < limit, f"nothing happens\n{self.said()}"
            time.sleep(0.01)

    def finish(self) -> None:
        assert self.process.wait(4 * PATIENCE) == 0, self.said()

    def said(self) -> str:
        return self.output.read_text(errors="replace")[-4_000:]

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM and all Python workers, until none is left."""
        os.killpg(self.process.pid, signal.SIGKILL)  # the driver and the JVM at the same time
        self.process.wait()
        while left := [p for p in processes() if p.session == self.process.pid]:
            for process in left:  # workers have a group of their own
                process.kill()
            time.sleep(0.02)

    def kill_busy_worker(self, random: Random) -> bool:
        """SIGKILL to a Python worker that uses the processor. False if none has for a while."""
        limit = time.monotonic() + 5
        while time.monotonic() < limit and self.process.poll() is None:
            before = {p.number: p.ticks for p in self.workers()}
            time.sleep(0.03)
            busy = [p for p in self.workers() if p.ticks > before.get(p.number, p.ticks)]
            if busy:
                random.choice(busy).kill()
                return True
        return False

    def workers(self) -> list["Process"]:
        """Python workers are forked by a daemon, and have its command line."""
        ours = {p.number: p for p in processes() if p.session == self.process.pid}
        daemons = {n for n, p in ours.items() if p.is_daemon()}
        return [p for n, p in ours.items() if n in daemons and p.parent in daemons]


@dataclass(frozen=True)
class Process:
    number: int
    parent: int
    session: int
    ticks: int  # of the processor's time

    def is_daemon(self) -> bool:
        try:
            return b"pyspark.daemon" in Path(f"/proc/{self.number}/cmdline").read_bytes()
        except OSError:
            return False

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.number, signal.SIGKILL)


def processes() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            values = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if values[0] not in "ZX":
            ticks = int(values[11]) + int(values[12])
            yield Process(int(entry.name), int(values[1]), int(values[3]), ticks)


@pytest.fixture
def crashing(tmp_path: Path) -> Iterator[Callable[..., Crashing]]:
    """Streams in a folder of the test. None of their processes outlives it."""
    made: list[Driver] = []
    start = Crashing.start

    class Watched(Crashing):
        def start(self, master: str = RETRYING) -> Driver:
            made.append(start(self, master))
            return made[-1]

    yield lambda *arguments, **options: Watched(tmp_path / "stream", *arguments, **options)
    for running in made:
        if running.process.poll() is None:
            running.kill()


# --------------------------------------------------------------------------------- tests


@pytest.mark.slow
def test_a_killed_driver_loses_and_doubles_nothing(crashing):
    stream = crashing(files=4)
    stream.kill_driver(Random(5))
    assert stream.last < stream.files
    stream.start().finish()
    assert stream.check() > 10


@pytest.mark.slow
def test_a_killed_driver_and_killed_workers_lose_and_double_nothing(crashing):
    random = Random(5)
    stream = crashing(files=16)
    stream.kill_driver(random)
    stream.kill_driver(random)
    assert stream.last < stream.files

    fails_at_once = stream.start(FAILING)
    while fails_at_once.process.poll() is None:  # a worker may be killed between two tasks
        stream.kill_worker(fails_at_once, random)
    assert fails_at_once.process.wait() != 0, "no kill has hit a task"
    assert "RunnerError: a Python worker of Spark was killed" in stream.output()

    tries_again = stream.start(RETRYING)
    before = stream.failed_tasks()
    while stream.failed_tasks() == before and tries_again.process.poll() is None:
        stream.kill_worker(tries_again, random)
    tries_again.finish()
    assert stream.failed_tasks() > before
    assert len(stream.kills) >= 4
    assert stream.check() > 50


@pytest.mark.slow
def test_twenty_killed_drivers(crashing):
    random = Random(20)
    stream = crashing(files=60)
    for _ in range(20):
        stream.kill_driver(random)
    at = [kill.batch for kill in stream.kills]
    assert at == sorted(at)
    assert at[-1] < stream.files - 1  # all of them came before the end
    assert at[-1] - at[0] >= 10  # and the stream went on between them
    where = Counter(kill.where for kill in stream.kills)
    assert where["in a micro-batch"] + where["matches written, micro-batch not committed"] >= 10
    stream.start().finish()
    report(stream, stream.check())


@pytest.mark.slow
def test_twenty_killed_workers(crashing):
    random = Random(21)
    stream = crashing(files=60)
    running = stream.start()
    running.wait(lambda: stream.numbers("commits"))
    # not every kill hits a task: a worker may be between two
    while stream.failed_tasks() < 20 and running.process.poll() is None:
        stream.kill_worker(running, random)
    running.finish()
    assert stream.failed_tasks() >= 20
    assert len(stream.kills) >= 20
    assert stream.starts == 1  # the driver went on
    report(stream, stream.check())


@pytest.mark.slow
def test_killed_drivers_with_a_delta_table(crashing):
    random = Random(22)
    stream = crashing(files=20, sink="delta")
    for _ in range(5):
        stream.kill_driver(random)
    assert stream.last < stream.files
    stream.start().finish()
    report(stream, stream.check())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["hierarchy", "several"])
def test_killed_drivers_of_a_hierarchy_and_of_several_queries(crashing, kind):
    """Stateful operators that stand behind or beside each other, and a table for each output."""
    random = Random(23)
    stream = crashing(files=8, kind=kind)
    for _ in range(3):
        stream.kill_driver(random)
    assert stream.last < stream.files
    running = stream.start()
    before = stream.numbers("commits")
    running.wait(lambda: stream.numbers("commits") - before)
    stream.kill_worker(running, random)
    running.finish()
    found = stream.check()
    report(stream, found)
    assert found > 5


@pytest.mark.slow
def test_killed_drivers_of_a_stream_that_stores_keys(crashing):
    """What they had on disk is gone with them, or left behind: the checkpoint has it."""
    random = Random(24)
    stream = crashing(files=10, kind="spilling")
    for _ in range(2):
        stream.kill_driver(random)
    assert stream.last < stream.files
    stream.start().finish()
    assert "keys missed: 0" not in stream.output()
    assert "keys missed: " in stream.output()
    found = stream.check()
    report(stream, found)
    assert found > 5


@pytest.mark.slow
def test_twenty_kills_of_a_stream_that_writes_its_archive(crashing):
    """In tasks, behind the delivery, behind the archive's commit, and while it is compacted."""
    random = Random(24)
    stream = crashing(files=40, kind="archive")
    for _ in range(14):
        stream.kill_driver(random)
    running = stream.start()
    running.wait(lambda: stream.numbers("commits"))
    while stream.failed_tasks() < 6 and running.process.poll() is None:
        stream.kill_worker(running, random)
    running.finish()
    assert len(stream.kills) >= 20
    report(stream, stream.check())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flat", "hierarchy"])
def test_killed_drivers_of_a_stream_that_begins_with_a_history(crashing, kind):
    """In the batch job, when its key groups are written, in delivery, in the first micro-batches."""
    random = Random(24)
    stream = crashing(files=10, kind=kind, known=5)
    for at in ("key_groups/_temporary", "key_groups/_SUCCESS", "manifest/_SUCCESS", "delivered/_SUCCESS"):
        stream.kill_history(random, at)
    assert stream.last < stream.files
    stream.kill_driver(random)
    stream.start().finish()
    found = stream.check()
    report(stream, found)
    assert found > 5


def report(stream: Crashing, matches: int) -> None:
    where = Counter(kill.where for kill in stream.kills)
    print(f"\n{len(stream.kills)} kills, {stream.starts} starts, {matches} matches compared")
    print(f"  where: {dict(where)}")
    print(f"  committed at the kills: {[kill.batch for kill in stream.kills]}")
    print(f"  failed tasks: {stream.failed_tasks()}")


@pytest.mark.slow
def test_subscriptions_change_while_driver_and_workers_are_killed(crashing):
    random = Random(14)
    stream = crashing(files=16, kind="subscriptions")
    for _ in range(3):
        stream.kill_driver(random)
    running = stream.start()
    before = stream.failed_tasks()
    while stream.failed_tasks() < before + 3 and running.process.poll() is None:
        stream.kill_worker(running, random)
    running.finish()
    assert len(stream.kills) >= 4
    assert CatalogLog(stream.folder / driver.SET).latest() > 10  # it changed all the time
    report(stream, stream.check())
