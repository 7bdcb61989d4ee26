"""Sink for a Kafka topic; the message key is the match, so that consumers can drop duplicates."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ensue.service.brokers.cancellation import close_client, run_shielded
from ensue.service.brokers.kafka_client import (
    check_topic_name,
    client_arguments,
    describe_kafka_error,
)
from ensue.service.delivery.connection_pool import ConnectionPool, ConnectionShare
from ensue.service.delivery.sink import (
    DeliveryError,
    Destination,
    Sink,
    get_message_headers,
    get_message_key,
)
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


# -------------------------------------------------------------------------------- producers


class SharedProducer:
    """An idempotent producer that waits for all replicas; several targets share it."""

    def __init__(self, client: "AIOKafkaProducer") -> None:
        self.client = client
        self._silent_since: float | None = None
        self._unusable = False

    @property
    def usable(self) -> bool:
        return not self._unusable

    def answered(self) -> None:
        """Resets the silence after a response."""
        self._silent_since = None

    def silent(self) -> None:
        """Records a timeout; the producer itself continues to send its messages."""
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        # It knows only old brokers; a new producer also finds their replacements.
        if now - self._silent_since >= _SILENCE:
            self._unusable = True

    def spoil(self) -> None:
        """Marks the producer unusable: batches after a failed one are rejected as out of order."""
        self._unusable = True

    async def close(self) -> None:
        """Closes the producer within a time limit, even without a broker."""
        await close_client(self._end(), 2 * _CLOSING)

    async def _end(self) -> None:
        if not self._unusable:
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
            raise DeliveryError(describe_kafka_error(access, error)) from None
        raise
    return SharedProducer(client)


_producers = ConnectionPool(_connect)


# ------------------------------------------------------------------------------------- sink


class KafkaSink:
    """Sends the notifications of one target."""

    def __init__(self, access: BrokerAccess, destination: Destination) -> None:
        self._access = access
        self._destination = destination
        self._share: ConnectionShare[SharedProducer] | None = None
        self._producer: SharedProducer | None = None
        self._in_flight: dict[int, asyncio.Future[Any]] = {}  # by notification number

    def __repr__(self) -> str:
        return f"KafkaSink({self._access.shown}, {self._destination})"

    async def send(self, notifications: Sequence[Notification]) -> None:
        from aiokafka.errors import KafkaError

        if not notifications:
            return
        producer = await self._get_producer()
        pending: list[asyncio.Future[Any]] = []
        failure: BaseException | None = None
        try:
            async with asyncio.timeout(self._access.timeout):
                try:
                    for notification in notifications:  # those published before an error count
                        pending += [await self._publish(producer, notification)]
                except KafkaError as error:
                    failure = error
                if pending:
                    await asyncio.wait(pending)
        except TimeoutError as error:
            producer.silent()
            failure = failure or error
        sent = self._count_sent(producer, notifications, pending)
        if sent == len(notifications):
            producer.answered()
            return
        topic = self._destination.of(notifications[sent])
        if sent < len(pending) and pending[sent].done():
            failure = pending[sent].exception() or failure
        raise DeliveryError(
            describe_kafka_error(self._access, failure or TimeoutError(), topic), sent=sent
        )

    async def _get_producer(self) -> SharedProducer:
        if self._share is None:
            self._share = _producers.seat(self._access)
        producer = await self._share.line()
        if producer is not self._producer:
            self._forget()
            self._producer = producer
        return producer

    async def _publish(
        self, producer: SharedProducer, notification: Notification
    ) -> "asyncio.Future[Any]":
        """Publishes a notification, unless it is still in flight after a timeout."""
        future = self._in_flight.get(notification.number)
        if future is None:
            future = self._in_flight[notification.number] = await producer.client.send(
                self._destination.of(notification),
                value=notification.body,
                key=get_message_key(notification).encode(),
                headers=[
                    (name, text.encode())
                    for name, text in get_message_headers(notification).items()
                ],
            )
        return future

    def _count_sent(
        self,
        producer: SharedProducer,
        notifications: Sequence[Notification],
        pending: Sequence["asyncio.Future[Any]"],
    ) -> int:
        """Counts the leading acknowledged messages; failed ones are dropped, slow ones stay."""
        sent, so_far = 0, True
        for notification, future in zip(notifications, pending, strict=False):
            acknowledged = future.done() and future.exception() is None
            if future.done():
                del self._in_flight[notification.number]
                if not acknowledged:
                    producer.spoil()
            so_far = so_far and acknowledged
            sent += so_far
        return sent

    def _forget(self) -> None:
        for future in self._in_flight.values():
            future.cancel()
        self._in_flight.clear()

    async def close(self) -> None:
        self._forget()
        share, self._share = self._share, None
        if share is not None:
            await share.leave()
