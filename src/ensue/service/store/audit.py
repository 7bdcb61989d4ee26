"""Who changed what, and when."""

import time
from sqlite3 import Connection, Row

NOBODY = 0  # in the place of a user: somebody who could not sign in
MOST = 1_000  # entries in one answer


def record(
    db: Connection,
    user: int,
    action: str,
    subject: object = "",
    detail: str = "",
    *,
    at: float | None = None,
) -> None:
    """Writes down that a user did something to a subject, in the transaction that does it."""
    db.execute(
        "INSERT INTO audit (at, user, action, subject, detail) VALUES (?, ?, ?, ?, ?)",
        (time.time() if at is None else at, user, action, str(subject), detail),
    )


def recorded(
    db: Connection, *, user: int | None = None, before: int | None = None, limit: int = 100
) -> list[Row]:
    """The newest entries first, of one user or of all; `before` goes on behind an entry."""
    wanted, values = ["id < ?"], [before if before is not None else 1 << 62]
    if user is not None:
        wanted.append("audit.user = ?")
        values.append(user)
    rows = db.execute(
        "SELECT audit.*, (SELECT name FROM users WHERE users.id = audit.user) AS name "
        f"FROM audit WHERE {' AND '.join(wanted)} ORDER BY id DESC LIMIT ?",
        (*values, max(0, min(limit, MOST))),
    )
    return rows.fetchall()


def forget(db: Connection, before: float) -> int:
    """Removes entries that are older, and says how many."""
    return db.execute("DELETE FROM audit WHERE at < ?", (before,)).rowcount
