"""Subscriptions as users see and request them, and the result of publishing."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from sqlite3 import Row
from typing import Any

from ensue.service.event_columns import format_time


@dataclass(frozen=True, slots=True)
class UserSubscription:
    """A subscription of a service."""

    id: int
    user: int
    name: str
    text: str
    state: str  # active, paused, ended
    language: str | None = None
    regions: Mapping[str, str] = field(default_factory=dict)
    template: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    quiet: float | None = None  # seconds of the stream's time
    reason: str | None = None
    created: float = 0.0
    changed: float = 0.0
    started: Mapping[str, Any] | None = None  # moment, at
    expires: float | None = None
    warnings: tuple[str, ...] = ()
    repeated: bool = False  # answered from the idempotency key

    @classmethod
    def from_row(cls, row: Row, **more: Any) -> "UserSubscription":
        """Builds a subscription from a row of the table."""
        template = json.loads(row["template"]) if row["template"] else {}
        return cls(
            row["id"], row["user"], row["name"], row["text"], row["state"], row["language"],
            json.loads(row["regions"]), template.get("name"), template.get("values", {}),
            row["quiet"], row["reason"], row["created"], row["changed"],
            json.loads(row["started"]) if row["started"] else None, row["expires"], **more,
        )  # fmt: skip

    def as_dict(self) -> dict[str, Any]:
        values = asdict(self)
        del values["repeated"]
        for name in ("created", "changed", "expires"):
            if values[name] is not None:
                values[name] = format_time(values[name])
        return values | {"warnings": list(self.warnings)}


@dataclass(frozen=True, slots=True)
class PublishResult:
    """The outcome of a publish request; its events are committed."""

    accepted: int
    repeated: int  # dropped by producer and sequence
    bad: int  # rejected
    late: int  # older than the watermark: counted, not matched
    position: int  # of the batch that contains them; 0: no new events
    notifications: int = 0  # of all events of the batch

    def as_dict(self) -> dict[str, int]:
        counts = asdict(self)
        del counts["notifications"]
        return counts


@dataclass(frozen=True, slots=True)
class TargetRequest:
    """A requested target: a webhook, Kafka, MQTT or NATS."""

    kind: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """A requested subscription: a text, or a template with values."""

    user: int
    name: str | None = None
    text: str | None = None
    language: str | None = None
    regions: Mapping[str, Any] = field(default_factory=dict)
    template: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    quiet: float | None = None
    expires: float | None = None  # seconds since 1970
    targets: Sequence[TargetRequest] = ()
    title: str = "subscription"  # prefix of the default name


class Unset(Enum):
    """Marks an argument that was not passed."""

    UNSET = 0


UNSET = Unset.UNSET
