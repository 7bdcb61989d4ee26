"""What the service answers as JSON, for the description of the API."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """A JSON object; later releases may add fields."""

    model_config = ConfigDict(extra="allow")


class ProblemAnswer(Answer):
    """Why something was not done (RFC 9457)."""

    type: str = Field(examples=["urn:ensue:query"])
    title: str
    status: int
    detail: str
    hint: str | None = Field(None, description="what may help")
    text: str | None = Field(None, description="the query")
    line: int | None = Field(None, description="in the query, from 1 on")
    column: int | None = Field(None, description="in that line, from 1 on")
    start: int | None = Field(None, description="the first character that is meant, from 0 on")
    end: int | None = Field(None, description="the character behind the last one that is meant")
    limit: str | None = Field(None, description="the limit that is exceeded, by name")
    number: str | None = Field(None, description="under which the log says more")


class Me(Answer):
    """Who asks, and how far that reaches."""

    id: int
    user: str
    scopes: list[str]
    open: bool = Field(description="there is no token yet: everybody on this machine may all")
    quotas: dict[str, Any]
    used: dict[str, int]


class StreamAnswer(Answer):
    """What the events look like."""

    columns: dict[str, str]
    time: str | list[str]
    type: str | None
    order: list[str]
    location: str | list[str] | None
    space: str
    key: str | None
    watermark: str | float | None
    idle: float | None


class TargetAnswer(Answer):
    """A place where notifications go."""

    id: int
    subscription: int
    kind: str
    config: dict[str, Any] = Field(description="without its secrets")
    state: str = Field(description="on, failing or off")
    reason: str | None
    delivered: int
    failures: int = Field(description="in a row")
    behind: int = Field(description="notes that were not tried yet")
    waiting: int = Field(description="notes that failed and are tried again")
    dead: int
    next_at: str | None
    created: str
    secret: str | None = Field(
        None, description="of a webhook, for checking signatures: shown only now"
    )


class SubscriptionAnswer(Answer):
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
    reason: str | None = Field(description="why it has ended")
    created: str
    changed: str
    started: dict[str, Any] | None = Field(description="moment of the stream, and when")
    expires: str | None
    quiet: float | None
    warnings: list[str]
    counters: dict[str, int]
    targets: list[TargetAnswer]


class BulkItem(Answer):
    """What became of one of several subscriptions: one of both is there."""

    subscription: SubscriptionAnswer | None = None
    problem: ProblemAnswer | None = Field(None, description="why it was not made")


class BulkAnswer(Answer):
    """What became of several subscriptions."""

    made: int
    refused: int
    items: list[BulkItem] = Field(description="in the order of the request")


class SubscriptionPage(Answer):
    """Some of the subscriptions."""

    items: list[SubscriptionAnswer]
    next: int | None = Field(description="as `after` it gives those behind; null: no more")


class NotePage(Answer):
    """Some notes."""

    items: list[dict[str, Any]] = Field(description="number, at, and the body of each note")
    next: int = Field(description="as `after` it gives what comes behind these")
    resync: bool | None = Field(
        None, description="notes behind `after` are gone: look elsewhere for what they said"
    )


class Checked(Answer):
    """The text is one that can be subscribed to."""

    ok: bool
    warnings: list[str]


class TrialAnswer(Answer):
    """How often a subscription would have fired."""

    count: int
    by_object: dict[str, int]
    bars: list[int] = Field(description="matches in equal steps from `from` to `to`")
    events: int
    from_: str | float | None = Field(alias="from")
    to: str | float | None
    seconds: float
    cut: str | None = Field(description="why not all events were looked at")
    matches: list[dict[str, Any]] = Field(description="the newest first")


class FilledAnswer(Answer):
    """A template with its values: a text that can be edited."""

    text: str
    quiet: float | None
    title: str


class RegionAnswer(Answer):
    """A region."""

    name: str
    text: str
    geometry: dict[str, Any] = Field(description="GeoJSON; the centre, if it is a circle")
    radius: float | None = Field(description="of a circle")
    corners: int
    shared: bool = Field(description="it belongs to the service and cannot be changed")


class RegionsAnswer(Answer):
    """The regions of a user, and those of the service."""

    items: list[RegionAnswer]


class ChangedRegion(RegionAnswer):
    """A region with its new shape."""

    subscriptions: list[int] = Field(description="that began anew with it")


class Imported(Answer):
    """What became of the features of a file."""

    added: list[str]
    refused: list[dict[str, Any]]


class PublishedAnswer(Answer):
    """What became of events. They are on disk."""

    accepted: int
    repeated: int = Field(description="that had come before, by producer and sequence")
    bad: int = Field(description="put aside: see /events/bad")
    late: int = Field(description="behind the watermark")
    position: int


class Items(Answer):
    """A list."""

    items: list[dict[str, Any]]


class AuditPage(Answer):
    """Entries of the audit log, the newest first."""

    items: list[dict[str, Any]]
    next: int | None = Field(description="as `before` it gives older ones; null: no more")


class TokenAnswer(Answer):
    """A token as it was made."""

    id: int
    token: str = Field(description="shown only now")
    scopes: list[str]
    expires: str | None
