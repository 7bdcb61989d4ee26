"""Events from a Kafka topic. How far each partition was read is in the service's file."""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from ensue.errors import ServiceError
from ensue.service.brokers.apart import apart, let_go
from ensue.service.brokers.kafka import problem, settings, words
from ensue.service.endpoints import Access, Given
from ensue.service.sources.contract import Progress, Source, Taker
from ensue.service.sources.handing_over import hand_over, keep_reading
from ensue.service.sources.payloads import Message

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, TopicPartition

_POLL = 500  # milliseconds to wait for records before looking at something else


def make(config: Mapping[str, Any]) -> Source:
    """A source from `servers` and `topic`. `most` records or those of `wait` seconds are taken
    together; every `look` seconds it looks for new partitions. `name` tells apart topics of the
    same name on several clusters. If needed `username`, `password`, `mechanism`, `tls`, `ca`,
    `timeout`."""
    given = Given("Kafka source", config)
    access = given.access("kafka", mechanisms=True)
    topic = given.text("topic", hint="the name of a topic")
    wrong = problem(topic)
    if wrong is not None:
        raise ServiceError(f"Kafka source: '{topic}' {wrong}")
    source = KafkaSource(
        access,
        topic,
        name=given.optional("name", hint="a name") or f"kafka:{topic}",
        most=given.whole("most", 1_000),
        wait=given.seconds("wait", 0.02),
        look=given.seconds("look", 10.0),
    )
    given.done()
    return source


class KafkaSource:
    """Reads all partitions of one topic, from where the service's file says."""

    def __init__(
        self, access: Access, topic: str, *, name: str, most: int, wait: float, look: float
    ) -> None:
        self._access = access
        self._topic = topic
        self._most = most
        self._wait = wait
        self._look = look
        self._next: dict[TopicPartition, int] = {}
        self.name = name
        self.progress = Progress(name)
        self.lag: int | None = None  # records behind the newest, when it looked last

    def __repr__(self) -> str:
        return f"KafkaSource({self._access.shown}, {self._topic!r})"

    async def run(self, service: Taker) -> None:
        await keep_reading(lambda: self._read(service), self.progress, self._words)

    def _words(self, error: Exception) -> str | None:
        from aiokafka.errors import KafkaError

        if isinstance(error, KafkaError | OSError):
            return words(self._access, error, self._topic)
        return None

    # ------------------------------------------------------------------------------ reading

    async def _read(self, service: Taker) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.errors import OffsetOutOfRangeError

        consumer = AIOKafkaConsumer(
            **settings(self._access),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed",
            metadata_max_age_ms=max(1, int(self._look * 1000)),
        )
        try:
            await self._ask(consumer.start())
            await self._until_there(consumer)
            looked = None
            while True:
                if looked is None or time.monotonic() - looked >= self._look:
                    await self._assign(consumer, service)
                    looked = time.monotonic()
                try:
                    await self._take(consumer, service)
                except OffsetOutOfRangeError:
                    looked = None  # retention was faster than we
        finally:
            await let_go(consumer.stop(), self._access.timeout)

    async def _ask(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await apart(work, self._access.timeout)

    async def _take(self, consumer: "AIOKafkaConsumer", service: Taker) -> None:
        """Some records into the service; others wait in the broker meanwhile."""
        records = await self._ask(consumer.getmany(timeout_ms=_POLL, max_records=self._most))
        missing = self._most - sum(map(len, records.values()))
        if records and missing > 0:
            await asyncio.sleep(self._wait)
            more = await self._ask(consumer.getmany(max_records=missing))
            for partition, some in more.items():
                records.setdefault(partition, []).extend(some)
        async with asyncio.TaskGroup() as group:
            for partition, some in records.items():
                group.create_task(self._hand_over(partition, some, service))

    async def _hand_over(
        self, partition: "TopicPartition", records: list[Any], service: Taker
    ) -> None:
        messages = [Message(record.value or b"", record.offset) for record in records]
        await hand_over(messages, service, self._producer(partition), self.progress)
        self._next[partition] = records[-1].offset + 1

    def _producer(self, partition: "TopicPartition") -> str:
        return f"{self.name}:{partition.partition}"

    # --------------------------------------------------------------------------- partitions

    async def _until_there(self, consumer: "AIOKafkaConsumer") -> None:
        """Waits for a topic that does not exist yet. Asking for it by name might create it."""
        while True:
            if self._topic in await self._ask(consumer.topics()):
                return
            self.progress.hindered(
                f"Kafka at {self._access.shown} has no topic '{self._topic}' yet: it waits for it"
            )
            await asyncio.sleep(self._look)

    async def _assign(self, consumer: "AIOKafkaConsumer", service: Taker) -> None:
        """Reads from all partitions that there are, each from where it was left."""
        from aiokafka import TopicPartition

        if not consumer.assignment():  # then the client does not know the topic before it asks
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
            at = self._start(partition, known, first[partition], end[partition])
            moved = moved or at != self._next.get(partition)
            self._next[partition] = at
        if moved:
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, self._next[partition])
        self.lag = sum(end[partition] - self._next[partition] for partition in partitions)
        self.progress.well()

    def _start(
        self, partition: "TopicPartition", position: int | None, first: int, end: int
    ) -> int:
        """Where to read on in a partition."""
        where = f"partition {partition.partition} of topic '{self._topic}'"
        if position is None:
            return first
        if position > end:
            raise ServiceError(
                f"{where} ends at {end}, but was read up to {position}: it seems to be another "
                f"topic with the same name\n  hint: use another name, such as name={self.name}-2"
            )
        if position < first:
            gone = first - position
            why = f"{gone} records of {where} were deleted before they were read"
            self.progress.missed(f"{why}: it goes on at {first}", gone)
            return first
        return position
