"""Notes to a Kafka topic: the key is the match, so that consumers can drop repeats."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ensue.service.brokers.apart import apart, let_go
from ensue.service.brokers.kafka import problem, settings, words
from ensue.service.delivery.contract import Sink, Undelivered
from ensue.service.delivery.destinations import Destination, headings_of, key_of
from ensue.service.delivery.lines import Lines, Seat
from ensue.service.endpoints import Access, Given
from ensue.service.notes import Note

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer

_LARGEST = 8 << 20  # bytes of a request; the broker may allow less
_SILENCE = 300.0  # seconds without an answer before a producer is given up
_CLOSING = 5.0  # seconds for a producer to end


def make(config: Mapping[str, Any]) -> Sink:
    """A sink from `servers` and `topic`; if needed `username`, `password`, `mechanism`, `tls`,
    `ca`, `timeout`."""
    given = Given("Kafka target", config)
    access = given.access("kafka", mechanisms=True)
    topic = given.text("topic", hint="the name of a topic, as in alerts or alerts-{user}")
    given.done()
    return KafkaSink(access, Destination("Kafka target: 'topic'", topic, problem))


# -------------------------------------------------------------------------------- producers


class Producer:
    """An idempotent producer that waits for all replicas; targets share it."""

    def __init__(self, client: "AIOKafkaProducer") -> None:
        self.client = client
        self._silent_since: float | None = None
        self._spent = False

    @property
    def usable(self) -> bool:
        return not self._spent

    def answered(self) -> None:
        """All is well."""
        self._silent_since = None

    def silent(self) -> None:
        """It did not answer in time. What it was given it goes on trying to send, once."""
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        # It asks only brokers that it knows; a new one also those that took their place.
        if now - self._silent_since >= _SILENCE:
            self._spent = True

    def spoil(self) -> None:
        """A batch failed for good: those behind it would be refused as out of order."""
        self._spent = True

    async def close(self) -> None:
        """Ends it, within a time even if Kafka is gone."""
        await let_go(self._end(), 2 * _CLOSING)

    async def _end(self) -> None:
        if not self._spent:
            flushing = asyncio.create_task(self.client.flush())
            await asyncio.wait([flushing], timeout=_CLOSING)
            flushing.cancel()
        # stop() waits for what an idempotent producer tries for ever; this is stop() without it.
        self.client._closed = True
        await self.client._sender.close()
        await self.client.client.close()


async def _opened(access: Access) -> Producer:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError

    client = AIOKafkaProducer(
        **settings(access), acks="all", enable_idempotence=True, max_request_size=_LARGEST
    )
    try:
        await apart(client.start(), access.timeout)
    except BaseException as error:
        await let_go(client.stop(), _CLOSING)
        if isinstance(error, KafkaError | OSError):
            raise Undelivered(words(access, error)) from None
        raise
    return Producer(client)


_producers = Lines(_opened)


# ------------------------------------------------------------------------------------- sink


class KafkaSink:
    """Sends the notes of one target."""

    def __init__(self, access: Access, destination: Destination) -> None:
        self._access = access
        self._destination = destination
        self._seat: Seat[Producer] | None = None
        self._producer: Producer | None = None
        self._under_way: dict[int, asyncio.Future[Any]] = {}  # by the number of the note

    def __repr__(self) -> str:
        return f"KafkaSink({self._access.shown}, {self._destination})"

    async def send(self, notes: Sequence[Note]) -> None:
        from aiokafka.errors import KafkaError

        if not notes:
            return
        producer = await self._line()
        posted: list[asyncio.Future[Any]] = []
        trouble: BaseException | None = None
        try:
            async with asyncio.timeout(self._access.timeout):
                try:
                    for note in notes:  # what was posted before an error counts
                        posted += [await self._posted(producer, note)]
                except KafkaError as error:
                    trouble = error
                if posted:
                    await asyncio.wait(posted)
        except TimeoutError as error:
            producer.silent()
            trouble = trouble or error
        sent = self._settled(producer, notes, posted)
        if sent == len(notes):
            producer.answered()
            return
        topic = self._destination.of(notes[sent])
        if sent < len(posted) and posted[sent].done():
            trouble = posted[sent].exception() or trouble
        raise Undelivered(words(self._access, trouble or TimeoutError(), topic), sent=sent)

    async def _line(self) -> Producer:
        if self._seat is None:
            self._seat = _producers.seat(self._access)
        producer = await self._seat.line()
        if producer is not self._producer:
            self._forget()
            self._producer = producer
        return producer

    async def _posted(self, producer: Producer, note: Note) -> "asyncio.Future[Any]":
        """The note on its way; one that a time-out left on its way is not sent again."""
        found = self._under_way.get(note.number)
        if found is None:
            found = self._under_way[note.number] = await producer.client.send(
                self._destination.of(note),
                value=note.body,
                key=key_of(note).encode(),
                headers=[(name, text.encode()) for name, text in headings_of(note).items()],
            )
        return found

    def _settled(
        self, producer: Producer, notes: Sequence[Note], posted: Sequence["asyncio.Future[Any]"]
    ) -> int:
        """How many from the front are there. What failed is given up, what is slow is not."""
        sent, so_far = 0, True
        for note, future in zip(notes, posted, strict=False):
            there = future.done() and future.exception() is None
            if future.done():
                del self._under_way[note.number]
                if not there:
                    producer.spoil()
            so_far = so_far and there
            sent += so_far
        return sent

    def _forget(self) -> None:
        for future in self._under_way.values():
            future.cancel()
        self._under_way.clear()

    async def close(self) -> None:
        self._forget()
        seat, self._seat = self._seat, None
        if seat is not None:
            await seat.leave()
