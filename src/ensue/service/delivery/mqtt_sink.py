"""Sink for topics of an MQTT broker, which acknowledges each message (QoS 1)."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from ensue.service.brokers.mqtt_client import MqttSession, MqttSessionError, SessionOptions
from ensue.service.delivery.connection_pool import ConnectionPool, ConnectionShare
from ensue.service.delivery.sink import (
    DeliveryError,
    Destination,
    Sink,
    get_message_headers,
    get_message_id,
)
from ensue.service.endpoints import BrokerAccess, ConfigReader
from ensue.service.notification import Notification

_LONGEST = 65_535  # bytes of a topic
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
        return (
            "is reserved for the broker\n  hint: topics that begin with '$' cannot be published to"
        )
    if "+" in topic or "#" in topic or "\0" in topic:
        return "matches several topics\n  hint: do not use + and #"
    if len(topic.encode()) > _LONGEST:
        return "is too long"
    return None


class SharedMqttSession:
    """A session that several targets share."""

    def __init__(self, session: MqttSession) -> None:
        self.session = session
        self.silent = False  # did not answer in time

    @property
    def usable(self) -> bool:
        return not (self.silent or self.session.lost.done())

    async def close(self) -> None:
        await self.session.close()


async def _connect(access: BrokerAccess) -> SharedMqttSession:
    try:
        return SharedMqttSession(await MqttSession(access, SessionOptions()).open())
    except MqttSessionError as error:
        raise DeliveryError(error.why) from None


_pool = ConnectionPool(_connect)


class MqttSink:
    """Sends the notifications of one target."""

    def __init__(self, access: BrokerAccess, destination: Destination) -> None:
        self._access = access
        self._destination = destination
        self._share: ConnectionShare[SharedMqttSession] | None = None
        self._careful = False  # the last attempt failed

    def __repr__(self) -> str:
        return f"MqttSink({self._access.shown}, {self._destination})"

    async def send(self, notifications: Sequence[Notification]) -> None:
        if not notifications:
            return
        if self._share is None:
            self._share = _pool.seat(self._access)
        line = await self._share.line()
        # Some brokers reject and disconnect at once; after a failure the first message goes alone,
        # so that the reason can be read.
        sent = 0
        if self._careful:
            sent = await self._send_some(line, notifications[:1], 0)
        await self._send_some(line, notifications[sent:], sent)
        self._careful = False

    async def _send_some(
        self, line: SharedMqttSession, notifications: Sequence[Notification], before: int
    ) -> int:
        pending: list[asyncio.Future[None]] = []
        why = None
        try:
            async with asyncio.timeout(self._access.timeout):
                try:
                    for notification in notifications:  # those published before an error count
                        pending += [await self._publish(line.session, notification)]
                except MqttSessionError as error:
                    why = error.why
                if pending:
                    await asyncio.wait(pending)
        except TimeoutError:
            line.silent = True
            why = f"the MQTT broker at {self._access.shown} does not answer"
        acknowledged = [future.done() and future.exception() is None for future in pending]
        sent = (*acknowledged, False).index(False)
        if sent < len(notifications):
            self._careful = True
            if sent < len(pending) and pending[sent].done():
                why = str(pending[sent].exception())
            raise DeliveryError(why or "", sent=before + sent)
        return sent

    async def _publish(
        self, session: MqttSession, notification: Notification
    ) -> "asyncio.Future[None]":
        topic = self._destination.of(notification)
        size = len(notification.body) + len(topic.encode()) + _AROUND
        if session.largest is not None and size > session.largest:
            raise MqttSessionError(
                f"notification {notification.number} has {len(notification.body)} bytes, "
                f"more than the MQTT broker at {self._access.shown} accepts\n"
                "  hint: raise its max_packet_size"
            )
        return await session.post(
            topic,
            notification.body,
            get_message_headers(notification) | {"id": get_message_id(notification)},
        )

    async def close(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            await share.leave()
