"""What pages show of a service, as plain rows that templates only have to write down."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from sqlite3 import Connection
from typing import Any

from ensue.console.outlines import outline
from ensue.errors import QueryError
from ensue.service import looking
from ensue.service.access import ADMIN, Access
from ensue.service.columns import iso
from ensue.service.notes import Note
from ensue.service.service import Service
from ensue.service.store import audit, outbox, targets
from ensue.service.store.bad_events import newest as newest_bad_events
from ensue.service.store.counters import counted
from ensue.service.subscribed import Subscribed
from ensue.service.templates import TEMPLATES
from ensue.service.templating import stream_of
from ensue.service.web.geojson import drawn

NOTES = 200  # that a page has at the beginning
USED = 3  # subscriptions that are named beside a region
BAD = 50  # events that could not be read
_EVENT = 300  # characters of such an event that are shown
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_COUNTERS = {
    "delivered": "Delivered",
    "failed": "Failed attempts",
    "dead": "Given up",
    "refused": "Refused",
    "throttled": "Over the quota, not sent",
    "quiet": "Within the quiet time, not sent",
    "late": "Late events that it missed",
    "expired": "Removed before delivery",
    "doubled": "Found twice, sent once",
    "paused": "Paused by the service",
}

# Of each number its title, and how it is marked unless it is 0.
_FIGURES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "Events": {
        "events_per_second": ("events a second", ""),
        "events": ("events so far", ""),
        "lag_seconds": ("behind the clock", ""),
        "watermark": ("watermark", ""),
        "objects": ("objects", ""),
        "late": ("late events", "warning"),
        "bad": ("bad events", "warning"),
        "repeated": ("repeated events, dropped", ""),
    },
    "Matching": {
        "subscriptions": ("active subscriptions", ""),
        "paused": ("paused subscriptions", ""),
        "partial_matches": ("partial matches", ""),
        "waiting": ("publishes waiting", ""),
    },
    "Delivery": {
        "outbox": ("notifications kept", ""),
        "oldest_note": ("age of the oldest of them", ""),
        "listeners": ("listeners", ""),
        "slow_listeners": ("listeners disconnected, too slow", "warning"),
        "retries": ("deliveries retried", "warning"),
        "failing_targets": ("failing targets", "warning"),
        "switched_off_targets": ("targets switched off", "warning"),
        "dead_letters": ("deliveries given up", "bad"),
    },
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its name; `level` is "", "warning" or "bad"."""

    title: str
    value: str
    level: str = ""
    words: bool = False  # the value is longer than a number


def stream(service: Service) -> dict[str, Any]:
    """What the events look like, for scripts."""
    return {**asdict(service.stream), "columns": dict(service.stream.columns)}


def templates(service: Service) -> list[dict[str, Any]]:
    """The templates that the stream has all for, with the units of its times and places."""
    found, known = [], stream_of(service.columns)
    for template in TEMPLATES.values():
        try:
            found.append(asdict(template.on(known)))
        except QueryError:  # it speaks of objects or places, and the events have none
            continue
    return found


# -------------------------------------------------------------------------------- subscriptions


def subscription_rows(db: Connection, found: Sequence[Subscribed]) -> list[dict[str, Any]]:
    """Subscriptions for a list."""
    return [
        {
            **one.as_dict(),
            "finds": one.template or first_words(one.text),
            "matches": counted(db, one.id).get("matches", 0),
            "targets": targets.target_states(db, one.user, one.id),
        }
        for one in found
    ]


def first_words(text: str, most: int = 60) -> str:
    """The first line that says something: what a leading comment says, else the text itself.

    >>> first_words("-- leaves Depot\\n=|(A; 5)B"), first_words("=|(A; 5)B,\\n  A = (...)")
    ('leaves Depot', '=|(A; 5)B,')
    """
    lines = (line.strip() for line in text.splitlines())
    line = next((line for line in lines if line), "")
    line = line.removeprefix("--").strip()
    return line if len(line) <= most else f"{line[: most - 1]}…"


def target_rows(
    db: Connection, user: int | None, subscription: int | None = None, *, troubled: bool = False
) -> list[dict[str, Any]]:
    """Targets; `troubled`: only those that do not get through."""
    found = targets.target_states(db, user, subscription)
    names = dict(map(tuple, db.execute("SELECT id, name FROM subscriptions"))) if troubled else {}
    return [
        {**asdict(one), "where": _where(one.config), "name": names.get(one.subscription, "")}
        for one in found
        if not troubled or one.state != targets.ON or one.dead
    ]


def _where(config: Mapping[str, Any]) -> str:
    """Where a target is, without anything that is nobody's business."""
    shown = (config.get(name) for name in ("url", "servers", "server", "topic", "subject"))
    return " ".join(
        ", ".join(map(str, one)) if isinstance(one, list) else str(one) for one in shown if one
    )


def counter_rows(counters: Mapping[str, int]) -> list[tuple[str, int]]:
    """What was counted for a subscription, in words."""
    return [(words, counters[name]) for name, words in _COUNTERS.items() if counters.get(name)]


def recent(db: Connection, user: int, subscription: int | None = None) -> dict[str, Any]:
    """The newest notes, oldest first, and the number from which on a page listens."""
    last = outbox.newest(db)  # before: a note twice is dropped by its number, one missed is not
    found = outbox.newest_notes(db, most=NOTES, user=user, subscription=subscription)
    return {"items": [note_row(note) for note in reversed(found)], "next": last}


def note_row(note: Note) -> dict[str, Any]:
    """A note as /notifications has it."""
    return {"number": note.number, "at": iso(note.at), **note.content}


# -------------------------------------------------------------------------------- regions


def region_rows(
    own: Mapping[str, str], shared: Mapping[str, str], found: Sequence[Subscribed]
) -> list[dict[str, Any]]:
    """Regions with a small picture of each, and who uses them."""
    rows = []
    for name, text in sorted({**shared, **own}.items()):
        geometry, radius, corners = drawn(text)
        used = [one for one in found if one.regions.get(name) == text]
        rows.append(
            {
                "name": name,
                "kind": "circle" if radius is not None else str(geometry["type"]).lower(),
                "corners": None if radius is not None else corners,
                "outline": outline(geometry, radius),
                "shared": name not in own,
                "used": used[:USED],
                "more": max(0, len(used) - USED),
            }
        )
    return rows


# -------------------------------------------------------------------------------- health


# What everybody may know of a service: the stream is one for all.
_OF_STREAM = (
    "state", "reason", "events_per_second", "lag_seconds", "watermark", "objects",
)  # fmt: skip


def health(db: Connection, service: Service, access: Access) -> dict[str, Any]:
    """How the service is: all of it for an administrator, else the stream and one's own."""
    found = looking.health(db, service)
    found["began"] = iso(service.began)
    oldest = found["outbox_oldest"]
    found["oldest_note"] = None if oldest is None else time.time() - oldest
    found["slow_listeners"] = service.listeners.slow
    if access.may(ADMIN):
        return found
    own = targets.target_states(db, access.user)
    active, bad = (
        db.execute(f"SELECT count(*) FROM {table} WHERE user = ?{more}", (access.user,))
        for table, more in (("subscriptions", " AND state = 'active'"), ("bad_events", ""))
    )
    return {
        **{name: found[name] for name in (*_OF_STREAM, "began")},
        "problems": looking.problems(db, service, access.user),
        "subscriptions": active.fetchone()[0],
        "bad": bad.fetchone()[0],
        "listeners": service.listeners.connections(access.user),
        "retries": sum(one.waiting for one in own),
        "failing_targets": sum(one.state == targets.FAILING for one in own),
        "switched_off_targets": sum(one.state == targets.OFF for one in own),
        "dead_letters": sum(one.dead for one in own),
    }


def figures(health: Mapping[str, Any]) -> list[tuple[str, list[Figure]]]:
    """The numbers of a service's health in groups, those that need somebody marked."""
    found = [(title, list(_known(health, names))) for title, names in _FIGURES.items()]
    return [(title, some) for title, some in found if some]


def _known(health: Mapping[str, Any], names: Mapping[str, tuple[str, str]]) -> Iterator[Figure]:
    for name, (title, level) in names.items():
        if name not in health:
            continue
        value = health[name]
        if name in ("lag_seconds", "oldest_note"):
            yield Figure(title, "–" if value is None else length(max(0.0, value)), words=True)
        elif name == "watermark":
            yield Figure(title, moment(value), words=True)
        else:
            text = f"{value:,.1f}" if isinstance(value, float) else f"{value or 0:,}"
            yield Figure(title, text, level if value else "")


def length(seconds: float) -> str:
    """A length of time in words.

    >>> length(0.25), length(75), length(7200), length(200_000)
    ('250 ms', '1 min 15 s', '2 h', '2 d 7 h')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    at = next(k for k, (size, _) in enumerate(_UNITS) if seconds >= size)
    size, unit = _UNITS[at]
    whole, rest = divmod(int(seconds), size)
    if at + 1 < len(_UNITS) and rest >= _UNITS[at + 1][0]:
        return f"{whole} {unit} {rest // _UNITS[at + 1][0]} {_UNITS[at + 1][1]}"
    return f"{whole} {unit}"


def moment(value: Any) -> str:
    """A moment of the stream without what is too fine to be read.

    >>> moment("2026-03-01T10:00:00.250000Z"), moment(12.5), moment(None)
    ('1 Mar 10:00:00', '12.5', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, int | float):
        return f"{value:g}"
    read = datetime.fromisoformat(str(value))
    return f"{read.day} {read:%b %H:%M:%S}"


def bad_events(db: Connection, access: Access) -> list[dict[str, Any]]:
    """Events that were put aside: a user's own, of an administrator all."""
    user = None if access.may(ADMIN) else access.user
    return [
        {**row, "at": iso(row["at"]), "event": _text(row["event"])}
        for row in newest_bad_events(db, user=user, most=BAD)
    ]


def _text(event: Any) -> str:
    text = event.decode(errors="replace") if isinstance(event, bytes) else str(event or "")
    return text if len(text) <= _EVENT else f"{text[:_EVENT]}…"


def audit_rows(
    db: Connection, access: Access, before: int | None, most: int
) -> tuple[list[dict[str, Any]], int | None]:
    """Entries of the audit log, and from where older ones go on."""
    user = None if access.may(ADMIN) else access.user
    found = audit.recorded(db, user=user, before=before, limit=most)
    rows = [
        {
            "at": iso(row["at"]),
            "who": row["name"],
            "action": row["action"],
            "subject": row["subject"],
            "detail": row["detail"],
        }
        for row in found
    ]
    return rows, found[-1]["id"] if len(found) == most else None


def since_choices(service: Service) -> list[tuple[str, str]]:
    """From when on a trial looks at events, as texts of the stream's time."""
    newest = service.core.newest_event
    choices = [("", "over all stored events")]
    if newest is None or not service.columns.calendar:
        return choices
    for seconds, words in ((3_600, "hour"), (86_400, "day"), (604_800, "week")):
        choices.append((iso(newest - seconds), f"over the last {words}"))
    return choices
