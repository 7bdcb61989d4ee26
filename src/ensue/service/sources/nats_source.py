"""Source for a NATS JetStream stream, from the sequence number in the service's database."""

import asyncio
from collections.abc import Mapping
from typing import Any

import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo

from ensue.errors import ServiceError
from ensue.service.brokers import UnavailableError
from ensue.service.brokers.nats_client import NatsConnection
from ensue.service.endpoints import ConfigReader
from ensue.service.sources.payloads import Message
from ensue.service.sources.source import EventReceiver, RetryingSource

_POLL = 5.0  # seconds to wait for messages
_INACTIVE = 60.0  # seconds after which the server drops an unused consumer


def _is_filter(subject: str) -> bool:
    """Whether a subject filter is valid in NATS.

    >>> [_is_filter(subject) for subject in ("a.*.b", "a.>", "a.>.b", "a..b", "a b")]
    [True, True, False, False, False]
    """
    tokens = subject.split(".")
    spaced = any(c.isspace() or not c.isprintable() for c in subject)
    return all(tokens) and not spaced and ">" not in tokens[:-1]


class NatsSource(RetryingSource):
    """Reads one subject of a stream, in order."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Reads `servers`, `subject` and `stream`, by default the stream of the subject. The
        source publishes `most` messages at a time, or those of `wait` seconds, and looks for a
        missing stream every `look` seconds. `name` distinguishes streams of the same name.
        Optional are `username`, `password`, `token`, `tls`, `ca`, and `timeout`."""
        reader = ConfigReader("NATS source", config)
        self._access = reader.access("nats", token=True)
        subject = reader.text("subject", hint="a subject, as in trucks.> or trucks.*.position")
        if not _is_filter(subject):
            raise ServiceError(
                f"NATS source: '{subject}' is not a subject\n"
                "  hint: words separated by dots; * stands for one word, > for the rest"
            )
        stream = reader.optional("stream", hint="the name of a stream")
        if stream is not None and (not stream.isprintable() or set(stream) & set(" .*>/\\")):
            raise ServiceError(f"NATS source: '{stream}' is not a stream name\n  hint: one word")
        name = reader.optional("name", hint="a name") or f"nats:{stream or ''}:{subject}"
        super().__init__(name)
        self._subject, self._stream = subject, stream
        self._most = reader.read_integer("most", 1_000, least=2)
        self._wait = reader.seconds("wait", 0.02)
        self._look = reader.seconds("look", 10.0)
        reader.done()
        self._poll = min(_POLL, self._access.timeout / 2)
        self._next: int | None = None
        self.lag: int | None = None  # messages waiting in the stream

    def __repr__(self) -> str:
        return f"NatsSource({self._access.shown}, {self._subject!r})"

    async def _read(self, service: EventReceiver) -> None:
        connection = await NatsConnection(self._access).open()
        try:
            info = await self._wait_for_stream(connection)
            if self._next is None:
                self._next = await service.position(self.name)
            stream, first, end = info.config.name, info.state.first_seq, info.state.last_seq + 1
            start = max(1, first) if self._next is None else first
            self._next = self._resume_at(f"stream '{stream}'", self._next, start, end)
            await self._follow(connection, stream or "", service)
        except (nats.errors.Error, TimeoutError) as error:
            raise UnavailableError(connection.describe(error, self._subject)) from None
        finally:
            await connection.close()

    async def _wait_for_stream(self, connection: NatsConnection) -> StreamInfo:
        """Returns the stream once it exists."""
        jetstream = connection.jetstream
        while True:
            try:
                name = self._stream
                if name is None:
                    name = await connection.ask(jetstream.find_stream_name_by_subject(self._subject))
                return await connection.ask(jetstream.stream_info(name))
            except nats.js.errors.NotFoundError:
                which = f"stream '{self._stream}'" if self._stream else "stream for the subject"
                add = f"nats stream add {self._stream or 'NAME'} --subjects '{self._subject}'"
                self.progress.report_problem(
                    f"NATS at {self._access.shown} has no {which} yet: waiting for it\n  hint: {add}"
                )
            await asyncio.sleep(self._look)

    async def _follow(self, connection: NatsConnection, stream: str, service: EventReceiver) -> None:
        """Reads through a consumer without acknowledgements, so that the position in the database
        is the only one."""
        config = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=self._next,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=_INACTIVE,
            mem_storage=True,
        )
        subscription = await connection.ask(
            connection.jetstream.pull_subscribe(self._subject, stream=stream, config=config)
        )
        self.progress.clear_problem()
        expected = 1  # the consumer's sequence numbers have no gaps
        while True:
            batch = await self._receive(connection, subscription)
            numbers = [message.metadata.sequence.consumer for message in batch]
            if numbers != list(range(expected, expected + len(batch))):
                raise UnavailableError(f"NATS at {self._access.shown} skipped messages: they are read again")
            expected += len(batch)
            if batch:
                messages = [Message(each.data, each.metadata.sequence.stream) for each in batch]
                await self._publish(messages, service, self.name)
                self._next = batch[-1].metadata.sequence.stream + 1
                self.lag = batch[-1].metadata.num_pending

    async def _receive(self, connection: NatsConnection, subscription: JetStreamContext.PullSubscription) -> list[Msg]:
        """Waits for messages: a full batch, or those that arrive within the wait time."""
        if connection.lost.done():
            raise nats.errors.ConnectionClosedError
        try:
            first = await connection.ask(subscription.fetch(1, timeout=self._poll))
        except TimeoutError:
            await connection.ask(subscription.consumer_info())  # no message, or no server
            return []
        try:
            more = await connection.ask(subscription.fetch(self._most - 1, timeout=self._wait))
        except TimeoutError:
            more = []
        return first + more
