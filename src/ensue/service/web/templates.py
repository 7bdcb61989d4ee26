"""Templates over HTTP: kinds of subscriptions that are filled in instead of written."""

from contextlib import suppress
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from ensue.errors import QueryError
from ensue.service.service import Service
from ensue.service.templates import TEMPLATES
from ensue.service.templating import filled, stream_of
from ensue.service.web.answers import FilledAnswer, Items
from ensue.service.web.forms import ValuesForm
from ensue.service.web.permission import Reader


def template_routes(service: Service) -> APIRouter:
    """Adds /templates."""
    routes = APIRouter(prefix="/templates", tags=["before subscribing"])

    @routes.get("", response_model=Items)
    async def templates(_: Reader) -> dict[str, Any]:
        """The templates that fit the stream, with their parameters, units and defaults."""
        stream = stream_of(service.columns)
        fitting = []
        for template in TEMPLATES.values():
            with suppress(QueryError):  # it asks for places or objects that the stream has not
                fitting.append(asdict(template.on(stream)))
        return {"items": fitting}

    @routes.post("/{name}", response_model=FilledAnswer)
    async def template(name: str, form: ValuesForm, _: Reader) -> dict[str, Any]:
        """The text that a template stands for with these values. It can be edited."""
        found = filled(name, form.values, service.columns)
        return {"text": found.text, "quiet": found.quiet, "title": found.title}

    return routes
