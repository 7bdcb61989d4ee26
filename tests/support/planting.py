"""Events on several ways into one service, so that what it must find is known beforehand.

Every round has a hundred units of time, and no two events the same. A round goes out once the
one before the last is taken on all ways: with a watermark of two rounds nothing is late.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pyarrow as pa

import ensue
from ensue.service.brokers.mqtt import MqttSession, SessionOptions
from ensue.service.endpoints import BrokerAccess, ServerAddress
from support.lives import PATIENCE, Lives
from support.services import DEPOT, HERE, LEFT, POINTS, point

ROUND = 100  # units of time
WATERMARK = 2 * ROUND
STREAM = {
    "schema": POINTS, "time": "t", "location": ["x", "y"], "key": "id",
    "regions": {"Depot": DEPOT}, "watermark": WATERMARK,
}  # fmt: skip
TEXTS = (
    HERE,
    LEFT,
    "!(A; 17)(ARITH:id = {id}, ARITH:x > 20), A = (ARITH:id = {id}, ARITH:x < 20)",
    "PATTERN SEQ(Any a, Any b) WHERE a.id = {id} AND b.id = {id} AND a.x < b.x WITHIN 39",
)
ACROSS = "PATTERN SEQ(Any a, Any b) WHERE a.id = {id} AND b.id = {other} AND a.x < b.x WITHIN 30"

Event = dict[str, Any]


# ------------------------------------------------------------------------------------- ways


class Way(Protocol):
    """A way that events come in by. `expected`: the positions once all of it is taken."""

    objects: Sequence[int]
    expected: dict[str, int]

    async def send(self, events: Sequence[Event]) -> None: ...


class Posts:
    """POST, with a producer and a sequence: what was not answered is sent again."""

    def __init__(self, lives: Lives, name: str, objects: Sequence[int], chance: Random) -> None:
        self._lives, self._name, self._chance = lives, name, chance
        self._next = 0
        self.objects = objects
        self.expected: dict[str, int] = {}

    async def send(self, events: Sequence[Event]) -> None:
        while events:
            some = events[: self._chance.randint(1, 4)]
            events = events[len(some) :]
            times = 2 if self._chance.random() < 0.1 else 1  # somebody is impatient
            await asyncio.gather(*(self._post(some) for _ in range(times)))
            self._next += len(some)
            self.expected[self._name] = self._next

    async def _post(self, some: Sequence[Event]) -> None:
        came = await self._lives.ask(
            "POST",
            "/events",
            content="\n".join(map(json.dumps, some)),
            headers={"content-type": "application/x-ndjson", "producer": self._name, "sequence": str(self._next)},
        )
        assert came["accepted"] + came["repeated"] == len(some), came


class Files:
    """Files in a folder, each there as a whole."""

    def __init__(self, folder: Path, objects: Sequence[int]) -> None:
        folder.mkdir()
        self._folder = folder
        self._count = 0
        self.objects = objects
        self.expected: dict[str, int] = {}

    @property
    def source(self) -> dict[str, Any]:
        return {"kind": "folder", "config": {"path": str(self._folder), "look": 0.02}}

    async def send(self, events: Sequence[Event]) -> None:
        self._count += 1
        file = self._folder / f"{self._count:06}.jsonl"
        new = self._folder / f".{file.name}"
        new.write_text("".join(json.dumps(event) + "\n" for event in events))
        new.rename(file)
        self.expected[f"folder:{self._folder.absolute()}:{file.name}"] = len(events)


def messages_of(events: Sequence[Event], chance: Random) -> Iterator[bytes]:
    """Events alone, or some in a list."""
    while events:
        some = events[: chance.choice((1, 1, 2, 3))]
        events = events[len(some) :]
        yield json.dumps(some[0] if len(some) == 1 else some).encode()


class Kafka:
    """Records of a topic with two partitions."""

    def __init__(self, producer: Any, servers: str, topic: str, objects: Sequence[int], chance: Random) -> None:
        self._producer = producer
        self._topic = topic
        self._chance = chance
        self.objects = objects
        self.expected: dict[str, int] = {}
        self.source = {"kind": "kafka", "config": {"servers": servers, "topic": topic, "look": 0.5}}

    async def send(self, events: Sequence[Event]) -> None:
        for payload in messages_of(events, self._chance):
            done = await self._producer.send_and_wait(self._topic, payload, partition=self._chance.randrange(2))
            self.expected[f"kafka:{self._topic}:{done.partition}"] = done.offset + 1


class Nats:
    """Messages of a JetStream stream."""

    stream = "EVENTS"

    def __init__(self, jetstream: Any, servers: str, objects: Sequence[int], chance: Random) -> None:
        self._jetstream = jetstream
        self._chance = chance
        self.objects = objects
        self.expected: dict[str, int] = {}
        self.source = {"kind": "nats", "config": {"servers": servers, "subject": "events.>", "stream": self.stream}}

    async def send(self, events: Sequence[Event]) -> None:
        for payload in messages_of(events, self._chance):
            done = await self._jetstream.publish("events.trucks", payload)
            self.expected[f"nats:{self.stream}:events.>"] = done.seq + 1


class Mqtt:
    """Messages of a topic: those of the last object say nothing of who numbers them.

    They go out before the numbered ones, and the broker keeps the order: when those are taken,
    these are.
    """

    client = "killed"

    def __init__(self, session: MqttSession, server: str, objects: Sequence[int], chance: Random) -> None:
        self._session = session
        self._chance = chance
        self._next = 0
        self.objects = objects
        self.expected: dict[str, int] = {}
        self.source = {"kind": "mqtt", "config": {"server": server, "topic": "events/#", "client": self.client}}

    @property
    def unnumbered(self) -> int:
        return self.objects[-1]

    async def send(self, events: Sequence[Event]) -> None:
        for event in events:
            if event["id"] == self.unnumbered:
                await self._post(json.dumps(event).encode(), {})
        numbered = [event for event in events if event["id"] != self.unnumbered]
        for payload in messages_of(numbered, self._chance):
            about = {"producer": "trucks", "sequence": str(self._next)}
            for _ in range(2 if self._chance.random() < 0.1 else 1):  # maybe once more
                await self._post(payload, about)
            self._next += 1
        self.expected["mqtt:trucks"] = self._next

    async def _post(self, payload: bytes, about: Mapping[str, str]) -> None:
        await (await self._session.post("events/trucks", payload, about))


# ---------------------------------------------------------------------------------- brokers


@asynccontextmanager
async def kafka_way(servers: str, topic: str, objects: Sequence[int], chance: Random) -> AsyncIterator[Kafka]:
    """The way by Kafka, to a new topic."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 2, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all")
    await producer.start()
    try:
        yield Kafka(producer, servers, topic, objects, chance)
    finally:
        await producer.stop()


@asynccontextmanager
async def nats_way(server: str, objects: Sequence[int], chance: Random) -> AsyncIterator[Nats]:
    """The way by NATS, to a new stream."""
    import nats

    connection = await nats.connect(f"nats://{server}")
    try:
        jetstream = connection.jetstream()
        await jetstream.add_stream(name=Nats.stream, subjects=["events.>"])
        yield Nats(jetstream, server, objects, chance)
    finally:
        await connection.close()


@asynccontextmanager
async def mqtt_way(server: str, objects: Sequence[int], chance: Random) -> AsyncIterator[Mqtt]:
    """The way by MQTT."""
    host, _, port = server.partition(":")
    access = BrokerAccess((ServerAddress(host, int(port)),))
    # The broker keeps messages for the source from now on, though it was never there.
    reserved = await MqttSession(access, SessionOptions(Mqtt.client, expires=3_600)).open()
    await reserved.subscribe("events/#")
    await reserved.close()
    session = await MqttSession(access, SessionOptions()).open()
    try:
        yield Mqtt(session, server, objects, chance)
    finally:
        await session.close()


# --------------------------------------------------------------------------------- planting


class Field:
    """What is planted, way by way, and what must be found of it."""

    def __init__(self, lives: Lives, ways: Sequence[Way], chance: Random) -> None:
        self._lives, self._ways, self._chance = lives, ways, chance
        self._locks = [asyncio.Lock() for _ in ways]  # a way keeps its order
        self.events: list[Event] = []
        self.rounds = 0

    async def plant(self, rounds: int, each: int) -> None:
        """Sends rounds of events until the last life has begun, then so many more."""
        before: list[asyncio.Task[None]] = []
        while rounds:
            if self._lives.over:
                rounds -= 1
            sent = [asyncio.create_task(self._send(k, some)) for k, some in enumerate(self._round(each))]
            self.rounds += 1
            await asyncio.gather(*before)
            await self._taken()
            before = sent
        await asyncio.gather(*before)
        await self._taken()

    async def close(self) -> None:
        """Lets time pass, so that nothing is waited for any more."""
        far = point((self.rounds + 10) * ROUND, 0, 0.0)
        self.events.append(far)
        await self._lives.ask("POST", "/events", json=[far], headers={"producer": "end", "sequence": "0"})

    def _round(self, each: int) -> list[list[Event]]:
        begin = self.rounds * ROUND
        times = self._chance.sample(range(begin, begin + ROUND), each * len(self._ways))
        found = []
        for k, way in enumerate(self._ways):
            own = times[k * each : (k + 1) * each]
            objects = [self._chance.choice(way.objects) for _ in own]
            objects[0] = way.objects[0]
            some = [point(t, id, float(self._chance.randrange(0, 60, 5))) for t, id in zip(own, objects, strict=True)]
            self.events += some
            found.append(some)
        return found

    async def _send(self, k: int, events: Sequence[Event]) -> None:
        async with self._locks[k]:
            await self._ways[k].send(events)

    async def _taken(self) -> None:
        """Returns once all that was sent up to here is in the file."""
        expected = {name: next for way in self._ways for name, next in way.expected.items()}
        async with asyncio.timeout(PATIENCE):
            while True:
                items = (await self._lives.ask("GET", "/positions"))["items"]
                at = {one["producer"]: one["next"] for one in items}
                if all(at.get(name, 0) >= next for name, next in expected.items()):
                    return
                await asyncio.sleep(0.01)

    def found_by(self, texts: Mapping[int, str]) -> dict[int, set[str]]:
        """The match ids that each subscription must have told."""
        fleet = ensue.Subscriptions(time="t", location=("x", "y"), regions={"Depot": DEPOT})
        for id, text in texts.items():
            fleet.add(str(id), text)
        schema = pa.schema([(name, pa.type_for_alias(type)) for name, type in POINTS.items()])
        table = pa.Table.from_pylist(sorted(self.events, key=lambda e: e["t"]), schema=schema)
        matches = ensue.match(table, fleet)
        found: dict[int, set[str]] = {id: set() for id in texts}
        for id, match_id in zip(matches["subscription"].to_pylist(), matches["match_id"].to_pylist(), strict=True):
            found[int(id)].add(match_id)
        return found


def texts_of(ways: Sequence[Way]) -> list[str]:
    """What is subscribed to from the start: each way by itself, and one with the next."""
    alone = [
        text.format(id=id) for way in ways for text, id in zip(TEXTS, (*way.objects[:3], way.objects[0]), strict=True)
    ]
    across = [ACROSS.format(id=a.objects[0], other=b.objects[0]) for a, b in pairwise(ways)]
    return alone + across
