"""Targets: where the notes of a subscription go, how far each has come, and what failed."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sqlite3 import Connection, Row
from typing import Any

from ensue.service.notes import Note
from ensue.service.refusals import NotFoundError
from ensue.service.store.counters import count_all

ON, FAILING, OFF = "on", "failing", "off"
WAITING, DEAD = "waiting", "dead"
_MOST_COUNTED = 10_000  # notes behind that are counted to be shown
_SECRET = re.compile(r"pass|secret|token|credential|authorization|key$", re.IGNORECASE)
_OPENED = (
    "id, subscription, user, kind, unseal(config) AS config, unseal(secrets) AS secrets, cursor, "
    "state, reason, failures, next_at, created, delivered, changed"
)
_LOGIN = re.compile(r"(?<=://)[^/@\s]*@")


# ------------------------------------------------------------------------------- what is known


@dataclass(frozen=True, slots=True)
class Target:
    """One way that the notes of a subscription go."""

    id: int
    subscription: int
    user: int
    kind: str
    config: str = field(repr=False)  # JSON
    secrets: str = field(repr=False)  # JSON, see delivery.signing; both are sealed in the file
    cursor: int  # notes up to it are delivered, or have a row of their own
    state: str
    reason: str | None
    failures: int  # in a row
    next_at: float | None
    changed: float  # by hand


@dataclass(frozen=True, slots=True)
class Due:
    """A note that failed before, and is to be tried again."""

    note: Note
    attempts: int


@dataclass(frozen=True, slots=True)
class Work:
    """What a target has to send now."""

    target: Target
    due: tuple[Due, ...]
    fresh: tuple[Note, ...]
    lost: tuple[int, ...]  # waited, and the outbox has them no longer
    next_at: float | None  # when there is more to do, if nothing else happens


@dataclass(frozen=True, slots=True)
class Failed:
    """How a note stands after it failed."""

    attempts: int
    next_at: float
    error: str
    dead: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What has become of notes that a target had to send, and how it stands now."""

    target: Target  # as it was before
    cursor: int
    settled: frozenset[int] = frozenset()  # had rows, need them no longer
    failed: Mapping[int, Failed] = field(default_factory=dict)
    state: str = ON
    reason: str | None = None
    failures: int = 0
    next_at: float | None = None
    counted: Mapping[str, int] = field(default_factory=dict)

    def then(self, later: "Outcome") -> "Outcome":
        """Both, one after the other."""
        kept = {n: f for n, f in self.failed.items() if n not in later.settled}
        names = {**self.counted, **later.counted}
        return replace(
            later,
            target=self.target,
            cursor=max(self.cursor, later.cursor),
            settled=self.settled | later.settled,
            failed={**kept, **later.failed},
            counted={n: self.counted.get(n, 0) + later.counted.get(n, 0) for n in names},
        )


@dataclass(frozen=True, slots=True)
class After:
    """Whether a target has more to do: at once, or from a moment on."""

    more: bool
    next_at: float | None


@dataclass(frozen=True, slots=True)
class TargetState:
    """A target as its user is shown it."""

    id: int
    subscription: int
    user: int
    kind: str
    config: dict[str, Any]  # without what is secret
    state: str
    reason: str | None
    failures: int
    next_at: float | None  # when it is tried again, if it waits for that
    delivered: int
    behind: int  # notes that wait to be sent for the first time
    waiting: int  # that failed and are tried again
    dead: int
    secrets: int  # in force or about to end
    created: float


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A note that was tried too often."""

    number: int
    kind: str
    match_id: str | None
    attempts: int
    error: str
    at: float


# ------------------------------------------------------------------------------- by hand


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
    """Adds a target, which gets the notes from here on; gives its id."""
    newest = db.execute("SELECT coalesce(max(number), 0) FROM outbox").fetchone()[0]
    made = db.execute(
        "INSERT INTO targets "
        "(subscription, user, kind, config, secrets, cursor, created, changed) "
        "VALUES (?, ?, ?, seal(?), seal(?), ?, ?, ?)",
        (subscription, user, kind, _text(config), _text(secrets), newest, now, now),
    )
    assert made.lastrowid is not None
    return made.lastrowid


def target_of(db: Connection, id: int) -> Target:
    """A target, or NotFoundError."""
    row = db.execute(f"SELECT {_OPENED} FROM targets WHERE id = ?", (id,)).fetchone()
    if row is None:
        raise NotFoundError(f"there is no target {id}")
    return _target(row)


def change_target(db: Connection, id: int, config: Mapping[str, Any], *, now: float) -> None:
    """Sends the notes of a target elsewhere from now on."""
    _change(db, id, now, "config = seal(?)", _text(config))


def change_secrets(
    db: Connection, id: int, secrets: Sequence[Mapping[str, Any]], *, now: float
) -> None:
    """Signs with other secrets from now on."""
    _change(db, id, now, "secrets = seal(?)", _text(secrets))


def remove_target(db: Connection, id: int) -> None:
    """Forgets a target, and what it still had to send."""
    target_of(db, id)
    db.execute("DELETE FROM deliveries WHERE target = ?", (id,))
    db.execute("DELETE FROM targets WHERE id = ?", (id,))


def switch_on(db: Connection, id: int, *, now: float) -> None:
    """Goes on where the target stopped, at once."""
    _change(db, id, now, "state = ?, reason = NULL, failures = 0, next_at = NULL", ON)
    db.execute(
        "UPDATE deliveries SET next_at = ? WHERE target = ? AND state = ?", (now, id, WAITING)
    )


def switch_off(db: Connection, id: int, reason: str, *, now: float) -> None:
    """Sends nothing until the target is switched on again."""
    _change(db, id, now, "state = ?, reason = ?, next_at = NULL", OFF, reason)


def redeliver(
    db: Connection, id: int, numbers: Iterable[int] | None = None, *, now: float
) -> tuple[int, ...]:
    """Puts notes back to be sent again: those of these numbers, or all dead letters.

    A target gets notes of its subscription only, and those that are still kept; the answer
    says which. What is not sent yet comes anyway. A target that fails is tried at once.
    """
    target = target_of(db, id)
    if numbers is None:
        chosen = "SELECT number FROM deliveries WHERE target = ? AND state = ?"
        numbers = [row[0] for row in db.execute(chosen, (id, DEAD))]
    found = db.execute(
        "SELECT number FROM outbox WHERE subscription = ? AND number <= ? "
        "AND number IN (SELECT value FROM json_each(?)) ORDER BY number",
        (target.subscription, target.cursor, json.dumps(list(numbers))),
    )
    back = tuple(row[0] for row in found)
    db.executemany(
        "INSERT OR REPLACE INTO deliveries (target, number, attempts, next_at, state, at) "
        "VALUES (?, ?, 0, ?, ?, ?)",
        [(id, number, now, WAITING, now) for number in back],
    )
    _change(db, id, now, "next_at = NULL")
    return back


def _change(db: Connection, id: int, now: float, what: str, *values: object) -> None:
    # The moment of a change tells it from others: it grows even if the clock does not.
    done = db.execute(
        f"UPDATE targets SET {what}, changed = max(?, changed + 0.000001) WHERE id = ?",
        (*values, now, id),
    )
    if not done.rowcount:
        raise NotFoundError(f"there is no target {id}")


# ------------------------------------------------------------------------------- to be looked at


def target_states(
    db: Connection, user: int | None = None, subscription: int | None = None
) -> list[TargetState]:
    """Targets as they stand: of a user, of a subscription, or all."""
    rows = db.execute(
        f"SELECT {_OPENED}, (SELECT count(*) FROM (SELECT 1 FROM outbox o "
        "  WHERE o.subscription = t.subscription AND o.number > t.cursor LIMIT ?)) AS behind, "
        "(SELECT count(*) FROM deliveries d WHERE d.target = t.id AND d.state = ?) AS waiting, "
        "(SELECT count(*) FROM deliveries d WHERE d.target = t.id AND d.state = ?) AS dead, "
        "(SELECT min(coalesce(d.next_at, 0.0)) FROM deliveries d "
        "  WHERE d.target = t.id AND d.state = ?2) AS first "
        "FROM targets t WHERE (?4 IS NULL OR t.user = ?4) "
        "AND (?5 IS NULL OR t.subscription = ?5) ORDER BY t.id",
        (_MOST_COUNTED, WAITING, DEAD, user, subscription),
    )
    return [
        TargetState(
            row["id"],
            row["subscription"],
            row["user"],
            row["kind"],
            shown(json.loads(row["config"])),
            row["state"],
            row["reason"],
            row["failures"],
            _next_at(_target(row), row["behind"] > 0, row["first"]) or None,
            row["delivered"],
            row["behind"],
            row["waiting"],
            row["dead"],
            len(json.loads(row["secrets"])),
            row["created"],
        )
        for row in rows
    ]


def dead_letters(db: Connection, id: int, *, after: int = 0, limit: int = 100) -> list[DeadLetter]:
    """Notes that a target has given up, in order."""
    rows = db.execute(
        "SELECT d.number, o.kind, o.match_id, d.attempts, d.error, d.at FROM deliveries d "
        "JOIN outbox o ON o.number = d.number "
        "WHERE d.target = ? AND d.state = ? AND d.number > ? ORDER BY d.number LIMIT ?",
        (id, DEAD, after, limit),
    )
    return [DeadLetter(*row) for row in rows]


def shown(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without what is secret.

    >>> shown({"url": "nats://me:pass@host", "password": "x", "headers": {"api-key": "y"}})
    {'url': 'nats://host', 'password': '***', 'headers': {'api-key': '***'}}
    """
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            hidden = name == "headers"  # any of them may be a key
            found[name] = dict.fromkeys(value, "***") if hidden else shown(value)
        elif _SECRET.search(name):
            found[name] = "***"
        else:
            found[name] = _LOGIN.sub("", value) if isinstance(value, str) else value
    return found


# ------------------------------------------------------------------------------- for the courier


def with_work(db: Connection) -> list[Target]:
    """Targets that have something to send, now or later."""
    rows = db.execute(
        f"SELECT {_OPENED} FROM targets t WHERE t.state <> ? AND ("
        "EXISTS (SELECT 1 FROM outbox o WHERE o.subscription = t.subscription "
        "  AND o.number > t.cursor) "
        "OR EXISTS (SELECT 1 FROM deliveries d WHERE d.target = t.id AND d.state = ?))",
        (OFF, WAITING),
    )
    return [_target(row) for row in rows]


def woken(db: Connection, subscriptions: Collection[int], ids: Collection[int]) -> list[Target]:
    """Targets of these subscriptions, and those of these ids, that are not switched off."""
    rows = db.execute(
        f"SELECT {_OPENED} FROM targets WHERE state <> ?1 AND "
        "subscription IN (SELECT value FROM json_each(?2)) "
        f"UNION SELECT {_OPENED} FROM targets WHERE state <> ?1 AND "
        "id IN (SELECT value FROM json_each(?3))",
        (OFF, json.dumps(list(subscriptions)), json.dumps(list(ids))),
    )
    return [_target(row) for row in rows]


def work_of(
    db: Connection, id: int, now: float, pieces: Mapping[str, int], unsaved: Outcome | None
) -> Work | None:
    """What a target has to send now; nothing if it is gone or switched off.

    `pieces` says how many notes at a time, by kind; "" is for the others. `unsaved` is what the
    file does not know yet.
    """
    row = db.execute(f"SELECT {_OPENED} FROM targets WHERE id = ?", (id,)).fetchone()
    if row is None or row["state"] == OFF:
        return None
    target = _target(row)
    failed: dict[int, Failed] = {}
    hidden: Collection[int] = ()
    if unsaved is not None:
        if unsaved.state == OFF:
            return None
        target = replace(
            target,
            cursor=max(target.cursor, unsaved.cursor),
            state=unsaved.state,
            reason=unsaved.reason,
            failures=unsaved.failures,
            next_at=unsaved.next_at,
        )
        failed = {n: f for n, f in unsaved.failed.items() if not f.dead}
        hidden = unsaved.settled | unsaved.failed.keys()
    piece = pieces.get(target.kind, pieces[""])
    fresh = db.execute(
        "SELECT * FROM outbox WHERE subscription = ? AND number > ? ORDER BY number LIMIT ?",
        (target.subscription, target.cursor, piece),
    ).fetchall()
    waits = _waiting(db, id, failed, hidden)
    first = min((at for _, at in waits.values()), default=None)
    next_at = _next_at(target, bool(fresh), first)
    if target.state == FAILING and (target.next_at or 0.0) > now:
        return Work(target, (), (), (), next_at)
    ripe = sorted(number for number, (_, at) in waits.items() if at <= now)[:piece]
    kept = _notes(db, ripe)
    due = tuple(Due(kept[number], waits[number][0]) for number in ripe if number in kept)
    lost = tuple(number for number in ripe if number not in kept)
    return Work(target, due, tuple(map(_note, fresh)), lost, next_at)


def record(db: Connection, outcome: Outcome, now: float) -> After:
    """Writes down what has become of notes; gives when the target has more to do."""
    id = outcome.target.id
    row = db.execute("SELECT * FROM targets WHERE id = ?", (id,)).fetchone()
    if row is None:
        return After(False, None)
    db.executemany(
        "DELETE FROM deliveries WHERE target = ? AND number = ?",
        [(id, number) for number in outcome.settled],
    )
    # What retention has removed meanwhile was counted then, and cannot be sent again.
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
    # What was changed by hand meanwhile stays so.
    if row["changed"] == outcome.target.changed:
        db.execute(
            "UPDATE targets SET state = ?, reason = ?, failures = ?, next_at = ? WHERE id = ?",
            (outcome.state, outcome.reason, outcome.failures, outcome.next_at, id),
        )
    subscription = outcome.target.subscription
    count_all(db, [(subscription, name, by) for name, by in outcome.counted.items() if by])
    return _after(db, target_of(db, id), now)


def expire(db: Connection, upto: int) -> dict[int, int]:
    """Gives up the notes up to a number, whose rows the outbox is about to lose.

    Who removes them calls this first, in the same transaction. Those that a target has not
    delivered are counted as expired; the answer has them by subscription.
    """
    behind = db.execute(
        "SELECT t.subscription, count(*) FROM outbox o "
        "CROSS JOIN targets t ON t.subscription = o.subscription AND t.cursor < o.number "
        "WHERE o.number <= ? GROUP BY t.subscription",
        (upto,),
    ).fetchall()
    waiting = db.execute(
        "SELECT t.subscription, count(*) FROM deliveries d JOIN targets t ON t.id = d.target "
        "WHERE d.number <= ? AND d.state = ? GROUP BY t.subscription",
        (upto, WAITING),
    ).fetchall()
    db.execute("DELETE FROM deliveries WHERE number <= ?", (upto,))
    expired: dict[int, int] = {}
    for subscription, number in [*behind, *waiting]:
        expired[subscription] = expired.get(subscription, 0) + number
    count_all(db, [(subscription, "expired", by) for subscription, by in expired.items()])
    return expired


# ------------------------------------------------------------------------------- rows


def _after(db: Connection, target: Target, now: float) -> After:
    fresh = db.execute(
        "SELECT 1 FROM outbox WHERE subscription = ? AND number > ? LIMIT 1",
        (target.subscription, target.cursor),
    ).fetchone()
    first = db.execute(
        "SELECT min(coalesce(next_at, 0.0)) FROM deliveries WHERE target = ? AND state = ?",
        (target.id, WAITING),
    ).fetchone()[0]
    at = _next_at(target, fresh is not None, first)
    return After(at is not None and at <= now, at)


def _next_at(target: Target, fresh: bool, first: float | None) -> float | None:
    """When a target has something to send: fresh notes at once, others from `first` on."""
    due = 0.0 if fresh else first
    if target.state == OFF:
        return None
    if due is None or target.state == ON:
        return due
    return max(due, target.next_at or 0.0)


def _waiting(
    db: Connection, id: int, failed: Mapping[int, Failed], hidden: Collection[int]
) -> dict[int, tuple[int, float]]:
    """The notes of a target that failed: how often, and when they are due."""
    rows = db.execute(
        "SELECT number, attempts, next_at FROM deliveries WHERE target = ? AND state = ?",
        (id, WAITING),
    )
    found = {row[0]: (row[1], row[2] or 0.0) for row in rows if row[0] not in hidden}
    return found | {number: (f.attempts, f.next_at) for number, f in failed.items()}


def _notes(db: Connection, numbers: Sequence[int]) -> dict[int, Note]:
    rows = db.execute(
        "SELECT * FROM outbox WHERE number IN (SELECT value FROM json_each(?))",
        (json.dumps(list(numbers)),),
    )
    return {row["number"]: _note(row) for row in rows}


def _note(row: Row) -> Note:
    return Note(
        row["number"],
        row["subscription"],
        row["user"],
        row["kind"],
        row["match_id"],
        row["at"],
        row["body"],
    )


def _target(row: Row) -> Target:
    return Target(
        row["id"],
        row["subscription"],
        row["user"],
        row["kind"],
        row["config"],
        row["secrets"],
        row["cursor"],
        row["state"],
        row["reason"],
        row["failures"],
        row["next_at"],
        row["changed"],
    )


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)
