"""A subscription that takes too much is paused; everybody else's matches are as without it."""

import json
import random

import pytest

import ensue
from ensue.engine.engine import Engine
from ensue.errors import LimitError
from ensue.service.errors import IntakeStoppedError
from ensue.service.store.journal import read_counters
from ensue.service.store.user_store import add_user
from support.http_service import web
from support.service_key_groups import Here, answered, on
from support.services import HERE, LEFT, POINTS, all_notes, crashed, matches, point, run, service

# Every subset of the events is a partial match.
GREEDY = "PATTERN SEQ(Any+ a[], Any b) WHERE b.id = 99 WITHIN 1000"
ALIKE = "PATTERN SEQ(Any+ a[], Any b) WHERE b.id = 98 WITHIN 1000"  # of the same shape
# Every pair of events is a partial match.
PAIRS = "=|(=|(A; 1000)B; 1000)(ARITH:id = 99), A = (ARITH:x >= 0), B = (ARITH:x >= 0)"
NEXT = "PATTERN SEQ(Any a, Any b) WHERE a.id = 1 AND b.id = 2 WITHIN 50"
SMALL = {"memory_per_user": 2_000_000, "matches_per_publish": 1_000}


def events_of(count, ids=3, first=0):
    chance = random.Random(count)
    return [point(first + t, 1 + t % ids, float(chance.randrange(0, 60, 5))) for t in range(count)]


def alone(texts, events):
    """What subscriptions find where nobody else is."""
    found = set()
    for id, text in texts.items():
        fleet = ensue.Subscriptions(
            time="t", location=("x", "y"),
            regions={"Depot": "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"},
        )  # fmt: skip
        fleet.add(str(id), text)
        live = ensue.live(fleet, schema=POINTS)
        found |= {m for e in events for m in live.feed(e)["match_id"].to_pylist()}
    return found


async def people(s):
    return await s.do(lambda db: [add_user(db, name) for name in ("ann", "bob")])


@pytest.mark.parametrize(
    ("greedy", "memory", "at_once"),
    [(GREEDY, 100_000, True), pytest.param(GREEDY, 100_000, False, marks=pytest.mark.slow), (PAIRS, 20_000, True)],
    ids=["a pattern, at once", "a pattern, one by one", "opsl"],
)
def test_a_subscription_that_holds_too_much_is_paused_and_others_go_on(tmp_path, greedy, memory, at_once):
    async def story():
        path = tmp_path / "a.db"
        limits = {"memory_per_user": memory}
        s = await service(path, limits=limits).start()
        ann, bob = await people(s)
        others = {}
        for text in (HERE.format(id=1), LEFT.format(id=1), NEXT):
            others[(await s.subscribe(text, user=bob)).id] = text
        bad = await s.subscribe(greedy, user=ann, name="greedy")
        events = events_of(80)
        if at_once:
            await s.publish(events)
        else:
            for one in events[:40]:
                await s.publish(one)
            await s.close()
            s = await service(path, limits=limits).start()
            for one in events[40:]:
                await s.publish(one)
        found = await s.subscription(bad.id, user=ann)
        assert found.state == "paused"
        assert "memory_per_user" in found.reason
        assert (await s.look(lambda db: read_counters(db, bad.id)))["paused"] == 1
        last = (await all_notes(s, user=ann))[-1].content
        assert (last["kind"], last["reason"]) == ("ended", f"paused: {found.reason}")
        assert {m["match_id"] for m in await matches(s, user=bob)} == alone(others, events)
        assert [n.kind for n in await all_notes(s, user=bob)].count("ended") == 0
        problems = (await s.health())["problems"]
        assert [p["kind"] for p in problems] == ["paused"]
        resumed = await s.resume(bad.id, user=ann)
        assert (resumed.state, resumed.reason) == ("active", None)
        await s.close()

    run(story)


def test_a_crash_before_or_behind_the_pause_changes_nothing(tmp_path):
    async def story():
        path = tmp_path / "a.db"
        limits = {**SMALL, "snapshot_events": 7}
        s = await service(path, limits=limits).start()
        ann, bob = await people(s)
        others = {(await s.subscribe(text, user=bob)).id: text for text in (LEFT.format(id=1), NEXT)}
        bad = await s.subscribe(GREEDY, user=ann)
        events = events_of(40)
        for number, one in enumerate(events):
            await s.publish(one, producer="p", sequence=number)
            if number % 9 == 4:
                path = crashed(path, tmp_path / f"{number}.db")
                await s.close()
                s = await service(path, limits=limits).start()
        assert (await s.subscription(bad.id, user=ann)).state == "paused"
        assert [n.kind for n in await all_notes(s, user=ann)].count("ended") == 1
        told = [m["match_id"] for m in await matches(s, user=bob)]
        assert len(told) == len(set(told))
        assert set(told) == alone(others, events)
        await s.close()

    run(story)


def test_of_subscriptions_that_share_an_engine_the_greedy_one_is_paused(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", limits=SMALL) as s:
            ann, bob = await people(s)
            bad = await s.subscribe(GREEDY, user=ann)
            many = [(await s.subscribe(ALIKE, user=ann)).id for _ in range(3)]
            good = await s.subscribe(f"{ALIKE}", user=bob)
            await s.pause(good.id, user=bob)
            await s.publish(events_of(8))
            await s.resume(good.id, user=bob)  # it has seen less than the others
            await s.publish(events_of(30, first=8)[:6])
            states = {id: (await s.subscription(id, user=ann)).state for id in (bad.id, *many)}
            assert set(states.values()) == {"paused"}  # all of a user's that take as much
            assert (await s.subscription(good.id, user=bob)).state == "active"

    run(story)


def test_whoever_publishes_is_never_told_what_others_subscribed_to(tmp_path, monkeypatch):
    async def story():
        async with web(tmp_path, limits=SMALL) as w:
            body = {"text": GREEDY, "name": "a secret"}
            assert (await w.ask("ann", "POST", "/subscriptions", json=body)).status_code == 201
            for one in events_of(30):
                answer = await w.ask("bob", "POST", "/events", json=[one])
                assert answer.status_code == 200, answer.text
            # and if nobody can be blamed
            monkeypatch.setattr(w.service.core.matching, "get_failure_causes", dict)
            broken = LimitError("the query needs 7 GB\n  query: SEQ(A a)")
            monkeypatch.setattr(w.service.core.matching, "_ready", lambda db: raising(broken))
            answer = await w.ask("bob", "POST", "/events", json=[point(99, 1, 0.0)])
            assert answer.status_code == 503
            assert "SEQ" not in answer.text
            monkeypatch.undo()

    def raising(error):
        raise error

    run(story)


def test_an_engine_that_breaks_stops_only_its_subscriptions(tmp_path, monkeypatch):
    async def story():
        async with service(tmp_path / "a.db") as s:
            ann, bob = await people(s)
            await s.subscribe(HERE.format(id=1), user=bob)
            bad = await s.subscribe(NEXT, user=ann)
            plain = Engine.process

            def broken(self, events):
                if events.num_rows:
                    raise ZeroDivisionError
                return plain(self, events)

            monkeypatch.setattr(Engine, "process", broken)
            await s.publish(point(1, 1, 0.0))
            found = await s.subscription(bad.id, user=ann)
            assert (found.state, "ZeroDivisionError" in found.reason) == ("paused", True)
            assert [m["end"] for m in await matches(s, user=bob)] == [1]

    run(story)


def test_events_that_are_refused_do_not_make_the_matcher_start_again(tmp_path, monkeypatch):
    def refused(db, events):
        raise ZeroDivisionError

    async def story():
        async with service(tmp_path / "a.db") as s:
            await s.subscribe(PAIRS)
            await s.publish(point(1, 1, 0.0))
            matching = s.core.matching
            before = matching._live
            monkeypatch.setattr(matching, "feed", refused)
            with pytest.raises(IntakeStoppedError, match="cannot be matched"):
                await s.publish(point(2, 1, 0.0))
            monkeypatch.undo()
            assert before is not None
            assert matching._live is before
            assert (await s.publish(point(2, 1, 0.0))).accepted == 1

    run(story)


def test_an_error_of_no_subscription_is_not_blamed_on_one(tmp_path, monkeypatch):
    async def story():
        async with service(tmp_path / "a.db") as s:
            made = await s.subscribe(PAIRS)
            await s.publish(point(1, 1, 0.0))
            monkeypatch.setattr(
                "ensue.operators.subscriptions.subscription_matcher.encode_compared_fields", lambda *_: 1 / 0
            )
            with pytest.raises(IntakeStoppedError, match="cannot be matched"):
                await s.publish(point(2, 1, 0.0))
            assert (await s.subscription(made.id)).state == "active"
            monkeypatch.undo()
            assert (await s.publish(point(2, 1, 0.0))).accepted == 1

    run(story)


def test_a_trial_that_takes_too_much_is_cut(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", limits=SMALL) as s:
            await s.publish(events_of(40))
            found = await s.trial(GREEDY)
            assert found.cut.startswith("too many matches")
            assert found.events < 40

    run(story)


# -------------------------------------------------------------------------------- by user


def test_too_many_matches_at_once_pause_the_one_that_has_most(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", limits={"matches_per_publish": 25}) as s:
            ann, bob = await people(s)
            every = await s.subscribe("(ARITH:id > 0)", user=ann)
            some = await s.subscribe("(ARITH:id = 1)", user=ann)
            others = await s.subscribe("(ARITH:id > 0)", user=bob)
            await s.publish(events_of(20))
            assert (await s.subscription(every.id, user=ann)).state == "paused"
            assert (await s.subscription(some.id, user=ann)).state == "active"
            assert (await s.subscription(others.id, user=bob)).state == "active"
            assert len(await matches(s, subscription=every.id, user=ann)) == 20  # none is lost
            await s.publish(events_of(20, first=20))
            assert len(await matches(s, subscription=every.id, user=ann)) == 20
            assert len(await matches(s, user=bob)) == 40

    run(story)


def test_memory_of_a_user_is_the_sum_of_all_subscriptions(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", limits={"memory_per_user": 20_000}) as s:
            ann, bob = await people(s)
            text = "=|(A; {n})(ARITH:id = 99), A = (ARITH:x >= {n})"
            many = [(await s.subscribe(text.format(n=1000 + n), user=ann)).id for n in range(5)]
            text = text.replace("x >= ", "x > -")
            more = [(await s.subscribe(text.format(n=500 + n), user=ann)).id for n in range(5)]
            less = await s.subscribe(text.format(n=3), user=bob)
            await s.publish(events_of(80))
            await s.do(s.core.run_housekeeping)
            states = [(await s.subscription(id, user=ann)).state for id in more]
            assert 0 < states.count("paused") < 5
            assert [(await s.subscription(id, user=ann)).state for id in many] == ["active"] * 5
            assert (await s.subscription(less.id, user=bob)).state == "active"

    run(story)


def test_processor_time_is_bounded_where_others_wait_for_it(tmp_path):
    async def story():
        async with service(tmp_path / "a.db", limits={"seconds_per_minute": 0.0}) as s:
            ann, bob = await people(s)
            slow = await s.subscribe(PAIRS, user=ann)
            await s.publish(events_of(20))
            await s.do(s.core.run_housekeeping)
            assert (await s.subscription(slow.id, user=ann)).state == "active"  # there is nobody else
            await s.do(lambda db: db.execute(
                "UPDATE users SET quotas = ? WHERE id = ?",
                (json.dumps({"seconds_per_minute": 1e9}), bob),
            ))  # fmt: skip
            other = await s.subscribe(NEXT, user=bob)
            await s.publish(events_of(20, first=20))
            await s.do(s.core.run_housekeeping)
            found = await s.subscription(slow.id, user=ann)
            assert (found.state, "seconds_per_minute" in found.reason) == ("paused", True)
            assert (await s.subscription(other.id, user=bob)).state == "active"

    run(story)


# -------------------------------------------------------------------------------- on Spark


@pytest.mark.parametrize(("greedy", "lost"), [(GREEDY, 0.4), (PAIRS, 0.0)], ids=["a pattern, repeated", "opsl"])
def test_key_groups_go_on_without_the_one_that_makes_them_fail(tmp_path, greedy, lost):
    chance = random.Random(3)

    async def story():
        path = tmp_path / "a.db"
        here = Here(lose=lambda: chance.random() < lost)
        limits = {"memory_per_user": 20_000}
        s = await service(path, limits=limits, matching=on(here)).start()
        ann, bob = await people(s)
        others = {}
        for text in (HERE.format(id=1), LEFT.format(id=1), NEXT):
            others[(await s.subscribe(text, user=bob)).id] = text
        bad = await s.subscribe(greedy, user=ann)
        events = events_of(70)
        for one in events[:15]:
            await s.publish(one)
        await s.publish(events[15:60])
        await answered(s)
        found = await s.subscription(bad.id, user=ann)
        assert (found.state, "memory_per_user" in found.reason) == ("paused", True)
        assert [n.kind for n in await all_notes(s, user=ann)].count("ended") == 1
        await s.close()
        s = await service(path, limits=limits, matching=on(here)).start()
        for one in events[60:]:
            await s.publish(one)
        await answered(s)
        told = [m["match_id"] for m in await matches(s, user=bob)]
        assert len(told) == len(set(told))
        assert set(told) == alone(others, events)
        await s.change(bad.id, text=NEXT, user=ann)
        await s.resume(bad.id, user=ann)  # it is told again, and not paused again
        more = [point(200, 1, 0.0), point(201, 2, 0.0)]
        await s.publish(more)
        await answered(s)
        assert (await s.subscription(bad.id, user=ann)).state == "active"
        assert [m["end"] for m in await matches(s, user=ann)] == [201]
        await s.close()

    run(story)


def test_too_many_matches_found_by_key_groups_pause_the_one_that_has_most(tmp_path):
    async def story():
        limits = {"matches_per_publish": 15}
        async with service(tmp_path / "a.db", limits=limits, matching=on(Here())) as s:
            ann, bob = await people(s)
            every = await s.subscribe("(ARITH:id > 0)", user=ann)
            some = await s.subscribe("(ARITH:id = 1)", user=bob)
            await s.publish(events_of(20))
            await answered(s)
            assert (await s.subscription(every.id, user=ann)).state == "paused"
            assert (await s.subscription(some.id, user=bob)).state == "active"
            assert len(await matches(s, user=bob)) == 7

    run(story)
