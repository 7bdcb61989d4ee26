"""Sink for NATS JetStream, which drops duplicates by message id."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import nats.errors
import nats.js.errors

from ensue.service.brokers.nats_client import NatsConnection, NatsError
from ensue.service.delivery.connection_pool import ConnectionPool, ConnectionShare
from ensue.service.delivery.sink import (
    DeliveryError,
    Destination,
    Sink,
    get_message_headers,
    get_message_id,
)
from ensue.service.endpoints import BrokerAccess, ConfigReader
from ensue.service.notification import Notification

_AT_A_TIME = 4  # targets that send concurrently over one connection
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


class SharedNatsConnection:
    """A connection that several targets share."""

    def __init__(self, connection: NatsConnection) -> None:
        self.connection = connection
        self.room = asyncio.Semaphore(_AT_A_TIME)
        self.silent = False  # did not answer in time

    @property
    def usable(self) -> bool:
        return not (self.silent or self.connection.lost.done())

    async def close(self) -> None:
        await self.connection.close()


async def _connect(access: BrokerAccess) -> SharedNatsConnection:
    try:
        return SharedNatsConnection(await NatsConnection(access).open())
    except NatsError as error:
        raise DeliveryError(str(error)) from None


_pool = ConnectionPool(_connect)


class NatsSink:
    """Sends the notifications of one target."""

    def __init__(self, access: BrokerAccess, destination: Destination) -> None:
        self._access = access
        self._destination = destination
        self._share: ConnectionShare[SharedNatsConnection] | None = None

    def __repr__(self) -> str:
        return f"NatsSink({self._access.shown}, {self._destination})"

    async def send(self, notifications: Sequence[Notification]) -> None:
        if not notifications:
            return
        if self._share is None:
            self._share = _pool.seat(self._access)
        line = await self._share.line()
        for start in range(0, len(notifications), _PIECE):
            await self._send_piece(line, notifications[start : start + _PIECE], start)

    async def _send_piece(
        self, line: SharedNatsConnection, notifications: Sequence[Notification], before: int
    ) -> None:
        pending: list[asyncio.Future[Any]] = []
        failure: BaseException | None = None
        lost: asyncio.Future[Any] = line.connection.lost
        try:
            async with asyncio.timeout(self._access.timeout), line.room:
                try:
                    for notification in notifications:  # those published before an error count
                        pending += [await self._publish(line, notification)]
                except nats.errors.Error as error:
                    failure = error
                if pending:
                    answered: asyncio.Future[Any] = asyncio.gather(
                        *pending, return_exceptions=True
                    )
                    await asyncio.wait((answered, lost), return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError as error:
            line.silent = True
            failure = failure or error
        acknowledged = [f.done() and not f.cancelled() and f.exception() is None for f in pending]
        sent = (*acknowledged, False).index(False)
        for future in pending:
            future.cancel()
        if sent == len(notifications):
            return
        if sent < len(pending) and pending[sent].done() and not pending[sent].cancelled():
            failure = pending[sent].exception() or failure
        if lost.done():
            failure = nats.errors.ConnectionClosedError()
        why = await self._explain(
            line, failure or TimeoutError(), self._destination.of(notifications[sent])
        )
        raise DeliveryError(why, sent=before + sent)

    async def _publish(
        self, line: SharedNatsConnection, notification: Notification
    ) -> "asyncio.Future[Any]":
        headers = get_message_headers(notification) | {"Nats-Msg-Id": get_message_id(notification)}
        return await line.connection.jetstream.publish_async(
            self._destination.of(notification), notification.body, headers=headers
        )

    async def _explain(
        self, line: SharedNatsConnection, error: BaseException, subject: str
    ) -> str:
        """Explains an error; a missing stream can also mean that JetStream is disabled."""
        if isinstance(error, nats.js.errors.NoStreamResponseError):
            try:
                await line.connection.ask(line.connection.jetstream.account_info())
            except (nats.errors.Error, TimeoutError):
                return (
                    f"NATS at {self._access.shown} has no JetStream\n"
                    "  hint: enable it, as in nats-server -js"
                )
        return line.connection.words(error, subject)

    async def close(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            await share.leave()
