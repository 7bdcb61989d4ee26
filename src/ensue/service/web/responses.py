"""JSON responses, with their models for the OpenAPI description."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response


class JsonModel(BaseModel):
    """A JSON object; later releases may add fields."""

    model_config = ConfigDict(extra="allow")


class ProblemAnswer(JsonModel):
    """Why a request was rejected (RFC 9457)."""

    type: str = Field(examples=["urn:ensue:query"])
    title: str
    status: int
    detail: str
    hint: str | None = Field(None, description="how to fix it")
    text: str | None = Field(None, description="the query")
    line: int | None = Field(None, description="line in the query, starting at 1")
    column: int | None = Field(None, description="column in that line, starting at 1")
    start: int | None = Field(None, description="index of the first character of the error")
    end: int | None = Field(None, description="index after the last character of the error")
    limit: str | None = Field(None, description="name of the exceeded limit")
    number: str | None = Field(None, description="number of the error in the log")


class MeAnswer(JsonModel):
    """The authenticated user."""

    id: int
    user: str
    scopes: list[str]
    open: bool = Field(description="there is no token yet: every local client has full access")
    quotas: dict[str, Any]
    used: dict[str, int]


class StreamAnswer(JsonModel):
    """The description of the events."""

    columns: dict[str, str]
    time: str | list[str]
    type: str | None
    order: list[str]
    location: str | list[str] | None
    space: str
    key: str | None
    watermark: str | float | None
    idle: float | None


class TargetAnswer(JsonModel):
    """A destination of notifications."""

    id: int
    subscription: int
    kind: str
    config: dict[str, Any] = Field(description="without its secrets")
    state: str = Field(description="on, failing or off")
    reason: str | None
    delivered: int
    failures: int = Field(description="consecutive failures")
    behind: int = Field(description="notifications not sent yet")
    waiting: int = Field(description="failed notifications that are retried")
    dead: int
    next_at: str | None
    created: str
    secret: str | None = Field(None, description="for verifying the signatures of a webhook; shown only once")


class SubscriptionAnswer(JsonModel):
    """A subscription."""

    id: int
    name: str
    user: int
    text: str
    language: str | None
    template: str | None
    values: dict[str, Any]
    regions: dict[str, str]
    state: str = Field(description="active, paused or ended")
    reason: str | None = Field(description="why it was paused or has ended")
    created: str
    changed: str
    started: dict[str, Any] | None = Field(description="time of the stream, and of the clock")
    expires: str | None
    quiet: float | None
    warnings: list[str]
    counters: dict[str, int]
    targets: list[TargetAnswer]


class BulkItem(JsonModel):
    """The outcome for one of several subscriptions: either field is set."""

    subscription: SubscriptionAnswer | None = None
    problem: ProblemAnswer | None = Field(None, description="why it was not created")


class BulkAnswer(JsonModel):
    """The outcome for several subscriptions."""

    made: int
    refused: int
    items: list[BulkItem] = Field(description="in the order of the request")


class SubscriptionPage(JsonModel):
    """A page of subscriptions."""

    items: list[SubscriptionAnswer]
    next: int | None = Field(description="`after` of the next page; null: this is the last")


class NotificationPage(JsonModel):
    """A page of notifications."""

    items: list[dict[str, Any]] = Field(description="number, time and body of each notification")
    next: int = Field(description="`after` of the next page")
    resync: bool | None = Field(None, description="notifications after `after` have expired")


class CheckAnswer(JsonModel):
    """The text is a valid subscription."""

    ok: bool
    warnings: list[str]


class TrialAnswer(JsonModel):
    """How often a subscription would have matched stored events."""

    count: int
    by_object: dict[str, int]
    bars: list[int] = Field(description="matches in equal intervals from `from` to `to`")
    events: int
    from_: str | float | None = Field(alias="from")
    to: str | float | None
    seconds: float
    cut: str | None = Field(description="why only a part of the events was used")
    matches: list[dict[str, Any]] = Field(description="newest first")


class FilledAnswer(JsonModel):
    """The text of a template with values, which can be edited."""

    text: str
    quiet: float | None
    title: str


class RegionAnswer(JsonModel):
    """A region."""

    name: str
    text: str
    geometry: dict[str, Any] = Field(description="GeoJSON; the center of a circle")
    radius: float | None = Field(description="of a circle")
    corners: int
    shared: bool = Field(description="defined by the service, read-only")


class RegionsAnswer(JsonModel):
    """The regions of a user, and those of the service."""

    items: list[RegionAnswer]


class ChangedRegionAnswer(RegionAnswer):
    """A region with its new shape."""

    subscriptions: list[int] = Field(description="restarted with the new shape")


class ImportAnswer(JsonModel):
    """The outcome of an import, by feature."""

    added: list[str]
    refused: list[dict[str, Any]]


class PublishedAnswer(JsonModel):
    """The outcome of publishing; the events are committed."""

    accepted: int
    repeated: int = Field(description="duplicates, by producer and sequence")
    bad: int = Field(description="rejected events, see /events/bad")
    late: int = Field(description="events behind the watermark")
    position: int


class ListAnswer(JsonModel):
    """A list."""

    items: list[dict[str, Any]]


class AuditPage(JsonModel):
    """A page of entries, newest first."""

    items: list[dict[str, Any]]
    next: int | None = Field(description="`before` of the next page; null: this is the last")


class TokenAnswer(JsonModel):
    """A new token."""

    id: int
    token: str = Field(description="shown only once")
    scopes: list[str]
    expires: str | None


MEDIA = "application/json"
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_SERIALIZE_NUMPY


def encode_json(content: Any) -> Response:
    """Encodes values of events as JSON; NaN becomes null.

    >>> encode_json({"x": float("nan"), 7: [1.5]}).body
    b'{"x":null,"7":[1.5]}'
    """
    return Response(orjson.dumps(content, default=str, option=_OPTIONS), media_type=MEDIA)


def join_bodies(fields: Mapping[str, Any], name: str, bodies: Iterable[bytes]) -> Response:
    """Builds a JSON object from fields and a list of encoded objects.

    >>> join_bodies({"next": 7}, "items", [b'{"a":1}', b'{"a":2}']).body
    b'{"next":7,"items":[{"a":1},{"a":2}]}'
    """
    head = orjson.dumps(fields, option=_OPTIONS)[:-1] + (b"," if fields else b"")
    body = b'%b"%b":[%b]}' % (head, name.encode(), b",".join(bodies))
    return Response(body, media_type=MEDIA)
