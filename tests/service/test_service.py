"""The embedded service: events in, notes out."""

import asyncio
import json

import pyarrow as pa
import pytest

import ensue
from ensue.service.errors import ConflictError, IntakeStoppedError, NotFoundError, OverLimitError
from ensue.service.service import Service
from ensue.service.store.journal import SERVICE_COUNTERS, read_counters
from support.services import HERE, LEFT, all_notes, matches, point, run, service


def test_a_match_is_told_with_its_events(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            made = await s.subscribe(LEFT.format(id=1), name="left")
            await s.publish([point(1, 1, 5.0), point(2, 2, 50.0), point(10, 1, 50.0)])
            started, found = await all_notes(s)
            assert (started.kind, started.subscription) == ("started", made.id)
            assert found.content == {
                "kind": "match",
                "subscription": made.id,
                "name": "left",
                "match_id": found.match_id,
                "start": 1,
                "end": 10,
                "location": "LINESTRING (5 5, 50 5)",
                "members": [point(1, 1, 5.0), point(10, 1, 50.0)],
            }

    run(story)


def test_notifications_go_on_behind_a_token_and_then_live(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            await s.subscribe(HERE.format(id=1))
            await s.publish([point(1, 1, 0.0), point(2, 1, 0.0)])
            seen = []
            async for note in s.notifications(after=2):
                seen.append(note.number)
                if len(seen) == 1:
                    await s.publish(point(3, 1, 0.0))
                if len(seen) == 2:
                    break
            assert seen == [3, 4]

    run(story)


def test_a_subscription_sees_events_from_when_it_was_made(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            await s.publish(point(1, 1, 5.0))
            made = await s.subscribe(LEFT.format(id=1))
            assert made.started["moment"] == 1
            await s.publish(point(2, 1, 50.0))
            assert await matches(s) == []
            await s.publish([point(3, 1, 5.0), point(4, 1, 50.0)])
            assert [(m["start"], m["end"]) for m in await matches(s)] == [(3, 4)]

    run(story)


# -------------------------------------------------------------------------------- events in


def test_repeats_of_a_producer_are_dropped_one_by_one(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            await s.subscribe(HERE.format(id=1))
            events = [point(t, 1, 0.0) for t in range(6)]
            first = await s.publish(events[:4], producer="p", sequence=10)
            again = await s.publish(events[2:], producer="p", sequence=12)
            assert (first.accepted, first.repeated) == (4, 0)
            assert (again.accepted, again.repeated) == (2, 2)
            assert [m["end"] for m in await matches(s)] == [0, 1, 2, 3, 4, 5]
            assert await s.position("p") == 16
            other = await s.publish(point(6, 1, 0.0), producer="q", sequence=0)
            assert other.accepted == 1

    run(story)


def test_numbers_may_have_gaps_and_events_of_one_message_have_its_number(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            events = [point(t, 1, 0.0) for t in range(3)]
            came = await s.publish(events, producer="p", sequences=[5, 9, 9])
            assert (came.accepted, came.repeated) == (3, 0)
            assert await s.position("p") == 10
            again = await s.publish(events, producer="p", sequences=[5, 9, 10])
            assert (again.accepted, again.repeated) == (1, 2)

    run(story)


def test_bad_events_are_put_aside_and_the_others_count(tmp_path):
    body = b"\n".join(
        [
            b'{"t": 1, "id": 1, "x": 5, "y": 5}',
            b'{"t": 2, "id": ',
            b"[1, 2]",
            b'{"t": "soon", "id": 1}',
            b'{"t": 3, "nme": 1}',
            b'{"id": 1}',
            b'{"t": 4, "id": 1}',
        ]
    )

    async def story():
        async with service(tmp_path / "a.db") as s:
            came = await s.publish(body, producer="p", sequence=0)
            assert (came.accepted, came.bad) == (2, 5)
            again = await s.publish(body, producer="p", sequence=0)
            assert (again.accepted, again.bad, again.repeated) == (0, 0, 7)
            rows = await s.look(lambda db: db.execute("SELECT reason, event FROM bad_events").fetchall())
            reasons = " / ".join(row["reason"] for row in rows)
            for part in ("not JSON:", "not a JSON object", "t='soon'", "'nme'", "no usable time"):
                assert part in reasons
            assert any('"nme"' in row["event"] for row in rows)

    run(story)


def test_late_events_are_counted_also_for_the_subscriptions_they_would_have_mattered_to(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", watermark=5) as s:
            one = await s.subscribe(HERE.format(id=1))
            two = await s.subscribe(LEFT.format(id=2))
            pattern = await s.subscribe(
                "PATTERN SEQ(Any a, Any b) WHERE a.id = 1 AND b.id = 1 WITHIN 10", language="patterns"
            )
            await s.publish([point(100, 3, 0.0)])
            came = await s.publish([point(96, 1, 0.0), point(1, 1, 0.0), point(2, 2, 0.0)])
            assert (came.accepted, came.late) == (1, 2)
            found = {
                sub.id: (await s.look(lambda db, sub=sub: read_counters(db, sub.id))).get("late", 0)
                for sub in (one, two, pattern)
            }
            assert found == {one.id: 1, two.id: 1, pattern.id: 1}

    run(story)


def test_publishers_at_a_time_get_their_own_answers(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            await s.subscribe(HERE.format(id=1))
            came = await asyncio.gather(
                *(s.publish([point(7, 1, float(k))] * (k % 3)) for k in range(60)),
                s.publish([{"t": "x"}]),
                return_exceptions=True,
            )
            assert [one.accepted for one in came[:-1]] == [k % 3 for k in range(60)]
            assert came[-1].bad == 1

    run(story)


@pytest.mark.parametrize(
    ("events", "says"),
    [(pa.table({"t": [1]}), "no column 'id'"), (pa.table({"q": [1]}), "no column 'q'"), (b"ARROW1", "not JSON")],
)
def test_a_table_that_does_not_fit_is_refused_as_a_whole(tmp_path, events, says):
    async def story():
        async with service(tmp_path / "a.db") as s:
            if isinstance(events, bytes):
                with pytest.raises(ensue.EventError, match="not an Arrow stream"):
                    await s.publish(events, media="application/vnd.apache.arrow.stream")
            else:
                with pytest.raises(ensue.EventError, match=says):
                    await s.publish(events)
            assert (await s.publish(point(1, 1, 1.0))).accepted == 1

    run(story)


def test_timestamps_come_as_texts_in_json(tmp_path):
    async def story():
        made = Service(tmp_path / "a.db", schema={"ts": pa.timestamp("us", "UTC"), "id": "string"}, time="ts")
        async with made as s:
            await s.subscribe("(STRING:id = 'a')")
            lines = ['{"ts": "2026-03-01T10:00:00Z", "id": "a"}',
                     '{"ts": "2026-03-01T12:30:00.250+01:00", "id": "a"}']  # fmt: skip
            await s.publish("\n".join(lines))
            assert [m["end"] for m in await matches(s)] == [
                "2026-03-01T10:00:00.000000Z",
                "2026-03-01T11:30:00.250000Z",
            ]

    run(story)


def test_an_idle_stream_follows_the_clock(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", idle=0.0) as s:
            await s.subscribe("!(A; 1)(ARITH:id = 9), A = (ARITH:id = 1)")
            await s.publish(point(100, 1, 0.0))
            async for note in s.notifications(after=0):
                if note.kind == "match":
                    assert note.content["end"] == 101
                    return

    run(story)


def test_without_room_on_the_disk_events_are_refused_and_notes_still_go_out(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", limits={"free_bytes": 1 << 60}) as s:
            several = (s.publish(point(t, 1, 1.0)) for t in range(5))
            for refused in await asyncio.gather(*several, return_exceptions=True):
                assert isinstance(refused, IntakeStoppedError), refused
                assert "the disk has" in str(refused)
            assert (await s.health())["events"] == 0
            assert (await s.health())["state"] == "intake stopped"
            made = await s.subscribe(HERE.format(id=1))
            assert [n.kind for n in await s.list_notifications(subscription=made.id)] == ["started"]

    run(story)


def test_too_many_events_at_once_are_refused(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", limits={"events_per_request": 2}) as s:
            with pytest.raises(OverLimitError, match="3 events"):
                await s.publish([point(1, 1, 1.0)] * 3)

    run(story)


# -------------------------------------------------------------------------------- subscriptions


def test_a_repeated_create_is_harmless(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            first = await s.subscribe(HERE.format(id=1), idempotency_key="k")
            again = await s.subscribe(HERE.format(id=1), idempotency_key="k")
            assert again.id == first.id
            assert again.repeated
            with pytest.raises(ConflictError, match="key 'k'"):
                await s.subscribe(HERE.format(id=2), idempotency_key="k")
            with pytest.raises(ConflictError, match="key 'k'"):
                await s.subscribe(HERE.format(id=1), quiet=5, idempotency_key="k")
            assert len(await s.subscriptions()) == 1

    run(story)


def test_a_text_that_cannot_be_matched_changes_nothing(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            for text, says in (
                ("@(Depto)(ARITH:id = 1)", "did you mean 'Depot'"),
                ("(ARITH:idd = 1)", "idd"),
                ("(ARITH:id = 1) && (ARITH:id = 2)", "WITH within"),
                ("", "needs a text"),
            ):
                with pytest.raises(ensue.QueryError, match=says):
                    await s.subscribe(text)
            assert await s.subscriptions() == []
            assert await all_notes(s) == []
            await s.subscribe(HERE.format(id=1))
            await s.publish(point(1, 1, 1.0))
            assert len(await matches(s)) == 1

    run(story)


def test_pause_resume_change_and_cancel_are_told(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            made = await s.subscribe(LEFT.format(id=1), name="one")
            await s.publish(point(1, 1, 5.0))
            assert (await s.pause(made.id)).state == "paused"
            await s.publish(point(2, 1, 50.0))
            assert (await s.resume(made.id)).state == "active"
            await s.publish(point(3, 1, 50.0))  # what it had seen is forgotten
            await s.change(made.id, text=HERE.format(id=7), name="two")
            await s.publish(point(4, 7, 0.0))
            ended = await s.cancel(made.id)
            assert (ended.state, ended.reason) == ("ended", "cancelled")
            await s.publish(point(5, 7, 0.0))
            told = [(n.kind, n.content.get("reason"), n.content["name"]) for n in await all_notes(s)]
            assert told == [
                ("started", None, "one"),
                ("ended", "paused", "one"),
                ("started", None, "one"),
                ("started", None, "two"),
                ("match", None, "two"),
                ("ended", "cancelled", "two"),
            ]
            with pytest.raises(ConflictError, match="has ended"):
                await s.resume(made.id)
            with pytest.raises(NotFoundError):
                await s.cancel(999)

    run(story)


def test_a_name_is_used_once_at_a_time(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            made = await s.subscribe(HERE.format(id=1), name="a")
            with pytest.raises(ConflictError, match="already have a subscription 'a'"):
                await s.subscribe(HERE.format(id=2), name="a")
            await s.cancel(made.id)
            await s.subscribe(HERE.format(id=2), name="a")
            await s.publish([point(1, 1, 0.0), point(2, 2, 0.0)])
            assert [m["end"] for m in await matches(s)] == [2]

    run(story)


def test_a_subscription_expires_and_says_so(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            made = await s.subscribe(HERE.format(id=1), expires=0.0)
            async for note in s.notifications(after=0):
                if note.kind == "ended":
                    assert note.content["reason"] == "expired"
                    break
            assert (await s.subscription(made.id)).state == "ended"
            assert (await s.look(lambda db: read_counters(db, made.id)))["expired"] == 1

    run(story)


def test_many_are_added_at_once_or_none(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", limits={"subscriptions_per_user": 5}) as s:
            made = await s.subscribe_all({"text": HERE.format(id=k)} for k in range(5))
            assert [m.name for m in made] == [f"subscription {m.id}" for m in made]
            with pytest.raises(OverLimitError, match="at most 5 subscriptions"):
                await s.subscribe(HERE.format(id=9))
            await s.cancel(made[0].id)
            with pytest.raises(ensue.QueryError):
                await s.subscribe_all([{"text": HERE.format(id=9)}, {"text": "(((("}])
            assert len(await s.subscriptions()) == 4
            await s.publish([point(k, k, 0.0) for k in range(10)])
            assert [m["end"] for m in await matches(s)] == [1, 2, 3, 4]

    run(story)


def test_corners_are_counted_against_a_quota(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", limits={"corners_per_user": 8}) as s:
            await s.subscribe(LEFT.format(id=1))
            with pytest.raises(OverLimitError, match="10"):
                await s.subscribe(LEFT.format(id=2))

    run(story)


# -------------------------------------------------------------------------------- against noise


def test_a_quiet_subscription_is_silent_about_an_object_for_a_while(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            made = await s.subscribe("(ARITH:id > 0)", quiet=10)
            await s.publish([point(1, 1, 0.0), point(2, 2, 0.0), point(5, 1, 0.0)])
            await s.publish([point(10, 1, 0.0), point(11, 1, 0.0), point(13, 2, 0.0)])
            found = [(m["end"], m["members"][0]["id"]) for m in await matches(s)]
            assert found == [(1, 1), (2, 2), (11, 1), (13, 2)]
            counts = await s.look(lambda db: read_counters(db, made.id))
            assert (counts["matches"], counts["quiet"]) == (6, 2)

    run(story)


def test_what_is_beyond_a_users_notes_a_minute_is_counted_by_subscription(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", limits={"notes_per_minute": 3}) as s:
            made = await s.subscribe(HERE.format(id=1))
            await s.publish([point(t, 1, 0.0) for t in range(5)])
            await s.publish(point(6, 1, 0.0))
            assert len(await matches(s)) == 3
            counts = await s.look(lambda db: read_counters(db, made.id))
            assert (counts["matches"], counts["throttled"]) == (6, 3)

    run(story)


# -------------------------------------------------------------------------------- looking


def test_a_trial_says_how_often_it_would_have_fired(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            await s.publish([point(t, t % 3, 0.0) for t in range(30)])
            found = await s.trial("(ARITH:id > 0)")
            assert (found.count, found.events, found.cut) == (20, 30, None)
            assert found.by_object == {"1": 10, "2": 10}
            assert sum(found.bars) == 20
            assert json.loads(found.matches[0])["end"] == 29
            assert (await s.trial("(ARITH:id > 0)", since=15)).count == 10
            assert await s.subscriptions() == []
            with pytest.raises(ensue.QueryError):
                await s.trial("(ARITH:idd > 0)")

    run(story)


def test_a_trial_that_fires_too_often_looks_at_the_newest_events_and_says_so(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", limits={"trial_matches": 50}) as s:
            await s.publish([point(t, 1, 0.0) for t in range(100)])
            found = await s.trial("(ARITH:id = 1)")
            assert found.events < 100
            assert "too many matches" in found.cut

    run(story)


def test_objects_and_their_tracks_are_known_again_after_a_restart(tmp_path):
    async def story():
        for again in (False, True):
            async with service(tmp_path / "a.db") as s:
                if not again:
                    await s.publish([point(1, 1, 1.0), point(2, 1, 2.0), point(2, 2, 9.0)])
                    await s.publish(point(3, 1, 3.0))
                found, moves = s.objects()
                assert {o["id"]: (o["x"], o["t"]) for o in found} == {1: (3.0, 3), 2: (9.0, 2)}
                assert s.objects(moves) == ([], moves)
                assert await s.track(1) == [[1, 1.0, 5.0], [2, 2.0, 5.0], [3, 3.0, 5.0]]
                assert await s.track(1, since=2, until=2) == [[2, 2.0, 5.0]]
                assert await s.track("nobody") == []

    run(story)


def test_a_match_is_replayed_with_the_tracks_around_it(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            await s.subscribe(LEFT.format(id=1))
            await s.publish([point(t, 1, 5.0 + t) for t in range(0, 45, 5)])
            note = (await all_notes(s))[1]
            found = await s.replay(note.number)
            assert found["members"] == note.content["members"]
            times = [t for t, _, _ in found["tracks"]["1"]]
            around = (found["end"] - found["start"]) / 4
            begin, end = found["start"] - around, found["end"] + around
            assert times == [t for t in range(0, 45, 5) if begin <= t <= end]
            with pytest.raises(NotFoundError):
                await s.replay(999)

    run(story)


def test_another_shape_of_a_region_reaches_subscriptions_only_if_asked_for(tmp_path):
    wide = "POLYGON ((0 0, 100 0, 100 100, 0 100, 0 0))"

    async def story():
        async with service(tmp_path / "a.db") as s:
            await s.put_region("Yard", "POLYGON ((0 0, 1 0, 1 1, 0 1, 0 0))")
            made = await s.subscribe("@(Yard)(ARITH:id = 1)")
            assert await s.put_region("Yard", wide) == []
            await s.publish(point(1, 1, 50.0))
            assert await matches(s) == []
            assert await s.put_region("Yard", DEPOT_WIDER, apply=True) == []  # it has the first
            await s.change(made.id, regions={"Yard": wide})
            assert await s.put_region("Yard", wide, apply=True) == []
            await s.publish(point(2, 1, 50.0))
            assert [m["end"] for m in await matches(s)] == [2]
            with pytest.raises(ensue.QueryError, match="not a valid region"):
                await s.put_region("a b", wide)
            with pytest.raises(ensue.QueryError, match="area"):
                await s.put_region("Yard", "POINT (1 2)")

    run(story)


DEPOT_WIDER = "POLYGON ((0 0, 200 0, 200 200, 0 200, 0 0))"


# -------------------------------------------------------------------------------- the file


def test_the_file_knows_what_its_events_look_like(tmp_path):
    async def story():
        async with service(tmp_path / "a.db"):
            pass
        async with Service(tmp_path / "a.db") as s:
            assert s.stream.key == "id"
        with pytest.raises(ensue.StateError, match="was created with key='id', not 'x'"):
            await service(tmp_path / "a.db", key="x").start()
        with pytest.raises(ensue.ServiceError, match="is new"):
            await Service(tmp_path / "b.db").start()
        with pytest.raises(ensue.EventError, match="'tt'"):
            await service(tmp_path / "b.db", time="tt").start()
        assert not (tmp_path / "b.db").exists()  # a mistake leaves nothing behind

    run(story)


def test_a_file_of_something_else_is_refused(tmp_path):
    async def story():
        (tmp_path / "a.db").write_bytes(b"not a database at all, but a text" * 99)
        with pytest.raises(ensue.StateError, match="cannot be opened"):
            await service(tmp_path / "a.db").start()
        import sqlite3

        other = sqlite3.connect(tmp_path / "b.db")
        other.execute("CREATE TABLE t (a)")
        other.commit()
        other.close()
        with pytest.raises(ensue.StateError, match="is not a database of a service"):
            await service(tmp_path / "b.db").start()

    run(story)


def test_whole_counters_add_up(tmp_path):
    async def story():
        async with service(tmp_path / "a.db") as s:
            await s.publish([point(1, 1, 1.0), {"t": None}], producer="p", sequence=0)
            await s.publish([point(1, 1, 1.0), {"t": None}], producer="p", sequence=0)
            found = await s.look(lambda db: read_counters(db, SERVICE_COUNTERS))
            assert (found["events"], found["events_bad"], found["events_repeated"]) == (1, 1, 2)

    run(story)
