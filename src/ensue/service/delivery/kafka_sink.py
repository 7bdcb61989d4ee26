"""Sink for a Kafka topic; the message key is the match, so that consumers can drop duplicates."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ensue.service.brokers import UnavailableError
from ensue.service.brokers.cancellation import close_client, run_shielded
from ensue.service.brokers.kafka_client import check_topic_name, client_arguments, describe_kafka_error
from ensue.service.delivery.broker_sink import BrokerSink, ConnectionPool, publish_all
from ensue.service.delivery.sink import DeliveryError, Destination, Sink, get_message_headers, get_message_key
from ensue.service.endpoints import BrokerAccess, ConfigReader
from ensue.service.notification import Notification

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer

_LARGEST = 8 << 20  # bytes of a request; brokers may allow less
_SILENCE = 300.0  # seconds without a response before a producer is replaced
_CLOSING = 5.0  # seconds for closing a producer


def make_kafka_sink(config: Mapping[str, Any]) -> Sink:
    """Creates a sink from `servers` and `topic`; optional are `username`, `password`,
    `mechanism`, `tls`, `ca`, and `timeout`."""
    reader = ConfigReader("Kafka target", config)
    access = reader.access("kafka", mechanisms=True)
    topic = reader.text("topic", hint="the name of a topic, as in alerts or alerts-{user}")
    reader.done()
    return KafkaSink(access, Destination("Kafka target: 'topic'", topic, check_topic_name))


class SharedProducer:
    """An idempotent producer that waits for all replicas; several targets share it."""

    def __init__(self, client: "AIOKafkaProducer") -> None:
        self.client = client
        self.usable = True
        self._silent_since: float | None = None

    def reset_silence(self) -> None:
        """Resets the silence after a response."""
        self._silent_since = None

    def record_timeout(self) -> None:
        """Records a timeout; the producer itself continues to send its messages."""
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        # It knows only old brokers; a new producer also finds their replacements.
        if now - self._silent_since >= _SILENCE:
            self.usable = False

    async def close(self) -> None:
        """Closes the producer within a time limit, even without a broker."""
        await close_client(self._end(), 2 * _CLOSING)

    async def _end(self) -> None:
        if self.usable:
            flushing = asyncio.create_task(self.client.flush())
            await asyncio.wait([flushing], timeout=_CLOSING)
            flushing.cancel()
        # stop() waits for endless retries of an idempotent producer; this is stop() without that.
        self.client._closed = True
        await self.client._sender.close()
        await self.client.client.close()


async def _connect(access: BrokerAccess) -> SharedProducer:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    client = AIOKafkaProducer(
        **client_arguments(access), acks="all", enable_idempotence=True, max_request_size=_LARGEST
    )
    try:
        await run_shielded(client.start(), access.timeout)
    except BaseException as error:
        await close_client(client.stop(), _CLOSING)
        if isinstance(error, KafkaError | OSError):
            raise UnavailableError(describe_kafka_error(access, error)) from None
        raise
    return SharedProducer(client)


class KafkaSink(BrokerSink[SharedProducer]):
    """Sends the notifications of one target."""

    _pool = ConnectionPool(_connect)

    def __init__(self, access: BrokerAccess, destination: Destination) -> None:
        super().__init__(access, destination)
        self._producer: SharedProducer | None = None
        self._in_flight: dict[int, asyncio.Future[Any]] = {}  # by notification number

    async def _send(self, producer: SharedProducer, notifications: Sequence[Notification]) -> None:
        from aiokafka.errors import KafkaError

        if producer is not self._producer:
            self._forget()
            self._producer = producer
        result = await publish_all(
            notifications, partial(self._publish, producer), self._access.timeout, rejected=KafkaError
        )
        if result.timed_out:
            producer.record_timeout()
        for notification, future in zip(notifications, result.pending, strict=False):
            if future.done():  # the others are still in flight
                del self._in_flight[notification.number]
                if future.exception() is not None:
                    producer.usable = False  # later batches are rejected as out of order
        if result.sent == len(notifications):
            producer.reset_silence()
            return
        topic = self._destination.get_address(notifications[result.sent])
        why = describe_kafka_error(self._access, result.failure, topic)
        raise DeliveryError(why, sent=result.sent)

    async def _publish(self, producer: SharedProducer, notification: Notification) -> "asyncio.Future[Any]":
        """Publishes a notification, unless it is still in flight after a timeout."""
        future = self._in_flight.get(notification.number)
        if future is None:
            future = self._in_flight[notification.number] = await producer.client.send(
                self._destination.get_address(notification),
                value=notification.body,
                key=get_message_key(notification).encode(),
                headers=[(name, text.encode()) for name, text in get_message_headers(notification).items()],
            )
        return future

    def _forget(self) -> None:
        for future in self._in_flight.values():
            future.cancel()
        self._in_flight.clear()

    async def close(self) -> None:
        self._forget()
        await super().close()
