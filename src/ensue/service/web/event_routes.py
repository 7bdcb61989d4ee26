"""Events over HTTP: publishing, bad events, and producer positions."""

from collections.abc import Iterator
from contextlib import contextmanager
from sqlite3 import Connection
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request

from ensue.errors import EventError
from ensue.service.access import ADMIN, Principal
from ensue.service.errors import OverLimitError
from ensue.service.event_columns import format_time
from ensue.service.intake import ARROW, JSON, JSON_LINES, MEDIA
from ensue.service.service import Service
from ensue.service.store import journal
from ensue.service.web.guard import PublishAccess, ReadAccess
from ensue.service.web.responses import AuditPage, ListAnswer, PublishedAnswer
from ensue.service.web.sse import Page

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

    @routes.post("/events", response_model=PublishedAnswer, openapi_extra=_DESCRIBED)
    async def publish(
        request: Request,
        access: PublishAccess,
        producer: Annotated[
            str | None, Header(max_length=200, description="the producer that numbers these events")
        ] = None,
        sequence: Annotated[
            int | None, Header(ge=0, lt=1 << 62, description="number of the first event; the next ones follow")
        ] = None,
    ) -> dict[str, int]:
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
        return result.as_dict()

    @routes.get("/events/bad", response_model=AuditPage)
    async def bad(
        access: ReadAccess,
        limit: Page = 100,
        before: Annotated[int, Query(ge=0, description="only entries before this one")] = (1 << 62),
    ) -> dict[str, Any]:
        """Lists rejected events, newest first, with the reason of each.

        An administrator sees those of all users.
        """
        user = None if access.may(ADMIN) else access.user
        rows = await service.look(lambda db: journal.list_bad_events(db, user=user, before=before, most=limit))
        items = [{**row, "at": format_time(row["at"])} for row in rows]
        return {"items": items, "next": items[-1]["id"] if len(items) == limit else None}

    @routes.get("/positions", response_model=ListAnswer)
    async def list_positions(access: ReadAccess) -> dict[str, Any]:
        """Lists the next expected sequence number of each of one's producers."""
        return {"items": await service.look(lambda db: _positions(db, access))}

    return routes


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
