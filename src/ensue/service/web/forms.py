"""What is sent to the service as JSON."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ensue.errors import QueryError, ServiceError
from ensue.service.access import SCOPES
from ensue.span import Span

# A moment, or seconds from now. Strict: no text that looks like a number.
Moment = Annotated[float, Field(strict=True, ge=0)] | datetime
Seconds = Annotated[float, Field(strict=True, ge=0)]
Text = Annotated[str, Field(max_length=100_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]

_IMPORT = re.compile(r"""IMPORT\s*['"]""", re.IGNORECASE)  # as ensue.languages.towers reads it
_LEFT = "=|(@(Depot)(A); 25)(DIST(Depot; >; 20)(A)), A = (ARITH:id = 17)"
_DEPOT = "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))"


class Form(BaseModel):
    """A JSON object with these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class TargetForm(Form):
    """Where notifications of a subscription go, beside those who listen."""

    kind: str = Field(description="webhook, kafka, mqtt or nats", examples=["webhook"])
    config: dict[str, Any] = Field(
        default_factory=dict,
        description="how it is reached",
        examples=[{"url": "https://example.org/hook"}],
    )


class Asked(Form):
    """A text, or a template with values."""

    text: Text | None = Field(
        None, description="in OPSL, or in the pattern language", examples=[_LEFT]
    )
    template: str | None = Field(None, description="the name of a template, in place of a text")
    values: dict[str, Any] | None = Field(None, description="of the template's parameters")
    regions: dict[str, Any] | None = Field(
        None,
        description="that the text names, beside those that are kept: WKT, CIRCLE or GeoJSON",
        examples=[{"Depot": _DEPOT}],
    )
    language: str | None = Field(None, description="opsl or patterns, if it does not show")

    @model_validator(mode="after")
    def _one_of_them(self) -> "Asked":
        if self.text is not None and self.template is not None:
            raise ValueError("a text or a template, not both")
        if self.text is not None:
            _refuse_imports(self.text)
        return self


class SubscriptionForm(Asked):
    """A subscription to be made."""

    name: Name | None = Field(None, examples=["left the depot"])
    expires: Moment | None = Field(None, description="a moment, or seconds from now")
    quiet: Seconds | None = Field(
        None, description="seconds of the stream's time without a word about the same object"
    )
    targets: list[TargetForm] = Field(default_factory=list, max_length=100)


class BulkForm(Form):
    """Subscriptions to be made together."""

    items: list[dict[str, Any]] = Field(
        max_length=1_000,
        description="each as for POST /subscriptions",
        json_schema_extra={"items": {"$ref": "#/components/schemas/SubscriptionForm"}},
    )


class ChangeForm(Asked):
    """What is to be changed of a subscription; the rest stays."""

    name: Name | None = None
    expires: Moment | None = Field(None, description="null: never")
    quiet: Seconds | None = Field(None, description="null: never quiet")


class TrialForm(Asked):
    """A subscription to be tried over the events that are kept."""

    since: float | str | None = Field(None, description="from this time of the stream on")


class ValuesForm(Form):
    """Values of the parameters of a template."""

    values: dict[str, Any] = Field(default_factory=dict)


class RegionForm(Form):
    """A region: a text, or GeoJSON."""

    text: Annotated[str, Field(max_length=1_000_000)] | None = Field(
        None, description="WKT, or CIRCLE (x y, radius)", examples=[_DEPOT]
    )
    geojson: dict[str, Any] | None = Field(None, description="a geometry or a feature")

    @model_validator(mode="after")
    def _one_of_them(self) -> "RegionForm":
        if (self.text is None) == (self.geojson is None):
            raise ValueError("a region has a text, or GeoJSON")
        return self


class NewRegionForm(RegionForm):
    """A region to be kept."""

    name: Name = Field(examples=["Depot"])


class ChangedRegionForm(RegionForm):
    """Another shape of a region."""

    apply: bool = Field(
        False, description="subscriptions that were made with the old shape begin anew"
    )


class FeaturesForm(BaseModel):
    """A GeoJSON FeatureCollection. The property `name` names a region."""

    model_config = ConfigDict(extra="ignore")

    type: str = Field(pattern="^FeatureCollection$")
    features: list[dict[str, Any]] = Field(max_length=10_000)


class RotateForm(Form):
    """How long the secret before stays in force."""

    keep: Seconds = Field(86_400.0, description="seconds")


class RedeliverForm(Form):
    """Which notes are sent again."""

    numbers: list[int] | None = Field(
        None, description="null: all dead letters", max_length=100_000
    )


class UserForm(Form):
    """A user to be added."""

    name: Name = Field(examples=["dispatch"])
    quotas: dict[str, float] = Field(
        default_factory=dict,
        description="limits of this user in place of the service's",
        examples=[{"subscriptions_per_user": 100}],
    )


class ChangedUserForm(Form):
    """Other quotas, or off and on."""

    quotas: dict[str, float] | None = None
    off: bool | None = None


class TokenForm(Form):
    """A token to be made."""

    label: Annotated[str, Field(max_length=200)] = ""
    scopes: list[str] = Field(description=", ".join(SCOPES), examples=[["read", "subscribe"]])
    expires: Moment | None = Field(
        None, description="a moment, or seconds from now; null: as late as may be"
    )


def _refuse_imports(text: str) -> None:
    """Files are read where the query is, and that is the server: not for whoever asks it."""
    found = _IMPORT.search(text)
    if found is not None:
        raise QueryError(
            "a subscription imports no files",
            hint="write out what the file has",
            span=Span(*found.span()),
            text=text,
        )


def seconds_from(moment: Moment | None, now: float) -> float | None:
    """How long until a moment, if it is one; seconds as they are."""
    if moment is None or isinstance(moment, float | int):
        return moment
    left = aware(moment).timestamp() - now
    if left <= 0:
        raise ServiceError(f"{moment.isoformat()} is over already")
    return left


def aware(moment: datetime) -> datetime:
    """A moment without a zone is one of UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
