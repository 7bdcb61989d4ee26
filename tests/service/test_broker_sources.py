"""Events from real brokers: each is taken, and where a broker has positions, once."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Any

import pytest

from brokers import mosquitto as mosquitto_testing
from brokers import nats as nats_testing
from ensue.errors import ServiceError
from ensue.service.brokers import close_client, kafka, mqtt, nats, run_shielded
from ensue.service.brokers.mqtt import MqttSession, SessionOptions
from ensue.service.endpoints import BrokerAccess, ServerAddress, parse_endpoint
from ensue.service.errors import IntakeStoppedError, OverLimitError
from ensue.service.sources.source import EventSource, Message, batch_messages, split_events
from support.brokers import (
    KafkaRestart,
    Recorder,
    arrow,
    event,
    kafka_broker,
    needs_mosquitto,
    needs_nats,
    reading,
    until,
)
from support.services import HERE, matches, point, run, service

SECRET = "hunter2-is-no-password"
MAKES = {
    "kafka": (kafka.KafkaSource, {"servers": "127.0.0.1:1", "topic": "trucks"}),
    "mqtt": (mqtt.MqttSource, {"server": "127.0.0.1:1", "topic": "trucks/#"}),
    "nats": (nats.NatsSource, {"servers": "127.0.0.1:1", "subject": "trucks.>"}),
}
kinds = pytest.mark.parametrize("kind", list(MAKES))


# --------------------------------------------------------------------------------- messages


@pytest.mark.parametrize(
    ("payload", "lines"),
    [
        (b'{"id": 1}', [b'{"id": 1}']),
        (b' {"id": 1}\n', [b'{"id": 1}']),
        (b'[{"id": 1}, {"id": 2}]', [b'{"id": 1}', b'{"id": 2}']),
        (b"[]", []),
        (b'{"id": 1}\n{"id": 2}\r\n\n{"id": 3}', [b'{"id": 1}', b'{"id": 2}', b'{"id": 3}']),
        (b'{\n  "id": 1,\n  "b": "x\\ny"\n}', [b'{   "id": 1,   "b": "x\\ny" }']),
        (b'{"id": 12345678901234567890.10}', [b'{"id": 12345678901234567890.10}']),
        (b'[{"id": 1.10}]', [b'{"id": 1.10}']),
        (b'{"id": 1}\nnonsense\n{"id": 3}', [b'{"id": 1}', b"nonsense", b'{"id": 3}']),
        (b"[1, 2", [b"[1, 2"]),
        (b'[{"id": 1},]', [b'[{"id": 1},]']),
        (b"non\nsense", [b"non sense"]),
        (b"\xfe\n\xfe", [b"\xfe \xfe"]),
        (b'{"a": "\xc3\xa4"}\n{"b": 1}', [b'{"a": "\xc3\xa4"}', b'{"b": 1}']),
    ],
)
def test_a_message_holds_an_event_or_several(payload, lines):
    assert split_events(payload) == lines


def test_messages_are_joined_in_order_and_events_of_one_share_its_number():
    messages = [
        Message(event(1), 10),
        Message(b"[" + event(2) + b"," + event(3) + b"]", 12),
        Message(b"", 13),
        Message(arrow([4, 5]), 20),
        Message(event(6), 21),
    ]
    first, second, third = batch_messages(messages)
    assert (first.sequences, second.sequences, third.sequences) == ((10, 12, 12), (20, 20), (21,))
    assert first.body == b"\n".join([event(1), event(2), event(3)])
    assert [len(p.messages) for p in batch_messages(messages[:3], most_bytes=1)] == [1, 1]


# ----------------------------------------------------------------------------- configuration


@kinds
def test_a_source_refuses_what_is_missing_or_unknown(kind):
    make, config = MAKES[kind]
    for name in config:
        with pytest.raises(ServiceError, match=f"'{name}' is missing"):
            make({key: value for key, value in config.items() if key != name})
    with pytest.raises(ServiceError, match=r"unknown key 'topc'\n  hint: "):
        make({**config, "topc": "x"})


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("kafka", {"topic": "a b"}), ("mqtt", {"topic": "a/#/b"}), ("mqtt", {"topic": "a+"}),
        ("mqtt", {"expires": 0}), ("nats", {"subject": "a.>.b"}), ("nats", {"stream": "a.b"}),
        ("kafka", {"most": 0}), ("nats", {"wait": -1}), ("kafka", {"look": "often"}),
    ],
)  # fmt: skip
def test_a_source_refuses_what_cannot_be_used(kind, wrong):
    make, config = MAKES[kind]
    with pytest.raises(ServiceError, match="hint: "):
        make({**config, **wrong})


@kinds
def test_no_source_shows_its_password(kind, caplog):
    make, config = MAKES[kind]
    source = make({**config, "username": "me", "password": SECRET, "timeout": 2})

    async def story():
        async with reading(source, Recorder()):
            await until(lambda: source.progress.trouble, "trouble")
        assert "127.0.0.1:1 does not respond" in source.progress.trouble

    run(story)
    said = f"{source!r} {vars(source)!r} {source.progress.trouble} {caplog.text}"
    assert SECRET not in said


# ---------------------------------------------------------------- clients that break the rules


def test_a_cancellation_that_escapes_from_a_client_does_not_end_a_source():
    tries = count()

    class Canceller(EventSource):
        async def _read(self) -> None:
            if next(tries) < 2:
                raise asyncio.CancelledError
            await asyncio.Event().wait()

    async def story():
        reading = Canceller("a source")
        source = asyncio.create_task(reading.run(Recorder()))
        await until(lambda: reading.progress.counts["interruptions"] == 2, "two interruptions")
        await asyncio.sleep(0)
        assert not source.done()
        source.cancel()
        await asyncio.wait([source])
        assert source.cancelled()

    run(story)


def test_a_client_that_swallows_a_cancellation_does_not_hold_up_whoever_cancels():
    async def stubborn() -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.2)
                return

    async def gives_up() -> None:
        raise asyncio.CancelledError

    async def story():
        with pytest.raises(TimeoutError):
            await run_shielded(stubborn(), 0.01)
        with pytest.raises(ConnectionAbortedError):
            await run_shielded(gives_up(), 10)
        await close_client(stubborn(), 0.01)
        await close_client(gives_up(), 10)
        asking = asyncio.create_task(run_shielded(stubborn(), 10))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()

    run(story)


# ----------------------------------------------------------------------- brokers by one name


class Mqtt:
    """Sends to a topic that a source reads."""

    def __init__(self, broker: Any) -> None:
        self.broker = broker

    def config(self, **more: Any) -> dict[str, Any]:
        _, config = parse_endpoint(f"mqtt://{self.broker.address}/trucks/#")
        return {**config, "client": "source", "timeout": 5, **more}

    make = staticmethod(mqtt.MqttSource)

    @asynccontextmanager
    async def sender(self) -> AsyncIterator[Any]:
        access = BrokerAccess((ServerAddress("127.0.0.1", self.broker.port),))
        session = await MqttSession(access, SessionOptions()).open()

        async def send(payloads: Sequence[bytes], **properties: str) -> None:
            posted = [await session.post("trucks/1", p, properties) for p in payloads]
            await asyncio.gather(*posted)

        try:
            yield send
        finally:
            await session.close()

    async def prepared(self) -> None:
        """A session that the broker keeps messages for."""
        source = self.make(self.config())
        recorder = Recorder()
        async with reading(source, recorder), self.sender() as send:
            await until(lambda: source._connected_before, "a session")
            while not recorder.events:  # subscribed
                await send([event(0)])
                await asyncio.sleep(0.02)
            seen = len(recorder.events)
            await asyncio.sleep(0.1)
            await until(lambda: len(recorder.events) >= seen)


class Nats:
    def __init__(self, broker: Any) -> None:
        self.broker = broker

    def config(self, **more: Any) -> dict[str, Any]:
        _, config = parse_endpoint(f"nats://{self.broker.address}/trucks.>?stream=TRUCKS")
        return {**config, "timeout": 5, "look": 0.1, **more}

    make = staticmethod(nats.NatsSource)

    @asynccontextmanager
    async def sender(self) -> AsyncIterator[Any]:
        import nats as client

        connection = await client.connect(f"nats://{self.broker.address}")
        stream = connection.jetstream()

        async def send(payloads: Sequence[bytes]) -> None:
            for payload in payloads:
                await stream.publish("trucks.1", payload)

        send.stream = stream
        try:
            yield send
        finally:
            await connection.close()

    async def prepared(self) -> None:
        async with self.sender() as send:
            await send.stream.add_stream(name="TRUCKS", subjects=["trucks.>", "others.>"])


class Kafka:
    names = count()

    def __init__(self, broker: Any, partitions: int = 1) -> None:
        self.broker = broker
        self.partitions = partitions
        self.topic = f"trucks-{next(self.names)}"

    def config(self, **more: Any) -> dict[str, Any]:
        _, config = parse_endpoint(f"kafka://{self.broker.address}/{self.topic}")
        return {**config, "timeout": 5, "look": 0.2, **more}

    make = staticmethod(kafka.KafkaSource)

    @asynccontextmanager
    async def sender(self) -> AsyncIterator[Any]:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(bootstrap_servers=self.broker.address, acks="all")
        await producer.start()

        async def send(payloads: Sequence[bytes], partition: int | None = None) -> None:
            sent = [await producer.send(self.topic, p, partition=partition) for p in payloads]
            await asyncio.gather(*sent)

        try:
            yield send
        finally:
            await producer.stop()

    @asynccontextmanager
    async def admin(self) -> AsyncIterator[Any]:
        from aiokafka.admin import AIOKafkaAdminClient

        client = AIOKafkaAdminClient(bootstrap_servers=self.broker.address)
        await client.start()
        try:
            yield client
        finally:
            await client.close()

    async def prepared(self) -> None:
        from aiokafka.admin import NewTopic

        async with self.admin() as admin:
            await admin.create_topics([NewTopic(self.topic, self.partitions, 1)])


@pytest.fixture(
    params=[
        pytest.param("mqtt", marks=needs_mosquitto),
        pytest.param("nats", marks=needs_nats),
        pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow]),
    ]
)
def place(request):
    """A broker with nothing in it yet."""
    if request.param == "kafka":
        yield Kafka(kafka_broker())
    elif request.param == "mqtt":
        with mosquitto_testing.Broker() as broker:
            yield Mqtt(broker)
    else:
        with nats_testing.Broker() as broker:
            yield Nats(broker)


def stopping(place: Any) -> Any:
    return KafkaRestart(place.broker) if isinstance(place, Kafka) else place.broker


# ------------------------------------------------------------------------------- every broker


def test_every_event_is_taken_in_order_and_several_at_a_time(place):
    async def story():
        await place.prepared()
        taken = Recorder()
        async with reading(place.make(place.config()), taken) as source, place.sender() as send:
            await send([event(n) for n in range(1, 2_001)])
            await until(lambda: 2_000 in taken.ids, "the last event")
        assert [n for n in taken.ids if n] == list(range(1, 2_001))
        assert taken.calls < 1_000
        assert source.progress.counts["messages"] >= 2_000
        assert source.progress.trouble is None

    run(story)


def test_a_source_that_crashed_goes_on_where_it_was(place):
    async def story():
        await place.prepared()
        taken = Recorder()
        async with place.sender() as send:
            for part in range(5):
                sent = (part + 1) * 100
                async with reading(place.make(place.config()), taken):
                    await send([event(n) for n in range(sent - 99, sent + 1)])
                    await until(lambda last=sent: last - 50 in taken.ids, "half of them")
            async with reading(place.make(place.config()), taken):
                await until(lambda: 500 in taken.ids, "the last event")
        found = [n for n in taken.ids if n]
        assert set(found) == set(range(1, 501))
        if not isinstance(place, Mqtt):  # which has no positions
            assert found == list(range(1, 501))

    run(story)


def test_what_is_sent_while_the_source_is_away_is_taken_when_it_is_back(place):
    async def story():
        await place.prepared()
        async with place.sender() as send:
            await send([event(n) for n in range(1, 301)])
        taken = Recorder()
        async with reading(place.make(place.config()), taken):
            await until(lambda: {*range(1, 301)} <= {*taken.ids}, "all events")
        assert [n for n in taken.ids if n] == list(range(1, 301))

    run(story)


def test_nothing_is_taken_as_read_before_it_is_kept(place):
    async def story():
        await place.prepared()
        stuck = Recorder()
        stuck.open.clear()  # it never answers, as one that crashes before it has written
        async with reading(place.make(place.config(wait=0.001)), stuck), place.sender() as send:
            await send([event(n) for n in range(1, 101)])
            await until(lambda: stuck.calls, "a publish")
        assert not stuck.events
        taken = Recorder()
        async with reading(place.make(place.config()), taken):
            await until(lambda: {*range(1, 101)} <= {*taken.ids}, "all events")

    run(story)


def test_a_service_that_is_slow_is_not_pressed(place):
    async def story():
        await place.prepared()
        slow = Recorder()
        slow.open.clear()
        config = place.config(most=10, wait=0.001)
        async with reading(place.make(config), slow), place.sender() as send:
            await send([event(n) for n in range(1, 501)])
            await until(lambda: slow.calls, "a publish")
            await asyncio.sleep(0.3)
            assert slow.calls == 1
            slow.open.set()
            await until(lambda: {*range(1, 501)} <= {*slow.ids}, "all events")
        assert slow.at_once == 1

    run(story)


def test_events_wait_while_the_service_takes_none(place):
    async def story():
        await place.prepared()
        full = Recorder()
        full.refusals = [IntakeStoppedError("the disk is full")] * 3
        async with reading(place.make(place.config()), full) as source, place.sender() as send:
            await send([event(n) for n in range(1, 51)])
            await until(lambda: source.progress.trouble == "the disk is full", "trouble")
            await until(lambda: {*range(1, 51)} <= {*full.ids}, "all events")
            await until(lambda: source.progress.trouble is None, "the end of trouble")

    run(story)


def test_a_limit_on_events_at_once_makes_pieces_smaller(place):
    class Small(Recorder):
        async def publish(self, events: bytes, **more: Any) -> object:
            if events.count(b"\n") >= 7:
                raise OverLimitError("events_per_request", "too many")
            return await super().publish(events, **more)

    async def story():
        await place.prepared()
        taken = Small()
        async with reading(place.make(place.config()), taken) as source, place.sender() as send:
            await send([event(n) for n in range(1, 101)])
            await until(lambda: 100 in taken.ids, "the last event")
        assert [n for n in taken.ids if n] == list(range(1, 101))
        assert not source.progress.counts["bad"]

    run(story)


def test_what_cannot_be_read_is_put_aside_and_the_rest_is_taken(place):
    async def story():
        await place.prepared()
        taken = Recorder()
        odd = [event(1), b"nonsense", b"\xff\xff\xff\xffno arrow", b"[" + event(2) + b"]", b"[]",
               arrow([3, 4]), b"\xfe\xfe", event(5)]  # fmt: skip
        async with reading(place.make(place.config()), taken) as source, place.sender() as send:
            await send(odd)
            await until(lambda: 5 in taken.ids, "the last event")
            assert [n for n in taken.ids if n] == [1, 2, 3, 4, 5]
            assert len(taken.bad) == 2
            assert source.progress.counts["bad"] == 1

    run(story)


def test_a_broker_that_is_restarted_loses_nothing(place):
    async def story():
        await place.prepared()
        taken = Recorder()
        broker = stopping(place)
        # mosquitto writes what it has when it is stopped, not when it is killed
        stop = broker.stop if isinstance(place, Mqtt) else broker.kill
        async with reading(place.make(place.config()), taken) as source:
            for part in range(2):
                async with place.sender() as send:
                    await send([event(part * 500 + n) for n in range(1, 501)])
                await until(lambda: source.progress.trouble is None, "the end of trouble")
                await asyncio.to_thread(stop)
                await until(lambda: source.progress.trouble, "trouble")
                await asyncio.to_thread(broker.start)
            async with place.sender() as send:
                await send([event(1_001)])
            await until(lambda: {*range(1, 1_002)} <= {*taken.ids}, "all events")
        if not isinstance(place, Mqtt):
            assert [n for n in taken.ids if n] == list(range(1, 1_002))
        assert source.progress.counts["interruptions"] >= 2

    run(story, 180)


def test_a_broker_that_is_not_there_yet_is_waited_for(place):
    if isinstance(place, Kafka):
        pytest.skip("the one Kafka broker of a test run runs already")

    async def story():
        await place.prepared()
        await asyncio.to_thread(place.broker.stop)
        taken = Recorder()
        async with reading(place.make(place.config()), taken) as source:
            await until(lambda: source.progress.trouble, "trouble")
            await asyncio.to_thread(place.broker.start)
            async with place.sender() as send:
                await send([event(1)])
            await until(lambda: 1 in taken.ids, "the event")

    run(story)


def test_a_real_service_finds_matches_in_what_comes(place, tmp_path):
    async def story():
        await place.prepared()
        for part in range(2):  # the second time it goes on in the same file
            async with service(tmp_path / "a.db") as s, place.sender() as send:
                if not part:
                    await s.subscribe(HERE.format(id=1))
                s.add_source(place.make(place.config()))
                times = range(1 + 50 * part, 51 + 50 * part)
                await send([json.dumps(point(t, 1, 0.0)).encode() for t in times])
                while (ends := [m["end"] for m in await matches(s)]).count(times[-1]) == 0:
                    await asyncio.sleep(0.02)
        if isinstance(place, Mqtt):  # sends an unnumbered message again whose answer was lost at the restart
            ends = list(dict.fromkeys(ends))
        assert ends == list(range(1, 101))

    run(story)


def test_a_real_service_takes_all_events_of_one_message(place, tmp_path):
    async def story():
        await place.prepared()
        async with service(tmp_path / "a.db") as s, place.sender() as send:
            await s.subscribe(HERE.format(id=1))
            s.add_source(place.make(place.config()))
            for t in (1, 3):
                await send([json.dumps([point(t, 1, 0.0), point(t + 1, 1, 0.0)]).encode()])
            await send([json.dumps(point(5, 1, 0.0)).encode()])
            while not (found := await matches(s)) or found[-1]["end"] < 5:
                await asyncio.sleep(0.02)
        assert [m["end"] for m in found] == [1, 2, 3, 4, 5]

    run(story)


# ------------------------------------------------------------------------------------- MQTT


@needs_mosquitto
def test_mqtt_is_not_acknowledged_before_publish_has_returned(monkeypatch):
    confirmed = []
    original = MqttSession.confirm

    def confirm(self: MqttSession, arrival: Any) -> None:
        confirmed.append(arrival.payload)
        original(self, arrival)

    async def story(broker):
        place = Mqtt(broker)
        await place.prepared()
        monkeypatch.setattr(MqttSession, "confirm", confirm)
        stuck = Recorder()
        stuck.open.clear()
        source = place.make(place.config(most=5, wait=0.001))
        async with reading(source, stuck), place.sender() as send:
            await send([event(n) for n in range(1, 21)])
            await until(lambda: stuck.calls == 1, "a publish")
            await asyncio.sleep(0.2)
            assert confirmed == []
            stuck.open.set()
            await until(lambda: {event(n) for n in range(1, 21)} <= {*confirmed}, "acknowledged")
            assert {*stuck.ids} >= {*range(1, 21)}

    with mosquitto_testing.Broker() as broker:
        run(lambda: story(broker))


@needs_mosquitto
def test_mqtt_messages_with_a_producer_and_a_number_are_taken_once():
    async def story(broker):
        place = Mqtt(broker)
        taken = Recorder()
        await place.prepared()
        async with reading(place.make(place.config()), taken), place.sender() as send:
            await send([event(1)], producer="truck-1", sequence="10")
            await send([event(2)], producer="truck-1", sequence="11")
            await send([event(1)], producer="truck-1", sequence="10")  # sent again by the device
            await send([event(3)], producer="truck-2", sequence="10")
            await send([event(4)], producer="truck-2", sequence="no number")
            await until(lambda: 4 in taken.ids, "the last event")
        assert [n for n in taken.ids if n] == [1, 2, 3, 4]
        assert taken.positions == {"mqtt:truck-1": 12, "mqtt:truck-2": 11}

    with mosquitto_testing.Broker() as broker:
        run(lambda: story(broker))


@needs_mosquitto
def test_a_numbered_mqtt_message_that_comes_twice_in_a_row_is_one_event(tmp_path):
    async def story(broker):
        place = Mqtt(broker)
        await place.prepared()
        async with place.sender() as send:  # all of it waits for the source, and comes at once
            for number, t in ((10, 1), (10, 1), (11, 2), (10, 1), (11, 2)):
                payload = json.dumps(point(t, 1, 0.0)).encode()
                await send([payload], producer="truck-1", sequence=str(number))
            several = json.dumps([point(3, 1, 0.0), point(4, 1, 0.0)]).encode()
            await send([several], producer="truck-1", sequence="12")
        async with service(tmp_path / "a.db") as s:
            await s.subscribe(HERE.format(id=1))
            s.add_source(place.make(place.config()))
            while 4 not in (ends := [m["end"] for m in await matches(s)]):
                await asyncio.sleep(0.02)
            assert ends == [1, 2, 3, 4]

    with mosquitto_testing.Broker() as broker:
        run(lambda: story(broker))


@needs_mosquitto
def test_a_session_that_the_broker_forgot_is_told():
    async def story(broker):
        place = Mqtt(broker)
        taken = Recorder()
        await place.prepared()
        async with reading(place.make(place.config()), taken) as source:
            await until(lambda: source._connected_before, "a session")
            await asyncio.to_thread(broker.kill)
            for file in (broker.folder / "data").iterdir():
                file.unlink()
            await asyncio.to_thread(broker.start)
            await until(lambda: source.progress.counts["sessions_lost"], "a lost session")

    with mosquitto_testing.Broker() as broker:
        run(lambda: story(broker))


@needs_mosquitto
def test_two_sources_of_one_name_say_so():
    async def story(broker):
        place = Mqtt(broker)
        taken = Recorder()
        one, two = place.make(place.config()), place.make(place.config())

        def said() -> str:
            return f"{one.progress.trouble} {two.progress.trouble}"

        async with reading(one, taken), reading(two, taken):
            await until(lambda: "maybe another client has the name 'source'" in said(), "trouble")
            assert "hint: give each its own client=" in said()

    with mosquitto_testing.Broker() as broker:
        run(lambda: story(broker))


CONNACK = bytes.fromhex("2003000000")
SUBACK, REFUSED = bytes.fromhex("900400010001"), bytes.fromhex("900400010087")
TAKEN_OVER = bytes.fromhex("e0028e00")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([CONNACK, REFUSED], "rejects the request: not authorized"),
        ([CONNACK, SUBACK + TAKEN_OVER], "another client named 'source' took over"),
        ([bytes.fromhex("2003008600")], "rejects the request: bad user name or password"),
    ],
)
def test_what_an_mqtt_broker_says_is_told(answers, said):
    """By a script, as mosquitto 2.0.11 says none of it to a source."""

    async def answering(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.read(1_000)
            writer.write(answer)
        await reader.read()
        writer.close()

    async def story():
        server = await asyncio.start_server(answering, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        config = {"server": f"127.0.0.1:{port}", "topic": "trucks/#", "client": "source"}
        source = mqtt.MqttSource(config)
        async with server, reading(source, Recorder()):
            await until(lambda: said in (source.progress.trouble or ""), said)

    run(story)


# ------------------------------------------------------------------------------------- NATS


@needs_nats
def test_nats_messages_of_other_subjects_are_gaps_that_do_not_matter():
    async def story(broker):
        place = Nats(broker)
        await place.prepared()
        taken = Recorder()
        async with place.sender() as send:
            for n in range(1, 11):
                await send.stream.publish("others.1", b"not for us")
                await send([event(n)])
            for _ in range(2):
                async with reading(place.make(place.config()), taken):
                    await until(lambda: len(taken.ids) == 10, "all events")
        assert taken.ids == list(range(1, 11))
        assert taken.positions == {"nats:TRUCKS:trucks.>": 21}
        assert taken.repeated == 0

    with nats_testing.Broker() as broker:
        run(lambda: story(broker))


@needs_nats
def test_a_stream_that_is_missing_is_waited_for():
    async def story(broker):
        place = Nats(broker)
        config = {key: value for key, value in place.config().items() if key != "stream"}
        taken = Recorder()
        async with reading(place.make(config), taken) as source:
            await until(lambda: source.progress.trouble, "trouble")
            assert "no stream for the subject yet" in source.progress.trouble
            await place.prepared()
            async with place.sender() as send:
                await send([event(1)])
            await until(lambda: taken.ids == [1], "the event")
            assert source.progress.trouble is None

    with nats_testing.Broker() as broker:
        run(lambda: story(broker))


@needs_nats
def test_nats_messages_that_were_deleted_are_counted_and_it_goes_on():
    async def story(broker):
        place = Nats(broker)
        await place.prepared()
        taken = Recorder()
        async with place.sender() as send:
            await send([event(n) for n in range(1, 11)])
            async with reading(place.make(place.config()), taken):
                await until(lambda: 10 in taken.ids, "the tenth")
            await send([event(n) for n in range(11, 31)])
            await send.stream.purge_stream("TRUCKS", keep=5)
            async with reading(place.make(place.config()), taken) as source:
                await until(lambda: 30 in taken.ids, "the last")
        assert taken.ids == [*range(1, 11), *range(26, 31)]
        assert source.progress.counts["missed"] == 15

    with nats_testing.Broker() as broker:
        run(lambda: story(broker))


@needs_nats
def test_another_stream_of_the_same_name_is_not_mistaken_for_the_first():
    async def story(broker):
        place = Nats(broker)
        await place.prepared()
        taken = Recorder()
        async with place.sender() as send:
            await send([event(n) for n in range(1, 11)])
            async with reading(place.make(place.config()), taken):
                await until(lambda: 10 in taken.ids, "the tenth")
            await send.stream.delete_stream("TRUCKS")
        await place.prepared()
        with pytest.raises(
            ServiceError, match=r"ends at 1, but was read up to 11.*\n  hint: use another name, such as name="
        ):
            await place.make(place.config()).run(taken)
        fresh = place.make(place.config(name="trucks again"))
        async with reading(fresh, taken), place.sender() as send:
            await send([event(11)])
            await until(lambda: 11 in taken.ids, "the new event")

    with nats_testing.Broker() as broker:
        run(lambda: story(broker))


# ------------------------------------------------------------------------------------ Kafka


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_partitions_are_read_each_from_its_own_position():
    async def story():
        place = Kafka(kafka_broker(), partitions=3)
        await place.prepared()
        taken = Recorder()
        async with place.sender() as send:
            for part in range(3):
                async with reading(place.make(place.config()), taken):
                    for partition in range(3):
                        first = part * 300 + partition * 100
                        await send([event(n) for n in range(first, first + 100)], partition)
                    await until(lambda last=part: len(taken.ids) >= last * 300 + 150, "half")
            async with reading(place.make(place.config()), taken):
                await until(lambda: len(taken.ids) >= 900, "all events")
        assert sorted(taken.ids) == list(range(900))
        assert taken.positions == {f"kafka:{place.topic}:{p}": 300 for p in range(3)}

    run(story)


@pytest.mark.kafka
@pytest.mark.slow
def test_new_kafka_partitions_are_noticed():
    from aiokafka.admin import NewPartitions

    async def story():
        place = Kafka(kafka_broker(), partitions=1)
        await place.prepared()
        taken = Recorder()
        async with reading(place.make(place.config()), taken):
            async with place.sender() as send:
                await send([event(1)], 0)
            await until(lambda: taken.ids == [1], "the first")
            async with place.admin() as admin:
                await admin.create_partitions({place.topic: NewPartitions(3)})
            async with place.sender() as send:
                await send([event(2)], 2)
                await send([event(3)], 0)
            await until(lambda: sorted(taken.ids) == [1, 2, 3], "events of a new partition")

    run(story)


@pytest.mark.kafka
@pytest.mark.slow
def test_a_kafka_topic_that_does_not_exist_yet_is_waited_for_and_not_made():
    async def story():
        place = Kafka(kafka_broker(), partitions=2)
        taken = Recorder()
        async with reading(place.make(place.config()), taken) as source:
            await until(lambda: source.progress.trouble, "trouble")
            assert f"no topic '{place.topic}' yet" in source.progress.trouble
            await asyncio.sleep(0.5)
            async with place.admin() as admin:
                assert place.topic not in await admin.list_topics()
            await place.prepared()
            async with place.sender() as send:
                await send([event(1)], 1)
            await until(lambda: taken.ids == [1], "the event")

    run(story)


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_records_that_retention_removed_are_counted_and_it_goes_on():
    from aiokafka import TopicPartition
    from aiokafka.admin import RecordsToDelete

    async def story():
        place = Kafka(kafka_broker())
        await place.prepared()
        taken = Recorder()
        async with place.sender() as send, place.admin() as admin:
            await send([event(n) for n in range(10)])
            async with reading(place.make(place.config()), taken):
                await until(lambda: 9 in taken.ids, "the tenth")
            await send([event(n) for n in range(10, 30)])
            where = TopicPartition(place.topic, 0)
            await admin.delete_records({where: RecordsToDelete(25)})
            async with reading(place.make(place.config()), taken) as source:
                await until(lambda: 29 in taken.ids, "the last")
        assert taken.ids == [*range(10), *range(25, 30)]
        assert source.progress.counts["missed"] == 15

    run(story)


@pytest.mark.kafka
@pytest.mark.slow
def test_another_kafka_topic_of_the_same_name_is_not_mistaken_for_the_first():
    async def story():
        place = Kafka(kafka_broker())
        await place.prepared()
        taken = Recorder()
        taken.positions[f"kafka:{place.topic}:0"] = 7
        with pytest.raises(ServiceError, match="ends at 0, but was read up to 7"):
            await place.make(place.config()).run(taken)

    run(story)
