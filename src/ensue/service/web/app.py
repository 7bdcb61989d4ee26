"""The service as a FastAPI application."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from jinja2 import Environment
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from ensue.errors import EnsueError
from ensue.service.access import Accounts
from ensue.service.service import Service
from ensue.service.web.account_routes import account_routes, add_session_routes, user_routes
from ensue.service.web.event_routes import event_routes, notification_routes, object_routes
from ensue.service.web.guard import API, QuerySlots, RequestGuard
from ensue.service.web.health_routes import health_routes, probe_routes
from ensue.service.web.problem_details import PROBLEM_MEDIA, describe_problem
from ensue.service.web.region_routes import region_routes
from ensue.service.web.schemas import ProblemAnswer
from ensue.service.web.subscription_routes import subscription_routes, target_routes, template_routes, trial_routes

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem;
    color: #1b1f24; background: #fff; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #8886; }
article { margin: 1.5rem 0; }
code, .way { font-family: ui-monospace, monospace; }
.way { font-weight: 700; display: inline-block; min-width: 4.5rem; }
table { border-collapse: collapse; margin: .5rem 0 .5rem 4.5rem; }
td { padding: .1rem 1rem .1rem 0; vertical-align: top; }
p { margin: .25rem 0 0 4.5rem; }
@media (max-width: 40rem) { table, p { margin-left: 0; } }
@media (prefers-color-scheme: dark) { body { color: #e6e6e6; background: #15181c; }
    a { color: #8ab4f8; } }
"""


def reference_routes(app: FastAPI) -> APIRouter:
    """Adds the routes of the API reference, /api/docs."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/api/docs")
    async def docs() -> Response:
        return HTMLResponse(render_reference(app.openapi()))

    @routes.get("/api/docs.css")
    async def style() -> Response:
        return Response(_STYLE, media_type="text/css")

    return routes


_REFERENCE = Environment(autoescape=True, trim_blocks=True).from_string("""\
{% macro paragraphs(text) %}
{% for part in text.split("\n\n") if part.strip() %}<p>{{ part.strip() }}</p>{% endfor %}
{% endmacro %}
<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ info.title }}</title><link rel="stylesheet" href="/api/docs.css"></head><body><main>
<h1>{{ info.title }}</h1>{{ paragraphs(info.description) }}
<p>Machine-readable: <a href="/api/v1/openapi.json">openapi.json</a></p>
{% for tag, endpoints in by_tag.items() %}<section><h2>{{ tag }}</h2>
{% for method, path, endpoint, fields in endpoints %}
<article><div><span class="way">{{ method.upper() }}</span> <code>{{ path }}</code></div>
{{ paragraphs(endpoint.description or "") }}{% if fields %}<table>
{% for name, where, text in fields %}
<tr><td><code>{{ name }}</code></td><td>{{ where }}</td><td>{{ text }}</td></tr>
{% endfor %}</table>{% endif %}</article>
{% endfor %}</section>{% endfor %}
</main></body></html>""")


def render_reference(schema: dict[str, Any]) -> str:
    """Renders the endpoints by tag, as HTML."""
    by_tag: dict[str, list[tuple[Any, ...]]] = {}
    for path, methods in schema["paths"].items():
        for method, endpoint in methods.items():
            fields = [
                (field["name"], field.get("in", ""), field.get("description", ""))
                for field in endpoint.get("parameters", ())
            ]
            content = endpoint.get("requestBody", {}).get("content", {})
            reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
            model = schema["components"]["schemas"].get(reference.rpartition("/")[2], {})
            fields += [
                (name, "body", field.get("description", "")) for name, field in model.get("properties", {}).items()
            ]
            tag = (endpoint.get("tags") or ["other"])[0]
            by_tag.setdefault(tag, []).append((method, path, endpoint, fields))
    return _REFERENCE.render(info=schema["info"], by_tag=by_tag)


Console = Callable[[FastAPI, Service], None]  # adds the routes of the console

_DESCRIPTION = """
Publish events, subscribe to patterns in them, and receive notifications of matches.

Send a token as `Authorization: Bearer ens_...`. Its scopes are read, subscribe (and read),
publish, and admin (all of them). A service without any token accepts only local requests.

Errors are `application/problem+json`. Objects of other users are reported as not found.
"""


def make_app(service: Service, *, console: Console | None = None) -> FastAPI:
    accounts = Accounts(service.database, service.limits)
    accounts.revoked.append(service.listeners.revoke)
    service.listeners.standing = accounts.list_valid
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
    app.add_middleware(RequestGuard, accounts=accounts, limits=service.limits)
    for kind in (EnsueError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, _answer)
    turns = QuerySlots()
    for routes in (
        account_routes(service, accounts),
        subscription_routes(service, turns),
        target_routes(service),
        trial_routes(service, turns),
        template_routes(service),
        region_routes(service),
        event_routes(service),
        notification_routes(service, turns),
        object_routes(service, turns),
        health_routes(service),
        user_routes(service, accounts),
    ):
        app.include_router(routes, prefix=API.rstrip("/"))
    app.include_router(probe_routes(service))
    app.include_router(reference_routes(app))
    add_session_routes(app, accounts)
    _describe_problems(app)
    if console is not None:
        console(app, service)
    return app


async def _answer(_: Request, error: Exception) -> Response:
    return describe_problem(error).response()


_PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "The request was rejected, with the reason", "model": ProblemAnswer},
    422: {"description": "The request is invalid", "model": ProblemAnswer},
    503: {"description": "Temporarily unavailable", "model": ProblemAnswer},
}


def _describe_problems(app: FastAPI) -> None:
    """Describes the media type of errors, and how requests are authenticated."""
    generate = app.openapi

    def described() -> dict[str, Any]:
        schema = generate()
        for methods in schema["paths"].values():
            for endpoint in methods.values():
                for status, answer in endpoint["responses"].items():
                    content = answer.get("content", {})
                    if status[0] in "45" and "application/json" in content:
                        content[PROBLEM_MEDIA] = content.pop("application/json")
        schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]
        return schema

    app.openapi = described  # type: ignore[method-assign]
