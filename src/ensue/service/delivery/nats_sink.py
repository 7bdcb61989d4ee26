"""Sink for NATS JetStream, which drops duplicates by message id."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import nats.errors
import nats.js.errors

from ensue.service.brokers.nats_client import NatsConnection
from ensue.service.delivery.broker_sink import BrokerSink, ConnectionPool, publish_all
from ensue.service.delivery.sink import DeliveryError, Destination, Sink, get_message_headers, get_message_id
from ensue.service.endpoints import ConfigReader
from ensue.service.notification import Notification

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

    _pool = ConnectionPool(lambda access: NatsConnection(access).open())

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
        headers = get_message_headers(notification) | {"Nats-Msg-Id": get_message_id(notification)}
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
