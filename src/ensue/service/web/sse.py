"""Notifications over HTTP: as server-sent events, and as pages."""

import asyncio
import random
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.types import Receive, Scope, Send

from ensue.errors import ServiceError
from ensue.service.access import READ
from ensue.service.event_columns import format_time
from ensue.service.notification import MATCH, Notification
from ensue.service.service import Service
from ensue.service.sse_hub import DisconnectedError, DisconnectReason, NotificationListener, OutboxPage, OutboxReader
from ensue.service.web.guard import QuerySlots, ReadAccess, get_principal
from ensue.service.web.responses import NotificationPage, encode_json, join_bodies

TRANSPORT = "ensue.transport"  # key of the transport in the scope
_JOINED = 200  # frames in one write
_RETRY = (1_000, 5_000)  # milliseconds, random so that clients do not reconnect together
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # proxies must not buffer frames
]


class NotificationStream:
    """The ASGI endpoint of the event stream; frames are joined into few writes."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            get_principal(Request(scope)).require(READ)
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": b""})
            return
        listener = await self._listener(Request(scope))
        listener.abort = getattr(scope.get(TRANSPORT), "abort", None)
        watching = asyncio.create_task(_watch(receive, listener))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await _write_all(listener, send)
        finally:
            watching.cancel()
            self._service.listeners.leave(listener)

    async def _listener(self, request: Request) -> NotificationListener:
        access = get_principal(request)
        access.require(READ)
        after = request.headers.get("last-event-id") or request.query_params.get("after")
        text = request.query_params.get("subscription")
        subscription = None if text is None else _number("subscription", text)
        if subscription is not None:
            await self._service.subscription(subscription, user=access.user)
        return self._service.listeners.listen(
            self._service.get_outbox_reader(access.user, subscription),
            None if after is None else _number("after", after),
            user=access.user,
            subscription=subscription,
            credential=access.credential,
            remote=access.limits(self._service.limits),
        )


async def _write_all(listener: NotificationListener, send: Send) -> None:
    loop = asyncio.get_running_loop()

    async def write(body: bytes, *, more: bool = True) -> None:
        listener.written = loop.time()
        listener.writing = True
        await send({"type": "http.response.body", "body": body, "more_body": more})
        listener.writing = False

    try:
        await listener.begin()
        # A frame with only an id is no event, but sets the id that a browser sends to reconnect.
        await write(b"retry: %d\nid: %d\n\n" % (random.randint(*_RETRY), listener.after))
        while True:
            frames = [frame for _, frame in await listener.take()]
            for first in range(0, len(frames), _JOINED):
                await write(b"".join(frames[first : first + _JOINED]))
            if not frames:
                await write(b": still here\nid: %d\n\n" % listener.after)
    except DisconnectedError as cut:
        if cut.why is not DisconnectReason.gone:
            await write(b": %b\n\n" % cut.why.value.encode(), more=False)


async def _watch(receive: Receive, listener: NotificationListener) -> None:
    """Waits for the disconnect of the client."""
    while (await receive())["type"] != "http.disconnect":
        pass
    listener.cut(DisconnectReason.gone)


def _number(name: str, text: str) -> int:
    if text.isdecimal() and text.isascii() and len(text) < 19:
        return int(text)
    raise ServiceError(f"{name}={text[:40]!r} is not a number\n  hint: use the id of a received notification")


MAX_PAGE_SIZE = 1_000
_GREATEST = 1 << 62
After = Annotated[int, Query(ge=0, lt=_GREATEST, description="start after this number")]
Page = Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE, description="maximum number of items")]
Number = Annotated[int, Path(ge=0, lt=_GREATEST)]


def notification_routes(service: Service, turns: QuerySlots) -> APIRouter:
    """Adds /notifications, for polling, and /notes."""
    routes = APIRouter(tags=["notifications"])

    @routes.get("/notifications", response_model=NotificationPage)
    async def notifications(
        access: ReadAccess,
        after: Annotated[int | None, Query(ge=0, lt=_GREATEST, description="by default from the oldest")] = None,
        limit: Page = 100,
        subscription: Annotated[int | None, Query(ge=0, lt=_GREATEST)] = None,
    ) -> Response:
        """Notifications after a number, for polling: pass `next` as `after`."""
        if subscription is not None:
            await service.subscription(subscription, user=access.user)
        return await read_page(service.get_outbox_reader(access.user, subscription), after, limit)

    @routes.get("/notes/{number}", response_model=dict[str, Any])
    async def note(number: Number, access: ReadAccess) -> Response:
        """A notification with the tracks of its objects, for a replay on a map."""
        async with turns.acquire(access.user):
            replay = await service.replay(number, user=access.user)
        return encode_json({**replay, "at": format_epoch(replay["at"])})

    return routes


def format_epoch(at: Any) -> Any:
    """Formats seconds since 1970."""
    return format_time(at) if isinstance(at, int | float) else at


async def read_page(read: OutboxReader, after: int | None, limit: int) -> Response:
    """Answers with the notifications after a number, and whether some of them have expired."""
    start = 0 if after is None else after
    stored: OutboxPage = await read(start, limit)
    lost = after is not None and not stored.floor <= after <= stored.newest
    if start > stored.newest:  # the token belongs to another database: start from the oldest
        stored = await read(stored.floor, limit)
    full = len(stored.notifications) == limit
    next = stored.notifications[-1].number if full else stored.newest
    fields: dict[str, Any] = {"next": next, **({"resync": True} if lost else {})}
    return join_bodies(fields, "items", map(_add_number, stored.notifications))


def _add_number(notification: Notification) -> bytes:
    """Adds the number to the body, and the time to bodies of matches, which lack it."""
    body = notification.body[1:]
    if notification.kind == MATCH:
        body = b'"at":"%b",%b' % (format_time(notification.at).encode(), body)
    return b'{"number":%d,%b' % (notification.number, body)
