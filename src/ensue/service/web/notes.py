"""Notes over HTTP, to be asked for."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from ensue.service.columns import iso
from ensue.service.listening import Kept, Read
from ensue.service.notes import MATCH, Note
from ensue.service.service import Service
from ensue.service.web.answers import NotePage
from ensue.service.web.bodies import json_answer, with_bodies
from ensue.service.web.permission import Reader
from ensue.service.web.turns import Turns

MOST = 1_000
_GREATEST = 1 << 62
After = Annotated[int, Query(ge=0, lt=_GREATEST, description="what comes behind this number")]
Page = Annotated[int, Query(ge=1, le=MOST, description="at most so many")]
Number = Annotated[int, Path(ge=0, lt=_GREATEST)]


def note_routes(service: Service, turns: Turns) -> APIRouter:
    """Adds /notifications, to be asked for, and /notes."""
    routes = APIRouter(tags=["notifications"])

    @routes.get("/notifications", response_model=NotePage)
    async def notifications(
        access: Reader,
        after: Annotated[
            int | None, Query(ge=0, lt=_GREATEST, description="none: from the oldest on")
        ] = None,
        limit: Page = 100,
        subscription: Annotated[int | None, Query(ge=0, lt=_GREATEST)] = None,
    ) -> Response:
        """Notes behind a number, to be asked for again with `next`."""
        if subscription is not None:
            await service.subscription(subscription, user=access.user)
        return await page_of(service.reading(access.user, subscription), after, limit)

    @routes.get("/notes/{number}", response_model=dict[str, Any])
    async def note(number: Number, access: Reader) -> Response:
        """A note, and where its objects were around it: what a map needs to replay it."""
        async with turns.one(access.user):
            found = await service.replay(number, user=access.user)
        return json_answer({**found, "at": shown_moment(found["at"])})

    return routes


def shown_moment(at: Any) -> Any:
    """Seconds since 1970 as all other moments are shown."""
    return iso(at) if isinstance(at, float) else at


async def page_of(read: Read, after: int | None, limit: int) -> Response:
    """Notes behind a number. If some of them are gone the answer says so once."""
    asked = 0 if after is None else after
    kept: Kept = await read(asked, limit)
    lost = after is not None and not kept.floor <= after <= kept.newest
    if asked > kept.newest:  # the token is of another file: all there is comes
        kept = await read(kept.floor, limit)
    full = len(kept.notes) == limit
    next = kept.notes[-1].number if full else kept.newest
    fields: dict[str, Any] = {"next": next, **({"resync": True} if lost else {})}
    return with_bodies(fields, "items", map(_numbered, kept.notes))


def _numbered(note: Note) -> bytes:
    """The body, with the number, and when the note was made if the body does not say so."""
    if note.kind != MATCH:
        return b'{"number":%d,%b' % (note.number, note.body[1:])
    return b'{"number":%d,"at":"%b",%b' % (note.number, iso(note.at).encode(), note.body[1:])
