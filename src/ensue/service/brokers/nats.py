"""A connection to NATS that is not mended but opened anew, and its errors in words."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client

from ensue.service.brokers.apart import apart, let_go
from ensue.service.endpoints import Access, Secret

if TYPE_CHECKING:
    from nats.js import JetStreamContext

T = TypeVar("T")
_AGAIN = 0.1  # seconds; the client knocks twice


class NatsError(Exception):
    """What NATS did not do, in words for a user."""


class Connection:
    """A client that tells when its connection is gone."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.said: str | None = None  # the last complaint of the server that belongs to no answer
        self.client = Client()
        self.jetstream: JetStreamContext

    async def open(self) -> "Connection":
        """Connects, or raises a NatsError."""
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
            password=_revealed(access.password),
            token=_revealed(access.token),
            tls=access.ssl_context(),
            error_cb=self._complained,
            closed_cb=self._closed,
        )
        try:
            await self.ask(connecting)
        except (nats.errors.Error, OSError, TimeoutError) as error:
            await self.close()
            raise NatsError(self.words(error)) from None
        except BaseException:
            await self.close()
            raise
        self.jetstream = self.client.jetstream(timeout=access.timeout)
        return self

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """What the client answers, in time."""
        return await apart(work, self.access.timeout)

    async def close(self) -> None:
        """Ends it; whoever waits for an answer hears of it."""
        await let_go(self.client.close(), self.access.timeout)
        self._lose()

    def words(self, error: BaseException, subject: str | None = None) -> str:
        """What is wrong, for a user; never with a password in it."""
        where = f"NATS at {self.access.shown}"
        match error:
            case nats.errors.AuthorizationError():
                return f"{where} refuses the account"
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
                return f"{where} says: {error.description}"
            case nats.errors.ConnectionClosedError():
                return f"{where} is gone"
            case TimeoutError() | OSError() | nats.errors.NoServersError():
                said = f" ({self.access.without_secrets(self.said)})" if self.said else ""
                return f"{where} does not answer{said}"
            case _:
                return f"{where} says: {self.access.without_secrets(str(error))}"

    async def _complained(self, error: Exception) -> None:
        self.said = str(error) or type(error).__name__

    async def _closed(self) -> None:
        self._lose()

    def _lose(self) -> None:
        if not self.lost.done():
            self.lost.set_result(None)


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else secret.reveal()
