"""Events over HTTP: taken in, put aside, and how far each producer has come."""

from sqlite3 import Connection
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request

from ensue.errors import EventError
from ensue.service.access import ADMIN, Access
from ensue.service.columns import iso
from ensue.service.intake import ARROW, JSON, JSON_LINES, MEDIA
from ensue.service.refusals import OverLimitError
from ensue.service.service import Service
from ensue.service.store import bad_events, positions
from ensue.service.web.answers import AuditPage, Items, PublishedAnswer
from ensue.service.web.notes import Page
from ensue.service.web.permission import Publisher, Reader

_BODIES = 32  # of the greatest size, that may wait at a time
_EXAMPLE = '{"ts": "2026-01-31T10:00:00Z", "id": 17, "x": 4.0, "y": 5.0}\n'
_DESCRIBED = {
    "requestBody": {
        "required": True,
        "description": "Events: lines of JSON objects, a JSON array or object, or Arrow. "
        "They may be compressed: `Content-Encoding: gzip`. The limit of a body holds before and "
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

    @routes.post("/events", response_model=PublishedAnswer, openapi_extra=_DESCRIBED)
    async def publish(
        request: Request,
        access: Publisher,
        producer: Annotated[
            str | None, Header(max_length=200, description="who numbers these events")
        ] = None,
        sequence: Annotated[
            int | None,
            Header(ge=0, lt=1 << 62, description="the number of the first; they grow by one"),
        ] = None,
    ) -> dict[str, int]:
        """Takes events. When it answers, they and what they completed are on disk.

        With a producer and a sequence, events that had come before are dropped: a request whose
        answer was lost may be sent again.
        """
        limits = access.limits(service.limits)
        length = request.headers.get("content-length", "")
        size = int(length) if length.isdecimal() else limits.body_bytes
        with waiting.of(size):
            body = await request.body()
            media = request.headers.get("content-type", JSON_LINES)
            kind = media.partition(";")[0].strip().lower()
            if kind not in MEDIA:
                raise EventError(
                    f"events cannot be read as {kind[:100]}\n  hint: one of {', '.join(MEDIA)}"
                )
            try:
                done = await service.publish(
                    body, media=kind, producer=producer, sequence=sequence, user=access.user,
                    limits=limits,
                )  # fmt: skip
            except EventError as error:  # as a whole: who publishes may see nothing else
                await service.put_aside(body, str(error), producer=producer, user=access.user)
                raise
        return done.as_dict()

    @routes.get("/events/bad", response_model=AuditPage)
    async def bad(
        access: Reader,
        limit: Page = 100,
        before: Annotated[int, Query(ge=0, description="older than this one")] = (1 << 62),
    ) -> dict[str, Any]:
        """Events that were put aside, the newest first, with what is wrong with each.

        An administrator sees those of all users, with whose they are.
        """
        user = None if access.may(ADMIN) else access.user
        rows = await service.look(
            lambda db: bad_events.newest(db, user=user, before=before, most=limit)
        )
        items = [{**row, "at": iso(row["at"])} for row in rows]
        return {"items": items, "next": items[-1]["id"] if len(items) == limit else None}

    @routes.get("/positions", response_model=Items)
    async def found(access: Reader) -> dict[str, Any]:
        """The number that is expected next from each producer of whoever asks."""
        return {"items": await service.look(lambda db: _positions(db, access))}

    return routes


class _Waiting:
    """Requests with events that wait to be matched: so many, and so many bytes, and no more."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._count = self._bytes = 0

    def of(self, size: int) -> "_Place":
        """A place for a request, while it waits."""
        if self._count >= self._most or (self._count and self._bytes + size > self._most_bytes):
            raise OverLimitError(
                "waiting",
                f"{self._count:,} requests with events wait already\n  hint: send it again later",
            )
        return _Place(self, size)

    def change(self, count: int, size: int) -> None:
        self._count += count
        self._bytes += size


class _Place:
    def __init__(self, waiting: _Waiting, size: int) -> None:
        self._waiting, self._size = waiting, size

    def __enter__(self) -> None:
        self._waiting.change(1, self._size)

    def __exit__(self, *_: object) -> None:
        self._waiting.change(-1, -self._size)


def _positions(db: Connection, access: Access) -> list[dict[str, Any]]:
    return [
        {"producer": one["producer"], "next": one["next"], "at": iso(one["at"])}
        for one in positions.positions_of(db, access.user)
    ]
