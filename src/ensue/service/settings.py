"""Settings of a service: the description of its events, and its limits."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from sqlite3 import Connection
from typing import Annotated, Any

import pyarrow as pa
from pydantic import PlainSerializer, TypeAdapter

from ensue.backends.live_backend import build_empty_tables
from ensue.errors import EventError, ServiceError, StateError, did_you_mean


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Limits of a service; quotas can override them per user."""

    body_bytes: int = 16 << 20  # per request
    events_per_request: int = 100_000
    header_seconds: float = 10.0  # until the head of a request has arrived
    body_seconds: float = 20.0  # without any data of the body
    http_connections: int = 20_000  # lowered if the process may open fewer files
    # Shares of a user: a subscription that exceeds one is paused.
    matches_per_publish: int = 1_000_000
    memory_per_user: int = 256 << 20  # bytes of partial matches
    seconds_per_minute: float = 30.0  # of CPU time, while several users have subscriptions
    connections_per_user: int = 20  # concurrent listeners
    connections: int = 10_000
    subscriptions_per_user: int = 10_000
    corners_per_user: int = 1_000_000  # in all regions of a user's subscriptions
    notes_per_minute: int = 60_000  # per user; more are counted as throttled
    targets_per_subscription: int = 10
    retention: float = 7 * 86_400.0  # seconds that notifications and events are stored
    retained_bytes: int = 4 << 30  # of events; the oldest are deleted first
    token_age: float = 366 * 86_400.0  # maximum in seconds
    audit_age: float = 366 * 86_400.0  # seconds that audit entries are stored
    session_age: float = 12 * 3_600.0
    buffer: int = 1_000  # notifications that a listener may lag
    waiting: int = 1_000  # publish requests waiting to be matched
    trial_events: int = 1_000_000
    trial_seconds: float = 20.0
    trial_matches: int = 100_000
    why_not_events: int = 20_000
    bad_events: int = 10_000  # stored for inspection
    snapshot_events: int = 200_000  # replayed at most after a crash
    snapshot_seconds: float = 60.0
    max_ahead: float = 86_400.0  # seconds that an event may be ahead of the clock
    free_bytes: int = 64 << 20  # of disk space, below which the intake stops
    webhook_attempts: int = 12
    webhook_seconds: float = 15.0
    webhook_requests: int = 64  # concurrent
    brokers: tuple[str, ...] = ()  # host:port that targets of any user may name
    allow: tuple[str, ...] = ()  # private hosts and networks that webhooks may reach

    @classmethod
    def parse(cls, values: "Mapping[str, Any] | ServiceLimits | None") -> "ServiceLimits":
        """Builds limits from a configuration; unknown names and invalid values are rejected."""
        if isinstance(values, ServiceLimits):
            return values
        known = {field.name: field for field in fields(cls)}
        limits: dict[str, Any] = {}
        for name, value in (values or {}).items():
            if name not in known:
                hint = did_you_mean(name, known)
                raise ServiceError(f"there is no limit '{name}'\n  hint: {hint}")
            limits[name] = _limit(name, value, known[name].default)
        return cls(**limits)


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
class StreamDescription:
    """The columns of a service's events and their roles."""

    # The Arrow types by name; an object in JSON.
    columns: Annotated[tuple[tuple[str, str], ...], PlainSerializer(dict, return_type=dict[str, str])]
    time: str | tuple[str, str]
    type: str | None = None
    order: tuple[str, ...] = ()
    location: str | tuple[str, str] | None = None
    space: str = "plane"
    key: str | None = None  # the column that identifies the object of an event
    watermark: str | float | None = None  # how far events may be out of order
    idle: float | None = None  # seconds without events after which time follows the clock

    @classmethod
    def describe(
        cls, schema: Any, time: str | tuple[str, str] | None, order: Sequence[str] | str, location: Any, **others: Any
    ) -> "StreamDescription | None":
        """Builds the description from the arguments of a service; None without a schema and a time."""
        if schema is None and time is None:
            return None
        if schema is None or time is None:
            raise EventError("a service needs both schema= and time=")
        empty = build_empty_tables(schema)
        if not isinstance(empty, pa.Table):
            raise EventError(
                "all events of a service have one schema\n"
                "  hint: pass one table with all columns, and type= for the column with the event type"
            )
        columns = tuple((field.name, str(field.type)) for field in empty.schema)
        where = location if isinstance(location, str | None) else (location[0], location[1])
        return cls(columns, time, order=(order,) if isinstance(order, str) else tuple(order), location=where, **others)

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> "StreamDescription":
        return TypeAdapter(cls).validate_json(text)


def missing_schema_error(path: str) -> ServiceError:
    return ServiceError(
        f"{path} is new, so describe its events\n"
        '  hint: ensue.Service(path, schema={"ts": "timestamp[us]", ...}, time="ts")'
    )


def load_settings(
    db: Connection, path: str, described: StreamDescription | None, regions: Mapping[str, str]
) -> tuple[StreamDescription, dict[str, str]]:
    """Reads the stream description and the shared regions, or stores them in a new file."""
    known = dict(map(tuple, db.execute("SELECT name, value FROM settings")))
    if "stream" not in known:
        if described is None:
            raise missing_schema_error(path)
        db.execute("INSERT INTO settings VALUES ('stream', ?)", (described.text,))
        known["stream"] = described.text
    stream = StreamDescription.read(known["stream"])
    if described is not None and described != stream:
        arguments, stored = json.loads(described.text), json.loads(stream.text)
        name = next(name for name in stored if stored[name] != arguments[name])
        raise StateError(
            f"{path} was created with {name}={stored[name]!r}, not {arguments[name]!r}\n"
            "  hint: omit the argument, or use another file"
        )
    shared = json.loads(known.get("regions", "{}")) | dict(regions)
    if json.dumps(shared) != known.get("regions"):  # on a full disk every write fails
        db.execute("INSERT OR REPLACE INTO settings VALUES ('regions', ?)", (json.dumps(shared),))
    return stream, shared
