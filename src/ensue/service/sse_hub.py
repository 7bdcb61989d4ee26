"""Connected listeners: they get the stored notifications after their token, then new ones.

Everything runs on the event loop. A notification is encoded once for all listeners. Remote
listeners have a bounded buffer: one that is too slow is disconnected, and resumes with its token.
"""

import asyncio
import logging
from collections import Counter, defaultdict
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
_Group = tuple[int | None, int | None]  # a subscription, or a user, or neither
OutboxReader = Callable[[int, int], Awaitable[OutboxPage]]  # (after, limit)


class DisconnectReason(Enum):
    """Why a listener is disconnected."""

    slow = "too slow: more notifications are waiting than the buffer holds"
    revoked = "the token was revoked, or has expired, or the session has ended"
    stopped = "the service is shutting down"


class DisconnectedError(Exception):
    """The listener was disconnected; it can resume after the last notification it received."""

    def __init__(self, why: DisconnectReason) -> None:
        super().__init__(why.value)
        self.why = why


class NotificationListener:
    """A listener to the notifications of a user, of a subscription, or of all users."""

    __slots__ = (
        "_beat_due", "_buffer", "_hub", "_known", "_missed", "_most", "_read", "_started", "_woken",
        "abort", "after", "credential", "live", "remote", "subscription", "user", "why", "writing",
        "written",
    )  # fmt: skip

    def __init__(
        self,
        hub: "SseHub",
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
        self.after = after or 0  # the token for resuming
        self.abort: Callable[[], None] | None = None  # closes the connection
        self.writing = False  # a write is pending: the client does not read
        self.written = 0.0  # start of the last write
        self.remote = remote  # disconnected when slow
        self.why: DisconnectReason | None = None  # set when disconnected
        self.live = False  # it has caught up with the outbox
        self._hub, self._read, self._most = hub, read, most
        self._started = after is not None
        self._buffer: list[EncodedNotification] = []
        self._missed = False  # the buffer was full: the outbox has more
        self._known = 0  # read up to this number; earlier dispatches are duplicates
        self._woken = asyncio.Event()
        self._beat_due = False

    def push(self, posted: EncodedNotification) -> None:
        """Buffers a notification; a full buffer disconnects a remote listener that has caught up."""
        if self.why is not None or posted[0].number <= self._known:
            return
        if len(self._buffer) < self._most:
            self._buffer.append(posted)
        elif self.remote and self.live:
            self.cut(DisconnectReason.slow)
        else:
            self._missed, self.live = True, False
        self._woken.set()

    def cut(self, why: DisconnectReason) -> None:
        """Disconnects the listener: `take` raises an error."""
        if self.why is None:
            self.why = why
            if self.writing and self.abort is not None:
                self.abort()
            self._woken.set()

    @property
    def group(self) -> _Group:
        """Whose notifications it gets."""
        return (self.subscription, None if self.subscription is not None else self.user)

    @property
    def lag(self) -> int:
        """Number of buffered notifications."""
        return len(self._buffer)

    def request_heartbeat(self) -> None:
        self._beat_due = True
        self._woken.set()

    async def begin(self) -> None:
        """Determines the number after which a new listener starts."""
        if not self._started:
            newest = (await self._read(0, 0)).newest
            self.after = self._known = min([newest, *(posted[0].number - 1 for posted in self._buffer[:1])])
            self._started, self.live = True, not self._missed

    async def take(self) -> list[EncodedNotification]:
        """Waits for the next notifications; an empty list is a heartbeat."""
        await self.begin()
        while self.why is None:
            if self.live:
                taken, self._buffer = self._buffer, []
            else:
                taken = await self._read_page()
            if taken:
                self.after = taken[-1][0].number
                return taken
            if self.live and not self._buffer:
                if self._beat_due:
                    self._beat_due = False
                    self.after = max(self.after, self._hub.newest)
                    return []
                self._woken.clear()
                await self._woken.wait()
        raise DisconnectedError(self.why)

    async def _read_page(self) -> list[EncodedNotification]:
        """Reads a page of the outbox; after a short page the listener is live.

        What is dispatched while the page is read is buffered, so nothing is missed. Duplicates are
        dropped here or in `push`, because a commit can be read before it is dispatched.
        """
        self._buffer, self._missed = [], False
        page = await self._read(self.after, PAGE_SIZE)
        if self.after < page.floor or self.after > page.newest:
            self._hub.resyncs += 1
            notice = create_resync(page.floor)
            return [(notice, notice.frame)]
        if len(page.notifications) < PAGE_SIZE and not self._missed:
            self._known = page.notifications[-1].number if page.notifications else self.after
            self._buffer = [posted for posted in self._buffer if posted[0].number > self._known]
            self.live = True
        return [(notification, notification.frame) for notification in page.notifications]


class SseHub:
    """All listeners; `dispatch` is called with the notifications of each commit, in order."""

    def __init__(self, limits: ServiceLimits) -> None:
        self._limits = limits
        # The listeners of (subscription, None), of (None, user), and of all users.
        self._groups: defaultdict[_Group, set[NotificationListener]] = defaultdict(set)
        self._remote: Counter[int] = Counter()  # remote listeners by user
        self._beating: asyncio.Task[None] | None = None
        self._closed = False
        # The valid tokens and sessions.
        self.standing: Callable[[], Awaitable[Container[int | bytes]]] | None = None
        self.newest = 0  # number of the last dispatched notification
        self.count = 0
        self.disconnects: dict[DisconnectReason, int] = dict.fromkeys(DisconnectReason, 0)
        self.resyncs = 0

    def dispatch(self, notifications: Sequence[Notification]) -> None:
        for notification in notifications:
            groups = (None, notification.user), (notification.subscription, None), (None, None)
            listeners = [each for group in groups for each in self._groups.get(group, ())]
            if listeners:
                posted = (notification, notification.frame)
                for listener in listeners:
                    if listener.user is None or listener.user == notification.user:
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
        self._groups[listener.group].add(listener)
        self.count += 1
        if remote is not None and user is not None:
            self._remote[user] += 1
            if self._beating is None:
                self._beating = asyncio.get_running_loop().create_task(self._beat())
        if self._closed:
            listener.cut(DisconnectReason.stopped)
        return listener

    def leave(self, listener: NotificationListener) -> None:
        group = self._groups.get(listener.group, set())
        if listener in group:
            group.discard(listener)
            self.count -= 1
            if listener.remote and listener.user is not None:
                self._remote[listener.user] -= 1
            if listener.why is not None:
                self.disconnects[listener.why] += 1
        if not group:
            self._groups.pop(listener.group, None)

    def __iter__(self) -> Iterator[NotificationListener]:
        return iter([listener for group in self._groups.values() for listener in group])

    @property
    def slow(self) -> int:
        return self.disconnects[DisconnectReason.slow]

    def connections(self, user: int) -> int:
        """Number of remote listeners of a user."""
        return self._remote[user]

    def revoke(self, credential: int | bytes) -> None:
        """Disconnects the listeners of a token or session."""
        for listener in self:
            if listener.credential == credential:
                listener.cut(DisconnectReason.revoked)

    def close(self) -> None:
        self._closed = True
        for listener in self:
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
        for listener in self:
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
