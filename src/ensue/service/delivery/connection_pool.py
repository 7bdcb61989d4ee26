"""A pool of broker connections: targets with the same broker and account share one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from ensue.service.endpoints import BrokerAccess


class PooledConnection(Protocol):
    """A connection that notifications are sent over."""

    @property
    def usable(self) -> bool:
        """Whether it works; otherwise a new one is opened."""
        ...

    async def close(self) -> None: ...


L = TypeVar("L", bound=PooledConnection)


class ConnectionPool(Generic[L]):
    """The connections to one kind of broker, opened for the first target, closed with the last.

    Without the pool, ten thousand subscriptions to one topic would need ten thousand connections.
    """

    def __init__(self, connect: Callable[[BrokerAccess], Awaitable[L]]) -> None:
        self._connect = connect
        self._entries: dict[tuple[asyncio.AbstractEventLoop, BrokerAccess], _PoolEntry[L]] = {}

    def seat(self, access: BrokerAccess) -> "ConnectionShare[L]":
        """Reserves the connection to a broker, in the running event loop."""
        key = (asyncio.get_running_loop(), access)
        entry = self._entries.setdefault(key, _PoolEntry(access, self._connect))
        entry.users += 1

        async def leave() -> None:
            entry.users -= 1
            if not entry.users:
                del self._entries[key]
                await entry.close()

        return ConnectionShare(entry, leave)


class ConnectionShare(Generic[L]):
    """A target's share of a pooled connection."""

    def __init__(self, entry: "_PoolEntry[L]", leave: Callable[[], Awaitable[None]]) -> None:
        self._entry = entry
        self._leave: Callable[[], Awaitable[None]] | None = leave

    async def line(self) -> L:
        """Returns the open connection; raises the error of opening it."""
        return await self._entry.get()

    async def leave(self) -> None:
        """Releases the share; the last release closes the connection."""
        leave, self._leave = self._leave, None
        if leave is not None:
            await leave()


class _PoolEntry(Generic[L]):
    """A connection, its number of users, and the pending attempt to open it."""

    def __init__(
        self, access: BrokerAccess, connect: Callable[[BrokerAccess], Awaitable[L]]
    ) -> None:
        self.users = 0
        self._access = access
        self._connect = connect
        self._connection: L | None = None
        self._opening: asyncio.Task[L] | None = None

    async def get(self) -> L:
        if self._connection is not None and self._connection.usable:
            return self._connection
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_retrieve_exception)
        return await asyncio.shield(self._opening)

    async def _open(self) -> L:
        try:
            old, self._connection = self._connection, None
            if old is not None:
                await old.close()
            self._connection = await self._connect(self._access)
            return self._connection
        finally:
            self._opening = None

    async def close(self) -> None:
        if self._opening is not None:
            opening = self._opening
            opening.cancel()
            await asyncio.wait([opening])
        if self._connection is not None:
            line, self._connection = self._connection, None
            await line.close()


def _retrieve_exception(task: "asyncio.Task[L]") -> None:
    """Marks the exception as retrieved, in case all waiting targets have left."""
    if not task.cancelled():
        task.exception()
