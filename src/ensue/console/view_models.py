"""View models of the console pages: plain rows for the templates."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from sqlite3 import Connection
from typing import Any

from pydantic import TypeAdapter

from ensue.service.access import Principal
from ensue.service.event_columns import format_time
from ensue.service.service import Service
from ensue.service.store import journal, outbox, target_store
from ensue.service.subscription_catalog import UserSubscription
from ensue.service.web.health_routes import report_health
from ensue.service.web.region_routes import text_to_geojson
from ensue.svg import build_outline

MAX_NOTIFICATIONS = 200  # notifications of a new page
MAX_USES = 3  # subscriptions listed for a region
_SUBSCRIPTION = TypeAdapter(UserSubscription)
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_COUNTERS = {
    "delivered": "Delivered",
    "failed": "Failed attempts",
    "dead": "Dead letters",
    "refused": "Rejected",
    "throttled": "Not sent: over the quota",
    "quiet": "Not sent: within the quiet period",
    "late": "Late events missed",
    "expired": "Expired before delivery",
    "doubled": "Duplicates removed",
    "paused": "Paused by the service",
}

# The title of each number, and its level if it is not 0.
_FIGURES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Events": {
        "events_per_second": ("events a second", ""),
        "events": ("total events", ""),
        "lag_seconds": ("behind the clock", ""),
        "watermark": ("watermark", ""),
        "objects": ("objects", ""),
        "late": ("late events", "warning"),
        "bad": ("bad events", "warning"),
        "repeated": ("duplicate events dropped", ""),
    },
    "Matching": {
        "subscriptions": ("active subscriptions", ""),
        "paused": ("paused subscriptions", ""),
        "partial_matches": ("partial matches", ""),
        "waiting": ("waiting publish requests", ""),
    },
    "Delivery": {
        "outbox": ("stored notifications", ""),
        "oldest_note": ("age of the oldest notification", ""),
        "listeners": ("listeners", ""),
        "slow_listeners_cut": ("slow listeners disconnected", "warning"),
        "retries": ("deliveries to retry", "warning"),
        "failing_targets": ("failing targets", "warning"),
        "switched_off_targets": ("disabled targets", "warning"),
        "dead_letters": ("dead letters", "bad"),
    },
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its name; `level` is "", "warning" or "bad"."""

    title: str
    value: str
    level: str = ""
    words: bool = False  # the value is text


def subscription_rows(db: Connection, subscriptions: Sequence[UserSubscription]) -> list[dict[str, Any]]:
    return [
        {
            **describe_subscription(subscription),
            "finds": subscription.template or get_first_line(subscription.text),
            "matches": journal.read_counters(db, subscription.id).get("matches", 0),
            "targets": target_store.list_target_states(db, subscription.user, subscription.id),
        }
        for subscription in subscriptions
    ]


def describe_subscription(subscription: UserSubscription) -> dict[str, Any]:
    """Describe a subscription as the API does."""
    described: dict[str, Any] = _SUBSCRIPTION.dump_python(subscription, mode="json")
    return described


def get_first_line(text: str, max_length: int = 60) -> str:
    """Return the first non-empty line of a subscription, which may be a comment.

    >>> get_first_line("-- leaves Depot\\n=|(A; 5)B"), get_first_line("=|(A; 5)B,\\n  A = (...)")
    ('leaves Depot', '=|(A; 5)B,')
    """
    lines = (line.strip() for line in text.splitlines())
    line = next((line for line in lines if line), "")
    line = line.removeprefix("--").strip()
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


def target_rows(
    db: Connection, user: int | None, subscription: int | None = None, *, troubled: bool = False
) -> list[dict[str, Any]]:
    """Build the rows of targets; `troubled` selects those with failed deliveries."""
    states = target_store.list_target_states(db, user, subscription)
    names = dict(map(tuple, db.execute("SELECT id, name FROM subscriptions"))) if troubled else {}
    return [
        {**asdict(target), "where": _where(target.config), "name": names.get(target.subscription, "")}
        for target in states
        if not troubled or target.state != target_store.ON or target.dead
    ]


def _where(config: Mapping[str, Any]) -> str:
    """Format the address of a target without its secrets."""
    shown = (config.get(name) for name in ("url", "servers", "server", "topic", "subject"))
    return " ".join(", ".join(map(str, value)) if isinstance(value, list) else str(value) for value in shown if value)


def counter_rows(counters: Mapping[str, int]) -> list[tuple[str, int]]:
    return [(title, counters[name]) for name, title in _COUNTERS.items() if counters.get(name)]


def get_recent_notifications(db: Connection, user: int, subscription: int | None = None) -> dict[str, Any]:
    """Return the newest notifications, oldest first, and the number from which a page listens."""
    # read first: pages drop duplicates by number, but would miss a gap
    last = outbox.get_newest_number(db)
    notes = outbox.read_newest_matches(db, most=MAX_NOTIFICATIONS, user=user, subscription=subscription)
    items = [{"number": note.number, "at": format_time(note.at), **note.content} for note in reversed(notes)]
    return {"items": items, "next": last}


def region_rows(
    own: Mapping[str, str], shared: Mapping[str, str], subscriptions: Sequence[UserSubscription]
) -> list[dict[str, Any]]:
    """Build the rows of regions, with an outline and the subscriptions that use them."""
    rows = []
    for name, text in sorted({**shared, **own}.items()):
        geometry, radius, corners = text_to_geojson(text)
        used = [subscription for subscription in subscriptions if subscription.regions.get(name) == text]
        rows.append(
            {
                "name": name,
                "kind": "circle" if radius is not None else str(geometry["type"]).lower(),
                "corners": None if radius is not None else corners,
                "outline": build_outline(geometry, radius),
                "shared": name not in own,
                "used": used[:MAX_USES],
                "more": max(0, len(used) - MAX_USES),
            }
        )
    return rows


async def get_health(service: Service, access: Principal) -> dict[str, Any]:
    """Return the health of the service; users see the stream and their own objects."""
    status = await report_health(service, access)
    status["began"] = format_time(service.began)
    if "outbox" in status:
        oldest = status["outbox_oldest"]
        status["oldest_note"] = None if oldest is None else time.time() - oldest
    return status


def group_figures(health: Mapping[str, Any]) -> list[tuple[str, list[Figure]]]:
    """Group the numbers of a service's health, marked by level."""
    groups = [(title, list(_build_figures(health, names))) for title, names in _FIGURES.items()]
    return [(title, numbers) for title, numbers in groups if numbers]


def _build_figures(health: Mapping[str, Any], names: Mapping[str, tuple[str, str]]) -> Iterator[Figure]:
    for name, (title, level) in names.items():
        if name not in health:
            continue
        value = health[name]
        if name in ("lag_seconds", "oldest_note"):
            yield Figure(title, "–" if value is None else format_length(max(0.0, value)), words=True)
        elif name == "watermark":
            yield Figure(title, format_moment(value), words=True)
        else:
            text = f"{value:,.1f}" if isinstance(value, float) else f"{value or 0:,}"
            yield Figure(title, text, level if value else "")


def format_length(seconds: float) -> str:
    """Format a length of time.

    >>> format_length(0.25), format_length(75), format_length(7200), format_length(200_000)
    ('250 ms', '1 min 15 s', '2 h', '2 d 7 h')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    index = next(k for k, (size, _) in enumerate(_UNITS) if seconds >= size)
    size, unit = _UNITS[index]
    whole, rest = divmod(int(seconds), size)
    if index + 1 < len(_UNITS) and rest >= _UNITS[index + 1][0]:
        return f"{whole} {unit} {rest // _UNITS[index + 1][0]} {_UNITS[index + 1][1]}"
    return f"{whole} {unit}"


def format_moment(value: Any) -> str:
    """Format a time of the stream to seconds.

    >>> format_moment("2026-03-01T10:00:00.250000Z"), format_moment(12.5), format_moment(None)
    ('1 Mar 10:00:00', '12.5', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, int | float):
        return f"{value:g}"
    time = datetime.fromisoformat(str(value))
    return f"{time.day} {time:%b %H:%M:%S}"


def list_since_choices(service: Service) -> list[tuple[str, str]]:
    """Return the choices of the start time of a trial run."""
    newest = service.core.newest_event
    choices = [("", "over all stored events")]
    if newest is None or not service.columns.calendar:
        return choices
    for seconds, words in ((3_600, "hour"), (86_400, "day"), (604_800, "week")):
        choices.append((format_time(newest - seconds), f"over the last {words}"))
    return choices
