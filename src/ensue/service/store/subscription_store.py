"""Subscriptions, and the changes of the set that is matched."""

import json
from collections.abc import Iterable, Iterator, Sequence
from sqlite3 import Connection, Row
from typing import Any

from ensue.operators.subscriptions.catalog.change import ChangeKind, SubscriptionChange

ACTIVE, PAUSED, ENDED = "active", "paused", "ended"


def add_subscription(db: Connection, **columns: Any) -> int:
    names = ", ".join(columns)
    marks = ", ".join("?" * len(columns))
    cursor = db.execute(f"INSERT INTO subscriptions ({names}) VALUES ({marks})", tuple(columns.values()))
    return int(cursor.lastrowid or 0)


def change_subscription(db: Connection, id: int, **columns: Any) -> None:
    sets = ", ".join(f"{name} = ?" for name in columns)
    db.execute(f"UPDATE subscriptions SET {sets} WHERE id = ?", (*columns.values(), id))


def get_subscription(db: Connection, id: int) -> Row | None:
    row: Row | None = db.execute("SELECT * FROM subscriptions WHERE id = ?", (id,)).fetchone()
    return row


def list_subscriptions(db: Connection, user: int | None, state: str | None, after: int, most: int) -> list[Row]:
    """Reads subscriptions ordered by id: of a user, or of all."""
    of_user, of_state = "" if user is None else "AND user = ?2", "<> 'ended'" if state is None else "= ?3"
    query = f"SELECT * FROM subscriptions WHERE id > ?1 {of_user} AND state {of_state} ORDER BY id LIMIT ?4"
    return db.execute(query, (after, user, state, most)).fetchall()


def get_usage(db: Connection, user: int) -> tuple[int, int]:
    row = db.execute("SELECT subscriptions, corners FROM usage WHERE user = ?", (user,)).fetchone()
    return (0, 0) if row is None else (int(row[0]), int(row[1]))


def list_expired(db: Connection, now: float) -> list[int]:
    rows = db.execute(f"SELECT id FROM subscriptions WHERE expires <= ? AND state <> '{ENDED}'", (now,))
    return [row[0] for row in rows]


def count_by_state(db: Connection, user: int | None = None) -> dict[str, int]:
    """The number of subscriptions in each state: of a user, or of all."""
    query = "SELECT state, count(*) FROM subscriptions WHERE ?1 IS NULL OR user = ?1 GROUP BY state"
    return dict(map(tuple, db.execute(query, (user,))))


def count_paused_by_service(db: Connection, user: int | None = None) -> int:
    """The number of subscriptions that the service paused, not their users."""
    row = db.execute(
        "SELECT count(*) FROM subscriptions WHERE state = ? AND reason IS NOT NULL AND (?2 IS NULL OR user = ?2)",
        (PAUSED, user),
    ).fetchone()
    return int(row[0])


def have_several_users(db: Connection) -> bool:
    """Whether several users have active subscriptions."""
    rows = db.execute("SELECT DISTINCT user FROM subscriptions WHERE state = ? LIMIT 2", (ACTIVE,))
    return len(rows.fetchall()) > 1


# -------------------------------------------------------------------------------- quiet times


def get_quiet_end(db: Connection, id: int, object: str) -> float | None:
    row = db.execute("SELECT until FROM quiet WHERE subscription = ? AND object = ?", (id, object)).fetchone()
    return None if row is None else float(row[0])


def set_quiet_end(db: Connection, id: int, object: str, until: float) -> None:
    db.execute(
        "INSERT INTO quiet VALUES (?, ?, ?) ON CONFLICT (subscription, object) DO UPDATE SET until = excluded.until",
        (id, object, until),
    )


def forget_quiet(db: Connection, id: int) -> None:
    db.execute("DELETE FROM quiet WHERE subscription = ?", (id,))


def prune_quiet(db: Connection, before: float) -> None:
    db.execute("DELETE FROM quiet WHERE until < ?", (before,))


# -------------------------------------------------------------------------------- matched set


def get_version(db: Connection) -> int:
    row = db.execute("SELECT value FROM settings WHERE name = 'version'").fetchone()
    return 0 if row is None else int(row[0])


def store_changes(db: Connection, changes: Sequence[SubscriptionChange]) -> int:
    """Stores changes as the next version of the set."""
    version = get_version(db) + 1
    db.execute("INSERT OR REPLACE INTO settings VALUES ('version', ?)", (str(version),))
    db.executemany(
        "INSERT INTO changes (version, kind, subscription, text, language, regions) VALUES (?, ?, ?, ?, ?, ?)",
        ((version, c.kind.value, int(c.name), c.text, c.language, json.dumps(dict(c.regions))) for c in changes),
    )
    return version


def read_changes_after(db: Connection, version: int, until: int) -> Iterator[tuple[int, SubscriptionChange]]:
    """Reads the changes after `version`, up to and including `until`."""
    return map(
        _change,
        db.execute(
            "SELECT version, kind, subscription, text, language, regions FROM changes "
            "WHERE version > ? AND version <= ? ORDER BY id",
            (version, until),
        ),
    )


def read_set(db: Connection, version: int) -> Iterator[tuple[int, SubscriptionChange]]:
    """Yields the set at a version; each subscription with the version that added it."""
    for added, change in map(_change, read_set_rows(db, version)):
        options = {"language": change.language, "regions": change.regions}
        yield added, SubscriptionChange.add(change.name, change.text or "", **options)


def read_set_rows(db: Connection, version: int) -> Iterable[Row]:
    return db.execute(
        "SELECT c.version, c.kind, c.subscription, c.text, c.language, c.regions FROM changes c "
        "WHERE c.version <= ?1 AND c.kind <> 1 AND NOT EXISTS (SELECT 1 FROM changes d "
        "WHERE d.subscription = c.subscription AND d.id > c.id AND d.version <= ?1) ORDER BY c.id",
        (version,),
    )


def get_added_version(db: Connection, id: int) -> int:
    """The version that last added a subscription."""
    row = db.execute(
        "SELECT max(version) FROM changes WHERE subscription = ? AND kind <> ?", (id, ChangeKind.CANCEL.value)
    ).fetchone()
    return int(row[0] or 0)


def compact_changes(db: Connection, version: int) -> None:
    """Deletes changes up to a version that later ones have superseded."""
    db.execute(
        "DELETE FROM changes WHERE version <= ?1 AND (kind = 1 OR EXISTS (SELECT 1 FROM changes d "
        "WHERE d.subscription = changes.subscription AND d.id > changes.id AND d.version <= ?1))",
        (version,),
    )


def _change(row: Row) -> tuple[int, SubscriptionChange]:
    kind = ChangeKind(row["kind"])
    name = str(row["subscription"])
    if kind is ChangeKind.CANCEL:
        return row["version"], SubscriptionChange.cancel(name)
    regions = json.loads(row["regions"] or "{}")
    return row["version"], SubscriptionChange(kind, name, row["text"], row["language"], regions)
