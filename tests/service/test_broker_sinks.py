"""Notes to real brokers: all of them arrive, whatever happens to the broker meanwhile."""

import asyncio
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from brokers import mosquitto as mosquitto_testing
from brokers import nats as nats_testing
from brokers.processes import free_port
from ensue.errors import RunnerError, ServiceError
from ensue.service.brokers import kafka, mqtt, nats
from ensue.service.brokers.mqtt import MqttMessage, MqttSession, SessionOptions
from ensue.service.delivery.sink import DeliveryError
from ensue.service.endpoints import BrokerAccess, ServerAddress, parse_endpoint
from ensue.service.store.outbox import Notification
from ensue.service.store.target_store import mask_config
from support.brokers import KafkaRestart, delivered, kafka_broker, needs_mosquitto, needs_nats, notes, until
from support.services import HERE, all_notes, point, run, service

SECRET = "hunter2-is-no-password"
NOBODY = "127.0.0.1:1"  # nothing listens there

MAKES: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "kafka": (kafka.make_kafka_sink, {"servers": NOBODY, "topic": "alerts"}),
    "mqtt": (mqtt.make_mqtt_sink, {"server": NOBODY, "topic": "alerts"}),
    "nats": (nats.make_nats_sink, {"servers": NOBODY, "subject": "alerts"}),
}
kinds = pytest.mark.parametrize("kind", list(MAKES))


# ----------------------------------------------------------------------------- configuration


@kinds
@pytest.mark.parametrize("missing", [0, 1])
def test_what_is_missing_is_named(kind, missing):
    make, config = MAKES[kind]
    left_out = list(config)[missing]
    with pytest.raises(ServiceError, match=f"'{left_out}' is missing\n  hint: "):
        make({name: value for name, value in config.items() if name != left_out})


@kinds
def test_what_is_unknown_is_named_with_what_was_meant(kind):
    make, config = MAKES[kind]
    with pytest.raises(ServiceError, match=r"unknown key 'pasword'\n  hint: .*'password'") as said:
        make({**config, "pasword": SECRET})
    assert SECRET not in str(said.value)


@kinds
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"timeout": "soon"}, "timeout='soon'"),
        ({"timeout": True}, "timeout=True"),
        ({"tls": "perhaps"}, "tls='perhaps'"),
        ({"password": "x"}, "a password without a user name"),
        ({"ca": "/nowhere", "tls": True}, "'ca' cannot be read"),
        ({"ca": "/nowhere"}, "'ca' needs TLS"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(kind, wrong, said):
    make, config = MAKES[kind]
    with pytest.raises(ServiceError, match=said):
        make({**config, **wrong})


@kinds
@pytest.mark.parametrize("address", ["", "host:0", "host:99999", f"me:{SECRET}@host:9092", 7])
def test_an_address_that_is_none_is_refused_and_not_repeated(kind, address):
    make, config = MAKES[kind]
    with pytest.raises(ServiceError, match=r"address|missing") as said:
        make({**config, next(iter(config)): address})
    assert SECRET not in str(said.value)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("kafka", "a b"), ("kafka", ".."), ("kafka", "x" * 250), ("mqtt", "a/#"), ("mqtt", "a/+"),
        ("mqtt", "$SYS/x"), ("nats", "a..b"), ("nats", "a.*"), ("nats", "a.>"), ("nats", "a b"),
        ("nats", "$JS.API.STREAM.DELETE.X"), ("nats", "a\r\nPUB b"),
    ],
)  # fmt: skip
def test_a_destination_that_the_broker_would_refuse_is_refused(kind, name):
    make, config = MAKES[kind]
    with pytest.raises(ServiceError, match="target: "):
        make({**config, list(config)[1]: name})


@kinds
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a{usr}", "unknown placeholder 'usr'\n  hint: did you mean 'user'"),
        ("a{user", "an unmatched brace"),
        ("a{user.__class__}", "unknown placeholder 'user.__class__'"),
        ("a{user:>9999}", "contains a format"),
        ("a{user!r}", "contains a format"),
        ("a{}", "unknown placeholder ''"),
    ],
)
def test_only_parts_of_a_note_stand_in_a_destination(kind, name, said):
    make, config = MAKES[kind]
    with pytest.raises(ServiceError) as refused:
        make({**config, list(config)[1]: name})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("url", "kind", "config"),
    [
        ("kafka://h:9092/t?timeout=5", "kafka", {"servers": "h:9092", "topic": "t", "timeout": "5"}),
        ("kafka://[::1]:9092/t", "kafka", {"servers": "[::1]:9092", "topic": "t"}),
        ("mqtt://h:1883/a/+/#", "mqtt", {"server": "h:1883", "topic": "a/+/#"}),
        (
            "mqtt://me:p%40ss@h/a/#?client=c",
            "mqtt",
            {"server": "h", "topic": "a/#", "username": "me", "password": "p@ss", "client": "c"},
        ),
        ("nats://h:4222/a.>?stream=S", "nats", {"servers": "h:4222", "subject": "a.>", "stream": "S"}),
        ("nats://tok@h/a", "nats", {"servers": "h", "subject": "a", "token": "tok"}),
        ("folder:/a/b%20c?look=2", "folder", {"path": "/a/b c", "look": "2"}),
        ("folder:///a/b", "folder", {"path": "/a/b"}),
        ("folder:events", "folder", {"path": "events"}),
        ("mqtt://h/ensue/{user}/{subscription}", "mqtt", {"server": "h", "topic": "ensue/{user}/{subscription}"}),
    ],
)
def test_a_url_says_the_same_as_a_configuration(url, kind, config):
    assert parse_endpoint(url) == (kind, config)


@pytest.mark.parametrize(
    "url", [f"amqp://me:{SECRET}@h/q", f"kafka:me:{SECRET}@h/t", f"mqtt://me:{SECRET}@h/t?password={SECRET}", "trucks"]
)
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url):
    with pytest.raises(ServiceError, match="hint: ") as said:
        parse_endpoint(url)
    assert SECRET not in str(said.value)


@kinds
def test_settings_of_a_url_are_as_good_as_those_of_a_mapping(kind):
    make, config = MAKES[kind]
    server, name = config.values()
    url = f"{kind}://me:{SECRET}@{server}/{name}?timeout=0.5&tls=yes"
    found, read = parse_endpoint(url)
    sink = make(read)
    assert found == kind
    assert SECRET not in repr(sink)
    assert SECRET not in repr(vars(sink))
    assert SECRET not in str(mask_config(read))


@kinds
def test_the_password_is_in_no_error(kind, caplog):
    make, config = MAKES[kind]
    sink = make({**config, "username": "me", "password": SECRET, "timeout": 5})

    async def story():
        with pytest.raises(DeliveryError, match=r"127\.0\.0\.1:1 does not respond") as said:
            await sink.send(notes(2))
        await sink.close()
        return said.value

    error = run(story)
    assert error.sent == 0
    assert SECRET not in f"{error!r} {error.__cause__!r} {caplog.text}"


# ----------------------------------------------------------------------- brokers that fail us


@kinds
def test_a_broker_that_never_answers_is_given_up(kind):
    make, config = MAKES[kind]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        sink = make({**config, next(iter(config)): address, "timeout": 0.5})

        async def story():
            for _ in range(2):
                with pytest.raises(DeliveryError, match=f"{address} does not respond"):
                    await sink.send(notes(2))
            await sink.close()

        run(story)


@kinds
def test_no_notes_need_no_broker(kind):
    make, config = MAKES[kind]

    async def story():
        sink = make(config)
        await sink.send([])
        await sink.close()
        await sink.close()

    run(story)


# ------------------------------------------------------------------------------------- MQTT


def mqtt_access(broker: Any, **more: Any) -> BrokerAccess:
    return BrokerAccess((ServerAddress("127.0.0.1", broker.port),), **more)


@asynccontextmanager
async def listening(broker: Any, *, client: str, **more: Any) -> AsyncIterator[list[MqttMessage]]:
    """What subscribers of all topics get."""
    got: list[MqttMessage] = []
    session: MqttSession

    def arrived(arrival: MqttMessage) -> None:
        got.append(arrival)
        session.confirm(arrival)

    session = MqttSession(mqtt_access(broker, **more), SessionOptions(client, expires=600), arrived)
    await session.open()
    try:
        await session.subscribe("ensue/#")
        yield got
    finally:
        await session.close()


@needs_mosquitto
def test_mqtt_gets_every_note_in_order_with_what_is_known_of_it():
    async def story(broker):
        sink = mqtt.make_mqtt_sink({"server": broker.address, "topic": "ensue/{user}/{subscription}/{kind}"})
        sent = notes(500)
        async with listening(broker, client="a") as got:
            await sink.send(sent)
            await until(lambda: len(got) >= len(sent), "the last note")
        await sink.close()
        assert [g.payload for g in got] == [n.body for n in sent]
        assert [g.topic for g in got[:2]] == ["ensue/3/7/started", "ensue/3/7/match"]
        assert dict(got[0].properties) == {
            "kind": "started", "subscription": "7", "number": "1", "id": "sub_7_started_1",
        }  # fmt: skip
        assert dict(got[1].properties) == {
            "kind": "match", "subscription": "7", "number": "2", "id": "m2",
        }  # fmt: skip
        assert {g.qos for g in got} == {1}

    with mosquitto_testing.Broker() as broker:
        run(lambda: story(broker))


@pytest.mark.slow
@needs_mosquitto
def test_mqtt_loses_nothing_when_the_broker_is_restarted_while_notes_are_sent():
    async def story(broker):
        sink = mqtt.make_mqtt_sink({"server": broker.address, "topic": "ensue/alerts", "timeout": 5})
        async with listening(broker, client="b"):
            pass  # from now on the broker keeps what comes for it
        sending = asyncio.create_task(delivered(sink, notes(3_000)))
        await until(lambda: _mqtt_session(sink) is not None, "a session")
        for _ in range(3):
            await asyncio.sleep(0.1)
            await asyncio.to_thread(broker.stop)  # it writes what it has, as kill -9 does not
            await asyncio.to_thread(broker.start)
        failures = await sending
        await sink.close()
        async with listening(broker, client="b") as got:
            wanted = {n.body for n in notes(3_000)}
            await until(lambda: {g.payload for g in got} >= wanted, "all notes")
        return failures

    with mosquitto_testing.Broker() as broker:
        assert run(lambda: story(broker)) > 0


def _mqtt_session(sink: Any) -> MqttSession | None:
    return sink._shared and sink._shared._connection


@needs_mosquitto
def test_an_mqtt_broker_that_refuses_a_note_has_not_got_it(tmp_path):
    rules = tmp_path / "acl"
    rules.write_text("topic write open\ntopic read #\n")

    async def story(broker):
        allowed = mqtt.make_mqtt_sink({"server": broker.address, "topic": "open"})
        await allowed.send(notes(3))
        sink = mqtt.make_mqtt_sink({"server": broker.address, "topic": "shut"})
        for _ in range(2):
            with pytest.raises(DeliveryError) as said:
                await sink.send(notes(3))
            assert said.value.sent == 0
        assert "rejects the request: not authorized" in said.value.why
        await delivered(allowed, notes(3))  # though mosquitto has hung up on both
        await sink.close()
        await allowed.close()

    with mosquitto_testing.Broker(settings={"acl_file": str(rules)}) as broker:
        run(lambda: story(broker))


@needs_mosquitto
def test_a_wrong_password_is_told_apart_from_silence(tmp_path):
    passwords = tmp_path / "passwords"
    passwords.touch()
    closed = {"allow_anonymous": "false", "password_file": str(passwords)}

    async def story(broker):
        config = {"server": broker.address, "topic": "t", "username": "me", "password": SECRET}
        sink = mqtt.make_mqtt_sink(config)
        with pytest.raises(DeliveryError, match="rejects the request: not authorized") as said:
            await sink.send(notes(1))
        await sink.close()
        assert SECRET not in str(said.value)

    with mosquitto_testing.Broker(settings=closed) as broker:
        run(lambda: story(broker))


@needs_mosquitto
def test_a_note_larger_than_the_mqtt_broker_takes_is_named():
    async def story(broker):
        sink = mqtt.make_mqtt_sink({"server": broker.address, "topic": "t"})
        large = Notification(3, 7, 3, "match", "m3", 0.0, b"x" * 50_000)
        with pytest.raises(DeliveryError, match="notification 3 has 50000 bytes") as said:
            await sink.send([*notes(2), large])
        assert said.value.sent == 2
        await sink.close()

    with mosquitto_testing.Broker(settings={"max_packet_size": "20000"}) as broker:
        run(lambda: story(broker))


@needs_mosquitto
@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not on PATH")
def test_mqtt_over_tls_asks_who_the_broker_is(tmp_path):
    certificate, key = _certificate(tmp_path)
    settings = {"certfile": str(certificate), "keyfile": str(key)}

    async def story(broker):
        address = f"localhost:{broker.port}"
        sink = mqtt.make_mqtt_sink({"server": address, "topic": "ensue/x", "tls": True, "ca": str(certificate)})
        sent = notes(300)
        trusted = {"tls": True, "ca": str(certificate)}
        got: list[MqttMessage] = []
        session = MqttSession(
            BrokerAccess((ServerAddress("localhost", broker.port),), **trusted), SessionOptions("t", 60), got.append
        )
        await session.open()
        await session.subscribe("ensue/#")
        await sink.send(sent)
        await until(lambda: len(got) >= 20, "notes over TLS")
        await session.close()
        await sink.close()
        suspicious = mqtt.make_mqtt_sink({"server": address, "topic": "ensue/x", "tls": True})
        with pytest.raises(DeliveryError, match=r"does not respond .*[Cc]ertificate"):
            await suspicious.send(sent)
        await suspicious.close()

    class Secured(mosquitto_testing.Broker):
        def answers(self) -> bool:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                return False
            return True

    with Secured(settings=settings) as broker:
        run(lambda: story(broker))


def _certificate(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-keyout", str(key), "-out", str(certificate), "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


# ------------------------------------------------------------------------------------- NATS


async def jetstream(broker: Any) -> Any:
    import nats as client

    connection = await client.connect(f"nats://{broker.address}")
    return connection, connection.jetstream()


async def stored(stream: Any, name: str) -> list[Any]:
    """All messages of a stream, in order."""
    info = await stream.stream_info(name)
    first, last = info.state.first_seq, info.state.last_seq
    return [await stream.get_msg(name, number) for number in range(max(1, first), last + 1)]


@needs_nats
def test_nats_keeps_every_note_once_in_order_with_what_is_known_of_it():
    async def story(broker):
        sink = nats.make_nats_sink({"servers": broker.address, "subject": "ensue.{user}.{kind}"})
        connection, stream = await jetstream(broker)
        await stream.add_stream(name="ALERTS", subjects=["ensue.>"])
        await sink.send(notes(600))
        await sink.send(notes(300))  # as after a crash: the broker drops them
        found = await stored(stream, "ALERTS")
        assert [m.data for m in found] == [n.body for n in notes(600)]
        assert [m.subject for m in found[:2]] == ["ensue.3.started", "ensue.3.match"]
        assert found[0].headers == {
            "kind": "started", "subscription": "7", "number": "1",
            "Nats-Msg-Id": "sub_7_started_1",
        }  # fmt: skip
        assert found[1].headers["Nats-Msg-Id"] == "m2"
        await sink.close()
        await connection.close()

    with nats_testing.Broker() as broker:
        run(lambda: story(broker))


@pytest.mark.slow
@needs_nats
def test_nats_loses_and_doubles_nothing_when_the_broker_is_killed_while_notes_are_sent():
    async def story(broker):
        connection, stream = await jetstream(broker)
        await stream.add_stream(name="ALERTS", subjects=["alerts"])
        await connection.close()
        sink = nats.make_nats_sink({"servers": broker.address, "subject": "alerts", "timeout": 5})
        sending = asyncio.create_task(delivered(sink, notes(8_000)))
        for _ in range(3):
            await asyncio.sleep(0.1)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
        failures = await sending
        await sink.close()
        connection, stream = await jetstream(broker)
        found = await stored(stream, "ALERTS")
        await connection.close()
        assert sorted(m.data for m in found) == sorted(n.body for n in notes(8_000))
        return failures

    with nats_testing.Broker() as broker:
        assert run(lambda: story(broker)) > 0


@needs_nats
@pytest.mark.parametrize(
    ("jetstream_on", "said"),
    [
        (True, "has no stream for the subject 'alerts'\n  hint: nats stream add"),
        (False, "has no JetStream\n  hint: enable it"),
    ],
)
def test_without_a_stream_nats_has_nothing_and_says_what_to_do(jetstream_on, said):
    async def story(broker):
        sink = nats.make_nats_sink({"servers": broker.address, "subject": "alerts", "timeout": 5})
        with pytest.raises(DeliveryError, match=said) as undelivered:
            await sink.send(notes(3))
        assert undelivered.value.sent == 0
        await sink.close()

    with nats_testing.Broker(jetstream=jetstream_on) as broker:
        run(lambda: story(broker))


@needs_nats
@pytest.mark.parametrize("how", [{"username": "me", "password": SECRET}, {"token": SECRET}])
def test_nats_refuses_an_account_without_telling_its_secret(how):
    async def story(broker):
        sink = nats.make_nats_sink({"servers": broker.address, "subject": "alerts", **how})
        with pytest.raises(DeliveryError, match=r"rejects the account|Authorization") as said:
            await sink.send(notes(1))
        await sink.close()
        assert SECRET not in f"{said.value!r} {sink!r}"

    with nats_testing.Broker(settings=['authorization { user: "a", password: "b" }']) as broker:
        run(lambda: story(broker))


@needs_nats
def test_a_note_larger_than_nats_takes_is_named():
    async def story(broker):
        connection, stream = await jetstream(broker)
        await stream.add_stream(name="ALERTS", subjects=["alerts"])
        await connection.close()
        sink = nats.make_nats_sink({"servers": broker.address, "subject": "alerts"})
        large = Notification(3, 7, 3, "match", "m3", 0.0, b"x" * 50_000)
        with pytest.raises(DeliveryError, match=r"larger than NATS .*\n  hint: raise its max_pay") as s:
            await sink.send([*notes(2), large])
        assert s.value.sent == 2
        await sink.close()

    with nats_testing.Broker(settings=["max_payload: 20000"]) as broker:
        run(lambda: story(broker))


@needs_nats
def test_targets_of_one_broker_share_a_connection_until_the_last_is_closed():
    async def story(broker):
        connection, stream = await jetstream(broker)
        await stream.add_stream(name="ALERTS", subjects=["alerts.>"])
        sinks = [nats.make_nats_sink({"servers": broker.address, "subject": f"alerts.{k}"}) for k in range(20)]
        one, *others = notes(20)
        await asyncio.gather(*(s.send([n]) for s, n in zip(sinks, (one, *others), strict=True)))
        lines = {id(sink._shared._connection) for sink in sinks}
        assert len(lines) == 1
        for sink in sinks[1:]:
            await sink.close()
        line = sinks[0]._shared._connection
        await sinks[0].send(notes(1, first=100))
        await sinks[0].close()
        assert line.client.is_closed
        info = await stream.stream_info("ALERTS")
        assert info.state.messages == 21
        await connection.close()

    with nats_testing.Broker() as broker:
        run(lambda: story(broker))


@needs_nats
def test_a_send_that_is_cancelled_leaves_a_sink_that_works():
    async def story(broker):
        connection, stream = await jetstream(broker)
        await stream.add_stream(name="ALERTS", subjects=["alerts"])
        sink = nats.make_nats_sink({"servers": broker.address, "subject": "alerts"})
        for wait in (0.0, 0.001, 0.01):
            sending = asyncio.create_task(sink.send(notes(500)))
            await asyncio.sleep(wait)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        await sink.send(notes(500))
        assert (await stream.stream_info("ALERTS")).state.messages == 500
        await sink.close()
        await connection.close()

    with nats_testing.Broker() as broker:
        run(lambda: story(broker))


# ------------------------------------------------------------------------------ real service


@needs_nats
def test_a_service_delivers_what_it_finds_to_nats_and_goes_on_after_a_restart(tmp_path):
    async def story(broker):
        connection, stream = await jetstream(broker)
        await stream.add_stream(name="ALERTS", subjects=["alerts.>"])
        target = {"kind": "nats", "servers": broker.address, "subject": "alerts.{kind}"}
        for part in range(2):
            async with service(tmp_path / "a.db") as s:
                if not part:
                    await s.subscribe(HERE.format(id=1), targets=[target])
                await s.publish([point(t + 10 * part, 1, 0.0) for t in range(10)])
                while (await stream.stream_info("ALERTS")).state.messages < 1 + 10 * (part + 1):
                    await asyncio.sleep(0.02)
                told = [note.body for note in await all_notes(s)]
        assert [m.data for m in await stored(stream, "ALERTS")] == told
        await connection.close()

    with nats_testing.Broker() as broker:
        run(lambda: story(broker))


@needs_mosquitto
def test_a_service_delivers_what_it_finds_to_mqtt(tmp_path):
    async def story(broker):
        target = {"kind": "mqtt", "server": broker.address, "topic": "ensue/{subscription}"}
        async with service(tmp_path / "a.db") as s, listening(broker, client="a") as got:
            made = await s.subscribe(HERE.format(id=1), targets=[target])
            await s.publish([point(t, 1, 0.0) for t in range(10)])
            await until(lambda: len(got) >= 11, "the notes")
            assert [g.payload for g in got] == [note.body for note in await all_notes(s)]
            assert {g.topic for g in got} == {f"ensue/{made.id}"}

    with mosquitto_testing.Broker() as broker:
        run(lambda: story(broker))


# ------------------------------------------------------------------------- the brokers of tests


EXAMPLES = Path(__file__).parents[2] / "examples"  # with the package of brokers
BROKERS = [
    pytest.param(mosquitto_testing, marks=needs_mosquitto, id="mosquitto"),
    pytest.param(nats_testing, marks=needs_nats, id="nats"),
]


@pytest.mark.parametrize("testing", BROKERS)
def test_a_broker_ends_with_its_block_and_leaves_nothing(testing):
    with testing.Broker() as broker:
        folder, process = broker.folder, broker._process
        assert folder.exists()
    assert process.poll() is not None
    assert not folder.exists()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", broker.port), timeout=1)


@pytest.mark.parametrize("testing", BROKERS)
def test_a_broker_whose_port_is_taken_says_so(testing):
    refused = pytest.raises(RunnerError, match="is in use")
    with testing.Broker() as broker, refused, testing.Broker(port=broker.port):
        pass


@pytest.mark.parametrize("testing", BROKERS)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_broker_runs_until_it_is_asked_to_end(testing, how):
    port = free_port()
    command = [sys.executable, "-m", testing.__name__, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=EXAMPLES) as process:
        assert f"127.0.0.1:{port} until Ctrl-C" in process.stdout.readline()
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        process.send_signal(how)
        try:
            assert process.wait(30) == 0
        finally:
            process.kill()  # if it is still there: the block would wait for it
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)


@pytest.mark.parametrize("testing", BROKERS)
def test_without_its_program_there_is_a_reason(testing, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    assert "apt-get install" in testing.missing()
    with pytest.raises(RunnerError, match="not on PATH"), testing.Broker():
        pass


@pytest.mark.kafka
@pytest.mark.slow
def test_all_brokers_run_until_they_are_asked_to_end():
    ports = [free_port() for _ in range(3)]
    command = [sys.executable, "-m", "brokers", *map(str, ports)]
    with subprocess.Popen(command, cwd=EXAMPLES, stdout=subprocess.PIPE, text=True) as process:
        said = [process.stdout.readline() for _ in range(4)]
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(60) == 0
        finally:
            process.kill()  # if it is still there: the block would wait for it
    assert [f"127.0.0.1:{port}" in line for port, line in zip(ports, said, strict=False)] == ([True] * 3)
    for port in ports:
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=1)


# ------------------------------------------------------------------------------------ Kafka


async def topic_of(broker: Any, topic: str) -> list[Any]:
    """All records of a topic, partition by partition."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=broker.address, auto_offset_reset="earliest")
    await consumer.start()
    try:
        await consumer.beginning_offsets([TopicPartition(topic, 0)])
        partitions = [TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic)]
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        await consumer.seek_to_beginning()
        found: list[Any] = []
        while any([await consumer.position(p) < ends[p] for p in partitions]):
            for some in (await consumer.getmany(timeout_ms=200)).values():
                found += some
        return found
    finally:
        await consumer.stop()


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_gets_every_note_with_its_key_and_headers():
    broker = kafka_broker()

    async def story():
        sink = kafka.make_kafka_sink({"servers": broker.address, "topic": "alerts-{user}"})
        await sink.send(notes(700))
        await sink.close()
        found = await topic_of(broker, "alerts-3")
        assert [r.value for r in found] == [n.body for n in notes(700)]
        assert [r.key for r in found[:3]] == [b"7", b"m2", b"m3"]
        assert dict(found[0].headers) == {
            "kind": b"started", "subscription": b"7", "number": b"1",
        }  # fmt: skip

    run(story)


@pytest.mark.kafka
@pytest.mark.slow
def test_kafka_loses_and_doubles_nothing_when_the_broker_is_killed_while_notes_are_sent():
    broker = kafka_broker()

    async def story():
        sink = kafka.make_kafka_sink({"servers": broker.address, "topic": "restarted", "timeout": 3})
        await sink.send(notes(1))
        sending = asyncio.create_task(delivered(sink, notes(20_000, first=2)))
        restart = KafkaRestart(broker)
        await asyncio.sleep(0.1)
        await asyncio.to_thread(restart.kill)
        await asyncio.sleep(5)  # longer than the sink waits for an answer
        await asyncio.to_thread(restart.start)
        failures = await sending
        await sink.close()
        found = await topic_of(broker, "restarted")
        assert sorted(r.value for r in found) == sorted(n.body for n in notes(20_001))
        return failures

    assert run(story, 120) > 0


@pytest.mark.kafka
@pytest.mark.slow
def test_a_note_larger_than_kafka_takes_is_told_and_those_before_it_are_there():
    broker = kafka_broker()

    async def story():
        sink = kafka.make_kafka_sink({"servers": broker.address, "topic": "large", "timeout": 10})
        large = Notification(3, 7, 3, "match", "m3", 0.0, b"x" * 9_000_000)
        with pytest.raises(DeliveryError, match="larger than Kafka") as said:
            await sink.send([*notes(2), large])
        assert said.value.sent == 2
        middle = Notification(3, 7, 3, "match", "m3", 0.0, b"x" * 3_000_000)
        with pytest.raises(DeliveryError, match="larger than Kafka"):
            await sink.send([middle])
        await sink.send(notes(5, first=4))  # the producer was replaced
        await sink.close()
        assert len(await topic_of(broker, "large")) == 7

    run(story)
