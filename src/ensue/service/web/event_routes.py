"""Events, notifications and objects over HTTP; notifications as server-sent events, and as pages."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from sqlite3 import Connection
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from ensue.errors import EventError
from ensue.service.access import Principal
from ensue.service.core import PublishResult
from ensue.service.errors import OverLimitError
from ensue.service.event_columns import format_time
from ensue.service.intake import ARROW, JSON, JSON_LINES, MEDIA
from ensue.service.service import Service
from ensue.service.sse_hub import DisconnectedError, NotificationListener, OutboxReader, SseHub
from ensue.service.store import journal
from ensue.service.store.outbox import MATCH, Notification, OutboxPage
from ensue.service.store.user_store import ADMIN
from ensue.service.web import schemas
from ensue.service.web.guard import PublishAccess, QuerySlots, ReadAccess
from ensue.service.web.schemas import After, Number, Page

_BODIES = 32  # of maximum size that may wait
_EXAMPLE = '{"ts": "2026-01-31T10:00:00Z", "id": 17, "x": 4.0, "y": 5.0}\n'
_DESCRIBED = {
    "requestBody": {
        "required": True,
        "description": "Events as JSON lines, a JSON array or object, or an Arrow stream. "
        "They may be compressed with `Content-Encoding: gzip`. The size limit applies before and "
        "after decompression.",
        "content": {
            JSON_LINES: {"schema": {"type": "string"}, "example": _EXAMPLE},
            JSON: {"schema": {"type": "array", "items": {"type": "object"}}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


def event_routes(service: Service) -> APIRouter:
    """Adds /events and /positions."""
    routes = APIRouter(tags=["events"])
    waiting = _Waiting(service.limits.waiting, service.limits.body_bytes * _BODIES)

    @routes.post("/events", response_model=PublishResult, openapi_extra=_DESCRIBED)
    async def publish(
        request: Request,
        access: PublishAccess,
        producer: Annotated[
            str | None, Header(max_length=200, description="the producer that numbers these events")
        ] = None,
        sequence: Annotated[
            int | None, Header(ge=0, lt=1 << 62, description="number of the first event; the next ones follow")
        ] = None,
    ) -> PublishResult:
        """Publishes events; the answer means that the events and their matches are committed.

        With a producer and a sequence, repeated events are dropped: a request whose answer was
        lost can be sent again.
        """
        limits = access.limits(service.limits)
        length = request.headers.get("content-length", "")
        size = int(length) if length.isdecimal() else limits.body_bytes
        with waiting.reserve(size):
            body = await request.body()
            media = request.headers.get("content-type", JSON_LINES)
            kind = media.partition(";")[0].strip().lower()
            if kind not in MEDIA:
                raise EventError(f"events cannot be read as {kind[:100]}\n  hint: one of {', '.join(MEDIA)}")
            try:
                result = await service.publish(
                    body, media=kind, producer=producer, sequence=sequence, user=access.user,
                    limits=limits,
                )  # fmt: skip
            except EventError as error:  # the whole body; publishers may not read bad events
                await service.put_aside(body, str(error), producer=producer, user=access.user)
                raise
        return result

    @routes.get("/events/bad", response_model=schemas.ItemPage[dict[str, Any]])
    async def bad(
        access: ReadAccess,
        limit: Page = 100,
        before: Annotated[int, Query(ge=0, description="only entries before this one")] = (1 << 62),
    ) -> dict[str, Any]:
        """Lists rejected events, newest first, with the reason of each.

        An administrator sees those of all users.
        """
        items = await service.look(lambda db: list_bad_events(db, access, before, limit))
        return {"items": items, "next": items[-1]["id"] if len(items) == limit else None}

    @routes.get("/positions", response_model=schemas.ListAnswer)
    async def list_positions(access: ReadAccess) -> dict[str, Any]:
        """Lists the next expected sequence number of each of one's producers."""
        return {"items": await service.look(lambda db: _positions(db, access))}

    return routes


def list_bad_events(db: Connection, access: Principal, before: int, limit: int) -> list[dict[str, Any]]:
    """Lists the rejected events of a user, or those of all for an administrator."""
    user = None if access.may(ADMIN) else access.user
    rows = journal.list_bad_events(db, user, before, limit)
    return [{**row, "at": format_time(row["at"])} for row in rows]


class _Waiting:
    """Limits the number and size of publish requests that wait to be matched."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._count = self._bytes = 0

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Counts a request while it waits."""
        if self._count >= self._most or (self._count and self._bytes + size > self._most_bytes):
            raise OverLimitError(
                "waiting", f"{self._count:,} publish requests are already waiting\n  hint: try again later"
            )
        self._count += 1
        self._bytes += size
        try:
            yield
        finally:
            self._count -= 1
            self._bytes -= size


def _positions(db: Connection, access: Principal) -> list[dict[str, Any]]:
    return [
        {"producer": each["producer"], "next": each["next"], "at": format_time(each["at"])}
        for each in journal.list_producers(db, access.user)
    ]


_NUMBER: dict[str, Any] = {"ge": 0, "lt": schemas.GREATEST}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Frames, until the client disconnects or the service stops",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
TRANSPORT = "ensue.transport"  # key of the transport in the scope
_JOINED = 200  # frames in one write
_RETRY = (1_000, 5_000)  # milliseconds, random so that clients do not reconnect together
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # proxies must not buffer frames
]


class NotificationStream(StreamingResponse):
    """The response that sends notifications as they come; frames are joined into few writes."""

    def __init__(self, hub: SseHub, listener: NotificationListener) -> None:
        super().__init__(())
        self.raw_headers = list(_HEADERS)
        self._hub, self._listener = hub, listener

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._listener.abort = getattr(scope.get(TRANSPORT), "abort", None)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hub.leave(self._listener)

    async def stream_response(self, send: Send) -> None:
        """Sends frames until the hub disconnects the listener; a disconnect of the client cancels it."""
        listener, loop = self._listener, asyncio.get_running_loop()

        async def write(body: bytes, *, more: bool = True) -> None:
            listener.written = loop.time()
            listener.writing = True
            await send({"type": "http.response.body", "body": body, "more_body": more})
            listener.writing = False

        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
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
            await write(b": %b\n\n" % cut.why.value.encode(), more=False)


def notification_routes(service: Service, turns: QuerySlots) -> APIRouter:
    """Adds /notifications, for polling, and /notes."""
    routes = APIRouter(tags=["notifications"])

    @routes.head("/notifications/stream", include_in_schema=False)
    async def head(_: ReadAccess) -> Response:
        return Response(headers={name.decode(): value.decode() for name, value in _HEADERS})

    @routes.get("/notifications/stream", status_code=200, response_class=NotificationStream, responses=_STREAM)
    async def stream(
        access: ReadAccess,
        after: Annotated[int | None, Query(description="by default only new notifications", **_NUMBER)] = None,
        subscription: Annotated[int | None, Query(**_NUMBER)] = None,
        last_event_id: Annotated[int | None, Header(description="as `after`", **_NUMBER)] = None,
    ) -> Response:
        """Notifications as server-sent events (match, started, ended, resync): first those after
        `after`, then new ones.

        The id of each is the token for resuming, which a browser sends automatically when it
        reconnects. An event `resync` says that notifications after the token have expired. A client
        that is too slow is disconnected, and can reconnect with its token.
        """
        if subscription is not None:
            await service.subscription(subscription, user=access.user)
        listener = service.listeners.listen(
            service.get_outbox_reader(access.user, subscription),
            after if last_event_id is None else last_event_id,
            user=access.user,
            subscription=subscription,
            credential=access.credential,
            remote=access.limits(service.limits),
        )
        return NotificationStream(service.listeners, listener)

    @routes.get("/notifications", response_model=schemas.NotificationPage)
    async def notifications(
        access: ReadAccess,
        after: Annotated[int | None, Query(ge=0, lt=schemas.GREATEST, description="by default from the oldest")] = None,
        limit: Page = 100,
        subscription: Annotated[int | None, Query(ge=0, lt=schemas.GREATEST)] = None,
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
        return schemas.encode_json({**replay, "at": schemas.format_epoch(replay["at"])})

    return routes


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
    return schemas.join_bodies(fields, "items", map(_add_number, stored.notifications))


def _add_number(notification: Notification) -> bytes:
    """Adds the number to the body, and the time to bodies of matches, which lack it."""
    body = notification.body[1:]
    if notification.kind == MATCH:
        body = b'"at":"%b",%b' % (format_time(notification.at).encode(), body)
    return b'{"number":%d,%b' % (notification.number, body)


_MOST = 200_000


_POINTS = 10_000


def object_routes(service: Service, turns: QuerySlots) -> APIRouter:
    """Adds /objects."""
    routes = APIRouter(prefix="/objects", tags=["objects"])

    @routes.get("", response_model=dict[str, Any])
    async def objects(
        _: ReadAccess, after: After = 0, limit: Annotated[int, Query(ge=1, le=_MOST)] = 20_000
    ) -> Response:
        """Lists the last positions of objects that moved since `after`, newest first."""
        return await asyncio.to_thread(_encode_objects, service, after, limit)

    @routes.get("/{id}/track", response_model=dict[str, Any])
    async def track(
        id: str,
        access: ReadAccess,
        since: Annotated[str | None, Query(description="an event time")] = None,
        until: str | None = None,
        limit: Annotated[int, Query(ge=1, le=_POINTS)] = 2_000,
    ) -> Response:
        """Returns the newest positions of an object as [time, x, y], ordered by time."""
        async with turns.acquire(access.user):
            points = await service.track(id, since=since, until=until, limit=limit)
        return schemas.encode_json({"points": points})

    return routes


def _encode_objects(service: Service, after: int, limit: int) -> Response:
    objects, at = service.objects(after, limit)
    type = service.stream.type
    items = [
        {
            "id": each["id"], "x": each["x"], "y": each["y"], "t": each["t"],
                "type": each["fields"].get(type) if type is not None else None,
                "fields": each["fields"],
        }
        for each in objects
    ]  # fmt: skip
    return schemas.encode_json({"items": items, "at": at})
