"""Kafka: sink and source of a topic, and the configuration and errors of its clients."""

import asyncio
import re
import time
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ensue.errors import ServiceError
from ensue.service.brokers import UnavailableError, close_client, run_shielded
from ensue.service.delivery.sink import BrokerSink, DeliveryError, Destination, Sink, get_message_headers, publish_all
from ensue.service.endpoints import BrokerAccess, ConfigReader
from ensue.service.sources.source import EventSource, Message
from ensue.service.store.outbox import Notification

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition


_BACKOFF = 500  # milliseconds; the client logs every attempt
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


def check_topic_name(topic: str) -> str | None:
    """Explains why Kafka would reject a topic name, or returns None.

    >>> check_topic_name("trucks")
    """
    if _TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return None
    return "is not a topic name\n  hint: letters, digits, '.', '_' and '-', at most 249"


def client_arguments(access: BrokerAccess) -> dict[str, Any]:
    """Returns address and credentials as arguments of a client."""
    protocol = "SSL" if access.tls else "PLAINTEXT"
    arguments: dict[str, Any] = {
        "bootstrap_servers": [str(server) for server in access.servers],
        "ssl_context": access.ssl_context(),
        # Half of ours, so that Kafka's own error arrives before our timeout.
        "request_timeout_ms": max(1, int(access.timeout * 500)),
        "retry_backoff_ms": _BACKOFF,
    }
    if access.username is None:
        return arguments | {"security_protocol": protocol}
    return arguments | {
        "security_protocol": f"SASL_{protocol}",
        "sasl_mechanism": access.mechanism,
        "sasl_plain_username": access.username,
        "sasl_plain_password": access.password.get_secret_value() if access.password else "",
    }


def describe_kafka_error(access: BrokerAccess, error: BaseException, topic: str | None = None) -> str:
    """Describes an error to a user, without passwords."""
    from aiokafka import errors

    where = f"Kafka at {access.shown}"
    match error:
        case errors.TopicAuthorizationFailedError():
            return f"{where} does not let this account use the topic '{topic}'"
        case errors.UnknownTopicOrPartitionError():
            return f"{where} has no topic '{topic}'\n  hint: create it there"
        case errors.MessageSizeTooLargeError() | errors.RecordListTooLargeError():
            return (
                f"a notification is larger than {where} accepts for the topic '{topic}'\n"
                "  hint: raise max.message.bytes of the topic"
            )
        case (
            TimeoutError()
            | OSError()
            | errors.KafkaConnectionError()
            | errors.KafkaTimeoutError()
            | errors.RequestTimedOutError()
            | errors.NodeNotReadyError()
        ):
            # the client reports rejected accounts and closed ports by the same error
            account = ", or rejects the account" if access.username is not None else ""
            return f"{where} does not respond{account}"
        case _:
            text = access.without_secrets(str(error))
            return f"{where} reports {type(error).__name__}: {text}"


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
        self.silent_since: float | None = None

    def record_timeout(self) -> None:
        """Records a timeout; the producer itself continues to send its messages."""
        now = time.monotonic()
        self.silent_since = self.silent_since or now
        # It knows only old brokers; a new producer also finds their replacements.
        if now - self.silent_since >= _SILENCE:
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


class KafkaSink(BrokerSink[SharedProducer]):
    """Sends the notifications of one target."""

    def __init__(self, access: BrokerAccess, destination: Destination) -> None:
        super().__init__(access, destination)
        self._producer: SharedProducer | None = None
        self._in_flight: dict[int, asyncio.Future[Any]] = {}  # by notification number

    async def _connect(self) -> SharedProducer:
        from aiokafka import AIOKafkaProducer
        from aiokafka.errors import KafkaError

        access = self._access
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
            producer.silent_since = None
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
                key=(notification.match_id or str(notification.subscription)).encode(),
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


_POLL = 500  # milliseconds to wait for records


class KafkaSource(EventSource):
    """Reads all partitions of a topic from the stored offsets."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Reads `servers` and `topic`. The source publishes `most` records at a time, or those of
        `wait` seconds, and looks for new partitions every `look` seconds. `name` distinguishes
        topics of the same name on several clusters. Optional are `username`, `password`,
        `mechanism`, `tls`, `ca`, and `timeout`."""
        reader = ConfigReader("Kafka source", config)
        self._access = reader.access("kafka", mechanisms=True)
        self._topic = reader.text("topic", hint="the name of a topic")
        wrong = check_topic_name(self._topic)
        if wrong is not None:
            raise ServiceError(f"Kafka source: '{self._topic}' {wrong}")
        super().__init__(reader.optional("name", hint="a name") or f"kafka:{self._topic}")
        self._most = reader.read_integer("most", 1_000)
        self._wait = reader.seconds("wait", 0.02)
        self._look = reader.seconds("look", 10.0)
        reader.done()
        self._next: dict[TopicPartition, int] = {}
        self.lag: int | None = None  # records not read yet, at the last look

    def __repr__(self) -> str:
        return f"KafkaSource({self._access.shown}, {self._topic!r})"

    async def _read(self) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.errors import KafkaError, OffsetOutOfRangeError

        consumer = AIOKafkaConsumer(
            **client_arguments(self._access),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            metadata_max_age_ms=max(1, int(self._look * 1000)),
        )
        try:
            await self._ask(consumer.start())
            await self._wait_for_topic(consumer)
            looked: float | None = None
            while True:
                if looked is None or time.monotonic() - looked >= self._look:
                    await self._assign(consumer)
                    looked = time.monotonic()
                try:
                    await self._take(consumer)
                except OffsetOutOfRangeError:
                    looked = None  # records were deleted before they were read
        except (KafkaError, OSError) as error:
            why = describe_kafka_error(self._access, error, self._topic)
            raise UnavailableError(why) from None
        finally:
            await close_client(consumer.stop(), self._access.timeout)

    async def _ask(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await run_shielded(work, self._access.timeout)

    async def _take(self, consumer: "AIOKafkaConsumer") -> None:
        """Publishes some records; others wait in the broker."""
        records = await self._ask(consumer.getmany(timeout_ms=_POLL, max_records=self._most))
        missing = self._most - sum(map(len, records.values()))
        if records and missing > 0:
            await asyncio.sleep(self._wait)
            more = await self._ask(consumer.getmany(max_records=missing))
            for partition, batch in more.items():
                records.setdefault(partition, []).extend(batch)
        async with asyncio.TaskGroup() as group:
            for partition, batch in records.items():
                group.create_task(self._hand_over(partition, batch))

    async def _hand_over(self, partition: "TopicPartition", records: list[Any]) -> None:
        messages = [Message(record.value or b"", record.offset) for record in records]
        await self._publish(messages, self._producer(partition))
        self._next[partition] = records[-1].offset + 1

    def _producer(self, partition: "TopicPartition") -> str:
        return f"{self.name}:{partition.partition}"

    async def _wait_for_topic(self, consumer: "AIOKafkaConsumer") -> None:
        """Waits for a missing topic without requesting it by name, which could create it."""
        while True:
            if self._topic in await self._ask(consumer.topics()):
                return
            self.progress.report_problem(
                f"Kafka at {self._access.shown} has no topic '{self._topic}' yet: waiting for it"
            )
            await asyncio.sleep(self._look)

    async def _assign(self, consumer: "AIOKafkaConsumer") -> None:
        """Assigns all partitions, each at its stored offset."""
        from aiokafka import TopicPartition

        if not consumer.assignment():  # the client must first learn about the topic
            await self._ask(consumer.beginning_offsets([TopicPartition(self._topic, 0)]))
        numbers = consumer.partitions_for_topic(self._topic) or {0}
        partitions = [TopicPartition(self._topic, number) for number in sorted(numbers)]
        first = await self._ask(consumer.beginning_offsets(partitions))
        end = await self._ask(consumer.end_offsets(partitions))
        moved = set(partitions) != consumer.assignment()
        for partition in partitions:
            known = self._next.get(partition)
            if known is None:
                known = await self._service.position(self._producer(partition))
            where = f"partition {partition.partition} of topic '{self._topic}'"
            at = self._resume_at(where, known, first[partition], end[partition])
            moved = moved or at != self._next.get(partition)
            self._next[partition] = at
        if moved:
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, self._next[partition])
        self.lag = sum(end[partition] - self._next[partition] for partition in partitions)
        self.progress.clear_problem()
