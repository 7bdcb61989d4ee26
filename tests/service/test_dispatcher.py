"""The courier: everything arrives, in order, at least once, whatever receivers and crashes do."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.dispatchers import LOOPBACK, SEAL_KEY, Scene
from tests.support.receivers import Receiver, Reply, Request

from ensue.service.delivery.addresses import AddressGuard
from ensue.service.delivery.dispatcher import DispatcherOptions
from ensue.service.delivery.retry_queue import Backoff
from ensue.service.delivery.sink import DeliveryError
from ensue.service.delivery.webhooks import WebhookLimits
from ensue.service.errors import NotFoundError
from ensue.service.secrets import new_secret
from ensue.service.settings import ServiceLimits
from ensue.service.store import outbox
from ensue.service.store import target_store as targets
from ensue.service.store.outbox import Notification
from ensue.service.web.subscription_routes import rotate_secret

Story = Callable[[Scene, Receiver], Awaitable[None]]


def played(folder: Path, story: Story, **given: Any) -> Receiver:
    """Runs a story with a service's file and a receiver."""

    async def play() -> Receiver:
        async with Receiver() as receiver, Scene(folder, **given) as scene:
            await asyncio.wait_for(story(scene, receiver), 60)
        return receiver

    return asyncio.run(play())


def ids(number: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{n:04d}" for n in range(number)]


class Listed:
    """A sink in order, as brokers are: it takes what it is told to."""

    def __init__(self) -> None:
        self.got: list[str] = []
        self.closed = 0
        self.takes = 10**9  # notes until it fails
        self.broken: Exception | None = None

    def make(self, _: Any) -> "Listed":
        return self

    async def send(self, notes: Sequence[Notification]) -> None:
        await asyncio.sleep(0)
        if self.broken is not None:
            raise self.broken
        for sent, note in enumerate(notes):
            if self.takes <= 0:
                raise DeliveryError("the broker is away", sent=sent)
            self.takes -= 1
            self.got.append(note.match_id or note.kind)

    async def close(self) -> None:
        self.closed += 1


# ------------------------------------------------------------------------------- all is well


def test_notes_arrive_and_are_counted(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        target = await scene.target(receiver.url)
        await scene.notes(ids(100))
        await scene.rested()
        state = await scene.state(target)
        assert (state.state, state.delivered, state.behind) == ("on", 100, 0)
        assert await scene.counted() == {"delivered": 100}

    receiver = played(tmp_path, story)
    assert sorted(receiver.taken) == ids(100)


def test_a_target_starts_with_the_notes_behind_its_creation(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        await scene.notes(ids(3, "before"))
        await scene.target(receiver.url)
        await scene.notes(ids(3, "after"))
        await scene.rested()

    assert sorted(played(tmp_path, story).taken) == ids(3, "after")


def test_notes_of_a_target_start_in_order(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        await scene.target(receiver.url)
        await scene.notes(ids(200))
        await scene.rested()

    one = WebhookLimits(at_once_per_target=1)
    assert played(tmp_path, story, webhooks=one).ids == ids(200)


def test_several_notes_are_on_their_way_at_once_and_no_more(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.gate = asyncio.Event()
        await scene.target(receiver.url)
        await scene.notes(ids(50))
        await receiver.until(4)
        assert sorted(receiver.ids) == ids(50)[:4]
        receiver.gate.set()
        await scene.rested()

    receiver = played(tmp_path, story, webhooks=WebhookLimits(at_once_per_target=4))
    assert receiver.at_once == 4


def test_each_target_gets_the_notes_of_its_subscription(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        for subscription in range(20):
            url = f"{receiver.url}/{subscription}"
            await scene.target(url, subscription=subscription, user=subscription % 3)
        for subscription in range(20):
            await scene.notes(ids(5, f"s{subscription}-"), subscription=subscription)
        await scene.rested()

    receiver = played(tmp_path, story)
    expected = {(f"/hook/{s}", i) for s in range(20) for i in ids(5, f"s{s}-")}
    assert Counter((r.path, r.id) for r in receiver.requests) == Counter(expected)


def test_an_idle_target_has_no_task(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        await scene.target(receiver.url)
        await scene.notes(ids(10))
        await scene.rested()
        dispatcher = scene.dispatcher
        assert not [*dispatcher._working, *dispatcher._queued, *dispatcher._timed]
        assert dispatcher._errors == 0

    played(tmp_path, story)


def test_a_note_that_comes_as_a_target_comes_to_rest_is_not_forgotten(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        async def meanwhile() -> None:
            scene.wire.written = None
            await scene.notes(["late"])
            while scene.dispatcher._woken or scene.dispatcher._looking:
                await asyncio.sleep(0)

        await scene.target(receiver.url)
        scene.wire.written = meanwhile
        await scene.notes(["first"])
        await scene.rested()

    assert played(tmp_path, story).taken == ["first", "late"]


def test_a_sink_that_nobody_uses_is_closed(tmp_path: Path) -> None:
    listed = Listed()

    async def story(scene: Scene, receiver: Receiver) -> None:
        await scene.target(kind="list")
        await scene.notes(ids(3))
        await scene.rested()
        assert len(scene.dispatcher._sinks) == 1
        await scene.later(60.0)
        assert (len(scene.dispatcher._sinks), listed.closed) == (1, 0)
        await scene.later(400.0)
        await asyncio.sleep(0)
        assert (len(scene.dispatcher._sinks), listed.closed) == (0, 1)
        await scene.notes(["later"])
        await scene.rested()

    played(tmp_path, story, sinks={"list": listed.make})
    assert listed.got == [*ids(3), "later"]


# ------------------------------------------------------------------------------- failures


def test_a_failing_receiver_is_tried_again_at_growing_waits(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(500)
        target = await scene.target(receiver.url)
        await scene.notes(["a"])
        await scene.rested()
        for wait in (5.0, 60.0, 600.0):
            state = await scene.state(target)
            assert (state.state, state.waiting) == ("failing", 1)
            assert state.next_at == scene.clock() + wait
            assert "answered 500" in (state.reason or "")
            before = len(receiver.requests)
            await scene.later(wait - 1.0)
            assert len(receiver.requests) == before
            if wait == 600.0:
                receiver.answer = lambda _: Reply(200)
            await scene.later(1.0)
            assert len(receiver.requests) == before + 1
        state = await scene.state(target)
        assert (state.state, state.failures, state.waiting) == ("on", 0, 0)
        assert (state.reason, state.delivered) == (None, 1)
        assert await scene.counted() == {"failed": 3, "delivered": 1}

    receiver = played(tmp_path, story)
    assert receiver.ids == ["a"] * 4


def test_after_so_many_tries_a_note_is_a_dead_letter_until_it_is_redelivered(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(500)
        target = await scene.target(receiver.url)
        await scene.notes(["a"])
        await scene.rested()
        for wait in (5.0, 60.0, 600.0):
            await scene.later(wait)
        assert receiver.ids == ["a"] * 4
        state = await scene.state(target)
        assert (state.waiting, state.dead, state.behind) == (0, 1, 0)
        assert await scene.counted() == {"failed": 4, "dead": 1}
        (letter,) = await scene.database.read(lambda db: targets.list_dead_letters(db, target))
        assert (letter.match_id, letter.attempts) == ("a", 4)
        assert "500" in letter.error
        await scene.later(1e6)
        assert len(receiver.requests) == 4
        receiver.answer = lambda _: Reply(200)
        assert await scene.change(target, targets.redeliver, None) == (letter.number,)
        await scene.rested()
        state = await scene.state(target)
        assert (state.state, state.waiting, state.dead, state.delivered) == ("on", 0, 0, 1)

    assert played(tmp_path, story).taken == ["a"]


def test_a_dead_receiver_is_asked_little_and_gets_all_when_it_is_back(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(503)
        target = await scene.target(receiver.url)
        await scene.notes(ids(300))
        await scene.rested()
        first = len(receiver.requests)
        assert first <= 9  # those that were on their way together, and one more
        await scene.notes(ids(300, "n"))
        await scene.later(4.0)
        assert len(receiver.requests) == first
        await scene.later(1.0)
        assert len(receiver.requests) <= first + 2
        assert (await scene.state(target)).behind > 500
        receiver.answer = lambda _: Reply(200)
        await scene.later(60.0)
        assert (await scene.state(target)).state == "on"

    assert sorted(played(tmp_path, story).taken) == [*ids(300), *ids(300, "n")]


def test_a_note_that_the_receiver_cannot_take_does_not_block_the_others(tmp_path: Path) -> None:
    poison = {"m0000", "m0007"}

    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda request: Reply(500 if request.id in poison else 200)
        target = await scene.target(receiver.url)
        await scene.notes(ids(60))
        await scene.rested()
        assert sorted(receiver.taken) == [one for one in ids(60) if one not in poison]
        state = await scene.state(target)
        assert (state.state, state.waiting) == ("on", 2)
        for wait in (5.0, 60.0, 600.0):
            await scene.notes([f"before {wait}"])
            await scene.rested()
            assert receiver.taken[-1] == f"before {wait}"
            await scene.later(wait)
        await scene.notes(["last"])
        await scene.rested()
        assert receiver.taken[-1] == "last"
        state = await scene.state(target)
        assert (state.state, state.waiting, state.dead) == ("on", 0, 2)
        assert Counter(receiver.ids)["m0007"] == 4

    played(tmp_path, story)


def test_several_such_notes_in_a_row_do_not_either(tmp_path: Path) -> None:
    poison = set(ids(12))

    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda request: Reply(500 if request.id in poison else 200)
        target = await scene.target(receiver.url)
        await scene.notes(ids(60))
        await scene.rested()
        for wait in (5.0, 60.0, 600.0, 600.0):
            await scene.later(wait)
        assert sorted(set(receiver.taken)) == [one for one in ids(60) if one not in poison]
        assert (await scene.state(target)).behind == 0

    played(tmp_path, story)


def test_a_dead_receiver_is_not_asked_again_by_each_note_that_comes(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(500)
        await scene.target(receiver.url)
        for number in range(200):
            await scene.notes([f"n{number}"])
            await scene.later(1.0)
        # At 0 and 5 seconds, then a minute later and another two.
        assert len(receiver.requests) <= 8

    played(tmp_path, story)


def test_a_receiver_that_is_flaky_gets_all(tmp_path: Path) -> None:
    chance = Random(5)

    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(
            chance.choice([200, 200, 200, 500]), how=chance.choice(["whole"] * 9 + ["cut"])
        )
        target = await scene.target(receiver.url)
        for piece in range(10):
            await scene.notes(ids(30, f"p{piece}-"))
            await scene.later(5.0)
        for _ in range(40):
            await scene.later(700.0)
        assert (await scene.state(target)).delivered == 300

    receiver = played(tmp_path, story, limits=ServiceLimits(webhook_attempts=100))
    assert set(receiver.taken) == {one for piece in range(10) for one in ids(30, f"p{piece}-")}


def test_gone_switches_off_until_it_is_switched_on(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(410)
        target = await scene.target(receiver.url)
        await scene.notes(ids(30))
        await scene.rested()
        asked = len(receiver.requests)
        assert asked <= 8
        state = await scene.state(target)
        assert state.state == "off"
        assert "410" in (state.reason or "")
        await scene.notes(["more"])
        await scene.later(1e6)
        assert len(receiver.requests) == asked
        receiver.answer = lambda _: Reply(200)
        await scene.change(target, targets.switch_on)
        await scene.rested()
        assert (await scene.state(target)).state == "on"

    assert sorted(played(tmp_path, story).taken) == [*ids(30), "more"]


@pytest.mark.parametrize(("asked", "waited"), [("120", 120.0), ("0", 5.0), ("99999999", 3600.0)])
def test_a_receiver_that_asks_to_wait_is_left_alone_so_long(tmp_path: Path, asked: str, waited: float) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(429, {"retry-after": asked})
        target = await scene.target(receiver.url)
        await scene.notes(ids(30))
        await scene.rested()
        came = len(receiver.requests)
        assert came <= 8  # those that were on their way together
        assert (await scene.state(target)).next_at == scene.clock() + waited
        receiver.answer = lambda _: Reply(200)
        await scene.later(waited - 1.0)
        assert len(receiver.requests) == came
        await scene.later(1.0)

    steps = Backoff((5.0, 60.0), jitter=0.0, most=3600.0)
    receiver = played(tmp_path, story, pace=DispatcherOptions(requests=steps))
    assert sorted(receiver.taken) == ids(30)


def test_a_throttled_receiver_loses_nothing(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        left = 0

        def answer(request: Request) -> Reply:
            nonlocal left
            left -= 1
            return Reply(200) if left >= 0 else Reply(429, {"retry-after": "30"})

        receiver.answer = answer
        await scene.target(receiver.url)
        await scene.notes(ids(100))
        await scene.rested()
        while len(set(receiver.taken)) < 100:
            left = 7  # in half a minute
            await scene.later(30.0)
        assert (await scene.counted()).get("dead", 0) == 0

    assert sorted(played(tmp_path, story).taken) == ids(100)


def test_a_redirect_and_a_hang_are_failures_with_their_reasons(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda request: (
            Reply(302, {"location": "http://127.0.0.1:1/"}) if request.path.endswith("/redirect") else Reply(how="hang")
        )
        redirect = await scene.target(receiver.url + "/redirect", subscription=1)
        hang = await scene.target(receiver.url + "/hang", subscription=2)
        await scene.notes(["a"], subscription=1)
        await scene.notes(["b"], subscription=2)
        await scene.rested()
        assert "redirects are not followed" in ((await scene.state(redirect)).reason or "")
        assert "no answer" in ((await scene.state(hang)).reason or "")

    played(tmp_path, story, webhooks=WebhookLimits(seconds=0.3))


def test_a_hanging_receiver_does_not_hold_up_others(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(how="hang")
        for subscription in range(100):
            await scene.target(receiver.url, subscription=subscription)
            await scene.notes([f"hang {subscription}"], subscription=subscription)
        async with Receiver() as other:
            await scene.target(other.url, subscription=1000)
            await scene.notes(ids(20), subscription=1000)
            await other.until(20)
        assert scene.dispatcher._working

    few = DispatcherOptions(targets=8, closing=0.0)
    played(tmp_path, story, pace=few, webhooks=WebhookLimits(at_once=8, seconds=30.0))


def test_a_private_address_is_refused_and_counted(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        target = await scene.target(receiver.url)
        await scene.notes(["a"])
        await scene.rested()
        state = await scene.state(target)
        assert state.state == "failing"
        assert "loopback" in (state.reason or "")
        assert await scene.counted() == {"refused": 1}

    assert played(tmp_path, story, guard=AddressGuard()).requests == []


def test_a_name_that_turns_private_is_refused_at_delivery(tmp_path: Path) -> None:
    known = {"hooks.example": "127.0.0.1"}

    async def resolve(host: str, port: int) -> Sequence[str]:
        return [known[host]]

    async def story(scene: Scene, receiver: Receiver) -> None:
        target = await scene.target(f"http://hooks.example:{receiver.port}/")
        await scene.notes(["a"])
        await scene.rested()
        assert receiver.taken == ["a"]
        known["hooks.example"] = "10.0.0.1"
        await scene.end()
        await scene.begin()  # a new connection is needed
        await scene.notes(["b"])
        await scene.rested()
        assert "10.0.0.1" in ((await scene.state(target)).reason or "")
        assert await scene.counted() == {"delivered": 1, "refused": 1}

    played(tmp_path, story, guard=AddressGuard(LOOPBACK, resolve=resolve))


# ------------------------------------------------------------------------------- in order


def test_a_broker_gets_its_notes_in_order_and_once(tmp_path: Path) -> None:
    listed = Listed()

    async def story(scene: Scene, receiver: Receiver) -> None:
        await scene.target(kind="list")
        for piece in range(10):
            await scene.notes(ids(170, f"p{piece}-"))
        await scene.rested()

    played(tmp_path, story, sinks={"list": listed.make})
    assert listed.got == [one for piece in range(10) for one in ids(170, f"p{piece}-")]
    assert listed.closed == 1


def test_a_broker_that_is_away_is_waited_for_for_ever(tmp_path: Path) -> None:
    listed = Listed()

    async def story(scene: Scene, receiver: Receiver) -> None:
        listed.takes = 30
        target = await scene.target(kind="list")
        await scene.notes(ids(100))
        await scene.rested()
        assert listed.got == ids(100)[:30]
        for wait in (5.0, 60.0, 600.0, *[600.0] * 20):
            state = await scene.state(target)
            assert (state.state, state.behind, state.waiting) == ("failing", 70, 0)
            assert state.reason == "the broker is away"
            assert state.next_at == scene.clock() + wait
            await scene.later(wait)
        listed.takes = 1000
        await scene.later(600.0)
        assert (await scene.state(target)).state == "on"
        assert (await scene.counted())["delivered"] == 100

    played(tmp_path, story, sinks={"list": listed.make})
    assert listed.got == ids(100)


def test_a_sink_that_breaks_is_a_target_that_fails(tmp_path: Path) -> None:
    listed = Listed()

    async def story(scene: Scene, receiver: Receiver) -> None:
        listed.broken = ZeroDivisionError("oh")
        target = await scene.target(kind="list")
        await scene.notes(["a"])
        await scene.rested()
        assert "ZeroDivisionError: oh" in ((await scene.state(target)).reason or "")
        listed.broken = None
        await scene.later(5.0)

    played(tmp_path, story, sinks={"list": listed.make})
    assert listed.got == ["a"]


def test_a_configuration_that_cannot_work_is_shown_and_can_be_mended(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        wrong = await scene.target("ftp://127.0.0.1/", subscription=1)
        other = await scene.target(kind="pigeon", subscription=2)
        await scene.notes(["a"], subscription=1)
        await scene.notes(["b"], subscription=2)
        await scene.rested()
        assert "http or https" in ((await scene.state(wrong)).reason or "")
        assert "targets of kind 'pigeon'" in ((await scene.state(other)).reason or "")
        await scene.database.write(
            lambda db: db.execute(
                "UPDATE targets SET config = seal(?), state = 'on', next_at = NULL WHERE id = ?",
                (json.dumps({"url": receiver.url}), wrong),
            )
        )
        await scene.later(5.0)
        assert (await scene.state(wrong)).state == "on"

    assert played(tmp_path, story).taken == ["a"]


# ------------------------------------------------------------------------------- by hand


def test_a_delivered_note_can_be_sent_again(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        target = await scene.target(receiver.url)
        await scene.notes(["a", "b", "c"])
        await scene.notes(["other"], subscription=8)
        await scene.rested()
        assert await scene.change(target, targets.redeliver, [2, 4, 99]) == (2,)
        await scene.rested()
        with pytest.raises(NotFoundError, match="no target 99"):
            await scene.change(99, targets.redeliver, None)

    assert Counter(played(tmp_path, story).taken) == {"a": 1, "b": 2, "c": 1}


def test_redelivery_does_not_wait_for_a_target_that_fails(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(500)
        target = await scene.target(receiver.url)
        await scene.notes(["a"])
        await scene.rested()
        receiver.answer = lambda _: Reply(200)
        await scene.change(target, targets.redeliver, [1])
        await scene.rested()
        assert (await scene.state(target)).state == "on"

    assert played(tmp_path, story).taken == ["a"]


def test_a_target_that_is_switched_off_sends_nothing(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        target = await scene.target(receiver.url)
        await scene.change(target, targets.switch_off, "holidays")
        await scene.notes(ids(5))
        await scene.later(1e6)
        state = await scene.state(target)
        assert (state.state, state.reason, state.behind) == ("off", "holidays", 5)
        await scene.change(target, targets.switch_on)
        await scene.rested()

    receiver = played(tmp_path, story)
    assert sorted(receiver.taken) == ids(5)


def test_what_is_switched_off_while_it_sends_stays_off(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.gate = asyncio.Event()
        receiver.answer = lambda _: Reply(500)
        target = await scene.target(receiver.url)
        await scene.notes(["a"])
        await receiver.until(1)
        await scene.change(target, targets.switch_off, "holidays")
        receiver.gate.set()
        await scene.rested()
        state = await scene.state(target)
        assert (state.state, state.reason, state.waiting) == ("off", "holidays", 1)

    played(tmp_path, story)


def test_secrets_are_rotated_while_notes_go_out(tmp_path: Path) -> None:
    first, fresh = new_secret(), ""

    async def story(scene: Scene, receiver: Receiver) -> None:
        nonlocal fresh
        target = await scene.target(receiver.url, secret=first)
        await scene.notes(["a"])
        await scene.rested()
        fresh = await scene.change(target, rotate_secret, 100.0)
        await scene.notes(["b"])
        await scene.rested()
        await scene.later(101.0)
        await scene.notes(["c"])
        await scene.rested()

    a, b, c = played(tmp_path, story).requests
    signed = [[r.is_signed_with(secret) for secret in (first, fresh)] for r in (a, b, c)]
    assert signed == [[True, False], [True, True], [False, True]]


def test_a_target_that_is_removed_sends_nothing_more(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.gate = asyncio.Event()
        target = await scene.target(receiver.url)
        await scene.notes(ids(100))
        await receiver.until(8)
        await scene.database.write(lambda db: targets.remove_target(db, target))
        receiver.gate.set()
        await scene.rested()
        assert await scene.database.read(targets.list_target_states) == []
        rows = await scene.database.read(lambda db: db.execute("SELECT count(*) FROM deliveries").fetchone()[0])
        assert rows == 0

    assert len(played(tmp_path, story).requests) <= 32


def test_what_is_secret_is_not_shown(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        secret = new_secret()
        await scene.target(receiver.url, secret=secret, headers={"authorization": "Bearer abc"})
        (state,) = await scene.database.read(targets.list_target_states)
        assert "abc" not in repr(state)
        assert secret[6:] not in repr(state)
        (target,) = await scene.database.read(lambda db: targets.find_targets(db, [7], []))
        assert "abc" not in repr(target)
        assert secret[6:] not in repr(target)

    played(tmp_path, story)


def test_users_see_their_own_targets(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        for user in (1, 1, 2):
            await scene.target(receiver.url, user=user, subscription=user)
        read = scene.database.read
        assert len(await read(lambda db: targets.list_target_states(db, 1))) == 2
        assert len(await read(lambda db: targets.list_target_states(db, 2))) == 1
        assert len(await read(lambda db: targets.list_target_states(db, None, 2))) == 1
        assert len(await read(lambda db: targets.list_target_states(db, 3))) == 0

    played(tmp_path, story)


# ------------------------------------------------------------------------------- retention


async def _retain(scene: Scene, upto: int) -> None:
    def remove(db: sqlite3.Connection) -> None:
        outbox.expire_deliveries(db, upto)
        db.execute("DELETE FROM outbox WHERE number <= ?", (upto,))

    await scene.database.write(remove)


def test_notes_that_expire_before_they_are_delivered_are_counted(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(500)
        target = await scene.target(receiver.url)
        await scene.target(receiver.url, subscription=8)
        await scene.notes(ids(20, "other"), subscription=8)
        receiver.answer = lambda request: Reply(200 if "other" in request.id else 500)
        await scene.rested()
        await scene.notes(ids(50))
        await scene.rested()
        undelivered = 50
        state = await scene.state(target)
        assert state.behind + state.waiting == undelivered
        await _retain(scene, 60)
        assert (await scene.counted())["expired"] == 40
        assert "expired" not in await scene.counted(8)
        state = await scene.state(target)
        assert state.behind + state.waiting == 10
        receiver.answer = lambda _: Reply(200)
        await scene.later(600.0)
        counted = await scene.counted()
        assert counted["delivered"] + counted["expired"] == 50

    receiver = played(tmp_path, story)
    assert sorted(one for one in receiver.taken if "other" not in one) == ids(50)[40:]


def test_a_failed_note_whose_text_is_gone_is_counted_too(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(500)
        target = await scene.target(receiver.url)
        await scene.notes(["a", "b"])
        await scene.rested()
        await scene.database.write(lambda db: db.execute("DELETE FROM outbox WHERE number = 1"))
        receiver.answer = lambda _: Reply(200)
        await scene.later(60.0)
        assert (await scene.counted())["expired"] == 1
        assert (await scene.state(target)).waiting == 0

    assert played(tmp_path, story).taken == ["b"]


# ------------------------------------------------------------------------------- stops and crashes


def test_closing_finishes_what_is_on_its_way(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.gate = asyncio.Event()
        target = await scene.target(receiver.url)
        await scene.notes(ids(100))
        await receiver.until(8)
        closing = asyncio.create_task(scene.end())
        await asyncio.sleep(0.01)
        receiver.gate.set()
        await closing
        assert sorted(receiver.taken) == ids(8)
        assert (await scene.state(target)).delivered == 8
        await scene.begin()
        await scene.rested()

    assert sorted(played(tmp_path, story).taken) == ids(100)


def test_closing_does_not_wait_for_a_receiver_that_hangs(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda request: Reply(how="hang" if request.id == "m0003" else "whole")
        target = await scene.target(receiver.url)
        await scene.notes(ids(8))
        await receiver.until(8)
        await scene.end()
        # What came behind the one that hangs is not written down: it goes again.
        state = await scene.state(target)
        assert (state.delivered, state.state) == (3, "on")
        receiver.answer = lambda _: Reply()
        await scene.begin()
        await scene.rested()
        assert (await scene.state(target)).delivered == 8

    pace = DispatcherOptions(closing=0.2)
    receiver = played(tmp_path, story, pace=pace, webhooks=WebhookLimits(seconds=30.0))
    assert set(receiver.taken) == set(ids(8))


def test_a_courier_that_starts_waits_as_long_as_the_last_one_would_have(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(500)
        await scene.target(receiver.url)
        await scene.notes(["a"])
        await scene.rested()
        await scene.end()
        await scene.begin()
        await scene.rested()
        assert receiver.ids == ["a"]
        assert len(scene.dispatcher._timed) == 1
        receiver.answer = lambda _: Reply(200)
        await scene.later(5.0)

    assert played(tmp_path, story).taken == ["a"]


@pytest.mark.parametrize("seed", range(6))
def test_dispatchers_that_are_dropped_anywhere_lose_nothing(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)

    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(chance.choice([200, 200, 200, 500]))
        await scene.target(receiver.url)
        sent = 0
        for _ in range(15):
            number = chance.randrange(20)
            await scene.notes([f"n{sent + k}" for k in range(number)])
            sent += number
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
            if chance.random() < 0.5:
                scene.clock.advance(chance.choice([1.0, 5.0, 60.0]))
            await scene.crash()
            await scene.begin()
        receiver.answer = lambda _: Reply(200)
        for _ in range(5):
            await scene.later(700.0)
        assert set(receiver.taken) == {f"n{k}" for k in range(sent)}

    played(tmp_path, story, limits=ServiceLimits(webhook_attempts=1000))


def test_a_file_that_cannot_be_written_does_not_stop_delivery(tmp_path: Path) -> None:
    listed = Listed()

    async def story(scene: Scene, receiver: Receiver) -> None:
        target = await scene.target(kind="list")
        await scene.commit(ids(50))
        scene.wire.full = True
        scene.dispatcher.wake([7])
        await scene.rested()
        assert listed.got == ids(50)
        assert scene.dispatcher._errors > 0
        await scene.later(600.0)
        assert listed.got == ids(50)  # and nothing is sent again and again
        scene.wire.full = False
        await scene.later(600.0)
        state = await scene.state(target)
        assert (state.delivered, state.behind, state.state) == (50, 0, "on")
        assert await scene.counted() == {"delivered": 50}
        await scene.end()
        await scene.begin()
        await scene.rested()

    played(tmp_path, story, sinks={"list": listed.make}, pace=DispatcherOptions(piece=10))
    assert listed.got == ids(50)


def test_failures_that_could_not_be_written_are_remembered_too(tmp_path: Path) -> None:
    async def story(scene: Scene, receiver: Receiver) -> None:
        bad = {"m0001"}
        receiver.answer = lambda request: Reply(500 if request.id in bad else 200)
        target = await scene.target(receiver.url)
        await scene.commit(ids(100))
        scene.wire.full = True
        scene.dispatcher.wake([7])
        await scene.rested()
        assert sorted(receiver.taken) == [one for one in ids(100) if one not in bad]
        bad.clear()
        await scene.later(10.0)
        assert sorted(receiver.taken) == ids(100)
        scene.wire.full = False
        await scene.later(600.0)
        state = await scene.state(target)
        assert (state.delivered, state.waiting, state.state) == (100, 0, "on")

    played(tmp_path, story)


_CHILD = """
import asyncio, sys
from ensue.service.store.database import Database
from ensue.service.delivery.addresses import AddressGuard
from ensue.service.delivery.dispatcher import Dispatcher, DispatcherOptions
from ensue.service.delivery.retry_queue import Backoff
from ensue.service.delivery.webhooks import Webhooks
from ensue.service.secrets import SecretCipher
from ensue.service.settings import ServiceLimits

async def main():
    quick = Backoff((0.01, 0.02))
    webhooks = Webhooks(AddressGuard(["127.0.0.0/8"]))
    database = Database(sys.argv[1])
    database.seal = SecretCipher([sys.argv[2]], "a test")
    dispatcher = Dispatcher(
        database,
        {"webhook": webhooks.make},
        ServiceLimits(webhook_attempts=10**6),
        pace=DispatcherOptions(requests=quick),
    )
    await dispatcher.start()
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_process_that_is_killed_at_random_points_loses_nothing(tmp_path: Path) -> None:
    chance = Random(9)

    async def story(scene: Scene, receiver: Receiver) -> None:
        receiver.answer = lambda _: Reply(chance.choice([200] * 9 + [500]))
        await scene.end()
        await scene.target(receiver.url)
        await scene.commit(ids(600))
        kills = 0
        while len(set(receiver.taken)) < 600:
            before = len(receiver.requests)
            child = subprocess.Popen(
                [sys.executable, "-c", _CHILD, str(tmp_path / "service.db"), SEAL_KEY],
                env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
            )
            try:
                if kills < 3:
                    await receiver.until(before + chance.randrange(1, 150))
                    kills += 1
                else:
                    while len(set(receiver.taken)) < 600:
                        await receiver.until(len(receiver.requests) + 1)
                        await asyncio.sleep(0)
            finally:
                child.send_signal(signal.SIGKILL)
                child.wait()
        assert kills == 3
        assert json.loads(receiver.requests[0].body)["match_id"] == receiver.requests[0].id
        await scene.begin()
        await scene.rested()
        assert (await scene.state(1)).behind == 0

    receiver = played(tmp_path, story)
    assert set(receiver.taken) == set(ids(600))
