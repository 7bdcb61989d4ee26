"""HTTP connections of webhooks: to checked addresses only, reused for a while."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpcore2

from ensue.service.delivery.addresses import AddressGuard, WebhookUrl

_MOST_TRIED = 4  # addresses per host name


@dataclass(frozen=True, slots=True)
class WebhookLimits:
    """Resource limits of webhooks."""

    connect_seconds: float = 5.0
    seconds: float = 15.0  # from the request to the end of the response
    answer_bytes: int = 16 << 10  # read from a response
    at_once: int = 64  # concurrent requests, and unused connections
    at_once_per_target: int = 8
    idle_seconds: float = 30.0  # an unused connection stays open
    connection_seconds: float = 300.0  # maximum age, then the name is resolved again
    headers: int = 20
    url_length: int = 2_000


class WebhookConnections:
    """Connections by receiver; a free one serves the next request.

    The pool of httpcore2 polls every idle connection for each request, which dominates the cost of
    a request with many connections.
    """

    def __init__(self, guard: AddressGuard, tls: ssl.SSLContext, limits: WebhookLimits) -> None:
        self._network = _Pinned(guard)
        self._tls = tls
        self._limits = limits
        # Free connections with their origins, the longest unused first.
        self._unused: dict[httpcore2.AsyncHTTPConnection, str] = {}
        self._opened_at: dict[httpcore2.AsyncHTTPConnection, float] = {}

    def __len__(self) -> int:
        return len(self._opened_at)

    @asynccontextmanager
    async def post(
        self, receiver: WebhookUrl, headers: Sequence[tuple[str, str]], body: bytes
    ) -> AsyncIterator[httpcore2.Response]:
        """Sends a request and yields the response."""
        seconds = self._limits.seconds
        times = {"connect": self._limits.connect_seconds, "read": seconds, "write": seconds}
        url = httpcore2.URL(scheme=receiver.scheme, host=receiver.host, port=receiver.port, target=receiver.path)
        request = httpcore2.Request("POST", url, headers=headers, content=body, extensions={"timeout": times})
        connection = await self._acquire(receiver.origin) or self._open(url.origin)
        try:
            answer = await connection.handle_async_request(request)
            try:
                yield answer
            finally:
                await answer.aclose()
        finally:
            await self._release(receiver.origin, connection)

    async def close(self) -> None:
        """Closes the free connections; the others are closed after their requests."""
        for connection in list(self._unused):
            await self._close(connection)

    def _open(self, origin: httpcore2.Origin) -> httpcore2.AsyncHTTPConnection:
        connection = httpcore2.AsyncHTTPConnection(
            origin, ssl_context=self._tls, keepalive_expiry=self._limits.idle_seconds, network_backend=self._network
        )
        self._opened_at[connection] = asyncio.get_running_loop().time()
        return connection

    async def _acquire(self, origin: str) -> httpcore2.AsyncHTTPConnection | None:
        """Returns a usable free connection: the last used one, so that others expire."""
        while True:
            newest_first = reversed(self._unused.items())
            connection = next((free for free, its in newest_first if its == origin), None)
            if connection is None:
                return None
            del self._unused[connection]
            if self._is_usable(connection):
                return connection
            await self._close(connection)

    async def _release(self, origin: str, connection: httpcore2.AsyncHTTPConnection) -> None:
        if not connection.is_idle() or not self._is_usable(connection):
            await self._close(connection)
            return
        self._unused[connection] = origin
        while self._unused:
            oldest = next(iter(self._unused))
            if len(self._unused) <= self._limits.at_once and not oldest.has_expired():
                break
            await self._close(oldest)

    def _is_usable(self, connection: httpcore2.AsyncHTTPConnection) -> bool:
        age = asyncio.get_running_loop().time() - self._opened_at[connection]
        return age < self._limits.connection_seconds and not connection.has_expired()

    async def _close(self, connection: httpcore2.AsyncHTTPConnection) -> None:
        self._unused.pop(connection, None)
        self._opened_at.pop(connection, None)
        await connection.aclose()


class _Pinned(httpcore2.AsyncNetworkBackend):
    """Connects to addresses that passed the guard; host names are resolved only here."""

    def __init__(self, guard: AddressGuard) -> None:
        self._guard = guard
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connects to the first address of the host that answers."""
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        try:
            async with asyncio.timeout_at(end):
                addresses = (await self._guard.addresses(host, port))[:_MOST_TRIED]
        except TimeoutError:
            raise httpcore2.ConnectTimeout(f"looking up {host} took too long") from None
        except OSError as error:
            raise httpcore2.ConnectError(str(error)) from None
        failure: Exception | None = None
        for tried, address in enumerate(addresses):
            # An unresponsive address must leave time for the next ones.
            share = None if end is None else (end - loop.time()) / (len(addresses) - tried)
            try:
                return await self._network.connect_tcp(address, port, share, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore2.ConnectError(f"{host} has no address")
