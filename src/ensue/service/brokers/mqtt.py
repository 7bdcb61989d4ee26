"""A session with an MQTT 5 broker in an event loop: what is sent is confirmed, what comes is not
until we say so."""

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

from ensue.service.endpoints import Access

QOS = 1
KEEPALIVE = 30  # seconds
_NEW_ONLY = 1  # retained messages come for new subscriptions, not again for known ones
_TAKEN_OVER = 0x8E
_UNBOUNDED = 65_535  # a broker that does not say how much it takes at a time takes that


class SessionError(Exception):
    """A session that cannot be opened, was lost, or in which something was refused."""

    def __init__(self, why: str, *, taken_over: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.taken_over = taken_over  # by another client of the same name


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a session is to be."""

    client: str = ""  # the broker knows a session again by this name; none: it makes one up
    expires: int = 0  # seconds that the broker keeps the session for us when we are away
    at_a_time: int = 0  # messages that may come before we confirm any; 0: the broker's choice


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that has come."""

    topic: str
    payload: bytes
    qos: int
    mid: int = field(repr=False)
    properties: Mapping[str, str] = field(default_factory=dict)  # the last of each name


class Session:
    """A connection with its session, from `opened` until `lost` is done."""

    def __init__(
        self, access: Access, wanted: Wanted, arrived: Callable[[Arrival], None] | None = None
    ) -> None:
        self._access = access
        self._wanted = wanted
        self._arrived = arrived
        self._loop = asyncio.get_running_loop()
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._confirmed: dict[int, asyncio.Future[None]] = {}
        self._misc: asyncio.Task[None] | None = None
        self._socket: Any = None
        self._abandoned = False
        self._client = self._made()
        self.lost: asyncio.Future[SessionError] = self._loop.create_future()
        self.resumed = False  # whether the broker still knew us
        self.largest: int | None = None  # bytes of a packet
        self.window = asyncio.Semaphore(1)  # how many may be on their way; the broker says it

    # ------------------------------------------------------------------------ for everybody

    async def open(self) -> "Session":
        """Connects, or raises a SessionError."""
        server = self._access.servers[0]
        try:
            async with asyncio.timeout(self._access.timeout):
                await asyncio.to_thread(self._connect, server.host, server.port)
                self._listen()
                await self._connected
        except (OSError, ValueError) as error:  # time-outs and TLS, too
            self._drop()
            raise self._unreachable(error) from None
        except BaseException:
            self._drop()
            raise
        return self

    async def post(
        self, topic: str, payload: bytes, properties: Mapping[str, str]
    ) -> "asyncio.Future[None]":
        """Sends a message once there is room for it; the future is done when it is confirmed."""
        await self.window.acquire()
        if self.lost.done():
            self.window.release()
            raise self.lost.result()
        named = _properties(PacketTypes.PUBLISH, UserProperty=list(properties.items()))
        info = self._client.publish(topic, payload, qos=QOS, properties=named)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self.window.release()
            raise SessionError(f"{self._where} is gone")
        future: asyncio.Future[None] = self._loop.create_future()
        future.add_done_callback(lambda _: self.window.release())
        self._confirmed[info.mid] = future
        return future

    async def subscribe(self, topic: str) -> None:
        """Asks for messages, confirmed one by one; SessionError if we may not."""
        options = SubscribeOptions(qos=QOS, retainHandling=_NEW_ONLY)
        code, mid = self._client.subscribe(topic, options=options)
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS or mid is None:
            raise SessionError(f"{self._where} is gone")
        future = self._confirmed[mid] = self._loop.create_future()
        try:
            async with asyncio.timeout(self._access.timeout):
                await future
        except TimeoutError:
            raise SessionError(f"{self._where} does not answer") from None

    def confirm(self, arrival: Arrival) -> None:
        """Tells the broker that a message need not come again."""
        if not self.lost.done():
            self._client.ack(arrival.mid, arrival.qos)

    async def close(self) -> None:
        """Says goodbye. The broker keeps what it is to keep."""
        if not self.lost.done():
            self._client.disconnect()
        self._drop()

    # --------------------------------------------------------------------- what paho calls

    def _made(self) -> paho.Client:
        client = paho.Client(
            CallbackAPIVersion.VERSION2, client_id=self._wanted.client, protocol=paho.MQTTv5,
            manual_ack=True, reconnect_on_failure=False,
        )  # fmt: skip
        client.max_inflight_messages = 0  # `window` knows how many
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
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        client.on_socket_open = self._on_socket_open
        client.on_socket_close = self._on_socket_close
        client.on_socket_register_write = self._on_wish_to_write
        client.on_socket_unregister_write = self._on_nothing_to_write
        return client

    def _on_connect(
        self, _c: Any, _u: Any, flags: Any, reason: ReasonCode, properties: Properties | None
    ) -> None:
        if self._connected.done():
            return
        if reason.is_failure:
            self._connected.set_exception(self._refused(reason))
            return
        self.resumed = bool(flags.session_present)
        self.largest = getattr(properties, "MaximumPacketSize", None)
        self.window = asyncio.Semaphore(getattr(properties, "ReceiveMaximum", _UNBOUNDED))
        self._connected.set_result(None)

    def _on_disconnect(self, _c: Any, _u: Any, _f: Any, reason: ReasonCode, _p: Any) -> None:
        if reason.value == _TAKEN_OVER:
            why = f"another client named '{self._wanted.client}' took over at {self._where}"
            self._lose(SessionError(why, taken_over=True))
        else:
            self._lose(SessionError(f"{self._where} is gone ({str(reason).lower()})"))

    def _on_publish(self, _c: Any, _u: Any, mid: int, reason: ReasonCode, _p: Any) -> None:
        self._settle(mid, reason)

    def _on_subscribe(
        self, _c: Any, _u: Any, mid: int, reasons: list[ReasonCode], _p: Any
    ) -> None:
        self._settle(mid, reasons[0])

    def _on_message(self, _c: Any, _u: Any, message: paho.MQTTMessage) -> None:
        if self._arrived is not None:
            properties = dict(getattr(message.properties, "UserProperty", []))
            self._arrived(
                Arrival(
                    message.topic, bytes(message.payload), message.qos, message.mid, properties
                )
            )

    def _settle(self, mid: int, reason: ReasonCode) -> None:
        future = self._confirmed.pop(mid, None)
        if future is None or future.done():
            return
        if reason.is_failure:
            future.set_exception(self._refused(reason))
        else:
            future.set_result(None)

    # ------------------------------------------------------------------------- the event loop

    def _connect(self, host: str, port: int) -> None:
        """Connects in another thread: names are looked up and TLS is agreed upon there."""
        said: dict[str, Any] = {"SessionExpiryInterval": self._wanted.expires}
        if self._wanted.at_a_time:
            said["ReceiveMaximum"] = min(self._wanted.at_a_time, _UNBOUNDED)
        clean = not self._wanted.expires
        properties = _properties(PacketTypes.CONNECT, **said)
        self._client.connect(host, port, KEEPALIVE, clean_start=clean, properties=properties)
        if self._abandoned and self._socket is not None:
            self._socket.close()

    def _listen(self) -> None:
        """From now on the event loop reads and writes."""
        if self._socket is None:
            raise ConnectionResetError
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop.add_reader(self._socket, self._read)
        if self._client.want_write():
            self._loop.add_writer(self._socket, self._client.loop_write)
        self._misc = asyncio.create_task(self._look_after())

    def _read(self) -> None:
        self._client.loop_read()
        # TLS may have read more from the socket than one packet: no event tells of the rest
        while getattr(self._client.socket(), "pending", int)():
            self._client.loop_read()

    async def _look_after(self) -> None:
        while self._client.loop_misc() == MQTTErrorCode.MQTT_ERR_SUCCESS:
            await asyncio.sleep(1)

    def _on_socket_open(self, _c: Any, _u: Any, opened: Any) -> None:
        self._socket = opened

    def _on_socket_close(self, _c: Any, _u: Any, closed: Any) -> None:
        self._socket = None
        if self._misc is not None and closed.fileno() >= 0:
            self._loop.remove_reader(closed)
            self._loop.remove_writer(closed)

    def _on_wish_to_write(self, _c: Any, _u: Any, opened: Any) -> None:
        if self._misc is not None:  # before that we are in the thread that connects
            self._loop.add_writer(opened, self._client.loop_write)

    def _on_nothing_to_write(self, _c: Any, _u: Any, opened: Any) -> None:
        if self._misc is not None and opened.fileno() >= 0:
            self._loop.remove_writer(opened)

    # ------------------------------------------------------------------------------ the end

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
        self._lose(SessionError(f"the session with {self._where} was closed"))

    def _lose(self, error: SessionError) -> None:
        if not self._connected.done():
            self._connected.set_exception(error)
            self._connected.exception()  # open() may have given up already
        if not self.lost.done():
            self.lost.set_result(error)
        waiting, self._confirmed = self._confirmed, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever posted it may have given up already

    @property
    def _where(self) -> str:
        return f"the MQTT broker at {self._access.shown}"

    def _refused(self, reason: ReasonCode) -> SessionError:
        return SessionError(f"{self._where} refuses: {str(reason).lower()}")

    def _unreachable(self, error: Exception) -> SessionError:
        said = f" ({self._access.without_secrets(str(error))})" if str(error) else ""
        return SessionError(f"{self._where} does not answer{said}")


def _properties(packet: int, **values: Any) -> Properties:
    made = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(made, name, value)
    return made
