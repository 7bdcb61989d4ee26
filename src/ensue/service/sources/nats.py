"""Events from a NATS JetStream stream, from the sequence that the service's file says."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import nats.errors
import nats.js.errors
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo

from ensue.errors import ServiceError
from ensue.service.brokers.nats import Connection, NatsError
from ensue.service.endpoints import Access, Given
from ensue.service.sources.contract import Progress, Source, Taker
from ensue.service.sources.handing_over import hand_over, keep_reading
from ensue.service.sources.payloads import Message

_POLL = 5.0  # seconds to wait for messages before asking anew
_INACTIVE = 60.0  # seconds that the server keeps a consumer that nobody asks


def make(config: Mapping[str, Any]) -> Source:
    """A source from `servers`, `subject` and `stream`; without `stream`, that which takes the
    subject. `most` messages or those of `wait` seconds are taken together; every `look` seconds
    it looks for a stream that is missing. `name` tells apart streams of the same name. If needed
    `username`, `password`, `token`, `tls`, `ca`, `timeout`."""
    given = Given("NATS source", config)
    access = given.access("nats", token=True)
    subject = given.text("subject", hint="a subject, as in trucks.> or trucks.*.position")
    if not _is_filter(subject):
        raise ServiceError(
            f"NATS source: '{subject}' is not a subject\n"
            "  hint: words with dots between; * stands for one word, > for the rest"
        )
    stream = given.optional("stream", hint="the name of a stream")
    if stream is not None and (not stream.isprintable() or set(stream) & set(" .*>/\\")):
        raise ServiceError(f"NATS source: '{stream}' is not a stream name\n  hint: one word")
    source = NatsSource(
        access,
        subject,
        stream,
        name=given.optional("name", hint="a name") or f"nats:{stream or ''}:{subject}",
        most=given.whole("most", 1_000, least=2),
        wait=given.seconds("wait", 0.02),
        look=given.seconds("look", 10.0),
    )
    given.done()
    return source


def _is_filter(subject: str) -> bool:
    """Whether NATS knows a filter like this.

    >>> [_is_filter(subject) for subject in ("a.*.b", "a.>", "a.>.b", "a..b", "a b")]
    [True, True, False, False, False]
    """
    tokens = subject.split(".")
    spaced = any(c.isspace() or not c.isprintable() for c in subject)
    return all(tokens) and not spaced and ">" not in tokens[:-1]


class NatsSource:
    """Reads one subject of one stream, in order."""

    def __init__(
        self,
        access: Access,
        subject: str,
        stream: str | None,
        *,
        name: str,
        most: int,
        wait: float,
        look: float,
    ) -> None:
        self._access = access
        self._subject = subject
        self._stream = stream
        self._most = most
        self._wait = wait
        self._look = look
        self._poll = min(_POLL, access.timeout / 2)
        self._next: int | None = None
        self.name = name
        self.progress = Progress(name)
        self.lag: int | None = None  # messages that wait in the stream

    def __repr__(self) -> str:
        return f"NatsSource({self._access.shown}, {self._subject!r})"

    async def run(self, service: Taker) -> None:
        await keep_reading(lambda: self._read(service), self.progress, self._words)

    def _words(self, error: Exception) -> str | None:
        return str(error) if isinstance(error, NatsError) else None

    async def _read(self, service: Taker) -> None:
        connection = await Connection(self._access).open()
        try:
            info = await self._stream_there(connection)
            if self._next is None:
                self._next = await service.position(self.name)
            self._next = self._start(info)
            await self._follow(connection, info.config.name or "", service)
        except (nats.errors.Error, TimeoutError) as error:
            raise NatsError(connection.words(error, self._subject)) from None
        finally:
            await connection.close()

    async def _stream_there(self, connection: Connection) -> StreamInfo:
        """The stream, once it is there."""
        jetstream = connection.jetstream
        while True:
            try:
                name = self._stream
                if name is None:
                    name = await connection.ask(
                        jetstream.find_stream_name_by_subject(self._subject)
                    )
                return await connection.ask(jetstream.stream_info(name))
            except nats.js.errors.NotFoundError:
                which = f"stream '{self._stream}'" if self._stream else "stream for the subject"
                add = f"nats stream add {self._stream or 'NAME'} --subjects '{self._subject}'"
                self.progress.hindered(
                    f"NATS at {self._access.shown} has no {which} yet: it waits for it\n"
                    f"  hint: {add}"
                )
            await asyncio.sleep(self._look)

    def _start(self, info: StreamInfo) -> int:
        """The sequence to read on from."""
        position, first, end = self._next, info.state.first_seq, info.state.last_seq + 1
        stream = info.config.name
        if position is None:
            return max(1, first)
        if position > end:
            raise ServiceError(
                f"stream '{stream}' ends at {end}, but was read up to {position}: it seems to be "
                f"another with the same name\n  hint: use another name, such as name={self.name}-2"
            )
        if position < first:
            gone = first - position
            why = f"{gone} messages of stream '{stream}' were deleted, maybe before they were read"
            self.progress.missed(f"{why}: it goes on at {first}", gone)
            return first
        return position

    async def _follow(self, connection: Connection, stream: str, service: Taker) -> None:
        """Reads through a consumer of the server's, which we number ourselves: it confirms
        nothing, so that the position in our file is the only one."""
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
        self.progress.well()
        expected = 1  # by the consumer's own count, which has no gaps
        while True:
            some = await self._some(connection, subscription)
            numbers = [message.metadata.sequence.consumer for message in some]
            if numbers != list(range(expected, expected + len(some))):
                raise NatsError(
                    f"NATS at {self._access.shown} skipped messages: they are read again"
                )
            expected += len(some)
            if some:
                await self._hand_over(some, service)

    async def _some(
        self, connection: Connection, subscription: JetStreamContext.PullSubscription
    ) -> list[Msg]:
        """What has come: as much as may be taken together, or what comes within the wait."""
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

    async def _hand_over(self, some: Sequence[Msg], service: Taker) -> None:
        messages = [Message(one.data, one.metadata.sequence.stream) for one in some]
        await hand_over(messages, service, self.name, self.progress)
        self._next = some[-1].metadata.sequence.stream + 1
        self.lag = some[-1].metadata.num_pending
