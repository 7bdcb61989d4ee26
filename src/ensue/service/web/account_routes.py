"""Accounts over HTTP: the current user, users, tokens, the audit log, console sessions."""

import hmac
import json
import time
from dataclasses import asdict
from sqlite3 import Connection, Row
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, FastAPI, Query, Request
from starlette.responses import RedirectResponse, Response

from ensue.service.access import Accounts, Principal
from ensue.service.errors import NotAllowedError, UnauthenticatedError
from ensue.service.event_columns import format_time
from ensue.service.service import Service
from ensue.service.settings import StreamDescription
from ensue.service.store import journal, user_store
from ensue.service.store.subscription_store import get_usage
from ensue.service.store.user_store import ADMIN, QUOTAS
from ensue.service.web import schemas
from ensue.service.web.guard import (
    ACCESS,
    COOKIE,
    SIGN_IN,
    SIGN_OUT,
    AdminAccess,
    ReadAccess,
    get_principal,
    get_session_cookie,
)
from ensue.service.web.schemas import Id, Page


def account_routes(service: Service, accounts: Accounts) -> APIRouter:
    """Adds /me and /stream."""
    routes = APIRouter(tags=["account"])

    @routes.get("/me", response_model=schemas.MeAnswer)
    async def me(request: Request) -> dict[str, Any]:
        """Returns the authenticated user: scopes, quotas, and usage."""
        access = get_principal(request)
        limits = access.limits(service.limits)
        count, corners = await service.look(lambda db: get_usage(db, access.user))
        return {
            "id": access.user,
            "user": access.name,
            "scopes": sorted(access.scopes),
            "open": accounts.is_open,
            "quotas": {name: getattr(limits, name) for name in QUOTAS},
            "used": {
                "subscriptions": count,
                "corners": corners,
                "connections": service.listeners.connections(access.user),
            },
        }

    @routes.get("/stream", response_model=StreamDescription)
    async def stream(_: ReadAccess) -> StreamDescription:
        """Describes the events: their columns and roles."""
        return service.stream

    return routes


def describe_stream(service: Service) -> dict[str, Any]:
    return {**asdict(service.stream), "columns": dict(service.stream.columns)}


def user_routes(service: Service, accounts: Accounts) -> APIRouter:
    """Adds /users, /tokens and /audit."""
    routes = APIRouter(tags=["administration"])

    @routes.get("/users", response_model=schemas.ListAnswer)
    async def users(_: AdminAccess) -> dict[str, Any]:
        """Lists all users."""
        return {"items": [_user(row) for row in await service.look(user_store.list_users)]}

    @routes.post("/users", status_code=201, response_model=dict[str, Any])
    async def add(form: schemas.UserForm, access: AdminAccess) -> dict[str, Any]:
        """Adds a user, who needs a token for any request."""

        def work(db: Connection) -> Row:
            return user_store.get_user(db, user_store.add_user(db, form.name, quotas=form.quotas, by=access.user))

        return _user(await service.do(work))

    @routes.patch("/users/{id}", response_model=dict[str, Any])
    async def change(id: Id, form: schemas.ChangedUserForm, access: AdminAccess) -> dict[str, Any]:
        """Changes the quotas of a user, or disables or enables the user."""
        return _user(await accounts.change_user(access, id, quotas=form.quotas, off=form.off))

    @routes.get("/users/{id}/tokens", response_model=schemas.ListAnswer)
    async def tokens(id: Id, _: AdminAccess) -> dict[str, Any]:
        """Lists the tokens of a user, without their texts."""
        return {"items": [_token(row) for row in await service.look(lambda db: user_store.list_tokens(db, id))]}

    @routes.post("/users/{id}/tokens", status_code=201, response_model=user_store.IssuedToken)
    async def add_token(id: Id, form: schemas.TokenForm, access: AdminAccess) -> user_store.IssuedToken:
        """Creates a token; its text is shown only once."""
        options = {**form.model_dump(exclude={"expires"}), "age": schemas.seconds_until(form.expires, time.time())}
        return await service.do(
            lambda db: user_store.add_token(db, id, **options, limits=service.limits, by=access.user)
        )

    @routes.delete("/tokens/{id}", status_code=204)
    async def revoke(id: Id, access: AdminAccess) -> None:
        """Revokes a token immediately and disconnects its listeners."""
        await accounts.revoke(access, id)

    @routes.get("/audit", response_model=schemas.ItemPage[dict[str, Any]])
    async def audit(
        access: ReadAccess, limit: Page = 100, before: Annotated[int | None, Query(ge=0, lt=1 << 62)] = None
    ) -> dict[str, Any]:
        """Lists changes, newest first: one's own, or all for an administrator."""
        return await service.look(lambda db: read_audit_page(db, access, before, limit))

    return routes


def read_audit_page(db: Connection, access: Principal, before: int | None, limit: int) -> dict[str, Any]:
    """Reads the audit log: all entries for an administrator, otherwise those of the user."""
    user = None if access.may(ADMIN) else access.user
    rows = journal.read_audit_log(db, user, before, limit)
    items = [{**row, "at": format_time(row["at"])} for row in rows]
    return {"items": items, "next": items[-1]["id"] if len(items) == limit else None}


def _user(row: Row) -> dict[str, Any]:
    created, quotas = format_time(row["created"]), json.loads(row["quotas"])
    return {**dict(row), "created": created, "quotas": quotas, "off": bool(row["off"])}


def _token(row: Row) -> dict[str, Any]:
    times = {name: schemas.format_epoch(row[name]) for name in ("created", "expires", "revoked", "used")}
    return {"id": row["id"], "label": row["label"], "scopes": row["scopes"].split(), **times}


_SEE_OTHER = 303


class SignInNeeded(Exception):  # noqa: N818  an expected outcome
    """The page requires a session."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


async def require_session(request: Request) -> Principal:
    """Returns the user of a page request; others are redirected to sign in, and back."""
    access = request.scope.get(ACCESS)
    if not isinstance(access, Principal):
        query = f"?{request.url.query}" if request.url.query else ""
        raise SignInNeeded(request.url.path + query)
    return access


def get_csrf_token(request: Request) -> str:
    """Returns the token that pages send as X-CSRF-Token; empty without a session."""
    access = request.scope.get(ACCESS)
    return (access.csrf or "") if isinstance(access, Principal) else ""


def add_session_routes(app: FastAPI, accounts: Accounts) -> None:
    """Adds sign-in and sign-out, whose forms are in the console."""

    async def redirect_to_sign_in(_: Request, error: Exception) -> Response:
        path = error.path if isinstance(error, SignInNeeded) else "/"
        query = "" if path == "/" else f"?next={quote(path, safe='/')}"
        return RedirectResponse(SIGN_IN + query, _SEE_OTHER)

    @app.post(SIGN_IN, include_in_schema=False)
    async def sign_in(request: Request) -> Response:
        form = await request.form()
        where = sanitize_path(str(form.get("next", "/")))
        try:
            cookie = await accounts.sign_in(str(form.get("token", "")).strip())
        except UnauthenticatedError as refused:
            address = request.client.host if request.client else ""
            accounts.record_refusal(str(refused), address)
            again = f"&next={quote(where, safe='/')}" if where != "/" else ""
            return RedirectResponse(f"{SIGN_IN}?refused=1{again}", _SEE_OTHER)
        answer = RedirectResponse(where, _SEE_OTHER)
        answer.set_cookie(
            COOKIE,
            cookie,
            path="/",
            max_age=int(accounts.limits.session_age),
            secure=request.url.scheme == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    @app.post(SIGN_OUT, include_in_schema=False)
    async def sign_out(request: Request) -> Response:
        form = await request.form()
        sent = str(form.get("csrf", "")) or request.headers.get("x-csrf-token", "")
        cookie = get_session_cookie(request.headers)
        if cookie is not None:
            expected = get_csrf_token(request)
            if expected and not hmac.compare_digest(sent.encode(), expected.encode()):
                raise NotAllowedError("the CSRF token is missing\n  hint: reload the page")
            await accounts.sign_out(cookie)
        answer = RedirectResponse(SIGN_IN, _SEE_OTHER)
        answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
        return answer

    app.add_exception_handler(SignInNeeded, redirect_to_sign_in)


def sanitize_path(path: str) -> str:
    """Returns a path of this service; other URLs are replaced by the first page.

    >>> (sanitize_path("/regions?x=1"), sanitize_path("//evil.example"), sanitize_path("https://evil.example"))
    ('/regions?x=1', '/', '/')
    """
    odd = not path.startswith("/") or path[1:2] in ("/", "\\") or not path.isprintable()
    return "/" if odd else path
