"""Events that could not be accepted, with the reason, until newer ones take their place."""

from collections.abc import Iterable
from sqlite3 import Connection
from typing import Any


def add_bad_events(
    db: Connection, at: float, user: int, producer: str | None, bad: Iterable[tuple[str, str]]
) -> None:
    """Adds events of a producer: (reason, event)."""
    db.executemany(
        "INSERT INTO bad_events (at, user, producer, reason, event) VALUES (?, ?, ?, ?, ?)",
        ((at, user, producer, reason, event) for reason, event in bad),
    )


def newest(
    db: Connection, *, user: int | None, most: int, before: int = 1 << 62
) -> list[dict[str, Any]]:
    """The newest events of a user, or of all users, with the name of the user."""
    rows = db.execute(
        "SELECT b.id, b.at, u.name AS user, b.producer, b.reason, b.event FROM bad_events b "
        "LEFT JOIN users u ON u.id = b.user "
        "WHERE (?1 IS NULL OR b.user = ?1) AND b.id < ?2 ORDER BY b.id DESC LIMIT ?3",
        (user, before, most),
    )
    return [dict(row) for row in rows]


def forget(db: Connection, most: int) -> None:
    """Keeps so many of the newest."""
    db.execute("DELETE FROM bad_events WHERE id <= (SELECT max(id) FROM bad_events) - ?", (most,))
