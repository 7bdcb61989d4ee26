"""Those who are told: each writes down what it gets, by what a note is known by."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import httpx2

from ensue.service.brokers.mqtt import MqttMessage, MqttSession, SessionOptions
from ensue.service.endpoints import BrokerAccess, ServerAddress
from support.lives import Lives
from support.receivers import Receiver, Reply, Request

Read = Callable[["Inbox"], Awaitable[None]]  # reads all that is there
DEDUPLICATES = 600.0  # seconds that NATS remembers a note


def identity(kind: str, subscription: Any, number: Any, match_id: str | None) -> str:
    """What a receiver knows a note by, however often it comes."""
    return match_id if kind == "match" and match_id else f"sub_{subscription}_{kind}_{number}"


class Inbox:
    """What one receiver got."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.got: Counter[str] = Counter()
        self.numbers: list[int] = []  # where notes come with them

    def take(self, id: str, number: int | None = None) -> None:
        self.got[id] += 1
        if number is not None:
            self.numbers.append(number)

    @property
    def ids(self) -> set[str]:
        return set(self.got)

    @property
    def doubles(self) -> int:
        return self.got.total() - len(self.got)


# ------------------------------------------------------------------------------ over HTTP


async def follow(lives: Lives, inbox: Inbox, subscription: int | None = None) -> None:
    """Listens to server-sent events as a browser does, until it is cancelled.

    Numbers grow from one note to the next, whichever life told them.
    """
    asked: dict[str, Any] = {"after": 0} | ({"subscription": subscription} if subscription else {})
    last, headers = 0, {}
    while True:
        try:
            async with lives.stream("/notifications/stream", params=asked, headers=headers) as answer:
                async for number, kind, data in events_of(answer.aiter_lines()):
                    assert kind != "resync", "nothing was forgotten"
                    assert number > last if data is not None else number >= last
                    last = number
                    headers = {"Last-Event-ID": str(last)}
                    if data is not None:
                        body = json.loads(data)
                        id = identity(kind, body["subscription"], number, body.get("match_id"))
                        inbox.take(id, number)
        except httpx2.TransportError:
            await asyncio.sleep(0.01)


async def events_of(lines: AsyncIterator[str]) -> AsyncIterator[tuple[int, str, str | None]]:
    """Events that came as a whole: number, kind and data; an id alone has no data."""
    fields: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        else:
            if "id" in fields:
                yield int(fields["id"]), fields.get("event", ""), fields.get("data")
            fields = {}


async def pull(lives: Lives, inbox: Inbox, chance: Random) -> None:
    """Asks for notes behind the last one, until it is cancelled."""
    after = 0
    while True:
        asked = {"after": after, "limit": chance.randint(1, 60)}
        page = await lives.ask("GET", "/notifications", params=asked)
        assert "resync" not in page, "nothing was forgotten"
        for note in page["items"]:
            assert note["number"] > after
            after = note["number"]
            id = identity(note["kind"], note["subscription"], after, note.get("match_id"))
            inbox.take(id, after)
        assert page["next"] >= after
        after = page["next"]
        if not page["items"]:
            await asyncio.sleep(0.02)


def restless(inbox: Inbox, chance: Random) -> Callable[[Request], Reply]:
    """A webhook's receiver that now and then fails, hangs or breaks off."""
    bad = [Reply(500), Reply(503, {"retry-after": "0"}), Reply(how="hang"), Reply(how="cut"), Reply(how="half")]

    def answer(request: Request) -> Reply:
        if chance.random() < 0.1:
            return chance.choice(bad)
        inbox.take(request.id)
        return Reply()

    return answer


@asynccontextmanager
async def webhook(inbox: Inbox, chance: Random) -> AsyncIterator[dict[str, Any]]:
    """The target of a webhook, while its receiver is there."""
    async with Receiver(restless(inbox, chance)) as receiver:
        yield {"kind": "webhook", "config": {"url": receiver.url}}


# -------------------------------------------------------------------------------- brokers


@asynccontextmanager
async def mqtt_notes(server: str, inbox: Inbox) -> AsyncIterator[dict[str, Any]]:
    """A target whose topics are heard in a session that the broker keeps."""
    host, _, port = server.partition(":")
    session: MqttSession

    def arrived(arrival: MqttMessage) -> None:
        assert arrival.qos == 1
        inbox.take(arrival.properties["id"], int(arrival.properties["number"]))
        session.confirm(arrival)

    access = BrokerAccess((ServerAddress(host, int(port)),))
    session = MqttSession(access, SessionOptions("follower", expires=600), arrived)
    await session.open()
    try:
        await session.subscribe("notes/#")
        yield {"kind": "mqtt", "config": {"server": server, "topic": "notes/{subscription}/{kind}"}}
        assert not session.lost.done()
    finally:
        await session.close()


@asynccontextmanager
async def nats_notes(server: str) -> AsyncIterator[tuple[dict[str, Any], Read]]:
    """A target with a stream of its own, and how to read all that is in it."""
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    async def read(inbox: Inbox) -> None:
        left = (await jetstream.stream_info("NOTES")).state.messages
        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        consumer = await jetstream.pull_subscribe("notes.>", stream="NOTES", config=config)
        while left:
            for message in await consumer.fetch(min(left, 500), timeout=30):
                inbox.take(message.headers["Nats-Msg-Id"], int(message.headers["number"]))
                left -= 1

    connection = await nats.connect(f"nats://{server}")
    try:
        jetstream = connection.jetstream()
        await jetstream.add_stream(name="NOTES", subjects=["notes.>"], duplicate_window=DEDUPLICATES)
        config = {"servers": server, "subject": "notes.{subscription}.{kind}"}
        yield {"kind": "nats", "config": config}, read
    finally:
        await connection.close()


@asynccontextmanager
async def kafka_notes(servers: str, topic: str) -> AsyncIterator[tuple[dict[str, Any], Read]]:
    """A target with a topic of its own, and how to read all that is in it."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read(inbox: Inbox) -> None:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        while await consumer.position(partition) < end:
            for record in (await consumer.getmany(partition, timeout_ms=500)).get(partition, ()):
                about = {name: value.decode() for name, value in record.headers}
                key = record.key.decode()
                assert about["kind"] == "match" or key == about["subscription"]
                id = identity(about["kind"], about["subscription"], about["number"], key)
                inbox.take(id, int(about["number"]))

    consumer = AIOKafkaConsumer(bootstrap_servers=servers, group_id=None)
    await consumer.start()
    try:
        yield {"kind": "kafka", "config": {"servers": servers, "topic": topic}}, read
    finally:
        await consumer.stop()
