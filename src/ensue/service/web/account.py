"""Who asks, and what the stream looks like."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request

from ensue.service.access import QUOTAS, Accounts
from ensue.service.service import Service
from ensue.service.store.subscriptions import used_by
from ensue.service.web.answers import Me, StreamAnswer
from ensue.service.web.permission import Reader, access_of


def account_routes(service: Service, accounts: Accounts) -> APIRouter:
    """Adds /me and /stream."""
    routes = APIRouter(tags=["account"])

    @routes.get("/me", response_model=Me)
    async def me(request: Request) -> dict[str, Any]:
        """Who asks, by the token: scopes, quotas, and what is used of them."""
        access = access_of(request)
        limits = access.limits(service.limits)
        count, corners = await service.look(lambda db: used_by(db, access.user))
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

    @routes.get("/stream", response_model=StreamAnswer)
    async def stream(_: Reader) -> dict[str, Any]:
        """What the events look like: their columns, and what each is for."""
        found = asdict(service.stream)
        return {**found, "columns": dict(service.stream.columns)}

    return routes
