"""Source for a Kafka topic; the offset of each partition is stored in the service's database."""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from ensue.errors import ServiceError
from ensue.service.brokers import UnavailableError
from ensue.service.brokers.cancellation import close_client, run_shielded
from ensue.service.brokers.kafka_client import check_topic_name, client_arguments, describe_kafka_error
from ensue.service.endpoints import ConfigReader
from ensue.service.sources.payloads import Message
from ensue.service.sources.source import EventReceiver, RetryingSource

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, TopicPartition

_POLL = 500  # milliseconds to wait for records


class KafkaSource(RetryingSource):
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

    async def _read(self, service: EventReceiver) -> None:
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
                    await self._assign(consumer, service)
                    looked = time.monotonic()
                try:
                    await self._take(consumer, service)
                except OffsetOutOfRangeError:
                    looked = None  # records were deleted before they were read
        except (KafkaError, OSError) as error:
            why = describe_kafka_error(self._access, error, self._topic)
            raise UnavailableError(why) from None
        finally:
            await close_client(consumer.stop(), self._access.timeout)

    async def _ask(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await run_shielded(work, self._access.timeout)

    async def _take(self, consumer: "AIOKafkaConsumer", service: EventReceiver) -> None:
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
                group.create_task(self._hand_over(partition, batch, service))

    async def _hand_over(self, partition: "TopicPartition", records: list[Any], service: EventReceiver) -> None:
        messages = [Message(record.value or b"", record.offset) for record in records]
        await self._publish(messages, service, self._producer(partition))
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

    async def _assign(self, consumer: "AIOKafkaConsumer", service: EventReceiver) -> None:
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
                known = await service.position(self._producer(partition))
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
