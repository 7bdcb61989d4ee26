"""Notifications as server-sent events: plain ASGI, frames joined into as few writes as can be."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request
from starlette.types import Receive, Scope, Send

from ensue.errors import ServiceError
from ensue.service.access import READ
from ensue.service.listening import CutError, Listener, Listeners, Read, Why
from ensue.service.settings import Limits
from ensue.service.web.permission import access_of

TRANSPORT = "ensue.transport"  # where the scope has what the connection runs on
_JOINED = 200  # frames in one write
_RETRY = (1_000, 5_000)  # milliseconds: not all come back at once
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # proxies hand on each frame as it comes
]

Reading = Callable[[int, int | None], Awaitable[Read]]  # of a user, and a subscription of theirs


class NotificationStream:
    """The endpoint of all who listen."""

    def __init__(self, listeners: Listeners, reading: Reading, limits: Limits) -> None:
        self._listeners = listeners
        self._reading = reading
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            access_of(Request(scope)).require(READ)
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": b""})
            return
        listener = await self._listener(Request(scope))
        transport = scope.get(TRANSPORT)
        listener.abort = getattr(transport, "abort", None)
        watching = asyncio.create_task(_watch(receive, listener))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await _write_all(listener, send)
        finally:
            watching.cancel()
            self._listeners.leave(listener)

    async def _listener(self, request: Request) -> Listener:
        access = access_of(request)
        access.require(READ)
        after = request.headers.get("last-event-id") or request.query_params.get("after")
        wanted = request.query_params.get("subscription")
        subscription = None if wanted is None else _number("subscription", wanted)
        return self._listeners.listen(
            await self._reading(access.user, subscription),
            None if after is None else _number("after", after),
            user=access.user,
            subscription=subscription,
            credential=access.credential,
            remote=access.limits(self._limits),
        )


async def _write_all(listener: Listener, send: Send) -> None:
    loop = asyncio.get_running_loop()

    async def write(body: bytes, *, more: bool = True) -> None:
        listener.written = loop.time()
        listener.writing = True
        await send({"type": "http.response.body", "body": body, "more_body": more})
        listener.writing = False

    try:
        await listener.begin()
        # An id alone is no event, but what a browser sends when it comes back.
        await write(b"retry: %d\nid: %d\n\n" % (random.randint(*_RETRY), listener.after))
        while True:
            frames = [frame for _, frame in await listener.take()]
            for first in range(0, len(frames), _JOINED):
                await write(b"".join(frames[first : first + _JOINED]))
            if not frames:
                await write(b": still here\nid: %d\n\n" % listener.after)
    except CutError as cut:
        if cut.why is not Why.gone:
            await write(b": %b\n\n" % cut.why.value.encode(), more=False)


async def _watch(receive: Receive, listener: Listener) -> None:
    """Notices that the client has disconnected."""
    message: dict[str, Any] = {}
    while message.get("type") != "http.disconnect":
        message = dict(await receive())
    listener.cut(Why.gone)


def _number(name: str, given: str) -> int:
    if given.isdecimal() and given.isascii() and len(given) < 19:
        return int(given)
    raise ServiceError(f"{name}={given[:40]!r} is no number\n  hint: the id of a note you got")
