"""What a service is told once: what its events look like, and how much there may be of all."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from ensue.errors import ServiceError, did_you_mean


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of anything there may be. Quotas of a user may be lower or higher."""

    body_bytes: int = 16 << 20  # of a request
    events_per_request: int = 100_000
    header_seconds: float = 10.0  # for the head of a request to arrive
    body_seconds: float = 20.0  # in which some of a body must arrive
    http_connections: int = 20_000  # and fewer than the process may open files
    # Shares of a user: a subscription that exceeds one is paused.
    matches_per_publish: int = 1_000_000
    memory_per_user: int = 256 << 20  # bytes of partial matches
    seconds_per_minute: float = 30.0  # of the processor, while several users have subscriptions
    connections_per_user: int = 20  # listeners at a time
    connections: int = 10_000
    subscriptions_per_user: int = 10_000
    corners_per_user: int = 1_000_000  # of all regions of a user's subscriptions
    notes_per_minute: int = 60_000  # by user; more are counted as throttled
    targets_per_subscription: int = 10
    retention: float = 7 * 86_400.0  # seconds that notes and events are kept
    retained_bytes: int = 4 << 30  # of events; the oldest go first
    token_age: float = 366 * 86_400.0  # seconds, at the most
    audit_age: float = 366 * 86_400.0  # seconds that the audit log goes back
    session_age: float = 12 * 3_600.0
    buffer: int = 1_000  # notes that a listener may lag behind
    waiting: int = 1_000  # publishes waiting to be matched
    trial_events: int = 1_000_000
    trial_seconds: float = 20.0
    trial_matches: int = 100_000
    why_not_events: int = 20_000
    bad_events: int = 10_000  # that are kept to be looked at
    snapshot_events: int = 200_000  # matched again at most, after a crash
    snapshot_seconds: float = 60.0
    max_ahead: float = 86_400.0  # seconds that an event may be ahead of this machine's clock
    free_bytes: int = 64 << 20  # on the disk, below which no events are taken
    webhook_attempts: int = 12
    webhook_seconds: float = 15.0
    webhook_requests: int = 64  # at a time
    brokers: tuple[str, ...] = ()  # host:port that anybody's targets may name
    allow: tuple[str, ...] = ()  # hosts and networks that webhooks may reach though private

    @classmethod
    def given(cls, values: "Mapping[str, Any] | Limits | None") -> "Limits":
        """Limits from a configuration. An unknown or impossible one is refused."""
        if isinstance(values, Limits):
            return values
        known = {field.name: field for field in fields(cls)}
        found: dict[str, Any] = {}
        for name, value in (values or {}).items():
            if name not in known:
                hint = did_you_mean(name, known)
                raise ServiceError(f"there is no limit '{name}'\n  hint: {hint}")
            found[name] = _limit(name, value, known[name].default)
        return cls(**found)


def _limit(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, tuple):
        return (value,) if isinstance(value, str) else tuple(str(one) for one in value)
    try:
        number = type(default)(value)
    except (TypeError, ValueError):
        number = -1
    if isinstance(value, bool) or not 0 <= number < float("inf"):
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise ServiceError(f"limit {name}={value!r}\n  hint: {kind}, not below 0")
    return number


@dataclass(frozen=True, slots=True)
class Stream:
    """The events of a service, as their columns are called."""

    columns: tuple[tuple[str, str], ...]  # name, Arrow type
    time: str | tuple[str, str]
    type: str | None = None
    order: tuple[str, ...] = ()
    location: str | tuple[str, str] | None = None
    space: str = "plane"
    key: str | None = None  # the column that says whose event it is
    watermark: str | float | None = None  # how far events may be out of order
    idle: float | None = None  # seconds without events after which time goes by the clock

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> "Stream":
        """What was written as text."""
        found = json.loads(text)
        found["columns"] = tuple(map(tuple, found["columns"]))
        found["order"] = tuple(found["order"])
        for name in ("time", "location"):
            if isinstance(found[name], list):
                found[name] = tuple(found[name])
        return cls(**found)
