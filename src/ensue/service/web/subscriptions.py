"""Subscriptions over HTTP."""

from collections.abc import Sequence
from datetime import datetime
from sqlite3 import Connection
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from ensue.errors import EnsueError
from ensue.service.access import ADMIN
from ensue.service.service import Service
from ensue.service.store import keys
from ensue.service.store.counters import counted
from ensue.service.subscribed import Subscribed
from ensue.service.web.answers import (
    BulkAnswer,
    NotePage,
    SubscriptionAnswer,
    SubscriptionPage,
)
from ensue.service.web.bodies import MEDIA, json_answer
from ensue.service.web.forms import BulkForm, ChangeForm, SubscriptionForm, aware
from ensue.service.web.geojson import regions_in
from ensue.service.web.notes import After, Page, page_of
from ensue.service.web.permission import Reader, Subscriber
from ensue.service.web.problems import problem_of
from ensue.service.web.targets import shown_targets
from ensue.service.web.trials import asked
from ensue.service.web.turns import Turns

Id = Annotated[int, Path(description="of the subscription", ge=0, lt=1 << 63)]
State = Literal["active", "paused", "ended"]
KEY = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="of your making: a repeated request with it is answered as the first was",
    ),
]


def subscription_routes(service: Service, turns: Turns) -> APIRouter:
    """Adds /subscriptions."""
    routes = APIRouter(tags=["subscriptions"])

    async def shown(found: Subscribed, *, secrets: bool = False) -> dict[str, Any]:
        return (await service.look(lambda db: _shown(db, [found], secrets=secrets)))[0]

    @routes.post("/subscriptions", status_code=201, response_model=SubscriptionAnswer)
    async def subscribe(
        form: SubscriptionForm,
        access: Subscriber,
        request: Request,
        key: KEY = None,
    ) -> Response:
        """Makes a subscription: from a text, or from a template. It sees the next events."""
        digest = keys.digest_of(b"subscribe", await request.body())
        made = await service.subscribe(
            **_wanted(form),
            user=access.user,
            idempotency_key=key,
            digest=digest,
            trusted=access.may(ADMIN),
        )
        body = orjson.dumps(await shown(made, secrets=True)).decode()
        if key is not None:
            first = body
            body = await service.do(lambda db: keys.complete(db, access.user, key, first))
        where = {"location": f"/api/v1/subscriptions/{made.id}"}
        return Response(body, 201, headers=where, media_type=MEDIA)

    @routes.post("/subscriptions/bulk", response_model=BulkAnswer)
    async def subscribe_each(
        form: BulkForm,
        access: Subscriber,
        request: Request,
        key: KEY = None,
    ) -> Response:
        """Makes many subscriptions in one transaction: those that can be made.

        For each there is the subscription, or the problem that it has.
        """
        digest = keys.digest_of(b"bulk", await request.body())
        read = [_item(item) for item in form.items]
        outcomes = iter(
            await service.subscribe_each(
                [one for one in read if not isinstance(one, Exception)],
                user=access.user,
                idempotency_key=key,
                digest=digest,
                trusted=access.may(ADMIN),
            )
        )
        found = [one if isinstance(one, Exception) else next(outcomes) for one in read]
        made = [one for one in found if isinstance(one, Subscribed)]
        views = iter(await service.look(lambda db: _shown(db, made, secrets=True)))
        items = [
            {"problem": problem_of(one).content}
            if isinstance(one, Exception)
            else {"subscription": next(views)}
            for one in found
        ]
        answer = {"made": len(made), "refused": len(found) - len(made), "items": items}
        body = orjson.dumps(answer).decode()
        if key is not None:
            first = body
            body = await service.do(lambda db: keys.complete(db, access.user, key, first))
        return Response(body, media_type=MEDIA)

    @routes.get("/subscriptions", response_model=SubscriptionPage)
    async def subscriptions(
        access: Reader,
        state: Annotated[State | None, Query(description="none: all that have not ended")] = None,
        after: After = 0,
        limit: Page = 100,
    ) -> dict[str, Any]:
        """The subscriptions of whoever asks, in the order in which they were made."""
        found = await service.subscriptions(
            state=state, after=after, limit=limit, user=access.user
        )
        items = await service.look(lambda db: _shown(db, found))
        return {"items": items, "next": found[-1].id if len(found) == limit else None}

    @routes.get("/subscriptions/{id}", response_model=SubscriptionAnswer)
    async def subscription(id: Id, access: Reader) -> dict[str, Any]:
        """One subscription, with what was counted for it."""
        return await shown(await service.subscription(id, user=access.user))

    @routes.patch("/subscriptions/{id}", response_model=SubscriptionAnswer)
    async def change(id: Id, form: ChangeForm, access: Subscriber) -> dict[str, Any]:
        """Changes some of a subscription. With another text or regions it begins anew."""
        given = form.model_dump(exclude_unset=True)
        if "expires" in given:
            given["expires"] = _moment(form.expires)
        if form.regions is not None:
            given["regions"] = regions_in(form.regions)
        for name in ("text", "template", "values", "regions", "name"):
            if given.get(name, "") is None:
                del given[name]  # null is no text: it stays as it is
        return await shown(await service.change(id, **given, user=access.user))

    @routes.delete("/subscriptions/{id}", response_model=SubscriptionAnswer)
    async def cancel(id: Id, access: Subscriber) -> dict[str, Any]:
        """Ends a subscription. Its notes are kept as long as others."""
        return await shown(await service.cancel(id, user=access.user))

    @routes.post("/subscriptions/{id}/pause", response_model=SubscriptionAnswer)
    async def pause(id: Id, access: Subscriber) -> dict[str, Any]:
        """Has a subscription see no events. What it has seen so far is forgotten."""
        return await shown(await service.pause(id, user=access.user))

    @routes.post("/subscriptions/{id}/resume", response_model=SubscriptionAnswer)
    async def resume(id: Id, access: Subscriber) -> dict[str, Any]:
        """Has a subscription that was paused see the next events."""
        return await shown(await service.resume(id, user=access.user))

    @routes.get("/subscriptions/{id}/notes", response_model=NotePage)
    async def notes(id: Id, access: Reader, after: After = 0, limit: Page = 100) -> Response:
        """The notes of a subscription behind a number."""
        await service.subscription(id, user=access.user)
        return await page_of(service.reading(access.user, id), after, limit)

    @routes.get("/subscriptions/{id}/explain", response_model=dict[str, str])
    async def explain(id: Id, access: Reader) -> dict[str, str]:
        """How a subscription is run, in words."""
        return {"text": await service.explain(id, user=access.user)}

    @routes.get("/subscriptions/{id}/why-not", response_model=dict[str, Any])
    async def why_not(id: Id, access: Reader) -> Response:
        """How far recent events got in a subscription, and which condition stopped them."""
        async with turns.one(access.user):
            return json_answer(await service.why_not(id, user=access.user))

    return routes


def _item(given: dict[str, Any]) -> dict[str, Any] | Exception:
    """One of several subscriptions as the service takes it, or what is wrong with its form."""
    try:
        form = SubscriptionForm.model_validate(given)
        return _wanted(form)
    except ValidationError as error:
        return RequestValidationError(error.errors())
    except EnsueError as error:
        return error


def _wanted(form: SubscriptionForm) -> dict[str, Any]:
    return {
        **asked(form),
        "name": form.name,
        "expires": _moment(form.expires),
        "quiet": form.quiet,
        "targets": [target.model_dump() for target in form.targets],
    }


def _moment(given: float | datetime | None) -> float | datetime | None:
    return aware(given) if isinstance(given, datetime) else given


def _shown(
    db: Connection, found: Sequence[Subscribed], *, secrets: bool = False
) -> list[dict[str, Any]]:
    """Subscriptions with their counters and targets."""
    return [
        {
            **one.as_dict(),
            "counters": counted(db, one.id),
            "targets": shown_targets(db, one.user, one.id, secrets=secrets),
        }
        for one in found
    ]
