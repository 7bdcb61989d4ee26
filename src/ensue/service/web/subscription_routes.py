"""Subscriptions over HTTP: templates and trials before them, themselves, and their targets."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from functools import partial
from sqlite3 import Connection
from typing import Annotated, Any, Literal, TypeVar

import orjson
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter, ValidationError

from ensue.errors import EnsueError, QueryError
from ensue.service.access import Principal
from ensue.service.errors import ConflictError
from ensue.service.secrets import SigningSecret, decode_secrets, encode_secrets, new_secret, rotate_secrets
from ensue.service.service import Service
from ensue.service.store import journal, target_store
from ensue.service.store.journal import read_counters
from ensue.service.store.target_store import TargetState
from ensue.service.store.user_store import ADMIN
from ensue.service.subscription_catalog import SubscriptionRequest, UserSubscription
from ensue.service.templates import TEMPLATES, fill_template
from ensue.service.templates.template import FilledTemplate
from ensue.service.web import schemas
from ensue.service.web.event_routes import read_page
from ensue.service.web.guard import QuerySlots, ReadAccess, SubscribeAccess
from ensue.service.web.problem_details import describe_problem
from ensue.service.web.region_routes import parse_regions
from ensue.service.web.schemas import After, Id, Page


def template_routes(service: Service) -> APIRouter:
    """Adds /templates."""
    routes = APIRouter(prefix="/templates", tags=["before subscribing"])

    @routes.get("", response_model=schemas.ListAnswer)
    async def templates(_: ReadAccess) -> dict[str, Any]:
        """Lists the templates that fit the stream, with parameters, units and defaults."""
        return {"items": list_templates(service)}

    @routes.post("/{name}", response_model=FilledTemplate)
    async def template(name: str, form: schemas.ValuesForm, _: ReadAccess) -> FilledTemplate:
        """Fills in a template; the resulting text can be edited."""
        return fill_template(name, form.values, service.columns.template_stream)

    return routes


def list_templates(service: Service) -> list[dict[str, Any]]:
    """Lists the templates that fit the stream, with its units of time and space."""
    stream = service.columns.template_stream
    fitting = []
    for template in TEMPLATES.values():
        with suppress(QueryError):  # it needs locations or objects that the stream lacks
            fitting.append(asdict(template.on(stream)))
    return fitting


T = TypeVar("T")
_ANSWER = TypeAdapter(schemas.SubscriptionAnswer)


def target_routes(service: Service) -> APIRouter:
    """Adds /targets and those of a subscription."""
    routes = APIRouter(tags=["targets"])

    async def own(id: int, access: Principal) -> target_store.Target:
        return await service.look(lambda db: target_store.get_target(db, id, access.user))

    async def shown(id: int, access: Principal, *, secrets: bool = False) -> TargetState:
        def find(db: Connection) -> TargetState:
            subscription = target_store.get_target(db, id, access.user).subscription
            states = list_target_answers(db, access.user, subscription, secrets=secrets)
            return next(state for state in states if state.id == id)

        return await service.look(find)

    async def change(id: int, access: Principal, action: str, work: Callable[..., T], *values: object) -> T:
        """Changes a target and records it in one transaction, then wakes the dispatcher."""

        def do(db: Connection) -> tuple[int, T]:
            target = target_store.get_target(db, id, access.user)
            journal.record_action(db, access.user, action, f"target {id}", target.kind)
            return target.subscription, work(db, id, *values, now=time.time())

        subscription, result = await service.do(do)
        service.dispatcher.wake({subscription})
        return result

    @routes.get("/subscriptions/{id}/targets", response_model=schemas.Items[TargetState])
    async def list_targets(id: Id, access: ReadAccess) -> dict[str, Any]:
        """Lists the targets of a subscription."""
        await service.subscription(id, user=access.user)
        return {"items": await service.look(lambda db: target_store.list_target_states(db, access.user, id))}

    @routes.post("/subscriptions/{id}/targets", status_code=201, response_model=TargetState)
    async def add(id: Id, form: schemas.TargetForm, access: SubscribeAccess) -> TargetState:
        """Adds a target for the later notifications of a subscription."""
        target = await service.add_target(id, form.kind, form.config, user=access.user, trusted=access.may(ADMIN))
        return await shown(target, access, secrets=True)

    @routes.delete("/targets/{id}", status_code=204)
    async def remove(id: Id, access: SubscribeAccess) -> None:
        """Deletes a target."""
        await change(id, access, "remove target", lambda db, _, **__: target_store.remove_target(db, id))

    @routes.post("/targets/{id}/rotate", response_model=TargetState)
    async def rotate(id: Id, form: schemas.RotateForm, access: SubscribeAccess) -> TargetState:
        """Creates a new secret for a webhook; the previous one stays valid for a while."""
        if (await own(id, access)).kind != "webhook":
            raise ConflictError(f"target {id} is not a webhook, and has no secret")
        secret = await change(id, access, "rotate secret", rotate_secret, form.keep)
        return replace(await shown(id, access), secret=secret)

    @routes.post("/targets/{id}/on", response_model=TargetState)
    async def on(id: Id, access: SubscribeAccess) -> TargetState:
        """Retries a target immediately, whether it was switched off or failing."""
        await change(id, access, "switch on", target_store.switch_on)
        return await shown(id, access)

    @routes.post("/targets/{id}/off", response_model=TargetState)
    async def off(id: Id, access: SubscribeAccess) -> TargetState:
        """Stops deliveries to a target until it is switched on; pending notifications wait."""
        await change(id, access, "switch off", target_store.switch_off, "switched off by the user")
        return await shown(id, access)

    @routes.post("/targets/{id}/redeliver", response_model=dict[str, list[int]])
    async def redeliver(id: Id, form: schemas.RedeliverForm, access: SubscribeAccess) -> dict[str, Any]:
        """Sends notifications again: those of these numbers, or all dead letters."""
        numbers = await change(id, access, "redeliver", target_store.redeliver, form.numbers)
        return {"numbers": list(numbers)}

    @routes.get("/targets/{id}/dead", response_model=schemas.Items[target_store.DeadLetter])
    async def dead(id: Id, access: ReadAccess, after: After = 0, limit: Page = 100) -> dict[str, Any]:
        """Lists the dead letters of a target."""
        await own(id, access)
        return {
            "items": await service.look(lambda db: target_store.list_dead_letters(db, id, after=after, limit=limit))
        }

    return routes


def list_target_answers(db: Connection, user: int, subscription: int, *, secrets: bool) -> list[TargetState]:
    """Returns the targets of a subscription; with `secrets`, which are shown once, when they are created."""
    states = target_store.list_target_states(db, user, subscription)
    if not secrets:
        return states
    return [replace(each, secret=_secrets(db, each.id)[0].text if each.kind == "webhook" else None) for each in states]


def rotate_secret(db: Connection, id: int, keep: float, *, now: float) -> str:
    """Gives a webhook a new secret; the previous one stays valid for `keep` seconds."""
    fresh = new_secret()
    secrets = rotate_secrets(_secrets(db, id), fresh, now, keep)
    target_store.change_secrets(db, id, encode_secrets(secrets), now=now)
    return fresh


def _secrets(db: Connection, id: int) -> tuple[SigningSecret, ...]:
    return decode_secrets(json.loads(target_store.get_target(db, id).secrets))


def trial_routes(service: Service, turns: QuerySlots) -> APIRouter:
    """Adds /check and /trial."""
    routes = APIRouter(tags=["before subscribing"])

    @routes.post("/check", response_model=schemas.CheckAnswer)
    async def check(form: schemas.QueryForm, access: ReadAccess) -> dict[str, Any]:
        """Checks a subscription; the problem of an invalid one has the position of the error."""
        warnings = await service.check(**form_arguments(form), user=access.user)
        return {"ok": True, "warnings": warnings}

    @routes.post("/trial", response_model=schemas.TrialAnswer)
    async def trial(form: schemas.TrialForm, access: ReadAccess) -> Response:
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
        return schemas.join_bodies(fields, "matches", result.matches)

    return routes


def form_arguments(form: schemas.QueryForm) -> dict[str, Any]:
    regions = None if form.regions is None else parse_regions(form.regions)
    return {**form.model_dump(include={"text", "template", "values", "language"}), "regions": regions}


State = Literal["active", "paused", "ended"]
KEY = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="chosen by the client; a repeated request gets the first answer"),
]


def subscription_routes(service: Service, turns: QuerySlots) -> APIRouter:
    """Adds /subscriptions."""
    routes = APIRouter(tags=["subscriptions"])

    async def shown(subscription: UserSubscription) -> schemas.SubscriptionAnswer:
        return (await service.look(lambda db: _describe_subscriptions(db, [subscription])))[0]

    async def build(form: schemas.SubscriptionForm, access: Principal) -> SubscriptionRequest:
        arguments = form.model_dump(include={"name", "expires", "quiet", "targets"}) | form_arguments(form)
        return await service.build_request(**arguments, user=access.user, trusted=access.may(ADMIN))

    def encode(db: Connection, created: Sequence[UserSubscription]) -> list[bytes]:
        return [_ANSWER.dump_json(each) for each in _describe_subscriptions(db, created, secrets=True)]

    @routes.post("/subscriptions", status_code=201, response_model=schemas.SubscriptionAnswer)
    async def subscribe(
        form: schemas.SubscriptionForm, access: SubscribeAccess, request: Request, key: KEY = None
    ) -> Response:
        """Creates a subscription from a text or a template; it sees all later events."""
        digest = journal.compute_digest(b"subscribe", await request.body())
        wanted, catalog = await build(form, access), service.core.catalog

        def create(db: Connection) -> str:
            return encode(db, [catalog.subscribe(db, wanted)])[0].decode()

        body = await service.do(lambda db: journal.answer_once(db, access.user, key, digest, partial(create, db)))
        where = {"location": f"/api/v1/subscriptions/{orjson.loads(body)['id']}"}
        return Response(body, 201, headers=where, media_type=schemas.MEDIA)

    @routes.post("/subscriptions/bulk", response_model=schemas.BulkAnswer)
    async def subscribe_each(
        form: schemas.BulkForm, access: SubscribeAccess, request: Request, key: KEY = None
    ) -> Response:
        """Creates many subscriptions in one transaction, skipping invalid ones.

        The answer has a subscription or a problem for each.
        """
        digest = journal.compute_digest(b"bulk", await request.body())
        several: list[SubscriptionRequest | Exception] = []
        for item in form.items:
            try:
                several.append(await build(schemas.SubscriptionForm.model_validate(item), access))
            except ValidationError as error:
                several.append(RequestValidationError(error.errors()))
            except EnsueError as error:
                several.append(error)

        def create(db: Connection) -> str:
            outcomes = service.core.catalog.subscribe_each(db, access.user, several)
            created = [each for each in outcomes if isinstance(each, UserSubscription)]
            views = iter(encode(db, created))
            items = [
                b'{"problem":%b}' % orjson.dumps(describe_problem(each).content)
                if isinstance(each, Exception)
                else b'{"subscription":%b}' % next(views)
                for each in outcomes
            ]
            fields = {"made": len(created), "refused": len(outcomes) - len(created)}
            return bytes(schemas.join_bodies(fields, "items", items).body).decode()

        body = await service.do(lambda db: journal.answer_once(db, access.user, key, digest, partial(create, db)))
        return Response(body, media_type=schemas.MEDIA)

    @routes.get("/subscriptions", response_model=schemas.ItemPage[schemas.SubscriptionAnswer])
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

    @routes.get("/subscriptions/{id}", response_model=schemas.SubscriptionAnswer)
    async def subscription(id: Id, access: ReadAccess) -> schemas.SubscriptionAnswer:
        """Returns a subscription with its counters."""
        return await shown(await service.subscription(id, user=access.user))

    @routes.patch("/subscriptions/{id}", response_model=schemas.SubscriptionAnswer)
    async def change(id: Id, form: schemas.ChangeForm, access: SubscribeAccess) -> schemas.SubscriptionAnswer:
        """Changes a subscription; a new text or new regions discard its partial matches."""
        changes = form.model_dump(exclude_unset=True)
        if form.regions is not None:
            changes["regions"] = parse_regions(form.regions)
        for name in ("text", "template", "values", "regions", "name"):
            if changes.get(name, "") is None:
                del changes[name]  # null means unchanged
        return await shown(await service.change(id, **changes, user=access.user))

    @routes.delete("/subscriptions/{id}", response_model=schemas.SubscriptionAnswer)
    async def cancel(id: Id, access: SubscribeAccess) -> schemas.SubscriptionAnswer:
        """Ends a subscription; its notifications stay until their retention ends."""
        return await shown(await service.cancel(id, user=access.user))

    @routes.post("/subscriptions/{id}/pause", response_model=schemas.SubscriptionAnswer)
    async def pause(id: Id, access: SubscribeAccess) -> schemas.SubscriptionAnswer:
        """Pauses a subscription and discards its partial matches."""
        return await shown(await service.pause(id, user=access.user))

    @routes.post("/subscriptions/{id}/resume", response_model=schemas.SubscriptionAnswer)
    async def resume(id: Id, access: SubscribeAccess) -> schemas.SubscriptionAnswer:
        """Resumes a paused subscription, starting with the next events."""
        return await shown(await service.resume(id, user=access.user))

    @routes.get("/subscriptions/{id}/notes", response_model=schemas.NotificationPage)
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
            return schemas.encode_json(await service.why_not(id, user=access.user))

    return routes


def _describe_subscriptions(
    db: Connection, subscriptions: Sequence[UserSubscription], *, secrets: bool = False
) -> list[schemas.SubscriptionAnswer]:
    return [
        schemas.SubscriptionAnswer(
            **{field.name: getattr(each, field.name) for field in fields(each)},
            counters=read_counters(db, each.id),
            targets=list_target_answers(db, each.user, each.id, secrets=secrets),
        )
        for each in subscriptions
    ]
