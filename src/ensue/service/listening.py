"""Whoever listens now: first what is kept since the last token, then what comes, without a gap.

All of it runs on the event loop. A note is made a frame once, for all who hear it. Who listens
from outside has a bounded buffer: one that is too slow is cut, and comes back with its token.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from ensue.service.notes import Note, resync
from ensue.service.refusals import OverLimitError
from ensue.service.settings import Limits

_LOG = logging.getLogger(__name__)

PIECE = 500  # notes read from the outbox at a time
BEAT = 15.0  # seconds of silence after which there is a sign of life
STALLED = 60.0  # seconds in which a client took nothing of what was written to it
_TICK = 5.0

Posted = tuple[Note, bytes]  # a note and its frame


@dataclass(frozen=True, slots=True)
class Kept:
    """A piece of the outbox: the notes behind a number, read before the two other fields."""

    notes: Sequence[Note]
    floor: int  # notes up to this one are gone
    newest: int  # the newest that there ever was


Read = Callable[[int, int], Awaitable[Kept]]  # the notes behind a number, at most so many


class Why(Enum):
    """Why a listener is cut."""

    slow = "too slow: more notes are waiting than the buffer holds"
    revoked = "the token was revoked, or has expired, or the session has ended"
    stopped = "the service stops"
    gone = "the client has disconnected"


class CutError(Exception):
    """The listener is cut. It may come back with the number of the last note it got."""

    def __init__(self, why: Why) -> None:
        super().__init__(why.value)
        self.why = why


class _State(Enum):
    behind = 0  # reads the outbox, and hears nothing
    joining = 1  # hears, and reads what came just before
    live = 2


class Listener:
    """One who listens to the notes of a user, of one subscription, or of everybody."""

    __slots__ = (
        "_all", "_beat_due", "_buffer", "_first", "_known", "_most", "_read", "_started", "_state",
        "_waiter", "abort", "after", "credential", "remote", "subscription", "user", "why",
        "writing", "written",
    )  # fmt: skip

    def __init__(
        self,
        listeners: "Listeners",
        read: Read,
        after: int | None,
        *,
        user: int | None,
        subscription: int | None,
        credential: int | bytes | None,
        most: int,
        remote: bool,
    ) -> None:
        self.user, self.subscription = user, subscription
        self.credential = credential  # a token or a session that has to hold
        self.after = 0 if after is None else after  # the token to go on from
        self.abort: Callable[[], None] | None = None  # drops the connection
        self.writing = False  # a write has begun and is not over: the client does not read
        self.written = 0.0  # when the last one began
        self.remote = remote  # from outside: it is cut when it is slow
        self.why: Why | None = None  # why it is cut
        self._all, self._read, self._most = listeners, read, most
        self._started = after is not None
        self._state = _State.behind if self._started else _State.joining
        self._buffer: list[Posted] = []
        self._waiter: asyncio.Future[None] | None = None
        self._known = 0  # up to here it was read: what is told of it later is told twice
        self._first: int | None = None  # heard before it was settled where to begin
        self._beat_due = False

    # ---------------------------------------------------------------------------- hearing

    def hear(self, posted: Posted) -> None:
        """Takes a note into the buffer, if this one is live."""
        if self._state is _State.behind or self.why is not None:
            return
        if posted[0].number <= self._known:
            return
        if len(self._buffer) >= self._most:
            if self.remote and self._state is _State.live:
                self.cut(Why.slow)
            else:  # what it misses is in the outbox
                self._first = self._buffer[0][0].number if self._buffer else posted[0].number
                self._state = _State.behind
                self._buffer = []
                self.wake()
            return
        self._buffer.append(posted)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def cut(self, why: Why) -> None:
        """Ends it: whoever takes its notes gets a CutError."""
        if self.why is None:
            self.why = why
            if self.writing and self.abort is not None:
                self.abort()
            self.wake()

    @property
    def live(self) -> bool:
        """Whether it has caught up with the outbox."""
        return self._state is _State.live

    @property
    def lag(self) -> int:
        """How many notes it has heard and not taken."""
        return len(self._buffer)

    def beat(self) -> None:
        """Has it give a sign of life, though there is nothing new."""
        self._beat_due = True
        self.wake()

    def wake(self) -> None:
        """Lets whoever waits for notes look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---------------------------------------------------------------------------- taking

    async def begin(self) -> None:
        """Settles where "from now on" begins, so that there is a token from the start."""
        if not self._started:
            newest = (await self._read(0, 0)).newest
            if self._buffer:
                self._first = self._buffer[0][0].number
            self.after = newest if self._first is None else min(newest, self._first - 1)
            self._known = self.after
            self._started = True
            if self._state is _State.joining:
                self._state = _State.live

    async def take(self) -> list[Posted]:
        """The next notes, when there are some; none of them as a sign of life."""
        if not self._started:
            await self.begin()
        while self.why is None:
            if self._state is not _State.live:
                found = await self._caught_up()
                if found:
                    self.after = found[-1][0].number
                    return found
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
        raise CutError(self.why)

    async def _caught_up(self) -> list[Posted]:
        """A piece from the outbox. A short one is the last before this one is live.

        It hears from before the last piece is read on, so nothing is in neither. What is in both
        is dropped: here, or when it is heard, for a commit can be read before it is told.
        """
        kept = await self._read(self.after, PIECE)
        if self.after < kept.floor or self.after > kept.newest:
            self._state, self._buffer = _State.behind, []
            self._all.resyncs += 1
            told = resync(kept.floor)
            self.after = kept.floor
            return [(told, told.frame)]
        if len(kept.notes) == PIECE:
            self._state, self._buffer = _State.behind, []
        elif self._state is _State.behind:
            self._state = _State.joining
        else:
            self._known = kept.notes[-1].number if kept.notes else self.after
            self._buffer = [posted for posted in self._buffer if posted[0].number > self._known]
            self._state = _State.live
        return [(note, note.frame) for note in kept.notes]


class Listeners:
    """All who listen. `dispatch` is called with what each commit has brought, in its order."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._everybody: set[Listener] = set()
        self._users: dict[int, set[Listener]] = {}
        self._subscriptions: dict[int, set[Listener]] = {}
        self._remote: dict[int, int] = {}  # how many listen from outside, by user
        self._beating: asyncio.Task[None] | None = None
        self._closed = False
        self.standing: Callable[[], Awaitable[Container[int | bytes]]] | None = None  # what holds
        self.newest = 0  # the number of the last note that was dispatched
        self.count = 0
        self.cut_by: dict[Why, int] = dict.fromkeys(Why, 0)
        self.resyncs = 0

    # ---------------------------------------------------------------------------- notes

    def dispatch(self, notes: Sequence[Note]) -> None:
        """Hands notes to all who listen to them."""
        for note in notes:
            users = self._users.get(note.user)
            narrow = self._subscriptions.get(note.subscription)
            if users or narrow or self._everybody:
                posted = (note, note.frame)
                for listener in users or ():
                    listener.hear(posted)
                for listener in narrow or ():
                    if listener.user is None or listener.user == note.user:
                        listener.hear(posted)
                for listener in self._everybody:
                    listener.hear(posted)
        if notes:
            self.newest = notes[-1].number

    async def follow(
        self,
        read: Read,
        after: int | None = None,
        *,
        user: int | None = None,
        subscription: int | None = None,
    ) -> AsyncIterator[Note]:
        """The notes behind a number, for ever; None: from now on. One who lags reads again."""
        listener = self.listen(read, after, user=user, subscription=subscription)
        try:
            while True:
                for note, _ in await listener.take():
                    yield note
        except CutError as cut:
            if cut.why is not Why.stopped:
                raise
        finally:
            self.leave(listener)

    # ---------------------------------------------------------------------------- coming and going

    def listen(
        self,
        read: Read,
        after: int | None = None,
        *,
        user: int | None = None,
        subscription: int | None = None,
        credential: int | bytes | None = None,
        remote: Limits | None = None,
    ) -> Listener:
        """Begins to listen. `remote` are the limits of one who does so from outside."""
        if remote is not None and user is not None:
            self._refuse_more(user, remote)
        listener = Listener(
            self, read, after, user=user, subscription=subscription, credential=credential,
            most=(remote or self._limits).buffer, remote=remote is not None,
        )  # fmt: skip
        self._heard(listener).add(listener)
        self.count += 1
        if remote is not None and user is not None:
            self._remote[user] = self._remote.get(user, 0) + 1
            if self._beating is None:
                self._beating = asyncio.get_running_loop().create_task(self._beat())
        if self._closed:
            listener.cut(Why.stopped)
        return listener

    def leave(self, listener: Listener) -> None:
        """Listens no more."""
        heard = self._heard(listener)
        if listener in heard:
            heard.discard(listener)
            self.count -= 1
            if listener.remote and listener.user is not None:
                self._remote[listener.user] -= 1
                if not self._remote[listener.user]:
                    del self._remote[listener.user]
            if listener.why is not None:
                self.cut_by[listener.why] += 1
        if not heard and listener.subscription is not None:
            del self._subscriptions[listener.subscription]
        elif not heard and listener.user is not None:
            del self._users[listener.user]

    def __iter__(self) -> Iterator[Listener]:
        return iter(self._all())

    @property
    def slow(self) -> int:
        """How many were cut because they were too slow."""
        return self.cut_by[Why.slow]

    @property
    def lag(self) -> int:
        """How many notes wait to be taken, by all together."""
        return sum(listener.lag for listener in self._all())

    def connections(self, user: int) -> int:
        """How many listen from outside for a user."""
        return self._remote.get(user, 0)

    def revoke(self, credential: int | bytes) -> None:
        """Cuts all who came with a token, or in a session."""
        for listener in self._all():
            if listener.credential == credential:
                listener.cut(Why.revoked)

    def close(self) -> None:
        """Cuts everybody, and whoever comes later."""
        self._closed = True
        for listener in self._all():
            listener.cut(Why.stopped)
        if self._beating is not None:
            self._beating.cancel()
            self._beating = None

    def _refuse_more(self, user: int, limits: Limits) -> None:
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
                "  hint: try again later, or ask with GET /api/v1/notifications",
            )

    def _heard(self, listener: Listener) -> set[Listener]:
        if listener.subscription is not None:
            return self._subscriptions.setdefault(listener.subscription, set())
        if listener.user is not None:
            return self._users.setdefault(listener.user, set())
        return self._everybody

    def _all(self) -> list[Listener]:
        groups = (*self._users.values(), *self._subscriptions.values(), self._everybody)
        return [listener for group in groups for listener in group]

    # ---------------------------------------------------------------------------- signs of life

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_TICK)
            try:
                standing = await self.standing() if self.standing is not None else None
            except Exception:  # noqa: BLE001 - the others are looked after all the same
                _LOG.exception("the tokens of listeners could not be looked up")
                standing = None
            self.look_after(loop.time(), standing)

    def look_after(self, now: float, standing: Container[int | bytes] | None) -> None:
        """Cuts who stalls or may listen no more; has the silent ones give a sign of life."""
        for listener in self._all():
            if not listener.remote:
                continue
            came = listener.credential
            if standing is not None and came is not None and came not in standing:
                listener.cut(Why.revoked)
            elif listener.writing and now - listener.written >= STALLED:
                listener.cut(Why.slow)
            elif now - listener.written >= BEAT:
                listener.beat()
