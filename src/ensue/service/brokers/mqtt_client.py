"""A session with an MQTT 5 broker on an event loop, with manual acknowledgements."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from ensue.service.brokers import UnavailableError
from ensue.service.endpoints import BrokerAccess

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
        """Acknowledges a message."""
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
            client.username_pw_set(self._access.username, secret.reveal() if secret else None)
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
