"""Server-rendered pages of the console."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from ensue.console import view_models
from ensue.errors import EnsueError, ServiceError
from ensue.service.access import Principal
from ensue.service.errors import NotAllowedError, NotFoundError
from ensue.service.service import Service
from ensue.service.store.journal import read_counters
from ensue.service.store.user_store import ADMIN, READ, SUBSCRIBE
from ensue.service.web.account_routes import (
    describe_stream,
    get_csrf_token,
    read_audit_page,
    require_session,
    sanitize_path,
)
from ensue.service.web.event_routes import list_bad_events
from ensue.service.web.guard import ACCESS, SIGN_IN
from ensue.service.web.subscription_routes import list_templates

URL = "/background"
_KINDS = {".png", ".jpg", ".jpeg", ".webp", ".gif"}  # no SVG: it may hold scripts


@dataclass(frozen=True, slots=True)
class Background:
    """An image file, and the area that it covers."""

    picture: Path
    west: float
    south: float
    east: float
    north: float

    @classmethod
    def parse(cls, text: str) -> "Background":
        """Parse the command-line option: FILE,west,south,east,north."""
        *file, west, south, east, north = ["", *text.rsplit(",", 4)]
        try:
            bounds = [float(bound) for bound in (west, south, east, north)]
        except ValueError:
            bounds = []
        if len(bounds) != 4 or not file[1:] or bounds[0] >= bounds[2] or bounds[1] >= bounds[3]:
            raise ServiceError(
                f"the background {text!r} is not FILE,WEST,SOUTH,EAST,NORTH\n  hint: as in plan.png,0,0,120,80"
            )
        return cls(Path(file[1]), *bounds)

    def __post_init__(self) -> None:
        if self.picture.suffix.lower() not in _KINDS or not self.picture.is_file():
            raise ServiceError(
                f"{self.picture} is not a supported image\n  hint: supported are {', '.join(sorted(_KINDS))}"
            )

    def as_dict(self) -> dict[str, Any]:
        """Return the URL and bounds for the map."""
        return {"url": URL, "bounds": [self.west, self.south, self.east, self.north]}


STATIC = Path(__file__).parent / "static"
PAGE_ROWS = 100  # rows of a list
MAX_BAD_EVENTS = 50
FAST_REFRESH = 2_000  # refresh interval of live parts of a page, in milliseconds
SLOW_REFRESH = 5_000

Viewer = Annotated[Principal, Depends(require_session)]
_STATES = ("active", "paused", "ended")
# Without a referrer browsers send forms, such as the sign-in form, with a null origin.
_HEADERS = {"referrer-policy": "same-origin"}
LINKS = (
    ("/", "Map"),
    ("/subscriptions", "Subscriptions"),
    ("/regions", "Regions"),
    ("/status", "Health"),
    ("/audit", "Audit"),
)


class Pages:
    """Renders pages from templates, with their common values."""

    def __init__(self, service: Service, background: Background | None) -> None:
        self.service = service
        self.background = background
        self._templates = Environment(
            loader=PackageLoader("ensue.console"),
            autoescape=select_autoescape(default=True),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )

    def page(self, request: Request, name: str, here: str = "", *, status: int = 200, **values: Any) -> Response:
        access = request.scope.get(ACCESS)
        common = {
            "access": access,
            "csrf": get_csrf_token(request),
            "links": LINKS if isinstance(access, Principal) else (),
            "here": here,
            "fresh": None,
        }
        text = self._templates.get_template(name).render({**common, **values})
        return HTMLResponse(text, status, headers=_HEADERS)

    def render_error(self, request: Request, error: EnsueError) -> Response:
        missing, forbidden = isinstance(error, NotFoundError), isinstance(error, NotAllowedError)
        status = 404 if missing else 403 if forbidden else 400
        title = {404: "Not found", 403: "Not allowed"}.get(status, "Invalid request")
        detail, _, hint = str(error).partition("\n  hint: ")
        return self.page(request, "refused.html", status=status, title=title, detail=detail, hint=hint)


class RevalidatedFiles(StaticFiles):
    """Serves scripts, styles and images, which browsers revalidate on each use."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["cache-control"] = "no-cache"
        return response


def _build_route(pages: Pages) -> type[APIRoute]:
    """Build a route class that reports errors as pages instead of JSON."""

    class PageRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def shown_or_refused(request: Request) -> Response:
                try:
                    return await handle(request)
                except EnsueError as error:
                    return pages.render_error(request, error)

            return shown_or_refused

    return PageRoute


def add_pages(app: FastAPI, service: Service, *, background: Background | None = None) -> None:
    """Add the console to the application of a service."""
    pages = Pages(service, background)
    routes = APIRouter(include_in_schema=False, route_class=_build_route(pages))
    app.mount("/static", RevalidatedFiles(directory=STATIC), name="static")
    for add in (_add_sign_in, _add_map, _add_subscriptions, _add_forms, _add_rest):
        add(routes, pages)
    app.include_router(routes)


def _add_sign_in(routes: APIRouter, pages: Pages) -> None:
    @routes.get(SIGN_IN)
    async def sign_in(request: Request, next: str = "/", refused: str = "") -> Response:
        if isinstance(request.scope.get(ACCESS), Principal):
            return RedirectResponse(sanitize_path(next), 303)
        return pages.page(request, "sign_in.html", next=sanitize_path(next), refused=bool(refused))


def _add_map(routes: APIRouter, pages: Pages) -> None:
    service, background = pages.service, pages.background

    @routes.get("/")
    async def start(request: Request, access: Viewer) -> Response:
        access.require(READ)
        recent = await service.look(lambda db: view_models.get_recent_notifications(db, access.user))
        return pages.page(
            request, "map.html", "Map", stream=describe_stream(service),
            background=background and background.as_dict(), recent=recent,
        )  # fmt: skip

    if background is not None:
        file = background.picture

        @routes.get(URL)
        async def picture_of_plane(access: Viewer) -> Response:
            access.require(READ)
            return FileResponse(file, headers={"cache-control": "no-cache"})


def _add_subscriptions(routes: APIRouter, pages: Pages) -> None:
    service = pages.service

    @routes.get("/subscriptions")
    async def subscriptions(request: Request, access: Viewer, state: str = "", after: int = 0) -> Response:
        access.require(READ)
        wanted = state if state in _STATES else ""
        found = await service.subscriptions(state=wanted or None, after=after, limit=PAGE_ROWS, user=access.user)
        return pages.page(
            request, "subscriptions.html", "Subscriptions", wanted=wanted, fresh=SLOW_REFRESH,
            rows=await service.look(lambda db: view_models.subscription_rows(db, found)),
            next=found[-1].id if len(found) == PAGE_ROWS else None,
        )  # fmt: skip

    @routes.get("/subscriptions/{id:int}")
    async def subscription(request: Request, id: int, access: Viewer) -> Response:
        access.require(READ)
        found = await service.subscription(id, user=access.user)
        counters = await service.look(lambda db: read_counters(db, id))
        targets = await service.look(lambda db: view_models.target_rows(db, access.user, id))
        return pages.page(
            request, "subscription.html", "Subscriptions", fresh=SLOW_REFRESH,
            found={**view_models.describe_subscription(found), "targets": targets},
            matches=counters.get("matches", 0),
            counters=view_models.counter_rows(counters),
            quiet=_quiet(service, found.quiet),
            explained=await service.explain(id, user=access.user),
            stream=describe_stream(service),
            recent=await service.look(lambda db: view_models.get_recent_notifications(db, access.user, id)),
        )  # fmt: skip


def _add_forms(routes: APIRouter, pages: Pages) -> None:
    service, background = pages.service, pages.background

    def form(request: Request, found: dict[str, Any] | None) -> Response:
        return pages.page(
            request, "form.html", "Subscriptions", found=found, known=found,
            stream=describe_stream(service), background=background and background.as_dict(),
            calendar=service.columns.calendar, templates=list_templates(service),
            since=view_models.list_since_choices(service),
        )  # fmt: skip

    @routes.get("/subscriptions/new")
    async def new(request: Request, access: Viewer) -> Response:
        access.require(SUBSCRIBE)
        return form(request, None)

    @routes.get("/subscriptions/{id:int}/edit")
    async def edit(request: Request, id: int, access: Viewer) -> Response:
        access.require(SUBSCRIBE)
        return form(request, view_models.describe_subscription(await service.subscription(id, user=access.user)))


def _add_rest(routes: APIRouter, pages: Pages) -> None:
    service = pages.service

    @routes.get("/regions")
    async def regions(request: Request, access: Viewer) -> Response:
        access.require(READ)
        known = await service.regions(user=access.user)
        shared = service.core.catalog.shared_regions
        own = {name: text for name, text in known.items() if shared.get(name) != text}
        found = await service.subscriptions(user=access.user)
        return pages.page(
            request, "regions.html", "Regions", rows=view_models.region_rows(own, shared, found),
            located=service.stream.location is not None,
        )  # fmt: skip

    @routes.get("/status")
    async def health(request: Request, access: Viewer) -> Response:
        access.require(READ)
        admin = access.may(ADMIN)
        user = None if admin else access.user
        found = await view_models.get_health(service, access)
        return pages.page(
            request, "health.html", "Health", fresh=FAST_REFRESH,
            health=found,
            figures=view_models.group_figures(found),
            targets=await service.look(partial(view_models.target_rows, user=user, troubled=True)),
            bad=await service.look(lambda db: list_bad_events(db, access, 1 << 62, MAX_BAD_EVENTS)),
            explained=await service.explain() if admin else None,
        )  # fmt: skip

    @routes.get("/audit")
    async def audit(request: Request, access: Viewer, before: int | None = None) -> Response:
        access.require(READ)
        page = await service.look(lambda db: read_audit_page(db, access, before, PAGE_ROWS))
        return pages.page(request, "audit.html", "Audit", **page)


def _quiet(service: Service, quiet: float | None) -> str | None:
    if not quiet:
        return None
    return view_models.format_length(quiet) if service.columns.calendar else f"{quiet:g} units of time"
