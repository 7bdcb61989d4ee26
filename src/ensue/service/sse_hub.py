"""Connected listeners: they get the stored notifications after their token, then new ones.

Everything runs on the event loop. A notification is encoded once for all listeners. Remote
listeners have a bounded buffer: one that is too slow is disconnected, and resumes with its token.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterator, Sequence
from enum import Enum

import orjson

from ensue.service.errors import OverLimitError
from ensue.service.settings import ServiceLimits
from ensue.service.store.outbox import RESYNC, Notification, OutboxPage

_LOG = logging.getLogger(__name__)

PAGE_SIZE = 500  # notifications read from the outbox at a time
HEARTBEAT_SECONDS = 15.0  # seconds of silence before a heartbeat
STALL_SECONDS = 60.0  # seconds after which an unfinished write disconnects the client
_TICK = 5.0

EncodedNotification = tuple[Notification, bytes]  # a notification and its frame


OutboxReader = Callable[[int, int], Awaitable[OutboxPage]]  # (after, limit)


class DisconnectReason(Enum):
    """Why a listener is disconnected."""

    slow = "too slow: more notifications are waiting than the buffer holds"
    revoked = "the token was revoked, or has expired, or the session has ended"
    stopped = "the service is shutting down"
    gone = "the client has disconnected"


class DisconnectedError(Exception):
    """The listener was disconnected; it can resume after the last notification it received."""

    def __init__(self, why: DisconnectReason) -> None:
        super().__init__(why.value)
        self.why = why


class _State(Enum):
    behind = 0  # reads the outbox, ignores new notifications
    joining = 1  # buffers new notifications, reads the last page
    live = 2


class NotificationListener:
    """A listener to the notifications of a user, of a subscription, or of all users."""

    __slots__ = (
        "_all", "_beat_due", "_buffer", "_first", "_known", "_most", "_read", "_started", "_state",
        "_waiter", "abort", "after", "credential", "remote", "subscription", "user", "why",
        "writing", "written",
    )  # fmt: skip

    def __init__(
        self,
        listeners: "SseHub",
        read: OutboxReader,
        after: int | None,
        *,
        user: int | None,
        subscription: int | None,
        credential: int | bytes | None,
        most: int,
        remote: bool,
    ) -> None:
        self.user, self.subscription = user, subscription
        self.credential = credential  # the token or session that must stay valid
        self.after = 0 if after is None else after  # the token for resuming
        self.abort: Callable[[], None] | None = None  # closes the connection
        self.writing = False  # a write is pending: the client does not read
        self.written = 0.0  # start of the last write
        self.remote = remote  # disconnected when slow
        self.why: DisconnectReason | None = None  # set when disconnected
        self._all, self._read, self._most = listeners, read, most
        self._started = after is not None
        self._state = _State.behind if self._started else _State.joining
        self._buffer: list[EncodedNotification] = []
        self._waiter: asyncio.Future[None] | None = None
        self._known = 0  # read up to this number; earlier dispatches are duplicates
        self._first: int | None = None  # first one buffered before the start was known
        self._beat_due = False

    def push(self, posted: EncodedNotification) -> None:
        """Buffers a notification unless the listener still reads the outbox."""
        if self._state is _State.behind or self.why is not None:
            return
        if posted[0].number <= self._known:
            return
        if len(self._buffer) >= self._most:
            if self.remote and self._state is _State.live:
                self.cut(DisconnectReason.slow)
            else:  # it reads the outbox again
                self._first = self._buffer[0][0].number if self._buffer else posted[0].number
                self._state = _State.behind
                self._buffer = []
                self.wake()
            return
        self._buffer.append(posted)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def cut(self, why: DisconnectReason) -> None:
        """Disconnects the listener: `take` raises an error."""
        if self.why is None:
            self.why = why
            if self.writing and self.abort is not None:
                self.abort()
            self.wake()

    @property
    def live(self) -> bool:
        """Whether the listener has caught up with the outbox."""
        return self._state is _State.live

    @property
    def lag(self) -> int:
        """Number of buffered notifications."""
        return len(self._buffer)

    def request_heartbeat(self) -> None:
        self._beat_due = True
        self.wake()

    def wake(self) -> None:
        """Wakes a pending `take`."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def begin(self) -> None:
        """Determines the number after which a new listener starts."""
        if not self._started:
            newest = (await self._read(0, 0)).newest
            if self._buffer:
                self._first = self._buffer[0][0].number
            self.after = newest if self._first is None else min(newest, self._first - 1)
            self._known = self.after
            self._started = True
            if self._state is _State.joining:
                self._state = _State.live

    async def take(self) -> list[EncodedNotification]:
        """Waits for the next notifications; an empty list is a heartbeat."""
        if not self._started:
            await self.begin()
        while self.why is None:
            if self._state is not _State.live:
                page = await self._read_page()
                if page:
                    self.after = page[-1][0].number
                    return page
            elif self._buffer:
                taken, self._buffer = self._buffer, []
                self.after = taken[-1][0].number
                return taken
            elif self._beat_due:
                self._beat_due = False
                self.after = max(self.after, self._all.newest)
                return []
            else:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
                self._waiter = None
        raise DisconnectedError(self.why)

    async def _read_page(self) -> list[EncodedNotification]:
        """Reads a page of the outbox; a short page is the last before the listener is live.

        It buffers dispatches before the last page is read, so nothing is missed. Duplicates are
        dropped here or in `push`, because a commit can be read before it is dispatched.
        """
        page = await self._read(self.after, PAGE_SIZE)
        if self.after < page.floor or self.after > page.newest:
            self._state, self._buffer = _State.behind, []
            self._all.resyncs += 1
            notice = create_resync(page.floor)
            self.after = page.floor
            return [(notice, notice.frame)]
        if len(page.notifications) == PAGE_SIZE:
            self._state, self._buffer = _State.behind, []
        elif self._state is _State.behind:
            self._state = _State.joining
        else:
            self._known = page.notifications[-1].number if page.notifications else self.after
            self._buffer = [posted for posted in self._buffer if posted[0].number > self._known]
            self._state = _State.live
        return [(notification, notification.frame) for notification in page.notifications]


class SseHub:
    """All listeners; `dispatch` is called with the notifications of each commit, in order."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        self._everybody: set[NotificationListener] = set()
        self._users: dict[int, set[NotificationListener]] = {}
        self._subscriptions: dict[int, set[NotificationListener]] = {}
        self._remote: dict[int, int] = {}  # remote listeners by user
        self._beating: asyncio.Task[None] | None = None
        self._closed = False
        # The valid tokens and sessions.
        self.standing: Callable[[], Awaitable[Container[int | bytes]]] | None = None
        self.newest = 0  # number of the last dispatched notification
        self.count = 0
        self.disconnects: dict[DisconnectReason, int] = dict.fromkeys(DisconnectReason, 0)
        self.resyncs = 0

    def dispatch(self, notifications: Sequence[Notification]) -> None:
        """Passes notifications to their listeners."""
        for notification in notifications:
            users = self._users.get(notification.user)
            narrow = self._subscriptions.get(notification.subscription)
            if users or narrow or self._everybody:
                posted = (notification, notification.frame)
                for listener in users or ():
                    listener.push(posted)
                for listener in narrow or ():
                    if listener.user is None or listener.user == notification.user:
                        listener.push(posted)
                for listener in self._everybody:
                    listener.push(posted)
        if notifications:
            self.newest = notifications[-1].number

    async def follow(
        self, read: OutboxReader, after: int | None = None, *, user: int | None = None, subscription: int | None = None
    ) -> AsyncIterator[Notification]:
        """Yields the notifications after a number, then new ones; None: only new ones."""
        listener = self.listen(read, after, user=user, subscription=subscription)
        try:
            while True:
                for notification, _ in await listener.take():
                    yield notification
        except DisconnectedError as cut:
            if cut.why is not DisconnectReason.stopped:
                raise
        finally:
            self.leave(listener)

    def listen(
        self,
        read: OutboxReader,
        after: int | None = None,
        *,
        user: int | None = None,
        subscription: int | None = None,
        credential: int | bytes | None = None,
        remote: ServiceLimits | None = None,
    ) -> NotificationListener:
        """Registers a listener; `remote` are the limits of a remote one."""
        if remote is not None and user is not None:
            self._refuse_more(user, remote)
        listener = NotificationListener(
            self, read, after, user=user, subscription=subscription, credential=credential,
            most=(remote or self._limits).buffer, remote=remote is not None,
        )  # fmt: skip
        self._get_group(listener).add(listener)
        self.count += 1
        if remote is not None and user is not None:
            self._remote[user] = self._remote.get(user, 0) + 1
            if self._beating is None:
                self._beating = asyncio.get_running_loop().create_task(self._beat())
        if self._closed:
            listener.cut(DisconnectReason.stopped)
        return listener

    def leave(self, listener: NotificationListener) -> None:
        group = self._get_group(listener)
        if listener in group:
            group.discard(listener)
            self.count -= 1
            if listener.remote and listener.user is not None:
                self._remote[listener.user] -= 1
                if not self._remote[listener.user]:
                    del self._remote[listener.user]
            if listener.why is not None:
                self.disconnects[listener.why] += 1
        if not group and listener.subscription is not None:
            del self._subscriptions[listener.subscription]
        elif not group and listener.user is not None:
            del self._users[listener.user]

    def __iter__(self) -> Iterator[NotificationListener]:
        return iter(self._all())

    @property
    def slow(self) -> int:
        """Number of listeners disconnected because they were too slow."""
        return self.disconnects[DisconnectReason.slow]

    @property
    def lag(self) -> int:
        """Number of buffered notifications of all listeners."""
        return sum(listener.lag for listener in self._all())

    def connections(self, user: int) -> int:
        """Number of remote listeners of a user."""
        return self._remote.get(user, 0)

    def revoke(self, credential: int | bytes) -> None:
        """Disconnects the listeners of a token or session."""
        for listener in self._all():
            if listener.credential == credential:
                listener.cut(DisconnectReason.revoked)

    def close(self) -> None:
        """Disconnects all present and future listeners."""
        self._closed = True
        for listener in self._all():
            listener.cut(DisconnectReason.stopped)
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    def _refuse_more(self, user: int, limits: ServiceLimits) -> None:
        if self.connections(user) >= limits.connections_per_user:
            raise OverLimitError(
                "connections_per_user",
                f"{limits.connections_per_user:,} listeners of this user are connected already\n"
                "  hint: close one, or listen to all subscriptions in one stream",
            )
        if self.count >= self._limits.connections:
            raise OverLimitError(
                "connections",
                f"{self._limits.connections:,} listeners are connected already\n"
                "  hint: try again later, or poll GET /api/v1/notifications",
            )

    def _get_group(self, listener: NotificationListener) -> set[NotificationListener]:
        if listener.subscription is not None:
            return self._subscriptions.setdefault(listener.subscription, set())
        if listener.user is not None:
            return self._users.setdefault(listener.user, set())
        return self._everybody

    def _all(self) -> list[NotificationListener]:
        groups = (*self._users.values(), *self._subscriptions.values(), self._everybody)
        return [listener for group in groups for listener in group]

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_TICK)
            try:
                standing = await self.standing() if self.standing is not None else None
            except Exception:  # noqa: BLE001 - heartbeats must continue
                _LOG.exception("the tokens of listeners could not be checked")
                standing = None
            self.check_listeners(loop.time(), standing)

    def check_listeners(self, now: float, standing: Container[int | bytes] | None) -> None:
        """Disconnects stalled and unauthorized listeners, and sends heartbeats to silent ones."""
        for listener in self._all():
            if not listener.remote:
                continue
            credential = listener.credential
            if standing is not None and credential is not None and credential not in standing:
                listener.cut(DisconnectReason.revoked)
            elif listener.writing and now - listener.written >= STALL_SECONDS:
                listener.cut(DisconnectReason.slow)
            elif now - listener.written >= HEARTBEAT_SECONDS:
                listener.request_heartbeat()


def create_resync(number: int) -> Notification:
    """Announces that the notifications before `number` have expired.

    >>> create_resync(7).frame
    b'id: 7\\nevent: resync\\ndata: {"kind":"resync","after":7}\\n\\n'
    """
    body = orjson.dumps({"kind": RESYNC, "after": number})
    return Notification(number, 0, 0, RESYNC, None, 0.0, body)
