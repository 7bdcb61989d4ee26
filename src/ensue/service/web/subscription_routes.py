"""Subscriptions over HTTP."""

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from ensue.errors import EnsueError
from ensue.service.access import ADMIN
from ensue.service.service import Service
from ensue.service.store import journal
from ensue.service.store.journal import read_counters
from ensue.service.subscription_view import UserSubscription
from ensue.service.web import request_bodies, responses
from ensue.service.web.guard import QuerySlots, ReadAccess, SubscribeAccess
from ensue.service.web.problem_details import describe_problem
from ensue.service.web.region_routes import parse_regions
from ensue.service.web.sse import After, Page, read_page
from ensue.service.web.target_routes import list_target_views


def trial_routes(service: Service, turns: QuerySlots) -> APIRouter:
    """Adds /check and /trial."""
    routes = APIRouter(tags=["before subscribing"])

    @routes.post("/check", response_model=responses.CheckAnswer)
    async def check(form: request_bodies.QueryForm, access: ReadAccess) -> dict[str, Any]:
        """Checks a subscription; the problem of an invalid one has the position of the error."""
        warnings = await service.check(**form_arguments(form), user=access.user)
        return {"ok": True, "warnings": warnings}

    @routes.post("/trial", response_model=responses.TrialAnswer)
    async def trial(form: request_bodies.TrialForm, access: ReadAccess) -> Response:
        """Reports how often a subscription would have matched the stored events."""
        async with turns.acquire(access.user):
            result = await service.trial(**form_arguments(form), since=form.since, user=access.user)
        fields = {
            "count": result.count,
            "by_object": result.by_object,
            "bars": result.bars,
            "events": result.events,
            "from": service.columns.to_json(result.begin),
            "to": service.columns.to_json(result.end),
            "seconds": result.seconds,
            "cut": result.cut,
        }
        return responses.join_bodies(fields, "matches", result.matches)

    return routes


def form_arguments(form: request_bodies.QueryForm) -> dict[str, Any]:
    """Converts a form to arguments of the service."""
    regions = None if form.regions is None else parse_regions(form.regions)
    return {**form.model_dump(include={"text", "template", "values", "language"}), "regions": regions}


Id = Annotated[int, Path(description="id of the subscription", ge=0, lt=1 << 63)]
State = Literal["active", "paused", "ended"]
KEY = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="chosen by the client; a repeated request gets the first answer"),
]


def subscription_routes(service: Service, turns: QuerySlots) -> APIRouter:
    """Adds /subscriptions."""
    routes = APIRouter(tags=["subscriptions"])

    async def shown(subscription: UserSubscription, *, secrets: bool = False) -> dict[str, Any]:
        return (await service.look(lambda db: _describe_subscriptions(db, [subscription], secrets=secrets)))[0]

    async def encode_once(answer: dict[str, Any], user: int, key: str | None) -> str:
        """Encodes an answer; a repeated idempotency key gets the first one."""
        body = orjson.dumps(answer).decode()
        if key is None:
            return body
        return await service.do(lambda db: journal.complete_answer(db, user, key, body))

    @routes.post("/subscriptions", status_code=201, response_model=responses.SubscriptionAnswer)
    async def subscribe(
        form: request_bodies.SubscriptionForm, access: SubscribeAccess, request: Request, key: KEY = None
    ) -> Response:
        """Creates a subscription from a text or a template; it sees all later events."""
        digest = journal.compute_digest(b"subscribe", await request.body())
        created = await service.subscribe(
            **_arguments(form), user=access.user, idempotency_key=key, digest=digest, trusted=access.may(ADMIN)
        )
        body = await encode_once(await shown(created, secrets=True), access.user, key)
        where = {"location": f"/api/v1/subscriptions/{created.id}"}
        return Response(body, 201, headers=where, media_type=responses.MEDIA)

    @routes.post("/subscriptions/bulk", response_model=responses.BulkAnswer)
    async def subscribe_each(
        form: request_bodies.BulkForm, access: SubscribeAccess, request: Request, key: KEY = None
    ) -> Response:
        """Creates many subscriptions in one transaction, skipping invalid ones.

        The answer has a subscription or a problem for each.
        """
        digest = journal.compute_digest(b"bulk", await request.body())
        requests = [_item(item) for item in form.items]
        outcomes = iter(
            await service.subscribe_each(
                [each for each in requests if not isinstance(each, Exception)],
                user=access.user,
                idempotency_key=key,
                digest=digest,
                trusted=access.may(ADMIN),
            )
        )
        results = [each if isinstance(each, Exception) else next(outcomes) for each in requests]
        created = [each for each in results if isinstance(each, UserSubscription)]
        views = iter(await service.look(lambda db: _describe_subscriptions(db, created, secrets=True)))
        items = [
            {"problem": describe_problem(each).content}
            if isinstance(each, Exception)
            else {"subscription": next(views)}
            for each in results
        ]
        answer = {"made": len(created), "refused": len(results) - len(created), "items": items}
        return Response(await encode_once(answer, access.user, key), media_type=responses.MEDIA)

    @routes.get("/subscriptions", response_model=responses.SubscriptionPage)
    async def subscriptions(
        access: ReadAccess,
        state: Annotated[State | None, Query(description="by default all that have not ended")] = None,
        after: After = 0,
        limit: Page = 100,
    ) -> dict[str, Any]:
        """Lists one's subscriptions, ordered by id."""
        page = await service.subscriptions(state=state, after=after, limit=limit, user=access.user)
        items = await service.look(lambda db: _describe_subscriptions(db, page))
        return {"items": items, "next": page[-1].id if len(page) == limit else None}

    @routes.get("/subscriptions/{id}", response_model=responses.SubscriptionAnswer)
    async def subscription(id: Id, access: ReadAccess) -> dict[str, Any]:
        """Returns a subscription with its counters."""
        return await shown(await service.subscription(id, user=access.user))

    @routes.patch("/subscriptions/{id}", response_model=responses.SubscriptionAnswer)
    async def change(id: Id, form: request_bodies.ChangeForm, access: SubscribeAccess) -> dict[str, Any]:
        """Changes a subscription; a new text or new regions discard its partial matches."""
        changes = form.model_dump(exclude_unset=True)
        if form.regions is not None:
            changes["regions"] = parse_regions(form.regions)
        for name in ("text", "template", "values", "regions", "name"):
            if changes.get(name, "") is None:
                del changes[name]  # null means unchanged
        return await shown(await service.change(id, **changes, user=access.user))

    @routes.delete("/subscriptions/{id}", response_model=responses.SubscriptionAnswer)
    async def cancel(id: Id, access: SubscribeAccess) -> dict[str, Any]:
        """Ends a subscription; its notifications stay until their retention ends."""
        return await shown(await service.cancel(id, user=access.user))

    @routes.post("/subscriptions/{id}/pause", response_model=responses.SubscriptionAnswer)
    async def pause(id: Id, access: SubscribeAccess) -> dict[str, Any]:
        """Pauses a subscription and discards its partial matches."""
        return await shown(await service.pause(id, user=access.user))

    @routes.post("/subscriptions/{id}/resume", response_model=responses.SubscriptionAnswer)
    async def resume(id: Id, access: SubscribeAccess) -> dict[str, Any]:
        """Resumes a paused subscription, starting with the next events."""
        return await shown(await service.resume(id, user=access.user))

    @routes.get("/subscriptions/{id}/notes", response_model=responses.NotificationPage)
    async def notes(id: Id, access: ReadAccess, after: After = 0, limit: Page = 100) -> Response:
        """Lists the notifications of a subscription after a number."""
        await service.subscription(id, user=access.user)
        return await read_page(service.get_outbox_reader(access.user, id), after, limit)

    @routes.get("/subscriptions/{id}/explain", response_model=dict[str, str])
    async def explain(id: Id, access: ReadAccess) -> dict[str, str]:
        """Explains how a subscription is executed."""
        return {"text": await service.explain(id, user=access.user)}

    @routes.get("/subscriptions/{id}/why-not", response_model=dict[str, Any])
    async def why_not(id: Id, access: ReadAccess) -> Response:
        """Reports how far recent events got, and which condition rejected them."""
        async with turns.acquire(access.user):
            return responses.encode_json(await service.why_not(id, user=access.user))

    return routes


def _item(item: dict[str, Any]) -> dict[str, Any] | Exception:
    """Validates a subscription; returns arguments of the service, or the error."""
    try:
        return _arguments(request_bodies.SubscriptionForm.model_validate(item))
    except ValidationError as error:
        return RequestValidationError(error.errors())
    except EnsueError as error:
        return error


def _arguments(form: request_bodies.SubscriptionForm) -> dict[str, Any]:
    return {
        **form_arguments(form),
        "name": form.name,
        "expires": form.expires,
        "quiet": form.quiet,
        "targets": [target.model_dump() for target in form.targets],
    }


def _describe_subscriptions(
    db: Connection, subscriptions: Sequence[UserSubscription], *, secrets: bool = False
) -> list[dict[str, Any]]:
    """Adds counters and targets to subscriptions."""
    return [
        {
            **each.as_dict(),
            "counters": read_counters(db, each.id),
            "targets": list_target_views(db, each.user, each.id, secrets=secrets),
        }
        for each in subscriptions
    ]
