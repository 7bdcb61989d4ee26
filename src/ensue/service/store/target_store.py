"""Targets of subscriptions, their progress, and failed deliveries."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from sqlite3 import Connection, Row
from typing import Annotated, Any

from pydantic import Field

from ensue.service.errors import NotFoundError
from ensue.service.event_columns import EpochTime
from ensue.service.store.journal import increment_all
from ensue.service.store.outbox import DEAD, WAITING, Notification, read_notifications_after

ON, FAILING, OFF = "on", "failing", "off"
_MOST_COUNTED = 10_000  # pending notifications counted for display
_SECRET = re.compile(r"pass|secret|token|credential|authorization|key$", re.IGNORECASE)
_COLUMNS = (
    "id, subscription, user, kind, unseal(config) AS config, unseal(secrets) AS secrets, cursor, "
    "state, reason, failures, next_at, created, delivered, changed"
)
_LOGIN = re.compile(r"(?<=://)[^/@\s]*@")


@dataclass(frozen=True, slots=True)
class Target:
    """A destination for the notifications of a subscription."""

    id: int
    subscription: int
    user: int
    kind: str
    config: str = field(repr=False)  # JSON
    secrets: str = field(repr=False)  # JSON, see delivery.signing; both are encrypted in the file
    cursor: int  # notifications up to it are delivered, or have a row in `deliveries`
    state: str
    reason: str | None
    failures: int  # consecutive
    next_at: float | None
    changed: float  # time of the last manual change


@dataclass(frozen=True, slots=True)
class PendingDeliveries:
    """The pending deliveries of a target."""

    target: Target
    due: tuple[tuple[Notification, int], ...]  # failed ones whose retry is due, with their attempts
    fresh: tuple[Notification, ...]
    lost: tuple[int, ...]  # failed ones that the outbox no longer has
    next_at: float | None  # time of the next retry


@dataclass(frozen=True, slots=True)
class FailedDelivery:
    """The state of a failed notification."""

    attempts: int
    next_at: float
    error: str
    dead: bool


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """The outcome of a delivery attempt, and the new state of its target."""

    target: Target  # before the attempt
    cursor: int
    settled: frozenset[int] = frozenset()  # rows of `deliveries` to delete
    failed: Mapping[int, FailedDelivery] = field(default_factory=dict)
    state: str = ON
    reason: str | None = None
    failures: int = 0
    next_at: float | None = None
    counted: Mapping[str, int] = field(default_factory=dict)

    def combine(self, later: "DeliveryOutcome") -> "DeliveryOutcome":
        failed = {n: f for n, f in self.failed.items() if n not in later.settled}
        names = {**self.counted, **later.counted}
        return replace(
            later,
            target=self.target,
            cursor=max(self.cursor, later.cursor),
            settled=self.settled | later.settled,
            failed={**failed, **later.failed},
            counted={n: self.counted.get(n, 0) + later.counted.get(n, 0) for n in names},
        )


@dataclass(frozen=True, slots=True)
class TargetState:
    """A destination of notifications, as shown to its user."""

    id: int
    subscription: int
    user: Annotated[int, Field(exclude=True)]
    kind: str
    config: Annotated[dict[str, Any], Field(description="without its secrets")]
    state: Annotated[str, Field(description="on, failing or off")]
    reason: str | None
    failures: Annotated[int, Field(description="consecutive failures")]
    next_at: Annotated[EpochTime | None, Field(description="time of the next retry")]
    delivered: int
    behind: Annotated[int, Field(description="notifications not sent yet")]
    waiting: Annotated[int, Field(description="failed notifications that are retried")]
    dead: int
    secrets: Annotated[int, Field(exclude=True)]  # that are valid
    created: EpochTime
    secret: Annotated[str | None, Field(description="for verifying signatures of a webhook; shown only once")] = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A notification with too many failed attempts."""

    number: int
    kind: str
    match_id: str | None
    attempts: int
    error: str
    at: EpochTime


# ------------------------------------------------------------------------------- changes by users


def add_target(
    db: Connection,
    subscription: int,
    user: int,
    kind: str,
    config: Mapping[str, Any],
    *,
    now: float,
    secrets: Sequence[Mapping[str, Any]] = (),
) -> int:
    newest = db.execute("SELECT coalesce(max(number), 0) FROM outbox").fetchone()[0]
    cursor = db.execute(
        "INSERT INTO targets "
        "(subscription, user, kind, config, secrets, cursor, created, changed) "
        "VALUES (?, ?, ?, seal(?), seal(?), ?, ?, ?)",
        (subscription, user, kind, _text(config), _text(secrets), newest, now, now),
    )
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def count_targets(db: Connection, subscription: int) -> int:
    return int(db.execute("SELECT count(*) FROM targets WHERE subscription = ?", (subscription,)).fetchone()[0])


def count_by_state(db: Connection) -> tuple[dict[str, int], dict[str, int]]:
    """The number of targets, and of failed deliveries, in each state."""
    targets, deliveries = (
        dict(map(tuple, db.execute(f"SELECT state, count(*) FROM {table} GROUP BY state")))
        for table in ("targets", "deliveries")
    )
    return targets, deliveries


def get_target(db: Connection, id: int, user: int | None = None) -> Target:
    """Reads a target; raises NotFoundError if the user has none."""
    row = db.execute(f"SELECT {_COLUMNS} FROM targets WHERE id = ?", (id,)).fetchone()
    if row is None or user not in (None, row["user"]):
        raise NotFoundError(f"there is no target {id}")
    return _target(row)


def change_secrets(db: Connection, id: int, secrets: Sequence[Mapping[str, Any]], *, now: float) -> None:
    _change(db, id, now, "secrets = seal(?)", _text(secrets))


def remove_target(db: Connection, id: int) -> None:
    get_target(db, id)
    db.execute("DELETE FROM deliveries WHERE target = ?", (id,))
    db.execute("DELETE FROM targets WHERE id = ?", (id,))


def switch_on(db: Connection, id: int, *, now: float) -> None:
    """Resumes deliveries to a target, immediately."""
    _change(db, id, now, "state = ?, reason = NULL, failures = 0, next_at = NULL", ON)
    db.execute("UPDATE deliveries SET next_at = ? WHERE target = ? AND state = ?", (now, id, WAITING))


def switch_off(db: Connection, id: int, reason: str, *, now: float) -> None:
    """Stops deliveries to a target until it is switched on."""
    _change(db, id, now, "state = ?, reason = ?, next_at = NULL", OFF, reason)


def redeliver(db: Connection, id: int, numbers: Iterable[int] | None = None, *, now: float) -> tuple[int, ...]:
    """Schedules notifications again: those of the numbers, or all dead letters.

    Only stored notifications of the target's subscription are sent again; their numbers are
    returned. Pending ones are not affected. A failing target is retried immediately.
    """
    target = get_target(db, id)
    if numbers is None:
        chosen = "SELECT number FROM deliveries WHERE target = ? AND state = ?"
        numbers = [row[0] for row in db.execute(chosen, (id, DEAD))]
    rows = db.execute(
        "SELECT number FROM outbox WHERE subscription = ? AND number <= ? "
        "AND number IN (SELECT value FROM json_each(?)) ORDER BY number",
        (target.subscription, target.cursor, json.dumps(list(numbers))),
    )
    scheduled = tuple(row[0] for row in rows)
    db.executemany(
        "INSERT OR REPLACE INTO deliveries (target, number, attempts, next_at, state, at) VALUES (?, ?, 0, ?, ?, ?)",
        [(id, number, now, WAITING, now) for number in scheduled],
    )
    _change(db, id, now, "next_at = NULL")
    return scheduled


def _change(db: Connection, id: int, now: float, assignments: str, *values: object) -> None:
    # The time identifies a change, so it grows even if the clock does not.
    cursor = db.execute(
        f"UPDATE targets SET {assignments}, changed = max(?, changed + 0.000001) WHERE id = ?", (*values, now, id)
    )
    if not cursor.rowcount:
        raise NotFoundError(f"there is no target {id}")


# ------------------------------------------------------------------------------- display


def list_target_states(db: Connection, user: int | None = None, subscription: int | None = None) -> list[TargetState]:
    """Reads the state of targets: of a user, of a subscription, or all."""
    rows = db.execute(
        f"SELECT {_COLUMNS}, (SELECT count(*) FROM (SELECT 1 FROM outbox o "
        "  WHERE o.subscription = t.subscription AND o.number > t.cursor LIMIT ?)) AS behind, "
        "(SELECT count(*) FROM deliveries d WHERE d.target = t.id AND d.state = ?) AS waiting, "
        "(SELECT count(*) FROM deliveries d WHERE d.target = t.id AND d.state = ?) AS dead, "
        "(SELECT min(coalesce(d.next_at, 0.0)) FROM deliveries d "
        "  WHERE d.target = t.id AND d.state = ?2) AS first "
        "FROM targets t WHERE (?4 IS NULL OR t.user = ?4) "
        "AND (?5 IS NULL OR t.subscription = ?5) ORDER BY t.id",
        (_MOST_COUNTED, WAITING, DEAD, user, subscription),
    )
    return [_state(row) for row in rows]


def _state(row: Row) -> TargetState:
    return TargetState(
        row["id"], row["subscription"], row["user"], row["kind"],
        mask_config(json.loads(row["config"])), row["state"], row["reason"], row["failures"],
        _next_at(_target(row), row["behind"] > 0, row["first"]) or None, row["delivered"],
        row["behind"], row["waiting"], row["dead"], len(json.loads(row["secrets"])),
        row["created"],
    )  # fmt: skip


def list_dead_letters(db: Connection, id: int, *, after: int = 0, limit: int = 100) -> list[DeadLetter]:
    rows = db.execute(
        "SELECT d.number, o.kind, o.match_id, d.attempts, d.error, d.at FROM deliveries d "
        "JOIN outbox o ON o.number = d.number "
        "WHERE d.target = ? AND d.state = ? AND d.number > ? ORDER BY d.number LIMIT ?",
        (id, DEAD, after, limit),
    )
    return [DeadLetter(*row) for row in rows]


def mask_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Masks the secrets of a configuration.

    >>> mask_config({"url": "nats://me:pass@host", "password": "x", "headers": {"api-key": "y"}})
    {'url': 'nats://host', 'password': '***', 'headers': {'api-key': '***'}}
    """
    masked: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            hidden = name == "headers"  # each of them may be a credential
            masked[name] = dict.fromkeys(value, "***") if hidden else mask_config(value)
        elif _SECRET.search(name):
            masked[name] = "***"
        else:
            masked[name] = _LOGIN.sub("", value) if isinstance(value, str) else value
    return masked


# ------------------------------------------------------------------------------- dispatcher


def list_pending_targets(db: Connection) -> list[Target]:
    """Finds the targets with pending deliveries or retries."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM targets t WHERE t.state <> ? AND ("
        "EXISTS (SELECT 1 FROM outbox o WHERE o.subscription = t.subscription "
        "  AND o.number > t.cursor) "
        "OR EXISTS (SELECT 1 FROM deliveries d WHERE d.target = t.id AND d.state = ?))",
        (OFF, WAITING),
    )
    return [_target(row) for row in rows]


def find_targets(db: Connection, subscriptions: Collection[int], ids: Collection[int]) -> list[Target]:
    """Reads the targets of subscriptions, and those of `ids`, unless they are switched off."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM targets WHERE state <> ?1 AND "
        "subscription IN (SELECT value FROM json_each(?2)) "
        f"UNION SELECT {_COLUMNS} FROM targets WHERE state <> ?1 AND "
        "id IN (SELECT value FROM json_each(?3))",
        (OFF, json.dumps(list(subscriptions)), json.dumps(list(ids))),
    )
    return [_target(row) for row in rows]


def read_pending_deliveries(
    db: Connection, id: int, now: float, pieces: Mapping[str, int], unsaved: DeliveryOutcome | None
) -> PendingDeliveries | None:
    """Reads the pending deliveries of a target; None if it is deleted or switched off.

    `pieces` are the batch sizes by kind, with "" as the default. `unsaved` is an outcome that
    is not written yet.
    """
    row = db.execute(f"SELECT {_COLUMNS} FROM targets WHERE id = ?", (id,)).fetchone()
    if row is None or row["state"] == OFF:
        return None
    target = _target(row)
    failed: dict[int, FailedDelivery] = {}
    hidden: Collection[int] = ()
    if unsaved is not None:
        if unsaved.state == OFF:
            return None
        state = {name: getattr(unsaved, name) for name in ("state", "reason", "failures", "next_at")}
        target = replace(target, cursor=max(target.cursor, unsaved.cursor), **state)
        failed = {n: f for n, f in unsaved.failed.items() if not f.dead}
        hidden = unsaved.settled | unsaved.failed.keys()
    piece = pieces.get(target.kind, pieces[""])
    fresh = read_notifications_after(db, target.cursor, most=piece, subscription=target.subscription)
    waits = _list_waiting(db, id, failed, hidden)
    first = min((at for _, at in waits.values()), default=None)
    next_at = _next_at(target, bool(fresh), first)
    if target.state == FAILING and (target.next_at or 0.0) > now:
        return PendingDeliveries(target, (), (), (), next_at)
    ripe = sorted(number for number, (_, at) in waits.items() if at <= now)[:piece]
    stored = _read_notifications(db, ripe)
    due = tuple((stored[n], waits[n][0]) for n in ripe if n in stored)
    lost = tuple(number for number in ripe if number not in stored)
    return PendingDeliveries(target, due, tuple(fresh), lost, next_at)


def record_outcome(db: Connection, outcome: DeliveryOutcome, now: float) -> float | None:
    """Writes the outcome of an attempt; returns the time from which the target has more to send."""
    id = outcome.target.id
    row = db.execute("SELECT * FROM targets WHERE id = ?", (id,)).fetchone()
    if row is None:
        return None
    db.executemany(
        "DELETE FROM deliveries WHERE target = ? AND number = ?", [(id, number) for number in outcome.settled]
    )
    # Expired ones were counted by `expire`, and cannot be sent again.
    db.executemany(
        "INSERT OR REPLACE INTO deliveries (target, number, attempts, next_at, state, error, at) "
        "SELECT ?, number, ?, ?, ?, ?, ? FROM outbox WHERE number = ?",
        [
            (id, f.attempts, f.next_at, DEAD if f.dead else WAITING, f.error, now, number)
            for number, f in outcome.failed.items()
        ],
    )
    db.execute(
        "UPDATE targets SET cursor = max(cursor, ?), delivered = delivered + ? WHERE id = ?",
        (outcome.cursor, outcome.counted.get("delivered", 0), id),
    )
    # A manual change during the attempt takes precedence.
    if row["changed"] == outcome.target.changed:
        db.execute(
            "UPDATE targets SET state = ?, reason = ?, failures = ?, next_at = ? WHERE id = ?",
            (outcome.state, outcome.reason, outcome.failures, outcome.next_at, id),
        )
    subscription = outcome.target.subscription
    increment_all(db, [(subscription, name, by) for name, by in outcome.counted.items() if by])
    return _after(db, get_target(db, id))


def _after(db: Connection, target: Target) -> float | None:
    fresh = read_notifications_after(db, target.cursor, most=1, subscription=target.subscription)
    first = db.execute(
        "SELECT min(coalesce(next_at, 0.0)) FROM deliveries WHERE target = ? AND state = ?", (target.id, WAITING)
    ).fetchone()[0]
    return _next_at(target, bool(fresh), first)


def _next_at(target: Target, fresh: bool, first: float | None) -> float | None:
    """When a target has something to send: new notifications at once, others from `first` on."""
    due = 0.0 if fresh else first
    if target.state == OFF:
        return None
    if due is None or target.state == ON:
        return due
    return max(due, target.next_at or 0.0)


def _list_waiting(
    db: Connection, id: int, failed: Mapping[int, FailedDelivery], hidden: Collection[int]
) -> dict[int, tuple[int, float]]:
    """The failed notifications of a target: their attempts and due times."""
    rows = db.execute("SELECT number, attempts, next_at FROM deliveries WHERE target = ? AND state = ?", (id, WAITING))
    stored = {row[0]: (row[1], row[2] or 0.0) for row in rows if row[0] not in hidden}
    return stored | {number: (f.attempts, f.next_at) for number, f in failed.items()}


def _read_notifications(db: Connection, numbers: Sequence[int]) -> dict[int, Notification]:
    rows = db.execute(
        "SELECT * FROM outbox WHERE number IN (SELECT value FROM json_each(?))", (json.dumps(list(numbers)),)
    )
    return {row["number"]: Notification(*row) for row in rows}


def _target(row: Row) -> Target:
    return Target(*(row[field.name] for field in fields(Target)))


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)
