"""Subscriptions, and the changes of the set that is matched."""

import json
from collections.abc import Iterable, Iterator, Sequence
from sqlite3 import Connection, Row
from typing import Any

from ensue.workload.subscriptions.catalogue.change import Change, Kind

ACTIVE, PAUSED, ENDED = "active", "paused", "ended"


def add_subscription(db: Connection, **columns: Any) -> int:
    """Adds one; gives its number."""
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    made = db.execute(
        f"INSERT INTO subscriptions ({names}) VALUES ({marks})", tuple(columns.values())
    )
    return int(made.lastrowid or 0)


def change_subscription(db: Connection, id: int, **columns: Any) -> None:
    """Writes some columns anew."""
    sets = ", ".join(f"{name} = ?" for name in columns)
    db.execute(f"UPDATE subscriptions SET {sets} WHERE id = ?", (*columns.values(), id))


def subscription_of(db: Connection, id: int) -> Row | None:
    """The subscription of a number."""
    found: Row | None = db.execute("SELECT * FROM subscriptions WHERE id = ?", (id,)).fetchone()
    return found


def subscriptions_of(
    db: Connection, user: int | None, state: str | None, after: int, most: int
) -> list[Row]:
    """Subscriptions in the order in which they were made: of a user, or of all."""
    where, given = ["id > ?"], [after]
    more: list[Any] = []
    if user is not None:
        where.append("user = ?")
        more.append(user)
    if state is not None:
        where.append("state = ?")
        more.append(state)
    else:
        where.append(f"state <> '{ENDED}'")
    return db.execute(
        f"SELECT * FROM subscriptions WHERE {' AND '.join(where)} ORDER BY id LIMIT ?",
        (*given, *more, most),
    ).fetchall()


def used_by(db: Connection, user: int) -> tuple[int, int]:
    """How many subscriptions a user has, and how many corners their regions."""
    row = db.execute("SELECT subscriptions, corners FROM usage WHERE user = ?", (user,)).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def expired(db: Connection, now: float) -> list[int]:
    """Those whose time is over."""
    rows = db.execute(
        f"SELECT id FROM subscriptions WHERE expires <= ? AND state <> '{ENDED}'", (now,)
    )
    return [row[0] for row in rows]


# -------------------------------------------------------------------------------- the set


def version_of(db: Connection) -> int:
    """The version of the set that is matched."""
    row = db.execute("SELECT value FROM settings WHERE name = 'version'").fetchone()
    return 0 if row is None else int(row[0])


def keep_changes(db: Connection, changes: Sequence[Change]) -> int:
    """Keeps changes of the set as its next version."""
    version = version_of(db) + 1
    db.execute("INSERT OR REPLACE INTO settings VALUES ('version', ?)", (str(version),))
    db.executemany(
        "INSERT INTO changes (version, kind, subscription, text, language, regions) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (
            (version, c.kind.value, int(c.name), c.text, c.language, json.dumps(dict(c.regions)))
            for c in changes
        ),
    )
    return version


def changes_behind(db: Connection, version: int, until: int) -> Iterator[tuple[int, Change]]:
    """The changes behind a version, up to and with another."""
    return map(
        _change,
        db.execute(
            "SELECT version, kind, subscription, text, language, regions FROM changes "
            "WHERE version > ? AND version <= ? ORDER BY id",
            (version, until),
        ),
    )


def alive(db: Connection, version: int) -> Iterator[tuple[int, Change]]:
    """The set at a version, each with the version it came with."""
    for came, change in map(_change, alive_rows(db, version)):
        yield came, Change.add(change.name, change.text or "", **_rest(change))


def alive_rows(db: Connection, version: int) -> Iterable[Row]:
    """The same as rows."""
    return db.execute(
        "SELECT c.version, c.kind, c.subscription, c.text, c.language, c.regions FROM changes c "
        "WHERE c.version <= ?1 AND c.kind <> 1 AND NOT EXISTS (SELECT 1 FROM changes d "
        "WHERE d.subscription = c.subscription AND d.id > c.id AND d.version <= ?1) ORDER BY c.id",
        (version,),
    )


def came_with(db: Connection, id: int) -> int:
    """The version that a subscription came with, or came again."""
    row = db.execute(
        "SELECT max(version) FROM changes WHERE subscription = ? AND kind <> ?",
        (id, Kind.CANCEL.value),
    ).fetchone()
    return int(row[0] or 0)


def forget_changes(db: Connection, version: int) -> None:
    """Lets go of changes up to a version that later ones have undone."""
    db.execute(
        "DELETE FROM changes WHERE version <= ?1 AND (kind = 1 OR EXISTS (SELECT 1 FROM changes d "
        "WHERE d.subscription = changes.subscription AND d.id > changes.id AND d.version <= ?1))",
        (version,),
    )


def _change(row: Row) -> tuple[int, Change]:
    kind = Kind(row["kind"])
    name = str(row["subscription"])
    if kind is Kind.CANCEL:
        return row["version"], Change.cancel(name)
    regions = json.loads(row["regions"] or "{}")
    made = Change(kind, name, row["text"], row["language"], regions)
    return row["version"], made


def _rest(change: Change) -> dict[str, Any]:
    return {"language": change.language, "regions": change.regions}
