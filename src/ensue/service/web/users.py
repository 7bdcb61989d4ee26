"""Users, tokens and the audit log over HTTP."""

import json
import time
from sqlite3 import Row
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from ensue.service.access import Accounts
from ensue.service.columns import iso
from ensue.service.web.answers import AuditPage, Items, TokenAnswer
from ensue.service.web.forms import ChangedUserForm, TokenForm, UserForm, seconds_from
from ensue.service.web.notes import Page
from ensue.service.web.permission import Admin, Reader

Id = Annotated[int, Path(ge=0, lt=1 << 63)]


def user_routes(accounts: Accounts) -> APIRouter:
    """Adds /users, /tokens and /audit."""
    routes = APIRouter(tags=["administration"])

    @routes.get("/users", response_model=Items)
    async def users(_: Admin) -> dict[str, Any]:
        """All users."""
        return {"items": [_user(row) for row in await accounts.users()]}

    @routes.post("/users", status_code=201, response_model=dict[str, Any])
    async def add(form: UserForm, access: Admin) -> dict[str, Any]:
        """Adds a user, who can do nothing without a token."""
        return _user(await accounts.add_user(access, form.name, form.quotas))

    @routes.patch("/users/{id}", response_model=dict[str, Any])
    async def change(id: Id, form: ChangedUserForm, access: Admin) -> dict[str, Any]:
        """Gives a user other quotas, or switches one off and on."""
        return _user(await accounts.change_user(access, id, quotas=form.quotas, off=form.off))

    @routes.get("/users/{id}/tokens", response_model=Items)
    async def tokens(id: Id, _: Admin) -> dict[str, Any]:
        """The tokens of a user; not what they are."""
        return {"items": [_token(row) for row in await accounts.tokens(id)]}

    @routes.post("/users/{id}/tokens", status_code=201, response_model=TokenAnswer)
    async def add_token(id: Id, form: TokenForm, access: Admin) -> dict[str, Any]:
        """Makes a token. It is shown only now."""
        age = seconds_from(form.expires, time.time())
        made = await accounts.add_token(access, id, scopes=form.scopes, label=form.label, age=age)
        return {
            "id": made.id,
            "token": made.token,
            "scopes": list(made.scopes),
            "expires": None if made.expires is None else iso(made.expires),
        }

    @routes.delete("/tokens/{id}", status_code=204)
    async def revoke(id: Id, access: Admin) -> None:
        """Takes a token back. It ends at once, and who listens with it is cut."""
        await accounts.revoke(access, id)

    @routes.get("/audit", response_model=AuditPage)
    async def audit(
        access: Reader,
        limit: Page = 100,
        before: Annotated[int | None, Query(ge=0, lt=1 << 62)] = None,
    ) -> dict[str, Any]:
        """What was changed, the newest first: by whoever asks; for an administrator, by all."""
        rows = await accounts.audit(access, before=before, limit=limit)
        return {
            "items": [_entry(row) for row in rows],
            "next": rows[-1]["id"] if len(rows) == limit else None,
        }

    return routes


def _user(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "name": row["name"],
        "created": iso(row["created"]),
        "quotas": json.loads(row["quotas"]),
        "off": bool(row["off"]),
    }


def _token(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "label": row["label"],
        "scopes": row["scopes"].split(),
        **{name: _when(row[name]) for name in ("created", "expires", "revoked", "used")},
    }


def _entry(row: Row) -> dict[str, Any]:
    return {
        "id": row["id"],
        "at": iso(row["at"]),
        "user": row["user"],
        "name": row["name"],
        "action": row["action"],
        "subject": row["subject"],
        "detail": row["detail"],
    }


def _when(at: float | None) -> str | None:
    return None if at is None else iso(at)
