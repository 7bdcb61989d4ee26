"""A connection to NATS that is replaced instead of repaired, and its errors as text."""

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client

from ensue.service.brokers import UnavailableError
from ensue.service.brokers.cancellation import close_client, run_shielded
from ensue.service.endpoints import BrokerAccess, SecretText

if TYPE_CHECKING:
    from nats.js import JetStreamContext

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
            password=_reveal(access.password),
            token=_reveal(access.token),
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


def _reveal(secret: SecretText | None) -> str | None:
    return None if secret is None else secret.reveal()
