"""Counters by subscription; those of the service as a whole are of subscription 0."""

from collections.abc import Iterable
from sqlite3 import Connection

WHOLE = 0  # in the place of a subscription


def count(db: Connection, subscription: int, name: str, by: int = 1) -> None:
    """Adds to a counter."""
    count_all(db, [(subscription, name, by)])


def count_all(db: Connection, counted: Iterable[tuple[int, str, int]]) -> None:
    """Adds to counters: (subscription, name, by)."""
    db.executemany(
        "INSERT INTO counters VALUES (?, ?, ?) "
        "ON CONFLICT (subscription, name) DO UPDATE SET value = value + excluded.value",
        counted,
    )


def counted(db: Connection, subscription: int) -> dict[str, int]:
    """The counters of a subscription."""
    rows = db.execute("SELECT name, value FROM counters WHERE subscription = ?", (subscription,))
    return dict(map(tuple, rows))


def totals(db: Connection) -> dict[str, int]:
    """All counters, added up over subscriptions."""
    return dict(map(tuple, db.execute("SELECT name, sum(value) FROM counters GROUP BY name")))
