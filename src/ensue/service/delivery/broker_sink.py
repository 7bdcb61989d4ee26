"""Sinks of brokers: targets with the same broker and account share a pooled connection."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from ensue.service.brokers import UnavailableError
from ensue.service.delivery.sink import DeliveryError, Destination
from ensue.service.endpoints import BrokerAccess
from ensue.service.notification import Notification


class BrokerConnection(Protocol):
    """A connection that notifications are sent over."""

    @property
    def usable(self) -> bool:
        """Whether it works; otherwise a new one is opened."""
        ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=BrokerConnection)
_PoolKey = tuple[asyncio.AbstractEventLoop, BrokerAccess]


class PooledConnection(Generic[C]):
    """A connection, its number of users, and the pending attempt to open it."""

    def __init__(self, key: _PoolKey, connect: Callable[[BrokerAccess], Awaitable[C]]) -> None:
        self.key = key
        self.users = 0
        self._connect = connect
        self._connection: C | None = None
        self._opening: asyncio.Task[C] | None = None

    async def get(self) -> C:
        """Returns the open connection; raises the error of opening it."""
        if self._connection is not None and self._connection.usable:
            return self._connection
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            # marks the exception as retrieved, in case all waiting targets have left
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._opening)

    async def _open(self) -> C:
        try:
            await self._close()
            self._connection = await self._connect(self.key[1])
            return self._connection
        finally:
            self._opening = None

    async def close(self) -> None:
        if self._opening is not None:
            opening = self._opening
            opening.cancel()
            await asyncio.wait([opening])
        await self._close()

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class ConnectionPool(Generic[C]):
    """The connections to one kind of broker, opened for the first target, closed with the last.

    Without the pool, ten thousand subscriptions to one topic would need ten thousand connections.
    """

    def __init__(self, connect: Callable[[BrokerAccess], Awaitable[C]]) -> None:
        self._connect = connect
        self._shared: dict[_PoolKey, PooledConnection[C]] = {}

    def acquire(self, access: BrokerAccess) -> PooledConnection[C]:
        """Reserves the connection to a broker, in the running event loop."""
        key = (asyncio.get_running_loop(), access)
        shared = self._shared.setdefault(key, PooledConnection(key, self._connect))
        shared.users += 1
        return shared

    async def release(self, shared: PooledConnection[C]) -> None:
        """Gives a connection back; the last target closes it."""
        shared.users -= 1
        if not shared.users:
            del self._shared[shared.key]
            await shared.close()


class BrokerSink(Generic[C]):
    """Sends the notifications of one target over a pooled connection."""

    _pool: ClassVar[ConnectionPool[Any]]

    def __init__(self, access: BrokerAccess, destination: Destination) -> None:
        self._access = access
        self._destination = destination
        self._shared: PooledConnection[C] | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._access.shown}, {self._destination})"

    async def send(self, notifications: Sequence[Notification]) -> None:
        if not notifications:
            return
        if self._shared is None:
            self._shared = self._pool.acquire(self._access)
        try:
            connection = await self._shared.get()
        except UnavailableError as error:
            raise DeliveryError(str(error)) from None
        await self._send(connection, notifications)

    async def _send(self, connection: C, notifications: Sequence[Notification]) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        shared, self._shared = self._shared, None
        if shared is not None:
            await self._pool.release(shared)


@dataclass(frozen=True, slots=True)
class SendOutcome:
    """The outcome of publishing notifications."""

    pending: list["asyncio.Future[Any]"]  # acknowledgements of the published ones
    sent: int  # notifications acknowledged without a gap
    failure: BaseException  # why the next one was not acknowledged
    timed_out: bool


async def publish_all(
    notifications: Sequence[Notification],
    publish: Callable[[Notification], Awaitable["asyncio.Future[Any]"]],
    seconds: float,
    *,
    rejected: type[Exception],
    room: AbstractAsyncContextManager[Any] | None = None,
    lost: "Sequence[asyncio.Future[Any]]" = (),
) -> SendOutcome:
    """Publishes notifications and waits for their acknowledgements, or until the connection is
    lost; an error of type `rejected` ends the publishing."""
    pending: list[asyncio.Future[Any]] = []
    failure: BaseException = TimeoutError()
    timed_out = False
    try:
        async with asyncio.timeout(seconds), room or nullcontext():
            try:
                for notification in notifications:  # those published before an error count
                    pending += [await publish(notification)]
            except rejected as error:
                failure = error
            answers = asyncio.gather(*pending, return_exceptions=True)
            await asyncio.wait((answers, *lost), return_when=asyncio.FIRST_COMPLETED)
    except TimeoutError as error:
        failure, timed_out = error, True
    errors = [*(f.exception() if f.done() and not f.cancelled() else failure for f in pending), failure]
    sent = next(number for number, error in enumerate(errors) if error is not None)
    return SendOutcome(pending, sent, errors[sent] or failure, timed_out)
