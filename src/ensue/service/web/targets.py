"""Targets over HTTP: where the notes of a subscription go."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from sqlite3 import Connection
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path

from ensue.service.access import ADMIN, Access
from ensue.service.columns import iso
from ensue.service.delivery import signing
from ensue.service.refusals import ConflictError, NotFoundError
from ensue.service.service import Service
from ensue.service.store import audit, targets
from ensue.service.web.answers import Items, TargetAnswer
from ensue.service.web.forms import RedeliverForm, RotateForm, TargetForm
from ensue.service.web.notes import After, Page
from ensue.service.web.permission import Reader, Subscriber

Id = Annotated[int, Path(ge=0, lt=1 << 63)]
T = TypeVar("T")
_BY_HAND = "switched off by hand"


def target_routes(service: Service) -> APIRouter:
    """Adds /targets and those of a subscription."""
    routes = APIRouter(tags=["targets"])

    async def own(id: int, access: Access) -> targets.Target:
        return await service.look(lambda db: _own(db, id, access.user))

    async def shown(id: int, access: Access, *, secrets: bool = False) -> dict[str, Any]:
        def find(db: Connection) -> dict[str, Any]:
            at = _own(db, id, access.user).subscription
            found = shown_targets(db, access.user, at, secrets=secrets)
            return {one["id"]: one for one in found}[id]

        return await service.look(find)

    async def changed(id: int, access: Access, action: str, work: Callable[[Connection], T]) -> T:
        """Does something to a target and writes it down, both or none, and has it go on."""

        def do(db: Connection) -> tuple[int, T]:
            target = _own(db, id, access.user)
            audit.record(db, access.user, action, f"target {id}", target.kind)
            return target.subscription, work(db)

        subscription, done = await service.do(do)
        service.courier.wake({subscription})
        return done

    @routes.get("/subscriptions/{id}/targets", response_model=Items)
    async def of_subscription(id: Id, access: Reader) -> dict[str, Any]:
        """Where the notes of a subscription go."""
        await service.subscription(id, user=access.user)
        return {"items": await service.look(lambda db: shown_targets(db, access.user, id))}

    @routes.post("/subscriptions/{id}/targets", status_code=201, response_model=TargetAnswer)
    async def add(id: Id, form: TargetForm, access: Subscriber) -> dict[str, Any]:
        """Sends the notes of a subscription somewhere, from now on."""
        made = await service.add_target(
            id, form.kind, form.config, user=access.user, trusted=access.may(ADMIN)
        )
        return await shown(made, access, secrets=True)

    @routes.delete("/targets/{id}", status_code=204)
    async def remove(id: Id, access: Subscriber) -> None:
        """Sends nothing there any more."""
        await changed(id, access, "remove target", lambda db: targets.remove_target(db, id))

    @routes.post("/targets/{id}/rotate", response_model=TargetAnswer)
    async def rotate(id: Id, form: RotateForm, access: Subscriber) -> dict[str, Any]:
        """Gives a webhook a new secret, shown only now. The one before it is good for a while."""
        if (await own(id, access)).kind != "webhook":
            raise ConflictError(f"target {id} is no webhook, and signs nothing")
        secret = await service.courier.rotate(id, form.keep)
        await changed(id, access, "rotate secret", lambda _: None)
        return {**await shown(id, access), "secret": secret}

    @routes.post("/targets/{id}/on", response_model=TargetAnswer)
    async def on(id: Id, access: Subscriber) -> dict[str, Any]:
        """Goes on with a target at once, whether it was switched off or fails."""
        await changed(
            id, access, "switch on", lambda db: targets.switch_on(db, id, now=time.time())
        )
        return await shown(id, access)

    @routes.post("/targets/{id}/off", response_model=TargetAnswer)
    async def off(id: Id, access: Subscriber) -> dict[str, Any]:
        """Sends nothing to a target until it is switched on. Notes wait while they are kept."""
        await changed(
            id,
            access,
            "switch off",
            lambda db: targets.switch_off(db, id, _BY_HAND, now=time.time()),
        )
        return await shown(id, access)

    @routes.post("/targets/{id}/redeliver", response_model=dict[str, list[int]])
    async def redeliver(id: Id, form: RedeliverForm, access: Subscriber) -> dict[str, Any]:
        """Sends notes once more: those of these numbers, or all dead letters."""
        numbers = await changed(
            id,
            access,
            "redeliver",
            lambda db: targets.redeliver(db, id, form.numbers, now=time.time()),
        )
        return {"numbers": list(numbers)}

    @routes.get("/targets/{id}/dead", response_model=Items)
    async def dead(id: Id, access: Reader, after: After = 0, limit: Page = 100) -> dict[str, Any]:
        """Notes that a target has given up."""
        await own(id, access)
        found = await service.look(
            lambda db: targets.dead_letters(db, id, after=after, limit=limit)
        )
        return {"items": [{**asdict(one), "at": iso(one.at)} for one in found]}

    return routes


def shown_targets(
    db: Connection, user: int, subscription: int, *, secrets: bool = False
) -> list[dict[str, Any]]:
    """The targets of a subscription; their secrets only when they are made."""
    return [
        {
            "id": one.id,
            "subscription": one.subscription,
            "kind": one.kind,
            "config": one.config,
            "state": one.state,
            "reason": one.reason,
            "delivered": one.delivered,
            "failures": one.failures,
            "behind": one.behind,
            "waiting": one.waiting,
            "dead": one.dead,
            "next_at": None if one.next_at is None else iso(one.next_at),
            "created": iso(one.created),
            **({"secret": _secret(db, one.id)} if secrets and one.kind == "webhook" else {}),
        }
        for one in targets.target_states(db, user, subscription)
    ]


def _own(db: Connection, id: int, user: int) -> targets.Target:
    """A target of a user; somebody else's is as if it were not there."""
    found = targets.target_of(db, id)
    if found.user != user:
        raise NotFoundError(f"there is no target {id}")
    return found


def _secret(db: Connection, id: int) -> str | None:
    found = signing.from_stored(json.loads(targets.target_of(db, id).secrets))
    return found[0].text if found else None
