"""NATS JetStream: a connection that is replaced instead of repaired, and its sink and source."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StreamInfo

from ensue.errors import ServiceError
from ensue.service.brokers import UnavailableError, close_client, run_shielded
from ensue.service.delivery.sink import BrokerSink, DeliveryError, Destination, Sink, get_message_headers, publish_all
from ensue.service.endpoints import BrokerAccess, ConfigReader
from ensue.service.sources.source import EventSource, Message
from ensue.service.store.outbox import Notification

T = TypeVar("T")
_AGAIN = 0.1  # seconds; the client connects twice
_AT_A_TIME = 4  # targets that send concurrently over one connection


class NatsConnection:
    """A client that signals a lost connection."""

    silent = False  # the server did not answer in time

    def __init__(self, access: BrokerAccess) -> None:
        self.access = access
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.last_error: str | None = None  # the last asynchronous error of the server
        self.client = Client()
        self.jetstream: JetStreamContext
        self.room = asyncio.Semaphore(_AT_A_TIME)

    @property
    def usable(self) -> bool:
        return not (self.silent or self.lost.done())

    async def open(self) -> "NatsConnection":
        """Connects, or raises UnavailableError."""
        access = self.access
        scheme = "tls" if access.tls else "nats"
        connecting = self.client.connect(
            [f"{scheme}://{server}" for server in access.servers],
            name="ensue",
            allow_reconnect=False,
            max_reconnect_attempts=1,
            reconnect_time_wait=_AGAIN,  # type: ignore[arg-type]
            connect_timeout=access.timeout,  # type: ignore[arg-type]
            user=access.username,
            password=access.password.get_secret_value() if access.password else None,
            token=access.token.get_secret_value() if access.token else None,
            tls=access.ssl_context(),
            error_cb=self._on_error,
            closed_cb=self._on_closed,
        )
        try:
            await self.ask(connecting)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            await self.close()
            raise UnavailableError(self.describe(error)) from None
        except BaseException:
            await self.close()
            raise
        self.jetstream = self.client.jetstream(timeout=access.timeout)
        return self

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Waits for a client call, within the timeout."""
        return await run_shielded(work, self.access.timeout)

    async def close(self) -> None:
        """Closes the connection and signals its loss."""
        await close_client(self.client.close(), self.access.timeout)
        self._lose()

    def describe(self, error: BaseException, subject: str | None = None) -> str:
        """Describes an error to a user, without passwords."""
        where = f"NATS at {self.access.shown}"
        match error:
            case nats.errors.AuthorizationError():
                return f"{where} rejects the account"
            case nats.errors.MaxPayloadError():
                return (
                    f"a notification is larger than {where} accepts\n"
                    f"  hint: raise its max_payload, now {self.client.max_payload} bytes"
                )
            case nats.js.errors.NoStreamResponseError():
                return (
                    f"{where} has no stream for the subject '{subject}'\n"
                    f"  hint: nats stream add NAME --subjects '{subject}'"
                )
            case nats.js.errors.APIError() if error.description:
                return f"{where} reports: {error.description}"
            case nats.errors.ConnectionClosedError():
                return f"the connection to {where} was lost"
            case TimeoutError() | OSError() | nats.errors.NoServersError():
                detail = f" ({self.access.without_secrets(self.last_error)})" if self.last_error else ""
                return f"{where} does not respond{detail}"
            case _:
                return f"{where} reports: {self.access.without_secrets(str(error))}"

    async def _on_error(self, error: Exception) -> None:
        self.last_error = str(error) or type(error).__name__

    async def _on_closed(self) -> None:
        self._lose()

    def _lose(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


_PIECE = 500  # pending acknowledgements; all targets together stay below the client's 4000


def make_nats_sink(config: Mapping[str, Any]) -> Sink:
    """Creates a sink from `servers` and `subject`; optional are `username`, `password`, `token`,
    `tls`, `ca`, and `timeout`."""
    reader = ConfigReader("NATS target", config)
    access = reader.access("nats", token=True)
    subject = reader.text("subject", hint="a subject, as in ensue.{user}.{subscription}")
    reader.done()
    return NatsSink(access, Destination("NATS target: 'subject'", subject, _problem))


def _problem(subject: str) -> str | None:
    tokens = subject.split(".")
    if subject.startswith("$"):
        return "is reserved for the server\n  hint: subjects must not begin with '$'"
    if "*" in tokens or ">" in tokens:
        return "matches several subjects\n  hint: do not use * and >"
    if not all(tokens) or any(c.isspace() or not c.isprintable() for c in subject):
        return "is not a subject\n  hint: words separated by dots, as in ensue.alerts"
    return None


class NatsSink(BrokerSink[NatsConnection]):
    """Sends the notifications of one target."""

    async def _connect(self) -> NatsConnection:
        return await NatsConnection(self._access).open()

    async def _send(self, connection: NatsConnection, notifications: Sequence[Notification]) -> None:
        for start in range(0, len(notifications), _PIECE):
            await self._send_piece(connection, notifications[start : start + _PIECE], start)

    async def _send_piece(self, connection: NatsConnection, notifications: Sequence[Notification], before: int) -> None:
        lost = connection.lost
        result = await publish_all(
            notifications,
            partial(self._publish, connection),
            self._access.timeout,
            rejected=nats.errors.Error,
            room=connection.room,
            lost=[lost],
        )
        connection.silent |= result.timed_out
        for future in result.pending:
            future.cancel()
        if result.sent < len(notifications):
            failure = nats.errors.ConnectionClosedError() if lost.done() else result.failure
            subject = self._destination.get_address(notifications[result.sent])
            why = await self._explain(connection, failure, subject)
            raise DeliveryError(why, sent=before + result.sent)

    async def _publish(self, connection: NatsConnection, notification: Notification) -> "asyncio.Future[Any]":
        headers = get_message_headers(notification) | {"Nats-Msg-Id": notification.message_id}
        return await connection.jetstream.publish_async(
            self._destination.get_address(notification), notification.body, headers=headers
        )

    async def _explain(self, connection: NatsConnection, error: BaseException, subject: str) -> str:
        """Explains an error; a missing stream can also mean that JetStream is disabled."""
        if isinstance(error, nats.js.errors.NoStreamResponseError):
            try:
                await connection.ask(connection.jetstream.account_info())
            except (nats.errors.Error, TimeoutError):
                return f"NATS at {self._access.shown} has no JetStream\n  hint: enable it, as in nats-server -js"
        return connection.describe(error, subject)


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


class NatsSource(EventSource):
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

    async def _read(self) -> None:
        connection = await NatsConnection(self._access).open()
        try:
            info = await self._wait_for_stream(connection)
            if self._next is None:
                self._next = await self._service.position(self.name)
            stream, first, end = info.config.name, info.state.first_seq, info.state.last_seq + 1
            start = max(1, first) if self._next is None else first
            self._next = self._resume_at(f"stream '{stream}'", self._next, start, end)
            await self._follow(connection, stream or "")
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

    async def _follow(self, connection: NatsConnection, stream: str) -> None:
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
                await self._publish(messages, self.name)
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
