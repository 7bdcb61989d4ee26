"""JSON bodies of requests and responses, with their validation and OpenAPI description."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

import orjson
from fastapi import Path, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from starlette.responses import Response

from ensue.errors import QueryError, ServiceError, Span
from ensue.service.event_columns import format_time
from ensue.service.store.target_store import TargetState
from ensue.service.store.user_store import SCOPES
from ensue.service.subscription_catalog import UserSubscription


def _assume_utc(moment: datetime) -> datetime:
    """Interprets a time without a zone as UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


# A time, or seconds from now. Strict: strings are not parsed as numbers.
Moment = Annotated[float, Field(strict=True, ge=0)] | Annotated[datetime, AfterValidator(_assume_utc)]
Seconds = Annotated[float, Field(strict=True, ge=0)]
Text = Annotated[str, Field(max_length=100_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
T = TypeVar("T")

_IMPORT = re.compile(r"""IMPORT\s*['"]""", re.IGNORECASE)  # as ensue.parser.definitions reads it
_LEFT = "=|(@(Depot)(A); 25)(DIST(Depot; >; 20)(A)), A = (ARITH:id = 17)"
_DEPOT = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"


class RequestForm(BaseModel):
    """A JSON object with exactly these fields."""

    model_config = ConfigDict(extra="forbid")


class TargetForm(RequestForm):
    """A destination of a subscription's notifications."""

    kind: str = Field(description="webhook, kafka, mqtt or nats", examples=["webhook"])
    config: dict[str, Any] = Field(
        default_factory=dict, description="address and credentials", examples=[{"url": "https://example.org/hook"}]
    )


class QueryForm(RequestForm):
    """A text, or a template with values."""

    text: Text | None = Field(None, description="in OPSL, or in the pattern language", examples=[_LEFT])
    template: str | None = Field(None, description="name of a template, instead of a text")
    values: dict[str, Any] | None = Field(None, description="values of the template's parameters")
    regions: dict[str, Any] | None = Field(
        None,
        description="regions that the text names, besides the stored ones: WKT, CIRCLE or GeoJSON",
        examples=[{"Depot": _DEPOT}],
    )
    language: str | None = Field(None, description="opsl or patterns; detected by default")

    @model_validator(mode="after")
    def _require_one(self) -> "QueryForm":
        if self.text is not None and self.template is not None:
            raise ValueError("a text or a template, not both")
        if self.text is not None:
            _refuse_imports(self.text)
        return self


class SubscriptionForm(QueryForm):
    """A new subscription."""

    name: Name | None = Field(None, examples=["left the depot"])
    expires: Moment | None = Field(None, description="a time, or seconds from now")
    quiet: Seconds | None = Field(None, description="seconds (event time) without further matches of the same object")
    targets: list[TargetForm] = Field(default_factory=list, max_length=100)


class BulkForm(RequestForm):
    """New subscriptions, created in one transaction."""

    items: list[dict[str, Any]] = Field(
        max_length=1_000,
        description="each like the body of POST /subscriptions",
        json_schema_extra={"items": {"$ref": "#/components/schemas/SubscriptionForm"}},
    )


class ChangeForm(QueryForm):
    """Changes of a subscription; absent fields stay unchanged."""

    name: Name | None = None
    expires: Moment | None = Field(None, description="null: never")
    quiet: Seconds | None = Field(None, description="null: no quiet period")


class TrialForm(QueryForm):
    """A subscription to try on stored events."""

    since: float | str | None = Field(None, description="start at this event time")


class ValuesForm(RequestForm):
    """Values of template parameters."""

    values: dict[str, Any] = Field(default_factory=dict)


class RegionForm(RequestForm):
    """A region as text or GeoJSON."""

    text: Annotated[str, Field(max_length=1_000_000)] | None = Field(
        None, description="WKT, or CIRCLE (x y, radius)", examples=[_DEPOT]
    )
    geojson: dict[str, Any] | None = Field(None, description="a geometry or a feature")

    @model_validator(mode="after")
    def _require_one(self) -> "RegionForm":
        if (self.text is None) == (self.geojson is None):
            raise ValueError("a region needs either a text or GeoJSON")
        return self


class NewRegionForm(RegionForm):
    """A new region."""

    name: Name = Field(examples=["Depot"])


class ChangedRegionForm(RegionForm):
    """A new shape of a region."""

    apply: bool = Field(False, description="restart the subscriptions that use the old shape")


class FeaturesForm(BaseModel):
    """A GeoJSON FeatureCollection; the property `name` is the name of a region."""

    model_config = ConfigDict(extra="ignore")

    type: str = Field(pattern="^FeatureCollection$")
    features: list[dict[str, Any]] = Field(max_length=10_000)


class RotateForm(RequestForm):
    """How long the previous secret stays valid."""

    keep: Seconds = Field(86_400.0, description="seconds")


class RedeliverForm(RequestForm):
    """Which notifications are sent again."""

    numbers: list[int] | None = Field(None, description="null: all dead letters", max_length=100_000)


class UserForm(RequestForm):
    """A new user."""

    name: Name = Field(examples=["dispatch"])
    quotas: dict[str, float] = Field(
        default_factory=dict,
        description="overrides of the service's limits",
        examples=[{"subscriptions_per_user": 100}],
    )


class ChangedUserForm(RequestForm):
    """Changes of a user."""

    quotas: dict[str, float] | None = None
    off: bool | None = None


class TokenForm(RequestForm):
    """A new token."""

    label: Annotated[str, Field(max_length=200)] = ""
    scopes: list[str] = Field(description=", ".join(SCOPES), examples=[["read", "subscribe"]])
    expires: Moment | None = Field(None, description="a time, or seconds from now; null: the longest allowed time")


def _refuse_imports(text: str) -> None:
    """Rejects imports, which would read files of the server."""
    match = _IMPORT.search(text)
    if match is not None:
        raise QueryError(
            "a subscription cannot import files",
            hint="copy the contents of the file",
            span=Span(*match.span()),
            text=text,
        )


def seconds_until(moment: Moment | None, now: float) -> float | None:
    """Converts a time to seconds from now."""
    if moment is None or isinstance(moment, float | int):
        return moment
    left = moment.timestamp() - now
    if left <= 0:
        raise ServiceError(f"{moment.isoformat()} is in the past")
    return left


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


class Items(JsonModel, Generic[T]):
    """A list."""

    items: list[T]


ListAnswer = Items[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionAnswer(UserSubscription):
    """A subscription with its counters and targets."""

    counters: dict[str, int]
    targets: list[TargetState]


class BulkItem(JsonModel):
    """The outcome for one of several subscriptions: either field is set."""

    subscription: SubscriptionAnswer | None = None
    problem: ProblemAnswer | None = Field(None, description="why it was not created")


class BulkAnswer(JsonModel):
    """The outcome for several subscriptions."""

    made: int
    refused: int
    items: list[BulkItem] = Field(description="in the order of the request")


class ItemPage(Items[T], Generic[T]):
    """A page of a list."""

    next: int | None = Field(
        description="`after`, or `before` in lists by age, of the next page; null: this is the last"
    )


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


class RegionAnswer(JsonModel):
    """A region."""

    name: str
    text: str
    geometry: dict[str, Any] = Field(description="GeoJSON; the center of a circle")
    radius: float | None = Field(description="of a circle")
    corners: int
    shared: bool = Field(description="defined by the service, read-only")
    subscriptions: list[int] = Field([], description="restarted with a new shape")


class ImportAnswer(JsonModel):
    """The outcome of an import, by feature."""

    added: list[str]
    refused: list[dict[str, Any]]


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


# -------------------------------------------------------------------------------- parameters

MAX_PAGE_SIZE = 1_000
GREATEST = 1 << 62
Id = Annotated[int, Path(ge=0, lt=1 << 63)]
Number = Annotated[int, Path(ge=0, lt=GREATEST)]
After = Annotated[int, Query(ge=0, lt=GREATEST, description="start after this number")]
Page = Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE, description="maximum number of items")]


def format_epoch(at: Any) -> Any:
    return format_time(at) if isinstance(at, int | float) else at
