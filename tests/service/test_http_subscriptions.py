"""Subscriptions, notes, trials and targets over HTTP."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from ensue.service.store import subscription_store as store
from ensue.service.subscription_catalog import SubscriptionRequest
from support.http_service import web
from support.services import DEPOT, HERE, LEFT, point, run

HOOK = {"kind": "webhook", "config": {"url": "http://127.0.0.1:9/hook"}}
LOCAL_HOOKS = {"allow": ["127.0.0.0/8"]}


def test_the_life_of_a_subscription(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            body = {"text": LEFT.format(id=1), "name": "left", "quiet": 5}
            answer = await w.ask("ann", "POST", "/subscriptions", json=body)
            made = answer.json()
            own = f"/subscriptions/{made['id']}"
            assert answer.headers["location"] == f"/api/v1{own}"
            assert (made["name"], made["state"], made["quiet"]) == ("left", "active", 5.0)
            assert made["regions"] == {"Depot": DEPOT}
            assert (made["counters"], made["targets"]) == ({}, [])

            await w.ask("ann", "POST", "/events", json=[point(1, 1, 5.0), point(2, 1, 50.0)])
            shown = (await w.ask("ann", "GET", own)).json()
            assert sum(shown["counters"].values()) >= 1

            renamed = await w.ask("ann", "PATCH", own, json={"name": "gone", "quiet": None})
            assert (renamed.json()["name"], renamed.json()["quiet"]) == ("gone", None)
            assert renamed.json()["text"] == made["text"]
            changed = await w.ask("ann", "PATCH", own, json={"text": HERE.format(id=2)})
            assert changed.json()["text"] == HERE.format(id=2)

            paused = (await w.ask("ann", "POST", f"{own}/pause")).json()
            resumed = (await w.ask("ann", "POST", f"{own}/resume")).json()
            assert (paused["state"], resumed["state"]) == ("paused", "active")
            ended = (await w.ask("ann", "DELETE", own)).json()
            assert (ended["state"], ended["reason"]) == ("ended", "cancelled")
            assert (await w.ask("ann", "GET", "/subscriptions")).json()["items"] == []
            over = (await w.ask("ann", "GET", "/subscriptions?state=ended")).json()["items"]
            assert [one["id"] for one in over] == [made["id"]]
            assert (await w.ask("ann", "POST", f"{own}/resume")).status_code == 409

            notes = (await w.ask("ann", "GET", f"{own}/notes")).json()["items"]
            kinds = [one["kind"] for one in notes]
            assert kinds == ["started", "match", "started", "ended", "started", "ended"]

    run(story)


def outcomes(answer) -> list[str]:
    """What became of each: its name, or the kind of its problem."""
    assert answer.status_code == 200, answer.text
    return [
        one["subscription"]["name"] if "subscription" in one else one["problem"]["type"]
        for one in answer.json()["items"]
    ]


def test_many_subscriptions_are_made_together_and_each_has_its_answer(tmp_path):
    async def story():
        async with web(tmp_path, limits=LOCAL_HOOKS) as w:
            items = [
                {"text": HERE.format(id=1), "name": "a", "targets": [HOOK]},
                {"text": "nonsense(", "name": "b"},
                {"text": HERE.format(id=1), "name": "a"},
                {"text": HERE.format(id=1), "colour": "red"},
                {"text": "IMPORT 'x'", "name": "c"},
                {"text": HERE.format(id=1), "targets": [{**HOOK, "kind": "pigeon"}]},
                {"text": HERE.format(id=1), "name": "d", "targets": [HOOK] * 11},
                {"text": HERE.format(id=1), "name": "e"},
            ]
            version = await w.service.look(store.get_version)
            answer = await w.ask("ann", "POST", "/subscriptions/bulk", json={"items": items})
            urn = "urn:ensue:{}".format
            assert outcomes(answer) == [
                "a", urn("query"), urn("conflict"), urn("invalid"), urn("query"), urn("refused"),
                urn("over-limit"), "e",
            ]  # fmt: skip
            assert (answer.json()["made"], answer.json()["refused"]) == (2, 6)
            first = answer.json()["items"]
            assert first[0]["subscription"]["targets"][0]["secret"]
            assert first[1]["problem"]["line"] == 1
            kept = (await w.ask("ann", "GET", "/subscriptions")).json()["items"]
            assert [one["name"] for one in kept] == ["a", "e"]
            assert await w.service.look(store.get_version) == version + 1
            done = (await w.ask("ann", "GET", "/audit")).json()["items"]
            assert [one["action"] for one in done].count("subscribe") == 2
            await w.ask("ann", "POST", "/events", json=[point(1, 1, 5.0)])
            notes = (await w.ask("ann", "GET", "/notifications")).json()["items"]
            assert sorted(one["name"] for one in notes if one["kind"] == "match") == ["a", "e"]

    run(story)


def test_quotas_hold_for_each_of_many(tmp_path):
    async def story():
        async with web(tmp_path, limits={"subscriptions_per_user": 2}) as w:
            items = [{"text": HERE.format(id=n), "name": f"s{n}"} for n in range(4)]
            answer = await w.ask("ann", "POST", "/subscriptions/bulk", json={"items": items})
            assert outcomes(answer) == ["s0", "s1", *["urn:ensue:over-limit"] * 2]
            assert (await w.ask("ann", "GET", "/me")).json()["used"]["subscriptions"] == 2
            none = await w.ask("ann", "POST", "/subscriptions/bulk", json={"items": []})
            assert (none.json()["made"], none.json()["items"]) == (0, [])
            many = {"items": [{"text": HERE.format(id=1)}] * 1_001}
            assert (await w.ask("ann", "POST", "/subscriptions/bulk", json=many)).status_code == 422

    run(story)


def test_many_with_a_key_are_made_once(tmp_path, monkeypatch):
    async def story():
        async with web(tmp_path, limits=LOCAL_HOOKS) as w:
            texts = [{"text": HERE.format(id=1), "targets": [HOOK]}, {"text": "nonsense("}]
            asked = {"json": {"items": texts}, "headers": {"idempotency-key": "k"}}
            first = await w.ask("ann", "POST", "/subscriptions/bulk", **asked)
            again = await w.ask("ann", "POST", "/subscriptions/bulk", **asked)
            assert first.content == again.content
            assert len((await w.ask("ann", "GET", "/subscriptions")).json()["items"]) == 1
            other = {"json": {"items": texts[:1]}, "headers": {"idempotency-key": "k"}}
            refused = await w.ask("ann", "POST", "/subscriptions/bulk", **other)
            assert refused.status_code == 409

            asked["headers"] = {"idempotency-key": "lost"}
            assert (await w.ask("ann", "POST", "/subscriptions/bulk", **asked)).status_code == 200
            found = await w.ask("ann", "POST", "/subscriptions/bulk", **asked)
            assert [*found.json()["items"][0]] == ["subscription"]
            assert [*found.json()["items"][1]] == ["problem"]
            assert len((await w.ask("ann", "GET", "/subscriptions")).json()["items"]) == 2

    run(story)


def test_what_a_user_has_is_counted_as_it_changes(tmp_path):
    """Quotas are looked up: a subscription does not read those that its user has already."""

    async def story():
        async with web(tmp_path) as w:
            s, user = w.service, w.people["ann"].id

            def steps(db) -> int:
                """Steps of SQLite's machine in which a subscription is added."""
                count = 0

                def step() -> int:
                    nonlocal count
                    count += 1
                    return 0

                wanted = SubscriptionRequest(user, text=LEFT.format(id=1))
                db.set_progress_handler(step, 1)
                try:
                    s.core.catalog.subscribe(db, wanted)
                finally:
                    db.set_progress_handler(None, 0)
                return count

            few = await s.do(steps)
            many = ({"text": LEFT.format(id=n)} for n in range(200))
            made = await s.subscribe_all(many, user=user)
            assert await s.do(steps) < few * 1.5
            await s.cancel(made[0].id, user=user)
            await s.pause(made[1].id, user=user)
            await s.change(made[2].id, text=HERE.format(id=3), user=user)
            counted = "SELECT count(*), sum(corners) FROM subscriptions WHERE user = ? AND state <> 'ended'"
            found = await s.look(lambda db: tuple(db.execute(counted, (user,)).fetchone()))
            assert found == await s.look(lambda db: store.get_usage(db, user))
            assert found[0] == 201

    run(story)


def test_subscriptions_come_in_pages(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            for n in range(5):
                await w.ask("ann", "POST", "/subscriptions", json={"text": HERE.format(id=n)})
                await w.ask("bob", "POST", "/subscriptions", json={"text": HERE.format(id=n)})
            found, after, pages = [], 0, 0
            while after is not None:
                page = (await w.ask("ann", "GET", f"/subscriptions?after={after}&limit=2")).json()
                found += page["items"]
                after, pages = page["next"], pages + 1
            assert [one["text"] for one in found] == [HERE.format(id=n) for n in range(5)]
            assert pages == 3

    run(story)


@pytest.mark.parametrize("form", ["seconds", "moment", "moment without zone"])
def test_a_subscription_may_expire(tmp_path, form: str):
    async def story():
        async with web(tmp_path) as w:
            moment = datetime.now(UTC) + timedelta(hours=1)
            expires = {
                "seconds": 3_600,
                "moment": moment.isoformat(),
                "moment without zone": moment.replace(tzinfo=None).isoformat(),
            }[form]
            body = {"text": HERE.format(id=1), "expires": expires}
            made = (await w.ask("ann", "POST", "/subscriptions", json=body)).json()
            found = datetime.fromisoformat(made["expires"])
            assert abs(found - moment) < timedelta(minutes=5)
            own = f"/subscriptions/{made['id']}"
            later = await w.ask("ann", "PATCH", own, json={"expires": None})
            assert later.json()["expires"] is None

    run(story)


def test_a_template_is_filled_in_opened_and_edited(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            items = (await w.ask("ann", "GET", "/templates")).json()["items"]
            enters = next(one for one in items if one["name"] == "enters")
            assert {"region", "within"} <= {one["name"] for one in enters["parameters"]}
            values = {"region": "Depot", "within": 60}
            filled = (await w.ask("ann", "POST", "/templates/enters", json={"values": values})).json()
            body = {"template": "enters", "values": values}
            made = (await w.ask("ann", "POST", "/subscriptions", json=body)).json()
            assert (made["text"], made["template"]) == (filled["text"], "enters")
            own = f"/subscriptions/{made['id']}"
            edited = await w.ask("ann", "PATCH", own, json={"text": filled["text"] + "\n"})
            assert edited.json()["template"] is None

    run(story)


# -------------------------------------------------------------------------------- repeated creates


def test_a_repeated_create_is_harmless(tmp_path):
    async def story():
        async with web(tmp_path, limits=LOCAL_HOOKS) as w:
            body = {"text": HERE.format(id=1), "name": "here", "targets": [HOOK]}
            key = {"idempotency-key": "a1"}
            first = await w.ask("ann", "POST", "/subscriptions", json=body, headers=key)
            own = f"/subscriptions/{first.json()['id']}"
            await w.ask("ann", "PATCH", own, json={"name": "there"})
            again = await w.ask("ann", "POST", "/subscriptions", json=body, headers=key)
            assert (again.status_code, again.json()) == (first.status_code, first.json())
            assert again.headers["location"] == first.headers["location"]
            assert len((await w.ask("ann", "GET", "/subscriptions")).json()["items"]) == 1

    run(story)


def test_repeats_at_the_same_time_make_one_subscription(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            body, key = {"text": HERE.format(id=1)}, {"idempotency-key": "a1"}
            answers = await asyncio.gather(
                *(w.ask("ann", "POST", "/subscriptions", json=body, headers=key) for _ in range(20))
            )
            assert {one.status_code for one in answers} == {201}
            assert len({one.json()["id"] for one in answers}) == 1

    run(story)


def test_a_key_is_for_one_request(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            key = {"idempotency-key": "a1"}
            body = {"text": HERE.format(id=1)}
            await w.ask("ann", "POST", "/subscriptions", json=body, headers=key)
            other = {"text": HERE.format(id=2)}
            refused = await w.ask("ann", "POST", "/subscriptions", json=other, headers=key)
            assert refused.status_code == 409
            assert "a1" in refused.json()["detail"]
            theirs = await w.ask("bob", "POST", "/subscriptions", json=other, headers=key)
            assert theirs.status_code == 201

    run(story)


def test_a_key_of_a_create_that_failed_can_be_used_again(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            key = {"idempotency-key": "a1"}
            bad = await w.ask("ann", "POST", "/subscriptions", json={"text": "("}, headers=key)
            assert bad.status_code == 422
            good = {"text": HERE.format(id=1)}
            made = await w.ask("ann", "POST", "/subscriptions", json=good, headers=key)
            assert made.status_code == 201

    run(story)


def test_a_key_has_a_length(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            key = {"idempotency-key": "a" * 256}
            body = {"text": HERE.format(id=1)}
            answer = await w.ask("ann", "POST", "/subscriptions", json=body, headers=key)
            assert (answer.status_code, answer.json()["limit"]) == (403, "key")

    run(story)


# -------------------------------------------------------------------------------- notes


def test_notes_are_asked_for_behind_a_number(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            made = (await w.ask("ann", "POST", "/subscriptions", json={"text": HERE.format(id=1)})).json()
            await w.ask("bob", "POST", "/subscriptions", json={"text": HERE.format(id=1)})
            await w.ask("ann", "POST", "/events", json=[point(n, 1, 0.0) for n in range(1, 6)])
            seen, after = [], 0
            for _ in range(10):
                path = f"/notifications?after={after}&limit=2"
                page = (await w.ask("ann", "GET", path)).json()
                assert "resync" not in page
                seen += page["items"]
                after = page["next"]
                if not page["items"]:
                    break
            assert [one["kind"] for one in seen] == ["started"] + ["match"] * 5
            assert {one["subscription"] for one in seen} == {made["id"]}
            assert sorted({one["number"] for one in seen}) == [one["number"] for one in seen]
            assert all(one["at"].endswith("Z") for one in seen)
            narrow = f"/notifications?subscription={made['id']}&limit=1000"
            assert (await w.ask("ann", "GET", narrow)).json()["items"] == seen
            first = await w.ask("ann", "GET", f"/notes/{seen[-1]['number']}")
            assert first.json()["match_id"] == seen[-1]["match_id"]
            assert first.json()["tracks"]["1"]

    run(story)


def test_a_token_from_before_retention_is_told_once(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            await w.ask("ann", "POST", "/subscriptions", json={"text": HERE.format(id=1)})
            await w.ask("ann", "POST", "/events", json=[point(1, 1, 0.0), point(2, 1, 0.0)])
            from ensue.service.store import outbox

            await w.service.do(lambda db: outbox.prune_notifications(db, 1e12))
            await w.ask("ann", "POST", "/events", json=[point(3, 1, 0.0)])
            page = (await w.ask("ann", "GET", "/notifications?after=1")).json()
            assert page["resync"] is True
            assert [one["end"] for one in page["items"]] == [3]
            again = (await w.ask("ann", "GET", f"/notifications?after={page['next']}")).json()
            assert (again["items"], "resync" in again) == ([], False)
            strange = (await w.ask("ann", "GET", "/notifications?after=100000")).json()
            assert strange["resync"] is True
            assert [one["end"] for one in strange["items"]] == [3]
            first = (await w.ask("ann", "GET", "/notifications")).json()
            assert "resync" not in first

    run(story)


# ------------------------------------------------------------------------ before subscribing


def test_a_text_is_checked_and_tried_before_it_is_subscribed_to(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            events = [point(n, n % 2, 5.0 if n < 5 else 50.0) for n in range(10)]
            await w.ask("ann", "POST", "/events", json=events)
            ok = (await w.ask("ann", "POST", "/check", json={"text": LEFT.format(id=1)})).json()
            assert ok == {"ok": True, "warnings": []}
            loose = {"text": "(ARITH:id != 1)"}
            assert len((await w.ask("ann", "POST", "/check", json=loose)).json()["warnings"]) == 1
            found = (await w.ask("ann", "POST", "/trial", json={"text": HERE.format(id=1)})).json()
            assert (found["count"], found["events"], found["by_object"]) == (5, 10, {"1": 5})
            assert [one["end"] for one in found["matches"]] == [9, 7, 5, 3, 1]
            assert (found["from"], found["to"], found["cut"]) == (0, 9, None)
            assert sum(found["bars"]) == 5
            since = {"text": HERE.format(id=1), "since": 6}
            assert (await w.ask("ann", "POST", "/trial", json=since)).json()["count"] == 2
            assert (await w.ask("ann", "GET", "/subscriptions")).json()["items"] == []

    run(story)


# -------------------------------------------------------------------------------- targets


def test_a_secret_is_shown_when_it_is_made_and_never_again(tmp_path):
    async def story():
        async with web(tmp_path, limits=LOCAL_HOOKS) as w:
            hook = {"kind": "webhook", "config": {**HOOK["config"], "headers": {"x-key": "k3y"}}}
            made = (
                await w.ask("ann", "POST", "/subscriptions", json={"text": HERE.format(id=1), "targets": [hook]})
            ).json()
            (target,) = made["targets"]
            assert target["secret"].startswith("whsec_")
            added = (await w.ask("ann", "POST", f"/subscriptions/{made['id']}/targets", json=HOOK)).json()
            assert added["secret"] not in (None, target["secret"])
            rotated = (await w.ask("ann", "POST", f"/targets/{target['id']}/rotate", json={"keep": 60})).json()
            assert rotated["secret"] not in (added["secret"], target["secret"])
            secrets = [one["secret"] for one in (target, added, rotated)]
            for path in (
                "/subscriptions",
                f"/subscriptions/{made['id']}",
                f"/subscriptions/{made['id']}/targets",
                "/health/targets",
                "/audit",
            ):
                text = (await w.ask("ann", "GET", path)).text
                assert not any(secret in text for secret in [*secrets, "k3y"]), path

    run(story)


def test_a_target_is_switched_off_on_and_removed(tmp_path):
    async def story():
        async with web(tmp_path, limits=LOCAL_HOOKS) as w:
            made = (
                await w.ask("ann", "POST", "/subscriptions", json={"text": HERE.format(id=1), "targets": [HOOK]})
            ).json()
            own = f"/targets/{made['targets'][0]['id']}"
            off = (await w.ask("ann", "POST", f"{own}/off")).json()
            assert (off["state"], off["reason"]) == ("off", "switched off by the user")
            troubled = (await w.ask("ann", "GET", "/health/targets")).json()["items"]
            assert [one["id"] for one in troubled] == [made["targets"][0]["id"]]
            assert (await w.ask("bob", "GET", "/health/targets")).json()["items"] == []
            assert (await w.ask("ann", "POST", f"{own}/on")).json()["state"] == "on"
            back = await w.ask("ann", "POST", f"{own}/redeliver", json={"numbers": [99]})
            assert back.json() == {"numbers": []}
            assert (await w.ask("ann", "GET", f"{own}/dead")).json()["items"] == []
            assert (await w.ask("ann", "DELETE", own)).status_code == 204
            assert (await w.ask("ann", "DELETE", own)).status_code == 404

    run(story)


def test_only_webhooks_have_secrets(tmp_path):
    async def story():
        async with web(tmp_path) as w:
            made = (await w.ask("root", "POST", "/subscriptions", json={"text": HERE.format(id=1)})).json()
            kafka = {"kind": "kafka", "config": {"servers": "127.0.0.1:9", "topic": "t"}}
            target = (await w.ask("root", "POST", f"/subscriptions/{made['id']}/targets", json=kafka)).json()
            assert target.get("secret") is None
            refused = await w.ask("root", "POST", f"/targets/{target['id']}/rotate", json={})
            assert refused.status_code == 409

    run(story)


@pytest.mark.parametrize("url", ["http://127.0.0.1/x", "http://10.0.0.1/x", "http://[::1]/x", "file:///etc/passwd"])
def test_webhooks_to_private_addresses_are_refused(tmp_path, url: str):
    async def story():
        async with web(tmp_path) as w:
            target = {"kind": "webhook", "config": {"url": url}}
            body = {"text": HERE.format(id=1), "targets": [target]}
            answer = await w.ask("ann", "POST", "/subscriptions", json=body)
            assert answer.status_code in (403, 422), answer.text
            assert (await w.ask("ann", "GET", "/subscriptions")).json()["items"] == []

    run(story)
