"""The service as a FastAPI application."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from ensue.errors import EnsueError
from ensue.service.access import Accounts
from ensue.service.listening import Read
from ensue.service.service import Service
from ensue.service.web.account import account_routes
from ensue.service.web.answers import ProblemAnswer
from ensue.service.web.events import event_routes
from ensue.service.web.guard import API, Guard
from ensue.service.web.health import health_routes, probe_routes
from ensue.service.web.notes import note_routes
from ensue.service.web.objects import object_routes
from ensue.service.web.problems import MEDIA, problem_of
from ensue.service.web.reference import reference_routes
from ensue.service.web.regions import region_routes
from ensue.service.web.sessions import add_sessions
from ensue.service.web.sse import NotificationStream
from ensue.service.web.subscriptions import subscription_routes
from ensue.service.web.targets import target_routes
from ensue.service.web.templates import template_routes
from ensue.service.web.trials import trial_routes
from ensue.service.web.turns import Turns
from ensue.service.web.users import user_routes

STREAM = f"{API}notifications/stream"
Console = Callable[[FastAPI, Service], None]  # adds the routes of its pages

_DESCRIPTION = """
Events come in, subscriptions say what to look for in them, notifications go out.

Send a token as `Authorization: Bearer ens_...`. Its scopes are read, subscribe (and read),
publish, and admin (all of them). A service without any token answers its own machine only.

Errors are `application/problem+json`. What belongs to somebody else is not found.
"""


def make_app(service: Service, *, console: Console | None = None) -> FastAPI:
    """The application of a service that runs."""
    accounts = Accounts(service.database, service.limits)
    accounts.revoked.append(service.listeners.revoke)
    service.listeners.standing = accounts.standing
    app = FastAPI(
        title="Ensue",
        summary="Subscriptions over streams of events",
        description=_DESCRIPTION,
        version="1",
        openapi_url=f"{API}openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        responses=_PROBLEMS,
    )
    app.state.service, app.state.accounts = service, accounts
    app.add_middleware(Guard, accounts=accounts, limits=service.limits)
    for kind in (EnsueError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _answer)
    turns = Turns()
    for routes in (
        account_routes(service, accounts),
        subscription_routes(service, turns),
        target_routes(service),
        trial_routes(service, turns),
        template_routes(service),
        region_routes(service),
        event_routes(service),
        note_routes(service, turns),
        object_routes(service, turns),
        health_routes(service),
        user_routes(accounts),
    ):
        app.include_router(routes, prefix=API.rstrip("/"))
    app.include_router(probe_routes(service))
    app.include_router(reference_routes(app))
    app.router.routes.append(Route(STREAM, _stream(service), methods=["GET"]))
    add_sessions(app, accounts)
    _describe_stream(app)
    if console is not None:
        console(app, service)
    return app


async def _answer(_: Request, error: Exception) -> Response:
    return problem_of(error).response()


def _stream(service: Service) -> NotificationStream:
    async def reading(user: int, subscription: int | None) -> Read:
        if subscription is not None:
            await service.subscription(subscription, user=user)
        found: Read = service.reading(user, subscription)
        return found

    return NotificationStream(service.listeners, reading, service.limits)


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "Not done: why, and what may help", "model": ProblemAnswer},
    422: {"description": "Not understood, or wrong in itself", "model": ProblemAnswer},
    503: {"description": "Not at the moment", "model": ProblemAnswer},
}

_STREAM = {
    "get": {
        "tags": ["notifications"],
        "summary": "Stream",
        "description": "Notifications as server-sent events (match, started, ended, resync), "
        "first those behind `after`, then those that come. The id of each is the token to go on "
        "from; a browser sends it by itself when it comes back. One `resync` says that notes "
        "behind the token are gone. A client that is too slow is cut, and comes back.",
        "operationId": "stream_notifications",
        "parameters": [
            {
                "name": name,
                "in": where,
                "required": False,
                "description": says,
                "schema": {"type": "integer"},
            }
            for name, where, says in (
                ("after", "query", "what comes behind this number; none: from now on"),
                ("subscription", "query", "of one subscription only"),
                ("Last-Event-ID", "header", "as `after`"),
            )
        ],
        "responses": {
            "200": {
                "description": "Frames, until the client goes or the service stops",
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
            },
            "4XX": {
                "description": "Not done: why, and what may help",
                "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/ProblemAnswer"}}},
            },
        },
    }
}


def _describe_stream(app: FastAPI) -> None:
    """Describes what is no endpoint of FastAPI's, and problems as what they are."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        found = plain()
        if STREAM not in found["paths"]:
            found["paths"][STREAM] = _STREAM
            for ways in found["paths"].values():
                for endpoint in ways.values():
                    _as_problems(endpoint["responses"])
            found["components"]["securitySchemes"] = {
                "token": {"type": "http", "scheme": "bearer"}
            }
            found["security"] = [{"token": []}]
        return found

    app.openapi = described  # type: ignore[method-assign]


def _as_problems(responses: dict[str, Any]) -> None:
    for status, answer in responses.items():
        content = answer.get("content", {})
        if status[0] in "45" and "application/json" in content:
            content[MEDIA] = content.pop("application/json")
