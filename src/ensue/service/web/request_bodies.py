"""JSON request bodies, with their validation."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ensue.errors import QueryError, ServiceError, Span
from ensue.service.access import SCOPES


def _assume_utc(moment: datetime) -> datetime:
    """Interprets a time without a zone as UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


# A time, or seconds from now. Strict: strings are not parsed as numbers.
Moment = Annotated[float, Field(strict=True, ge=0)] | Annotated[datetime, AfterValidator(_assume_utc)]
Seconds = Annotated[float, Field(strict=True, ge=0)]
Text = Annotated[str, Field(max_length=100_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]

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
