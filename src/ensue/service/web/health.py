"""How the service is, for people and programs."""

from sqlite3 import Connection
from typing import Any

from fastapi import APIRouter, Response

from ensue.errors import ServiceError
from ensue.service.access import ADMIN
from ensue.service.looking import problems
from ensue.service.service import Service
from ensue.service.store import targets
from ensue.service.store.subscriptions import ACTIVE, PAUSED
from ensue.service.web.metrics import MEDIA, metrics_text
from ensue.service.web.notes import shown_moment
from ensue.service.web.permission import Admin, Reader
from ensue.service.web.targets import shown_targets

# What everybody may know: the stream is one for all.
_OF_STREAM = (
    "state", "reason", "began", "events_per_second", "lag_seconds", "watermark", "newest",
    "objects", "newest_note",
)  # fmt: skip


def health_routes(service: Service) -> APIRouter:
    """Adds /health and /explain."""
    routes = APIRouter(tags=["health"])

    @routes.get("/health", response_model=dict[str, Any])
    async def health(access: Reader) -> dict[str, Any]:
        """How the stream is, and the own subscriptions; for an administrator, all of them."""
        found = await service.health()
        found |= {name: shown_moment(found[name]) for name in ("began", "outbox_oldest")}
        if access.may(ADMIN):
            return {**found, "slow_listeners_cut": service.listeners.slow}
        own = await service.look(lambda db: _own(db, service, access.user))
        listeners = service.listeners.connections(access.user)
        return {**{name: found[name] for name in _OF_STREAM}, **own, "listeners": listeners}

    @routes.get("/health/targets", response_model=dict[str, Any])
    async def failing(access: Reader) -> dict[str, Any]:
        """The own targets that fail or are switched off, or have dead letters."""
        return {"items": await service.look(lambda db: _troubled(db, access.user))}

    @routes.get("/explain", response_model=dict[str, str])
    async def explain(_: Admin) -> dict[str, str]:
        """How all subscriptions are run together, in words."""
        return {"text": await service.explain()}

    return routes


def probe_routes(service: Service) -> APIRouter:
    """Adds what machines ask for outside of the API: /health and /metrics."""
    routes = APIRouter(tags=["health"])

    @routes.get("/health", response_model=dict[str, str])
    async def alive(response: Response) -> dict[str, str]:
        """Whether the service runs and takes events. Needs no token, and says nothing else."""
        try:
            stopped = service.core.stopped
        except ServiceError:
            stopped = "it is not running"
        if stopped is not None:
            response.status_code = 503
        return {"state": "running" if stopped is None else "intake stopped"}

    @routes.get("/metrics")
    async def metrics(access: Reader) -> Response:
        """Counters in the text format of Prometheus; those of all for an administrator."""
        user = None if access.may(ADMIN) else access.user
        return Response(await metrics_text(service, user), media_type=MEDIA)

    return routes


def _own(db: Connection, service: Service, user: int) -> dict[str, Any]:
    states = dict(
        map(
            tuple,
            db.execute(
                "SELECT state, count(*) FROM subscriptions WHERE user = ? GROUP BY state", (user,)
            ),
        )
    )
    found = targets.target_states(db, user)
    aside = "SELECT count(*) FROM bad_events WHERE user = ?"
    return {
        "problems": problems(db, service, user),
        "subscriptions": states.get(ACTIVE, 0),
        "paused": states.get(PAUSED, 0),
        "bad": db.execute(aside, (user,)).fetchone()[0],
        "failing_targets": sum(one.state == targets.FAILING for one in found),
        "switched_off_targets": sum(one.state == targets.OFF for one in found),
        "retries": sum(one.waiting for one in found),
        "dead_letters": sum(one.dead for one in found),
    }


def _troubled(db: Connection, user: int) -> list[dict[str, Any]]:
    found = targets.target_states(db, user)
    troubled = [one for one in found if one.state != targets.ON or one.dead]
    by_id = {
        shown["id"]: shown
        for subscription in sorted({one.subscription for one in troubled})
        for shown in shown_targets(db, user, subscription)
    }
    return [by_id[one.id] for one in troubled]
