"""A page that lists the endpoints, from their description. It loads nothing from elsewhere."""

from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.responses import HTMLResponse, Response

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
    """Adds /api/docs and its style."""
    routes = APIRouter(include_in_schema=False)

    @routes.get("/api/docs")
    async def docs() -> Response:
        return HTMLResponse(page(app.openapi()))

    @routes.get("/api/docs.css")
    async def style() -> Response:
        return Response(_STYLE, media_type="text/css")

    return routes


def page(described: dict[str, Any]) -> str:
    """The endpoints by subject, as HTML."""
    by_subject: dict[str, list[str]] = {}
    for path, ways in described["paths"].items():
        for way, endpoint in ways.items():
            subject = (endpoint.get("tags") or ["other"])[0]
            by_subject.setdefault(subject, []).append(_endpoint(path, way, endpoint, described))
    listed = "".join(
        f"<section><h2>{escape(subject)}</h2>{''.join(found)}</section>"
        for subject, found in by_subject.items()
    )
    info = described["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(info['title'])}</title>"
        '<link rel="stylesheet" href="/api/docs.css"></head><body><main>'
        f"<h1>{escape(info['title'])}</h1>{_paragraphs(info.get('description', ''))}"
        '<p>All of it for programs: <a href="/api/v1/openapi.json">openapi.json</a></p>'
        f"{listed}</main></body></html>"
    )


def _endpoint(path: str, way: str, endpoint: dict[str, Any], described: dict[str, Any]) -> str:
    fields = [
        (one["name"], one.get("description", ""), one.get("in", ""))
        for one in endpoint.get("parameters", ())
    ]
    fields += [(name, says, "body") for name, says in _body(endpoint, described)]
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(where)}</td>"
        f"<td>{escape(says)}</td></tr>"
        for name, says, where in fields
    )
    table = f"<table>{rows}</table>" if rows else ""
    says = _paragraphs(endpoint.get("description", ""))
    return (
        f'<article><div><span class="way">{way.upper()}</span> <code>{escape(path)}</code></div>'
        f"{says}{table}</article>"
    )


def _body(endpoint: dict[str, Any], described: dict[str, Any]) -> list[tuple[str, str]]:
    content = endpoint.get("requestBody", {}).get("content", {})
    reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
    form = described.get("components", {}).get("schemas", {}).get(reference.rpartition("/")[2], {})
    return [
        (name, field.get("description", "")) for name, field in form.get("properties", {}).items()
    ]


def _paragraphs(text: str) -> str:
    parts = [part.strip() for part in text.split("\n\n") if part.strip()]
    return "".join(f"<p>{escape(part)}</p>" for part in parts)
