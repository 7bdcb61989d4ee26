"""Targets over HTTP: destinations of a subscription's notifications."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from sqlite3 import Connection
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path

from ensue.service.access import ADMIN, Principal
from ensue.service.delivery import signing
from ensue.service.errors import ConflictError, NotFoundError
from ensue.service.event_columns import format_time
from ensue.service.service import Service
from ensue.service.store import journal, target_store
from ensue.service.web.guard import ReadAccess, SubscribeAccess
from ensue.service.web.request_bodies import RedeliverForm, RotateForm, TargetForm
from ensue.service.web.responses import ListAnswer, TargetAnswer
from ensue.service.web.sse import After, Page, format_epoch

Id = Annotated[int, Path(ge=0, lt=1 << 63)]
T = TypeVar("T")


def target_routes(service: Service) -> APIRouter:
    """Adds /targets and those of a subscription."""
    routes = APIRouter(tags=["targets"])

    async def own(id: int, access: Principal) -> target_store.Target:
        return await service.look(lambda db: _get_own(db, id, access.user))

    async def shown(id: int, access: Principal, *, secrets: bool = False) -> dict[str, Any]:
        def find(db: Connection) -> dict[str, Any]:
            subscription = _get_own(db, id, access.user).subscription
            views = list_target_views(db, access.user, subscription, secrets=secrets)
            return next(view for view in views if view["id"] == id)

        return await service.look(find)

    async def change(id: int, access: Principal, action: str, work: Callable[..., T], *values: object) -> T:
        """Changes a target and records it in one transaction, then wakes the dispatcher."""

        def do(db: Connection) -> tuple[int, T]:
            target = _get_own(db, id, access.user)
            journal.record_action(db, access.user, action, f"target {id}", target.kind)
            return target.subscription, work(db, id, *values, now=time.time())

        subscription, result = await service.do(do)
        service.dispatcher.wake({subscription})
        return result

    @routes.get("/subscriptions/{id}/targets", response_model=ListAnswer)
    async def list_targets(id: Id, access: ReadAccess) -> dict[str, Any]:
        """Lists the targets of a subscription."""
        await service.subscription(id, user=access.user)
        return {"items": await service.look(lambda db: list_target_views(db, access.user, id))}

    @routes.post("/subscriptions/{id}/targets", status_code=201, response_model=TargetAnswer)
    async def add(id: Id, form: TargetForm, access: SubscribeAccess) -> dict[str, Any]:
        """Adds a target for the later notifications of a subscription."""
        target = await service.add_target(id, form.kind, form.config, user=access.user, trusted=access.may(ADMIN))
        return await shown(target, access, secrets=True)

    @routes.delete("/targets/{id}", status_code=204)
    async def remove(id: Id, access: SubscribeAccess) -> None:
        """Deletes a target."""
        await change(id, access, "remove target", lambda db, _, **__: target_store.remove_target(db, id))

    @routes.post("/targets/{id}/rotate", response_model=TargetAnswer)
    async def rotate(id: Id, form: RotateForm, access: SubscribeAccess) -> dict[str, Any]:
        """Creates a new secret for a webhook; the previous one stays valid for a while."""
        if (await own(id, access)).kind != "webhook":
            raise ConflictError(f"target {id} is not a webhook, and has no secret")
        secret = await change(id, access, "rotate secret", rotate_secret, form.keep)
        return {**await shown(id, access), "secret": secret}

    @routes.post("/targets/{id}/on", response_model=TargetAnswer)
    async def on(id: Id, access: SubscribeAccess) -> dict[str, Any]:
        """Retries a target immediately, whether it was switched off or failing."""
        await change(id, access, "switch on", target_store.switch_on)
        return await shown(id, access)

    @routes.post("/targets/{id}/off", response_model=TargetAnswer)
    async def off(id: Id, access: SubscribeAccess) -> dict[str, Any]:
        """Stops deliveries to a target until it is switched on; pending notifications wait."""
        await change(id, access, "switch off", target_store.switch_off, "switched off by the user")
        return await shown(id, access)

    @routes.post("/targets/{id}/redeliver", response_model=dict[str, list[int]])
    async def redeliver(id: Id, form: RedeliverForm, access: SubscribeAccess) -> dict[str, Any]:
        """Sends notifications again: those of these numbers, or all dead letters."""
        numbers = await change(id, access, "redeliver", target_store.redeliver, form.numbers)
        return {"numbers": list(numbers)}

    @routes.get("/targets/{id}/dead", response_model=ListAnswer)
    async def dead(id: Id, access: ReadAccess, after: After = 0, limit: Page = 100) -> dict[str, Any]:
        """Lists the dead letters of a target."""
        await own(id, access)
        letters = await service.look(lambda db: target_store.list_dead_letters(db, id, after=after, limit=limit))
        return {"items": [{**asdict(letter), "at": format_time(letter.at)} for letter in letters]}

    return routes


def list_target_views(db: Connection, user: int, subscription: int, *, secrets: bool = False) -> list[dict[str, Any]]:
    """Returns the targets of a subscription as JSON; with secrets only when they are created."""
    views = []
    for target in target_store.list_target_states(db, user, subscription):
        views.append(view_target(target))
        if secrets and target.kind == "webhook":
            views[-1]["secret"] = next((each.text for each in _secrets(db, target.id)), None)
    return views


def view_target(target: target_store.TargetState) -> dict[str, Any]:
    """Returns a target as JSON, without its secrets."""
    view = asdict(target)
    del view["user"], view["secrets"]
    times = {"next_at": format_epoch(target.next_at), "created": format_epoch(target.created)}
    return view | times


def _get_own(db: Connection, id: int, user: int) -> target_store.Target:
    """Returns a target of a user; targets of others are reported as missing."""
    target = target_store.get_target(db, id)
    if target.user != user:
        raise NotFoundError(f"there is no target {id}")
    return target


def rotate_secret(db: Connection, id: int, keep: float, *, now: float) -> str:
    """Gives a webhook a new secret; the previous one stays valid for `keep` seconds."""
    fresh = signing.new_secret()
    secrets = signing.rotate_secrets(_secrets(db, id), fresh, now, keep)
    target_store.change_secrets(db, id, signing.encode_secrets(secrets), now=now)
    return fresh


def _secrets(db: Connection, id: int) -> tuple[signing.SigningSecret, ...]:
    return signing.decode_secrets(json.loads(target_store.get_target(db, id).secrets))
