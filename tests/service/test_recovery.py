"""A service that is stopped at any point goes on as if it had not been."""

import random
import sqlite3
from pathlib import Path

import pytest

import ensue
from ensue.service.store import event_batches as batches
from ensue.service.store.journal import read_counters
from ensue.service.store.outbox import prune_notifications
from support.services import HERE, LEFT, POINTS, all_notes, crashed, matches, point, run, service

TEXTS = (
    HERE, LEFT,
    "!(A; 7)(ARITH:id = {id}, ARITH:x > 20), A = (ARITH:id = {id}, ARITH:x < 20)",
    "=|($a;; 20)($b;), $a; = (ARITH:id = {id}), $b; = (ARITH:id = $a;.id) WITH select = once",
    "PATTERN SEQ(Any a, Any b) WHERE a.id = {id} AND b.id = {id} AND a.x < b.x WITHIN 9",
)  # fmt: skip


def a_story(seed):
    """What happens to a service: publishes, changes of the set, time that passes, crashes."""
    chance = random.Random(seed)
    t, sequence, made, steps = 0, 0, 0, []
    for _ in range(40):
        kind = chance.choices(
            ["publish", "subscribe", "cancel", "pause", "resume", "change", "crash", "house"], [10, 3, 1, 1, 1, 1, 3, 1]
        )[0]
        if kind == "publish":
            events = []
            for _ in range(chance.randrange(1, 6)):
                t += chance.randrange(4)
                events.append(point(t, chance.randrange(3), float(chance.randrange(0, 60, 5))))
            steps.append(("publish", events, sequence, chance.random() < 0.3))
            sequence += len(events)
        elif kind in ("subscribe", "change"):
            steps.append((kind, chance.choice(TEXTS).format(id=chance.randrange(3)), made))
            made += kind == "subscribe"
        else:
            steps.append((kind, chance.randrange(1, 99)))
    return steps


async def lived(folder: Path, steps, crashes: bool):
    """The matches that a service told, and what was asked of it between which events."""
    path = folder / "0.db"
    limits = {"snapshot_events": 7, "snapshot_seconds": 1e9}
    s = await service(path, limits=limits).start()
    count, accepted, spans, states = 0, [], {}, {}
    for number, (kind, *given) in enumerate(steps):
        ids = sorted(states)
        if kind == "publish":
            events, sequence, twice = given
            for _ in range(1 + twice):
                came = await s.publish(events, producer="p", sequence=sequence)
            accepted += events
            assert came.accepted == (0 if twice else len(events))
        elif kind == "subscribe":
            made = await s.subscribe(given[0])
            spans[made.id, number] = [given[0], len(accepted), None]
            states[made.id] = "active", number
        elif kind == "house":
            await s.do(s.core.run_housekeeping)
        elif kind == "crash":
            if crashes:
                count += 1
                copied = crashed(path, folder / f"{count}.db")
                await s.close()
                path = copied
                s = await service(path, limits=limits).start()
        elif ids:
            id = ids[given[0] % len(ids)] if kind != "change" else ids[-1]
            state, since = states[id]
            if kind in ("cancel", "pause", "change") and state == "active":
                spans[id, since][2] = len(accepted)
                states[id] = "paused", since
            if kind == "cancel":
                await s.cancel(id)
                del states[id]
            elif kind == "pause":
                await s.pause(id)
            elif kind == "resume" and state == "paused":
                text = (await s.resume(id)).text
                spans[id, number] = [text, len(accepted), None]
                states[id] = "active", number
            elif kind == "change" and state == "active":
                await s.change(id, text=given[0])
                spans[id, number] = [given[0], len(accepted), None]
                states[id] = "active", number
    told = [(note.number, note.kind, note.match_id) for note in await all_notes(s)]
    found = await matches(s)
    await s.close()
    return told, found, accepted, spans


def expected(accepted, spans):
    """What each subscription finds alone in the events between its start and its end."""
    found = set()
    for (id, _), (text, first, last) in spans.items():
        fleet = ensue.Subscriptions(
            time="t", location=("x", "y"),
            regions={"Depot": "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"},
        )  # fmt: skip
        fleet.add(str(id), text)
        live = ensue.live(fleet, schema=POINTS)
        events = accepted[first:last]
        if events:
            found |= set(live.feed(events)["match_id"].to_pylist())
    return found


@pytest.mark.parametrize("seed", range(3))
def test_crashes_change_nothing(tmp_path, seed):
    check(tmp_path, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 80))
def test_many_crashes_change_nothing(tmp_path, seed):
    check(tmp_path, seed)


def check(tmp_path, seed):
    async def story():
        steps = a_story(seed)
        for name in "ab":
            (tmp_path / name).mkdir()
        without = await lived(tmp_path / "a", steps, crashes=False)
        with_crashes = await lived(tmp_path / "b", steps, crashes=True)
        assert [told[1:] for told in with_crashes[0]] == [told[1:] for told in without[0]]
        assert with_crashes[1] == without[1]
        ids = [m["match_id"] for m in without[1]]
        assert len(set(ids)) == len(ids)
        assert set(ids) == expected(*without[2:])

    run(story)


def test_matching_again_after_a_crash_begins_at_the_snapshot(tmp_path):
    async def story():
        limits = {"snapshot_events": 10, "snapshot_seconds": 1e9}
        async with service(tmp_path / "a.db", limits=limits) as s:
            for t in range(25):
                await s.publish(point(t, 1, 0.0))
                await s.do(s.core.run_housekeeping)
            copied = crashed(tmp_path / "a.db", tmp_path / "b.db")
        async with service(copied) as again:
            assert 0 < again.core.matching.replayed < 10
        async with service(tmp_path / "a.db") as s:
            assert s.core.matching.replayed == 0  # it was closed, not killed

    run(story)


def test_a_failed_commit_leaves_the_matcher_where_the_file_is(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            await s.subscribe(LEFT.format(id=1))
            await s.publish(point(1, 1, 5.0))
            keep = s.core.notification_builder.notify_matches

            def fails(db, found):
                raise sqlite3.OperationalError("database or disk is full")

            s.core.notification_builder.notify_matches = fails
            with pytest.raises(sqlite3.OperationalError):
                await s.publish(point(2, 1, 50.0))
            s.core.notification_builder.notify_matches = keep
            assert await matches(s) == []
            await s.publish(point(3, 1, 60.0))
            assert [(m["start"], m["end"]) for m in await matches(s)] == [(1, 3)]

    run(story)


def test_old_notes_and_events_go_and_a_token_from_before_gets_one_resync(tmp_path):
    async def story():
        limits = {"snapshot_events": 1}
        async with service(tmp_path / "a.db", limits=limits) as s:
            await s.subscribe(HERE.format(id=1))
            await s.publish([point(t, 1, 0.0) for t in range(5)])
            await s.do(s.core.run_housekeeping)
            newest = (await all_notes(s))[-1].number
            await s.do(lambda db: prune_notifications(db, s.core.clock() + 1))
            await s.do(lambda db: batches.prune_batches(db, s.core.clock() + 1, 1 << 40))
            assert await s.track(1) == []
            await s.publish(point(9, 1, 0.0))
            kinds = []
            async for note in s.notifications(after=1):
                kinds.append((note.kind, note.number))
                if note.kind == "match":
                    break
            assert kinds == [("resync", newest), ("match", newest + 1)]
            async for note in s.notifications(after=newest):  # nothing is gone behind this one
                assert note.kind == "match"
                break

    run(story)


def test_changes_that_others_have_undone_are_forgotten(tmp_path):
    async def story():
        limits = {"snapshot_events": 1, "snapshot_seconds": 1e9}
        async with service(tmp_path / "a.db", limits=limits) as s:
            made = await s.subscribe(HERE.format(id=1))
            for k in range(10):
                await s.change(made.id, text=HERE.format(id=k))
            await s.publish(point(1, 9, 0.0))
            await s.do(s.core.run_housekeeping)
            rows = await s.look(lambda db: db.execute("SELECT count(*) FROM changes").fetchone())
            assert rows[0] == 1
            copied = crashed(tmp_path / "a.db", tmp_path / "b.db")
        async with service(copied) as s:
            await s.publish([point(2, 9, 0.0), point(3, 1, 0.0)])
            assert [m["end"] for m in await matches(s)] == [1, 2]

    run(story)


def test_notes_that_go_before_they_were_delivered_are_counted(tmp_path):
    async def story():
        limits = {"allow": ("127.0.0.0/8",)}
        async with service(tmp_path / "a.db", limits=limits) as s:
            url = {"url": "http://127.0.0.1:9/nobody-listens"}
            made = await s.subscribe(HERE.format(id=1), targets=[{"kind": "webhook", "config": url}])
            await s.publish([point(t, 1, 0.0) for t in range(50)])
            await s.do(lambda db: prune_notifications(db, s.core.clock() + 1))
            counts = await s.look(lambda db: read_counters(db, made.id))
            assert counts["expired"] == 51  # with the one that says that it started
            assert await all_notes(s) == []

    run(story)
