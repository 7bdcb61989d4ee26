"""Lines to brokers: the targets of one broker and account share one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from ensue.service.endpoints import Access


class Line(Protocol):
    """A connection that notes are sent over."""

    @property
    def usable(self) -> bool:
        """Whether it is worth another try; if not, a new one is opened."""
        ...

    async def close(self) -> None: ...


L = TypeVar("L", bound=Line)


class Lines(Generic[L]):
    """The lines of one kind of broker: opened for the first target, closed with the last.

    Without them ten thousand subscriptions to one topic were ten thousand connections.
    """

    def __init__(self, opened: Callable[[Access], Awaitable[L]]) -> None:
        self._opened = opened
        self._held: dict[tuple[asyncio.AbstractEventLoop, Access], _Held[L]] = {}

    def seat(self, access: Access) -> "Seat[L]":
        """A right to the line of this access, in the running event loop."""
        key = (asyncio.get_running_loop(), access)
        held = self._held.setdefault(key, _Held(access, self._opened))
        held.users += 1

        async def leave() -> None:
            held.users -= 1
            if not held.users:
                del self._held[key]
                await held.close()

        return Seat(held, leave)


class Seat(Generic[L]):
    """One target's right to a line that it shares."""

    def __init__(self, held: "_Held[L]", leave: Callable[[], Awaitable[None]]) -> None:
        self._held = held
        self._leave: Callable[[], Awaitable[None]] | None = leave

    async def line(self) -> L:
        """The open line; whoever opens it says why it cannot be."""
        return await self._held.get()

    async def leave(self) -> None:
        """Gives the right back; the last one closes the line."""
        leave, self._leave = self._leave, None
        if leave is not None:
            await leave()


class _Held(Generic[L]):
    """A line, who uses it, and the one attempt to open it that all wait for."""

    def __init__(self, access: Access, opened: Callable[[Access], Awaitable[L]]) -> None:
        self.users = 0
        self._access = access
        self._opened = opened
        self._line: L | None = None
        self._opening: asyncio.Task[L] | None = None

    async def get(self) -> L:
        if self._line is not None and self._line.usable:
            return self._line
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
            self._opening.add_done_callback(_seen)
        return await asyncio.shield(self._opening)

    async def _open(self) -> L:
        try:
            old, self._line = self._line, None
            if old is not None:
                await old.close()
            self._line = await self._opened(self._access)
            return self._line
        finally:
            self._opening = None

    async def close(self) -> None:
        if self._opening is not None:
            opening = self._opening
            opening.cancel()
            await asyncio.wait([opening])
        if self._line is not None:
            line, self._line = self._line, None
            await line.close()


def _seen(task: "asyncio.Task[L]") -> None:
    """Those who wait for a line raise its error; if all of them left, nobody need hear of it."""
    if not task.cancelled():
        task.exception()
