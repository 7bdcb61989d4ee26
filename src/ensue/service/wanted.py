"""What a user asks of a subscription, before it is one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TargetWanted:
    """Where notes shall go: a webhook, Kafka, MQTT, NATS."""

    kind: str
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A subscription that is asked for: a text, or a template with values."""

    user: int
    name: str | None = None
    text: str | None = None
    language: str | None = None
    regions: Mapping[str, Any] = field(default_factory=dict)
    template: str | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    quiet: float | None = None
    expires: float | None = None  # a moment, in seconds since 1970
    targets: Sequence[TargetWanted] = ()
    title: str = "subscription"  # what it is called if it has no name, with its number


class Unset:
    """Stands for what is not to be changed."""

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()
