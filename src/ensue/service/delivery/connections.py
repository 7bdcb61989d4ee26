"""Connections to receivers of webhooks: to checked addresses only, and used again for a while."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpcore

from ensue.service.delivery.addresses import Guard, Place

_MOST_TRIED = 4  # addresses of one name


@dataclass(frozen=True, slots=True)
class Keeping:
    """How connections are made and kept."""

    connect_seconds: float
    answer_seconds: float
    idle_seconds: float  # that one is kept for the next request
    seconds: float  # that one is used at all; then the name is looked up again
    idle: int  # that are kept, in all


class Connections:
    """Connections by receiver. One that is free serves the next request.

    httpcore's own pool looks at all of them for every request, which takes most of the time of
    a request once there are many.
    """

    def __init__(self, guard: Guard, tls: ssl.SSLContext, keeping: Keeping) -> None:
        self._network = _Pinned(guard)
        self._tls = tls
        self._keeping = keeping
        self._free: dict[str, list[httpcore.AsyncHTTPConnection]] = {}
        # All that are free, the longest unused in front.
        self._unused: dict[httpcore.AsyncHTTPConnection, str] = {}
        self._made: dict[httpcore.AsyncHTTPConnection, float] = {}

    def __len__(self) -> int:
        return len(self._made)

    @asynccontextmanager
    async def posted(
        self, place: Place, headers: Sequence[tuple[str, str]], body: bytes
    ) -> AsyncIterator[httpcore.Response]:
        """The answer to a request, of which the body may be read."""
        keeping = self._keeping
        url = httpcore.URL(
            scheme=place.scheme.encode(),
            host=place.host.encode(),
            port=place.port,
            target=place.path.encode(),
        )
        times = {
            "connect": keeping.connect_seconds,
            "read": keeping.answer_seconds,
            "write": keeping.answer_seconds,
        }
        request = httpcore.Request(
            "POST",
            url,
            headers=[(name.encode(), value.encode()) for name, value in headers],
            content=body,
            extensions={"timeout": times},
        )
        connection = await self._taken(place.origin) or self._opened(url.origin)
        try:
            answer = await connection.handle_async_request(request)
            try:
                yield answer
            finally:
                await answer.aclose()
        finally:
            await self._given_back(place.origin, connection)

    async def close(self) -> None:
        """Closes those that are free; the others end with their requests."""
        for connection in list(self._unused):
            await self._closed(connection)

    def _opened(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection:
        connection = httpcore.AsyncHTTPConnection(
            origin,
            ssl_context=self._tls,
            keepalive_expiry=self._keeping.idle_seconds,
            network_backend=self._network,
        )
        self._made[connection] = asyncio.get_running_loop().time()
        return connection

    async def _taken(self, origin: str) -> httpcore.AsyncHTTPConnection | None:
        """A free connection that is still good: the one used last, so that others run out."""
        while free := self._free.get(origin):
            connection = free[-1]
            self._forget(connection)
            if self._good(connection):
                return connection
            await self._closed(connection)
        return None

    async def _given_back(self, origin: str, connection: httpcore.AsyncHTTPConnection) -> None:
        if not connection.is_idle() or not self._good(connection):
            await self._closed(connection)
            return
        self._free.setdefault(origin, []).append(connection)
        self._unused[connection] = origin
        while self._unused:
            oldest = next(iter(self._unused))
            if len(self._unused) <= self._keeping.idle and not oldest.has_expired():
                break
            await self._closed(oldest)

    def _good(self, connection: httpcore.AsyncHTTPConnection) -> bool:
        age = asyncio.get_running_loop().time() - self._made[connection]
        return age < self._keeping.seconds and not connection.has_expired()

    def _forget(self, connection: httpcore.AsyncHTTPConnection) -> None:
        origin = self._unused.pop(connection, None)
        if origin is not None:
            self._free[origin].remove(connection)
            if not self._free[origin]:
                del self._free[origin]

    async def _closed(self, connection: httpcore.AsyncHTTPConnection) -> None:
        self._forget(connection)
        self._made.pop(connection, None)
        await connection.aclose()


class _Pinned(httpcore.AsyncNetworkBackend):
    """Connects to addresses that passed the guard; a name is looked up here and nowhere else."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to the first address of the host that answers."""
        loop = asyncio.get_running_loop()
        end = None if timeout is None else loop.time() + timeout
        try:
            async with asyncio.timeout_at(end):
                found = (await self._guard.addresses(host, port))[:_MOST_TRIED]
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"looking up {host} took too long") from None
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from None
        failed: Exception | None = None
        for tried, address in enumerate(found):
            # An address that does not answer leaves time for those behind it.
            patience = None if end is None else (end - loop.time()) / (len(found) - tried)
            try:
                return await self._network.connect_tcp(
                    address, port, patience, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed or httpcore.ConnectError(f"{host} has no address")
