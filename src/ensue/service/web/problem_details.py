"""Errors as application/problem+json (RFC 9457): what is wrong, where, and a hint."""

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

from ensue import errors
from ensue.service import errors as service_errors

_LOG = logging.getLogger(__name__)
PROBLEM_MEDIA = "application/problem+json"
_RETRY = 5  # seconds before a client should try again
_HINT = "\n  hint: "
_INVALID = "the request does not have the required form"

# Temporary limits, for which a retry helps; limits of a request's size, for which a smaller
# request helps. For all others, the user has to delete something first.
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
        return Response(orjson.dumps(self.content), self.status, headers=dict(self.headers), media_type=PROBLEM_MEDIA)


_NOT_NOW = {"retry-after": str(_RETRY)}
_STOPPED = "No events are accepted at the moment"
# The first kind that fits: status, the last word of the type, title, headers.
_KINDS: Mapping[type[Exception], tuple[int, str, str, Mapping[str, str]]] = {
    service_errors.UnauthenticatedError: (
        401, "unauthenticated", "Authentication required", {"www-authenticate": "Bearer"}
    ),
    service_errors.NotAllowedError: (403, "not-allowed", "Not allowed", {}),
    service_errors.NotFoundError: (404, "not-found", "Not found", {}),
    service_errors.ConflictError: (409, "conflict", "Conflict", {}),
    service_errors.NoRoomError: (507, "intake-stopped", _STOPPED, _NOT_NOW),
    service_errors.IntakeStoppedError: (503, "intake-stopped", _STOPPED, _NOT_NOW),
    errors.EventError: (422, "events", "The events cannot be read", {}),
    errors.LimitError: (422, "query", "The query cannot be run", {}),
    errors.OperatorError: (422, "query", "The query cannot be run", {}),
    errors.RunnerError: (503, "not-there", "A requirement is missing", {}),
    errors.EnsueError: (422, "refused", "The request was rejected", {}),
}  # fmt: skip


class BodyTooLargeError(HTTPException):
    """The body is too large; an HTTPException, because FastAPI handles no others here."""

    def __init__(self, most: int) -> None:
        super().__init__(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        self.most = most


def describe_problem(error: Exception) -> Problem:
    """Converts an error to a problem; unexpected errors are logged under a number."""
    match error:
        case errors.QueryError():
            return _query(error)
        case service_errors.OverLimitError(limit=limit):
            return _over(limit, str(error))
        case BodyTooLargeError(most=most):
            detail = f"the body of a request has at most {most:,} bytes"
            return _over("body_bytes", f"{detail}{_HINT}send it in several requests", close=True)
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return _http(error)
        case errors.EnsueError() if not isinstance(error, errors.StateError):
            kind = next(kind for kind in _KINDS if isinstance(error, kind))
            status, name, title, headers = _KINDS[kind]
            return Problem(status, name, title, str(error), headers=headers)
        case _:
            return _build_unexpected(error)


def _query(error: errors.QueryError) -> Problem:
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


def _over(limit: str, detail: str, *, close: bool = False) -> Problem:
    headers = {"connection": "close"} if close else {}
    if limit in _MOMENTARY:
        headers["retry-after"] = str(_RETRY)
        status = 429
    else:
        status = 413 if limit in _LARGE else 403
    return Problem(status, "over-limit", "Over a limit", detail, {"limit": limit}, headers)


def _invalid(error: RequestValidationError) -> Problem:
    problems = error.errors()
    syntax = next((each for each in problems if each["type"] == "json_invalid"), None)
    if syntax is not None:
        why = syntax.get("ctx", {}).get("error", "")
        detail = f"the body is not JSON: {why}, at character {syntax['loc'][-1]}"
        return Problem(400, "no-json", "The body is not JSON", detail)
    items = [{"where": ".".join(map(str, each["loc"])), "detail": str(each["msg"])} for each in problems]
    detail = "; ".join(f"{item['where']}: {item['detail']}" for item in items[:3])
    more = {"errors": items}
    return Problem(422, "invalid", "The request is invalid", f"{_INVALID}: {detail}", more)


def _http(error: HTTPException) -> Problem:
    phrase = HTTPStatus(error.status_code).phrase
    kind = phrase.lower().replace(" ", "-")
    detail = {
        404: f"there is nothing at this path{_HINT}GET /api/v1/openapi.json lists all paths",
        405: "this path does not support the method",
    }.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    return Problem(error.status_code, kind, phrase.capitalize(), detail, headers=headers)


def _build_unexpected(error: Exception) -> Problem:
    number = secrets.token_hex(6)
    _LOG.error("request failed, number %s", number, exc_info=error)
    detail = f"the service failed; see its log for number {number}"
    return Problem(500, "failed", "The service failed", detail, {"number": number})
