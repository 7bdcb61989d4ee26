"""Objects of the stream over HTTP: where they are, and where they were."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from ensue.service.service import Service
from ensue.service.web.bodies import json_answer
from ensue.service.web.notes import After
from ensue.service.web.permission import Reader
from ensue.service.web.turns import Turns

_MOST = 200_000
_POINTS = 10_000


def object_routes(service: Service, turns: Turns) -> APIRouter:
    """Adds /objects."""
    routes = APIRouter(prefix="/objects", tags=["objects"])

    @routes.get("", response_model=dict[str, Any])
    async def objects(
        _: Reader, after: After = 0, limit: Annotated[int, Query(ge=1, le=_MOST)] = 20_000
    ) -> Response:
        """Where each object was seen last: those that moved since `after`, newest first."""
        return await asyncio.to_thread(_shown, service, after, limit)

    @routes.get("/{id}/track", response_model=dict[str, Any])
    async def track(
        id: str,
        access: Reader,
        since: Annotated[str | None, Query(description="a time of the stream")] = None,
        until: str | None = None,
        limit: Annotated[int, Query(ge=1, le=_POINTS)] = 2_000,
    ) -> Response:
        """Where an object was: [time, x, y] in order of time, the newest if there are more."""
        async with turns.one(access.user):
            points = await service.track(id, since=since, until=until, limit=limit)
        return json_answer({"points": points})

    return routes


def _shown(service: Service, after: int, limit: int) -> Response:
    found, at = service.objects(after, limit)
    type = service.stream.type
    items = [
        {
            "id": one["id"], "x": one["x"], "y": one["y"], "t": one["t"],
            "type": one["fields"].get(type) if type is not None else None,
            "fields": one["fields"],
        }
        for one in found
    ]  # fmt: skip
    return json_answer({"items": items, "at": at})
