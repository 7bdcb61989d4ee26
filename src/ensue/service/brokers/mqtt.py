"""MQTT 5: a session on an event loop with manual acknowledgements, and its sink and source."""

import asyncio
import hashlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any, NoReturn

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from ensue.errors import ServiceError
from ensue.service.brokers import UnavailableError
from ensue.service.delivery.sink import BrokerSink, DeliveryError, Destination, Sink, get_message_headers, publish_all
from ensue.service.endpoints import BrokerAccess, ConfigReader
from ensue.service.sources.source import EventSource, Message
from ensue.service.store.outbox import Notification

QOS = 1
KEEPALIVE = 30  # seconds
_NEW_ONLY = 1  # retained messages are sent for new subscriptions only
_TAKEN_OVER = 0x8E
_UNBOUNDED = 65_535  # MQTT's default for the number of unacknowledged messages


class MqttSessionError(UnavailableError):
    """A session could not be opened, was lost, or a request was rejected."""

    taken_over = False  # by another client of the same name


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The parameters of a session."""

    client: str = ""  # identifies the session at the broker; empty: assigned by the broker
    expires: int = 0  # seconds that the broker keeps the session after a disconnect
    at_a_time: int = 0  # unacknowledged messages from the broker; 0: its default


@dataclass(frozen=True, slots=True)
class MqttMessage:
    """A received message."""

    topic: str
    payload: bytes
    qos: int
    mid: int = field(repr=False)
    properties: Mapping[str, str] = field(default_factory=dict)  # the last of each name


class MqttSession:
    """A connection with its session, from `open` until `lost` is done."""

    silent = False  # the broker did not answer in time

    def __init__(
        self, access: BrokerAccess, options: SessionOptions, on_message: Callable[[MqttMessage], None] | None = None
    ) -> None:
        self._access = access
        self._options = options
        self._receive = on_message
        self._loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._confirmed: dict[int, asyncio.Future[None]] = {}
        self._misc: asyncio.Task[None] | None = None
        self._socket: Any = None
        self._abandoned = False
        self._client = self._make_client()
        self.lost: asyncio.Future[MqttSessionError] = self._loop.create_future()
        self.resumed = False  # whether the broker had the session
        self.largest: int | None = None  # bytes of a packet
        self.window = asyncio.Semaphore(1)  # unacknowledged messages to the broker, set by it

    @property
    def usable(self) -> bool:
        return not (self.silent or self.lost.done())

    async def open(self) -> "MqttSession":
        """Connects, or raises MqttSessionError."""
        server = self._access.servers[0]
        try:
            async with asyncio.timeout(self._access.timeout):
                await asyncio.to_thread(self._connect, server.host, server.port)
                self._listen()
                await self._connected
        except (OSError, ValueError) as error:  # including timeouts and TLS errors
            self._drop()
            detail = f" ({self._access.without_secrets(str(error))})" if str(error) else ""
            raise MqttSessionError(f"{self._where} does not respond{detail}") from None
        except BaseException:
            self._drop()
            raise
        return self

    async def post(self, topic: str, payload: bytes, properties: Mapping[str, str]) -> "asyncio.Future[None]":
        """Publishes a message when the window allows; returns the future acknowledgement."""
        await self.window.acquire()
        if self.lost.done():
            self.window.release()
            raise self.lost.result()
        user = _properties(PacketTypes.PUBLISH, UserProperty=list(properties.items()))
        info = self._client.publish(topic, payload, qos=QOS, properties=user)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self.window.release()
            raise MqttSessionError(f"the connection to {self._where} was lost")
        future: asyncio.Future[None] = self._loop.create_future()
        future.add_done_callback(lambda _: self.window.release())
        self._confirmed[info.mid] = future
        return future

    async def subscribe(self, topic: str) -> None:
        """Subscribes to a topic; raises MqttSessionError if that is rejected."""
        options = SubscribeOptions(qos=QOS, retainHandling=_NEW_ONLY)
        code, mid = self._client.subscribe(topic, options=options)
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS or mid is None:
            raise MqttSessionError(f"the connection to {self._where} was lost")
        future = self._confirmed[mid] = self._loop.create_future()
        try:
            async with asyncio.timeout(self._access.timeout):
                await future
        except TimeoutError:
            raise MqttSessionError(f"{self._where} does not respond") from None

    def confirm(self, message: MqttMessage) -> None:
        if not self.lost.done():
            self._client.ack(message.mid, message.qos)

    async def close(self) -> None:
        """Disconnects; the broker keeps the session until it expires."""
        if not self.lost.done():
            self._client.disconnect()
        self._drop()

    def _make_client(self) -> paho.Client:
        client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=self._options.client, protocol=paho.MQTTv5,
            manual_ack=True, reconnect_on_failure=False,
        )  # fmt: skip
        client.max_inflight_messages = 0  # `window` limits them
        client.connect_timeout = self._access.timeout
        client.suppress_exceptions = False
        if self._access.username is not None:
            secret = self._access.password
            client.username_pw_set(self._access.username, secret.get_secret_value() if secret else None)
        context = self._access.ssl_context()
        if context is not None:
            client.tls_set_context(context)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_publish = lambda _c, _u, mid, reason, _p: self._settle(mid, reason)
        client.on_subscribe = lambda _c, _u, mid, reasons, _p: self._settle(mid, reasons[0])
        client.on_message = self._on_message
        client.on_socket_open = self._on_socket_open
        client.on_socket_close = self._on_socket_close
        client.on_socket_register_write = self._on_register_write
        client.on_socket_unregister_write = self._on_unregister_write
        return client

    def _on_connect(self, _c: Any, _u: Any, flags: Any, reason: ReasonCode, properties: Properties | None) -> None:
        if self._connected.done():
            return
        if reason.is_failure:
            self._connected.set_exception(self._build_rejection(reason))
            return
        self.resumed = bool(flags.session_present)
        self.largest = getattr(properties, "MaximumPacketSize", None)
        self.window = asyncio.Semaphore(getattr(properties, "ReceiveMaximum", _UNBOUNDED))
        self._connected.set_result(None)

    def _on_disconnect(self, _c: Any, _u: Any, _f: Any, reason: ReasonCode, _p: Any) -> None:
        why = f"the connection to {self._where} was lost ({str(reason).lower()})"
        if reason.value == _TAKEN_OVER:
            why = f"another client named '{self._options.client}' took over at {self._where}"
        error = MqttSessionError(why)
        error.taken_over = reason.value == _TAKEN_OVER
        self._lose(error)

    def _on_message(self, _c: Any, _u: Any, message: paho.MQTTMessage) -> None:
        if self._receive is not None:
            properties = dict(getattr(message.properties, "UserProperty", []))
            payload = bytes(message.payload)
            self._receive(MqttMessage(message.topic, payload, message.qos, message.mid, properties))

    def _settle(self, mid: int, reason: ReasonCode) -> None:
        future = self._confirmed.pop(mid, None)
        if future is None or future.done():
            return
        if reason.is_failure:
            future.set_exception(self._build_rejection(reason))
        else:
            future.set_result(None)

    def _connect(self, host: str, port: int) -> None:
        """Connects in another thread, since resolving and TLS block."""
        options: dict[str, Any] = {"SessionExpiryInterval": self._options.expires}
        if self._options.at_a_time:
            options["ReceiveMaximum"] = min(self._options.at_a_time, _UNBOUNDED)
        clean = not self._options.expires
        properties = _properties(PacketTypes.CONNECT, **options)
        self._client.connect(host, port, KEEPALIVE, clean_start=clean, properties=properties)
        if self._abandoned and self._socket is not None:
            self._socket.close()

    def _listen(self) -> None:
        """Registers the socket with the event loop."""
        if self._socket is None:
            raise ConnectionResetError
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(self._socket, self._read)
        if self._client.want_write():
            self._loop.add_writer(self._socket, self._client.loop_write)
        self._misc = asyncio.create_task(self._run_misc())

    def _read(self) -> None:
        self._client.loop_read()
        # TLS may have buffered more than one packet, for which there is no socket event
        while getattr(self._client.socket(), "pending", int)():
            self._client.loop_read()

    async def _run_misc(self) -> None:
        while self._client.loop_misc() == MQTTErrorCode.MQTT_ERR_SUCCESS:
            await asyncio.sleep(1)

    def _on_socket_open(self, _c: Any, _u: Any, opened: Any) -> None:
        self._socket = opened

    def _on_socket_close(self, _c: Any, _u: Any, closed: Any) -> None:
        self._socket = None
        if self._misc is not None and closed.fileno() >= 0:
            self._loop.remove_reader(closed)
            self._loop.remove_writer(closed)

    def _on_register_write(self, _c: Any, _u: Any, opened: Any) -> None:
        if self._misc is not None:  # otherwise we are in the connecting thread
            self._loop.add_writer(opened, self._client.loop_write)

    def _on_unregister_write(self, _c: Any, _u: Any, opened: Any) -> None:
        if self._misc is not None and opened.fileno() >= 0:
            self._loop.remove_writer(opened)

    def _drop(self) -> None:
        self._abandoned = True
        if self._misc is not None:
            self._misc.cancel()
        if self._socket is not None and self._misc is not None:
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
        self._lose(MqttSessionError(f"the session with {self._where} was closed"))

    def _lose(self, error: MqttSessionError) -> None:
        if not self._connected.done():
            self._connected.set_exception(error)
            self._connected.exception()  # marks it as retrieved, if open() has ended
        if not self.lost.done():
            self.lost.set_result(error)
        waiting, self._confirmed = self._confirmed, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks it as retrieved, if the caller has ended

    @property
    def _where(self) -> str:
        return f"the MQTT broker at {self._access.shown}"

    def _build_rejection(self, reason: ReasonCode) -> MqttSessionError:
        return MqttSessionError(f"{self._where} rejects the request: {str(reason).lower()}")


def _properties(packet: int, **values: Any) -> Properties:
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(properties, name, value)
    return properties


_LONGEST_TOPIC = 65_535  # bytes
_AROUND = 1_024  # upper bound for the bytes of a packet besides topic and body


def make_mqtt_sink(config: Mapping[str, Any]) -> Sink:
    """Creates a sink from `server` and `topic`; optional are `username`, `password`, `tls`, `ca`,
    and `timeout`."""
    reader = ConfigReader("MQTT target", config)
    access = reader.access("mqtt")
    topic = reader.text("topic", hint="the name of a topic, as in ensue/{user}/{subscription}")
    reader.done()
    return MqttSink(access, Destination("MQTT target: 'topic'", topic, _problem))


def _problem(topic: str) -> str | None:
    if topic.startswith("$"):
        return "is reserved for the broker\n  hint: topics that begin with '$' cannot be published to"
    if "+" in topic or "#" in topic or "\0" in topic:
        return "matches several topics\n  hint: do not use + and #"
    if len(topic.encode()) > _LONGEST_TOPIC:
        return "is too long"
    return None


class MqttSink(BrokerSink[MqttSession]):
    """Sends the notifications of one target."""

    _failed = False  # the last attempt

    async def _connect(self) -> MqttSession:
        return await MqttSession(self._access, SessionOptions()).open()

    async def _send(self, session: MqttSession, notifications: Sequence[Notification]) -> None:
        # Some brokers reject and disconnect at once; after a failure the first message goes alone,
        # so that the reason can be read.
        alone = int(self._failed)
        if alone:
            await self._send_some(session, notifications[:1], 0)
        await self._send_some(session, notifications[alone:], alone)
        self._failed = False

    async def _send_some(self, session: MqttSession, notifications: Sequence[Notification], before: int) -> None:
        result = await publish_all(
            notifications, partial(self._publish, session), self._access.timeout, rejected=MqttSessionError
        )
        session.silent |= result.timed_out
        if result.sent < len(notifications):
            self._failed = True
            why = str(result.failure)
            if isinstance(result.failure, TimeoutError):
                why = f"the MQTT broker at {self._access.shown} does not answer"
            raise DeliveryError(why, sent=before + result.sent)

    async def _publish(self, session: MqttSession, notification: Notification) -> "asyncio.Future[None]":
        topic = self._destination.get_address(notification)
        size = len(notification.body) + len(topic.encode()) + _AROUND
        if session.largest is not None and size > session.largest:
            raise MqttSessionError(
                f"notification {notification.number} has {len(notification.body)} bytes, "
                f"more than the MQTT broker at {self._access.shown} accepts\n"
                "  hint: raise its max_packet_size"
            )
        return await session.post(
            topic, notification.body, get_message_headers(notification) | {"id": notification.message_id}
        )


_WEEK = 7 * 86_400
_NEVER = (1 << 32) - 1  # seconds; MQTT's value for "never"
_OVERFLOW = 10_000  # waiting messages of QoS 0, for which MQTT has no flow control
_OTHER = 30.0  # seconds before a session is taken back from another client
_SHORT, _OFTEN = 5.0, 5  # consecutive sessions shorter than this many seconds are suspicious


def _is_filter(topic: str) -> bool:
    """Whether a topic filter is valid in MQTT.

    >>> [_is_filter(topic) for topic in ("a/+/b/#", "+", "a/#/b", "a+/b")]
    [True, True, False, False]
    """
    *front, last = topic.split("/")
    whole = all("+" not in level or level == "+" for level in (*front, last))
    return whole and not any("#" in level for level in front) and ("#" not in last or last == "#")


class MqttSource(EventSource):
    """Reads topics of a broker in a persistent session."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Reads `server` and `topic`, which may contain + and #. The broker stores messages for
        the client `client` while it is disconnected, for at most `expires` seconds. The source
        publishes `most` messages at a time, or those of `wait` seconds. Optional are `username`,
        `password`, `tls`, `ca`, and `timeout`."""
        reader = ConfigReader("MQTT source", config)
        self._access = reader.access("mqtt")
        self._topic = topic = reader.text("topic", hint="a topic, as in trucks/# or trucks/+/position")
        if not _is_filter(topic):
            raise ServiceError(f"MQTT source: '{topic}' is not a topic\n  hint: + stands for one level, # for the rest")
        super().__init__(f"mqtt:{topic}")
        client = reader.optional("client", hint="a name that no other client has")
        expires = min(reader.read_integer("expires", _WEEK), _NEVER)
        self._most = reader.read_integer("most", 500)
        self._wait = reader.seconds("wait", 0.02)
        reader.done()
        client = client or "ensue-" + hashlib.sha256(topic.encode()).hexdigest()[:16]
        self._options = SessionOptions(client, expires, at_a_time=2 * self._most)
        self._connected_before = False
        self._short = 0

    def __repr__(self) -> str:
        return f"MqttSource({self._access.shown}, {self._topic!r})"

    async def _read(self) -> None:
        arrivals: asyncio.Queue[MqttMessage] = asyncio.Queue()

        def enqueue(message: MqttMessage) -> None:
            if message.qos == 0 and arrivals.qsize() >= _OVERFLOW:
                self.progress.count_dropped("missed", "messages of QoS 0 arrive faster than they can be processed")
            else:
                arrivals.put_nowait(message)

        session = await MqttSession(self._access, self._options, enqueue).open()
        opened = time.monotonic()
        try:
            if self._connected_before and not session.resumed:
                self.progress.count_dropped(
                    "sessions_lost", "the MQTT broker has dropped the session: messages since then are lost"
                )
            self._connected_before = True
            await session.subscribe(self._topic)
            self.progress.clear_problem()
            while True:
                batch = await self._receive(arrivals, session)
                for producer, group in groupby(batch, _producer):
                    received = list(group)
                    messages = [Message(each.payload, _number(each) if producer else None) for each in received]
                    await self._publish(messages, producer)
                    for message in received:
                        session.confirm(message)
        except MqttSessionError as error:
            lost = session.lost.done()  # the connection, not only a request
            await self._raise_interrupted(error, short=lost and time.monotonic() - opened < _SHORT)
        finally:
            await session.close()

    async def _raise_interrupted(self, error: MqttSessionError, *, short: bool) -> NoReturn:
        """Re-raises; two clients of one name would take the session from each other forever."""
        self._short = self._short + 1 if short else 0
        if not error.taken_over and self._short < _OFTEN:
            raise error
        name = self._options.client
        guess = "" if error.taken_over else f": maybe another client has the name '{name}'"
        self.progress.report_problem(f"{error}{guess}\n  hint: give each its own client=")
        await asyncio.sleep(_OTHER)
        raise MqttSessionError(self.progress.trouble or str(error))

    async def _receive(self, arrivals: "asyncio.Queue[MqttMessage]", session: MqttSession) -> list[MqttMessage]:
        """Waits for messages: a full batch, or those that arrive within the wait time."""
        first = asyncio.ensure_future(arrivals.get())
        try:
            await asyncio.wait((first, session.lost), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not first.done():
                first.cancel()
        if session.lost.done():
            raise session.lost.result()  # unacknowledged messages are sent again
        batch = [first.result()]
        end = time.monotonic() + self._wait
        while len(batch) < self._most:
            while len(batch) < self._most and not arrivals.empty():
                batch.append(arrivals.get_nowait())
            await asyncio.sleep(self._wait / 10)
            # some brokers send more only after acknowledgements
            if arrivals.empty() or time.monotonic() >= end:
                break
        return batch


def _producer(message: MqttMessage) -> str | None:
    """The producer of a numbered message, with a prefix that is unique among sources."""
    name = message.properties.get("producer")
    return f"mqtt:{name}" if name and _number(message) is not None else None


def _number(message: MqttMessage) -> int | None:
    text = message.properties.get("sequence", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
