"""Templates and objects over HTTP."""

import asyncio
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from ensue.errors import QueryError
from ensue.service.service import Service
from ensue.service.templates import TEMPLATES, fill_template
from ensue.service.web.guard import QuerySlots, ReadAccess
from ensue.service.web.request_bodies import ValuesForm
from ensue.service.web.responses import FilledAnswer, ListAnswer, encode_json
from ensue.service.web.sse import After


def template_routes(service: Service) -> APIRouter:
    """Adds /templates."""
    routes = APIRouter(prefix="/templates", tags=["before subscribing"])

    @routes.get("", response_model=ListAnswer)
    async def templates(_: ReadAccess) -> dict[str, Any]:
        """Lists the templates that fit the stream, with parameters, units and defaults."""
        return {"items": list_templates(service)}

    @routes.post("/{name}", response_model=FilledAnswer)
    async def template(name: str, form: ValuesForm, _: ReadAccess) -> dict[str, Any]:
        """Fills in a template; the resulting text can be edited."""
        result = fill_template(name, form.values, service.columns.template_stream)
        return {"text": result.text, "quiet": result.quiet, "title": result.title}

    return routes


def list_templates(service: Service) -> list[dict[str, Any]]:
    """Lists the templates that fit the stream, with its units of time and space."""
    stream = service.columns.template_stream
    fitting = []
    for template in TEMPLATES.values():
        with suppress(QueryError):  # it needs locations or objects that the stream lacks
            fitting.append(asdict(template.on(stream)))
    return fitting


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
        return encode_json({"points": points})

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
    return encode_json({"items": items, "at": at})
