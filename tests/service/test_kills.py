"""Kill the service at any moment: everybody is told what was planted, all of it, once by match.

The service is a process (support.killed_service). It dies by SIGKILL from outside at random
moments, or by its own hand at a point of its work, and starts again on the same file, while events
come in on every way and subscriptions are made, changed and cancelled.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from brokers import kafka, mosquitto, nats
from ensue.service.store.database import Database
from support.brokers import kafka_broker, until
from support.followers import Inbox, Read, follow, identity, kafka_notes, mqtt_notes, nats_notes, pull, webhook
from support.lives import PATIENCE, STATEMENTS, Lives, deaths
from support.planting import STREAM, TEXTS, Field, Files, Mqtt, Posts, Way, kafka_way, mqtt_way, nats_way, texts_of
from support.receivers import Receiver, Reply
from support.services import HERE, point, run, service

LIMITS = {
    "allow": ["127.0.0.0/8"],
    "webhook_seconds": 1.0,
    "webhook_attempts": 10_000,  # no dead letters: all arrives at last
    "snapshot_events": 40,  # so many that kills come before, between and in them
}


# -------------------------------------------------------------------------------- the scene


@dataclass
class Scene:
    """Ways in, targets, and who listens."""

    folder: Path
    chance: Random
    lives: Lives
    ways: list[Way]
    targets: list[dict[str, Any]] = field(default_factory=list)
    sinks: dict[str, Inbox] = field(default_factory=dict)
    at_end: dict[str, Read] = field(default_factory=dict)  # sinks that are read in the end
    steady: dict[int, str] = field(default_factory=dict)  # the text of each subscription
    unnumbered: int | None = None  # the subscription to events that may come twice
    unsteady: set[int] = field(default_factory=set)
    enough: bool = False  # no more changes
    sse: Inbox = field(default_factory=lambda: Inbox("SSE"))
    narrow: Inbox = field(default_factory=lambda: Inbox("SSE of one"))
    pulled: Inbox = field(default_factory=lambda: Inbox("pull"))

    async def subscribe(self, key: str, text: str) -> int:
        """Makes a subscription, maybe by several requests, and one all the same."""
        form = {"name": key, "text": text, "targets": self.targets}
        request = {"json": form, "headers": {"Idempotency-Key": key}}
        times = 2 if self.chance.random() < 0.2 else 1
        made = await asyncio.gather(*(self.lives.ask("POST", "/subscriptions", **request) for _ in range(times)))
        assert len({one["id"] for one in made}) == 1
        assert len(made[0]["targets"]) == len(self.targets)
        return int(made[0]["id"])

    @property
    def without_numbers(self) -> set[int]:
        """Objects whose events say nothing of who numbers them."""
        return {way.unnumbered for way in self.ways if isinstance(way, Mqtt)}

    @property
    def made(self) -> set[int]:
        """All subscriptions."""
        loose = set() if self.unnumbered is None else {self.unnumbered}
        return {*self.steady, *self.unsteady} | loose

    async def settle(self, texts: Iterable[str]) -> None:
        """Makes the subscriptions that stay, before there are events."""
        for number, text in enumerate(texts):
            self.steady[await self.subscribe(f"steady {number}", text)] = text
        for id in self.without_numbers:
            self.unnumbered = await self.subscribe("unnumbered", HERE.format(id=id))

    async def change(self) -> None:
        """Makes, changes, pauses and ends other subscriptions, until it is enough."""
        objects = [id for way in self.ways for id in way.objects]
        alive: list[int] = []
        count = 0

        def text() -> str:
            return self.chance.choice(TEXTS).format(id=self.chance.choice(objects))

        while not self.enough:
            if len(alive) < 4:
                count += 1
                alive.append(await self.subscribe(f"unsteady {count}", text()))
                self.unsteady.add(alive[-1])
            id = self.chance.choice(alive)
            path = f"/subscriptions/{id}"
            match self.chance.choice(["change", "pause", "cancel", "leave"]):
                case "change":
                    await self.lives.ask("PATCH", path, json={"text": text()})
                case "pause":
                    await self.lives.ask("POST", f"{path}/pause")
                    await self.lives.ask("POST", f"{path}/resume")
                case "cancel":
                    await self.lives.ask("DELETE", path)
                    alive.remove(id)
            await asyncio.sleep(self.chance.uniform(0, 0.2))

    async def drained(self) -> None:
        """Returns once the service has nothing left to send."""
        async with asyncio.timeout(PATIENCE):
            while any(target["behind"] or target["waiting"] for target in await self._targets()):
                await asyncio.sleep(0.05)

    async def _targets(self) -> list[dict[str, Any]]:
        found = await self._subscriptions({}) + await self._subscriptions({"state": "ended"})
        assert {one["id"] for one in found} == self.made  # none twice, by their keys
        targets = [target for one in found for target in one["targets"]]
        assert len(targets) == len(found) * len(self.targets)
        assert not any(target["dead"] or target["state"] == "off" for target in targets)
        return targets

    async def _subscriptions(self, state: Mapping[str, str]) -> list[dict[str, Any]]:
        page = await self.lives.ask("GET", "/subscriptions", params={"limit": 1_000, **state})
        found: list[dict[str, Any]] = page["items"]
        return found

    def outbox(self) -> dict[str, tuple[int, int]]:
        """What the file says was told: subscription and number, by what the note is known by."""
        rows = self.rows("SELECT kind, subscription, number, match_id FROM outbox ORDER BY number")
        found = {identity(*row): (row[1], row[2]) for row in rows}
        assert len(found) == len(rows)
        return found

    def bodies(self, subscription: int | None) -> list[dict[str, Any]]:
        """What matches of a subscription say."""
        rows = self.rows("SELECT body FROM outbox WHERE kind = 'match' AND subscription = ?", subscription)
        return [json.loads(body) for (body,) in rows]

    def counters(self) -> dict[str, int]:
        """What was counted for the whole service."""
        return dict(self.rows("SELECT name, value FROM counters WHERE subscription = 0"))

    def rows(self, query: str, *values: Any) -> list[Any]:
        """What the file has."""
        with closing(sqlite3.connect(f"file:{self.folder / 'service.db'}?mode=ro", uri=True)) as db:
            return db.execute(query, values).fetchall()


async def survive(scene: Scene, kills: int, longest: float, rounds: int, each: int) -> Field:
    """Lives through all of it, up to a clean end."""
    lives, chance = scene.lives, scene.chance
    planted = Field(lives, scene.ways, chance)

    async def be_killed() -> None:
        for death in deaths(Random(chance.random()), kills, longest):
            await lives.live(death)
        await lives.live()

    async with asyncio.TaskGroup() as group:
        killing = group.create_task(be_killed())
        following = [group.create_task(follow(lives, scene.sse)), group.create_task(pull(lives, scene.pulled, chance))]
        await scene.settle(texts_of(scene.ways))
        following.append(group.create_task(follow(lives, scene.narrow, min(scene.steady))))
        changing = group.create_task(scene.change())
        await planted.plant(rounds, each)
        await killing
        scene.enough = True
        await changing
        await planted.close()
        await scene.drained()
        told = scene.outbox()
        first = [of for of, _ in told.values() if of == min(scene.steady)]
        await until(lambda: len(scene.sse.got) >= len(told), "all by SSE")
        await until(lambda: len(scene.pulled.got) >= len(told), "all by pull")
        await until(lambda: len(scene.narrow.got) >= len(first), "all by SSE of one")
        for name, read in scene.at_end.items():
            await read(scene.sinks[name])
        if "MQTT" in scene.sinks:
            await until(lambda: len(scene.sinks["MQTT"].got) >= len(told), "all by MQTT")
        for task in following:
            task.cancel()
    assert await lives.stop() == 0, lives.said
    return planted


def judge(scene: Scene, planted: Field) -> None:
    """Compares what was received with what was planted, and with what the file says was told."""
    outbox = scene.outbox()
    matches = {id: of for id, (of, _) in outbox.items() if not id.startswith("sub_")}
    wanted = planted.found_by(scene.steady)
    say(scene, planted, outbox, matches, wanted)
    for id, text in scene.steady.items():
        told = {match for match, of in matches.items() if of == id}
        assert told == wanted[id], f"subscription {id}: {text}"
    assert any(wanted.values())
    judge_unnumbered(scene, planted)
    numbers = [number for _, number in outbox.values()]
    for inbox in (scene.sse, scene.pulled):
        assert inbox.numbers == numbers, inbox.name  # each once, in order, none left out
        assert inbox.ids == outbox.keys(), inbox.name
    first = min(scene.steady)
    assert scene.narrow.numbers == [n for of, n in outbox.values() if of == first]
    for inbox in scene.sinks.values():
        assert inbox.ids == outbox.keys(), inbox.name
    if "NATS" in scene.sinks:
        assert not scene.sinks["NATS"].doubles  # the broker drops them
    assert not scene.counters().get("events_bad")


def judge_unnumbered(scene: Scene, planted: Field) -> None:
    """All events without a number were told of, though some of them maybe twice.

    An MQTT message that was not confirmed comes again, and nothing in it says so: it is another
    event, with a match of its own.
    """
    times = {event["t"] for event in planted.events if event["id"] in scene.without_numbers}
    assert {body["end"] for body in scene.bodies(scene.unnumbered)} == times


def say(
    scene: Scene, planted: Field, outbox: Mapping[str, Any], matches: Mapping[str, int], wanted: Mapping[int, set[str]]
) -> None:
    """The figures of a run."""
    lives, inboxes = scene.lives, [scene.sse, scene.pulled, *scene.sinks.values()]
    steady = {match for match, of in matches.items() if of in scene.steady}
    planted_matches = set[str]().union(*wanted.values())
    unnumbered = [id for id, of in matches.items() if of == scene.unnumbered]
    once = [event for event in planted.events if event["id"] in scene.without_numbers]
    late = scene.counters().get("events_late", 0)
    print(
        f"\n{lives.kills} kills {dict(lives.died)}, {lives.unanswered} requests made again"
        f"\n{planted.rounds} rounds, {len(planted.events)} events in, "
        f"{scene.counters().get('events_repeated', 0)} came again and were dropped, {late} late"
        f"\n{len(scene.steady)} subscriptions that stay: {len(planted_matches)} matches planted, "
        f"{len(planted_matches - steady)} lost, {len(steady - planted_matches)} too many"
        f"\n{len(scene.unsteady)} that change: "
        f"{len(matches) - len(steady) - len(unnumbered)} matches"
        f"\n1 to events without numbers: {len(once)} planted, "
        f"{len(unnumbered) - len(once)} more because they came again"
    )
    for inbox in inboxes:
        print(
            f"{inbox.name}: {len(outbox)} told, {len(outbox.keys() - inbox.ids)} lost, "
            f"{inbox.doubles} doubles of the same id"
        )


# --------------------------------------------------------------------------------- the tests


@asynccontextmanager
async def whole_scene(folder: Path, seed: int) -> AsyncIterator[Scene]:
    """Every way in, and every sink."""
    chance = Random(seed)
    servers = kafka_broker().address
    files = Files(folder / "events", (21, 22, 23))
    sinks = {name: Inbox(name) for name in ("webhook", "Kafka", "MQTT", "NATS")}
    async with AsyncExitStack() as stack:
        mqtt = stack.enter_context(mosquitto.Broker()).address
        jetstream = stack.enter_context(nats.Broker()).address
        enter = stack.enter_async_context
        by_kafka = await enter(kafka_way(servers, f"events-{seed}", (31, 32, 33), chance))
        by_nats = await enter(nats_way(jetstream, (41, 42, 43), chance))
        by_mqtt = await enter(mqtt_way(mqtt, (51, 52, 53, 54), chance))
        to_webhook = await enter(webhook(sinks["webhook"], Random(seed)))
        to_kafka, read_kafka = await enter(kafka_notes(servers, f"notes-{seed}"))
        to_nats, read_nats = await enter(nats_notes(jetstream))
        to_mqtt = await enter(mqtt_notes(mqtt, sinks["MQTT"]))
        sources = [way.source for way in (files, by_kafka, by_nats, by_mqtt)]
        lives = await enter(Lives(folder, **STREAM, limits=LIMITS, sources=sources))
        posts = [Posts(lives, name, (k, k + 1, k + 2), chance) for name, k in (("p", 11), ("q", 61))]
        yield Scene(
            folder, chance, lives, [*posts, files, by_kafka, by_nats, by_mqtt],
            [to_webhook, to_kafka, to_nats, to_mqtt], sinks,
            {"Kafka": read_kafka, "NATS": read_nats},
        )  # fmt: skip


@asynccontextmanager
async def small_scene(folder: Path, seed: int) -> AsyncIterator[Scene]:
    """POST and a folder in; a webhook, server-sent events and pull out."""
    chance = Random(seed)
    files = Files(folder / "events", (21, 22, 23))
    hooks = Inbox("webhook")
    said = {**STREAM, "limits": LIMITS, "synchronous": "NORMAL", "sources": [files.source]}
    async with Lives(folder, **said) as lives, webhook(hooks, Random(seed)) as target:
        ways: list[Way] = [Posts(lives, "p", (11, 12, 13), chance), files]
        yield Scene(folder, chance, lives, ways, [target], {"webhook": hooks})


@pytest.mark.slow
def test_a_service_that_is_killed_tells_everybody_what_was_planted(tmp_path):
    async def story():
        async with small_scene(tmp_path, seed=1) as scene:
            return scene, await survive(scene, kills=4, longest=2.5, rounds=3, each=6)

    scene, planted = run(story, 300)
    judge(scene, planted)
    assert scene.lives.kills == 4


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("seed", range(3))
def test_kills_lose_and_double_nothing_on_any_way_in_or_out(tmp_path, seed):
    for missing in (kafka.missing(), mosquitto.missing(), nats.missing()):
        if missing is not None:
            pytest.skip(missing)

    async def story():
        async with whole_scene(tmp_path, seed) as scene:
            return scene, await survive(scene, kills=20, longest=6.0, rounds=5, each=8)

    scene, planted = run(story, 900)
    judge(scene, planted)
    assert scene.lives.kills == 20


@pytest.mark.slow  # a signal to the server is tried every day, see test_http_server
def test_a_service_that_is_told_to_stop_ends_streams_and_finishes_what_it_has_begun(tmp_path):
    async def story():
        async with small_scene(tmp_path, seed=2) as scene:
            lives, (posts, _) = scene.lives, scene.ways
            await lives.live()
            await scene.settle([HERE.format(id=11)])

            async def heard() -> list[str]:
                async with lives.stream("/notifications/stream", params={"after": 0}) as answer:
                    return [line async for line in answer.aiter_lines()]

            hearing = asyncio.create_task(heard())
            posting = asyncio.create_task(posts.send([point(10 * t, 11, 0.0) for t in range(90)]))
            await until(lambda: posts.expected.get("p", 0) > 30, "some answers")
            assert await lives.stop() == 0, lives.said
            assert not posting.done()
            frames = "\n".join(await hearing).strip().split("\n\n")  # ended, not broken off
            assert frames[-1] == ": the service is shutting down"
            last = scene.rows("SELECT max(position) FROM batches")
            assert scene.rows("SELECT position FROM snapshots") == last  # nothing to match again

            await lives.live()
            await posting
            told = [int(frame.split()[1]) for frame in frames if "event: " in frame]
            asked = {"after": told[-1], "limit": 1_000}
            page = await lives.ask("GET", "/notifications", params=asked)
            later = [note["number"] for note in page["items"]]
            assert [*told, *later] == [number for _, number in scene.outbox().values()]
            assert min(len(told), len(later)) > 1
            await scene.drained()
            assert await lives.stop() == 0, lives.said
        ends = [body["end"] for body in scene.bodies(min(scene.steady))]
        assert ends == list(range(0, 690, 10))  # the last ones wait for the watermark
        assert scene.sinks["webhook"].ids == scene.outbox().keys()

    run(story, 300)


def test_the_points_of_death_are_on_the_way_of_a_service(tmp_path, monkeypatch):
    statements: list[str] = []

    class Traced(Database):
        def _open(self, *, read_only: bool = False) -> sqlite3.Connection:
            db = super()._open(read_only=read_only)
            if not read_only:
                db.set_trace_callback(statements.append)
            return db

    async def story():
        failing = Receiver(lambda request: Reply(500))
        async with failing, service(tmp_path / "a.db", limits=LIMITS) as s:
            await s.subscribe(
                HERE.format(id=1), targets=[{"kind": "webhook", "url": failing.url}], idempotency_key="key"
            )
            await s.publish(point(1, 1, 0.0), producer="p", sequence=0)
            await s.dispatcher.wait_until_idle()
            await s.do(s.core.run_housekeeping)

    monkeypatch.setattr("ensue.service.service.Database", Traced)
    run(story)
    for begins in STATEMENTS:
        assert any(one.startswith(begins) for one in statements), begins
