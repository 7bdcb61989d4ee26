"""Sink for topics of an MQTT broker, which acknowledges each message (QoS 1)."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ensue.service.brokers.mqtt_client import MqttSession, MqttSessionError, SessionOptions
from ensue.service.delivery.broker_sink import BrokerSink, ConnectionPool, publish_all
from ensue.service.delivery.sink import DeliveryError, Destination, Sink, get_message_headers, get_message_id
from ensue.service.endpoints import ConfigReader
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
        return "is reserved for the broker\n  hint: topics that begin with '$' cannot be published to"
    if "+" in topic or "#" in topic or "\0" in topic:
        return "matches several topics\n  hint: do not use + and #"
    if len(topic.encode()) > _LONGEST:
        return "is too long"
    return None


class MqttSink(BrokerSink[MqttSession]):
    """Sends the notifications of one target."""

    _pool = ConnectionPool(lambda access: MqttSession(access, SessionOptions()).open())
    _failed = False  # the last attempt

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
            topic, notification.body, get_message_headers(notification) | {"id": get_message_id(notification)}
        )
