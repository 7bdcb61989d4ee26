"""Matching on Spark: the same notes as in the process of the service, whatever happens to it.

Most of it is tried without Spark: a stream in this process does with its key groups what Spark does,
and may be stopped, repeated or begun anew between any two things that it does.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import ensue
from ensue.backends.spark.service_stream import STEP_SCHEMA, ResultFiles, StepFiles, create_folders
from ensue.errors import RunnerError, StateError
from ensue.operators.subscriptions.catalog.catalog_log import CatalogLog
from ensue.operators.subscriptions.subscription_loader import clear_set_cache
from ensue.runtime.tasks.task_state import StoredTask
from ensue.service.matching.spark_backend import SparkBackend, on_spark
from ensue.service.store import event_batches as batches
from ensue.service.store.journal import SERVICE_COUNTERS, read_counters
from support.service_key_groups import Here, answered, on
from support.services import HERE, LEFT, all_notes, matches, point, run, service
from support.task_caches import forget_live

QUIET = "!(A; 5)B, A = (ARITH:id = {id}), B = (ARITH:id = {id})"
PATTERN = "PATTERN SEQ(Any a, Any b) WHERE a.id = {id} AND b.id = {id} WITHIN 10"
NEAR = "=|(@(Depot)(A); 8)(@(Depot)(B)), A = (ARITH:id = {id}), B = (ARITH:id = 3)"
LEFT_IN_TIME = LEFT.format(id=1).replace("; 60)", "; 6 seconds)")
QUIET_IN_TIME = QUIET.format(id=2).replace("; 5)", "; 2 seconds)")
TEXTS = (LEFT, HERE, QUIET, PATTERN, NEAR)
OTHERS = ("change", "pause", "resume", "advance")  # they are not harmless when repeated
SUPPORT = str(Path(__file__).parents[1])
OUT_OF_ORDER = RunnerError("out of order")


# ------------------------------------------------------------------------------ without Spark


@pytest.fixture
def quick(monkeypatch):
    """A stream that has failed is started again at once."""
    monkeypatch.setattr("ensue.service.matching.spark_transport._FIRST_WAIT", 0.01)


# ------------------------------------------------------------------------------ scripts


def script(seed, steps=60, ordered=True):
    """What happens to a service: events, some late, ties among them, and subscriptions."""
    random = Random(seed)
    time, made, done = 0, 0, []
    for _ in range(steps):
        what = random.choice(("publish",) * 5 + ("subscribe",) * 2 + ("other",))
        if what == "publish":
            events = []
            for _ in range(random.choice((1, 1, 2, 5))):
                time += random.choice((0, 0, 1, 1, 2, 7))
                behind = random.choice((0, 0, 0, 1, 20)) if ordered else random.randrange(9)
                x = random.choice((5.0, 8.0, 50.0))
                events.append(point(max(0, time - behind), random.randrange(1, 4), x))
            done.append(("publish", events))
        elif what == "subscribe" or not made:
            done.append(("subscribe", random.choice(TEXTS).format(id=random.randrange(1, 4))))
            made += 1
        else:
            which = random.randrange(1, made + 1)
            what = random.choice(("cancel", "pause", "resume", "change", "advance"))
            text = random.choice(TEXTS[:3]).format(id=random.randrange(1, 4))
            if what == "advance":
                time += 4
            done.append((what, time if what == "advance" else which, text))
    return done


async def play(s, done):
    """Lets it happen."""
    for what, *rest in done:
        try:
            match what:
                case "publish":
                    await s.publish(rest[0])
                case "subscribe":
                    await s.subscribe(rest[0])
                case "change":
                    await s.change(rest[0], text=rest[1])
                case "advance":
                    newest = s.core.matching.newest
                    if newest is not None and rest[0] > newest:
                        await s.do(lambda db, to=rest[0]: s.core.advance(db, to))
                case _:
                    await getattr(s, what)(rest[0])
        except ensue.ServiceError:  # one that has ended already: so it is everywhere
            pass


async def told(s):
    """The notes of each subscription, in order; without when and under which number."""
    found = defaultdict(list)
    for note in await all_notes(s):
        found[note.subscription, note.kind == "match"].append({k: v for k, v in note.content.items() if k != "at"})
    return dict(found)


def in_process(path, done, **columns):
    async def story():
        async with service(path, **columns) as s:
            await play(s, done)
            return await told(s)

    return run(story)


# ------------------------------------------------------------------------------ the same notes


@pytest.mark.parametrize("watermark", [None, pytest.param(0, marks=pytest.mark.slow), 6])
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 4))])
def test_the_same_notes_as_in_process(tmp_path, quick, seed, watermark):
    done = script(seed, ordered=watermark is None)
    expected = in_process(tmp_path / "a.db", done, watermark=watermark)
    here = Here(key_groups=3, broken=OUT_OF_ORDER)

    async def story():
        async with service(tmp_path / "b.db", watermark=watermark, matching=on(here)) as s:
            await play(s, done[:40])  # these are matched together, the others as they come
            here.broken = None
            await play(s, done[40:])
            await answered(s)
            return await told(s)

    assert run(story) == expected
    assert any(kind for _, kind in expected), "nothing was found"
    assert max(here.parcels) > 1, "no two steps were matched together"


def test_the_same_notes_with_times_of_the_calendar(tmp_path):
    """Times in microseconds, and another column that decides between events of one time."""
    schema = {"t": pa.timestamp("us", "UTC"), "n": pa.int64(), "id": pa.int64()}
    schema |= {"x": pa.float64(), "y": pa.float64()}
    columns = {"schema": pa.schema(schema), "order": "n", "watermark": "3 seconds"}
    random = Random(7)
    begin = datetime(2026, 1, 5, 8, tzinfo=UTC)
    done = [("subscribe", text) for text in (LEFT_IN_TIME, QUIET_IN_TIME)]
    for k in range(60):
        at = begin + timedelta(milliseconds=500 * (k // 2) - random.randrange(2_500))
        event = point(0, random.randrange(1, 3), random.choice((5.0, 50.0)))
        done.append(("publish", [event | {"t": at, "n": random.randrange(9)}]))
    done.append(("advance", (begin + timedelta(minutes=2)).timestamp()))
    expected = in_process(tmp_path / "a.db", done, **columns)

    async def story():
        async with service(tmp_path / "b.db", matching=on(Here()), **columns) as s:
            await play(s, done)
            await answered(s)
            return await told(s)

    assert run(story) == expected
    assert {s for s, found in expected if found} == {1, 2}


@pytest.mark.slow
def test_a_micro_batch_that_is_repeated_changes_nothing(tmp_path):
    done = script(11)
    expected = in_process(tmp_path / "a.db", done)
    random = Random(1)
    here = Here(lose=lambda: random.random() < 0.6)

    async def story():
        async with service(tmp_path / "b.db", matching=on(here)) as s:
            for piece in range(0, len(done), 6):
                await play(s, done[piece : piece + 6])
                await answered(s)
            doubled = (await s.look(lambda db: read_counters(db, SERVICE_COUNTERS))).get("doubled", 0)
            return await told(s), doubled

    assert run(story) == (expected, 0)
    assert here.repeated > 3


@pytest.mark.parametrize("seconds", [0.0, pytest.param(86_400.0, marks=pytest.mark.slow)])
def test_it_goes_on_where_it_was_stopped(tmp_path, seconds):
    done = script(12, steps=80, ordered=False)
    expected = in_process(tmp_path / "a.db", done, watermark=4)
    here = Here()

    async def story():
        for piece in range(0, len(done), 20):
            forget_live()
            async with service(
                tmp_path / "b.db", watermark=4, matching=on(here),
                limits={"snapshot_seconds": seconds},
            ) as s:  # fmt: skip
                await play(s, done[piece : piece + 20])
                await answered(s)
                await s.do(s.core.run_housekeeping)
                notes = await told(s)
                saved = (await s.look(batches.read_snapshot))[0]
        return notes, saved

    notes, saved = run(story)
    assert notes == expected
    assert (saved > 0) == (seconds == 0.0)


class Killed(BaseException):
    """Nothing is done behind it."""


class Kills:
    """Lets whoever carries things die in between, at a random point."""

    def __init__(self, monkeypatch, seed):
        self.random = Random(seed)
        self.left = 6
        self.until = self.random.randrange(1, 20)
        self.get_counters = []
        for owner, name in (
            (StepFiles, "put"), (ResultFiles, "put"), (CatalogLog, "append"), (SparkBackend, "_deliver"),
            (StepFiles, "forget"), (StoredTask, "keep"),
        ):  # fmt: skip
            monkeypatch.setattr(owner, name, self.between(getattr(owner, name)))
        monkeypatch.setattr("threading.excepthook", lambda args: None)

    def between(self, work):
        def done(*given, **named):
            self.point(f"before {work.__qualname__}")
            found = work(*given, **named)
            self.point(f"behind {work.__qualname__}")
            return found

        return done

    def point(self, where):
        self.until -= 1
        if self.left and self.until <= 0:
            self.left -= 1
            self.until = self.random.randrange(1, 20)
            self.get_counters.append(where)
            raise Killed


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 5))])
def test_a_kill_at_any_point_loses_and_doubles_nothing(tmp_path, monkeypatch, seed):
    done = script(seed + 20, steps=80, ordered=False)
    expected = in_process(tmp_path / "a.db", done, watermark=3)
    here = Here()
    kills = Kills(monkeypatch, seed)

    async def some(left):
        """Goes on until it is killed; whether it was not."""
        forget_live()
        async with service(tmp_path / "b.db", watermark=3, matching=on(here)) as s:
            pump, progress = s.core.matching._pump, s.core.matching.progress
            while left and pump.alive:
                await play(s, [left.pop(0)])
                await asyncio.sleep(0.001)
            while pump.alive and progress.delivered < await s.look(batches.get_last_position):
                await asyncio.sleep(0.01)
            if not pump.alive:
                s.core.matching._pump = None  # nobody is left to close anything
                return None
            doubled = (await s.look(lambda db: read_counters(db, SERVICE_COUNTERS))).get("doubled", 0)
            return await told(s), doubled

    async def story():
        left = list(done)
        while (found := await some(left)) is None:
            pass
        return found

    assert run(story) == (expected, 0)
    assert kills.get_counters


# ------------------------------------------------------------------------------ what is said


def test_started_and_ended_are_told_once_and_at_once(tmp_path):
    here = Here(broken=OUT_OF_ORDER)

    async def story():
        async with service(tmp_path / "a.db", matching=on(here)) as s:
            await s.publish(point(3, 1, 5.0))
            made = await s.subscribe(HERE.format(id=1))
            await s.publish(point(4, 1, 5.0))
            await s.cancel(made.id)
            return made.started["moment"], [note.kind for note in await all_notes(s)]

    assert run(story) == (3, ["started", "ended"])

    async def later():
        async with service(tmp_path / "a.db", matching=on(here)) as s:
            await answered(s)
            return [note.kind for note in await all_notes(s)]

    here.broken = None
    # the event came before the end, so it counts
    assert run(later) == ["started", "ended", "match"]


def test_late_events_are_counted_also_by_subscription(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", watermark=5, matching=on(Here())) as s:
            one = await s.subscribe(HERE.format(id=1))
            two = await s.subscribe(LEFT.format(id=2))
            await s.publish([point(100, 3, 0.0)])
            came = await s.publish([point(96, 1, 0.0), point(1, 1, 0.0), point(2, 2, 0.0)])
            three = await s.subscribe(HERE.format(id=2))
            await s.cancel(one.id)
            again = await s.publish([point(1, 1, 0.0), point(2, 2, 0.0)])
            counts = [await s.look(partial(read_counters, subscription=n.id)) for n in (one, two, three)]
            late = [count.get("late", 0) for count in counts]
            return (came.accepted, came.late), again.late, late

    assert run(story) == ((1, 2), 2, [1, 2, 1])


def test_a_stream_that_fails_is_said_and_started_again(tmp_path, quick):
    here = Here(broken=OUT_OF_ORDER)

    async def story():
        async with service(tmp_path / "a.db", matching=on(here)) as s:
            await s.subscribe(HERE.format(id=1))
            await s.publish(point(1, 1, 0.0))
            matching = s.core.matching
            while matching.trouble is None:
                await asyncio.sleep(0.01)
            trouble, notes = matching.trouble, await matches(s)
            here.broken = None
            await answered(s)
            counts = matching.counters()
            return trouble, len(notes), len(await matches(s)), counts["stream_failures"] > 0

    assert run(story) == ("out of order", 0, 1, True)


def test_counters_say_what_key_groups_hold_and_how_far_they_are(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", watermark=2, matching=on(Here())) as s:
            await s.subscribe(LEFT.format(id=1))
            await s.publish([point(1, 1, 5.0), point(4, 1, 5.0)])
            await answered(s)
            matching = s.core.matching
            assert (matching.now, matching.decided, matching.newest) == (2.0, 2.0, 4.0)
            assert "subscriptions   1" in await s.explain()
            return matching.counters(), (await s.health())["watermark"]

    counts, watermark = run(story)
    assert counts["state_bytes"] > 0
    assert (counts["partial_matches"], counts["events_waiting"], watermark) == (1, 1, 2)


# ------------------------------------------------------------------------------ what is refused


async def some_events(s):
    await s.subscribe(HERE.format(id=1))
    await s.publish(point(1, 1, 0.0))


def test_a_file_that_was_matched_in_process_is_not_handed_over(tmp_path):
    async def first():
        async with service(tmp_path / "a.db") as s:
            await some_events(s)

    async def second():
        async with service(tmp_path / "a.db", matching=on(Here())):
            pass

    run(first)
    with pytest.raises(StateError, match="matched in the process"):
        run(second)


def test_a_file_that_was_matched_on_spark_is_not_handed_over(tmp_path):
    async def first():
        async with service(tmp_path / "a.db", matching=on(Here()), limits={"snapshot_seconds": 0.0}) as s:
            await some_events(s)
            await answered(s)

    async def second():
        async with service(tmp_path / "a.db"):
            pass

    run(first)
    with pytest.raises(StateError):
        run(second)


def test_the_file_and_the_folder_of_its_stream_belong_together(tmp_path):
    path, here = tmp_path / "a.db", Here()

    async def story():
        async with service(path, matching=on(here)) as s:
            await some_events(s)
            await answered(s)

    async def opened():
        async with service(path, matching=on(here)):
            pass

    async def more():
        async with service(path, matching=on(here)) as s:
            await s.publish(point(2, 1, 0.0))
            await answered(s)

    run(story)
    shutil.copyfile(path, tmp_path / "old.db")
    run(more)
    shutil.copyfile(path, tmp_path / "new.db")
    shutil.copyfile(tmp_path / "old.db", path)
    with pytest.raises(StateError, match="is ahead of the database"):
        run(opened)
    shutil.copyfile(tmp_path / "new.db", path)
    run(opened)
    shutil.rmtree(tmp_path / "a.db-spark")
    with pytest.raises(StateError, match="is missing"):
        run(opened)


def test_the_number_of_key_groups_stays(tmp_path):
    async def story(key_groups):
        async with service(tmp_path / "a.db", matching=on(Here(key_groups))):
            pass

    run(partial(story, 2))
    with pytest.raises(StateError, match=r"has 2 key groups, not 3"):
        run(partial(story, 3))


def test_steps_that_are_missing_are_noticed(tmp_path):
    create_folders(tmp_path)
    files, step = StepFiles(tmp_path), pa.table([["{}"], [b""]], schema=STEP_SCHEMA)
    for after, last in ((0, 3), (3, 5), (7, 9)):
        files.put(after, last, step)
    assert len(files.between(0, 5)) == 2
    assert len(files.between(3, 5)) == 1  # the stream had the others
    assert not files.between(9, 9)
    with pytest.raises(StateError, match="the steps after 5 up to 9 are missing"):
        files.between(3, 9)
    files.forget(3)
    with pytest.raises(StateError, match="the steps after 0 up to 5 are missing"):
        files.between(0, 5)


# ------------------------------------------------------------------------------ how much


def test_events_are_kept_until_they_were_sent(tmp_path, quick):
    here = Here(broken=OUT_OF_ORDER)

    async def story():
        limits = {"retention": 0.0, "snapshot_seconds": 0.0}
        async with service(tmp_path / "a.db", matching=on(here), limits=limits) as s:
            await s.subscribe(HERE.format(id=1))
            for t in range(4):
                await s.publish(point(t, 1, 0.0))
            await s.do(s.core.run_housekeeping)
            kept = (await s.health())["position"], len(await s.look(all_batches))
            here.broken = None
            await answered(s)
            await s.publish(point(5, 1, 0.0))  # with the next parcel it is noted what was sent
            await answered(s)
            await s.do(s.core.run_housekeeping)
            return kept, len(await s.look(all_batches)), s.core.matching.counters()

    kept, left, counts = run(story)
    assert kept == (4, 4)
    assert left < 4
    assert counts["steps_delivered"] == 5


def all_batches(db):
    return list(batches.read_batches_after(db, 0))


def test_many_steps_and_changes_are_matched_together(tmp_path, quick):
    here = Here(broken=OUT_OF_ORDER)

    async def story():
        async with service(tmp_path / "a.db", matching=on(here)) as s:
            for k in range(30):
                made = await s.subscribe(HERE.format(id=1))
                await s.publish(point(k, 1, 0.0))
                await s.cancel(made.id)
            here.broken = None
            await answered(s)
            return len(await matches(s))

    assert run(story) == 30
    assert here.parcels == [30]


def test_a_name_that_comes_again_begins_another_parcel(tmp_path, quick):
    here = Here(broken=OUT_OF_ORDER)

    async def story():
        async with service(tmp_path / "a.db", matching=on(here)) as s:
            made = await s.subscribe(HERE.format(id=1))
            for k in range(3):
                await s.publish(point(k, 1, 0.0))
                await s.pause(made.id)
                await s.publish(point(k, 1, 0.0))
                await s.resume(made.id)
            await s.change(made.id, text=HERE.format(id=2))
            await s.publish([point(9, 1, 0.0), point(9, 2, 0.0)])
            here.broken = None
            await answered(s)
            return [m["end"] for m in await matches(s)]

    assert run(story) == [0, 1, 2, 9]
    assert here.parcels == [2, 2, 2, 1]


def test_a_large_set_is_opened_from_its_snapshot(tmp_path, monkeypatch):
    monkeypatch.setattr("ensue.operators.subscriptions.catalog.catalog_snapshots.MIN_CHANGES", 20)
    here = Here()

    async def story():
        async with service(tmp_path / "a.db", matching=on(here)) as s:
            some = [{"text": HERE.format(id=k)} for k in range(40)]
            made = await s.subscribe_all(some)
            await s.publish([point(1, 1, 0.0), point(1, 2, 0.0)])
            await s.cancel(made[2].id)
            await s.publish([point(2, 1, 0.0), point(2, 2, 0.0)])
            await answered(s)
            clear_set_cache()  # as another process, which has not made it ready yet
            await s.publish([point(3, 1, 0.0), point(3, 2, 0.0)])
            await answered(s)
            return [(m["end"], m["subscription"]) for m in await matches(s)]

    assert sorted(run(story)) == [(1, 2), (1, 3), (2, 2), (3, 2)]
    assert any((tmp_path / "a.db-spark" / "subscriptions" / "snapshots").iterdir())


@pytest.mark.slow
def test_a_key_group_goes_on_from_its_snapshot_and_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr("ensue.runtime.tasks.task_state.SMALL", 2_000)
    done = script(31, steps=60)
    expected = in_process(tmp_path / "a.db", done)
    here = Here()

    async def story():
        async with service(tmp_path / "b.db", matching=on(here)) as s:
            for piece in range(0, len(done), 4):
                await play(s, done[piece : piece + 4])
                await answered(s)
                forget_live()
            return await told(s)

    assert run(story) == expected
    heads = [store.head() for store in here.stores]
    assert any(head.parts for head in heads)
    assert any(head.entries for head in heads)


# ------------------------------------------------------------------------------ on Spark


@pytest.mark.spark
def test_the_same_notes_on_spark(tmp_path, spark):
    done = [op for op in script(41, steps=50, ordered=False) if op[0] not in OTHERS]
    expected = in_process(tmp_path / "a.db", done, watermark=3)

    async def story():
        matching = on_spark(spark, key_groups=2)
        for piece in (done[:30], done[30:]):
            async with service(tmp_path / "b.db", watermark=3, matching=matching) as s:
                await play(s, piece)
                await answered(s, 400.0)
                notes = await told(s)
        return notes

    assert run(story, 600.0) == expected
    assert {what for what, *_ in done} == {"publish", "subscribe", "cancel"}


KILLED = """
import asyncio, json, sys
from support.services import run, service
from ensue.service.matching.spark_backend import on_spark
from ensue.service.store import event_batches as batches

path, first, done = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])

async def story():
    matching = on_spark(key_groups=2, **{"spark.driver.memory": "1g"})
    async with service(path, watermark=3, matching=matching) as s:
        print("ready", flush=True)
        for number, (what, *rest) in enumerate(done[first:], first):
            if what == "publish":
                await s.publish(rest[0], producer="p", sequence=100 * number)
            elif what == "subscribe":
                await s.subscribe(rest[0], idempotency_key=f"k{number}")
            elif what == "cancel":
                await s.cancel(rest[0])
            print("done", number, flush=True)
            await asyncio.sleep(0.2)
        while s.core.matching.progress.delivered < await s.look(batches.get_last_position):
            await asyncio.sleep(0.05)
        print("over", flush=True)

run(story, 600)
"""


@pytest.mark.slow
@pytest.mark.spark
def test_a_service_on_spark_that_is_killed_loses_and_doubles_nothing(tmp_path):
    done = [op for op in script(51, steps=90, ordered=False) if op[0] not in OTHERS]
    expected = in_process(tmp_path / "a.db", done, watermark=3)
    random, first, kills = Random(5), 0, 0
    over = False
    while not over:
        with subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", KILLED, str(tmp_path / "b.db"), str(first),
             json.dumps(done)],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": SUPPORT},
        ) as process:  # fmt: skip
            begun, most = first, random.randrange(3, 25)
            for line in process.stdout:
                match line.split():
                    case ["done", number]:
                        first = int(number) + 1
                    case ["over"]:
                        over = True
                if kills < 4 and (first - begun >= most or first == len(done)) and not over:
                    time.sleep(random.random())
                    process.kill()
                    kills += 1
                    break
            else:
                assert process.wait() == 0
    assert kills == 4

    async def story():
        async with service(tmp_path / "b.db", watermark=3, matching=on(Unused())) as s:
            return await told(s), (await s.look(lambda db: read_counters(db, SERVICE_COUNTERS))).get("doubled", 0)

    assert run(story) == (expected, 0)


class Unused(Here):
    """Nothing is left to be matched."""

    def failure(self):
        return None


CONNECTED = """
import asyncio, sys
from pyspark.sql import SparkSession
from support.services import LEFT, matches, point, run, service
from ensue.service.matching.spark_backend import on_spark
from ensue.service.store import event_batches as batches

session = (
    SparkSession.builder.remote("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .getOrCreate()
)
assert type(session).__module__.startswith("pyspark.sql.connect"), type(session)

async def story():
    async with service(sys.argv[1], matching=on_spark(session)) as s:
        await s.subscribe(LEFT.format(id=1))
        for t, x in ((1, 5.0), (10, 50.0)):
            await s.publish(point(t, 1, x))
            while s.core.matching.progress.delivered < await s.look(batches.get_last_position):
                await asyncio.sleep(0.1)
        print("ANSWER", [(m["start"], m["end"]) for m in await matches(s)])

run(story, 400)
session.stop()
"""


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.connect
def test_the_service_may_be_a_client_of_spark_connect(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CONNECTED, str(tmp_path / "a.db")],
        env=os.environ | {"PYTHONPATH": SUPPORT, "PYSPARK_PYTHON": sys.executable},
        capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert "ANSWER [(1, 10)]" in ran.stdout, ran.stderr[-2_000:]
