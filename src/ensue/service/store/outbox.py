"""The outbox: notifications to subscribers by number, until their retention ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any

import orjson

MATCH, STARTED, ENDED, RESYNC = "match", "started", "ended", "resync"
WAITING, DEAD = "waiting", "dead"  # states of failed deliveries


@dataclass(frozen=True, slots=True)
class Notification:
    """A notification; its increasing number is the token for resuming."""

    number: int
    subscription: int
    user: int
    kind: str
    match_id: str | None
    at: float  # when it was committed, in seconds since 1970
    body: bytes  # JSON, the same bytes for every target

    @property
    def content(self) -> dict[str, Any]:
        content: dict[str, Any] = orjson.loads(self.body)
        return content

    @property
    def message_id(self) -> str:
        """An id that is equal for all attempts to deliver it, so that receivers can drop duplicates."""
        return self.match_id or f"sub_{self.subscription}_{self.kind}_{self.number}"

    @property
    def frame(self) -> bytes:
        """The notification as a server-sent event."""
        return b"id: %d\nevent: %b\ndata: %b\n\n" % (self.number, self.kind.encode(), self.body)


@dataclass(frozen=True, slots=True)
class OutboxPage:
    """A page of the outbox: the notifications after a number, read before the other fields."""

    notifications: Sequence[Notification]
    floor: int  # notifications up to this number have expired
    newest: int  # the highest number ever assigned


PRUNE_CHUNK = 50_000  # notifications deleted at a time
# subscription, user, kind, match_id, at, body
OutboxRow = tuple[int, int, str, str | None, float, bytes]
_SELECT = "SELECT number, subscription, user, kind, match_id, at, body FROM outbox WHERE"


def add_notifications(db: Connection, rows: Sequence[OutboxRow]) -> list[Notification]:
    """Appends notifications; matches that are already present are skipped."""
    last = get_newest_number(db)
    before = db.total_changes
    db.executemany(
        "INSERT OR IGNORE INTO outbox (subscription, user, kind, match_id, at, body) VALUES (?, ?, ?, ?, ?, ?)", rows
    )
    if db.total_changes - before == len(rows):  # the usual case: no duplicates
        return [Notification(number, *row) for number, row in enumerate(rows, last + 1)]
    return read_notifications_after(db, last, most=len(rows))


def get_newest_number(db: Connection) -> int:
    """The highest number ever assigned."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'").fetchone()
    return 0 if row is None else int(row[0])


def read_notifications_after(
    db: Connection, after: int, *, most: int, user: int | None = None, subscription: int | None = None
) -> list[Notification]:
    """Reads the notifications after a number: all, or those of a user or subscription."""
    return _read(db, "number > ?", after, user, subscription, "ORDER BY number", most)


def read_page(
    db: Connection, after: int, most: int, *, user: int | None = None, subscription: int | None = None
) -> OutboxPage:
    db.execute("BEGIN")  # all three read the same snapshot
    try:
        notifications = read_notifications_after(db, after, most=most, user=user, subscription=subscription)
        return OutboxPage(notifications, get_expired_number(db, user), get_newest_number(db))
    finally:
        db.execute("ROLLBACK")


def read_newest_matches(
    db: Connection, *, most: int, user: int | None = None, subscription: int | None = None
) -> list[Notification]:
    return _read(db, "kind = ?", MATCH, user, subscription, "ORDER BY number DESC", most)


def _read(
    db: Connection, where: str, value: Any, user: int | None, subscription: int | None,
    order: str, most: int,
) -> list[Notification]:  # fmt: skip
    values = [value]
    if subscription is not None:
        where += " AND subscription = ?"
        values.append(subscription)
    if user is not None:  # +user: not by its index
        where += " AND user = ?" if subscription is None else " AND +user = ?"
        values.append(user)
    query = f"{_SELECT} {where} {order} LIMIT ?"
    return [Notification(*row) for row in db.execute(query, (*values, most))]


def get_notification(db: Connection, number: int) -> Notification | None:
    row = db.execute(f"{_SELECT} number = ?", (number,)).fetchone()
    return None if row is None else Notification(*row)


def get_expired_number(db: Connection, user: int | None) -> int:
    """The number up to which notifications of a user have expired, or 0."""
    row = db.execute("SELECT max(number) FROM forgotten WHERE ?1 IS NULL OR user = ?1", (user,)).fetchone()
    return int(row[0] or 0)


def prune_notifications(db: Connection, before: float) -> int:
    """Deletes notifications older than a time, at most a chunk; returns how many."""
    last = 0
    for row in db.execute("SELECT number, at FROM outbox ORDER BY number LIMIT ?", (PRUNE_CHUNK,)):
        if row["at"] >= before:
            break
        last = row["number"]
    if not last:
        return 0
    db.execute(
        "INSERT INTO forgotten SELECT user, max(number) FROM outbox WHERE number <= ? "
        "GROUP BY user ON CONFLICT (user) DO UPDATE SET number = excluded.number",
        (last,),
    )
    expire_deliveries(db, last)
    return db.execute("DELETE FROM outbox WHERE number <= ?", (last,)).rowcount


def count_stored(db: Connection) -> tuple[int, float | None]:
    """The number of stored notifications, and the time of the oldest."""
    row = db.execute("SELECT number, at FROM outbox ORDER BY number LIMIT 1").fetchone()
    return (0, None) if row is None else (get_newest_number(db) - row["number"] + 1, row["at"])


def expire_deliveries(db: Connection, upto: int) -> None:
    """Gives up notifications that the outbox is about to delete; undelivered ones are counted as expired.

    It is called first, in the same transaction.
    """
    db.execute(
        "INSERT INTO counters SELECT subscription, 'expired', count(*) FROM ("
        "SELECT t.subscription FROM outbox o "
        "CROSS JOIN targets t ON t.subscription = o.subscription AND t.cursor < o.number WHERE o.number <= ?1 "
        "UNION ALL SELECT t.subscription FROM deliveries d JOIN targets t ON t.id = d.target "
        "WHERE d.number <= ?1 AND d.state = ?2) GROUP BY subscription "
        "ON CONFLICT (subscription, name) DO UPDATE SET value = value + excluded.value",
        (upto, WAITING),
    )
    db.execute("DELETE FROM deliveries WHERE number <= ?", (upto,))
