"""Notes that were committed, by number, until retention lets them go."""

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any

from ensue.service.notes import MATCH, Note
from ensue.service.store import targets

MOST_FORGOTTEN = 50_000  # notes that go at a time
# subscription, user, kind, match_id, at, body
Row = tuple[int, int, str, str | None, float, bytes]


def add_notes(db: Connection, rows: Sequence[Row]) -> list[Note]:
    """Adds notes in order; matches that are there already are left out."""
    last = newest(db)
    before = db.total_changes
    db.executemany(
        "INSERT OR IGNORE INTO outbox (subscription, user, kind, match_id, at, body) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        rows,
    )
    if db.total_changes - before == len(rows):  # the usual case: none was there
        return [Note(number, *row) for number, row in enumerate(rows, last + 1)]
    return notes_behind(db, last, most=len(rows))


def newest(db: Connection) -> int:
    """The number of the newest note there ever was."""
    row = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'").fetchone()
    return 0 if row is None else int(row[0])


def notes_behind(
    db: Connection,
    after: int,
    *,
    most: int,
    user: int | None = None,
    subscription: int | None = None,
) -> list[Note]:
    """The next notes behind a number: all, those of a user, or those of a subscription."""
    where, given = ["number > ?"], [after]
    if subscription is not None:
        where.append("subscription = ?")
        given.append(subscription)
    if user is not None:
        where.append("user = ?" if subscription is None else "+user = ?")
        given.append(user)
    rows = db.execute(
        "SELECT number, subscription, user, kind, match_id, at, body FROM outbox "
        f"WHERE {' AND '.join(where)} ORDER BY number LIMIT ?",
        (*given, most),
    )
    return [Note(*row) for row in rows]


def newest_notes(
    db: Connection, *, most: int, user: int | None = None, subscription: int | None = None
) -> list[Note]:
    """The newest notes, newest first."""
    where, given = ["kind = ?"], [MATCH]
    given_more: list[Any] = []
    for name, value in (("user", user), ("subscription", subscription)):
        if value is not None:
            where.append(f"{name} = ?")
            given_more.append(value)
    rows = db.execute(
        "SELECT number, subscription, user, kind, match_id, at, body FROM outbox "
        f"WHERE {' AND '.join(where)} ORDER BY number DESC LIMIT ?",
        (*given, *given_more, most),
    )
    return [Note(*row) for row in rows]


def note_of(db: Connection, number: int) -> Note | None:
    """The note of a number."""
    row = db.execute(
        "SELECT number, subscription, user, kind, match_id, at, body FROM outbox WHERE number = ?",
        (number,),
    ).fetchone()
    return None if row is None else Note(*row)


def forgotten_up_to(db: Connection, user: int | None) -> int:
    """The number up to which notes of a user are gone; 0: none are."""
    row = db.execute(
        "SELECT max(number) FROM forgotten WHERE ?1 IS NULL OR user = ?1", (user,)
    ).fetchone()
    return int(row[0] or 0)


def forget_notes(db: Connection, before: float) -> int:
    """Lets go of some notes that were committed before a moment; gives how many."""
    last = 0
    for row in db.execute(
        "SELECT number, at FROM outbox ORDER BY number LIMIT ?", (MOST_FORGOTTEN,)
    ):
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
    targets.expire(db, last)
    return db.execute("DELETE FROM outbox WHERE number <= ?", (last,)).rowcount


def kept(db: Connection) -> tuple[int, float | None]:
    """How many notes are kept, and since when the oldest is."""
    row = db.execute("SELECT number, at FROM outbox ORDER BY number LIMIT 1").fetchone()
    return (0, None) if row is None else (newest(db) - row["number"] + 1, row["at"])
