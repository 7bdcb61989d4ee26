"""Regions that users have drawn or brought."""

import time
from sqlite3 import Connection, Row


def put_region(db: Connection, user: int, name: str, text: str) -> None:
    """Adds a region, or gives it another shape."""
    db.execute(
        "INSERT INTO regions (user, name, text, created) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (user, name) DO UPDATE SET text = excluded.text",
        (user, name, text, time.time()),
    )


def regions_of(db: Connection, user: int) -> dict[str, str]:
    """The regions of a user, by name."""
    rows = db.execute("SELECT name, text FROM regions WHERE user = ? ORDER BY name", (user,))
    return dict(map(tuple, rows))


def region_of(db: Connection, user: int, name: str) -> Row | None:
    """A region of a user."""
    found: Row | None = db.execute(
        "SELECT * FROM regions WHERE user = ? AND name = ?", (user, name)
    ).fetchone()
    return found


def remove_region(db: Connection, user: int, name: str) -> bool:
    """Whether there was one. Subscriptions keep the shape that they were made with."""
    gone = db.execute("DELETE FROM regions WHERE user = ? AND name = ?", (user, name))
    return gone.rowcount > 0
