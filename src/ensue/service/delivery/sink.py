"""Sinks: their interface and error, destinations in brokers, and pooled connections to brokers."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from string import Formatter
from typing import Any, Generic, Protocol, TypeVar

from ensue.errors import ServiceError, did_you_mean
from ensue.service.brokers import UnavailableError
from ensue.service.endpoints import BrokerAccess
from ensue.service.store.outbox import MATCH, Notification


class Sink(Protocol):
    """Delivers the notifications of one target."""

    async def send(self, notifications: Sequence[Notification]) -> None:
        """Returns when all notifications are acknowledged; raises DeliveryError otherwise."""
        ...

    async def close(self) -> None:
        """Releases connections; nothing is sent afterwards."""
        ...


class DeliveryError(Exception):
    """A delivery failed: the reason for the user, and how many notifications were delivered."""

    def __init__(self, why: str, *, sent: int = 0, gone: bool = False, retry_after: float | None = None) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent
        self.gone = gone  # the receiver is gone: the target has to be switched off
        self.retry_after = retry_after  # seconds that the receiver requests


PLACEHOLDERS = ("user", "subscription", "kind")


class Destination:
    """A topic or subject with placeholders for user, subscription or kind.

    >>> notification = Notification(12, 7, 3, "match", "a1", 0.0, b"{}")
    >>> Destination("mqtt target: 'topic'", "ensue/{user}/{subscription}").get_address(notification)
    'ensue/3/7'
    """

    def __init__(self, what: str, text: str, problem: Callable[[str], str | None] = lambda _: None) -> None:
        self._text = text
        self._fixed = "{" not in text and "}" not in text
        self._check(what, problem)

    def get_address(self, notification: Notification) -> str:
        if self._fixed:
            return self._text
        return self._text.format(user=notification.user, subscription=notification.subscription, kind=notification.kind)

    def _check(self, what: str, problem: Callable[[str], str | None]) -> None:
        hint = f"a name that may contain {', '.join(f'{{{name}}}' for name in PLACEHOLDERS)}"
        try:
            parts = list(Formatter().parse(self._text))
        except ValueError:
            raise ServiceError(f"{what}: '{self._text}' has an unmatched brace\n  hint: {hint}") from None
        for _, name, form, conversion in parts:
            if name is not None and name not in PLACEHOLDERS:
                near = did_you_mean(name, PLACEHOLDERS) or hint
                raise ServiceError(f"{what}: unknown placeholder '{name}'\n  hint: {near}")
            if form or conversion:
                raise ServiceError(f"{what}: '{self._text}' contains a format\n  hint: {hint}")
        wrong = problem(self.get_address(Notification(1, 1, 1, MATCH, None, 0.0, b"")))
        if wrong is not None:
            raise ServiceError(f"{what}: '{self._text}' {wrong}")

    def __repr__(self) -> str:
        return f"Destination({self._text!r})"


def get_message_headers(notification: Notification) -> dict[str, str]:
    return {
        "kind": notification.kind,
        "subscription": str(notification.subscription),
        "number": str(notification.number),
    }


class BrokerConnection(Protocol):
    """A connection that notifications are sent over."""

    @property
    def usable(self) -> bool:
        """Whether it works; otherwise a new one is opened."""
        ...

    async def close(self) -> None: ...


C = TypeVar("C", bound=BrokerConnection)


class PooledConnection(Generic[C]):
    """A connection, its number of users, and the pending attempt to open it."""

    def __init__(self, place: "_Place", connect: Callable[[], Awaitable[C]]) -> None:
        self.place = place
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
            self._connection = await self._connect()
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


# The connections of an event loop to brokers, opened for the first target, closed with the last: without
# sharing, ten thousand subscriptions to one topic would need ten thousand connections.
_Place = tuple[asyncio.AbstractEventLoop, type, BrokerAccess]
_POOL: dict[_Place, PooledConnection[Any]] = {}


class BrokerSink(Generic[C]):
    """Sends the notifications of one target over a pooled connection."""

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
            place = asyncio.get_running_loop(), type(self), self._access
            self._shared = _POOL.setdefault(place, PooledConnection(place, self._connect))
            self._shared.users += 1
        try:
            connection = await self._shared.get()
        except UnavailableError as error:
            raise DeliveryError(str(error)) from None
        await self._send(connection, notifications)

    async def _connect(self) -> C:
        raise NotImplementedError

    async def _send(self, connection: C, notifications: Sequence[Notification]) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.users -= 1
            if not shared.users:
                del _POOL[shared.place]
                await shared.close()


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
