"""Errors as application/problem+json: what is wrong, where, and what may help."""

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ensue.errors import (
    EnsueError,
    EventError,
    LimitError,
    OperatorError,
    QueryError,
    RunnerError,
    ServiceError,
    StateError,
)
from ensue.service.refusals import (
    ConflictError,
    IntakeStoppedError,
    NoRoomError,
    NotAllowedError,
    NotFoundError,
    OverLimitError,
    UnauthenticatedError,
)

_LOG = logging.getLogger(__name__)
MEDIA = "application/problem+json"
_RETRY = 5  # seconds that a client waits before it tries again
_HINT = "\n  hint: "
_INVALID = "the request is not of the form that is required"

# Limits that are about the moment: later it may be all right. Of requests that are too large
# a smaller one is. Of what a user may have, one has to go first.
_MOMENTARY = {"connections", "connections_per_user", "notes_per_minute", "turns", "waiting"}
_LARGE = {"body_bytes", "events_per_request"}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as a client sees it."""

    status: int
    kind: str  # the last word of its type
    title: str
    detail: str
    more: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> dict[str, Any]:
        """The JSON object."""
        detail, _, hint = self.detail.partition(_HINT)
        return {
            "type": f"urn:ensue:{self.kind}",
            "title": self.title,
            "status": self.status,
            "detail": detail,
            **({"hint": hint} if hint else {}),
            **self.more,
        }

    def response(self) -> Response:
        """The answer to a request."""
        return Response(
            orjson.dumps(self.content), self.status, headers=dict(self.headers), media_type=MEDIA
        )


class BodyTooLargeError(HTTPException):
    """More was sent than may be. An HTTPException, because FastAPI lets no other one through."""

    def __init__(self, most: int) -> None:
        super().__init__(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        self.most = most


def problem_of(error: Exception) -> Problem:
    """An error in the words of HTTP. What nobody foresaw is logged, and told by its number."""
    match error:
        case QueryError():
            return _query(error)
        case OverLimitError(limit=limit):
            return _over(limit, str(error))
        case BodyTooLargeError(most=most):
            said = f"the body of a request has at most {most:,} bytes"
            return _over("body_bytes", f"{said}{_HINT}send it in several requests", close=True)
        case UnauthenticatedError():
            headers = {"www-authenticate": "Bearer"}
            return Problem(401, "unauthenticated", "Who are you?", str(error), headers=headers)
        case NotAllowedError():
            return Problem(403, "not-allowed", "Not allowed", str(error))
        case NotFoundError():
            return Problem(404, "not-found", "Not found", str(error))
        case ConflictError():
            return Problem(409, "conflict", "Conflict", str(error))
        case IntakeStoppedError():
            headers = {"retry-after": str(_RETRY)}
            title = "No events are taken at the moment"
            status = 507 if isinstance(error, NoRoomError) else 503
            return Problem(status, "intake-stopped", title, str(error), headers=headers)
        case EventError():
            return Problem(422, "events", "The events cannot be read", str(error))
        case LimitError() | OperatorError():
            return Problem(422, "query", "The query cannot be run", str(error))
        case RunnerError():
            return Problem(503, "not-there", "What this needs is not there", str(error))
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return _http(error)
        case StateError():
            return _unforeseen(error)
        case ServiceError() | EnsueError():
            return Problem(422, "refused", "This cannot be done", str(error))
        case _:
            return _unforeseen(error)


def _query(error: QueryError) -> Problem:
    more: dict[str, Any] = {}
    if error.span is not None and error.text is not None:
        text, start = error.text, min(error.span.start, len(error.text))
        begin = text.rfind("\n", 0, start) + 1
        more = {
            "text": text,
            "line": text.count("\n", 0, start) + 1,
            "column": start - begin + 1,
            "start": start,
            "end": max(start, min(error.span.end, len(text))),
        }
    elif error.text is not None:
        more = {"text": error.text}
    if error.hint:
        more["hint"] = error.hint
    return Problem(422, "query", "The query cannot be run", error.problem, more)


def _over(limit: str, said: str, *, close: bool = False) -> Problem:
    headers = {"connection": "close"} if close else {}
    if limit in _MOMENTARY:
        headers["retry-after"] = str(_RETRY)
        status = 429
    else:
        status = 413 if limit in _LARGE else 403
    return Problem(status, "over-limit", "Over a limit", said, {"limit": limit}, headers)


def _invalid(error: RequestValidationError) -> Problem:
    found = error.errors()
    if any(one["type"] == "json_invalid" for one in found):
        place = next(one for one in found if one["type"] == "json_invalid")
        why = place.get("ctx", {}).get("error", "")
        detail = f"the body is no JSON: {why}, at character {place['loc'][-1]}"
        return Problem(400, "no-json", "The body is no JSON", detail)
    errors = [
        {"where": ".".join(map(str, one["loc"])), "detail": str(one["msg"])} for one in found
    ]
    said = "; ".join(f"{one['where']}: {one['detail']}" for one in errors[:3])
    more = {"errors": errors}
    return Problem(422, "invalid", "The request is not valid here", f"{_INVALID}: {said}", more)


def _http(error: HTTPException) -> Problem:
    phrase = HTTPStatus(error.status_code).phrase
    kind = phrase.lower().replace(" ", "-")
    detail = {
        404: f"there is nothing here{_HINT}GET /api/v1/openapi.json lists what there is",
        405: "this can be asked for, but not in this way",
    }.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    return Problem(error.status_code, kind, phrase.capitalize(), detail, headers=headers)


def _unforeseen(error: Exception) -> Problem:
    number = secrets.token_hex(6)
    _LOG.error("request failed, number %s", number, exc_info=error)
    detail = f"the service failed, and its log says why under {number}"
    return Problem(500, "failed", "The service failed", detail, {"number": number})
